"""Environments of slates: one log through every interface, duplicates, what is observed, wrong actions."""

from itertools import product

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from recsim_mnar.envs import RecordLog, world_env, world_vector_env
from recsim_mnar.simulation.items import simulate
from recsim_mnar.testing.environments import stepped_again
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld, _lanes_kernel
from toys import refused, run_plainly, untrained
from twins.cases import quick_first
from twins.differences import assert_same

SLATES = {"n_items": 12, "slate_size": 3, "click_link": "logistic", "sigma_mu_organic": 1.0}
WORLDS = {
    "position": {},
    "even": {"slate_size": 4},
    "cascade": {"user_model": "cascade"},
    "one click": {"user_model": "independent", "clicks": "one"},
    "changes": {"fatigue": 0.4, "retention": 0.5, "influence": 0.1, "calendar": 300.0, "arriving": 0.3},
    "no repeats": {"no_repeats": True, "clock": "normal"},
}


def policy_of(name):
    return untrained(name, SLATES["n_items"])


POLICIES = ["user-popularity", "user-popularity+epsilon=0.3", "random"]
OFTEN = {
    *((world, "random") for world in ("position", "even")),
    *((world, POLICIES[1]) for world in ("cascade", "changes", "no repeats")),
}


@pytest.mark.parametrize(
    ("world", "name"),
    quick_first(sorted(product(WORLDS, POLICIES), key=lambda pair: pair not in OFTEN), len(OFTEN)),
)
def test_one_log_through_every_interface(world, name, monkeypatch):
    if world in ("changes", "no repeats"):
        run_plainly(monkeypatch, _lanes_kernel, "advance_rankings")
    asked, policy = {**SLATES, **WORLDS[world]}, policy_of(name)
    made = simulate(SessionsWorld(SessionsParams(**asked)), policy, 8, 5)
    envs = [world_env("sessions", **asked), world_env("sessions", **asked, observation="shown=0.9")]
    for env in (*envs, world_vector_env(1, world="sessions", **asked), world_vector_env(5, world="sessions", **asked)):
        again = stepped_again(env, made, asked["slate_size"]).columns
        assert_same(again, {name: made[name] for name in again}, exact=False)


@pytest.mark.parametrize("observation", ["counts", "shown=0.9", "last=5"])
def test_gymnasium_checks_pass(observation):
    check_env(gym.make("recsim_mnar/Sessions-v0", **SLATES, observation=observation).unwrapped, skip_render_check=True)
    vector = gym.make_vec("recsim_mnar/Sessions-v0", 3, vectorization_mode="vector_entry_point", **SLATES)
    assert vector.single_action_space == gym.spaces.MultiDiscrete([12, 12, 12])
    vector.reset(seed=1)
    _observation, rewards, *_ = vector.step(vector.action_space.sample())
    assert rewards.shape == (3,)


def test_the_lower_place_of_a_duplicate_is_empty():
    env = world_env("sessions", **{**SLATES, "user_model": "independent"}, info="views")
    best = None
    for user in range(40):
        _, info = env.reset(seed=8, options={"user": user})
        best = int(np.argmax(env.reward_means()))
        _, reward, _, _, info = env.step([best, best, best])
        assert reward <= 1.0
        assert info["clicked"] == (best,) * int(reward)


def test_truth_of_a_ranking_is_the_mean_of_its_clicks():
    env = world_env("sessions", **{**SLATES, "user_model": "cascade"})
    earned, expected, variance = 0.0, 0.0, 0.0
    for user in range(400):
        env.reset(seed=8, options={"user": user})
        means = env.ranking_means([0, 1, 2])
        earned += env.step([0, 1, 2])[1]
        expected += means.sum()
        variance += 3.0 * means.sum()  # (sum of k indicators)^2 is at most k times their sum
    assert abs(earned - expected) < 5.0 * np.sqrt(variance)


def test_recording_wrapper_keeps_places_and_refuses_duplicates():
    env = RecordLog(world_env("sessions", **SLATES))
    env.reset(seed=1)
    env.propensity = [0.1, 0.2, 0.3]
    env.step([4, 2, 7])
    log = env.log()
    shown = log.is_bandit
    assert log["action"][shown].tolist() == [4, 2, 7]
    assert log["position"][shown].tolist() == [0, 1, 2]
    assert log["propensity"][shown].tolist() == [0.1, 0.2, 0.3]
    env.reset()
    env.propensity = [0.1, 0.2, 0.3]
    with refused("each item once"):
        env.step([4, 4, 7])


def test_an_empty_place_has_no_clicks_and_readers_go_on():
    env = world_env("sessions", **{**SLATES, "user_model": "cascade"})
    env.reset(seed=8)
    top, empty, below = env.ranking_means([4, 4, 7])
    single, look = env.reward_means(), SessionsParams().continues
    on = (1 - single[4]) * look + single[4] * SessionsParams().continues_after_click
    assert [top, empty, below] == pytest.approx([single[4], 0.0, on * look * single[7]])


def test_wrong_actions_of_lanes_are_refused():
    env = world_vector_env(2, world="sessions", **SLATES)
    env.reset(seed=1)
    said = r"actions are 2 rankings of 3 items, top first: an array of shape \(2, 3\), got an array of shape \(3,\)"
    with refused(said):
        env.step([1, 2, 3])


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ([1, 2], r"a ranking of 3 items, top first: an array of shape \(3,\), got an array of shape \(2,\)"),
        ([1, 2, 12], "12"),
        ([1, 2, 0.5], "integers"),
        (3, r"a ranking of 3 items, top first: an array of shape \(3,\), got 3"),
        (None, "got None"),
    ],
)
def test_wrong_actions_are_refused_in_one_line(action, why):
    env = world_env("sessions", **SLATES)
    env.reset(seed=1)
    with refused(why):
        env.step(action)
