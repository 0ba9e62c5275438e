"""What the logging policy saw, as labels (for shares of actions) and as numbers (for reward models)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.log.columns import Floats
from recsim_mnar.tables.rows import Ids

FEW = 12
"""Numbers with more values than this are cut into groups of equal size."""
GROUPS = 5
LEVELS = 50
"""Texts with more values than this are no use to a regression."""


def labels(context: Mapping[str, Floats | Ids], n: int) -> tuple[NDArray[np.int64], list[str]]:
    """(n,) codes from 0, one for each combination of values, and how each column was used.

    Args:
        context: by column, (n,) numbers or ids; missing ones are a value of their own.
        n: rows.
    """
    codes = np.zeros(n, np.int64)
    said = []
    for name, values in context.items():
        if isinstance(values, Ids):
            own, number = values.codes + 1, values.number + 1
            said.append(f"{name} ({values.number} values)")
        else:
            distinct = np.unique(values[~np.isnan(values)])
            if len(distinct) > FEW:
                edges = np.unique(np.nanquantile(values, np.arange(1, GROUPS) / GROUPS))
                own = np.searchsorted(edges, values, side="right") + 1
                number = len(edges) + 2
                said.append(f"{name} (in {len(edges) + 1} groups of about equal size)")
            else:
                own, number = np.searchsorted(distinct, values) + 1, len(distinct) + 2
                said.append(f"{name} ({len(distinct)} values)")
            own = np.where(np.isnan(values), 0, own)
        codes = np.unique(codes * number + own, return_inverse=True)[1].reshape(n)
    return codes, said


def as_numbers(context: Mapping[str, Floats | Ids], n: int) -> tuple[Floats | None, list[str]]:
    """(n, d) numbers, None where there are none, and the columns that are left out.

    Numbers are taken to mean 0 and standard deviation 1, the mean in place of what is missing; texts of up to
    :data:`LEVELS` values are one column a value.
    """
    columns: list[Floats] = []
    left = []
    for name, values in context.items():
        if isinstance(values, Ids):
            if values.number > LEVELS:
                left.append(name)
            else:
                columns += [(values.codes == code).astype(np.float64) for code in range(values.number)]
            continue
        known = values[~np.isnan(values)]
        mean, spread = (float(known.mean()), float(known.std())) if known.size else (0.0, 0.0)
        columns.append((np.where(np.isnan(values), mean, values) - mean) / (spread or 1.0))
    return (np.column_stack(columns) if columns else None), left
