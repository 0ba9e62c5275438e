"""How a task's world is run and what each user earned: one runner per kind of world."""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.export.arrays import Decisions, decisions
from recsim_mnar.log import schema
from recsim_mnar.log.exposures import Exposures
from recsim_mnar.log.rows import user_begins, user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.policies.answers import name_of
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.door import ReadyLearner, able, as_learner, as_policy, fitted, is_softened, role_of, unwrapped
from recsim_mnar.policies.rankings import RankingPolicy
from recsim_mnar.policies.registry import learner, uniform_policy
from recsim_mnar.policies.slates import DeployedPolicy, LaterSlates, SlatePolicy, TopSlates
from recsim_mnar.policies.softening import EpsilonMixture
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.executor import carrying, run_in_order
from recsim_mnar.simulation.items import Columns, exposures_of, map_shards, simulate
from recsim_mnar.simulation.oracle import Oracle, Planner, UpliftOracle
from recsim_mnar.simulation.platform import lists_of, opened, platform_log, platform_observation, run_campaigns
from recsim_mnar.worlds.base import DecisionWorld, ExposureWorld, PlatformWorld, World, check_weights, decision_world

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
ListsOf = tuple[NDArray[np.int32], Floats]

LOG = "task/log"
"""What the seed of a task's own log is derived by."""


class Earned(NamedTuple):
    """What units earned: (n,) expected rewards and recommendations of each, and a digest of what the policy did."""

    rewards: Floats
    decisions: Floats
    behaviour: str


class Runner(abc.ABC):
    """Runs the policies of one task.

    Args:
        task: a :class:`recsim_mnar.tasks.evaluating.Task`, which knows its runner, so that its type is none here.
        number: of the training seed with which learners are fitted.

    Attributes:
        unit: what is drawn independently, over which intervals are.
        step: of a horizon.
        decides: what :attr:`Earned.decisions` count.
        earns: what a value counts.
        references: policies that know the truth, by name; they are made of the world.
        learns_from: what learners are fitted on, in words.
        measured: units over which a task freezes its random and reference values.
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
        """See the class: a slate where rankings are shown."""
        return "recommendation" if self.world.slate_size == 1 else "slate"

    @property
    def step(self) -> str:
        """See the class."""
        return self.decides

    @property
    def earns(self) -> str:
        """See the class: as the world names its rewards."""
        return self.world.reward_name.removesuffix("s") + "s"

    @property
    def learns_from(self) -> str:
        """See the class."""
        return f"{self.task.log_users:,} users under {self.task.logging}"

    @abc.abstractmethod
    def log(self) -> Log:
        """The task's log, for learners."""

    @abc.abstractmethod
    def random(self) -> Any:
        """The policy whose score is 0."""

    @abc.abstractmethod
    def taken(self, agent: Any) -> Any:
        """The policy that is judged, of what a user brings; it has a name."""

    @abc.abstractmethod
    def run(self, policy: Any, n: int, seed: int, executor: Executor | None = None) -> Earned:
        """What n units of a seed earn under a policy within the horizon."""

    def policy_of(self, agent: Any) -> Any:
        """The policy that is judged: a reference by its name, else what :meth:`taken` makes of it."""
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
        """See :meth:`Runner.log`."""
        return simulate(self.world, self.deployed(), self.task.log_users, derive_seed(self.task.seed, LOG))

    def deployed(self) -> Policy:
        """The policy of the task's log, fitted on a log of random recommendations."""
        task = self.task
        world = self.world
        began = simulate(world, self.random(), task.log_users, derive_seed(task.seed, "task/train"))
        return learner(task.logging).fit(began, n_items=world.n_items, seed=derive_seed(task.seed, "task/fit"))

    def logger(self, name: str, epsilon: float) -> Any:
        """The policy that logs a data set: of its actions a share ``epsilon`` is uniform instead.

        Where a task's own log is its data set, it is the policy of that log.
        """
        return EpsilonMixture(self.policy_of(name), epsilon) if self.task.environment else self.deployed()

    def record(
        self, policy: Any, n: int, seed: int, observation: str, executor: Executor | None = None
    ) -> tuple[Log, Decisions]:
        """What n users of a seed do under a policy within the horizon, and what the environment observes of it.

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
        """See :meth:`Runner.random`."""
        return uniform_policy(self.world.n_items)

    def taken(self, agent: Any) -> Any:
        """See :meth:`Runner.taken`: a policy as it is, or what a learner fits on the task's log."""
        if self.world.slate_size > 1 and isinstance(agent, RankingPolicy):
            return agent
        found = _learner_of(agent)
        log = Log({}) if isinstance(unwrapped(found), ReadyLearner) else self.log()
        return fitted(found, log, n_items=self.world.n_items, seed=self.fit_seed)

    def run(self, policy: Any, n: int, seed: int, executor: Executor | None = None) -> Earned:
        """See :meth:`Runner.run`."""
        if self.world.truth_column is None:
            raise UserError(f"the {self.world.name} world does not say expected rewards: a task needs them")
        worth = functools.partial(_expected, self.world.truth_column)
        size = self.world.slate_size
        earned = self._summed(worth, range(self.task.horizon * size), policy, n, seed, executor)
        return earned._replace(decisions=earned.decisions / size)

    def _summed(
        self, worth: Callable[..., Floats], counted: range, policy: Any, n: int, seed: int, executor: Executor | None
    ) -> Earned:
        """What users earn by those of their recommendations that count, each ``worth`` what that says."""
        reduce = functools.partial(_of_users, worth, counted)
        digest = hashlib.sha256()
        earned = np.zeros(n)
        decisions = np.zeros(n)
        for user, rewards, counts, done in map_shards(
            reduce, self.world, policy, n, seed, executor=executor, keep=True
        ):
            earned[user], decisions[user] = rewards, counts
            digest.update(done)
        return Earned(earned, decisions, digest.hexdigest())


