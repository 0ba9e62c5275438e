# mypy: ignore-errors
"""Compiled samplers of views, which draw an item exactly from softmax(factors omega + offsets).

With few items, the softmax is computed at every view. With many, weights computed at earlier interests are cached, and
items are drawn by rejection. If no item is viewed twice, the softmax over the items left is computed at every view.

The sampler *by boxes* is for even popularity. The cached weights of a group of items are bounded after a drift of the
interests by the box that contains the items' factors.

The sampler *by tiers* is for uneven popularity; it spends the least time on the items that are viewed least. The n_hot
items with the largest offsets are weighed at every view. The others are in *entries* with cached weights: first n_warm
entries of one item each, those with the next largest offsets; then cold entries, sets of items with a joint bound on
their weights, sum_i exp(offset_i) exp(c.omega + h.|omega|), where c and h are the centre and half width of the box of
their factors. The warm entries form a table, stored row by row, whose columns are the first n_boxes groups; the cold
entries form a second table, whose columns are the other groups. Each group has a box that contains the factors of all
its items, so that its weight can be bounded after a drift. A lane caches one sum per group.
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
    pick_from_all,
    pick_precisely,
    sum_columns,
    sum_groups,
    sum_of,
    sum_rows,
    weigh,
    weigh_all,
)

_BLOCK = 16


@inner
def _draw_stale(tables, lanes, lane, scratch):
    """Draw a place for the present interests from weights cached at earlier ones; -1 if all proposals are rejected.

    With d the drift since weights e_i were computed, group g (box of centre c_g and half width h_g) is proposed with
    weight S_g exp(c_g.d + h_g.|d|), an item in it in proportion to e_i, and accepted with probability
    exp((f_i - c_g).d - h_g.|d|) <= 1, so that an accepted item has probability proportional to e_i exp(f_i.d).
    """
    drift = scratch.drift
    bound = scratch.bound
    blocks = scratch.blocks
    n_padded, n_groups = tables.centre.shape
    sums = lanes.sums[lane]
    weights = lanes.weights[lane]
    bound_groups(tables.centre, tables.half, sums, drift, bound)
    n_blocks = n_groups // _BLOCK
    total = 0.0
    for b in range(n_blocks):
        s = sum_of(bound[b * _BLOCK : (b + 1) * _BLOCK])
        blocks[b] = s
        total += s
    seed = lanes.seed[lane]
    user = np.uint64(lanes.user[lane])
    first_address = lanes.n_organic[lane] * ATTEMPTS
    for attempt in range(ATTEMPTS):
        a, b, c, d = block(seed, S_VIEW, user, np.uint64(first_address + attempt))
        target = unit53(a, b) * total
        tile, target = pick(blocks, 0, n_blocks, target)
        g, target = pick(bound, tile * _BLOCK, (tile + 1) * _BLOCK, target)
        scale = np.float64(sums[g]) / np.float64(bound[g])
        place, _ = pick(weights, tables.starts[g], tables.starts[g + 1], target * scale)
        exponent = 0.0
        row = tables.rows[place]
        for k in range(n_padded):
            exponent += (np.float64(row[k]) - np.float64(tables.centre[k, g])) * drift[k]
            exponent -= np.float64(tables.half[k, g]) * abs(drift[k])
        if unit53(c, d) < exp64(exponent):
            return place
    return -1


@spliced
def view_by_boxes(limit, tables, lanes, lane, uniform, scratch):
    """Draw a place by boxes, from cached weights if the squared drift since then is within the limit.

    Otherwise, or if all proposals are rejected, the weights are computed again, and the place is drawn by ``uniform``.
    """
    omega = lanes.omega[lane]
    if lanes.known[lane]:
        drift = scratch.drift
        square = 0.0
        for k in range(omega.size):
            drift[k] = omega[k] - lanes.stale[lane, k]
            square += drift[k] * drift[k]
        if square <= limit:
            place = _draw_stale(tables, lanes, lane, scratch)
            if place >= 0:
                return place
    weights = lanes.weights[lane]
    sums = lanes.sums[lane]
    shift = bound_of_logits(tables.top, tables.widest, omega)
    lanes.shift[lane] = weigh_all(tables.factors, tables.offsets, tables.starts, shift, omega, weights, sums)
    for k in range(omega.size):
        lanes.stale[lane, k] = omega[k]
    lanes.known[lane] = True
    return pick_from_all(tables.starts, weights, sums, uniform)


Tiers = namedtuple("Tiers", "n_hot n_warm n_boxes cold cold_offsets cold_starts cold_weights")
"""Tables of the sampler by tiers: ``n_hot`` items, ``n_warm`` warm entries, ``n_boxes`` groups of warm entries, C cold
entries. ``cold`` (2 L, C) float32: centres of the entries' boxes, above their half widths; ``cold_offsets`` (C,): the
logarithm of each entry's sum of exp(offset); ``cold_starts`` (C + 1,): entry e has the cold places from cold_starts[e]
to cold_starts[e + 1], counted from n_hot + n_warm; ``cold_weights``: exp(offset) of each cold place."""

_LARGE = 1e30
"""Sum of bounds above which float32 is too coarse."""

_LOOSER = 8.0
"""Measured growth of the bounds: after a drift d they exceed the true weights by a factor of about 1 + 8 |d|^2."""
_F = np.float32


@inner
def _remember(tables, tiers, lanes, lane, signs):
    """Compute the weights of the lane's warm and cold entries at its present interests, and cache them."""
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
    """Return what :func:`pick` returns, for every stride-th value from ``first`` on."""
    i = first
    while i < last - stride and target >= values[i]:
        target -= values[i]
        i += stride
    return i, target


