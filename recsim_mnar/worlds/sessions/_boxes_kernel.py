# mypy: ignore-errors
"""Jitted rejection sampler of views for even popularity: earlier weights, bounded over boxes of items' factors."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels._rng_kernel import block, exp64, unit53
from recsim_mnar.kernels.jit import inner, spliced
from recsim_mnar.worlds.sessions._softmax_kernel import (
    ATTEMPTS,
    S_VIEW,
    bound_groups,
    bound_of_logits,
    pick,
    pick_from_all,
    sum_of,
    weigh_all,
)

_BLOCK = 16


@inner
def _draw_stale(tables, lanes, lane, scratch):
    """The place of an item drawn exactly for the present interests from the weights of earlier ones, or -1.

    With d the drift since the weights e_i were made, group g (box of centre c_g and half width h_g) is proposed with
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
    """The place of the item viewed: from the lane's earlier weights while their square drift is within the limit."""
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
