"""Lanes of the sessions world, and the arrays that its kernels work on."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.kernels.elementary import exp, log
from recsim_mnar.log import schema
from recsim_mnar.worlds.lanes import (
    Actions,
    Columns,
    Flags,
    Floats,
    Ints,
    Lanes,
    Moves,
    Occasions,
    Prospects,
    Seeds,
    Transition,
    cumulative_of,
)
from recsim_mnar.worlds.sessions.catalogue import Catalogue, changes_of, state_arrays, state_of
from recsim_mnar.worlds.sessions.params import CASCADE, INDEPENDENT, LOGISTIC, ONE, SessionsParams
from recsim_mnar.worlds.sessions.views import ViewSampler, ViewTables, aligned

_ONE_BLOCK = 1 << 25
"""Size in bytes up to which all columns of a log share one block of memory. The system hands out a large block in
larger pages, which is faster; but it takes blocks beyond this size back at once, while single columns are kept."""


def new_rows(capacity: int, keep_truth: bool) -> Any:
    """Return uninitialised ``_sessions_kernel.Rows`` for a log of ``capacity`` rows.

    The column ``click_probability`` is empty unless ``keep_truth``.
    """
    from recsim_mnar.worlds.sessions import _sessions_kernel

    kinds = [np.dtype(column.dtype) for column in schema.COLUMNS]
    # First byte of each column in a common block: sizes are rounded up to cache lines of 64 bytes.
    edges = np.cumsum([0] + [-(-capacity * kind.itemsize // 64) * 64 for kind in kinds])
    if edges[-1] > _ONE_BLOCK:
        columns = [aligned(capacity, kind) for kind in kinds]
    else:
        block = aligned(int(edges[-1]), np.uint8)
        columns = [
            block[first : first + capacity * kind.itemsize].view(kind)
            for first, kind in zip(edges, kinds, strict=False)
        ]
    n_truths = capacity if keep_truth else 0
    return _sessions_kernel.Rows._make([*columns, np.empty(n_truths)])


def with_room(rows: Any, capacity: int, used: int) -> Any:
    """Return a copy of ``rows`` with room for ``capacity`` rows, in which the first ``used`` are kept."""
    larger = []
    for old in rows:
        size = 0
        if len(old):  # an optional column that is not kept stays empty
            size = capacity
        new = np.empty(size, old.dtype)
        new[:used] = old[:used]
        larger.append(new)
    return type(rows)(*larger)


def columns_of(rows: Any, used: int, keep_truth: bool) -> Columns:
    """Return the log's columns, by name, of the first ``used`` rows; they are views of ``rows``."""
    columns = {name: column[:used] for name, column in zip(schema.NAMES, rows, strict=False)}
    if keep_truth:
        columns["click_probability"] = rows[-1][:used]
    return columns


_USERS_A_CALL = 4096
"""Number of users that a kernel simulates in one call; Python can react to Ctrl-C between calls only."""
_FORESEEN = 64
"""Largest number of decisions of a user whose draws are examined in advance."""
_UNFORESEEN = 64
"""Number of first calls of ``skip_uneventful`` that skip nothing, so that short programs need not compile a kernel."""

_INTERPRETED = 64
"""Number of calls of ``advance``, in a process, that run uncompiled for a single lane before the kernel is compiled."""
_FEW_PLACES = 2048
"""Largest catalogue for which uncompiled calls take only a few milliseconds."""


