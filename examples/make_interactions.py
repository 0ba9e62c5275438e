"""Write a small table of interactions, as a shop might export it: the organic half of a simulated log."""

import argparse
from pathlib import Path

import pandas as pd

from recsim_mnar import Log, make_world, simulate
from recsim_mnar.policies import registry

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("file", nargs="?", type=Path, default=Path("interactions.csv"))
parser.add_argument("--users", type=int, default=300)
parser.add_argument("--seed", type=int, default=1)
given = parser.parse_args()

world = make_world("sessions", "quick")
policy = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
views = simulate(world, policy, n_users=given.users, seed=given.seed).organic()
given.file.parent.mkdir(parents=True, exist_ok=True)
pd.DataFrame({"user_id": views["user"], "item_id": views["item"], "timestamp": views["time"]}).to_csv(
    given.file, index=False
)
print(f"{len(views):,} interactions in {given.file}")
