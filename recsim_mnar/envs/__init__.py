"""Gymnasium faces of the worlds."""

from __future__ import annotations

from typing import Any

from recsim_mnar.envs.campaigns import CampaignsEnv
from recsim_mnar.envs.single import WorldEnv
from recsim_mnar.envs.vector import WorldVectorEnv
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.base import World

__all__ = ["CampaignsEnv", "WorldEnv", "WorldVectorEnv", "campaigns_env", "sessions_env", "sessions_vector_env"]


def sessions_env(preset: str | None = None, **params: Any) -> WorldEnv:
    """The single environment of the sessions world.

    Args:
        preset: ``jeunen2019``, ``recogym-v1`` (default) or ``quick``.
        **params: fields of :class:`recsim_mnar.worlds.sessions.SessionsParams` that differ from the preset's.
    """
    return WorldEnv(_sessions(preset, params))


def sessions_vector_env(num_envs: int = 1, preset: str | None = None, **options: Any) -> WorldVectorEnv:
    """The vector environment of the sessions world.

    Args:
        num_envs: number of lanes.
        preset: as :func:`sessions_env`.
        **options: ``max_episode_steps`` and ``autoreset_mode`` of :class:`WorldVectorEnv`, or parameters of the world.
    """
    faces = {name: options.pop(name) for name in ("max_episode_steps", "autoreset_mode") if name in options}
    return WorldVectorEnv(_sessions(preset, options), num_envs, **faces)


def _sessions(preset: str | None, params: dict[str, Any]) -> World:
    return make_world("sessions", preset, [f"{name}={value}" for name, value in params.items()])


def campaigns_env(preset: str | None = None, **params: Any) -> CampaignsEnv:
    """The environment of the campaigns world; a step is a campaign.

    Args:
        preset: ``viadeo`` (default), ``affinity``, ``growing`` or ``quick``.
        **params: fields of :class:`recsim_mnar.worlds.campaigns.CampaignsParams` that differ from the preset's.
    """
    world = make_world("campaigns", preset, [f"{name}={value}" for name, value in params.items()])
    return CampaignsEnv(world)  # type: ignore[arg-type]
