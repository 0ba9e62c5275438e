"""Shared parts of agents: a slot for each present user, and greedy actions by scores with exact propensities."""

from __future__ import annotations

import abc
import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import whole_number
from recsim_mnar.policies.base import Floats, Ints, Policy, best_of
from recsim_mnar.policies.slots import Entry, StatefulPolicy
from recsim_mnar.policies.storage import Stored

N_LISTED = 16
"""Number of tied items stored per user; if more are tied, but not all, scores are computed again when needed."""

_CHUNK = 64
"""Number of users whose scores are computed at once, to bound memory."""


def as_array(values: Any, dtype: Any) -> NDArray[Any]:
    """Convert values to the kind of array that kernels are compiled for, contiguous and writable; copy if needed."""
    array = np.ascontiguousarray(values, dtype=dtype)
    if array.flags.writeable:
        return array
    return array.copy()


def checked_items(items: Ints, n_items: int) -> NDArray[np.int32]:
    """Return items as int32.

    Raises:
        UserError: one is out of range.
    """
    items_ = as_array(items, np.int32)
    if len(items_) and (items_.min() < 0 or items_.max() >= n_items):
        bad = int(items_[(items_ < 0) | (items_ >= n_items)][0])
        raise UserError(f"item {bad} is out of range: the policy was made for items 0..{n_items - 1}")
    return items_


