"""Simulation-based calibration of ``calibrate``, and what it makes of logs of others.

    python benchmarks/calibration/run.py sbc [--worlds 200] [--minutes 60] [--quick]
    python benchmarks/calibration/run.py presets [--logs 3] [--quick]
    python benchmarks/calibration/run.py table

``sbc`` (Talts et al. 2018) draws worlds from the prior, fits their logs, and keeps the rank of each functional's truth
among 99 draws, a line a fit in ``runs/``; it goes on where it was interrupted. ``table`` sums them up in
``results.json`` and in README.md. ``presets`` fits logs of every preset, and of sessions with more items:
these are not drawn from the prior. Bands: Säilynoja, Bürkner & Vehtari 2022; several at once: Holm 1979.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

import numpy as np
from _study import into_marks, parser_of, read, write_results
from generator import SETTINGS, log_of, world_of
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.fitting.calibration import calibrate_world
from recsim_mnar.fitting.members import MOST_STANDARD_ERRORS
from recsim_mnar.log.table import Log
from recsim_mnar.worlds.registry import listed_presets, make_world
from recsim_mnar.worlds.sessions.invariants import functionals

HERE = Path(__file__).parent
KEPT = HERE / "runs" / "sbc.jsonl"
USERS, DRAWS, LEVEL = 600, 99, 0.9
SAYS_LINK = 0.95


def fit_of(setting: str, number: int, users: int, draws: int) -> dict[str, Any]:
    """One world: the rank of each functional's truth among the draws, and what was said of the link."""
    world = world_of(setting, number)
    log = log_of(world, setting, users, 10_000 + number)
    began = time.process_time()
    row: dict[str, Any] = {"setting": setting, "number": number, "users": users}
    try:
        fitted = calibrate_world(log, seed=number, ensemble=draws)
    except UserError as error:
        return {**row, "refused": str(error)}
    cpu, truth = time.process_time() - began, functionals(world)
    known = [name for name in fitted.identified if name in truth]
    made = [functionals(fitted.make(i)) for i in range(draws)]
    rank = {name: rank_of(truth[name], np.array([each[name] for each in made]), number) for name in known}
    width = {
        name: (c["high"] - c["low"]) / max(abs(truth[name]), 1e-9) for name in known for c in [fitted.identified[name]]
    }
    facts = fitted.facts
    return {
        **row,
        "rows": len(log),
        "clicks": facts["clicks"],
        "cpu": round(cpu, 2),
        "link": facts["click_link"],
        "weight": round(facts["click_link_weight"], 4),
        "rank": rank,
        "width": {name: round(value, 4) for name, value in width.items()},
        "off": facts["click_rate_off"] > MOST_STANDARD_ERRORS,
    }


def rank_of(truth: float, draws: NDArray[np.float64], number: int) -> int:
    """How many draws are below the truth; ties by lot."""
    equal = np.isclose(draws, truth, rtol=1e-9, atol=1e-12)
    lot = int(np.random.default_rng(number).integers(int(equal.sum()) + 1))
    return int((draws[~equal] < truth).sum()) + lot


def sbc(worlds: int, minutes: float, *, quick: bool) -> None:
    """Fits of all settings in turn, until there are so many of each or the CPU minutes are over."""
    if quick:
        for setting in list(SETTINGS)[:2]:
            found = fit_of(setting, 0, 150, 19)
            print(f"{setting}: {found['clicks']} clicks, link {found['link']}, ranks among 19 {found['rank']}")
        return
    KEPT.parent.mkdir(exist_ok=True)
    done = {(row["setting"], row["number"]) for row in kept_rows()}
    with KEPT.open("a") as file:
        for number in range(worlds):
            for setting in SETTINGS:
                if time.process_time() > 60 * minutes:
                    return
                if (setting, number) not in done:
                    file.write(json.dumps(fit_of(setting, number, USERS, DRAWS)) + "\n")
                    file.flush()


def kept_rows() -> list[dict[str, Any]]:
    """What is done."""
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


def table() -> dict[str, Any]:
    """Coverage, p of uniform ranks, links, by setting and functional."""
    rows = kept_rows()
    fits = [row for row in rows if "rank" in row]
    out: dict[str, Any] = {"fits": {s: sum(r["setting"] == s for r in fits) for s in SETTINGS}}
    out["refused"] = {s: [r["refused"] for r in rows if r["setting"] == s and "refused" in r] for s in SETTINGS}
    cells: dict[str, dict[str, Any]] = {}
    for setting in SETTINGS:
        for name in dict.fromkeys(name for row in fits for name in row["rank"]):
            own = [row for row in fits if row["setting"] == setting and name in row["rank"]]
            if own:
                ranks = np.array([row["rank"][name] for row in own])
                cells.setdefault(name, {})[setting] = {
                    **cell_of(ranks), "width": round(float(np.median([row["width"][name] for row in own])), 3)
                }  # fmt: skip
    every = [cell for by in cells.values() for cell in by.values()]
    for key in ("p_below", "p_ranks"):
        for cell, corrected in zip(every, holm([cell[key] for cell in every]), strict=True):
            cell[f"{key}_holm"] = corrected
    out["pooled"] = {
        setting: [sum(by[setting]["inside"] for by in cells.values() if setting in by),
                  sum(by[setting]["of"] for by in cells.values() if setting in by)] for setting in SETTINGS
    }  # fmt: skip
    out["functionals"] = cells
    out["links"] = {setting: links_of([r for r in fits if r["setting"] == setting], setting) for setting in SETTINGS}
    out["off"] = [sum(r["off"] for r in fits), len(fits)]
    cpu = [r["cpu"] for r in fits]
    out["cpu_seconds"] = {"median": float(np.median(cpu)), "most": max(cpu), "sum": round(sum(cpu))}
    return out


