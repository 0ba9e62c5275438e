"""Parameters of the campaigns world and its presets."""

from __future__ import annotations

from dataclasses import dataclass

from recsim_mnar.errors import UserError
from recsim_mnar.rng import check_seed
from recsim_mnar.worlds.params import Params


@dataclass(frozen=True)
class CampaignsParams(Params):
    """Parameters of the campaigns world; the defaults are the size of the paper's study.

    Attributes:
        n_users: users at the end.
        n_items: items at the end.
        n_clusters: groups of users and of items; who and what belongs where is drawn uniformly.
        taste: an item of the user's own group is chosen ``1 + taste`` times as often as its popularity alone says.
        popularity_exponent: popularity of the item of rank r (from 0) is (r + popularity_shift) ** -exponent.
        popularity_shift: flattens the head of that law; above 0.
        starting_items: items with which a user arrives.
        organic_items: items that a user of mean activity adds alone in the course of time, beyond those.
        fading: days after which a user adds alone at 1/e of the first pace.
        activity_power: a user's activity z has P(z) ~ z ** -power on 1 .. activity_max, and multiplies organic_items.
        activity_max: largest activity.
        user_growth: share of users who arrive after day 0, uniformly until ``n_days``.
        item_growth: share of items that appear after day 0, likewise.
        n_days: length of the run_config.
        reference_day: the t0 of the paper, before any campaign.
        first_campaign: day of the first campaign.
        campaign_every: days between campaigns.
        n_campaigns: how many.
        list_length: items that a user is recommended in a campaign.
        acceptance: probability that a recommendation of mean affinity is accepted, in the first campaign.
        fatigue: factor on ``acceptance`` from one campaign to the next.
        acceptance_strength: how far acceptance depends on affinity; 0: the same for all (the preset ``viadeo``).
        appeal_sd: standard deviation of the items' appeal, the part of affinity that users share.
        appeal_popularity: how far appeal follows log popularity.
        delay: probability a day that an accepted item is added at last; 1 adds it on the day of the campaign.
        n_never: items that the deployed policy never recommends, drawn among ranks of at least ``never_from``.
        never_from: see ``n_never``.
        weight_exponent: the deployed policy recommends by popularity ** exponent times a log-normal factor.
        weight_sd: standard deviation of that factor's logarithm.
        n_focus: items that the deployed policy favours, of ranks 1, 3, 5, ...
        focus_boost: factor on their weight.
        n_promoted: items on promotion (the paper's other cause of bias), drawn among all.
        promotion_boost: factor on how often they are chosen then.
        promotion_start: first day of the promotion.
        promotion_end: day on which it is over.
        catalogue_seed: of the items; users have the seed of the platform.
    """

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
        for name in (*sizes, "campaign_every"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("n_users", "n_items"):
            if getattr(self, name) > 2**31 - 1:
                raise UserError(f"{name} must be below 2**31, got {getattr(self, name)}")
        for name in ("popularity_shift", "fading", "fatigue", "focus_boost", "promotion_boost"):
            if getattr(self, name) <= 0:
                raise UserError(f"{name} must be above 0, got {getattr(self, name):g}")
        counts = ("n_campaigns", "n_never", "never_from", "n_focus", "n_promoted", "reference_day")
        for name in ("taste", "organic_items", "appeal_sd", "weight_sd", "first_campaign", *counts):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must not be negative, got {getattr(self, name):g}")
        for name in ("user_growth", "item_growth"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name} must lie in [0, 1), got {getattr(self, name):g}")
        for name in ("acceptance", "delay"):
            if not 0 < getattr(self, name) <= 1:
                raise UserError(f"{name} must lie in (0, 1], got {getattr(self, name):g}")
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
