"""The contract of policies, with what a fitted agent must do besides: it is saved, loaded and the same."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.policies.door import as_policy
from recsim_mnar.policies.storage import Stored
from recsim_mnar.testing import PolicyContract, example_views


class AgentContract(PolicyContract):
    """Of an agent that is made in ``make_policy``."""

    @pytest.fixture
    def policy(self):
        """The policy under test."""
        return as_policy(self.make_policy())

    @pytest.fixture
    def users(self):
        """The users' ids."""
        return self._case().users

    @pytest.fixture
    def views(self, policy):
        """What each of the users viewed."""
        return example_views(self.n_users, policy.n_items)

    @staticmethod
    def observe_events(policy, users, views):
        """The users begin and view what they view, in one call of ``observe``."""
        policy.reset(users)
        policy.observe(np.repeat(users, [len(v) for v in views]), np.concatenate([*views, np.zeros(0, np.int32)]))

    def test_saved_and_loaded(self, policy, users, views, tmp_path):
        if not isinstance(policy, Stored):
            pytest.skip("a wrapper is made again from its spec")
        policy.save(tmp_path / "policy.npz")
        again = Stored.load(tmp_path / "policy.npz")
        for each in (policy, again):
            self.observe_events(each, users, views)
        assert type(again) is type(policy)
        assert again.describe() == policy.describe()
        np.testing.assert_array_equal(again.scores(users), policy.scores(users))
        np.testing.assert_array_equal(again.probabilities(users), policy.probabilities(users))
        self.check_loaded(again, users)

    def check_loaded(self, again, users):
        """What else is to be seen of a policy that was loaded, by default nothing."""


class KnownUsersContract(AgentContract):
    """The users are of the log: one who is asked many times stays that user, other ids would be others."""

    def count_actions(self, policy, user, uniforms, count):
        for part in np.array_split(uniforms, 20):
            actions, _ = policy.act(np.repeat(user, len(part)), part)
            np.add.at(count, actions, 1.0)
