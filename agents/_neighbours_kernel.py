"""Jitted core of the neighbourhood agents: item similarities, score updates, nearest users."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from recsim_mnar._jit import inlined, kernel


@inlined
def _kth_largest(values, n, k, histogram):
    """The k-th largest (k from 1) of the first n positive float32 given as their bits, and how many are larger.

    Bits of positive floats are ordered as the floats are: three histograms of 11, 11 and 10 bits find the value.
    """
    prefix = np.int64(0)
    above = np.int64(0)
    for level in range(3):
        low = np.int64(21 if level == 0 else (10 if level == 1 else 0))
        width = np.int64(10 if level == 2 else 11)
        size = np.int64(1) << width
        for b in range(size):
            histogram[b] = 0
        for i in range(n):
            bits = np.int64(values[i])
            if (bits >> (low + width)) == prefix:
                histogram[(bits >> low) & (size - 1)] += 1
        b = size - 1
        while above + histogram[b] < k:
            above += histogram[b]
            b -= 1
        prefix = (prefix << width) | b
    return prefix, above


@kernel
def similar_items(
    by_item,
    users,
    counts_by_item,
    by_user,
    items,
    counts_by_user,
    scale,
    k,
    include_self,
    first,
    last,
    work,
    out_items,
    out_values,
    n_out,
):
    """The k items most similar to each of items first..last-1 by cosine, equals by lower index; rows in index order.

    by_item, users, counts_by_item: the counts by columns (CSC); by_user, items, counts_by_user: by rows (CSR);
    counts_by_user is empty where all counts are 1; scale: 1 / norm of each column, float64. work = (dots (n_items,)
    integers of zeros, candidates (n_items,) int32, bits (n_items,) int32, histogram (2048,) int64, view of bits as
    float32). Row i is written at (i - first) of out_items and out_values (rows, k); n_out takes its length.
    """
    dots, candidates, bits, histogram, values = work
    binary = counts_by_user.size == 0
    for i in range(first, last):
        for a in range(by_item[i], by_item[i + 1]):
            user = users[a]
            c = dots.dtype.type(counts_by_item[a])
            # Unsigned indices: a signed one is tested for being negative at every step.
            begin = np.uint64(by_user[user])
            end = np.uint64(by_user[user + 1])
            if binary:
                for b in range(begin, end):
                    dots[np.uint64(items[b])] += 1
            else:
                for b in range(begin, end):
                    dots[np.uint64(items[b])] += c * counts_by_user[b]
        if not include_self:
            dots[i] = 0
        n = 0
        for j in range(dots.size):
            if dots[j] != 0:
                candidates[n] = j
                values[n] = np.float32(np.float64(dots[j]) * (scale[i] * scale[j]))
                dots[j] = 0
                n += 1
        row = i - first
        if n <= k:
            for t in range(n):
                out_items[row, t] = candidates[t]
                out_values[row, t] = values[t]
            n_out[row] = n
            continue
        threshold, above = _kth_largest(bits, n, k, histogram)
        equal = k - above
        m = 0
        for t in range(n):
            b = np.int64(bits[t])
            if b > threshold or (b == threshold and equal > 0):
                if b == threshold:
                    equal -= 1
                out_items[row, m] = candidates[t]
                out_values[row, m] = values[t]
                m += 1
        n_out[row] = m


@kernel
def add_rows(states, slots, items, starts, columns, values):
    """states[slots[j]] += row items[j] of a CSR matrix, one j after another."""
    for j in range(slots.size):
        state = states[slots[j]]
        item = items[j]
        for t in range(np.uint64(starts[item]), np.uint64(starts[item + 1])):
            state[np.uint64(columns[t])] += values[t]


@kernel
def user_scores(
    pool,
    start,
    length,
    slots,
    own_row,
    by_item,
    users,
    counts_by_item,
    by_user,
    items,
    counts_by_user,
    scale,
    k,
    work,
    out,
):
    """Scores of all items from the k training users most similar to each slot's user: sum of cosine times their counts.

    pool, start, length: the histories; own_row (n_slots,) the slot's own training row, which is left out (-1: none);
    the counts as in ``similar_items``, with ``scale`` = 1 / norm of each row. work = (dots (n_users,) int64 of zeros,
    touched (n_users,) int32, own counts (n_items,) int32 of zeros, nearest (k,) int32, similarity (k,) float64).
    Equally similar users are taken by lower row. out (n, n_items) float32 is overwritten.
    """
    dots, touched, own, nearest, similarity = work
    for j in range(slots.size):
        slot = slots[j]
        row = out[j]
        for i in range(row.size):
            row[i] = 0.0
        first = start[slot]
        last = first + length[slot]
        n = 0
        for a in range(first, last):
            item = pool[a]
            own[item] += 1
            for b in range(np.uint64(by_item[item]), np.uint64(by_item[item + 1])):
                user = np.uint64(users[b])
                before = dots[user]
                if before == 0:
                    touched[n] = users[b]
                    n += 1
                dots[user] = before + np.int64(counts_by_item[b])
        square = np.int64(0)
        for a in range(first, last):
            item = pool[a]
            square += np.int64(own[item]) * np.int64(own[item])
            own[item] = 0
        norm = np.sqrt(np.float64(square))
        found = 0
        for t in range(n):
            user = np.int64(touched[t])
            s = np.float64(dots[np.uint64(user)]) * scale[np.uint64(user)]
            dots[np.uint64(user)] = 0
            if found == k and s < similarity[k - 1]:
                continue
            if user == own_row[slot]:
                continue
            at = found
            if found == k:
                at = k - 1
                if s < similarity[at] or (s == similarity[at] and user > nearest[at]):
                    continue
            while at > 0 and (s > similarity[at - 1] or (s == similarity[at - 1] and user < nearest[at - 1])):
                similarity[at] = similarity[at - 1]
                nearest[at] = nearest[at - 1]
                at -= 1
            similarity[at] = s
            nearest[at] = user
            if found < k:
                found += 1
        for t in range(found):
            weight = np.float32(similarity[t] / norm)
            user = nearest[t]
            for b in range(np.uint64(by_user[user]), np.uint64(by_user[user + 1])):
                row[np.uint64(items[b])] += weight * np.float32(counts_by_user[b])
