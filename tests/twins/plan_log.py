"""A small log whose truth is known: three items, users in two segments, clicks."""

from __future__ import annotations

import numpy as np

RATES = np.array([[0.10, 0.20, 0.05], [0.20, 0.10, 0.30]])
"""Of a segment's users, by item."""
POLICIES = {"today": (0, 1), "left": (1, 1), "right": (0, 2), "both": (1, 2)}
"""Item of each segment."""


def made(users, seed):
    """Columns of a log, four rows of each user, whose items are drawn alike."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), 4)
    segment = (user * 7919) % 2
    action = (rng.random(len(user))[:, None] >= np.cumsum(np.full(2, 1.0 / 3.0))).sum(axis=1)
    reward = (rng.random(len(user)) < RATES[segment, action]).astype(float)
    columns = {"user": user, "action": action, "propensity": np.full(len(user), 1.0 / 3.0), "reward": reward}
    return columns | {name: (np.array(items)[segment] == action).astype(float) for name, items in POLICIES.items()}
