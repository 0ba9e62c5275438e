"""Occasions of the sessions world: decisions whose click uniform is below the supremum of the click probability."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.worlds.occasions import Occasions, Prospects
from recsim_mnar.worlds.sessions.catalogue import Catalogue
from recsim_mnar.worlds.sessions.lanes import SessionsLanes
from recsim_mnar.worlds.sessions.params import SessionsParams

_VIEWS_A_LANE = 16
"""Views for which there is room at first, and by which it grows."""


class SessionsOccasions(Occasions):
    """See :class:`recsim_mnar.worlds.occasions.Occasions`.

    Args:
        lanes: in which users live.
        params: of the world.
        catalogue: its items.
        views: whether anybody looks at the views; otherwise none are drawn.
    """

    def __init__(self, lanes: SessionsLanes, params: SessionsParams, catalogue: Catalogue, *, views: bool) -> None:
        from recsim_mnar.worlds.sessions import _occasions_kernel

        self._kernel, self._lanes, self._params, self._catalogue = _occasions_kernel, lanes, params, catalogue
        self._draws_views = views
        n = len(lanes.user)
        waiting = _occasions_kernel.Waiting(np.zeros(n), np.zeros(n))
        self._waiting = tuple(waiting)
        self._items = np.empty(_VIEWS_A_LANE * n if views else 0, np.int32)
        self.share = _occasions_kernel.NEVER_CLICKS
        self.user, self.n_decisions, self.state = lanes.user, lanes.n_decisions, lanes.state
        self.uniform, self.variance = waiting.uniform, waiting.variance

    def begin(
        self, which: NDArray[np.int64], seed: int, users: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
        """See :meth:`Occasions.begin`."""
        self._lanes.seat(which, np.full(len(which), seed, np.uint64), users)
        return self.answer(which, np.zeros(len(which), np.bool_))

    def answer(
        self, which: NDArray[np.int64], clicked: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
        """See :meth:`Occasions.answer`."""
        starts = np.empty(len(which) + 1, np.int64)
        done = used = 0
        *known, scratch = self._lanes.kernel_arguments()
        while True:
            done, used = self._kernel.advance(
                *known, self._waiting, which, done, clicked, self._draws_views, self._items, used, starts, scratch
            )
            if done == len(which):
                break
            larger = np.empty(2 * len(self._items) + _VIEWS_A_LANE, np.int32)
            larger[:used] = self._items[:used]
            self._items = larger
        starts[-1] = used
        return starts, self._items[:used].copy(), self._lanes.awaits(which)

    def reward_means(self, which: NDArray[np.int64], actions: NDArray[np.int32]) -> NDArray[np.float64]:
        """See :meth:`Occasions.reward_means`."""
        out = np.empty(len(which))
        factors, offsets = self._catalogue.click_factors, self._catalogue.click_offsets
        self._kernel.click_probabilities_of(factors, offsets, self.state, which, actions, out)
        return out

    def order(self) -> NDArray[np.int64]:
        """See :meth:`Occasions.order`: by offset."""
        return np.argsort(self._catalogue.click_offsets, kind="stable")

    def prospects(self, probability: float) -> Prospects:
        """See :meth:`Occasions.prospects`: linear equations of the states' probabilities.

        With r the probability that browsing comes to a recommendation before its end, D the expected decisions from a
        recommendation on, D = 1 + c r D + (1 - c)(b r + s) D for click probability c, b back to browsing and s staying;
        and P the probability of an occasion from there on, P = m + (1 - m)(b r + s) P, each decision being one with m.
        """
        p, m = self._params, self.share
        reaches = p.p_organic_to_bandit / (p.p_organic_to_bandit + p.p_leave_organic)
        stays = 1.0 - p.p_bandit_to_organic - p.p_leave_bandit
        again = p.p_bandit_to_organic * reaches + stays
        n_decisions = 1.0 / (1.0 - probability * reaches - (1.0 - probability) * again)
        occurs = m / (1.0 - (1.0 - m) * again)
        after = np.array([again, reaches])
        return Prospects(reaches * occurs, after * occurs, m * after * n_decisions)
