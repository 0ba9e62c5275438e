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
"""Label from which the seed of a task's log is derived."""


class Earned(NamedTuple):
    """Rewards that a policy earns on n units, which are users or platforms.

    Attributes:
        rewards: (n,) sum of the expected rewards of each unit within the horizon.
        decisions: (n,) number of recommendations, or slates, to each unit within the horizon.
        behaviour: digest of the policy's actions.
    """

    rewards: Floats
    decisions: Floats
    behaviour: str


class Runner(abc.ABC):
    """Base of runners, which run policies on the users of one task.

    Args:
        task: a :class:`recsim_mnar.tasks.evaluating.Task`; that module imports this one, so its type is not named here.
        number: number of the training seed for learners.

    Attributes:
        unit_noun: name of the independent units over which intervals are computed, "user" or "platform".
        step_noun: name of one step of the horizon.
        decision_noun: name of what :attr:`Earned.decisions` counts.
        reward_noun: name of what a value counts.
        references: functions of the world that make policies with knowledge of the truth, by name.
        log_description: description of the log for learners.
        reference_units: number of units over which a task's random and reference values were measured.
    """

    unit_noun: ClassVar[str] = "user"
    reference_units: ClassVar[int] = 40_000
    references: ClassVar[Mapping[str, Callable[[Any], Any]]]

    def __init__(self, task: Any, number: int = 0) -> None:
        self.task = task
        self.world = cast(Any, task.make_world())
        self.fit_seed = derive_seed(task.seed, f"task/fit/{number}" if number else "task/fit")

    @property
    def decision_noun(self) -> str:
        """Return the name of a decision: a slate in worlds that show rankings."""
        if self.world.slate_size > 1:
            return "slate"
        return "recommendation"

    @property
    def step_noun(self) -> str:
        """Return the name of a step of the horizon: a decision."""
        return self.decision_noun

    @property
    def reward_noun(self) -> str:
        """Return the plural of the world's name of a reward."""
        return self.world.reward_name.removesuffix("s") + "s"

    @property
    def log_description(self) -> str:
        """Return a description of the log for learners."""
        return f"{self.task.log_users:,} users under {self.task.logging}"

    @abc.abstractmethod
    def log(self) -> Log:
        """Make the task's log for learners."""

    @abc.abstractmethod
    def random_policy(self) -> Any:
        """Make the policy with the score 0."""

    @abc.abstractmethod
    def policy_from_agent(self, agent: Any) -> Any:
        """Make the policy to evaluate from a user's agent: a policy, a learner or the name of one."""

    @abc.abstractmethod
    def run(self, policy: Any, n: int, seed: int, executor: Executor | None = None) -> Earned:
        """Run n units of a seed under a policy within the horizon, and return their rewards."""

    def policy_of(self, agent: Any) -> Any:
        """Make the policy to evaluate: a reference by its name, or the policy of a user's agent."""
        if isinstance(agent, str) and agent in self.references:
            return self.references[agent](self.world)
        return self.policy_from_agent(agent)


