"""Contexts of users, decision by decision, in plain Python."""

from __future__ import annotations

import numpy as np


def contexts(log, n_items, kind, decay=0.9, last=5):
    """Contexts of a log's decisions, and of every user at the end: lists of lists of float32."""
    rows, ends = [], {}
    for user in dict.fromkeys(log["user"].tolist()):
        events = []
        for row in np.flatnonzero(log["user"] == user):
            if log.is_bandit[row]:
                rows.append(_context(events, n_items, kind, decay, last))
                events.append((int(log["action"][row]), float(log["reward"][row])))
            else:
                events.append((int(log["item"][row]), None))
        ends[user] = _context(events, n_items, kind, decay, last)
    return rows, ends


def _context(events, n_items, kind, decay, last):
    """Of events (item, None) for a view and (item, reward) for a recommendation."""
    if kind == "shown":
        return shown(events, n_items, decay)
    viewed = [item for item, reward in events if reward is None]
    if kind == "last":
        newest = viewed[::-1][:last]
        return [np.float32(item + 1) for item in newest] + [np.float32(0)] * (last - len(newest))
    counts = [np.float32(0)] * n_items
    for item in viewed:
        if kind == "decayed":
            counts = [np.float32(count * np.float32(decay)) for count in counts]
        counts[item] = np.float32(counts[item] + np.float32(1))
    return counts


def shown(events, n_items, decay):
    """Decayed counts of views and of recommendations, and decayed rewards; of events as above."""
    views, shows, earned = ([np.float32(0)] * n_items for _ in range(3))
    for item, reward in events:
        for numbers in (views, shows, earned):
            numbers[:] = [np.float32(number * np.float32(decay)) for number in numbers]
        if reward is None:
            views[item] = np.float32(views[item] + np.float32(1))
        else:
            shows[item] = np.float32(shows[item] + np.float32(1))
            earned[item] = np.float32(earned[item] + np.float32(reward))
    return [*views, *shows, *earned]
