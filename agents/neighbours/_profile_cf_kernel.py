# mypy: ignore-errors
"""Jitted core of collaborative filtering on profiles: co-occurrence, scores, and places without each pair in turn.

Sums are of integers, so no order of addition and no subtraction changes a bit: leaving a pair out of the sums is the
same as never having added it.
"""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels.jit import kernel

_NEVER = -(1 << 62)


@kernel
def cooccurrence(starts, items, unit, out):
    """Add unit[u] to out[i, j] for every pair of items that user u holds, i = j included; out (I, I) int64."""
    for u in range(starts.size - 1):
        row = items[starts[u] : starts[u + 1]]
        for a in range(row.size):
            line = out[row[a]]
            for b in range(row.size):
                line[row[b]] += unit[u]


@kernel
def cosine_scores(pool, start, length, slots, own, table, starts, items, unit, held, sums, out):
    """Fixed-point scores sum over v != u of |x and B_v| unit_v B_v, x being the distinct items of each slot's user.

    pool, start, length: histories; own (n,): row of the user among the training users, -1: none; table (I, I) int64;
    starts, items, unit: the training users; held (I,) bool, all False, scratch; sums (I,) int64, scratch;
    out (n, I) float64: sums, -inf for known items. Returns nothing; a user without views has 0 everywhere.
    """
    n_items = held.size
    for j in range(slots.size):
        s = slots[j]
        for c in range(n_items):
            sums[c] = 0
        for e in range(start[s], start[s] + length[s]):
            i = pool[e]
            if not held[i]:
                held[i] = True
                for c in range(n_items):
                    sums[c] += table[i, c]
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
def cosine_places(starts, items, unit, table, sums, above, level):
    """For each pair (u, i), of the items that u does not hold, how many score above i and how many level with it.

    With x = B_u without i: score(c) = sum over j in x of (G_jc - own_jc), where G is ``table`` and own, the user's part
    of it, is unit_u for c in B_u and 0 elsewhere. Only c = i is both a candidate and in B_u.

    starts (U + 1,), items (E,), unit (U,), table (I, I) int64, sums (I,) int64 scratch; above, level (E,) int64.
    """
    n_items = sums.size
    for u in range(starts.size - 1):
        row = items[starts[u] : starts[u + 1]]
        for c in range(n_items):
            sums[c] = 0
        for k in range(row.size):
            line = table[row[k]]
            for c in range(n_items):
                sums[c] += line[c]
        for k in range(row.size):  # the user's own items become known ones; their sums are kept in ``above`` meanwhile
            above[starts[u] + k] = sums[row[k]]
        for k in range(row.size):
            sums[row[k]] = _NEVER
        for k in range(row.size):
            e = starts[u] + k
            line = table[row[k]]
            mine = above[e] - line[row[k]] - (row.size - 1) * unit[u]
            larger = 0
            equal = 0
            for c in range(n_items):
                other = sums[c] - line[c]
                larger += other > mine
                equal += other == mine
            above[e] = larger
            level[e] = equal


@kernel
def best_ratios(pool, start, length, slots, ratios, held, out):
    """Max over j in x of #(U_i and U_j)/#U_j; ratios[j, i]; out (n, I) float64, -inf for known items."""
    n_items = held.size
    for j in range(slots.size):
        s = slots[j]
        for c in range(n_items):
            out[j, c] = 0.0
        for e in range(start[s], start[s] + length[s]):
            i = pool[e]
            held[i] = True
            for c in range(n_items):
                out[j, c] = max(out[j, c], ratios[i, c])
        for e in range(start[s], start[s] + length[s]):
            out[j, pool[e]] = -np.inf
            held[pool[e]] = False


@kernel
def ratio_places(starts, items, counts, ratios, first, second, which, above, level):
    """As :func:`cosine_places` for naive CF: without the pair, #(U_i and U_j) is one less for every j that u holds.

    counts (I, I) int64; ratios[j, c] = counts[j, c] / counts[j, j]; first, second (I,) float64 and which (I,) int64,
    scratch: the best and second-best ratio of each candidate and the item that gives the best.
    """
    n_items = first.size
    for u in range(starts.size - 1):
        row = items[starts[u] : starts[u + 1]]
        for c in range(n_items):
            first[c] = 0.0
            second[c] = 0.0
            which[c] = -1
        for k in range(row.size):
            j = row[k]
            line = ratios[j]
            for c in range(n_items):
                value = line[c]
                better = value > first[c]
                second[c] = first[c] if better else max(second[c], value)
                which[c] = j if better else which[c]
                first[c] = value if better else first[c]
        for k in range(row.size):
            first[row[k]] = -1.0
            second[row[k]] = -1.0
        for k in range(row.size):
            i = row[k]
            mine = 0.0
            for m in range(row.size):
                if m != k:
                    mine = max(mine, np.float64(counts[row[m], i] - 1) / np.float64(counts[row[m], row[m]]))
            larger = 0
            equal = 0
            for c in range(n_items):
                other = second[c] if which[c] == i else first[c]
                larger += other > mine
                equal += other == mine
            above[starts[u] + k] = larger
            level[starts[u] + k] = equal
