"""Table 1: four lists of ten, the more of which is bought the less they cause (section 2.1).

The paper draws its lists in a figure; these have the properties that it names: half of each was recommended, precision
and total uplift rank them in opposite order, and precision among the recommended is the same for all.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from recsim_mnar.estimators.uplift import evaluate_lists
from recsim_mnar.log.exposures import Exposures

# Of each list the hidden classes of the five items that were recommended, and of the five that were not.
LISTS = {
    "A": ("TU TU TU FD FD", "TU TU TU FD FD"),
    "B": ("TU TU FU FD FD", "TU TU FU FD FD"),
    "C": ("TU FU FU FD FD", "TU FU FU FD FD"),
    "D": ("TU FU FU TD FD", "TU FU FU TD FD"),
}
METRICS = ("precision", "precision_recommended", "uplift")


def table1() -> dict[str, Any]:
    rows = {name: row(*(half.split() for half in halves)) for name, halves in LISTS.items()}
    order = {key: [r[key] for r in rows.values()] for key in ("total", *METRICS)}
    checks = {
        "total uplift falls and precision rises from A to D": falls(order["total"]) and falls(order["precision"][::-1]),
        "precision of the recommended is the same for all": len(set(order["precision_recommended"])) == 1,
        "Uplift@10 ranks as total uplift": falls(order["uplift"]),
    }
    return {"rows": rows, "checks": checks}


def row(shown: list[str], hidden: list[str]) -> dict[str, float]:
    """Total uplift of a list and what the log tells of it."""
    bought = np.array([kind in ("TU", "FU") for kind in shown] + [kind in ("FU", "TD") for kind in hidden])
    recommended = np.arange(len(bought)) < len(shown)
    there = np.flatnonzero(recommended | bought)
    n = len(bought)
    cells = Exposures(0 * there, there, 0 * there, recommended[there], bought[there], 1, n, 1)
    told = evaluate_lists(cells, np.arange(n)[None], metrics=METRICS)
    caused = sum((kind == "TU") - (kind == "TD") for kind in [*shown, *hidden])
    return {"total": caused, **{metric: told[metric].value for metric in METRICS}}


def falls(values: list[float]) -> bool:
    return all(a > b for a, b in itertools.pairwise(values))
