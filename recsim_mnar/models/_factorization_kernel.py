# mypy: ignore-errors
"""Jitted core of weighted matrix factorisation: loss and gradient, alternating least squares, L-BFGS's vectors."""

from __future__ import annotations

import math

import numpy as np

from recsim_mnar.kernels.jit import inlined, kernel


@kernel
def loss_and_gradient(starts, items, ratings, weights, smooth, v, w, a, b, c, gv, gw, ga, gb, total):
    """Adds sum_n weights_n delta_n and its gradient; returns the sum.

    Prediction n, of user u: v_u . w_i + a_u + b_i + c. delta is the squared error where ``smooth`` < 0, otherwise
    sqrt(e^2 + smooth^2) - smooth, the absolute error as smooth goes to 0.

    starts (U + 1,): a user's ratings are starts[u]:starts[u + 1] of items, ratings, weights; v (U, k), w (I, k), k a
    multiple of 4; gv is overwritten, gw, ga, gb and total[0] (the gradient in c) are added to.
    """
    loss = 0.0
    g_all = 0.0
    for u in range(starts.size - 1):
        vu = v[u]
        gu = gv[u]
        for j in range(vu.size):
            gu[j] = 0.0
        base = a[u] + c
        g_user = 0.0
        for n in range(np.uint64(starts[u]), np.uint64(starts[u + 1])):
            i = np.uint64(items[n])
            wi = w[i]
            gi = gw[i]
            # Four sums side by side: strict arithmetic may not reorder one.
            s0 = s1 = s2 = s3 = 0.0
            for j in range(0, vu.size, 4):
                p = vu[j : j + 4]
                q = wi[j : j + 4]
                s0 += p[0] * q[0]
                s1 += p[1] * q[1]
                s2 += p[2] * q[2]
                s3 += p[3] * q[3]
            e = ((s0 + s2) + (s1 + s3)) + base + b[i] - ratings[n]
            if smooth < 0.0:
                t = weights[n] * e
                loss += t * e
                t *= 2.0
            else:
                root = math.sqrt(e * e + smooth * smooth)
                loss += weights[n] * (root - smooth)
                t = weights[n] * e / root if root > 0.0 else 0.0
            g_user += t
            gb[i] += t
            # Two loops of one store each: together they would wait for a test of aliasing at every rating.
            for j in range(vu.size):
                gu[j] += t * wi[j]
            for j in range(vu.size):
                gi[j] += t * vu[j]
        ga[u] += g_user
        g_all += g_user
    total[0] += g_all
    return loss


@kernel
def solve_rows(starts, others, ratings, weights, order, offset, f, fb, penalty, bias_penalty, x, xb, work):
    """Half a sweep of alternating least squares: each row's factors and bias, the other side being given.

    Row r minimises sum_n weights_n (ratings_n - offset - fb_j - x_r . f_j - xb_r)^2 + penalty |x_r|^2
    + bias_penalty xb_r^2 over its entries order[starts[r]:starts[r + 1]], j = others[n]. f (J, d), fb (J,), x (R, d),
    xb (R,); work (d + 3, d + 1). A row without entries becomes 0.
    """
    d = x.shape[1]
    m = d + 1
    y = work[m]
    feature = work[m + 1]
    for r in range(starts.size - 1):
        if starts[r] == starts[r + 1]:
            for p in range(d):
                x[r, p] = 0.0
            xb[r] = 0.0
            continue
        for p in range(m):
            y[p] = 0.0
            row = work[p]
            for q in range(m):
                row[q] = 0.0
            row[p] = penalty
        work[d, d] = bias_penalty
        feature[d] = 1.0
        for t in range(starts[r], starts[r + 1]):
            n = order[t]
            j = others[n]
            weight = weights[n]
            target = ratings[n] - offset - fb[j]
            fj = f[j]
            for p in range(d):
                feature[p] = fj[p]
            # The upper triangle: row p from column p on.
            for p in range(m):
                s = weight * feature[p]
                y[p] += s * target
                row = work[p]
                for q in range(np.uint64(p), np.uint64(m)):
                    row[q] += s * feature[q]
        _solve(work, y, m)
        for p in range(d):
            x[r, p] = y[p]
        xb[r] = y[d]


@inlined
def _solve(a, y, m):
    """Y <- A^-1 y for the symmetric A whose upper triangle is in ``a`` (overwritten); a pivot of 0 gives 0 there.

    A = U'DU by outer products, so that the inner loops run along rows.
    """
    for p in range(m):
        pivot = a[p, p]
        row = a[p]
        inverse = 1.0 / pivot if pivot > 1e-14 else 0.0
        for q in range(p + 1, m):
            s = row[q] * inverse
            below = a[q]
            for t in range(np.uint64(q), np.uint64(m)):
                below[t] -= s * row[t]
            y[q] -= s * y[p]
    for p in range(m - 1, -1, -1):
        pivot = a[p, p]
        if pivot > 1e-14:
            s = y[p]
            for q in range(p + 1, m):
                s -= a[p, q] * y[q]
            y[p] = s / pivot
        else:
            y[p] = 0.0


@kernel
def predict(users, items, v, w, a, b, c, out):
    """out[n] = v_u . w_i + a_u + b_i + c of pair n; factors (., d)."""
    for n in range(users.size):
        vu = v[users[n]]
        wi = w[items[n]]
        s = 0.0
        for k in range(vu.size):
            s += vu[k] * wi[k]
        out[n] = s + a[users[n]] + b[items[n]] + c
