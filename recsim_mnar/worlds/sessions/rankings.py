"""Sessions in which a decision is a ranking of several items: docs/worlds/slates.md."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.kernels.elementary import exp, log
from recsim_mnar.log import schema
from recsim_mnar.worlds.lanes import Transition
from recsim_mnar.worlds.sessions.lanes import SessionsLanes, columns_of, draws_ahead, grown, new_columns, new_rows
from recsim_mnar.worlds.sessions.params import CASCADE, INDEPENDENT, ONE, SessionsParams
from recsim_mnar.worlds.sessions.views import aligned

Floats = NDArray[np.float64]


def reading_of(params: SessionsParams) -> Any:
    """How users read a ranking, as the kernels take it."""
    from recsim_mnar.worlds.sessions import _rankings_kernel

    k = params.slate_size
    places = np.arange(1, k + 1, dtype=np.float64)
    nodes, weights = np.polynomial.legendre.leggauss((k + 1) // 2)
    power = 0.0 if params.user_model == INDEPENDENT else params.examination
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


_USERS_A_CALL = 4096


def _draws_ahead(k: int) -> Any:
    from recsim_mnar.worlds.sessions import _rankings_kernel as kernel

    side = kernel.SLATES
    return kernel.Ahead(
        uniforms=aligned(((k + 2) // 2 * 2, side), np.float64),
        items=aligned((k, side), np.int32),
        ordered=aligned((k, side), np.int32),
        greatest=aligned(side, np.int32),
        action=aligned(k * side, np.int32),
        reads=aligned((k, side), np.float64),
        further=aligned((k, side), np.float64),
        kept=aligned(side, np.float64),
        follows=aligned(side, np.float64),
        eventful=aligned(side, np.bool_),
    )


def _stated_uniformly(n_items: int, k: int) -> Any:
    """What a log says of rankings that are all as likely."""
    from recsim_mnar.worlds.sessions import _rankings_kernel as kernel

    conditional = 1.0 / (n_items - np.arange(k))
    ordered = float(np.prod(conditional))
    return kernel.Stated(
        marginal=1.0 / n_items,
        slate=ordered,
        set=float((conditional * np.arange(k, 0, -1)).prod()),
        number=np.repeat(np.arange(kernel.SLATES, dtype=np.int32), k),
        position=np.tile(np.arange(k, dtype=np.int32), kernel.SLATES),
        conditional=np.tile(conditional, kernel.SLATES),
    )


class RankingLanes(SessionsLanes):
    """Lanes in which a decision is a ranking: actions and propensities are (n, k), and so many rows answer it.

    The columns :data:`recsim_mnar.log.schema.OF_RANKINGS` are there; propensities other than those of single places
    are left NaN for the caller, who knows the policy.
    """

    def __init__(self, params: SessionsParams, *parts: Any, keep_truth: bool) -> None:
        super().__init__(params, *parts, keep_truth=keep_truth)
        from recsim_mnar.worlds.sessions import _rankings_kernel

        self._advance_rankings = _rankings_kernel.advance_rankings
        self._reading, self._size = tuple(reading_of(params)), params.slate_size

    def runs(self, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """See :meth:`recsim_mnar.worlds.lanes.Lanes.runs`: nothing is foreseen of a ranking."""
        return np.ones(len(which), np.int64)

    def skip_uneventful(self, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """See :meth:`recsim_mnar.worlds.lanes.Lanes.skip_uneventful`."""
        return np.zeros(len(which), np.int64)

    def take_runs(
        self, which: NDArray[np.int64], runs: NDArray[np.int64], actions: NDArray[np.int32], propensities: Floats
    ) -> Transition:
        """See :meth:`recsim_mnar.worlds.lanes.Lanes.take_runs`."""
        return self.take(which, actions, propensities)

    def take(self, which: NDArray[np.int64], actions: NDArray[np.int32], propensities: Floats) -> Transition:
        """See :meth:`recsim_mnar.worlds.lanes.Lanes.take`; (n, k) actions and propensities."""
        return self._moved(which, np.asarray(actions, np.int32), np.asarray(propensities, np.float64))

    def begin(self, which: NDArray[np.int64], seeds: NDArray[np.uint64], users: NDArray[np.int64]) -> Transition:
        """See :meth:`recsim_mnar.worlds.lanes.Lanes.begin`."""
        self.seat(which, seeds, users)
        nothing = np.zeros((len(which), self._size))
        return self._moved(which, nothing.astype(np.int32), nothing)

    def uniform_lives(
        self, seed: int, first_user: int, n_users: int, *, slates_a_user: float, views_a_user: float
    ) -> dict[str, NDArray[Any]]:
        """Whole lives of consecutive users under uniform rankings, in the first lane.

        Args:
            seed: of the users and of the rankings.
            first_user: id of the first.
            n_users: how many.
            slates_a_user: about how many to expect.
            views_a_user: likewise.
        """
        from recsim_mnar.worlds.sessions import _rankings_kernel

        k, n_items = self._size, len(self.tables.click_offsets)
        rows = new_rows(int(n_users * (slates_a_user * k + views_a_user) * 1.02) + 1024, self._keep_truth)
        kinds = (schema.OPTIONAL[name].dtype for name in schema.OF_RANKINGS)
        places = _rankings_kernel.Places(*new_columns(len(rows.user), kinds))
        progress = np.zeros(2, np.int64)
        stated = tuple(_stated_uniformly(n_items, k))
        room = (np.zeros(k, np.int32), tuple(_draws_ahead(k)), tuple(draws_ahead(self.n_factors)))
        *known, scratch = self.kernel_arguments()
        while progress[0] < n_users:
            goal = min(n_users, progress[0] + _USERS_A_CALL)  # so that Ctrl-C is heard
            with np.errstate(over="ignore"):
                _rankings_kernel.uniform_lives(
                    *known, self._changes, self._reading, stated, np.uint64(seed), first_user, goal, tuple(rows),
                    tuple(places), progress, scratch, *room,
                )  # fmt: skip
            if progress[0] < goal:
                capacity = max(1024 + int(len(rows.user) * 1.05 * n_users / (progress[0] + 1)), len(rows.user) + 1024)
                capacity = min(capacity, 2 * len(rows.user))
                rows, places = (grown(each, capacity, int(progress[1])) for each in (rows, places))
        used = int(progress[1])
        of_places = {name: values[:used] for name, values in zip(schema.OF_RANKINGS, places, strict=True)}
        return {**columns_of(rows, used, self._keep_truth), **of_places}

    def _moved(self, which: NDArray[np.int64], rankings: NDArray[np.int32], propensities: Floats) -> Transition:
        starts = np.empty(len(which) + 1, np.int64)
        answers = self._arrays.phase[which] == self._kernel.AWAITING
        of_slate = self.n_decisions[which].copy()
        done = used = 0
        while True:
            done, used = self._advance_rankings(
                *self._plain, self._changes, self._reading, which, done, rankings, propensities, tuple(self._rows),
                used, starts, self.scratch,
            )  # fmt: skip
            if done == len(which):
                break
            self._rows = grown(self._rows, 2 * len(self._rows.user), used)
        starts[-1] = used
        columns = {name: values.copy() for name, values in columns_of(self._rows, used, self._keep_truth).items()}
        for name in schema.OF_RANKINGS:
            declared = schema.OPTIONAL[name]
            columns[name] = np.full(used, declared.null, declared.dtype)
        rows = starts[:-1][answers, None] + np.arange(self._size)
        columns["slate"][rows] = of_slate[answers, None]
        columns["position"][rows] = np.arange(self._size)
        return Transition(starts, columns, self._arrays.phase[which] == self._kernel.AWAITING)
