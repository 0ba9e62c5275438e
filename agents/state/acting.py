"""What the agents share: a slot for each live user, and acting greedily by scores with exact propensities."""

from __future__ import annotations

import abc
import copy
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.state.histories import Histories
from recsim_mnar.errors import UserError
from recsim_mnar.policies.base import Floats, Ints, Policy
from recsim_mnar.policies.slots import Slots
from recsim_mnar.policies.storage import Stored

N_LISTED = 16
"""Tied items kept for each user; where more are tied (but not all) the scores are made again when they are needed."""

_CHUNK = 64


def as_array(values: Any, dtype: Any) -> NDArray[Any]:
    """``values`` as the one kind of array that the kernels are compiled for: contiguous and writable."""
    array = np.ascontiguousarray(values, dtype=dtype)
    return array if array.flags.writeable else array.copy()


def checked_items(items: Ints, n_items: int) -> NDArray[np.int32]:
    """Items as int32.

    Raises:
        UserError: one is out of range.
    """
    items_ = as_array(items, np.int32)
    if len(items_) and (items_.min() < 0 or items_.max() >= n_items):
        bad = int(items_[(items_ < 0) | (items_ >= n_items)][0])
        raise UserError(f"item {bad} is out of range: the policy was made for items 0..{n_items - 1}")
    return items_


