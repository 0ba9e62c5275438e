"""A protocol of one's own against what compare asks of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.contracts.findings import BrokenRuleError, Finding, findings_of
from recsim_mnar.errors import UserError
from recsim_mnar.policy import registry
from recsim_mnar.protocols.base import NEEDS, Protocol, Trial
from recsim_mnar.protocols.comparison import experiment_of
from recsim_mnar.protocols.records import Record
from recsim_mnar.worlds import make_world

SEED = 4
_WORLDS: tuple[tuple[str, tuple[str, ...], Mapping[str, Any]], ...] = (
    ("sessions", ("random", "popularity"), {"train_users": 40, "test_users": 60, "arm_users": 60, "truth_users": 60}),
    ("ratings", ("random", "popularity"), {}),
    ("purchases", ("popularity", "random"), {}),
    ("campaigns", (), {}),
)
"""Worlds in which a protocol is tried, the first that gives what it needs: agents, and sizes."""


@dataclass
class ProtocolCase:
    """A protocol under test.

    Attributes:
        make: a new one.
    """

    make: Callable[[], Protocol]

    def trial(self) -> tuple[Protocol, Trial]:
        """A new protocol and a new trial in a small world that gives what it needs."""
        protocol = self.make()
        for name, agents, sizes in _WORLDS:
            world = make_world(name, "quick")
            experiment = experiment_of(world)
            if not set(protocol.needs) <= experiment.provides:
                continue
            known = experiment.settings_type().to_dict()
            settings = experiment.settings("quick", {key: value for key, value in sizes.items() if key in known})
            names = agents or experiment.agents[:2]
            learners = {agent: registry.learner(experiment.spec_of(agent, settings)) for agent in names}
            trial = Trial(world, learners, settings, SEED, n_items=world.n_items, level=settings.level)
            experiment.prepare(trial)
            return protocol, trial
        raise BrokenRuleError(f"no world's comparison gives all that it needs: {', '.join(sorted(protocol.needs))}")


def check_protocol(make_protocol: Callable[[], Any]) -> list[Finding]:
    """The rules of :data:`RULES` that a protocol breaks; an empty list where it keeps them all.

    Args:
        make_protocol: gives a new protocol; its class will do where it needs no arguments.
    """
    return findings_of(RULES, ProtocolCase(make_protocol), needed=frozenset({"door", "judges"}))


# ----------------------------------------------------------------------------------------------------------- the rules


def door(case: ProtocolCase) -> None:
    """It derives from Protocol, has a name and metrics, and needs what there is."""
    protocol = case.make()
    if not isinstance(protocol, Protocol):
        raise BrokenRuleError(f"it must derive from recsim_mnar.protocols.base.Protocol, got {protocol!r}")
    if protocol.name == Protocol.name or not protocol.name:
        raise BrokenRuleError("it has no name of its own")
    if not protocol.metrics:
        raise BrokenRuleError("it names no metrics by which it ranks")
    unknown = sorted(set(protocol.needs) - set(NEEDS))
    if unknown:
        raise UserError(f"it needs {unknown[0]!r}; known: {', '.join(NEEDS)}")


def judges(case: ProtocolCase) -> None:
    """``judge`` gives records: each agent by each metric that is ranked by, once."""
    protocol, trial = case.trial()
    records = protocol.judge(trial)
    if not isinstance(records, list) or not all(isinstance(r, Record) for r in records):
        raise BrokenRuleError(f"judge() must return a list of Records, got {type(records).__name__}")
    ranked = [(r.agent, r.metric) for r in records if protocol.ranks_by(r.metric)]
    if not ranked:
        raise BrokenRuleError(f"no record has one of its metrics: {', '.join(protocol.metrics)}")
    for metric in dict.fromkeys(metric for _, metric in ranked):
        judged = [agent for agent, of in ranked if of == metric]
        if sorted(judged) != sorted(trial.learners):
            raise BrokenRuleError(f"{metric} is of {judged}, the agents are {list(trial.learners)}")


def numbers_make_sense(case: ProtocolCase) -> None:
    """Values are finite, lie in their intervals, and details are of JSON types."""
    protocol, trial = case.trial()
    for r in protocol.judge(trial):
        which = f"{r.metric} of {r.agent}"
        if not math.isfinite(r.value):
            raise BrokenRuleError(f"{which} is {r.value}")
        if not r.low <= r.value <= r.high:
            raise BrokenRuleError(f"{which} is {r.value:.6g}, outside its interval {r.low:.6g} to {r.high:.6g}")
        try:
            json.dumps(r.to_dict())
        except TypeError as error:
            raise BrokenRuleError(f"the details of {which} cannot be written as JSON: {error}") from None


def same_twice(case: ProtocolCase) -> None:
    """The same trial gives the same values."""
    values = []
    for _ in range(2):
        protocol, trial = case.trial()
        values.append({(r.agent, r.metric): (r.value, r.low, r.high) for r in protocol.judge(trial)})
    for key, first in values[0].items():
        if not np.array_equal(first, values[1].get(key, (math.nan,) * 3), equal_nan=True):
            raise BrokenRuleError(f"{key[1]} of {key[0]} is {first[0]:.6g} and then {values[1][key][0]:.6g}")


def trial_is_left_alone(case: ProtocolCase) -> None:
    """It writes in no log and takes away no agent."""
    protocol, trial = case.trial()
    digest = None if trial.test_log is None else trial.test_log.digest()
    names = list(trial.policies)
    protocol.judge(trial)
    if trial.test_log is not None and trial.test_log.digest() != digest:
        raise BrokenRuleError("judge() changes the test log, which other protocols read")
    if list(trial.policies) != names:
        raise BrokenRuleError("judge() changes the policies, which other protocols judge")


RULES: dict[str, tuple[Callable[[ProtocolCase], None], str]] = {
    "door": (door, "derive from Protocol, and set name, metrics and needs"),
    "judges": (judges, "return a record for each of study.learners by each metric"),
    "numbers_make_sense": (numbers_make_sense, "let low <= value <= high, all finite"),
    "same_twice": (same_twice, "draw from study.seed_of(label) only"),
    "trial_is_left_alone": (trial_is_left_alone, "copy what you change"),
}
"""Rules by name: the function that raises where one is broken, and what to do."""
