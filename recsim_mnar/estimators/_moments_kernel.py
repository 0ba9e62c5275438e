"""One pass over (target, propensity, reward): the sums behind IPS, clipped IPS and SNIPS and their variances.

``SUMS`` are sums over rows and ``SQUARES`` sums over users of products of that user's sums; both are held as pairs
(high, low) whose exact sum is the value, so that shards merge to the same bits. Names: w = target / propensity,
x = w r, c = min(w, clip), y = c r, l = rows of the user.
"""

from __future__ import annotations

import math

import numpy as np

from recsim_mnar._jit import kernel, summing

SUMS = ("w", "ww", "x", "xx", "wx", "c", "cc", "y", "yy", "cy", "wc", "r")
SQUARES = ("ww", "xx", "wx", "cc", "yy", "cy", "wc", "lw", "lx", "lc", "ly", "ll")
COUNTS = ("rows", "users", "rewarded", "supported", "clipped")
EXTREMES = ("propensity_min", "reward_min", "reward_max", "x_max", "y_max")
CHUNK = 4096
"""Rows a chunk: shards cut at multiples of it merge to the same bits as the whole."""
TOP = 64
"""Number of largest weights that are kept."""

N_SUMS = 12
N_SQUARES = 12
HIGHEST_TARGET = 1.0 + 1e-6  # a softmax in float32 may pass 1 by a rounding


@kernel
def add_exactly(pairs, values):
    """Add ``values`` (k,) to ``pairs`` (k, 2) keeping what rounding cuts off (Knuth's two-sum)."""
    for j in range(values.size):
        high = pairs[j, 0]
        total = high + values[j]
        part = total - high
        pairs[j, 0] = total
        pairs[j, 1] += (high - (total - part)) + (values[j] - part)


@summing
def _chunk_sums(target, propensity, reward, clip, weight_bar, low_bar, x_bar, y_bar, out):
    """Sums over one chunk into ``out``; the last entries count what passes the bars and rows that are no data."""
    w0 = w1 = x0 = x1 = wx = c0 = c1 = y0 = y1 = cy = wc = r0 = 0.0
    rewarded = ones = supported = clipped = heavy = low = bad = 0.0
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
        r0 += r
        rewarded += 1.0 if r != 0.0 else 0.0
        ones += 1.0 if r == 1.0 else 0.0
        supported += 1.0 if t > 0.0 else 0.0
        clipped += 1.0 if w > clip else 0.0
        heavy += 1.0 if w > weight_bar else 0.0
        low += 1.0 if (p < low_bar) | (abs(x) > x_bar) | (abs(y) > y_bar) else 0.0
        good = (p > 0.0) & (p <= 1.0) & (t >= 0.0) & (t <= HIGHEST_TARGET) & (abs(r) < math.inf)
        bad += 0.0 if good else 1.0
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
    out[11] = r0
    out[12] = rewarded
    out[13] = ones
    out[14] = supported
    out[15] = clipped
    out[16] = heavy
    out[17] = low
    out[18] = bad


@kernel
def _keep_top(top, value):
    """Insert ``value`` into ``top``, which is sorted downwards."""
    j = top.size - 1
    while j > 0 and top[j - 1] < value:
        top[j] = top[j - 1]
        j -= 1
    top[j] = value


@kernel
def _note_extremes(target, propensity, reward, clip, extremes):
    """Least propensity, largest |w r| and largest |min(w, clip) r| of a chunk into ``extremes``."""
    for i in range(reward.size):
        w = target[i] / propensity[i]
        extremes[0] = min(extremes[0], propensity[i])
        extremes[3] = max(extremes[3], abs(w * reward[i]))
        extremes[4] = max(extremes[4], abs(min(w, clip) * reward[i]))


