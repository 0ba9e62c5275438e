# mypy: ignore-errors
"""Jitted core of the factor agents: scores of all items from a user's vector."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels._vectors_kernel import products
from recsim_mnar.kernels.jit import kernel

_TILE = 256


@kernel
def project(states, slots, factors, out):
    """Write the scores ``states[slots[j]] @ factors`` to ``out[j]``, float32, summed in the order of the factors.

    states (n_slots, k); factors (k, n_items), k a multiple of 4; out (n, n_items). Computed by tiles of items, whose
    factors stay in the first-level cache while all users are scored.
    """
    n = out.shape[1]
    for begin in range(0, n, _TILE):
        end = min(begin + _TILE, n)
        for j in range(slots.size):
            state = states[slots[j]]
            row = out[j, begin:end]
            for i in range(row.size):
                row[i] = 0.0
            for first in range(0, state.size, 4):
                a = state[first]
                b = state[first + 1]
                c = state[first + 2]
                d = state[first + 3]
                fa = factors[first, begin:end]
                fb = factors[first + 1, begin:end]
                fc = factors[first + 2, begin:end]
                fd = factors[first + 3, begin:end]
                for i in range(row.size):
                    row[i] = (((row[i] + a * fa[i]) + b * fb[i]) + c * fc[i]) + d * fd[i]


@kernel
def lanczos(starts, columns, values, basis, alpha, beta, first, last, tiny):
    """Make steps first .. last - 1 of the Lanczos recurrence for A'A with full reorthogonalisation.

    A is a CSR matrix (starts, columns, values float64). basis (at least last + 1 rows) has orthonormal rows 0 .. first;
    the following rows are written. The diagonal of the tridiagonal matrix is written to alpha, the off-diagonal to
    beta. Returns the number of steps made; it is smaller if the next vector is shorter than ``tiny``, which means that
    the vectors before it span an invariant space.
    """
    for j in range(first, last):
        v = basis[j]
        w = basis[j + 1]
        for i in range(w.size):
            w[i] = 0.0
        for row in range(starts.size - 1):
            begin = starts[row]
            end = starts[row + 1]
            s = 0.0
            for t in range(begin, end):
                s += values[t] * v[columns[t]]
            for t in range(begin, end):
                w[columns[t]] += values[t] * s
        alpha[j] = products(v, w)
        # Subtract the recurrence's two terms first, then the projections on all vectors: as precise as two full passes.
        for i in range(w.size):
            w[i] -= alpha[j] * v[i]
        if j > 0:
            u = basis[j - 1]
            b = beta[j - 1]
            for i in range(w.size):
                w[i] -= b * u[i]
        for k in range(j + 1):
            u = basis[k]
            c = products(u, w)
            for i in range(w.size):
                w[i] -= c * u[i]
        beta[j] = np.sqrt(products(w, w))
        if beta[j] <= tiny:
            return j + 1
        scale = 1.0 / beta[j]
        for i in range(w.size):
            w[i] *= scale
    return last


BLOCK = 16
_ROWS = 256

# The width of a block is read from the arrays: a loop of constant length would be unrolled and then not vectorised.


@kernel
def normal_product(starts, columns, values, x, s, out):
    """Write A'A x to ``out``, with one pass over the rows of A.

    A is a CSR matrix (starts, columns, values float32); x and out (m, 16) float32; s (16,) is scratch: a row of A x.
    """
    width = np.uint64(x.shape[1])
    for i in range(out.shape[0]):
        for c in range(width):
            out[i, c] = 0.0
    for row in range(starts.size - 1):
        begin = np.uint64(starts[row])
        end = np.uint64(starts[row + 1])
        for c in range(width):
            s[c] = 0.0
        for t in range(begin, end):
            value = values[t]
            given_values = x[np.uint64(columns[t])]
            for c in range(width):
                s[c] += value * given_values[c]
        for t in range(begin, end):
            value = values[t]
            column_sum = out[np.uint64(columns[t])]
            for c in range(width):
                column_sum[c] += value * s[c]


@kernel
def inner(x, y, out):
    """Write x'y to ``out`` (16, 16) float64, for blocks x and y (m, 16) float32, m a multiple of 4."""
    width = np.uint64(x.shape[1])
    for a in range(width):
        for c in range(width):
            out[a, c] = 0.0
    for begin in range(0, x.shape[0], _ROWS):
        end = np.uint64(min(begin + _ROWS, x.shape[0]))
        for a in range(width):
            sums = out[a]
            for i in range(np.uint64(begin), end, np.uint64(4)):
                x0 = np.float64(x[i, a])
                x1 = np.float64(x[i + np.uint64(1), a])
                x2 = np.float64(x[i + np.uint64(2), a])
                x3 = np.float64(x[i + np.uint64(3), a])
                y0 = y[i]
                y1 = y[i + np.uint64(1)]
                y2 = y[i + np.uint64(2)]
                y3 = y[i + np.uint64(3)]
                for c in range(width):
                    sums[c] = (((sums[c] + x0 * y0[c]) + x1 * y1[c]) + x2 * y2[c]) + x3 * y3[c]


@kernel
def take_away(x, weights, y):
    """Subtract x weights from y in place, for blocks x and y (m, 16) and weights (16, 16), all float32."""
    width = np.uint64(x.shape[1])
    for i in range(np.uint64(x.shape[0])):
        row = y[i]
        value = x[i]
        for a in range(0, value.size, 4):
            x0 = value[a]
            x1 = value[a + 1]
            x2 = value[a + 2]
            x3 = value[a + 3]
            w0 = weights[a]
            w1 = weights[a + 1]
            w2 = weights[a + 2]
            w3 = weights[a + 3]
            for c in range(width):
                row[c] = (((row[c] - x0 * w0[c]) - x1 * w1[c]) - x2 * w2[c]) - x3 * w3[c]
