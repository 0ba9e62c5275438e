"""Jitted core of exhaustive leave-one-out of the item neighbourhood: scores as fitted without one view."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from recsim_mnar._jit import inlined, kernel
from recsim_mnar.agents._neighbours_kernel import _kth_largest


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


@kernel
def scores_without(
    held,
    views,
    owner,
    by_item,
    users,
    counts_by_item,
    by_user,
    items,
    counts_by_user,
    gram,
    squares,
    scale,
    k,
    include_self,
    row_items,
    row_values,
    row_length,
    last_item,
    last_value,
    next_item,
    next_value,
    work,
    own,
    base,
    out,
):
    """out[j]: scores of the user of view ``held[j]``, from the user's other views, as fitted without that view.

    Taking one view of item i by user u away changes the dot products of i with u's items and the norm of i, nothing
    else: so in the neighbour row of another item only the entry of i may change, enter or leave, and the row of i is
    made anew (only where u viewed i more than once). The scores are exact sums, so that they can be mended.

    held (m,) view positions, a user's side by side; views (V,) items; owner (V,) the user of each view; the counts by
    columns and rows; gram (n_items, n_items) their dot products, or empty; squares (n_items,) int64 squared norms,
    scale their inverse roots; row_items, row_values (n_items, k) and row_length (n_items,) each item's neighbours;
    last_item, last_value the weakest of a full row, next_item, next_value the best that is not in it (-1: none); work
    as in ``similar_items``; own (n_items,) int64 of zeros; base (n_items,) float64.
    """
    dots, candidates, bits, histogram, values = work
    n_items = own.size
    current = np.int64(-1)
    for h in range(held.size):
        item = np.int64(views[held[h]])
        user = owner[held[h]]
        first = by_user[user]
        last = by_user[user + 1]
        if user != current:
            if current >= 0:
                for b in range(by_user[current], by_user[current + 1]):
                    own[items[b]] = 0
            current = user
            for j in range(n_items):
                base[j] = 0.0
            for b in range(first, last):
                viewed = items[b]
                count = np.float64(counts_by_user[b])
                own[viewed] = counts_by_user[b]
                for t in range(row_length[viewed]):
                    base[row_items[viewed, t]] += count * np.float64(row_values[viewed, t])
        row = out[h]
        for j in range(n_items):
            row[j] = base[j]
        count = own[item]
        for t in range(row_length[item]):
            row[row_items[item, t]] -= np.float64(count) * np.float64(row_values[item, t])

        if gram.size > 0:
            dot = gram[item]
        else:
            dot = dots
            for j in range(n_items):
                dots[j] = 0
            for a in range(by_item[item], by_item[item + 1]):
                c = dots.dtype.type(counts_by_item[a])
                for b in range(by_user[users[a]], by_user[users[a] + 1]):
                    dots[items[b]] += c * counts_by_user[b]
        # Without the view the dots of the item lose the user's counts, and its square loses 2 count - 1.
        square = squares[item] - 2 * count + 1
        item_scale = 1.0 / np.sqrt(np.float64(square)) if square > 0 else 0.0

        for b in range(first, last):
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
            if new > 0.0 and (
                weakest < 0 or new > last_value[viewed] or (new == last_value[viewed] and item < weakest)
            ):
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
                threshold, above = _kth_largest(bits, n, k, histogram)
                left = k - above
            for t in range(n):
                b = np.int64(bits[t])
                if b > threshold or (b == threshold and left > 0):
                    if b == threshold:
                        left -= 1
                    row[candidates[t]] += np.float64(count - 1) * np.float64(values[t])
    if current >= 0:
        for b in range(by_user[current], by_user[current + 1]):
            own[items[b]] = 0
    for j in range(n_items):
        dots[j] = 0
