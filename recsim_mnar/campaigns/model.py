"""Model of the campaigns world: parameters, items, choices and acceptance."""

from __future__ import annotations

import abc
import enum
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels import elementary
from recsim_mnar.rng import Stream, check_seed, normals_at, uniforms
from recsim_mnar.worlds.base import World
from recsim_mnar.worlds.params import Params, must

Lists = NDArray[np.int32]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class PlatformWorld(World):
    """World of a whole platform, on which recommendations to some users change the data of others.

    Its parameters have ``n_days``, after which a platform ends. The platform that :meth:`open_platform` returns must
    have the attributes and methods in :data:`PLATFORM`; :class:`recsim_mnar.campaigns.world.Platform` has them.
    """

    in_parts = False
    simulated_by = "recsim_mnar.campaigns.platform:simulated"
    compared_by = "recsim_mnar.campaigns.comparison:CampaignsExperiment"
    environments_by = "recsim_mnar.campaigns.envs:make_platform_env"
    tasks_by = "recsim_mnar.campaigns.platform:Platforms"
    instead = (
        "is a whole platform: use recsim_mnar.campaigns.platform.run_campaigns or the environment "
        "recsim_mnar/Campaigns-v0"
    )
    params: Any

    @abc.abstractmethod
    def open_platform(self, seed: int) -> Any:
        """Return a platform on its first day, with users of this seed."""

    @abc.abstractmethod
    def with_users(self, n_users: int) -> PlatformWorld:
        """Return the same world with another number of users."""

    @property
    def deployed_weights(self) -> Floats:
        """Return the weights (n_items,) by which the platform's own recommender draws items; 0 is never. Here all 1."""
        return np.ones(self.n_items)

    def campaign_days(self) -> Sequence[float]:
        """Return the days of the platform's campaigns; here none."""
        return []

    def platform_truth(self, platform: Any) -> dict[str, NDArray[Any]]:
        """Return the true parameters of items and users, by name, for ``catalogue.npz`` next to the platform's log."""
        return {}


PLATFORM = (
    "world", "seed", "day", "campaigns", "advance", "present", "draw_lists", "best_lists", "recommend", "log_columns",
)  # fmt: skip
"""Attributes and methods that a platform needs for campaigns."""


def check_weights(weights: NDArray[Any]) -> None:
    """Raise UserError if weights are negative or not finite."""
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise UserError("weights must be finite and not negative")


def values_at_lists(table: Floats, lists: Lists) -> Floats:
    """Return the entries (n, k) of a table (n, n_items) at the items of lists (n, k); 0 at empty places, -1."""
    valid_items = np.maximum(lists, 0).astype(np.int64)  # any item at empty places: its value is dropped below
    values = np.take_along_axis(table, valid_items, axis=1)
    return np.where(lists >= 0, values, 0.0)


