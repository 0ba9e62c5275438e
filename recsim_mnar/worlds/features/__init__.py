"""The features world: users and items that are rows of feature matrices."""

from recsim_mnar.worlds.features.params import PRESETS, FeatureParams
from recsim_mnar.worlds.features.world import FeatureWorld

__all__ = ["PRESETS", "FeatureParams", "FeatureWorld"]
