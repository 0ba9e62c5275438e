# mypy: ignore-errors
"""Compiled parts of drawing an item from a softmax over the catalogue: arrays, weights, sums and scans."""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from recsim_mnar.kernels._rng_kernel import exp32, exp64
from recsim_mnar.kernels.jit import inlined, inner, spliced

Tables = namedtuple("Tables", "factors offsets rows order starts centre half widest top click_factors click_offsets")
"""Catalogue in sampling order. A *place* is a position in this order; group g has places starts[g]:starts[g + 1].

L is the number of factors, padded with zero rows to a multiple of five; Q is the number of places, padded to a multiple
of 64, so that no loop over them has a scalar remainder.

``factors`` (L, Q) float32; ``offsets`` (Q,) float32; ``rows`` (places, L) float32, the factors place by place;
``order`` (places,) int32, the item at each place; ``starts`` (G + 1,); ``centre`` and ``half`` (L, G) float32, centre
and half width of the box that contains each group's factors; ``widest``, the largest norm of factors; ``top``, the
largest offset; ``click_factors`` (P, K) and ``click_offsets`` (P,) float64, in item order.
"""

Lanes = namedtuple(
    "Lanes", "seed user phase step n_organic n_decisions n_drifts time omega stale known shift weights sums"
)
"""State of each lane's user, first axis (n,): ``omega`` (n, L) float64, the interests.

The rest is a cache of softmax weights, valid where ``known``: ``weights`` (n, entries) float32, exp(logit - ``shift``);
``sums`` (n, groups) float32, their sums over groups; ``stale`` (n, L), the interests at which they were computed. The
cache is empty for samplers that use none.
"""

Scratch = namedtuple("Scratch", "drift signs bound blocks columns hot hot_columns wide weights sums")
"""Working space: ``drift`` (L,) and ``signs`` (2 L,) float64; ``bound`` (groups,) float32, with partial sums ``blocks``
(groups / 16,) float64 and ``columns`` (16,) float32; ``hot`` (n_hot,) float32, with partial sums ``hot_columns`` (16,)
and ``wide`` (64,); ``weights`` (Q,) and ``sums`` (groups,) float32 of a softmax over all places."""

S_VIEW = np.uint64(5)

ATTEMPTS = 32
"""Largest number of proposals of the rejection samplers. Their random draws are addressed by view * 32 + attempt."""

FAINT = 1e-20
"""Sum of softmax weights below which float32 is too coarse: exp32 gives at least 1e-38, which would not be negligible
for many items."""

_NOTHING = np.float32(0.0)
_FAR = np.float32(-46.0)
"""About log(FAINT): the largest logit minus its bound, below which the bound is of no use in float32."""

FIRST = np.int64(0)
"""The first place. A literal 0 has a type of its own, for which numba would compile a kernel a second time."""

COLUMNS = 16
"""Number of columns of the tables whose columns are summed: a vector of float32."""
_LINE = 16
"""Largest number of groups that are scanned without branches."""
_F = np.float32


@inlined
def sum_of(values):
    """Return the sum of float32 values as float64, added in an order that gives the same bits on every machine."""
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


@spliced
def _largest_of(values):
    """Return the largest of float32 values, whose number is a multiple of eight.

    Eight maxima are kept at a time, because numba does not vectorise a single one.
    """
    m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = values[0]
    for i in range(0, values.size, 8):
        part = values[i : i + 8]
        if part[0] > m0:
            m0 = part[0]
        if part[1] > m1:
            m1 = part[1]
        if part[2] > m2:
            m2 = part[2]
        if part[3] > m3:
            m3 = part[3]
        if part[4] > m4:
            m4 = part[4]
        if part[5] > m5:
            m5 = part[5]
        if part[6] > m6:
            m6 = part[6]
        if part[7] > m7:
            m7 = part[7]
    return max(max(max(m0, m4), max(m2, m6)), max(max(m1, m5), max(m3, m7)))


@spliced
def _logits(factors, offsets, begin, omega, shift, out):
    """Write the logits offsets + factors' omega - shift of the places from ``begin`` on to ``out``, all float32."""
    n = out.size
    end = begin + n
    o = offsets[begin:end]
    for p in range(n):
        out[p] = o[p] - shift
    for first in range(0, factors.shape[0], 5):
        w0 = _F(omega[first])
        w1 = _F(omega[first + 1])
        w2 = _F(omega[first + 2])
        w3 = _F(omega[first + 3])
        w4 = _F(omega[first + 4])
        f0 = factors[first, begin:end]
        f1 = factors[first + 1, begin:end]
        f2 = factors[first + 2, begin:end]
        f3 = factors[first + 3, begin:end]
        f4 = factors[first + 4, begin:end]
        for p in range(n):
            out[p] = out[p] + w0 * f0[p] + w1 * f1[p] + w2 * f2[p] + w3 * f3[p] + w4 * f4[p]


