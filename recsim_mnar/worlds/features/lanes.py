"""Lanes of the features world: users who answer each recommendation by their mean reward for the item."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.rng import Stream
from recsim_mnar.worlds.features.params import FeatureParams
from recsim_mnar.worlds.plain import PlainLanes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class FeatureLanes(PlainLanes):
    """See :class:`PlainLanes`; opened by :meth:`FeatureWorld.open_lanes`.

    Args:
        params: of the world.
        means: (U, I) mean rewards.
        rows_of: gives the row (n,) of users (n,).
        n_lanes: users side by side.
        truth_column: name of the column of mean rewards; None to leave it out.
    """

    trusted = True

    def __init__(
        self,
        params: FeatureParams,
        means: Floats,
        rows_of: Callable[[Ints], Ints],
        n_lanes: int,
        *,
        truth_column: str | None,
    ) -> None:
        super().__init__(n_lanes, truth_column=truth_column)
        self._params, self._means, self._rows_of = params, means, rows_of

    @property
    def state(self) -> Floats:
        """See :attr:`Lanes.state`: here the user's row in the features, (n, 1)."""
        return self._rows_of(self.user).astype(np.float64)[:, None]

    def expected(self, which: Ints, actions: NDArray[np.int32]) -> Floats:
        """See :meth:`PlainLanes.expected`."""
        return self._means[self._rows_of(self.user[which]), actions]

    def answer(self, which: Ints, actions: NDArray[np.int32]) -> tuple[Floats, NDArray[np.bool_]]:
        """See :meth:`PlainLanes.answer`: the reward is drawn in stream RESPONSE, whether they leave in ORGANIC."""
        p = self._params
        means = self.expected(which, actions)
        if p.noise > 0:
            rewards = means + p.noise * self.normals(which)
        else:
            rewards = (self.uniforms(which) < means).astype(np.float64)
        if p.lengths == "fixed":
            alive = self.n_decisions[which] + 1 < p.length
        else:
            alive = self.uniforms(which, Stream.ORGANIC) * p.length >= 1.0
        return rewards, alive
