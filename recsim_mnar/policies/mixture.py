"""A policy drawn anew at each decision from several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.policies.answers import checked_decisions, checked_propensities, spot_check_probabilities
from recsim_mnar.policies.base import Floats, Ints, Policy
from recsim_mnar.policies.door import PolicyWrapper, as_policy

_ROUNDING = 1e-6
"""By how much weights may miss a sum of 1; they are divided by it."""


class MixturePolicy(PolicyWrapper):
    """At each decision one of several policies decides, the m-th with probability w_m.

    Its probability of an action is sum_m w_m pi_m(a), whichever of them took it.

    Args:
        policies: to mix, for one number of items.
        weights: (M,) not negative, of sum 1.
        name: the mixture's.
    """

    def __init__(self, policies: Sequence[Any], weights: Sequence[float] | Floats, name: str = "mixture") -> None:
        self.policies = [as_policy(policy) for policy in policies]
        self.weights = checked_weights(weights, len(self.policies))
        items = {policy.n_items for policy in self.policies}
        if len(items) > 1:
            raise UserError(f"policies of a mixture must know the same items, they know {sorted(items)} of them")
        self.n_items = items.pop()
        self.name = name
        self._edges = np.cumsum(self.weights)[:-1]
        self._looked = False

    @property
    def within(self) -> Sequence[Policy]:
        """See :class:`PolicyWrapper`; every policy learns from every outcome, with the mixture's propensities."""
        return self.policies

    scores = Policy.scores

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """One uniform decides both whose turn it is and, stretched back to [0, 1), what that policy does."""
        if not self._looked:
            for policy in self.policies:
                spot_check_probabilities(policy, users[:1])
            self._looked = True
        turn = np.searchsorted(self._edges, uniforms, side="right")
        begin = np.concatenate([[0.0], self._edges])[turn]
        stretched = np.clip((uniforms - begin) / self.weights[turn], 0.0, np.nextafter(1.0, 0.0))
        actions = np.empty(len(users), np.int64)
        for place, policy in enumerate(self.policies):
            mine = turn == place
            if mine.any():
                decided = policy.act(users[mine], stretched[mine])
                actions[mine], _ = checked_decisions(policy, decided, n=int(mine.sum()), n_items=self.n_items)
        return actions, self.propensity_of(users, actions)

    def probabilities(self, users: Ints) -> Floats:
        """See :meth:`Policy.probabilities`."""
        out = np.zeros((len(users), self.n_items))
        for policy, weight in zip(self.policies, self.weights, strict=True):
            out += weight * policy.probabilities(users)
        return out

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """See :meth:`Policy.propensity_of`."""
        out = np.zeros(len(users))
        for policy, weight in zip(self.policies, self.weights, strict=True):
            out += weight * checked_propensities(policy, policy.propensity_of(users, actions), len(users))
        return np.minimum(out, 1.0)

    def fresh(self) -> Policy:
        """See :meth:`Policy.fresh`."""
        return MixturePolicy([policy.fresh() for policy in self.policies], self.weights, self.name)

    def describe(self) -> dict[str, Any]:
        """See :meth:`Policy.describe`."""
        parts = [
            {"policy": policy.describe(), "weight": float(weight)}
            for policy, weight in zip(self.policies, self.weights, strict=True)
        ]
        return {"name": self.name, "policies": parts}


def checked_weights(weights: Any, number: int) -> Floats:
    """Weights as an array of sum 1.

    Raises:
        UserError: another number of them, one that is not positive, or another sum.
    """
    try:
        array = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"weights of a mixture must be numbers, got {weights!r}") from None
    if number == 0 or array.shape != (number,):
        raise UserError(f"a mixture needs a weight for each of its policies, got {array.size} for {number}")
    if not (np.isfinite(array).all() and (array > 0.0).all()):
        raise UserError(
            f"weights of a mixture must be positive, got {array.tolist()}: leave out policies that never decide"
        )
    if abs(array.sum() - 1.0) > _ROUNDING:
        raise UserError(f"weights of a mixture must sum to 1, they sum to {array.sum():.9g}")
    return array / array.sum()
