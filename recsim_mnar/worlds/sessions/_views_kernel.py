# mypy: ignore-errors
"""Jitted sampler of views: an item drawn from softmax(factors omega + offsets), exactly.

With few items from a fresh softmax at every view; with many from the weights of earlier interests, by rejection. Where
no item is viewed twice, from a fresh softmax of those that are left.
"""

from __future__ import annotations

import numpy as np

from recsim_mnar.numerics._rng_kernel import exp64
from recsim_mnar.numerics.jit import spliced, where_given
from recsim_mnar.worlds.sessions._boxes_kernel import view_by_boxes
from recsim_mnar.worlds.sessions._softmax_kernel import bound_of_logits, pick_from_all, weigh_all
from recsim_mnar.worlds.sessions._tiers_kernel import view_by_tiers


@where_given(-1)
def view_unseen(all_seen, lane, tables, interests, uniform, weights):
    """An item that the lane has not seen yet, by softmax(factors omega + offsets) among those; it is seen from now on.

    -1 where views may repeat. In float64, the items in their own order: ``order`` is 0, 1, ... where the sampler has
    neither boxes nor tiers.
    """
    if all_seen.shape[1] == 0:
        return -1
    seen, omega = all_seen[lane], interests[lane]
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
    item = -1
    reached = 0.0
    for p in range(n_items):
        if weights[p] > 0.0:
            item = p
            reached += weights[p]
            if target < reached:
                break
    seen[item] = True
    return item


@spliced
def sample_view(stale_limit, tables, boxes, tiers, lanes, lane, uniform, scratch):
    """The item that the lane's user views now: softmax(factors omega + offsets), exactly.

    ``boxes`` and ``tiers``: None in a catalogue without; what they need is compiled only for one that has them.
    """
    item = view_unseen(lanes.seen, lane, tables, lanes.omega, uniform, scratch.unseen)
    if item < 0:
        place = -1
        if tiers is not None:
            place, uniform = view_by_tiers(stale_limit, tables, tiers, lanes, lane, uniform, scratch)
        elif boxes is not None:
            place = view_by_boxes(stale_limit, tables, lanes, lane, uniform, scratch)
        if place < 0:
            omega = lanes.omega[lane]
            shift = bound_of_logits(tables.top, tables.widest, omega)
            weigh_all(tables.factors, tables.offsets, tables.starts, shift, omega, scratch.weights, scratch.sums)
            place = pick_from_all(tables.starts, scratch.weights, scratch.sums, uniform)
        item = tables.order[place]
    return item
