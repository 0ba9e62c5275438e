"""Rules for a user's own protocol."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.policies import registry
from recsim_mnar.protocols.base import NEEDS, Protocol, Trial
from recsim_mnar.protocols.comparison import experiment_of
from recsim_mnar.protocols.records import Record
from recsim_mnar.testing.rules import Breach, Reasons, Rules, breaches_of, rule
from recsim_mnar.worlds import make_world

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


def _values(records: list[Record]) -> Values:
    """Return the value and interval of each record by agent and metric."""
    return {(r.agent, r.metric): (r.value, r.low, r.high) for r in records}