@dataclass(frozen=True)
class CampaignsParams(Params):
    """Parameters of the campaigns world; the defaults are the size of the paper's study.

    Attributes:
        n_users: number of users at the end.
        n_items: number of items at the end.
        n_clusters: number of groups, to which users and items are assigned uniformly.
        taste: relative preference for items of the user's own group: they are chosen ``1 + taste`` times as often as
            equally popular items of other groups.
        popularity_exponent: exponent in the popularity (r + popularity_shift) ** -popularity_exponent of the item of
            rank r, from 0.
        popularity_shift: shift in this power law, above 0, which flattens its head.
        starting_items: number of items that a user holds on arrival.
        organic_items: mean number of further items that a user of mean activity adds without a recommendation.
        fading: time constant, in days, of the exponential decay of the rate of these additions.
        activity_power: exponent of the distribution of activity, P(z) ~ z ** -activity_power on 1 .. activity_max; a
            user's activity multiplies ``organic_items``.
        activity_max: largest activity.
        user_growth: share of users who arrive after day 0, uniformly until ``n_days``.
        item_growth: share of items that appear after day 0, uniformly until ``n_days``.
        n_days: length of the simulation in days.
        reference_day: reference time t0 of the paper, before any campaign.
        first_campaign: day of the first campaign.
        campaign_every: days between campaigns.
        n_campaigns: number of campaigns.
        list_length: number of items that a campaign recommends to a user.
        acceptance: probability that a recommendation of mean affinity is accepted in the first campaign.
        fatigue: factor on ``acceptance`` from one campaign to the next.
        acceptance_strength: slope of the log odds of acceptance in affinity; with 0, the preset ``viadeo``, acceptance
            is the same for all.
        appeal_sd: standard deviation of the items' appeal, the part of affinity that users share.
        appeal_popularity: slope of appeal in log popularity.
        delay: probability per day that an accepted item is added; 1 adds it on the day of the campaign.
        n_never: number of items that the deployed policy never recommends, drawn among ranks from ``never_from`` on.
        never_from: smallest rank of an item that may never be recommended.
        weight_exponent: exponent of popularity in the deployed policy's weights, next to a log-normal factor.
        weight_sd: standard deviation of that factor's logarithm.
        n_focus: number of items that the deployed policy favours, of ranks 1, 3, 5, ...
        focus_boost: factor that replaces the log-normal one for these.
        n_promoted: number of items on promotion, the paper's other cause of bias, drawn among all.
        promotion_boost: factor on the choice weights of these during the promotion.
        promotion_start: first day of the promotion.
        promotion_end: first day after the promotion.
        catalogue_seed: seed of the items; users have the seed of the platform.
    """

    counts_of_items: ClassVar = ("n_never", "never_from", "n_promoted")

    n_users: int = 18_294
    n_items: int = 180
    n_clusters: int = 12
    taste: float = 15.0
    popularity_exponent: float = 0.85
    popularity_shift: float = 5.0
    starting_items: int = 2
    organic_items: float = 2.7
    fading: float = 211.0
    activity_power: float = 2.2
    activity_max: int = 80
    user_growth: float = 0.0
    item_growth: float = 0.0
    n_days: int = 500
    reference_day: int = 300
    first_campaign: int = 330
    campaign_every: int = 100
    n_campaigns: int = 2
    list_length: int = 5
    acceptance: float = 0.22
    fatigue: float = 0.8
    acceptance_strength: float = 0.0
    appeal_sd: float = 0.0
    appeal_popularity: float = 0.0
    delay: float = 0.25
    n_never: int = 30
    never_from: int = 60
    weight_exponent: float = 0.1
    weight_sd: float = 0.4
    n_focus: int = 5
    focus_boost: float = 7.0
    n_promoted: int = 0
    promotion_boost: float = 5.0
    promotion_start: int = 380
    promotion_end: int = 400
    catalogue_seed: int = 0

    def check(self) -> None:
        """Raise UserError naming the parameter that breaks a rule."""
        sizes = ("n_users", "n_items", "n_clusters", "starting_items", "activity_max", "list_length", "n_days")
        must(self, "be at least 1", *sizes, "campaign_every")
        must(self, "be below 2**31", "n_users", "n_items")
        must(self, "be above 0", "popularity_shift", "fading", "fatigue", "focus_boost", "promotion_boost")
        counts = ("n_campaigns", "n_never", "never_from", "n_focus", "n_promoted", "reference_day")
        must(self, "not be negative", "taste", "organic_items", "appeal_sd", "weight_sd", "first_campaign", *counts)
        must(self, "be in [0, 1)", "user_growth", "item_growth")
        must(self, "be in (0, 1]", "acceptance", "delay")
        if self.n_campaigns and not 0 < self.acceptance * max(1.0, self.fatigue ** (self.n_campaigns - 1)) < 1:
            raise UserError("acceptance times fatigue must stay below 1 in every campaign: lower one of them")
        if self.n_items - self.never_from < self.n_never:
            raise UserError(
                f"n_never = {self.n_never} items of rank >= never_from = {self.never_from}: there are only "
                f"{max(self.n_items - self.never_from, 0)}; lower n_never or never_from"
            )
        if self.n_focus and 2 * self.n_focus > self.n_items:
            raise UserError(
                f"n_focus = {self.n_focus} needs at least {2 * self.n_focus} items, n_items is {self.n_items}"
            )
        if self.n_promoted > self.n_items:
            raise UserError(f"n_promoted must be at most n_items = {self.n_items}, got {self.n_promoted}")
        check_seed(self.catalogue_seed, "catalogue_seed")


_PREFERENCES = {
    "acceptance_strength": 0.6,
    "appeal_sd": 0.7,
    "appeal_popularity": 0.3,
    "acceptance": 0.2,
    "organic_items": 3.2,
    "fading": 294.0,
}

