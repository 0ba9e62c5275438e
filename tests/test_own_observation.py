"""Observations by name with users' features, and those that a world of one's own defines: one definition everywhere."""

from __future__ import annotations

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from numpy.testing import assert_array_equal

from recsim_mnar import FeaturePolicy
from recsim_mnar.envs import world_env, world_vector_env
from recsim_mnar.export import decisions
from recsim_mnar.log.contexts import ContextRule
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation import simulate
from recsim_mnar.testing import check_vector, check_world
from recsim_mnar.worlds import DecisionWorld, Observation, PlainLanes, make_world
from recsim_mnar.worlds.features import FeatureWorld
from toys import refused
from twins.policies import Uniform

N, FEATURES = 5, 3


class Recency(Observation):
    """Items by the events since they were viewed, 1 / (1 + events), and the number of showings that earned nothing."""

    counts_shown = True

    def width(self, n_items):
        return n_items + 1

    def space(self, n_items):
        return gym.spaces.Box(0.0, 1e6, (n_items + 1,), np.float32)

    def observe(self, states, rows, items):
        for row, item in zip(rows, items, strict=True):
            self._older(states[row])
            states[row, item] = 1.0

    def show(self, states, rows, actions, rewards):
        for row, reward in zip(rows, rewards, strict=True):
            self._older(states[row])
            states[row, -1] += reward == 0

    @staticmethod
    def _older(row):
        seen = row[:-1] > 0
        row[:-1][seen] = 1.0 / (1.0 / row[:-1][seen] + 1.0)


class ShopLanes(PlainLanes):
    def answer(self, which, actions):
        return (self.uniforms(which) < 0.3).astype(float), self.n_decisions[which] < 6

    def browse(self, which):
        counts = self.n_decisions[which] % 3
        place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return counts, (place + self.user[np.repeat(which, counts)]) % N


class Shop(DecisionWorld):
    """People view items, are shown one and have features."""

    name = "shop"
    n_items = N
    n_user_features = FEATURES
    observation: ClassVar = Recency()

    def open_lanes(self, n_lanes, *, keep_truth=False):
        return ShopLanes(n_lanes)

    def features_of(self, seed, users):
        return np.stack([users % 2, users % 3, np.full(len(users), 0.5)], axis=1).astype(np.float32)


def known(users):
    return Shop().features_of(0, users)


class Watched(FeaturePolicy):
    """Draws evenly, and keeps what it was shown with each decision."""

    def distribution(self, x):
        return np.full((len(x), N), 1.0 / N)

    learns = "own user"

    def learn(self, users, *outcomes):
        for user, row in zip(users.tolist(), self.features(users), strict=True):
            self.kept.setdefault(user, []).append(row)
        super().learn(users, *outcomes)

    def fresh(self):
        return self


@pytest.mark.parametrize(
    ("name", "given"), [("own", Recency()), ("own+features", Recency()), ("shown=0.8+features", None)]
)
def test_environments_policies_and_exports_show_the_same(name, given):
    """Bit for bit, in a single environment, in lanes, in a policy that acts and in a log's arrays."""
    world, more = Shop(), "features" in name
    features = {"user_features": known} if more else {}
    watched = Watched(N, given or name, **features)
    watched.kept = {}
    log = simulate(world, watched, 40, 3)
    made = decisions(log, N, context=given or name, **features)
    assert made.context.shape == (40 * 7, watched.width)
    assert_array_equal(np.concatenate([watched.kept[user] for user in range(40)]), made.context)
    assert (np.bincount(made.user) == 7).all()
    env, lanes = world_env(world, observation=name), world_vector_env(4, world=world, observation=name)
    assert env.observation_space == watched.space == lanes.single_observation_space
    side_by_side, _ = lanes.reset(seed=3)
    for user in range(4):
        observation, _ = env.reset(seed=3, options={"user": user})
        rows = np.flatnonzero(made.user == user)
        for row in rows:
            assert observation in env.observation_space
            assert_array_equal(observation, made.context[row])
            observation = env.step(int(made.action[row]))[0]
        assert_array_equal(side_by_side[user], made.context[rows[0]])
    for step in range(6):
        actions = made.action.reshape(40, 7)[:4, step]
        side_by_side = lanes.step(actions)[0]
        assert_array_equal(side_by_side, made.context.reshape(40, 7, -1)[:4, step + 1])
    if more:
        assert_array_equal(made.context[:, -FEATURES:], known(made.user))


def test_what_is_trained_there_comes_back_with_exact_propensities():
    """A policy of the world's own observation acts as its probabilities say, and replay finds what it logged."""

    def soft(x):
        weights = 1.0 + x[:, :N]
        return weights / weights.sum(axis=1, keepdims=True)

    policy = FeaturePolicy(N, Shop.observation, distribution=soft, name="soft")
    log = simulate(Shop(), policy, 30, 1)
    replayed = replay(log, policy)[log.is_bandit]
    assert_array_equal(replayed, log["propensity"][log.is_bandit])
    assert policy.describe() == {"name": "soft", "features": "own"}


def test_the_worlds_own_is_the_default_and_keeps_the_rules():
    env = gym.make("recsim_mnar/World-v0", world=Shop())
    assert env.observation_space == Recency().space(N)
    check_env(env.unwrapped, skip_render_check=True)
    assert check_world(Shop) == []
    made = lambda mode: world_vector_env(3, world=Shop(), autoreset_mode=mode, observation="own+features")  # noqa: E731
    assert check_vector(made, lambda: world_env(Shop(), observation="own+features"), steps=40) == []


class Mixed(Recency):
    """Counts the views of everybody who is at hand."""

    def observe(self, states, rows, items):
        states[:, 0] += len(rows)


class Small(Recency):
    def space(self, n_items):
        return gym.spaces.Box(0.0, 0.5, (n_items + 1,), np.float32)


@pytest.mark.parametrize(
    ("observation", "words"),
    [(Mixed(), "alone and among others"), (Small(), "is not in its space"), ("counts", "derived from Observation")],
)
def test_broken_rules_are_named(observation, words):
    world = type("Other", (Shop,), {"observation": observation})
    reasons = [breach.why for breach in check_world(world) if breach.rule == "observation_is_one"]
    assert any(words in why for why in reasons)


def test_a_log_of_one_row_per_step_is_that_of_the_kernel():
    """The general walk over a log gives what the compiled one does."""
    log = simulate(make_world("sessions", n_items=10), Uniform(10), 30, 2)
    for rule in (ContextRule("counts"), ContextRule("decayed", 0.7), ContextRule("last", last=4), ContextRule("shown")):
        for ours, general in zip(rule.of(log, 10), Observation.of(rule, log, 10), strict=True):
            assert_array_equal(ours, general)


def test_what_cannot_be_observed_is_said():
    log = simulate(Shop(), FeaturePolicy(N, scores=lambda x: np.zeros((len(x), N))), 3, 1)
    flat = FeatureWorld(np.eye(4), np.eye(4))
    for call, words in (
        (lambda: FeaturePolicy(N, "shown+features", scores=len), "needs user_features"),
        (lambda: decisions(log, N, context="counts+features"), "needs user_features"),
        (lambda: decisions(log, N, context="counts+views"), "after [+] comes features"),
        (lambda: decisions(log, 2, context=Recency()), "but n_items = 2"),
        (lambda: world_env(flat, observation="own"), "defines none: set its observation"),
        (lambda: world_env(make_world("sessions"), observation="shown+features"), "have none"),
        (lambda: world_env(flat, observation="dict+features"), "unknown observation 'dict'"),
    ):
        with refused(words):
            call()
