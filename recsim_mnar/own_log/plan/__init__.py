"""How many users an A/B test needs (docs/plan.md)."""

from recsim_mnar.own_log.plan.experiment import ABPlan, plan_ab

__all__ = ["ABPlan", "plan_ab"]
