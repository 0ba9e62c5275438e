"""The campaigns world: a platform whose users collect items alone and through campaigns."""

from recsim_mnar.campaigns.model import PRESETS, CampaignsParams
from recsim_mnar.campaigns.world import CampaignsWorld

__all__ = ["PRESETS", "CampaignsParams", "CampaignsWorld"]
