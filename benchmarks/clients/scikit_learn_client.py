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

    # + init reset observe probabilities act

    def score(self, x):
        pairs = np.hstack([np.repeat(x, P, axis=0), np.tile(np.eye(P), (len(x), 1))])
        return forest.predict(pairs).reshape(len(x), P)


policy = Counted()
# --- after
from recsim_mnar.integrations.scikit_learn import reward_policy

policy = reward_policy(forest, P)
# --- end
print(tried(EpsilonMixture(policy, 0.1)))
