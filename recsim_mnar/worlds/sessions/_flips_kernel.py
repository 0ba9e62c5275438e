# mypy: ignore-errors
"""Jitted core of the catalogue's flips: the best partner of an item among those still free."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels.jit import kernel


@kernel
def best_partner(rows, norms, rank_of, used, place):
    """The free item with the largest inner product with the item at ``place``.

    ``rows`` (P, K) and ``norms`` (P,) stand in descending norm, ``rank_of`` (P,) gives each place's item index for ties
    (the smaller index wins). The scan stops once |f_i| |f_j| cannot reach the best found. Returns (place, inner
    product); place -1 where no item is free.
    """
    n, n_factors = rows.shape
    best = -1
    best_value = -np.inf
    mine = norms[place]
    for j in range(n):
        # The product of norms bounds the inner product; the margin covers the rounding of both.
        if mine * norms[j] * 1.000000001 < best_value:
            break
        if j == place or used[j]:
            continue
        value = 0.0
        for k in range(n_factors):
            value += rows[place, k] * rows[j, k]
        if value > best_value or (value == best_value and rank_of[j] < rank_of[best]):
            best_value = value
            best = j
    return best, best_value


@kernel
def best_partners(rows, norms, rank_of, used, partners, values):
    """:func:`best_partner` of every item."""
    for i in range(rows.shape[0]):
        partners[i], values[i] = best_partner(rows, norms, rank_of, used, i)
