"""One pass over (target, propensity, reward): the sums behind IPS, clipped IPS and SNIPS and their variances.

``SUMS`` are sums over rows and ``POWERS`` sums over users of products of that user's sums; both are held as pairs
(high, low) whose exact sum is the value, so that shards merge to the same bits. Names: w = target / propensity,
x = w r, c = min(w, clip), y = c r, l = rows of the user.
"""

from __future__ import annotations

import math

from recsim_mnar._jit import kernel, summing

SUMS = ("w", "ww", "x", "xx", "wx", "c", "cc", "y", "yy", "cy", "wc", "xy", "r")
POWERS = (
    *("ww", "xx", "wx", "cc", "yy", "cy", "wc", "xy", "lw", "lx", "lc", "ly", "ll"),
    *("xxxx", "lxxx", "llxx", "lllx", "yyyy", "lyyy", "llyy", "llly", "llll"),
    *("wxxx", "wwxx", "wwwx", "wwww"),
)
COUNTS = ("rows", "users", "rewarded", "supported", "clipped", "rewarded_users")
EXTREMES = ("propensity_min", "reward_min", "reward_max", "x_max")
CHUNK = 8192
"""Rows a chunk: shards cut at multiples of it merge to the same bits as the whole."""
N_TOP = 16
"""Number of largest weights that are kept."""
N_SUMS = len(SUMS)
N_SCRATCH = len(SUMS) + len(POWERS)

HIGHEST_TARGET = 1.0 + 1e-6  # a softmax in float32 may pass 1 by a rounding
_REWARDED = N_SUMS
_SUPPORTED = N_SUMS + 1
_CLIPPED = N_SUMS + 2
_FLAGGED = N_SUMS + 3
_BLOCK = 256


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
def _chunk_sums(target, propensity, reward, clip, weight_bar, bars, out):
    """Sums over one chunk into ``out``; the last entry counts rows that are no data or pass what was seen before."""
    w0 = w1 = x0 = x1 = wx = c0 = c1 = y0 = y1 = cy = wc = xy = r0 = 0.0
    rewarded = supported = clipped = flagged = 0.0
    p_low = bars[0]
    r_low = bars[1]
    r_high = bars[2]
    x_bar = bars[3]
    for i in range(reward.size):
        p = propensity[i]
        t = target[i]
        r = reward[i]
        w = t / p
        x = w * r
        c = w if w < clip else clip
        y = c * r
        w0 += w
        w1 += w * w
        x0 += x
        x1 += x * x
        wx += w * x
        c0 += c
        c1 += c * c
        y0 += y
        y1 += y * y
        cy += c * y
        wc += w * c
        xy += x * y
        r0 += r
        rewarded += 1.0 if r != 0.0 else 0.0
        supported += 1.0 if t > 0.0 else 0.0
        clipped += 1.0 if w > clip else 0.0
        plain = (p >= p_low) & (p <= 1.0) & (t >= 0.0) & (t <= HIGHEST_TARGET)
        plain &= (r >= r_low) & (r <= r_high) & (w <= weight_bar) & (abs(x) <= x_bar)
        flagged += 0.0 if plain else 1.0
    out[0] = w0
    out[1] = w1
    out[2] = x0
    out[3] = x1
    out[4] = wx
    out[5] = c0
    out[6] = c1
    out[7] = y0
    out[8] = y1
    out[9] = cy
    out[10] = wc
    out[11] = xy
    out[12] = r0
    out[_REWARDED] = rewarded
    out[_SUPPORTED] = supported
    out[_CLIPPED] = clipped
    out[_FLAGGED] = flagged


@summing
def _count_flagged(target, propensity, reward, weight_bar, bars):
    """How many rows :func:`_chunk_sums` would flag."""
    flagged = 0.0
    for i in range(reward.size):
        p = propensity[i]
        t = target[i]
        r = reward[i]
        w = t / p
        plain = (p >= bars[0]) & (p <= 1.0) & (t >= 0.0) & (t <= HIGHEST_TARGET)
        plain &= (r >= bars[1]) & (r <= bars[2]) & (w <= weight_bar) & (abs(w * r) <= bars[3])
        flagged += 0.0 if plain else 1.0
    return flagged


@kernel
def _inspect(target, propensity, reward, extremes, top):
    """Bring extremes and largest weights (sorted downwards) up to date; whether every row is data."""
    for i in range(reward.size):
        p = propensity[i]
        t = target[i]
        r = reward[i]
        if not ((p > 0.0) & (p <= 1.0) & (t >= 0.0) & (t <= HIGHEST_TARGET) & (abs(r) < math.inf)):
            return False
        w = t / p
        extremes[0] = min(extremes[0], p)
        extremes[1] = min(extremes[1], r)
        extremes[2] = max(extremes[2], r)
        extremes[3] = max(extremes[3], abs(w * r))
        if w > top[-1]:
            j = top.size - 1
            while j > 0 and top[j - 1] < w:
                top[j] = top[j - 1]
                j -= 1
            top[j] = w
    return True


