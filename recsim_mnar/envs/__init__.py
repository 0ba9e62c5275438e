"""Gymnasium faces of the worlds."""

from __future__ import annotations

from typing import Any

from recsim_mnar.envs.platform import CampaignsEnv
from recsim_mnar.envs.single import WorldEnv
from recsim_mnar.envs.validation import split_vector_kwargs, without_render_mode, world_of
from recsim_mnar.envs.vector import WorldVectorEnv
from recsim_mnar.errors import UserError
from recsim_mnar.worlds.base import World

__all__ = [
    "CampaignsEnv",
    "WorldEnv",
    "WorldVectorEnv",
    "campaigns_env",
    "ratings_env",
    "ratings_vector_env",
    "sessions_env",
    "sessions_vector_env",
]


def sessions_env(preset: str | None = None, **params: Any) -> WorldEnv:
    """The single environment of the sessions world.

    Args:
        preset: ``jeunen2019``, ``recogym-v1`` (default) or ``quick``.
        **params: fields of :class:`recsim_mnar.worlds.sessions.SessionsParams` that differ from the preset's.
    """
    return WorldEnv(world_of("sessions", preset, params))


def sessions_vector_env(num_envs: int = 1, preset: str | None = None, **options: Any) -> WorldVectorEnv:
    """The vector environment of the sessions world.

    Args:
        num_envs: number of lanes.
        preset: as :func:`sessions_env`.
        **options: ``max_episode_steps`` and ``autoreset_mode`` of :class:`WorldVectorEnv`, or parameters of the world.
    """
    faces = split_vector_kwargs(options)
    return WorldVectorEnv(world_of("sessions", preset, options), num_envs, **faces)


def ratings_env(preset: str | None = None, world: World | None = None, **params: Any) -> WorldEnv:
    """The single environment of the ratings world.

    Args:
        preset: ``schnabel2016``, ``mcar`` or ``quick`` (default).
        world: instead, a world that is there already, such as one of a given matrix
            (:meth:`recsim_mnar.worlds.ratings.RatingsWorld.from_matrix`).
        **params: fields of :class:`recsim_mnar.worlds.ratings.RatingsParams` that differ from the preset's.
    """
    return WorldEnv(_ratings(preset, world, params))


def ratings_vector_env(
    num_envs: int = 1, preset: str | None = None, world: World | None = None, **options: Any
) -> WorldVectorEnv:
    """The vector environment of the ratings world.

    Args:
        num_envs: number of lanes.
        preset: as :func:`ratings_env`.
        world: as :func:`ratings_env`.
        **options: ``max_episode_steps`` and ``autoreset_mode`` of :class:`WorldVectorEnv`, or parameters of the world.
    """
    faces = split_vector_kwargs(options)
    return WorldVectorEnv(_ratings(preset, world, options), num_envs, **faces)


def _ratings(preset: str | None, world: World | None, params: dict[str, Any]) -> World:
    if world is None:
        return world_of("ratings", preset, params)
    params = without_render_mode(params)
    if preset is not None or params:
        raise UserError(f"world= has its parameters already: leave {', '.join(params) or 'preset'} away")
    return world


def campaigns_env(preset: str | None = None, **params: Any) -> CampaignsEnv:
    """The environment of the campaigns world; a step is a campaign.

    Args:
        preset: ``viadeo`` (default), ``affinity``, ``growing`` or ``quick``.
        **params: fields of :class:`recsim_mnar.worlds.campaigns.CampaignsParams` that differ from the preset's.
    """
    return CampaignsEnv(world_of("campaigns", preset, params))  # type: ignore[arg-type]
