"""What logs are checked for, written plainly: one row after the other, from the definitions."""

from __future__ import annotations

from collections import defaultdict

import numpy as np


def item_sums(action, propensity, user, level):
    """By level and item: sums over users of x, x^2 and x l; and by level rows, users, sum of l^2 and largest l."""
    x, rows = defaultdict(float), defaultdict(int)
    for a, p, u, c in zip(action, propensity, user, level, strict=True):
        x[c, a, u] += 1.0 / p
        rows[c, u] += 1
    cells = defaultdict(lambda: np.zeros(3))
    for (c, a, u), total in x.items():
        cells[c, a] += [total, total**2, total * rows[c, u]]
    levels = {}
    for c in {c for c, _ in rows}:
        own = np.array([n for (where, _), n in rows.items() if where == c], float)
        levels[c] = (own.sum(), len(own), (own**2).sum(), own.max())
    return dict(cells), levels


def least_ratio(weight, reward, factor):
    """The least sum(g w r) / sum(g w), g in [1 / factor, factor]: every threshold of the sorted rewards is tried."""
    order = np.argsort(reward)
    w, r = np.asarray(weight)[order], np.asarray(reward)[order]
    ratios = []
    for cut in range(len(r) + 1):
        g = np.where(np.arange(len(r)) < cut, factor, 1.0 / factor)
        ratios.append((g * w) @ r / (g @ w))
    return min(ratios)
