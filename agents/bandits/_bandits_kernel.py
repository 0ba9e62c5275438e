# mypy: ignore-errors
"""Jitted core of the bandits: linear posteriors by arm, and the chance of each arm to be the best."""

from __future__ import annotations

import math

from recsim_mnar.kernels._rng_kernel import exp64
from recsim_mnar.kernels.jit import inlined, kernel

_BOUND = 5.0
"""Standard deviations around an arm's mean within which it can be the best."""
_MOST_NEWTON = 60


@inlined
def nonzeros(row, places):
    """Places of the entries of ``row`` that are not 0, written to ``places``; returns how many."""
    n = 0
    for k in range(row.size):
        if row[k] != 0.0:
            places[n] = k
            n += 1
    return n


@kernel
def predict(x, inverse, theta, places, means, widths):
    """Mean x . theta_a and width sqrt(x' V_a x) of every arm; both (n, P).

    x (n, d); inverse (P, d, d) is V; theta (P, d); places (d,) int64 scratch.
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
    """Write V x to ``v``; returns x' V x."""
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
    """V -= factor v v'."""
    for i in range(v.size):
        f = factor * v[i]
        for k in range(v.size):
            v_inverse[i, k] -= f * v[k]


@kernel
def learn_linear(x, actions, rewards, inverse, theta, places, v):
    """Recursive least squares, row by row: theta_a and V_a of the arm shown, by the formula of Sherman and Morrison.

    x (n, d); inverse (P, d, d); theta (P, d); places (d,) int64 and v (d,) scratch.
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
    """Laplace's approximation, row by row: the mode of Gaussian times logistic likelihood, and the curvature there.

    The mode lies at theta + c V x with c = r - sigma(x . theta + c x'Vx), which Newton's method within a bracket finds.
    Arguments as :func:`learn_linear`; rewards in [0, 1].
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
            if not low <= c <= high:
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
    """Standard normal distribution function, absolute error below 1e-12 (Hart 1968, algorithm 5666, without its tail).

    Arguments are held within [-7.07, 7.07]. Nothing branches, so that a loop over it is vectorised.
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
    """``out[i]`` = :func:`normal_cdf` of ``x[i]``."""
    for i in range(x.size):
        out[i] = normal_cdf(x[i])


@inlined
def cdf_at(edge, means, scales, out):
    """Write P(X_a <= edge) of every arm to ``out``; returns their product, P(the best <= edge)."""
    for t in range(out.size):
        out[t] = normal_cdf((edge - means[t]) * scales[t])
    product = 1.0
    for t in range(out.size):
        product *= out[t]
    return product


@inlined
def refine(edges, best, n_old, n_new, spare):
    """Refine ``n_old`` edges to ``n_new``: half of the cells by the best arm's probability, half by length.

    best (n_old,) P(the best <= edge). The measure that is cut into equal parts is the mean of the two.
    """
    low = edges[0]
    high = edges[n_old - 1]
    mass = best[n_old - 1] - best[0]
    length = high - low
    cell = 0
    done = 0.0
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
    """P(X_a > X_b for all b) of independent Gaussians, one row; see :func:`best_arms`."""
    edges = nodes[0]
    spare = nodes[1]
    best = nodes[2]
    low = means[0] - _BOUND * widths[0]
    high = means[0] + _BOUND * widths[0]
    for a in range(means.size):
        low = max(low, means[a] - _BOUND * widths[a])
        high = max(high, means[a] + _BOUND * widths[a])
        out[a] = 0.0
    n = 0
    for a in range(means.size):
        if means[a] + _BOUND * widths[a] > low:
            active[n] = a
            arms[0, n] = means[a]
            arms[1, n] = 1.0 / widths[a]
            n += 1
    m = arms[0, :n]
    scales = arms[1, :n]
    lower = arms[2, :n]
    upper = arms[3, :n]
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
    """Chance of each arm to be the largest of independent Gaussians, each row normalised; means, widths, out (n, P).

    With F_a the distribution functions, the integral of prod_{b != a} F_b dF_a is a sum over cells of the increase of
    F_a times the product of the others' means at the cell's edges: no arm's mass is lost, however narrow. The edges
    are placed in stages: evenly at first, then where the best arm lies. An arm all of which, but 3e-7 of it, lies below
    such a part of another has the chance 0.

    sizes (stages,) int64: number of edges of each; nodes (3, the largest of them) and arms (5, P) float64, active (P,)
    int64: scratch. Widths must be above 0.
    """
    for j in range(means.shape[0]):
        best_arm(means[j], widths[j], sizes, nodes, arms, active, out[j])
