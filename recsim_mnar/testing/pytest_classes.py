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
        n_users: users in a test; user u has u views, so user 0 has none.
        first_user: id of the first, large enough that nothing can be an array indexed by user id.
        n_draws: decisions of the chi-square test.
        tolerance: largest difference of two statements of one propensity; 0 for the last bit.
    """

    n_users = 7
    first_user = 2**40
    n_draws = 200_000
    tolerance = TOLERANCE

    def make_policy(self) -> Policy:
        """Make a new policy without users; if it has to be fitted, always to the same data."""
        raise NotImplementedError

    @pytest.mark.parametrize("rule", [rule for rule in policies.RULES if rule != FREQUENCY.name])
    def test_rule(self, rule: str) -> None:
        """Check the rule of this name in :mod:`recsim_mnar.testing.policies`."""
        case = self._case()
        _assert_kept(case.rules(), rule, case)

    @pytest.mark.verify
    def test_frequencies_follow_the_propensities(self) -> None:
        """Chi-square of the actions of many decisions against the stated probabilities, for three users."""
        _assert_kept(policies.RULES, FREQUENCY.name, self._case())

    def _case(self) -> PolicyCase:
        counts_itself = type(self).count_actions is not PolicyContract.count_actions
        sizes = (self.n_users, self.first_user, self.n_draws, self.tolerance)
        return PolicyCase(self.make_policy, *sizes, self.count_actions if counts_itself else None)

    def count_actions(
        self,
        policy: Policy,
        user: NDArray[np.integer],
        uniforms: NDArray[np.float64],
        count: NDArray[np.float64],
    ) -> None:
        """Add up the actions of one user's decisions; define it where no other user has the same views."""
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
        """Make a new world, always the same one."""
        raise NotImplementedError

    @pytest.mark.parametrize("rule", worlds.RULES)
    def test_rule(self, rule: str) -> None:
        """Check the rule of this name in :mod:`recsim_mnar.testing.worlds`."""
        _assert_kept(worlds.RULES, rule, self.make_world)


def _assert_kept(rules: Rules, rule: str, subject: object) -> None:
    if rule in rules:
        breach = first_breach(rules[rule], subject)
        assert breach is None, f"{breach.why}; {breach.fix}"
