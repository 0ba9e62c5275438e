# mypy: ignore-errors
"""Jitted core of logistic propensities: likelihood and gradient of a bilinear model with offsets."""

from __future__ import annotations

import math

from recsim_mnar.kernels.jit import kernel


@kernel
def likelihood(logits, observed, mask, residual):
    """Sum of log(1 + exp(z)) - o z over the cells with mask = 1; residual = sigma(z) - o there, else 0."""
    loss = 0.0
    for u in range(logits.shape[0]):
        row = logits[u]
        for i in range(row.size):
            if mask[u, i] == 0:
                residual[u, i] = 0.0
                continue
            z = row[i]
            t = math.exp(-abs(z))
            loss += max(z, 0.0) + math.log1p(t) - observed[u, i] * z
            residual[u, i] = (1.0 / (1.0 + t) if z >= 0.0 else t / (1.0 + t)) - observed[u, i]
    return loss
