# mypy: ignore-errors
"""Compiled core of Plackett-Luce rankings: draws, and probabilities of orders, sets and positions.

A ranking drawn by weights without replacement is a race: item i arrives at an exponential time of rate w_i, and the
ranking is the order of arrival. Hence the top k items are the set S if the last item of S arrives before the first of
all other items, and item i stands at position j if exactly j other items arrive before it. Both probabilities are
integrals over one time. After the substitution x = exp(u) for time, the trapezoidal rule over u converges
geometrically: for any weights its relative error is below 2 exp(-2 pi a / h) / cos(a)^(k + 1) for every a < pi / 2,
where h is the step, because |1 - exp(-z)| <= (1 - exp(-Re z)) |z| / Re z. The step is log(2) / m, so that from one
octave of times to the next no exponential is needed: p = 1 - exp(-w x) becomes p (2 - p) at 2 x.

Items of weight zero follow all items of positive weight, by falling score; equal scores are in random order. Items of
weight zero with the same score form a *tier*.
"""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels._rng_kernel import exp64
from recsim_mnar.kernels.jit import kernel

OCTAVES = 8
"""Number of octaves of times that :func:`position_table` processes at a time."""

INTEGRAL = -1.0
"""Sentinel in place of a marginal that needs an integral, computed by :func:`fill_marginals`."""

_STEEPEST = 1.5819767068693265
"""1 / (1 - 1/e): for y in [0, 1], y / _STEEPEST <= 1 - exp(-y) <= y."""

_E = 2.718281828459045


@kernel
def _arrived(y):
    """Return 1 - exp(-y) for y >= 0, with a relative error below 1e-15."""
    if y > 40.0:
        return 1.0
    if y > 0.5:
        return 1.0 - exp64(-y)
    # Below, the difference would lose digits: the Taylor series, whose coefficients are 1 / n!, from the last term on.
    s = 1.0 / 1307674368000.0
    s = 1.0 / 87178291200.0 - y * s
    s = 1.0 / 6227020800.0 - y * s
    s = 1.0 / 479001600.0 - y * s
    s = 1.0 / 39916800.0 - y * s
    s = 1.0 / 3628800.0 - y * s
    s = 1.0 / 362880.0 - y * s
    s = 1.0 / 40320.0 - y * s
    s = 1.0 / 5040.0 - y * s
    s = 1.0 / 720.0 - y * s
    s = 1.0 / 120.0 - y * s
    s = 1.0 / 24.0 - y * s
    s = 1.0 / 6.0 - y * s
    s = 0.5 - y * s
    return y * (1.0 - y * s)


# --------------------------------------------------------------------------------------------------------------- draws


@kernel
def _left_over(taken, number):
    """Return the untaken item that is preceded by ``number`` untaken items, in index order."""
    i = 0
    while True:
        if taken[i] == 0:
            if number == 0:
                return i
            number -= 1
        i += 1


@kernel
def _best_left(weights, scores, taken, uniform):
    """Return one of the untaken items of weight zero with the largest score, selected by the uniform; -1 if none."""
    count = 0
    top = 0.0
    for i in range(taken.size):
        if taken[i] == 0 and not weights[i] > 0.0:
            if count == 0 or scores[i] > top:
                top = scores[i]
                count = 1
            elif scores[i] == top:
                count += 1
    number = min(int(uniform * count), count - 1)
    for i in range(taken.size):
        if taken[i] == 0 and not weights[i] > 0.0 and scores[i] == top:
            if number == 0:
                return i
            number -= 1
    return -1


