# mypy: ignore-errors
"""The purchases world's period: what each user would buy, with and without a recommendation."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels._rng_kernel import block, exp64, unit53
from recsim_mnar.kernels.jit import kernel


@kernel
def logistic(x, out):
    """``out`` = 1 / (1 + exp(-x)), (n, I)."""
    n, m = x.shape
    for r in range(n):
        for i in range(m):
            out[r, i] = 1.0 / (1.0 + exp64(-x[r, i]))


@kernel
def _uniforms(seed, stream, user, index, shared):
    """The uniforms below which Y^C and Y^T are 1: one for both where ``shared``, else one each from the same block."""
    a, b, c, d = block(seed, stream, user, index)
    of_control = unit53(a, b)
    of_treated = of_control if shared else unit53(c, d)
    return of_control, of_treated


@kernel
def buy(seeds, stream, users, periods, shared, control, treated, shown, bought):
    """One period: ``bought[r, i]`` is Y^T of the item where it is shown and Y^C where it is not.

    Args:
        seeds: (n,) addresses, with the next three.
        stream: see above.
        users: see above.
        periods: see above.
        shared: whether one uniform decides both outcomes of a cell, see :func:`_uniforms`.
        control: (n, I) P(Y^C = 1).
        treated: (n, I) P(Y^T = 1).
        shown: (n, I) uint8.
        bought: (n, I) uint8, out.
    """
    n, n_items = control.shape
    for r in range(n):
        first = np.uint64(periods[r]) * np.uint64(n_items)
        for i in range(n_items):
            of_control, of_treated = _uniforms(seeds[r], stream, np.uint64(users[r]), first + np.uint64(i), shared)
            if shown[r, i]:
                bought[r, i] = np.uint8(of_treated < treated[r, i])
            else:
                bought[r, i] = np.uint8(of_control < control[r, i])


@kernel
def outcomes(seeds, stream, users, periods, shared, control, treated, y_control, y_treated):
    """Both potential outcomes of every item in one period, (n, I) uint8; arguments as :func:`buy`."""
    n, n_items = control.shape
    for r in range(n):
        first = np.uint64(periods[r]) * np.uint64(n_items)
        for i in range(n_items):
            of_control, of_treated = _uniforms(seeds[r], stream, np.uint64(users[r]), first + np.uint64(i), shared)
            y_control[r, i] = np.uint8(of_control < control[r, i])
            y_treated[r, i] = np.uint8(of_treated < treated[r, i])
