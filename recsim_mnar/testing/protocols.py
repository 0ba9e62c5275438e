"""Rules for a user's own protocol."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, described
from recsim_mnar.policies import registry
from recsim_mnar.policies.base import Learner
from recsim_mnar.protocols.base import NEEDS, Protocol, Trial
from recsim_mnar.protocols.comparison import experiment_of
from recsim_mnar.protocols.records import Record
from recsim_mnar.testing.rules import Breach, Reasons, Rules, breaches_of, rule
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.base import DecisionWorld, Transition

SEED = 4
_WORLDS: tuple[tuple[str, tuple[str, ...], Mapping[str, Any]], ...] = (
    (
        "sessions",
        ("random", "user-popularity"),
        {"train_users": 40, "test_users": 60, "arm_users": 60, "truth_users": 60},
    ),
    ("ratings", ("random", "popularity"), {}),
    ("purchases", ("popularity", "random"), {}),
    ("campaigns", (), {}),
)
"""Worlds in which a protocol is checked, by name with agents and settings; the first that meets its needs is used.

Without agents, the world's own first two are compared.
"""

Values = dict[tuple[str, str], tuple[float, float, float]]
"""Value and interval by (agent, metric)."""
RULES: Rules = {}


@dataclass
class ProtocolCase:
    """A protocol under test.

    Attributes:
        make: function that makes a new protocol.
    """

    make: Callable[[], Any]

    @functools.cached_property
    def judged(self) -> tuple[Protocol, Trial, list[Record]]:
        """A new protocol, a new trial, and the records by which the protocol judges the trial's agents."""
        protocol = self.make()
        trial = self.trial(protocol)
        return protocol, trial, protocol.judge(trial)

    @functools.cached_property
    def values(self) -> Values:
        """Value and interval of each agent by each metric, in the records of ``judged``."""
        return _values(self.judged[2])

    def trial(self, protocol: Protocol) -> Trial:
        """Make a trial of two agents in a small world that meets the protocol's needs.

        Raises:
            UserError: no world meets them.
        """
        for name, agents, sizes in _WORLDS:
            world = make_world(name, "quick")
            experiment = experiment_of(world)
            if not set(protocol.needs) <= experiment.provides:
                continue
            known_settings = experiment.settings_type().to_dict()
            small = {key: value for key, value in sizes.items() if key in known_settings}
            settings = experiment.settings("quick", small)
            names = agents or experiment.agents[:2]
            spec_of = experiment.specs("quick", settings)  # of the names that have another meaning in this world
            learners = {agent: registry.learner(spec_of.get(agent, agent)) for agent in names}
            trial = Trial(world, learners, settings, SEED, n_items=world.n_items, level=settings.level)
            experiment.prepare(trial)
            return trial
        raise UserError(f"no world's comparison gives all that it needs: {', '.join(sorted(protocol.needs))}")

    def differences(self, again: list[Record]) -> Reasons:
        """Yield the values in ``judged`` that differ in other records of an equal trial."""
        other = _values(again)
        for key, first in self.values.items():
            values = other.get(key, (math.nan,) * 3)
            if not np.array_equal(first, values, equal_nan=True):
                yield f"{key[1]} of {key[0]} is {first[0]:.6g} and then {values[0]:.6g}"


def check_protocol(make_protocol: Callable[[], Any]) -> list[Breach]:
    """Return the rules of :data:`RULES` that a protocol breaks, an empty list if it keeps them all.

    Args:
        make_protocol: function that makes a new protocol, such as a class whose constructor needs no arguments.
    """
    return breaches_of(RULES, ProtocolCase(make_protocol), needed=("door", "judges"))


# ----------------------------------------------------------------------------------------------------------- the rules


@rule(RULES, "derive from Protocol, and set name, metrics and needs")
def door(case: ProtocolCase) -> Reasons:
    """Check that it derives from Protocol, has a name and metrics, and names only needs that exist."""
    protocol = case.make()
    if not isinstance(protocol, Protocol):
        yield f"it must derive from recsim_mnar.protocols.base.Protocol, got {protocol!r}"
        return
    if protocol.name == Protocol.name or not protocol.name:
        yield "it has no name of its own"
    if not protocol.metrics:
        yield "it names no metrics by which it ranks"
    for unknown in sorted(set(protocol.needs) - set(NEEDS)):
        yield f"it needs {unknown!r}; known: {', '.join(NEEDS)}"


