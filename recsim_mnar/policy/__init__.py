"""Policies and learners: what they must answer, softening, checks, names and storage."""

from recsim_mnar.policy.base import EpsilonMixture, Learner, Policy, SoftmaxPolicy, fresh, scores_of, tell

__all__ = ["EpsilonMixture", "Learner", "Policy", "SoftmaxPolicy", "fresh", "scores_of", "tell"]
