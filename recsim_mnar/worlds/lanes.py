"""Lanes, in which users live side by side, and the transitions between their decisions."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.log import schema

Floats32 = NDArray[np.float32]

Actions = NDArray[np.int32]
Seeds = NDArray[np.uint64]
Columns = dict[str, NDArray[Any]]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Transition:
    """Events in some lanes since they last waited for a decision.

    Attributes:
        starts: (n + 1,) the events of lane j are rows starts[j]:starts[j + 1] of the arrays below; where an action was
            taken, the first of them is its bandit row.
        columns: the log's columns of these events.
        alive: (n,) whether the user now waits for a decision; otherwise they have left.
    """

    starts: Ints
    columns: Columns
    alive: Flags

    def of(self, some: Flags) -> Transition:
        """Return the transition of the lanes flagged in ``some`` (n,)."""
        n_events = np.diff(self.starts)
        rows = np.repeat(some, n_events)
        starts = np.concatenate([[0], np.cumsum(n_events[some])])
        return Transition(starts, {name: column[rows] for name, column in self.columns.items()}, self.alive[some])


class Moves(NamedTuple):
    """Arrays of one step of n lanes: inputs, and outputs that the step writes.

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

    actions: Ints
    ended: Flags
    seeds: Seeds
    queue: Ints
    next_user: Ints
    elapsed: Ints
    counts: Floats32
    rewards: Floats
    terminated: Flags
    truncated: Flags
    n_views: Ints
    n_skipped: Ints


