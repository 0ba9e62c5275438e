"""Contracts that every policy and every world keeps, as tests that a new one inherits.

A researcher derives a class in a test module and says how the policy is made::

    from recsim_mnar.testing import PolicyContract

    class TestMyPolicy(PolicyContract):
        def make_policy(self):
            return MyPolicy(n_items=12)

pytest then runs every test below on it. They need pytest; the chi-square test carries the marker ``verify``.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.policy.adapting import scores_of
from recsim_mnar.policy.base import Policy, observe_events
from recsim_mnar.policy.capabilities import learning_of
from recsim_mnar.policy.checks import checked_decisions
from recsim_mnar.world_checks import RULES, BrokenRuleError, Finding, check_world
from recsim_mnar.worlds.base import DecisionWorld

__all__ = ["Finding", "PolicyContract", "WorldContract", "check_world", "example_views"]

_SEED = 20190912


def example_views(n_users: int, n_items: int, seed: int = _SEED) -> list[NDArray[np.int32]]:
    """Views of users 0 .. n_users - 1: user u has viewed u items, some of them often."""
    views = []
    for user in range(n_users):
        u = rng.uniforms(seed, rng.Stream.PROTOCOL, user, np.arange(user))
        views.append(np.minimum((u * u * n_items).astype(np.int32), n_items - 1))
    return views


class PolicyContract:
    """Tests of one policy; derive and define :meth:`make_policy`.

    Attributes:
        n_users: users in a test; user u has u views, so user 0 has none.
        first_user: id of the first, large enough that nothing can be an array indexed by user id.
        n_draws: decisions of the chi-square test.
    """

    n_users = 7
    first_user = 2**40
    n_draws = 200_000

    def make_policy(self) -> Policy:
        """A new policy without any user; fitted, where it needs to be, always to the same data."""
        raise NotImplementedError

    @pytest.fixture
    def policy(self) -> Policy:
        """The policy under test."""
        return self.make_policy()

    @pytest.fixture
    def users(self) -> NDArray[np.int64]:
        """The users' ids."""
        return self.first_user + np.arange(self.n_users)

    @pytest.fixture
    def views(self, policy: Policy) -> list[NDArray[np.int32]]:
        """What each of the users viewed."""
        return example_views(self.n_users, policy.n_items)

    @staticmethod
    def observe_events(policy: Policy, users: NDArray[np.int64], views: list[NDArray[np.int32]]) -> None:
        """The users begin and view what they view, in one call of ``observe``."""
        policy.reset(users)
        policy.observe(np.repeat(users, [len(v) for v in views]), np.concatenate([*views, np.zeros(0, np.int32)]))

    def test_probabilities_are_distributions(self, policy, users, views):  # type: ignore[no-untyped-def]
        """Shape (n, n_items), none negative, rows summing to 1."""
        self.observe_events(policy, users, views)
        p = policy.probabilities(users)
        assert p.shape == (self.n_users, policy.n_items)
        assert np.all(p >= 0.0)
        np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)

    def test_propensities_agree(self, policy, users, views):  # type: ignore[no-untyped-def]
        """What ``act`` states is what ``propensity_of`` and ``probabilities`` say of the action, exactly and nearly."""
        self.observe_events(policy, users, views)
        p = policy.probabilities(users)
        for decision in range(50):
            u = rng.policy_uniforms(_SEED, users, decision)
            actions, stated = checked_decisions(policy, policy.act(users, u), n=self.n_users, n_items=policy.n_items)
            np.testing.assert_array_equal(policy.propensity_of(users, actions), stated)
            np.testing.assert_allclose(stated, p[np.arange(self.n_users), actions], rtol=1e-12)
        for item in range(policy.n_items):
            actions = np.full(self.n_users, item, np.int32)
            np.testing.assert_allclose(policy.propensity_of(users, actions), p[:, item], rtol=1e-12)

    def test_one_user_at_a_time(self, policy, users, views):  # type: ignore[no-untyped-def]
        """Users alone, together, and in another order get the same actions, propensities and scores, bit for bit."""
        self.observe_events(policy, users, views)
        u = rng.policy_uniforms(_SEED, users, 0)
        actions, stated = policy.act(users, u)
        scores = scores_of(policy, users)

        order = np.argsort(rng.uniforms(_SEED, rng.Stream.PROTOCOL, users, 10**6))
        shuffled = self.make_policy()
        self.observe_events(shuffled, users[order], [views[j] for j in order])
        again, stated_again = shuffled.act(users[order], u[order])
        np.testing.assert_array_equal(again, np.asarray(actions)[order])
        np.testing.assert_array_equal(stated_again, np.asarray(stated)[order])
        np.testing.assert_array_equal(scores_of(shuffled, users[order]), scores[order])

        alone = self.make_policy()
        for j in range(self.n_users):
            user = users[j : j + 1]
            alone.reset(user)
            for item in views[j]:
                alone.observe(user, np.array([item], np.int32))
                alone.act(user, u[j : j + 1])  # looking must not change what comes after
            action, propensity = alone.act(user, u[j : j + 1])
            assert action[0] == actions[j]
            assert propensity[0] == stated[j]
            np.testing.assert_array_equal(scores_of(alone, user)[0], scores[j])

    def test_runs_of_decisions(self, policy, users, views):  # type: ignore[no-untyped-def]
        """With ``batches_decisions``, several decisions for a user in one call are as in several calls."""
        if not policy.batches_decisions:
            return
        assert learning_of(policy) == "nothing", "a policy that learns must be asked decision by decision"
        self.observe_events(policy, users, views)
        runs = 1 + np.arange(self.n_users) % 4
        asked = np.repeat(users, runs)
        decisions = np.concatenate([np.arange(n) for n in runs])
        u = rng.policy_uniforms(_SEED, asked, decisions)
        actions, stated = policy.act(asked, u)
        for j in range(len(asked)):
            action, propensity = policy.act(asked[j : j + 1], u[j : j + 1])
            assert action[0] == actions[j]
            assert propensity[0] == stated[j]

    def test_ratings_one_user_at_a_time(self, policy, users, views):  # type: ignore[no-untyped-def]
        """Ratings told of all users together or one by one lead to the same actions and scores, bit for bit."""
        owners = np.repeat(users, [len(v) for v in views])
        items = np.concatenate([*views, np.zeros(0, np.int32)])
        ratings = 1.0 + (items % 5)
        u = rng.policy_uniforms(_SEED, users, 0)
        policy.reset(users)
        observe_events(policy, owners, items, ratings)
        actions, stated = policy.act(users, u)
        scores = scores_of(policy, users)
        np.testing.assert_array_equal(policy.propensity_of(users, np.asarray(actions)), stated)
        np.testing.assert_allclose(policy.probabilities(users).sum(axis=1), 1.0, rtol=1e-12)
        alone = self.make_policy()
        for j in range(self.n_users):
            user, rows = users[j : j + 1], np.flatnonzero(owners == users[j])
            alone.reset(user)
            for row in rows:
                observe_events(alone, user, items[row : row + 1], ratings[row : row + 1])
                alone.act(user, u[j : j + 1])
            action, propensity = alone.act(user, u[j : j + 1])
            assert action[0] == actions[j]
            assert propensity[0] == stated[j]
            np.testing.assert_array_equal(scores_of(alone, user)[0], scores[j])

    def test_reset_and_forget(self, policy, users, views):  # type: ignore[no-untyped-def]
        """A user who begins again, or comes back after being forgotten, is as new; others are untouched."""
        self.observe_events(policy, users, views)
        before = policy.probabilities(users)
        last, others = users[-1:], users[:-1]
        policy.reset(last)
        np.testing.assert_array_equal(policy.probabilities(last), self.new_user(last))
        policy.observe(np.repeat(last, len(views[-1])), views[-1])
        np.testing.assert_array_equal(policy.probabilities(users), before)
        policy.forget(last)
        policy.forget(last)
        np.testing.assert_array_equal(policy.probabilities(others), before[:-1])
        policy.reset(last)
        np.testing.assert_array_equal(policy.probabilities(last), self.new_user(last))

    def new_user(self, user: NDArray[np.int64]) -> NDArray[np.float64]:
        """Probabilities for a user who begins, in a policy that has met nobody else."""
        policy = self.make_policy()
        policy.reset(user)
        return policy.probabilities(user)

    def test_fresh_shares_no_user(self, policy, users, views):  # type: ignore[no-untyped-def]
        """``fresh`` gives a policy that acts the same and does not notice what happens to the first."""
        self.observe_events(policy, users, views)
        twin = policy.fresh()
        self.observe_events(twin, users, views)
        before = twin.probabilities(users)
        np.testing.assert_array_equal(before, policy.probabilities(users))
        policy.reset(users)
        policy.observe(users, np.zeros(self.n_users, np.int32))
        np.testing.assert_array_equal(twin.probabilities(users), before)

    def test_inputs_are_left_alone(self, policy, users, views):  # type: ignore[no-untyped-def]
        """No call changes the arrays that it is given, and read-only arrays are welcome."""
        given = [users.copy(), np.zeros(self.n_users, np.int32), rng.policy_uniforms(_SEED, users, 0)]
        kept = copy.deepcopy(given)
        for array in given:
            array.setflags(write=False)
        policy.reset(given[0])
        policy.observe(given[0], given[1])
        policy.act(given[0], given[2])
        policy.propensity_of(given[0], given[1])
        policy.learn(given[0], given[1], np.zeros(self.n_users), np.ones(self.n_users))
        for array, copied in zip(given, kept, strict=True):
            np.testing.assert_array_equal(array, copied)

    def test_describes_itself(self, policy):  # type: ignore[no-untyped-def]
        """``describe`` is of JSON types and holds the name."""
        import json

        assert json.loads(json.dumps(policy.describe()))["name"] == policy.name

    @pytest.mark.verify
    def test_frequencies_follow_the_propensities(self, policy, users, views):  # type: ignore[no-untyped-def]
        """Chi-square of the actions of many decisions against the stated probabilities, for three users."""
        from scipy import stats

        self.observe_events(policy, users, views)
        for j in (0, self.n_users // 2, self.n_users - 1):
            user = users[j : j + 1]
            p = policy.probabilities(user)[0]
            count = np.zeros(policy.n_items)
            u = rng.uniforms(_SEED, rng.Stream.POLICY, user, np.arange(self.n_draws))
            self.count_actions(policy, user, u, count)
            possible = p > 0.0
            assert np.all(count[~possible] == 0)
            if possible.sum() > 1:
                expected = self.n_draws * p[possible]
                pooled = expected < 5.0
                observed = count[possible]
                if pooled.any():
                    observed = np.append(observed[~pooled], observed[pooled].sum())
                    expected = np.append(expected[~pooled], expected[pooled].sum())
                statistic = np.sum((observed - expected) ** 2 / expected)
                assert stats.chi2.sf(statistic, max(len(expected) - 1, 1)) > 1e-6

    def count_actions(
        self,
        policy: Policy,
        user: NDArray[np.int64],
        uniforms: NDArray[np.float64],
        count: NDArray[np.float64],
    ) -> None:
        """Add up the actions of one user's decisions; a policy whose ``act`` is slow for one user may do it otherwise.

        Many users with the same views stand in for many decisions of one, which the contract makes the same.
        """
        views = example_views(self.n_users, policy.n_items)[int(user[0] - self.first_user)]
        batch = min(1_000, len(uniforms))
        clones = np.arange(batch)
        crowd = policy.fresh()
        crowd.reset(clones)
        crowd.observe(np.repeat(clones, len(views)), np.tile(views, batch))
        for begin in range(0, len(uniforms), batch):
            part = uniforms[begin : begin + batch]
            actions, _ = crowd.act(clones[: len(part)], part)
            np.add.at(count, actions, 1.0)


class WorldContract:
    """Tests of one world whose users are recommended one item at a time; derive and define :meth:`make_world`.

    For example::

        from recsim_mnar.testing import WorldContract

        class TestMyWorld(WorldContract):
            def make_world(self):
                return MyWorld()

    :func:`check_world` gives the same findings without pytest.
    """

    def make_world(self) -> DecisionWorld:
        """A new world, always the same one."""
        raise NotImplementedError

    @pytest.mark.parametrize("rule", RULES)
    def test_rule(self, rule: str) -> None:
        """The rule is kept; its function in :mod:`recsim_mnar.world_checks` says what it asks."""
        check, fix = RULES[rule]
        try:
            check(self.make_world)
        except (BrokenRuleError, UserError) as error:
            raise AssertionError(f"{error}; {fix}") from error