@rule(RULES, "return a record for each of study.learners by each metric")
def judges(case: ProtocolCase) -> Reasons:
    """Check that ``judge`` returns each agent once by each ranking metric; references may be added."""
    protocol, trial, records = case.judged
    if not isinstance(records, list) or not all(isinstance(r, Record) for r in records):
        yield f"judge() must return a list of Records, got {type(records).__name__}"
    ranked = [(r.agent, r.metric) for r in records if protocol.ranks_by(r.metric) and not r.details.get("reference")]
    if not ranked:
        yield f"no record has one of its metrics: {', '.join(protocol.metrics)}"
    for metric in dict.fromkeys(metric for _, metric in ranked):
        judged = [agent for agent, metric_of_record in ranked if metric_of_record == metric]
        if sorted(judged) != sorted(trial.learners):
            yield f"{metric} is of {judged}, the agents are {list(trial.learners)}"


@rule(RULES, "let values be finite, and details of JSON types")
def numbers_make_sense(case: ProtocolCase) -> Reasons:
    """Check that values are finite, and details of JSON types."""
    for r in case.judged[2]:
        which = f"{r.metric} of {r.agent}"
        if not math.isfinite(r.value):
            yield f"{which} is {r.value}"
        try:
            json.dumps(r.to_dict())
        except TypeError as error:
            yield f"the details of {which} cannot be written as JSON: {error}"


@rule(RULES, "draw from study.seed_of(label) only, and keep nothing between two calls of judge()")
def same_twice(case: ProtocolCase) -> Reasons:
    """Check that the same trial gives the same values, by the same object and by another one."""
    for protocol in (case.judged[0], case.make()):
        yield from case.differences(protocol.judge(case.trial(protocol)))


@rule(RULES, "copy what you change, and let policies act through policy.fresh()")
def trial_is_left_alone(case: ProtocolCase) -> Reasons:
    """Check that it changes no log, no list of agents, and no state of the trial's policies."""
    protocol = case.make()
    trial = case.trial(protocol)
    logs = {name: getattr(trial, name) for name in ("train_log", "test_log") if getattr(trial, name) is not None}
    digests = {name: log.digest() for name, log in logs.items()}
    policies = dict(trial.policies)
    users = np.arange(50)
    for policy in policies.values():
        policy.reset(users)
        policy.observe(users, (users % trial.n_items).astype(np.int32))
    before = {name: np.array(policy.probabilities(users)) for name, policy in policies.items()}
    protocol.judge(trial)
    for name, log in logs.items():
        if log.digest() != digests[name]:
            yield f"judge() changes the {name.replace('_', ' ')}, which other protocols read"
    if list(trial.policies.items()) != list(policies.items()):
        yield "judge() changes the policies, which other protocols judge"
    for name, policy in policies.items():
        if not np.array_equal(policy.probabilities(users), before[name]):
            yield f"judge() changes what {name} does for users whom it knows"


@rule(RULES, "name all that it uses in needs")
def needs_what_it_uses(case: ProtocolCase) -> Reasons:
    """Check that logs and users that are not among its needs do not change its values.

    The protocol judges a trial without those logs, in which users answer otherwise if it does not need them.
    """
    protocol = case.make()
    trial = case.trial(protocol)
    needs = set(protocol.needs)
    if not needs & {"users", "platform"} and isinstance(trial.world, DecisionWorld):
        trial.world = _with_opposite_rewards(trial.world)
    if not needs & {"train_log", "platform"}:
        trial.train_log = None
    if needs <= {"users", "train_log"}:
        trial.test_log = None
    try:
        again = protocol.judge(trial)
    except Exception as error:  # code of the user's own may raise anything
        yield f"it needs {', '.join(sorted(needs))}, and given no more judge() raised {described(error)}"
        return
    for why in case.differences(again):
        yield f"it needs {', '.join(sorted(needs))}; {why} where users answer otherwise or another log is missing"