@kernel
def draw(weights, scores, which, uniforms, epsilon, taken, sums, rankings):
    """Draw rankings by weights and then by scores; with probability ``epsilon`` uniformly from all rankings.

    Args:
        weights: (r, n) float64 weights of the items.
        scores: (r, n) float64 scores, which rank items of weight zero.
        which: (b,) int64 row of weights and scores of each ranking.
        uniforms: (b, k + 1): column 0 decides between uniform and weighted, column 1 + j selects item j.
        epsilon: probability of a uniform ranking.
        taken: (n,) int8 zeros, working space; zeros again on return.
        sums: (ceil(n / 64),) float64 working space: sums of the untaken weights over blocks of 64 items.
        rankings: (b, k) int32, written to.
    """
    n = taken.size
    k = rankings.shape[1]
    for b in range(rankings.shape[0]):
        w = weights[which[b]]
        s = scores[which[b]]
        if uniforms[b, 0] < epsilon:
            for j in range(k):
                item = _left_over(taken, min(int(uniforms[b, j + 1] * (n - j)), n - j - 1))
                rankings[b, j] = item
                taken[item] = 1
        else:
            for c in range(sums.size):
                total = 0.0
                for i in range(64 * c, min(64 * c + 64, n)):
                    total += w[i]
                sums[c] = total
            for j in range(k):
                total = 0.0
                for c in range(sums.size):
                    total += sums[c]
                if total > 0.0:
                    target = uniforms[b, j + 1] * total
                    c = 0
                    while c < sums.size - 1 and target >= sums[c]:
                        target -= sums[c]
                        c += 1
                    while sums[c] == 0.0:  # rounding may lead past the last block with a positive weight
                        c -= 1
                    item = -1
                    for i in range(64 * c, min(64 * c + 64, n)):
                        if taken[i] == 0 and w[i] > 0.0:
                            item = i
                            if target < w[i]:
                                break
                            target -= w[i]
                    taken[item] = 1
                    # Sum the block again: subtracting the weight would accumulate rounding errors.
                    total = 0.0
                    for i in range(64 * c, min(64 * c + 64, n)):
                        if taken[i] == 0:
                            total += w[i]
                    sums[c] = total
                else:
                    item = _best_left(w, s, taken, uniforms[b, j + 1])
                    taken[item] = 1
                rankings[b, j] = item
        for j in range(k):
            taken[rankings[b, j]] = 0


@kernel
def fill_next(weights, scores, which, above, taken, out):
    """Compute the probability of every item to be ranked next, by weights and then by scores.

    Args:
        weights: (r, n) float64 weights of the items.
        scores: (r, n) float64 scores, which rank items of weight zero.
        which: (b,) int64 row of weights and scores of each ranking.
        above: (b, j) items ranked already.
        taken: (n,) int8 zeros, working space; zeros again on return.
        out: (b, n), written to.
    """
    n = taken.size
    for b in range(above.shape[0]):
        w = weights[which[b]]
        s = scores[which[b]]
        for j in range(above.shape[1]):
            taken[above[b, j]] = 1
        total = 0.0
        for i in range(n):
            if taken[i] == 0:
                total += w[i]
        count = 0
        top = 0.0
        for i in range(n):
            if taken[i] == 0 and not total > 0.0:
                if count == 0 or s[i] > top:
                    top = s[i]
                    count = 1
                elif s[i] == top:
                    count += 1
        for i in range(n):
            out[b, i] = 0.0
            if taken[i] == 0:
                if total > 0.0:
                    out[b, i] = w[i] / total
                elif s[i] == top:
                    out[b, i] = 1.0 / count
        for j in range(above.shape[1]):
            taken[above[b, j]] = 0


# ------------------------------------------------------------------------------------------------------ orders and sets


@kernel
def _set_probability(rates, lowest, roots, waits, tolerance, arrived):
    """Return the probability that all items of a set arrive before the first item outside it.

    The integrand is the density exp(-x) of the first arrival from outside times the probability that all items of the
    set have arrived by then. At either end the integral is truncated with a relative error of at most ``tolerance``.

    Args:
        rates: (k,) positive rates of the set's items; the rates of all other items sum to 1.
        lowest: first octave of ``waits``.
        roots: (m,) factors 2^(s/m).
        waits: (octaves, m) step width times x exp(-x) at times x = 2^(lowest + o + s/m).
        tolerance: largest relative error of each truncated end.
        arrived: (m, k) working space.
    """
    k = rates.size
    m = roots.size
    octaves = waits.shape[0]
    # First octave: go down from time 1 until the part of the integral before x, relative to the whole, is negligible.
    # That part is at most x times the product of min(rate x, 1), the whole at least the same product at time 1 over
    # e and a factor _STEEPEST for each item.
    bound = _E
    for _ in range(k):
        bound *= _STEEPEST
    x = 1.0
    first = -lowest
    while first > 0:
        part = bound * x
        for i in range(k):
            if rates[i] <= 1.0:
                part *= x
            elif rates[i] * x < 1.0:
                part *= rates[i] * x
        if part <= tolerance:
            break
        first -= 1
        x *= 0.5
    # The factors of items with rates below 1 are divided by the rates, and the total multiplied by them at the end, so
    # that products of many small numbers do not underflow.
    for s in range(m):
        for i in range(k):
            arrived[s, i] = _arrived(rates[i] * (x * roots[s])) / min(rates[i], 1.0)
    total = 0.0
    for o in range(first, octaves):
        for s in range(m):
            product = waits[o, s]
            for i in range(k):
                product *= arrived[s, i]
            total += product
        for s in range(m):
            for i in range(k):
                arrived[s, i] *= 2.0 - min(rates[i], 1.0) * arrived[s, i]
    for i in range(k):
        total *= min(rates[i], 1.0)
    return min(total, 1.0)


