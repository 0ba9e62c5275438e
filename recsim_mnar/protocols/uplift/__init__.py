"""The purchases world's comparison: which metric of a log finds the largest uplift."""

from recsim_mnar.protocols.uplift.protocol import UpliftSettings, compare_uplift

__all__ = ["UpliftSettings", "compare_uplift"]
