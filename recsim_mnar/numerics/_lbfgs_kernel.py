# mypy: ignore-errors
"""Jitted vectors of L-BFGS: sums of products, the pairs it remembers, its direction."""

from __future__ import annotations

from recsim_mnar.numerics.jit import inlined, kernel


@inlined
def _dot(a, b):
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
def dot(a, b):
    """Sum of products of two vectors."""
    return _dot(a, b)


@kernel
def largest(a):
    """Largest absolute entry."""
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
    return _dot(s, y), _dot(y, spare)


@kernel
def direction(g, steps, changes, inverse, order, scale, inverse_metric, alpha, out):
    """The two-loop recursion (Nocedal & Wright, algorithm 7.4): out = -H g.

    steps, changes (m, N) hold s and y, inverse (m,) 1 / s.y; order their rows, oldest first; H_0 = scale D^-1.
    """
    for i in range(g.size):
        out[i] = -g[i]
    for t in range(order.size - 1, -1, -1):
        j = order[t]
        alpha[j] = inverse[j] * _dot(steps[j], out)
        y = changes[j]
        size = alpha[j]
        for i in range(out.size):
            out[i] -= size * y[i]
    for i in range(out.size):
        out[i] *= scale * inverse_metric[i]
    for t in range(order.size):
        j = order[t]
        size = alpha[j] - inverse[j] * _dot(changes[j], out)
        s = steps[j]
        for i in range(out.size):
            out[i] += size * s[i]


@kernel
def penalise(x, penalty, g):
    """G = 2 penalty x; returns penalty |x|^2."""
    for i in range(x.size):
        g[i] = 2.0 * penalty * x[i]
    return penalty * _dot(x, x)


@kernel
def move(x, t, p, out):
    """Out = x + t p."""
    for i in range(x.size):
        out[i] = x[i] + t * p[i]
