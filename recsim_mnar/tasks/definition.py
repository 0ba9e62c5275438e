"""Frozen tasks: a world, its users, a horizon and reference values, fixed for good in a file of each version."""

from __future__ import annotations

import functools
import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log.table import Log
from recsim_mnar.tasks.running import Runner, runner_of
from recsim_mnar.worlds.base import World
from recsim_mnar.worlds.params import KeywordError
from recsim_mnar.worlds.registry import make_world

FOLDER = "frozen"


@dataclass(frozen=True)
class Known:
    """A value that is frozen with a task: rewards per user within the horizon.

    Attributes:
        value: the mean over users.
        error: its standard error.
    """

    value: float
    error: float


@dataclass(frozen=True)
class Task:
    """What a policy is asked to do, and what its value is measured by; every field is frozen.

    In a world of slates a horizon is in periods. In one of platforms it is in campaigns, and ``users`` are platforms.

    Attributes:
        name: with its version, ``sessions-10-v1``.
        summary: a line for a person.
        world: name of the world.
        params: all of its parameters.
        horizon: decisions of a user that count, from the first on.
        users: of an evaluation.
        seed: of the public users.
        logging: the policy of the task's log.
        log_users: of the log.
        reference: "oracle", which takes the most at once, or "planning-oracle", which thinks of later; both know the
            users' states.
        random: the value of the uniform policy.
        best: the value of the reference.
        digest: sha256 of the task's file.
        environment: whether an agent may be trained in an environment; else from the task's log alone.
    """

    name: str
    summary: str
    world: str
    params: Mapping[str, Any] = field(repr=False)
    horizon: int
    users: int
    seed: int
    logging: str
    log_users: int
    reference: str
    random: Known
    best: Known
    digest: str = field(repr=False)
    environment: bool = True

    def make_world(self) -> World:
        """The task's world."""
        return make_world(self.world, None, dict(self.params))

    def runner(self, number: int = 0) -> Runner:
        """What runs policies of the task; learners are fitted with the training seed of this number."""
        return runner_of(self, number)

    def log(self) -> Log:
        """The task's log, for learners: other users under the logging policy, without truth."""
        return self.runner().log()

    def reference_policy(self) -> Any:
        """The policy whose value is a score of 1; it knows the users' states."""
        return self.runner().policy_of(self.reference)

    def random_policy(self) -> Any:
        """The policy whose value is a score of 0."""
        return self.runner().random()


def tasks() -> list[str]:
    """Names of all tasks."""
    found = resources.files(__package__).joinpath(FOLDER).iterdir()
    return sorted(each.name.removesuffix(".toml") for each in found if each.name.endswith(".toml"))


@functools.cache
def task(name: str) -> Task:
    """The task of a name, ``sessions-10-v1``.

    Raises:
        UserError: there is none of this name.
    """
    if not isinstance(name, str) or name not in tasks():
        raise UserError(f"unknown task {name!r}; {nearest(str(name), tasks())}")
    content = resources.files(__package__).joinpath(FOLDER, f"{name}.toml").read_bytes()
    held: dict[str, Any] = tomllib.loads(content.decode())
    known = {which: Known(**held.pop(which)) for which in ("random", "best")}
    digest = hashlib.sha256(content).hexdigest()
    return Task(name=name, digest=digest, random=known["random"], best=known["best"], **held)


def task_env(name: str, **params: Any) -> Any:
    """The single environment of a task, of which an episode ends with the horizon.

    Args:
        name: of the task.
        **params: keywords of the environment: of :class:`recsim_mnar.envs.WorldEnv`, say. ``observation`` is view
            counts unless given; in ``fatigue-50-v1``, where what was shown decides, give ``shown=0.9``.
    """
    from gymnasium.wrappers import TimeLimit

    from recsim_mnar.envs import world_env

    chosen = task(name)
    world = _world_of_env(chosen, params, vector=False)
    env: Any = world_env(world, **params)
    env.unwrapped.max_episode_steps = chosen.horizon  # what its spec says, whatever limit gymnasium.make adds
    return env if world.most_decisions == chosen.horizon else TimeLimit(env, chosen.horizon)


def task_vector_env(num_envs: int = 1, *, name: str, **options: Any) -> Any:
    """The vector environment of a task, of which episodes end with the horizon.

    Args:
        num_envs: number of lanes.
        name: of the task.
        **options: keywords of the environment: of :class:`recsim_mnar.envs.WorldVectorEnv`, say.

    Raises:
        UserError: ``max_episode_steps`` is beyond the horizon, which is frozen.
    """
    from recsim_mnar.envs import world_vector_env
    from recsim_mnar.envs.validation import checked_count

    chosen = task(name)
    world = _world_of_env(chosen, options, vector=True)
    asked = options.pop("max_episode_steps", None)
    steps = chosen.horizon if asked is None else checked_count("max_episode_steps", asked)
    if steps > chosen.horizon:
        raise UserError(
            f"max_episode_steps={steps}: the horizon of the task {name}, {chosen.horizon}, is frozen. Give at most that"
        )
    return world_vector_env(num_envs, world=world, max_episode_steps=steps, **options)


def _world_of_env(chosen: Task, given: Mapping[str, Any], *, vector: bool) -> World:
    """The world of a task's environment.

    Raises:
        UserError: a keyword is a parameter of the world, which is frozen, or none; or there is no environment.
    """
    from recsim_mnar.envs.validation import keywords_of

    if not chosen.environment:
        raise UserError(
            f"the task {chosen.name} has no environment: it is learned from its log alone, "
            f"recsim_mnar.task({chosen.name!r}).log()"
        )
    for name in set(given) - set(keywords_of(vector)):  # ``observation`` is a parameter of the ratings world, too
        if name in chosen.params:
            world = f"recsim_mnar/{chosen.world.capitalize()}-v0"
            raise UserError(f"{name} is frozen in the task {chosen.name}: for other parameters make {world!r}")
        raise KeywordError.of(name, keywords_of(vector))
    return chosen.make_world()
