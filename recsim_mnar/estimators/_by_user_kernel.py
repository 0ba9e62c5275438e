# mypy: ignore-errors
"""Kernels: sums by user, the Poisson bootstrap, the capital of bets against a mean, and effects of earlier rows."""

from __future__ import annotations

import math

import numpy as np

from recsim_mnar.kernels._rng_kernel import block
from recsim_mnar.kernels.jit import kernel, summing

_LOW = np.uint32(0xFFFF)
# P(Poisson(1) <= k) in units of 2^-16, k = 0 .. 7: a draw of 16 bits is inverted by counting how many it reaches.
T0 = np.uint32(24109)
T1 = np.uint32(48219)
T2 = np.uint32(60273)
T3 = np.uint32(64292)
T4 = np.uint32(65296)
T5 = np.uint32(65497)
T6 = np.uint32(65531)
T7 = np.uint32(65535)


@kernel
def _draw(seed, stream, user, w0, w1, w2, w3):
    """Draw random blocks 0, 1, ... at a user's address, and write their four words to one array (B,) each."""
    for j in range(w0.size):
        a, b, c, d = block(seed, stream, user, np.uint64(j))
        w0[j] = np.uint32(a)
        w1[j] = np.uint32(b)
        w2[j] = np.uint32(c)
        w3[j] = np.uint32(d)


@kernel
def _add(words, a, b, above, below):
    """Draw how often each bootstrap replicate counts a user, and add the user's two sums that many times.

    Each word (B,) gives two Poisson counts: its low 16 bits that of a replicate in the first half, its high 16 bits
    that of a replicate in the second half.

    Args:
        words: (B,) uint32 random words.
        a: the user's numerator.
        b: the user's denominator.
        above: (2 B,) sums of numerators, added to.
        below: (2 B,) sums of denominators, added to.
    """
    for half in range(2):
        shift = np.uint32(16 * half)
        into_above = above[half * words.size :]
        into_below = below[half * words.size :]
        for j in range(words.size):
            u = (words[j] >> shift) & _LOW
            k = np.int32(u >= T0) + np.int32(u >= T1) + np.int32(u >= T2) + np.int32(u >= T3)
            k += np.int32(u >= T4) + np.int32(u >= T5) + np.int32(u >= T6) + np.int32(u >= T7)
            count = np.float64(np.int32(k))
            into_above[j] += count * a
            into_below[j] += count * b


@kernel
def poisson_sums(seed, stream, users, above, below, words, above_sums, below_sums):
    """Add count * above and count * below of each user to the sums of every replicate; counts are Poisson(1) draws.

    Replicate 2 q B + h B + j of 8 B reads half h of word q of the random block at address (seed, stream, user, j).

    Args:
        seed: uint64 seed.
        stream: uint64 number of the random stream.
        users: (n,) uint64 addresses of the users.
        above: (n,) numerators.
        below: (n,) denominators.
        words: (4, B) uint32 scratch array.
        above_sums: (8 B,) sums of numerators, added to.
        below_sums: (8 B,) sums of denominators, added to.
    """
    size = words.shape[1]
    for i in range(users.size):
        _draw(seed, stream, users[i], words[0], words[1], words[2], words[3])
        for q in range(4):
            start = 2 * q * size
            stop = start + 2 * size
            _add(words[q], above[i], below[i], above_sums[start:stop], below_sums[start:stop])


@kernel
def fill_bets(values, log_term, horizon, bets):
    """Compute predictable plug-in bets (Waudby-Smith & Ramdas 2024, eq. 26): bet i depends only on values before i.

    Running mean and variance start from one observation of mean 1/2 and variance 1/4.

    Args:
        values: (n,) observations in [0, 1].
        log_term: 2 log(1 / alpha), where alpha is the error probability of one side.
        horizon: number of values that the bets are tuned to; 0 for an anytime-valid sequence, with t log(t + 1) in its
            place at the t-th value.
        bets: (n,) bets, written.
    """
    total = 0.5
    spread = 0.25
    for i in range(values.size):
        t = i + 1.0
        variance = spread / t
        if horizon > 0.0:
            length = horizon
        else:
            length = t * math.log(t + 1.0)
        bets[i] = math.sqrt(log_term / (variance * length))
        total += values[i]
        mean = total / (t + 1.0)
        spread += (values[i] - mean) ** 2


