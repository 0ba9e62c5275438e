import os
import tempfile

os.environ["MINARI_DATASETS_PATH"] = tempfile.mkdtemp()
import gymnasium as gym
import minari
import numpy as np
from minari.data_collector import EpisodeBuffer
from shared import P, log

# --- before
episodes = []
for user in log.users():
    mine = log.select(log["user"] == user)
    if not mine.is_bandit.any():
        continue
    seen, observations = np.zeros(P, np.float32), []
    for row in range(len(mine)):
        if mine.is_bandit[row]:
            observations.append(seen.copy())
        else:
            seen[mine["item"][row]] += 1
    shown = mine.bandit()
    ends = np.arange(len(shown)) == len(shown) - 1
    infos = {"propensity": np.append(shown["propensity"], np.nan)}
    observations = np.stack([*observations, seen])
    parts = (observations, shown["action"].astype(np.int64), shown["reward"], ends, np.zeros(len(shown), bool), infos)
    names = ("observations", "actions", "rewards", "terminations", "truncations", "infos")
    episodes.append(EpisodeBuffer(**dict(zip(names, parts, strict=True))))
# --- after
from recsim_mnar.export import decisions, to_minari

episodes = [EpisodeBuffer(**episode) for episode in to_minari(decisions(log, P))]
# --- end
spaces = {"observation_space": gym.spaces.Box(0, 1e6, (P,), np.float32), "action_space": gym.spaces.Discrete(P)}
dataset = minari.create_dataset_from_buffers("recsim-mnar/client-v0", episodes, **spaces)
total = sum(np.nansum(episode.infos["propensity"]) for episode in dataset.iterate_episodes())
seen = sum(episode.observations.sum() for episode in dataset.iterate_episodes())
print(f"{dataset.total_episodes} episodes, {dataset.total_steps} steps, propensities {total:.6f}, observed {seen:.0f}")
