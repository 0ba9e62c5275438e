"""Checks of a caller's arguments to an environment: ids, keywords, options of a reset, an action."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import operator
from collections.abc import Collection, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.rng import check_seed
from recsim_mnar.worlds import as_world, make_world
from recsim_mnar.worlds.base import World

Flags = NDArray[np.bool_]


class WorldSpec(EnvSpec):
    """Gymnasium's specification of an environment over a world.

    Attributes:
        bound: largest number of steps of an episode, whatever limit wrappers set; None if episodes are unbounded.
    """

    bound: int | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field; ``max_episode_steps`` is limited to the bound."""
        if name == "max_episode_steps":
            value = _smallest_limit(value, self.bound)
        super().__setattr__(name, value)

    def to_json(self) -> str:
        """Implement :meth:`gymnasium.envs.registration.EnvSpec.to_json`.

        Raises:
            UserError: a keyword's value is an object, such as a world.
        """
        for name, value in self.kwargs.items():
            try:
                json.dumps(value)
            except (TypeError, ValueError):
                raise UserError(
                    f"spec.to_json: {name}= is a {type(value).__name__}, which JSON cannot hold. "
                    "Make the environment from names and numbers, as gymnasium.make(id, preset='quick', n_items=50)"
                ) from None
        return super().to_json()


def _smallest_limit(*limits: int | None) -> int | None:
    """Return the smallest of several limits, of which None is none; None if all are."""
    return min((limit for limit in limits if limit is not None), default=None)


class Specified:
    """Base of environments whose Gymnasium spec states the largest number of steps of an episode.

    Attributes:
        world: world of the users.
        max_episode_steps: the environment's own limit; None if only the user's departure ends an episode.
    """

    world: Any
    max_episode_steps: int | None = None
    _spec: WorldSpec | None = None

    def _set_spec(self, spec: EnvSpec | None) -> None:
        """Store Gymnasium's spec as a :class:`WorldSpec`, with the episode's bound as its limit of steps."""
        if spec is not None:
            values = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec) if field.init}
            bound = _smallest_limit(self.max_episode_steps, self.world.most_decisions)
            values["max_episode_steps"] = _smallest_limit(spec.max_episode_steps, bound)
            spec = WorldSpec(**values)
            spec.bound = bound
        self._spec = spec

    # Not a decorator: Gymnasium declares an attribute, which mypy does not let a property override.
    spec: Any = property(lambda self: self._spec, _set_spec)


USER_LIMIT = 2**62
"""Bound on the id of a first user: the ids of all users who come after stay within 64 bits."""


def world_of(world: World | str, preset: str | None, keywords: Mapping[str, Any]) -> World:
    """Return the world that an environment's keywords describe.

    Args:
        world: an existing world, a name, or ``package.module:Class``.
        preset: name of a preset; None for the world's default.
        keywords: parameters that differ from the preset's.

    Raises:
        UserError: a preset or parameters are given with an existing world, which has its own.
    """
    if isinstance(world, str):
        return make_world(world, preset, keywords)
    if preset is not None or keywords:
        raise UserError(f"world= has its parameters already: omit {', '.join(keywords) or 'preset'}")
    return as_world(world)


class RenderModeError(UserError, TypeError):
    """Error for an unknown render mode; also a TypeError, which libraries that try out render modes catch."""


def refuse_render_mode(mode: Any) -> None:
    """Raise RenderModeError if a render mode is asked for."""
    if mode is not None:
        raise RenderModeError(f"render_mode={mode!r}: environments draw nothing. Use None")


INFOS = ("views", "counts", "none")
"""Contents of ``info`` about events since the last decision: the events, their numbers, or nothing."""


def checked_info(info: Any) -> str:
    """Return the keyword ``info`` of an environment, one of :data:`INFOS`: "counts" if it is None.

    Raises:
        UserError: it is unknown.
    """
    if info is None:
        return "counts"
    if info not in INFOS:
        raise UserError(f"info={info!r}: {nearest(str(info), INFOS)}")
    return info


_COMMON_KEYWORDS = ("observation", "info", "render_mode")
"""Keywords of single and vector environments besides the world."""


def keywords_of(vector: bool) -> tuple[str, ...]:
    """Return the keywords of a single or a vector environment that are not parameters of its world."""
    if vector:
        return ("max_episode_steps", "autoreset_mode", "copy", *_COMMON_KEYWORDS)
    return _COMMON_KEYWORDS


def split_keywords(keywords: dict[str, Any], *, vector: bool, of_world: Collection[str]) -> dict[str, Any]:
    """Remove the environment's keywords from ``keywords`` and return them; the world's parameters remain there.

    Args:
        keywords: keywords of the environment and parameters of its world, mixed; changed in place.
        vector: True for a vector environment.
        of_world: values of ``observation`` by which it is the world's parameter of that name.
    """
    names = [name for name in keywords_of(vector) if name in keywords]
    observation = keywords.get("observation")
    if isinstance(observation, str) and observation in of_world:
        names.remove("observation")
    return {name: keywords.pop(name) for name in names}


def checked_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Return Gymnasium's mode of automatic resets for a mode or its value; raise UserError for an unknown one."""
    try:
        return AutoresetMode(mode)
    except ValueError:
        modes = ", ".join(known.value for known in AutoresetMode)
        raise UserError(f"unknown autoreset_mode {mode!r}; known: {modes}") from None


