"""Histories: the views of each live user, in their order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Histories:
    """View histories by slot in one pool that grows with the views of the live users.

    Attributes:
        pool: items, int32.
        start: (n_slots,) int64, where a slot's views begin in the pool.
        length: (n_slots,) int64, number of views.
    """

    def __init__(self) -> None:
        self.pool = np.zeros(1024, np.int32)
        self.start = np.zeros(0, np.int64)
        self.length = np.zeros(0, np.int64)
        self._capacity = np.zeros(0, np.int64)
        self._used = 0

    def resize(self, n_slots: int) -> None:
        """Room for this many slots."""
        more = np.zeros(n_slots - len(self.start), np.int64)
        self.start = np.concatenate([self.start, more])
        self.length = np.concatenate([self.length, more])
        self._capacity = np.concatenate([self._capacity, more])

    def clear(self, slots: NDArray[np.int64]) -> None:
        """Forget the views of these slots; their room is kept for who comes next."""
        self.length[slots] = 0

    def append(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        """Add views in their order, (m,) each."""
        from recsim_mnar.agents.state import _views_kernel

        done = 0
        while done < len(slots):
            done, self._used = _views_kernel.append(
                self.pool, self.start, self.length, self._capacity, self._used, slots, items, done
            )
            if done < len(slots):
                self._enlarge()

    def flat(self, slots: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The views of these slots one after another: (position in ``slots``, item) of each view."""
        length = self.length[slots]
        owner = np.repeat(np.arange(len(slots)), length)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length)
        return owner, self.pool[np.repeat(self.start[slots], length) + within]

    def _enlarge(self) -> None:
        """A pool twice as large as what is in use, with the histories laid side by side."""
        room = np.where(self.length > 0, self._capacity, 0)
        pool = np.zeros(max(1024, 2 * int(room.sum()) + 2 * int(room.max(initial=0))), np.int32)
        owner, items = self.flat(np.arange(len(self.start)))
        begin = np.cumsum(room) - room
        within = np.arange(len(owner)) - np.repeat(np.cumsum(self.length) - self.length, self.length)
        pool[begin[owner] + within] = items
        self.pool, self.start, self._capacity = pool, begin, room
        self._used = int(room.sum())
