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
"""Number of slots of the smallest table."""


class Entry(NamedTuple):
    """Declaration of an array that holds one entry per live user.

    Attributes:
        kind: dtype of the array.
        first: value to which a new user's entry is set; None if new users need no initial value.
        shape: shape of one entry; () for a scalar.
    """

    kind: Any
    first: float | None
    shape: tuple[int, ...] = ()


class StatefulPolicy(Policy):
    """Base of policies whose users' states are arrays with one entry per live user.

    A subclass declares the arrays in ``_entries`` and calls ``_start`` at the end of its constructor. Each array is
    then an attribute of shape (n_slots, ...), in which ``self._slots.find(users)`` are the users' rows.
    """

    def _entries(self) -> dict[str, Entry]:
        """Return the declarations of the per-user arrays, by the name of the attribute that holds each array."""
        return {}

    def _start(self) -> None:
        """Create the per-user arrays, without any user."""
        self._slots = Slots()
        self._declared = self._entries()
        for name, entry in self._declared.items():
            setattr(self, name, np.empty((0, *entry.shape), entry.kind))
        self._resize(self._slots.size)

    def _resize(self, n_slots: int) -> None:
        """Extend every per-user array to ``n_slots`` rows, keeping the present rows."""
        for name, entry in self._declared.items():
            old = getattr(self, name)
            initial = entry.first or 0  # None: any value does
            new_rows = np.full((n_slots - len(old), *entry.shape), initial, entry.kind)
            setattr(self, name, np.concatenate([old, new_rows]))

    def _clear(self, slots: Indices) -> None:
        """Set the entries in these slots to the initial values of new users."""
        for name, entry in self._declared.items():
            if entry.first is not None:
                getattr(self, name)[slots] = entry.first

    def reset(self, users: Ints) -> None:
        """Implement :meth:`Policy.reset`: give users slots with initial values, and extend the arrays if needed."""
        before = self._slots.size
        slots = self._slots.enter(users)
        if self._slots.size > before:
            self._resize(self._slots.size)
        self._clear(slots)

    def forget(self, users: Ints) -> None:
        """Implement :meth:`Policy.forget`."""
        self._slots.leave(users)

    def fresh(self) -> Policy:
        """Implement :meth:`Policy.fresh`: the copy shares the fitted arrays and holds no users."""
        twin = copy.copy(self)
        twin._start()
        return twin


_FIND = 0
_ENTER = 1
_LEAVE = 2
"""Modes of ``_users_kernel.visit``, which is imported only when it is called: importing it imports numba."""


class Slots:
    """Hash table from user ids (any int64) to slots 0 .. ``size`` - 1; the slot of a user who leaves is reused.

    Attributes:
        size: number of slots; it grows by doubling and never exceeds twice the largest number of users that were live
            at the same time (or 64).
    """

    def __init__(self) -> None:
        self.size = 0
        # Stack of the free slots: the first _n_free entries of _free, the last of which is handed out next.
        self._n_free = 0
        self._free = np.empty(0, np.int32)
        # The hash table proper, with open addressing: user id and slot of each cell, slot -1 in an empty cell.
        self._keys = np.empty(0, np.int64)
        self._places = np.empty(0, np.int32)
        # A 64-bit hash shifted right by this many bits is a cell's number.
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
        return self._visit(_FIND, users)

    def enter(self, users: Ints) -> Indices:
        """Return the slots of users, (n,), after assigning free slots to users without one."""
        if self._n_free < len(users):  # perhaps too few: count the users without a slot
            n_without_slot = int(np.count_nonzero(self.seek(users) < 0))
            if n_without_slot > self._n_free:
                self._grow(len(self) + n_without_slot)
        return self._visit(_ENTER, users)

    def leave(self, users: Ints) -> Indices:
        """Free the slots of users and return these slots; users without a slot are skipped."""
        slots = self._visit(_LEAVE, users)
        return slots[slots >= 0]

    def copy(self) -> Slots:
        """Return a copy with the same users."""
        twin = copy.copy(self)
        twin._free = self._free.copy()
        twin._keys = self._keys.copy()
        twin._places = self._places.copy()
        return twin

    def _visit(self, mode: int, users: Ints) -> Indices:
        """Find, enter or remove users, as ``mode`` says; return their slots (n,), -1 for users without one."""
        from recsim_mnar.policies import _users_kernel

        ids = np.require(users, np.int64, ["C", "W"])  # the kernel is compiled for one kind of array only
        out = np.empty(len(ids), np.int64)
        with np.errstate(over="ignore"):
            n_free = _users_kernel.visit(
                mode, self._keys, self._places, self._shift, self._free, self._n_free, ids, out
            )
        self._n_free = int(n_free)
        return out

    def _grow(self, n_required: int) -> None:
        """Enlarge to at least ``n_required`` slots and rebuild the table at most half full; users keep their slots."""
        live = self._places >= 0
        live_users = self._keys[live]
        live_slots = self._places[live]
        old_size = self.size
        self.size = max(_SMALLEST, 1 << (n_required - 1).bit_length())
        bits = (2 * self.size).bit_length() - 1  # log2 of the number of cells, twice the slots
        self._shift = np.uint64(64 - bits)
        self._keys = np.zeros(1 << bits, np.int64)
        self._places = np.full(1 << bits, -1, np.int32)
        # The live users enter the new table first. Their old slots lie on top of the stack, the first user's topmost,
        # so every user gets the old slot back.
        still_free = self._free[: self._n_free].copy()
        self._free = np.empty(self.size, np.int32)
        added_slots = np.arange(self.size - 1, old_size - 1, -1, dtype=np.int32)
        stack = np.concatenate([added_slots, still_free, live_slots[::-1]])
        self._free[: len(stack)] = stack
        self._n_free = len(stack)
        if len(live_users):
            self._visit(_ENTER, live_users)