@spliced
def _exp_of_rest(values, excess):
    """Replace each value by exp(value - excess); for an excess of 0 the bits are those of exp(value)."""
    for p in range(values.size):
        values[p] = exp32(values[p] - excess)


@inner
def weigh(factors, offsets, begin, omega, shift, out):
    """Write the weights exp(offsets + factors' omega - shift) of the places from ``begin`` on to ``out``; float32."""
    if factors.shape[0] > 5:
        _logits(factors, offsets, begin, omega, shift, out)
        _exp_of_rest(out, _NOTHING)
        return
    _weigh_five(factors, offsets, begin, omega, shift, out)


@spliced
def _weigh_five(factors, offsets, begin, omega, shift, out):
    """Compute :func:`weigh` for five factors in a single pass; most catalogues have five, and spend their time here."""
    n = out.size
    end = begin + n
    o = offsets[begin:end]
    w0 = _F(omega[0])
    w1 = _F(omega[1])
    w2 = _F(omega[2])
    w3 = _F(omega[3])
    w4 = _F(omega[4])
    f0 = factors[0, begin:end]
    f1 = factors[1, begin:end]
    f2 = factors[2, begin:end]
    f3 = factors[3, begin:end]
    f4 = factors[4, begin:end]
    for p in range(n):
        out[p] = exp32(o[p] - shift + w0 * f0[p] + w1 * f1[p] + w2 * f2[p] + w3 * f3[p] + w4 * f4[p])


@inlined
def bound_of_logits(top, widest, omega):
    """Return an upper bound of the largest logit, top + |omega| widest, without a pass over all items."""
    square = 0.0
    for k in range(omega.size):
        square += omega[k] * omega[k]
    return _F(top + np.sqrt(square) * widest)


@spliced
def sum_groups(weights, starts, sums):
    """Write the sum of each group's weights to ``sums``, and return the sum of all weights."""
    total = 0.0
    for g in range(starts.size - 1):
        s = sum_of(weights[starts[g] : starts[g + 1]])
        sums[g] = _F(s)
        total += s
    return total


@inner
def weigh_all(factors, offsets, starts, shift, omega, weights, sums):
    """Compute the softmax weights of all places, exp(logit - shift), and the sum of each group.

    ``shift`` is the bound of :func:`bound_of_logits`. If it is so far above the largest logit that float32 would lose
    weights, the largest logit is used instead.

    Returns:
        The shift that was used.
    """
    if omega.size == 5:
        _weigh_five(factors, offsets, FIRST, omega, shift, weights)
        if sum_groups(weights, starts, sums) >= FAINT:
            return shift
    _logits(factors, offsets, FIRST, omega, shift, weights)
    # The largest logit minus the bound; it is subtracted only if the bound is too far above it.
    excess = _largest_of(weights)
    if excess >= _FAR:
        excess = _F(0.0)
    _exp_of_rest(weights, excess)
    sum_groups(weights, starts, sums)
    return shift + excess


@inlined
def bound_groups(centre, half, sums, drift, bound):
    """Write an upper bound of each group's weight after a drift d of the interests to ``bound``.

    The bound is S_g exp(c_g.d + h_g.|d|), with the group's old weight S_g and the box's centre c_g and half width h_g.
    """
    n = bound.size
    for first in range(0, centre.shape[0], 5):
        w0 = _F(drift[first])
        w1 = _F(drift[first + 1])
        w2 = _F(drift[first + 2])
        w3 = _F(drift[first + 3])
        w4 = _F(drift[first + 4])
        a0 = abs(w0)
        a1 = abs(w1)
        a2 = abs(w2)
        a3 = abs(w3)
        a4 = abs(w4)
        c0 = centre[first]
        c1 = centre[first + 1]
        c2 = centre[first + 2]
        c3 = centre[first + 3]
        c4 = centre[first + 4]
        h0 = half[first]
        h1 = half[first + 1]
        h2 = half[first + 2]
        h3 = half[first + 3]
        h4 = half[first + 4]
        if first == 0:
            for g in range(n):
                z = (w0 * c0[g] + a0 * h0[g]) + (w1 * c1[g] + a1 * h1[g])
                z = z + (w2 * c2[g] + a2 * h2[g])
                z = z + (w3 * c3[g] + a3 * h3[g])
                bound[g] = z + (w4 * c4[g] + a4 * h4[g])
        else:
            for g in range(n):
                z = bound[g] + (w0 * c0[g] + a0 * h0[g])
                z = z + (w1 * c1[g] + a1 * h1[g])
                z = z + (w2 * c2[g] + a2 * h2[g])
                z = z + (w3 * c3[g] + a3 * h3[g])
                bound[g] = z + (w4 * c4[g] + a4 * h4[g])
    for g in range(n):
        bound[g] = sums[g] * exp32(bound[g])


