# mypy: ignore-errors
"""Sums of products of vectors, the same bits on every machine."""

from __future__ import annotations

from recsim_mnar.numerics.jit import inlined, kernel

_TOGETHER = 1024
"""Columns that :func:`gram` reads at a time, a multiple of eight."""


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


@inlined
def _add_products(a, b, lanes):
    """Add the products of eight neighbours each, as many as there are whole eights of, to eight sums."""
    s0 = lanes[0]
    s1 = lanes[1]
    s2 = lanes[2]
    s3 = lanes[3]
    s4 = lanes[4]
    s5 = lanes[5]
    s6 = lanes[6]
    s7 = lanes[7]
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
    lanes[0] = s0
    lanes[1] = s1
    lanes[2] = s2
    lanes[3] = s3
    lanes[4] = s4
    lanes[5] = s5
    lanes[6] = s6
    lanes[7] = s7


@kernel
def gram(rows, lanes, out):
    """out[i, j] = sum of products of rows i and j: (m, n), (m, m, 8) of zeros and (m, m); n contiguous.

    In eight fixed lanes, and some columns of all rows at a time: those stay in the cache while every pair meets.
    """
    m, n = rows.shape
    for first in range(0, n, _TOGETHER):
        part = rows[:, first : min(first + _TOGETHER, n)]
        for i in range(m):
            for j in range(i + 1):
                _add_products(part[i], part[j], lanes[i, j])
    for i in range(m):
        for j in range(i + 1):
            s = lanes[i, j]
            total = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
            for k in range(n - n % 8, n):
                total += rows[i, k] * rows[j, k]
            out[i, j] = out[j, i] = total
