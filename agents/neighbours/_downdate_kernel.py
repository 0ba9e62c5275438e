# mypy: ignore-errors
"""Jitted core of exhaustive leave-one-out of the item neighbourhood: scores as fitted without one view."""

from __future__ import annotations

import numpy as np

from recsim_mnar.agents.neighbours._neighbours_kernel import _enter, _kth_largest
from recsim_mnar.kernels.jit import inlined, kernel


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
    return low if low < n and sorted_items[low] == item else np.int64(-1)


@inlined
def _begin_user(user, table, rows, own, base):
    """Fill ``own`` with the user's counts and ``base`` with the scores of all the user's views."""
    by_user, items, counts = table
    row_items, row_values, row_length = rows[0], rows[1], rows[2]
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
            own = np.int64(counts[e])
            square += own * own
            for b in range(np.uint64(by_item[item]), np.uint64(by_item[item + 1])):
                other = np.uint64(users[b])
                before = dots[other]
                if before == 0:
                    touched[n] = users[b]
                    n += 1
                dots[other] = before + own * np.int64(counts_by_item[b])
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
            own = np.int64(counts[e])
            for b in range(np.uint64(by_item[item]), np.uint64(by_item[item + 1])):
                stamp[np.uint64(users[b])] = e
            found = 0
            for t in range(n_listed):
                other = np.int64(list_user[t])
                if stamp[np.uint64(other)] != e:
                    nearest[found] = other
                    similarity[found] = list_similarity[t]
                    found += 1
                    if found == k:
                        break
            if found < k and not complete:
                # Too many of the list are lowered: the rest are looked through.
                found = 0
                for t in range(n):
                    other = np.int64(touched[t])
                    if stamp[np.uint64(other)] != e and other != user:
                        s = np.float64(dots[np.uint64(other)]) * scale[np.uint64(other)]
                        found = _enter(nearest, similarity, found, other, s)
            worst = similarity[k - 1] if found == k else -1.0
            for b in range(np.uint64(by_item[item]), np.uint64(by_item[item + 1])):
                other = np.int64(users[b])
                dot = dots[np.uint64(other)] - np.int64(counts_by_item[b])
                s = np.float64(dot) * scale[np.uint64(other)]
                if dot > 0 and s >= worst and other != user:
                    found = _enter(nearest, similarity, found, other, s)
                    if found == k:
                        worst = similarity[k - 1]
            norm = np.sqrt(np.float64(square - 2 * own + 1))
            for t in range(found):
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
            for t in range(found):
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
