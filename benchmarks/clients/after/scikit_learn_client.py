import numpy as np
from shared import P, log, tried
from sklearn.ensemble import RandomForestRegressor

from recsim_mnar.export import decisions
from recsim_mnar.policy import EpsilonMixture

made = decisions(log, P)
forest = RandomForestRegressor(20, max_depth=5, random_state=0)
forest.fit(np.hstack([made.context, np.eye(P)[made.action]]), made.reward)


# --- the client's own lines
from recsim_mnar.integrations.scikit_learn import reward_policy

policy = reward_policy(forest, P)
# --- end
print(tried(EpsilonMixture(policy, 0.1)))
