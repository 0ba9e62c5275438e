from shared import P, log, world
from vowpalwabbit import Workspace

# --- the client's own lines
from recsim_mnar.export import decisions, to_vw
from recsim_mnar.integrations.vowpal_wabbit import VowpalWabbit
from recsim_mnar.simulate.online import simulate_online

lines, policy = to_vw(decisions(log, P)), VowpalWabbit("--epsilon 0.2", P)
# --- end
trained = Workspace(f"--cb_explore {P} --quiet")
for line in lines:
    trained.learn(line)
run = simulate_online(world, policy, n_users=60, seed=9, lanes=8)
shown = run.log.is_bandit
print(f"{trained.get_weighted_examples():.0f} examples, {trained.predict('| f1:2')[1]:.5f}")
print(f"online {shown.sum()} decisions, propensities {run.log['propensity'][shown].sum():.4f}")
