# mypy: ignore-errors
"""Jitted cores of the models: loss and gradient, alternating least squares, sums over a bandit log."""

from __future__ import annotations

import math

import numpy as np

from recsim_mnar.kernels.jit import inlined, kernel


@kernel
def loss_and_gradient(starts, items, ratings, weights, smooth, v, w, a, b, c, gv, gw, ga, gb, total):
    """Compute the weighted loss of a factorisation over ratings, and its gradient.

    The prediction of user u and item i is v_u . w_i + a_u + b_i + c. The loss of an error e is e^2 where ``smooth`` is
    negative, otherwise sqrt(e^2 + smooth^2) - smooth, which is the absolute error in the limit of smooth = 0.

    Args:
        starts: (U + 1,) the ratings of user u are starts[u]:starts[u + 1] of the next three arrays.
        items: (n,) item of each rating.
        ratings: (n,) values.
        weights: (n,) weights.
        smooth: smoothing of the absolute error; negative for the squared error.
        v: (U, k) user factors, k a multiple of 4.
        w: (I, k) item factors.
        a: (U,) user offsets.
        b: (I,) item offsets.
        c: common offset.
        gv: (U, k) gradient in v; it is overwritten.
        gw: (I, k) gradient in w; it is added to, as are the following ones.
        ga: (U,) gradient in a.
        gb: (I,) gradient in b.
        total: (1,) gradient in c.

    Returns:
        The sum of weight times loss.
    """
    loss = 0.0
    g_all = 0.0  # gradient in c; t is weight times the loss's derivative in the error
    for u in range(starts.size - 1):
        vu = v[u]
        gu = gv[u]
        for j in range(vu.size):
            gu[j] = 0.0
        base = a[u] + c
        g_user = 0.0
        # Unsigned indices, here and below: numba need not test whether they are negative, which would wrap around.
        for n in range(np.uint64(starts[u]), np.uint64(starts[u + 1])):
            i = np.uint64(items[n])
            wi = w[i]
            gi = gw[i]
            # Four partial sums let the processor add in parallel: strict floating point may not reorder a single sum.
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
            # One loop would write to two arrays, which might overlap: the compiler would test that at every rating.
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
    """Solve for each row's factors and bias by ridge regression, given those of the other side.

    This is half a sweep of alternating least squares. Row r (a user, say) minimises

        sum_n weights_n (ratings_n - offset - fb_j - x_r . f_j - xb_r)^2 + penalty |x_r|^2 + bias_penalty xb_r^2

    over its ratings n, with j = others[n] the other side (an item).

    Args:
        starts: (R + 1,) the ratings of row r are order[starts[r]:starts[r + 1]].
        others: (n,) row of the other side, by rating.
        ratings: (n,) values.
        weights: (n,) weights.
        order: (n,) numbers of the ratings, sorted by row.
        offset: common offset.
        f: (J, d) factors of the other side.
        fb: (J,) biases of the other side.
        penalty: penalty of the squared factors.
        bias_penalty: penalty of the squared bias.
        x: (R, d) factors, overwritten; 0 for a row without ratings.
        xb: (R,) biases, overwritten; 0 for a row without ratings.
        work: (d + 3, d + 1) scratch.
    """
    d = x.shape[1]
    m = d + 1
    # Scratch rows 0 .. d: the matrix of the normal equations; row d + 1: their right side, then the solution; row
    # d + 2: one rating's regressors (f_j, 1).
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
            # The matrix is symmetric: only its upper triangle is filled, row p from column p on.
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
    """Solve A x = y for a symmetric, positive semidefinite A, in place.

    A is decomposed as U'DU by outer products (Golub & Van Loan 2013, section 4.1), so that the inner loops run along
    rows in memory. Where a pivot is 0 up to rounding, the entry of the solution is 0.

    Args:
        a: at least (m, m); the upper triangle of A, overwritten.
        y: (m,) right side, overwritten by the solution.
        m: size.
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
    """Write the prediction v_u . w_i + a_u + b_i + c of each pair of user and item to ``out`` (n,).

    Args:
        users: (n,) user of each pair.
        items: (n,) item of each pair.
        v: (U, d) user factors.
        w: (I, d) item factors.
        a: (U,) user offsets.
        b: (I,) item offsets.
        c: common offset.
        out: (n,) predictions, overwritten.
    """
    for n in range(users.size):
        vu = v[users[n]]
        wi = w[items[n]]
        s = 0.0
        for k in range(vu.size):
            s += vu[k] * wi[k]
        out[n] = s + a[users[n]] + b[items[n]] + c


@kernel
def next_view_sums(starts, items, shrinkage, after, squares, following, total):
    """Sum moments of users' states before each view, and of the states together with the viewed item.

    The state before a user's view number n (from 0) is x = h / (n + shrinkage), with h (P,) the counts of the n earlier
    views by item.

    A state is never formed. A product of two counts is a number of pairs of views: a pair whose later view is number t
    counts in all states after t, with 1 / (n + shrinkage)^2 each, whose sum is ``after[t + 1]``.

    Args:
        starts: (U + 1,) the views of user u are starts[u]:starts[u + 1] of ``items``.
        items: (n,) viewed items.
        shrinkage: added to the number of views.
        after: (L + 1,) scratch, L the largest number of a user's views.
        squares: (P,) sums of x_p^2 over all views; added to.
        following: (P, P) sums of x_p (row) over the views of an item (column); added to.
        total: (P,) sums of x_p over all views; added to.
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
    """Sum u u' over the states before all views, u = x M - centre the user's factors in state x.

    Args:
        starts: (U + 1,) the views of user u are starts[u]:starts[u + 1] of ``items``.
        items: (n,) viewed items.
        shrinkage: number added to the n views of a state x = h / (n + shrinkage) with counts h.
        mapping: (P, K) matrix M from counts to factors.
        centre: (K,) subtracted from the factors.
        u: (2 K,) scratch.
        gram: (K, K) sums; entries with row <= column are added to.
    """
    k = centre.size
    # u[:k] are the factors in the current state, u[k:] the sum of M's rows over the views so far.
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
    """Sum the moments of weighted regressions of rewards on users' factors, by fold and recommended item.

    The regressors of a recommendation with reward r and weight w are u = (x M - centre, 1), with the user's state
    x = h / (n + shrinkage) after n views with counts h.

    Args:
        users: (n,) user of each row of the log, each user's rows together and in order of time.
        bandit: (n,) not 0 where the row is a recommendation, 0 where it is a view.
        items: (n,) viewed items.
        actions: (n,) recommended items.
        rewards: (n,) rewards.
        weights: (n,) weights.
        folds: (n,) folds.
        mapping: (P, K) matrix M from counts to factors.
        centre: (K,) subtracted from the factors.
        shrinkage: number added to the number of views.
        u: (2 K + 1,) scratch.
        gram: (F, P, K + 1, K + 1) sums of w u u' by fold and item; entries with row <= column are added to.
        cross: (F, P, K + 1) sums of w u r; added to.
    """
    k = centre.size
    # u[:k + 1] are the regressors, u[k + 1:] the sum of M's rows over the user's views so far, n of them.
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
            # Sums of this fold and item: views into the arrays.
            square = gram[folds[row], actions[row]]
            line = cross[folds[row], actions[row]]
            for i in range(k + 1):
                s = w * u[i]
                line[i] += s * rewards[row]
                for j in range(i, k + 1):
                    square[i, j] += s * u[j]
