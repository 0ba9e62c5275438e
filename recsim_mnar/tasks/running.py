"""Runs of a task's world and the earnings of each user: one runner per kind of world."""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.export.arrays import Decisions, decisions
from recsim_mnar.log import schema
from recsim_mnar.log.rows import steps_within, user_begins, user_numbers, user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.plugins import imported
from recsim_mnar.policies.answers import name_of
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.door import ReadyLearner, as_learner, fitted, unwrapped
from recsim_mnar.policies.rankings import RankingPolicy
from recsim_mnar.policies.registry import learner, uniform_policy
from recsim_mnar.policies.softening import EpsilonMixture
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.items import Columns, map_shards, simulate
from recsim_mnar.simulation.oracle import Oracle, Planner
from recsim_mnar.worlds.base import DecisionWorld, decision_world

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

LOG = "task/log"
"""Label of the seed of a task's log."""


class Earned(NamedTuple):
    """Earnings of units: (n,) expected rewards and recommendations of each, and a digest of the policy's actions."""

    rewards: Floats
    decisions: Floats
    behaviour: str


class Runner(abc.ABC):
    """Runs the policies of one task.

    Args:
        task: a :class:`recsim_mnar.tasks.evaluating.Task`, which knows its runner, so that its type is none here.
        number: number of the training seed for learners.

    Attributes:
        unit: name of the units that are drawn independently, and over which intervals are.
        step: name of a step of the horizon.
        decides: name of the units of :attr:`Earned.decisions`.
        earns: name of the units of a value.
        references: policies that know the truth, by name, each a function of the world.
        learns_from: description of the log for learners.
        measured: number of units over which a task freezes its random and reference values.
    """

    unit: ClassVar[str] = "user"
    measured: ClassVar[int] = 40_000
    references: ClassVar[Mapping[str, Callable[[Any], Any]]]

    def __init__(self, task: Any, number: int = 0) -> None:
        self.task = task
        self.world = cast(Any, task.make_world())
        self.fit_seed = derive_seed(task.seed, f"task/fit/{number}" if number else "task/fit")

    @property
    def decides(self) -> str:
        """Implement the class's method: a slate where rankings are shown."""
        if self.world.slate_size > 1:
            return "slate"
        return "recommendation"

    @property
    def step(self) -> str:
        """Implement the class's method."""
        return self.decides

    @property
    def earns(self) -> str:
        """Implement the class's method: rewards as the world names them."""
        return self.world.reward_name.removesuffix("s") + "s"

    @property
    def learns_from(self) -> str:
        """Implement the class's method."""
        return f"{self.task.log_users:,} users under {self.task.logging}"

    @abc.abstractmethod
    def log(self) -> Log:
        """Make the task's log for learners."""

    @abc.abstractmethod
    def random(self) -> Any:
        """Make the policy with the score 0."""

    @abc.abstractmethod
    def taken(self, agent: Any) -> Any:
        """Make the policy to evaluate from a user's agent."""

    @abc.abstractmethod
    def run(self, policy: Any, n: int, seed: int, executor: Executor | None = None) -> Earned:
        """Run n units of a seed under a policy within the horizon, and return their earnings."""

    def policy_of(self, agent: Any) -> Any:
        """Make the policy to evaluate: a reference by its name, else by :meth:`taken`."""
        if isinstance(agent, str) and agent in self.references:
            return self.references[agent](self.world)
        return self.taken(agent)