@inlined
def pick(values, first, last, target):
    """Find where in first .. last - 1 the running sum of values exceeds a target.

    Returns:
        The index, and the target minus the sum of the values before it.
    """
    i = first
    while i < last - 1 and target >= values[i]:
        target -= values[i]
        i += 1
    return i, target


@inlined
def _pick_steady(values, first, count, stride, target):
    """Return what :func:`pick` returns, for ``count`` values, every stride-th from ``first`` on, without branches.

    Suitable for short scans, in which a mispredicted branch costs more than the steps that an early end saves. The
    running sum does not depend on the comparisons, so a step takes no longer than its addition.
    """
    reached = below = 0.0
    passed = np.int64(0)
    for i in range(first, first + (count - 1) * stride, stride):
        reached += np.float64(values[np.uint64(i)])
        is_passed = target >= reached
        if is_passed:
            below = reached
        passed += np.int64(is_passed)
    return first + passed * stride, target - below


@inner
def pick_from_all(starts, weights, sums, uniform):
    """Draw a place in proportion to the weights that :func:`weigh_all` computed: first its group, then the place."""
    total = 0.0
    for g in range(sums.size):
        total += np.float64(sums[g])
    target = uniform * total
    if sums.size > _LINE:
        g, target = pick(sums, 0, sums.size, target)
        place, _ = pick(weights, starts[g], starts[g + 1], target)
        return place
    g, target = _pick_steady(sums, 0, sums.size, 1, target)
    place, _ = _pick_steady(weights, starts[g], starts[g + 1] - starts[g], 1, target)
    return place


@inlined
def sum_rows(values, sums):
    """Write the column sums of a table, stored row by row in ``values`` and as wide as ``sums``, to ``sums``."""
    width = sums.size
    for j in range(width):
        sums[j] = values[j]
    for i in range(width, values.size, width):
        row = values[i : i + width]
        for j in range(width):
            sums[j] += row[j]


@inlined
def sum_columns(values, wide, sums):
    """Write the sums of every sixteenth value, starting at 0, 1, ..., 15, to ``sums``.

    If possible, the columns of a table four times as wide (``wide``) are summed first, so that four vectors are added
    independently.
    """
    width = wide.size
    if values.size % width != 0:
        sum_rows(values, sums)
        return
    sum_rows(values, wide)
    quarter = width // 4
    first = wide[:quarter]
    second = wide[quarter : 2 * quarter]
    third = wide[2 * quarter : 3 * quarter]
    fourth = wide[3 * quarter :]
    for j in range(quarter):
        sums[j] = (first[j] + second[j]) + (third[j] + fourth[j])


@inlined
def pick_by_columns(values, sums, target):
    """Draw a place in proportion to ``values``: first its column, by the column sums, then the place in the column."""
    column, target = _pick_steady(sums, 0, COLUMNS, 1, target)
    place, _ = _pick_steady(values, column, values.size // COLUMNS, COLUMNS, target)
    return place


@inner
def pick_precisely(logits, uniform):
    """Draw a place from the softmax of ``logits`` (n,) in float64; a logit of -inf is never drawn.

    The logits are overwritten. The result is -1 if all logits are -inf.
    """
    top = -np.inf
    for p in range(logits.size):
        top = max(top, logits[p])
    total = 0.0
    for p in range(logits.size):
        logits[p] = 0.0 if logits[p] == -np.inf else exp64(logits[p] - top)
        total += logits[p]
    target = uniform * total
    place = np.int64(-1)
    reached = 0.0
    for p in range(logits.size):
        if logits[p] > 0.0:
            place = p
            reached += logits[p]
            if target < reached:
                break
    return place
