"""Lanes with the bookkeeping done: what a world of your own fills in is how users answer."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.log import schema
from recsim_mnar.worlds.lanes import Lanes, Transition
from recsim_mnar.worlds.rows import null_columns

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class PlainLanes(Lanes):
    """Users who come to a decision at once, answer it, and come to the next one or leave; one unit of time an event.

    Define :meth:`answer`; :meth:`arrive`, :meth:`browse` and :meth:`expected` where a world has something to say there.
    Draws that :meth:`uniforms` and :meth:`normals` give are addressed by user and decision, so that a user's life does
    not depend on who lives beside them.

    Args:
        n_lanes: users side by side.
        truth_column: name of the column of :meth:`expected`; None to leave it out.

    Attributes:
        seed: (n,) of the user in each lane.
    """

    def __init__(self, n_lanes: int, *, truth_column: str | None = None) -> None:
        self.user = np.zeros(n_lanes, np.int64)
        self.step = np.zeros(n_lanes, np.int64)
        self.time = np.zeros(n_lanes)
        self.n_decisions = np.zeros(n_lanes, np.int64)
        self.seed = np.zeros(n_lanes, np.uint64)
        self.truth_column = truth_column

    # ----------------------------------------------------------------------------------------------- what a world says

    @abc.abstractmethod
    def answer(self, which: Ints, actions: NDArray[np.int32]) -> tuple[Floats, NDArray[np.bool_]]:
        """Rewards of these actions in lanes ``which``, and whether their users come to another decision, (n,) each."""

    def arrive(self, which: Ints) -> None:
        """New users are in lanes ``which`` (``self.user``, ``self.seed``): set up what the world keeps of them."""

    def browse(self, which: Ints) -> tuple[Ints, Ints]:
        """Items viewed unasked before the next decision: (n,) how many, and their ids, lane by lane."""
        return np.zeros(len(which), np.int64), np.zeros(0, np.int64)

    def expected(self, which: Ints, actions: NDArray[np.int32]) -> Floats:
        """Truth: (n,) expected rewards of these actions now; asked before :meth:`answer` where truth is kept."""
        raise NotImplementedError(f"{type(self).__name__}: define expected(which, actions) to keep the truth")

    # -------------------------------------------------------------------------------------------------- addressed draws

    def uniforms(self, which: Ints, stream: int = rng.Stream.RESPONSE) -> Floats:
        """(n,) a uniform on [0, 1) for each lane's present decision; each stream (``rng.Stream``) is another draw."""
        return self._drawn(rng.uniforms, which, stream)

    def normals(self, which: Ints, stream: int = rng.Stream.RESPONSE) -> Floats:
        """(n,) a standard normal for each lane's present decision."""
        return self._drawn(rng.normals_of, which, stream)

    def _drawn(self, draw: Callable[..., Floats], which: Ints, stream: int) -> Floats:
        out = np.empty(len(which))
        seeds = self.seed[which]
        for seed in np.unique(seeds):
            rows = np.flatnonzero(seeds == seed)
            lanes = which[rows]
            out[rows] = draw(int(seed), stream, self.user[lanes], self.n_decisions[lanes])
        return out

    # ------------------------------------------------------------------------------------------------------ as lanes do

    def begin(self, which: Ints, seeds: NDArray[np.uint64], users: Ints) -> Transition:
        """See :meth:`Lanes.begin`."""
        self.user[which], self.seed[which] = users, seeds
        self.step[which], self.time[which], self.n_decisions[which] = 0, 0.0, 0
        self.arrive(which)
        alive = np.ones(len(which), np.bool_)
        return self._transition(which, alive, None)

    def take(self, which: Ints, actions: NDArray[np.int32], propensities: Floats) -> Transition:
        """See :meth:`Lanes.take`."""
        shown: dict[str, Any] = {"action": actions, "propensity": propensities}
        if self.truth_column is not None:
            shown[self.truth_column] = self.expected(which, actions)
        shown["reward"], alive = self.answer(which, actions)
        self.n_decisions[which] += 1
        return self._transition(which, np.asarray(alive), shown)

    def _transition(self, which: Ints, alive: NDArray[np.bool_], shown: dict[str, Any] | None) -> Transition:
        """Rows of the actions taken, if any, and of what those who stay browse; moves the clocks."""
        asked = int(shown is not None)
        viewed = np.zeros(len(which), np.int64)
        viewed[alive], items = self.browse(which[alive])
        count = viewed + asked
        starts = np.concatenate([[0], np.cumsum(count)])
        lane = np.repeat(np.arange(len(which)), count)
        within = np.arange(len(lane)) - starts[lane]
        columns = null_columns(len(lane), truth_column=self.truth_column)
        columns["user"][:] = self.user[which][lane]
        columns["step"][:] = self.step[which][lane] + within
        columns["time"][:] = self.time[which][lane] + within
        columns["event"][:] = schema.ORGANIC
        if shown is not None:
            first = starts[:-1]
            columns["event"][first] = schema.BANDIT
            for name, values in shown.items():
                columns[name][first] = values
        columns["item"][columns["event"] == schema.ORGANIC] = items
        self.step[which] += count
        self.time[which] += count
        return Transition(starts, columns, alive)
