"""Softening and mixtures: policies made random on purpose, with exact propensities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in
from recsim_mnar.policies.answers import (
    checked_decisions,
    checked_propensities,
    checked_scores,
    spot_check_probabilities,
)
from recsim_mnar.policies.base import Floats, Ints, Policy
from recsim_mnar.policies.door import PolicyWrapper, as_policy, learning_of
from recsim_mnar.policies.slots import Indices, Slots

_ROUNDING = 1e-6
"""By how much weights may miss a sum of 1; they are divided by it."""


class MixturePolicy(PolicyWrapper):
    """Mixture of policies: at each decision the m-th decides with probability w_m.

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
        """Implement :class:`PolicyWrapper`; every policy learns from every outcome, with the mixture's propensities."""
        return self.policies

    scores = Policy.scores

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Act with one uniform: it picks the policy and, rescaled to [0, 1), the policy's action."""
        if not self._looked:
            for policy in self.policies:
                spot_check_probabilities(policy, users[:1])
            self._looked = True
        turn = np.searchsorted(self._edges, uniforms, side="right")
        begin = np.append(0.0, self._edges)[turn]
        stretched = np.clip((uniforms - begin) / self.weights[turn], 0.0, np.nextafter(1.0, 0.0))
        actions = np.empty(len(users), np.int64)
        for place, policy in enumerate(self.policies):
            rows = np.flatnonzero(turn == place)
            if len(rows):
                decided = policy.act(users[rows], stretched[rows])
                actions[rows], _ = checked_decisions(policy, decided, n=len(rows), n_items=self.n_items)
        return actions, self.propensity_of(users, actions)

    def probabilities(self, users: Ints) -> Floats:
        """Implement :meth:`Policy.probabilities`."""
        out = np.zeros((len(users), self.n_items))
        for policy, weight in zip(self.policies, self.weights, strict=True):
            out += weight * policy.probabilities(users)
        return out

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """Implement :meth:`Policy.propensity_of`."""
        out = np.zeros(len(users))
        for policy, weight in zip(self.policies, self.weights, strict=True):
            out += weight * checked_propensities(policy, policy.propensity_of(users, actions), len(users))
        return np.minimum(out, 1.0)

    def fresh(self) -> Policy:
        """Implement :meth:`Policy.fresh`."""
        return MixturePolicy([policy.fresh() for policy in self.policies], self.weights, self.name)

    def describe(self) -> Mapping[str, Any]:
        """Implement :meth:`Policy.describe`."""
        weighted = zip(self.policies, self.weights.tolist(), strict=True)
        parts = [{"policy": policy.describe(), "weight": weight} for policy, weight in weighted]
        return {"name": self.name, "policies": parts}


def checked_weights(weights: Any, number: int) -> Floats:
    """Return weights as an array of sum 1.

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


_BLOCK = 64
"""Items whose probabilities a softmax policy sums together, so that a draw scans few of them."""

_KEPT_BYTES = 1 << 28
"""Bound on the distributions that a softmax policy keeps of its users."""


class Softened(PolicyWrapper):
    """Base of policies that soften another by a strength; they rank as the policy within.

    Args:
        inner: the policy to soften, a full one.
        strength: how much.
        name: the inner policy's name and the strength where None.

    Attributes:
        called: what the strength is called.
        range: least and largest strength, and whether the ends belong to it.
    """

    called: ClassVar[str]
    range: ClassVar[tuple[float, float, str]]

    def __init__(self, inner: Policy, strength: float, name: str | None = None) -> None:
        self.inner = inner
        self.n_items = inner.n_items
        self._strength = self.checked(strength)
        self.name = name or f"{inner.name}+{self.called}={strength:g}"

    @classmethod
    def checked(cls, strength: Any, whose: str = "") -> float:
        """A strength as a float; UserError, prefixed with ``whose``, if it is invalid."""
        low, high, ends = cls.range
        return number_in(strength, whose + cls.called, low, high, ends=ends)

    def fresh(self) -> Policy:
        """Implement :meth:`Policy.fresh`."""
        return type(self)(self.inner.fresh(), self._strength, self.name)

    def describe(self) -> Mapping[str, Any]:
        """Implement :meth:`Policy.describe`."""
        return {**self.inner.describe(), "name": self.name, self.called: self._strength}


class EpsilonMixture(Softened):
    """Mixture of a policy and the uniform one: (1 - epsilon) pi_in + epsilon / P.

    Args:
        inner: the policy to soften.
        epsilon: in [0, 1].
        name: the inner policy's name and epsilon where None.
    """

    called, range = "epsilon", (0.0, 1.0, "[]")

    def __init__(self, inner: Policy, epsilon: float, name: str | None = None) -> None:
        super().__init__(as_policy(inner), epsilon, name)
        self.epsilon = self._strength
        self._looked = False

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Act with one uniform: it picks the branch and, rescaled to [0, 1), the action."""
        if not self._looked:
            spot_check_probabilities(self.inner, users)
            self._looked = True
        explore = uniforms < self.epsilon
        stretched = np.where(
            explore,
            uniforms / self.epsilon if self.epsilon > 0.0 else 0.0,
            (uniforms - self.epsilon) / (1.0 - self.epsilon) if self.epsilon < 1.0 else 0.0,
        )
        decided = self.inner.act(users, np.minimum(stretched, np.nextafter(1.0, 0.0)))
        greedy, propensity = checked_decisions(self.inner, decided, n=len(users), n_items=self.n_items)
        random = np.minimum((stretched * self.n_items).astype(np.int64), self.n_items - 1)
        actions = np.where(explore, random, greedy)
        if explore.any():
            probabilities = self.inner.propensity_of(users[explore], actions[explore])
            propensity = propensity.copy()  # it may be an array of the inner policy's own
            propensity[explore] = checked_propensities(self.inner, probabilities, int(explore.sum()))
        return actions, (1.0 - self.epsilon) * propensity + self.epsilon / self.n_items

    def probabilities(self, users: Ints) -> Floats:
        """Implement :meth:`Policy.probabilities`."""
        return (1.0 - self.epsilon) * self.inner.probabilities(users) + self.epsilon / self.n_items

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """Implement :meth:`Policy.propensity_of`."""
        return (1.0 - self.epsilon) * self.inner.propensity_of(users, actions) + self.epsilon / self.n_items


