"""Off-policy estimates from a log: values, intervals, diagnostics and a verdict."""

from recsim_mnar.estimators.moments import Moments
from recsim_mnar.estimators.registry import ESTIMATORS, EstimatorInfo
from recsim_mnar.estimators.result import Estimate
from recsim_mnar.estimators.reward_model import cross_fitted_rewards
from recsim_mnar.estimators.slope import choose_clip, slope
from recsim_mnar.estimators.unlogged import estimate_without_propensities
from recsim_mnar.estimators.value import difference, estimate_value

__all__ = [
    "ESTIMATORS",
    "Estimate",
    "EstimatorInfo",
    "Moments",
    "choose_clip",
    "cross_fitted_rewards",
    "difference",
    "estimate_value",
    "estimate_without_propensities",
    "slope",
]