@kernel
def of_second(w, total, chance):
    """Write to ``chance[i]`` the sum over all other items l of w_l / (total - w_l).

    Times w_i / total it is the probability that item i is second. The sum over all items is computed once, and each
    item's own term subtracted. For an item of more than half the weight, total - w_l is instead the sum of the other
    weights, and its term is added where needed, so that no digits are lost.

    Args:
        w: (n,) weights.
        total: their sum.
        chance: (n,), written to.
    """
    big = -1  # the item of more than half the weight, if there is one
    for i in range(w.size):
        if w[i] > 0.5 * total:
            big = i
    odds = 0.0
    rest = 0.0
    for i in range(w.size):
        if i != big:
            odds += w[i] / (total - w[i])
            rest += w[i]
    for i in range(w.size):
        chance[i] = odds
        if i != big:
            chance[i] -= w[i] / (total - w[i])
            if big >= 0:
                chance[i] += w[big] / rest


@kernel
def price(weights, scores, which, rankings, lowest, roots, waits, tolerance, taken, chance, rates, arrived, conditional,
          sets, marginals):  # fmt: skip
    """Compute the probabilities of rankings drawn by weights and then by scores, as :func:`draw` does at epsilon 0.

    Args:
        weights: (r, n) float64 weights of the items.
        scores: (r, n) float64 scores, which rank items of weight zero.
        which: (b,) int64 row of weights and scores of each ranking.
        rankings: (b, k) int32 items.
        lowest: first octave of ``waits``.
        roots: (m,) factors 2^(s/m).
        waits: (octaves, m) step width times x exp(-x) at times x = 2^(lowest + o + s/m).
        tolerance: largest relative error of each truncated end of an integral.
        taken: (n,) int8 zeros, working space; zeros again on return.
        chance: (n,) working space.
        rates: (k,) working space.
        arrived: (m, k) working space.
        conditional: (b, k), written to: probability of each item given the items above it.
        sets: (b,), written to: probability of the items in any order.
        marginals: (b, k), written to: probability of each item at its position, or :data:`INTEGRAL`.
    """
    n = taken.size
    k = rankings.shape[1]
    for b in range(rankings.shape[0]):
        w = weights[which[b]]
        s = scores[which[b]]
        for j in range(k):
            taken[rankings[b, j]] = 1
        outside = 0.0  # weight of the items that are not in the ranking
        positive = 0  # number of items of positive weight
        inside = 0  # number of those in the ranking
        least = 0.0  # smallest and largest positive weight
        most = 0.0
        for i in range(n):
            if w[i] > 0.0:
                if positive == 0 or w[i] < least:
                    least = w[i]
                most = max(most, w[i])
                positive += 1
                if taken[i] == 0:
                    outside += w[i]
                else:
                    inside += 1

        # Conditional probabilities, and the marginals of items of weight zero. From the last position to the first, so
        # that the weight left is a sum and not a difference.
        above = inside  # number of items of positive weight above position j
        left = outside  # weight left before position j is drawn
        for j in range(k - 1, -1, -1):
            item = rankings[b, j]
            if w[item] > 0.0:
                above -= 1
                left += w[item]
                conditional[b, j] = w[item] / left
            else:
                better = 0  # number of items of weight zero with a larger score
                equal = 0  # number of those with the same score, this item included
                for i in range(n):
                    if not w[i] > 0.0:
                        better += s[i] > s[item]
                        equal += s[i] == s[item]
                inside_tier = better + positive <= j < better + positive + equal
                marginals[b, j] = 1.0 / equal if inside_tier else 0.0
                for t in range(j):  # from here on: among the items that are left at position j
                    other = rankings[b, t]
                    if not w[other] > 0.0:
                        better -= s[other] > s[item]
                        equal -= s[other] == s[item]
                conditional[b, j] = 1.0 / equal if above == positive and better == 0 else 0.0

        # Marginals of items of positive weight: closed forms for equal weights and for the first two positions.
        is_asked = False
        for j in range(k):
            item = rankings[b, j]
            if w[item] > 0.0:
                if j >= positive:
                    marginals[b, j] = 0.0
                elif least == most:
                    marginals[b, j] = 1.0 / positive
                elif j == 0:
                    marginals[b, j] = w[item] / left
                elif j == 1:
                    if not is_asked:
                        total = 0.0
                        for i in range(n):
                            total += w[i]
                        of_second(w, total, chance)
                        is_asked = True
                    marginals[b, j] = min(w[item] / total * chance[item], 1.0)
                else:
                    marginals[b, j] = INTEGRAL

        # The set.
        if inside < min(k, positive):  # an item of weight zero in place of one of positive weight
            sets[b] = 0.0
        elif positive == k:
            sets[b] = 1.0
        elif positive > k:
            for j in range(k):
                rates[j] = w[rankings[b, j]] / outside
            sets[b] = _set_probability(rates, lowest, roots, waits, tolerance, arrived)
        else:
            sets[b] = _tier_probability(w, s, taken, rankings[b])
        for j in range(k):
            taken[rankings[b, j]] = 0


