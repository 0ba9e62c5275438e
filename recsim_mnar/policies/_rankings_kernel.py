# mypy: ignore-errors
"""Jitted core of rankings: draws, and probabilities of orders, of sets and of items at positions.

A ranking drawn without replacement by weights is a race: item i arrives at an exponential time of rate w_i, and the
ranking is the order of arrival. So the first k items are the set S if the last of S arrives before the first of the
others, and item i stands at position j if exactly j others arrive before it: integrals over one time. With time
x = exp(u) the trapezoidal rule over u converges geometrically. For every set of weights its relative error is below
2 exp(-2 pi a / h) / cos(a)^(k + 1) for any a < pi / 2, h being the step, because |1 - exp(-z)| is at most
(1 - exp(-Re z)) |z| / Re z. Steps are log(2) / m, so that from one octave of times to the next no exponential is taken:
p = 1 - exp(-w x) becomes p (2 - p) at 2 x.

Items of weight zero follow in tiers: those of largest score first, equal scores in random order.
"""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels._rng_kernel import exp64
from recsim_mnar.kernels.jit import kernel

OCTAVES = 8
"""Octaves of times that :func:`fill_marginals` works on together."""

INTEGRAL = -1.0
"""In place of a marginal: it takes :func:`fill_marginals`."""

_STEEPEST = 1.5819767068693265
"""1 / (1 - 1/e): on [0, 1] the function 1 - exp(-y) lies between y and y over this."""

_E = 2.718281828459045


@kernel
def _arrived(y):
    """1 - exp(-y) for y >= 0, relative error below 1e-15."""
    if y > 40.0:
        return 1.0
    if y > 0.5:
        return 1.0 - exp64(-y)
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
    """The item that ``number`` untaken ones stand before."""
    i = 0
    while True:
        if taken[i] == 0:
            if number == 0:
                return i
            number -= 1
        i += 1


