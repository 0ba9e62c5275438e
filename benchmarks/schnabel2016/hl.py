"""HL-MAR and HL-MNAR on Coat: every rank, means and medians, and paired tests of MF-IPS against them.

    python benchmarks/schnabel2016/hl.py --coat DIR [--mnar-ranks D ...] [--mar-ranks D ...] [--out DIR]

The part of Table 2 that takes longest, apart: fits are kept under ``work/table2.coat.hl`` of --out (this folder unless
named). MF-IPS and MF-Naive are the forms that ``run.py table2`` chose on the training file, fitted from one start.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import parts
from ordinal import HL
from real import Settings
from real_table import POWERS, PUBLISHED
from scipy import stats

from recsim_mnar.datasets.rating_studies import RatingStudy, load_coat
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.models.factorization import FactorizationConfig, factorise

RANKS = (5, 10, 20, 40)  # the paper's
SPREAD = 0.1
ITERATIONS = 2000  # at most; a fit ends where its bound stops rising
Errors = dict[str, np.ndarray]
"""Of each test rating, by metric."""


def main(given: list[str] | None = None) -> int:
    parser = parts.parser_of(__doc__, out="this folder")
    parser.add_argument("--coat", type=Path, required=True, help="folder of the Coat study")
    parser.add_argument("--mar-ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--mnar-ranks", type=int, nargs="+", default=RANKS)
    options = parser.parse_args(given)
    out = parts.folder(options.out, quick=False)
    data = load_coat(options.coat)
    errors = factorised(data, parts.read(out)["table2"]["data"]["coat"]["chosen"])
    rows: list[dict[str, Any]] = []
    for name, ranks in (("HL-MAR", options.mar_ranks), ("HL-MNAR", options.mnar_ranks)):
        errors[name], tried = best_of(name, ranks, data, out / "work" / "table2.coat.hl")
        rows += tried
    checks = checked(errors)
    text = "\n".join([*of_ranks(rows), *of_methods(errors), *parts.verdicts(checks)])
    kept = [{key: row[key] for key in ("model", "d", *SCORES, "iterations", "converged")} for row in rows]
    parts.write(out, "hl", {"rows": kept, "checks": checks}, text)
    print(text)
    return 0


def factorised(data: RatingStudy, chosen: dict[str, Any]) -> dict[str, Errors]:
    """MF-IPS and MF-Naive by the forms that were chosen, fitted from one start."""
    settings, test, train = Settings(), data.test, data.train
    assert data.propensities is not None  # the study has them
    weights = {"MF-IPS": 1.0 / train.at(data.propensities), "MF-Naive": np.full(len(train), 1.0 / train.density)}
    errors: dict[str, Errors] = {}
    for method, w in weights.items():
        errors[method] = {}
        for metric, power in POWERS.items():
            form = FactorizationConfig(**chosen[method][metric]["form"])
            fit = factorise(
                train, w, form, seed=settings.seed, max_iterations=settings.max_iterations, value_tolerance=1e-7
            )
            errors[method][metric] = np.abs(fit.factors.at(test.users, test.items) - test.values) ** power
    return errors


SCORES = ("mse", "mae", "mae of means")


def best_of(name: str, ranks: list[int], data: RatingStudy, folder: Path) -> tuple[Errors, list[dict[str, Any]]]:
    """Errors of the rank that is best on the test set, by metric, and a row for each rank."""
    best: Errors = {}
    rows = []
    for rank in ranks:
        setting = {"rank": rank, "missing": name == "HL-MNAR", "response_spread": SPREAD, "iterations": ITERATIONS}
        means, medians, bounds, converged = kept_fit(data.train, setting, Settings().seed, folder)
        off = np.abs(data.test.at(means) - data.test.values)
        tried = {"mse": off**2, "mae": np.abs(data.test.at(medians) - data.test.values), "mae of means": off}
        scores = {score: float(f"{tried[score].mean():.4f}") for score in SCORES}
        never_falls = bool(np.diff(bounds).min(initial=0.0) >= -1e-9 * abs(bounds[-1]))
        ended = {"iterations": len(bounds) - 1, "converged": converged, "never falls": never_falls}
        rows.append({"model": name, "d": str(rank), **scores, **ended})
        for metric in POWERS:
            if metric not in best or tried[metric].mean() < best[metric].mean():
                best[metric] = tried[metric]
    return best, rows


def of_ranks(rows: list[dict[str, Any]]) -> list[str]:
    """The table of every rank."""
    head = ["model", "d", "MSE", "MAE", "MAE of means", "iterations", "converged", "bound never falls"]
    cells = [
        [row["model"], row["d"], *(f"{row[score]:.4f}" for score in SCORES), str(row["iterations"]),
         *("yes" if row[what] else "no" for what in ("converged", "never falls"))]
        for row in rows
    ]  # fmt: skip
    title = ["## HL on Coat", "", "MAE is of the medians of the predicted ratings; next to it that of their means.", ""]
    return [*title, *parts.table(head, cells), "", "Best on the test set for each metric, as in the paper:", ""]


def of_methods(errors: dict[str, Errors]) -> list[str]:
    """The table of methods, each tested against MF-IPS."""
    head = ["method", "MSE", "published", "MAE", "published", "MF-IPS against it: t (p), MSE", "t (p), MAE"]
    rows = []
    for name, of in errors.items():
        reported = PUBLISHED["coat"][name]
        cells = [name, *(x for m in POWERS for x in (f"{of[m].mean():.4f}", f"{reported[m]:.3f}"))]
        for metric in POWERS:
            t, p = paired(errors, name, metric)
            cells.append("" if name == "MF-IPS" else f"{t:.2f} ({p:.1e})")
        rows.append(cells)
    return [*parts.table(head, rows), ""]


def paired(errors: dict[str, Errors], name: str, metric: str) -> tuple[float, float]:
    """Statistic and p of a paired t-test of MF-IPS against a method."""
    found = stats.ttest_rel(errors["MF-IPS"][metric], errors[name][metric])
    return float(found.statistic), float(found.pvalue)


def checked(errors: dict[str, Errors]) -> dict[str, bool]:
    """MF-IPS is better, and HL and MF-Naive stand in the published order."""
    checks = {}
    for name in [name for name in errors if name != "MF-IPS"]:
        for metric in POWERS:
            t, p = paired(errors, name, metric)
            checks[f"MF-IPS better than {name} in {metric.upper()}, paired t-test p = {p:.1e} < .001"] = (
                p < 0.001 and t < 0
            )
            if name.startswith("HL"):
                a, b = errors[name][metric].mean(), errors["MF-Naive"][metric].mean()
                reported = PUBLISHED["coat"]
                text = f"{name} and MF-Naive in the published order by {metric.upper()}: {a:.4f}, {b:.4f}"
                checks[text] = bool((a < b) == (reported[name][metric] < reported["MF-Naive"][metric]))
    return checks


def kept_fit(
    train: Ratings, setting: dict[str, Any], seed: int, folder: Path
) -> tuple[np.ndarray, np.ndarray, list[float], bool]:
    """A fit of HL, made once: kept with what it depends on.

    A fit that converged is the same under any bound on iterations that it did not reach; one that did not converge
    stands for its own bound alone.
    """
    form = {name: value for name, value in setting.items() if name != "iterations"}
    of = repr((form, seed, hashlib.blake2b(train.values.tobytes() + train.items.tobytes()).hexdigest()))
    path = folder / f"{'mnar' if setting['missing'] else 'mar'}-{setting['rank']}-{setting['response_spread']:g}.npz"
    if path.exists():
        with np.load(path) as before:
            n, ended = len(before["bounds"]) - 1, bool(before["converged"])
            if str(before["of"]) == of and (n <= setting["iterations"] if ended else n == setting["iterations"]):
                return before["means"], before["medians"], before["bounds"].tolist(), ended
    fit = HL(**setting).fit(train, seed)
    means, medians, bounds, converged = fit.matrix, fit.medians, list(fit.bounds), fit.converged
    folder.mkdir(parents=True, exist_ok=True)
    with (path.parent / f"{path.name}.part").open("wb") as file:
        np.savez_compressed(
            file, of=of, means=means.astype(np.float32), medians=medians.astype(np.int8), bounds=bounds,
            converged=converged,
        )  # fmt: skip
    (path.parent / f"{path.name}.part").replace(path)
    return means, medians, bounds, converged


if __name__ == "__main__":
    sys.exit(main())
