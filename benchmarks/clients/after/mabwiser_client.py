from mabwiser.mab import MAB, LearningPolicy
from shared import P, world

from recsim_mnar.policy import EpsilonMixture
from recsim_mnar.simulation.online import simulate_online

mab = MAB(list(range(P)), LearningPolicy.LinUCB(alpha=1))


# --- the client's own lines
from recsim_mnar.integrations.mabwiser import MabPolicy

policy = MabPolicy(mab)
# --- end
run = simulate_online(world, EpsilonMixture(policy, 0.2), n_users=60, seed=9, lanes=8)
shown = run.log.is_bandit
print(f"{shown.sum()} decisions, actions {run.log['action'][shown].sum()}, {run.log['propensity'][shown].sum():.5f}")