class Lanes(abc.ABC):
    """Lanes for users side by side; each lane holds one user at a time.

    Attributes:
        user, step, time, n_decisions: (n,) of the user in each lane; ``step`` and ``time`` are those of the decision
            that is awaited.
        trusted: whether what the lanes return is taken as it is. Lanes of an own world leave it False: every transition
            is then looked at before it is used (:class:`CheckedLanes`).
    """

    trusted: ClassVar[bool] = False
    user: Ints
    step: Ints
    time: Floats
    n_decisions: Ints

    @property
    def state(self) -> Floats:
        """Truth: (n, .) hidden state of the user in each lane, for what judges, never for what acts.

        What :meth:`DecisionWorld.reward_means` takes.

        Raises:
            UserError: lanes of an own world that do not say it.
        """
        raise UserError(f"{type(self).__name__} has no state: define it to have the truth of rewards")

    @abc.abstractmethod
    def begin(self, which: Ints, seeds: Seeds, users: Ints) -> Transition:
        """Start users in lanes ``which`` and advance them to their first decision or their end."""

    @abc.abstractmethod
    def take(self, which: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Show recommendations in lanes ``which`` (all waiting) and advance to the next decision or the end."""

    def begin_alone(self, seed: int, user: int) -> dict[str, list[Any]] | None:
        """Start a user in the only lane; return the columns of the views before the first decision.

        None where lanes know no shorter way, or the user may leave before.
        """
        return None

    def take_alone(self, action: int) -> tuple[float, bool] | None:
        """Show an item in the only lane if the user views nothing before the next decision.

        Returns the reward, and whether there is a next decision; None where lanes know no shorter way, or more happens.
        """
        return None

    def runs(self, which: Ints) -> Ints:
        """Return (n,) the number of decisions, at least 1, that each lane's user makes in the present state.

        All but the last of them are uneventful: they earn 0 and show nothing new, whatever is recommended.
        """
        return np.ones(len(which), np.int64)

    def take_runs(self, which: Ints, runs: Ints, actions: Actions, propensities: Floats) -> Transition:
        """:meth:`take` with ``runs[j]`` recommendations, one after the other, for lane ``which[j]``.

        ``runs`` are at most those of :meth:`runs`; actions and propensities (sum of runs,) stand lane by lane.
        """
        return self.take(which, actions, propensities)

    @property
    def at_once(self) -> bool:
        """Return whether :meth:`step_at_once` is implemented.

        One call instead of many, for environments that need no events.
        """
        return False

    def step_at_once(self, moves: Moves, *, acting: bool, limit: int) -> int:
        """Step or reset every lane, and advance it to its next decision or its end; needs :attr:`at_once`.

        The same lives as through :meth:`take` and :meth:`begin`. Users who leave without a decision leave their lanes
        ``ended``: call again, without ``acting``. Returns how many those are.

        Args:
            moves: see there.
            acting: otherwise lanes are reset only.
            limit: steps of an episode, 0 for any number.
        """
        raise NotImplementedError

    def seen_at_once(self) -> tuple[Ints, Columns]:
        """Return the views of the last :meth:`step_at_once`: where each lane's rows start, and the columns."""
        raise NotImplementedError

    def skip_uneventful(self, which: Ints) -> Ints:
        """Skip the next decisions in lanes ``which`` that change nothing; return (n,) their numbers.

        Each of them earns 0, whatever is recommended, shows nothing new, and is followed by the next decision one step
        and one unit of time later. (n,) zeros where that cannot be known before the recommendation is.
        """
        return np.zeros(len(which), np.int64)


class Prospects(NamedTuple):
    """Expected occasions of a user whose recommendations are all clicked with one probability.

    Attributes:
        begins: probability that a user comes to an occasion at all.
        goes_on: (2,) probability of another occasion after an answer, without a click and with one.
        number: (2,) expected number of occasions after an answer, likewise.
    """

    begins: float
    goes_on: Floats
    number: Floats


class Occasions(abc.ABC):
    """Lanes that move from occasion to occasion, one user per lane.

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
    user: Ints
    n_decisions: Ints
    uniform: Floats
    state: Floats
    variance: Floats

    @abc.abstractmethod
    def begin(self, which: Ints, seed: int, users: Ints) -> tuple[Ints, Actions, Flags]:
        """Start users in lanes ``which`` and advance them to their first occasion.

        Returns (n + 1,) where each lane's views begin among the (m,) items viewed, and (n,) whether an occasion came.
        """

    @abc.abstractmethod
    def answer(self, which: Ints, clicked: Flags) -> tuple[Ints, Actions, Flags]:
        """Answer in lanes ``which`` and advance to the next occasion; return as :meth:`begin`."""

    @abc.abstractmethod
    def reward_means(self, which: Ints, actions: Actions) -> Floats:
        """(n,) expected reward of item ``actions[j]`` for the user of lane ``which[j]``; lanes may stand repeatedly."""

    @abc.abstractmethod
    def order(self) -> Ints:
        """Return (n_items,) all items, ordered so that items with similar rewards are neighbours."""

    @abc.abstractmethod
    def prospects(self, probability: float) -> Prospects:
        """Compute expectations where every recommendation is clicked with this probability."""


def cumulative_of(distribution: Floats) -> Floats:
    """Cumulative probabilities, of which a uniform draw takes the first that is above it."""
    cumulative = np.cumsum(distribution)
    # Rounding may leave the last sum below 1: a draw beyond it belongs to the last item that has a probability.
    cumulative[np.flatnonzero(distribution)[-1] :] = np.inf
    return cumulative


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

    def seat(self, which: Ints, seeds: Seeds, users: Ints) -> Iterator[tuple[int, Ints]]:
        """Assign new users to lanes ``which``; yield each seed with the indices of its users."""
        self.user[which] = users
        self.seed[which] = seeds
        for array in (self.step, self.time, self.n_decisions):
            array[which] = 0
        return rows_by_seed(seeds)

    def rows(self, which: Ints, count: Ints | None = None) -> tuple[Ints, Columns]:
        """Start the next ``count[j]`` rows of each lane, one by default; return their starts (n + 1,) and columns.

        User, step and time, one unit a row, are filled in, all else is null; the lanes' steps move on.
        """
        if count is None:
            starts = np.arange(len(which) + 1)
            lanes = which
            within = np.zeros(1, np.int64)
        else:
            starts = np.zeros(len(which) + 1, np.int64)
            lanes = np.repeat(which, count)
            np.cumsum(count, out=starts[1:])
            within = np.arange(len(lanes)) - np.repeat(starts[:-1], count)
        columns: Columns = {}
        for column in (*schema.COLUMNS, *(schema.OPTIONAL[name] for name in self.optional)):
            columns[column.name] = np.full(len(lanes), column.null or 0, column.dtype)
        if self.truth_column is not None:
            columns[self.truth_column] = np.full(len(lanes), np.nan)
        columns["user"][:] = self.user[lanes]
        columns["step"][:] = self.step[lanes] + within
        columns["time"][:] = self.time[lanes] + within
        self.step[which] += 1 if count is None else count
        return starts, columns


def rows_by_seed(seeds: Seeds) -> Iterator[tuple[int, Ints]]:
    """Yield each distinct seed with the indices of its rows."""
    for seed in np.unique(seeds):
        yield int(seed), np.flatnonzero(seeds == seed)


class PlainLanes(CountedLanes):
    """Base of simple worlds: each user answers decisions one after another, one unit of time per event.

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
    def answer(self, which: Ints, actions: Actions) -> tuple[Floats, Flags]:
        """Return the rewards of actions in lanes ``which``, and whether users continue; (n,) each."""

    def arrive(self, which: Ints) -> None:
        """Set up the state of the new users in lanes ``which`` (``self.user``, ``self.seed``)."""

    def browse(self, which: Ints) -> tuple[Ints, Ints]:
        """Return the views before the next decision: their numbers (n,), and the items, lane by lane."""
        return np.zeros(len(which), np.int64), np.zeros(0, np.int64)

    def expected(self, which: Ints, actions: Actions) -> Floats:
        """Truth: (n,) expected rewards of these actions now; asked before :meth:`answer` where truth is kept."""
        raise NotImplementedError(f"{type(self).__name__}: define expected(which, actions) to keep the truth")

    # -------------------------------------------------------------------------------------------------- addressed draws

    def uniforms(self, which: Ints, stream: int = rng.Stream.RESPONSE) -> Floats:
        """Draw (n,) uniforms on [0, 1) for the lanes' present decisions; streams are independent."""
        return self._drawn(rng.uniforms, which, stream)

    def normals(self, which: Ints, stream: int = rng.Stream.RESPONSE) -> Floats:
        """Draw (n,) standard normals for the lanes' present decisions."""
        return self._drawn(rng.normals_of, which, stream)

    def _drawn(self, draw: Callable[..., Floats], which: Ints, stream: int) -> Floats:
        out = np.empty(len(which))
        for seed, rows in rows_by_seed(self.seed[which]):
            lanes = which[rows]
            out[rows] = draw(seed, stream, self.user[lanes], self.n_decisions[lanes])
        return out

    # ------------------------------------------------------------------------------------------------------ as lanes do

    def begin(self, which: Ints, seeds: Seeds, users: Ints) -> Transition:
        """Implement :meth:`Lanes.begin`."""
        self.seat(which, seeds, users)
        self.arrive(which)
        return self._transition(which, np.ones(len(which), np.bool_), None)

    def take(self, which: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Implement :meth:`Lanes.take`."""
        columns: dict[str, Any] = {"action": actions, "propensity": propensities}
        if self.truth_column is not None:
            columns[self.truth_column] = self.expected(which, actions)
        columns["reward"], alive = self.answer(which, actions)
        self.n_decisions[which] += 1
        return self._transition(which, np.asarray(alive), columns)

    def _transition(self, which: Ints, alive: Flags, shown: dict[str, Any] | None) -> Transition:
        """Return the rows of the actions, if any, and of the views that follow; advance the clocks."""
        n_asked = int(shown is not None)
        viewed = np.zeros(len(which), np.int64)
        viewed[alive], items = self.browse(which[alive])
        count = viewed + n_asked
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


# ---------------------------------------------------------------------------------------------- lanes of an own world

_PLACES = ("user", "step", "time", "n_decisions")


class CheckedLanes(Lanes):
    """Lanes that check every transition of the lanes inside and raise a UserError that names the broken rule.

    Args:
        inner: what the world's ``open_lanes`` returned.
        world: the world's name, for messages.
        n_items: of the world.
        n_lanes: how many were asked for.
        rates: whether organic events are ratings.
        truth_column: name of the column of truth that transitions must have; None for none.

    Raises:
        UserError: ``inner`` are no lanes, or not so many.
    """

    trusted = True

    def __init__(
        self, inner: Any, world: str, n_items: int, n_lanes: int, *, rates: bool, truth_column: str | None
    ) -> None:
        self.inner = inner
        self.world = world
        self.n_items = n_items
        self.rates = rates
        self.truth_column = truth_column
        if not isinstance(inner, Lanes):
            self._wrong(f"open_lanes must return an object derived from recsim_mnar.worlds.Lanes, got {inner!r}")
        for name in _PLACES:
            shape = getattr(getattr(inner, name, None), "shape", ())
            if shape != (n_lanes,):
                self._wrong(
                    f"open_lanes({n_lanes}): {name} of the lanes must be an array of {n_lanes}, its shape is {shape}"
                )
        self._columns: set[str] | None = None

    def __getattr__(self, name: str) -> Any:
        """Return ``user``, ``step``, ``time`` and ``n_decisions`` of the lanes inside, which may replace the arrays."""
        if name in _PLACES:
            return getattr(self.inner, name)
        raise AttributeError(name)

    @property
    def state(self) -> Floats:
        """Implement :attr:`Lanes.state`."""
        state = np.asarray(self.inner.state, np.float64)
        if state.ndim != 2 or len(state) != len(self.user):
            self._wrong(f"state of the lanes must have shape ({len(self.user)}, .), got {state.shape}")
        return state

    def begin(self, which: Ints, seeds: Seeds, users: Ints) -> Transition:
        """Implement :meth:`Lanes.begin`."""
        transition = self.inner.begin(which, seeds, users)
        none = np.zeros(len(which), np.int64)
        self._check("begin", transition, which, users, none, none)
        self._check_places("begin", which, users, none, transition)
        return transition

    def take(self, which: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Implement :meth:`Lanes.take`."""
        return self._taken("take", which, np.ones(len(which), np.int64), actions, propensities)

    def runs(self, which: Ints) -> Ints:
        """Implement :meth:`Lanes.runs`."""
        return self._counts("runs", which, 1)

    def take_runs(self, which: Ints, runs: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Implement :meth:`Lanes.take_runs`."""
        return self._taken("take_runs", which, runs, actions, propensities)

    def skip_uneventful(self, which: Ints) -> Ints:
        """Implement :meth:`Lanes.skip_uneventful`."""
        return self._counts("skip_uneventful", which, 0)

    # ---------------------------------------------------------------------------------------------------------- inside

    def _wrong(self, what: str) -> None:
        raise UserError(f"world {self.world!r}: {what}")

    def _counts(self, method: str, which: Ints, least: int) -> Ints:
        counts = np.asarray(getattr(self.inner, method)(which))
        if counts.shape != which.shape or counts.dtype.kind != "i" or (len(counts) and counts.min() < least):
            self._wrong(f"{method} must return ({len(which)},) whole numbers of at least {least}")
        return counts

    def _taken(self, method: str, which: Ints, asked: Ints, actions: Actions, propensities: Floats) -> Transition:
        users = self.user[which].copy()
        steps = self.step[which].copy()
        decided = self.n_decisions[which].copy()
        if method == "take":
            transition = self.inner.take(which, actions, propensities)
        else:
            transition = self.inner.take_runs(which, asked, actions, propensities)
        self._check(method, transition, which, users, steps, asked)
        c = transition.columns
        decision_rows = c["event"] == schema.BANDIT
        for name, column in (("action", actions), ("propensity", propensities)):
            if not np.array_equal(c[name][decision_rows], column):
                self._wrong(f"{method}: the bandit rows must hold the {name} that was handed in")
        self._check_places(method, which, users, decided + asked, transition)
        return transition

    def _check(self, method: str, transition: Any, which: Ints, users: Ints, steps: Ints, asked: Ints) -> None:
        """Check a transition's shapes, columns and rows.

        Args:
            method: that returned it.
            transition: what it returned.
            which: (n,) lanes.
            users: (n,) in them.
            steps: (n,) of the first row of each.
            asked: (n,) recommendations that each answered.
        """
        if not isinstance(transition, Transition):
            self._wrong(f"{method} must return a recsim_mnar.worlds.Transition, got {type(transition).__name__}")
        n = len(which)
        starts = np.asarray(transition.starts)
        alive = np.asarray(transition.alive)
        if starts.shape != (n + 1,) or starts.dtype.kind != "i":
            self._wrong(
                f"{method}: starts must be ({n + 1},) integers for {n} lanes, got {starts.dtype} of {starts.shape}"
            )
        if alive.shape != (n,) or alive.dtype != np.bool_:
            self._wrong(f"{method}: alive must be ({n},) flags for {n} lanes, got {alive.dtype} of {alive.shape}")
        counts = np.diff(starts)
        if starts[0] != 0 or (counts < 0).any():
            self._wrong(f"{method}: starts must begin with 0 and not fall")
        self._check_columns(method, transition.columns, int(starts[-1]))
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
        lane = np.repeat(np.arange(n), counts)
        self._check_rows(method, transition.columns, within < asked[lane], users[lane], steps[lane] + within)
        if (counts < asked).any():
            self._wrong(f"{method}: a lane's first row must be the bandit row of the action taken")

    def _check_columns(self, method: str, columns: dict[str, Any], n_rows: int) -> None:
        needed = list(schema.NAMES)
        if self.rates:
            needed.append("observation_propensity")
        if self.truth_column is not None:
            needed.append(self.truth_column)
        for name in needed:
            if name not in columns:
                self._wrong(f"{method}: the columns lack {name!r}")
        self._columns = self._columns or set(columns)
        if set(columns) != self._columns:
            self._wrong(f"{method}: every transition must have the same columns, got {', '.join(sorted(columns))}")
        for name, values in columns.items():
            if np.shape(values) != (n_rows,):
                self._wrong(f"{method}: column {name!r} has shape {np.shape(values)}, starts end at {n_rows} rows")
            declared = schema.BY_NAME.get(name)
            if declared is not None and values.dtype != declared.dtype:
                self._wrong(f"{method}: column {name!r} must be {declared.dtype}, got {values.dtype}")

    def _check_rows(
        self,
        method: str,
        c: dict[str, Any],
        shown: Flags,
        users: Ints,
        steps: Ints,
    ) -> None:
        """Rows one by one: ``shown`` says which of them must be bandit rows."""
        alone = ~shown
        rules = [
            (c["user"] != users, "user", "must be the user of the lane"),
            (c["step"] != steps, "step", "must count a user's rows from 0, without a gap"),
            (~np.isfinite(c["time"]), "time", "must be a finite number"),
            (shown & (c["event"] != schema.BANDIT), "event", "must be bandit on a lane's first row, the action's"),
            (alone & (c["event"] != schema.ORGANIC), "event", "must be organic on rows without an action"),
            (alone & ((c["item"] < 0) | (c["item"] >= self.n_items)), "item", f"must be in 0..{self.n_items - 1}"),
            (shown & ~np.isfinite(c["reward"]), "reward", "must be a finite number"),
        ]
        if self.rates:
            p = c["observation_propensity"]
            rules.append((alone & ~np.isfinite(c["reward"]), "reward", "must be the rating on organic rows"))
            rules.append((alone & ~((p > 0) & (p <= 1)), "observation_propensity", "must be in (0, 1]"))
        if self.truth_column is not None:
            truth = c[self.truth_column]
            rules.append((shown & ~np.isfinite(truth), self.truth_column, "must be a finite number on bandit rows"))
        for broken, name, rule in rules:
            if broken.any():
                row = int(np.flatnonzero(broken)[0])
                self._wrong(f"{method}: {name} {rule}, got {c[name][row]} for user {users[row]}")

    def _check_places(self, method: str, which: Ints, users: Ints, decided: Ints, t: Transition) -> None:
        """Check the attributes of the lanes after a transition."""
        if not np.array_equal(self.user[which], users):
            self._wrong(f"{method}: lanes' user must hold the users that were handed to begin")
        if not np.array_equal(self.n_decisions[which][t.alive], decided[t.alive]):
            self._wrong(f"{method}: lanes' n_decisions must count the decisions that a user has come to, from 0")
        last = t.starts[1:] - 1
        moved = (np.diff(t.starts) > 0) & t.alive
        if not np.array_equal(self.step[which][moved], t.columns["step"][last[moved]] + 1):
            self._wrong(f"{method}: lanes' step must be that of the decision awaited: one after the last row's")