@kernel
def _best_left(weights, scores, taken, uniform):
    """One of the untaken items of weight zero with the largest score, by the uniform."""
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
    """Draw each ranking: by the weights of its row, or with probability ``epsilon`` all rankings as likely.

    weights and scores (r, n) float64, which (b,) int64: the row of each ranking; uniforms (b, k + 1); rankings (b, k)
    int32 is filled. taken (n,) int8, zeros, and sums (n / 64,) float64 are working space.
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
                    while sums[c] == 0.0:  # rounding may lead past the last weight
                        c -= 1
                    item = -1
                    for i in range(64 * c, min(64 * c + 64, n)):
                        if taken[i] == 0 and w[i] > 0.0:
                            item = i
                            if target < w[i]:
                                break
                            target -= w[i]
                    taken[item] = 1
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
def draw_exploring(weights, scores, uniforms, epsilon, taken, rankings):
    """Draw rankings whose every item is with probability ``epsilon`` any of those left, else the best of them.

    As :func:`draw`; weights (n,) are zeros.
    """
    n = taken.size
    k = rankings.shape[1]
    for b in range(rankings.shape[0]):
        for j in range(k):
            uniform = uniforms[b, j + 1]
            if uniform < epsilon:
                item = _left_over(taken, min(int(uniform / epsilon * (n - j)), n - j - 1))
            else:
                item = _best_left(weights, scores[b], taken, (uniform - epsilon) / (1.0 - epsilon))
            rankings[b, j] = item
            taken[item] = 1
        for j in range(k):
            taken[rankings[b, j]] = 0


@kernel
def fill_next(weights, scores, which, above, taken, out):
    """Probability of every item (b, n) to follow the items ``above`` (b, j), drawn by weights, then by scores."""
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
    """Probability that every item of a set arrives before the first of the others, whose rates sum to 1.

    rates (k,), above 0; roots (m,): 2^(s/m); waits (octaves, m): step x exp(-x) at times x = 2^(lowest + o + s/m);
    arrived (m, k): working space. What is left out of the integral is at most ``tolerance`` of it on either side.
    """
    k = rates.size
    m = roots.size
    octaves = waits.shape[0]
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
    # Factors of items with rates below 1 are divided by their rates, so that products stay far from the least number.
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
    """``chance[i]``: the sum over the other items l of w_l / (total - w_l); times w_i / total it is P(i second)."""
    big = -1
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
    """Probabilities of rankings drawn by weights, then by scores, as :func:`draw` does without epsilon.

    weights and scores (r, n), which (b,), rankings (b, k) int32. Filled: conditional (b, k), sets (b,) and marginals
    (b, k), these where they need no integral, else :data:`INTEGRAL`. taken (n,) int8, zeros, chance (n,), rates (k,)
    and arrived (m, k) are working space; the rest as :func:`_set_probability`.
    """
    n = taken.size
    k = rankings.shape[1]
    for b in range(rankings.shape[0]):
        w = weights[which[b]]
        s = scores[which[b]]
        for j in range(k):
            taken[rankings[b, j]] = 1
        outside = 0.0
        positive = 0
        inside = 0
        least = 0.0
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

        above = inside
        left = outside
        for j in range(k - 1, -1, -1):
            item = rankings[b, j]
            if w[item] > 0.0:
                above -= 1
                left += w[item]
                conditional[b, j] = w[item] / left
            else:
                better = 0
                equal = 0
                for i in range(n):
                    if not w[i] > 0.0:
                        better += s[i] > s[item]
                        equal += s[i] == s[item]
                inside_tier = better + positive <= j < better + positive + equal
                marginals[b, j] = 1.0 / equal if inside_tier else 0.0
                for t in range(j):
                    other = rankings[b, t]
                    if not w[other] > 0.0:
                        better -= s[other] > s[item]
                        equal -= s[other] == s[item]
                conditional[b, j] = 1.0 / equal if above == positive and better == 0 else 0.0

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

        if inside < min(k, positive):
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
    """Probability of the items of weight zero of a set that holds every item of positive weight."""
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
    level = 0
    for j in range(ranking.size):
        if not w[ranking[j]] > 0.0:
            if s[ranking[j]] < best:
                return 0.0
            if s[ranking[j]] == best:
                level += 1
                probability *= level / (n_others + level)
    return probability


@kernel
def price_exploring(scores, rankings, epsilon, table, taken, paths, conditional, sets, marginals):
    """Compute :func:`price` of the rankings that :func:`draw_exploring` draws.

    scores (b, n). table (k + 1, k): probability of the item of rank r at position j, of rank k and beyond in the last
    row; paths (k + 1, k + 1, k + 1): working space.
    """
    n = taken.size
    k = rankings.shape[1]
    for b in range(rankings.shape[0]):
        s = scores[b]
        for j in range(k):
            taken[rankings[b, j]] = 1
        in_tier = False
        best = 0.0
        n_others = 0
        for i in range(n):
            if taken[i] == 0:
                if not in_tier or s[i] > best:
                    in_tier = True
                    best = s[i]
                    n_others = 1
                elif s[i] == best:
                    n_others += 1
        above = 0
        level = 0
        for j in range(k):
            item = rankings[b, j]
            taken[item] = 0
            better = 0
            equal = 0
            for i in range(n):
                better += s[i] > s[item]
                equal += s[i] == s[item]
            total = 0.0
            for rank in range(better, min(better + equal, k)):
                total += table[rank, j]
            total += max(0, better + equal - max(better, k)) * table[k, j]
            marginals[b, j] = total / equal
            for t in range(j):
                better -= s[rankings[b, t]] > s[item]
                equal -= s[rankings[b, t]] == s[item]
            conditional[b, j] = epsilon / (n - j)
            if better == 0:
                conditional[b, j] += (1.0 - epsilon) / equal
            if not in_tier or s[item] > best:
                above += 1
            elif s[item] == best:
                level += 1
        sets[b] = 1.0 if not in_tier else _exploring_set(above, level, k - above - level, n_others, n, epsilon, paths)


@kernel
def _exploring_set(above, level, below, others, n, epsilon, paths):
    """Probability that a set is taken whose items are better, as good and worse than the best of the others.

    Of the items of a set that are left, those better than all others are the best left, whatever was taken before: so
    it takes their numbers alone. paths[a, t, c] is the probability that the rest of the set follows while a, t and c
    of its items are left.
    """
    outside = n - above - level - below
    for a in range(above + 1):
        for t in range(level + 1):
            for c in range(below + 1):
                if a + t + c == 0:
                    paths[a, t, c] = 1.0
                    continue
                explored = 0.0
                exploited = 0.0
                if a > 0:
                    explored += a * paths[a - 1, t, c]
                    exploited = paths[a - 1, t, c]
                if t > 0:
                    explored += t * paths[a, t - 1, c]
                    if a == 0:
                        exploited = t / (t + others) * paths[a, t - 1, c]
                if c > 0:
                    explored += c * paths[a, t, c - 1]
                paths[a, t, c] = (1.0 - epsilon) * exploited + epsilon / (outside + a + t + c) * explored
    return paths[above, level, below]


# ----------------------------------------------------------------------------------------------------------- positions


@kernel
def _nodes(p, q, p_nodes, q_nodes):
    """Spread an item's p and q = 1 - p, (m,), over the times of a block, and lead them on to the next."""
    m = p.size
    for s in range(m):
        here = p[s]
        not_here = q[s]
        for o in range(OCTAVES):
            p_nodes[o * m + s] = here
            q_nodes[o * m + s] = not_here
            here = here * (1.0 + not_here)
            if here < 0.5:
                not_here = 1.0 - here
            else:
                not_here = not_here * not_here
        p[s] = here
        q[s] = not_here


