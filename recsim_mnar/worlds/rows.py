"""Rows that a world writes: a log's columns full of nulls, to be filled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.log import schema


def null_columns(n: int, optional: Iterable[str] = (), *, truth_column: str | None = None) -> dict[str, NDArray[Any]]:
    """The log's columns for n rows: null where a column has a null, else 0.

    Args:
        n: rows.
        optional: names of :data:`recsim_mnar.log.schema.OPTIONAL` that the rows have too.
        truth_column: name of a further column of NaN.
    """
    declared = (*schema.COLUMNS, *(schema.OPTIONAL[name] for name in optional))
    columns = {c.name: np.full(n, 0 if c.null is None else c.null, c.dtype) for c in declared}
    if truth_column is not None:
        columns[truth_column] = np.full(n, np.nan)
    return columns
