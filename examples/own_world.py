"""A world of your own in thirty lines: people in a café, who buy what is offered more readily when they like it.

    python examples/own_world.py

Then, from the folder of this file: recsim-mnar simulate --world own_world:Cafe --policy random --users 1000 --out run
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recsim_mnar import DecisionWorld
from recsim_mnar.rng import Stream, uniforms
from recsim_mnar.worlds import Params, PlainLanes


@dataclass(frozen=True)
class CafeParams(Params):
    n_items: int = 6
    p_stay: float = 0.8


class CafeLanes(PlainLanes):
    def __init__(self, world, n_lanes, truth_column):
        super().__init__(n_lanes, truth_column=truth_column)
        self.world, self.favourite = world, np.zeros(n_lanes, np.int64)

    @property
    def state(self):  # truth: what reward_means needs to know of each user
        return self.favourite[:, None].astype(float)

    def arrive(self, which):  # drawn at the user's address, so that no neighbour changes it
        for lane in which:
            u = uniforms(int(self.seed[lane]), Stream.USER, self.user[lane], 0)[0]
            self.favourite[lane] = int(u * self.world.n_items)

    def expected(self, which, actions):
        return self.world.reward_means(self.state[which])[np.arange(len(which)), actions]

    def answer(self, which, actions):
        bought = self.uniforms(which) < self.expected(which, actions)
        return bought.astype(float), self.uniforms(which, Stream.ORGANIC) < self.world.params.p_stay


class Cafe(DecisionWorld):
    """People in a café are offered one thing after another, and each has a favourite."""

    name = "cafe"
    truth_column = "expected_reward"
    params_class = CafeParams
    reward_name = "orders"

    def __init__(self, params=None):
        self.params = params or CafeParams()
        self.n_items = self.params.n_items

    def open_lanes(self, n_lanes, *, keep_truth=False):
        return CafeLanes(self, n_lanes, self.truth_column if keep_truth else None)

    def reward_means(self, state):
        return np.where(state == np.arange(self.n_items), 0.6, 0.1)


def main():
    import gymnasium as gym

    from recsim_mnar.policies import registry
    from recsim_mnar.simulation import simulate
    from recsim_mnar.testing import check_world
    from recsim_mnar.worlds import make_world

    print("broken rules:", check_world(Cafe))
    world = make_world(f"{__name__}:Cafe", settings=["p_stay=0.9"])
    learner = registry.learner("random")
    uniform = learner.fit(None, n_items=world.n_items, seed=0)
    log = simulate(world, uniform, 1000, seed=1)
    print(f"{len(log):,} recommendations, {log['reward'].mean():.3f} bought; by theory {(0.6 + 5 * 0.1) / 6:.3f}")
    env = gym.make("recsim_mnar/World-v0", world=world)
    env.reset(seed=1)
    _, reward, *_ = env.step(0)
    print(f"user 0 of seed 1 answers item 0 with {reward:g}")


if __name__ == "__main__":
    main()
