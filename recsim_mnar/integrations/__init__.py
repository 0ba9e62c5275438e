"""Models of other libraries as policies, and our environments as theirs: see docs/integrations.md.

A module for each library, which is an extra: ``from recsim_mnar.integrations import scikit_learn``.
"""

__all__ = ["implicit", "lenskit", "mabwiser", "scikit_learn", "stable_baselines3", "vowpal_wabbit"]
