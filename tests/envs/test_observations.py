"""What environments let an agent observe: each kind against a plain twin made of ``info``, single and vector."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from test_conventions import KINDS, SHOWN, WORLDS

from recsim_mnar.envs import world_env, world_vector_env
from twins import histories


def twin(kind, world, events):
    """The observation of a user's events (item, value): a plain loop over them."""
    name, _, text = kind.partition("=")
    n = world.n_items
    if name == "last":
        length = int(text or 10)
        return ([item + 1 for item, _ in reversed(events)] + [0] * length)[:length]
    out = np.zeros(n, np.float32)
    for item, value in events:
        if name == "decayed":
            out *= np.float32(text or 0.9)
            out[item] += np.float32(value)
        else:
            out[item] = value if world.rates else out[item] + 1
    return out


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_single_environment_against_a_plain_twin(name, kind):
    world = WORLDS[name]()
    env = world_env(world, observation=kind, info="views")
    env.action_space.seed(1)
    observation, info = env.reset(seed=3)
    events = []
    for _ in range(300):
        events += list(zip(info["views"], info.get("ratings", [1] * len(info["views"])), strict=True))
        events += [(item, 1) for item in info.get("bought", ())]
        assert observation in env.observation_space
        seen = observation
        if kind == "dict":
            seen = observation["counts"]
            assert set(observation) == {"counts"} | ({"user", "item_features"} if name == "features" else set())
            if name == "features":
                np.testing.assert_array_equal(observation["item_features"], world.item_features.astype(np.float32))
                row = world.rows_of(np.array([info["user"]]))[0]
                np.testing.assert_array_equal(observation["user"], world.user_features[row].astype(np.float32))
        np.testing.assert_array_equal(seen, twin("counts" if kind == "dict" else kind, world, events))
        action = env.action_space.sample()
        observation, reward, ended, _cut, info = env.step(action)
        if world.rates and reward > 0:
            events.append((int(action), reward))
        if ended:
            (observation, info), events = env.reset(), []


@pytest.mark.parametrize(("name", "kind"), SHOWN)
def test_what_was_shown_against_a_plain_twin(name, kind):
    world = WORLDS[name]()
    env = world_env(world, observation=kind, info="views")
    env.action_space.seed(1)
    decay, earned = float(kind.partition("=")[2] or 0.9), 0.0
    observation, info = env.reset(seed=3)
    events = []
    for _ in range(400):
        events += [(item, None) for item in info["views"]]
        assert observation in env.observation_space
        np.testing.assert_array_equal(observation, histories.shown(events, world.n_items, decay))
        action = env.action_space.sample()
        observation, reward, ended, _cut, info = env.step(action)
        events.append((int(action), reward))
        earned += reward
        if ended:
            events += [(item, None) for item in info["views"]]
            np.testing.assert_array_equal(observation, histories.shown(events, world.n_items, decay))
            (observation, info), events = env.reset(), []
    assert earned > 0


# ------------------------------------------------------------------------------------------------------------ campaigns


def test_one_seed_deals_its_platforms_out():
    vector = world_vector_env(3, world="campaigns", preset="quick")
    first, _ = vector.reset(seed=6)
    single = gym.make("recsim_mnar/Campaigns-v0", preset="quick").unwrapped
    for lane in range(3):
        observation, _ = single.reset(seed=6 if lane == 0 else None)
        np.testing.assert_array_equal(first[lane], observation)
    assert not np.array_equal(first[0], first[1])
    actions = np.full(vector.action_space.shape, 0.5, np.float32)
    ended = np.zeros(3, bool)
    while not ended.any():
        *_, ended, _cut, _infos = vector.step(actions)
    observations, *_ = vector.step(actions)
    observation, _ = single.reset()  # platform number 3, the next unopened one
    np.testing.assert_array_equal(observations[0], observation)


def test_platforms_are_cut_off_at_their_limit():
    cut = world_vector_env(2, world="campaigns", preset="quick", max_episode_steps=1)
    cut.reset(seed=1)
    *_, ended, truncated, _infos = cut.step(np.zeros(cut.action_space.shape, np.float32))
    assert truncated.all()
    assert not ended.any()
