"""The contract refuses policies that break it, each in one way."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.policy import Policy
from recsim_mnar.testing import PolicyContract, example_views


class Sound(Policy):
    """Items in proportion to 1 + the user's counts."""

    def __init__(self):
        self.n_items = 6
        self.counts = {}

    def reset(self, users):
        self.counts.update({u: np.ones(6) for u in users.tolist()})

    def observe(self, users, items):
        for u, i in zip(users.tolist(), items.tolist(), strict=True):
            self.counts[u][i] += 1

    def forget(self, users):
        for u in users.tolist():
            self.counts.pop(u, None)

    def probabilities(self, users):
        return np.stack([self.counts[u] / self.counts[u].sum() for u in users.tolist()])

    def act(self, users, uniforms):
        p = self.probabilities(users)
        actions = np.minimum((p.cumsum(axis=1) <= uniforms[:, None]).sum(axis=1), 5)
        return actions, p[np.arange(len(users)), actions]

    def fresh(self):
        return type(self)()


class LyingPropensity(Sound):
    def act(self, users, uniforms):
        actions, propensities = super().act(users, uniforms)
        return actions, np.full_like(propensities, 0.5)


class Unnormalised(Sound):
    def probabilities(self, users):
        return 1.01 * super().probabilities(users)


class BatchDependent(Sound):
    def probabilities(self, users):
        p = super().probabilities(users) + 0.001 * len(users)
        return p / p.sum(axis=1, keepdims=True)


class Forgetless(Sound):
    def reset(self, users):
        for u in users.tolist():
            self.counts.setdefault(u, np.ones(6))


class Sharing(Sound):
    def fresh(self):
        return self


class Counting(Sound):
    """Looking changes what comes after."""

    def act(self, users, uniforms):
        result = super().act(users, uniforms)
        for u, a in zip(users.tolist(), result[0].tolist(), strict=True):
            self.counts[u][a] += 1
        return result


class SkewedDraws(Sound):
    """States the right probabilities and draws by others."""

    def act(self, users, uniforms):
        return super().act(users, uniforms**1.05)


def run(kind, test):
    contract = PolicyContract()
    contract.make_policy = kind
    policy = kind()
    users = contract.first_user + np.arange(contract.n_users)
    getattr(contract, test)(policy, users, example_views(contract.n_users, policy.n_items))


TESTS = sorted(name for name in vars(PolicyContract) if name.startswith("test_") and "inputs" not in name)
TESTS.remove("test_describes_itself")


@pytest.mark.parametrize("test", TESTS)
def test_a_sound_policy_passes(test):
    run(Sound, test)


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (LyingPropensity, "test_propensities_agree"),
        (Unnormalised, "test_probabilities_are_distributions"),
        (BatchDependent, "test_one_user_at_a_time"),
        (Counting, "test_one_user_at_a_time"),
        (Forgetless, "test_reset_and_forget"),
        (Sharing, "test_fresh_shares_no_user"),
        (SkewedDraws, "test_frequencies_follow_the_propensities"),
    ],
)
def test_an_unsound_one_does_not(kind, test):
    with pytest.raises((AssertionError, UserError)):
        run(kind, test)
