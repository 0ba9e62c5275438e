# mypy: ignore-errors
"""Jitted core of the neighbourhood agents: similarities, score updates, nearest users, and scores without one view."""

from __future__ import annotations

import numpy as np

from recsim_mnar.agents._acting_kernel import best_of
from recsim_mnar.kernels.jit import inlined, kernel, spliced

BLOCK = 32


@inlined
def _kth_largest(values, n, k):
    """The k-th largest (k from 1) of the first n positive float32 given as their bits, and how many are larger.

    Bits of positive floats are ordered as the floats are, so that bisection ends at the value itself; counting what is
    not below a bound is a vector loop.
    """
    low = np.int64(0)  # at least k values are not below it
    high = np.int64(0x7F800000)  # fewer than k are
    above = np.int64(0)
    while high - low > 1:
        middle = np.int32((low + high) >> 1)
        count = np.int64(0)
        for i in range(np.uint64(n)):
            count += np.int64(values[i] >= middle)
        if count >= k:
            low = np.int64(middle)
        else:
            high = np.int64(middle)
            above = count
    return low, above


@spliced
def _candidates(bits, k, maxima, candidates):
    """Positions, ascending, of positive values among which the k largest are; returns how many.

    The k-th largest of the maxima of blocks is a lower bound of the k-th largest value: few others pass it.
    """
    n_blocks = maxima.size
    bound = np.int32(1)
    if n_blocks > k:
        positive = np.int64(0)
        for b in range(n_blocks):
            block = bits[b * BLOCK : min((b + 1) * BLOCK, bits.size)]
            top = np.int32(0)
            for t in range(block.size):
                top = max(top, block[t])
            maxima[b] = top
            positive += np.int64(top > 0)
        if positive > k:
            bound = np.int32(_kth_largest(maxima, n_blocks, k)[0])
    n = 0
    for b in range(n_blocks):
        if n_blocks > k and maxima[b] < bound:
            continue
        begin = np.uint64(b * BLOCK)
        end = np.uint64(min((b + 1) * BLOCK, bits.size))
        for j in range(begin, end):
            candidates[n] = j
            n += np.int64(bits[j] >= bound)
    return n


@spliced
def _keep_largest(bits, values, k, maxima, candidates, chosen, out_items, out_values):
    """Write the k largest positive values, equals by lower position, in the order of positions; returns how many."""
    n = _candidates(bits, k, maxima, candidates)
    threshold = np.int64(0)
    equal = np.int64(n)
    if n > k:
        for t in range(np.uint64(n)):
            chosen[t] = bits[np.uint64(candidates[t])]
        threshold, above = _kth_largest(chosen, n, k)
        equal = k - above
    m = 0
    for t in range(n):
        j = np.uint64(candidates[t])
        b = np.int64(bits[j])
        if b > threshold or (b == threshold and equal > 0):
            if b == threshold:
                equal -= 1
            out_items[m] = candidates[t]
            out_values[m] = values[j]
            m += 1
    return m


@kernel
def similar_items(columns, table, scale, k, include_self, first, last, work, out_items, out_values, n_out):
    """The k items most similar to each of items first..last-1 by cosine, equals by lower index; rows in index order.

    columns, table: the counts by columns (CSC) and by rows (CSR), those of the rows empty where all counts are 1;
    scale: 1 / norm of each column, float64. work = (dots (n_items,) integers of zeros, candidates (n_items,) int32,
    bits (n_items,) int32, chosen (n_items,) int32, view of bits as float32, maxima (n_items / 32 rounded up,) int32).
    Row i is written at (i - first) of out_items and out_values (rows, k); n_out takes its length.
    """
    by_item, users, counts_by_item = columns
    by_user, items, counts_by_user = table
    dots, candidates, bits, chosen, values, maxima = work
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
        own_scale = scale[i]
        for j in range(np.uint64(dots.size)):
            values[j] = np.float32(np.float64(dots[j]) * (own_scale * scale[j]))
            dots[j] = 0
        row = i - first
        n_out[row] = _keep_largest(bits, values, k, maxima, candidates, chosen, out_items[row], out_values[row])


