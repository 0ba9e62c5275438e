"""The purchases world: both potential outcomes of every recommendation."""

from recsim_mnar.worlds.purchases.world import HIDDEN, PRESETS, PurchasesParams, PurchasesWorld

__all__ = ["HIDDEN", "PRESETS", "PurchasesParams", "PurchasesWorld"]