class Histories:
    """Viewed items of each slot, all in one array, the pool, which grows with the views of the present users.

    Attributes:
        pool: int32 items; each slot has a stretch of it with room for further views.
        start: (n_slots,) int64 index in the pool of a slot's first view.
        length: (n_slots,) int64 number of a slot's views.
    """

    def __init__(self) -> None:
        self.pool = np.zeros(1024, np.int32)
        self.start = np.zeros(0, np.int64)
        self.length = np.zeros(0, np.int64)
        self._capacity = np.zeros(0, np.int64)  # (n_slots,) views for which a slot has room
        self._used = 0  # number of entries of the pool that are given to slots

    @property
    def arrays(self) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """Return pool, start and length, in the order in which kernels take them."""
        return self.pool, self.start, self.length

    def resize(self, n_slots: int) -> None:
        """Add empty slots until there are ``n_slots``."""
        more = np.zeros(n_slots - len(self.start), np.int64)
        self.start = np.concatenate([self.start, more])
        self.length = np.concatenate([self.length, more])
        self._capacity = np.concatenate([self._capacity, more])

    def clear(self, slots: NDArray[np.int64]) -> None:
        """Remove the views of these slots; the slots keep their room in the pool."""
        self.length[slots] = 0

    def append(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        """Append views in their order: in view j the user in ``slots[j]`` views ``items[j]``, (m,) each."""
        from recsim_mnar.agents import _acting_kernel

        done = 0  # number of views appended
        while done < len(slots):  # the kernel stops where the pool is full
            done, self._used = _acting_kernel.append(
                self.pool, self.start, self.length, self._capacity, self._used, slots, items, done
            )
            if done < len(slots):
                self._enlarge()

    def flat(self, slots: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Concatenate the views of some slots.

        Returns:
            owner: (v,) index in ``slots`` of each view's slot.
            items: (v,) viewed items.
        """
        length = self.length[slots]
        owner = np.repeat(np.arange(len(slots)), length)
        position = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length)  # of a view in its slot
        return owner, self.pool[np.repeat(self.start[slots], length) + position]

    def _enlarge(self) -> None:
        """Copy the views to a pool with twice the present room, which also removes the gaps between slots.

        Slots without views lose their room.
        """
        room = np.where(self.length > 0, self._capacity, 0)  # of each slot in the new pool
        # Twice the largest slot besides: it alone may be the one that has to grow.
        pool = np.zeros(max(1024, 2 * int(room.sum()) + 2 * int(room.max(initial=0))), np.int32)
        owner, items = self.flat(np.arange(len(self.start)))
        start = np.cumsum(room) - room
        position = np.arange(len(owner)) - np.repeat(np.cumsum(self.length) - self.length, self.length)  # in its slot
        pool[start[owner] + position] = items
        self.pool = pool
        self.start = start
        self._capacity = room
        self._used = int(room.sum())


class SlotPolicy(Stored, StatefulPolicy):
    """Base of policies with a state for each present user: the views, or a summary of them.

    A subclass updates its summary in ``_view``.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        arrays: fitted arrays, for storage.
        parameters: the learner's parameters, JSON types, for storage and provenance.

    Attributes:
        keeps_views: True to keep the viewed items of each user; set by a subclass.
    """

    keeps_views: ClassVar[bool] = False
    batches_decisions = True

    def __init__(
        self,
        n_items: int,
        name: str,
        arrays: dict[str, NDArray[Any]] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_items = whole_number(n_items, "n_items", 1)
        self.name = name
        self._arrays = arrays or {}
        self._parameters = parameters or {}
        self._start()

    def _start(self) -> None:
        """Remove all users; also called by the constructor."""
        self._histories = Histories()
        super()._start()

    def _resize(self, n_slots: int) -> None:
        """Grow the states to ``n_slots`` slots; present slots keep their contents."""
        super()._resize(n_slots)
        if self.keeps_views:
            self._histories.resize(n_slots)

    def _clear(self, slots: NDArray[np.int64]) -> None:
        """Set the states of these slots to those of users without views."""
        super()._clear(slots)
        if self.keeps_views:
            self._histories.clear(slots)

    def _view(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        """Update states by views in their order: in view j the user in ``slots[j]`` views ``items[j]``, (m,) each."""
        if self.keeps_views:
            self._histories.append(slots, items)

    def observe(self, users: Ints, items: Ints) -> None:
        """Implement :meth:`recsim_mnar.policies.Policy.observe`."""
        self._view(self._slots.find(users), checked_items(items, self.n_items))

    def forget(self, users: Ints) -> None:
        """Implement :meth:`recsim_mnar.policies.Policy.forget`."""
        slots = self._slots.leave(users)
        if self.keeps_views:
            self._histories.clear(slots)  # frees their room; other states are cleared in ``reset``

    @abc.abstractmethod
    def scores(self, users: Ints) -> NDArray[np.floating]:
        """Return ranking scores, (n, n_items); a row depends only on that user's views."""

    def _own_counts(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """Count the views of each item by the users in n slots, (n, n_items)."""
        out = np.zeros((len(slots), self.n_items), np.float32)
        np.add.at(out, self._histories.flat(slots), np.float32(1.0))
        return out

    def fitted(self) -> tuple[dict[str, NDArray[Any]], Mapping[str, Any]]:
        """Implement :meth:`recsim_mnar.policies.storage.Stored.fitted`."""
        return dict(self._arrays), dict(self._parameters)

    def __deepcopy__(self, memo: dict[int, Any]) -> SlotPolicy:
        """Return a deep copy that includes the users; pickling leaves users out, and copy.deepcopy would use it."""
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        return twin

    def __getstate__(self) -> dict[str, object]:
        """Return what is pickled, the fitted policy without users: another process simulates other users."""
        arrays, parameters = self.fitted()
        return {"n_items": self.n_items, "name": self.name, "arrays": arrays, "parameters": parameters}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        policy = type(self).refitted(state["n_items"], state["name"], state["arrays"], state["parameters"])
        self.__dict__.update(policy.__dict__)


class GreedyPolicy(SlotPolicy):
    """Base of policies that recommend the item with the largest score; tied items are equally likely.

    A user's best items are stored, and computed again only after new views. If t items are tied, the action for the
    uniform u is the one with index floor(t u) among them, ascending, and its propensity is 1 / t. So a user for whom
    all scores are equal gets a uniformly random item.

    A subclass computes the scores of slots in ``_score``.

    Attributes:
        ranks_strangers: True to rank items for users without views, too; if False, all items are tied for them.
        score_type: floating type of the scores.
        _ties: (n_slots,) number of tied best items; 0 if they were not computed since the user's last view.
        _tied: (n_slots, N_LISTED) the first of them, ascending.
    """

    ranks_strangers: ClassVar[bool] = False
    score_type: ClassVar[type[np.floating]] = np.float32
    _ties: NDArray[np.int64]
    _tied: NDArray[np.int32]

    @abc.abstractmethod
    def _score(self, slots: NDArray[np.int64]) -> NDArray[np.floating]:
        """Compute the scores of all items for n slots, (n, n_items) C-contiguous, each row independently of others."""

    def _rank(self, slots: NDArray[np.int64]) -> None:
        """Compute the best items of these slots, and store them in ``_ties`` and ``_tied``."""
        from recsim_mnar.agents import _acting_kernel

        for begin in range(0, len(slots), _CHUNK):
            part = slots[begin : begin + _CHUNK]
            scores = self._score(part)
            rows = np.arange(len(part))  # row of ``scores`` for each slot
            _acting_kernel.best(scores, rows, part, self._ties, self._tied)

    def _entries(self) -> dict[str, Entry]:
        ties = self.n_items  # a new user, for whom all items are tied
        if self.ranks_strangers:
            ties = 0  # to be computed
        return {"_ties": Entry(np.int64, ties), "_tied": Entry(np.int32, None, (N_LISTED,))}

    def _view(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        """Implement :meth:`SlotPolicy._view`; the users' best items are then computed again before they are used."""
        super()._view(slots, items)
        self._ties[slots] = 0

    def _ranked_slots(self, users: Ints) -> NDArray[np.int64]:
        """Return the users' slots, after ranking the items of those whose best items are out of date."""
        from recsim_mnar.agents import _acting_kernel

        slots = self._slots.find(users)
        room = np.empty(min(len(slots), len(self._ties)), np.int64)
        unranked = room[: _acting_kernel.unranked(slots, self._ties, room)]
        if len(unranked):
            try:
                self._rank(unranked)
            except BaseException:  # also an interrupt by the user
                self._ties[unranked] = 0  # to be computed; the kernel had marked them as being computed
                raise
        return slots

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Implement :meth:`recsim_mnar.policies.Policy.act`."""
        from recsim_mnar.agents import _acting_kernel

        slots = self._ranked_slots(users)
        uniforms_ = as_array(uniforms, np.float64)
        actions = np.empty(len(slots), np.int32)
        propensities = np.empty(len(slots))
        unlisted = _acting_kernel.choose(slots, uniforms_, self._ties, self._tied, self.n_items, actions, propensities)
        if unlisted:  # more items are tied than are stored, and the uniform selects one of the others
            for j in np.flatnonzero(actions < 0):
                row = self._score(slots[j : j + 1])[0]
                best = np.flatnonzero(row == row.max())
                actions[j] = best[min(int(uniforms_[j] * len(best)), len(best) - 1)]  # a uniform near 1 may round up
        return actions, propensities

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """Implement :meth:`recsim_mnar.policies.Policy.propensity_of`."""
        from recsim_mnar.agents import _acting_kernel

        slots = self._ranked_slots(users)
        actions_ = checked_items(actions, self.n_items)
        out = np.empty(len(slots))
        unlisted = _acting_kernel.probability(slots, actions_, self._ties, self._tied, self.n_items, out)
        if unlisted:  # more items are tied than are stored, and the action is none of these
            for j in np.flatnonzero(out < 0.0):
                row = self._score(slots[j : j + 1])[0]
                out[j] = 0.0
                if row[actions_[j]] == row.max():
                    out[j] = 1.0 / self._ties[slots[j]]
        return out

    def probabilities(self, users: Ints) -> Floats:
        """Implement :meth:`recsim_mnar.policies.Policy.probabilities`."""
        return best_of(self.scores(users))

    def scores(self, users: Ints) -> NDArray[np.floating]:
        """Implement :meth:`SlotPolicy.scores`."""
        slots = self._slots.find(users)
        out = np.empty((len(slots), self.n_items), self.score_type)
        for begin in range(0, len(slots), _CHUNK):
            part = slots[begin : begin + _CHUNK]
            out[begin : begin + len(part)] = self._score(part)
        return out


class DrawingPolicy(SlotPolicy):
    """Base of policies that draw an item from the distribution that a subclass defines by ``probabilities``."""

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """Implement :meth:`recsim_mnar.policies.Policy.propensity_of`."""
        return self.probabilities(users)[np.arange(len(users)), checked_items(actions, self.n_items)]

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Implement :meth:`recsim_mnar.policies.Policy.act`."""
        from recsim_mnar.agents import _acting_kernel

        actions = np.empty(len(users), np.int32)
        propensities = np.empty(len(users))
        _acting_kernel.draw(self.probabilities(users), as_array(uniforms, np.float64), actions, propensities)
        return actions, propensities


class MappedViews(SlotPolicy):
    """Base of policies whose state of a user is h M: view counts h times a matrix M, updated with each view.

    Attributes:
        _mapping: (n_items, K) matrix M; a subclass sets it before it calls the base class's constructor.
        _sums: (n_slots, K) float64, h M of each slot: the sum of the rows of M for the viewed items.
        _views: (n_slots,) number of views of each slot.
    """

    _mapping: NDArray[Any]
    _sums: NDArray[np.float64]
    _views: NDArray[np.float64]

    def _entries(self) -> dict[str, Entry]:
        width = self._mapping.shape[1]
        return {**super()._entries(), "_sums": Entry(np.float64, 0, (width,)), "_views": Entry(np.float64, 0)}

    def _view(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        """Implement :meth:`SlotPolicy._view`: add the rows of M for the viewed items to the users' sums."""
        super()._view(slots, items)
        np.add.at(self._sums, slots, self._mapping[items])  # in the order of views, which fixes the rounding
        np.add.at(self._views, slots, 1.0)


class TrainingRows(SlotPolicy):
    """Base of policies that compare users with training users, and leave a user's own training row out.

    Attributes:
        _users: (U,) ids of the training users, ascending; a subclass sets it before it calls the base class's
            constructor.
        _own_row: (n_slots,) row of each slot's user in the training data; -1 for a user who is not in it.
    """

    _users: NDArray[np.int64]
    _own_row: NDArray[np.int64]

    def _entries(self) -> dict[str, Entry]:
        return {**super()._entries(), "_own_row": Entry(np.int64, -1)}

    def reset_training_users(self, users: Ints, originals: Ints) -> None:
        """Implement :meth:`recsim_mnar.policies.Policy.reset_training_users`; a user's own training row is left out."""
        self.reset(users)
        ids = np.asarray(originals, np.int64)
        row = np.minimum(np.searchsorted(self._users, ids), len(self._users) - 1)  # an id beyond all has no row
        self._own_row[self._slots.find(users)] = np.where(self._users[row] == ids, row, -1)


class KnownUsersPolicy(GreedyPolicy):
    """Base of policies with fixed scores of each training user, 0 .. ``n_users`` - 1; views change nothing.

    All other users have the scores of row ``n_users``. They are computed when a user acts.

    Args:
        n_items: number of items.
        n_users: number of training users.
        name: the name under which results are reported.
        *stored: fitted arrays and parameters, as in :class:`SlotPolicy`.
    """

    ranks_strangers = True
    _row: NDArray[np.int64]

    def __init__(self, n_items: int, n_users: int, name: str, *stored: Any) -> None:
        self.n_users = int(n_users)
        super().__init__(n_items, name, *stored)

    @abc.abstractmethod
    def _scores_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return scores (n, n_items) of training users; row ``n_users`` is for all other users."""

    def _entries(self) -> dict[str, Entry]:
        return {**super()._entries(), "_row": Entry(np.int64, self.n_users)}

    def reset(self, users: Ints) -> None:
        """Implement :meth:`recsim_mnar.policies.Policy.reset`."""
        super().reset(users)
        ids = np.asarray(users, np.int64)
        self._row[self._slots.find(users)] = np.where((ids >= 0) & (ids < self.n_users), ids, self.n_users)

    # Simulators recognise the base class's method, and skip views because they change nothing.
    observe = Policy.observe

    def _score(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._scores_of(self._row[slots])
