# mypy: ignore-errors
"""Jitted core of collaborative filtering on profiles: co-occurrence, scores, and places without each pair in turn.

Sums are of integers, so no order of addition and no subtraction changes a bit: leaving a pair out of the sums is the
same as never having added it.

Pairs of items that are together in some profile are given row by row: begins (I + 1,), partners and values of each
item. An item that is in no pair with an item of the profile scores 0; such items are counted without a loop over them.
"""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels.jit import kernel

_NEVER = -(1 << 62)  # a sum below every other: no item with it scores above another


@kernel
def cosine_scores(histories, slots, own, begins, partners, values, starts, items, unit, held, sums, out):
    """Write the scores of all items for each slot's user: the sum over v != u of |x and B_v| unit_v B_v.

    x is the set of the user's viewed items, B_v the profile of training user v, and unit_v its 1 / norm in fixed point.
    histories: pool, start, length; own (n_slots,) row of the slot's user among the training users, -1 for none; begins,
    partners, values: pairs; starts, items, unit: the training users' profiles; held (I,) bool, all False, and sums (I,)
    int64: scratch; out (n, I) float64: scores, -inf for viewed items. A user without views has 0 everywhere.
    """
    pool, start, length = histories
    n_items = held.size
    for j in range(slots.size):
        s = slots[j]
        for c in range(n_items):
            sums[c] = 0
        for e in range(start[s], start[s] + length[s]):
            i = pool[e]
            if not held[i]:
                held[i] = True
                for k in range(begins[i], begins[i + 1]):
                    sums[partners[k]] += values[k]
        if own[s] >= 0:
            common = 0
            row = items[starts[own[s]] : starts[own[s] + 1]]
            for k in range(row.size):
                common += held[row[k]]
            for k in range(row.size):
                sums[row[k]] -= common * unit[own[s]]
        for c in range(n_items):
            out[j, c] = -np.inf if held[c] else np.float64(sums[c])
        for e in range(start[s], start[s] + length[s]):
            held[pool[e]] = False


@kernel
def cosine_places(starts, items, unit, begins, partners, values, sums, minus, seen, touched, above, level):
    """Count for each item i of each user u the items outside u's profile that score above i, and equal to i.

    Scores are those of user u without i. With x = B_u without i, score(c) = sum over j in x of (G_jc - own_jc), where G
    has the pairs' values, and own, the user's part of them, is unit_u for c in B_u and 0 elsewhere. Of the candidates
    only c = i is in B_u.

    starts (U + 1,), items (E,) and unit (U,): profiles; begins, partners, values: pairs G; above and level (E,) int64
    are written; scratch: sums, minus, touched (I,) int64 and seen (I,) bool, zeros except touched.
    """
    n_items = sums.size
    for u in range(starts.size - 1):
        row = items[starts[u] : starts[u + 1]]
        n = 0
        for k in range(row.size):
            for e in range(begins[row[k]], begins[row[k] + 1]):
                c = partners[e]
                if not seen[c]:
                    seen[c] = True
                    touched[n] = c
                    n += 1
                sums[c] += values[e]
        # The user's items are no candidates: their sums become _NEVER, after ``above`` has stored them for ``mine``.
        for k in range(row.size):
            above[starts[u] + k] = sums[row[k]]
        for k in range(row.size):
            sums[row[k]] = _NEVER
        for k in range(row.size):
            i = row[k]
            for e in range(begins[i], begins[i + 1]):
                minus[partners[e]] = values[e]
            # The score of i: without the pair of i with itself, and without the user's own part of the other pairs.
            mine = above[starts[u] + k] - minus[i] - (row.size - 1) * unit[u]
            larger = 0
            equal = 0
            for t in range(n):
                other = sums[touched[t]] - minus[touched[t]]
                larger += other > mine
                equal += other == mine
            equal += (n_items - n) * (mine == 0)  # items in no pair with the profile score 0
            above[starts[u] + k] = larger
            level[starts[u] + k] = equal
            for e in range(begins[i], begins[i + 1]):
                minus[partners[e]] = 0
        for t in range(n):
            sums[touched[t]] = 0
            seen[touched[t]] = False


@kernel
def best_ratios(histories, slots, begins, partners, ratios, out):
    """Write each item i's score for each slot's user: the maximum over viewed items j of #(U_i and U_j) / #U_j.

    ratios: that share for each pair (j, i); out (n, I) float64, -inf for viewed items.
    """
    pool, start, length = histories
    n_items = out.shape[1]
    for j in range(slots.size):
        s = slots[j]
        for c in range(n_items):
            out[j, c] = 0.0
        for e in range(start[s], start[s] + length[s]):
            i = pool[e]
            for k in range(begins[i], begins[i + 1]):
                out[j, partners[k]] = max(out[j, partners[k]], ratios[k])
        for e in range(start[s], start[s] + length[s]):
            out[j, pool[e]] = -np.inf


@kernel
def ratio_places(
    starts, items, begins, partners, counts, ratios, holders, first, second, which, common, seen, touched, above, level
):
    """Count for each item i of each user u the items outside u's profile that score above i, and equal to i (naive CF).

    Without item i in u's profile, #(U_i and U_j) is one less for every other item j of u. A candidate's score is the
    best ratio over u's items except i: the best and second-best are kept, and the second is used if i gives the best.

    starts, items: profiles; begins, partners, counts, ratios: pairs, a ratio being the count over the users of the
    pair's first item; holders (I,) int64, users of each item; above and level (E,) int64 are written. Scratch: first,
    second (I,) float64, best and second-best ratio of each candidate, and which (I,) int64, the item that gives the
    best; common (I,) int64 and seen (I,) bool, zeros; touched (I,) int64.
    """
    n_items = first.size
    for u in range(starts.size - 1):
        row = items[starts[u] : starts[u + 1]]
        n = 0
        for k in range(row.size):
            j = row[k]
            for e in range(begins[j], begins[j + 1]):
                c = partners[e]
                if not seen[c]:
                    seen[c] = True
                    touched[n] = c
                    n += 1
                    first[c] = 0.0
                    second[c] = 0.0
                    which[c] = -1
                value = ratios[e]
                better = value > first[c]
                second[c] = first[c] if better else max(second[c], value)
                which[c] = j if better else which[c]
                first[c] = value if better else first[c]
        for k in range(row.size):  # the user's items are no candidates: below every score
            first[row[k]] = -1.0
            second[row[k]] = -1.0
        for k in range(row.size):
            i = row[k]
            for e in range(begins[i], begins[i + 1]):
                common[partners[e]] = counts[e]
            mine = 0.0
            for m in range(row.size):
                if m != k:
                    mine = max(mine, np.float64(common[row[m]] - 1) / np.float64(holders[row[m]]))
            larger = 0
            equal = 0
            for t in range(n):
                c = touched[t]
                if which[c] == i:
                    other = second[c]
                else:
                    other = first[c]
                larger += other > mine
                equal += other == mine
            equal += (n_items - n) * (mine == 0.0)  # items in no pair with the profile score 0
            above[starts[u] + k] = larger
            level[starts[u] + k] = equal
            for e in range(begins[i], begins[i + 1]):
                common[partners[e]] = 0
        for t in range(n):
            seen[touched[t]] = False
