"""Contexts of users, decision by decision, in plain Python."""

from __future__ import annotations

import numpy as np


def contexts(log, n_items, kind, decay=0.9, last=5):
    """Contexts of a log's decisions, and of every user at the end: lists of lists of float32."""
    rows, ends = [], {}
    for user in dict.fromkeys(log["user"].tolist()):
        viewed = []
        for row in np.flatnonzero(log["user"] == user):
            if log.is_bandit[row]:
                rows.append(_context(viewed, n_items, kind, decay, last))
            else:
                viewed.append(int(log["item"][row]))
        ends[user] = _context(viewed, n_items, kind, decay, last)
    return rows, ends


def _context(viewed, n_items, kind, decay, last):
    if kind == "last":
        newest = viewed[::-1][:last]
        return [np.float32(item + 1) for item in newest] + [np.float32(0)] * (last - len(newest))
    counts = [np.float32(0)] * n_items
    for item in viewed:
        if kind == "decayed":
            counts = [np.float32(count * np.float32(decay)) for count in counts]
        counts[item] = np.float32(counts[item] + np.float32(1))
    return counts
