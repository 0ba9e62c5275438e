# mypy: ignore-errors
"""Jitted core of the factorisation of a bandit log: one pass over its rows for all the sums that a fit needs."""

from __future__ import annotations

from recsim_mnar.kernels.jit import kernel


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
