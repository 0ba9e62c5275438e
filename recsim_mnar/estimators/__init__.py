"""Off-policy estimates from a log: values, intervals, diagnostics and a verdict."""

from recsim_mnar.estimators.cross_fitted import cross_fitted_rewards, estimate_without_propensities
from recsim_mnar.estimators.facts import Facts
from recsim_mnar.estimators.from_columns import difference, estimate_value
from recsim_mnar.estimators.scores import ESTIMATORS, EstimatorInfo
from recsim_mnar.estimators.verdict import Diagnostics, Estimate

__all__ = [
    "ESTIMATORS",
    "Diagnostics",
    "Estimate",
    "EstimatorInfo",
    "Facts",
    "cross_fitted_rewards",
    "difference",
    "estimate_value",
    "estimate_without_propensities",
]