def cell_of(ranks: NDArray[np.int64]) -> dict[str, Any]:
    """Coverage of the 90 % interval, p of less than .9, p of uniform ranks."""
    from scipy.stats import binom

    low = round((1 - LEVEL) / 2 * (DRAWS + 1))
    inside, n = int(((ranks >= low) & (ranks < DRAWS + 1 - low)).sum()), len(ranks)
    return {
        "inside": inside,
        "of": n,
        "p_below": float(binom.cdf(inside, n, LEVEL)),
        "p_ranks": ecdf_p(ranks),
        "mean_rank": round(float(ranks.mean() / DRAWS), 3),
    }


def extremeness(ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """(m,) the smallest pointwise p of the ECDF of ranks (m, n) at any of the places 1 .. DRAWS (Säilynoja et al.)."""
    from scipy.stats import binom

    n, places = ranks.shape[1], np.arange(1, DRAWS + 1)
    below = np.stack([(ranks < place).sum(axis=1) for place in places], axis=1)
    z = places / (DRAWS + 1)
    return np.asarray(2 * np.minimum(binom.cdf(below, n, z), binom.sf(below - 1, n, z)).min(axis=1))


@functools.lru_cache
def uniform_extremeness(n: int, simulated: int) -> NDArray[np.float64]:
    """Of so many uniform ranks, simulated."""
    draw = np.random.default_rng(n)
    return np.concatenate([extremeness(draw.integers(0, DRAWS + 1, (100, n))) for _ in range(simulated // 100)])


def ecdf_p(ranks: NDArray[np.int64], simulated: int = 20_000) -> float:
    """p of uniform ranks: how often uniform ones leave the band that these just touch, simultaneous over places."""
    own = extremeness(ranks[None, :])[0]
    return float((1 + (uniform_extremeness(len(ranks), simulated) <= own).sum()) / (1 + simulated))


def holm(p: list[float]) -> list[float]:
    """p values corrected for their number (Holm 1979)."""
    order, worst = np.argsort(p), 0.0
    out = [0.0] * len(p)
    for i, place in enumerate(order):
        worst = max(worst, min(1.0, (len(p) - i) * p[place]))
        out[place] = round(worst, 4)
    return out


def links_of(rows: list[dict[str, Any]], setting: str) -> dict[str, Any]:
    """How often the link was right, wrong, or not said, of all logs and of those with 500 clicks."""
    out: dict[str, Any] = {}
    for name, own in (("all", rows), ("500 clicks", [r for r in rows if r["clicks"] >= 500])):
        sure = [r for r in own if r["weight"] >= SAYS_LINK]
        wrong = sum(r["link"] != SETTINGS[setting][0] for r in sure)
        out[name] = {"right": len(sure) - wrong, "wrong": wrong, "cannot say": len(own) - len(sure), "of": len(own)}
    return out


def markdown(found: dict[str, Any]) -> str:
    """The table of README.md."""
    inside, of = (sum(pair[i] for pair in found["pooled"].values()) for i in (0, 1))
    lines = [
        f"{inside:,} of {of:,} intervals hold the truth, {inside / of:.3f}. In a cell: held, of how many; `!` where "
        "that is below .90 at p < .01, `~` where ranks are not uniform at p < .01, after Holm over all cells.",
        "",
        f"| functional | {' | '.join(SETTINGS)} | width / truth |",
        "|---" * (len(SETTINGS) + 2) + "|",
    ]
    for name, by in found["functionals"].items():
        text = [
            f"{c['inside']} of {c['of']}" + "!" * (c["p_below_holm"] < 0.01) + "~" * (c["p_ranks_holm"] < 0.01)
            if (c := by.get(setting)) else "" for setting in SETTINGS
        ]  # fmt: skip
        lines.append(f"| {name} | {' | '.join(text)} | {np.median([c['width'] for c in by.values()]):.3f} |")
    pooled = [f"{a / max(n, 1):.3f}" for a, n in found["pooled"].values()]
    lines.append(f"| all, share | {' | '.join(pooled)} | |")
    for name in ("all", "500 clicks"):
        cells = [
            f"{c['right']} / {c['wrong']} / {c['cannot say']}" for c in (found["links"][s][name] for s in SETTINGS)
        ]
        lines.append(f"| link right / wrong / cannot say, {name} | {' | '.join(cells)} | |")
    cpu = found["cpu_seconds"]
    refused = sum(len(each) for each in found["refused"].values())
    off = f"Fits whose click rate is off: {found['off'][0]} of {found['off'][1]}; logs refused: {refused}."
    spent = f"median {cpu['median']:.1f}, most {cpu['most']:.1f}, all {cpu['sum']:,}"
    return "\n".join([*lines, "", f"{off} CPU seconds a fit with {DRAWS} draws: {spent}."])


SIZES = {
    "sessions recogym-v1, 100 items": ("recogym-v1", ("n_items=100", "n_flips=50")),
    "sessions recogym-v1, 200 items": ("recogym-v1", ("n_items=200", "n_flips=100")),
    "sessions quick, 40 items": ("quick", ("n_items=40", "n_flips=20")),
    "sessions quick, 100 items": ("quick", ("n_items=100", "n_flips=50")),
}
PRESET_USERS = 500


def presets(logs: int, users: int) -> dict[str, Any]:
    """What ``calibrate`` makes of logs of every preset under the uniform policy; a traceback ends it."""
    worlds = {
        name: (name.split()[0], name.split()[1], ()) for name, _ in listed_presets() if not name.startswith("ratings")
    }
    worlds |= {name: ("sessions", *of) for name, of in SIZES.items()}
    found = {}
    for name, (kind, preset, settings) in worlds.items():
        rows = [preset_fit(kind, preset, settings, users, seed) for seed in range(logs)]
        found[name] = rows
        print(name, rows, flush=True)
    return found


def preset_fit(kind: str, preset: str, settings: tuple[str, ...], users: int, seed: int) -> dict[str, Any]:
    """One log: the line of its refusal, or factors found and which intervals miss the truth."""
    with tempfile.TemporaryDirectory() as folder:
        asked = ["simulate", "--world", kind, "--preset", preset, "--policy", "random", "--users", str(users)]
        asked += [word for each in settings for word in ("--set", each)]
        asked += ["--seed", str(seed), "--out", f"{folder}/log", "--quiet"]
        subprocess.run([sys.executable, "-m", "recsim_mnar", *asked], check=True, stdout=subprocess.DEVNULL)
        log, began = Log.read(f"{folder}/log/log"), time.process_time()
    try:
        fitted = calibrate_world(log, seed, ensemble=0)
    except UserError as error:
        return {"refused": str(error)}
    row: dict[str, Any] = {"cpu": round(time.process_time() - began, 1), "factors": fitted.facts.get("factors")}
    if kind == "sessions":
        truth = functionals(make_world(kind, preset, settings))
        known = {name: each for name, each in fitted.identified.items() if name in truth}
        row["missed"] = [name for name, each in known.items() if not each["low"] <= truth[name] <= each["high"]]
        row["intervals"] = len(known)
    return row


def preset_lines(found: dict[str, Any]) -> list[str]:
    """The table of README.md."""
    out = ["| preset | logs fitted | factors | intervals that hold | missed, of so many logs | CPU seconds a log |"]
    out.append("|---" * 6 + "|")
    for name, rows in found.items():
        fits = [row for row in rows if "refused" not in row]
        seconds = f"{np.mean([row['cpu'] for row in fits]):.1f}" if fits else ""
        factors = ", ".join(str(row["factors"]) for row in fits if row["factors"] is not None)
        held, missed = "", Counter(each for row in fits for each in row.get("missed", ()))
        if fits and "intervals" in fits[0]:
            number = sum(row["intervals"] for row in fits)
            held = f"{number - missed.total()} of {number}"
        said = ", ".join(f"{each} {number}" for each, number in missed.most_common())
        said = said or next((row["refused"] for row in rows if "refused" in row), "")
        out.append(f"| {name} | {len(fits)} of {len(rows)} | {factors} | {held} | {said} | {seconds} |")
    return out


def main() -> None:
    """The command line."""
    parser = parser_of(__doc__, quick="two worlds of 150 users, or a log of 100; nothing kept")
    parser.add_argument("part", choices=["sbc", "presets", "table"])
    parser.add_argument("--worlds", type=int, default=200, help="of each setting")
    parser.add_argument("--minutes", type=float, default=60.0, help="of CPU, then it stops")
    parser.add_argument("--logs", type=int, default=3, help="of each preset")
    given, path = parser.parse_args(), HERE / "results.json"
    if given.part == "sbc":
        sbc(given.worlds, given.minutes, quick=given.quick)
    elif given.part == "presets" and given.quick:
        presets(1, 100)
    elif given.part == "presets":
        found = presets(given.logs, PRESET_USERS)
        write_results(path, read(path) | {"presets": found}, 17)
        into_marks(HERE / "README.md", "presets", preset_lines(found))
    else:
        found = table()
        write_results(path, read(path) | {"sbc": found}, 17)
        into_marks(HERE / "README.md", "sbc", markdown(found).splitlines())
        print(markdown(found))


if __name__ == "__main__":
    main()
