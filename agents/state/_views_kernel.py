# mypy: ignore-errors
"""Jitted core of the users' view histories, and of the policies that act by view counts."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels.jit import kernel


@kernel
def append(pool, start, length, capacity, used, slots, items, first):
    """Append ``items[j]`` to the history of ``slots[j]`` for j >= ``first``; returns (events taken, pool used).

    A history that outgrows its room moves to the end of the pool with twice the room. Where the pool has none left the
    kernel stops, and goes on from there in a larger pool.
    """
    for j in range(first, slots.size):
        s = slots[j]
        n = length[s]
        if n == capacity[s]:
            room = max(2 * n, 8)
            if used + room > pool.size:
                return j, used
            old = start[s]
            for i in range(n):
                pool[used + i] = pool[old + i]
            start[s] = used
            capacity[s] = room
            used += room
        pool[start[s] + n] = items[j]
        length[s] = n + 1
    return slots.size, used


@kernel
def draw_view(pool, start, length, slots, uniforms, n_items, actions, propensities):
    """Take one of the user's views, each equally likely; where ``actions`` is >= 0 already, only its probability."""
    for j in range(slots.size):
        s = slots[j]
        n = length[s]
        if n == 0:
            if actions[j] < 0:
                actions[j] = min(np.int64(uniforms[j] * n_items), n_items - 1)
            propensities[j] = 1.0 / n_items
            continue
        first = start[s]
        if actions[j] < 0:
            actions[j] = pool[first + min(np.int64(uniforms[j] * n), n - 1)]
        action = actions[j]
        count = 0
        for i in range(first, first + n):
            if pool[i] == action:
                count += 1
        propensities[j] = count / n


@kernel
def most_viewed(pool, start, length, slots, n_items, counts, ties, tied):
    """Each user's most viewed items: how many share the largest count, and the first of them in index order.

    counts: (n_items,) int32 of zeros, and zeros again afterwards.
    """
    room = tied.shape[1]
    for j in range(slots.size):
        s = slots[j]
        n = length[s]
        first = start[s]
        if n == 0:
            ties[s] = n_items
            continue
        top = 0
        for i in range(first, first + n):
            item = pool[i]
            counts[item] += 1
            if counts[item] > top:
                top = counts[item]
        found = 0
        for i in range(first, first + n):
            item = pool[i]
            if counts[item] == top:
                k = min(found, room)
                if found < room or item < tied[s, room - 1]:
                    if k == room:
                        k = room - 1
                    while k > 0 and tied[s, k - 1] > item:
                        tied[s, k] = tied[s, k - 1]
                        k -= 1
                    tied[s, k] = item
                found += 1
            counts[item] = 0
        ties[s] = found
