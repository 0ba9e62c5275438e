"""What environments let an agent observe: each kind against a plain twin made of ``info``, single and vector."""

from __future__ import annotations

import numpy as np
import pytest
from test_conventions import KINDS, SHOWN, WORLDS

from recsim_mnar.envs import world_env, world_vector_env
from recsim_mnar.envs.recording import record, record_vector
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from toys import refused
from twins import histories
from twins.policies import Uniform


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


def test_info_of_a_fixed_size_says_how_much_there_was():
    world = WORLDS["sessions"]()
    free, bound = world_env(world, info="views"), world_env(world, info_size=3)
    (_, one), (_, other) = free.reset(seed=5), bound.reset(seed=5)
    shapes, longest, skipped = set(), 0, 0
    for k in range(400):
        shapes.add(tuple((key, np.shape(value)) for key, value in sorted(other.items())))
        n = len(one["views"])
        longest, skipped = max(longest, n), skipped + len(one.get("skipped", ()))
        assert other["n_views"] == n
        assert other["n_skipped"] == len(one.get("skipped", ()))
        last = one["views"][-3:]
        assert other["views"].tolist() == [*last, *[-1] * (3 - len(last))]
        assert other["view_times"][: len(last)].tolist() == list(one["view_times"][-3:])
        *_, ended, _cut, one = free.step(k % 8)
        *_, other = bound.step(k % 8)
        if ended:
            (_, one), (_, other) = free.reset(), bound.reset()
    assert len(shapes) == 1
    assert longest > 3
    assert skipped > 0


def test_a_recorder_takes_a_fixed_size_that_holds_everything():
    world = SessionsWorld(SessionsParams(n_items=8, p_leave_organic=0.0, p_leave_bandit=0.1))
    expected = simulate(world, Uniform(8), 30, 3).digest()
    assert record(world_env(world, info_size=500), Uniform(8), 30, 3).digest() == expected
    assert record_vector(world_vector_env(4, world=world, info_size=500), Uniform(8), 30, 3).digest() == expected
    with refused("info_size=2 is too small to record"):
        record(world_env(world, info_size=2), Uniform(8), 30, 3)
    with refused("users skipped; make it without info_size"):
        record(world_env(WORLDS["sessions"](), info_size=500), Uniform(8), 30, 3)
