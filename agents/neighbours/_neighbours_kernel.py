# mypy: ignore-errors
"""Jitted core of the neighbourhood agents: similarities, score updates, nearest users, and ranks without one view.

With view counts n[u, i], cos(i, j) = sum_u n[u, i] n[u, j] / (|n[:, i]| |n[:, j]|), and alike of two users' rows:

- item-kNN (Sarwar et al. 2001): score(u, i) = sum over j of n[u, j] cos(i, j), where i is among the k nearest of j;
- user-kNN (Herlocker et al. 1999): score(u, i) = sum over the k users v nearest to u of cos(u, v) n[v, i].

These are the neighbourhood models of Jeunen, Rohde & Vasile 2019, section 3. Leave-one-out (section 2) computes them
with n[u, i] - 1 in place of n[u, i] for the held-out view (u, i), and asks how many items have a larger score than i.
"""

from __future__ import annotations

import numpy as np

from recsim_mnar.agents._acting_kernel import best_of
from recsim_mnar.kernels.jit import inlined, kernel, spliced

BLOCK = 32
"""Number of values whose maximum is computed first, in the search for the k largest values."""


@inlined
def _kth_largest(values, n, k):
    """Return the k-th largest (k from 1) of n positive float32, given as their bits, and the number of larger ones.

    Positive floats have the same order as their bits read as integers. So the search is a bisection over integers,
    which ends at the value itself; counting the values that are not below a bound is a vectorised loop.
    """
    low = np.int64(0)  # at least k values are not below it
    high = np.int64(0x7F800000)  # fewer than k values are not below it; these are the bits of infinity
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
    """Write the positions, ascending, of values that include the k largest positive ones; return their number.

    The k-th largest maximum of blocks of values is a lower bound of the k-th largest value, which few others exceed.
    bits: the float32 values as integers; maxima and candidates: scratch and result.
    """
    n_blocks = maxima.size
    bound = np.int32(1)  # the bits of the smallest positive float: without a better bound all positive values
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
    """Write the k largest positive values and their positions, in the order of positions; return their number.

    Of equal values those at lower positions are taken. bits and values are the same memory as int32 and float32.
    """
    n = _candidates(bits, k, maxima, candidates)
    threshold = np.int64(0)  # bits of the k-th largest value; 0 if all candidates are written
    equal = np.int64(n)  # number of values equal to the threshold that may still be written
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
    """Write the k items with the largest cosine of each of the items first .. last - 1, ascending by index.

    Only positive cosines count; of equal ones the lower index is taken. columns, table: the view counts by columns
    (CSC) and by rows (CSR), the latter's counts empty if all are 1; scale: 1 / norm of each column, float64. work =
    (dots (n_items,) integers of zeros, candidates (n_items,) int32, bits (n_items,) int32, chosen (n_items,) int32,
    bits as float32, maxima (n_items / 32 rounded up,) int32). The neighbours of item i are written to row i - first of
    out_items and out_values (rows, k), and their number to n_out.
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
    """Write the n items with the largest positive scores for each user, best first, equal ones by index.

    starts, items, counts: view counts (CSR), a row per user; row_starts, columns, values: each item's neighbours; sums
    (n_items,) float64, zeros before and after; out_items (users, n) int32, -1 in the rest of a row if fewer items have
    a positive score; out_scores (users, n) float64, 0 there.
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
        # A second loop over the same entries: the first time an item occurs its sum is inserted and then set to 0.
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
    """Add row items[j] of a CSR matrix to ``states[slots[j]]``, in the order of j.

    With ties and tied (as in ``_acting_kernel.best``, or None), a slot's best items are also found, after the last of
    its consecutive views, while its sums are still in the cache.
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
    """Insert a user with similarity s into a list of the nearest ones, and return the list's new length.

    nearest and similarity hold ``found`` users, by descending similarity, then ascending row. In a full list the last
    one is replaced, unless the new user comes after it.
    """
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
    """Write each slot's scores of all items: the view counts of the k most similar training users, times the cosines.

    histories: pool, start, length of the slots' views; own_row (n_slots,) row of the slot's user in the training data,
    which is left out (-1: none); columns, table: view counts of training users as in ``similar_items``; scale: 1 / norm
    of each row. work = (dots (n_users,) int64 of zeros, touched (n_users + 1,) int32, own counts (n_items,) int32 of
    zeros, nearest (k,) int32, similarity (k,) float64). Of equally similar users those with lower rows are taken. out
    (n, n_items) float32 is overwritten.
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
                # Written always, but n grows only for a new user: this avoids a branch that cannot be predicted.
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
        least = -1.0  # smallest similarity in a full list: users below it cannot enter
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
    """Return the position of an item among the first n of ascending ones by bisection; -1 if it is not there."""
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
    """Write the user's view counts to ``own``, and the scores of all items by all of these views to ``base``."""
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
    """Set the user's entries of ``own`` to 0."""
    by_user, items, _ = table
    for b in range(by_user[user], by_user[user + 1]):
        own[items[b]] = 0


