# mypy: ignore-errors
"""Jitted cores of the models: loss and gradient, alternating least squares, sums over a bandit log."""

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
                if root > 0.0:
                    t = weights[n] * e / root
                else:
                    t = 0.0
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
        if pivot > 1e-14:
            inverse = 1.0 / pivot
        else:
            inverse = 0.0
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


@kernel
def next_view_sums(starts, items, shrinkage, after, squares, following, total):
    """Sums over views of x_p^2, of x where item i was viewed, and of x, the state of counts before the view.

    x = h / (n + shrinkage) of a user's n earlier views with counts h. starts (U + 1,): a user's views are
    starts[u]:starts[u + 1] of items; after (longest + 1,): scratch; squares (P,), following (P, P) by [x's entry, item
    viewed] and total (P,) are added to.

    A pair of views of one item, the later of them number t of the user's, counts in every state after t, with
    1 / (n + shrinkage)^2 each: so pairs of views are summed, not items of states.
    """
    for u in range(starts.size - 1):
        begin = starts[u]
        n = starts[u + 1] - begin
        after[n] = 0.0
        for t in range(n - 1, -1, -1):
            after[t] = after[t + 1] + 1.0 / ((t + shrinkage) * (t + shrinkage))
        for t in range(n):
            item = items[begin + t]
            share = 1.0 / (t + shrinkage)
            squares[item] += after[t + 1]
            for s in range(t):
                other = items[begin + s]
                following[other, item] += share
                total[other] += share
                if other == item:
                    squares[item] += 2.0 * after[t + 1]


@kernel
def state_sums(starts, items, shrinkage, mapping, centre, u, gram):
    """Gram (K, K) += u u' over the states before views, u = x M - centre; the entries with row <= column.

    Arguments as in next_view_sums and reward_sums; u: scratch of 2 K entries.
    """
    k = centre.size
    for user in range(starts.size - 1):
        for j in range(k):
            u[k + j] = 0.0
        for t in range(starts[user + 1] - starts[user]):
            scale = 1.0 / (t + shrinkage)
            m = mapping[items[starts[user] + t]]
            for j in range(k):
                u[j] = u[k + j] * scale - centre[j]
                u[k + j] += m[j]
            for i in range(k):
                for j in range(i, k):
                    gram[i, j] += u[i] * u[j]


@kernel
def reward_sums(users, bandit, items, actions, rewards, weights, folds, mapping, centre, shrinkage, u, gram, cross):
    """Sums over recommendations of w u u' and w u r, by fold and item; u = (x M - centre, 1).

    One row of the log each: users, bandit (not 0 where it is a recommendation), items, actions, rewards, weights,
    folds; mapping M (P, K), centre (K,); u (K + 1,) and its sums of M's rows (K,) are scratch: u has 2 K + 1 entries.
    gram (F, P, K + 1, K + 1), of which the entries with row <= column are filled, and cross (F, P, K + 1) are added to.
    """
    k = centre.size
    n = 0
    for row in range(users.size):
        if row == 0 or users[row] != users[row - 1]:
            n = 0
            for j in range(k):
                u[k + 1 + j] = 0.0
        if bandit[row] == 0:
            m = mapping[items[row]]
            for j in range(k):
                u[k + 1 + j] += m[j]
            n += 1
        else:
            scale = 1.0 / (n + shrinkage)
            for j in range(k):
                u[j] = u[k + 1 + j] * scale - centre[j]
            u[k] = 1.0
            w = weights[row]
            square = gram[folds[row], actions[row]]
            line = cross[folds[row], actions[row]]
            for i in range(k + 1):
                s = w * u[i]
                line[i] += s * rewards[row]
                for j in range(i, k + 1):
                    square[i, j] += s * u[j]
