"""Jitted core of the factor agents: scores of all items from a user's vector."""
# mypy: ignore-errors

from __future__ import annotations

from recsim_mnar._jit import kernel


@kernel
def project(states, slots, factors, out):
    """out[j] = states[slots[j]] @ factors in float32, summed in the order of the k rows of factors; 4 divides k."""
    for j in range(slots.size):
        state = states[slots[j]]
        row = out[j]
        for i in range(row.size):
            row[i] = 0.0
        for first in range(0, state.size, 4):
            a = state[first]
            b = state[first + 1]
            c = state[first + 2]
            d = state[first + 3]
            fa = factors[first]
            fb = factors[first + 1]
            fc = factors[first + 2]
            fd = factors[first + 3]
            for i in range(row.size):
                row[i] = (((row[i] + a * fa[i]) + b * fb[i]) + c * fc[i]) + d * fd[i]
