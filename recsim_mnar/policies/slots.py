"""Slots of live users in arrays, and the base of policies that keep them."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.policies.base import Ints, Policy

Indices = NDArray[np.int64]

_SMALLEST = 64


class Entry(NamedTuple):
    """Array with an entry for each live user.

    Attributes:
        kind: its type.
        first: value with which a user begins; None: whatever is there.
        shape: of an entry.
    """

    kind: Any
    first: float | None
    shape: tuple[int, ...] = ()


class StatefulPolicy(Policy):
    """A policy that keeps arrays with an entry for each live user; a subclass names them in ``_entries``."""

    def _entries(self) -> dict[str, Entry]:
        """Get the entries kept of each live user, by the attribute that holds all of them, (n_slots, ...)."""
        return {}

    def _start(self) -> None:
        """Begin without any user."""
        self._slots = Slots()
        self._kept = self._entries()
        for name, entry in self._kept.items():
            setattr(self, name, np.empty((0, *entry.shape), entry.kind))
        self._resize(self._slots.size)

    def _resize(self, n_slots: int) -> None:
        """Make room for this many slots, keeping what is there."""
        for name, entry in self._kept.items():
            old = getattr(self, name)
            more = np.full((n_slots - len(old), *entry.shape), entry.first or 0, entry.kind)
            setattr(self, name, np.concatenate([old, more]))

    def _clear(self, slots: Indices) -> None:
        """Set the entries of slots to the values of new users."""
        for name, entry in self._kept.items():
            if entry.first is not None:
                getattr(self, name)[slots] = entry.first

    def reset(self, users: Ints) -> None:
        """Implement :meth:`Policy.reset`."""
        before = self._slots.size
        slots = self._slots.enter(users)
        if self._slots.size > before:
            self._resize(self._slots.size)
        self._clear(slots)

    def forget(self, users: Ints) -> None:
        """Implement :meth:`Policy.forget`."""
        self._slots.leave(users)

    def fresh(self) -> Policy:
        """Implement :meth:`Policy.fresh`: what was fitted is shared, users are not."""
        twin = copy.copy(self)
        twin._start()
        return twin


class Slots:
    """A table from user ids (any int64) to slots 0 .. ``size`` - 1, which are used again when a user leaves.

    Attributes:
        size: number of slots there are arrays for; it grows by doubling, and never past twice the most users that
            were live at once (or 64).
    """

    def __init__(self) -> None:
        self.size = 0
        self._n_free = 0
        self._free = np.empty(0, np.int32)
        self._keys = np.empty(0, np.int64)
        self._places = np.empty(0, np.int32)
        self._shift = np.uint64(64)
        self._grow(1)

    def __len__(self) -> int:
        return self.size - self._n_free

    def find(self, users: Ints) -> Indices:
        """Return the slots of live users, (n,).

        Raises:
            UserError: a user has not begun.
        """
        slots = self.seek(users)
        if len(slots) and slots.min() < 0:
            user = int(np.asarray(users)[np.argmin(slots)])
            raise UserError(f"user {user} has not begun: call reset() for a user before observe() and act()")
        return slots

    def seek(self, users: Ints) -> Indices:
        """Return the slots of users, (n,); -1 for users without one."""
        return self._visit(0, users)

    def enter(self, users: Ints) -> Indices:
        """Return the slots of users, old or new, (n,)."""
        if self._n_free < len(users):
            unknown = int(np.count_nonzero(self.seek(users) < 0))
            if unknown > self._n_free:
                self._grow(len(self) + unknown)
        return self._visit(1, users)

    def leave(self, users: Ints) -> Indices:
        """Free the slots of users and return them; unknown users are skipped."""
        slots = self._visit(2, users)
        return slots[slots >= 0]

    def copy(self) -> Slots:
        """Return a copy with the same users."""
        twin = copy.copy(self)
        twin._free = self._free.copy()
        twin._keys = self._keys.copy()
        twin._places = self._places.copy()
        return twin

    def _visit(self, mode: int, users: Ints) -> Indices:
        from recsim_mnar.policies import _users_kernel

        ids = np.require(users, np.int64, ["C", "W"])  # the kernel is compiled for one kind of array only
        out = np.empty(len(ids), np.int64)
        with np.errstate(over="ignore"):
            n_free = _users_kernel.visit(
                mode, self._keys, self._places, self._shift, self._free, self._n_free, ids, out
            )
        self._n_free = int(n_free)
        return out

    def _grow(self, wanted: int) -> None:
        """Make at least ``wanted`` slots, and a table at most half full; old slots keep their users."""
        live = self._places >= 0
        keys = self._keys[live]
        places = self._places[live]
        old_size = self.size
        self.size = max(_SMALLEST, 1 << (wanted - 1).bit_length())
        bits = (2 * self.size).bit_length() - 1
        self._shift = np.uint64(64 - bits)
        self._keys = np.zeros(1 << bits, np.int64)
        self._places = np.full(1 << bits, -1, np.int32)
        # Old users enter first, taking their old slots off a stack that hands them out in the table's order.
        still_free = self._free[: self._n_free].copy()
        self._free = np.empty(self.size, np.int32)
        fresh = np.arange(self.size - 1, old_size - 1, -1, dtype=np.int32)
        stack = np.concatenate([fresh, still_free, places[::-1]])
        self._free[: len(stack)] = stack
        self._n_free = len(stack)
        if len(keys):
            self._visit(1, keys)
