# mypy: ignore-errors
"""Jitted core of collaborative filtering on profiles: co-occurrence, scores, and places without each pair in turn.

Sums are of integers, so no order of addition and no subtraction changes a bit: leaving a pair out of the sums is the
same as never having added it.

Pairs of items that somebody holds together stand row by row: begins (I + 1,), partners and values of each item. What no
item of a profile was met with scores 0, and is counted and not visited.
"""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels.jit import kernel

_NEVER = -(1 << 62)


@kernel
def cosine_scores(histories, slots, own, begins, partners, values, starts, items, unit, held, sums, out):
    """Fixed-point scores sum over v != u of |x and B_v| unit_v B_v, x being the distinct items of each slot's user.

    histories: pool, start, length; own (n,): row of the user among the training users, -1: none; begins,
    partners, values: of pairs; starts, items, unit: the training users; held (I,) bool, all False, and sums (I,) int64:
    scratch; out (n, I) float64: sums, -inf for known items. A user without views has 0 everywhere.
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
    """For each pair (u, i), of the items that u does not hold, how many score above i and how many level with it.

    With x = B_u without i: score(c) = sum over j in x of (G_jc - own_jc), where G holds the pairs' values and own, the
    user's part of it, is unit_u for c in B_u and 0 elsewhere. Only c = i is both a candidate and in B_u.

    starts (U + 1,), items (E,), unit (U,), above and level (E,) int64; scratch: sums, minus, touched (I,) int64 and
    seen (I,) bool, all but touched 0.
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
        for k in range(row.size):  # the user's own items become known ones; their sums are kept in ``above`` meanwhile
            above[starts[u] + k] = sums[row[k]]
        for k in range(row.size):
            sums[row[k]] = _NEVER
        for k in range(row.size):
            i = row[k]
            for e in range(begins[i], begins[i + 1]):
                minus[partners[e]] = values[e]
            mine = above[starts[u] + k] - minus[i] - (row.size - 1) * unit[u]
            larger = 0
            equal = 0
            for t in range(n):
                other = sums[touched[t]] - minus[touched[t]]
                larger += other > mine
                equal += other == mine
            equal += (n_items - n) * (mine == 0)
            above[starts[u] + k] = larger
            level[starts[u] + k] = equal
            for e in range(begins[i], begins[i + 1]):
                minus[partners[e]] = 0
        for t in range(n):
            sums[touched[t]] = 0
            seen[touched[t]] = False


@kernel
def best_ratios(histories, slots, begins, partners, ratios, out):
    """Max over j in x of #(U_i and U_j)/#U_j; ratios of pairs; out (n, I) float64, -inf for known items."""
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
    """Compute :func:`cosine_places` for naive CF.

    Without the pair, #(U_i and U_j) is one less for every j that u holds.

    counts and ratios of pairs, those counts over the holders of the pair's first item; holders (I,) int64. Scratch:
    first, second (I,) float64 and which (I,) int64, the best and second-best ratio of each candidate and the item that
    gives the best; common (I,) int64 and seen (I,) bool, all 0, and touched (I,) int64.
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
        for k in range(row.size):
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
            equal += (n_items - n) * (mine == 0.0)
            above[starts[u] + k] = larger
            level[starts[u] + k] = equal
            for e in range(begins[i], begins[i + 1]):
                common[partners[e]] = 0
        for t in range(n):
            seen[touched[t]] = False
