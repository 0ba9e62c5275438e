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
from recsim_mnar.kernels.checks import whole_number
from recsim_mnar.rng import check_seed
from recsim_mnar.worlds import as_world, make_world
from recsim_mnar.worlds.base import World

Flags = NDArray[np.bool_]


class WorldSpec(EnvSpec):
    """Gymnasium's spec of an environment over a world.

    Attributes:
        bound: steps after which every episode ends, whatever wrappers ask for; None where there is no bound.
    """

    bound: int | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field; of the limits of ``max_episode_steps`` the one that comes first."""
        if name == "max_episode_steps":
            value = _first_of(value, self.bound)
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


def _first_of(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


class Specified:
    """An environment whose spec states after how many steps every episode ends, where there is a bound.

    Attributes:
        world: where users live.
        max_episode_steps: the environment's own bound, before which a life may have ended; None where it has none.
    """

    world: Any
    max_episode_steps: int | None = None
    _spec: WorldSpec | None = None

    def _set_spec(self, spec: EnvSpec | None) -> None:
        if spec is not None:
            values = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec) if field.init}
            bound = _first_of(self.max_episode_steps, self.world.most_decisions)
            values["max_episode_steps"] = _first_of(spec.max_episode_steps, bound)
            spec = WorldSpec(**values)
            spec.bound = bound
        self._spec = spec

    # Gymnasium's is an attribute, in whose place mypy wants no property.
    spec: Any = property(lambda self: self._spec, _set_spec)


def listed(items: Any) -> str:
    """Items in one line, or ``nothing``."""
    return ", ".join(map(str, items)) or "nothing"


def arrival_line(user: int, info: Mapping[str, Any]) -> str:
    """Return the line of a reset: the user and their views."""
    skipped = ""
    if "skipped" in info:
        skipped = f" (after {len(info['skipped'])} who left without a decision)"
    return f"user {user}{skipped}: viewed {listed(info['views'])}"


def step_line(
    user: int,
    step: int,
    shown: Any,
    reward: float,
    info: Mapping[str, Any],
    *,
    left: bool,
) -> str:
    """Return the line of a step: the user, items shown, reward and views."""
    items = shown if isinstance(shown, list) else [shown]
    names = listed(["(empty)" if item < 0 else item for item in items])
    events = "".join(f", {key} {listed(info[key])}" for key in ("bought", "clicked") if key in info)
    end = ", left" if left else ""
    return f"user {user}, step {step}: shown {names}, reward {reward:g}{events}, viewed {listed(info['views'])}{end}"


USER_LIMIT = 2**62
"""User ids handed in are below it, so that those of the users who come after them fit 64 bits too."""


def world_of(name: str, preset: str | None, keywords: Mapping[str, Any], world: World | str | None = None) -> World:
    """Return the world that an environment's keywords describe.

    Args:
        name: of the world where ``world`` is None.
        preset: its name, or None.
        keywords: parameters that differ.
        world: instead, one that is there already, or a name (``package.module:Class`` for one of your own).

    Raises:
        UserError: a preset or parameters next to a world that has its own.
    """
    if world is None or isinstance(world, str):
        return make_world(world or name, preset, keywords)
    if preset is not None or keywords:
        raise UserError(f"world= has its parameters already: omit {', '.join(keywords) or 'preset'}")
    return as_world(world)


class RenderModeError(UserError, TypeError):
    """Unknown render mode; also a TypeError, which libraries catch when they try one."""


def checked_render_mode(mode: Any, known: Collection[str]) -> str | None:
    """A render mode, or None.

    Raises:
        RenderModeError: the environment has no such mode.
    """
    if mode is not None and mode not in known:
        modes = "".join(f"{name!r} or " for name in known)
        raise RenderModeError(f"render_mode={mode!r}: this environment draws no pictures. Use {modes}None")
    return mode


INFOS = ("views", "counts", "none")
"""What ``info`` holds of the events since the last decision: themselves, how many there were, or nothing at all."""


def checked_info(info: Any, size: Any) -> tuple[str, int | None]:
    """Check ``info``, one of :data:`INFOS`, and return it with the length of its arrays; None for tuples.

    Raises:
        UserError: either is none that there is, or a size of what is no array.
    """
    if size is not None:
        size = whole_number(size, "info_size", 1)
    kind = "counts" if size is None else "views"
    if info is not None:
        kind = info
    if kind not in INFOS:
        raise UserError(f"info={kind!r}: {nearest(str(kind), INFOS)}")
    if size is not None and kind != "views":
        raise UserError(f"info={kind!r} and info_size={size}: only views are in arrays. Omit one of them")
    return kind, size


_ASKED = ("observation", "info", "info_size", "render_mode")
"""What environments, single and vector, are asked for besides their world."""


def keywords_of(vector: bool) -> tuple[str, ...]:
    """Keywords of environments that are no parameters of their worlds."""
    if vector:
        return ("max_episode_steps", "autoreset_mode", "copy", *_ASKED)
    return _ASKED


def split_keywords(keywords: dict[str, Any], *, vector: bool, of_world: Collection[str]) -> dict[str, Any]:
    """Remove the environment's keywords from all keywords and return them.

    Args:
        keywords: as they were given.
        vector: whether it is a vector environment.
        of_world: values of ``observation`` that are the world's parameter of that name, and stay.
    """
    names = keywords_of(vector)
    observation = keywords.get("observation")
    stays = isinstance(observation, str) and observation in of_world
    return {name: keywords.pop(name) for name in names if name in keywords and not (stays and name == "observation")}


def checked_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Return a mode of automatic resets; UserError for an unknown one."""
    try:
        return AutoresetMode(mode)
    except ValueError:
        modes = ", ".join(known.value for known in AutoresetMode)
        raise UserError(f"unknown autoreset_mode {mode!r}; known: {modes}") from None


