# mypy: ignore-errors
"""Jitted rejection sampler of views for uneven popularity: items in three tiers, each asked no more than it weighs.

The n_hot items of the largest offsets are weighed at every view. Others are *entries* whose weights are remembered:
first n_warm places of one item each, the next largest offsets, then cold ones, sets of items whose weight is a bound on
all of theirs: sum_i exp(offset_i) exp(c.omega + h.|omega|), with c and h the centre and half width of the box of their
factors. Warm entries make a table, row by row, whose columns are the first n_boxes groups, and cold entries one whose
columns are the other groups. All items of a group lie in its box too, so that its weight can be bounded after a drift.

Sums of a lane: one a group.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from recsim_mnar.kernels._rng_kernel import block, exp64, unit53
from recsim_mnar.kernels.jit import inlined, inner, spliced
from recsim_mnar.worlds.sessions._softmax_kernel import (
    ATTEMPTS,
    COLUMNS,
    FAINT,
    FIRST,
    S_VIEW,
    bound_groups,
    bound_of_logits,
    pick,
    pick_by_columns,
    sum_columns,
    sum_of,
    sum_rows,
    weigh,
)

Tiers = namedtuple("Tiers", "n_hot n_warm n_boxes cold cold_offsets cold_starts cold_weights")
"""cold (2 L, C) float32, centres over half widths; cold_offsets (C,), the logarithm of each entry's sum of exp(offset),
its places being n_hot + n_warm + cold_starts[e] to cold_starts[e + 1]; cold_weights, exp(offset) of each of those."""

_LARGE = 1e30

_LOOSER = 8.0
"""Of what a group is bounded by, about 1 / (1 + 8 |d|^2) is still there after a drift d, as measured."""
_F = np.float32


@inner
def _remember(tables, tiers, lanes, lane, signs):
    """Weigh the lane's entries at its present interests."""
    omega = lanes.omega[lane]
    shift = bound_of_logits(tables.top, tables.widest, omega)
    weights = lanes.weights[lane]
    sums = lanes.sums[lane]
    n_warm = tiers.n_warm
    n_boxes = tiers.n_boxes
    weigh(tables.factors, tables.offsets, tiers.n_hot, omega, shift, weights[:n_warm])
    sum_rows(weights[:n_warm], sums[:n_boxes])
    if sums.size > n_boxes:
        n_padded = omega.size
        for k in range(n_padded):
            signs[k] = omega[k]
            signs[n_padded + k] = abs(omega[k])
        weigh(tiers.cold, tiers.cold_offsets, FIRST, signs, shift, weights[n_warm:])
        sum_rows(weights[n_warm:], sums[n_boxes:])
    lanes.shift[lane] = shift
    for k in range(omega.size):
        lanes.stale[lane, k] = omega[k]
    lanes.known[lane] = True


@inlined
def _pick_apart(values, first, last, stride, target):
    """As ``pick``, among every stride-th value."""
    i = first
    while i < last - stride and target >= values[i]:
        target -= values[i]
        i += stride
    return i, target


@inlined
def _pick_in_cold(tables, tiers, lanes, lane, entry, target):
    """The place of an item in a cold entry, and the logarithm of what the entry's bound leaves of it."""
    first = tiers.cold_starts[entry]
    last = tiers.cold_starts[entry + 1]
    target *= sum_of(tiers.cold_weights[first:last]) / np.float64(lanes.weights[lane, tiers.n_warm + entry])
    i, _ = pick(tiers.cold_weights, first, last, target)
    place = tiers.n_hot + tiers.n_warm + i
    stale = lanes.stale[lane]
    row = tables.rows[place]
    n_padded = stale.size
    exponent = 0.0
    for k in range(n_padded):
        exponent += (np.float64(row[k]) - np.float64(tiers.cold[k, entry])) * stale[k]
        exponent -= np.float64(tiers.cold[n_padded + k, entry]) * abs(stale[k])
    return place, exponent