class SlotPolicy(Stored, Policy):
    """A policy that keeps a state for each live user: the user's views, or what a subclass makes of them.

    A subclass with states of its own makes them in ``_start``, makes room for them in ``_resize``, empties entries in
    ``_clear`` and takes views in ``_view``; each calls its parent's.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
    """

    keeps_views: ClassVar[bool] = False
    batches_decisions = True

    def __init__(self, n_items: int, name: str) -> None:
        if n_items < 1:
            raise UserError(f"n_items must be at least 1, got {n_items}")
        self.n_items = int(n_items)
        self.name = name
        self._start()

    def _start(self) -> None:
        """Begin without any user."""
        self._slots = Slots()
        self._histories = Histories()
        self._resize(self._slots.size)

    def _resize(self, n_slots: int) -> None:
        """Make room for this many slots, keeping what is there."""
        if self.keeps_views:
            self._histories.resize(n_slots)

    def _clear(self, slots: NDArray[np.int64]) -> None:
        """These slots hold users who begin."""
        if self.keeps_views:
            self._histories.clear(slots)

    def _view(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        """Views in their order, (m,) each."""
        if self.keeps_views:
            self._histories.append(slots, items)

    def reset(self, users: Ints) -> None:
        """See :meth:`recsim_mnar.policies.Policy.reset`."""
        before = self._slots.size
        slots = self._slots.enter(users)
        if self._slots.size > before:
            self._resize(self._slots.size)
        self._clear(slots)

    def observe(self, users: Ints, items: Ints) -> None:
        """See :meth:`recsim_mnar.policies.Policy.observe`."""
        self._view(self._slots.find(users), checked_items(items, self.n_items))

    def forget(self, users: Ints) -> None:
        """See :meth:`recsim_mnar.policies.Policy.forget`."""
        left = self._slots.leave(users)
        if self.keeps_views:
            self._histories.clear(left)  # so that their room goes to others; other states are cleared at ``reset``

    def fresh(self) -> Policy:
        """See :meth:`recsim_mnar.policies.Policy.fresh`."""
        twin = copy.copy(self)
        twin._start()
        return twin

    @abc.abstractmethod
    def scores(self, users: Ints) -> NDArray[np.floating]:
        """By what the policy ranks items, (n, n_items); a row depends on that user's views alone."""

    def _own_counts(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """How often each user viewed each item, (n, n_items)."""
        out = np.zeros((len(slots), self.n_items), np.float32)
        np.add.at(out, self._histories.flat(slots), np.float32(1.0))
        return out

    def __deepcopy__(self, memo: dict[int, Any]) -> SlotPolicy:
        """A copy with its users: unlike one that is sent to another process, it goes on where this one is."""
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """A policy sent to another process arrives without users, as after ``fresh``."""
        arrays, parameters = self.fitted()
        return {"n_items": self.n_items, "name": self.name, "arrays": arrays, "parameters": parameters}

    def __setstate__(self, state: dict[str, Any]) -> None:
        made = type(self).refitted(state["n_items"], state["name"], state["arrays"], state["parameters"])
        self.__dict__.update(made.__dict__)


class GreedyPolicy(SlotPolicy):
    """Takes the item with the largest score; tied items are equally likely.

    The best items are found again only after new views. With t tied items the action is the floor(t u)-th of them in
    index order, and its propensity 1 / t; so a user for whom all scores are equal gets a uniformly random item.

    A subclass says the scores of slots in ``_score``.
    """

    @abc.abstractmethod
    def _score(self, slots: NDArray[np.int64]) -> NDArray[np.floating]:
        """Scores, (n, n_items) C-contiguous, each row by fixed operations that do not depend on the other rows."""

    def _rank(self, slots: NDArray[np.int64]) -> None:
        """Find the best items of these slots."""
        from recsim_mnar.agents.state import _greedy_kernel

        for begin in range(0, len(slots), _CHUNK):
            part = slots[begin : begin + _CHUNK]
            _greedy_kernel.best(self._score(part), np.arange(len(part)), part, self._ties, self._tied)

    def _start(self) -> None:
        # Zero ties: not ranked since the last view. A user without a view has all items tied.
        self._ties = np.empty(0, np.int64)
        self._tied = np.empty((0, N_LISTED), np.int32)
        super()._start()

    def _resize(self, n_slots: int) -> None:
        super()._resize(n_slots)
        more = n_slots - len(self._ties)
        self._ties = np.concatenate([self._ties, np.full(more, self.n_items, np.int64)])
        self._tied = np.concatenate([self._tied, np.zeros((more, N_LISTED), np.int32)])

    def _clear(self, slots: NDArray[np.int64]) -> None:
        super()._clear(slots)
        self._ties[slots] = self.n_items

    def _view(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        super()._view(slots, items)
        self._ties[slots] = 0

    def _ranked(self, users: Ints) -> NDArray[np.int64]:
        """The users' slots, their best items known."""
        from recsim_mnar.agents.state import _greedy_kernel

        slots = self._slots.find(users)
        unknown = np.empty(min(len(slots), len(self._ties)), np.int64)
        n = _greedy_kernel.unranked(slots, self._ties, unknown)
        if n:
            try:
                self._rank(unknown[:n])
            except BaseException:
                self._ties[unknown[:n]] = 0  # interrupted: they are not ranked
                raise
        return slots

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """See :meth:`recsim_mnar.policies.Policy.act`."""
        from recsim_mnar.agents.state import _greedy_kernel

        slots = self._ranked(users)
        uniforms_ = as_array(uniforms, np.float64)
        actions = np.empty(len(slots), np.int32)
        propensities = np.empty(len(slots))
        unlisted = _greedy_kernel.choose(slots, uniforms_, self._ties, self._tied, self.n_items, actions, propensities)
        if unlisted:
            for j in np.flatnonzero(actions < 0):
                row = self._score(slots[j : j + 1])[0]
                best = np.flatnonzero(row == row.max())
                actions[j] = best[min(int(uniforms_[j] * len(best)), len(best) - 1)]
        return actions, propensities

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """See :meth:`recsim_mnar.policies.Policy.propensity_of`."""
        from recsim_mnar.agents.state import _greedy_kernel

        slots = self._ranked(users)
        actions_ = checked_items(actions, self.n_items)
        out = np.empty(len(slots))
        unlisted = _greedy_kernel.probability(slots, actions_, self._ties, self._tied, self.n_items, out)
        if unlisted:
            for j in np.flatnonzero(out < 0.0):
                row = self._score(slots[j : j + 1])[0]
                out[j] = 1.0 / self._ties[slots[j]] if row[actions_[j]] == row.max() else 0.0
        return out

    def probabilities(self, users: Ints) -> Floats:
        """See :meth:`recsim_mnar.policies.Policy.probabilities`."""
        scores = self.scores(users)
        best = scores == scores.max(axis=1, keepdims=True)
        return best / best.sum(axis=1, keepdims=True)

    def scores(self, users: Ints) -> NDArray[np.floating]:
        """See :meth:`SlotPolicy.scores`."""
        slots = self._slots.find(users)
        out = np.empty((len(slots), self.n_items), np.float32)
        for begin in range(0, len(slots), _CHUNK):
            part = slots[begin : begin + _CHUNK]
            out[begin : begin + len(part)] = self._score(part)
        return out
