# mypy: ignore-errors
"""Cells of the ordinal factorisation with a model of what is missing: one pass over a user x item matrix."""

from __future__ import annotations

import math

from recsim_mnar.kernels.jit import inlined, kernel, summing

SMALLEST = 1e-290
MARGIN = 1.1  # the parabola through three points of the table is within 8 % of the peak between them
SPREAD_OF_REVEALS = 1e3  # where R_l differ more, a peak may lie beyond the table: there curvature counts as 1
_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


@inlined
def below(x):
    """Phi(x)."""
    return 0.5 * math.erfc(-_ROOT_HALF * x)


@kernel
def curves(points, cuts, out):
    """Probability of each level, and its first two derivatives by the mean, at each point; out (3, points, levels)."""
    n_levels = len(cuts) + 1
    for k in range(len(points)):
        last, last_density, last_slope = 0.0, 0.0, 0.0
        for level in range(n_levels):
            share, density, slope = 1.0, 0.0, 0.0
            if level < n_levels - 1:
                t = cuts[level] - points[k]
                share, density = below(t), _DENSITY * math.exp(-0.5 * t * t)
                slope = t * density
            out[0, k, level] = share - last
            out[1, k, level] = last_density - density
            out[2, k, level] = last_slope - slope
            last, last_density, last_slope = share, density, slope


@inlined
def sharpest(table, reveal):
    """At least the largest curvature -d2/dm2 of log sum_l P_l(m) R_l, which is never above 1 (m has noise 1).

    From the peak of the parabola through the table's largest value and its neighbours; table as :func:`curves` fills it
    at points half a unit apart that reach 4 beyond the cuts.
    """
    least, most = reveal[0], reveal[0]
    for level in range(1, len(reveal)):
        least = min(least, reveal[level])
        most = max(most, reveal[level])
    if most > SPREAD_OF_REVEALS * least:
        return 1.0
    worst, before, last, rising = 0.0, 0.0, 0.0, False
    for k in range(table.shape[1]):
        total, first, second = 0.0, 0.0, 0.0
        for level in range(len(reveal)):
            total += table[0, k, level] * reveal[level]
            first += table[1, k, level] * reveal[level]
            second += table[2, k, level] * reveal[level]
        slope = first / total
        here = slope * slope - second / total
        if rising and here < last:  # ``last`` is a peak of the table
            bend = before - 2.0 * last + here
            worst = max(worst, last - (before - here) * (before - here) / (8.0 * bend))
        rising = here >= last
        before, last = last, here
        worst = max(worst, here)
    return min(MARGIN * worst, 1.0)


@summing
def moments(observed, missing, user_mean, user_second, item_mean, item_second, mean, variance):
    """Mean and variance of x_u . y_i where they are wanted: in all cells, or in the revealed ones.

    user_mean (U, k), user_second (U, k k) of E[x x']; the items' likewise; mean, variance (U, I), filled. Not through
    BLAS, whose threads wait for each other longer than they multiply.
    """
    for u in range(len(user_mean)):
        for i in range(len(item_mean)):
            first, second = 0.0, 0.0
            if missing or observed[u, i] >= 0:
                for k in range(user_mean.shape[1]):
                    first += user_mean[u, k] * item_mean[i, k]
                for k in range(user_second.shape[1]):
                    second += user_second[u, k] * item_second[i, k]
            mean[u, i] = first
            variance[u, i] = max(second - first * first, 0.0)


@kernel
def gather(weights, others, out):
    """The weighted sum of others' rows, out[n] = sum_j weights[n, j] others[j]: (n, m), (m, k), (n, k)."""
    out[:] = 0.0
    for n in range(weights.shape[0]):
        row = out[n]
        for j in range(weights.shape[1]):
            weight = weights[n, j]
            if weight != 0.0:
                other = others[j]
                for k in range(other.size):
                    row[k] += weight * other[k]