@kernel
def _tier_probability(w, s, taken, ranking):
    """Return the probability of a set that contains every item of positive weight.

    Its items of weight zero must be those of largest score. Only the tier that is cut by the ranking's end is random:
    any of its items are chosen with equal probability.

    Args:
        w: (n,) weights.
        s: (n,) scores.
        taken: (n,) 1 for the items of the set.
        ranking: (k,) items of the set.
    """
    # Best score outside the set, and the number of outside items with it; without any, the set is certain.
    in_tier = False
    best = 0.0
    n_others = 0
    for i in range(taken.size):
        if taken[i] == 0 and not w[i] > 0.0:
            if not in_tier or s[i] > best:
                in_tier = True
                best = s[i]
                n_others = 1
            elif s[i] == best:
                n_others += 1
    if not in_tier:
        return 1.0
    probability = 1.0
    level = 0  # number of items of the set in the same tier as the best outside
    for j in range(ranking.size):
        if not w[ranking[j]] > 0.0:
            if s[ranking[j]] < best:
                return 0.0
            if s[ranking[j]] == best:
                level += 1
                probability *= level / (n_others + level)  # after all: 1 / binomial(n_others + level, level)
    return probability


# ----------------------------------------------------------------------------------------------------------- positions


@kernel
def _nodes(p, q, p_nodes, q_nodes):
    """Compute an item's p and q = 1 - p at all times of a block of octaves, and advance both to the next block.

    Args:
        p: (m,) probability of having arrived at the times of the block's first octave; on return, of the next block's.
        q: (m,) 1 - p; advanced likewise.
        p_nodes: (m * OCTAVES,), written to: p at the times of the block, octave by octave.
        q_nodes: (m * OCTAVES,), written to: 1 - p.
    """
    m = p.size
    for s in range(m):
        here = p[s]
        not_here = q[s]
        for o in range(OCTAVES):
            p_nodes[o * m + s] = here
            q_nodes[o * m + s] = not_here
            here = here * (1.0 + not_here)  # p (2 - p), at twice the time
            # 1 - p loses digits if p is close to 1; squaring q does not.
            if here < 0.5:
                not_here = 1.0 - here
            else:
                not_here = not_here * not_here
        p[s] = here
        q[s] = not_here


@kernel
def _row_of_one(here, one_less, p, q):
    """Update P(j items have arrived), ``here``, by one more item; ``one_less`` is P(j - 1 items have arrived)."""
    for t in range(here.size):
        here[t] = q[t] * here[t] + p[t] * one_less[t]


@kernel
def _add(counts, last, p, q):
    """Update the distribution of the number of items that have arrived by one more item.

    Args:
        counts: (at least ``last`` + 1, nodes) probability that j items have arrived, at each time; updated.
        last: largest number of interest; larger ones are dropped.
        p: (nodes,) probability that the item has arrived.
        q: (nodes,) 1 - p.
    """
    for j in range(last, 0, -1):
        _row_of_one(counts[j], counts[j - 1], p, q)
    for t in range(p.size):
        counts[0, t] *= q[t]


@kernel
def _row_of_two(here, one_less, two_less, none, one, both):
    """Update P(j items have arrived) by two more items, of which none, exactly one or both have arrived."""
    for t in range(here.size):
        here[t] = none[t] * here[t] + (one[t] * one_less[t] + both[t] * two_less[t])


