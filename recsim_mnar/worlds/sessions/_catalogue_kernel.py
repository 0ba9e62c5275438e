# mypy: ignore-errors
"""Jitted parts of a catalogue: its flips, and what of it changes while users live.

Fatigue, retention, influence and a calendar are handed to the dynamics as ``changes``, which is None in a world without
any; then nothing of them is compiled.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from recsim_mnar.kernels._rng_kernel import block, exp64, unit53
from recsim_mnar.kernels.jit import inlined, inner, kernel
from recsim_mnar.worlds.sessions._softmax_kernel import pick_precisely


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


Changes = namedtuple(
    "Changes",
    "fatigue spread of_views shrinking retention keeping influence calendar width shift factors offsets "
    "recency noted weariness wearied satisfaction weights",
)
"""Scalars: ``shrinking`` is minus the logarithm of the fatigue's memory, ``keeping`` the satisfaction's memory,
``width`` the length of a period of the calendar. shift (periods, P), -inf before an item arrives, without rows where
there is no calendar; factors (P, K) and offsets (P,) of views, in item order. Of each lane's user: recency (n, P) as of
step noted (n, P), weariness (n,) as of step wearied (n,), satisfaction (n,). weights (P,), written to in passing."""

S_ARRIVAL = np.uint64(17)

ALWAYS = np.int64(-1)
"""The period of a world without a calendar."""


@inner
def arrive_changed(changes, seed, user, lane):
    """The lane's user has been shown nothing yet; returns the time of arrival."""
    recency = changes.recency[lane]
    noted = changes.noted[lane]
    for p in range(recency.size):
        recency[p] = 0.0
        noted[p] = 0
    changes.weariness[lane] = 0.0
    changes.wearied[lane] = 0
    changes.satisfaction[lane] = 0.0
    if changes.calendar == 0.0:
        return 0.0
    a, b, _c, _d = block(seed, S_ARRIVAL, user, np.uint64(0))
    return changes.calendar * unit53(a, b)


@inlined
def period_of(changes, time):
    """The period of the calendar at a time."""
    if changes.calendar == 0.0:
        return ALWAYS
    return min(np.int64(time / changes.width), np.int64(changes.shift.shape[0] - 1))


@inner
def recency_of(changes, lane, step, item):
    """Get how lately an item was shown or viewed, at a step."""
    return changes.recency[lane, item] * exp64(-changes.shrinking * np.float64(step - changes.noted[lane, item]))


@inner
def weariness_of(changes, lane, step):
    """Compute the weariness of the lane's user from repeats, at a step."""
    return changes.weariness[lane] * exp64(-changes.shrinking * np.float64(step - changes.wearied[lane]))


@inner
def tired(changes, lane, step, item):
    """Compute the factor that fatigue leaves of an item's click probability, and note that it is shown."""
    if changes.fatigue == 0.0:
        return 1.0
    recency = recency_of(changes, lane, step, item)
    weariness = weariness_of(changes, lane, step)
    changes.weariness[lane] = weariness + recency
    changes.wearied[lane] = step
    changes.recency[lane, item] = recency + 1.0
    changes.noted[lane, item] = step
    return exp64(-changes.fatigue * (recency + changes.spread * weariness))


@inner
def viewed(changes, lane, step, item):
    """Notes a view."""
    if changes.fatigue != 0.0 and changes.of_views != 0.0:
        changes.recency[lane, item] = recency_of(changes, lane, step, item) + changes.of_views
        changes.noted[lane, item] = step


@inner
def satisfied(changes, lane, omega, item):
    """The user is shown an item: satisfaction follows how well it suits the taste in views."""
    if changes.retention == 0.0:
        return
    inside = 0.0
    square = 0.0
    for k in range(changes.factors.shape[1]):
        inside += changes.factors[item, k] * omega[k]
        square += omega[k] * omega[k]
    suits = 0.0
    if square > 0.0:
        suits = 1.0 - 2.0 / (1.0 + exp64(2.0 * inside / np.sqrt(square)))
    changes.satisfaction[lane] = changes.keeping * changes.satisfaction[lane] + (1.0 - changes.keeping) * suits


@inlined
def out_of(changes, lane, other, out):
    """The cumulative threshold below which a user leaves: ``out`` with leaving scaled by satisfaction."""
    if changes.retention == 0.0:
        return out
    return min(other + (out - other) * exp64(-changes.retention * changes.satisfaction[lane]), 1.0)


@inner
def pulled(changes, omega, item):
    """A click pulls the interests towards the item."""
    if changes.influence != 0.0:
        for k in range(changes.factors.shape[1]):
            omega[k] = (1.0 - changes.influence) * omega[k] + changes.influence * changes.factors[item, k]


@inner
def view_in_period(changes, omega, period, uniform):
    """The item viewed: softmax(factors omega + offsets + shift) of those that have arrived."""
    weights = changes.weights
    shift = changes.shift[period]
    for p in range(weights.size):
        weights[p] = changes.offsets[p] + shift[p]
        for k in range(changes.factors.shape[1]):
            weights[p] += changes.factors[p, k] * omega[k]
    return pick_precisely(weights, uniform)