@inlined
def _without(user, item, columns, table, gram, squares, scale, k, include_self, rows, work, own, base, row):
    """Write the scores by the user's views without one view of ``item`` to ``row``, fitted without that view, too.

    Removing one view of item i by user u changes only the dot products of i with u's items, and the norm of i. So in
    the neighbours of another item only i may enter, leave, or change its value, and the neighbours of i are computed
    anew, which is needed only if u viewed i more than once. Scores are exact sums in float64, so a term that is
    subtracted leaves no rounding error. The arguments are those of :func:`item_places`.
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
    # Without the view, the item's dot products are smaller by the user's counts, and its squared norm by 2 count - 1.
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
            # The best item that was no neighbour replaces i if it is now more similar.
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
    """Rank the item of each entry of ``table`` by the user's other views, with a fit without one view of it.

    columns, table: the view counts by columns (CSC) and by rows (CSR); gram (n_items, n_items): dot products of the
    columns, or empty; squares (n_items,) int64: squared norms of the columns, scale: 1 / norm; rows: each item's
    neighbours row_items and row_values (n_items, k), their number row_length, the weakest of a full row last_item and
    last_value, and the best item that is no neighbour next_item and next_value (-1: none); work as in
    ``similar_items``; own (n_items,) int64 zeros, base and row (n_items,) float64: scratch. Written: above (entries,),
    number of items with a larger score, and level (entries,), of other items with an equal one; with ``unseen`` the
    user's other items are not counted.
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
    """Subtract the user's other items from the ranks of each entry by popularity, in place.

    above and level (entries,): number of items that are viewed more often than the entry's item without one view, and
    equally often.
    """
    for user in range(starts.size - 1):
        for e in range(starts[user], starts[user + 1]):
            bar = popularity[items[e]] - 1
            for b in range(starts[user], starts[user + 1]):
                if b != e:
                    above[e] -= np.int64(popularity[items[b]] > bar)
                    level[e] -= np.int64(popularity[items[b]] == bar)


@kernel
def user_places(unseen, columns, table, scale, k, dots, touched, stamp, listed, chosen, row, above, level):
    """Rank the item of each entry of ``table`` by the k users most similar to its user without one view of it.

    The dot products with all other users are computed once per user, with a list of more than k nearest ones. A missing
    view lowers only the dot products with users of that item. So the nearest are the first of the list that have other
    items only, and those users of the item that are still similar enough.

    columns, table: the view counts by columns (CSC) and by rows (CSR); scale: 1 / norm of each row; scratch: dots
    (n_users,) int64 zeros, touched (n_users,) int32, stamp (n_users,) int64 of -1 (entry for which a user's dot product
    was last lowered), listed and chosen (users and similarities, of the list and of the k nearest), row (n_items,)
    float32 zeros; above, level as in ``item_places``.
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
        complete = n_listed < list_user.size  # the list has all users with a common item
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
                # Too many of the list have the item: look through all users.
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
            # Only items of the nearest users have a score; it is counted at the first occurrence and then set to 0.
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
