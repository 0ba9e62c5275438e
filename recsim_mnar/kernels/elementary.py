"""Logarithm and exponential of arrays, with the same bits on every machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def log(values: ArrayLike) -> Floats:
    """Return the natural logarithm of positive numbers, (n,)."""
    from recsim_mnar.kernels import _rng_kernel

    x = np.ascontiguousarray(values, np.float64)
    out = np.empty_like(x)
    _rng_kernel.map_log(x, out)
    return out


def exp(values: ArrayLike) -> Floats:
    """Return the exponential of numbers, (n,)."""
    from recsim_mnar.kernels import _rng_kernel

    x = np.ascontiguousarray(values, np.float64)
    out = np.empty_like(x)
    _rng_kernel.map_exp(x, out)
    return out