@kernel
def gather(target, propensity, reward, clip, sums, counts, extremes, top, out):
    """Add the rows to the moments; every row is a user of its own.

    Args:
        target: (n,) the target policy's probability of the logged action.
        propensity: (n,) the logging policy's.
        reward: (n,) rewards.
        clip: weights are cut there; inf for no clipping.
        sums: (12, 2) pairs, in the order of ``SUMS``.
        counts: (5,) int64, in the order of ``COUNTS``.
        extremes: (5,) in the order of ``EXTREMES``.
        top: (64,) largest weights, downwards.
        out: (19,) scratch.

    Returns:
        First row of the chunk in which a row is no data, -1 where there is none.
    """
    n = reward.size
    for start in range(0, n, CHUNK):
        stop = min(start + CHUNK, n)
        t = target[start:stop]
        p = propensity[start:stop]
        r = reward[start:stop]
        _chunk_sums(t, p, r, clip, top[-1], extremes[0], extremes[3], extremes[4], out)
        if out[18] > 0.0:
            return start
        add_exactly(sums, out[:N_SUMS])
        counts[0] += stop - start
        counts[1] += stop - start
        counts[2] += np.int64(out[12])
        counts[3] += np.int64(out[14])
        counts[4] += np.int64(out[15])
        if out[16] > 0.0:
            for i in range(stop - start):
                w = t[i] / p[i]
                if w > top[-1]:
                    _keep_top(top, w)
        if out[17] > 0.0:
            _note_extremes(t, p, r, clip, extremes)
        _note_rewards(r, out[12], out[13], extremes)
    return -1


@kernel
def _note_rewards(reward, rewarded, ones, extremes):
    """Least and largest reward; a chunk of zeros and ones is not read again."""
    if rewarded == ones:
        if ones > 0.0:
            extremes[2] = max(extremes[2], 1.0)
        if ones < reward.size:
            extremes[1] = min(extremes[1], 0.0)
            extremes[2] = max(extremes[2], 0.0)
        else:
            extremes[1] = min(extremes[1], 1.0)
    else:
        for i in range(reward.size):
            extremes[1] = min(extremes[1], reward[i])
            extremes[2] = max(extremes[2], reward[i])


@kernel
def _close_user(own, rows, sums, squares, row_sums, products):
    """Add a finished user's sums ``own`` (w, x, c, y, r, ww, xx, wx, cc, yy, cy, wc) to the moments."""
    w, x, c, y = own[0], own[1], own[2], own[3]
    row_sums[0] = w
    row_sums[1] = own[5]
    row_sums[2] = x
    row_sums[3] = own[6]
    row_sums[4] = own[7]
    row_sums[5] = c
    row_sums[6] = own[8]
    row_sums[7] = y
    row_sums[8] = own[9]
    row_sums[9] = own[10]
    row_sums[10] = own[11]
    row_sums[11] = own[4]
    add_exactly(sums, row_sums)
    products[0] = w * w
    products[1] = x * x
    products[2] = w * x
    products[3] = c * c
    products[4] = y * y
    products[5] = c * y
    products[6] = w * c
    products[7] = rows * w
    products[8] = rows * x
    products[9] = rows * c
    products[10] = rows * y
    products[11] = rows * rows
    add_exactly(squares, products)


@kernel
def gather_by_user(target, propensity, reward, user, clip, sums, squares, counts, extremes, top, scratch):
    """As :func:`gather`, with the rows of a user together (``user``: (n,) int64), and sums over users.

    A user's sums are closed before they are added, so that shards cut between users merge to the same bits.
    ``scratch``: (3, 12) zeros.
    """
    n = reward.size
    own = scratch[0]
    row_sums = scratch[1]
    products = scratch[2]
    rows = 0.0
    for i in range(n):
        p = propensity[i]
        t = target[i]
        r = reward[i]
        if not ((p > 0.0) & (p <= 1.0) & (t >= 0.0) & (t <= HIGHEST_TARGET) & (abs(r) < math.inf)):
            return i
        if i > 0 and user[i] != user[i - 1]:
            _close_user(own, rows, sums, squares, row_sums, products)
            counts[1] += 1
            own[:] = 0.0
            rows = 0.0
        w = t / p
        c = w if w < clip else clip
        x = w * r
        y = c * r
        rows += 1.0
        own[0] += w
        own[1] += x
        own[2] += c
        own[3] += y
        own[4] += r
        own[5] += w * w
        own[6] += x * x
        own[7] += w * x
        own[8] += c * c
        own[9] += y * y
        own[10] += c * y
        own[11] += w * c
        if r != 0.0:
            counts[2] += 1
            extremes[3] = max(extremes[3], abs(x))
            extremes[4] = max(extremes[4], abs(y))
        if t > 0.0:
            counts[3] += 1
        if w > clip:
            counts[4] += 1
        if w > top[-1]:
            _keep_top(top, w)
        extremes[0] = min(extremes[0], p)
        extremes[1] = min(extremes[1], r)
        extremes[2] = max(extremes[2], r)
    if n > 0:
        _close_user(own, rows, sums, squares, row_sums, products)
        counts[1] += 1
        counts[0] += n
    return -1
