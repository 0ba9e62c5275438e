"""Policies and learners: what they must answer, softening, checks, names and storage."""

from recsim_mnar.policy.base import EpsilonMixture, Learner, Policy, SoftmaxPolicy, fresh, observe_events, scores_of

__all__ = ["EpsilonMixture", "Learner", "Policy", "SoftmaxPolicy", "fresh", "observe_events", "scores_of"]
