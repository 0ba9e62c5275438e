"""A recommender that is retrained on what its own campaigns made people add: its score climbs, its worth does not.

    python examples/feedback_loop.py [AGENT]

Before each campaign the agent (by default cosine-cf) is fitted on what users hold, scored by classical leave-one-out on
the same data, and judged by the truth: the expected share of its recommendations that are accepted.
"""

from __future__ import annotations

import sys

from recsim_mnar import UserError, make_world
from recsim_mnar.policy import registry
from recsim_mnar.protocols.temporal.feedback_loop import Round, feedback_loop


def main(agent: str = "cosine-cf") -> list[Round]:
    world = make_world("campaigns", "affinity", ["n_users=2000", "fatigue=1"])
    _, rounds = feedback_loop(world, registry.learner(agent), rounds=8, every=20, first=300, seed=1)
    print(f"{agent}, {world.params.n_users:,} users, {world.n_items} items")
    print(
        f"{'day':>5s}{'leave-one-out hr@5':>20s}{'true quality':>14s}{'accepted':>10s}{'items shown':>13s}{'gini':>7s}"
    )
    for r in rounds:
        print(f"{r.day:5g}{r.loo:20.3f}{r.quality:14.3f}{r.accepted:10.3f}{r.items_shown:13d}{r.gini:7.2f}")
    return rounds


if __name__ == "__main__":
    try:
        main(*sys.argv[1:2])
    except UserError as error:
        sys.exit(str(error))
