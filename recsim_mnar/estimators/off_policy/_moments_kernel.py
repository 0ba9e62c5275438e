# mypy: ignore-errors
"""One pass over (target, propensity, reward): the sums behind IPS, clipped IPS and SNIPS and their variances.

``sums`` are over rows and ``powers`` over users, of products of that user's sums, in the order of the names in
``moments``; both are held as pairs (high, low) whose exact sum is the value, so that shards merge to the same bits.
Names: w = target / propensity, x = w r, c = min(w, clip), y = c r, l = rows of the user.

For the difference of two policies, with weights w and b, sums over users of all products of up to four of a user's

- ``means`` and ``cut``: l and (w - b) r, of the weights and of the weights cut at the clip;
- ``ratio``: (w - b) r, b r, w - b, b, of the weights.
"""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels._rng_kernel import bits_from_double, double_from_bits
from recsim_mnar.kernels.jit import inlined, kernel, summing

CHUNK = 16384
"""Rows a chunk: shards cut at multiples of it merge to the same bits as the whole."""
N_SUMS = 22
N_BY_USER = 14
"""Sums that rows with users need: their third and fourth powers are of users."""

_REWARDED = N_SUMS
_SUPPORTED = N_SUMS + 1
_CLIPPED = N_SUMS + 2
_EXTREMES = N_SUMS + 3
_BLOCK = 512
_LOWEST = np.int64(-(2**63))
_HIGHEST = np.int64(2**63 - 1)
_MAGNITUDE = np.int64(2**63 - 1)
_DIGITS = 20
"""Bits of a count, of which three share a word: more than a chunk has rows."""
_COUNT = np.int64(2**_DIGITS - 1)


@kernel
def add_exactly(high, low, values):
    """Add ``values`` to the pairs ``high``, ``low``, (k,) each, keeping what rounding cuts off (Knuth's two-sum)."""
    for j in range(values.size):
        before = high[j]
        total = before + values[j]
        part = total - before
        high[j] = total
        low[j] += (before - (total - part)) + (values[j] - part)


@summing
def _chunk_sums(target, propensity, reward, clip, out):
    """Sums, counts and extremes of one chunk into ``out``.

    Extremes are taken of bit patterns, which order like the numbers where none is negative: compilers do not vectorise
    a float maximum. Among negative numbers only the sign is right. What bounds the speed is the number of instructions
    a row, so that three counts share a word, and the upper bounds of two columns one maximum.
    """
    w0 = w1 = x0 = x1 = wx = c0 = c1 = y0 = y1 = wc = xy = r0 = r1 = 0.0
    xr = x2 = x3 = w3x = wwxx = wx3 = w4 = y2 = y3 = 0.0
    counts = np.int64(0)
    clip_bits = bits_from_double(clip)
    p_low = r_low = _HIGHEST
    r_high = w_high = x_high = _LOWEST
    highest = np.uint64(0)
    for i in range(reward.size):
        p = propensity[i]
        t = target[i]
        r = reward[i]
        w = t / p
        x = w * r
        c = w if w < clip else clip
        y = c * r
        p_bits = bits_from_double(p)
        t_bits = bits_from_double(t)
        r_bits = bits_from_double(r)
        w_bits = bits_from_double(w)
        x_bits = bits_from_double(x) & _MAGNITUDE
        w0 += w
        w1 += w * w
        x0 += x
        x1 += x * x
        wx += w * x
        c0 += c
        c1 += c * c
        y0 += y
        y1 += y * y
        wc += w * c
        xy += x * y
        r0 += r
        r1 += r * r
        ww = w * w
        xx = x * x
        yy = y * y
        xr += x * r
        x2 += xx * x
        x3 += xx * xx
        w3x += ww * w * x
        wwxx += ww * xx
        wx3 += w * x * xx
        w4 += ww * ww
        y2 += yy * y
        y3 += yy * yy
        counts += (
            np.int64(r_bits & _MAGNITUDE > 0)
            + (np.int64(t_bits > 0) << _DIGITS)
            + (np.int64(w_bits > clip_bits) << (2 * _DIGITS))
        )
        p_low = min(p_low, p_bits)
        highest = max(highest, max(np.uint64(p_bits), np.uint64(t_bits)))
        r_low = min(r_low, r_bits)
        r_high = max(r_high, r_bits)
        w_high = max(w_high, w_bits)
        x_high = max(x_high, x_bits)
    out[:N_SUMS] = (w0, w1, x0, x1, wx, c0, c1, y0, y1, wc, xy, r0, r1, xr, x2, x3, w3x, wwxx, wx3, w4, y2, y3)
    out[_REWARDED] = np.float64(counts & _COUNT)
    out[_SUPPORTED] = np.float64((counts >> _DIGITS) & _COUNT)
    out[_CLIPPED] = np.float64(counts >> (2 * _DIGITS))
    out[_EXTREMES] = double_from_bits(p_low)
    # A set sign hides what else is too large: neither it nor a NaN is a probability.
    out[_EXTREMES + 1] = double_from_bits(np.int64(highest)) if np.int64(highest) >= 0 else np.nan
    out[_EXTREMES + 2] = double_from_bits(r_low)
    out[_EXTREMES + 3] = double_from_bits(r_high)
    out[_EXTREMES + 4] = double_from_bits(w_high)
    out[_EXTREMES + 5] = double_from_bits(x_high)


