# mypy: ignore-errors
"""Compiled search for flipped pairs of items, and the effects that change behaviour over time.

These effects, called *changes*, are fatigue, retention, influence and the calendar. They are passed to the dynamics as
one argument ``changes``, which is None in a world without them; their code is then not compiled. The dynamics of single
items and of slates call the same functions, so that a new effect is written here alone: :func:`arrive_changed`,
:func:`viewed`, :func:`effect_of_past`, :func:`was_shown`, :func:`was_clicked` and :func:`out_of`.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from recsim_mnar.kernels._rng_kernel import block, exp64, unit53
from recsim_mnar.kernels.jit import inlined, inner, kernel
from recsim_mnar.worlds.sessions._softmax_kernel import pick_precisely


@kernel
def best_partner(rows, norms, rank_of, used, place):
    """Find the unused item with the largest inner product with the item at ``place``.

    Items are sorted by falling norm, so the search can stop when the product of norms is below the best inner product
    found.

    Args:
        rows: (P, K) factors by place.
        norms: (P,) their norms, falling.
        rank_of: (P,) item index at each place; of equal inner products the smaller index wins.
        used: (P,) True for items that are in a pair already.
        place: place of the item whose partner is searched.

    Returns:
        The partner's place, -1 if no item is unused; and the inner product.
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
    """Write the :func:`best_partner` of the item at every place to ``partners`` and ``values``, (P,) each."""
    for i in range(rows.shape[0]):
        partners[i], values[i] = best_partner(rows, norms, rank_of, used, i)


Changes = namedtuple(
    "Changes",
    "fatigue spread of_views shrinking retention keeping influence calendar width shift factors offsets "
    "recency noted weariness wearied satisfaction weights",
)
"""Parameters and state of the changes.

Scalars: ``fatigue``, ``spread``, ``of_views``, ``retention``, ``influence`` and ``calendar`` are parameters of the
world; ``shrinking`` is minus the logarithm of ``fatigue_memory``, ``keeping`` is ``retention_memory``, ``width`` the
length of a period of the calendar. Arrays of the catalogue, in item order: ``shift`` (periods, P), -inf before an item
arrives, without rows if there is no calendar; ``factors`` (P, K) and ``offsets`` (P,) of views. State of the users,
which a copy of the lanes takes over, is all from ``recency`` up to ``weights``:
``recency`` (n, P) as of step ``noted`` (n, P), ``weariness`` (n,) as of step ``wearied`` (n,), ``satisfaction`` (n,).
Working space: ``weights`` (P,).
"""

S_ARRIVAL = np.uint64(17)

ALWAYS = np.int64(-1)
"""Period number in a world without a calendar."""


@inner
def arrive_changed(changes, seed, user, lane):
    """Reset a lane's state of changes for a new user, and return the user's time of arrival (0 without a calendar)."""
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
    """Return the number of the calendar's period at a time, the last one beyond its end; ALWAYS without a calendar."""
    if changes.calendar == 0.0:
        return ALWAYS
    return min(np.int64(time / changes.width), np.int64(changes.shift.shape[0] - 1))


@inner
def _recency_of(changes, lane, step, item):
    """Return an item's recency at a step: the number of earlier showings and views, weighted down by their age."""
    return changes.recency[lane, item] * exp64(-changes.shrinking * np.float64(step - changes.noted[lane, item]))


@inner
def _weariness_of(changes, lane, step):
    """Return the weariness of a lane's user at a step: recencies at earlier showings, weighted down by their age."""
    return changes.weariness[lane] * exp64(-changes.shrinking * np.float64(step - changes.wearied[lane]))


@inner
def effect_of_past(changes, lane, step, item):
    """Return the factor by which a user's earlier events multiply an item's click probability; fatigue has one."""
    if changes.fatigue == 0.0:
        return 1.0
    worn = _recency_of(changes, lane, step, item) + changes.spread * _weariness_of(changes, lane, step)
    return exp64(-changes.fatigue * worn)


@inner
def was_shown(changes, lane, step, omega, item):
    """Record that an item was shown, for satisfaction and for fatigue; ``omega`` (n, K) are all lanes' interests."""
    _satisfied(changes, lane, omega[lane], item)
    if changes.fatigue != 0.0:
        recency = _recency_of(changes, lane, step, item)
        changes.weariness[lane] = _weariness_of(changes, lane, step) + recency
        changes.wearied[lane] = step
        changes.recency[lane, item] = recency + 1.0
        changes.noted[lane, item] = step


@inner
def was_clicked(changes, lane, omega, item):
    """Record a click on an item: influence moves the user's interests ``omega[lane]`` towards the item's factors."""
    if changes.influence != 0.0:
        interests = omega[lane]
        for k in range(changes.factors.shape[1]):
            interests[k] = (1.0 - changes.influence) * interests[k] + changes.influence * changes.factors[item, k]


@inner
def viewed(changes, lane, step, item):
    """Record a view of an item for fatigue."""
    if changes.fatigue != 0.0 and changes.of_views != 0.0:
        changes.recency[lane, item] = _recency_of(changes, lane, step, item) + changes.of_views
        changes.noted[lane, item] = step


@inner
def _satisfied(changes, lane, omega, item):
    """Update the satisfaction of a user who is shown an item, by how well the item suits the interests.

    The suitability is tanh of the inner product of item factors and interests over the norm of the interests, in
    (-1, 1). Satisfaction is its exponentially weighted mean.
    """
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
    """Return the cumulative threshold ``out`` with the probability of leaving, out - other, scaled by satisfaction."""
    if changes.retention == 0.0:
        return out
    return min(other + (out - other) * exp64(-changes.retention * changes.satisfaction[lane]), 1.0)


@inner
def view_in_period(changes, omega, period, uniform):
    """Draw the item viewed from softmax(factors omega + offsets + shift), over the items that have arrived."""
    weights = changes.weights
    shift = changes.shift[period]
    for p in range(weights.size):
        weights[p] = changes.offsets[p] + shift[p]
        for k in range(changes.factors.shape[1]):
            weights[p] += changes.factors[p, k] * omega[k]
    return pick_precisely(weights, uniform)
