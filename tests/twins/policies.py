"""Policies written outside the package: one uniform, one that reads counts, one that depends on the order of views."""

from __future__ import annotations

import numpy as np

from recsim_mnar.policies import Policy


class Uniform(Policy):
    """Uniform, without telling the simulator so: it acts from outside the kernel."""

    name = "uniform"

    def __init__(self, n_items):
        self.n_items = n_items

    def act(self, users, uniforms):
        actions = np.minimum((uniforms * self.n_items).astype(np.int64), self.n_items - 1)
        return actions, np.full(len(users), 1.0 / self.n_items)

    def probabilities(self, users):
        return np.full((len(users), self.n_items), 1.0 / self.n_items)


class _Remembering(Policy):
    def __init__(self, n_items):
        self.n_items = n_items
        self.seen = {}

    def reset(self, users):
        for user in users:
            self.seen[int(user)] = []

    def observe(self, users, items):
        for user, item in zip(users, items, strict=True):
            self.seen[int(user)].append(int(item))

    def forget(self, users):
        for user in users:
            del self.seen[int(user)]

    def fresh(self):
        return type(self)(self.n_items)


class MostViewed(_Remembering):
    """The user's most viewed item, ties to the smallest index."""

    name = "most-viewed"

    def act(self, users, uniforms):
        actions = [int(np.bincount(self.seen[int(user)], minlength=self.n_items).argmax()) for user in users]
        return np.array(actions), np.ones(len(users))

    def probabilities(self, users):
        out = np.zeros((len(users), self.n_items))
        out[np.arange(len(users)), self.act(users, np.zeros(len(users)))[0]] = 1.0
        return out


class OrderReader(_Remembering):
    """Half the time the last item viewed, else the first: what it does depends on the order of views."""

    name = "order-reader"

    def act(self, users, uniforms):
        ends = np.array([[self.seen[int(user)][-1], self.seen[int(user)][0]] for user in users]).reshape(-1, 2)
        last = uniforms < 0.5
        actions = np.where(last, ends[:, 0], ends[:, 1])
        return actions, np.where(ends[:, 0] == ends[:, 1], 1.0, 0.5)

    def probabilities(self, users):
        out = np.zeros((len(users), self.n_items))
        for row, user in enumerate(users):
            out[row, self.seen[int(user)][-1]] += 0.5
            out[row, self.seen[int(user)][0]] += 0.5
        return out


class Contrary(Uniform):
    """Learns from the last view seen before the reward came."""

    name = "contrary"
    learns = "own user"

    def __init__(self, n_items):
        super().__init__(n_items)
        self.last, self.sum = {}, {}

    def reset(self, users):
        for user in users.tolist():
            self.last[user] = self.sum[user] = 0

    def observe(self, users, items):
        self.last.update(zip(users.tolist(), items.tolist(), strict=True))

    def learn(self, users, actions, rewards, propensities):
        for user in users.tolist():
            self.sum[user] += self.last[user]

    def act(self, users, uniforms):
        return np.array([self.sum[user] % self.n_items for user in users.tolist()]), np.ones(len(users))

    def probabilities(self, users):
        return np.eye(self.n_items)[self.act(users, None)[0]]
