"""The purchases world: both potential outcomes of every recommendation."""

from recsim_mnar.worlds.purchases.params import PRESETS, PurchasesParams
from recsim_mnar.worlds.purchases.world import HIDDEN, PurchasesWorld

__all__ = ["HIDDEN", "PRESETS", "PurchasesParams", "PurchasesWorld"]
