"""Lanes of the ratings world: users who reveal ratings, and answer each recommendation with one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.log import schema
from recsim_mnar.rng import Stream
from recsim_mnar.worlds.base import Lanes, Transition
from recsim_mnar.worlds.ratings.observation import Floats
from recsim_mnar.worlds.ratings.params import RatingsParams
from recsim_mnar.worlds.rows import null_columns

_EXTRA = ("observation_propensity",)


class RatingsLanes(Lanes):
    """See :class:`recsim_mnar.worlds.base.Lanes`; opened by :meth:`RatingsWorld.open_lanes`.

    Args:
        params: of the world.
        ratings_of: gives all ratings (n, I) of users (n,) of a seed.
        propensities_of: gives P(O = 1) (n, I) for users (n,) with such ratings.
        n_lanes: users side by side.
        truth_column: name of the column of expected rewards; None to leave it out.
    """

    trusted = True

    def __init__(
        self,
        params: RatingsParams,
        ratings_of: Callable[[int, NDArray[np.int64]], Floats],
        propensities_of: Callable[[NDArray[np.int64], Floats], Floats],
        n_lanes: int,
        *,
        truth_column: str | None,
    ) -> None:
        self._params, self._ratings_of, self._propensities_of = params, ratings_of, propensities_of
        self._truth_column = truth_column
        self.user = np.zeros(n_lanes, np.int64)
        self.step = np.zeros(n_lanes, np.int64)
        self.time = np.zeros(n_lanes)
        self.n_decisions = np.zeros(n_lanes, np.int64)
        self._earns = np.zeros((n_lanes, params.n_items), np.float32)

    @property
    def state(self) -> Floats:
        """See :attr:`Lanes.state`: here what each item would earn, (n, I)."""
        return self._earns.astype(np.float64)

    def begin(self, which: NDArray[np.int64], seeds: NDArray[np.uint64], users: NDArray[np.int64]) -> Transition:
        """See :meth:`Lanes.begin`: users reveal their ratings."""
        n, n_items = len(which), self._params.n_items
        ratings, p = np.empty((n, n_items)), np.empty((n, n_items))
        revealed = np.empty((n, n_items), np.bool_)
        items = np.arange(n_items)
        for seed in np.unique(seeds):
            rows = np.flatnonzero(seeds == seed)
            ratings[rows] = self._ratings_of(int(seed), users[rows])
            p[rows] = self._propensities_of(users[rows], ratings[rows])
            drawn = rng.uniforms(
                int(seed), Stream.ORGANIC, np.repeat(users[rows], len(items)), np.tile(items, len(rows))
            )
            revealed[rows] = drawn.reshape(len(rows), -1) < p[rows]
        count = revealed.sum(axis=1)
        lane, item = np.nonzero(revealed)
        starts = np.concatenate([[0], np.cumsum(count)])
        step = np.arange(len(lane)) - np.repeat(starts[:-1], count)
        self.user[which], self.step[which], self.time[which] = users, count, count
        self.n_decisions[which] = 0
        self._earns[which] = ratings if self._params.repeat_pays else np.where(revealed, 0.0, ratings)
        columns = null_columns(len(lane), _EXTRA)
        columns["user"][:], columns["step"][:], columns["time"][:] = users[lane], step, step
        columns["event"][:] = schema.ORGANIC
        columns["item"][:], columns["reward"][:] = item, ratings[lane, item]
        columns["observation_propensity"][:] = p[lane, item]
        return self._transition(starts, columns, np.ones(n, np.bool_))

    def take(self, which: NDArray[np.int64], actions: NDArray[np.int32], propensities: Floats) -> Transition:
        """See :meth:`Lanes.take`: the reward is the user's rating of what is shown, see ``repeat_pays``."""
        columns = null_columns(len(which), _EXTRA)
        columns["user"][:], columns["step"][:], columns["time"][:] = (
            self.user[which],
            self.step[which],
            self.time[which],
        )
        columns["event"][:] = schema.BANDIT
        columns["action"][:], columns["propensity"][:] = actions, propensities
        columns["reward"][:] = self._earns[which, actions]
        if not self._params.repeat_pays:
            self._earns[which, actions] = 0.0
        for array in (self.step, self.time, self.n_decisions):
            array[which] += 1
        alive = self.n_decisions[which] < self._params.n_decisions
        return self._transition(np.arange(len(which) + 1), columns, alive)

    def _transition(self, starts: Any, columns: dict[str, NDArray[Any]], alive: NDArray[np.bool_]) -> Transition:
        if self._truth_column is not None:
            shown = columns["event"] == schema.BANDIT
            columns[self._truth_column] = np.where(shown, columns["reward"], np.nan)
        return Transition(starts.astype(np.int64), columns, alive)
