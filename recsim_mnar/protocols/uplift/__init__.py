"""The purchases world's comparison: which metric of a log finds the largest uplift."""

from recsim_mnar.protocols.uplift.comparison import PurchasesExperiment, UpliftSettings

__all__ = ["PurchasesExperiment", "UpliftSettings"]