class SoftmaxPolicy(Softened):
    """Softmax over the inner policy's scores: pi(a) proportional to exp(score_a / temperature).

    A user's distribution is kept until the user views something; so the inner policy's scores must change with what it
    observes only, as :class:`Policy` asks.

    Args:
        inner: a policy with ``scores``.
        temperature: positive, in units of the inner policy's scores.
        name: the inner policy's name and the temperature where None.
    """

    called, range = "temperature", (0.0, np.inf, "(]")

    def __init__(self, inner: Policy, temperature: float, name: str | None = None) -> None:
        inner = as_policy(inner)
        if isinstance(inner, Softened):
            raise UserError(f"policy {inner.name!r} is softened already: give +temperature= first, then +epsilon=")
        if not inner.defines("scores"):
            raise UserError(f"policy {inner.name!r} has no scores to soften; use +epsilon= instead of +temperature=")
        super().__init__(inner, temperature, name)
        self.temperature = self._strength
        self._learning = learning_of(inner)
        self._capacity = max(1, _KEPT_BYTES // (8 * self.n_items))
        self._forget_all()

    def _forget_all(self) -> None:
        self._slots = Slots()
        self._kept = np.empty((0, self.n_items))
        self._sums = np.empty((0, -(-self.n_items // _BLOCK)))

    def changes(self, event: str, users: Ints) -> None:
        """Implement :meth:`PolicyWrapper.changes`."""
        if event == "learn" and self._learning == "all users":
            self._forget_all()
        elif event != "learn" or self._learning == "own user":
            self._slots.leave(users)

    def _parts(self, users: Ints) -> Iterator[tuple[slice, Indices]]:
        """Yield the rows of ``_kept`` with users' distributions, at most ``_capacity`` users at a time."""
        for begin in range(0, len(users), self._capacity):
            part = slice(begin, begin + self._capacity)
            yield part, self._rows(np.asarray(users[part]))

    def _rows(self, users: Ints) -> Indices:
        from recsim_mnar.policies import _users_kernel

        rows = self._slots.seek(users)
        new = _each_once(users[rows < 0])  # replay asks for a user once a decision
        if len(new) == 0:
            return rows
        if len(self._slots) + len(new) > self._capacity:
            self._forget_all()
            new = _each_once(users)
        rows = self._slots.enter(new)
        more = min(self._capacity, self._slots.size) - len(self._kept)
        if more > 0:
            self._kept = np.concatenate([self._kept, np.empty((more, self.n_items))])
            self._sums = np.concatenate([self._sums, np.empty((more, self._sums.shape[1]))])
        scores = checked_scores(self.inner, self.inner.scores(new), (len(new), self.n_items))
        _users_kernel.softmax_rows(scores, self.temperature, rows, self._kept, self._sums)
        return self._slots.find(users)

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Invert the cumulative distribution at the uniform."""
        from recsim_mnar.policies import _users_kernel

        draws = np.array(uniforms, dtype=np.float64)
        actions = np.empty(len(users), np.int32)
        propensities = np.empty(len(users))
        for part, rows in self._parts(users):
            _users_kernel.draw_rows(self._kept, self._sums, rows, draws[part], actions[part], propensities[part])
        return actions, propensities

    def probabilities(self, users: Ints) -> Floats:
        """Implement :meth:`Policy.probabilities`."""
        out = np.empty((len(users), self.n_items))
        for part, rows in self._parts(users):
            out[part] = self._kept[rows]
        return out

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """Implement :meth:`Policy.propensity_of`."""
        out = np.empty(len(users))
        for part, rows in self._parts(users):
            out[part] = self._kept[rows, actions[part]]
        return out


def _each_once(users: Ints) -> Ints:
    """Return the distinct users, in order of first occurrence."""
    return users[np.sort(np.unique(users, return_index=True)[1])]
