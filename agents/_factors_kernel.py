"""Jitted core of the factor agents: scores of all items from a user's vector."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from recsim_mnar._jit import inlined, kernel

_TILE = 256


@kernel
def project(states, slots, factors, out):
    """out[j] = states[slots[j]] @ factors in float32, summed in the order of the k rows of factors; 4 divides k.

    By tiles of items, whose factors stay in the first-level cache while all users pass.
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


@inlined
def _dot(a, b):
    """Sum of products in eight fixed lanes: the same bits on every machine."""
    n = a.size
    whole = n - n % 8
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    for i in range(0, whole, 8):
        x = a[i : i + 8]
        y = b[i : i + 8]
        s0 += x[0] * y[0]
        s1 += x[1] * y[1]
        s2 += x[2] * y[2]
        s3 += x[3] * y[3]
        s4 += x[4] * y[4]
        s5 += x[5] * y[5]
        s6 += x[6] * y[6]
        s7 += x[7] * y[7]
    total = ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))
    for i in range(whole, n):
        total += a[i] * b[i]
    return total


@kernel
def lanczos(starts, columns, values, basis, alpha, beta, first, last, tiny):
    """Steps first..last-1 of the Lanczos recurrence for A'A with full reorthogonalisation.

    A is a CSR matrix (values float64). basis (last + 1 rows or more) holds orthonormal rows 0..first and takes the
    next; alpha and beta take the tridiagonal matrix. Returns the number of steps made: it stops where the next vector
    is shorter than ``tiny``, the space of those before being invariant.
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
        alpha[j] = _dot(v, w)
        # The three terms of the recurrence first, then one pass over all: together as good as two passes over all.
        for i in range(w.size):
            w[i] -= alpha[j] * v[i]
        if j > 0:
            u = basis[j - 1]
            b = beta[j - 1]
            for i in range(w.size):
                w[i] -= b * u[i]
        for k in range(j + 1):
            u = basis[k]
            c = _dot(u, w)
            for i in range(w.size):
                w[i] -= c * u[i]
        beta[j] = np.sqrt(_dot(w, w))
        if beta[j] <= tiny:
            return j + 1
        scale = 1.0 / beta[j]
        for i in range(w.size):
            w[i] *= scale
    return last
