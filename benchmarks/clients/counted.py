"""Methods that several clients write before: views counted by user. Each stands where a client says ``# + name``."""

from __future__ import annotations

import numpy as np
from shared import P


class Counted:
    def __init__(self):
        self.name, self.counts = "client", {}

    def reset(self, users):
        self.counts.update({user: np.zeros(P, np.float32) for user in users.tolist()})

    def observe(self, users, items):
        for user, item in zip(users.tolist(), items.tolist(), strict=True):
            self.counts[user][item] += 1

    def probabilities(self, users):
        scores = self.score(np.stack([self.counts[user] for user in users.tolist()]))
        best = scores == scores.max(axis=1, keepdims=True)
        return best / best.sum(axis=1, keepdims=True)

    def act(self, users, uniforms):
        shares = self.probabilities(users)
        actions = np.minimum((np.cumsum(shares, axis=1) <= uniforms[:, None]).sum(axis=1), P - 1)
        return actions, shares[np.arange(len(users)), actions]
