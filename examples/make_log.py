"""Write a log of recommendations as a shop might export it: one row per recommendation, and a new recommender to judge.

python examples/make_log.py log.csv

The column `new` is the probability with which the new recommender would have shown the logged item.
"""

import sys
from pathlib import Path

import pandas as pd

from recsim_mnar import Log, make_world, replay, simulate
from recsim_mnar.policies import registry

world = make_world("sessions", "recogym-v1")
today = registry.learner("user-popularity+epsilon=0.3").fit(Log({}), n_items=world.n_items, seed=0)
earlier = simulate(world, today, n_users=500, seed=7)  # what the new recommender learned from
new = registry.learner("user-knn").fit(earlier, n_items=world.n_items, seed=0)
log = simulate(world, today, n_users=3000, seed=1)
shown = log.is_bandit
target = Path(sys.argv[1] if len(sys.argv) > 1 else "log.csv")
target.parent.mkdir(parents=True, exist_ok=True)
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
table.to_csv(target, index=False)
print(f"{len(table):,} recommendations to 3,000 users in {target}")
