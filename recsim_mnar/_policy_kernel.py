"""Jitted core of the softening wrappers."""

from __future__ import annotations

from recsim_mnar._jit import kernel
from recsim_mnar._rng_kernel import exp64


@kernel
def softmax_rows(scores, temperature, out):
    """Row by row softmax of scores / temperature: (n, p) float64, summed in index order so that a row stands alone."""
    n, p = scores.shape
    for i in range(n):
        top = scores[i, 0]
        for j in range(1, p):
            if scores[i, j] > top:
                top = scores[i, j]
        total = 0.0
        for j in range(p):
            e = exp64((scores[i, j] - top) / temperature)
            out[i, j] = e
            total += e
        for j in range(p):
            out[i, j] = out[i, j] / total