class DecisionRunner(Runner):
    """Runner of policies that recommend an item or a ranking at each decision of a user; the first decisions count."""

    world: DecisionWorld
    references: ClassVar = {
        "oracle": Oracle,
        "planning-oracle": functools.partial(Oracle, plans=True),
        "planner": Planner,
        "myopic": functools.partial(Planner, myopic=True),
    }

    def log(self) -> Log:
        """Implement :meth:`Runner.log`."""
        return simulate(self.world, self.fit_logging_policy(), self.task.log_users, derive_seed(self.task.seed, LOG))

    def fit_logging_policy(self) -> Policy:
        """Fit the task's logging policy on a log of random recommendations."""
        task = self.task
        world = self.world
        random_log = simulate(world, self.random_policy(), task.log_users, derive_seed(task.seed, "task/train"))
        return learner(task.logging).fit(random_log, n_items=world.n_items, seed=derive_seed(task.seed, "task/fit"))

    def dataset_policy(self, name: str, epsilon: float) -> Any:
        """Make the logging policy of a data set: the agent ``name``, with a share ``epsilon`` of uniform actions.

        The only data set of a task without an environment is the task's log, so that its logging policy is returned
        and the arguments are ignored.
        """
        if self.task.environment:
            return EpsilonMixture(self.policy_of(name), epsilon)
        return self.fit_logging_policy()

    def record(
        self, policy: Any, n: int, seed: int, observation: str, executor: Executor | None = None
    ) -> tuple[Log, Decisions]:
        """Simulate n users of a seed under a policy, and cut their log at the task's horizon.

        The log of a task without an environment is not cut, because no environment ends its episodes.

        Args:
            policy: the logging policy.
            n: number of users.
            seed: seed of the users.
            observation: form of the observations, as environments name it.
            executor: executor to spread users over.

        Returns:
            The log.
            The log's decisions with the environment's observations. The observation of a slate is the one before its
            first position. A user's last decision is marked as truncated if the horizon, not the user, ended the log.
        """
        world = decision_world(self.world, f"data set of {self.task.name}")
        log = simulate(world, policy, n, seed, executor=executor)
        cut_users = np.zeros(0, np.int64)
        if self.task.environment:
            log, cut_users = _first_decisions(log, self.task.horizon * world.slate_size)
        recorded = decisions(log, world.n_items, context=observation)
        if world.rates:
            recorded = dataclasses.replace(recorded, **_rating_observations(log, world.n_items))
        truncated = recorded.last & np.isin(recorded.user, cut_users)
        return log, dataclasses.replace(recorded, truncated=truncated)

    def random_policy(self) -> Any:
        """Implement :meth:`Runner.random_policy`."""
        return uniform_policy(self.world.n_items)

    def policy_from_agent(self, agent: Any) -> Any:
        """Implement :meth:`Runner.policy_from_agent`: fit a learner on the task's log, or return a ranking policy."""
        if self.world.slate_size > 1 and isinstance(agent, RankingPolicy):
            return agent
        learner = learner_of(agent)
        log = Log({})
        if not isinstance(unwrapped(learner), ReadyLearner):  # it needs the log, which takes time to simulate
            log = self.log()
        return fitted(learner, log, n_items=self.world.n_items, seed=self.fit_seed)

    def run(self, policy: Any, n: int, seed: int, executor: Executor | None = None) -> Earned:
        """Implement :meth:`Runner.run`."""
        if self.world.truth_column is None:
            raise UserError(f"the {self.world.name} world does not say expected rewards: a task needs them")
        expected_rewards = functools.partial(_truth_of_shown, self.world.truth_column)
        size = self.world.slate_size
        counted_rows = range(self.task.horizon * size)  # a slate has one row per item
        earned = self.sum_rewards(expected_rewards, counted_rows, policy, n, seed, executor)
        return earned._replace(decisions=earned.decisions / size)

    def sum_rewards(
        self,
        expected_rewards: Callable[..., Floats],
        counted_rows: range,
        policy: Any,
        n: int,
        seed: int,
        executor: Executor | None,
    ) -> Earned:
        """Simulate n users of a seed under a policy, and sum the expected rewards of the shown items that count.

        Args:
            expected_rewards: function with the parameters of :func:`_truth_of_shown` after the first; it returns the
                expected reward of each shown item.
            counted_rows: numbers of the rows that count, among a user's rows of shown items from 0 on.
            policy: the policy.
            n: number of users.
            seed: seed of the users.
            executor: executor to spread users over.
        """
        reduce = functools.partial(_sum_by_user, expected_rewards, counted_rows)
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
    """Make the runner that a task's world names, with the training seed numbered ``number``."""
    runner: Runner = imported("tasks' runner", task.make_world().tasks_by)(task, number)
    return runner


