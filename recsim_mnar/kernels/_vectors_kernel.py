# mypy: ignore-errors
"""Compiled vector operations: reproducible sums of products, a binary search, L-BFGS, grouping by user, and ranks."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels.jit import inlined, kernel

_TOGETHER = 1024
"""Number of columns that :func:`gram` processes at a time; a multiple of eight, so that no group of eight is split."""


@inlined
def _add_products(a, b, s):
    """Return the eight partial sums s with the products a[i] b[i] added, product i to sum i mod 8.

    Eight independent sums let the compiler use vector instructions while the order of additions stays fixed. Products
    after the last complete group of eight are left to :func:`_total`.
    """
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
    """Return the sum of the eight partial sums s and of the products after the last complete group of eight."""
    total = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
    for i in range(a.size - a.size % 8, a.size):
        total += a[i] * b[i]
    return total


@inlined
def products(a, b):
    """Return the inner product of two vectors, added in an order that gives the same bits on every machine."""
    return _total(_add_products(a, b, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)), a, b)


@inlined
def first_above(cumulative, target):
    """Return the first index with ``cumulative[i] > target`` in an ascending array, by bisection; else the last one."""
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
    """Compute the Gram matrix of rows: out[i, j] = products(rows[i], rows[j]), bit by bit.

    A block of columns of all rows is processed at a time, small enough to stay in the cache for all pairs of rows.

    Args:
        rows: (m, n), rows contiguous.
        lanes: (m, m, 8) zeros, working space: the eight partial sums of each pair.
        out: (m, m), written to.
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
    """Return the inner product of two vectors; :func:`products` for calls from Python."""
    return products(a, b)


@kernel
def largest(a):
    """Return the largest absolute entry of a vector, NaN if one is NaN."""
    top = 0.0
    for i in range(a.size):
        size = abs(a[i])
        if not size <= top:  # true for NaN too, after which no comparison succeeds
            top = size
    return top


@kernel
def remember(x, x_new, g, g_new, s, y, inverse_metric, spare):
    """Compute an L-BFGS pair: step s = x_new - x and gradient change y = g_new - g.

    Args:
        x: (N,) old point.
        x_new: (N,) new point.
        g: (N,) old gradient.
        g_new: (N,) new gradient.
        s: (N,), written to.
        y: (N,), written to.
        inverse_metric: (N,) diagonal of D^-1.
        spare: (N,) working space.

    Returns:
        The inner products s.y and y.D^-1 y.
    """
    for i in range(x.size):
        s[i] = x_new[i] - x[i]
        y[i] = g_new[i] - g[i]
    for i in range(x.size):
        spare[i] = y[i] * inverse_metric[i]
    return products(s, y), products(y, spare)


@kernel
def direction(g, steps, changes, inverse, order, scale, inverse_metric, alpha, out):
    """Compute the L-BFGS direction out = -H g by the two-loop recursion (Nocedal & Wright, algorithm 7.4).

    Args:
        g: (N,) gradient.
        steps: (m, N) steps s of the pairs.
        changes: (m, N) gradient changes y of the pairs.
        inverse: (m,) 1 / s.y of the pairs.
        order: rows of the pairs in use, oldest first.
        scale: factor of the initial inverse Hessian H_0 = scale D^-1.
        inverse_metric: (N,) diagonal of D^-1.
        alpha: (m,) working space.
        out: (N,), written to.
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
    """Write the gradient 2 penalty x of a ridge penalty to ``g``, and return the penalty's value, penalty |x|^2."""
    for i in range(x.size):
        g[i] = 2.0 * penalty * x[i]
    return penalty * products(x, x)


@kernel
def move(x, t, p, out):
    """Write x + t p to ``out``."""
    for i in range(x.size):
        out[i] = x[i] + t * p[i]


@kernel
def by_user(user, first_user, place, index):
    """Write to ``index`` the stable order of rows by user, by counting sort.

    Args:
        user: (n,) user of each row, in first_user .. first_user + m - 1.
        first_user: smallest user.
        place: (m + 1,) zeros, working space: counts of rows, then the next free position of each user.
        index: (n,), written to.
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
    """Count the items that score above a held-out item, and the other items that tie with it.

    Args:
        scores: (n, n_items) scores of all items.
        held: (n,) held-out item of each row.
        above: (n,), written to: number of items with a larger score.
        level: (n,), written to: number of other items with the same score; -1 if a score in the row is NaN.
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
