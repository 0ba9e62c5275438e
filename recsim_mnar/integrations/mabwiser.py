"""MABWiser (Apache-2.0): a bandit of it as a policy that learns online, with exact propensities.

A bandit saved by pickle can run any code when it is loaded: load only what you trust.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.contexts import Context
from recsim_mnar.policies.base import Floats, Ints, Policy
from recsim_mnar.policies.features import FeaturePolicy
from recsim_mnar.policies.sampled import SampledPolicy

_DETERMINISTIC = ("UCB1", "LinUCB", "LinGreedy", "EpsilonGreedy")
"""MABWiser's learning policies whose expectations are computed, not drawn; those with epsilon only if it is 0."""


class MabPolicy(FeaturePolicy):
    """Policy that recommends the arm with the largest expectation of a bandit, and learns from every outcome.

    Arms with equal expectations are equally likely. To explore, wrap the policy: ``EpsilonMixture(MabPolicy(...),
    0.1)``. Run it by ``simulate_online``, because it learns from all users.

    Args:
        mab: a bandit whose arms are 0 .. n_items - 1, in any order, and whose learning policy is ``UCB1``, ``LinUCB``,
            or ``LinGreedy`` or ``EpsilonGreedy`` with ``epsilon=0``. Others draw from a generator of their own, which
            cannot be replayed. The bandit is copied, not changed.
        features: name of the features of a user's events that are the bandit's contexts, an ``observation`` of
            :class:`recsim_mnar.policies.FeaturePolicy`.
        **arguments: further arguments of :class:`recsim_mnar.policies.FeaturePolicy`.

    Raises:
        UserError: arms that are no items, or a bandit that draws from its own generator.
    """

    learns = "all users"
    batches_decisions = False

    def __init__(self, mab: Any, features: Context = "counts", **arguments: Any) -> None:
        kind = type(mab.learning_policy).__name__
        n_items = _n_items_of(mab)
        draws = kind not in _DETERMINISTIC or float(getattr(mab.learning_policy, "epsilon", 0.0)) > 0.0
        # Some neighbourhood policies, such as Radius, draw an arm for a context without neighbours.
        if draws or mab.neighborhood_policy is not None:
            raise UserError(
                f"mabwiser's {kind} draws from a generator of its own: give epsilon=0 and wrap the policy in "
                f"EpsilonMixture, take one of {', '.join(_DETERMINISTIC)}, or make a sampled_policy of it"
            )
        self.mab = copy.deepcopy(mab)
        arguments.setdefault("name", f"mabwiser-{kind}")
        super().__init__(n_items, features, scores=self._predict_expectations, **arguments)

    def _predict_expectations(self, x: NDArray[np.float32]) -> Floats:
        """Return the bandit's expectations of all items for contexts ``x`` (n, width), (n, n_items).

        Before the first outcome MABWiser has none: all are 0, so that every item is equally likely.
        """
        if self.mab._is_initial_fit is False:
            return np.zeros((len(x), self.n_items))
        if self.mab.is_contextual:
            rows = self.mab.predict_expectations(x)
        else:
            rows = self.mab.predict_expectations()
        if isinstance(rows, dict):  # MABWiser returns no list for a single context, or without contexts
            rows = [rows]
        expected = np.array([[row[item] for item in range(self.n_items)] for row in rows], np.float64)
        if len(expected) != len(x):  # without contexts: the same row for every user
            return np.broadcast_to(expected, (len(x), self.n_items))
        return expected

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """Implement :meth:`recsim_mnar.policies.Policy.learn`."""
        contexts = None
        if self.mab.is_contextual:
            contexts = self.features(users)
        self.mab.partial_fit(np.asarray(actions), np.asarray(rewards), contexts)
        self.forget_answers()  # expectations stored before are out of date
        super().learn(users, actions, rewards, propensities)

    def fresh(self) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Policy.fresh`: without users, with a copy of the present bandit."""
        twin = copy.copy(self)
        twin.mab = copy.deepcopy(self.mab)
        twin._given_scores = twin._predict_expectations  # copy.copy kept the method that is bound to self
        twin._start()
        return twin

    def describe(self) -> Mapping[str, Any]:
        """Implement :meth:`recsim_mnar.policies.Policy.describe`."""
        return {**super().describe(), "learning_policy": str(self.mab.learning_policy)}


def sampled_policy(
    mab: Any, features: Context = "counts", *, draws: int = 1000, name: str | None = None
) -> SampledPolicy:
    """Wrap a bandit that draws from its own generator, such as Thompson sampling, as a policy that learns online.

    For each decision the bandit draws ``draws`` arms, and the policy picks one of these at random. The shares of the
    arms among the draws are the exact propensities. The policy cannot be replayed, because another run draws other
    arms; see :class:`recsim_mnar.policies.SampledPolicy`.

    Args:
        mab: a bandit whose arms are 0 .. n_items - 1; it is copied, not changed.
        features: name of the features of a user's events that are the bandit's contexts, an ``observation`` of
            :class:`recsim_mnar.policies.FeaturePolicy`.
        draws: number of arms that are drawn per decision; each costs a prediction.
        name: name in reports; that of the bandit's learning policy if None.

    Raises:
        UserError: arms that are no items.
    """
    name = name or f"mabwiser-{type(mab.learning_policy).__name__}"
    return SampledPolicy(_Sampler(mab, features), _n_items_of(mab), draws, own_generator=True, name=name)


class _Sampler:
    """Sampler of arms for :class:`recsim_mnar.policies.SampledPolicy`: a bandit, and the features of its users.

    Args:
        mab: the bandit; it is copied, not changed.
        features: name of the features of a user's events that are the bandit's contexts.
    """

    learns = "all users"

    def __init__(self, mab: Any, features: Context) -> None:
        self.mab = copy.deepcopy(mab)
        # A policy that never acts: it only keeps the users' features.
        self._users = FeaturePolicy(_n_items_of(mab), features, scores=np.zeros_like)
        self.reset = self._users.reset
        self.observe = self._users.observe
        self.forget = self._users.forget

    def __deepcopy__(self, memo: Any) -> _Sampler:
        """Return a sampler with a copy of the bandit and without users."""
        return _Sampler(self.mab, self._users.rule)

    def sample(self, user: int, draws: int) -> NDArray[np.int64]:
        """Draw arms for a user, (draws,); before the first outcome every arm is equally often among them."""
        if not self.mab._is_initial_fit:
            return np.arange(draws) % self._users.n_items
        contexts = np.repeat(self._users.features(np.array([user])), draws, axis=0)
        return np.atleast_1d(np.array(self.mab.predict(contexts), np.int64))

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """Implement :meth:`recsim_mnar.policies.Policy.learn`."""
        contexts = None
        if self.mab.is_contextual:
            contexts = self._users.features(users)
        self.mab.partial_fit(np.asarray(actions), np.asarray(rewards), contexts)
        self._users.learn(users, actions, rewards, propensities)

    def describe(self) -> Mapping[str, Any]:
        """Implement :meth:`recsim_mnar.policies.Policy.describe`."""
        return {"learning_policy": str(self.mab.learning_policy)}


def _n_items_of(mab: Any) -> int:
    """Return the number of a bandit's arms.

    Raises:
        UserError: its arms are not the items 0 .. n - 1.
    """
    arms = list(mab.arms)
    if sorted(arms) != list(range(len(arms))):
        raise UserError(f"the arms must be the items 0..{len(arms) - 1}, got {arms[:5]} ...")
    return len(arms)
