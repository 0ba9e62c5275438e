# mypy: ignore-errors
"""Jitted core of collaborative filtering on profiles where pairs of items are too many for a table.

The same sums as in ``_profile_cf_kernel``, from rows that hold only the items met together: begins (I + 1,), partners
and values of each. What no item of the profile was met with scores 0, and is counted and not visited.
"""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels.jit import kernel

_NEVER = -(1 << 62)


@kernel
def cosine_scores(pool, start, length, slots, own, begins, partners, values, starts, items, unit, held, sums, out):
    """As the dense one, which see; sums (I,) int64, scratch."""
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
    """As the dense one, which see; scratch: sums, minus, touched (I,) int64 and seen (I,) bool, all but touched 0."""
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
        for k in range(row.size):
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
def best_ratios(pool, start, length, slots, begins, partners, ratios, held, out):
    """Max over j in x of #(U_i and U_j)/#U_j; ratios as partners; out (n, I) float64, -inf for known items."""
    n_items = held.size
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
    """As the dense one, which see; common (I,) int64 and seen (I,) bool, all 0, and touched (I,) int64, scratch.

    counts and ratios as partners; holders (I,) int64; first, second (I,) float64 and which (I,) int64, scratch.
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
                other = second[c] if which[c] == i else first[c]
                larger += other > mine
                equal += other == mine
            equal += (n_items - n) * (mine == 0.0)
            above[starts[u] + k] = larger
            level[starts[u] + k] = equal
            for e in range(begins[i], begins[i + 1]):
                common[partners[e]] = 0
        for t in range(n):
            seen[touched[t]] = False
