# mypy: ignore-errors
"""Jitted core of learning from logs: a softmax policy's probabilities, objectives and their gradients."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels._rng_kernel import exp64, log64
from recsim_mnar.kernels.jit import inlined, kernel


@inlined
def softmax(features, weights, out):
    """Write the softmax of the logits weights @ features to ``out`` (P,); weights (P, D), features (D,)."""
    top = -np.inf
    for a in range(out.size):
        z = 0.0
        for d in range(features.size):
            z += weights[a, d] * features[d]
        out[a] = z
        top = max(top, z)
    total = 0.0
    for a in range(out.size):
        out[a] = exp64(out[a] - top)
        total += out[a]
    for a in range(out.size):
        out[a] /= total


@kernel
def probabilities(features, weights, out):
    """Write the softmax policy's probabilities to ``out`` (n, P); features (n, D), weights (P, D)."""
    for j in range(features.shape[0]):
        softmax(features[j], weights, out[j])


@kernel
def weighted(
    batch, starts, features, actions, propensities, rewards, weights, model, settings, scratch, sums, gradient
):
    """Add the sums of an importance-weighted objective over the rows of some contexts, and the gradient of sum k u.

    With pi the softmax policy, w = min(pi(a|x) / p, clip) and q(x, a) = model_a . x, a row's term is
    u = w (r - q(x, a)) + sum_b pi(b|x) q(x, b). Its factor k = -1 + slope (u - centre) is treated as a constant, as the
    tangent of the standard error makes it; slope 0 gives the gradient of -sum u.

    batch (m,) contexts; starts (C + 1,) index of each context's first row; features (C, D) regressors x; actions,
    propensities, rewards (n,); weights and model (P, D); settings: clip, slope, centre; scratch (3, P). Added to: sums
    (5,) of u, u^2, w, w r, and the number of rows; gradient (P, D).
    """
    clip = settings[0]
    slope = settings[1]
    centre = settings[2]
    pi = scratch[0]
    q = scratch[1]
    towards = scratch[2]
    for b in range(batch.size):
        c = batch[b]
        x = features[c]
        softmax(x, weights, pi)
        value = 0.0  # sum over b of pi(b|x) q(x, b)
        for a in range(pi.size):
            z = 0.0
            for d in range(x.size):
                z += model[a, d] * x[d]
            q[a] = z
            value += pi[a] * z
            towards[a] = 0.0
        through = 0.0  # sum of ``towards`` over all actions
        factors = 0.0  # sum of k over the context's rows
        for i in range(starts[c], starts[c + 1]):
            a = actions[i]
            w = pi[a] / propensities[i]
            kept = w <= clip
            if not kept:
                w = clip
            u = w * (rewards[i] - q[a]) + value
            k = slope * (u - centre) - 1.0
            if kept:  # a clipped weight is constant, without a gradient
                part = k * w * (rewards[i] - q[a])
                towards[a] += part
                through += part
            factors += k
            sums[0] += u
            sums[1] += u * u
            sums[2] += w
            sums[3] += w * rewards[i]
            sums[4] += 1.0
        for a in range(pi.size):
            # Derivative of the sum of k u by the logit of action a.
            push = towards[a] - through * pi[a] + factors * pi[a] * (q[a] - value)
            for d in range(x.size):
                gradient[a, d] += push * x[d]


@kernel
def cross_entropy(batch, starts, features, actions, costs, weights, scratch, sums, gradient):
    """Add the sum of -cost log pi(a|x) over the rows of some contexts to sums[0], and its gradient to ``gradient``.

    The number of rows is added to sums[4]. costs (n,); the other arguments are those of :func:`weighted`.
    """
    pi = scratch[0]
    towards = scratch[1]
    for b in range(batch.size):
        c = batch[b]
        x = features[c]
        total = 0.0
        for a in range(towards.size):
            towards[a] = 0.0
        for i in range(starts[c], starts[c + 1]):
            towards[actions[i]] += costs[i]
            total += costs[i]
        sums[4] += starts[c + 1] - starts[c]
        if total == 0.0:  # costs are not negative: all are 0, and so is the gradient
            continue
        softmax(x, weights, pi)
        for a in range(pi.size):
            if towards[a] != 0.0:
                sums[0] -= towards[a] * log64(max(pi[a], 1e-300))
            push = total * pi[a] - towards[a]  # derivative by the logit of action a
            for d in range(x.size):
                gradient[a, d] += push * x[d]
