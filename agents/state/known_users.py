"""Policies whose users are those that they were fitted on: the users of a purchase log, met again."""

from __future__ import annotations

import abc

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.state.acting import GreedyPolicy
from recsim_mnar.policies.base import Ints, Policy


class KnownUsersPolicy(GreedyPolicy):
    """Greedy on the scores of user 0 .. ``n_users`` - 1 of the training data; views change nothing.

    Anybody else gets the scores of ``_strangers``. Scores depend on the user alone, so they are made when asked
    for.

    Args:
        n_items: number of items.
        n_users: number of training users.
        name: the name under which results are reported.
    """

    def __init__(self, n_items: int, n_users: int, name: str) -> None:
        self.n_users = int(n_users)
        super().__init__(n_items, name)

    @abc.abstractmethod
    def _scores_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """(n, n_items) scores of training users; row ``n_users`` is anybody else."""

    def _start(self) -> None:
        self._row = np.empty(0, np.int64)
        super()._start()

    def _resize(self, n_slots: int) -> None:
        super()._resize(n_slots)
        self._row = np.concatenate([self._row, np.full(n_slots - len(self._row), self.n_users, np.int64)])

    def reset(self, users: Ints) -> None:
        """See :meth:`recsim_mnar.policies.Policy.reset`."""
        super().reset(users)
        ids = np.asarray(users, np.int64)
        slots = self._slots.find(users)
        self._row[slots] = np.where((ids >= 0) & (ids < self.n_users), ids, self.n_users)
        self._ties[slots] = 0

    # What a training user did is in the scores: the base class's method, so that a driver sees that nothing can change.
    observe = Policy.observe

    def _score(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._scores_of(self._row[slots])
