"""Rows of the sessions world: the table that its kernels write, column by column, into memory that they do not own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.log import schema
from recsim_mnar.worlds.sessions.views import aligned

_ONE_BLOCK = 1 << 25
"""Bytes of a log up to which its columns share a block, for fresh memory comes by the page, and a long block in larger
ones. A longer one is given back to the system at once, where single columns are kept for the next log."""


def new_rows(capacity: int, keep_truth: bool) -> Any:
    """Room for so many rows, not filled yet; with a place for the truth of each where it is kept."""
    from recsim_mnar.worlds.sessions import _sessions_kernel

    types = [np.dtype(column.dtype) for column in schema.COLUMNS]
    edges = np.cumsum([0] + [-(-capacity * kind.itemsize // 64) * 64 for kind in types])
    if edges[-1] > _ONE_BLOCK:
        arrays = [aligned(capacity, kind) for kind in types]
    else:
        block = aligned(int(edges[-1]), np.uint8)
        arrays = [
            block[first : first + capacity * kind.itemsize].view(kind)
            for first, kind in zip(edges, types, strict=False)
        ]
    return _sessions_kernel.Rows._make([*arrays, np.empty(capacity if keep_truth else 0)])


def grown(rows: Any, capacity: int, used: int) -> Any:
    """Rows with more room, the first ``used`` kept."""
    larger = []
    for old in rows:
        new = np.empty(capacity if len(old) else 0, old.dtype)
        new[:used] = old[:used]
        larger.append(new)
    return type(rows)(*larger)


def columns_of(rows: Any, used: int, keep_truth: bool) -> dict[str, NDArray[Any]]:
    """The first ``used`` rows, as views."""
    names = (*schema.NAMES, "click_probability") if keep_truth else schema.NAMES
    return {name: column[:used] for name, column in zip(names, rows, strict=False)}
