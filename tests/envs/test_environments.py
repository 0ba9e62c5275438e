"""The Gymnasium faces: conformance, addressing, and what a wrong call gets."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from recsim_mnar.envs import WorldEnv, WorldVectorEnv
from recsim_mnar.envs.recording import lane_info
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from toys import refused

ID = "recsim_mnar/Sessions-v0"


def small_world():
    return SessionsWorld(SessionsParams(n_items=12, p_leave_bandit=0.1))


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_truncated_lanes_end_where_single_environments_do(mode):
    """Few decisions change anything: most lanes are cut off between two that do."""
    world, n, limit, ends = small_world(), 6, 3, 0
    env = WorldVectorEnv(world, n, autoreset_mode=mode, max_episode_steps=limit)
    singles = [gym.wrappers.TimeLimit(WorldEnv(world), limit) for _ in range(n)]
    env.reset(seed=list(range(n)))
    for lane, single in enumerate(singles):
        single.reset(seed=lane)
    over = np.zeros(n, np.bool_)
    for k in range(25):
        actions = np.full(n, k % 12)
        before, (observations, rewards, terminated, truncated, infos) = over, env.step(actions)
        over = terminated | truncated
        for lane, single in enumerate(singles):
            if before[lane] and mode is AutoresetMode.NEXT_STEP:
                observation, info = single.reset()
            else:
                observation, reward, done, cut, info = single.step(actions[lane])
                # TimeLimit calls a life truncated that ended of itself at the limit, too.
                assert (rewards[lane], terminated[lane], truncated[lane]) == (reward, done, cut and not done)
                ends += cut
            found = lane_info(infos, lane)
            if over[lane] and mode is AutoresetMode.SAME_STEP:
                final = found["final_info"]
                assert {key: final[key] for key in ("user", "step", "time")} == {
                    key: info[key] for key in ("user", "step", "time")
                }
                np.testing.assert_array_equal(found["final_obs"], observation)
                observation, info = single.reset()
            assert {key: found[key] for key in ("user", "step", "time")} == {
                key: info[key] for key in ("user", "step", "time")
            }
            np.testing.assert_array_equal(observations[lane], observation)
        if mode is AutoresetMode.DISABLED and over.any():
            env.reset(options={"reset_mask": over})
            for lane in np.flatnonzero(over):
                singles[lane].reset()
    assert ends > 20


def test_users_are_addressed():
    env = WorldEnv(small_world())
    met = [env.reset(seed=3)[1]["user"]] + [env.reset()[1]["user"] for _ in range(5)]
    assert met == sorted(set(met))
    again, info = env.reset(options={"user": met[2]})
    assert info["user"] == met[2]
    other = WorldEnv(small_world())
    observation, _ = other.reset(seed=3, options={"user": met[2]})
    np.testing.assert_array_equal(again, observation)


def test_a_user_without_decision_is_skipped_and_reported():
    world = SessionsWorld(SessionsParams(n_items=5, p_leave_organic=0.5))
    env = WorldEnv(world, info="views")
    _, info = env.reset(seed=1)
    skipped = list(info.get("skipped", ()))
    while not skipped:
        _, info = env.reset()
        skipped = list(info.get("skipped", ()))
    assert all(len(left["views"]) == len(left["view_times"]) > 0 for left in skipped)
    assert [left["user"] for left in skipped] == list(range(info["user"] - len(skipped), info["user"]))


ALL_IDS = [f"recsim_mnar/{world}-v0" for world in ("Sessions", "Ratings", "Campaigns", "Purchases")]


@pytest.mark.parametrize("name", ALL_IDS)
def test_a_mode_that_draws_pictures_is_refused_so_that_libraries_go_on_without(name):
    """Stable-Baselines3 tries ``rgb_array`` and, where that is a TypeError, no mode."""
    assert gym.make(name, preset="quick", render_mode=None).unwrapped.render_mode is None
    with refused("render_mode='rgb_array': environments draw nothing") as caught:
        gym.make(name, preset="quick", render_mode="rgb_array")
    assert isinstance(caught.value, TypeError)
    vector = gym.make_vec(name, 2, vectorization_mode="vector_entry_point", preset="quick", render_mode=None)
    assert vector.num_envs == 2


@pytest.mark.parametrize(
    ("name", "keywords", "steps"),
    [
        ("Sessions", {}, None),
        ("Ratings", {"n_decisions": 7}, 7),
        ("Purchases", {"preset": "quick", "n_periods": 4}, 4),
        ("Campaigns", {"preset": "quick", "n_campaigns": 3}, 3),
        ("World", {"world": "features", "length": 3}, 3),
        ("World", {"world": "features", "lengths": "geometric"}, None),
    ],
)
def test_the_spec_states_the_bound_of_a_life(name, keywords, steps):
    env = gym.make(f"recsim_mnar/{name}-v0", **keywords)
    assert env.spec.max_episode_steps == steps
    for limit in (2, 5000):
        given = {"id": f"recsim_mnar/{name}-v0", "max_episode_steps": limit, **keywords}
        bound = min(limit, steps or limit)
        assert gym.make(**given).spec.max_episode_steps == bound
        assert gym.make_vec(**given, vectorization_mode="vector_entry_point").spec.max_episode_steps == bound
    assert gym.make(EnvSpec.from_json(env.spec.to_json())).spec.kwargs == {"world": name.lower(), **keywords}
    if steps is not None:
        env.reset(seed=0)
        env.action_space.seed(0)
        ends = [env.step(env.action_space.sample())[2] for _ in range(steps)]
        assert ends == [False] * (steps - 1) + [True]


@pytest.mark.parametrize("lanes", [None, 2])
def test_a_spec_that_holds_a_world_says_that_it_is_no_json(lanes):
    given = {"id": "recsim_mnar/World-v0", "world": small_world()}
    env = gym.make(**given) if lanes is None else gym.make_vec(**given, num_envs=lanes)
    with refused("world= is a SessionsWorld, which JSON cannot hold"):
        env.spec.to_json()


@pytest.mark.parametrize("action", [3, np.int64(3), np.int8(3), np.uint64(3), np.array(3), np.array([3]), [3]])
def test_an_integer_of_any_type_acts(action):
    env, other = WorldEnv(small_world()), WorldEnv(small_world())
    env.reset(seed=0)
    other.reset(seed=0)
    for _ in range(3):
        np.testing.assert_array_equal(env.step(action)[0], other.step(3)[0])


class Index:
    """An integer of a library that NumPy does not know."""

    def __index__(self):
        return 5


@pytest.mark.parametrize("name", ALL_IDS)
def test_a_seed_is_an_integer_of_any_type(name):
    env = gym.make(name, preset="quick")
    expected = env.reset(seed=5)
    for seed in (np.int64(5), np.uint8(5), np.array(5), Index()):
        observation, info = env.reset(seed=seed)
        np.testing.assert_array_equal(observation, expected[0])
        assert info == expected[1]
    for seed in (True, np.True_, 5.0, np.float64(5), "5", np.array([5]), np.array(5.0), -1, 2**64):
        with refused(r"^seed must"):
            env.reset(seed=seed)


def test_vector_seeds_are_integers_of_any_type():
    env = WorldVectorEnv(small_world(), 3)
    together, _ = env.reset(seed=5)
    apart, _ = env.reset(seed=[5, 6, 7])
    for seed in (np.int64(5), np.array(5), Index()):
        np.testing.assert_array_equal(env.reset(seed=seed)[0], together)
    for seeds in (np.array([5, 6, 7]), [np.int64(5), np.array(6), 7], (Index(), 6, 7)):
        np.testing.assert_array_equal(env.reset(seed=seeds)[0], apart)
    for seed in (5.0, True, [5, 6, 7.0], np.array([5.0, 6.0, 7.0]), np.array([True] * 3), [5, 6, -7], "567"):
        with refused(r"^seed must"):
            env.reset(seed=seed)


def test_lanes_with_seeds_of_their_own_move_to_a_user():
    env = WorldVectorEnv(small_world(), 3)
    env.reset(seed=[7, 8, 9])
    observation, infos = env.reset(options={"user": 40})
    for lane, seed in enumerate((7, 8, 9)):
        single = WorldEnv(small_world())
        expected, info = single.reset(seed=seed, options={"user": 40})
        np.testing.assert_array_equal(observation[lane], expected)
        assert infos["user"][lane] == info["user"]


def test_reseeding_some_lanes_leaves_the_others_queue_alone():
    env = WorldVectorEnv(small_world(), 4)
    env.reset(seed=0)
    met = set()
    for _ in range(40):
        infos = env.step(np.zeros(4, int))[4]
        met |= set(infos["user"][2:].tolist())
    env.reset(seed=5, options={"reset_mask": np.array([True, True, False, False])})
    later = set()
    for _ in range(60):
        infos = env.step(np.zeros(4, int))[4]
        later |= set(infos["user"][2:].tolist())
    assert len(later - met) > 0
    assert min(later - met) > max(met) - 4