class Slates(Items):
    """Users who are shown slates; a value is the purchases that slates cause, by true uplift.

    The last periods of the world's lives are those of the horizon. In those before users live under the world's own
    recommender: it is their past, from which learners know them, and which every policy observes.
    """

    world: ExposureWorld  # type: ignore[assignment]  # users of both live apart in lanes
    step = "period"
    earns = "purchases caused"
    references: ClassVar = {"oracle": UpliftOracle, "deployed": DeployedPolicy}

    @property
    def learns_from(self) -> str:
        """See :class:`Runner`."""
        return f"the users' own {self.past} periods before, under {self.task.logging}"

    @property
    def past(self) -> int:
        """Periods before those of the horizon."""
        return int(self.world.params.n_periods - self.task.horizon)

    def log(self) -> Log:
        """See :meth:`Runner.log`: the past of the public users."""
        return self._past_of(self.task.users, self.task.seed)[0]

    def _past_of(self, n: int, seed: int) -> tuple[Log, Exposures]:
        """The log, and with the propensity of what was not shown, too."""
        before = self.world.lasting(self.past)
        deployed = DeployedPolicy(before)
        log = simulate(before, deployed, n, seed)
        return log, exposures_of(before, deployed, log, n, seed)

    def random(self) -> Any:
        """See :meth:`Runner.random`: each slate as likely."""
        return TopSlates(super().random(), self.world.params)

    def taken(self, agent: Any) -> Any:
        """See :meth:`Runner.taken`: slates as a policy of slates draws them, or what ranks items."""
        return agent if isinstance(agent, SlatePolicy) else _learner_of(agent)

    def run(self, policy: Any, n: int, seed: int, executor: Executor | None = None) -> Earned:
        """See :meth:`Runner.run`; a learner is fitted on the past of these very users."""
        own = policy if isinstance(policy, SlatePolicy) else TopSlates(self._fitted(policy, n, seed), self.world.params)
        later = LaterSlates(self.world, own, self.past)
        size = self.world.params.slate_size
        rows = range(self.past * size, self.world.params.n_periods * size)
        return self._summed(functools.partial(_uplift, self.world, seed), rows, later, n, seed, executor)

    def _fitted(self, found: Learner, n: int, seed: int) -> Policy:
        if isinstance(unwrapped(found), ReadyLearner):
            return fitted(found, Log({}), n_items=self.world.n_items, seed=0)
        log, exposures = self._past_of(n, seed)
        of_exposures = able(found, "fit_exposures")
        if of_exposures is None:
            return fitted(found, log, n_items=self.world.n_items, seed=self.fit_seed)
        return as_policy(of_exposures.fit_exposures(exposures, seed=self.fit_seed))


