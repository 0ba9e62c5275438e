"""The sessions world: people who browse and are shown recommendations (the RecoGym v1 model, its defects mended).

Rohde, Bonner, Dunlop, Vasile & Karatzoglou 2018, "RecoGym"; the setting of Jeunen, Rohde & Vasile 2019.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.elementary import exp
from recsim_mnar.worlds.base import DecisionWorld, sha256_of
from recsim_mnar.worlds.lanes import Actions, Columns, Floats
from recsim_mnar.worlds.sessions.catalogue import PERIODS, Catalogue, make_catalogue, parts_of, read_catalogue, shifts
from recsim_mnar.worlds.sessions.lanes import RankingLanes, SessionsLanes, SessionsOccasions, clicks_expected
from recsim_mnar.worlds.sessions.params import LOGISTIC, PRESETS, SessionsParams
from recsim_mnar.worlds.sessions.views import ViewSampler, ViewTables, view_sampler, view_tables


class SessionsWorld(DecisionWorld):
    """Users browse items, meet recommendations, click, and leave.

    Args:
        params: the model; defaults to RecoGym v1's.
        catalogue: the items, in place of those that the parameters would draw or read.
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
        """The items, drawn from ``catalogue_seed``."""
        return make_catalogue(self.params)

    @functools.cached_property
    def _sampler(self) -> ViewSampler:
        if self.params.no_repeats:
            return ViewSampler(0)
        spread = self.params.sigma_mu_organic
        if self.given:
            spread = float(self.catalogue.item_offsets.std())
        return view_sampler(self.n_items, self.params.n_factors, spread)

    @functools.cached_property
    def _shift(self) -> Floats:
        return shifts(self.params, self.n_items)

    @functools.cached_property
    def _tables(self) -> ViewTables:
        return view_tables(self.catalogue, self._sampler)

    @property
    def views_repeat(self) -> bool:  # type: ignore[override]  # by its parameters
        """Return whether a user may view an item again."""
        return not self.params.no_repeats

    @functools.cached_property
    def _click_factors_by_factor(self) -> Floats:
        return np.ascontiguousarray(self.catalogue.click_factors.T)

    def decides(self) -> None:
        """Implement :meth:`LaneWorld.decides`."""
        if self.params.p_organic_to_bandit == 0.0:
            raise UserError(
                "p_organic_to_bandit = 0: no user ever sees a recommendation; set it above 0 for an environment"
            )

    # ------------------------------------------------------------------------------------------------------ the truth

    def click_probabilities(self, omega: Floats, shift: Floats | None = None) -> Floats:
        """Click probability of every item for users with interests ``omega`` (n, K); returns (n, P).

        Args:
            omega: interests.
            shift: (n, P), added to the offsets; -inf for an item that is not there.
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
        """Implement :meth:`DecisionWorld.reward_means`: the click probabilities, in the states that the lanes have."""
        p = self.params
        if not p.changes:
            return self.click_probabilities(state)
        now = parts_of(np.asarray(state, np.float64), p.n_factors)
        shift = None
        if p.calendar > 0.0:
            shift = self._shift[np.minimum(now.time / (p.calendar / PERIODS), PERIODS - 1).astype(np.int64)]
        means = self.click_probabilities(now.omega, shift)
        if p.fatigue > 0.0:
            worn = -p.fatigue * (now.recency + p.fatigue_spread * now.weariness[:, None])
            means *= exp(worn.ravel()).reshape(worn.shape)
        return means

    def planned_values(self, state: Floats) -> Floats:
        """Implement :meth:`DecisionWorld.planned_values`: an index of each item, by what it costs or earns later.

        Fatigue: what a showing earns, less what it takes from the next showings of the item (the derivative of m
        exp(-fatigue m)), and less what weariness takes from all later ones while it lasts. Retention: what satisfaction
        earns later is taken to be the best click probability times the strength.
        """
        p = self.params
        means = self.reward_means(state)
        if not p.changes:
            return means
        now = parts_of(np.asarray(state, np.float64), p.n_factors)
        best = means.max(axis=1, keepdims=True)
        values = means
        if p.fatigue > 0.0:
            later = p.fatigue * p.fatigue_spread / (1.0 - p.fatigue_memory)
            values = means * (1.0 - p.fatigue * now.recency) - best * later * now.recency
        if p.retention > 0.0:
            length = np.maximum(np.sqrt((now.omega**2).sum(axis=1, keepdims=True)), 0.5)
            values = values + best * p.retention * np.tanh(now.omega @ self.catalogue.item_factors.T / length)
        return values

    def reward_means_of(self, state: Floats, actions: Actions) -> Floats:
        """Implement :meth:`DecisionWorld.reward_means_of`."""
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
        """Implement :meth:`DecisionWorld.ranking_means`: what users' reading makes of the click probabilities.

        A place of -1 is empty: nobody clicks there, and readers go on as after no click.
        """
        n, size = rankings.shape
        items = np.maximum(rankings, 0).ravel()
        attraction = self.reward_means_of(np.repeat(state, size, axis=0), items).reshape(n, size)
        return clicks_expected(self.params, np.where(rankings < 0, 0.0, attraction))

    def view_probabilities(self, omega: Floats) -> Floats:
        """Probability of viewing every item next for users with interests ``omega`` (n, K); returns (n, P)."""
        logits = np.asarray(omega, dtype=np.float64) @ self.catalogue.item_factors.T + self.catalogue.item_offsets
        logits -= logits.max(axis=1, keepdims=True)
        weights = np.exp(logits)
        return weights / weights.sum(axis=1, keepdims=True)

    def expected_events(self, click_probability: float) -> tuple[float, float]:
        """Mean organic and bandit events per user, were every recommendation clicked with this probability.

        An organic event is followed by a bandit one with probability b = p_organic_to_bandit; a bandit session goes on
        with s = (1 - c)(1 - p_bandit_to_organic - p_leave_bandit) and ends in leaving with (1 - c) p_leave_bandit
        at each event. So an organic event is the last with q = p_leave_organic + b (1 - c) p_leave_bandit / (1 -
        s), and a user has 1/q organic events and b / (1 - s) bandit events for each of them.
        """
        p = self.params
        c = click_probability
        per_session = 1 / (1 - (1 - c) * (1 - p.p_bandit_to_organic - p.p_leave_bandit))
        last = p.p_leave_organic + p.p_organic_to_bandit * (1 - c) * p.p_leave_bandit * per_session
        return 1 / last, p.p_organic_to_bandit * per_session / last

    # --------------------------------------------------------------------------------------------------- the dynamics

    def truth_arrays(self, seed: int, n_users: int) -> Columns:
        """Implement :meth:`DecisionWorld.truth_arrays`: the catalogue, which is the same for all users."""
        return self.catalogue.arrays()

    def open_lanes(self, n_lanes: int, *, keep_truth: bool = False) -> SessionsLanes:
        """Places for ``n_lanes`` users; ``keep_truth`` adds the column ``click_probability`` to what they return."""
        parts = (self.params, self.catalogue, self._sampler, self._tables, self._shift)
        kind = SessionsLanes if self.slate_size == 1 else RankingLanes
        return kind(*parts, n_lanes, keep_truth=keep_truth)

    def open_occasions(self, n_lanes: int, *, views: bool) -> SessionsOccasions | None:
        """Implement :meth:`DecisionWorld.open_occasions`; a world that derives from this one may live otherwise."""
        # With the logistic link every decision may be clicked; without repeats views hang on each other, and where what
        # is shown matters later, decisions do.
        p = self.params
        drawn = p.no_repeats or p.click_link == LOGISTIC or p.changes or p.slate_size > 1
        if type(self) is not SessionsWorld or drawn:
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
        """Implement :meth:`DecisionWorld.trajectories`; the kernel lives whole lives by itself."""
        organic, bandit = self.expected_events(0.01)
        if self.params.changes or self.slate_size > 1:
            return super().trajectories(seed, first_user, n_users, distribution, keep_truth=keep_truth)
        lanes = SessionsWorld.open_lanes(self, 1, keep_truth=keep_truth)
        return lanes.trajectories(seed, first_user, n_users, distribution, events_a_user=organic + bandit)
