"""Gymnasium's interface to the worlds."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from recsim_mnar.envs.single import WorldEnv
from recsim_mnar.envs.validation import split_keywords, world_of
from recsim_mnar.envs.vector import WorldVectorEnv
from recsim_mnar.plugins import imported
from recsim_mnar.worlds.base import DecisionWorld, World
from recsim_mnar.worlds.registry import of_a_world

if TYPE_CHECKING:
    from recsim_mnar.envs.recording import RecordLog, RecordVectorLog, record, record_vector
    from recsim_mnar.envs.slates import RankingEnv, RankingVectorEnv

_DEFINED_IN = {
    "RankingEnv": "slates",
    "RankingVectorEnv": "slates",
    "RecordLog": "recording",
    "RecordVectorLog": "recording",
    "record": "recording",
    "record_vector": "recording",
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
    "campaigns_env",
    "campaigns_vector_env",
    "purchases_env",
    "purchases_vector_env",
    "ratings_env",
    "ratings_vector_env",
    "record",
    "record_slates",
    "record_slates_vector",
    "record_vector",
    "sessions_env",
    "sessions_vector_env",
    "world_env",
    "world_vector_env",
]


def __getattr__(name: str) -> Any:
    """Import records, slates, and environments of other folders on demand, so that a first step stays quick."""
    if name in _DEFINED_IN:
        return getattr(importlib.import_module(f"{__name__}.{_DEFINED_IN[name]}"), name)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return of_a_world(name)


def world_env(world: World | str, preset: str | None = None, **params: Any) -> gym.Env[Any, Any]:
    """The single environment of any world.

    Args:
        world: an object, a name, or ``package.module:Class`` of your own.
        preset: of a named world; its default where None.
        **params: keywords of :class:`WorldEnv`, or parameters of a named world that differ
            from the preset's.
    """
    return made_for(None, "", preset, world, params)


def world_vector_env(
    num_envs: int = 1, *, world: World | str, preset: str | None = None, **options: Any
) -> gym.vector.VectorEnv[Any, Any, Any]:
    """The vector environment of any world; of a platform's world several platforms.

    Args:
        num_envs: number of lanes.
        world: as :func:`world_env`.
        preset: as :func:`world_env`.
        **options: keywords of :class:`WorldVectorEnv`, or parameters of a named world.
    """
    return made_for(None, "", preset, world, options, num_envs)


def sessions_env(preset: str | None = None, world: World | str | None = None, **params: Any) -> WorldEnv:
    """The single environment of the sessions world.

    Args:
        preset: ``jeunen2019``, ``recogym-v1`` (default) or ``quick``.
        world: instead, a world that is there already, or a name.
        **params: keywords of :class:`WorldEnv`, or fields of
            :class:`recsim_mnar.worlds.sessions.SessionsParams` that differ from the preset's.
    """
    return made_for(DecisionWorld, "sessions", preset, world, params)


def sessions_vector_env(
    num_envs: int = 1, preset: str | None = None, world: World | str | None = None, **options: Any
) -> WorldVectorEnv:
    """The vector environment of the sessions world.

    Args:
        num_envs: number of lanes.
        preset: as :func:`sessions_env`.
        world: as :func:`sessions_env`.
        **options: keywords of :class:`WorldVectorEnv`, or parameters of the world.
    """
    return made_for(DecisionWorld, "sessions", preset, world, options, num_envs)


def ratings_env(preset: str | None = None, world: World | str | None = None, **params: Any) -> WorldEnv:
    """The single environment of the ratings world.

    Args:
        preset: ``schnabel2016``, ``mcar`` or ``quick`` (default).
        world: instead, a world that is there already, such as one of a given matrix
            (:meth:`recsim_mnar.worlds.ratings.RatingsWorld.from_matrix`), or a name.
        **params: keywords of :class:`WorldEnv`, or fields of
            :class:`recsim_mnar.worlds.ratings.RatingsParams` that differ from the preset's. Both have an
            ``observation``, with other values: ``popularity`` is what the world reveals, ``counts`` what agents see.
    """
    from recsim_mnar.worlds.ratings.world import OBSERVATIONS

    return made_for(DecisionWorld, "ratings", preset, world, params, revealed=OBSERVATIONS)


def ratings_vector_env(
    num_envs: int = 1, preset: str | None = None, world: World | str | None = None, **options: Any
) -> WorldVectorEnv:
    """The vector environment of the ratings world.

    Args:
        num_envs: number of lanes.
        preset: as :func:`ratings_env`.
        world: as :func:`ratings_env`.
        **options: keywords of :class:`WorldVectorEnv`, or parameters of the world.
    """
    from recsim_mnar.worlds.ratings.world import OBSERVATIONS

    return made_for(DecisionWorld, "ratings", preset, world, options, num_envs, revealed=OBSERVATIONS)


def made_for(
    kind: type[World] | None,
    name: str,
    preset: str | None,
    world: World | str | None,
    keywords: dict[str, Any],
    lanes: int | None = None,
    *,
    revealed: Collection[str] = (),
) -> Any:
    """Make the environment of a world, with lanes the vector one.

    Args:
        kind: of world that is asked for; that of the world at hand where None.
        name: of the world where none is given.
        preset: its name, or None.
        world: that is given, or its name.
        keywords: of environment and world.
        lanes: number of them.
        revealed: see ``of_world`` of :func:`recsim_mnar.envs.validation.split_keywords`.
    """
    options = split_keywords(keywords, vector=lanes is not None, of_world=revealed)
    world_made = world_of(name, preset, keywords, world)
    make = imported("environment", (kind or world_made).environments_by)
    return make(world_made, lanes, options)


def of_decisions(world: DecisionWorld, lanes: int | None, asked: dict[str, Any]) -> Any:
    """Make the environment of users who are recommended an item, or a ranking, at a time; with lanes the vector one."""
    kinds: tuple[Any, Any] = WorldEnv, WorldVectorEnv
    if world.slate_size > 1:
        from recsim_mnar.envs.slates import RankingEnv, RankingVectorEnv

        kinds = RankingEnv, RankingVectorEnv
    if lanes is None:
        return kinds[0](world, **asked)
    return kinds[1](world, lanes, **asked)