@kernel
def _chunk(target, propensity, reward, clip, counts, extremes, out):
    """Add the counts and extremes of one chunk; its sums stay in ``out``. Returns its largest weight."""
    _chunk_sums(target, propensity, reward, clip, out)
    counts[0] += reward.size
    counts[2] += int(out[_REWARDED])
    counts[3] += int(out[_SUPPORTED])
    counts[4] += int(out[_CLIPPED])
    extremes[0] = min(extremes[0], out[_EXTREMES])
    highest = out[_EXTREMES + 1]
    if highest > extremes[1] or highest != highest:  # a NaN stays
        extremes[1] = highest
    for j in (4, 5):
        extremes[j] = max(extremes[j], out[_EXTREMES + j])
    if bits_from_double(out[_EXTREMES + 2]) >= 0:  # the sign of -0.0 hides what is below it
        extremes[2] = min(extremes[2], out[_EXTREMES + 2])
        extremes[3] = max(extremes[3], out[_EXTREMES + 3])
    else:
        for i in range(reward.size):
            extremes[2] = min(extremes[2], reward[i])
            extremes[3] = max(extremes[3], reward[i])
    return out[_EXTREMES + 4]


@summing
def _count_near(target, propensity, bar):
    """How many weights of a block may reach ``bar``: tested without a division, so with a margin for rounding."""
    count = np.int64(0)
    least = bar * 0.999999
    for i in range(target.size):
        count += np.int64(target[i] >= least * propensity[i])
    return count


@kernel
def _insert(values, value):
    """Put ``value`` in its place among ``values``, sorted downwards, whose last is dropped."""
    if value > values[-1]:
        j = values.size - 1
        while j > 0 and values[j - 1] < value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value


@kernel
def _find_top(target, propensity, maxima, top, out):
    """Find the largest weights, in the chunks whose own largest (``maxima``) may be among them.

    The k-th largest of the chunks' maxima is a lower bound of the k-th largest weight, so that few rows are looked at.
    """
    best = out[: top.size]
    for j in range(top.size):
        best[j] = top[j]
    for k in range(maxima.size):
        _insert(best, maxima[k])
    bar = best[-1]
    for k in range(maxima.size):
        if maxima[k] >= bar:
            end = min((k + 1) * CHUNK, target.size)
            for start in range(k * CHUNK, end, _BLOCK):
                stop = min(start + _BLOCK, end)
                if _count_near(target[start:stop], propensity[start:stop], bar) > 0:
                    for i in range(start, stop):
                        _insert(top, target[i] / propensity[i])


@kernel
def _close_user(own, rows, sums, powers, factors, numbers):
    """Add a finished user's sums ``own`` (in the order of the names), and their products, to the moments."""
    add_exactly(sums[0], sums[1], own)
    numbers[0] = own[0]
    numbers[1] = own[2]
    numbers[2] = own[5]
    numbers[3] = own[7]
    numbers[4] = rows
    for j in range(len(factors)):
        numbers[5 + j] = numbers[factors[j, 0]] * numbers[factors[j, 1]]
    add_exactly(powers[0], powers[1], numbers[5:])


@kernel
def gather(target, propensity, reward, user, by_user, clip, sums, powers, factors, counts, extremes, top, maxima, out):
    """Add the rows to the moments.

    Rows that are no data show in the extremes or as a sum that is not finite. A user's sums are closed before they are
    added, so that shards cut between users merge to the same bits.

    Args:
        target: (n,) the target policy's probability of the logged action.
        propensity: (n,) the logging policy's.
        reward: (n,) rewards.
        user: (n,) int64, the rows of a user together; read where ``by_user``, else a row is a user.
        by_user: whether rows have users.
        clip: weights are cut there; inf for no clipping.
        sums: (2, 13) high and low parts, in the order of the names.
        powers: (2, k) likewise; of users only.
        factors: (k, 2) places of the two factors of each product, among w, x, c, y, l and the products before it.
        counts: (6,) int64: rows, users, rewarded, supported, clipped, rewarded users.
        extremes: (8,) least propensity, largest propensity or target (NaN where one is NaN or signed), least and
            largest reward, largest weight and w r; of users the most rows, and weights beyond their rows.
        top: (8,) largest weights, downwards.
        maxima: (chunks,) largest weight of each chunk, written.
        out: (18 + k,) scratch.
    """
    n = reward.size
    own = out[:N_SUMS]
    rows = w0 = w1 = x0 = x1 = wx = c0 = c1 = y0 = y1 = wc = xy = r0 = r1 = xr = used = 0.0
    for k in range(maxima.size):
        start = k * CHUNK
        stop = min(start + CHUNK, n)
        t = target[start:stop]
        p = propensity[start:stop]
        maxima[k] = _chunk(t, p, reward[start:stop], clip, counts, extremes, out)
        if not by_user:
            add_exactly(sums[0], sums[1], own)
            continue
        for i in range(start, stop):
            r = reward[i]
            w = target[i] / propensity[i]
            c = w if w < clip else clip
            x = w * r
            y = c * r
            rows += 1.0
            w0 += w
            w1 += w * w
            x0 += x
            x1 += x * x
            wx += w * x
            c0 += c
            c1 += c * c
            y0 += y
            y1 += y * y
            wc += w * c
            xy += x * y
            r0 += r
            r1 += r * r
            xr += x * r
            used += abs(r)
            if i + 1 == n or user[i + 1] != user[i]:
                own[:N_BY_USER] = (w0, w1, x0, x1, wx, c0, c1, y0, y1, wc, xy, r0, r1, xr)
                own[N_BY_USER:] = 0.0
                _close_user(own, rows, sums, powers, factors, out[N_SUMS:])
                extremes[6] = max(extremes[6], rows)
                extremes[7] = max(extremes[7], w0 - rows)
                counts[1] += 1
                if used > 0.0:
                    counts[5] += 1
                rows = w0 = w1 = x0 = x1 = wx = c0 = c1 = y0 = y1 = wc = xy = r0 = r1 = xr = used = 0.0
    if not by_user:
        counts[1] += n
        counts[5] = counts[2]
        extremes[6] = max(extremes[6], min(n, 1))
        extremes[7] = max(extremes[7], extremes[4] - 1.0)
    _find_top(target, propensity, maxima, top, out)


