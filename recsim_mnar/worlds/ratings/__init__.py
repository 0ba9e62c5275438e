"""The ratings world: a full matrix of ratings, revealed not at random."""

from recsim_mnar.worlds.ratings.observation import MARGINALS, STARS, alpha_propensities, observe, rerank
from recsim_mnar.worlds.ratings.world import PRESETS, RatingsParams, RatingsWorld

__all__ = ["MARGINALS", "PRESETS", "STARS", "RatingsParams", "RatingsWorld", "alpha_propensities", "observe", "rerank"]
