"""Jitted sampler of views: an item drawn from softmax(factors omega + offsets), exactly.

With few items from a fresh softmax at every view; with many from the weights of earlier interests, by rejection.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from recsim_mnar._jit import inlined, kernel, spliced
from recsim_mnar._rng_kernel import block, exp32, exp64, unit53

Tables = namedtuple(
    "Tables",
    "n_hot factors offsets rows order starts centre half widest top click_factors click_offsets",
)
"""The catalogue as the kernels read it. Items stand in sampling order: first the n_hot (a multiple of 64) of the
largest offsets, in that order, then group g at starts[g]:starts[g + 1].

factors (L, Q) float32 with L the number of factors padded with zero rows to a multiple of five and Q the number of
items padded to a multiple of 64, so that no loop over items has a scalar remainder; offsets (Q,); rows (P, L) float32,
the same factors item by item; order (P,) int32, the item at each place; centre and half (L, G) float32, the box
of each group's factors; widest, the largest factor norm; top, the largest offset; click_factors (P, K) and
click_offsets (P,) float64 in item order.
"""

Lanes = namedtuple(
    "Lanes",
    "seed user phase step n_organic n_decisions n_drifts time omega stale known shift weights sums",
)
"""One entry a lane. omega (n, L) float64; stale (n, L): omega when ``weights`` (n, Q), exp(logit - shift), and
``sums`` (n, G) were made, where ``known`` is set. Without a stale sampler nothing is remembered, and all lanes share
one row of weights and sums."""

_S_VIEW = np.uint64(5)

_ATTEMPTS = 32
"""Proposals of the rejection sampler before it makes fresh weights; views are addressed by view * 32 + attempt."""

_FAINT = 1e-20
"""A sum of softmax weights below which the smallest ones, held at 1e-38, would no longer be negligible."""

_BLOCK = 16
_TILE = 32
_STRIPS = 8
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
    """Out = exp(offsets + factors' omega - shift) of the first items, the factors taken five at a time; all float32."""
    n_padded = factors.shape[0]
    n = out.size
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
def _pick_steady(values, first, last, stride, target):
    """The same as :func:`_pick`, at every stride-th value, without a branch that depends on the draw.

    For short scans behind long computations: there a branch foreseen wrongly costs more than the steps it saves.
    """
    place = first
    going = np.int64(1)
    for i in range(first, last - stride, stride):
        value = np.float64(values[np.uint64(i)])
        going &= np.int64(target >= value)
        target -= value if going else 0.0
        place += going * stride
    return place, target


@inlined
def _sum_strips(values, strips):
    """Sums of every eighth value from 0, 1, ..., 7 on into ``strips``, and of all."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = _F(0.0)
    for i in range(0, values.size, _STRIPS):
        part = values[i : i + _STRIPS]
        s0 += part[0]
        s1 += part[1]
        s2 += part[2]
        s3 += part[3]
        s4 += part[4]
        s5 += part[5]
        s6 += part[6]
        s7 += part[7]
    strips[0] = s0
    strips[1] = s1
    strips[2] = s2
    strips[3] = s3
    strips[4] = s4
    strips[5] = s5
    strips[6] = s6
    strips[7] = s7
    return (
        ((np.float64(s0) + np.float64(s1)) + (np.float64(s2) + np.float64(s3)))
        + ((np.float64(s4) + np.float64(s5)) + (np.float64(s6) + np.float64(s7)))
    )  # fmt: skip


@inlined
def _pick_hot(values, strips, target):
    """The place of a hot item drawn in proportion to values: its strip first, so that a short scan suffices."""
    strip, target = _pick_steady(strips, 0, _STRIPS, 1, target)
    place, _ = _pick_steady(values, strip, strip + values.size, _STRIPS, target)
    return place


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
    total = _sum_groups(weights, tables.starts, sums) + _sum_of(weights[: tables.n_hot])
    if total < _FAINT:
        # The bound lies so far above the largest logit that float32 loses weights: take the largest itself.
        shift = _largest_logit(tables, omega)
        _weigh(tables.factors, tables.offsets, omega, shift, weights)
        _sum_groups(weights, tables.starts, sums)
    lanes.shift[lane] = shift
    for k in range(omega.size):
        lanes.stale[lane, k] = omega[k]
    lanes.known[lane] = True


@inlined
def _draw_fresh(tables, lanes, lane, uniform, strips):
    """The place of an item drawn from the lane's weights as they stand."""
    row = lane % lanes.weights.shape[0]
    sums = lanes.sums[row]
    weights = lanes.weights[row]
    total = 0.0
    for g in range(sums.size):
        total += np.float64(sums[g])
    target = uniform * total
    if tables.n_hot > 0:
        hot = weights[: tables.n_hot]
        hot_total = _sum_strips(hot, strips)
        target = uniform * (total + hot_total)
        if target < hot_total:
            return _pick_hot(hot, strips, target)
        target -= hot_total
    if sums.size > _BLOCK:
        g, target = _pick(sums, 0, sums.size, target)
        place, _ = _pick(weights, tables.starts[g], tables.starts[g + 1], target)
        return place
    g, target = _pick_steady(sums, 0, sums.size, 1, target)
    place, _ = _pick_steady(weights, tables.starts[g], tables.starts[g + 1], 1, target)
    return place


@inlined
def _bound_groups(tables, sums, drift, bound):
    """The most that each group can weigh after a drift d of the interests: S_g exp(c_g.d + h_g.|d|)."""
    n_padded, n_groups = tables.centre.shape
    for tile in range(0, n_groups, _TILE):
        part = bound[tile : tile + _TILE]
        stale = sums[tile : tile + _TILE]
        for first in range(0, n_padded, 5):
            w0 = _F(drift[first])
            w1 = _F(drift[first + 1])
            w2 = _F(drift[first + 2])
            w3 = _F(drift[first + 3])
            w4 = _F(drift[first + 4])
            c0 = tables.centre[first, tile : tile + _TILE]
            c1 = tables.centre[first + 1, tile : tile + _TILE]
            c2 = tables.centre[first + 2, tile : tile + _TILE]
            c3 = tables.centre[first + 3, tile : tile + _TILE]
            c4 = tables.centre[first + 4, tile : tile + _TILE]
            h0 = tables.half[first, tile : tile + _TILE]
            h1 = tables.half[first + 1, tile : tile + _TILE]
            h2 = tables.half[first + 2, tile : tile + _TILE]
            h3 = tables.half[first + 3, tile : tile + _TILE]
            h4 = tables.half[first + 4, tile : tile + _TILE]
            for i in range(_TILE):
                z = w0 * c0[i] + abs(w0) * h0[i]
                if first > 0:
                    z = part[i] + z
                z = z + (w1 * c1[i] + abs(w1) * h1[i])
                z = z + (w2 * c2[i] + abs(w2) * h2[i])
                z = z + (w3 * c3[i] + abs(w3) * h3[i])
                part[i] = z + (w4 * c4[i] + abs(w4) * h4[i])
        for i in range(_TILE):
            part[i] = stale[i] * exp32(part[i])


@inlined
def _draw_stale(tables, lanes, lane, scratch):
    """The place of an item drawn exactly for the present interests from the weights of earlier ones, or -1.

    With d the drift since the weights e_i were made, group g (box of centre c_g and half width h_g) is proposed with
    weight S_g exp(c_g.d + h_g.|d|), an item in it in proportion to e_i, and accepted with probability
    exp((f_i - c_g).d - h_g.|d|) <= 1, so that an accepted item has probability proportional to e_i exp(f_i.d). The
    hot items are proposed with their present weights, and always accepted.
    """
    drift, bound, blocks, hot, strips = scratch
    n_padded, n_groups = tables.centre.shape
    sums = lanes.sums[lane]
    weights = lanes.weights[lane]
    _bound_groups(tables, sums, drift, bound)
    n_blocks = n_groups // _BLOCK
    total = 0.0
    for b in range(n_blocks):
        s = _sum_of(bound[b * _BLOCK : (b + 1) * _BLOCK])
        blocks[b] = s
        total += s
    hot_total = 0.0
    if hot.size > 0:
        _weigh(tables.factors, tables.offsets, lanes.omega[lane], lanes.shift[lane], hot)
        hot_total = _sum_strips(hot, strips)
        total += hot_total
    seed = lanes.seed[lane]
    user = np.uint64(lanes.user[lane])
    first_address = lanes.n_organic[lane] * _ATTEMPTS
    for attempt in range(_ATTEMPTS):
        a, b, c, d = block(seed, _S_VIEW, user, np.uint64(first_address + attempt))
        target = unit53(a, b) * total
        if target < hot_total:
            return _pick_hot(hot, strips, target)
        target -= hot_total
        tile, target = _pick(blocks, 0, n_blocks, target)
        g, target = _pick(bound, tile * _BLOCK, (tile + 1) * _BLOCK, target)
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


@spliced
def sample_view(stale_limit, tables, lanes, lane, uniform, scratch):
    """The item that the lane's user views now: softmax(factors omega + offsets), exactly."""
    drift, _bound, _blocks, _hot, strips = scratch
    omega = lanes.omega[lane]
    place = -1
    if stale_limit > 0.0 and lanes.known[lane]:
        square = 0.0
        for k in range(omega.size):
            drift[k] = omega[k] - lanes.stale[lane, k]
            square += drift[k] * drift[k]
        if square <= stale_limit:
            place = _draw_stale(tables, lanes, lane, scratch)
    if place < 0:
        _renew(tables, lanes, lane)
        place = _draw_fresh(tables, lanes, lane, uniform, strips)
    return tables.order[place]