class Platforms(Runner):
    """Whole platforms, on which each step is a campaign; a value is accepted recommendations per user of a platform."""

    world: PlatformWorld
    unit = "platform"
    step = "campaign"
    earns = "acceptances"
    measured = 2_000
    learns_from = "what the users of a platform hold on the day of each campaign"
    references: ClassVar = {
        "oracle": lambda world: Lists("oracle", _by_truth),
        "deployed": lambda world: Lists("deployed", functools.partial(_by_weights, world.deployed_weights)),
    }

    def log(self) -> Log:
        """See :meth:`Runner.log`: of one platform, by its own weights."""
        return platform_log(run_campaigns(self.world, derive_seed(self.task.seed, "task/log")))

    def random(self) -> Any:
        """See :meth:`Runner.random`."""
        return Lists("random", functools.partial(_by_weights, np.ones(self.world.n_items)))

    def taken(self, agent: Any) -> Any:
        """See :meth:`Runner.taken`: a function of the environment's observation, or what ranks items."""
        if isinstance(agent, Lists):
            return agent
        if callable(agent) and not isinstance(agent, type) and role_of(agent) is None:
            return Lists(str(getattr(agent, "__name__", name_of(agent))), functools.partial(_by_observation, agent))
        found = _learner_of(agent)
        if is_softened(found):
            raise UserError(f"agent {found.name!r}: lists are made by rank, softening would change nothing; omit it")
        return Lists(found.name, functools.partial(_by_learner, found))

    def run(self, policy: Any, n: int, seed: int, executor: Executor | None = None) -> Earned:
        """See :meth:`Runner.run`: the platforms that an environment meets after ``reset(seed=seed)``."""
        job = carrying(_of_platform, self.world, policy, self.task.horizon, in_python=True)
        seeds = (derive_seed(seed, f"platform/{number}") if number else seed for number in range(n))
        found = list(run_in_order((functools.partial(job, each) for each in seeds), executor))
        rewards, decisions, done = zip(*found, strict=True)
        return Earned(np.array(rewards), np.array(decisions), hashlib.sha256(b"".join(done)).hexdigest())


@dataclass(frozen=True)
class Lists:
    """Who makes a campaign's lists.

    Attributes:
        name: for people.
        make: ``make(platform)`` gives the lists, and the propensities of their items.
    """

    name: str
    make: Callable[[Any], ListsOf]


RUNNERS: Mapping[type[World], type[Runner]] = {DecisionWorld: Items, ExposureWorld: Slates, PlatformWorld: Platforms}
"""By the class that a world derives from."""


def runner_of(task: Any, number: int = 0) -> Runner:
    """What runs a task, with the training seed of this number."""
    world = task.make_world()
    return next(runner for kind, runner in RUNNERS.items() if isinstance(world, kind))(task, number)


def _learner_of(agent: Any) -> Learner:
    return learner(agent) if isinstance(agent, str) else as_learner(agent, name=name_of(agent))


def _of_users(worth: Callable[..., Floats], counted: range, columns: Columns) -> tuple[Ints, Floats, Floats, bytes]:
    """A shard's users who came to a decision: ids, expected rewards and recommendations that count; and a digest."""
    shown = columns["event"] == schema.BANDIT
    user = columns["user"][shown]
    action = columns["action"][shown]
    begins = np.flatnonzero(np.diff(user, prepend=-1))
    sizes = np.diff(np.append(begins, len(user)))
    number = np.arange(len(user)) - np.repeat(begins, sizes)
    counts = (number >= counted.start) & (number < counted.stop)
    place = np.repeat(np.arange(len(begins)), sizes)
    earned = worth(columns, shown, user[begins], place)
    rewards = np.bincount(place[counts], earned[counts], minlength=len(begins)).astype(np.float64)
    decisions = np.bincount(place[counts], minlength=len(begins)).astype(np.float64)
    done = hashlib.sha256(action.astype("<i4").tobytes())
    done.update(columns["propensity"][shown].astype("<f8").tobytes())
    return np.asarray(user[begins], np.int64), rewards, decisions, done.digest()


