"""Contracts as test classes: a new policy or world inherits them. They need pytest."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from recsim_mnar.policies.answers import FREQUENCY, TOLERANCE
from recsim_mnar.policies.base import Policy
from recsim_mnar.testing import policies, worlds
from recsim_mnar.testing.policies import PolicyCase
from recsim_mnar.testing.rules import Rules, first_breach
from recsim_mnar.worlds.base import DecisionWorld


class PolicyContract:
    """Tests of one policy; derive and define :meth:`make_policy`.

    For example::

        from recsim_mnar.testing import PolicyContract

        class TestMyPolicy(PolicyContract):
            def make_policy(self):
                return MyPolicy(n_items=12)

    :func:`recsim_mnar.testing.check_policy` gives the same breaches without pytest. The chi-square test carries the
    marker ``verify``.

    Attributes:
        n_users: number of users in a test; user number u has u views, so the first has none.
        first_user: id of the first user, too large for an array that is indexed by user id.
        n_draws: number of decisions of the chi-square test.
        tolerance: largest difference between two values of the same propensity; 0 requires equality to the last bit.
    """

    n_users = 7
    first_user = 2**40
    n_draws = 200_000
    tolerance = TOLERANCE

    def make_policy(self) -> Policy:
        """Return a new policy without users; a policy that is fitted must always be fitted to the same data."""
        raise NotImplementedError

    @pytest.mark.parametrize("rule", [rule for rule in policies.RULES if rule != FREQUENCY.name])
    def test_rule(self, rule: str) -> None:
        """Check the rule of this name in :mod:`recsim_mnar.testing.policies`."""
        case = self._case()
        _assert_kept(case.rules(), rule, case)

    @pytest.mark.verify
    def test_frequencies_follow_the_propensities(self) -> None:
        """Compare the actions of many decisions with the stated probabilities by chi-square, for three users."""
        _assert_kept(policies.RULES, FREQUENCY.name, self._case())

    def _case(self) -> PolicyCase:
        """Return the policy under test with the sizes of this class."""
        count = None
        if type(self).count_actions is not PolicyContract.count_actions:  # a derived class defines it
            count = self.count_actions
        return PolicyCase(
            self.make_policy,
            n_users=self.n_users,
            first_user=self.first_user,
            n_draws=self.n_draws,
            tolerance=self.tolerance,
            count=count,
        )

    def count_actions(
        self,
        policy: Policy,
        user: NDArray[np.integer],
        uniforms: NDArray[np.float64],
        count: NDArray[np.float64],
    ) -> None:
        """Count the actions of one user's decisions, for a policy that acts differently for users with the same views.

        By default the decisions of the chi-square test are made for several users with the same views in one call.
        Define this method if that is no fair test of the policy.

        Args:
            policy: the policy, which has observed the user's views.
            user: (1,) the user.
            uniforms: (n_draws,) uniform of each decision.
            count: (n_items,) zeros, to which the number of decisions for each item is added.
        """
        raise NotImplementedError


class WorldContract:
    """Tests of one world whose users are recommended one item at a time; derive and define :meth:`make_world`.

    For example::

        from recsim_mnar.testing import WorldContract

        class TestMyWorld(WorldContract):
            def make_world(self):
                return MyWorld()

    :func:`recsim_mnar.testing.check_world` gives the same breaches without pytest.
    """

    def make_world(self) -> DecisionWorld:
        """Return a new world, always with the same parameters."""
        raise NotImplementedError

    @pytest.mark.parametrize("rule", worlds.RULES)
    def test_rule(self, rule: str) -> None:
        """Check the rule of this name in :mod:`recsim_mnar.testing.worlds`."""
        _assert_kept(worlds.RULES, rule, self.make_world)


def _assert_kept(rules: Rules, rule: str, subject: object) -> None:
    """Fail the test if the object under test breaks the rule of this name; rules that do not apply are skipped."""
    if rule in rules:
        breach = first_breach(rules[rule], subject)
        assert breach is None, f"{breach.why}; {breach.fix}"
