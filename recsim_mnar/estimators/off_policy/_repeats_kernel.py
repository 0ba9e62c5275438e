# mypy: ignore-errors
"""One pass over users' rows in their order: what an item earns where its user was shown it before, and rows alike."""

from __future__ import annotations

from recsim_mnar.kernels.jit import kernel


@kernel
def _close(place, times, inverse, earned, rewarded, own, part, scores, totals, products):
    """Add a user's sums, and clear them."""
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
    """Add the rows to the sums of :class:`recsim_mnar.estimators.off_policy.repeats.RepeatSums`.

    Args:
        user: (n,) int64, the rows of a user together.
        place: (n,) int64 place of each row's item among the means.
        reward: (n,).
        propensity: (n,).
        means: (K,) mean reward by item.
        effects: (2, K) on later rows, for users with an odd and an even place.
        later: (n,) rewards of the user's next rows, as they are compared; 0 where none follows.
        least: reward from which totals count.
        scratch: (4 K + 17,) zero.
        scores: (2, 5) sums over users, and of their squares: moved, before, in a row, and lasting by half.
        totals: (3, 4) of pairs: any earlier row, the row before, and rewarded rows in a row and apart.
        products: (3, 4, 4) sums over users of products of these.
        counts: (5,) rows seen before, not seen, rewarded; pairs whose first is rewarded in a row, and apart.
    """
    n = reward.size
    k = means.size
    times = scratch[:k]
    inverse = scratch[k : 2 * k]
    earned = scratch[2 * k : 3 * k]
    rewarded = scratch[3 * k : 4 * k]
    own = scratch[4 * k : 4 * k + 5]
    part = scratch[4 * k + 5 :]
    number = 0
    end = 0
    first = 0
    total = 0.0
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
        own[0] += apart * (inverse[item] - before)
        own[3 + number % 2] += effects[1 - number % 2, item] * later[i] / p
        part[0] += above * times[item]
        part[1] += earned[item]
        part[2] += above * (before - times[item])
        part[3] += total - earned[item]
        counts[0 if times[item] > 0.0 else 1] += 1
        again = 1.0 if r != 0.0 else 0.0
        share = rewarded[item]
        if before > 0:
            same = item == place[i - 1]
            own[1] += apart * ((1.0 / propensity[i - 1] if same else 0.0) - 1.0)
            own[2] += (1.0 / p if same else 0.0) - 1.0
            where = 4 if same else 6
            part[where] += above
            part[where + 1] += reward[i - 1] - least
            if same and reward[i - 1] != 0.0:
                counts[3] += 1
                part[8] += again / p
                part[9] += 1.0 / p
                share -= 1.0 / max(end - i - 1, 1)
        if share > 1e-12:
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
            _close(place[first:end], times, inverse, earned, rewarded, own, part, scores, totals, products)
            number += 1
