"""The laws of the campaigns world: what its items are, which of them users choose, and which they accept."""

from __future__ import annotations

import functools
import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.kernels import elementary
from recsim_mnar.rng import Stream, normals_at, uniforms
from recsim_mnar.worlds.base import PlatformWorld
from recsim_mnar.worlds.campaigns.addresses import BIRTH, GROUP, Birth, Item
from recsim_mnar.worlds.campaigns.params import PRESETS, CampaignsParams

Floats = NDArray[np.float64]


class CampaignsModel(PlatformWorld):
    """Items, choices and acceptance on a platform where users collect items alone and through campaigns.

    Choice: a user of group g adds, at each addition of their own, an item i not yet held with probability proportional
    to popularity_i (1 + taste [group_i = g]). Affinity: theta_ui = log(1 + taste) [group_i = g] + appeal_i, appeal_i =
    appeal_sd z_i + appeal_popularity (log popularity_i - mean). Acceptance in campaign c (from 0), the truth by which
    recommenders are ranked: A_ui = logistic(logit(acceptance fatigue^c) + acceptance_strength (theta_ui - mean theta)).

    Args:
        params: the model; defaults to the preset ``viadeo``.
    """

    name: ClassVar[str] = "campaigns"
    params_class = CampaignsParams
    presets = PRESETS
    params: CampaignsParams

    def __init__(self, params: CampaignsParams | None = None) -> None:
        self.params = params or CampaignsParams()
        self.n_items = self.params.n_items

    @functools.cached_property
    def _ranks(self) -> NDArray[np.int64]:
        """(I,) popularity rank of each item: items are numbered at random."""
        draws = uniforms(self.params.catalogue_seed, Stream.OFFSETS, np.arange(self.n_items), Item.RANK)
        return np.argsort(np.argsort(draws, kind="stable"))

    @functools.cached_property
    def log_popularity(self) -> Floats:
        """(I,) logarithm of each item's popularity."""
        return -self.params.popularity_exponent * elementary.log(self._ranks + self.params.popularity_shift)

    @functools.cached_property
    def item_cluster(self) -> NDArray[np.int32]:
        """(I,) group of each item."""
        draws = uniforms(self.params.catalogue_seed, Stream.CATALOGUE, np.arange(self.n_items), GROUP)
        return np.minimum((draws * self.params.n_clusters).astype(np.int32), self.params.n_clusters - 1)

    @functools.cached_property
    def birth(self) -> Floats:
        """(I,) day on which each item appears."""
        p = self.params
        which, when = (uniforms(p.catalogue_seed, BIRTH, np.arange(self.n_items), i) for i in (Birth.LATE, Birth.DAY))
        return np.where(which < p.item_growth, when * p.n_days, 0.0)

    @functools.cached_property
    def appeal(self) -> Floats:
        """(I,) the part of affinity that all users share; with their own groups, its mean over items and users is 0."""
        p = self.params
        followed = self.log_popularity - self.log_popularity.mean()
        own = normals_at(p.catalogue_seed, Stream.OFFSETS, self.n_items, Item.APPEAL)
        shared = p.appeal_sd * own + p.appeal_popularity * followed
        centre = math.fsum(shared.tolist()) / len(shared)  # rounds once, whatever the machine's vectors
        # Users' groups are drawn uniformly: each item is of a user's own in a share 1 / n_clusters of them.
        return shared - centre - self.same_bonus / p.n_clusters

    @functools.cached_property
    def same_bonus(self) -> float:
        """What an item of the user's own group gains in affinity: log(1 + taste)."""
        return float(elementary.log(np.array([1.0 + self.params.taste]))[0])

    @functools.cached_property
    def promoted_items(self) -> NDArray[np.int64]:
        """Items on promotion."""
        draws = uniforms(self.params.catalogue_seed, Stream.OFFSETS, np.arange(self.n_items), Item.PROMOTION)
        return np.sort(np.argsort(draws, kind="stable")[: self.params.n_promoted])

    def choice_weights(self, promotion: bool = False) -> Floats:
        """(n_clusters, I) how often each group chooses each item, up to a factor; ``promotion``: while it lasts."""
        same = self.item_cluster == np.arange(self.params.n_clusters)[:, None]
        weights = elementary.exp(self.log_popularity) * np.where(same, 1.0 + self.params.taste, 1.0)
        if promotion and len(self.promoted_items):
            weights[:, self.promoted_items] *= self.params.promotion_boost
        return weights

    @functools.cached_property
    def deployed_weights(self) -> Floats:
        """(I,) weights by which the platform's own campaigns recommend; 0: never."""
        p = self.params
        weights = elementary.exp(p.weight_exponent * self.log_popularity)
        focus = np.isin(self._ranks, 2 * np.arange(p.n_focus) + 1)
        own = normals_at(p.catalogue_seed, Stream.OFFSETS, self.n_items, Item.DEPLOYED_WEIGHT)
        spread = elementary.exp(p.weight_sd * own)
        weights *= np.where(focus, p.focus_boost, spread)
        order = uniforms(p.catalogue_seed, Stream.OFFSETS, np.arange(self.n_items), Item.NEVER_SHOWN)
        tail = np.flatnonzero(self._ranks >= p.never_from)
        weights[tail[np.argsort(order[tail], kind="stable")[: p.n_never]]] = 0.0
        return weights

    @property
    def house_weights(self) -> Floats:
        """The older name of :attr:`deployed_weights`."""
        return self.deployed_weights

    def campaign_days(self) -> list[int]:
        """Days of the campaigns that the parameters name."""
        p = self.params
        return [p.first_campaign + i * p.campaign_every for i in range(p.n_campaigns)]

    def logit_acceptance(self, campaign: int) -> float:
        """Log odds of acceptance at mean affinity in campaign number ``campaign``."""
        rate = min(self.params.acceptance * self.params.fatigue**campaign, 1.0 - 1e-12)
        return float(elementary.log(np.array([rate]))[0] - elementary.log(np.array([1.0 - rate]))[0])

    def reward_means(self, state: Floats) -> Floats:
        """Truth: acceptance in the first campaign by users of these groups (n, 1); returns (n, I)."""
        from recsim_mnar.worlds.campaigns import _campaigns_kernel

        clusters = np.ascontiguousarray(np.asarray(state)[:, 0], np.int32)
        out = np.empty((len(clusters), self.n_items))
        p = self.params
        _campaigns_kernel.acceptances(
            self.logit_acceptance(0), self.same_bonus, p.acceptance_strength, np.arange(len(clusters)), clusters,
            self.item_cluster, self.appeal, out,
        )  # fmt: skip
        return out