@rule(RULES, "start users of the log that you fitted on with policy.reset_training_users(users, users)")
def training_users_are_named(case: ProtocolCase) -> Reasons:
    """Check that users of a log on which it fits a learner are not started as new ones.

    A policy that recommends what similar users viewed would find each of them in the log, and count it as its own
    neighbour.
    """
    protocol = case.make()
    trial = case.trial(protocol)
    watched = {name: _WatchedLearner(learner) for name, learner in trial.learners.items()}
    protocol.judge(dataclasses.replace(trial, learners=watched))
    for name, learner in watched.items():
        # A few views may be those of another user by chance.
        if len(learner.begun) >= _ENOUGH and learner.begun <= learner.fitted_on:
            yield f"judge() fits {name} on a log, and starts users of that log with reset()"


# -------------------------------------------------------------------------------------------------------------- inside


_ENOUGH = 20
"""Number of views from which users are known by them."""

Views = set[tuple[int, int]]
"""Views as (user, item)."""


class _WatchedLearner(Learner):
    """A learner that keeps the views of the logs it is fitted on, and those of users whom its policies start as new.

    Args:
        learner: the learner that fits.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self.name = learner.name
        self.needs = learner.needs
        self.ignores_own_views = learner.ignores_own_views
        self.fitted_on: Views = set()
        self.begun: Views = set()

    def fit(self, log: Any, *, n_items: int, seed: int = 0) -> Any:
        """Implement :meth:`recsim_mnar.policies.base.Learner.fit`; the policy tells this learner of new users."""
        policy: Any = self._learner.fit(log, n_items=n_items, seed=seed)
        organic = log.organic()
        self.fitted_on |= set(zip(organic["user"].tolist(), organic["item"].tolist(), strict=True))
        begun = self.begun
        kind: Any = type(policy)

        class Watched(kind):
            """The policy's class, so that its copies are watched, too."""

            def reset(self, users: Any) -> None:
                super().reset(users)
                self.as_new = True

            def reset_training_users(self, users: Any, originals: Any) -> None:
                super().reset_training_users(users, originals)
                self.as_new = False

            def observe(self, users: Any, items: Any) -> None:
                super().observe(users, items)
                if self.as_new:
                    begun.update(zip(np.asarray(users).tolist(), np.asarray(items).tolist(), strict=True))
                self.as_new = False

        policy.__class__ = Watched
        policy.as_new = False
        return policy


def _values(records: list[Record]) -> Values:
    """Return the value and interval of each record by agent and metric."""
    return {(r.agent, r.metric): (r.value, r.low, r.high) for r in records}


def _with_opposite_rewards(world: DecisionWorld) -> Any:
    """Return a copy of a world in which each reward r is 1 - r, in the truth and in simulations.

    A protocol that gets the same values from both worlds does not use the users' answers.
    """
    other: Any = copy.copy(world)

    def with_opposite(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return columns of a log with each reward r replaced by 1 - r."""
        return columns | {"reward": 1.0 - columns["reward"]}

    def opposite_means(means: Callable[..., Any], *args: Any) -> Any:
        """Call a method that returns expected rewards, and return 1 minus these."""
        return 1.0 - means(*args)

    def opposite_transition(method: Callable[..., Transition], *args: Any) -> Transition:
        """Call a method of the lanes, and return its transition with opposite rewards."""
        transition = method(*args)
        return Transition(transition.starts, with_opposite(transition.columns), transition.alive)

    def open_lanes(*args: Any, **options: Any) -> Any:
        """Open lanes of the original world, whose transitions get opposite rewards."""
        lanes: Any = world.open_lanes(*args, **options)
        for name in ("begin", "take", "take_runs"):
            setattr(lanes, name, functools.partial(opposite_transition, getattr(lanes, name)))
        return lanes

    for name in ("reward_means", "reward_means_of"):
        setattr(other, name, functools.partial(opposite_means, getattr(world, name)))
    other.trajectories = lambda *args, **options: with_opposite(world.trajectories(*args, **options))
    other.open_lanes = open_lanes
    other.open_occasions = lambda *args, **options: None  # occasions would be computed without the lanes
    return other
