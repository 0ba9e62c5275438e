"""Loaders of real data, from files that the user has; nothing is shipped and nothing is downloaded."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recsim_mnar.datasets.interactions import Interactions as Interactions
    from recsim_mnar.datasets.interactions import read_interactions as read_interactions
    from recsim_mnar.datasets.rating_studies import RatingStudy as RatingStudy
    from recsim_mnar.datasets.rating_studies import load_coat as load_coat
    from recsim_mnar.datasets.rating_studies import load_ml100k as load_ml100k
    from recsim_mnar.datasets.rating_studies import load_yahoo_r3 as load_yahoo_r3
    from recsim_mnar.datasets.rating_studies import read_ratings as read_ratings

_DEFINED_IN = {
    "Interactions": "interactions",
    "RatingStudy": "rating_studies",
    "load_coat": "rating_studies",
    "load_ml100k": "rating_studies",
    "load_yahoo_r3": "rating_studies",
    "read_interactions": "interactions",
    "read_ratings": "rating_studies",
}
__all__ = list(_DEFINED_IN)


def __getattr__(name: str) -> Any:
    """Import a loader, or the class that it returns, on first use."""
    if name in _DEFINED_IN:
        return getattr(importlib.import_module(f"{__name__}.{_DEFINED_IN[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