def learner_of(agent: Any) -> Learner:
    """Return the learner that a user names or hands in."""
    if isinstance(agent, str):
        return learner(agent)
    return as_learner(agent, name=name_of(agent))


def _sum_by_user(
    expected_rewards: Callable[..., Floats], counted_rows: range, columns: Columns
) -> tuple[Ints, Floats, Floats, bytes]:
    """Sum the expected rewards of each of the U users of a shard.

    Args:
        expected_rewards: function that returns the expected reward of each shown item.
        counted_rows: numbers of the rows that count, among a user's rows of shown items from 0 on.
        columns: columns of the shard's log, with the truth.

    Returns:
        (U,) ids of the users.
        (U,) sum of each user's expected rewards over the rows that count.
        (U,) number of each user's rows that count.
        Digest of all actions and propensities, little-endian on every machine.
    """
    decision_rows = columns["event"] == schema.BANDIT
    user = columns["user"][decision_rows]
    action = columns["action"][decision_rows]
    begins = user_starts(user)
    number = steps_within(user)
    counts = (number >= counted_rows.start) & (number < counted_rows.stop)
    place = user_numbers(user)
    earned = expected_rewards(columns, decision_rows, user[begins], place)
    rewards = np.bincount(place[counts], earned[counts], minlength=len(begins)).astype(np.float64)
    decisions = np.bincount(place[counts], minlength=len(begins)).astype(np.float64)
    digest = hashlib.sha256(action.astype("<i4").tobytes())
    digest.update(columns["propensity"][decision_rows].astype("<f8").tobytes())
    return np.asarray(user[begins], np.int64), rewards, decisions, digest.digest()


def _first_decisions(log: Log, horizon: int) -> tuple[Log, NDArray[np.int64]]:
    """Cut a log at a horizon of decision rows per user.

    Returns:
        The log with each user's rows before the first decision beyond the horizon.
        Ids of the users who were cut.
    """
    decision_rows = log.is_bandit
    begins = user_starts(log["user"])
    total = np.cumsum(decision_rows)
    # (n,) number of the user's decisions up to and including each row: the total less that of the users before.
    number: NDArray[np.int64] = total - np.repeat((total - decision_rows)[begins], np.diff(np.append(begins, len(log))))
    return log.select(np.flatnonzero(number <= horizon)), np.unique(log["user"][number > horizon])


def _rating_observations(log: Log, n_items: int) -> dict[str, Any]:
    """Compute the observations of an environment of ratings: the revealed ratings of all items, 0 for none.

    Returns:
        The fields of :class:`Decisions` to replace: ``context`` (decisions, n_items), before each decision, and
        ``final`` (users, n_items), after the last row of each user.
    """
    decision_rows = log.is_bandit
    begins = user_begins(log["user"])
    items = np.where(decision_rows, log["action"], log["item"])
    observed: list[NDArray[np.float32]] = []
    ends: dict[int, NDArray[np.float32]] = {}
    state = np.zeros(n_items, np.float32)
    for row, user in enumerate(log["user"].tolist()):
        if begins[row]:
            state = np.zeros(n_items, np.float32)  # a new array: ``ends`` still holds the previous user's
        if decision_rows[row]:
            observed.append(state.copy())
            ends[user] = state  # not a copy: the user's later ratings update it
        if log["reward"][row] > 0:
            state[items[row]] = log["reward"][row]
    return {"context": np.stack(observed), "final": np.stack([*ends.values()])}


def _truth_of_shown(truth: str, columns: Columns, shown: Flags, users: Ints, place: Ints) -> Floats:
    """Return the expected reward of each shown item from the truth column that the simulation has kept.

    Args:
        truth: name of the truth column.
        columns: columns of a shard's log.
        shown: flags of the rows of shown items.
        users: ids of the shard's users; unused here, worlds of slates need them.
        place: index in ``users`` of each shown item's user; unused here, worlds of slates need it.
    """
    return np.asarray(columns[truth][shown], np.float64)
