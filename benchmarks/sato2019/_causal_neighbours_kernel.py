# mypy: ignore-errors
"""Jitted core of the causal neighbours: weighted means of what similar users or items did with and without."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels.jit import inlined, kernel


@inlined
def _empty(work):
    """Zeros in all of the scratch."""
    for sums in work:
        for i in range(sums.size):
            sums[i] = 0.0


@kernel
def by_users(rows, neighbours, cells, periods, shrinkage, work, out):
    """Row j of out: the uplift of each item for user rows[j], from similar users.

    neighbours: starts, users, weights. cells: starts, items, and counts (n, 3) of recommended periods, purchases in
    them, and other purchases. periods (n_users,): number of periods of each user. work (3, n_items).
    """
    starts, others, weights = neighbours
    first, items, counts = cells
    shown, sold, sold_alone = work
    for j in range(rows.size):
        u = rows[j]
        _empty(work)
        total = 0.0
        for t in range(starts[u], starts[u + 1]):
            v = others[t]
            w = weights[t]
            total += w * periods[v]
            for c in range(first[v], first[v + 1]):
                i = items[c]
                shown[i] += w * counts[c, 0]
                sold[i] += w * counts[c, 1]
                sold_alone[i] += w * counts[c, 2]
        for i in range(shown.size):
            with_it = sold[i] / (shown[i] + shrinkage[0])
            without = sold_alone[i] / (total - shown[i] + shrinkage[1])
            out[j, i] = np.float32(with_it - without)


@kernel
def by_items(rows, neighbours, cells, periods, shrinkage, work, out):
    """As :func:`by_users`, from what the user did with similar items; neighbours: starts, items, weights."""
    starts, others, weights = neighbours
    first, items, counts = cells
    shown, sold, sold_alone = work
    for j in range(rows.size):
        u = rows[j]
        _empty(work)
        for c in range(first[u], first[u + 1]):
            i = items[c]
            shown[i] = counts[c, 0]
            sold[i] = counts[c, 1]
            sold_alone[i] = counts[c, 2]
        for i in range(shown.size):
            n_t = n_c = y_t = y_c = 0.0
            for t in range(starts[i], starts[i + 1]):
                w = weights[t]
                o = others[t]
                n_t += w * shown[o]
                n_c += w * (periods[u] - shown[o])
                y_t += w * sold[o]
                y_c += w * sold_alone[o]
            out[j, i] = np.float32(y_t / (n_t + shrinkage[0]) - y_c / (n_c + shrinkage[1]))