@kernel
def top_items(starts, items, counts, row_starts, columns, values, sums, out_items, out_scores):
    """The items with the largest positive scores of each row of views, equals by lower index, best first.

    starts, items, counts: views (CSR); row_starts, columns, values: each item's neighbours; sums (n_items,) float64 of
    zeros; out_items (rows, n) int32, -1 where fewer items have a score, out_scores (rows, n) float64.
    """
    n = out_items.shape[1]
    for u in range(starts.size - 1):
        best = out_items[u]
        score = out_scores[u]
        for t in range(n):
            best[t] = -1
            score[t] = 0.0
        for a in range(np.uint64(starts[u]), np.uint64(starts[u + 1])):
            item = np.uint64(items[a])
            count = np.float64(counts[a])
            for t in range(np.uint64(row_starts[item]), np.uint64(row_starts[item + 1])):
                sums[np.uint64(columns[t])] += count * np.float64(values[t])
        worst = 0.0
        # Once more over the same entries: each item is met with its sum once, and found empty afterwards.
        for a in range(np.uint64(starts[u]), np.uint64(starts[u + 1])):
            item = np.uint64(items[a])
            for t in range(np.uint64(row_starts[item]), np.uint64(row_starts[item + 1])):
                j = np.uint64(columns[t])
                s = sums[j]
                sums[j] = 0.0
                if s >= worst and s > 0.0:
                    at = n - 1
                    if s == score[at] and columns[t] > best[at]:
                        continue
                    while at > 0 and (s > score[at - 1] or (s == score[at - 1] and columns[t] < best[at - 1])):
                        score[at] = score[at - 1]
                        best[at] = best[at - 1]
                        at -= 1
                    score[at] = s
                    best[at] = columns[t]
                    worst = score[n - 1]


@kernel
def add_rows(states, slots, items, starts, columns, values, ties, tied):
    """states[slots[j]] += row items[j] of a CSR matrix, one j after another.

    With ties and tied, as in ``_acting_kernel.best`` (or None), a slot's best items are found when its views, which
    come one after another, are in: then its sums are still in a near cache.
    """
    for j in range(slots.size):
        slot = slots[j]
        state = states[slot]
        item = items[j]
        for t in range(np.uint64(starts[item]), np.uint64(starts[item + 1])):
            state[np.uint64(columns[t])] += values[t]
        if ties is not None and (j + 1 == slots.size or slots[j + 1] != slot):
            best_of(state, slot, ties, tied)


@inlined
def _enter(nearest, similarity, found, user, s):
    """Put a user among the ``found`` nearest, by similarity and then row; returns how many there are now."""
    room = nearest.size
    at = found
    if found == room:
        at = room - 1
        if s < similarity[at] or (s == similarity[at] and user > nearest[at]):
            return found
    while at > 0 and (s > similarity[at - 1] or (s == similarity[at - 1] and user < nearest[at - 1])):
        similarity[at] = similarity[at - 1]
        nearest[at] = nearest[at - 1]
        at -= 1
    similarity[at] = s
    nearest[at] = user
    return min(found + 1, room)


