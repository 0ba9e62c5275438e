"""Frozen tasks: a world, its users, a horizon and reference values, fixed for good in a file of each version."""

from __future__ import annotations

import functools
import hashlib
import inspect
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log.table import Log
from recsim_mnar.policies.base import Policy
from recsim_mnar.policies.registry import learner, uniform_policy
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.items import simulate
from recsim_mnar.simulation.oracle import Oracle
from recsim_mnar.worlds.base import DecisionWorld
from recsim_mnar.worlds.checks import decision_world
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

    def make_world(self) -> DecisionWorld:
        """The task's world."""
        return decision_world(make_world(self.world, None, dict(self.params)), f"task {self.name}")

    def log(self) -> Log:
        """The task's log, for learners: ``log_users`` other users under the logging policy, without truth."""
        world = self.make_world()
        began = simulate(world, uniform_policy(world.n_items), self.log_users, derive_seed(self.seed, "task/train"))
        logger = learner(self.logging).fit(began, n_items=world.n_items, seed=derive_seed(self.seed, "task/fit"))
        return simulate(world, logger, self.log_users, derive_seed(self.seed, "task/log"))

    def reference_policy(self) -> Policy:
        """The policy whose value is a score of 1; it knows the users' states."""
        return Oracle(self.make_world(), plans=self.reference != "oracle")

    def random_policy(self) -> Policy:
        """The policy whose value is a score of 0."""
        return uniform_policy(self.make_world().n_items)


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
        **params: keywords of :class:`recsim_mnar.envs.WorldEnv`.
    """
    from gymnasium.wrappers import TimeLimit

    from recsim_mnar.envs import WorldEnv

    chosen = task(name)
    _refuse_parameters(chosen, WorldEnv, params)
    return TimeLimit(WorldEnv(chosen.make_world(), **params), chosen.horizon)


def task_vector_env(num_envs: int = 1, *, name: str, **options: Any) -> Any:
    """The vector environment of a task.

    Args:
        num_envs: number of lanes.
        name: of the task.
        **options: keywords of :class:`recsim_mnar.envs.WorldVectorEnv`.
    """
    from recsim_mnar.envs import WorldVectorEnv

    chosen = task(name)
    _refuse_parameters(chosen, WorldVectorEnv, options)
    return WorldVectorEnv(chosen.make_world(), num_envs, **{"max_episode_steps": chosen.horizon, **options})


def _refuse_parameters(chosen: Task, kind: type[Any], given: Mapping[str, Any]) -> None:
    """Raise UserError for what is no keyword of an environment: a task's parameters are frozen."""
    known = [name for name in inspect.signature(kind).parameters if name not in ("world", "num_envs")]
    for name in set(given) - set(known):  # ``observation`` is a parameter of the ratings world, too
        if name in chosen.params:
            world = f"recsim_mnar/{chosen.world.capitalize()}-v0"
            raise UserError(f"{name} is frozen in the task {chosen.name}: for other parameters make {world!r}")
        raise UserError(f"unknown keyword {name!r}; {nearest(name, known)}")
