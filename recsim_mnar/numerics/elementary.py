"""Elementary functions of arrays that round the same on every machine: a library's may differ in the last bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recsim_mnar.rng import blocks

Floats = NDArray[np.float64]


def log(values: ArrayLike) -> Floats:
    """Natural logarithm of positive numbers, (n,)."""
    from recsim_mnar.numerics import _rng_kernel

    x = np.ascontiguousarray(values, np.float64)
    out = np.empty_like(x)
    _rng_kernel.map_log(x, out)
    return out


def exp(values: ArrayLike) -> Floats:
    """Exponential, (n,)."""
    from recsim_mnar.numerics import _rng_kernel

    x = np.ascontiguousarray(values, np.float64)
    out = np.empty_like(x)
    _rng_kernel.map_exp(x, out)
    return out


def normals(seed: int, stream: int, n: int, index: int) -> Floats:
    """Standard normals, (n,): one each of users 0 .. n - 1 of the stream, at the address ``index``."""
    from recsim_mnar.numerics import _rng_kernel

    words = np.ascontiguousarray(blocks(seed, stream, np.arange(n), index)[:, 0])
    out = np.empty(n)
    _rng_kernel.map_normal(words, out)
    return out
