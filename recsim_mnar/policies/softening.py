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
"""Largest deviation of the weights' sum from 1 that is taken for rounding; the weights are then divided by the sum."""


class MixturePolicy(PolicyWrapper):
    """Mixture of policies: at each decision, policy m chooses the action with probability w_m.

    The propensity of an action a is sum_m w_m pi_m(a), whichever policy chose it.

    Args:
        policies: M policies with the same number of items.
        weights: (M,) positive mixture weights w_m that sum to 1.
        name: name of the mixture.
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
        self._spot_checked = False

    @property
    def within(self) -> Sequence[Policy]:
        """Return the mixed policies; each learns from every outcome, with the mixture's propensities."""
        return self.policies

    # Rank by the mixture's probabilities: there is no single inner policy whose scores PolicyWrapper could use.
    scores = Policy.scores

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Implement :meth:`Policy.act`.

        The uniform selects the policy; its position within the selected interval, rescaled to [0, 1), is again uniform
        and is passed to that policy.
        """
        if not self._spot_checked:
            for policy in self.policies:
                spot_check_probabilities(policy, users[:1])
            self._spot_checked = True
        chosen = np.searchsorted(self._edges, uniforms, side="right")
        interval_start = np.append(0.0, self._edges)[chosen]
        # Rounding may lead just outside [0, 1).
        rescaled = np.clip((uniforms - interval_start) / self.weights[chosen], 0.0, np.nextafter(1.0, 0.0))
        actions = np.empty(len(users), np.int64)
        for m, policy in enumerate(self.policies):
            rows = np.flatnonzero(chosen == m)
            if len(rows):
                decided = policy.act(users[rows], rescaled[rows])
                # The policy's own propensities are not the mixture's, which are computed below.
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
    """Return mixture weights as an array (number,) that sums to 1.

    Args:
        weights: weights handed in by the user.
        number: number of policies in the mixture.

    Raises:
        UserError: not one weight per policy, a weight that is not positive, or a sum that differs from 1.
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
"""Number of items per partial sum of a softmax distribution: a draw scans the partial sums, then one block of items.
``_users_kernel.softmax_rows`` fills blocks of the same size."""

_KEPT_BYTES = 1 << 28
"""Largest size in bytes of the user distributions that a softmax policy caches."""


class Softened(PolicyWrapper):
    """Base of wrappers that make a policy more random and keep its ranking of items.

    Args:
        inner: policy to soften, already adapted by :func:`~recsim_mnar.policies.as_policy`.
        strength: value of the softening parameter (epsilon or temperature).
        name: name of the softened policy; None for ``<inner name>+<parameter>=<strength>``.

    Attributes:
        parameter_name: name of the softening parameter, ``epsilon`` or ``temperature``.
        limits: least strength, largest strength, and their brackets as in :func:`number_in`, e.g. ``(]``.
    """

    parameter_name: ClassVar[str]
    limits: ClassVar[tuple[float, float, str]]

    def __init__(self, inner: Policy, strength: float, name: str | None = None) -> None:
        self.inner = inner
        self.n_items = inner.n_items
        self._strength = self.checked_strength(strength)
        self.name = name or f"{inner.name}+{self.parameter_name}={strength:g}"

    @classmethod
    def checked_strength(cls, strength: Any, whose: str = "") -> float:
        """Return the strength as a float.

        Raises:
            UserError: the strength is outside :attr:`limits`; ``whose`` is the beginning of the message.
        """
        low, high, ends = cls.limits
        return number_in(strength, whose + cls.parameter_name, low, high, ends=ends)

    def fresh(self) -> Policy:
        """Implement :meth:`Policy.fresh`."""
        return type(self)(self.inner.fresh(), self._strength, self.name)

    def describe(self) -> Mapping[str, Any]:
        """Implement :meth:`Policy.describe`."""
        return {**self.inner.describe(), "name": self.name, self.parameter_name: self._strength}


