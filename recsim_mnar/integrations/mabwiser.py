"""MABWiser (Apache-2.0): a bandit of it as a policy that learns online, with exact propensities.

A bandit saved by pickle can run any code when it is loaded: load only what you trust.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.contexts import Context
from recsim_mnar.policy.base import Floats, Ints, Policy
from recsim_mnar.policy.features import FeaturePolicy

_DETERMINISTIC = ("UCB1", "LinUCB", "LinGreedy", "EpsilonGreedy")


class MabPolicy(FeaturePolicy):
    """Takes the arm with the largest expectation, each of equal ones as likely, and learns from every outcome.

    For exploration in proportion wrap it: ``EpsilonMixture(MabPolicy(...), 0.1)``. Run it by ``simulate_online``: it
    learns from all users.

    Args:
        mab: its arms are 0 .. n_items - 1, in any order; ``UCB1``, ``LinUCB``, and ``LinGreedy`` and
            ``EpsilonGreedy`` with ``epsilon=0``. Others draw their expectations from a generator of their own, which
            nobody can replay. The object is copied, not changed.
        features: of users, where it takes contexts: see :class:`recsim_mnar.policy.FeaturePolicy`.
        **arguments: of :class:`recsim_mnar.policy.FeaturePolicy`.

    Raises:
        UserError: arms that are no items, or a bandit that draws on its own.
    """

    learns = "all users"
    batches_decisions = False

    def __init__(self, mab: Any, features: Context = "counts", **arguments: Any) -> None:
        kind = type(mab.learning_policy).__name__
        arms = list(mab.arms)
        if sorted(arms) != list(range(len(arms))):
            raise UserError(f"the arms must be the items 0..{len(arms) - 1}, got {arms[:5]} ...")
        draws = kind not in _DETERMINISTIC or float(getattr(mab.learning_policy, "epsilon", 0.0)) > 0.0
        if draws or mab.neighborhood_policy is not None:
            raise UserError(
                f"mabwiser's {kind} draws from a generator of its own: give epsilon=0 and wrap the policy in "
                f"EpsilonMixture, take one of {', '.join(_DETERMINISTIC)}, or draw from it by SampledPolicy"
            )
        self.mab = copy.deepcopy(mab)
        super().__init__(len(arms), features, scores=self._expected, **{"name": f"mabwiser-{kind}", **arguments})

    def _expected(self, x: NDArray[np.float32]) -> Floats:
        """(n, n_items) expectations; zeros before anything was learned."""
        if self.mab._is_initial_fit is False:
            return np.zeros((len(x), self.n_items))
        given = self.mab.predict_expectations(x) if self.mab.is_contextual else self.mab.predict_expectations()
        rows = [given] if isinstance(given, dict) else given
        expected = np.array([[row[item] for item in range(self.n_items)] for row in rows], np.float64)
        return np.broadcast_to(expected, (len(x), self.n_items)) if len(expected) != len(x) else expected

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """See :meth:`recsim_mnar.policy.Policy.learn`."""
        contexts = self.features(users) if self.mab.is_contextual else None
        self.mab.partial_fit(np.asarray(actions), np.asarray(rewards), contexts)
        self.forget_answers()

    def fresh(self) -> Policy:
        """See :meth:`recsim_mnar.policy.Policy.fresh`: with a bandit of its own, as it is."""
        again = copy.copy(self)
        again.mab = copy.deepcopy(self.mab)
        again._given_scores = again._expected
        again._start()
        return again

    def describe(self) -> dict[str, Any]:
        """See :meth:`recsim_mnar.policy.Policy.describe`."""
        return {**super().describe(), "learning_policy": str(self.mab.learning_policy)}
