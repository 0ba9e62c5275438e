# mypy: ignore-errors
"""Jitted core of the bandits: linear posteriors by arm, and the chance of each arm to be the best."""

from __future__ import annotations

import math

from recsim_mnar.kernels._rng_kernel import exp64
from recsim_mnar.kernels.jit import inlined, kernel

_BOUND = 5.0
"""Number of standard deviations around an arm's mean beyond which its distribution is neglected."""
_MOST_NEWTON = 60
"""Largest number of Newton steps; bisection of the bracket alone would need about 50."""


@inlined
def nonzeros(row, places):
    """Write the indices of the entries of ``row`` that are not 0 to ``places``, and return their number."""
    n = 0
    for k in range(row.size):
        if row[k] != 0.0:
            places[n] = k
            n += 1
    return n


@kernel
def predict(x, inverse, theta, places, means, widths):
    """Compute the mean x . theta_a and the standard deviation sqrt(x' V_a x) of every arm a at n contexts x.

    x (n, d); inverse (P, d, d), V_a of each arm; theta (P, d); places (d,) int64 scratch; means and widths (n, P) are
    written. Contexts have few entries that are not 0, so loops run over these; V_a is symmetric, so each product of two
    entries is computed once.
    """
    for j in range(x.shape[0]):
        row = x[j]
        n = nonzeros(row, places)
        for a in range(theta.shape[0]):
            m = 0.0
            q = 0.0
            for s in range(n):
                i = places[s]
                m += row[i] * theta[a, i]
                part = 0.0
                for t in range(s):
                    part += row[places[t]] * inverse[a, i, places[t]]
                q += row[i] * (row[i] * inverse[a, i, i] + 2.0 * part)
            means[j, a] = m
            widths[j, a] = math.sqrt(max(q, 0.0))


@inlined
def towards(row, n, places, v, v_inverse):
    """Write V x to ``v``, and return x' V x; x is ``row``, whose n entries other than 0 are at ``places``."""
    q = 0.0
    for i in range(v.size):
        total = 0.0
        for s in range(n):
            total += row[places[s]] * v_inverse[i, places[s]]
        v[i] = total
    for s in range(n):
        q += row[places[s]] * v[places[s]]
    return q


@inlined
def shrink(v_inverse, v, factor):
    """Subtract factor v v' from the matrix V, ``v_inverse`` (d, d), in place."""
    for i in range(v.size):
        f = factor * v[i]
        for k in range(v.size):
            v_inverse[i, k] -= f * v[k]


@kernel
def learn_linear(x, actions, rewards, inverse, theta, places, v):
    """Update the ridge regression of the recommended arm by each of n rewards, one after another.

    Recursive least squares: theta_a, and V_a by the formula of Sherman and Morrison. x (n, d); inverse (P, d, d), the
    V_a, and theta (P, d) are changed; places (d,) int64 and v (d,) are scratch.
    """
    for j in range(actions.size):
        a = actions[j]
        row = x[j]
        n = nonzeros(row, places)
        q = towards(row, n, places, v, inverse[a])
        guess = 0.0
        for s in range(n):
            guess += row[places[s]] * theta[a, places[s]]
        step = (rewards[j] - guess) / (1.0 + q)
        for i in range(v.size):
            theta[a, i] += step * v[i]
        shrink(inverse[a], v, 1.0 / (1.0 + q))


@kernel
def learn_logistic(x, actions, rewards, inverse, theta, places, v):
    """Update the Gaussian posterior of the recommended arm's logistic model by each of n rewards, one after another.

    Laplace's approximation: the new mean is the mode of Gaussian prior times logistic likelihood, and the new precision
    the curvature there. The mode is at theta + c V x, where the number c solves c = r - sigma(x . theta + c x'Vx); it
    lies between r - 1 and r, and Newton's method within this bracket finds it. The arguments are those of
    :func:`learn_linear`, with rewards in [0, 1].
    """
    for j in range(actions.size):
        a = actions[j]
        row = x[j]
        r = rewards[j]
        n = nonzeros(row, places)
        q = towards(row, n, places, v, inverse[a])
        start = 0.0
        for s in range(n):
            start += row[places[s]] * theta[a, places[s]]
        low = r - 1.0
        high = r
        c = 0.5 * (low + high)
        p = 0.5
        for _ in range(_MOST_NEWTON):
            p = 1.0 / (1.0 + exp64(-(start + c * q)))
            f = c - r + p
            if f > 0.0:
                high = c
            else:
                low = c
            step = f / (1.0 + q * p * (1.0 - p))
            c -= step
            if not low <= c <= high:  # Newton's step left the bracket: bisect it
                c = 0.5 * (low + high)
            if abs(step) < 1e-15:
                break
        p = 1.0 / (1.0 + exp64(-(start + c * q)))
        for i in range(v.size):
            theta[a, i] += c * v[i]
        h = p * (1.0 - p)
        shrink(inverse[a], v, h / (1.0 + h * q))


@inlined
def normal_cdf(x):
    """Compute the standard normal distribution function, with an absolute error below 1e-12.

    The rational approximation is algorithm 5666 of Hart 1968, without the separate formula for the tails: arguments are
    clipped to [-7.07, 7.07]. There are no branches, so that a loop of calls is vectorised.
    """
    z = min(abs(x), 7.07)
    top = 3.52624965998911e-02
    top = top * z + 7.00383064443688e-01
    top = top * z + 6.37396220353165
    top = top * z + 3.3912866078383e01
    top = top * z + 1.12079291497871e02
    top = top * z + 2.21213596169931e02
    top = top * z + 2.20206867912376e02
    low = 8.83883476483184e-02
    low = low * z + 1.75566716318264
    low = low * z + 1.6064177579207e01
    low = low * z + 8.67807322029461e01
    low = low * z + 2.96564248779674e02
    low = low * z + 6.37333633378831e02
    low = low * z + 7.93826512519948e02
    low = low * z + 4.40413735824752e02
    tail = exp64(-0.5 * z * z) * top / low
    return 0.5 + math.copysign(0.5 - tail, x)


