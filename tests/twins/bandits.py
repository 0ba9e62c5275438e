"""Bandits written plainly: what each arm's posterior is after all it has seen, and chances by a fine sum."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, ndtr


def ridge_posterior(x, rewards, ridge):
    """V and theta of one arm from all its rows at once."""
    inverse = np.linalg.inv(ridge * np.eye(x.shape[1]) + x.T @ x)
    return inverse, inverse @ (x.T @ rewards)


def laplace_rows(x, rewards, ridge):
    """Covariance and mode of one arm, row by row: the mode on the line theta + c V x by root finding."""
    v, theta = np.eye(x.shape[1]) / ridge, np.zeros(x.shape[1])
    for row, r in zip(x, rewards, strict=True):
        direction = v @ row

        def slope(c, row=row, r=r, direction=direction, theta=theta):
            return c - (r - expit(row @ (theta + c * direction)))

        theta = theta + brentq(slope, r - 1.0, r, xtol=1e-15) * direction
        p = expit(row @ theta)
        v = np.linalg.inv(np.linalg.inv(v) + p * (1 - p) * np.outer(row, row))
    return v, theta


def best_chances(means, widths, n=400):
    """Chance of each Gaussian to be the largest: a sum with ``n`` nodes an arm, evenly spread."""
    z = np.linspace(-7, 7, n)
    nodes = np.unique((means[:, None] + widths[:, None] * z).ravel())
    f = ndtr((nodes[:, None] - means) / widths)
    others = np.stack([np.prod(np.delete(f, a, axis=1), axis=1) for a in range(len(means))], axis=1)
    p = (0.5 * (others[1:] + others[:-1]) * np.diff(f, axis=0)).sum(axis=0)
    return p / p.sum()
