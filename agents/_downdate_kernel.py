"""Jitted core of exhaustive leave-one-out of the item neighbourhood: scores as fitted without one view."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from recsim_mnar._jit import kernel
from recsim_mnar.agents._neighbours_kernel import _kth_largest


@kernel
def scores_without(
    held,
    first_view,
    views,
    owner,
    by_item,
    users,
    counts_by_item,
    by_user,
    items,
    counts_by_user,
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
    out,
):
    """out[j]: scores of the user of view ``held[j]``, from the user's other views, as fitted without that view.

    Taking one view of item i by user u away changes the dot products of i with u's items and the norm of i, nothing
    else: so in the neighbour row of another item only the entry of i may change, enter or leave, and the row of i is
    made anew (only where u viewed i more than once). All in the operations, and the order, of a fit without the view.

    held (m,) view positions, sorted by item; first_view (n_users + 1,) where each user's views begin; views (V,) items;
    owner (V,) the user of each view; the counts by columns and rows; squares (n_items,) int64 squared norms, scale
    their inverse roots; row_items, row_values (n_items, k) and row_length (n_items,) each item's neighbours; last_item,
    last_value the weakest of a full row, next_item, next_value the best that is not in it (-1: none); work as in
    ``similar_items``.
    """
    dots, candidates, bits, histogram, values = work
    n_items = dots.size
    current = -1
    for h in range(held.size):
        position = held[h]
        item = views[position]
        user = owner[position]
        row = out[h]
        for j in range(n_items):
            row[j] = 0.0
        if item != current:
            for j in range(n_items):
                dots[j] = 0
            for a in range(by_item[item], by_item[item + 1]):
                other = users[a]
                c = np.int64(counts_by_item[a])
                for b in range(by_user[other], by_user[other + 1]):
                    dots[items[b]] += c * np.int64(counts_by_user[b])
            current = item
        count = np.int64(0)
        for b in range(by_user[user], by_user[user + 1]):
            if items[b] == item:
                count = np.int64(counts_by_user[b])
        # Without the view: dots of the item lose the user's counts, its own square loses 2 count - 1.
        for b in range(by_user[user], by_user[user + 1]):
            if items[b] != item:
                dots[items[b]] -= np.int64(counts_by_user[b])
        square = squares[item] - 2 * count + 1
        dots[item] = square if include_self else 0
        item_scale = 1.0 / np.sqrt(np.float64(square)) if square > 0 else 0.0

        n = -1
        threshold = np.int64(0)
        equal = np.int64(0)
        for p in range(first_view[user], first_view[user + 1]):
            if p == position:
                continue
            viewed = views[p]
            if viewed == item:
                if n < 0:
                    n = 0
                    for j in range(n_items):
                        if dots[j] != 0:
                            other_scale = item_scale if j == item else scale[j]
                            candidates[n] = j
                            values[n] = np.float32(np.float64(dots[j]) * (item_scale * other_scale))
                            n += 1
                    equal = np.int64(n)
                    if n > k:
                        threshold, above = _kth_largest(bits, n, k, histogram)
                        equal = k - above
                left = equal
                for t in range(n):
                    b = np.int64(bits[t])
                    if b > threshold or (b == threshold and left > 0):
                        if b == threshold:
                            left -= 1
                        row[candidates[t]] += values[t]
                continue
            value = np.float32(np.float64(dots[viewed]) * (scale[viewed] * item_scale))
            length = row_length[viewed]
            old = row[item]
            weakest = last_item[viewed]
            old_weakest = row[max(weakest, 0)]
            was_in = False
            for t in range(length):
                j = row_items[viewed, t]
                was_in = was_in or j == item
                row[j] += row_values[viewed, t]
            row[item] = old
            if was_in:
                # The best item outside comes in where it beats the changed entry.
                best = next_item[viewed]
                beaten = best >= 0 and (next_value[viewed] > value or (next_value[viewed] == value and best < item))
                if beaten:
                    row[best] += next_value[viewed]
                elif value > 0.0:
                    row[item] += value
            elif value > 0.0 and (
                weakest < 0 or value > last_value[viewed] or (value == last_value[viewed] and item < weakest)
            ):
                if weakest >= 0:
                    row[weakest] = old_weakest
                row[item] += value

        for b in range(by_user[user], by_user[user + 1]):
            if items[b] != item:
                dots[items[b]] += np.int64(counts_by_user[b])
        if not include_self:
            dots[item] = 0
    for j in range(n_items):
        dots[j] = 0
