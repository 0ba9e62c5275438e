# mypy: ignore-errors
"""Jitted core of the table from user ids to slots: open addressing with linear probing."""

from __future__ import annotations

import numpy as np

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
