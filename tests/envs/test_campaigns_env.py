"""The campaign environment: conformance, determinism, and the same run_config as the world gives without it."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from recsim_mnar.campaigns.platform import platform_log
from recsim_mnar.worlds import make_world

ID = "recsim_mnar/Campaigns-v0"


def made(**params):
    return gym.make(ID, preset="quick", **params)


def test_it_tells_the_story_of_the_world():
    env = made().unwrapped
    env.reset(seed=8)
    world = make_world("campaigns", "quick")
    platform = world.open_platform(8)
    weights = np.linspace(0, 1, 60).astype(np.float32)
    for day in (330, 430):
        assert env.platform.day == day
        env.step(weights)
        platform.advance(day)
        platform.recommend(*platform.draw_lists(weights))
    platform.advance(530)
    assert env.log().digest() == platform_log(platform).digest()


def test_lists_of_a_recommender():
    env = made().unwrapped
    env.reset(seed=8)
    scores = np.tile(np.arange(60.0), (len(env.platform.present()), 1))
    lists, probabilities = env.platform.best_lists(scores)
    _, reward, over, _, info = env.step_lists(lists, probabilities)
    assert reward == info["accepted"] == env.platform.campaigns[0].accepted.sum()
    assert not over


def test_nothing_is_recommended_by_no_weight():
    env = made()
    env.reset(seed=0)
    _, reward, _, _, info = env.step(np.zeros(60, np.float32))
    assert reward == info["recommended"] == 0
