import numpy as np
from shared import P, log, tried
from sklearn.ensemble import RandomForestRegressor

from recsim_mnar.export import decisions
from recsim_mnar.policies import EpsilonMixture, Policy

made = decisions(log, P)
forest = RandomForestRegressor(20, max_depth=5, random_state=0)
forest.fit(np.hstack([made.context, np.eye(P)[made.action]]), made.reward)


# --- before
class Counted(Policy):
    n_items, batches_decisions = P, True

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

    def score(self, x):
        pairs = np.hstack([np.repeat(x, P, axis=0), np.tile(np.eye(P), (len(x), 1))])
        return forest.predict(pairs).reshape(len(x), P)


policy = Counted()
# --- after
from recsim_mnar.integrations.scikit_learn import reward_policy

policy = reward_policy(forest, P)
# --- end
print(tried(EpsilonMixture(policy, 0.1)))
