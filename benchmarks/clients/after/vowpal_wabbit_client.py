from shared import P, world

# --- the client's own lines
from recsim_mnar.integrations.vowpal_wabbit import VowpalWabbit
from recsim_mnar.simulation.online import simulate_online

policy = VowpalWabbit("--epsilon 0.2", P)
# --- end
run = simulate_online(world, policy, n_users=60, seed=9, lanes=8)
shown = run.log.is_bandit
print(f"online {shown.sum()} decisions, propensities {run.log['propensity'][shown].sum():.4f}")
