"""The Gymnasium faces of the ratings world."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from recsim_mnar.envs import world_env, world_vector_env
from recsim_mnar.envs.recording import LogBuilder
from recsim_mnar.policies import observe_events
from recsim_mnar.worlds import make_world
from toys import refused
from twins.policies import Uniform

ID = "recsim_mnar/Ratings-v0"
SMALL = {"n_items": 15, "density": 0.1, "n_decisions": 4}


def test_a_known_item_earns_nothing_where_repeats_do_not_pay():
    env = world_env("ratings", n_items=40, density=0.1, repeat_pays=False, info="views")
    observation, info = env.reset(seed=3)
    while not info["views"]:
        observation, info = env.reset()
    known = info["views"][0]
    stars = observation[known]
    observation, reward, *_ = env.step(known)
    assert reward == 0.0
    assert observation[known] == stars
    new = int(np.flatnonzero(observation == 0)[0])
    assert env.step(new)[1] >= 1.0
    assert env.step(new)[1] == 0.0


@pytest.mark.parametrize("kind", [gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv])
def test_gymnasiums_own_vector_environments_take_it(kind):
    """Numbers of ratings differ from lane to lane: arrays of them would not fit next to each other."""
    env = kind([lambda: world_env("ratings", info="views", **SMALL)] * 3)
    try:
        _, infos = env.reset(seed=0)
        assert [len(r) for r in infos["ratings"]] == [len(v) for v in infos["views"]]
        for _ in range(10):
            env.step(np.zeros(3, int))
    finally:
        env.close()


def test_a_log_without_any_rating_has_the_column_still():
    builder = LogBuilder()
    builder.begin({"user": 0, "step": 0, "time": 0.0, "views": (), "view_times": (), "ratings": ()})
    builder.add_step({"user": 0, "step": 0, "time": 0.0}, {}, 1, 0.5, 3.0)
    assert np.isnan(builder.log()["observation_propensity"]).tolist() == [True]


class Reader(Uniform):
    """Notes what it learns."""

    def __init__(self, n_items=9):
        super().__init__(n_items)
        self.heard = []

    def observe(self, users, items):
        self.heard.append(("view", items.tolist()))

    def observe_ratings(self, users, items, ratings):
        self.heard.append(("rating", items.tolist(), ratings.tolist()))


def test_policies_learn_ratings_where_there_are_any():
    policy, users, items = Reader(), np.zeros(4, int), np.arange(4)
    observe_events(policy, users, items, np.array([1.0, 5.0, np.nan, 2.0]))
    assert policy.heard == [("rating", [0, 1], [1.0, 5.0]), ("view", [2]), ("rating", [3], [2.0])]
    observe_events(policy, users[:0], items[:0], np.zeros(0))
    assert len(policy.heard) == 3


def test_observation_is_the_worlds_or_the_agents_by_its_value():
    """Ratings of popular items are revealed in a world with ``observation="popularity"``; agents see ``counts``."""
    world = make_world("ratings", "quick", {**SMALL, "observation": "popularity"})
    for env in (
        gym.make(ID, observation="popularity", **SMALL),
        world_vector_env(2, world="ratings", observation="popularity", **SMALL),
    ):
        assert env.unwrapped.world.params == world.params
    env = gym.make(ID, observation="last=3", **SMALL)
    assert env.observation_space.shape == (3,)
    assert env.unwrapped.world.params == make_world("ratings", "quick", SMALL).params
    with refused("observation='popular'"):
        gym.make(ID, observation="popular", **SMALL)
    with refused("world= has its parameters already: omit observation"):
        gym.make(ID, world=world, observation="popularity")