@kernel
def gather_missing(missing, user, by_user, pairs, out):
    """Add rows of missing mass: to ``pairs`` (2, 3) its sum, and over users its square and its product with their rows.

    ``user`` (n,) int64, with the rows of a user together, is read where ``by_user``; else a row is a user.
    """
    n = missing.size
    own = rows = 0.0
    for i in range(n):
        own += missing[i]
        rows += 1.0
        if not by_user or i + 1 == n or user[i + 1] != user[i]:
            out[0] = own
            out[1] = own * own
            out[2] = own * rows
            add_exactly(pairs[0], pairs[1], out[:3])
            own = rows = 0.0


@inlined
def put_products(z, degree, out):
    """All products of 1 to ``degree`` of the numbers ``z`` (k,), shorter ones first, each in ascending order."""
    k = z.size
    n = 0
    for i in range(k):
        out[n] = z[i]
        n += 1
    for i in range(k):
        for j in range(i, k):
            out[n] = z[i] * z[j]
            n += 1
    if degree > 2:
        for i in range(k):
            for j in range(i, k):
                two = z[i] * z[j]
                for m in range(j, k):
                    out[n] = two * z[m]
                    n += 1
        for i in range(k):
            for j in range(i, k):
                two = z[i] * z[j]
                for m in range(j, k):
                    three = two * z[m]
                    for q in range(m, k):
                        out[n] = three * z[q]
                        n += 1
    return n


@inlined
def _put_pair(own, z, products):
    """Products of a user's 7 sums into ``products``: those of ``means``, then of ``cut``, then of ``ratio``."""
    z[0] = own[0]
    z[1] = own[1]
    n = put_products(z[:2], 4, products)
    z[1] = own[2]
    n += put_products(z[:2], 4, products[n:])
    for j in range(4):
        z[j] = own[3 + j]
    return n + put_products(z, 4, products[n:])


@kernel
def gather_pair(target, baseline, propensity, reward, user, by_user, clip, sums, out):
    """Add the rows to the sums; where not ``by_user`` a row is a user of its own. Returns how many weights differ.

    Args:
        target: (n,) probability of the logged action under one policy.
        baseline: (n,) under the other.
        propensity: (n,) under the logging policy.
        reward: (n,) rewards, not negative.
        user: as :func:`gather`.
        by_user: likewise.
        clip: weights are cut there; inf for no clipping.
        sums: (2, k) sums of products of up to four: of ``means``, ``cut`` and ``ratio``.
        out: (11 + 2 k,) scratch.
    """
    n = reward.size
    size = sums.shape[1]
    differ = 0
    z = out[:4]
    own = out[4:11]
    products = out[11 : 11 + size]
    totals = out[11 + size :]
    own[:] = 0.0
    totals[:] = 0.0
    for i in range(n):
        w = target[i] / propensity[i]
        b = baseline[i] / propensity[i]
        r = reward[i]
        wc = w if w < clip else clip
        bc = b if b < clip else clip
        differ += int(w != b)
        own[0] += 1.0
        own[1] += (w - b) * r
        own[2] += (wc - bc) * r
        own[3] += (w - b) * r
        own[4] += b * r
        own[5] += w - b
        own[6] += b
        if by_user and i + 1 < n and user[i + 1] == user[i]:
            continue
        _put_pair(own, z, products)
        own[:] = 0.0
        if by_user:
            add_exactly(sums[0], sums[1], products)
            continue
        for j in range(size):
            totals[j] += products[j]
        if (i + 1) % CHUNK == 0 or i + 1 == n:
            add_exactly(sums[0], sums[1], totals)
            totals[:] = 0.0
    return differ
