import numpy as np
from shared import P, log
from vowpalwabbit import Workspace

# --- before
lines, counts = [], {}
for row in range(len(log)):
    seen = counts.setdefault(int(log["user"][row]), np.zeros(P))
    if not log.is_bandit[row]:
        seen[log["item"][row]] += 1
        continue
    features = " ".join(f"f{k}:{seen[k]}" for k in np.flatnonzero(seen))
    lines.append(f"{log['action'][row] + 1}:{0.0 - log['reward'][row]}:{log['propensity'][row]} | {features}")
# --- after
from recsim_mnar.export import decisions, to_vw

lines = to_vw(decisions(log, P))
# --- end
trained = Workspace(f"--cb_explore {P} --quiet")
for line in lines:
    trained.learn(line)
print(f"{trained.get_weighted_examples():.0f} examples, {trained.predict('| f1:2')[1]:.5f}")
