# mypy: ignore-errors
"""Jitted vectors of L-BFGS: sums of products, the pairs it remembers, its direction."""

from __future__ import annotations

from recsim_mnar.kernels._products_kernel import products
from recsim_mnar.kernels.jit import kernel


@kernel
def dot(a, b):
    """Sum of products of two vectors."""
    return products(a, b)


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
    return products(s, y), products(y, spare)


@kernel
def direction(g, steps, changes, inverse, order, scale, inverse_metric, alpha, out):
    """The two-loop recursion (Nocedal & Wright, algorithm 7.4): out = -H g.

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
