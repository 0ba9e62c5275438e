"""Platforms with and without campaigns, and what a recommender is worth on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.table import Log
from recsim_mnar.policies.base import Learner
from recsim_mnar.simulation.platform import lists_of, platform_log, run_campaigns
from recsim_mnar.worlds.base import PlatformWorld
from recsim_mnar.worlds.campaigns.platform import Platform

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Campaigns:
    """How a platform's campaigns recommend.

    Attributes:
        recommender: by which lists are drawn beside the deployed weights; None: the same weights for everybody.
        sharpness: see :func:`recsim_mnar.simulation.platform.run_campaign`.
    """

    recommender: Learner | None = None
    sharpness: float = 1.0

    def platform(
        self, world: PlatformWorld, seed: int, *, days: Sequence[float] | None = None, until: float | None = None
    ) -> Platform:
        """A platform after campaigns on these days (the world's own where None; ``[]``: none), on day ``until``."""
        return run_campaigns(
            world, seed, recommender=self.recommender, sharpness=self.sharpness, days=days, until=until
        )

    def log_with_random_campaign(self, world: PlatformWorld, seed: int, *, day: float, share: float) -> Log:
        """The log of the same platform, where a share of users gets one more campaign, of uniformly random items.

        Args:
            world: the model.
            seed: of users and campaigns.
            day: of the random campaign, after the others.
            share: of the users present, the first ones.

        Raises:
            UserError: the day lies before a campaign or after the last day, or nobody would get it.
        """
        days = [float(d) for d in world.campaign_days()]
        last = world.params.n_days
        if not max(days, default=0.0) <= day <= last:
            raise UserError(f"random_day must lie in {max(days, default=0.0):g}..{last}, got {day:g}")
        platform = self.platform(world, seed, days=days, until=day)
        users = platform.present()
        users = users[: round(share * len(users))]
        if len(users) == 0:
            raise UserError(f"random_share {share:g} leaves nobody to recommend to")
        platform.recommend(*platform.draw_lists(np.ones(world.n_items), users), users)
        platform.advance(last)
        return platform_log(platform)


def accepted_shares(platform: Platform, learner: Learner, k: int) -> Floats:
    """Truth: for every present user, the expected share of a recommender's k recommendations that they accept; (U,).

    The mean is :func:`recsim_mnar.simulation.platform.true_quality`.
    """
    lists, _ = lists_of(platform, learner, k=k)
    probabilities = platform.acceptance(platform.present())
    shown = np.take_along_axis(probabilities, np.maximum(lists, 0).astype(np.int64), axis=1)
    return np.where(lists >= 0, shown, 0.0).mean(axis=1)
