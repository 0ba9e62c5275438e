# mypy: ignore-errors
"""Sums of products of vectors, the same bits on every machine."""

from __future__ import annotations

from recsim_mnar.kernels.jit import inlined, kernel

_TOGETHER = 1024
"""Columns that :func:`gram` reads at a time, a multiple of eight."""


@inlined
def _add_products(a, b, s):
    """Eight sums, and to each the products of its place in as many whole eights as there are."""
    s0, s1, s2, s3, s4, s5, s6, s7 = s
    for i in range(0, a.size - a.size % 8, 8):
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
    return s0, s1, s2, s3, s4, s5, s6, s7


@inlined
def _total(s, a, b):
    """Sum of the eight, and of the products beyond the last whole eight."""
    total = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
    for i in range(a.size - a.size % 8, a.size):
        total += a[i] * b[i]
    return total


@inlined
def products(a, b):
    """Sum of products in eight fixed lanes: the same bits on every machine."""
    return _total(_add_products(a, b, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)), a, b)


@kernel
def gram(rows, lanes, out):
    """out[i, j] = products(rows[i], rows[j]): (m, n), (m, m, 8) of zeros and (m, m); n contiguous.

    Some columns of all rows at a time: those stay in the cache while every pair meets.
    """
    m, n = rows.shape
    for first in range(0, n, _TOGETHER):
        part = rows[:, first : min(first + _TOGETHER, n)]
        for i in range(m):
            for j in range(i + 1):
                s = lanes[i, j]
                sums = _add_products(part[i], part[j], (s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]))
                s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7] = sums
    for i in range(m):
        for j in range(i + 1):
            out[i, j] = out[j, i] = _total(lanes[i, j], rows[i], rows[j])
