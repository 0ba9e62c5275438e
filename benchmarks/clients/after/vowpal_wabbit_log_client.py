from shared import P, log
from vowpalwabbit import Workspace

# --- the client's own lines
from recsim_mnar.export import decisions, to_vw

lines = to_vw(decisions(log, P))
# --- end
trained = Workspace(f"--cb_explore {P} --quiet")
for line in lines:
    trained.learn(line)
print(f"{trained.get_weighted_examples():.0f} examples, {trained.predict('| f1:2')[1]:.5f}")
