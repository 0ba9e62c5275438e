# mypy: ignore-errors
"""One pass over (target, propensity, reward): the sums behind IPS, clipped IPS and SNIPS and their variances.

``sums`` are over rows and ``powers`` over users, of products of that user's sums, in the order of the names in
``moments``; both are held as pairs (high, low) whose exact sum is the value, so that shards merge to the same bits.
Names: w = target / propensity, x = w r, c = min(w, clip), y = c r, l = rows of the user.

For the difference of two policies, with weights w and b, sums over users of all products of up to four of a user's

- ``plain`` and ``cut``: l, gains (w - b)+ r, losses (b - w)+ r, of the weights and of the weights cut at the clip;
- ``ratio``: (w - b) r, b r, w - b, b, of the weights.
"""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels._rng_kernel import bits_from_double, double_from_bits
from recsim_mnar.kernels.jit import inlined, kernel, summing

CHUNK = 16384
"""Rows a chunk: shards cut at multiples of it merge to the same bits as the whole."""
N_TOP = 8
"""Number of largest weights that are kept."""
N_SUMS, N_POWERS = 13, 35
N_SCRATCH = N_SUMS + N_POWERS

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
    out[:N_SUMS] = (w0, w1, x0, x1, wx, c0, c1, y0, y1, wc, xy, r0, r1)
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
def gather(target, propensity, reward, clip, sums, counts, extremes, top, maxima, out):
    """Add the rows to the moments; every row is a user of its own.

    Rows that are no data show in the extremes or as a sum that is not finite.

    Args:
        target: (n,) the target policy's probability of the logged action.
        propensity: (n,) the logging policy's.
        reward: (n,) rewards.
        clip: weights are cut there; inf for no clipping.
        sums: (2, 13) high and low parts, in the order of the names.
        counts: (6,) int64: rows, users, rewarded, supported, clipped, rewarded users.
        extremes: (8,) least propensity, largest propensity or target (NaN where one is NaN or signed), least and
            largest reward, largest weight and w r; of users the most rows, and weights beyond their rows.
        top: (8,) largest weights, downwards.
        maxima: (chunks,) largest weight of each chunk, written.
        out: (48,) scratch.
    """
    n = reward.size
    for k in range(maxima.size):
        start = k * CHUNK
        stop = min(start + CHUNK, n)
        t = target[start:stop]
        p = propensity[start:stop]
        maxima[k] = _chunk(t, p, reward[start:stop], clip, counts, extremes, out)
        add_exactly(sums[0], sums[1], out[:N_SUMS])
    counts[1] += n
    counts[5] = counts[2]
    extremes[6] = max(extremes[6], min(n, 1))
    extremes[7] = max(extremes[7], extremes[4] - 1.0)
    _find_top(target, propensity, maxima, top, out)


@kernel
def _close_user(own, rows, sums, powers, products):
    """Add a finished user's sums ``own`` (in the order of the names) to the moments."""
    add_exactly(sums[0], sums[1], own)
    w = own[0]
    x = own[2]
    c = own[5]
    y = own[7]
    xx = x * x
    yy = y * y
    ll = rows * rows
    ww = w * w
    products[0] = ww
    products[1] = xx
    products[2] = w * x
    products[3] = c * c
    products[4] = yy
    products[5] = w * c
    products[6] = x * y
    products[7] = rows * w
    products[8] = rows * x
    products[9] = rows * c
    products[10] = rows * y
    products[11] = ll
    products[12] = xx * xx
    products[13] = rows * x * xx
    products[14] = ll * xx
    products[15] = ll * rows * x
    products[16] = yy * yy
    products[17] = rows * y * yy
    products[18] = ll * yy
    products[19] = ll * rows * y
    products[20] = ll * ll
    products[21] = w * x * xx
    products[22] = ww * xx
    products[23] = ww * w * x
    products[24] = ww * ww
    products[25] = x * xx
    products[26] = rows * xx
    products[27] = ll * x
    products[28] = y * yy
    products[29] = rows * yy
    products[30] = ll * y
    products[31] = ll * rows
    products[32] = w * xx
    products[33] = ww * x
    products[34] = ww * w
    add_exactly(powers[0], powers[1], products)


@kernel
def gather_by_user(target, propensity, reward, user, clip, sums, powers, counts, extremes, top, maxima, out):
    """As :func:`gather`, with the rows of a user together (``user``: (n,) int64), and sums over users.

    A user's sums are closed before they are added, so that shards cut between users merge to the same bits.
    """
    n = reward.size
    own = out[:N_SUMS]
    products = out[N_SUMS:N_SCRATCH]
    rows = w0 = w1 = x0 = x1 = wx = c0 = c1 = y0 = y1 = wc = xy = r0 = r1 = used = 0.0
    for k in range(maxima.size):
        start = k * CHUNK
        stop = min(start + CHUNK, n)
        t = target[start:stop]
        p = propensity[start:stop]
        maxima[k] = _chunk(t, p, reward[start:stop], clip, counts, extremes, out)
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
            used += abs(r)
            if i + 1 == n or user[i + 1] != user[i]:
                own[:] = (w0, w1, x0, x1, wx, c0, c1, y0, y1, wc, xy, r0, r1)
                _close_user(own, rows, sums, powers, products)
                extremes[6] = max(extremes[6], rows)
                extremes[7] = max(extremes[7], w0 - rows)
                counts[1] += 1
                if used > 0.0:
                    counts[5] += 1
                rows = w0 = w1 = x0 = x1 = wx = c0 = c1 = y0 = y1 = wc = xy = r0 = r1 = used = 0.0
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
def _differences(w, b, clip):
    """Gain and loss of weight w beside b, and those of the weights cut at the clip."""
    wc = w if w < clip else clip
    bc = b if b < clip else clip
    return max(w - b, 0.0), max(b - w, 0.0), max(wc - bc, 0.0), max(bc - wc, 0.0)


