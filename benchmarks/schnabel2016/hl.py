"""HL-MAR and HL-MNAR on Coat: every rank, means and medians, and paired tests of MF-IPS against them.

    python benchmarks/schnabel2016/hl.py --coat DIR [--mnar-ranks D ...] [--mar-ranks D ...] [--out DIR]

The part of Table 2 that takes longest, apart: fits are kept under ``work/table2.coat.hl`` of --out (this folder unless
named). MF-IPS and MF-Naive are the forms that ``run.py table2`` chose on the training file, fitted from one start.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import parts
from real import Settings, kept_hl
from real_table import POWERS, PUBLISHED
from scipy import stats

from recsim_mnar.datasets.rating_studies import load_coat
from recsim_mnar.models.factorization import FactorizationConfig, factorise


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coat", type=Path, required=True, help="folder of the Coat study")
    settings = Settings()
    parser.add_argument("--mar-ranks", type=int, nargs="+", default=settings.hl_ranks)
    parser.add_argument("--mnar-ranks", type=int, nargs="+", default=settings.hl_ranks)
    parser.add_argument("--out", type=Path, help="default: this folder")
    options = parser.parse_args(given)
    out = parts.folder(options.out, quick=False)
    data = load_coat(options.coat)
    test, train = data.test, data.train
    errors: dict[str, dict[str, Any]] = {}
    chosen = parts.read(out)["table2"]["data"]["coat"]["chosen"]
    assert data.propensities is not None  # the study has them
    weights = {"MF-IPS": 1.0 / train.at(data.propensities), "MF-Naive": np.full(len(train), 1.0 / train.density)}
    for method, w in weights.items():
        errors[method] = {}
        for metric in POWERS:
            form = FactorizationConfig(**chosen[method][metric]["form"])
            fit = factorise(
                train, w, form, seed=settings.seed, max_iterations=settings.max_iterations, value_tolerance=1e-7
            )
            guess = fit.factors.at(test.users, test.items)
            errors[method][metric] = np.abs(guess - test.values) ** POWERS[metric]
    rows = []
    for name, missing, ranks in (("HL-MAR", False, options.mar_ranks), ("HL-MNAR", True, options.mnar_ranks)):
        best: dict[str, Any] = {}
        for rank in ranks:
            setting = {"rank": rank, "missing": missing, "response_spread": settings.hl_spreads[0],
                       "iterations": settings.hl_iterations}  # fmt: skip
            means, medians, bounds, converged = kept_hl(
                (train, setting, settings.seed, out / "work" / "table2.coat.hl")
            )
            tried = {
                "mse": (test.at(means) - test.values) ** 2, "mae": np.abs(test.at(medians) - test.values),
                "mae of means": np.abs(test.at(means) - test.values),
            }  # fmt: skip
            steps = np.diff(bounds).min(initial=0.0) >= -1e-9 * abs(bounds[-1])
            rows.append([name, str(rank), *(f"{tried[k].mean():.4f}" for k in tried), str(len(bounds) - 1),
                         "yes" if converged else "no", "yes" if steps else "no"])  # fmt: skip
            for metric in POWERS:
                if metric not in best or tried[metric].mean() < best[metric].mean():
                    best[metric] = tried[metric]
        errors[name] = best
    lines = ["## HL on Coat", "", "MAE is of the medians of the predicted ratings; next to it that of their means.", ""]
    head = ["model", "d", "MSE", "MAE", "MAE of means", "iterations", "converged", "bound never falls"]
    lines += parts.table(head, rows)
    lines += ["", "Best on the test set for each metric, as in the paper:", ""]
    head = ["method", "MSE", "published", "MAE", "published", "MF-IPS against it: t (p), MSE", "t (p), MAE"]
    table, checks = [], {}
    for name, of in errors.items():
        reported = PUBLISHED["coat"][name]
        cells = [name, *(x for m in POWERS for x in (f"{of[m].mean():.4f}", f"{reported[m]:.3f}"))]
        for metric in POWERS:
            if name == "MF-IPS":
                cells.append("")
                continue
            found = stats.ttest_rel(errors["MF-IPS"][metric], of[metric])
            cells.append(f"{found.statistic:.2f} ({found.pvalue:.1e})")
            text = f"MF-IPS better than {name} in {metric.upper()}, paired t-test p = {found.pvalue:.1e} < .001"
            checks[text] = bool(found.pvalue < 0.001 and found.statistic < 0)
            if name.startswith("HL"):
                a, b = of[metric].mean(), errors["MF-Naive"][metric].mean()
                same = (a < b) == (reported[metric] < PUBLISHED["coat"]["MF-Naive"][metric])
                checks[f"{name} and MF-Naive in the published order by {metric.upper()}: {a:.4f}, {b:.4f}"] = bool(same)
        table.append(cells)
    lines += [*parts.table(head, table), "", *parts.verdicts(checks)]
    reported = [
        {"model": row[0], "d": row[1], "mse": float(row[2]), "mae": float(row[3]), "mae of means": float(row[4]),
         "iterations": int(row[5]), "converged": row[6] == "yes"}
        for row in rows
    ]  # fmt: skip
    parts.write(out, "hl", {"rows": reported, "checks": checks}, "\n".join(lines))
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