class SessionsLanes(Lanes):
    """Lanes of the sessions world, made by :meth:`SessionsWorld.open_lanes`.

    A copied or unpickled object continues with identical events: it is constructed anew from the same tables, and then
    receives the state of its users.

    Args:
        params: parameters of the world.
        catalogue: items of the world.
        sampler: sampler of views.
        tables: catalogue arranged for the sampler.
        shift: (PERIODS, P) shift of the items' offsets in each period; (0, P) without a calendar.
        n_lanes: number of users simulated at once.
        keep_truth: True to add the column ``click_probability`` to transitions.
    """

    trusted = True

    def __init__(
        self,
        params: SessionsParams,
        catalogue: Catalogue,
        sampler: ViewSampler,
        tables: ViewTables,
        shift: Floats,
        n_lanes: int,
        *,
        keep_truth: bool,
    ) -> None:
        from recsim_mnar.worlds.sessions import _lanes_kernel, _softmax_kernel, _views_kernel

        self._constructor_arguments: tuple[Any, ...] = (params, catalogue, sampler, tables, shift, n_lanes, keep_truth)
        self._kernel = _lanes_kernel
        self._keep_truth = keep_truth
        self.n_factors = params.n_factors
        self.dynamics = _make_dynamics(params, sampler, keep_truth)
        self._no_event_limits = (self.dynamics.bandit_out, self.dynamics.never_clicks)
        clicks = {"click_factors": catalogue.click_factors, "click_offsets": catalogue.click_offsets}
        arguments = {**vars(tables), **clicks}
        self.tables = _softmax_kernel.Tables(*(arguments[name] for name in _softmax_kernel.Tables._fields))
        # Kernels are not compiled for features of a world that are None: boxes, tiers, unseen and changes.
        self.boxes = sampler.boxes if sampler.boxes and not sampler.hot else None
        self.tiers = None
        if sampler.hot:
            self.tiers = _views_kernel.Tiers(*(arguments[name] for name in _views_kernel.Tiers._fields))
        n_weights = n_sums = 0  # numbers of weights, and of sums of groups, that a lane caches of its last softmax
        if sampler.hot:
            n_weights = tables.n_warm + len(tables.cold_offsets)
            n_sums = tables.centre.shape[1]
        elif sampler.boxes:
            n_weights = tables.factors.shape[1]
            n_sums = sampler.boxes
        self.unseen = None
        if params.no_repeats:
            n_items = len(catalogue.item_offsets)
            self.unseen = _views_kernel.Unseen(np.zeros((n_lanes, n_items), np.bool_), np.empty(n_items))
        self._changes = changes_of(params, catalogue, shift, n_lanes)
        # Draws of later decisions can be examined in advance if the user's state does not change between decisions and
        # a decision shows one item.
        self._foresees = params.slate_size == 1 and not self.dynamics.drift_in_bandit and self._changes is None
        self._lane_arrays = _empty_lanes(n_lanes, n_padded=tables.factors.shape[0], n_weights=n_weights, n_sums=n_sums)
        self._lane_tuple = tuple(self._lane_arrays)
        # Passing a plain tuple to a kernel costs a third of passing a named one; the kernel restores the names.
        variants = (self.boxes, self.tiers, self.unseen)
        self._kernel_arguments = (tuple(self.dynamics), tuple(self.tables), *variants, self._lane_tuple)
        self.user = self._lane_arrays.user
        self.step = self._lane_arrays.step
        self.time = self._lane_arrays.time
        self.n_decisions = self._lane_arrays.n_decisions
        self.scratch = _working_arrays(sampler, tables, n_sums)
        self._rows = new_rows(64, keep_truth)
        self._starts = np.zeros(n_lanes + 1, np.int64)
        self._used = 0
        self._foresights = 0
        self._move = _lanes_kernel.advance
        if n_lanes == 1 and self.tables.factors.shape[1] <= _FEW_PLACES and _FIRST_CALLS.left > 0:
            self._move = _FIRST_CALLS

    def __reduce__(self) -> Any:
        """Pickle as the constructor's arguments and the state of the users."""
        *parts, keep_truth = self._constructor_arguments
        return functools.partial(type(self), *parts, keep_truth=keep_truth), (), self._user_state_arrays()

    def __setstate__(self, arrays: tuple[NDArray[Any], ...]) -> None:
        """Copy the state of the users into the arrays of the newly constructed lanes."""
        for array, values in zip(self._user_state_arrays(), arrays, strict=True):
            array[...] = values

    def _user_state_arrays(self) -> tuple[NDArray[Any], ...]:
        """Return the arrays with the state of the users, always in the same order, which a copy takes over."""
        unseen: tuple[NDArray[Any], ...] = ()
        if self.unseen is not None:
            unseen = (self.unseen.seen,)
        return (*self._lane_arrays, *unseen, *state_arrays(self._changes))

    @property
    def state(self) -> Floats:
        """Implement :attr:`Lanes.state`: the matrix of a :class:`State`, or without changes the interests (n, K).

        The interests are returned as a view, which follows the lanes.
        """
        omega = self._lane_arrays.omega[:, : self.n_factors]
        if self._changes is None:
            return omega
        return state_of(self._changes, omega, self.step, self.time).matrix()

    def begin(self, which: Ints, seeds: Seeds, users: Ints) -> Transition:
        """Implement :meth:`Lanes.begin`."""
        self.seat(which, seeds, users)
        return self._advance(which, np.zeros(len(which) + 1, np.int64), np.zeros(0, np.int32), np.zeros(0))

    def seat(self, which: Ints, seeds: Seeds, users: Ints) -> None:
        """Place new users in lanes ``which``; their first events are simulated when the lanes are next advanced."""
        self._lane_arrays.seed[which] = seeds
        self.user[which] = users
        self._lane_arrays.phase[which] = self._kernel.ARRIVING

    def awaits(self, which: Ints) -> Flags:
        """Return a mask (n,): True if the user in lane ``which[j]`` waits for a recommendation."""
        return self._lane_arrays.phase[which] == self._kernel.AWAITING

    def take(self, which: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Implement :meth:`Lanes.take`."""
        return self._advance(which, np.arange(len(which) + 1), actions, propensities)

    def runs(self, which: Ints) -> Ints:
        """Implement :meth:`Lanes.runs`: draws are addressed by decision, so later ones can be examined in advance."""
        out = np.ones(len(which), np.int64)
        if self._foresees:
            self._kernel.find_runs(self._lane_tuple, which, _FORESEEN, *self._no_event_limits, out)
        return out

    def take_runs(self, which: Ints, runs: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Implement :meth:`Lanes.take_runs`."""
        edges = np.zeros(len(which) + 1, np.int64)
        np.cumsum(runs, out=edges[1:])
        return self._advance(which, edges, actions, propensities)

    @property
    def at_once(self) -> bool:
        """Implement :attr:`Lanes.at_once`; False for a derived class, which may override what happens in between."""
        return type(self) is SessionsLanes

    def step_at_once(self, moves: Moves, *, acting: bool, limit: int) -> int:
        """Implement :meth:`Lanes.step_at_once` by one kernel for all lanes; rows are kept for :meth:`seen_at_once`."""
        done = 0  # number of lanes that have been stepped
        self._used = 0  # number of rows
        left = 0  # number of lanes that are still ended
        # The kernel stops when the rows are full, and is called again with twice the room.
        while True:
            done, self._used, left = self._kernel.step_at_once(
                *self._kernel_arguments, self._changes, tuple(moves), acting, limit, done, len(self.user), left,
                tuple(self._rows), self._used, self._starts, self.scratch,
            )  # fmt: skip
            if done == len(self.user):
                return left
            self._rows = with_room(self._rows, 2 * len(self._rows.user), self._used)

    def seen_at_once(self) -> tuple[Ints, Columns]:
        """Implement :meth:`Lanes.seen_at_once`."""
        return self._starts, columns_of(self._rows, self._used, self._keep_truth)

    def skip_uneventful(self, which: Ints) -> Ints:
        """Implement :meth:`Lanes.skip_uneventful`; a normal clock has draws of its own, so none is skipped there."""
        out = np.zeros(len(which), np.int64)
        # The kernel must be compiled first, which takes longer than the first few steps without it.
        if self._foresights < _UNFORESEEN:
            self._foresights += 1
        elif self._foresees and self.dynamics.unit_clock:
            self._kernel.skip_uneventful(self._lane_tuple, which, _FORESEEN, *self._no_event_limits, out)
        return out

    def trajectories(
        self,
        seed: int,
        first_user: int,
        n_users: int,
        distribution: Floats | None,
        *,
        events_a_user: float,
    ) -> Columns:
        """Simulate consecutive users, one after the other in the first lane.

        Args:
            seed: seed of the users and of the policy's uniforms.
            first_user: id of the first user.
            n_users: number of users.
            distribution: (P,) probability of recommending each item; None for the uniform policy.
            events_a_user: expected number of rows per user, by which memory is allocated.

        Returns:
            Columns of the log, with rows ordered by user and step.
        """
        from recsim_mnar.worlds.sessions import _trajectories_kernel

        rows = new_rows(int(n_users * events_a_user * 1.02) + 1024, self._keep_truth)
        progress = np.zeros(2, np.int64)  # numbers of users finished and of rows used, updated by the kernel
        ahead = draws_ahead(self.n_factors)
        policy = (np.zeros(0), np.zeros(0))  # empty: uniform
        if distribution is not None:
            policy = (np.ascontiguousarray(distribution, dtype=np.float64), cumulative_of(distribution))
        while progress[0] < n_users:
            goal = min(n_users, progress[0] + _USERS_A_CALL)
            _trajectories_kernel.trajectories(
                self.dynamics, self.tables, self.boxes, self.tiers, self.unseen, self._lane_arrays, np.uint64(seed),
                first_user, goal, policy, rows, progress, self.scratch, ahead,
            )  # fmt: skip
            if progress[0] < goal:
                # The rows are full: room for all users at the rate so far, with a margin, but at most twice as much.
                capacity = int(len(rows.user) * max(1.1, 1.05 * n_users / (progress[0] + 1))) + 1024
                rows = with_room(rows, min(capacity, 2 * len(rows.user)), int(progress[1]))
        return columns_of(rows, int(progress[1]), self._keep_truth)

    def _advance(self, which: Ints, edges: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Simulate lanes ``which`` up to their next decision; lane j gets ``actions[edges[j]:edges[j + 1]]`` first."""
        if self._move is not self._kernel.advance and self._move.left <= 0:
            self._move = self._kernel.advance
        return self._advance_by(self._move, (), which, (edges, actions, propensities))

    def _advance_by(
        self, move: Any, settings: tuple[Any, ...], which: Ints, decisions: tuple[NDArray[Any], ...]
    ) -> Transition:
        """Simulate lanes up to their next decision by a kernel, and return the transition.

        The kernel stops when the rows are full, and is called again with twice the room.

        Args:
            move: the kernel ``advance`` or ``advance_rankings``.
            settings: arguments of the kernel between ``changes`` and ``which``.
            which: (n,) indices of lanes.
            decisions: arguments of the kernel that state the recommendations, between ``first`` and ``rows``.
        """
        starts = np.empty(len(which) + 1, np.int64)
        done = 0
        used = 0
        while True:
            done, used = move(
                *self._kernel_arguments, self._changes, *settings, which, done, *decisions, tuple(self._rows), used,
                starts, self.scratch,
            )  # fmt: skip
            if done == len(which):
                break
            self._rows = with_room(self._rows, 2 * len(self._rows.user), used)
        starts[-1] = used
        columns = {name: values.copy() for name, values in columns_of(self._rows, used, self._keep_truth).items()}
        return Transition(starts, columns, self.awaits(which))


def reading_of(params: SessionsParams) -> Any:
    """Return the model of how users read a slate, a ``_rankings_kernel.Reading`` with its working arrays."""
    from recsim_mnar.worlds.sessions import _rankings_kernel

    k = params.slate_size
    places = np.arange(1, k + 1, dtype=np.float64)
    nodes, weights = np.polynomial.legendre.leggauss((k + 1) // 2)  # exact for polynomials of degree k - 1
    exponent = params.examination
    if params.user_model == INDEPENDENT:
        exponent = 0.0  # every position is looked at
    return _rankings_kernel.Reading(
        cascade=params.user_model == CASCADE,
        single=params.clicks == ONE,
        continues=params.continues,
        after_click=params.continues_after_click,
        looks=exp(-exponent * log(places)),
        nodes=0.5 + 0.5 * nodes,  # from [-1, 1] to [0, 1]
        weights=0.5 * weights,
        attraction=np.zeros(k),
        means=np.zeros(k),
        clicked=np.zeros(k),
        uniform=np.zeros(k),
        further=np.zeros(k),
    )


def clicks_expected(params: SessionsParams, attraction: Floats) -> Floats:
    """Return the click probability (n, k) at each position of n slates.

    Args:
        params: parameters with the user model.
        attraction: (n, k) click probability of each item for a user who looks at it.
    """
    from recsim_mnar.worlds.sessions import _rankings_kernel

    out = np.empty(attraction.shape)
    _rankings_kernel.expected_clicks_of(tuple(reading_of(params)), np.ascontiguousarray(attraction), out)
    return out


class RankingLanes(SessionsLanes):
    """Lanes of a sessions world in which each decision shows a slate: actions and propensities are (n, k).

    Each decision adds k bandit rows to the log, with the columns in :data:`recsim_mnar.log.schema.OF_RANKINGS`. The
    column ``propensity`` holds the propensities passed in; the other propensities are NaN, for the caller to fill in.
    See docs/worlds/slates.md.
    """

    def __init__(self, params: SessionsParams, *parts: Any, keep_truth: bool) -> None:
        super().__init__(params, *parts, keep_truth=keep_truth)
        self._reading = tuple(reading_of(params))
        self._size = params.slate_size

    def _advance(self, which: Ints, edges: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Simulate lanes ``which`` up to their next decision; users who wait for one get rankings (n, k) first."""
        is_waiting = self.awaits(which)
        slate_numbers = self.n_decisions[which].copy()  # number of each user's present decision
        rankings = np.asarray(actions, np.int32).reshape(-1, self._size)
        ranking_propensities = np.asarray(propensities, np.float64).reshape(-1, self._size)
        transition = self._advance_by(
            self._kernel.advance_rankings, (self._reading,), which, (rankings, ranking_propensities)
        )
        for name in schema.OF_RANKINGS:
            declared = schema.OPTIONAL[name]
            transition.columns[name] = np.full(transition.starts[-1], declared.null, declared.dtype)
        rows = transition.starts[:-1][is_waiting, None] + np.arange(self._size)  # the slates' rows
        transition.columns["slate"][rows] = slate_numbers[is_waiting, None]
        transition.columns["position"][rows] = np.arange(self._size)
        return transition


class _FirstCalls:
    """Uncompiled kernel ``advance``, for the first calls in a process: they take less time than compiling it.

    Attributes:
        left: number of uncompiled calls that remain; lanes then use the compiled kernel.
    """

    def __init__(self) -> None:
        self.left = 0
        if int(np.__version__.partition(".")[0]) >= 2:  # NumPy 1 made a float of an unsigned and a Python integer
            self.left = _INTERPRETED

    def __call__(self, *arguments: Any) -> tuple[int, int]:
        """Run the kernel ``advance`` uncompiled; arguments and return value are the kernel's."""
        from recsim_mnar.kernels.jit import interpreted
        from recsim_mnar.worlds.sessions import _lanes_kernel

        self.left -= 1
        with np.errstate(over="ignore"):
            done, used = interpreted(_lanes_kernel.advance)(*arguments)
        return int(done), int(used)


_FIRST_CALLS = _FirstCalls()


def _make_dynamics(p: SessionsParams, sampler: ViewSampler, keep_truth: bool) -> Any:
    """Return the scalar parameters of the kernels, a ``_sessions_kernel.Dynamics``."""
    from recsim_mnar.worlds.sessions import _sessions_kernel

    stale_limit = sampler.drift**2  # the kernel compares squares
    if sampler.hot:
        stale_limit = sampler.waste
    never_clicks = _sessions_kernel.NEVER_CLICKS
    if p.click_link == LOGISTIC:
        never_clicks = 2.0  # no uniform is so large
    return _sessions_kernel.Dynamics(
        organic_to_bandit=p.p_organic_to_bandit,
        organic_out=p.p_organic_to_bandit + p.p_leave_organic,
        bandit_to_organic=p.p_bandit_to_organic,
        bandit_out=p.p_bandit_to_organic + p.p_leave_bandit,
        sigma_initial=p.sigma_omega_initial,
        sigma_drift=p.sigma_omega,
        drift_in_bandit=p.drift_in_bandit,
        unit_clock=p.clock == "unit",
        clock_mean=p.clock_mean,
        clock_sd=p.clock_sd,
        n_factors=p.n_factors,
        stale_limit=stale_limit,
        keep_truth=keep_truth,
        logistic_clicks=p.click_link == LOGISTIC,
        never_clicks=never_clicks,
    )


def _empty_lanes(n: int, *, n_padded: int, n_weights: int, n_sums: int) -> Any:
    """Return the state of the users in n lanes, a ``_softmax_kernel.Lanes`` of empty lanes.

    Args:
        n: number of lanes.
        n_padded: number of factors, padded.
        n_weights: number of softmax weights that a lane caches.
        n_sums: number of sums of groups of weights that a lane caches.
    """
    from recsim_mnar.worlds.sessions import _sessions_kernel, _softmax_kernel

    return _softmax_kernel.Lanes(
        seed=np.zeros(n, np.uint64),
        user=np.zeros(n, np.int64),
        phase=np.full(n, _sessions_kernel.GONE, np.int64),
        step=np.zeros(n, np.int64),
        n_organic=np.zeros(n, np.int64),
        n_decisions=np.zeros(n, np.int64),
        n_drifts=np.zeros(n, np.int64),
        time=np.zeros(n),
        omega=np.zeros((n, n_padded)),
        stale=np.zeros((n, n_padded)),
        known=np.zeros(n, np.bool_),
        shift=np.zeros(n, np.float32),
        weights=aligned((n, n_weights), np.float32),
        sums=aligned((n, n_sums), np.float32),
    )


def _working_arrays(sampler: ViewSampler, tables: ViewTables, n_sums: int) -> Any:
    """Return the kernels' working arrays, a ``_softmax_kernel.Scratch``; they hold nothing between calls."""
    from recsim_mnar.worlds.sessions import _softmax_kernel

    n_padded, n_places = tables.factors.shape
    n_weights = n_all_sums = 0
    if sampler.hot > 0 or sampler.boxes == 0:  # the sampler may need a softmax of all items
        n_weights = n_places
        n_all_sums = len(tables.starts) - 1
    return _softmax_kernel.Scratch(
        drift=np.empty(n_padded),
        signs=np.empty(2 * n_padded),
        bound=aligned(n_sums, np.float32),
        blocks=np.empty(n_sums // 16),
        columns=aligned(16, np.float32),
        hot=aligned(tables.n_hot, np.float32),
        hot_columns=aligned(16, np.float32),
        wide=aligned(64, np.float32),
        weights=aligned(n_weights, np.float32),
        sums=aligned(n_all_sums, np.float32),
    )


def draws_ahead(n_factors: int) -> Any:
    """Return arrays for draws that the trajectories kernel makes in advance, a ``_trajectories_kernel.Ahead``."""
    from recsim_mnar.worlds.sessions import _trajectories_kernel as kernel

    deviates = -(-n_factors // 4) * 4 * kernel.DRIFTS  # a block of random words makes four normals
    return kernel.Ahead(
        click=np.empty(kernel.DECISIONS),
        follow=np.empty(kernel.DECISIONS),
        action=np.empty(kernel.DECISIONS, np.int32),
        propensity=np.empty(kernel.DECISIONS),
        eventful=np.empty(kernel.DECISIONS, np.bool_),
        look=np.empty(kernel.VIEWS),
        leave=np.empty(kernel.VIEWS),
        words=np.empty(deviates, np.uint64),
        deviates=np.empty(deviates),
        quantile=np.empty(deviates),
        tails=np.full(deviates, 0.45),  # any quantile in the tail: the kernel also evaluates unused entries
        places=np.empty(deviates, np.int64),
    )


_VIEWS_A_LANE = 16
"""Number of views per lane for which there is room at first."""


class SessionsOccasions(Occasions):
    """Lanes of the sessions world that move from occasion to occasion.

    Args:
        lanes: lanes in which the users are simulated.
        params: parameters of the world.
        catalogue: items of the world.
        views: True if the caller needs the items viewed; otherwise they are counted but not drawn, which saves time.
    """

    def __init__(self, lanes: SessionsLanes, params: SessionsParams, catalogue: Catalogue, *, views: bool) -> None:
        from recsim_mnar.worlds.sessions import _lanes_kernel

        self._kernel = _lanes_kernel
        self._lanes = lanes
        self._params = params
        self._catalogue = catalogue
        self._draws_views = views
        n = len(lanes.user)
        waiting = _lanes_kernel.Waiting(np.zeros(n), np.zeros(n))
        self._waiting = tuple(waiting)
        n_items = _VIEWS_A_LANE * n if views else 0
        self._items = np.empty(n_items, np.int32)  # items viewed
        self.share = _lanes_kernel.NEVER_CLICKS
        self.user = lanes.user
        self.n_decisions = lanes.n_decisions
        self.state = lanes.state
        self.uniform = waiting.uniform
        self.variance = waiting.variance

    def begin(self, which: Ints, seed: int, users: Ints) -> tuple[Ints, Actions, Flags]:
        """Implement :meth:`Occasions.begin`; for users who arrive, the kernel ignores the clicks."""
        self._lanes.seat(which, np.full(len(which), seed, np.uint64), users)
        return self.answer(which, np.zeros(len(which), np.bool_))

    def answer(self, which: Ints, clicked: Flags) -> tuple[Ints, Actions, Flags]:
        """Implement :meth:`Occasions.answer` by a kernel, which is called anew when the room for views is full."""
        starts = np.empty(len(which) + 1, np.int64)
        done = used = 0
        lanes = self._lanes
        while True:
            done, used = self._kernel.advance_to_occasion(
                *lanes._kernel_arguments, self._waiting, which, done, clicked, self._draws_views, self._items, used,
                starts, lanes.scratch,
            )  # fmt: skip
            if done == len(which):
                break
            larger = np.empty(2 * len(self._items) + _VIEWS_A_LANE, np.int32)
            larger[:used] = self._items[:used]
            self._items = larger
        starts[-1] = used
        return starts, self._items[:used].copy(), lanes.awaits(which)

    def reward_means(self, which: Ints, actions: Actions) -> Floats:
        """Implement :meth:`Occasions.reward_means`: click probabilities of the items recommended."""
        from recsim_mnar.worlds.sessions import _sessions_kernel

        out = np.empty(len(which))
        factors = self._catalogue.click_factors
        offsets = self._catalogue.click_offsets
        _sessions_kernel.click_probabilities_of(factors, offsets, self.state, which, actions, out)
        return out

    def order(self) -> Ints:
        """Implement :meth:`Occasions.order`: by offset."""
        return np.argsort(self._catalogue.click_offsets, kind="stable")

    def prospects(self, probability: float) -> Prospects:
        """Implement :meth:`Occasions.prospects` by solving linear equations of a Markov chain.

        Let c be the click probability, m the probability that a decision is an occasion, r the probability that
        browsing leads to a decision before the user leaves, b the probability of browsing after a decision without a
        click, and s that of another decision at once. The expected number of decisions from a decision on, D, satisfies
        D = 1 + c r D + (1 - c)(b r + s) D. The probability of an occasion from a decision on, P, satisfies
        P = m + (1 - m)(b r + s) P, as decisions that are no occasions are not clicked.
        """
        p = self._params
        m = self.share
        r = p.p_organic_to_bandit / (p.p_organic_to_bandit + p.p_leave_organic)
        s = 1.0 - p.p_bandit_to_organic - p.p_leave_bandit
        next_unclicked = p.p_bandit_to_organic * r + s  # probability of another decision after no click
        n_decisions = 1.0 / (1.0 - probability * r - (1.0 - probability) * next_unclicked)
        p_occasion = m / (1.0 - (1.0 - m) * next_unclicked)
        p_next = np.array([next_unclicked, r])
        return Prospects(r * p_occasion, p_next * p_occasion, m * p_next * n_decisions)