PRESETS: dict[str, tuple[CampaignsParams, str]] = {
    "viadeo": (CampaignsParams(), "the 2015 study: 18,294 users, 180 items, campaigns on days 330 and 430"),
    "affinity": (
        CampaignsParams(n_users=6000, **_PREFERENCES),  # type: ignore[arg-type]
        "6,000 users who accept what suits them: the truth ranks recommenders",
    ),
    "growing": (
        CampaignsParams(n_users=6000, user_growth=0.4, item_growth=0.3, n_promoted=5, **_PREFERENCES),  # type: ignore[arg-type]
        "the same with users and items that arrive over time, and a promotion",
    ),
    "quick": (
        CampaignsParams(n_users=800, n_items=60, n_never=10, never_from=30, **_PREFERENCES),  # type: ignore[arg-type]
        "800 users and 60 items: well under a second",
    ),
}


BIRTH = Stream.CLOCK
"""Stream of the days on which items appear (:class:`Birth`); in other worlds that of times between events."""

GROUP = 0
"""Offset of the draw of an item's group in ``Stream.CATALOGUE``."""


class Item(enum.IntEnum):
    """Offsets of an item's draws in ``Stream.OFFSETS``."""

    RANK = 0
    APPEAL = 2
    PROMOTION = 3
    DEPLOYED_WEIGHT = 4
    NEVER_SHOWN = 5


class Birth(enum.IntEnum):
    """Offsets of an item's draws in :data:`BIRTH`."""

    LATE = 0
    DAY = 1


class User(enum.IntEnum):
    """Offsets of a user's draws in ``Stream.USER``."""

    GROUP = 0
    ACTIVITY = 1
    LATE = 2
    ARRIVAL = 3


