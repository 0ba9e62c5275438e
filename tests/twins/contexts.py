"""Plain twins of the sums over a bandit log."""

import numpy as np


def view_states(users, items, n_items, shrinkage):
    """(m, n_items): x before each view."""
    out = np.zeros((len(items), n_items))
    for t in range(len(items)):
        earlier = [items[s] for s in range(t) if users[s] == users[t]]
        for item in earlier:
            out[t, item] += 1.0
        out[t] /= len(earlier) + shrinkage
    return out


def decision_states(log, n_items, shrinkage):
    """(n, n_items): x before each recommendation."""
    rows = []
    for j in range(len(log)):
        if log.is_bandit[j]:
            mine = (log["user"][:j] == log["user"][j]) & ~log.is_bandit[:j]
            counts = np.bincount(log["item"][:j][mine], minlength=n_items)
            rows.append(counts / (counts.sum() + shrinkage))
    return np.array(rows)


def scale_of(rewards, actions, weights, n_items, spread_of_noise):
    """Weighted mean and deviation of rewards, and each item's variance in units of it, drawn to 1."""
    mean = np.average(rewards, weights=weights)
    sd = np.sqrt(np.average((rewards - mean) ** 2, weights=weights))
    z = (rewards - mean) / sd
    doubt = np.average(z**4, weights=weights) / spread_of_noise
    noise = np.ones(n_items)
    for a in range(n_items):
        w, own = weights[actions == a], z[actions == a]
        if len(own):
            noise[a] = ((w * (own - np.average(own, weights=w)) ** 2).sum() + doubt) / (w.sum() + doubt)
    return mean, sd, noise


def penalised_least_squares(u, actions, rewards, weights, places, spread, offset_spread):
    """Theta (P, K + 1), stretch (K,) and common offset that minimise the whole objective, as one linear system."""
    n_items, k = places.shape
    known = np.concatenate([places, np.ones((n_items, 1))], axis=1)
    inverse = np.append(np.full(k, 1 / spread), 1 / offset_spread)
    size = n_items * (k + 1)
    rows, right = [], []
    for j in range(len(rewards)):
        row = np.zeros(size + k + 1)
        start = actions[j] * (k + 1)
        row[start : start + k + 1] = np.append(u[j], 1.0)
        rows.append(np.sqrt(weights[j]) * row)
        right.append(np.sqrt(weights[j]) * rewards[j])
    for a in range(n_items):
        for i in range(k + 1):
            row = np.zeros(size + k + 1)
            row[a * (k + 1) + i] = inverse[i]
            row[size + i] = -inverse[i] * known[a, i]
            rows.append(row)
            right.append(0.0)
    x = np.linalg.lstsq(np.array(rows), np.array(right), rcond=None)[0]
    return x[:size].reshape(n_items, k + 1), x[size : size + k], x[-1]
