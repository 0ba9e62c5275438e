"""How many users an A/B test needs, how to log from here on, how many rows until logs are trusted (docs/plan.md)."""

from recsim_mnar.own_log.plan.experiment import ABPlan, plan_ab
from recsim_mnar.own_log.plan.exploration import LoggingPlan, plan_logging
from recsim_mnar.own_log.plan.turning import EstimatePlan, plan_estimate

__all__ = ["ABPlan", "EstimatePlan", "LoggingPlan", "plan_ab", "plan_estimate", "plan_logging"]
