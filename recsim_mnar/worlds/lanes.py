"""Lanes: places in which users live side by side, and what happens in them between two decisions."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError


@dataclass(frozen=True)
class Transition:
    """What happened in some lanes since they last waited for a decision.

    Attributes:
        starts: (n + 1,) the events of lane j are rows starts[j]:starts[j + 1] of the arrays below; where an action was
            taken, the first of them is its bandit row.
        columns: the log's columns of these events.
        alive: (n,) whether the user now waits for a decision; otherwise they have left.
    """

    starts: NDArray[np.int64]
    columns: dict[str, NDArray[Any]]
    alive: NDArray[np.bool_]

    def of(self, some: NDArray[np.bool_]) -> Transition:
        """The same of some of the lanes; ``some`` is (n,)."""
        n_events = np.diff(self.starts)
        rows = np.repeat(some, n_events)
        starts = np.concatenate([[0], np.cumsum(n_events[some])])
        return Transition(starts, {name: column[rows] for name, column in self.columns.items()}, self.alive[some])


class Lanes(abc.ABC):
    """Places in which users live side by side; each lane holds one user at a time.

    Attributes:
        user, step, time, n_decisions: (n,) of the user in each lane; ``step`` and ``time`` are those of the decision
            that is awaited.
        trusted: whether what the lanes return is taken as it is. Lanes of an own world leave it False: every transition
            is then looked at before it is used (:mod:`recsim_mnar.worlds.checked_lanes`).
    """

    trusted: ClassVar[bool] = False
    user: NDArray[np.int64]
    step: NDArray[np.int64]
    time: NDArray[np.float64]
    n_decisions: NDArray[np.int64]

    @property
    def state(self) -> NDArray[np.float64]:
        """Truth: (n, .) hidden state of the user in each lane, for what judges, never for what acts.

        What :meth:`DecisionWorld.reward_means` takes.

        Raises:
            UserError: lanes of an own world that do not say it.
        """
        raise UserError(f"{type(self).__name__} has no state: define it to have the truth of rewards")

    @abc.abstractmethod
    def begin(self, which: NDArray[np.int64], seeds: NDArray[np.uint64], users: NDArray[np.int64]) -> Transition:
        """Users arrive in lanes ``which`` and live until their first decision or their end."""

    @abc.abstractmethod
    def take(
        self, which: NDArray[np.int64], actions: NDArray[np.int32], propensities: NDArray[np.float64]
    ) -> Transition:
        """Lanes ``which`` (all waiting) get these recommendations and live until the next decision or their end."""

    def runs(self, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) how many decisions from here on each lane's user comes to in the present state, at least 1.

        All but the last of them are uneventful: they earn 0 and show nothing new, whatever is recommended.
        """
        return np.ones(len(which), np.int64)

    def take_runs(
        self,
        which: NDArray[np.int64],
        runs: NDArray[np.int64],
        actions: NDArray[np.int32],
        propensities: NDArray[np.float64],
    ) -> Transition:
        """:meth:`take` with ``runs[j]`` recommendations, one after the other, for lane ``which[j]``.

        ``runs`` are at most those of :meth:`runs`; actions and propensities (sum of runs,) stand lane by lane.
        """
        return self.take(which, actions, propensities)

    def skip_uneventful(self, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """Lanes ``which`` (all waiting) live through decisions that come next and change nothing; returns how many.

        Each of them earns 0, whatever is recommended, shows nothing new, and is followed by the next decision one step
        and one unit of time later. (n,) zeros where that cannot be known before the recommendation is.
        """
        return np.zeros(len(which), np.int64)
