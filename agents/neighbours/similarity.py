"""Which items are alike: cosines of the columns of view counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROWS_AT_A_TIME = 4096


def inverse_norms(counts: Any, axis: int) -> NDArray[np.float64]:
    """1 / Euclidean norm of the columns (axis 0) or rows (axis 1) of counts, 0 where there is nothing."""
    square = np.zeros(counts.shape[1 - axis], np.int64)
    index = counts.indices if axis == 0 else np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    np.add.at(square, index, counts.data.astype(np.int64) ** 2)
    scale = np.zeros(len(square))
    np.divide(1.0, np.sqrt(square), out=scale, where=square > 0)
    return scale


def compressed(matrix: Any) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Index pointer, indices and counts of a compressed matrix, in the types that the kernels are compiled for."""
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data.astype(np.int32)


def squared_norms(counts: Any) -> NDArray[np.int64]:
    """Of the columns of the matrix of counts."""
    squares = np.zeros(counts.shape[1], np.int64)
    np.add.at(squares, counts.indices, counts.data.astype(np.int64) ** 2)
    return squares


def work_space(squares: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
    """What the kernels that find neighbours write to in passing."""
    from recsim_mnar.agents.neighbours import _neighbours_kernel

    n_items = len(squares)
    bits = np.zeros(n_items, np.int32)
    # No dot product of columns is larger than the largest squared norm; half the bytes, where they suffice, are faster.
    kind = np.int32 if squares.max(initial=0) < 2**31 else np.int64
    return (
        np.zeros(n_items, kind),
        np.empty(n_items, np.int32),
        bits,
        np.empty(n_items, np.int32),
        bits.view(np.float32),
        np.empty(-(-n_items // _neighbours_kernel.BLOCK), np.int32),
    )


def most_similar(
    counts: Any, k: int, include_self: bool
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """The k items of largest cosine with each item, as (starts, items, cosines); rows in the order of items.

    Args:
        counts: (n_users, n_items) scipy CSR array of integers.
        k: at most so many an item; only positive cosines count, and equal ones go to the lower item.
        include_self: let an item be among its own.
    """
    from recsim_mnar.agents.neighbours import _neighbours_kernel

    n_items = counts.shape[1]
    k = min(k, n_items)
    scale, work = inverse_norms(counts, 0), work_space(squared_norms(counts))
    by_item, by_user = compressed(counts.tocsc()), compressed(counts)
    if counts.data.max(initial=1) == 1:
        by_user = (*by_user[:2], by_user[2][:0])
    n_out = np.empty(n_items, np.int64)
    columns, values = [], []
    for first in range(0, n_items, _ROWS_AT_A_TIME):
        last = min(first + _ROWS_AT_A_TIME, n_items)
        out_items = np.empty((last - first, k), np.int32)
        out_values = np.empty((last - first, k), np.float32)
        length = n_out[first:last]
        _neighbours_kernel.similar_items(
            *by_item, *by_user, scale, k, include_self, first, last, work, out_items, out_values, length
        )
        kept = np.arange(k) < length[:, None]
        columns.append(out_items[kept])
        values.append(out_values[kept])
    return np.concatenate([[0], np.cumsum(n_out)]), np.concatenate(columns), np.concatenate(values)
