"""Off-policy estimates from a log: values, intervals, diagnostics and a verdict."""

from recsim_mnar.estimators.off_policy.cross_fitted import cross_fitted_rewards, estimate_without_propensities
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.scores import ESTIMATORS, EstimatorInfo
from recsim_mnar.estimators.off_policy.value import difference, estimate_value
from recsim_mnar.estimators.verdict import Estimate

__all__ = [
    "ESTIMATORS",
    "Estimate",
    "EstimatorInfo",
    "Moments",
    "cross_fitted_rewards",
    "difference",
    "estimate_value",
    "estimate_without_propensities",
]