@kernel
def fill_normal_cdf(x, out):
    """Write :func:`normal_cdf` of each ``x[i]`` to ``out[i]``."""
    for i in range(x.size):
        out[i] = normal_cdf(x[i])


@inlined
def cdf_at(edge, means, scales, out):
    """Write P(X_a <= edge) of every arm to ``out``, and return their product, P(largest X <= edge).

    scales are 1 / standard deviation. Two loops, because the first one is vectorised without the product.
    """
    for t in range(out.size):
        out[t] = normal_cdf((edge - means[t]) * scales[t])
    product = 1.0
    for t in range(out.size):
        product *= out[t]
    return product


@inlined
def refine(edges, best, n_old, n_new, spare):
    """Replace the ``n_old`` edges of cells by ``n_new`` edges that are denser where the best arm's value lies.

    The interval is cut into parts of equal measure, which is the mean of two measures of total 1: the probability of
    the largest value, given at the old edges by ``best`` (P(largest <= edge)), and the length. ``spare`` is scratch.
    """
    low = edges[0]
    high = edges[n_old - 1]
    mass = best[n_old - 1] - best[0]
    length = high - low
    cell = 0  # cell of the old edges in which the next new edge lies
    done = 0.0  # measure of the cells before it
    width = 0.5 * (edges[1] - edges[0]) / length + 0.5 * (best[1] - best[0]) / mass
    for g in range(1, n_new - 1):
        probability_wanted = g / (n_new - 1.0)
        while done + width < probability_wanted and cell < n_old - 2:
            done += width
            cell += 1
            width = 0.5 * (edges[cell + 1] - edges[cell]) / length + 0.5 * (best[cell + 1] - best[cell]) / mass
        share = min(max((probability_wanted - done) / width, 0.0), 1.0)
        spare[g] = edges[cell] + share * (edges[cell + 1] - edges[cell])
    spare[0] = low
    spare[n_new - 1] = high
    for g in range(n_new):
        edges[g] = spare[g]


@inlined
def best_arm(means, widths, sizes, nodes, arms, active, out):
    """Write the probability that each arm is the largest of independent Gaussians to ``out`` (P,); see best_arms."""
    edges = nodes[0]
    spare = nodes[1]
    best = nodes[2]
    # Between the largest of the arms' lower bounds, below which no arm is the largest, and the largest upper bound.
    low = means[0] - _BOUND * widths[0]
    high = means[0] + _BOUND * widths[0]
    for a in range(means.size):
        low = max(low, means[a] - _BOUND * widths[a])
        high = max(high, means[a] + _BOUND * widths[a])
        out[a] = 0.0
    n = 0  # arms that can be the largest
    for a in range(means.size):
        if means[a] + _BOUND * widths[a] > low:
            active[n] = a
            arms[0, n] = means[a]
            arms[1, n] = 1.0 / widths[a]
            n += 1
    m = arms[0, :n]
    scales = arms[1, :n]
    lower = arms[2, :n]  # distribution functions at the lower edge of a cell
    upper = arms[3, :n]  # and at its upper edge
    chance = arms[4, :n]
    n_edges = sizes[0]
    for g in range(n_edges):
        edges[g] = low + (high - low) * (g / (n_edges - 1.0))
    for stage in range(1, sizes.size):
        for g in range(n_edges):
            best[g] = cdf_at(edges[g], m, scales, lower)
        refine(edges, best, n_edges, sizes[stage], spare)
        n_edges = sizes[stage]
    cdf_at(edges[0], m, scales, lower)
    for t in range(n):
        chance[t] = 0.0
    for g in range(1, n_edges):
        cdf_at(edges[g], m, scales, upper)
        product = 1.0
        for t in range(n):
            product *= 0.5 * (lower[t] + upper[t])
        for t in range(n):
            chance[t] += (upper[t] - lower[t]) * product / (0.5 * (lower[t] + upper[t]))
            lower[t] = upper[t]
    total = 0.0
    for t in range(n):
        total += chance[t]
    for t in range(n):
        out[active[t]] = chance[t] / total


@kernel
def best_arms(means, widths, sizes, nodes, arms, active, out):
    """Write the probability that each arm is the largest of independent Gaussians to ``out`` (n, P), rows sum to 1.

    With F_a the distribution functions, the probability is the integral of prod_{b != a} F_b dF_a. It is computed as a
    sum over cells: the increase of F_a times the product of the other F_b, each averaged over the cell's two edges. So
    no probability of an arm is lost, however narrow its distribution is. The edges are placed in stages: evenly at
    first, then denser where the largest value lies. An arm gets 0 if its mean plus 5 standard deviations is below the
    mean minus 5 standard deviations of another one.

    means (n, P); widths (n, P) standard deviations, above 0; sizes (stages,) int64, number of edges in each stage;
    scratch: nodes (3, largest size) and arms (5, P) float64, active (P,) int64.
    """
    for j in range(means.shape[0]):
        best_arm(means[j], widths[j], sizes, nodes, arms, active, out[j])
