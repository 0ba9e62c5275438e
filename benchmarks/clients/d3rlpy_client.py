import d3rlpy
import numpy as np
from shared import P, log

# --- before
observations, counts = [], {}
for row in range(len(log)):
    seen = counts.setdefault(int(log["user"][row]), np.zeros(P, np.float32))
    if log.is_bandit[row]:
        observations.append(seen.copy())
    else:
        seen[log["item"][row]] += 1
shown = log.bandit()
ends = np.append(shown["user"][1:] != shown["user"][:-1], True).astype(np.float32)
columns = (np.stack(observations), shown["action"].astype(np.int32)[:, None], shown["reward"][:, None], ends)
dataset = d3rlpy.dataset.MDPDataset(*columns, action_size=P)
# --- after
from recsim_mnar.export import decisions, to_d3rlpy

dataset = d3rlpy.dataset.MDPDataset(**to_d3rlpy(decisions(log, P)))
# --- end
observed = sum(episode.observations.sum() for episode in dataset.episodes)
acted = sum(int(episode.actions.sum()) for episode in dataset.episodes)
print(f"{len(dataset.episodes)} episodes, {dataset.transition_count} steps, observed {observed:.0f}, actions {acted}")
