"""Sessions in which a decision is a ranking of several items: docs/worlds/slates.md."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.kernels.elementary import exp, log
from recsim_mnar.log import schema
from recsim_mnar.worlds.lanes import Transition
from recsim_mnar.worlds.sessions.lanes import SessionsLanes, columns_of, grown
from recsim_mnar.worlds.sessions.params import CASCADE, INDEPENDENT, ONE, SessionsParams

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
