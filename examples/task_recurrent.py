"""A recurrent policy on a frozen task: a hidden state per user, moved by views and by the policy's own recommendations.

The environment's default observation counts views. What was shown, which decides the clicks here, the policy remembers.
"""

import sys

import numpy as np

import recsim_mnar
from recsim_mnar import Policy

TASK, ITEMS = "fatigue-50-v1", 50
USERS = int(sys.argv[1]) if len(sys.argv) > 1 else None


class Recurrent(Policy):
    """Takes the item with the largest score of a user's hidden state, which a cell moves event by event."""

    learns = "own user"  # learn() moves the state of its own user alone

    def __init__(self, cell, readout, width, name="recurrent"):
        self.cell, self.readout, self.width, self.name, self.n_items = cell, readout, width, name, ITEMS
        self.hidden = {}

    def reset(self, users):  # these users begin
        self.hidden.update((user, np.zeros(self.width, np.float32)) for user in users.tolist())

    def observe(self, users, items):  # views, in order
        for user, item in zip(users.tolist(), items.tolist(), strict=True):
            self.hidden[user] = self.cell(self.hidden[user], item, shown=False, reward=0.0)

    def learn(self, users, actions, rewards, propensities):  # what it showed itself
        for user, item, reward in zip(users.tolist(), actions.tolist(), rewards.tolist(), strict=True):
            self.hidden[user] = self.cell(self.hidden[user], item, shown=True, reward=reward)

    def probabilities(self, users):
        scores = self.readout(np.stack([self.hidden[user] for user in users.tolist()]))
        return np.eye(self.n_items)[scores.argmax(axis=1)]

    def act(self, users, uniforms):
        actions = self.probabilities(users).argmax(axis=1)
        return actions, np.ones(len(users))


def trace(hidden, item, *, shown, reward):  # a GRU's or an LSTM's cell goes here, with its weights
    hidden = 0.9 * hidden
    if shown:
        hidden[item] += 1
    return hidden


task = recsim_mnar.task(TASK)
world = task.make_world()
log = recsim_mnar.simulate(world, task.random_policy(), 2000, seed=1)  # other users than the public ones
actions, clicks = log["action"][log.is_bandit], log["reward"][log.is_bandit]
rate = np.bincount(actions, clicks, ITEMS) / np.bincount(actions, minlength=ITEMS)


def agent(price):  # the one weight that is learned: what an item loses for each time that it was shown lately
    return Recurrent(trace, lambda hidden: rate - price * hidden, ITEMS, f"recurrent, price {price}")


earned = {
    price: np.nansum(recsim_mnar.simulate(world, agent(price), 200, seed=2)["reward"]) for price in (0.0, 0.01, 0.03)
}
for price in (0.0, max(earned, key=earned.get)):
    print(recsim_mnar.evaluate(agent(price), TASK, n_users=USERS))
