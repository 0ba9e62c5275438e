"""Objectives of learning from logs, written plainly: one row after the other, from their definitions."""

from __future__ import annotations

import math

import numpy as np


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def row_values(rows, weights, model, clip):
    """Of rows (x, a, p, r): u = w (r - q(x, a)) + sum pi q, and w."""
    values, ratios = [], []
    for x, a, p, r in rows:
        pi = softmax(weights @ x)
        q = model @ x
        w = min(pi[a] / p, clip)
        values.append(w * (r - q[a]) + pi @ q)
        ratios.append(w)
    return np.array(values), np.array(ratios)


def snips(rows, weights, clip):
    """Sum w r / sum w, as a loss."""
    _, w = row_values(rows, weights, np.zeros_like(weights), clip)
    return -(w @ np.array([r for *_, r in rows])) / w.sum()


def doubly_robust(rows, weights, model, clip, variance):
    """What POEM minimises (Swaminathan & Joachims 2015, equation 12), as a loss; with a model, doubly robust."""
    u, _ = row_values(rows, weights, model, clip)
    return -u.mean() + variance * math.sqrt(u.var(ddof=1) / len(u))


def cross_entropy(rows, weights, costs):
    return -sum(c * math.log(softmax(weights @ x)[a]) for (x, a, _, _), c in zip(rows, costs, strict=True)) / len(rows)


def slopes(loss, weights, h=1e-6):
    """The gradient by central differences."""
    out = np.zeros_like(weights)
    for place in np.ndindex(*weights.shape):
        for sign in (1, -1):
            moved = weights.copy()
            moved[place] += sign * h
            out[place] += sign * loss(moved) / (2 * h)
    return out
