# mypy: ignore-errors
"""Jitted core of the support of pairs: which items users held together."""

from __future__ import annotations

from recsim_mnar.kernels.jit import kernel


@kernel
def together(starts, items, counts):
    """counts[j, i] += 1 for every user who holds both; starts (U + 1,), items (E,), counts (I, I) float64."""
    for u in range(starts.size - 1):
        row = items[starts[u] : starts[u + 1]]
        for a in range(row.size):
            for b in range(row.size):
                counts[row[a], row[b]] += 1.0


@kernel
def support(starts, items, rows, reference_starts, reference_items, counts, held, out):
    """Largest share, over the user's other items j, of j's other holders at t0 who held i; out (E,).

    rows (U,): the user's row among the users of t0, -1: none; counts (I, I) of t0; held (I,) bool, all False, scratch.
    """
    for u in range(starts.size - 1):
        row = items[starts[u] : starts[u + 1]]
        old = reference_items[0:0]
        if rows[u] >= 0:
            old = reference_items[reference_starts[rows[u]] : reference_starts[rows[u] + 1]]
        for a in range(old.size):
            held[old[a]] = True
        for a in range(row.size):
            best = 0.0
            for b in range(row.size):
                if b != a:
                    own = 1.0 if held[row[b]] else 0.0
                    both = own if held[row[a]] else 0.0
                    others = counts[row[b], row[b]] - own
                    if others > 0.0:
                        best = max(best, (counts[row[b], row[a]] - both) / others)
            out[starts[u] + a] = best
        for a in range(old.size):
            held[old[a]] = False
