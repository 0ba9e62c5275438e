# mypy: ignore-errors
"""Vectors: sums of products, the same bits everywhere; a search; L-BFGS's pairs and direction; rows in order; ranks."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels.jit import inlined, kernel

_TOGETHER = 1024
"""Columns that :func:`gram` reads at a time, a multiple of eight."""


@inlined
def _add_products(a, b, s):
    """Add the products of all whole groups of eight to eight sums, one per position in the group."""
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
    """Return the sum of the eight, and of the products after the last whole group."""
    total = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
    for i in range(a.size - a.size % 8, a.size):
        total += a[i] * b[i]
    return total


@inlined
def products(a, b):
    """Return the sum of products in eight fixed lanes: the same bits on every machine."""
    return _total(_add_products(a, b, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)), a, b)


@inlined
def first_above(cumulative, target):
    """Return the first index at which an ascending array passes the target, or the last index."""
    low = 0
    high = cumulative.size - 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > target:
            high = middle
        else:
            low = middle + 1
    return low


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


@kernel
def dot(a, b):
    """Return the sum of products of two vectors."""
    return products(a, b)


@kernel
def largest(a):
    """Return the largest absolute entry."""
    top = 0.0
    for i in range(a.size):
        size = abs(a[i])
        if not size <= top:  # NaN comes through
            top = size
    return top


@kernel
def remember(x, x_new, g, g_new, s, y, inverse_metric, spare):
    """S = x_new - x and y = g_new - g; returns (s.y, y.D^-1 y), D^-1 diagonal; ``spare`` (N,) is overwritten."""
    for i in range(x.size):
        s[i] = x_new[i] - x[i]
        y[i] = g_new[i] - g[i]
    for i in range(x.size):
        spare[i] = y[i] * inverse_metric[i]
    return products(s, y), products(y, spare)


@kernel
def direction(g, steps, changes, inverse, order, scale, inverse_metric, alpha, out):
    """Compute out = -H g by the two-loop recursion (Nocedal & Wright, algorithm 7.4).

    steps, changes (m, N) hold s and y, inverse (m,) 1 / s.y; order their rows, oldest first; H_0 = scale D^-1.
    """
    for i in range(g.size):
        out[i] = -g[i]
    for t in range(order.size - 1, -1, -1):
        j = order[t]
        alpha[j] = inverse[j] * products(steps[j], out)
        y = changes[j]
        size = alpha[j]
        for i in range(out.size):
            out[i] -= size * y[i]
    for i in range(out.size):
        out[i] *= scale * inverse_metric[i]
    for t in range(order.size):
        j = order[t]
        size = alpha[j] - inverse[j] * products(changes[j], out)
        s = steps[j]
        for i in range(out.size):
            out[i] += size * s[i]


@kernel
def penalise(x, penalty, g):
    """G = 2 penalty x; returns penalty |x|^2."""
    for i in range(x.size):
        g[i] = 2.0 * penalty * x[i]
    return penalty * products(x, x)


@kernel
def move(x, t, p, out):
    """Out = x + t p."""
    for i in range(x.size):
        out[i] = x[i] + t * p[i]


@kernel
def by_user(user, first_user, place, index):
    """Index = the stable order that brings rows together whose users are first_user, first_user + 1, ...

    ``place`` is scratch of zeros, one longer than the number of users.
    """
    for i in range(user.size):
        place[user[i] - first_user + 1] += 1
    for u in range(place.size - 1):
        place[u + 1] += place[u]
    for i in range(user.size):
        u = user[i] - first_user
        index[place[u]] = i
        place[u] += 1


@kernel
def above_and_tied(scores, held, above, level):
    """Count, per row of scores (n, n_items), the scores above that of item ``held[j]`` and those equal to it.

    ``level`` is -1 where a score is not a number.
    """
    for j in range(held.size):
        row = scores[j]
        score = row[held[j]]
        more = np.int64(0)
        same = np.int64(0)
        broken = np.int64(0)
        for i in range(row.size):
            more += np.int64(row[i] > score)
            same += np.int64(row[i] == score)
            broken += np.int64(row[i] != row[i])
        above[j] = more
        level[j] = same - 1 if broken == 0 else -1
