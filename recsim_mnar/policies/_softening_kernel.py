# mypy: ignore-errors
"""Jitted core of the softening wrappers."""

from __future__ import annotations

from recsim_mnar.kernels._rng_kernel import exp64
from recsim_mnar.kernels.jit import kernel


@kernel
def softmax_rows(scores, temperature, rows, kept, sums):
    """Softmax of each row j of scores / temperature into row ``rows[j]`` of kept, and sums of its blocks of items.

    scores (n, p), kept (m, p), sums (m, b), all float64; the p items fall into b blocks of 64. Everything is summed in
    index order, so a row stands alone.
    """
    n, p = scores.shape
    for j in range(n):
        row = scores[j]
        out = kept[rows[j]]
        top = row[0]
        for i in range(1, p):
            if row[i] > top:
                top = row[i]
        for i in range(p):
            out[i] = exp64((row[i] - top) / temperature)
        total = 0.0
        for i in range(p):
            total += out[i]
        for i in range(p):
            out[i] = out[i] / total
        for b in range(sums.shape[1]):
            s = 0.0
            for i in range(b * 64, min(b * 64 + 64, p)):
                s += out[i]
            sums[rows[j], b] = s


@kernel
def draw_rows(kept, sums, rows, uniforms, actions, propensities):
    """Item at which the running sum of row ``rows[j]`` of kept passes uniform j, and its probability, for each j."""
    p = kept.shape[1]
    n_blocks = sums.shape[1]
    for j in range(rows.size):
        row = kept[rows[j]]
        # Rounding may leave the sum off 1: the draw is scaled to it, and ends at the last item at the latest.
        total = 0.0
        for b in range(n_blocks):
            total += sums[rows[j], b]
        target = uniforms[j] * total
        b = 0
        while b < n_blocks - 1 and target >= sums[rows[j], b]:
            target -= sums[rows[j], b]
            b += 1
        i = b * 64
        last = min(i + 64, p) - 1
        while i < last and target >= row[i]:
            target -= row[i]
            i += 1
        actions[j] = i
        propensities[j] = row[i]
