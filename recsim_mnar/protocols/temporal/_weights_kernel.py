# mypy: ignore-errors
"""Jitted core of item weights: P(i|w), and the gradient of the divergence in log w, each in one pass over the pairs.

Both are three times faster where users follow each other by the length of their profiles, because the processor then
foresees the end of each row.
"""

from __future__ import annotations

from recsim_mnar.kernels.jit import kernel


@kernel
def marginals(starts, items, weights, inverse, out):
    """P(i|w) = (1/U) sum over users of w_i / (sum of w over the user's items).

    starts (U + 1,) int64, items (E,) uint32 (unsigned: no test for negative indices), weights (I,), inverse (U,): one
    over each user's sum, kept for the gradient; out (I,). Users without items count for nothing.
    """
    n_users = 0
    for i in range(out.size):
        out[i] = 0.0
    for u in range(starts.size - 1):
        row = items[starts[u] : starts[u + 1]]
        total = 0.0
        for k in range(row.size):
            total += weights[row[k]]
        q = 1.0 / total if row.size > 0 else 0.0
        inverse[u] = q
        n_users += row.size > 0
        for k in range(row.size):
            out[row[k]] += q
    for i in range(out.size):
        out[i] *= weights[i] / n_users


@kernel
def gradient(starts, items, weights, inverse, scaled, target, reference, out):
    """Gradient of D(w) = KL(P0 || P(.|w)) in log w: g_k = (1/U) sum_u P(k|u,w) (r_k - sum_i P(i|u,w) r_i).

    r_i = -P0_i / P(i|w), so the first term, summed over users, is -P0_k wherever P0_k > 0, and one gather and one
    scatter a pair are left: b_u = sum_i w_i r_i / (sum w)^2 into every item of u.

    scaled (I,) scratch, target (I,): P(i|w), reference (I,): P0; out (I,).
    """
    n_users = 0
    for i in range(out.size):
        out[i] = 0.0
        scaled[i] = -weights[i] * reference[i] / target[i] if reference[i] > 0.0 else 0.0
    for u in range(starts.size - 1):
        row = items[starts[u] : starts[u + 1]]
        total = 0.0
        for k in range(row.size):
            total += scaled[row[k]]
        total *= inverse[u] * inverse[u]
        n_users += row.size > 0
        for k in range(row.size):
            out[row[k]] += total
    for i in range(out.size):
        out[i] = -reference[i] - out[i] * weights[i] / n_users


@kernel
def pair_probabilities(starts, items, weights, out):
    """P(u) P(i|u,w) of every pair; out (E,)."""
    n_users = 0
    for u in range(starts.size - 1):
        n_users += starts[u + 1] > starts[u]
    for u in range(starts.size - 1):
        total = 0.0
        for e in range(starts[u], starts[u + 1]):
            total += weights[items[e]]
        for e in range(starts[u], starts[u + 1]):
            out[e] = weights[items[e]] / total / n_users