@kernel
def user_scores(histories, slots, own_row, columns, table, scale, k, work, out):
    """Scores of all items from the k training users most similar to each slot's user: sum of cosine times their counts.

    histories: pool, start, length; own_row (n_slots,) the slot's own training row, which is left out (-1: none);
    the counts as in ``similar_items``, with ``scale`` = 1 / norm of each row. work = (dots (n_users,) int64 of zeros,
    touched (n_users + 1,) int32, own counts (n_items,) int32 of zeros, nearest (k,) int32, similarity (k,) float64).
    Equally similar users are taken by lower row. out (n, n_items) float32 is overwritten.
    """
    pool, start, length = histories
    by_item, users, counts_by_item = columns
    by_user, items, counts_by_user = table
    dots, touched, own_items, nearest, similarity = work
    for j in range(slots.size):
        slot = slots[j]
        row = out[j]
        for i in range(row.size):
            row[i] = 0.0
        first = np.uint64(start[slot])
        last = first + np.uint64(length[slot])
        n = np.uint64(0)
        for a in range(first, last):
            item = np.uint64(pool[a])
            own_items[item] += 1
            for b in range(np.uint64(by_item[item]), np.uint64(by_item[item + np.uint64(1)])):
                user = np.uint64(users[b])
                before = dots[user]
                # Written in any case, and kept where it is new: whether it is cannot be foreseen by a branch.
                touched[n] = users[b]
                n += np.uint64(before == 0)
                dots[user] = before + np.int64(counts_by_item[b])
        square = np.int64(0)
        for a in range(first, last):
            item = np.uint64(pool[a])
            square += np.int64(own_items[item]) * np.int64(own_items[item])
            own_items[item] = 0
        norm = np.sqrt(np.float64(square))
        n_kept = 0
        # Below this nobody comes in.
        least = -1.0
        for t in range(n):
            place = np.uint64(touched[t])
            s = np.float64(dots[place]) * scale[place]
            dots[place] = 0
            if s < least:
                continue
            user = np.int64(place)
            if user == own_row[slot]:
                continue
            n_kept = _enter(nearest, similarity, n_kept, user, s)
            if n_kept == k:
                least = similarity[k - 1]
        for t in range(n_kept):
            weight = np.float32(similarity[t] / norm)
            place = np.uint64(nearest[t])
            for b in range(np.uint64(by_user[place]), np.uint64(by_user[place + np.uint64(1)])):
                row[np.uint64(items[b])] += weight * np.float32(counts_by_user[b])


@inlined
def _find(sorted_items, n, item):
    """Position of an item among the first n of sorted ones, or -1."""
    low = np.int64(0)
    high = np.int64(n)
    while low < high:
        middle = (low + high) >> 1
        if sorted_items[middle] < item:
            low = middle + 1
        else:
            high = middle
    if low < n and sorted_items[low] == item:
        return low
    return np.int64(-1)


@inlined
def _begin_user(user, table, rows, own, base):
    """Fill ``own`` with the user's counts and ``base`` with the scores of all the user's views."""
    by_user, items, counts = table
    row_items = rows[0]
    row_values = rows[1]
    row_length = rows[2]
    for j in range(base.size):
        base[j] = 0.0
    for b in range(by_user[user], by_user[user + 1]):
        viewed = np.uint64(items[b])
        count = np.float64(counts[b])
        own[viewed] = counts[b]
        row = row_items[viewed]
        value = row_values[viewed]
        for t in range(np.uint64(row_length[viewed])):
            base[np.uint64(row[t])] += count * np.float64(value[t])


@inlined
def _end_user(user, table, own):
    """Empty ``own`` again."""
    by_user, items, _ = table
    for b in range(by_user[user], by_user[user + 1]):
        own[items[b]] = 0


