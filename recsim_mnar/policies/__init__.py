"""Policies and learners: required and optional methods, softening, checks, names and storage."""

from recsim_mnar.policies.base import Learner, Policy, observe_events
from recsim_mnar.policies.door import as_learner, as_policy
from recsim_mnar.policies.features import FeaturePolicy
from recsim_mnar.policies.rankings import (
    PlackettLuce,
    RankingPolicy,
    as_ranking_policy,
    ranking_uniforms,
)
from recsim_mnar.policies.sampled import SampledPolicy
from recsim_mnar.policies.softening import EpsilonMixture, SoftmaxPolicy

__all__ = [
    "EpsilonMixture",
    "FeaturePolicy",
    "Learner",
    "PlackettLuce",
    "Policy",
    "RankingPolicy",
    "SampledPolicy",
    "SoftmaxPolicy",
    "as_learner",
    "as_policy",
    "as_ranking_policy",
    "observe_events",
    "ranking_uniforms",
]
