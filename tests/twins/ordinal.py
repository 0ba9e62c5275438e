"""Plain twins of the ordinal factorisation's kernels."""

import numpy as np
from scipy.stats import norm


def moments(mine, other):
    """Mean and variance of x_u . y_i, cell by cell."""
    mean, variance = np.empty((2, len(mine.mean), len(other.mean)))
    for u in range(len(mine.mean)):
        for i in range(len(other.mean)):
            x, y, sx, sy = mine.mean[u], other.mean[i], mine.covariance[u], other.covariance[i]
            mean[u, i] = x @ y
            variance[u, i] = np.trace(sx @ sy) + x @ sy @ x + y @ sx @ y
    return mean, variance


def level_chances(m, cuts):
    """P_l(m), (levels,); for m (n, 1) each its row."""
    return np.diff(norm.cdf(np.concatenate([[-np.inf], cuts, [np.inf]]) - m))


def reveal(seen, missing, h, spread):
    """R_l of one cell: what is known of it besides m; h and spread (levels,)."""
    known = np.ones(len(h)) if seen < 0 else (np.arange(len(h)) == seen) * 1.0
    if missing:
        known = known * norm.cdf(-h if seen < 0 else h) * spread
    return known


def likelihood(m, cuts, known):
    """F(m) = log sum P_l R_l."""
    return np.log(level_chances(m, cuts) @ known)


def sharpest(cuts, known):
    """The largest curvature -F'', by finite differences over a fine grid."""
    m = np.linspace(cuts[0] - 4, cuts[-1] + 4, 400)
    f = np.array([[likelihood(x + e, cuts, known) for e in (-1e-3, 0.0, 1e-3)] for x in m])
    return -((f[:, 0] - 2 * f[:, 1] + f[:, 2]) / 1e-6).min()
