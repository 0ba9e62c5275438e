# mypy: ignore-errors
"""Jitted core of acting by a distribution over all items."""

from __future__ import annotations

from recsim_mnar.kernels.jit import kernel


@kernel
def draw(probabilities, uniforms, actions, propensities):
    """The first item whose cumulative probability passes the uniform, and its probability; an item of none never."""
    for j in range(actions.size):
        row = probabilities[j]
        total = 0.0
        action = -1
        for a in range(row.size):
            if row[a] > 0.0:
                total += row[a]
                action = a
                if uniforms[j] < total:
                    break
        actions[j] = action
        propensities[j] = row[action]