@kernel
def _chunk(target, propensity, reward, clip, counts, extremes, top, out):
    """Sums, counts and extremes of one chunk; whether every row is data. The sums stay in ``out``."""
    _chunk_sums(target, propensity, reward, clip, top[-1], extremes, out)
    if out[_FLAGGED] > 0.0:
        for start in range(0, reward.size, _BLOCK):
            stop = min(start + _BLOCK, reward.size)
            t = target[start:stop]
            p = propensity[start:stop]
            r = reward[start:stop]
            if _count_flagged(t, p, r, top[-1], extremes) > 0.0 and not _inspect(t, p, r, extremes, top):
                return False
    counts[0] += reward.size
    counts[2] += int(out[_REWARDED])
    counts[3] += int(out[_SUPPORTED])
    counts[4] += int(out[_CLIPPED])
    return True


@kernel
def gather(target, propensity, reward, clip, sums, counts, extremes, top, out):
    """Add the rows to the moments; every row is a user of its own.

    Args:
        target: (n,) the target policy's probability of the logged action.
        propensity: (n,) the logging policy's.
        reward: (n,) rewards.
        clip: weights are cut there; inf for no clipping.
        sums: (2, 13) high and low parts, in the order of ``SUMS``.
        counts: (6,) int64, in the order of ``COUNTS``.
        extremes: (4,) in the order of ``EXTREMES``.
        top: (16,) largest weights, downwards.
        out: (39,) scratch.

    Returns:
        Whether every row is data; the moments are of no use where one is not.
    """
    n = reward.size
    for start in range(0, n, CHUNK):
        stop = min(start + CHUNK, n)
        if not _chunk(target[start:stop], propensity[start:stop], reward[start:stop], clip, counts, extremes, top, out):
            return False
        add_exactly(sums[0], sums[1], out[:N_SUMS])
    counts[1] += n
    counts[5] = counts[2]
    return True


@kernel
def _close_user(own, rows, sums, powers, products):
    """Add a finished user's sums ``own`` (in the order of ``SUMS``) to the moments."""
    add_exactly(sums[0], sums[1], own)
    w = own[0]
    x = own[2]
    c = own[5]
    y = own[7]
    xx = x * x
    yy = y * y
    ll = rows * rows
    products[0] = w * w
    products[1] = xx
    products[2] = w * x
    products[3] = c * c
    products[4] = yy
    products[5] = c * y
    products[6] = w * c
    products[7] = x * y
    products[8] = rows * w
    products[9] = rows * x
    products[10] = rows * c
    products[11] = rows * y
    products[12] = ll
    products[13] = xx * xx
    products[14] = rows * x * xx
    products[15] = ll * xx
    products[16] = ll * rows * x
    products[17] = yy * yy
    products[18] = rows * y * yy
    products[19] = ll * yy
    products[20] = ll * rows * y
    products[21] = ll * ll
    ww = w * w
    products[22] = w * x * xx
    products[23] = ww * xx
    products[24] = ww * w * x
    products[25] = ww * ww
    add_exactly(powers[0], powers[1], products)


@kernel
def gather_by_user(target, propensity, reward, user, clip, sums, powers, counts, extremes, top, out):
    """As :func:`gather`, with the rows of a user together (``user``: (n,) int64), and sums over users.

    A user's sums are closed before they are added, so that shards cut between users merge to the same bits.
    """
    n = reward.size
    own = out[:N_SUMS]
    products = out[N_SUMS:]
    rows = w0 = w1 = x0 = x1 = wx = c0 = c1 = y0 = y1 = cy = wc = xy = r0 = used = 0.0
    for start in range(0, n, CHUNK):
        stop = min(start + CHUNK, n)
        if not _chunk(target[start:stop], propensity[start:stop], reward[start:stop], clip, counts, extremes, top, out):
            return False
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
            cy += c * y
            wc += w * c
            xy += x * y
            r0 += r
            used += abs(r)
            if i + 1 == n or user[i + 1] != user[i]:
                own[0] = w0
                own[1] = w1
                own[2] = x0
                own[3] = x1
                own[4] = wx
                own[5] = c0
                own[6] = c1
                own[7] = y0
                own[8] = y1
                own[9] = cy
                own[10] = wc
                own[11] = xy
                own[12] = r0
                _close_user(own, rows, sums, powers, products)
                counts[1] += 1
                if used > 0.0:
                    counts[5] += 1
                rows = w0 = w1 = x0 = x1 = wx = c0 = c1 = y0 = y1 = cy = wc = xy = r0 = used = 0.0
    return True
