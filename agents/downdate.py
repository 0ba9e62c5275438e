"""Item neighbourhoods as fitted without one view: exhaustive leave-one-out without refitting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.counts import view_counts, views_of
from recsim_mnar.agents.knn import compressed, inverse_norms, most_similar, squared_norms, work_space

if TYPE_CHECKING:
    from recsim_mnar.log import Log

_GRAM_UP_TO = 4096
"""Items up to which all dot products are made at once: 64 MB at most."""


def scores_without_each_view(
    log: Log, *, n_items: int, chunk: int, k: int, include_self: bool
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """For each view, the scores of its user's other views under an item neighbourhood fitted without it.

    They are the same, to the last bit, as those of a fit on the log without that row.

    Args:
        log: the organic rows are the views.
        n_items: number of items.
        chunk: at most so many views at a time.
        k: neighbours of an item.
        include_self: an item may be its own neighbour.

    Yields:
        Positions of views among the organic rows, (m,), and their scores, (m, n_items).
    """
    from recsim_mnar.agents import _downdate_kernel

    users, views = views_of(log, n_items)
    counts, _ = view_counts(log, n_items)
    owner = np.cumsum(np.concatenate([[True], users[1:] != users[:-1]])) - 1
    squares = squared_norms(counts)
    rows = _rows_and_next(counts, min(k, n_items), include_self)
    by_item, by_user = compressed(counts.tocsc()), compressed(counts)
    scale, work = inverse_norms(counts, 0), work_space(squares)
    views = np.array(views)
    gram = np.zeros((0, 0), work[0].dtype)
    if n_items <= _GRAM_UP_TO:
        gram = np.ascontiguousarray((counts.T @ counts).toarray(), dtype=gram.dtype)
    own, base = np.zeros(n_items, np.int64), np.empty(n_items)
    for begin in range(0, len(views), chunk):
        held = np.arange(begin, min(begin + chunk, len(views)))
        out = np.empty((len(held), n_items))
        _downdate_kernel.scores_without(
            held,
            views,
            owner,
            *by_item,
            *by_user,
            gram,
            squares,
            scale,
            min(k, n_items),
            include_self,
            *rows,
            work,
            own,
            base,
            out,
        )
        yield held, out


def _rows_and_next(counts: Any, k: int, include_self: bool) -> tuple[NDArray[Any], ...]:
    """Neighbour rows (n_items, k) with their lengths, the weakest of each full row, and the best that is not in it."""
    n_items = counts.shape[1]
    starts, neighbours, cosines = most_similar(counts, k + 1, include_self)
    length = np.diff(starts)
    width = int(length.max(initial=0))
    items = np.full((n_items, max(width, k) + 1), n_items, np.int32)
    values = np.full(items.shape, np.inf, np.float32)
    filled = np.arange(items.shape[1]) < length[:, None]
    items[filled], values[filled] = neighbours, cosines
    best_out = _take_weakest(items, values, length > k)
    length = np.minimum(length, k)
    kept_items, kept_values = items.copy(), values.copy()
    weakest = _take_weakest(kept_items, kept_values, length == k)
    order = np.argsort(items, axis=1, kind="stable")[:, :k]
    in_order = np.take_along_axis(items, order, axis=1), np.take_along_axis(values, order, axis=1)
    return (
        np.ascontiguousarray(in_order[0]),
        np.ascontiguousarray(in_order[1]),
        length.astype(np.int64),
        *weakest,
        *best_out,
    )


def _take_weakest(
    items: NDArray[np.int32], values: NDArray[np.float32], rows: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Take the smallest value (of equals the highest item) out of the named rows; (-1, 0) for the other rows."""
    which = np.flatnonzero(rows)
    item, value = np.full(len(items), -1, np.int32), np.zeros(len(items), np.float32)
    # Rows are in the order of items: the last of the smallest is the first in reverse.
    column = items.shape[1] - 1 - values[which, ::-1].argmin(axis=1)
    item[which], value[which] = items[which, column], values[which, column]
    items[which, column], values[which, column] = np.iinfo(np.int32).max, np.inf
    return item, value
