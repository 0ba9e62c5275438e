# mypy: ignore-errors
"""Sums of products of vectors, the same bits on every machine."""

from __future__ import annotations

from recsim_mnar.numerics.jit import inlined, kernel


@inlined
def products(a, b):
    """Sum of products in eight fixed lanes: the same bits on every machine."""
    n = a.size
    whole = n - n % 8
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    for i in range(0, whole, 8):
        x = a[i : i + 8]
        y = b[i : i + 8]
        s0 += x[0] * y[0]
        s1 += x[1] * y[1]
        s2 += x[2] * y[2]
        s3 += x[3] * y[3]
        s4 += x[4] * y[4]
        s5 += x[5] * y[5]
        s6 += x[6] * y[6]
        s7 += x[7] * y[7]
    total = ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))
    for i in range(whole, n):
        total += a[i] * b[i]
    return total


@kernel
def gram(rows, out):
    """out[i, j] = sum of products of rows i and j: (m, n) and (m, m), n contiguous."""
    for i in range(rows.shape[0]):
        for j in range(i + 1):
            out[i, j] = out[j, i] = products(rows[i], rows[j])
