"""Wrappers that record while anything steps: the log of simulate from actions and propensities of an agent's own."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from recsim_mnar.envs import WorldEnv, WorldVectorEnv, world_env, world_vector_env
from recsim_mnar.envs.recording import LogBuilder, RecordLog, RecordVectorLog
from recsim_mnar.purchases.policies import DeployedPolicy
from recsim_mnar.rng import policy_uniforms
from recsim_mnar.simulation import simulate
from recsim_mnar.testing.environments import stepped_again
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from toys import refused
from twins.policies import Uniform

P, SEED, USERS = 8, 5, 25


@pytest.fixture(params=["sessions", "ratings"])
def world(request):
    if request.param == "ratings":
        return make_world("ratings", "quick", [f"n_items={P}", "n_decisions=4"])
    return SessionsWorld(SessionsParams(n_items=P, p_leave_bandit=0.1, p_leave_organic=0.1))


def uniform_action(user, decision):
    return int(policy_uniforms(SEED, np.array([user]), decision)[0] * P)


def test_a_loop_of_ones_own_records_the_log_of_simulate(world):
    env = RecordLog(gym.make("recsim_mnar/World-v0", world=world))
    _, info = env.reset(seed=SEED)
    while info["user"] < USERS:
        decision, over = 0, False
        while not over:
            env.propensity = 1 / P
            _, _, over, _, info = env.step(uniform_action(info["user"], decision))
            decision += 1
        _, info = env.reset()
    log = env.log()
    kept = log.select(log["user"] < USERS)
    assert kept.digest(optional=True) == simulate(world, Uniform(P), USERS, SEED).digest(optional=True)
    assert log.provenance["world"] == world.describe()
    assert log.provenance["seed"] == SEED


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_loop_records_the_log_of_simulate(world, mode):
    env = RecordVectorLog(WorldVectorEnv(world, 4, autoreset_mode=mode))
    _, infos = env.reset(seed=SEED)
    user, decision, ended = infos["user"].copy(), np.zeros(4, int), np.zeros(4, bool)
    while True:
        if mode is AutoresetMode.DISABLED and ended.any():
            _, infos = env.reset(options={"reset_mask": ended})
            user[ended], decision[ended] = infos["user"][ended], 0
        if user.min() >= USERS:
            break
        actions = np.array([uniform_action(u, d) for u, d in zip(user.tolist(), decision.tolist(), strict=True)])
        env.propensities = np.full(4, 1 / P)
        resting = ended & (mode is AutoresetMode.NEXT_STEP)
        _, _, terminated, truncated, infos = env.step(actions)
        decision[~resting] += 1
        over = terminated | truncated
        begun = resting if mode is AutoresetMode.NEXT_STEP else over & (mode is AutoresetMode.SAME_STEP)
        user[begun], decision[begun] = infos["user"][begun], 0
        ended = over
    log = env.log()
    kept = log.select(log["user"] < USERS)
    assert kept.digest(optional=True) == simulate(world, Uniform(P), USERS, SEED).digest(optional=True)
    assert log.provenance["seed"] == SEED


@pytest.mark.parametrize("lanes", [0, 3])
def test_slates_are_recorded_too(lanes):
    world = make_world("purchases", "quick", ["slates=fixed"])
    policy, n = DeployedPolicy(world), 10
    log = simulate(world, policy, n, SEED)

    def answer(user, time):
        slates, probabilities = policy.slates(SEED, np.array([user]), int(time))
        return slates[0], probabilities[0]

    if lanes == 0:
        env = RecordLog(world_env(world))
        _, info = env.reset(seed=SEED)
        while info["user"] < n:
            over = False
            while not over:
                slate, env.propensity = answer(info["user"], info["time"])
                _, _, over, _, info = env.step(slate)
            _, info = env.reset()
    else:
        env = RecordVectorLog(world_vector_env(lanes, world=world, autoreset_mode=AutoresetMode.SAME_STEP))
        _, infos = env.reset(seed=SEED)
        while infos["user"].min() < n:
            found = [answer(u, t) for u, t in zip(infos["user"].tolist(), infos["time"].tolist(), strict=True)]
            env.propensities = np.array([p for _, p in found])
            *_, infos = env.step(np.array([s for s, _ in found]))
    kept = env.log().select(env.log()["user"] < n)
    assert kept.digest() == log.digest()


def test_propensities_are_asked_for_each_time(world):
    env = RecordVectorLog(WorldVectorEnv(world, 2))
    env.reset(seed=1)
    for given in (None, np.ones(3), np.array([0.5, 0.0]), np.array([0.5, np.nan])):
        env.propensities = given
        with refused(r"set \.propensities to P\(action"):
            env.step(np.zeros(2, np.int64))
    single = RecordLog(WorldEnv(world))
    single.reset(seed=1)
    for given in (None, 0.0, 1.5, "a", [0.5, 0.5]):
        single.propensity = given
        with refused(r"set \.propensity to P\(action"):
            single.step(0)
    single.propensity = np.array([0.5])
    single.step(np.array([0]))
    assert single.log()["propensity"][single.log().is_bandit].tolist() == [0.5]


@pytest.mark.parametrize("info", ["counts", "none"])
def test_recorders_ask_for_the_views_that_a_log_is_made_of(world, info):
    log = simulate(world, Uniform(P), 10, SEED)
    for env in (world_env(world, info=info), world_vector_env(3, world=world, info=info)):
        assert stepped_again(env, log).digest(optional=True) == log.digest(optional=True)
    theirs = gym.vector.SyncVectorEnv([lambda: gym.make("recsim_mnar/World-v0", world=world, info=info)] * 2)
    RecordVectorLog(theirs)
    assert "views" in theirs.reset(seed=SEED)[1]


@pytest.mark.parametrize("info", ["counts", "none"])
def test_a_log_without_views_is_refused(world, info):
    """Where a wrapper of one's own keeps the environment from being asked."""
    _, said = world_env(world, info=info).reset(seed=SEED)
    with refused("Make the environment with info='views'"):
        LogBuilder().begin(said)
