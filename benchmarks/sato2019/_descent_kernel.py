# mypy: ignore-errors
"""Stochastic gradient descent for a plain matrix factorisation, squared or logistic."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels._rng_kernel import block, exp64, unit53
from recsim_mnar.kernels.jit import kernel


@kernel
def descend(seed, stream, first, n_updates, cells, values, p, q, rate, penalty, logistic):
    """Draw cells uniformly and move both factors against the gradient of the cell's loss.

    Loss: (value - p_u . q_i)^2 / 2, or logistic where ``logistic``, plus penalty / 2 (|p_u|^2 + |q_i|^2).

    Args:
        seed: of the draws; update t takes index ``first + t``.
        stream: of the draws.
        first: index of the first draw.
        n_updates: how many.
        cells: (n,) int64, u * I + i.
        values: (n,) float64.
        p: (U, d) float64, changed in place.
        q: (I, d) float64, changed in place.
        rate: of learning.
        penalty: lambda.
        logistic: flag.
    """
    n_items, d = q.shape
    n = cells.size
    whole = d - d % 4
    for t in range(n_updates):
        a, b, _c, _d = block(seed, stream, np.uint64(0), np.uint64(first + t))
        j = min(int(unit53(a, b) * n), n - 1)
        u, i = cells[j] // n_items, cells[j] % n_items
        # Four sums side by side: one after another the additions would wait for each other.
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for k in range(0, whole, 4):
            s0 += p[u, k] * q[i, k]
            s1 += p[u, k + 1] * q[i, k + 1]
            s2 += p[u, k + 2] * q[i, k + 2]
            s3 += p[u, k + 3] * q[i, k + 3]
        for k in range(whole, d):
            s0 += p[u, k] * q[i, k]
        guess = (s0 + s1) + (s2 + s3)
        if logistic:
            guess = 1.0 / (1.0 + exp64(-guess))
        error = values[j] - guess
        for k in range(d):
            old = p[u, k]
            p[u, k] += rate * (error * q[i, k] - penalty * old)
            q[i, k] += rate * (error * old - penalty * q[i, k])
