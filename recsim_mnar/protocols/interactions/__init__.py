"""Protocols on a user's own interactions, where there is no world and so no truth."""

from recsim_mnar.protocols.interactions.comparison import compare_interactions

__all__ = ["compare_interactions"]
