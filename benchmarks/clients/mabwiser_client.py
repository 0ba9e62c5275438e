import copy

import numpy as np
from mabwiser.mab import MAB, LearningPolicy
from shared import P, world

from recsim_mnar.policies import EpsilonMixture, Policy
from recsim_mnar.simulation.items import simulate_online

mab = MAB(list(range(P)), LearningPolicy.LinUCB(alpha=1))


# --- before
class Counted(Policy):
    n_items, batches_decisions = P, False

    # + init reset observe probabilities act

    def score(self, x):
        if not self.mab._is_initial_fit:
            return np.zeros((len(x), P))
        given = self.mab.predict_expectations(x)
        return np.array([[row[a] for a in range(P)] for row in ([given] if isinstance(given, dict) else given)])

    def learn(self, users, actions, rewards, propensities):
        self.mab.partial_fit(actions, rewards, np.stack([self.counts[user] for user in users.tolist()]))

    mab = copy.deepcopy(mab)
    learns = "all users"


policy = Counted()
# --- after
from recsim_mnar.integrations.mabwiser import MabPolicy

policy = MabPolicy(mab)
# --- end
run = simulate_online(world, EpsilonMixture(policy, 0.2), n_users=60, seed=9, lanes=8)
shown = run.log.is_bandit
print(f"{shown.sum()} decisions, actions {run.log['action'][shown].sum()}, {run.log['propensity'][shown].sum():.5f}")
