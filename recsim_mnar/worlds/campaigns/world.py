"""The campaigns world: users collect items on a platform that now and then recommends some (de Myttenaere 2015).

De Myttenaere, Le Grand, Golden & Rossi 2015, "Reducing offline evaluation bias of collaborative filtering algorithms":
what a campaign makes people add changes the data by which recommenders are later judged.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from numpy.typing import NDArray

from recsim_mnar.rng import check_seed
from recsim_mnar.worlds.campaigns.model import CampaignsModel
from recsim_mnar.worlds.campaigns.params import PRESETS, CampaignsParams
from recsim_mnar.worlds.campaigns.platform import Campaign, Platform

__all__ = ["PRESETS", "Campaign", "CampaignsParams", "CampaignsWorld", "Platform"]


class CampaignsWorld(CampaignsModel):
    """A platform where users collect items alone and through campaigns; :meth:`open_platform` starts one."""

    def open_platform(self, seed: int) -> Platform:
        """A platform on its day 0, with users of this seed."""
        return Platform(self, check_seed(seed))

    def with_users(self, n_users: int) -> CampaignsWorld:
        """See :meth:`PlatformWorld.with_users`."""
        return type(self)(dataclasses.replace(self.params, n_users=n_users))

    def platform_truth(self, platform: Platform) -> dict[str, NDArray[Any]]:
        """See :meth:`PlatformWorld.platform_truth`: what items and users are."""
        return {
            "item_cluster": self.item_cluster,
            "appeal": self.appeal,
            "log_popularity": self.log_popularity,
            "house_weights": self.deployed_weights,  # the file's own name of them
            "birth": self.birth,
            "user_cluster": platform.cluster,
            "arrival": platform.arrival,
        }
