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
def buy(seeds, stream, users, periods, control, treated, shown, bought):
    """One period: ``bought[r, i]`` is Y^T of the item where it is shown and Y^C where it is not.

    Y^C and Y^T come from two words each of one block, so they are independent draws that no recommendation changes.

    Args:
        seeds: (n,) addresses, with the next three.
        stream: see above.
        users: see above.
        periods: see above.
        control: (n, I) P(Y^C = 1).
        treated: (n, I) P(Y^T = 1).
        shown: (n, I) uint8.
        bought: (n, I) uint8, out.
    """
    n, n_items = control.shape
    for r in range(n):
        first = np.uint64(periods[r]) * np.uint64(n_items)
        for i in range(n_items):
            a, b, c, d = block(seeds[r], stream, np.uint64(users[r]), first + np.uint64(i))
            if shown[r, i]:
                bought[r, i] = np.uint8(unit53(c, d) < treated[r, i])
            else:
                bought[r, i] = np.uint8(unit53(a, b) < control[r, i])


@kernel
def outcomes(seeds, stream, users, periods, control, treated, y_control, y_treated):
    """Both potential outcomes of every item in one period, (n, I) uint8; arguments as :func:`buy`."""
    n, n_items = control.shape
    for r in range(n):
        first = np.uint64(periods[r]) * np.uint64(n_items)
        for i in range(n_items):
            a, b, c, d = block(seeds[r], stream, np.uint64(users[r]), first + np.uint64(i))
            y_control[r, i] = np.uint8(unit53(a, b) < control[r, i])
            y_treated[r, i] = np.uint8(unit53(c, d) < treated[r, i])
