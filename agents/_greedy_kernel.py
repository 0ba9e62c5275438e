"""Jitted core of acting greedily: the best items of a row of scores, and the choice among tied ones."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from recsim_mnar._jit import inlined, kernel
from recsim_mnar._rng_kernel import bits_from_double, double_from_bits

_BLOCK = 64
_NOT_SIGN = np.int64(0x7FFFFFFFFFFFFFFF)
_LOWEST = np.int64(-0x8000000000000000)


@inlined
def best_of(row, slot, ties, tied):
    """How many items share the largest score of a row, and the first of them in index order: the slot's ties."""
    n = row.size
    room = tied.shape[1]
    # The order of floats as integers: a maximum of these vectorises, one of floats does not. No number is below all.
    largest = _LOWEST
    for i in range(n):
        score = np.float64(row[i])
        bits = bits_from_double(score)
        key = bits ^ ((bits >> np.int64(63)) & _NOT_SIGN)
        largest = max(largest, key if score == score else _LOWEST)
    top = row.dtype.type(double_from_bits(largest ^ ((largest >> np.int64(63)) & _NOT_SIGN)))
    found = 0
    for begin in range(0, n, _BLOCK):
        block = row[begin : min(begin + _BLOCK, n)]
        here = 0
        for i in range(block.size):
            here += np.int64(block[i] == top)
        if here > 0 and found < room:
            k = found
            for i in range(block.size):
                if block[i] == top and k < room:
                    tied[slot, k] = begin + i
                    k += 1
        found += here
    ties[slot] = found


@kernel
def best(scores, rows, slots, ties, tied):
    """Of each row of scores: how many items share the largest, and the first of them in index order.

    scores (r, n_items), row ``rows[j]`` being that of ``slots[j]``; ties (n_slots,) int64; tied (n_slots, t)
    int32.
    """
    for j in range(slots.size):
        best_of(scores[rows[j]], slots[j], ties, tied)


@kernel
def unranked(slots, ties, out):
    """Write each of the slots whose ties are 0 once, in the order of their first places; returns how many there are.

    Their ties become -1, which :func:`best` overwrites.
    """
    n = 0
    for j in range(slots.size):
        slot = slots[j]
        if ties[slot] == 0:
            ties[slot] = -1
            out[n] = slot
            n += 1
    return n


@kernel
def choose(slots, uniforms, ties, tied, n_items, actions, propensities):
    """The floor(u * ties)-th tied item; returns how many lie beyond those listed (their action is -1)."""
    room = tied.shape[1]
    open_cases = 0
    for j in range(slots.size):
        slot = slots[j]
        n = ties[slot]
        k = min(np.int64(uniforms[j] * n), n - 1)
        propensities[j] = 1.0 / n
        if n == n_items:
            actions[j] = k
        elif k < room:
            actions[j] = tied[slot, k]
        else:
            actions[j] = -1
            open_cases += 1
    return open_cases


@kernel
def chance(slots, actions, ties, tied, n_items, out):
    """Probability of given actions; returns how many users have more ties than are listed (theirs stays -1)."""
    room = tied.shape[1]
    open_cases = 0
    for j in range(slots.size):
        slot = slots[j]
        n = ties[slot]
        out[j] = 0.0
        if n == n_items:
            out[j] = 1.0 / n
            continue
        for k in range(min(n, room)):
            if tied[slot, k] == actions[j]:
                out[j] = 1.0 / n
        if n > room and out[j] == 0.0:
            out[j] = -1.0
            open_cases += 1
    return open_cases