@inner
def _propose(tables, tiers, lanes, lane, target, hot_total, total, scratch):
    """Proposals until one is accepted, the first of them ``target`` beyond the hot items: (place or -1, a uniform)."""
    bound = scratch.bound
    drift = scratch.drift
    sums = lanes.sums[lane]
    weights = lanes.weights[lane]
    n_warm = tiers.n_warm
    n_boxes = tiers.n_boxes
    n_groups = sums.size
    seed = lanes.seed[lane]
    user = np.uint64(lanes.user[lane])
    first_address = lanes.n_organic[lane] * ATTEMPTS
    uniform = 0.0
    for attempt in range(ATTEMPTS):
        if attempt > 0:
            target = uniform * total
            if target < hot_total:
                return pick_by_columns(scratch.hot, scratch.hot_columns, target), uniform
            target -= hot_total
        column, target = pick(scratch.columns, 0, COLUMNS, target)
        g, target = _pick_apart(bound, column, n_groups, COLUMNS, target)
        target *= np.float64(sums[g]) / np.float64(bound[g])
        exponent = 0.0
        if g < n_boxes:
            entry, _ = _pick_apart(weights, g, n_warm, n_boxes, target)
            place = tiers.n_hot + entry
        else:
            entry, target = _pick_apart(weights, n_warm + g - n_boxes, weights.size, n_groups - n_boxes, target)
            place, exponent = _pick_in_cold(tables, tiers, lanes, lane, entry - n_warm, target)
        row = tables.rows[place]
        for k in range(drift.size):
            exponent += (np.float64(row[k]) - np.float64(tables.centre[k, g])) * drift[k]
            exponent -= np.float64(tables.half[k, g]) * abs(drift[k])
        a, b, c, d = block(seed, S_VIEW, user, np.uint64(first_address + attempt))
        if unit53(a, b) < exp64(exponent):
            return place, uniform
        uniform = unit53(c, d)
    return -1, uniform


@spliced
def view_by_tiers(limit, tables, tiers, lanes, lane, uniform, scratch):
    """The place of the item viewed, or -1, and a uniform not used yet.

    Entries are weighed again where more than ``limit`` proposals would be wasted.

    With d the drift since and e_i the weights then, group g (box of centre c_g and half width h_g) is proposed with
    weight S_g exp(c_g.d + h_g.|d|), an entry in it in proportion to e_i, and accepted with probability
    exp((f_i - c_g).d - h_g.|d|) <= 1; an item of a cold entry is proposed in proportion to exp(offset), and accepted
    with what the entry's bound leaves of it besides. Hot items have their present weights. The first proposal takes
    ``uniform``, so most views need no other draw.
    """
    omega = lanes.omega[lane]
    drift = scratch.drift
    hot = scratch.hot
    bound = scratch.bound
    hot_total = total = 0.0
    known = lanes.known[lane]
    while True:
        if not known:
            _remember(tables, tiers, lanes, lane, scratch.signs)
        square = 0.0
        for k in range(omega.size):
            drift[k] = omega[k] - lanes.stale[lane, k]
            square += drift[k] * drift[k]
        weigh(tables.factors, tables.offsets, FIRST, omega, lanes.shift[lane], hot)
        bound_groups(tables.centre, tables.half, lanes.sums[lane], drift, bound)
        sum_columns(hot, scratch.wide, scratch.hot_columns)
        sum_columns(bound, scratch.wide, scratch.columns)
        hot_total = sum_of(scratch.hot_columns)
        bounds = sum_of(scratch.columns)
        total = hot_total + bounds
        loose = _LOOSER * square
        if not known or bounds * (loose - limit) <= limit * hot_total * (1.0 + loose):
            break
        known = False
    # Not where interests are so strong that float32 does not hold the weights, or the bounds on cold entries.
    if not (FAINT <= total <= _LARGE):
        return -1, uniform
    target = uniform * total
    if target < hot_total:
        return pick_by_columns(hot, scratch.hot_columns, target), uniform
    return _propose(tables, tiers, lanes, lane, target - hot_total, hot_total, total, scratch)
