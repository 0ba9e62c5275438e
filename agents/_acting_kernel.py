# mypy: ignore-errors
"""Jitted core of acting: histories of views, the best items of a row of scores, draws from a distribution."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels.jit import inlined, kernel


@kernel
def append(pool, start, length, capacity, used, slots, items, first):
    """Append ``items[j]`` to the history of ``slots[j]`` for j >= ``first``.

    A history that outgrows its room is copied to the unused end of the pool, with twice the room. If that end is too
    short, the kernel stops: the caller enlarges the pool, and calls again with the event at which it stopped. Returns
    the number of events appended, those before ``first`` included, and the used length of the pool.
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
def draw_view(histories, slots, uniforms, n_items, actions, propensities):
    """Draw one of each user's views, all equally likely, and write its item and that item's share of the views.

    Where ``actions[j]`` is not negative it is kept, and only its probability is written. A user without views gets any
    item with equal probability.

    histories: pool, start, length; slots (n,) of the users; uniforms (n,); actions (n,) int32, -1 for those to be
    drawn; propensities (n,) float64.
    """
    pool, start, length = histories
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
def most_viewed(histories, slots, n_items, counts, ties, tied):
    """Write the number of each user's most viewed items to ``ties``, and the first of them, ascending, to ``tied``.

    ties (n_slots,) int64; tied (n_slots, t) int32; counts (n_items,) int32, zeros before and after the call.
    """
    pool, start, length = histories
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
        n_viewed = 0
        for i in range(first, first + n):
            item = pool[i]
            if counts[item] == top:
                # Insert the item into the ascending list of at most ``room`` lowest tied items.
                k = min(n_viewed, room)
                if n_viewed < room or item < tied[s, room - 1]:
                    if k == room:
                        k = room - 1
                    while k > 0 and tied[s, k - 1] > item:
                        tied[s, k] = tied[s, k - 1]
                        k -= 1
                    tied[s, k] = item
                n_viewed += 1
            counts[item] = 0  # also, so that further views of the item are not counted as ties
        ties[s] = n_viewed


_BLOCK = 64


@inlined
def best_of(row, slot, ties, tied):
    """Write the number of items with a row's largest score to ``ties[slot]``, and the first of them to ``tied``."""
    n = row.size
    n_in_eights = n - n % 8
    room = tied.shape[1]
    top = row[0]
    # Eight independent maxima, one per position modulo 8: the loop over a single one is not vectorised.
    m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = top
    for i in range(0, n_in_eights, 8):
        part = row[i : i + 8]
        if part[0] > m0:
            m0 = part[0]
        if part[1] > m1:
            m1 = part[1]
        if part[2] > m2:
            m2 = part[2]
        if part[3] > m3:
            m3 = part[3]
        if part[4] > m4:
            m4 = part[4]
        if part[5] > m5:
            m5 = part[5]
        if part[6] > m6:
            m6 = part[6]
        if part[7] > m7:
            m7 = part[7]
    top = max(max(max(m0, m4), max(m2, m6)), max(max(m1, m5), max(m3, m7)))
    for i in range(n_in_eights, n):
        if row[i] > top:
            top = row[i]
    n_best = 0
    # By blocks: counting equal scores is a vectorised loop, and few blocks have one whose index is to be stored.
    for begin in range(0, n, _BLOCK):
        block = row[begin : min(begin + _BLOCK, n)]
        here = 0
        for i in range(block.size):
            here += np.int64(block[i] == top)
        if here > 0 and n_best < room:
            k = n_best
            for i in range(block.size):
                if block[i] == top and k < room:
                    tied[slot, k] = begin + i
                    k += 1
        n_best += here
    ties[slot] = n_best


@kernel
def best(scores, rows, slots, ties, tied):
    """Write the number of items with the largest score of each slot to ``ties``, and the first of them to ``tied``.

    scores (r, n_items), of which row ``rows[j]`` belongs to ``slots[j]``; ties (n_slots,) int64; tied (n_slots, t)
    int32, the first t items, ascending.
    """
    for j in range(slots.size):
        best_of(scores[rows[j]], slots[j], ties, tied)


@kernel
def unranked(slots, ties, out):
    """Write the slots without a ranking (ties 0) to ``out``, each once, and return their number.

    Their ties become -1, so that a slot that occurs twice is written once; :func:`best` overwrites this.
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
    """Choose the tied item with index floor(uniform * ties) for each slot, and write 1 / ties as its propensity.

    If that index is beyond the stored items, the action is -1. Returns the number of such cases.
    """
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
def probability(slots, actions, ties, tied, n_items, out):
    """Write the probability of ``actions[j]`` for ``slots[j]``: 1 / ties if the item is tied, else 0.

    If the item is not stored, but not all tied items are, the probability is -1. Returns the number of such cases.
    """
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


@kernel
def draw(probabilities, uniforms, actions, propensities):
    """Draw the first item whose cumulative probability exceeds the uniform, and write it and its probability.

    If rounding leaves the total below the uniform, the last item with a positive probability is drawn.
    """
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
