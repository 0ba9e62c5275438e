"""What the bandits share: contexts of users, a state that is learned from all users, and acting by a distribution."""

from __future__ import annotations

import abc
import copy
import hashlib
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.state.acting import SlotPolicy, as_array, checked_items
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.archives import read_arrays
from recsim_mnar.policies.base import Floats, Ints, Learns, Policy, Scores

_MOST_NUMBERS = 1 << 27
"""Of posterior precisions kept, 8 bytes each."""


class Bandit(SlotPolicy):
    """Acts by a distribution that it learns from the outcomes of all users.

    A subclass keeps what it has learned in :attr:`state`, learns in ``_learn`` and says its distribution in
    ``_distribution``.

    Args:
        n_items: number of items, the arms.
        name: the name under which results are reported.
        parameters: of JSON types, for provenance.

    Attributes:
        state: arrays by name, all that it has learned; ``fresh`` copies them.
    """

    learns: Learns = "all users"
    batches_decisions = False

    def __init__(self, n_items: int, name: str, parameters: dict[str, Any]) -> None:
        self._parameters = parameters
        self.state: dict[str, NDArray[Any]] = {}
        super().__init__(n_items, name)

    @abc.abstractmethod
    def _distribution(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        """Probability of every item for each user, (n, n_items); a row by operations that ignore the other rows."""

    @abc.abstractmethod
    def _learn(self, users: Ints, slots: NDArray[np.int64], actions: NDArray[np.int32], rewards: Floats) -> None:
        """Learn from outcomes, (n,) each, in their order."""

    def probabilities(self, users: Ints) -> Floats:
        """See :meth:`recsim_mnar.policies.Policy.probabilities`."""
        return self._distribution(users, self._slots.find(users))

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """See :meth:`recsim_mnar.policies.Policy.propensity_of`."""
        return self.probabilities(users)[np.arange(len(users)), checked_items(actions, self.n_items)]

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """See :meth:`recsim_mnar.policies.Policy.act`."""
        from recsim_mnar.agents.state import _drawing_kernel

        actions, propensities = np.empty(len(users), np.int32), np.empty(len(users))
        _drawing_kernel.draw(self.probabilities(users), as_array(uniforms, np.float64), actions, propensities)
        return actions, propensities

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """See :meth:`recsim_mnar.policies.Policy.learn`; the propensities are not used."""
        rewards_ = as_array(rewards, np.float64)
        if not np.isfinite(rewards_).all():
            raise UserError(
                f"policy {self.name!r} learns from finite rewards, got {rewards_[~np.isfinite(rewards_)][0]}"
            )
        self._learn(users, self._slots.find(users), checked_items(actions, self.n_items), rewards_)

    def fresh(self) -> Policy:
        """The same policy without any user, with a state of its own that holds what this one has learned."""
        twin = copy.copy(self)
        twin.state = {name: values.copy() for name, values in self.state.items()}
        twin._start()
        return twin

    def fitted(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """See :meth:`recsim_mnar.policies.storage.Stored.fitted`."""
        return {name: values.copy() for name, values in self.state.items()}, dict(self._parameters)

    @classmethod
    def refitted(cls, n_items: int, name: str, arrays: dict[str, NDArray[Any]], parameters: dict[str, Any]) -> Self:
        """See :meth:`recsim_mnar.policies.storage.Stored.refitted`."""
        policy = cls(n_items=n_items, name=name, **parameters)
        policy.state = {key: np.array(values) for key, values in arrays.items()}
        return policy


class ContextualBandit(Bandit):
    """A bandit whose context is (1, x): x = h / (n + shrinkage) for a user's n views with counts h, or features.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        features: (U, d) array, or an ``.npz`` file that holds it as ``user_features``: the user u has the row u mod U,
            as in the features world, and views are not used. None: the views.
        shrinkage: views that a user is thought to lack.
        ridge: prior precision of each coefficient.
        parameters: further ones, for provenance.

    Raises:
        UserError: a parameter that is none, or too many items for contexts of this size.
    """

    def __init__(
        self, n_items: int, name: str, *, features: Any, shrinkage: float, ridge: float, parameters: dict[str, Any]
    ) -> None:
        for key, value in (("shrinkage", shrinkage), ("ridge", ridge)):
            above_zero(name, key, value)
        self._features = None if features is None else _features(name, features)
        self._shrinkage = float(shrinkage)
        super().__init__(n_items, name, {**parameters, "shrinkage": float(shrinkage), "ridge": float(ridge)})
        d = 1 + (self.n_items if self._features is None else self._features.shape[1])
        if self.n_items * d * d > _MOST_NUMBERS:
            raise UserError(
                f"{name}: {n_items} items with contexts of {d} numbers need {8e-9 * n_items * d * d:.0f} GB of "
                "posteriors: give features= of fewer columns"
            )
        self.state["inverse"] = np.tile(np.eye(d) / ridge, (self.n_items, 1, 1))
        self.state["theta"] = np.zeros((self.n_items, d))

    def _start(self) -> None:
        self._counts = np.empty((0, self.n_items if self._features is None else 0))
        super()._start()

    def _resize(self, n_slots: int) -> None:
        super()._resize(n_slots)
        more = n_slots - len(self._counts)
        self._counts = np.concatenate([self._counts, np.zeros((more, self._counts.shape[1]))])

    def _clear(self, slots: NDArray[np.int64]) -> None:
        super()._clear(slots)
        self._counts[slots] = 0.0

    def _view(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        super()._view(slots, items)
        if self._features is None:
            np.add.at(self._counts, (slots, items), 1.0)

    def contexts(self, users: Ints) -> Floats:
        """(n, d) of users in their present states, the constant first."""
        return self._contexts(users, self._slots.find(users))

    def _contexts(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        if self._features is not None:
            known = self._features[np.asarray(users) % len(self._features)]
        else:
            counts = self._counts[slots]
            known = counts / (counts.sum(axis=1, keepdims=True) + self._shrinkage)
        return np.concatenate([np.ones((len(known), 1)), known], axis=1)

    def _predicted(self, users: Ints, slots: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Every arm's mean and width, (n, n_items) each."""
        from recsim_mnar.agents.bandits import _bandits_kernel

        x = self._contexts(users, slots)
        means, widths = np.empty((len(x), self.n_items)), np.empty((len(x), self.n_items))
        _bandits_kernel.predict(
            x, self.state["inverse"], self.state["theta"], np.empty(x.shape[1], np.int64), means, widths
        )
        return means, widths

    def scores(self, users: Ints) -> Scores:
        """Every item's mean x . theta, (n, n_items): no part of it for exploration."""
        return self._predicted(users, self._slots.find(users))[0]

    def fitted(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """See :meth:`recsim_mnar.policies.storage.Stored.fitted`."""
        arrays, parameters = super().fitted()
        return arrays if self._features is None else {**arrays, "features": self._features.copy()}, parameters

    @classmethod
    def refitted(cls, n_items: int, name: str, arrays: dict[str, NDArray[Any]], parameters: dict[str, Any]) -> Self:
        """See :meth:`recsim_mnar.policies.storage.Stored.refitted`."""
        given = {"features": arrays["features"]} if "features" in arrays else {}
        rest = {key: values for key, values in arrays.items() if key != "features"}
        return super().refitted(n_items, name, rest, {**parameters, **given})

    def describe(self) -> dict[str, Any]:
        """Name and parameters; features by their digest."""
        told = {"name": self.name, **self._parameters}
        if self._features is not None:
            told["features"] = {"sha256": hashlib.sha256(self._features.astype("<f8").tobytes()).hexdigest()}
        return told


def above_zero(name: str, key: str, value: Any, *, zero: bool = False) -> float:
    """A number above 0, or from 0 on, as a float.

    Raises:
        UserError: it is not.
    """
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and np.isfinite(value)
    if not number or not (value >= 0 if zero else value > 0):
        raise UserError(f"{name}: {key} must be a number {'from' if zero else 'above'} 0, got {value!r}")
    return float(value)


def best_of(scores: Floats) -> Floats:
    """The distribution of a choice among each row's largest scores, (n, n_items)."""
    best = scores == scores.max(axis=1, keepdims=True)
    return best / best.sum(axis=1, keepdims=True)


def _features(name: str, given: Any) -> Floats:
    """(U, d) finite, of an array or a file."""
    if isinstance(given, (str, Path)):
        try:
            given = read_arrays(given, ("user_features",))["user_features"]
        except FileNotFoundError:
            raise UserError(f"{name}: features: file {given} does not exist") from None
        except UserError as error:
            raise UserError(
                f"{name}: features: {given} is no .npz file with an array 'user_features' ({error})"
            ) from None
    try:
        features = np.array(given, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name}: features must be a matrix of numbers, a row a user") from None
    if features.ndim != 2 or 0 in features.shape or not np.isfinite(features).all():
        raise UserError(f"{name}: features must be a matrix of finite numbers, a row a user, got {features.shape}")
    return features
