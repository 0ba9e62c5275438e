"""Gymnasium's interface to the worlds."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from recsim_mnar.envs.platform import CampaignsEnv, CampaignsVectorEnv
from recsim_mnar.envs.single import WorldEnv
from recsim_mnar.envs.validation import split_env_kwargs, split_vector_kwargs, world_of
from recsim_mnar.envs.vector import WorldVectorEnv
from recsim_mnar.errors import UserError
from recsim_mnar.worlds.base import ExposureWorld, PlatformWorld, World
from recsim_mnar.worlds.campaigns.world import CampaignsWorld

if TYPE_CHECKING:
    from recsim_mnar.envs.recording import record, record_vector
    from recsim_mnar.envs.slates import (
        PurchasesEnv,
        PurchasesVectorEnv,
        purchases_env,
        purchases_vector_env,
        record_slates,
        record_slates_vector,
    )
    from recsim_mnar.envs.wrappers import RecordLog, RecordVectorLog

_DEFINED_IN = {
    "PurchasesEnv": "slates",
    "PurchasesVectorEnv": "slates",
    "RecordLog": "wrappers",
    "RecordVectorLog": "wrappers",
    "purchases_env": "slates",
    "purchases_vector_env": "slates",
    "record": "recording",
    "record_slates": "slates",
    "record_slates_vector": "slates",
    "record_vector": "recording",
}

__all__ = [
    "CampaignsEnv",
    "CampaignsVectorEnv",
    "PurchasesEnv",
    "PurchasesVectorEnv",
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
    """What records, slates and several platforms, imported when they are asked for: a first step stays quick."""
    if name in _DEFINED_IN:
        return getattr(importlib.import_module(f"{__name__}.{_DEFINED_IN[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def world_env(world: World | str, preset: str | None = None, **params: Any) -> gym.Env[Any, Any]:
    """The single environment of any world.

    Args:
        world: an object, a name, or ``package.module:Class`` of your own.
        preset: of a named world; its default where None.
        **params: ``observation`` and ``info_size`` of :class:`WorldEnv`, or parameters of a named world that differ
            from the preset's.
    """
    keywords = split_env_kwargs(params)
    found = world_of("", preset, params, world)
    if isinstance(found, ExposureWorld):
        from recsim_mnar.envs.slates import purchases_env

        return purchases_env(world=found, **keywords)
    if isinstance(found, PlatformWorld):
        if keywords:
            raise UserError(f"{next(iter(keywords))}: a platform's environment has one observation and info")
        return _platform_env(found)
    return WorldEnv(found, **keywords)


def world_vector_env(
    num_envs: int = 1, *, world: World | str, preset: str | None = None, **options: Any
) -> WorldVectorEnv | CampaignsVectorEnv:
    """The vector environment of any world; of a platform's world several platforms.

    Args:
        num_envs: number of lanes.
        world: as :func:`world_env`.
        preset: as :func:`world_env`.
        **options: ``max_episode_steps``, ``autoreset_mode``, ``observation`` and ``info_size`` of
            :class:`WorldVectorEnv`, or parameters of a named world.
    """
    keywords = split_vector_kwargs(options)
    found = world_of("", preset, options, world)
    if isinstance(found, ExposureWorld):
        from recsim_mnar.envs.slates import purchases_vector_env

        slates: PurchasesVectorEnv = purchases_vector_env(num_envs, world=found, **keywords)
        return slates
    if isinstance(found, PlatformWorld):
        return _platform_vector_env(found, num_envs, keywords)
    return WorldVectorEnv(found, num_envs, **keywords)


def sessions_env(preset: str | None = None, world: World | str | None = None, **params: Any) -> WorldEnv:
    """The single environment of the sessions world.

    Args:
        preset: ``jeunen2019``, ``recogym-v1`` (default) or ``quick``.
        world: instead, a world that is there already, or a name.
        **params: ``observation`` and ``info_size`` of :class:`WorldEnv`, or fields of
            :class:`recsim_mnar.worlds.sessions.SessionsParams` that differ from the preset's.
    """
    keywords = split_env_kwargs(params)
    return WorldEnv(world_of("sessions", preset, params, world), **keywords)


def sessions_vector_env(
    num_envs: int = 1, preset: str | None = None, world: World | str | None = None, **options: Any
) -> WorldVectorEnv:
    """The vector environment of the sessions world.

    Args:
        num_envs: number of lanes.
        preset: as :func:`sessions_env`.
        world: as :func:`sessions_env`.
        **options: ``max_episode_steps``, ``autoreset_mode``, ``observation`` and ``info_size`` of
            :class:`WorldVectorEnv`, or parameters of the world.
    """
    keywords = split_vector_kwargs(options)
    return WorldVectorEnv(world_of("sessions", preset, options, world), num_envs, **keywords)


def ratings_env(preset: str | None = None, world: World | str | None = None, **params: Any) -> WorldEnv:
    """The single environment of the ratings world.

    Args:
        preset: ``schnabel2016``, ``mcar`` or ``quick`` (default).
        world: instead, a world that is there already, such as one of a given matrix
            (:meth:`recsim_mnar.worlds.ratings.RatingsWorld.from_matrix`), or a name.
        **params: ``observation`` and ``info_size`` of :class:`WorldEnv`, or fields of
            :class:`recsim_mnar.worlds.ratings.RatingsParams` that differ from the preset's. Both have an
            ``observation``, with other values: ``popularity`` is what the world reveals, ``counts`` what agents see.
    """
    from recsim_mnar.worlds.ratings.world import OBSERVATIONS

    keywords = split_env_kwargs(params, of_world=OBSERVATIONS)
    return WorldEnv(world_of("ratings", preset, params, world), **keywords)


def ratings_vector_env(
    num_envs: int = 1, preset: str | None = None, world: World | str | None = None, **options: Any
) -> WorldVectorEnv:
    """The vector environment of the ratings world.

    Args:
        num_envs: number of lanes.
        preset: as :func:`ratings_env`.
        world: as :func:`ratings_env`.
        **options: ``max_episode_steps``, ``autoreset_mode``, ``observation`` and ``info_size`` of
            :class:`WorldVectorEnv`, or parameters of the world.
    """
    from recsim_mnar.worlds.ratings.world import OBSERVATIONS

    keywords = split_vector_kwargs(options, of_world=OBSERVATIONS)
    return WorldVectorEnv(world_of("ratings", preset, options, world), num_envs, **keywords)


def campaigns_env(preset: str | None = None, world: World | str | None = None, **params: Any) -> CampaignsEnv:
    """The environment of the campaigns world; a step is a campaign.

    Args:
        preset: ``viadeo`` (default), ``affinity``, ``growing`` or ``quick``.
        world: instead, a platform's world that is there already, or a name.
        **params: fields of :class:`recsim_mnar.worlds.campaigns.CampaignsParams` that differ from the preset's.
    """
    return _platform_env(world_of("campaigns", preset, params, world))


def campaigns_vector_env(
    num_envs: int = 1, preset: str | None = None, world: World | str | None = None, **options: Any
) -> CampaignsVectorEnv:
    """The vector environment of the campaigns world: several platforms.

    Args:
        num_envs: number of platforms.
        preset: as :func:`campaigns_env`.
        world: as :func:`campaigns_env`.
        **options: ``max_episode_steps`` and ``autoreset_mode`` of
            :class:`CampaignsVectorEnv`, or parameters of the world.
    """
    keywords = split_vector_kwargs(options)
    return _platform_vector_env(world_of("campaigns", preset, options, world), num_envs, keywords)


def _platform_vector_env(world: World, num_envs: int, keywords: dict[str, Any]) -> CampaignsVectorEnv:

    for name in ("observation", "info_size"):
        if name in keywords:
            raise UserError(f"{name}: a platform's environment has one observation and info")
    if not isinstance(world, CampaignsWorld):
        raise UserError(f"this environment is of campaigns on a platform, the {world.name} world has none")
    return CampaignsVectorEnv(world, num_envs, **keywords)


def _platform_env(world: World) -> CampaignsEnv:
    if not isinstance(world, CampaignsWorld):
        raise UserError(f"this environment is of campaigns on a platform, the {world.name} world has none")
    return CampaignsEnv(world)