def _first_decisions(log: Log, horizon: int) -> tuple[Log, NDArray[np.int64]]:
    """Events of each user until the decision after the horizon, and the users who came to that one."""
    shown = log.is_bandit
    begins = user_starts(log["user"])
    done = np.cumsum(shown)
    number: NDArray[np.int64] = done - np.repeat((done - shown)[begins], np.diff(np.append(begins, len(log))))
    return log.select(np.flatnonzero(number <= horizon)), np.unique(log["user"][number > horizon])


def _of_ratings(log: Log, n_items: int) -> dict[str, Any]:
    """What environments of ratings observe: ratings revealed so far, 0 for none, at each decision and at the end."""
    shown = log.is_bandit
    begins = user_begins(log["user"])
    items = np.where(shown, log["action"], log["item"])
    observed: list[NDArray[np.float32]] = []
    ends: dict[int, NDArray[np.float32]] = {}
    state = np.zeros(n_items, np.float32)
    for row, user in enumerate(log["user"].tolist()):
        if begins[row]:
            state = np.zeros(n_items, np.float32)
        if shown[row]:
            observed.append(state.copy())
            ends[user] = state  # which the user's later ratings change
        if log["reward"][row] > 0:
            state[items[row]] = log["reward"][row]
    return {"context": np.stack(observed), "final": np.stack([*ends.values()])}


def _expected(truth: str, columns: Columns, shown: Flags, users: Ints, place: Ints) -> Floats:
    return np.asarray(columns[truth][shown], np.float64)


def _uplift(world: ExposureWorld, seed: int, columns: Columns, shown: Flags, users: Ints, place: Ints) -> Floats:
    return np.asarray(world.outcomes_of(seed, users).uplift[place, columns["action"][shown]], np.float64)


def _of_platform(world: PlatformWorld, policy: Lists, horizon: int, seed: int) -> tuple[float, float, bytes]:
    """Expected acceptances and recommendations per user of a platform, and a digest of its lists."""
    platform = opened(world, seed, ("acceptance",))
    done = hashlib.sha256()
    accepted = 0.0
    shown = 0
    for number, day in enumerate(world.campaign_days()[:horizon]):
        platform.advance(day)
        lists, propensities = policy.make(platform)
        campaign = platform.recommend(lists, propensities)
        chance = platform.acceptance(campaign.users, number)
        expected = np.take_along_axis(chance, np.maximum(campaign.lists, 0).astype(np.int64), axis=1)
        there = campaign.lists >= 0
        accepted = accepted + float(expected[there].sum())
        shown = shown + int(there.sum())
        done.update(campaign.lists.astype("<i4").tobytes())
        done.update(campaign.propensities.astype("<f8").tobytes())
    return accepted / world.params.n_users, shown / world.params.n_users, done.digest()


def _by_weights(weights: Floats, platform: Any) -> ListsOf:
    return cast("ListsOf", platform.draw_lists(weights))


def _by_observation(agent: Callable[[Any], Any], platform: Any) -> ListsOf:
    weights = np.asarray(agent(platform_observation(platform)), np.float64)
    if weights.shape != (platform.world.n_items,):
        raise UserError(
            f"agent {name_of(agent)!r}: a function of the observation must give weights of shape "
            f"({platform.world.n_items},), got {weights.shape}"
        )
    check_weights(weights)
    return _by_weights(weights, platform)


def _by_learner(found: Learner, platform: Any) -> ListsOf:
    """The best items not held, by what is fitted on what users hold that day."""
    return lists_of(platform, found, seed=derive_seed(platform.seed, f"campaign/{len(platform.campaigns)}"))


def _by_truth(platform: Any) -> ListsOf:
    """The items that users are most likely to accept."""
    users = platform.present()
    return cast("ListsOf", platform.best_lists(platform.acceptance(users, len(platform.campaigns)), users))
