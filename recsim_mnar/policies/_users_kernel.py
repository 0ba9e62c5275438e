# mypy: ignore-errors
"""Jitted cores of what policies hold of users: their slots, by open addressing with linear probing; soft rankings."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels._rng_kernel import exp64
from recsim_mnar.kernels.jit import kernel

FIND = 0
ENTER = 1
LEAVE = 2

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@kernel
def visit(mode, keys, places, shift, free, n_free, users, out):
    """Find, enter or remove each user; ``out`` takes the slot, -1 for a user who is not in the table.

    keys (c,) int64 and places (c,) int32, c = 2**(64 - shift), are the table (place -1: empty); free (n_slots,) int32
    is a stack of the slots not in use, its first ``n_free`` entries valid. Returns the new ``n_free``; the caller makes
    sure that a slot is free for every user who may be new, and that the table never fills.
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
            # Entries behind the hole move up, unless that would put them before the place where their search begins.
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
    """Softmax of each row j of scores / temperature into row ``rows[j]`` of kept, and sums of its blocks of items.

    scores (n, p), kept (m, p), sums (m, b), all float64; the p items fall into b blocks of 64. Everything is summed in
    index order, so a row stands alone.
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
    """Item at which the running sum of row ``rows[j]`` of kept passes uniform j, and its probability, for each j."""
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