@kernel
def cells(
    observed, missing, mean, variance, cuts, table, limits, activity, activity_variance, base, by_user, by_item,
    user_spread, item_spread, work, slope, sharpness, activity_slope, user_bound, item_bound, user_mass, item_mass,
    user_push, item_push, cut_slope, base_slope, information,
):  # fmt: skip
    """Lower bound of every cell and its derivatives.

    Read: observed (U, I) int8, level of the revealed rating, -1 where there is none; missing, whether unrevealed cells
    count; mean, variance (U, I) of m; cuts (L - 1,); table of :func:`curves`, where curvature is looked for; limits
    (L,), the largest curvature of log P_l; activity, activity_variance (U, I) of g, the part of h that levels
    share; base (L,), z; by_user, by_item (U, L), (I, L), means of p and q; user_spread, item_spread (U, L), (I, L),
    exp(-variance / 2) of p and q. Scratch: work (4, L).

    Filled: slope, sharpness, activity_slope (U, I), the derivative by m, its curvature bound, the derivative by g;
    user_bound, item_bound (U,), (I,), sums of the cells' bounds; user_mass, item_mass (U, L), (I, L), expected numbers
    of cells at each level; user_push, item_push (U, L), (I, L), derivatives by p and q; cut_slope, base_slope (L - 1,),
    (L,), derivatives by cuts and z; information (2 L - 1, 2 L - 1), sum over cells of the outer product of the (cut, z)
    derivatives.
    """
    n_users, n_items = observed.shape
    n_levels = len(base)
    user_bound[:] = 0.0
    item_bound[:] = 0.0
    user_mass[:] = 0.0
    item_mass[:] = 0.0
    user_push[:] = 0.0
    item_push[:] = 0.0
    cut_slope[:] = 0.0
    base_slope[:] = 0.0
    information[:] = 0.0
    reveal, share, ratio, own = work[0], work[1], work[2], work[3]
    for u in range(n_users):
        for i in range(n_items):
            seen = observed[u, i]
            slope[u, i] = 0.0
            sharpness[u, i] = 0.0
            activity_slope[u, i] = 0.0
            if seen < 0 and not missing:
                continue
            m = mean[u, i]
            for level in range(n_levels):
                reveal[level] = 1.0 if seen == level else 0.0
                ratio[level] = 0.0
                if missing and (seen < 0 or seen == level):
                    h = base[level] + activity[u, i] + by_user[u, level] + by_item[i, level]
                    sign = -1.0 if seen < 0 else 1.0
                    probability = max(below(sign * h), SMALLEST)
                    ratio[level] = sign * _DENSITY * math.exp(-0.5 * h * h) / probability
                    reveal[level] = probability * user_spread[u, level] * item_spread[i, level]
            last, last_density, total, push = 0.0, 0.0, 0.0, 0.0
            for level in range(n_levels):
                up, density = 1.0, 0.0
                if level < n_levels - 1:
                    t = cuts[level] - m
                    up, density = below(t), _DENSITY * math.exp(-0.5 * t * t)
                    own[level] = density
                share[level] = max(up - last, SMALLEST) * reveal[level]
                total += share[level]
                push += (last_density - density) * reveal[level]
                last, last_density = up, density
            slope[u, i] = push / total
            sharp = limits[max(seen, 0)]
            if seen < 0:
                sharp = sharpest(table, reveal)
            sharpness[u, i] = sharp
            bound = math.log(total) - 0.5 * sharp * variance[u, i]
            if missing:
                bound -= 0.5 * activity_variance[u, i]
            user_bound[u] += bound
            item_bound[i] += bound
            g = 0.0
            for level in range(n_levels):
                probability = share[level] / total
                pull = probability * ratio[level]
                g += pull
                user_mass[u, level] += probability
                item_mass[i, level] += probability
                user_push[u, level] += pull
                item_push[i, level] += pull
                base_slope[level] += pull
                share[level] = pull
                if level < n_levels - 1:
                    own[level] *= (reveal[level] - reveal[level + 1]) / total
                    cut_slope[level] += own[level]
            activity_slope[u, i] = g
            for a in range(2 * n_levels - 1):
                left = own[a] if a < n_levels - 1 else share[a - n_levels + 1]
                for b in range(a + 1):
                    right = own[b] if b < n_levels - 1 else share[b - n_levels + 1]
                    information[a, b] += left * right
    for a in range(2 * n_levels - 1):
        for b in range(a):
            information[b, a] = information[a, b]
