# mypy: ignore-errors
"""Jitted sampler of views: an item drawn from softmax(factors omega + offsets), exactly.

With few items from a fresh softmax at every view; with many from the weights of earlier interests, by rejection.
"""

from __future__ import annotations

from recsim_mnar.numerics.jit import spliced
from recsim_mnar.worlds.sessions._boxes_kernel import view_by_boxes
from recsim_mnar.worlds.sessions._softmax_kernel import bound_of_logits, pick_from_all, weigh_all
from recsim_mnar.worlds.sessions._tiers_kernel import view_by_tiers


@spliced
def sample_view(stale_limit, tables, boxes, tiers, lanes, lane, uniform, scratch):
    """The item that the lane's user views now: softmax(factors omega + offsets), exactly.

    ``boxes`` and ``tiers``: None in a catalogue without; what they need is compiled only for one that has them.
    """
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
    return tables.order[place]
