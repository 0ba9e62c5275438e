"""Does calibration recover worlds that it is told nothing of, and what does it make of real logs?

    python benchmarks/calibration/run.py recovery [--worlds 200] [--first 0] [--quick]
    python benchmarks/calibration/run.py real --ml100k FILE --obp FOLDER --coat FOLDER
    python benchmarks/calibration/run.py misfits
    python benchmarks/calibration/run.py table

``recovery`` keeps one file a world in ``recovery/`` and goes on where it was interrupted. ``table`` writes
``results.json`` and the table in README.md's place.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from generator import FAMILIES, family_of, world_of

from recsim_mnar.errors import UserError
from recsim_mnar.fitting.calibration import calibrate_world
from recsim_mnar.fitting.calibration.functionals import functionals
from recsim_mnar.log.files import write_json
from recsim_mnar.log.table import Log
from recsim_mnar.policy import registry
from recsim_mnar.simulate import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld

HERE = Path(__file__).parent
USERS = 2000
POSTERIOR = ("p_organic_to_bandit", "p_leave_organic", "p_bandit_to_organic", "p_leave_bandit")


def log_of(world: SessionsWorld, users: int, seed: int) -> Log:
    """A log under the uniform policy, with nothing in its provenance but the number of items."""
    uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
    log = simulate(world, uniform, users, seed)
    return Log(log.columns, {"world": {"params": {"n_items": world.n_items}}})


def recovered(number: int, users: int, members: int) -> dict[str, Any]:
    """One world: truth, intervals, ranks of the truth among the ensemble, seconds."""
    world = world_of(number)
    log = log_of(world, users, 10_000 + number)
    began, cpu = time.perf_counter(), time.process_time()
    fitted = calibrate_world(log, seed=number, ensemble=members)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    truth = functionals(world)
    ranks = {name: sum(getattr(member, name) < truth[name] for member in fitted.ensemble) for name in POSTERIOR}
    told = {
        name: {"truth": truth[name], **{k: v for k, v in found.items() if k != "why"}}
        for name, found in fitted.identified.items()
    }
    return {
        "number": number,
        "family": family_of(number),
        "params": world.params.to_dict(),
        "rows": len(log),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "identified": told,
        "not_identified": sorted(fitted.not_identified),
        "factors": fitted.facts["factors"],
        "click_link": fitted.facts["click_link"],
        "ranks": ranks,
    }


def recovery(first: int, worlds: int, quick: bool) -> None:
    """Worlds first .. first + worlds - 1, each to a file."""
    users, members = (300, 5) if quick else (USERS, 20)
    folder = HERE / "recovery"
    for number in range(first, first + worlds):
        path = folder / f"{number:03d}.json"
        if path.exists() and not quick:
            continue
        found = recovered(number, users, members)
        if quick:
            inside = [c["low"] <= c["truth"] <= c["high"] for c in found["identified"].values()]
            print(f"world {number} ({found['family']}): {sum(inside)} of {len(inside)} inside, {found['seconds']} s")
            continue
        folder.mkdir(exist_ok=True)
        write_json(path, found)


def table() -> dict[str, Any]:
    """Coverage by functional and family, and ranks."""
    found = [json.loads(path.read_text()) for path in sorted((HERE / "recovery").glob("*.json"))]
    names = list(dict.fromkeys(name for each in found for name in each["identified"]))
    coverage: dict[str, Any] = {}
    for name in names:
        coverage[name] = {}
        for family in ("all", *FAMILIES):
            own = [e["identified"][name] for e in found if name in e["identified"] and family in ("all", e["family"])]
            inside = [c["low"] <= c["truth"] <= c["high"] for c in own]
            width = [(c["high"] - c["low"]) / max(abs(c["truth"]), 1e-9) for c in own]
            if own:
                coverage[name][family] = [sum(inside), len(inside), round(float(np.median(width)), 3)]
    ranks = {name: [int(e["ranks"][name]) for e in found] for name in POSTERIOR}
    return {
        "worlds": len(found),
        "coverage": coverage,
        "pooled": [sum(c["all"][0] for c in coverage.values()), sum(c["all"][1] for c in coverage.values())],
        "ranks": {name: {"p": round(uniform_p(r, 21), 3)} for name, r in ranks.items()},
        "link_found": {
            family: [sum(e["click_link"] == ("logistic" if family == "logistic" else "recogym") for e in own), len(own)]
            for family in FAMILIES
            if (own := [e for e in found if e["family"] == family])
        },
        "seconds": [max(e["seconds"] for e in found), float(np.median([e["seconds"] for e in found]))],
        "cpu_seconds": [max(e["cpu_seconds"] for e in found), float(np.median([e["cpu_seconds"] for e in found]))],
    }


def markdown(found: dict[str, Any]) -> str:
    """The table of README.md."""
    columns = ("all", *FAMILIES)
    inside, of = found["pooled"]
    lines = [
        f"{found['worlds']} worlds; {inside} of {of} intervals hold the truth, {inside / of:.3f}.",
        "",
        f"| functional | {' | '.join(columns)} | width / truth, median |",
        "|---" * (len(columns) + 2) + "|",
    ]
    for name, by_family in found["coverage"].items():
        cells = [f"{by_family[c][0]} of {by_family[c][1]}" if c in by_family else "" for c in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {by_family['all'][2]} |")
    ranks = ", ".join(f"{name} {told['p']}" for name, told in found["ranks"].items())
    links = ", ".join(f"{family} {right} of {n}" for family, (right, n) in found["link_found"].items())
    lines += [
        "",
        f"Ranks of the truth, p of uniformity: {ranks}. Click link found: {links}. CPU seconds a log: median "
        f"{found['cpu_seconds'][1]:.1f}, most {found['cpu_seconds'][0]:.1f}.",
    ]
    return "\n".join(lines)


def write_table(name: str, text: str) -> None:
    """Put text between the marks ``<!-- name -->`` and ``<!-- end name -->`` of README.md."""
    path = HERE / "README.md"
    before, _, rest = path.read_text().partition(f"<!-- {name} -->")
    _, _, after = rest.partition(f"<!-- end {name} -->")
    path.write_text(f"{before}<!-- {name} -->\n{text}\n<!-- end {name} -->{after}")


def uniform_p(ranks: list[int], places: int) -> float:
    """p value of a chi-square test that ranks 0 .. places - 1 are alike, in seven bins."""
    from scipy.stats import chisquare

    counts = np.bincount(np.array(ranks) * 7 // places, minlength=7)
    return float(chisquare(counts).pvalue)


def real(ml100k: Path, obp: Path, coat: Path) -> dict[str, Any]:
    """Seconds and what was found on the logs of others."""
    jobs: dict[str, tuple[Path, str]] = {"ml-100k": (ml100k, "sessions"), "coat": (coat, "ratings")}
    for policy in ("random", "bts"):
        for campaign in ("all", "men", "women"):
            path = obp / "dataset" / "obd" / policy / campaign / f"{campaign}.csv"
            jobs[f"open bandit {policy} {campaign}"] = (path, "sessions")
    found = {}
    for name, (path, world) in jobs.items():
        began, cpu = time.perf_counter(), time.process_time()
        fitted = calibrate_world(path, world)
        found[name] = {
            "seconds": round(time.perf_counter() - began, 1),
            "cpu_seconds": round(time.process_time() - cpu, 1),
            "identified": fitted.identified,
            "not_identified": fitted.not_identified,
            "facts": fitted.facts,
        }
        print(name, found[name]["seconds"], "s,", found[name]["cpu_seconds"], "s of CPU", flush=True)
    return found


def misfits() -> dict[str, str]:
    """Logs that fit no world: what is said."""
    log = log_of(SessionsWorld(SessionsParams(n_items=50)), 1000, 3)
    organic = log.organic()
    order = np.argsort(np.random.default_rng(0).random(len(organic)))
    shuffled = Log({**organic.columns, "item": organic["item"][order]}, log.provenance)
    first = organic.select(organic["user"] == organic["user"][0])
    long_life = Log({**organic.columns, "user": np.zeros(len(organic), int), "step": np.arange(len(organic))})
    few = log_of(SessionsWorld(SessionsParams(n_items=200, no_repeats=True, sigma_mu_organic=0.5)), 1000, 4).organic()
    cases: dict[str, Callable[[], Any]] = {
        "shuffled items": lambda: calibrate_world(shuffled),
        "one user": lambda: calibrate_world(long_life),
        "one user's few rows": lambda: calibrate_world(first),
        "no item twice": lambda: calibrate_world(few),
        "10 rows": lambda: calibrate_world(log.select(np.arange(10))),
    }
    said = {}
    for name, fit in cases.items():
        try:
            fitted = fit()
            told = {k: v["why"] for k, v in fitted.not_identified.items() if k in ("personal_bits", "drift_per_event")}
            said[name] = f"factors: {fitted.facts['factors']}, no repeats: {fitted.facts['no_repeats']}; {told}"
        except UserError as error:
            said[name] = f"refused: {error}"
        print(f"{name}: {said[name]}")
    return said


def _keep(part: str, found: Any) -> None:
    path = HERE / "results.json"
    whole = json.loads(path.read_text()) if path.exists() else {}
    write_json(path, {**whole, part: found})


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["recovery", "real", "misfits", "table"])
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="three worlds of 300 users, nothing kept")
    for name in ("ml100k", "obp", "coat"):
        parser.add_argument(f"--{name}", type=Path)
    given = parser.parse_args()
    if given.part == "recovery":
        recovery(given.first, min(given.worlds, 3) if given.quick else given.worlds, given.quick)
    elif given.part == "real":
        _keep("real", real(given.ml100k, given.obp, given.coat))
    elif given.part == "misfits":
        _keep("misfits", misfits())
    else:
        found = table()
        _keep("recovery", found)
        write_table("recovery", markdown(found))
        print(markdown(found))


if __name__ == "__main__":
    main()