class Items(Runner):
    """Users who are recommended an item, or shown a ranking, at a time; a value is over a user's first decisions."""

    world: DecisionWorld
    references: ClassVar = {
        "oracle": Oracle,
        "planning-oracle": functools.partial(Oracle, plans=True),
        "planner": Planner,
        "myopic": functools.partial(Planner, myopic=True),
    }

    def log(self) -> Log:
        """Implement :meth:`Runner.log`."""
        return simulate(self.world, self.deployed(), self.task.log_users, derive_seed(self.task.seed, LOG))

    def deployed(self) -> Policy:
        """Fit the policy of the task's log on a log of random recommendations."""
        task = self.task
        world = self.world
        began = simulate(world, self.random(), task.log_users, derive_seed(task.seed, "task/train"))
        return learner(task.logging).fit(began, n_items=world.n_items, seed=derive_seed(task.seed, "task/fit"))

    def logger(self, name: str, epsilon: float) -> Any:
        """Make the logging policy of a data set: a share ``epsilon`` of its actions is uniform.

        If the task's log is its data set, it is the policy of that log.
        """
        if self.task.environment:
            return EpsilonMixture(self.policy_of(name), epsilon)
        return self.deployed()

    def record(
        self, policy: Any, n: int, seed: int, observation: str, executor: Executor | None = None
    ) -> tuple[Log, Decisions]:
        """Run n users of a seed under a policy within the horizon, and return the log with the observations.

        What is observed of a slate is what stands before its first place. A task's own log is whole.
        """
        world = decision_world(self.world, f"data set of {self.task.name}")
        log = simulate(world, policy, n, seed, executor=executor)
        cut = np.zeros(0, np.int64)
        if self.task.environment:
            log, cut = _first_decisions(log, self.task.horizon * world.slate_size)
        made = decisions(log, world.n_items, context=observation)
        if world.rates:
            made = dataclasses.replace(made, **_of_ratings(log, world.n_items))
        return log, dataclasses.replace(made, truncated=made.last & np.isin(made.user, cut))

    def random(self) -> Any:
        """Implement :meth:`Runner.random`."""
        return uniform_policy(self.world.n_items)

    def taken(self, agent: Any) -> Any:
        """Implement :meth:`Runner.taken`: a policy as it is, or what a learner fits on the task's log."""
        if self.world.slate_size > 1 and isinstance(agent, RankingPolicy):
            return agent
        learner = learner_of(agent)
        log = Log({})
        if not isinstance(unwrapped(learner), ReadyLearner):
            log = self.log()
        return fitted(learner, log, n_items=self.world.n_items, seed=self.fit_seed)

    def run(self, policy: Any, n: int, seed: int, executor: Executor | None = None) -> Earned:
        """Implement :meth:`Runner.run`."""
        if self.world.truth_column is None:
            raise UserError(f"the {self.world.name} world does not say expected rewards: a task needs them")
        worth = functools.partial(_expected, self.world.truth_column)
        size = self.world.slate_size
        earned = self.summed(worth, range(self.task.horizon * size), policy, n, seed, executor)
        return earned._replace(decisions=earned.decisions / size)

    def summed(
        self, worth: Callable[..., Floats], counted: range, policy: Any, n: int, seed: int, executor: Executor | None
    ) -> Earned:
        """Sum the users' earnings of the recommendations that count, each ``worth`` its own."""
        reduce = functools.partial(_of_users, worth, counted)
        digest = hashlib.sha256()
        earned = np.zeros(n)
        decisions = np.zeros(n)
        shards = map_shards(reduce, self.world, policy, n, seed, executor=executor, keep=True)
        for users, rewards, counts, actions_digest in shards:
            earned[users] = rewards
            decisions[users] = counts
            digest.update(actions_digest)
        return Earned(earned, decisions, digest.hexdigest())


def runner_of(task: Any, number: int = 0) -> Runner:
    """Make the runner of a task, with the training seed of this number."""
    runner: Runner = imported("tasks' runner", task.make_world().tasks_by)(task, number)
    return runner


def learner_of(agent: Any) -> Learner:
    """Return the learner for a user's name or object."""
    if isinstance(agent, str):
        return learner(agent)
    return as_learner(agent, name=name_of(agent))


def _of_users(worth: Callable[..., Floats], counted: range, columns: Columns) -> tuple[Ints, Floats, Floats, bytes]:
    """Return ids, expected rewards and counted recommendations of a shard's users, and a digest of the actions."""
    decision_rows = columns["event"] == schema.BANDIT
    user = columns["user"][decision_rows]
    action = columns["action"][decision_rows]
    begins = user_starts(user)
    number = steps_within(user)
    counts = (number >= counted.start) & (number < counted.stop)
    place = user_numbers(user)
    earned = worth(columns, decision_rows, user[begins], place)
    rewards = np.bincount(place[counts], earned[counts], minlength=len(begins)).astype(np.float64)
    decisions = np.bincount(place[counts], minlength=len(begins)).astype(np.float64)
    done = hashlib.sha256(action.astype("<i4").tobytes())
    done.update(columns["propensity"][decision_rows].astype("<f8").tobytes())
    return np.asarray(user[begins], np.int64), rewards, decisions, done.digest()


def _first_decisions(log: Log, horizon: int) -> tuple[Log, NDArray[np.int64]]:
    """Events of each user until the decision after the horizon, and the users who came to that one."""
    decision_rows = log.is_bandit
    begins = user_starts(log["user"])
    done = np.cumsum(decision_rows)
    number: NDArray[np.int64] = done - np.repeat((done - decision_rows)[begins], np.diff(np.append(begins, len(log))))
    return log.select(np.flatnonzero(number <= horizon)), np.unique(log["user"][number > horizon])


def _of_ratings(log: Log, n_items: int) -> dict[str, Any]:
    """Get the observations of environments of ratings.

    Ratings revealed so far, 0 for none, at each decision and at the end.
    """
    decision_rows = log.is_bandit
    begins = user_begins(log["user"])
    items = np.where(decision_rows, log["action"], log["item"])
    observed: list[NDArray[np.float32]] = []
    ends: dict[int, NDArray[np.float32]] = {}
    state = np.zeros(n_items, np.float32)
    for row, user in enumerate(log["user"].tolist()):
        if begins[row]:
            state = np.zeros(n_items, np.float32)
        if decision_rows[row]:
            observed.append(state.copy())
            ends[user] = state  # which the user's later ratings change
        if log["reward"][row] > 0:
            state[items[row]] = log["reward"][row]
    return {"context": np.stack(observed), "final": np.stack([*ends.values()])}


def _expected(truth: str, columns: Columns, shown: Flags, users: Ints, place: Ints) -> Floats:
    return np.asarray(columns[truth][shown], np.float64)
