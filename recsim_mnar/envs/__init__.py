"""Gymnasium's interface to the worlds."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from recsim_mnar.envs.single import WorldEnv
from recsim_mnar.envs.validation import split_keywords, world_of
from recsim_mnar.envs.vector import WorldVectorEnv
from recsim_mnar.errors import UserError
from recsim_mnar.plugins import imported
from recsim_mnar.worlds.base import DecisionWorld, World
from recsim_mnar.worlds.registry import entry_of, of_a_world

if TYPE_CHECKING:
    from recsim_mnar.envs.recording import RecordLog, RecordVectorLog
    from recsim_mnar.envs.slates import RankingEnv, RankingVectorEnv

_DEFINED_IN = {
    "RankingEnv": "slates",
    "RankingVectorEnv": "slates",
    "RecordLog": "recording",
    "RecordVectorLog": "recording",
}

__all__ = [
    "CampaignsEnv",
    "CampaignsVectorEnv",
    "PurchasesEnv",
    "PurchasesVectorEnv",
    "RankingEnv",
    "RankingVectorEnv",
    "RecordLog",
    "RecordVectorLog",
    "WorldEnv",
    "WorldVectorEnv",
    "world_env",
    "world_vector_env",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, which keeps ``import recsim_mnar.envs`` fast.

    Recorders and ranking environments are defined in this package, environments of some worlds in those worlds' own.
    """
    if name in _DEFINED_IN:
        return getattr(importlib.import_module(f"{__name__}.{_DEFINED_IN[name]}"), name)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return of_a_world(name)


def world_env(world: World | str | None = None, preset: str | None = None, **params: Any) -> gym.Env[Any, Any]:
    """Make the single environment of any world.

    Args:
        world: a world, its name, or ``package.module:Class`` for a class of your own.
        preset: preset of a named world; None for the world's default.
        **params: keywords of :class:`WorldEnv`, or parameters of a named world that differ from the preset's. The
            ratings world has a parameter ``observation`` too, and its value tells which is meant: ``popularity`` is a
            rule by which the world reveals ratings, ``counts`` a form of the agent's observation.
    """
    return _made_for(world, preset, params, None)


def world_vector_env(
    num_envs: int = 1, *, world: World | str | None = None, preset: str | None = None, **options: Any
) -> gym.vector.VectorEnv[Any, Any, Any]:
    """Make the vector environment of any world; in a world of platforms each lane is a platform.

    Args:
        num_envs: number of lanes.
        world: a world, its name, or ``package.module:Class`` for a class of your own.
        preset: preset of a named world; None for the world's default.
        **options: keywords of :class:`WorldVectorEnv`, or parameters of a named world.
    """
    return _made_for(world, preset, options, num_envs)


def _made_for(world: World | str | None, preset: str | None, keywords: dict[str, Any], lanes: int | None) -> Any:
    """Make the single or the vector environment of a world from a caller's keywords.

    Args:
        world: a world, or its name.
        preset: name of a preset; None for the world's default.
        keywords: keywords of the environment and parameters of the world, mixed; the environment's are removed.
        lanes: number of lanes of a vector environment; None for the single environment.
    """
    if world is None:
        raise UserError("no world to make an environment of: give world=, a world or the name of one ('sessions')")
    kind = entry_of(world).world_class() if isinstance(world, str) else world
    revealed = getattr(kind, "observation_words", ())
    options = split_keywords(keywords, vector=lanes is not None, of_world=revealed)
    world_made = world_of(world, preset, keywords)
    make = imported("environment", world_made.environments_by)
    return make(world_made, lanes, options)


def of_decisions(world: DecisionWorld, lanes: int | None, asked: dict[str, Any]) -> Any:
    """Make the environment of a world whose actions are items, or rankings if its slates hold several.

    Args:
        world: the world.
        lanes: number of lanes of a vector environment; None for the single environment.
        asked: keywords of the environment's class.
    """
    single: Any = WorldEnv
    vector: Any = WorldVectorEnv
    if world.slate_size > 1:
        from recsim_mnar.envs.slates import RankingEnv, RankingVectorEnv

        single = RankingEnv
        vector = RankingVectorEnv
    if lanes is None:
        return single(world, **asked)
    return vector(world, lanes, **asked)
