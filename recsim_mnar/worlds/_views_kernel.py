"""Jitted sampler of views: an item drawn from softmax(factors omega + offsets), exactly.

With few items from a fresh softmax at every view; with many from the weights of earlier interests, by rejection.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from recsim_mnar._jit import inlined, kernel
from recsim_mnar._rng_kernel import block, exp32, exp64, unit53

Tables = namedtuple(
    "Tables",
    "factors offsets rows order starts centre half widest top click_factors click_offsets",
)
"""The catalogue as the kernels read it. Items stand in sampling order: group g is starts[g]:starts[g + 1].

factors (L, Q) float32 with L the number of factors padded with zero rows to a multiple of five and Q the number of
items padded to a multiple of 64, so that no loop over items has a scalar remainder; offsets (Q,); rows (P, L) float32,
the same factors item by item; order (P,) int32, the item at each place; centre and half (L, G) float32, the box
of each group's factors; widest, the largest factor norm; top, the largest offset; click_factors (P, K) and
click_offsets (P,) float64 in item order.
"""

Lanes = namedtuple(
    "Lanes",
    "seed user phase step n_organic n_decisions n_drifts time omega stale known weights sums",
)
"""One entry a lane. omega (n, L) float64; stale (n, L): omega when ``weights`` (n, Q) and ``sums`` (n, G) were
made, where ``known`` is set. Without a stale sampler nothing is remembered, and all lanes share one row of weights
and sums."""

_S_VIEW = np.uint64(5)

_ATTEMPTS = 32
"""Proposals of the rejection sampler before it makes fresh weights; views are addressed by view * 32 + attempt."""

_FAINT = 1e-20
"""A sum of softmax weights below which the smallest ones, held at 1e-38, would no longer be negligible."""

_TILE = 16
_F = np.float32


@inlined
def _sum_of(values):
    """Sum of float32 values as float64, in eight fixed lanes: the same bits on every machine."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = _F(0.0)
    n = values.size
    m = n - n % 8
    for i in range(0, m, 8):
        part = values[i : i + 8]
        s0 += part[0]
        s1 += part[1]
        s2 += part[2]
        s3 += part[3]
        s4 += part[4]
        s5 += part[5]
        s6 += part[6]
        s7 += part[7]
    total = np.float64((s0 + s4) + (s2 + s6)) + np.float64((s1 + s5) + (s3 + s7))
    for i in range(m, n):
        total += np.float64(values[i])
    return total


@kernel
def _weigh(factors, offsets, omega, shift, out):
    """Out = exp(offsets + factors' omega - shift), the factors taken five at a time; all float32."""
    n_padded, n = factors.shape
    for first in range(0, n_padded, 5):
        w0 = _F(omega[first])
        w1 = _F(omega[first + 1])
        w2 = _F(omega[first + 2])
        w3 = _F(omega[first + 3])
        w4 = _F(omega[first + 4])
        f0 = factors[first]
        f1 = factors[first + 1]
        f2 = factors[first + 2]
        f3 = factors[first + 3]
        f4 = factors[first + 4]
        if first == 0:
            if n_padded == 5:
                for p in range(n):
                    z = offsets[p] - shift + w0 * f0[p] + w1 * f1[p] + w2 * f2[p] + w3 * f3[p] + w4 * f4[p]
                    out[p] = exp32(z)
            else:
                for p in range(n):
                    out[p] = offsets[p] - shift + w0 * f0[p] + w1 * f1[p] + w2 * f2[p] + w3 * f3[p] + w4 * f4[p]
        elif first + 5 < n_padded:
            for p in range(n):
                out[p] = out[p] + w0 * f0[p] + w1 * f1[p] + w2 * f2[p] + w3 * f3[p] + w4 * f4[p]
        else:
            for p in range(n):
                out[p] = exp32(out[p] + w0 * f0[p] + w1 * f1[p] + w2 * f2[p] + w3 * f3[p] + w4 * f4[p])


@inlined
def _pick(values, first, last, target):
    """Where in first..last-1 the running sum of values passes target, and what is left of target there."""
    i = first
    while i < last - 1 and target >= values[i]:
        target -= values[i]
        i += 1
    return i, target


@inlined
def _sum_groups(weights, starts, sums):
    """Sum of the weights of each group into ``sums``, and of all of them."""
    total = 0.0
    for g in range(starts.size - 1):
        s = _sum_of(weights[starts[g] : starts[g + 1]])
        sums[g] = _F(s)
        total += s
    return total


@kernel
def _largest_logit(tables, omega):
    """The largest logit of the items for interests ``omega``, float32."""
    n_items, n_padded = tables.rows.shape
    largest = -np.inf
    for p in range(n_items):
        z = np.float64(tables.offsets[p])
        for k in range(n_padded):
            z += np.float64(tables.rows[p, k]) * omega[k]
        largest = max(largest, z)
    return _F(largest)


