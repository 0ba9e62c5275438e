"""Write a table of views and recommendations, as a shop might export it: a simulated log under a shop's own names."""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from recsim_mnar import Log, make_world, simulate
from recsim_mnar.policies import registry

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("file", nargs="?", type=Path, default=Path("events.csv"))
parser.add_argument("--users", type=int, default=100)
parser.add_argument("--seed", type=int, default=0)
given = parser.parse_args()

world = make_world("sessions", "quick")
policy = registry.learner("user-popularity+epsilon=0.3").fit(Log({}), n_items=world.n_items, seed=0)
log = simulate(world, policy, n_users=given.users, seed=given.seed)
shown = log.is_bandit
began = pd.Timestamp("2024-05-01") + pd.to_timedelta(log["user"] % 1000, "min")
table = pd.DataFrame(
    {
        "event_type": np.where(shown, "recommendation", "view"),
        "visitor_id": [f"v{given.seed}-{user:05d}" for user in log["user"]],
        "occurred_at": began + pd.to_timedelta(log["time"], "s"),
        "item_id": [f"P{item:03d}" for item in np.where(shown, log["action"], log["item"])],
        "propensity_score": log["propensity"],
        "click": log["reward"],
    }
).sort_values("occurred_at", kind="stable")
given.file.parent.mkdir(parents=True, exist_ok=True)
table.to_csv(given.file, index=False)
print(f"{shown.sum():,} recommendations and {(~shown).sum():,} views in {given.file}")
