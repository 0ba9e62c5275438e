"""The worlds, each one generative model: by name, or of your own (see docs/worlds.md)."""

from recsim_mnar.worlds.base import DecisionWorld, ExposureWorld, Lanes, PlatformWorld, Transition, World
from recsim_mnar.worlds.checks import as_world
from recsim_mnar.worlds.params import Params
from recsim_mnar.worlds.plain import PlainLanes
from recsim_mnar.worlds.purchases.lanes import Outcomes
from recsim_mnar.worlds.registry import WORLDS, Entry, entry_of, make_world, worlds
from recsim_mnar.worlds.slate_params import SlateParams

__all__ = [
    "WORLDS",
    "DecisionWorld",
    "Entry",
    "ExposureWorld",
    "Lanes",
    "Outcomes",
    "Params",
    "PlainLanes",
    "PlatformWorld",
    "SlateParams",
    "Transition",
    "World",
    "as_world",
    "entry_of",
    "make_world",
    "worlds",
]