@kernel
def log_capital(values, lengths, bets, mean, sign):
    """Return the log of the final capital of bets that the ratio of means is above (or below) ``mean``.

    The capital starts at 1 and is multiplied by 1 + sign * bet * (value - mean * length) for each user. Bets are
    limited so that no factor is below 1/2.

    Args:
        values: (n,) values in [0, 1], each at most its length.
        lengths: (n,) lengths in (0, 1].
        bets: (n,) bets from :func:`fill_bets`, or (1,) one bet for all users.
        mean: ratio of mean value to mean length that is bet against, in (0, 1).
        sign: 1 for bets that the ratio is above, -1 for bets that it is below.
    """
    capital = 1.0
    logs = 0.0
    if sign > 0.0:
        most = 0.5 / mean
    else:
        most = 0.5 / (1.0 - mean)
    last = bets.size - 1
    for i in range(values.size):
        bet = min(bets[min(i, last)], most)
        capital *= 1.0 + sign * bet * (values[i] - mean * lengths[i])
        if capital > 1e100 or capital < 1e-100:  # a logarithm now and then, instead of one for each user
            logs += math.log(capital)
            capital = 1.0
    return logs + math.log(capital)


@kernel
def _close_user(place, times, inverse, earned, rewarded, own, part, scores, totals, products):
    """Add a user's sums to the totals, and clear the user's scratch arrays.

    Args:
        place: (m,) index of each of the user's items.
        times: (K,) number of showings by item, cleared.
        inverse: (K,) sums of 1 / propensity by item, cleared.
        earned: (K,) sums of rewards by item, cleared.
        rewarded: (K,) weights of rewarded showings by item, cleared.
        own: (5,) the user's scores, cleared.
        part: (12,) the user's terms of ``totals`` row by row, cleared.
        scores: (2, 5) sums of scores and of their squares, added to.
        totals: (3, 4) sums, added to.
        products: (3, 4, 4) sums of products of a user's terms, added to.
    """
    for j in range(place.size):
        times[place[j]] = 0.0
        inverse[place[j]] = 0.0
        earned[place[j]] = 0.0
        rewarded[place[j]] = 0.0
    for j in range(5):
        scores[0, j] += own[j]
        scores[1, j] += own[j] * own[j]
    for which in range(3):
        for j in range(4):
            totals[which, j] += part[4 * which + j]
            for m in range(4):
                products[which, j, m] += part[4 * which + j] * part[4 * which + m]
    own[:] = 0.0
    part[:] = 0.0


@kernel
def add_repeats(
    user, place, reward, propensity, means, effects, later, least, scratch, scores, totals, products, counts
):
    """Add rows of whole users to the sums of :class:`recsim_mnar.estimators.repeats.RepeatSums`, which defines them.

    Args:
        user: (n,) int64 user codes, the rows of a user together and in time order.
        place: (n,) int64 index of each row's item among the means.
        reward: (n,) rewards.
        propensity: (n,) propensities.
        means: (K,) mean reward by item.
        effects: (2, K) effects of items on later rows, estimated from users with an even and with an odd number.
        later: (n,) centred sum of the user's next rewards; 0 for a user's last row.
        least: reward that is subtracted from rewards in ``totals``, so that none is negative.
        scratch: (4 K + 17,) zeros; zeros again at the end.
        scores: (2, 5) sums over users of scores and of their squares, added to.
        totals: (3, 4) sums over pairs of rows, added to.
        products: (3, 4, 4) sums over users of products of their terms of ``totals``, added to.
        counts: (5,) numbers of rows and pairs, added to.
    """
    n = reward.size
    k = means.size
    # Scratch arrays by item, over the current user's earlier rows: number of showings, sum of 1 / propensity, sum of
    # rewards above the least, and number of rewarded showings, each of these divided by the number of later rows that
    # are not its neighbour.
    times = scratch[:k]
    inverse = scratch[k : 2 * k]
    earned = scratch[2 * k : 3 * k]
    rewarded = scratch[3 * k : 4 * k]
    # Scratch arrays of the current user: the five scores, and the terms of totals (row w is part[4 w : 4 w + 4]).
    sums_of_item = scratch[4 * k : 4 * k + 5]
    part = scratch[4 * k + 5 :]
    number = 0  # of the user
    end = 0  # row behind the user's last one
    first = 0  # the user's first row
    total = 0.0  # rewards of the user's earlier rows, above the least
    for i in range(n):
        if i == end:  # a user begins
            first = i
            total = 0.0
            while end < n and user[end] == user[i]:
                end += 1
        item = place[i]
        r = reward[i]
        p = propensity[i]
        above = r - least
        before = i - first
        apart = (r - means[item]) / p
        sums_of_item[0] += apart * (inverse[item] - before)
        sums_of_item[3 + number % 2] += effects[1 - number % 2, item] * later[i] / p  # effects from the other half
        # Pairs with all earlier rows: those with the same item, then those with another one.
        part[0] += above * times[item]
        part[1] += earned[item]
        part[2] += above * (before - times[item])
        part[3] += total - earned[item]
        counts[0 if times[item] > 0.0 else 1] += 1
        again = 1.0 if r != 0.0 else 0.0
        # Weight of pairs with earlier rewarded rows of the item; that of the row before is subtracted below.
        share = rewarded[item]
        if before > 0:
            same = item == place[i - 1]
            sums_of_item[1] += apart * ((1.0 / propensity[i - 1] if same else 0.0) - 1.0)
            sums_of_item[2] += (1.0 / p if same else 0.0) - 1.0
            where = 4 if same else 6  # pairs with the row before: same item, or another one
            part[where] += above
            part[where + 1] += reward[i - 1] - least
            if same and reward[i - 1] != 0.0:
                counts[3] += 1
                part[8] += again / p
                part[9] += 1.0 / p
                share -= 1.0 / max(end - i - 1, 1)  # what the row before, i - 1, added
        if share > 1e-12:  # more than a rounding error of the subtraction
            counts[4] += 1
            part[10] += again * share / p
            part[11] += share / p
        times[item] += 1.0
        inverse[item] += 1.0 / p
        earned[item] += above
        total += above
        if r != 0.0:
            counts[2] += 1
            rewarded[item] += 1.0 / max(end - i - 2, 1)
        if i + 1 == end:
            _close_user(
                place[first:end], times, inverse, earned, rewarded, sums_of_item, part, scores, totals, products
            )
            number += 1


