"""Off-policy estimates from a log: values, intervals, diagnostics and a verdict."""

from recsim_mnar.estimators.moments import Moments
from recsim_mnar.estimators.registry import ESTIMATORS, EstimatorInfo
from recsim_mnar.estimators.result import Estimate
from recsim_mnar.estimators.value import difference, estimate_value

__all__ = ["ESTIMATORS", "Estimate", "EstimatorInfo", "Moments", "difference", "estimate_value"]