@kernel
def _add_two(counts, last, p, q, other_p, other_q):
    """Update the distribution of the number of items that have arrived by two more items.

    One pass over ``counts`` for both items takes two thirds of the time of calling :func:`_add` twice.

    Args:
        counts: (at least ``last`` + 1, nodes) probability that j items have arrived, at each time; updated.
        last: largest number of interest; larger ones are dropped.
        p: (nodes,) probability that the first item has arrived; overwritten.
        q: (nodes,) 1 - p; overwritten.
        other_p: (nodes,) probability that the second item has arrived; overwritten.
        other_q: (nodes,) 1 - other_p; overwritten.
    """
    for t in range(p.size):
        # Exactly one of the two has arrived; then neither, and both, in place of q and p.
        one = p[t] * other_q[t] + q[t] * other_p[t]
        q[t] *= other_q[t]
        p[t] *= other_p[t]
        other_q[t] = one
    # From here on q is the probability that neither item has arrived, other_q that exactly one has, p that both have.
    for j in range(last, 1, -1):
        _row_of_two(counts[j], counts[j - 1], counts[j - 2], q, other_q, p)
    if last > 0:
        _row_of_one(counts[1], counts[0], other_q, q)
    for t in range(p.size):
        counts[0, t] *= q[t]


@kernel
def position_table(weights, asked, k, first, roots, reach, tolerance, largest, p, q, pair, p_asked, q_asked, counts,
                   marginals):  # fmt: skip
    """Add to ``marginals`` the probability of each of the last ``asked`` items to stand at each position.

    The integrand for item i at position j is the density of its arrival times the probability that exactly j other
    items have arrived. The distribution of that number is needed for each item without the item itself. It is computed
    along a binary tree: the root has all items whose marginals are not asked for, and a child adds those of its
    sibling's subtree, so that a leaf has all items except its own.

    Args:
        weights: (n,) positive weights that sum to 1; the ``asked`` items are the last.
        asked: number c of items whose marginals are computed.
        k: number of positions, at most n.
        first: latest octave of times in which the integrals may begin.
        roots: (m,) factors 2^(s/m).
        reach: end of the integrals, times the weight outside the k - 1 largest weights.
        tolerance: largest relative error of the truncated beginning.
        largest: (k,) working space, like all arrays but the last below; they may be larger than stated.
        p: (n, m) probability that each item has arrived, in the first octave of a block.
        q: (n, m) 1 - p.
        pair: (4, nodes) p and q of two items at all times of a block, nodes = m * OCTAVES; later row 0 has the density
            of an item's arrival times the step width.
        p_asked: (c, nodes) p of the items asked for.
        q_asked: (c, nodes) 1 - p of the items asked for.
        counts: (depth + 1, k, nodes) distributions along the present path of the tree, 2^depth >= c.
        marginals: (c, k), added to; the caller sets it to zeros.
    """
    n = weights.size
    m = roots.size
    nodes = pair.shape[1]
    depth = counts.shape[0] - 1
    step = 0.6931471805599453 / m  # log(2) / m
    # The weight outside the k - 1 largest, summed without subtraction, which would lose digits. First the k largest
    # weights in falling order, by insertion.
    size = 0
    outside = 0.0
    for i in range(n):
        here = weights[i]
        j = size
        while j > 0 and largest[j - 1] < here:
            if j < k:
                largest[j] = largest[j - 1]
            j -= 1
        if j < k:
            largest[j] = here
        size = min(size + 1, k)
    # All weights below the k-th largest are outside, and of those equal to it all but the ones among the k - 1 largest.
    least = largest[k - 1]
    ties = 0
    for j in range(k):
        ties += largest[j] == least
    for i in range(n):
        if weights[i] < least:
            outside += weights[i]
        elif weights[i] == least:
            ties -= 1
    outside += least * (1 - ties)
    # First power of two beyond the end of the integrals; then back by whole blocks to their beginning.
    end = 1.0
    octave = 0
    while end < reach / outside:
        end *= 2.0
        octave += 1
    x = end
    while octave > first:
        octave -= OCTAVES
        for _ in range(OCTAVES):
            x *= 0.5
    for i in range(n):
        for s in range(m):
            p[i, s] = _arrived(weights[i] * (x * roots[s]))
            q[i, s] = 1.0 - p[i, s]
    while x < end:
        begin = x
        for _ in range(OCTAVES):
            x *= 2.0
        # Before time x the share of position j in its integral is at most e x (1.58 x)^j.
        last = k - 1
        if x <= 0.5:
            part = _E * x * (_STEEPEST * x)
            last = 0
            while last < k - 1 and part > tolerance:
                last += 1
                part *= _STEEPEST * x
        top = counts[0]
        for j in range(last + 1):
            for t in range(nodes):
                top[j, t] = 1.0 if j == 0 else 0.0
        for i in range(0, n - asked - 1, 2):
            _nodes(p[i], q[i], pair[0], pair[1])
            _nodes(p[i + 1], q[i + 1], pair[2], pair[3])
            _add_two(top, last, pair[0], pair[1], pair[2], pair[3])
        if (n - asked) % 2 == 1:
            _nodes(p[n - asked - 1], q[n - asked - 1], pair[0], pair[1])
            _add(top, last, pair[0], pair[1])
        for c in range(asked):
            _nodes(p[n - asked + c], q[n - asked + c], p_asked[c], q_asked[c])
        # Each leaf in turn. Its path shares the upper levels with the path of the leaf before; only the levels from
        # the highest bit on in which c and c - 1 differ are computed again.
        for c in range(asked):
            start = 0
            if c > 0:
                changed = c ^ (c - 1)
                start = depth
                while changed > 0:
                    changed >>= 1
                    start -= 1
            for d in range(start, depth):
                bits = depth - d - 1
                sibling = ((c >> bits) ^ 1) << bits
                child = counts[d + 1]
                parent = counts[d]
                for j in range(last + 1):
                    for t in range(nodes):
                        child[j, t] = parent[j, t]
                for other in range(sibling, min(sibling + (1 << bits), asked)):
                    _add(child, last, p_asked[other], q_asked[other])
            leaf = counts[depth]
            now = step * weights[n - asked + c] * begin
            for o in range(OCTAVES):
                for s in range(m):
                    pair[0, o * m + s] = now * roots[s] * q_asked[c, o * m + s]
                now *= 2.0
            for j in range(last + 1):
                total = 0.0
                for t in range(nodes):
                    total += pair[0, t] * leaf[j, t]
                marginals[c, j] += total


