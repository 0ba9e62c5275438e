"""Doubly robust joint learning and ridge regression with side information, written cell by cell."""

import numpy as np


def covariance(u, i, other_u, other_i, x, z, browsing, audience, form):
    """Of f in two cells; x, z lists of categories, one an attribute."""
    k, item = 1.0, 1.0
    for mine, other, variance in zip(x[u], x[other_u], form.user_category, strict=True):
        k *= 1.0 + variance * (mine == other)
    for mine, other, variance in zip(z[i], z[other_i], form.item_category, strict=True):
        item *= 1.0 + variance * (mine == other)
    k += form.user_own * (u == other_u) + form.user_browsing * float(browsing[u] @ browsing[other_u])
    item += form.item_own * (i == other_i) + form.item_audience * float(audience[i] @ audience[other_i])
    return form.scale * k * item + form.user_offset * (u == other_u) + form.item_offset * (i == other_i)


def shares(chosen, features):
    """What each row of ``chosen`` chose, shrunk by two ratings' worth of the average choice."""
    overall = np.zeros(features.shape[1])
    for row in chosen:
        for j in np.flatnonzero(row):
            overall += features[j]
    overall /= chosen.sum()
    out = []
    for row in chosen:
        own = sum((features[j] for j in np.flatnonzero(row)), 2 * overall)
        out.append(own / (row.sum() + 2) - overall)
    return np.array(out)
