"""The campaign environment: conformance, determinism, and the same run_config as the world gives without it."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from recsim_mnar.campaigns.platform import platform_log
from recsim_mnar.worlds import make_world

ID = "recsim_mnar/Campaigns-v0"


def made(**params):
    return gym.make(ID, preset="quick", **params)


def rollout(seed, episodes=2):
    env, out = made(), []
    env.action_space.seed(seed)
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed if episode == 0 else None)
        out.append(observation)
        over = False
        while not over:
            observation, reward, over, cut, info = env.step(env.action_space.sample())
            assert (type(reward), type(over), type(cut)) == (float, bool, bool)
            assert reward == info["accepted"]
            assert not cut
            out += [observation, reward]
        with pytest.raises(gym.error.ResetNeeded):
            env.step(env.action_space.sample())
    return out, env.unwrapped.log().digest()


def test_two_copies_agree_and_episodes_differ():
    (first, digest), (second, again) = rollout(4), rollout(4)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    assert digest == again
    assert digest != rollout(5)[1]
    assert not np.array_equal(first[0], first[len(first) // 2])


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