def reset_mask(mask: Any, num_envs: int, *, whole: bool) -> Flags:
    """Return flags (num_envs,) of the lanes to reset.

    Args:
        mask: ``options["reset_mask"]``; None for all lanes.
        num_envs: number of lanes.
        whole: True if every lane must be reset, because none has begun.

    Raises:
        UserError: the mask has another shape or type, or names no lane.
        ResetNeeded: the mask omits lanes that have not begun.
    """
    if mask is None:
        return np.ones(num_envs, np.bool_)
    mask = as_array(mask, "options['reset_mask']")
    if mask.shape != (num_envs,) or mask.dtype != np.bool_ or not mask.any():
        raise UserError(
            f"options['reset_mask'] must be a boolean array of shape ({num_envs},) with a True in it, "
            f"got {mask.dtype} of shape {mask.shape}"
        )
    if whole and not mask.all():
        raise gym.error.ResetNeeded("the first reset() must reset every lane")
    return mask


def checked_options(options: Any, known: Collection[str]) -> dict[str, Any]:
    """Return a new dictionary of a reset's options, empty for None.

    Raises:
        UserError: it is not a dictionary, or the environment does not know an option.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise UserError(f"options must be a dictionary or None, got {options!r}")
    for name in options:
        if name not in known:
            hint = "this environment takes none"
            if known:
                hint = nearest(str(name), known)
            raise UserError(f"options: unknown option {name!r}; {hint}")
    return dict(options)


def reset_seed(seed: Any) -> int | None:
    """Return the seed of a reset as an int, or None; integers of any library are accepted.

    Raises:
        UserError: it is no integer in [0, 2**64).
    """
    if seed is None:
        return None
    if not isinstance(seed, (bool, np.bool_)):
        with contextlib.suppress(TypeError):  # check_seed reports whatever is not an integer
            seed = operator.index(seed)
    return check_seed(seed)


def listed_seeds(seed: Any, which: Collection[int], num_envs: int, *, seeded: bool) -> dict[int, int] | None:
    """Return the seeds of lanes from a list of seeds; None if ``seed`` is not a list.

    Args:
        seed: ``seed`` of a vector environment's ``reset``.
        which: lanes that are reset.
        num_envs: number of lanes.
        seeded: True if every lane has a seed already, which it keeps if the list holds None for it.

    Raises:
        UserError: the list does not have one entry per lane, or a lane would have no seed.
    """
    if not (isinstance(seed, (list, tuple)) or (isinstance(seed, np.ndarray) and seed.ndim)):
        return None
    seeds = [reset_seed(lane_seed) for lane_seed in seed]
    if len(seeds) != num_envs:
        raise UserError(f"a list of seeds must have one for each of {num_envs} lanes, got {len(seeds)}")
    seeds_by_lane = {}
    for lane in which:
        lane_seed = seeds[lane]
        if lane_seed is not None:
            seeds_by_lane[int(lane)] = lane_seed
    if len(seeds_by_lane) < len(which) and not seeded:
        raise UserError("a list of seeds with None in it needs an earlier reset with a seed for those lanes")
    return seeds_by_lane


def check_ready(mode: AutoresetMode, ended: Flags | None) -> None:
    """Raise ResetNeeded if a vector environment cannot step before a reset.

    Args:
        mode: mode of automatic resets; without them, ended lanes need a reset.
        ended: flags of ended lanes; None if the environment was never reset or is closed.
    """
    if ended is None:
        raise gym.error.ResetNeeded("call reset() before step()")
    if mode is AutoresetMode.DISABLED and ended.any():
        lane = int(np.flatnonzero(ended)[0])
        raise gym.error.ResetNeeded(f"lane {lane} has ended: reset it with options={{'reset_mask': ...}}")


def first_user(options: Mapping[str, Any]) -> int | None:
    """Return the user id in the options of a reset; None if there is none. Raise UserError for any other value."""
    user = options.get("user")
    if user is None:
        return None
    if isinstance(user, (bool, np.bool_)) or not isinstance(user, (int, np.integer)) or not 0 <= user < USER_LIMIT:
        raise UserError(f"options['user'] must be a whole number in [0, 2**62), got {user!r}")
    return int(user)


def one_integer(action: Any) -> int:
    """Convert an action of another integer type, or an array of shape () or (1,), to a plain integer."""
    array = as_array(action, "an action")
    if not np.issubdtype(array.dtype, np.integer):
        got = f"{action!r}"
        if array.ndim:
            got = f"{array.dtype} of shape {array.shape}"
        raise UserError(f"an action must be an integer, got {got}")
    if array.shape not in ((), (1,)):
        raise UserError(f"an action must be one integer, got an array of shape {array.shape}")
    return int(array.item())


def as_array(values: Any, what: str) -> np.ndarray[Any, Any]:
    """Convert values to an array; raise a UserError that names them ``what`` if they have no common shape."""
    try:
        return np.asarray(values)
    except ValueError:
        raise UserError(f"{what} must be a number or an array, got {values!r}") from None


def as_numbers(values: Any, what: str) -> np.ndarray[Any, Any]:
    """Convert values to an array of real numbers; raise a UserError that names them ``what`` if they are not."""
    array = as_array(values, what)
    if array.dtype.kind not in "biuf":
        raise UserError(f"{what} must hold numbers, got {array.dtype}")
    return array
