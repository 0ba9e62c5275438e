"""Policies and learners: what they must answer, what they may, softening, checks, names and storage."""

from recsim_mnar.policy.base import Learner, Policy, observe_events
from recsim_mnar.policy.door import as_learner, as_policy
from recsim_mnar.policy.features import FeaturePolicy
from recsim_mnar.policy.sampled import SampledPolicy
from recsim_mnar.policy.softening import EpsilonMixture, SoftmaxPolicy

__all__ = [
    "EpsilonMixture",
    "FeaturePolicy",
    "Learner",
    "Policy",
    "SampledPolicy",
    "SoftmaxPolicy",
    "as_learner",
    "as_policy",
    "observe_events",
]
