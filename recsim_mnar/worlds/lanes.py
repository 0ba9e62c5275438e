"""Lanes, in which many users are simulated at once, and the transitions between their decisions."""

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
    """Events in n lanes from one decision to the next, or to the end of the user's life.

    Attributes:
        starts: (n + 1,) row numbers: the events of lane j are rows starts[j]:starts[j + 1] of ``columns``. If an action
            was taken, the first of these rows is its bandit row.
        columns: columns of the log, by name.
        alive: (n,) True if the user now waits for a decision, False if the user has left.
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
    """Arrays of :meth:`Lanes.step_at_once` for n lanes; all but ``actions``, ``seeds`` and ``queue`` are written to.

    Attributes:
        actions: (n,) int64 items recommended; ignored in lanes that have ended.
        ended: (n,) True for lanes whose episode has ended and that get a new user; set to False once the new user comes
            to a decision.
        seeds: (n,) uint64 seed of the next user of each lane.
        queue: (n,) index into ``next_user`` for each lane.
        next_user: ids of the next users, one for each group of lanes that share a sequence of users; incremented with
            every new user.
        elapsed: (n,) number of steps in the present episode.
        counts: (n, n_items) float32 number of views of each item by the present user; (n, 0) if not needed.
        rewards: (n,) reward of the action, in lanes that had not ended.
        terminated: (n,) True if the user left, in lanes that had not ended.
        truncated: (n,) True if the episode reached its largest length, in lanes that had not ended.
        n_views: (n,) counter to which the number of new views is added; set to 0 for a new user.
        n_skipped: (n,) counter to which the number of users who left without a decision is added.
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
    """State of n users who are simulated at once; each lane holds one user at a time.

    Attributes:
        user: (n,) id of the user in each lane.
        step: (n,) step of the decision that each user waits for.
        time: (n,) time of that decision.
        n_decisions: (n,) number of decisions that each user has made.
        trusted: True if transitions are used without checks. User-defined lanes leave it False, and every transition is
            checked (:class:`CheckedLanes`).
    """

    trusted: ClassVar[bool] = False
    user: Ints
    step: Ints
    time: Floats
    n_decisions: Ints

    @property
    def state(self) -> Floats:
        """Return the hidden state (n, d) of each lane's user, as :meth:`DecisionWorld.reward_means` takes it.

        It is for evaluation only: policies must not see it.

        Raises:
            UserError: user-defined lanes that do not define it.
        """
        raise UserError(f"{type(self).__name__} has no state: define it to have the truth of rewards")

    @abc.abstractmethod
    def begin(self, which: Ints, seeds: Seeds, users: Ints) -> Transition:
        """Place new users in lanes ``which`` and simulate them up to their first decision or their end.

        Args:
            which: (n,) indices of lanes.
            seeds: (n,) seed of each user.
            users: (n,) ids.
        """

    @abc.abstractmethod
    def take(self, which: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Show recommendations and simulate up to the next decision or the end of each user.

        Args:
            which: (n,) indices of lanes, all of which wait for a decision.
            actions: (n,) items, or (n, k) rankings.
            propensities: probabilities of the actions, of the same shape, for the log.
        """

    def begin_alone(self, seed: int, user: int) -> dict[str, list[Any]] | None:
        """Place a user in the only lane; return the columns, as lists, of the views before the first decision.

        This is a shortcut of :meth:`begin` for environments with one user. The default, None, means that there is no
        shortcut; None is also returned if the user may leave before the first decision.
        """
        return None

    def take_alone(self, action: int) -> tuple[float, bool] | None:
        """Show an item in the only lane, as a shortcut of :meth:`take` for environments with one user.

        Returns:
            The reward, and True if there is another decision. None, with nothing done, if there is no shortcut or the
            user may view items before the next decision.
        """
        return None

    def runs(self, which: Ints) -> Ints:
        """Return how many decisions in a row (n,), at least 1, each lane's user makes in the present state.

        All of them but the last have reward 0 and show the user nothing new, whatever is recommended, so a policy can
        make these decisions in one call.
        """
        return np.ones(len(which), np.int64)

    def take_runs(self, which: Ints, runs: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Show several recommendations in a row in each lane, otherwise as :meth:`take`.

        Args:
            which: (n,) indices of lanes.
            runs: (n,) number of recommendations in each lane, at most what :meth:`runs` returned.
            actions: (sum of runs,) items, lane by lane.
            propensities: (sum of runs,) their probabilities.
        """
        return self.take(which, actions, propensities)

    @property
    def at_once(self) -> bool:
        """Return True if :meth:`step_at_once` is implemented: one call for environments that need no events."""
        return False

    def step_at_once(self, moves: Moves, *, acting: bool, limit: int) -> int:
        """Step every lane, or give it a new user, and simulate up to the next decision; requires :attr:`at_once`.

        Users, events and random draws are those of :meth:`take` and :meth:`begin`. A new user who leaves without a
        decision leaves the lane ``ended``; the caller then calls again, without ``acting``.

        Args:
            moves: actions and buffers of results.
            acting: True to take the actions in lanes that have not ended; False to leave these lanes as they are.
            limit: largest number of steps in an episode; 0 for no limit.

        Returns:
            Number of lanes that are still ``ended``.
        """
        raise NotImplementedError

    def seen_at_once(self) -> tuple[Ints, Columns]:
        """Return the views in the last :meth:`step_at_once`.

        Returns:
            starts: (n + 1,) row numbers: lane j has rows starts[j]:starts[j + 1].
            columns: columns of the log, by name.
        """
        raise NotImplementedError

    def skip_uneventful(self, which: Ints) -> Ints:
        """Skip the coming decisions in lanes ``which`` that change nothing, and return their numbers (n,).

        A decision is skipped if it has reward 0 and shows the user nothing new, whatever is recommended, and the next
        decision follows one step and one unit of time later. The default skips none.
        """
        return np.zeros(len(which), np.int64)


class Prospects(NamedTuple):
    """Expected number of occasions of a user, if every recommendation were clicked with the same probability.

    Attributes:
        begins: probability that a new user comes to an occasion.
        goes_on: (2,) probability of another occasion after an occasion without a click, and with one.
        number: (2,) expected number of later occasions after an occasion without a click, and with one.
    """

    begins: float
    goes_on: Floats
    number: Floats


class Occasions(abc.ABC):
    """Lanes that move from occasion to occasion, one user per lane.

    An *occasion* is a decision whose reward depends on the item shown. Whether a decision is one is drawn independently
    for each decision with the same probability, so occasions are a random sample of all decisions. Users and their
    random draws are those of :meth:`LaneWorld.open_lanes`, and so are all events.

    Attributes:
        share: probability that a decision is an occasion; no item's click probability is larger.
        user: (n,) id of the user in each lane.
        n_decisions: (n,) number of the decision, from 0, at which the user is.
        uniform: (n,) uniform in [0, share) that decides the reward: 1 if it is below the item's click probability.
        state: (n, K) hidden state of each user, normal with mean 0.
        variance: (n,) variance of each entry of the user's state.
    """

    share: float
    user: Ints
    n_decisions: Ints
    uniform: Floats
    state: Floats
    variance: Floats

    @abc.abstractmethod
    def begin(self, which: Ints, seed: int, users: Ints) -> tuple[Ints, Actions, Flags]:
        """Place new users (n,) in lanes ``which`` (n,) and simulate them up to their first occasion or their end.

        Returns:
            starts: (n + 1,) indices: the user of lane j has viewed items starts[j]:starts[j + 1].
            items: (m,) items viewed, lane by lane.
            has_occasion: (n,) True if the user has come to an occasion, False if the user has left.
        """

    @abc.abstractmethod
    def answer(self, which: Ints, clicked: Flags) -> tuple[Ints, Actions, Flags]:
        """Click or not (n,) at the occasions of lanes ``which`` (n,) and simulate up to the next occasion or the end.

        Returns:
            starts: (n + 1,) indices: the user of lane j has viewed items starts[j]:starts[j + 1].
            items: (m,) items viewed, lane by lane.
            has_occasion: (n,) True if the user has come to an occasion, False if the user has left.
        """

    @abc.abstractmethod
    def reward_means(self, which: Ints, actions: Actions) -> Floats:
        """Return the expected reward (n,) of item ``actions[j]`` for the user in lane ``which[j]``; lanes may recur."""

    @abc.abstractmethod
    def order(self) -> Ints:
        """Return all items (n_items,), ordered so that items with similar rewards are neighbours."""

    @abc.abstractmethod
    def prospects(self, probability: float) -> Prospects:
        """Return the expected occasions of a user, if every recommendation were clicked with this probability."""


def cumulative_of(distribution: Floats) -> Floats:
    """Return cumulative probabilities (n_items,): a uniform selects the first item whose entry is above it."""
    cumulative = np.cumsum(distribution)
    # Rounding may leave the last sum below 1: a uniform beyond it selects the last item of positive probability.
    cumulative[np.flatnonzero(distribution)[-1] :] = np.inf
    return cumulative


class CountedLanes(Lanes):
    """Base of lanes that number each user's rows and decisions.

    Args:
        n_lanes: number of users simulated at once.
        truth_column: name of the truth column; None to omit it.

    Attributes:
        seed: (n,) seed of the user in each lane.
        optional: names of optional columns, keys of :data:`recsim_mnar.log.schema.OPTIONAL`, that the rows have.
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
        """Place new users in lanes ``which`` and set their counters to 0.

        Returns:
            The distinct seeds, each with the indices into ``users`` of its users.
        """
        self.user[which] = users
        self.seed[which] = seeds
        for counter in (self.step, self.time, self.n_decisions):
            counter[which] = 0
        return rows_by_seed(seeds)

    def rows(self, which: Ints, count: Ints | None = None) -> tuple[Ints, Columns]:
        """Make the next rows of lanes, and advance the lanes' ``step`` by their numbers.

        User, step and time (one unit per row) are filled in; the other columns have null values for the caller to
        replace.

        Args:
            which: (n,) indices of lanes.
            count: (n,) number of rows of each lane; None for one row each.

        Returns:
            starts: (n + 1,) row numbers: lane j has rows starts[j]:starts[j + 1].
            columns: columns of the log, by name.
        """
        n_rows: Ints | int
        if count is None:
            n_rows = 1
            starts = np.arange(len(which) + 1)
            lanes = which
            row_in_lane = np.zeros(1, np.int64)  # broadcast over the lanes
        else:
            n_rows = count
            starts = np.zeros(len(which) + 1, np.int64)
            np.cumsum(count, out=starts[1:])
            lanes = np.repeat(which, count)
            row_in_lane = np.arange(len(lanes)) - np.repeat(starts[:-1], count)
        columns: Columns = {}
        for column in (*schema.COLUMNS, *(schema.OPTIONAL[name] for name in self.optional)):
            columns[column.name] = np.full(len(lanes), column.null or 0, column.dtype)
        if self.truth_column is not None:
            columns[self.truth_column] = np.full(len(lanes), np.nan)
        columns["user"][:] = self.user[lanes]
        columns["step"][:] = self.step[lanes] + row_in_lane
        columns["time"][:] = self.time[lanes] + row_in_lane
        self.step[which] += n_rows
        return starts, columns


def rows_by_seed(seeds: Seeds) -> Iterator[tuple[int, Ints]]:
    """Yield each distinct seed with the indices of the entries of ``seeds`` (n,) that equal it."""
    for seed in np.unique(seeds):
        yield int(seed), np.flatnonzero(seeds == seed)


class PlainLanes(CountedLanes):
    """Base of the lanes of simple worlds: one unit of time passes with every event.

    A subclass defines :meth:`answer` and, if necessary, :meth:`arrive`, :meth:`browse` and :meth:`expected`. It should
    draw by :meth:`uniforms` and :meth:`normals`, which are addressed by user and decision, so that a user's events do
    not depend on which other users are simulated at the same time.

    Args:
        n_lanes: number of users simulated at once.
        truth_column: name of the column for :meth:`expected`; None to omit it.

    Attributes:
        seed: (n,) seed of the user in each lane.
    """

    # --------------------------------------------------------------------------------------- what a subclass may define

    @abc.abstractmethod
    def answer(self, which: Ints, actions: Actions) -> tuple[Floats, Flags]:
        """Return how the users in lanes ``which`` (n,) answer the actions (n,).

        Returns:
            rewards: (n,) rewards of the actions.
            alive: (n,) True if the user comes to another decision, False if the user leaves.
        """

    def arrive(self, which: Ints) -> None:
        """Set up the state of the new users in lanes ``which``; their ids and seeds are in ``user`` and ``seed``."""

    def browse(self, which: Ints) -> tuple[Ints, Ints]:
        """Return the views of the users in lanes ``which`` (n,) before their next decision, by default none.

        Returns:
            n_views: (n,) number of views in each lane.
            items: (sum of n_views,) items viewed, lane by lane.
        """
        return np.zeros(len(which), np.int64), np.zeros(0, np.int64)

    def expected(self, which: Ints, actions: Actions) -> Floats:
        """Return the expected rewards (n,) of actions in lanes ``which``, for the truth column.

        It is called before :meth:`answer` if truth is kept.
        """
        raise NotImplementedError(f"{type(self).__name__}: define expected(which, actions) to keep the truth")

    # -------------------------------------------------------------------------------------------------- addressed draws

    def uniforms(self, which: Ints, stream: int = rng.Stream.RESPONSE) -> Floats:
        """Draw uniforms on [0, 1), (n,), for the present decisions of lanes ``which``; streams are independent."""
        return self._draw(rng.uniforms, which, stream)

    def normals(self, which: Ints, stream: int = rng.Stream.RESPONSE) -> Floats:
        """Draw standard normals, (n,), for the present decisions of lanes ``which``; streams are independent."""
        return self._draw(rng.normals_of, which, stream)

    def _draw(self, draw: Callable[..., Floats], which: Ints, stream: int) -> Floats:
        """Draw (n,) numbers by a function of :mod:`recsim_mnar.rng`, which takes one seed at a time."""
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
        """Implement :meth:`Lanes.take`: the users answer, and then browse up to their next decision."""
        columns: dict[str, Any] = {"action": actions, "propensity": propensities}
        if self.truth_column is not None:
            columns[self.truth_column] = self.expected(which, actions)
        columns["reward"], alive = self.answer(which, actions)
        self.n_decisions[which] += 1
        return self._transition(which, np.asarray(alive), columns)

    def _transition(self, which: Ints, alive: Flags, shown: dict[str, Any] | None) -> Transition:
        """Return the transition of the actions and of the views after them, and advance the lanes' ``time``.

        Args:
            which: (n,) indices of lanes.
            alive: (n,) True for users who come to another decision.
            shown: columns of the bandit rows, (n,) each; None for users who have just arrived.
        """
        n_views = np.zeros(len(which), np.int64)
        n_views[alive], items = self.browse(which[alive])
        count = n_views
        if shown is not None:
            count = n_views + 1  # and the bandit row
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


# --------------------------------------------------------------------------------------- lanes of a user-defined world

_POSITION_ATTRIBUTES = ("user", "step", "time", "n_decisions")
"""Attributes of lanes, arrays with one entry per lane, that state where each user is."""


class CheckedLanes(Lanes):
    """Wrapper that checks every transition of user-defined lanes and raises a UserError with the broken rule.

    Args:
        inner: return value of the world's ``open_lanes``.
        world: name of the world, for messages.
        n_items: number of items of the world.
        n_lanes: number of lanes that ``open_lanes`` was asked for.
        rates: True if organic events are ratings.
        truth_column: name of the truth column that transitions must have; None if they need none.

    Raises:
        UserError: ``inner`` is no :class:`Lanes` object, or has another number of lanes.
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
        for name in _POSITION_ATTRIBUTES:
            shape = getattr(getattr(inner, name, None), "shape", ())
            if shape != (n_lanes,):
                self._wrong(
                    f"open_lanes({n_lanes}): {name} of the lanes must be an array of {n_lanes}, its shape is {shape}"
                )
        self._columns: set[str] | None = None  # column names of the first transition

    def __getattr__(self, name: str) -> Any:
        """Return an attribute in :data:`_POSITION_ATTRIBUTES` of the inner lanes, which may replace their arrays."""
        if name in _POSITION_ATTRIBUTES:
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
        """Implement :meth:`Lanes.begin`: call the inner lanes and check rows and counters, which must start at 0."""
        transition = self.inner.begin(which, seeds, users)
        zeros = np.zeros(len(which), np.int64)
        self._check("begin", transition, which=which, users=users, first_steps=zeros, n_actions=zeros)
        self._check_positions("begin", transition, which=which, users=users, n_decisions=zeros)
        return transition

    def take(self, which: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Implement :meth:`Lanes.take`."""
        return self._checked_take("take", which, np.ones(len(which), np.int64), actions, propensities)

    def runs(self, which: Ints) -> Ints:
        """Implement :meth:`Lanes.runs`."""
        return self._checked_counts("runs", which, least=1)

    def take_runs(self, which: Ints, runs: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Implement :meth:`Lanes.take_runs`."""
        return self._checked_take("take_runs", which, runs, actions, propensities)

    def skip_uneventful(self, which: Ints) -> Ints:
        """Implement :meth:`Lanes.skip_uneventful`."""
        return self._checked_counts("skip_uneventful", which, least=0)

    # ---------------------------------------------------------------------------------------------------------- checks

    def _wrong(self, what: str) -> None:
        """Raise UserError about the world."""
        raise UserError(f"world {self.world!r}: {what}")

    def _checked_counts(self, method: str, which: Ints, *, least: int) -> Ints:
        """Call a method of the inner lanes that returns (n,) integers of at least ``least``, and check them."""
        counts = np.asarray(getattr(self.inner, method)(which))
        if counts.shape != which.shape or counts.dtype.kind != "i" or (len(counts) and counts.min() < least):
            self._wrong(f"{method} must return ({len(which)},) whole numbers of at least {least}")
        return counts

    def _checked_take(
        self, method: str, which: Ints, n_actions: Ints, actions: Actions, propensities: Floats
    ) -> Transition:
        """Call ``take`` or ``take_runs`` of the inner lanes, as ``method`` says, and check the transition.

        Args:
            method: ``take`` or ``take_runs``.
            which: (n,) indices of lanes.
            n_actions: (n,) number of recommendations in each lane.
            actions: (sum of n_actions,) items, lane by lane.
            propensities: (sum of n_actions,) their probabilities.
        """
        # Copies: the inner lanes change their arrays.
        users = self.user[which].copy()
        steps = self.step[which].copy()
        n_before = self.n_decisions[which].copy()
        if method == "take":
            transition = self.inner.take(which, actions, propensities)
        else:
            transition = self.inner.take_runs(which, n_actions, actions, propensities)
        self._check(method, transition, which=which, users=users, first_steps=steps, n_actions=n_actions)
        columns = transition.columns
        decision_rows = columns["event"] == schema.BANDIT
        for name, values in (("action", actions), ("propensity", propensities)):
            if not np.array_equal(columns[name][decision_rows], values):
                self._wrong(f"{method}: the bandit rows must hold the {name} that was handed in")
        self._check_positions(method, transition, which=which, users=users, n_decisions=n_before + n_actions)
        return transition

    def _check(
        self, method: str, transition: Any, *, which: Ints, users: Ints, first_steps: Ints, n_actions: Ints
    ) -> None:
        """Raise UserError if the shapes, columns or rows of a transition break a rule.

        Args:
            method: method of the inner lanes that returned the transition.
            transition: return value of the method.
            which: (n,) indices of lanes.
            users: (n,) user in each lane.
            first_steps: (n,) step that the first row of each lane must have.
            n_actions: (n,) number of recommendations that each user answered.
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
        row_in_lane = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
        lane = np.repeat(np.arange(n), counts)
        is_bandit = row_in_lane < n_actions[lane]
        self._check_rows(method, transition.columns, is_bandit, users[lane], first_steps[lane] + row_in_lane)
        if (counts < n_actions).any():
            self._wrong(f"{method}: a lane's first row must be the bandit row of the action taken")

    def _check_columns(self, method: str, columns: dict[str, Any], n_rows: int) -> None:
        """Raise UserError if columns are missing, have a wrong shape or type, or differ from the first transition's."""
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
        is_bandit: Flags,
        users: Ints,
        steps: Ints,
    ) -> None:
        """Raise UserError for the first row that breaks a rule.

        Args:
            method: method of the inner lanes that returned the rows.
            c: columns of the log, (m,) each.
            is_bandit: (m,) True for rows that must be bandit rows, False for rows that must be organic.
            users: (m,) user that each row must have.
            steps: (m,) step that each row must have.
        """
        is_organic = ~is_bandit
        # Each rule: flags of the rows that break it, the column, and the rule in words.
        rules = [
            (c["user"] != users, "user", "must be the user of the lane"),
            (c["step"] != steps, "step", "must count a user's rows from 0, without a gap"),
            (~np.isfinite(c["time"]), "time", "must be a finite number"),
            (is_bandit & (c["event"] != schema.BANDIT), "event", "must be bandit on a lane's first row, the action's"),
            (is_organic & (c["event"] != schema.ORGANIC), "event", "must be organic on rows without an action"),
            (is_organic & ((c["item"] < 0) | (c["item"] >= self.n_items)), "item", f"must be in 0..{self.n_items - 1}"),
            (is_bandit & ~np.isfinite(c["reward"]), "reward", "must be a finite number"),
        ]
        if self.rates:
            p = c["observation_propensity"]
            rules.append((is_organic & ~np.isfinite(c["reward"]), "reward", "must be the rating on organic rows"))
            rules.append((is_organic & ~((p > 0) & (p <= 1)), "observation_propensity", "must be in (0, 1]"))
        if self.truth_column is not None:
            truth = c[self.truth_column]
            rules.append((is_bandit & ~np.isfinite(truth), self.truth_column, "must be a finite number on bandit rows"))
        for broken, name, rule in rules:
            if broken.any():
                row = int(np.flatnonzero(broken)[0])
                self._wrong(f"{method}: {name} {rule}, got {c[name][row]} for user {users[row]}")

    def _check_positions(self, method: str, t: Transition, *, which: Ints, users: Ints, n_decisions: Ints) -> None:
        """Raise UserError if attributes of the inner lanes are wrong after a transition.

        Args:
            method: method of the inner lanes that returned the transition.
            t: the transition.
            which: (n,) indices of lanes.
            users: (n,) user that each lane must hold.
            n_decisions: (n,) number of decisions that each user must have made.
        """
        if not np.array_equal(self.user[which], users):
            self._wrong(f"{method}: lanes' user must hold the users that were handed to begin")
        if not np.array_equal(self.n_decisions[which][t.alive], n_decisions[t.alive]):
            self._wrong(f"{method}: lanes' n_decisions must count the decisions that a user has come to, from 0")
        last_rows = t.starts[1:] - 1
        has_moved = (np.diff(t.starts) > 0) & t.alive
        if not np.array_equal(self.step[which][has_moved], t.columns["step"][last_rows[has_moved]] + 1):
            self._wrong(f"{method}: lanes' step must be that of the decision awaited: one after the last row's")
