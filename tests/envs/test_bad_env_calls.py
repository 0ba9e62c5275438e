"""What a wrong call of an environment gets: one line that says what to give, or that a reset is due."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from recsim_mnar.envs import (
    CampaignsEnv,
    WorldEnv,
    WorldVectorEnv,
    world_env,
    world_vector_env,
)
from recsim_mnar.envs.recording import RecordLog
from recsim_mnar.errors import UserError
from recsim_mnar.purchases.envs import PurchasesEnv, PurchasesVectorEnv
from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.ratings import RatingsWorld
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from toys import refused

ID = "recsim_mnar/{}-v0"
SESSIONS = SessionsWorld(SessionsParams(n_items=12, p_leave_bandit=0.1))
PURCHASES = PurchasesWorld(PurchasesParams(n_items=12, n_periods=4, slate_size=3, base=-1.0, slates="fixed"))
RATINGS = RatingsWorld.from_matrix(np.full((2, 3), 5.0))


def begun(env, seed=0):
    env.reset(seed=seed)
    return env


def single(**more):
    return WorldEnv(SESSIONS, **more)


def lanes(n=2, **more):
    return WorldVectorEnv(SESSIONS, n, **more)


def campaigns(**more):
    return gym.make(ID.format("Campaigns"), preset="quick", **more).unwrapped


def platforms(**more):
    return world_vector_env(2, world="campaigns", preset="quick", autoreset_mode=AutoresetMode.DISABLED, **more)


def ended(env):
    begun(env)
    while not env.step(0)[2]:
        pass
    return env


def twice(env):
    return begun(begun(env), 1)


NO_INTEGERS = [  # one decision: what is no integer, and what is said of it
    (np.array([[1]]), r"one integer, got an array of shape \(1, 1\)"),
    (np.zeros(0, np.int64), r"one integer, got an array of shape \(0,\)"),
    ([1, 2], r"one integer, got an array of shape \(2,\)"),
    ([[1], [1, 2]], "number or an array"),
    (2**70, "out of range"),
    (-1, r"0\.\.11"),
    (12, r"0\.\.11"),
    *((action, "integer") for action in (np.array([1.0]), np.array([True]), True, "3", 1.7, np.nan)),
]
NO_OBSERVATIONS = [
    ({"observation": "views"}, "observation='views'"),
    ({"observation": "counts=3"}, "counts takes no number"),
    ({"observation": "last=0"}, "whole number of at least 1"),
    ({"observation": "last=x"}, "'x' is not a valid number"),
    ({"observation": "decayed=1"}, r"must be in \(0, 1\)"),
    ({"observation": "shown=1"}, r"must be in \(0, 1\)"),
    ({"observation": "features"}, "have none"),
    ({"info": "view"}, "info='view': did you mean 'views'"),
    ({"info": 3}, "info=3: known: counts, none, views"),
    ({"render_mode": "human"}, "render_mode='human': environments draw nothing"),
]
NO_OPTIONS = [([1], "options must be a dictionary"), ({"usr": 3}, "did you mean 'user'")]
CALLS = {
    "single": [
        *((lambda action=action: begun(single()).step(action), words) for action, words in NO_INTEGERS),
        *((lambda given=given: world_env(SESSIONS, **given), words) for given, words in NO_OBSERVATIONS),
        *((lambda given=given: single().reset(seed=0, options=given), words) for given, words in NO_OPTIONS),
        (lambda: single().reset(seed=0, options={"user": -1}), "user"),
        (lambda: single().reset(seed=0, options={"user": 2**63}), r"options\['user'\]"),
        (lambda: WorldEnv(SessionsWorld(SessionsParams(p_organic_to_bandit=0.0))), "p_organic_to_bandit"),
        (lambda: gym.make(ID.format("Sessions"), n_itmes=3), "^unknown keyword 'n_itmes'; did you mean 'n_items'"),
        (lambda: twice(RecordLog(single())), "already"),
        (lambda: gym.make(ID.format("World")), "world="),
        (lambda: begun(single()).step(np.zeros(12)), r"float64 of shape \(12,\)"),
    ],
    "vector": [
        *((lambda action=action: begun(lanes()).step(np.array([0, action])), r"0\.\.11") for action in (-1, 12)),
        *((lambda given=given: begun(lanes()).step(given), "integer") for given in (np.full(2, np.nan), [0.0, 1.0])),
        *(
            (lambda given=given: world_vector_env(2, world=SESSIONS, **given), words)
            for given, words in NO_OBSERVATIONS
        ),
        *((lambda given=given: lanes().reset(seed=0, options=given), words) for given, words in NO_OPTIONS),
        (lambda: lanes(0), "num_envs"),
        (lambda: lanes(2.5), "num_envs must be a whole number"),
        (lambda: lanes(autoreset_mode="never"), "autoreset_mode"),
        (lambda: lanes(max_episode_steps=0), "max_episode_steps"),
        (lambda: lanes(max_episode_steps=2.5), "max_episode_steps must be a whole number"),
        (lambda: lanes().reset(seed=[1, 2, 3]), "seeds"),
    ],
    "ratings": [
        (lambda: world_env(RATINGS, alpha=0.5), "omit alpha"),
        (lambda: world_env(RATINGS, "quick"), "omit preset"),
    ],
    "purchases": [
        (lambda: begun(PurchasesEnv(PURCHASES)).step(np.array([0, 1])), "a slate must have 3 items, got 2"),
        (lambda: begun(PurchasesEnv(PURCHASES)).step(np.array([0, 1, 12])), "item 12 is out of range"),
        (lambda: begun(PurchasesEnv(PURCHASES)).step(np.array([0.5, 1, 2])), "integers"),
        (lambda: begun(PurchasesVectorEnv(PURCHASES, 2)).step(np.zeros((3, 3), int)), r"shape \(2, N\)"),
    ],
    "campaigns": [
        (lambda: campaigns(n_campaigns=0), "n_campaigns = 0"),
        (lambda: begun(campaigns()).step(np.ones(3, np.float32)), "weights must have shape"),
        (lambda: begun(campaigns()).step(np.full(60, np.nan, np.float32)), "finite and not negative"),
        (lambda: begun(campaigns()).step(["a"] * 60), "weights must hold numbers"),
        (lambda: _halves(begun(campaigns())), "lists must hold integers"),
        (lambda: begun(campaigns()).reset(options={"user": 3}), "options"),
        (lambda: begun(campaigns()).reset(options=[1]), "options"),
        (
            lambda: begun(campaigns(n_users=1, user_growth=0.999, first_campaign=0), 3).step(np.ones(60, np.float32)),
            "no eligible user",
        ),
        (lambda: begun(platforms()).step(np.zeros(3)), "weights must have shape"),
        (lambda: platforms(observation="last"), "observation: an environment of platforms"),
    ],
}


def _halves(env):
    env.step_lists(np.full((len(env.platform.present()), 2), 0.5))


@pytest.mark.parametrize(
    ("call", "words"), [pytest.param(*row, id=f"{door}-{row[1]}") for door, rows in CALLS.items() for row in rows]
)
def test_a_wrong_call_is_said_in_one_line(call, words):
    with refused(words):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: single().step(0),
        lambda: ended(single()).step(0),
        lambda: world_vector_env(2, world=RATINGS).step(np.array([0, 3])),
        lambda: PurchasesEnv(PURCHASES).step(np.array([0, 1, 2])),
        lambda: PurchasesVectorEnv(PURCHASES, 2).step(np.zeros((2, 3), int)),
        lambda: CampaignsEnv(make_world("campaigns", "quick")).log(),
        lambda: platforms().step(np.zeros((2, 60), np.float32)),
    ],
)
def test_before_a_reset_and_after_the_end_a_reset_is_due(call):
    with pytest.raises(gym.error.ResetNeeded):
        call()


@pytest.mark.parametrize("name", ["Sessions-v0", "Ratings-v0", "Campaigns-v0", "Cold100-v1"])
def test_an_unknown_keyword_is_a_type_error_as_of_any_function(name):
    """TorchRL tries ``frameskip`` and goes on without it at Python's own words in a TypeError."""
    for make in (gym.make, gym.make_vec):
        with pytest.raises(TypeError, match="unexpected keyword argument 'frameskip'") as caught:
            make(f"recsim_mnar/{name}", frameskip=1)
        assert isinstance(caught.value, UserError)
