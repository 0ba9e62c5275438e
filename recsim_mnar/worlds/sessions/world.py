"""The sessions world: users browse and receive recommendations (the RecoGym v1 model, with its defects repaired).

The model is that of Rohde, Bonner, Dunlop, Vasile & Karatzoglou 2018, "RecoGym", in the setting of Jeunen, Rohde &
Vasile 2019.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.worlds.base import DecisionWorld, sha256_of
from recsim_mnar.worlds.lanes import Actions, Columns, Floats
from recsim_mnar.worlds.sessions.catalogue import PERIODS, Catalogue, make_catalogue, parts_of, read_catalogue, shifts
from recsim_mnar.worlds.sessions.lanes import RankingLanes, SessionsLanes, SessionsOccasions, clicks_expected
from recsim_mnar.worlds.sessions.params import LOGISTIC, PRESETS, SessionsParams
from recsim_mnar.worlds.sessions.views import ViewSampler, ViewTables, view_sampler, view_tables


class SessionsWorld(DecisionWorld):
    """World whose users view items, receive recommendations, click on some, and leave.

    Args:
        params: parameters of the world; None for the defaults of RecoGym v1.
        catalogue: items of the world; None to draw them, or to read those of ``params.catalogue_file``.
    """

    name = "sessions"
    truth_column = "click_probability"
    reward_name = "click"
    log_holds = frozenset({"outcomes", "clicks"})
    params_class = SessionsParams
    presets = PRESETS
    params: SessionsParams

    def __init__(self, params: SessionsParams | None = None, *, catalogue: Catalogue | None = None) -> None:
        params = params or SessionsParams()
        if catalogue is None and params.catalogue_file:
            catalogue = read_catalogue(params.catalogue_file, params.catalogue_member)
        self.given = catalogue is not None
        if catalogue is not None:
            n_items, n_factors = catalogue.item_factors.shape
            params = dataclasses.replace(params, n_items=n_items, n_factors=n_factors, n_flips=0)
            self.catalogue = catalogue
        if params.slate_size > params.n_items:
            raise UserError(f"slate_size must be at most the {params.n_items} items of the catalogue")
        self.params = params
        self.n_items = params.n_items
        self.slate_size = params.slate_size

    def describe(self) -> dict[str, Any]:
        """Implement :meth:`World.describe`; a given catalogue is named by its digest."""
        described: dict[str, Any] = {"name": self.name, "params": self.params.to_provenance()}
        if self.given:
            arrays = self.catalogue.arrays().values()
            described["catalogue"] = {"items": self.n_items, "sha256": sha256_of(*(a.astype("<f8") for a in arrays))}
        return described

    @functools.cached_property
    def catalogue(self) -> Catalogue:
        """Catalogue of the items, drawn from ``catalogue_seed`` unless it was given."""
        return make_catalogue(self.params)

    @functools.cached_property
    def _sampler(self) -> ViewSampler:
        """Sampler of views for this catalogue."""
        if self.params.no_repeats:
            return ViewSampler(0)  # cached weights would include items that the user has viewed
        spread = self.params.sigma_mu_organic
        if self.given:
            spread = float(self.catalogue.item_offsets.std())
        return view_sampler(self.n_items, self.params.n_factors, spread)

    @functools.cached_property
    def _shift(self) -> Floats:
        """Shift of each item's offset in each period of the calendar, (PERIODS, P); (0, P) without a calendar."""
        return shifts(self.params, self.n_items)

    @functools.cached_property
    def _tables(self) -> ViewTables:
        """Catalogue arranged for the sampler of views."""
        return view_tables(self.catalogue, self._sampler)

    @property
    def views_repeat(self) -> bool:  # type: ignore[override]  # by its parameters
        """Return True if a user may view an item again."""
        return not self.params.no_repeats

    @functools.cached_property
    def _click_factors_by_factor(self) -> Floats:
        """Click factors (K, P), transposed so that a kernel's inner loop over items is contiguous."""
        return np.ascontiguousarray(self.catalogue.click_factors.T)

    def decides(self) -> None:
        """Implement :meth:`LaneWorld.decides`."""
        if self.params.p_organic_to_bandit == 0.0:
            raise UserError(
                "p_organic_to_bandit = 0: no user ever sees a recommendation; set it above 0 for an environment"
            )

    # ------------------------------------------------------------------------------------------------------ the truth

    def click_probabilities(self, omega: Floats, shift: Floats | None = None) -> Floats:
        """Return the click probability (n, P) of every item, without effects of earlier recommendations.

        Args:
            omega: (n, K) interests.
            shift: (n, P) shift of the items' offsets, -inf for an item that has not arrived; None for no shift.
        """
        from recsim_mnar.worlds.sessions import _sessions_kernel

        omega = np.ascontiguousarray(omega, dtype=np.float64)
        out = np.empty((len(omega), self.n_items))
        catalogue = self.catalogue
        logistic = self.params.click_link == LOGISTIC
        _sessions_kernel.click_probabilities(
            self._click_factors_by_factor, catalogue.click_offsets, omega, logistic, shift, out
        )
        return out

    def reward_means(self, state: Floats) -> Floats:
        """Return the click probability (n, P) of every item in hidden states (n, d).

        Implements :meth:`DecisionWorld.reward_means`. The states of a world without later effects or calendar are the
        interests (n, K); otherwise they are those of :class:`~recsim_mnar.worlds.sessions.catalogue.State`.
        """
        p = self.params
        if not p.changes:
            return self.click_probabilities(state)
        now = parts_of(np.asarray(state, np.float64), p.n_factors)
        shift = None
        if p.calendar > 0.0:
            shift = self._shift[np.minimum(now.time / (p.calendar / PERIODS), PERIODS - 1).astype(np.int64)]
        return self.click_probabilities(now.omega, shift) * now.effect_of_past(p)

    def planned_values(self, state: Floats) -> Floats:
        """Return an index of each item's long-term value; implements :meth:`DecisionWorld.planned_values`.

        With fatigue the index is the click probability, minus the loss at later showings of the item (the derivative of
        m exp(-fatigue m), with m the recency), minus the loss that weariness causes for all items while it lasts. With
        retention, the gain from a satisfied user is added: the best click probability, times the strength of retention,
        times how well the item suits the user.
        """
        p = self.params
        means = self.reward_means(state)
        if not p.changes:
            return means
        now = parts_of(np.asarray(state, np.float64), p.n_factors)
        best = means.max(axis=1, keepdims=True)
        values = means
        if p.fatigue > 0.0:
            # Weariness fades by the factor fatigue_memory per step: 1 / (1 - fatigue_memory) steps in all.
            later_loss = p.fatigue * p.fatigue_spread / (1.0 - p.fatigue_memory)
            values = means * (1.0 - p.fatigue * now.recency) - best * later_loss * now.recency
        if p.retention > 0.0:
            # The least norm keeps tiny interests from counting as strong ones.
            length = np.maximum(np.sqrt((now.omega**2).sum(axis=1, keepdims=True)), 0.5)
            values = values + best * p.retention * np.tanh(now.omega @ self.catalogue.item_factors.T / length)
        return values

    def reward_means_of(self, state: Floats, actions: Actions) -> Floats:
        """Implement :meth:`DecisionWorld.reward_means_of`; a kernel computes only the items asked for if it can."""
        from recsim_mnar.worlds.sessions import _sessions_kernel

        derived = type(self).reward_means is not SessionsWorld.reward_means
        if derived or self.params.changes or self.params.click_link == LOGISTIC:
            return super().reward_means_of(state, actions)
        out = np.empty(len(actions))
        factors = self.catalogue.click_factors
        offsets = self.catalogue.click_offsets
        state = np.ascontiguousarray(state, dtype=np.float64)
        _sessions_kernel.click_probabilities_of(factors, offsets, state, np.arange(len(actions)), actions, out)
        return out

    def ranking_means(self, state: Floats, rankings: Actions) -> Floats:
        """Return the click probability at each position of rankings; implements :meth:`DecisionWorld.ranking_means`.

        An item of -1 stands for an empty position, which is not clicked.
        """
        n, size = rankings.shape
        items = np.maximum(rankings, 0).ravel()
        attraction = self.reward_means_of(np.repeat(state, size, axis=0), items).reshape(n, size)
        return clicks_expected(self.params, np.where(rankings < 0, 0.0, attraction))

    def view_probabilities(self, omega: Floats) -> Floats:
        """Return the probability (n, P) of viewing each item next, for users with interests ``omega`` (n, K)."""
        logits = np.asarray(omega, dtype=np.float64) @ self.catalogue.item_factors.T + self.catalogue.item_offsets
        logits -= logits.max(axis=1, keepdims=True)
        weights = np.exp(logits)
        return weights / weights.sum(axis=1, keepdims=True)

    def expected_events(self, click_probability: float) -> tuple[float, float]:
        """Return the mean numbers of a user's events, if every recommendation were clicked with one probability c.

        An organic event is followed by a bandit session with probability b = p_organic_to_bandit. After each bandit
        event the session continues with probability s = (1 - c)(1 - p_bandit_to_organic - p_leave_bandit), and the user
        leaves with probability (1 - c) p_leave_bandit. Hence an organic event is the user's last with probability q =
        p_leave_organic + b (1 - c) p_leave_bandit / (1 - s), and a user has 1 / q organic events, each followed by
        b / (1 - s) bandit events on average.

        Returns:
            organic: mean number of organic events per user.
            bandit: mean number of bandit events per user.
        """
        p = self.params
        c = click_probability
        b = p.p_organic_to_bandit
        session_length = 1 / (1 - (1 - c) * (1 - p.p_bandit_to_organic - p.p_leave_bandit))
        q = p.p_leave_organic + b * (1 - c) * p.p_leave_bandit * session_length
        return 1 / q, b * session_length / q

    # --------------------------------------------------------------------------------------------------- the dynamics

    def truth_arrays(self, seed: int, n_users: int) -> Columns:
        """Implement :meth:`DecisionWorld.truth_arrays`: the catalogue, which is the same for all users."""
        return self.catalogue.arrays()

    def open_lanes(self, n_lanes: int, *, keep_truth: bool = False) -> SessionsLanes:
        """Implement :meth:`LaneWorld.open_lanes`; the truth column is ``click_probability``."""
        parts = (self.params, self.catalogue, self._sampler, self._tables, self._shift)
        kind: type[SessionsLanes] = RankingLanes
        if self.slate_size == 1:
            kind = SessionsLanes
        return kind(*parts, n_lanes, keep_truth=keep_truth)

    def open_occasions(self, n_lanes: int, *, views: bool) -> SessionsOccasions | None:
        """Implement :meth:`DecisionWorld.open_occasions`; None for a derived class, whose users may differ."""
        p = self.params
        # The logistic link has no upper bound of click probabilities below 1. Without repeats a view depends on earlier
        # views, and with later effects a decision on earlier decisions.
        has_no_occasions = p.no_repeats or p.click_link == LOGISTIC or p.changes or p.slate_size > 1
        if type(self) is not SessionsWorld or has_no_occasions:
            return None
        return SessionsOccasions(self.open_lanes(n_lanes), self.params, self.catalogue, views=views)

    def trajectories(
        self,
        seed: int,
        first_user: int,
        n_users: int,
        distribution: Floats | None,
        *,
        keep_truth: bool = False,
    ) -> Columns:
        """Implement :meth:`DecisionWorld.trajectories`; a kernel simulates worlds without later effects and slates."""
        organic, bandit = self.expected_events(0.01)  # a typical click probability: for the size of arrays only
        if self.params.changes or self.slate_size > 1:
            return super().trajectories(seed, first_user, n_users, distribution, keep_truth=keep_truth)
        lanes = SessionsWorld.open_lanes(self, 1, keep_truth=keep_truth)
        return lanes.trajectories(seed, first_user, n_users, distribution, events_a_user=organic + bandit)
