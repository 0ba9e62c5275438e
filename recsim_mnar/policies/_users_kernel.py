# mypy: ignore-errors
"""Compiled cores of policies: the hash table of users' slots, and softmax distributions with draws from them."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels._rng_kernel import exp64
from recsim_mnar.kernels.jit import kernel

FIND = 0
ENTER = 1
LEAVE = 2

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: the multiplier of Fibonacci hashing (Knuth, TAOCP 3, section 6.4)."""


@kernel
def visit(mode, keys, places, shift, free, n_free, users, out):
    """Find, enter or remove each user in a hash table with open addressing and linear probing.

    The caller ensures that a slot is free for every user who may be new, and that the table never becomes full.

    Args:
        mode: FIND, ENTER or LEAVE.
        keys: (c,) int64 user in each cell, c = 2**(64 - shift).
        places: (c,) int32 slot of the user in each cell, -1 for an empty cell.
        shift: number of bits by which a hash is shifted to give a cell.
        free: (n_slots,) int32 stack of the unused slots, of which the first ``n_free`` entries are valid.
        n_free: number of unused slots.
        users: (n,) int64 ids.
        out: (n,), written to: slot of each user, -1 for a user who is not in the table.

    Returns:
        The new ``n_free``.
    """
    mask = np.int64(keys.size - 1)
    for j in range(users.size):
        user = users[j]
        at = np.int64((np.uint64(user) * _GOLDEN) >> shift)
        while places[at] >= 0 and keys[at] != user:
            at = (at + 1) & mask
        place = np.int64(places[at])
        if mode == ENTER and place < 0:
            n_free -= 1
            place = np.int64(free[n_free])
            keys[at] = user
            places[at] = place
        elif mode == LEAVE and place >= 0:
            free[n_free] = place
            n_free += 1
            # Close the hole, so that no search ends early at it: each following entry moves into the hole, unless its
            # own search begins behind the hole (deletion for linear probing, Knuth, TAOCP 3, algorithm 6.4R).
            hole = at
            probe = (at + 1) & mask
            while places[probe] >= 0:
                home = np.int64((np.uint64(keys[probe]) * _GOLDEN) >> shift)
                if ((probe - home) & mask) >= ((probe - hole) & mask):
                    keys[hole] = keys[probe]
                    places[hole] = places[probe]
                    hole = probe
                probe = (probe + 1) & mask
            places[hole] = -1
        out[j] = place
    return n_free


@kernel
def softmax_rows(scores, temperature, rows, kept, sums):
    """Write softmax(scores[j] / temperature) and the sums of its blocks of 64 items to row ``rows[j]`` of the results.

    Everything is summed in index order, so a row's bits do not depend on other rows.

    Args:
        scores: (n, p) float64 scores.
        temperature: positive divisor of the scores.
        rows: (n,) row of the results for each row of scores.
        kept: (m, p) probabilities, written to.
        sums: (m, b) sums of probabilities over each of b blocks of 64 items, written to.
    """
    n, p = scores.shape
    for j in range(n):
        row = scores[j]
        out = kept[rows[j]]
        top = row[0]
        for i in range(1, p):
            if row[i] > top:
                top = row[i]
        for i in range(p):
            out[i] = exp64((row[i] - top) / temperature)
        total = 0.0
        for i in range(p):
            total += out[i]
        for i in range(p):
            out[i] = out[i] / total
        for b in range(sums.shape[1]):
            s = 0.0
            for i in range(b * 64, min(b * 64 + 64, p)):
                s += out[i]
            sums[rows[j], b] = s


@kernel
def draw_rows(kept, sums, rows, uniforms, actions, propensities):
    """Draw an item from the distribution in row ``rows[j]`` of ``kept``, by inverting its cumulative sum at uniform j.

    The block is found first, by the sums of blocks, and then the item in it.

    Args:
        kept: (m, p) probabilities.
        sums: (m, b) their sums over blocks of 64 items.
        rows: (n,) row of each draw.
        uniforms: (n,) in [0, 1).
        actions: (n,), written to: the items drawn.
        propensities: (n,), written to: their probabilities.
    """
    p = kept.shape[1]
    n_blocks = sums.shape[1]
    for j in range(rows.size):
        row = kept[rows[j]]
        # Rounding may leave the sum off 1: the draw is scaled to it, and ends at the last item at the latest.
        total = 0.0
        for b in range(n_blocks):
            total += sums[rows[j], b]
        target = uniforms[j] * total
        b = 0
        while b < n_blocks - 1 and target >= sums[rows[j], b]:
            target -= sums[rows[j], b]
            b += 1
        i = b * 64
        last = min(i + 64, p) - 1
        while i < last and target >= row[i]:
            target -= row[i]
            i += 1
        actions[j] = i
        propensities[j] = row[i]