@kernel
def gather_pair(target, baseline, propensity, reward, clip, plain, cut, ratio, excesses, out):
    """Add the rows to the sums; every row is a user of its own. Returns how many weights differ.

    Args:
        target: (n,) probability of the logged action under one policy.
        baseline: (n,) under the other.
        propensity: (n,) under the logging policy.
        reward: (n,) rewards, not negative.
        clip: weights are cut there; inf for no clipping.
        plain: (2, 9) sums of products of up to two.
        cut: (2, 9) likewise.
        ratio: (2, 14) likewise.
        excesses: (4,) most by which a user's gains, losses, and those of cut weights, sum to more than its rows.
        out: (73,) scratch.
    """
    n = reward.size
    differ = 0
    z = out[:4]
    one = out[4:18]
    sums = out[18:32]
    one_cut = out[32:41]
    totals = out[41:73]
    z3 = z[:3]
    for start in range(0, n, CHUNK):
        totals[:] = 0.0
        for i in range(start, min(start + CHUNK, n)):
            w = target[i] / propensity[i]
            b = baseline[i] / propensity[i]
            r = reward[i]
            gain, loss, cut_gain, cut_loss = _differences(w, b, clip)
            differ += int(w != b)
            excesses[0] = max(excesses[0], gain - 1.0)
            excesses[1] = max(excesses[1], loss - 1.0)
            excesses[2] = max(excesses[2], cut_gain - 1.0)
            excesses[3] = max(excesses[3], cut_loss - 1.0)
            z[0] = 1.0
            z[1] = gain * r
            z[2] = loss * r
            put_products(z3, 2, one)
            for j in range(9):
                totals[j] += one[j]
            z[1] = cut_gain * r
            z[2] = cut_loss * r
            put_products(z3, 2, one_cut)
            for j in range(9):
                totals[9 + j] += one_cut[j]
            z[0] = (w - b) * r
            z[1] = b * r
            z[2] = w - b
            z[3] = b
            put_products(z, 2, sums)
            for j in range(14):
                totals[18 + j] += sums[j]
        add_exactly(plain[0], plain[1], totals[:9])
        add_exactly(cut[0], cut[1], totals[9:18])
        add_exactly(ratio[0], ratio[1], totals[18:])
    return differ


@kernel
def _close_pair(own, plain, cut, ratio, excesses, out):
    """Add a finished user's sums ``own`` (13,) to the sums over users."""
    z = out[:4]
    products = out[4:73]
    rows = own[0]
    z3 = z[:3]
    z[0] = rows
    z[1] = own[1]
    z[2] = own[2]
    n = put_products(z3, 4, products)
    add_exactly(plain[0], plain[1], products[:n])
    z[1] = own[3]
    z[2] = own[4]
    n = put_products(z3, 4, products)
    add_exactly(cut[0], cut[1], products[:n])
    z[0] = own[5]
    z[1] = own[6]
    z[2] = own[7]
    z[3] = own[8]
    n = put_products(z, 4, products)
    add_exactly(ratio[0], ratio[1], products[:n])
    for j in range(4):
        excesses[j] = max(excesses[j], own[9 + j] - rows)


@kernel
def gather_pair_by_user(target, baseline, propensity, reward, user, clip, plain, cut, ratio, excesses, out):
    """As :func:`gather_pair`, with the rows of a user together (``user``: (n,) int64), and products of up to four.

    The sums are (2, 34), (2, 34) and (2, 69), ``out`` (86,).
    """
    n = reward.size
    differ = 0
    own = out[73:86]
    own[:] = 0.0
    for i in range(n):
        w = target[i] / propensity[i]
        b = baseline[i] / propensity[i]
        r = reward[i]
        gain, loss, cut_gain, cut_loss = _differences(w, b, clip)
        differ += int(w != b)
        own[0] += 1.0
        own[1] += gain * r
        own[2] += loss * r
        own[3] += cut_gain * r
        own[4] += cut_loss * r
        own[5] += (w - b) * r
        own[6] += b * r
        own[7] += w - b
        own[8] += b
        own[9] += gain
        own[10] += loss
        own[11] += cut_gain
        own[12] += cut_loss
        if i + 1 == n or user[i + 1] != user[i]:
            _close_pair(own, plain, cut, ratio, excesses, out)
            own[:] = 0.0
    return differ