@inlined
def _pick_in_cold(tables, tiers, lanes, lane, entry, target):
    """Draw an item of a cold entry in proportion to exp(offset).

    Returns:
        The item's place, and the logarithm of its true weight at the cached interests relative to the entry's bound.
    """
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
    """Propose entries until one is accepted.

    Args:
        tables: catalogue in sampling order.
        tiers: tables of the sampler by tiers.
        lanes: state of the lanes' users.
        lane: index of the lane.
        target: first proposal, a number in [0, sum of the groups' bounds).
        hot_total: sum of the hot items' weights.
        total: ``hot_total`` plus the sum of the groups' bounds.
        scratch: working space with the hot items' weights and the groups' bounds.

    Returns:
        The place, -1 if all proposals are rejected; and a uniform that has not been used.
    """
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
    """Draw a place by tiers.

    The cached weights of entries are computed again if more than ``limit`` rejected proposals are expected.

    With d the drift since weights e_i were computed, group g (box of centre c_g and half width h_g) is proposed with
    weight S_g exp(c_g.d + h_g.|d|), an entry in it in proportion to e_i, and accepted with probability
    exp((f_i - c_g).d - h_g.|d|) <= 1. An item of a cold entry is proposed in proportion to exp(offset), and its
    probability of acceptance is multiplied by its weight relative to the entry's bound. Hot items are proposed by their
    present weights and always accepted. The first proposal uses ``uniform``, so most views need no other draw.

    Returns:
        The place, -1 if there is none; and a uniform that has not been used.
    """
    omega = lanes.omega[lane]
    drift = scratch.drift
    hot = scratch.hot
    bound = scratch.bound
    hot_total = total = 0.0
    is_known = lanes.known[lane]
    while True:
        if not is_known:
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
        if not is_known or bounds * (loose - limit) <= limit * hot_total * (1.0 + loose):
            break
        is_known = False
    # Interests may be so strong that float32 cannot represent the weights, or the bounds of cold entries.
    if not (FAINT <= total <= _LARGE):
        return -1, uniform
    target = uniform * total
    if target < hot_total:
        return pick_by_columns(hot, scratch.hot_columns, target), uniform
    return _propose(tables, tiers, lanes, lane, target - hot_total, hot_total, total, scratch)


Unseen = namedtuple("Unseen", "seen weights")
"""Arrays of a world in which no item is viewed twice: ``seen`` (n, P) bool, the items that each lane's user has viewed;
``weights`` (P,) float64, working space."""


@inner
def forget_views(unseen, lane):
    """Mark all items as unseen by the lane's user."""
    seen = unseen.seen[lane]
    for p in range(seen.size):
        seen[p] = False


@spliced
def _strike(seen, weights):
    """Set the weights of seen items to 0."""
    for p in range(seen.size):
        weights[p] = np.float32(0.0) if seen[p] else weights[p]


@inner
def _view_unseen(unseen, lane, tables, omega, uniform, scratch):
    """Draw an item that the lane's user has not seen, from softmax(factors omega + offsets), and mark it as seen.

    Without boxes and tiers, places are the items in their own order.
    """
    seen = unseen.seen[lane]
    weights = scratch.weights
    shift = bound_of_logits(tables.top, tables.widest, omega)
    weigh(tables.factors, tables.offsets, FIRST, omega, shift, weights)
    _strike(seen, weights)
    place = -1
    if sum_groups(weights, tables.starts, scratch.sums) >= FAINT:
        place = pick_from_all(tables.starts, weights, scratch.sums, uniform)
    # float32 cannot represent the weights that are left, or its rounding has led to an item that was seen.
    if place < 0 or seen[place]:
        place = _view_unseen_precisely(unseen, seen, tables, omega, uniform)
    seen[place] = True
    return place


@inner
def _view_unseen_precisely(unseen, seen, tables, omega, uniform):
    """Draw an unseen item as :func:`_view_unseen` does, but in float64 and relative to the largest logit left."""
    weights = unseen.weights
    n_items = seen.size
    for p in range(n_items):
        weights[p] = np.float64(tables.offsets[p])
    for k in range(omega.size):
        w = omega[k]
        row = tables.factors[k]
        for p in range(n_items):
            weights[p] += np.float64(row[p]) * w
    for p in range(n_items):
        weights[p] = -np.inf if seen[p] else weights[p]
    return pick_precisely(weights, uniform)


@spliced
def sample_view(stale_limit, tables, boxes, tiers, unseen, lanes, lane, uniform, scratch):
    """Draw the item that the lane's user views now, exactly from softmax(factors omega + offsets).

    At most one of ``unseen``, ``tiers`` and ``boxes`` is not None and selects the sampler; the code of the others is
    not compiled. Without a sampler, or if it returns place -1, the softmax over all items is computed.
    """
    place = -1
    if unseen is not None:
        place = _view_unseen(unseen, lane, tables, lanes.omega[lane], uniform, scratch)
    elif tiers is not None:
        place, uniform = view_by_tiers(stale_limit, tables, tiers, lanes, lane, uniform, scratch)
    elif boxes is not None:
        place = view_by_boxes(stale_limit, tables, lanes, lane, uniform, scratch)
    if place < 0:
        omega = lanes.omega[lane]
        shift = bound_of_logits(tables.top, tables.widest, omega)
        weigh_all(tables.factors, tables.offsets, tables.starts, shift, omega, scratch.weights, scratch.sums)
        place = pick_from_all(tables.starts, scratch.weights, scratch.sums, uniform)
    return tables.order[place]
