# mypy: ignore-errors
"""Jitted sampler of views: an item drawn from softmax(factors omega + offsets), exactly.

With few items from a fresh softmax at every view; with many from the weights of earlier interests, by rejection. Where
no item is viewed twice, from a fresh softmax of those that are left.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from recsim_mnar.kernels._rng_kernel import exp64
from recsim_mnar.kernels.jit import inner, spliced
from recsim_mnar.worlds.sessions._boxes_kernel import view_by_boxes
from recsim_mnar.worlds.sessions._softmax_kernel import (
    FAINT,
    FIRST,
    bound_of_logits,
    pick_from_all,
    sum_groups,
    weigh,
    weigh_all,
)
from recsim_mnar.worlds.sessions._tiers_kernel import view_by_tiers

Unseen = namedtuple("Unseen", "seen weights")
"""Where no item is viewed twice: seen (n, P) bool, the items that each lane's user has viewed; weights (P,) float64,
written to in passing."""


@inner
def forget_views(unseen, lane):
    """The lane's user has seen nothing yet."""
    seen = unseen.seen[lane]
    for p in range(seen.size):
        seen[p] = False


@spliced
def _strike(seen, weights):
    """What was seen weighs nothing."""
    for p in range(seen.size):
        weights[p] = np.float32(0.0) if seen[p] else weights[p]


@inner
def _view_unseen(unseen, lane, tables, omega, uniform, scratch):
    """Place of an item not seen yet, by softmax(factors omega + offsets) among those; it is seen from now on.

    Without boxes and tiers places are the items in their own order.
    """
    seen = unseen.seen[lane]
    weights = scratch.weights
    shift = bound_of_logits(tables.top, tables.widest, omega)
    weigh(tables.factors, tables.offsets, FIRST, omega, shift, weights)
    _strike(seen, weights)
    place = -1
    if sum_groups(weights, tables.starts, scratch.sums) >= FAINT:
        place = pick_from_all(tables.starts, weights, scratch.sums, uniform)
    # Where float32 would lose what is left, or its rounding ends at an item that was seen.
    if place < 0 or seen[place]:
        place = _view_unseen_precisely(unseen, seen, tables, omega, uniform)
    seen[place] = True
    return place


@inner
def _view_unseen_precisely(unseen, seen, tables, omega, uniform):
    """As :func:`_view_unseen`, in float64 and about the largest logit that is left."""
    weights = unseen.weights
    n_items = seen.size
    for p in range(n_items):
        weights[p] = np.float64(tables.offsets[p])
    for k in range(omega.size):
        w = omega[k]
        row = tables.factors[k]
        for p in range(n_items):
            weights[p] += np.float64(row[p]) * w
    top = -np.inf
    for p in range(n_items):
        if not seen[p] and weights[p] > top:
            top = weights[p]
    total = 0.0
    for p in range(n_items):
        weights[p] = 0.0 if seen[p] else exp64(weights[p] - top)
        total += weights[p]
    target = uniform * total
    place = -1
    reached = 0.0
    for p in range(n_items):
        if weights[p] > 0.0:
            place = p
            reached += weights[p]
            if target < reached:
                break
    return place


@spliced
def sample_view(stale_limit, tables, boxes, tiers, unseen, lanes, lane, uniform, scratch):
    """The item that the lane's user views now: softmax(factors omega + offsets), exactly.

    ``boxes``, ``tiers`` and ``unseen``: None in a world without; what they need is compiled only for one that has them.
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
