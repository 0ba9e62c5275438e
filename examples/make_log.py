"""Write a log of recommendations as a shop might export it: one row per recommendation, and a new recommender to judge.

python examples/make_log.py log.csv

The column `new` is the probability with which the new recommender would have shown the logged item.
"""

import argparse
from pathlib import Path

import pandas as pd

from recsim_mnar import Log, make_world, replay, simulate
from recsim_mnar.policies import registry

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("file", nargs="?", type=Path, default=Path("log.csv"))
parser.add_argument("--users", type=int, default=3000)
parser.add_argument("--seed", type=int, default=1)
given = parser.parse_args()

world = make_world("sessions", "recogym-v1")
today = registry.learner("user-popularity+epsilon=0.3").fit(Log({}), n_items=world.n_items, seed=0)
earlier = simulate(world, today, n_users=500, seed=7)  # what the new recommender learned from
new = registry.learner("user-knn").fit(earlier, n_items=world.n_items, seed=0)
log = simulate(world, today, n_users=given.users, seed=given.seed)
shown = log.is_bandit
given.file.parent.mkdir(parents=True, exist_ok=True)
table = pd.DataFrame(
    {
        "user_id": log["user"],
        "time": log["time"],
        "item": log["action"],
        "propensity": log["propensity"],
        "click": log["reward"],
        "new": replay(log, new),
    }
)[shown]
table.to_csv(given.file, index=False)
print(f"{len(table):,} recommendations to {given.users:,} users in {given.file}")
