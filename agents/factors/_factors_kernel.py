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
