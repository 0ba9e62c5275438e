"""Functions of arrays that round the same on every machine: log, exp, and the probabilities of slates by rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def log(values: ArrayLike) -> Floats:
    """Natural logarithm of positive numbers, (n,)."""
    from recsim_mnar.kernels import _rng_kernel

    x = np.ascontiguousarray(values, np.float64)
    out = np.empty_like(x)
    _rng_kernel.map_log(x, out)
    return out


def exp(values: ArrayLike) -> Floats:
    """Exponential, (n,)."""
    from recsim_mnar.kernels import _rng_kernel

    x = np.ascontiguousarray(values, np.float64)
    out = np.empty_like(x)
    _rng_kernel.map_exp(x, out)
    return out


def rank_weights(n_items: int, rank_decay: str, exponent: float) -> Floats:
    """(n_items,) weight of rank r = 1, 2, ...: ``power`` r^-exponent, ``log`` 1 / log2(1 + r)."""
    rank = np.arange(1, n_items + 1, dtype=np.float64)
    if rank_decay == "log":
        logs = log(rank + 1.0)
        return logs[0] / logs
    return exp(-exponent * log(rank))


def scaled(weights: Floats, size: int, smallest: float, largest: float) -> Floats:
    """Rows of probabilities min(max(c weights, smallest), largest), c a row such that each sums to ``size``; (n, I)."""
    from recsim_mnar.kernels import _slates_kernel

    out = np.empty_like(weights)
    _slates_kernel.scale_rows(weights, float(size), smallest, largest, out)
    return out
