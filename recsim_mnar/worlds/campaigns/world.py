"""The campaigns world: users collect items on a platform that now and then recommends some (de Myttenaere 2015).

De Myttenaere, Le Grand, Golden & Rossi 2015, "Reducing offline evaluation bias of collaborative filtering algorithms":
what a campaign makes people add changes the data by which recommenders are later judged.
"""

from __future__ import annotations

import dataclasses

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
        return CampaignsWorld(dataclasses.replace(self.params, n_users=n_users))
