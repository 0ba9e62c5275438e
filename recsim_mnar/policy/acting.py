"""A policy asked to act, and held to what it says of itself, at a bounded number of decisions: a run stays fast.

A policy that states other propensities than it acts by makes a log whose every estimate is wrong and looks right.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.policy.base import Floats, Ints, Policy
from recsim_mnar.policy.checks import LOOKED_AT, checked_decisions, checked_distribution, checked_propensities

TOLERANCE = 1e-6
"""Propensities that differ by less are the same: float32 rounds, and libraries may round a batch by its shape."""

GRID = 512
"""Uniforms, evenly spaced, at which one user of a policy is asked."""

_ASKED_AGAIN = 16
"""Of the grid, how many are asked a second time."""

_DEVIATIONS = 6.0
"""Standard deviations by which a frequency on the grid may miss its probability, were the grid drawn at random."""

_LOOKED_AT: weakref.WeakValueDictionary[int, Policy] = weakref.WeakValueDictionary()
"""Policies that went through the grid, by id."""


class Acting:
    """Asks a policy to act. What it is handed is read-only, and what it answers is checked.

    Every answer: shape, type and range. At calls 0, 1, 4, 16, ... of an object: whether ``propensity_of`` says for a
    few of the users, asked without the others and after ``act``, what ``act`` stated. Once for each policy, before its
    first call: whether one user, asked at :data:`GRID` even uniforms, gets items as often as ``probabilities`` says,
    and the same item for the same uniform.

    Args:
        policy: that acts.
        n_items: of the world.
        original: the object that ``policy`` is a copy of, by which is known whether the grid is behind it.
    """

    def __init__(self, policy: Policy, n_items: int, original: Policy | None = None) -> None:
        self.policy, self.n_items = policy, n_items
        self._original = policy if original is None else original
        self._calls, self._next = 0, 0
        self._says = policy.defines("probabilities")
        self._prices = self._says or policy.defines("propensity_of")
        self._grid_due = self._says and _LOOKED_AT.get(id(self._original)) is not self._original

    def __call__(self, users: Ints, uniforms: Floats) -> tuple[NDArray[np.int32], Floats]:
        """Actions (n,) and propensities (n,) of users (n,), as :func:`checked_decisions` gives them.

        Raises:
            UserError: an answer that cannot be, or one that contradicts another.
        """
        if self._grid_due and len(users):
            self._check_grid(users[:1])
            _LOOKED_AT[id(self._original)] = self._original
            self._grid_due = False
        actions, propensities = self._act(users, uniforms)
        if self._calls == self._next:
            self._next = max(1, 4 * self._calls)
            if self._prices and len(users):
                self._check_prices(users, actions, propensities)
        self._calls += 1
        return actions, propensities

    def _act(self, users: Ints, uniforms: Floats) -> tuple[NDArray[np.int32], Floats]:
        decided = reading(self.policy, "act", self.policy.act, users, uniforms)
        return checked_decisions(self.policy, decided, n=len(users), n_items=self.n_items)

    def _check_prices(self, users: Ints, actions: NDArray[np.int32], stated: Floats) -> None:
        n = len(users)
        few = np.arange(self._calls % max(1, n // LOOKED_AT), n, max(1, n // LOOKED_AT))[: min(LOOKED_AT, (n + 1) // 2)]
        said = asked_propensities(self.policy, users[few], actions[few])
        other = np.abs(said - stated[few]) > TOLERANCE
        if other.any():
            j = int(np.flatnonzero(other)[0])
            row = few[j]
            self._wrong(
                f"act() states {stated[row]:.6g} for item {actions[row]} of user {users[row]}, propensity_of() then "
                f"says {said[j]:.6g}: return the probability, over the uniform alone, of the action drawn, "
                "whoever else is asked, and leave the state to observe() and learn()"
            )

    def _check_grid(self, user: Ints) -> None:
        """Before the first decision, so that nothing that ``act`` leaves behind meets a ``learn``."""
        given = reading(self.policy, "probabilities", self.policy.probabilities, user)
        probability = checked_distribution(self.policy, given, self.n_items, n=1)[0]
        uniforms = (np.arange(GRID) + 0.5) / GRID
        actions, stated = self._ask(user, uniforms)
        again, _ = self._ask(user, uniforms[:: GRID // _ASKED_AGAIN])
        first = actions[:: GRID // _ASKED_AGAIN]
        if (again != first).any():
            j = int(np.flatnonzero(again != first)[0])
            self._wrong(
                f"asked twice for user {user[0]} with the uniform {uniforms[j * (GRID // _ASKED_AGAIN)]:.6g}, act() "
                f"takes item {first[j]} and item {again[j]}: the uniform must be its only randomness, and act() must "
                "leave the state as it is"
            )
        other = np.abs(stated - probability[actions]) > TOLERANCE
        if other.any():
            j = int(np.flatnonzero(other)[0])
            self._wrong(
                f"act() states {stated[j]:.6g} for item {actions[j]} of user {user[0]}, probabilities() says "
                f"{probability[actions[j]]:.6g}: return the probability of the action drawn, and leave the state alone"
            )
        frequency = np.bincount(actions, minlength=self.n_items) / GRID
        room = _DEVIATIONS * np.sqrt(probability * (1.0 - probability) / GRID) + LOOKED_AT / GRID
        excess = np.abs(frequency - probability) - room
        if excess.max() > 0:
            item = int(np.argmax(excess))
            self._wrong(
                f"at {GRID} even uniforms act() takes item {item} for user {user[0]} in {frequency[item]:.6g} of them, "
                f"probabilities() says {probability[item]:.6g}: draw from the distribution that is stated"
            )

    def _ask(self, user: Ints, uniforms: Floats) -> tuple[NDArray[np.int32], Floats]:
        """One user's decisions at several uniforms: in one call where that is allowed."""
        if self.policy.batches_decisions:
            return self._act(np.repeat(user, len(uniforms)), uniforms)
        answers = [self._act(user.copy(), uniforms[j : j + 1].copy()) for j in range(len(uniforms))]
        return np.concatenate([a for a, _ in answers]), np.concatenate([p for _, p in answers])

    def _wrong(self, what: str) -> None:
        raise UserError(f"policy {self.policy.name!r}: {what}")


def asked_propensities(policy: Policy, users: Ints, actions: Ints) -> Floats:
    """What ``propensity_of`` says of arrays that it cannot write in, checked.

    Raises:
        UserError: no probabilities, or it writes in what it is handed.
    """
    return checked_propensities(
        policy, reading(policy, "propensity_of", policy.propensity_of, users, actions), len(users)
    )


def reading(policy: Policy, method: str, call: Callable[..., Any], *arrays: NDArray[Any]) -> Any:
    """``call`` of arrays, which it may read and not write in.

    Raises:
        UserError: it writes in them.
    """
    for array in arrays:
        array.setflags(write=False)
    try:
        return call(*arrays)
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise UserError(
            f"policy {policy.name!r}: {method}() writes in the arrays that it is handed, which others read: copy them "
            f"first ({error})"
        ) from error
