"""Gymnasium's interface to the worlds."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from recsim_mnar.campaigns.envs import CampaignsEnv, CampaignsVectorEnv
from recsim_mnar.campaigns.world import CampaignsWorld
from recsim_mnar.envs.single import WorldEnv
from recsim_mnar.envs.validation import taken, world_of
from recsim_mnar.envs.vector import WorldVectorEnv
from recsim_mnar.errors import UserError
from recsim_mnar.worlds.base import DecisionWorld, ExposureWorld, PlatformWorld, World

if TYPE_CHECKING:
    from recsim_mnar.envs.recording import record, record_vector
    from recsim_mnar.envs.slates import (
        PurchasesEnv,
        PurchasesVectorEnv,
        RankingEnv,
        RankingVectorEnv,
        record_slates,
        record_slates_vector,
    )
    from recsim_mnar.envs.wrappers import RecordLog, RecordVectorLog

_DEFINED_IN = {
    "PurchasesEnv": "slates",
    "PurchasesVectorEnv": "slates",
    "RankingEnv": "slates",
    "RankingVectorEnv": "slates",
    "RecordLog": "wrappers",
    "RecordVectorLog": "wrappers",
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
    """What records, slates and several platforms, imported when they are asked for: a first step stays quick."""
    if name in _DEFINED_IN:
        return getattr(importlib.import_module(f"{__name__}.{_DEFINED_IN[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def world_env(world: World | str, preset: str | None = None, **params: Any) -> gym.Env[Any, Any]:
    """The single environment of any world.

    Args:
        world: an object, a name, or ``package.module:Class`` of your own.
        preset: of a named world; its default where None.
        **params: keywords of :class:`WorldEnv`, or parameters of a named world that differ
            from the preset's.
    """
    return _made("", preset, world, params)


def world_vector_env(
    num_envs: int = 1, *, world: World | str, preset: str | None = None, **options: Any
) -> WorldVectorEnv | CampaignsVectorEnv:
    """The vector environment of any world; of a platform's world several platforms.

    Args:
        num_envs: number of lanes.
        world: as :func:`world_env`.
        preset: as :func:`world_env`.
        **options: keywords of :class:`WorldVectorEnv`, or parameters of a named world.
    """
    return _made("", preset, world, options, num_envs)


def sessions_env(preset: str | None = None, world: World | str | None = None, **params: Any) -> WorldEnv:
    """The single environment of the sessions world.

    Args:
        preset: ``jeunen2019``, ``recogym-v1`` (default) or ``quick``.
        world: instead, a world that is there already, or a name.
        **params: keywords of :class:`WorldEnv`, or fields of
            :class:`recsim_mnar.worlds.sessions.SessionsParams` that differ from the preset's.
    """
    return _made("sessions", preset, world, params, of=DecisionWorld)


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
    return _made("sessions", preset, world, options, num_envs, of=DecisionWorld)


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

    return _made("ratings", preset, world, params, of=DecisionWorld, revealed=OBSERVATIONS)


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

    return _made("ratings", preset, world, options, num_envs, of=DecisionWorld, revealed=OBSERVATIONS)


def campaigns_env(preset: str | None = None, world: World | str | None = None, **params: Any) -> CampaignsEnv:
    """The environment of the campaigns world; a step is a campaign.

    Args:
        preset: ``viadeo`` (default), ``affinity``, ``growing`` or ``quick``.
        world: instead, a platform's world that is there already, or a name.
        **params: ``render_mode`` of :class:`CampaignsEnv`, or fields of
            :class:`recsim_mnar.campaigns.CampaignsParams` that differ from the preset's.
    """
    return _made("campaigns", preset, world, params, of=PlatformWorld)


def campaigns_vector_env(
    num_envs: int = 1, preset: str | None = None, world: World | str | None = None, **options: Any
) -> CampaignsVectorEnv:
    """The vector environment of the campaigns world: several platforms.

    Args:
        num_envs: number of platforms.
        preset: as :func:`campaigns_env`.
        world: as :func:`campaigns_env`.
        **options: keywords of :class:`CampaignsVectorEnv`, or parameters of the world.
    """
    return _made("campaigns", preset, world, options, num_envs, of=PlatformWorld)


def purchases_env(preset: str | None = None, world: World | str | None = None, **params: Any) -> PurchasesEnv:
    """The single environment of the purchases world.

    Args:
        preset: ``personalised`` (default), ``uniform``, ``popularity`` or ``quick``.
        world: instead, a world of slates that is there already, or a name.
        **params: keywords of :class:`PurchasesEnv`, or fields of
            :class:`recsim_mnar.worlds.purchases.PurchasesParams` that differ from the preset's.
    """
    return _made("purchases", preset, world, params, of=ExposureWorld)


def purchases_vector_env(
    num_envs: int = 1, preset: str | None = None, world: World | str | None = None, **options: Any
) -> PurchasesVectorEnv:
    """The vector environment of the purchases world.

    Args:
        num_envs: number of lanes.
        preset: as :func:`purchases_env`.
        world: as :func:`purchases_env`.
        **options: keywords of :class:`PurchasesVectorEnv`, or parameters.
    """
    return _made("purchases", preset, world, options, num_envs, of=ExposureWorld)


def _made(
    name: str,
    preset: str | None,
    world: World | str | None,
    keywords: dict[str, Any],
    lanes: Any = None,
    *,
    of: type[World] | None = None,
    revealed: Collection[str] = (),
) -> Any:
    """The environment of a world, with lanes the vector one.

    Args:
        name: of the world where none is given.
        preset: its name, or None.
        world: that is given, or its name.
        keywords: of environment and world.
        lanes: number of them.
        of: the kind of world that is asked for; that of the world at hand where None.
        revealed: see ``of_world`` of :func:`recsim_mnar.envs.validation.taken`.
    """
    kinds: tuple[Any, Any] = WorldEnv, WorldVectorEnv
    asked = taken(keywords, vector=lanes is not None, of_world=revealed)
    found = world_of(name, preset, keywords, world)
    kind = of or type(found)
    if issubclass(kind, ExposureWorld):
        from recsim_mnar.envs.slates import PurchasesEnv, PurchasesVectorEnv

        kinds = PurchasesEnv, PurchasesVectorEnv
        if not isinstance(found, ExposureWorld):
            raise UserError(
                f"this environment recommends slates, the {found.name} world does not: use recsim_mnar/World-v0"
            )
    elif issubclass(kind, DecisionWorld) and found.slate_size > 1:
        from recsim_mnar.envs.slates import RankingEnv, RankingVectorEnv

        kinds = RankingEnv, RankingVectorEnv
    elif issubclass(kind, PlatformWorld):
        kinds = CampaignsEnv, CampaignsVectorEnv
        for word in ("observation", "info", "info_size"):
            if word in asked:
                raise UserError(f"{word}: an environment of platforms has one observation and info")
        if not isinstance(found, CampaignsWorld):
            raise UserError(
                f"this environment runs campaigns on a platform, which the {found.name} world does not have"
            )
    return kinds[0](found, **asked) if lanes is None else kinds[1](found, lanes, **asked)