@kernel
def _row_of_one(here, one_less, p, q):
    for t in range(here.size):
        here[t] = q[t] * here[t] + p[t] * one_less[t]


@kernel
def _add(counts, last, p, q):
    """Law of how many have arrived, (``last`` + 1 and more, nodes), with one more item; counts beyond are dropped."""
    for j in range(last, 0, -1):
        _row_of_one(counts[j], counts[j - 1], p, q)
    for t in range(p.size):
        counts[0, t] *= q[t]


@kernel
def _row_of_two(here, one_less, two_less, none, one, both):
    for t in range(here.size):
        here[t] = none[t] * here[t] + (one[t] * one_less[t] + both[t] * two_less[t])


@kernel
def _add_two(counts, last, p, q, other_p, other_q):
    """Add two items as :func:`_add` does one, in two thirds of the time.

    The arrays of the second item are written over.
    """
    for t in range(p.size):
        one = p[t] * other_q[t] + q[t] * other_p[t]
        q[t] *= other_q[t]
        p[t] *= other_p[t]
        other_q[t] = one
    for j in range(last, 1, -1):
        _row_of_two(counts[j], counts[j - 1], counts[j - 2], q, other_q, p)
    if last > 0:
        _row_of_one(counts[1], counts[0], other_q, q)
    for t in range(p.size):
        counts[0, t] *= q[t]


@kernel
def position_table(weights, asked, k, first, roots, reach, tolerance, largest, p, q, pair, p_asked, q_asked, counts,
                   marginals):  # fmt: skip
    """Probability of each item asked for at each position, by the weights: marginals (c, k), zeros before.

    Args:
        weights: (n,), those of items that are not asked for first, then those of the ``asked``, all above 0; their sum
            is 1.
        asked: c, how many are asked for.
        k: number of positions, at most n.
        first: the octave of times at which integrals begin at the latest.
        roots: (m,), 2^(s/m).
        reach: times up to this over the weight outside the k - 1 largest count.
        tolerance: what is left out of an integral, relative to it.
        largest: (k,), working space, as all that follow; arrays may be larger.
        p: (n, m).
        q: (n, m).
        pair: (4, nodes), nodes = m * OCTAVES.
        p_asked: (c, nodes).
        q_asked: (c, nodes).
        counts: (depth + 1, k, nodes), 2^depth >= c.
        marginals: where the answer goes.
    """
    n = weights.size
    m = roots.size
    nodes = pair.shape[1]
    depth = counts.shape[0] - 1
    step = 0.6931471805599453 / m
    # The weight outside the k - 1 largest, without subtraction.
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
        # Each item without itself: down a tree of halves, in which a child has all that its sibling holds.
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
    """Fill in the marginals (b, k) that :func:`price` left; reaches (k,) by the number of positions - 1.

    ordered (n,) and found (k, k) are working space, the rest as :func:`position_table`.
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
        n_asked = np.int64(0)  # a literal would have the table compiled for itself, too
        for j in range(k):
            if marginals[b, j] == INTEGRAL:
                n_asked += 1
                ordered[size - n_asked] = w[rankings[b, j]] / total
        # The others: walk through all, leaving out what is asked for.
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
        c = n_asked
        for j in range(k):
            if marginals[b, j] == INTEGRAL:
                c -= 1
                marginals[b, j] = min(found[c, j], 1.0)
