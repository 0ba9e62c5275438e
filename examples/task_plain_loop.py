"""A plain loop on a frozen task: three lines of ours, marked, and `evaluate` says how good the table is.

It learns, for every item viewed, how often every other item is clicked, from actions at random.
"""

import sys

import gymnasium as gym
import numpy as np

import recsim_mnar  # ours: it registers the environments

STEPS, LANES, ITEMS = int(sys.argv[1]) if len(sys.argv) > 1 else 196_608, 64, 100
lanes = gym.make_vec("recsim_mnar/Flipped100-v1", num_envs=LANES, vectorization_mode="vector_entry_point")
seen, _ = lanes.reset(seed=1)  # (64, 100) view counts so far; other users than those of the evaluation
shown, clicked = np.zeros((ITEMS, ITEMS)), np.zeros((ITEMS, ITEMS))  # by item viewed and item recommended
rng = np.random.default_rng(0)
for _ in range(STEPS // LANES):
    actions = rng.integers(ITEMS, size=LANES)
    shares = seen / np.maximum(seen.sum(axis=1, keepdims=True), 1)
    seen, rewards, *_ = lanes.step(actions)
    np.add.at(shown.T, actions, shares)
    np.add.at(clicked.T, actions[rewards > 0], shares[rewards > 0])
rate = clicked.sum(axis=0) / np.maximum(shown.sum(axis=0), 1)
table = (clicked + 100 * rate) / (shown + 100)  # click rates, shrunk towards each item's own

learned = recsim_mnar.FeaturePolicy(ITEMS, scores=lambda counts: counts @ table, name="table")  # ours
print(recsim_mnar.evaluate(learned, "flipped-100-v1"))  # ours
