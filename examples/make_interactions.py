"""Write a small table of interactions, as a shop might export it: the organic half of a simulated log."""

import sys
from pathlib import Path

import pandas as pd

from recsim_mnar import Log, make_world, simulate
from recsim_mnar.policies import registry

world = make_world("sessions", "quick")
policy = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
views = simulate(world, policy, n_users=300, seed=1).organic()
target = Path(sys.argv[1] if len(sys.argv) > 1 else "interactions.csv")
target.parent.mkdir(parents=True, exist_ok=True)
pd.DataFrame({"user_id": views["user"], "item_id": views["item"], "timestamp": views["time"]}).to_csv(
    target, index=False
)
print(f"{len(views):,} interactions in {target}")
