"""Worlds: generative models of users, selected by name or defined by yourself (see docs/worlds.md)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from recsim_mnar.log.contexts import Observation
from recsim_mnar.worlds.base import DecisionWorld, Lanes, Transition, World, as_world
from recsim_mnar.worlds.lanes import PlainLanes
from recsim_mnar.worlds.params import Params
from recsim_mnar.worlds.registry import WORLDS, Entry, entry_of, make_world, of_a_world

if TYPE_CHECKING:
    from recsim_mnar.worlds.features import FeatureParams, FeatureWorld
    from recsim_mnar.worlds.ratings import RatingsParams, RatingsWorld
    from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld

_OF_OURS = {
    "Feature": "features",
    "Ratings": "ratings",
    "Sessions": "sessions",
}
__all__ = [
    "WORLDS",
    "CampaignsParams",
    "CampaignsWorld",
    "DecisionWorld",
    "Entry",
    "ExposureWorld",
    "FeatureParams",
    "FeatureWorld",
    "Lanes",
    "Observation",
    "Outcomes",
    "Params",
    "PlainLanes",
    "PlatformWorld",
    "PurchasesParams",
    "PurchasesWorld",
    "RatingsParams",
    "RatingsWorld",
    "SessionsParams",
    "SessionsWorld",
    "SlateParams",
    "Transition",
    "World",
    "as_world",
    "entry_of",
    "make_world",
]


def __getattr__(name: str) -> Any:
    """Import a world's class, its parameters or another of its public classes on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _OF_OURS.get(name.removesuffix("World").removesuffix("Params"))
    if module is not None:
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return of_a_world(name)
