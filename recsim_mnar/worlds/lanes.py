"""Lanes: places in which users live side by side, and what happens in them between two decisions."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.log import schema

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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


class Moves(NamedTuple):
    """What goes into one step of n lanes, and what comes out of it, which is written into the arrays given.

    Attributes:
        actions: (n,) int64 items recommended; those of lanes that have ended may be anything.
        ended: (n,) lanes that are reset instead; False from then on, where the next user comes to a decision.
        seeds: (n,) uint64 of the users who come next,
        queue: (n,) which entry of ``next_user`` is their number.
        next_user: moves on with every user who comes.
        elapsed: (n,) steps of the present episode.
        counts: (n, n_items) float32 views of the present user; (n, 0) where they are not counted.
        rewards: (n,) of lanes that have not ended,
        terminated: (n,) whether their user left,
        truncated: (n,) whether the episode ended by its length.
        n_views: (n,) to which the views since the last decision are added.
        n_skipped: (n,) to which users who left without a decision are added.
    """

    actions: NDArray[np.int64]
    ended: NDArray[np.bool_]
    seeds: NDArray[np.uint64]
    queue: NDArray[np.int64]
    next_user: NDArray[np.int64]
    elapsed: NDArray[np.int64]
    counts: NDArray[np.float32]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    n_views: NDArray[np.int64]
    n_skipped: NDArray[np.int64]


def next_users(next_user: NDArray[np.int64], queues: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) the next user of each of these queues, which then move on; a queue may stand repeatedly."""
    users = []
    for queue in queues.tolist():
        users.append(next_user[queue])
        next_user[queue] += 1
    return np.array(users, np.int64)


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

    def begin_alone(self, seed: int, user: int) -> dict[str, list[Any]] | None:
        """:meth:`begin` in the only lane, for a user who comes to a decision: columns of the views before it.

        None where lanes know no shorter way, or the user may leave before.
        """
        return None

    def take_alone(self, action: int) -> tuple[float, bool] | None:
        """:meth:`take` in the only lane, of a user who views nothing until the next decision, a unit of time later.

        Returns the reward, and whether there is a next decision; None where lanes know no shorter way, or more happens.
        """
        return None

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

    @property
    def at_once(self) -> bool:
        """Whether :meth:`step_at_once` is there: one call instead of many, for environments that need no events."""
        return False

    def step_at_once(self, moves: Moves, *, acting: bool, limit: int) -> int:
        """Every lane answers or is reset, and lives until its next decision or its end, where :attr:`at_once` is set.

        The same lives as through :meth:`take` and :meth:`begin`. Users who leave without a decision leave their lanes
        ``ended``: call again, without ``acting``. Returns how many those are.

        Args:
            moves: see there.
            acting: otherwise lanes are reset only.
            limit: steps of an episode, 0 for any number.
        """
        raise NotImplementedError

    def seen_at_once(self) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
        """Views of the last :meth:`step_at_once`, until lanes move: where each lane's rows start, and the columns."""
        raise NotImplementedError

    def skip_uneventful(self, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """Lanes ``which`` (all waiting) live through decisions that come next and change nothing; returns how many.

        Each of them earns 0, whatever is recommended, shows nothing new, and is followed by the next decision one step
        and one unit of time later. (n,) zeros where that cannot be known before the recommendation is.
        """
        return np.zeros(len(which), np.int64)


class Prospects(NamedTuple):
    """What is to come in a life whose recommendations are all clicked with one probability.

    Attributes:
        begins: probability that a user comes to an occasion at all.
        goes_on: (2,) probability of another occasion after an answer, without a click and with one.
        number: (2,) expected number of occasions after an answer, likewise.
    """

    begins: float
    goes_on: NDArray[np.float64]
    number: NDArray[np.float64]


class Occasions(abc.ABC):
    """Places in which users live from occasion to occasion, one user a lane.

    An occasion is a decision whose answer depends on what is shown. Which decisions are occasions is drawn for each of
    them alone, with the same probability, whatever was before and whatever is shown: they are a random sample of all
    decisions. The users, their draws and so their lives are those of :meth:`LaneWorld.open_lanes`.

    Attributes:
        share: probability of a decision to be an occasion; no reward's probability is above it.
        user: (n,) of the user in each lane.
        n_decisions: (n,) number of the decision at which each lane's user is, from 0.
        uniform: (n,) of the answer there, in [0, share): a reward of 1 where it is below its probability.
        state: (n, K) the user's hidden state, normal around 0 with
        variance: (n,) this variance of each entry.
    """

    share: float
    user: NDArray[np.int64]
    n_decisions: NDArray[np.int64]
    uniform: NDArray[np.float64]
    state: NDArray[np.float64]
    variance: NDArray[np.float64]

    @abc.abstractmethod
    def begin(
        self, which: NDArray[np.int64], seed: int, users: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
        """Users arrive in lanes ``which`` and live until their first occasion.

        Returns (n + 1,) where each lane's views begin among the (m,) items viewed, and (n,) whether an occasion came.
        """

    @abc.abstractmethod
    def answer(
        self, which: NDArray[np.int64], clicked: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
        """Lanes ``which`` answer, and live until their next occasion; returns as :meth:`begin`."""

    @abc.abstractmethod
    def reward_means(self, which: NDArray[np.int64], actions: NDArray[np.int32]) -> NDArray[np.float64]:
        """(n,) expected reward of item ``actions[j]`` for the user of lane ``which[j]``; lanes may stand repeatedly."""

    @abc.abstractmethod
    def order(self) -> NDArray[np.int64]:
        """(n_items,) all items, those of like rewards near each other."""

    @abc.abstractmethod
    def prospects(self, probability: float) -> Prospects:
        """What is to come where every recommendation is clicked with this probability."""


def cumulative_of(distribution: Floats) -> Floats:
    """Cumulative probabilities, of which a uniform draw takes the first that is above it."""
    cumulative = np.cumsum(distribution)
    # Rounding may leave the last sum below 1: a draw beyond it belongs to the last item that has a probability.
    cumulative[np.flatnonzero(distribution)[-1] :] = np.inf
    return cumulative


def null_columns(n: int, optional: Iterable[str] = (), *, truth_column: str | None = None) -> dict[str, NDArray[Any]]:
    """The log's columns for n rows: null where a column has a null, else 0.

    Args:
        n: rows.
        optional: names of :data:`recsim_mnar.log.schema.OPTIONAL` that the rows have too.
        truth_column: name of a further column of NaN.
    """
    declared = (*schema.COLUMNS, *(schema.OPTIONAL[name] for name in optional))
    columns = {c.name: np.full(n, 0 if c.null is None else c.null, c.dtype) for c in declared}
    if truth_column is not None:
        columns[truth_column] = np.full(n, np.nan)
    return columns


class CountedLanes(Lanes):
    """Lanes that count each user's rows and decisions.

    Args:
        n_lanes: users side by side.
        truth_column: name of a column of truth; None to leave it out.

    Attributes:
        seed: (n,) of the user in each lane.
        optional: names of :data:`recsim_mnar.log.schema.OPTIONAL` that the rows have too.
    """

    optional: ClassVar[tuple[str, ...]] = ()

    def __init__(self, n_lanes: int, *, truth_column: str | None = None) -> None:
        self.user = np.zeros(n_lanes, np.int64)
        self.step = np.zeros(n_lanes, np.int64)
        self.time = np.zeros(n_lanes)
        self.n_decisions = np.zeros(n_lanes, np.int64)
        self.seed = np.zeros(n_lanes, np.uint64)
        self.truth_column = truth_column

    def seat(self, which: Ints, seeds: NDArray[np.uint64], users: Ints) -> Iterator[tuple[int, Ints]]:
        """New users take lanes ``which``; yields each seed with the places of its users among them."""
        self.user[which], self.seed[which] = users, seeds
        self.step[which], self.time[which], self.n_decisions[which] = 0, 0.0, 0
        return of_seeds(seeds)

    def rows(self, which: Ints, count: Ints | None = None) -> tuple[Ints, dict[str, NDArray[Any]]]:
        """Start the next ``count[j]`` rows of each lane, one by default: (n + 1,) where they begin, and their columns.

        User, step and time, one unit a row, are filled in, all else is null; the lanes' steps move on.
        """
        if count is None:
            starts, lanes, within = np.arange(len(which) + 1), which, np.zeros(1, np.int64)
        else:
            starts, lanes = np.zeros(len(which) + 1, np.int64), np.repeat(which, count)
            np.cumsum(count, out=starts[1:])
            within = np.arange(len(lanes)) - np.repeat(starts[:-1], count)
        columns = null_columns(len(lanes), self.optional, truth_column=self.truth_column)
        columns["user"][:] = self.user[lanes]
        columns["step"][:] = self.step[lanes] + within
        columns["time"][:] = self.time[lanes] + within
        self.step[which] += 1 if count is None else count
        return starts, columns


def of_seeds(seeds: NDArray[np.uint64]) -> Iterator[tuple[int, Ints]]:
    """Each seed with its places."""
    for seed in np.unique(seeds):
        yield int(seed), np.flatnonzero(seeds == seed)


class PlainLanes(CountedLanes):
    """Users who come to a decision at once, answer it, and come to the next one or leave; one unit of time an event.

    Define :meth:`answer`; :meth:`arrive`, :meth:`browse` and :meth:`expected` where a world has something to say there.
    Draws that :meth:`uniforms` and :meth:`normals` give are addressed by user and decision, so that a user's life does
    not depend on who lives next to them.

    Args:
        n_lanes: users side by side.
        truth_column: name of the column of :meth:`expected`; None to leave it out.

    Attributes:
        seed: (n,) of the user in each lane.
    """

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
        for seed, rows in of_seeds(self.seed[which]):
            lanes = which[rows]
            out[rows] = draw(seed, stream, self.user[lanes], self.n_decisions[lanes])
        return out

    # ------------------------------------------------------------------------------------------------------ as lanes do

    def begin(self, which: Ints, seeds: NDArray[np.uint64], users: Ints) -> Transition:
        """See :meth:`Lanes.begin`."""
        self.seat(which, seeds, users)
        self.arrive(which)
        return self._transition(which, np.ones(len(which), np.bool_), None)

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
        starts, columns = self.rows(which, count)
        columns["event"][:] = schema.ORGANIC
        if shown is not None:
            first = starts[:-1]
            columns["event"][first] = schema.BANDIT
            for name, values in shown.items():
                columns[name][first] = values
        columns["item"][columns["event"] == schema.ORGANIC] = items
        self.time[which] += count
        return Transition(starts, columns, alive)