class EpsilonMixture(Softened):
    """Mixture of a policy pi_in and the uniform policy over P items: (1 - epsilon) pi_in + epsilon / P.

    Args:
        inner: policy to soften.
        epsilon: probability of the uniform policy, in [0, 1].
        name: name of the mixture; None for the inner policy's name and epsilon.
    """

    parameter_name = "epsilon"
    limits = (0.0, 1.0, "[]")

    def __init__(self, inner: Policy, epsilon: float, name: str | None = None) -> None:
        super().__init__(as_policy(inner), epsilon, name)
        self.epsilon = self._strength
        self._spot_checked = False

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Implement :meth:`Policy.act`.

        A uniform below epsilon selects the uniform policy. Rescaled to [0, 1) within its branch, the same uniform then
        selects the action.
        """
        if not self._spot_checked:
            spot_check_probabilities(self.inner, users)
            self._spot_checked = True
        explore = uniforms < self.epsilon
        if self.epsilon in (0.0, 1.0):  # there is one branch only
            rescaled = uniforms
        else:
            exploit_uniforms = (uniforms - self.epsilon) / (1.0 - self.epsilon)
            rescaled = np.where(explore, uniforms / self.epsilon, exploit_uniforms)
        # One call for all users; the inner policy's actions for users who explore are discarded below.
        decided = self.inner.act(users, np.minimum(rescaled, np.nextafter(1.0, 0.0)))
        inner_actions, inner_propensities = checked_decisions(self.inner, decided, n=len(users), n_items=self.n_items)
        random_actions = np.minimum((rescaled * self.n_items).astype(np.int64), self.n_items - 1)
        actions = np.where(explore, random_actions, inner_actions)
        if explore.any():  # the inner policy has stated the propensity of its own action only
            probabilities = self.inner.propensity_of(users[explore], actions[explore])
            inner_propensities = inner_propensities.copy()  # the array may belong to the inner policy
            inner_propensities[explore] = checked_propensities(self.inner, probabilities, int(explore.sum()))
        return actions, (1.0 - self.epsilon) * inner_propensities + self.epsilon / self.n_items

    def probabilities(self, users: Ints) -> Floats:
        """Implement :meth:`Policy.probabilities`."""
        return (1.0 - self.epsilon) * self.inner.probabilities(users) + self.epsilon / self.n_items

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """Implement :meth:`Policy.propensity_of`."""
        return (1.0 - self.epsilon) * self.inner.propensity_of(users, actions) + self.epsilon / self.n_items


class SoftmaxPolicy(Softened):
    """Softmax over the inner policy's scores: pi(a) proportional to exp(score_a / temperature).

    A user's distribution is cached until an event of this user is observed. The inner policy's scores must therefore
    change with observed events only, as :class:`Policy` demands.

    Args:
        inner: policy that defines ``scores``.
        temperature: positive number in units of the inner policy's scores.
        name: name of the softened policy; None for the inner policy's name and the temperature.
    """

    parameter_name = "temperature"
    limits = (0.0, np.inf, "(]")

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
        self._clear_cache()

    def _clear_cache(self) -> None:
        """Drop all cached distributions: ``_cached`` has a row per user slot, ``_sums`` the sums of its blocks."""
        self._slots = Slots()
        self._cached = np.empty((0, self.n_items))
        self._sums = np.empty((0, -(-self.n_items // _BLOCK)))

    def changes(self, event: str, users: Ints) -> None:
        """Drop the cached distributions that an event may change; implements :meth:`PolicyWrapper.changes`."""
        if event == "learn" and self._learning == "all users":
            self._clear_cache()
        elif event != "learn" or self._learning == "own user":
            self._slots.leave(users)

    def _parts_in_cache(self, users: Ints) -> Iterator[tuple[slice, Indices]]:
        """Split users (n,) into parts that fit into the cache, and yield them one by one.

        Yields:
            part: slice of the users.
            rows: row of ``_cached`` with the distribution of each of these users, valid until the next part.
        """
        for begin in range(0, len(users), self._capacity):
            part = slice(begin, begin + self._capacity)
            yield part, self._cached_rows(np.asarray(users[part]))

    def _cached_rows(self, users: Ints) -> Indices:
        """Return the rows (n,) of ``_cached`` that hold the users' distributions, after computing missing ones."""
        from recsim_mnar.policies import _users_kernel

        rows = self._slots.seek(users)
        missing = _distinct(users[rows < 0])  # replay passes a user once for each of the user's decisions
        if len(missing) == 0:
            return rows
        if len(self._slots) + len(missing) > self._capacity:
            self._clear_cache()
            missing = _distinct(users)  # all of them, as those that were cached are dropped too
        rows = self._slots.enter(missing)
        # Slots are handed out from 0 on, so rows beyond the capacity are never used.
        n_new_rows = min(self._capacity, self._slots.size) - len(self._cached)
        if n_new_rows > 0:
            self._cached = np.concatenate([self._cached, np.empty((n_new_rows, self.n_items))])
            self._sums = np.concatenate([self._sums, np.empty((n_new_rows, self._sums.shape[1]))])
        scores = checked_scores(self.inner, self.inner.scores(missing), (len(missing), self.n_items))
        _users_kernel.softmax_rows(scores, self.temperature, rows, self._cached, self._sums)
        return self._slots.find(users)

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Implement :meth:`Policy.act` by inverting the cumulative distribution at the uniform."""
        from recsim_mnar.policies import _users_kernel

        own_uniforms = np.array(uniforms, dtype=np.float64)  # a copy: the kernel is compiled for writable arrays
        actions = np.empty(len(users), np.int32)
        propensities = np.empty(len(users))
        for part, rows in self._parts_in_cache(users):
            # The kernel fills the last two arguments, slices of the results.
            _users_kernel.draw_rows(
                self._cached, self._sums, rows, own_uniforms[part], actions[part], propensities[part]
            )
        return actions, propensities

    def probabilities(self, users: Ints) -> Floats:
        """Implement :meth:`Policy.probabilities`."""
        out = np.empty((len(users), self.n_items))
        for part, rows in self._parts_in_cache(users):
            out[part] = self._cached[rows]
        return out

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """Implement :meth:`Policy.propensity_of`."""
        out = np.empty(len(users))
        for part, rows in self._parts_in_cache(users):
            out[part] = self._cached[rows, actions[part]]
        return out


def _distinct(users: Ints) -> Ints:
    """Return the distinct users, in order of first occurrence."""
    return users[np.sort(np.unique(users, return_index=True)[1])]
