"""Jitted sampler of views: an item drawn from softmax(factors omega + offsets), exactly.

With few items from a fresh softmax at every view; with many from the weights of earlier interests, by rejection.
"""

from __future__ import annotations

from recsim_mnar._jit import inlined
from recsim_mnar.worlds._boxes_kernel import view_by_boxes
from recsim_mnar.worlds._softmax_kernel import pick_from_all, weigh_all
from recsim_mnar.worlds._tiers_kernel import view_by_tiers


@inlined
def sample_view(stale_limit, tables, lanes, lane, uniform, scratch):
    """The item that the lane's user views now: softmax(factors omega + offsets), exactly."""
    if stale_limit == 0.0:
        weigh_all(tables, lanes.omega[lane], scratch.weights, scratch.sums)
        place = pick_from_all(tables, scratch.weights, scratch.sums, uniform)
    elif tables.n_hot > 0:
        place = view_by_tiers(stale_limit, tables, lanes, lane, uniform, scratch)
    else:
        place = view_by_boxes(stale_limit, tables, lanes, lane, uniform, scratch)
    return tables.order[place]
