"""Plain twins of the training kernels: draws by lists and sets, losses as formulas, Adam as its paper writes it."""

from __future__ import annotations

import numpy as np

from recsim_mnar import rng

SETS = (1, 2, 4, 8)


def classes_of(observed, row):
    """The four sets of items of a row, each ascending, by mask."""
    b = observed.bounds[row]
    parts = {mask: [int(i) for i in observed.items[b[k] : b[k + 1]]] for k, mask in enumerate((1, 2, 4))}
    known = set().union(*parts.values())
    return {**parts, 8: [i for i in range(observed.n_items) if i not in known]}


def usable_rows(plan, stratum):
    """Rows of the stratum, period by period; with ``by="cell"`` once for each item of the first classes."""
    observed = plan.observed
    by_period = {}
    for row in range(len(observed.user)):
        sets = classes_of(observed, row)
        first = [i for mask in SETS if stratum.first & mask for i in sets[mask]]
        second = [i for mask in SETS if stratum.second & mask for i in sets[mask]]
        if first and (second or not stratum.second):
            by_period.setdefault(int(observed.period[row]), []).append((row, len(first)))
    return list(by_period.values())


def draw(plan, seed, number, by="row"):
    """(user, first item, second item or None, stratum, class of the first) of one sample."""
    words = rng.blocks(seed, rng.Stream.FIT, number, [0, 1]).astype(object)
    unit = lambda high, low: ((high << 32 | low) >> 11) / 2**53  # noqa: E731
    below = lambda word, n: word * n >> 32  # noqa: E731
    probabilities = [s.probability for s in plan.strata]
    ends = np.cumsum(probabilities) / np.sum(probabilities)
    k = min(int(np.searchsorted(ends, unit(words[1, 0], words[1, 1]), side="right")), len(ends) - 1)
    stratum = plan.strata[k]
    groups = usable_rows(plan, stratum)
    if by == "cell":
        slots = [row for group in groups for row, n in group for _ in range(n)]
    else:
        slots = [row for row, _ in groups[below(words[1, 2], len(groups))]]
    row = slots[int(unit(words[0, 0], words[0, 1]) * len(slots))]
    sets = classes_of(plan.observed, row)

    def one(mask, word):
        listed = [(i, bit) for bit in SETS if mask & bit for i in sets[bit]]
        return listed[below(word, len(listed))]

    item, part = one(stratum.first, words[0, 2])
    other = one(stratum.second, words[0, 3])[0] if stratum.second else None
    return int(plan.observed.user[row]), item, other, k, part


def softplus(x):
    return np.logaddexp(0.0, x)


def squares(row, d, penalties):
    return penalties[0] * (row[:d] ** 2).sum() + penalties[1] * (row[d:] ** 2).sum()


def pair_loss(users, items, d, samples, penalties):
    """Sum over samples (u, i, j, w) of the weighted pair loss, tables in float64."""
    total = 0.0
    for u, i, j, w in samples:
        x = users[u, :d] @ (items[i, :d] - items[j, :d]) + items[i, d] - items[j, d]
        total += abs(w) * softplus(-np.sign(w) * x)
        total += sum(squares(row, d, penalties) for row in (users[u], items[i], items[j]))
    return total


def distance(a, b, d, kind):
    if kind == "l1":
        return np.abs(a - b).sum()
    if kind == "l2":
        return ((a - b) ** 2).sum()
    return 1.0 - a[:d] @ b[:d] / np.sqrt((a[:d] @ a[:d]) * (b[:d] @ b[:d]))


def point_loss(users, items, d, samples, form, penalties, between=0.0, kind="l2"):
    """Sum over samples (u, i, shown, label) of the logistic loss, tables in float64."""
    n_users, n_items = len(users) // (1 + form.apart_users), len(items) // (1 + form.apart_items)
    total = 0.0
    for u, i, shown, label in samples:
        a = users[u + shown * n_users * form.apart_users]
        b = items[i + shown * n_items * form.apart_items]
        x = a[:d] @ b[:d] + a[d] + b[d] + shown * form.response * (a[d + 1] + b[d + 1])
        total += softplus(-x) if label else softplus(x)
        total += squares(a, d, penalties) + squares(b, d, penalties)
        if form.apart_users:
            total += between * distance(users[u], users[u + n_users], d, kind)
        if form.apart_items:
            total += between * distance(items[i], items[i + n_items], d, kind)
    return total


def slopes(loss, tables, rows, step=1e-6):
    """Central differences of ``loss(*tables)`` at the named (table, row) pairs: a dict of rows of derivatives."""
    out = {}
    for t, row in rows:
        gradient = np.zeros(tables[t].shape[1])
        for k in range(len(gradient)):
            kept = tables[t][row, k]
            tables[t][row, k] = kept + step
            above = loss(*tables)
            tables[t][row, k] = kept - step
            gradient[k] = (above - loss(*tables)) / (2 * step)
            tables[t][row, k] = kept
        out[t, row] = gradient
    return out


class Adam:
    """Kingma & Ba 2015, algorithm 1, for one row at a time."""

    def __init__(self, shape, rate):
        self.rate = rate
        self.m, self.v, self.t = np.zeros(shape), np.zeros(shape), np.zeros(shape[0], int)

    def step(self, table, row, gradient):
        self.t[row] += 1
        self.m[row] = 0.9 * self.m[row] + 0.1 * gradient
        self.v[row] = 0.999 * self.v[row] + 0.001 * gradient**2
        m = self.m[row] / (1 - 0.9 ** self.t[row])
        v = self.v[row] / (1 - 0.999 ** self.t[row])
        table[row] -= self.rate * m / (np.sqrt(v) + 1e-8)


def neighbour_uplift(u, i, users, weights, shown, sold, alone, periods, shrinkage):
    """Uplift of item i by the neighbours ``users`` of u (all arrays (U, I), periods (U,))."""
    treated = sum(w * shown[v, i] for v, w in zip(users, weights, strict=True))
    control = sum(w * (periods[v] - shown[v, i]) for v, w in zip(users, weights, strict=True))
    with_it = sum(w * sold[v, i] for v, w in zip(users, weights, strict=True))
    without = sum(w * alone[v, i] for v, w in zip(users, weights, strict=True))
    return with_it / (treated + shrinkage[0]) - without / (control + shrinkage[1])
