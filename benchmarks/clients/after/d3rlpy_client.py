import d3rlpy
from shared import P, log

# --- the client's own lines
from recsim_mnar.export import decisions, to_d3rlpy

dataset = d3rlpy.dataset.MDPDataset(**to_d3rlpy(decisions(log, P)))
# --- end
observed = sum(episode.observations.sum() for episode in dataset.episodes)
acted = sum(int(episode.actions.sum()) for episode in dataset.episodes)
print(f"{len(dataset.episodes)} episodes, {dataset.transition_count} steps, observed {observed:.0f}, actions {acted}")
