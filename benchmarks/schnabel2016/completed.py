"""Section 6.2: the completed matrix "gives unrealistically high ratings to almost all movies", before it is re-ranked.

    python benchmarks/schnabel2016/completed.py --ml100k FILE [--out DIR]

The form is the one that ``results/table1.json`` was made with. Writes ``results/completed.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.datasets.rating_studies import load_ml100k
from recsim_mnar.errors import UserError
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.models.factorization import FactorizationConfig, factorise
from recsim_mnar.worlds.ratings import MARGINALS

HERE = Path(__file__).resolve().parent


def shares(ratings: Ratings, form: dict[str, Any], seed: int) -> dict[str, list[float]]:
    """Shares of the ratings 1 to 5, and the mean: as rated, of all cells as completed, and re-ranked."""
    fit = factorise(
        ratings, None, FactorizationConfig(**form), seed=seed, solver="als", max_iterations=60, value_tolerance=1e-5,
        warn=False,
    )  # fmt: skip
    whole = np.clip(np.rint(fit.factors.matrix()), 1, 5)
    stars = np.arange(1, 6)
    return {
        "what users rated": [*(float((ratings.values == r).mean()) for r in stars), float(ratings.values.mean())],
        "all cells, completed": [*(float((whole == r).mean()) for r in stars), float(whole.mean())],
        "all cells, re-ranked": [*map(float, MARGINALS), float(np.dot(stars, MARGINALS))],
    }


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ml100k", type=Path, required=True, help="u.data of GroupLens or ml-100k.inter of RecBole")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args(given)
    made = json.loads((HERE / "results" / "table1.json").read_text())
    try:
        found = shares(load_ml100k(options.ml100k), made["completion"], made["settings"]["seed"])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    lines = ["# ML-100K completed", "", "| ratings | 1 | 2 | 3 | 4 | 5 | mean |", "|---|---|---|---|---|---|---|"]
    lines += [f"| {name} | {' | '.join(f'{v:.3f}' for v in row)} |" for name, row in found.items()]
    high = sum(found["all cells, completed"][2:5])
    lines += ["", f"{high:.1%} of the completed cells are 3 or more; {sum(MARGINALS[2:]):.1%} after re-ranking."]
    text = "\n".join(lines)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "completed.md").write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