class CampaignsModel(PlatformWorld):
    """Model of items, choices and acceptance on a platform where users add items unaided and through campaigns.

    Choice: in an addition without a recommendation, a user of group g picks an item i that the user does not hold with
    probability proportional to popularity_i (1 + taste [group_i = g]). Affinity: theta_ui = log(1 + taste)
    [group_i = g] + appeal_i, with appeal_i = appeal_sd z_i + appeal_popularity (log popularity_i - mean). Acceptance in
    campaign c, from 0, the truth by which recommenders are ranked: A_ui = logistic(logit(acceptance fatigue^c) +
    acceptance_strength (theta_ui - mean theta)).

    Args:
        params: parameters; None for the preset ``viadeo``.
    """

    name = "campaigns"
    summary = "users collect items on a platform that recommends some in campaigns (de Myttenaere et al. 2015)"
    params_class = CampaignsParams
    presets = PRESETS
    params: CampaignsParams

    def __init__(self, params: CampaignsParams | None = None) -> None:
        self.params = params or CampaignsParams()
        self.n_items = self.params.n_items
        self.most_decisions = self.params.n_campaigns

    def _item_uniforms(self, offset: Item) -> Floats:
        """Return a uniform (I,) for each item, for the draw with this offset."""
        return uniforms(self.params.catalogue_seed, Stream.OFFSETS, np.arange(self.n_items), offset)

    @functools.cached_property
    def _ranks(self) -> Ints:
        """Return the popularity rank (I,) of each item, from 0: a random permutation of the item numbers."""
        draws = self._item_uniforms(Item.RANK)
        return np.argsort(np.argsort(draws, kind="stable"))  # the inverse of the order is the rank

    @functools.cached_property
    def log_popularity(self) -> Floats:
        """Return the logarithm (I,) of each item's popularity."""
        return -self.params.popularity_exponent * elementary.log(self._ranks + self.params.popularity_shift)

    @functools.cached_property
    def item_cluster(self) -> Lists:
        """Return the group (I,) of each item."""
        draws = uniforms(self.params.catalogue_seed, Stream.CATALOGUE, np.arange(self.n_items), GROUP)
        return np.minimum((draws * self.params.n_clusters).astype(np.int32), self.params.n_clusters - 1)

    @functools.cached_property
    def birth(self) -> Floats:
        """Return the day (I,) on which each item appears, 0 for items that are there from the start."""
        p = self.params
        is_late = uniforms(p.catalogue_seed, BIRTH, np.arange(self.n_items), Birth.LATE) < p.item_growth
        day = uniforms(p.catalogue_seed, BIRTH, np.arange(self.n_items), Birth.DAY) * p.n_days
        return np.where(is_late, day, 0.0)

    @functools.cached_property
    def appeal(self) -> Floats:
        """Return the part (I,) of affinity that all users share, centred so that mean affinity is 0.

        The mean is over items and users, and includes the bonus for items of the user's own group.
        """
        p = self.params
        popularity = self.log_popularity - self.log_popularity.mean()
        normals = normals_at(p.catalogue_seed, Stream.OFFSETS, self.n_items, Item.APPEAL)
        shared = p.appeal_sd * normals + p.appeal_popularity * popularity
        centre = math.fsum(shared.tolist()) / len(shared)  # exact: a sum's rounding would depend on the processor
        # Groups are drawn uniformly: an item is of the user's own group for a share 1 / n_clusters of users.
        return shared - centre - self.same_bonus / p.n_clusters

    @functools.cached_property
    def same_bonus(self) -> float:
        """Return the gain in affinity of an item of the user's own group: log(1 + taste)."""
        return float(elementary.log(np.array([1.0 + self.params.taste]))[0])

    @functools.cached_property
    def promoted_items(self) -> Ints:
        """Return the items on promotion, ascending."""
        draws = self._item_uniforms(Item.PROMOTION)
        return np.sort(np.argsort(draws, kind="stable")[: self.params.n_promoted])

    def choice_weights(self, promotion: bool = False) -> Floats:
        """Return the choice weights (n_clusters, I) of each group, up to a factor, on plain or on promotion days."""
        is_own_group = self.item_cluster == np.arange(self.params.n_clusters)[:, None]
        weights = elementary.exp(self.log_popularity) * np.where(is_own_group, 1.0 + self.params.taste, 1.0)
        if promotion and len(self.promoted_items):
            weights[:, self.promoted_items] *= self.params.promotion_boost
        return weights

    @functools.cached_property
    def deployed_weights(self) -> Floats:
        """Implement :attr:`PlatformWorld.deployed_weights`, with favoured items and items that are never shown."""
        p = self.params
        weights = elementary.exp(p.weight_exponent * self.log_popularity)
        is_focus = np.isin(
            self._ranks, 2 * np.arange(p.n_focus) + 1
        )  # ranks 1, 3, 5, ...: popular, but not all of them
        normals = normals_at(p.catalogue_seed, Stream.OFFSETS, self.n_items, Item.DEPLOYED_WEIGHT)
        weights *= np.where(is_focus, p.focus_boost, elementary.exp(p.weight_sd * normals))
        draws = self._item_uniforms(Item.NEVER_SHOWN)
        unpopular = np.flatnonzero(self._ranks >= p.never_from)
        never_shown = unpopular[np.argsort(draws[unpopular], kind="stable")[: p.n_never]]
        weights[never_shown] = 0.0
        return weights

    def campaign_days(self) -> list[int]:
        """Return the days of the campaigns, as the parameters define them."""
        p = self.params
        return [p.first_campaign + i * p.campaign_every for i in range(p.n_campaigns)]

    def logit_acceptance(self, campaign: int) -> float:
        """Return the log odds of acceptance at mean affinity in a campaign, numbered from 0."""
        # Below 1, so that log(1 - rate) is finite; ``fatigue`` may be above 1.
        rate = min(self.params.acceptance * self.params.fatigue**campaign, 1.0 - 1e-12)
        log_rate, log_rest = elementary.log(np.array([rate, 1.0 - rate]))
        return float(log_rate - log_rest)

    def reward_means(self, state: Floats) -> Floats:
        """Return the true probabilities (n, I) of acceptance in the first campaign, for users of groups (n, 1)."""
        from recsim_mnar.campaigns import _campaigns_kernel

        clusters = np.ascontiguousarray(np.asarray(state)[:, 0], np.int32)
        out = np.empty((len(clusters), self.n_items))
        p = self.params
        _campaigns_kernel.acceptances(
            self.logit_acceptance(0), self.same_bonus, p.acceptance_strength, np.arange(len(clusters)), clusters,
            self.item_cluster, self.appeal, out,
        )  # fmt: skip
        return out
