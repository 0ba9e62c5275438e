"""The Gymnasium faces of the ratings world."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from recsim_mnar.envs import ratings_env, ratings_vector_env
from recsim_mnar.envs.recording import LogBuilder, RecordLog, record
from recsim_mnar.errors import UserError
from recsim_mnar.policies import observe_events
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from twins.policies import Uniform

ID = "recsim_mnar/Ratings-v0"
SMALL = {"n_items": 15, "density": 0.1, "n_decisions": 4}


def test_the_observation_holds_the_ratings_revealed_so_far():
    world = make_world("ratings", None, ["n_items=40", "density=0.1"])
    env = ratings_env(world=world, info="views")
    for user in range(5):
        observation, info = env.reset(seed=3) if user == 0 else env.reset()
        assert info["user"] == user
        ratings = world.ratings_of(3, np.array([user]))[0]
        expected = np.zeros(40)
        expected[list(info["views"])] = ratings[list(info["views"])]
        assert info["ratings"] == tuple(ratings[list(info["views"])])
        assert len(info["observation_propensities"]) == len(info["views"])
        np.testing.assert_array_equal(observation, expected)
        for action in (7, 7, 31):
            observation, reward, ended, _, info = env.step(action)
            assert (reward, ended, info["views"]) == (ratings[action], False, ())
            expected[action] = reward
            np.testing.assert_array_equal(observation, expected)
        while not env.step(0)[2]:
            pass


def test_a_known_item_earns_nothing_where_repeats_do_not_pay():
    env = ratings_env(n_items=40, density=0.1, repeat_pays=False, info="views")
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


def test_made_by_gymnasium():
    env = gym.make_vec(
        ID, num_envs=4, vectorization_mode="vector_entry_point", max_episode_steps=3, info="views", **SMALL
    )
    observation, infos = env.reset(seed=1)
    assert observation.shape == (4, 15)
    assert infos["user"].tolist() == [0, 1, 2, 3]
    for lane in range(4):
        assert observation[lane][list(infos["views"][lane])].tolist() == list(infos["ratings"][lane])
        assert np.count_nonzero(observation[lane]) == len(infos["views"][lane])
    for _ in range(2):
        env.step(np.zeros(4, int))
    assert env.step(np.zeros(4, int))[3].all()


@pytest.mark.parametrize("kind", [gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv])
def test_gymnasiums_own_vector_environments_take_it(kind):
    """Numbers of ratings differ from lane to lane: arrays of them would not fit next to each other."""
    env = kind([lambda: ratings_env(info="views", **SMALL)] * 3)
    try:
        _, infos = env.reset(seed=0)
        assert [len(r) for r in infos["ratings"]] == [len(v) for v in infos["views"]]
        for _ in range(10):
            env.step(np.zeros(3, int))
    finally:
        env.close()


def test_recorders_keep_ratings_and_their_propensities():
    world = make_world("ratings", None, ["n_items=15", "density=0.1"])
    expected = simulate(world, Uniform(15), 9, 4)
    log = record(ratings_env(world=world), Uniform(15), 9, 4).validate(15)
    assert log.digest(optional=True) == expected.digest(optional=True)
    env = RecordLog(ratings_env(world=world))
    env.reset(seed=4)
    env.propensity = 1 / 15
    env.step(int(expected.bandit()["action"][0]))
    n = len(env.log())
    np.testing.assert_array_equal(env.log()["observation_propensity"], expected["observation_propensity"][:n])
    np.testing.assert_array_equal(env.log()["reward"], expected["reward"][:n])


def test_a_log_without_any_rating_has_the_column_still():
    builder = LogBuilder()
    builder.begin({"user": 0, "step": 0, "time": 0.0, "views": (), "view_times": (), "ratings": ()})
    builder.answer({"user": 0, "step": 0, "time": 0.0}, {}, 1, 0.5, 3.0)
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
        ratings_vector_env(2, observation="popularity", **SMALL),
    ):
        assert env.unwrapped.world.params == world.params
    env = gym.make(ID, observation="last=3", **SMALL)
    assert env.observation_space.shape == (3,)
    assert env.unwrapped.world.params == make_world("ratings", "quick", SMALL).params
    with pytest.raises(UserError, match="observation='popular'"):
        gym.make(ID, observation="popular", **SMALL)
    with pytest.raises(UserError, match="world= has its parameters already: omit observation"):
        gym.make(ID, world=world, observation="popularity")
