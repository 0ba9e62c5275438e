"""Plain twins of the factorisation's kernels."""

import math

import numpy as np


def loss_and_gradient(objective, x):
    """Value and gradient of the penalised objective, rating by rating."""
    v, w, a, b = (part.copy() for part in objective.parts(x))
    c, form = x[-1], objective.form
    gradient = np.zeros_like(x)
    gv, gw, ga, gb = objective.parts(gradient)
    value = 0.0
    for n in range(len(objective.values)):
        u, i = objective.users[n], objective.items[n]
        e = sum(v[u, k] * w[i, k] for k in range(v.shape[1])) + a[u] + b[i] + c - objective.values[n]
        weight = objective.weights[n]
        if form.loss == "mse":
            value += weight * e * e
            t = 2 * weight * e
        else:
            root = math.sqrt(e * e + form.smoothing**2)
            value += weight * (root - form.smoothing)
            t = weight * e / root
        gv[u] += t * w[i]
        gw[i] += t * v[u]
        ga[u] += t
        gb[i] += t
        gradient[-1] += t
    value += form.penalty * ((v**2).sum() + (w**2).sum())
    gv += 2 * form.penalty * v
    gw += 2 * form.penalty * w
    if form.biases == "regularised":
        value += form.penalty * ((a**2).sum() + (b**2).sum())
        ga += 2 * form.penalty * a
        gb += 2 * form.penalty * b
    if form.biases == "none":
        ga[:] = 0
        gb[:] = 0
    return value, gradient


def solve_row(others, ratings, weights, offset, f, fb, penalty, bias_penalty):
    """One row of alternating least squares by the normal equations."""
    features = np.concatenate([f[others], np.ones((len(others), 1))], axis=1)
    gram = (features * weights[:, None]).T @ features + np.diag([penalty] * f.shape[1] + [bias_penalty])
    return np.linalg.solve(gram, features.T @ (weights * (ratings - offset - fb[others])))