@inlined
def _without(user, item, columns, table, gram, squares, scale, k, include_self, rows, work, own, base, row):
    """row: scores of the user's views but one of ``item``, as fitted without that one.

    Taking one view of item i by user u away changes the dot products of i with u's items and the norm of i, nothing
    else: so in the neighbour row of another item only the entry of i may change, enter or leave, and the row of i is
    made anew (only where u viewed i more than once). The scores are exact sums, so that they can be mended.
    """
    by_item, users, counts_by_item = columns
    by_user, items, counts_by_user = table
    row_items, row_values, row_length, last_item, last_value, next_item, next_value = rows
    dots, candidates, bits, _, values, _ = work
    n_items = own.size
    count = own[item]
    for j in range(n_items):
        row[j] = base[j]
    neighbours = row_items[item]
    cosines = row_values[item]
    for t in range(np.uint64(row_length[item])):
        row[np.uint64(neighbours[t])] -= np.float64(count) * np.float64(cosines[t])

    if gram.size > 0:
        dot = gram[item]
    else:
        dot = dots
        for j in range(n_items):
            dots[j] = 0
        for a in range(by_item[item], by_item[item + 1]):
            c = dots.dtype.type(counts_by_item[a])
            for b in range(np.uint64(by_user[users[a]]), np.uint64(by_user[users[a] + 1])):
                dots[np.uint64(items[b])] += c * counts_by_user[b]
    # Without the view the dots of the item lose the user's counts, and its square loses 2 count - 1.
    square = squares[item] - 2 * count + 1
    item_scale = 1.0 / np.sqrt(np.float64(square)) if square > 0 else 0.0

    for b in range(by_user[user], by_user[user + 1]):
        viewed = np.int64(items[b])
        if viewed == item:
            continue
        times = np.float64(counts_by_user[b])
        new = np.float32(np.float64(dot[viewed] - own[viewed]) * (scale[viewed] * item_scale))
        at = _find(row_items[viewed], row_length[viewed], item)
        if at >= 0:
            row[item] -= times * np.float64(row_values[viewed, at])
            # The best item outside comes in where it beats the changed entry.
            best = next_item[viewed]
            if best >= 0 and (next_value[viewed] > new or (next_value[viewed] == new and best < item)):
                row[best] += times * np.float64(next_value[viewed])
            else:
                row[item] += times * np.float64(new)
            continue
        weakest = last_item[viewed]
        if new > 0.0 and (weakest < 0 or new > last_value[viewed] or (new == last_value[viewed] and item < weakest)):
            if weakest >= 0:
                row[weakest] -= times * np.float64(last_value[viewed])
            row[item] += times * np.float64(new)

    if count > 1:
        n = 0
        for j in range(n_items):
            d = np.int64(dot[j]) - own[j]
            other_scale = scale[j]
            if j == item:
                d = square if include_self else 0
                other_scale = item_scale
            if d != 0:
                candidates[n] = j
                values[n] = np.float32(np.float64(d) * (item_scale * other_scale))
                n += 1
        threshold = np.int64(0)
        left = np.int64(n)
        if n > k:
            threshold, above = _kth_largest(bits, n, k)
            left = k - above
        for t in range(n):
            b = np.int64(bits[t])
            if b > threshold or (b == threshold and left > 0):
                if b == threshold:
                    left -= 1
                row[candidates[t]] += np.float64(count - 1) * np.float64(values[t])


@kernel
def item_places(
    unseen, columns, table, gram, squares, scale, k, include_self, rows, work, own, base, row, above, level
):
    """For each entry of ``table`` the place of its item, by the user's other views, as fitted without a view of it.

    columns, table: the counts by columns and by rows; gram (n_items, n_items) their dot products, or empty; squares
    (n_items,) int64 squared norms, scale their inverse roots; rows: row_items, row_values (n_items, k) and row_length
    (n_items,), each item's neighbours, last_item, last_value, the weakest of a full row, next_item, next_value, the
    best that is not in it (-1: none); work as in ``similar_items``; own (n_items,) int64 of zeros; base, row (n_items,)
    float64, scratch; above, level (entries,): how many items score above, and how many others as much; where
    ``unseen``, the user's other items are not counted.
    """
    by_user, items, _ = table
    for user in range(by_user.size - 1):
        first = by_user[user]
        last = by_user[user + 1]
        if first == last:
            continue
        _begin_user(user, table, rows, own, base)
        for e in range(first, last):
            item = np.int64(items[e])
            _without(user, item, columns, table, gram, squares, scale, k, include_self, rows, work, own, base, row)
            score = row[item]
            if unseen:
                for b in range(first, last):
                    if b != e:
                        row[items[b]] = -np.inf
            more = np.int64(0)
            same = np.int64(0)
            for j in range(row.size):
                more += np.int64(row[j] > score)
                same += np.int64(row[j] == score)
            above[e] = more
            level[e] = same - 1
        _end_user(user, table, own)


@kernel
def leave_out_seen(starts, items, popularity, above, level):
    """Take the user's other items out of the places of each entry, its item standing at its popularity less one."""
    for user in range(starts.size - 1):
        for e in range(starts[user], starts[user + 1]):
            bar = popularity[items[e]] - 1
            for b in range(starts[user], starts[user + 1]):
                if b != e:
                    above[e] -= np.int64(popularity[items[b]] > bar)
                    level[e] -= np.int64(popularity[items[b]] == bar)