@kernel
def add_exactly(high, low, values):
    """Add (k,) values to (k,) sums ``high``, and the exact rounding errors to ``low`` (Knuth's two-sum)."""
    for j in range(values.size):
        before = high[j]
        total = before + values[j]
        part = total - before
        high[j] = total
        low[j] += (before - (total - part)) + (values[j] - part)


@summing
def _multiply(one, other, out):
    """Write the products of two columns (n,) to ``out``, and return their sum."""
    total = 0.0
    for i in range(out.size):
        out[i] = one[i] * other[i]
        total += out[i]
    return total


@summing
def _copy(values, out):
    """Copy a column (n,) to ``out``, and return its sum."""
    total = 0.0
    for i in range(out.size):
        out[i] = values[i]
        total += out[i]
    return total


@kernel
def add_rows(columns, width, factors, sums, tile):
    """Add rows without users, each of which counts as a user, to the sums of :func:`add_users`.

    Args:
        columns: (k, n) values of the columns.
        width: number of the first columns whose products are summed; the others are only summed.
        factors: (p, 2) indices of the two factors of each product, among the columns and the products before it.
        sums: (2, p + k) sums and their rounding errors, added to: of the first columns, of the products, of the other
            columns.
        tile: (width + p + 1, t) scratch array: t rows of columns and products, and in the last row the totals.
    """
    k, n = columns.shape
    m = len(factors)
    totals = tile[width + m]  # of columns, products and other columns, in the order of sums
    size = tile.shape[1]
    totals[: m + k] = 0.0
    for start in range(0, n, size):
        stop = min(start + size, n)
        for j in range(width):
            totals[j] += _copy(columns[j, start:stop], tile[j, : stop - start])
        for j in range(m):
            one = tile[factors[j, 0], : stop - start]
            other = tile[factors[j, 1], : stop - start]
            totals[width + j] += _multiply(one, other, tile[width + j, : stop - start])
        for j in range(width, k):
            # Row ``width`` of the tile, of the first product, is no longer needed: only the sum of the copy is.
            totals[m + j] += _copy(columns[j, start:stop], tile[width, : stop - start])
    add_exactly(sums[0], sums[1], totals[: m + k])


@kernel
def add_users(columns, user, goes_on, width, factors, own, sums, out):
    """Add rows to sums over users of products of the user's column sums.

    Args:
        columns: (k, n) values of the columns.
        user: (n,) int64 user codes, the rows of a user together.
        goes_on: whether the user of the last row has more rows in the next call.
        width: number of the first columns whose products are summed; the others are only summed.
        factors: (p, 2) indices of the two factors of each product, among the columns and the products before it.
        own: (k,) column sums of the user whose rows are not complete, kept between calls; zeros at first.
        sums: (2, p + k) sums and their rounding errors, added to: of the first columns, of the products, of the other
            columns.
        out: (p + k,) scratch array.
    """
    k, n = columns.shape
    m = len(factors)
    for i in range(n):
        for j in range(k):
            own[j] += columns[j, i]
        if i + 1 == n:
            same = goes_on
        else:
            same = user[i + 1] == user[i]
        if same:
            continue
        for j in range(width):
            out[j] = own[j]
        for j in range(m):
            out[width + j] = out[factors[j, 0]] * out[factors[j, 1]]
        for j in range(width, k):
            out[m + j] = own[j]
        own[:] = 0.0
        add_exactly(sums[0], sums[1], out)
