"""Slates by rank: the weight of each rank, and probabilities scaled so that a slate has its size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.kernels import elementary

Floats = NDArray[np.float64]


def rank_weights(n_items: int, rank_decay: str, exponent: float) -> Floats:
    """(n_items,) weight of rank r = 1, 2, ...: ``power`` r^-exponent, ``log`` 1 / log2(1 + r)."""
    rank = np.arange(1, n_items + 1, dtype=np.float64)
    if rank_decay == "log":
        logs = elementary.log(rank + 1.0)
        return logs[0] / logs
    return elementary.exp(-exponent * elementary.log(rank))


def scaled(weights: Floats, size: int, smallest: float, largest: float) -> Floats:
    """Rows of probabilities min(max(c weights, smallest), largest), c a row such that each sums to ``size``; (n, I)."""
    from recsim_mnar.kernels import _slates_kernel

    out = np.empty_like(weights)
    _slates_kernel.scale_rows(weights, float(size), smallest, largest, out)
    return out