@kernel
def user_places(unseen, columns, table, scale, k, dots, touched, stamp, listed, chosen, row, above, level):
    """For each entry of ``table`` the place of its item by the k users nearest to its user, who lacks one view of it.

    The dot products with all users are made once a user; a missing view lowers those with the users of that item. The
    nearest are then the first of a list made beforehand, without those lowered, and those lowered that still belong.

    columns, table: the counts by columns and by rows; scale: 1 / norm of each row; dots (n_users,) int64 of zeros,
    touched (n_users,) int32, stamp (n_users,) int64 of -1; listed, chosen: users and similarities, room for more than k
    and for k; row (n_items,) float32 of zeros; above, level as in ``item_places``.
    """
    by_item, users, counts_by_item = columns
    by_user, items, counts = table
    list_user, list_similarity = listed
    nearest, similarity = chosen
    for user in range(by_user.size - 1):
        first = by_user[user]
        last = by_user[user + 1]
        n = 0
        square = np.int64(0)
        for e in range(first, last):
            item = items[e]
            own_count = np.int64(counts[e])
            square += own_count * own_count
            for b in range(np.uint64(by_item[item]), np.uint64(by_item[item + 1])):
                other = np.uint64(users[b])
                before = dots[other]
                if before == 0:
                    touched[n] = users[b]
                    n += 1
                dots[other] = before + own_count * np.int64(counts_by_item[b])
        n_listed = 0
        worst = -1.0
        for t in range(n):
            other = np.int64(touched[t])
            s = np.float64(dots[np.uint64(other)]) * scale[np.uint64(other)]
            if s >= worst and other != user:
                n_listed = _enter(list_user, list_similarity, n_listed, other, s)
                if n_listed == list_user.size:
                    worst = list_similarity[n_listed - 1]
        complete = n_listed < list_user.size
        for e in range(first, last):
            item = np.int64(items[e])
            own_count = np.int64(counts[e])
            for b in range(np.uint64(by_item[item]), np.uint64(by_item[item + 1])):
                stamp[np.uint64(users[b])] = e
            n_kept = 0
            for t in range(n_listed):
                other = np.int64(list_user[t])
                if stamp[np.uint64(other)] != e:
                    nearest[n_kept] = other
                    similarity[n_kept] = list_similarity[t]
                    n_kept += 1
                    if n_kept == k:
                        break
            if n_kept < k and not complete:
                # Too many of the list are lowered: the rest are looked through.
                n_kept = 0
                for t in range(n):
                    other = np.int64(touched[t])
                    if stamp[np.uint64(other)] != e and other != user:
                        s = np.float64(dots[np.uint64(other)]) * scale[np.uint64(other)]
                        n_kept = _enter(nearest, similarity, n_kept, other, s)
            if n_kept == k:
                worst = similarity[k - 1]
            else:
                worst = -1.0
            for b in range(np.uint64(by_item[item]), np.uint64(by_item[item + 1])):
                other = np.int64(users[b])
                dot = dots[np.uint64(other)] - np.int64(counts_by_item[b])
                s = np.float64(dot) * scale[np.uint64(other)]
                if dot > 0 and s >= worst and other != user:
                    n_kept = _enter(nearest, similarity, n_kept, other, s)
                    if n_kept == k:
                        worst = similarity[k - 1]
            norm = np.sqrt(np.float64(square - 2 * own_count + 1))
            for t in range(n_kept):
                weight = np.float32(similarity[t] / norm)
                other = nearest[t]
                for b in range(np.uint64(by_user[other]), np.uint64(by_user[other + 1])):
                    row[np.uint64(items[b])] += weight * np.float32(counts[b])
            score = row[item]
            row[item] = 0.0
            excluded = 0
            if unseen:
                excluded = last - first - 1
                for b in range(first, last):
                    row[items[b]] = 0.0
            # Only items of the nearest have a score; each is met once with it, and then found zero.
            more = np.int64(0)
            same = np.int64(0)
            for t in range(n_kept):
                other = nearest[t]
                for b in range(np.uint64(by_user[other]), np.uint64(by_user[other + 1])):
                    value = row[np.uint64(items[b])]
                    more += np.int64(value > score)
                    same += np.int64(value == score)
                    row[np.uint64(items[b])] = 0.0
            above[e] = more
            level[e] = same if score > 0.0 else row.size - 1 - more - excluded
        for t in range(n):
            dots[np.uint64(touched[t])] = 0
