# mypy: ignore-errors
"""One pass over rows of two policies: the sums behind the interval of their difference.

For every user a few sums over its rows are made, and of these all products of up to four; the sums of the products over
users are held as pairs (high, low) whose exact sum is the value, as in ``_moments_kernel``. With w and b the weights of
the two policies, r the reward and l the rows of a user:

- ``plain`` and ``cut``: l, gains (w - b)+ r, losses (b - w)+ r, of the weights and of the weights cut at the clip;
- ``ratio``: (w - b) r, b r, w - b, b, of the weights.
"""

from __future__ import annotations

from recsim_mnar.estimators.off_policy._moments_kernel import CHUNK, add_exactly
from recsim_mnar.kernels.jit import inlined, kernel

EXCESSES = ("gain", "loss", "cut_gain", "cut_loss")
"""Most by which a user's weights of gains or losses sum to more than the user has rows."""


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
def gather(target, baseline, propensity, reward, clip, plain, cut, ratio, excesses, out):
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
        excesses: (4,) in the order of ``EXCESSES``.
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
def _close_user(own, plain, cut, ratio, excesses, out):
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
def gather_by_user(target, baseline, propensity, reward, user, clip, plain, cut, ratio, excesses, out):
    """As :func:`gather`, with the rows of a user together (``user``: (n,) int64), and products of up to four.

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
            _close_user(own, plain, cut, ratio, excesses, out)
            own[:] = 0.0
    return differ