@kernel
def fill_marginals(weights, which, rankings, first, roots, reaches, tolerance, ordered, largest, p, q, pair, p_asked,
                   q_asked, counts, found, marginals):  # fmt: skip
    """Replace each marginal that :func:`price` marked with :data:`INTEGRAL` by its value.

    Args:
        weights: (r, n) float64 weights of the items.
        which: (b,) int64 row of weights of each ranking.
        rankings: (b, k) int32 items.
        first: latest octave of times in which the integrals may begin.
        roots: (m,) factors 2^(s/m).
        reaches: (k,) parameter ``reach`` of :func:`position_table` for 1 .. k positions.
        tolerance: largest relative error of the truncated beginning of an integral.
        ordered: (n,) working space: the positive weights over their sum, items to be computed last.
        largest: (k,) working space of :func:`position_table`, like the arrays up to ``counts``.
        p: (n, m) working space.
        q: (n, m) working space.
        pair: (4, nodes) working space.
        p_asked: (k, nodes) working space.
        q_asked: (k, nodes) working space.
        counts: (depth + 1, k, nodes) working space, 2^depth >= k.
        found: (k, k) working space: probabilities of the computed items at all positions.
        marginals: (b, k), updated.
    """
    k = rankings.shape[1]
    for b in range(rankings.shape[0]):
        is_wanted = False
        for j in range(k):
            is_wanted = is_wanted or marginals[b, j] == INTEGRAL
        if not is_wanted:
            continue
        w = weights[which[b]]
        total = 0.0
        size = 0
        for i in range(w.size):
            total += w[i]
            size += w[i] > 0.0
        n_asked = np.int64(0)  # not a literal 0: for its type numba would compile position_table a second time
        for j in range(k):
            if marginals[b, j] == INTEGRAL:
                n_asked += 1
                ordered[size - n_asked] = w[rankings[b, j]] / total
        # The weights of all other items come first.
        at = 0
        for i in range(w.size):
            if w[i] > 0.0:
                mine = False
                for j in range(k):
                    mine = mine or (rankings[b, j] == i and marginals[b, j] == INTEGRAL)
                if not mine:
                    ordered[at] = w[i] / total
                    at += 1
        positions = min(k, size)
        for c in range(n_asked):
            for j in range(k):
                found[c, j] = 0.0
        position_table(ordered[:size], n_asked, positions, first, roots, reaches[positions - 1], tolerance, largest, p,
                       q, pair, p_asked, q_asked, counts, found)  # fmt: skip
        c = n_asked  # the items were entered from the last place backwards
        for j in range(k):
            if marginals[b, j] == INTEGRAL:
                c -= 1
                marginals[b, j] = min(found[c, j], 1.0)
