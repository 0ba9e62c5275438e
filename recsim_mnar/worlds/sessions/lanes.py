"""Lanes of the sessions world, and the arrays of its kernels."""

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
from recsim_mnar.worlds.sessions.catalogue import Catalogue, changes_of, held, state_of
from recsim_mnar.worlds.sessions.params import CASCADE, INDEPENDENT, LOGISTIC, ONE, SessionsParams
from recsim_mnar.worlds.sessions.views import ViewSampler, ViewTables, aligned

_ONE_BLOCK = 1 << 25
"""Bytes of a log up to which its columns share a block, for fresh memory comes by the page, and a long block in larger
ones. A longer one is given back to the system at once, where single columns are kept for the next log."""


def new_rows(capacity: int, keep_truth: bool) -> Any:
    """Return room for so many rows, not filled yet; with a place for the truth of each where it is kept."""
    from recsim_mnar.worlds.sessions import _sessions_kernel

    kinds = [np.dtype(column.dtype) for column in schema.COLUMNS]
    edges = np.cumsum([0] + [-(-capacity * kind.itemsize // 64) * 64 for kind in kinds])
    if edges[-1] > _ONE_BLOCK:
        columns = [aligned(capacity, kind) for kind in kinds]
    else:
        block = aligned(int(edges[-1]), np.uint8)
        columns = [
            block[first : first + capacity * kind.itemsize].view(kind)
            for first, kind in zip(edges, kinds, strict=False)
        ]
    return _sessions_kernel.Rows._make([*columns, np.empty(capacity if keep_truth else 0)])


def grown(rows: Any, capacity: int, used: int) -> Any:
    """Return rows with more capacity; the first ``used`` are kept."""
    larger = []
    for old in rows:
        new = np.empty(capacity if len(old) else 0, old.dtype)
        new[:used] = old[:used]
        larger.append(new)
    return type(rows)(*larger)


def columns_of(rows: Any, used: int, keep_truth: bool) -> Columns:
    """Return the columns of the first ``used`` rows, as views."""
    columns = {name: column[:used] for name, column in zip(schema.NAMES, rows, strict=False)}
    if keep_truth:
        columns["click_probability"] = rows[-1][:used]
    return columns


_USERS_A_CALL = 4096
_FORESEEN = 64
_UNFORESEEN = 64
"""Calls of ``skip_uneventful`` that foresee nothing."""

_INTERPRETED = 64
"""Calls of ``advance`` for a single lane that are done in plain Python, before the kernel is compiled; in a process."""
_FEW_PLACES = 2048
"""Of a catalogue that plain Python can weigh in a few milliseconds."""


class SessionsLanes(Lanes):
    """Implement :class:`recsim_mnar.worlds.base.Lanes`; opened by :meth:`SessionsWorld.open_lanes`.

    A copy, or what a pickle gives back, goes on with the same bytes: its lanes are opened anew from the tables, and
    hold what these held of their users.
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

        self._made_of: tuple[Any, ...] = (params, catalogue, sampler, tables, shift, n_lanes, keep_truth)
        self._kernel = _lanes_kernel
        self._keep_truth = keep_truth
        self.n_factors = params.n_factors
        self.dynamics = _dynamics(params, sampler, keep_truth)
        self._quiet = (self.dynamics.bandit_out, self.dynamics.never_clicks)
        clicks = {"click_factors": catalogue.click_factors, "click_offsets": catalogue.click_offsets}
        arguments = {**vars(tables), **clicks}
        self.tables = _softmax_kernel.Tables(*(arguments[name] for name in _softmax_kernel.Tables._fields))
        # What a catalogue's sampler does not use is None, and is not compiled.
        self.boxes = sampler.boxes if sampler.boxes and not sampler.hot else None
        self.tiers = None
        if sampler.hot:
            self.tiers = _views_kernel.Tiers(*(arguments[name] for name in _views_kernel.Tiers._fields))
        remembered = n_sums = 0  # weights and sums that a lane keeps of its last softmax
        if sampler.hot:
            remembered = tables.n_warm + len(tables.cold_offsets)
            n_sums = tables.centre.shape[1]
        elif sampler.boxes:
            remembered = tables.factors.shape[1]
            n_sums = sampler.boxes
        self.unseen = None
        if params.no_repeats:
            n_items = len(catalogue.item_offsets)
            self.unseen = _views_kernel.Unseen(np.zeros((n_lanes, n_items), np.bool_), np.empty(n_items))
        self._changes = changes_of(params, catalogue, shift, n_lanes)
        # Decisions in one state can be foreseen; what changes it between two, or reads several items, cannot.
        self._foresees = params.slate_size == 1 and not self.dynamics.drift_in_bandit and self._changes is None
        self._arrays = _arrays(n_lanes, tables.factors.shape[0], remembered, n_sums)
        # Plain tuples cross into a kernel at a third of what named ones cost, and get their names back inside.
        variants = (self.boxes, self.tiers, self.unseen)
        self._plain = (tuple(self.dynamics), tuple(self.tables), *variants, tuple(self._arrays))
        self.user = self._arrays.user
        self.step = self._arrays.step
        self.time = self._arrays.time
        self.n_decisions = self._arrays.n_decisions
        self.scratch = _scratch(sampler, tables, n_sums)
        self._rows = new_rows(64, keep_truth)
        self._starts = np.zeros(n_lanes + 1, np.int64)
        self._used = 0
        self._foresights = 0
        self._move = _lanes_kernel.advance
        if n_lanes == 1 and self.tables.factors.shape[1] <= _FEW_PLACES and _FIRST_CALLS.left > 0:
            self._move = _FIRST_CALLS

    def __reduce__(self) -> Any:
        *parts, keep_truth = self._made_of
        return functools.partial(type(self), *parts, keep_truth=keep_truth), (), self._held()

    def __setstate__(self, arrays: tuple[NDArray[Any], ...]) -> None:
        for array, values in zip(self._held(), arrays, strict=True):
            array[...] = values

    def _held(self) -> tuple[NDArray[Any], ...]:
        """Return the arrays of the users' lasting state."""
        unseen = () if self.unseen is None else (self.unseen.seen,)
        return (*self._arrays, *unseen, *held(self._changes))

    @property
    def state(self) -> Floats:
        """Implement :attr:`Lanes.state`: the interests omega, (n, K).

        What changes make of them (:func:`state_of`).
        """
        omega = self._arrays.omega[:, : self.n_factors]
        if self._changes is None:
            return omega
        return state_of(self._changes, omega, self.step, self.time)

    def begin(self, which: Ints, seeds: Seeds, users: Ints) -> Transition:
        """Implement :meth:`Lanes.begin`."""
        self.seat(which, seeds, users)
        return self._advance(which, np.zeros(len(which) + 1, np.int64), np.zeros(0, np.int32), np.zeros(0))

    def seat(self, which: Ints, seeds: Seeds, users: Ints) -> None:
        """Assign users to lanes; they begin when the lanes are next advanced."""
        self._arrays.seed[which] = seeds
        self.user[which] = users
        self._arrays.phase[which] = self._kernel.ARRIVING

    def awaits(self, which: Ints) -> Flags:
        """(n,) whether each lane's user waits for a recommendation."""
        return self._arrays.phase[which] == self._kernel.AWAITING

    def take(self, which: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Implement :meth:`Lanes.take`."""
        return self._advance(which, np.arange(len(which) + 1), actions, propensities)

    def runs(self, which: Ints) -> Ints:
        """Implement :meth:`Lanes.runs`: the draws of answers are addressed, so they can be foreseen."""
        out = np.ones(len(which), np.int64)
        if self._foresees:
            self._kernel.find_runs(self._plain[-1], which, _FORESEEN, *self._quiet, out)
        return out

    def take_runs(self, which: Ints, runs: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Implement :meth:`Lanes.take_runs`."""
        edges = np.zeros(len(which) + 1, np.int64)
        np.cumsum(runs, out=edges[1:])
        return self._advance(which, edges, actions, propensities)

    @property
    def at_once(self) -> bool:
        """Implement :attr:`Lanes.at_once`; what a derived class does between decisions is its own."""
        return type(self) is SessionsLanes

    def step_at_once(self, moves: Moves, *, acting: bool, limit: int) -> int:
        """Implement :meth:`Lanes.step_at_once`."""
        done = 0
        self._used = 0
        left = 0
        while True:
            done, self._used, left = self._kernel.step_at_once(
                *self._plain, self._changes, tuple(moves), acting, limit, done, len(self.user), left,
                tuple(self._rows), self._used, self._starts, self.scratch,
            )  # fmt: skip
            if done == len(self.user):
                return left
            self._rows = grown(self._rows, 2 * len(self._rows.user), self._used)

    def seen_at_once(self) -> tuple[Ints, Columns]:
        """Implement :meth:`Lanes.seen_at_once`."""
        return self._starts, columns_of(self._rows, self._used, self._keep_truth)

    def skip_uneventful(self, which: Ints) -> Ints:
        """Implement :meth:`Lanes.skip_uneventful`; with a normal clock time is drawn, and nothing is foreseen."""
        out = np.zeros(len(which), np.int64)
        # Foresight saves time and needs a kernel of its own: a few steps are done before it could be compiled.
        if self._foresights < _UNFORESEEN:
            self._foresights += 1
        elif self._foresees and self.dynamics.unit_clock:
            self._kernel.skip_uneventful(self._plain[-1], which, _FORESEEN, *self._quiet, out)
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
        """Simulate consecutive users in the first lane; see :meth:`DecisionWorld.trajectories`.

        Args:
            seed: of the users.
            first_user: id of the first.
            n_users: how many.
            distribution: (P,) probability of recommending each item, None for the uniform policy.
            events_a_user: about how many rows to expect.
        """
        from recsim_mnar.worlds.sessions import _trajectories_kernel

        rows = new_rows(int(n_users * events_a_user * 1.02) + 1024, self._keep_truth)
        progress = np.zeros(2, np.int64)
        ahead = draws_ahead(self.n_factors)
        law = (np.zeros(0), np.zeros(0))
        if distribution is not None:
            law = (np.ascontiguousarray(distribution, dtype=np.float64), cumulative_of(distribution))
        while progress[0] < n_users:
            # So many at a time, so that Ctrl-C is heard.
            goal = min(n_users, progress[0] + _USERS_A_CALL)
            _trajectories_kernel.trajectories(
                self.dynamics, self.tables, self.boxes, self.tiers, self.unseen, self._arrays, np.uint64(seed),
                first_user, goal, law, rows, progress, self.scratch, ahead,
            )  # fmt: skip
            if progress[0] < goal:
                # What is left, at the rate seen so far, with some room.
                capacity = int(len(rows.user) * max(1.1, 1.05 * n_users / (progress[0] + 1))) + 1024
                rows = grown(rows, min(capacity, 2 * len(rows.user)), int(progress[1]))
        return columns_of(rows, int(progress[1]), self._keep_truth)

    def _advance(self, which: Ints, edges: Ints, actions: Actions, propensities: Floats) -> Transition:
        if self._move is not self._kernel.advance and self._move.left <= 0:
            self._move = self._kernel.advance
        return self._moved(self._move, (), which, (edges, actions, propensities))

    def _moved(
        self, move: Any, settings: tuple[Any, ...], which: Ints, decisions: tuple[NDArray[Any], ...]
    ) -> Transition:
        """Move lanes to their next decisions by a kernel, which is called again with more rows where these are full.

        Args:
            move: the kernel.
            settings: what it takes between the changes and the lanes.
            which: (n,) lanes.
            decisions: what is shown in them, as the kernel takes it.
        """
        starts = np.empty(len(which) + 1, np.int64)
        done = 0
        used = 0
        while True:
            done, used = move(
                *self._plain, self._changes, *settings, which, done, *decisions, tuple(self._rows), used, starts,
                self.scratch,
            )  # fmt: skip
            if done == len(which):
                break
            self._rows = grown(self._rows, 2 * len(self._rows.user), used)
        starts[-1] = used
        columns = {name: values.copy() for name, values in columns_of(self._rows, used, self._keep_truth).items()}
        return Transition(starts, columns, self.awaits(which))


def reading_of(params: SessionsParams) -> Any:
    """Get the model of reading a ranking, as the kernels take it."""
    from recsim_mnar.worlds.sessions import _rankings_kernel

    k = params.slate_size
    places = np.arange(1, k + 1, dtype=np.float64)
    nodes, weights = np.polynomial.legendre.leggauss((k + 1) // 2)
    power = params.examination
    if params.user_model == INDEPENDENT:
        power = 0.0
    return _rankings_kernel.Reading(
        cascade=params.user_model == CASCADE,
        single=params.clicks == ONE,
        continues=params.continues,
        after_click=params.continues_after_click,
        looks=exp(-power * log(places)),
        nodes=0.5 + 0.5 * nodes,
        weights=0.5 * weights,
        attraction=np.zeros(k),
        means=np.zeros(k),
        clicked=np.zeros(k),
        uniform=np.zeros(k),
        further=np.zeros(k),
    )


def clicks_expected(params: SessionsParams, attraction: Floats) -> Floats:
    """(n, k) click probability of every place, for items whose click probabilities (n, k) are those of a look."""
    from recsim_mnar.worlds.sessions import _rankings_kernel

    out = np.empty(attraction.shape)
    _rankings_kernel.expected_clicks_of(tuple(reading_of(params)), np.ascontiguousarray(attraction), out)
    return out


class RankingLanes(SessionsLanes):
    """Lanes in which a decision is a ranking: actions and propensities are (n, k), and so many rows answer it.

    The columns :data:`recsim_mnar.log.schema.OF_RANKINGS` are there; propensities other than those of single places
    are left NaN for the caller, who knows the policy. See docs/worlds/slates.md.
    """

    def __init__(self, params: SessionsParams, *parts: Any, keep_truth: bool) -> None:
        super().__init__(params, *parts, keep_truth=keep_truth)
        self._reading = tuple(reading_of(params))
        self._size = params.slate_size

    def _advance(self, which: Ints, edges: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Move lanes (n,) by rankings (n, k); who arrives needs none."""
        answers = self.awaits(which)
        slates = self.n_decisions[which].copy()
        rankings = np.asarray(actions, np.int32).reshape(-1, self._size)
        stated = np.asarray(propensities, np.float64).reshape(-1, self._size)
        moved = self._moved(self._kernel.advance_rankings, (self._reading,), which, (rankings, stated))
        for name in schema.OF_RANKINGS:
            declared = schema.OPTIONAL[name]
            moved.columns[name] = np.full(moved.starts[-1], declared.null, declared.dtype)
        rows = moved.starts[:-1][answers, None] + np.arange(self._size)
        moved.columns["slate"][rows] = slates[answers, None]
        moved.columns["position"][rows] = np.arange(self._size)
        return moved


class _FirstCalls:
    """The kernel ``advance``, interpreted: a few steps are done long before it could be compiled.

    Attributes:
        left: calls until it is compiled after all.
    """

    def __init__(self) -> None:
        self.left = 0
        if int(np.__version__.partition(".")[0]) >= 2:  # before, an unsigned integer and a Python one made a float
            self.left = _INTERPRETED

    def __call__(self, *arguments: Any) -> tuple[int, int]:
        from recsim_mnar.kernels.jit import interpreted
        from recsim_mnar.worlds.sessions import _lanes_kernel

        self.left -= 1
        with np.errstate(over="ignore"):
            done, used = interpreted(_lanes_kernel.advance)(*arguments)
        return int(done), int(used)


_FIRST_CALLS = _FirstCalls()


def _dynamics(p: SessionsParams, sampler: ViewSampler, keep_truth: bool) -> Any:
    """Return the scalars of the kernels."""
    from recsim_mnar.worlds.sessions import _sessions_kernel

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
        stale_limit=sampler.waste if sampler.hot else sampler.drift**2,
        keep_truth=keep_truth,
        logistic_clicks=p.click_link == LOGISTIC,
        never_clicks=2.0 if p.click_link == LOGISTIC else _sessions_kernel.NEVER_CLICKS,
    )


def _arrays(n: int, n_padded: int, remembered: int, n_sums: int) -> Any:
    """Get the kernels' state of each lane's user."""
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
        weights=aligned((n, remembered), np.float32),
        sums=aligned((n, n_sums), np.float32),
    )


def _scratch(sampler: ViewSampler, tables: ViewTables, n_sums: int) -> Any:
    """Return the kernels' working arrays, which keep nothing between calls."""
    from recsim_mnar.worlds.sessions import _softmax_kernel

    n_padded, room = tables.factors.shape
    all_items = sampler.hot > 0 or sampler.boxes == 0
    return _softmax_kernel.Scratch(
        drift=np.empty(n_padded),
        signs=np.empty(2 * n_padded),
        bound=aligned(n_sums, np.float32),
        blocks=np.empty(n_sums // 16),
        columns=aligned(16, np.float32),
        hot=aligned(tables.n_hot, np.float32),
        hot_columns=aligned(16, np.float32),
        wide=aligned(64, np.float32),
        weights=aligned(room if all_items else 0, np.float32),
        sums=aligned(len(tables.starts) - 1 if all_items else 0, np.float32),
    )


def draws_ahead(n_factors: int) -> Any:
    """Return arrays for the draws that whole lives make ahead."""
    from recsim_mnar.worlds.sessions import _trajectories_kernel as kernel

    deviates = -(-n_factors // 4) * 4 * kernel.DRIFTS
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
        tails=np.full(deviates, 0.45),
        places=np.empty(deviates, np.int64),
    )


_VIEWS_A_LANE = 16
"""Views for which there is room at first, and by which it grows."""


class SessionsOccasions(Occasions):
    """Implement :class:`recsim_mnar.worlds.lanes.Occasions`.

    Args:
        lanes: in which users live.
        params: of the world.
        catalogue: its items.
        views: whether anybody looks at the views; otherwise none are drawn.
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
        self._items = np.empty(_VIEWS_A_LANE * n if views else 0, np.int32)
        self.share = _lanes_kernel.NEVER_CLICKS
        self.user = lanes.user
        self.n_decisions = lanes.n_decisions
        self.state = lanes.state
        self.uniform = waiting.uniform
        self.variance = waiting.variance

    def begin(self, which: Ints, seed: int, users: Ints) -> tuple[Ints, Actions, Flags]:
        """Implement :meth:`Occasions.begin`."""
        self._lanes.seat(which, np.full(len(which), seed, np.uint64), users)
        return self.answer(which, np.zeros(len(which), np.bool_))

    def answer(self, which: Ints, clicked: Flags) -> tuple[Ints, Actions, Flags]:
        """Implement :meth:`Occasions.answer`."""
        starts = np.empty(len(which) + 1, np.int64)
        done = used = 0
        lanes = self._lanes
        while True:
            done, used = self._kernel.advance_to_occasion(
                *lanes._plain, self._waiting, which, done, clicked, self._draws_views, self._items, used, starts,
                lanes.scratch,
            )  # fmt: skip
            if done == len(which):
                break
            larger = np.empty(2 * len(self._items) + _VIEWS_A_LANE, np.int32)
            larger[:used] = self._items[:used]
            self._items = larger
        starts[-1] = used
        return starts, self._items[:used].copy(), lanes.awaits(which)

    def reward_means(self, which: Ints, actions: Actions) -> Floats:
        """Implement :meth:`Occasions.reward_means`."""
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
        """Implement :meth:`Occasions.prospects`: linear equations of the states' probabilities.

        With r the probability that browsing comes to a recommendation before its end, D the expected decisions from a
        recommendation on, D = 1 + c r D + (1 - c)(b r + s) D for click probability c, b back to browsing and s staying;
        and P the probability of an occasion from there on, P = m + (1 - m)(b r + s) P, each decision being one with m.
        """
        p = self._params
        m = self.share
        reaches = p.p_organic_to_bandit / (p.p_organic_to_bandit + p.p_leave_organic)
        stays = 1.0 - p.p_bandit_to_organic - p.p_leave_bandit
        again = p.p_bandit_to_organic * reaches + stays
        n_decisions = 1.0 / (1.0 - probability * reaches - (1.0 - probability) * again)
        occurs = m / (1.0 - (1.0 - m) * again)
        after = np.array([again, reaches])
        return Prospects(reaches * occurs, after * occurs, m * after * n_decisions)
