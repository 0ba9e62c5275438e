"""A small log whose truth is known: three items, users in two segments, clicks."""

from __future__ import annotations

import numpy as np

RATES = np.array([[0.10, 0.20, 0.05], [0.20, 0.10, 0.30]])
"""Of a segment's users, by item."""
POLICIES = {"today": (0, 1), "left": (1, 1), "right": (0, 2), "both": (1, 2)}
"""Item of each segment."""


def made(users, seed, logging=None, rows=4):
    """Columns of a log; ``logging`` (2, 3) is uniform unless given."""
    rng = np.random.default_rng(seed)
    logging = np.full((2, 3), 1.0 / 3.0) if logging is None else logging
    user = np.repeat(np.arange(users), rows)
    segment = (user * 7919) % 2
    action = (rng.random(len(user))[:, None] >= np.cumsum(logging, axis=1)[segment][:, :2]).sum(axis=1)
    reward = (rng.random(len(user)) < RATES[segment, action]).astype(float)
    columns = {"user": user, "action": action, "propensity": logging[segment, action], "reward": reward}
    return columns | {name: (np.array(items)[segment] == action).astype(float) for name, items in POLICIES.items()}