@inlined
def _renew(tables, lanes, lane):
    """Make the lane's softmax weights at its present interests, and the sums of each group."""
    omega = lanes.omega[lane]
    square = 0.0
    for k in range(omega.size):
        square += omega[k] * omega[k]
    # An upper bound of the largest logit costs nothing, where the maximum would need a pass that does not vectorise.
    shift = _F(tables.top + np.sqrt(square) * tables.widest)
    row = lane % lanes.weights.shape[0]
    weights = lanes.weights[row]
    _weigh(tables.factors, tables.offsets, omega, shift, weights)
    sums = lanes.sums[row]
    total = _sum_groups(weights, tables.starts, sums)
    if total < _FAINT:
        # The bound lies so far above the largest logit that float32 loses weights: take the largest itself.
        _weigh(tables.factors, tables.offsets, omega, _largest_logit(tables, omega), weights)
        _sum_groups(weights, tables.starts, sums)
    for k in range(omega.size):
        lanes.stale[lane, k] = omega[k]
    lanes.known[lane] = True


@inlined
def _draw_fresh(tables, lanes, lane, uniform):
    """The place of an item drawn from the lane's weights as they stand."""
    row = lane % lanes.weights.shape[0]
    sums = lanes.sums[row]
    total = 0.0
    for g in range(sums.size):
        total += np.float64(sums[g])
    g, target = _pick(sums, 0, sums.size, uniform * total)
    place, _ = _pick(lanes.weights[row], tables.starts[g], tables.starts[g + 1], target)
    return place


@kernel
def _draw_stale(tables, lanes, lane, drift, bound, blocks):
    """The place of an item drawn exactly for the present interests from the weights of earlier ones, or -1.

    With d the drift since the weights e_i were made, group g (box of centre c_g and half width h_g) is proposed with
    weight S_g exp(c_g.d + h_g.|d|), an item in it in proportion to e_i, and accepted with probability
    exp((f_i - c_g).d - h_g.|d|) <= 1, so that an accepted item has probability proportional to e_i exp(f_i.d).
    """
    n_padded, n_groups = tables.centre.shape
    sums = lanes.sums[lane]
    weights = lanes.weights[lane]
    for first in range(0, n_padded, 5):
        for k in range(first, first + 5):
            w = _F(drift[k])
            a = abs(w)
            centre = tables.centre[k]
            half = tables.half[k]
            if k == 0:
                for g in range(n_groups):
                    bound[g] = w * centre[g] + a * half[g]
            else:
                for g in range(n_groups):
                    bound[g] = bound[g] + (w * centre[g] + a * half[g])
    for g in range(n_groups):
        bound[g] = sums[g] * exp32(bound[g])
    n_blocks = n_groups // _TILE
    total = 0.0
    for b in range(n_blocks):
        s = _sum_of(bound[b * _TILE : (b + 1) * _TILE])
        blocks[b] = s
        total += s
    seed = lanes.seed[lane]
    user = np.uint64(lanes.user[lane])
    first_address = lanes.n_organic[lane] * _ATTEMPTS
    for attempt in range(_ATTEMPTS):
        a, b, c, d = block(seed, _S_VIEW, user, np.uint64(first_address + attempt))
        tile, target = _pick(blocks, 0, n_blocks, unit53(a, b) * total)
        g, target = _pick(bound, tile * _TILE, (tile + 1) * _TILE, target)
        scale = np.float64(sums[g]) / np.float64(bound[g])
        place, _ = _pick(weights, tables.starts[g], tables.starts[g + 1], target * scale)
        exponent = 0.0
        row = tables.rows[place]
        for k in range(n_padded):
            exponent += (np.float64(row[k]) - np.float64(tables.centre[k, g])) * drift[k]
            exponent -= np.float64(tables.half[k, g]) * abs(drift[k])
        if unit53(c, d) < exp64(exponent):
            return place
    return -1


@inlined
def view(stale_limit, tables, lanes, lane, uniform, scratch):
    """The item that the lane's user views now: softmax(factors omega + offsets), exactly."""
    drift, bound, blocks = scratch
    omega = lanes.omega[lane]
    place = -1
    if stale_limit > 0.0 and lanes.known[lane]:
        square = 0.0
        for k in range(omega.size):
            drift[k] = omega[k] - lanes.stale[lane, k]
            square += drift[k] * drift[k]
        if square <= stale_limit:
            place = _draw_stale(tables, lanes, lane, drift, bound, blocks)
    if place < 0:
        _renew(tables, lanes, lane)
        place = _draw_fresh(tables, lanes, lane, uniform)
    return tables.order[place]