def reset_mask(mask: Any, num_envs: int, *, whole: bool) -> Flags:
    """Lanes to reset: (num_envs,) flags, all lanes if None.

    Args:
        mask: ``options["reset_mask"]``.
        num_envs: number of lanes.
        whole: whether all of them must be.

    Raises:
        UserError: another shape or type, or no lane at all.
        ResetNeeded: lanes are left out that have not begun.
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
    """The options of a reset as a dictionary; none for None.

    Raises:
        UserError: no dictionary, or an option that the environment has not.
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
        with contextlib.suppress(TypeError):  # the check says what is no integer, as of every seed
            seed = operator.index(seed)
    return check_seed(seed)


def listed_seeds(seed: Any, which: Collection[int], num_envs: int, *, seeded: bool) -> dict[int, int] | None:
    """Seeds by lane if lanes have separate seeds; None if all share one or have none.

    Args:
        seed: as handed to ``reset``.
        which: lanes that are reset.
        num_envs: number of lanes.
        seeded: whether every lane has a seed already, which it keeps where the list says None.

    Raises:
        UserError: another number of seeds than lanes, or a lane would be left without one.
    """
    if not (isinstance(seed, (list, tuple)) or (isinstance(seed, np.ndarray) and seed.ndim)):
        return None
    seeds = [reset_seed(one) for one in seed]
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
    """Raise ResetNeeded where a step comes before a reset: of all lanes (``ended`` is None) or of one that ended."""
    if ended is None:
        raise gym.error.ResetNeeded("call reset() before step()")
    if mode is AutoresetMode.DISABLED and ended.any():
        lane = int(np.flatnonzero(ended)[0])
        raise gym.error.ResetNeeded(f"lane {lane} has ended: reset it with options={{'reset_mask': ...}}")


def first_user(options: Mapping[str, Any]) -> int | None:
    """The user that ``options`` names, if any."""
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
        raise UserError(f"an action must be an integer, got {action!r}")
    if array.shape not in ((), (1,)):
        raise UserError(f"an action must be one integer, got an array of shape {array.shape}")
    return int(array.item())


def as_array(values: Any, what: str) -> np.ndarray[Any, Any]:
    """``values`` as an array; a UserError where they have no one shape."""
    try:
        return np.asarray(values)
    except ValueError:
        raise UserError(f"{what} must be a number or an array, got {values!r}") from None


def as_numbers(values: Any, what: str) -> np.ndarray[Any, Any]:
    """``values`` as an array of real numbers."""
    array = as_array(values, what)
    if array.dtype.kind not in "biuf":
        raise UserError(f"{what} must hold numbers, got {array.dtype}")
    return array
