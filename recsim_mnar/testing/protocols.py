"""A protocol of one's own against what compare asks of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
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
    ("sessions", ("random", "popularity"), {"train_users": 40, "test_users": 60, "arm_users": 60, "truth_users": 60}),
    ("ratings", ("random", "popularity"), {}),
    ("purchases", ("popularity", "random"), {}),
    ("campaigns", (), {}),
)
"""Worlds in which a protocol is tried, the first that gives what it needs: agents, and sizes."""

Make = Callable[[], Protocol]
RULES: Rules = {}


def _trial(make: Make) -> tuple[Protocol, Trial]:
    """A new protocol and a new trial in a small world that gives what it needs.

    Raises:
        UserError: there is no such world.
    """
    protocol = make()
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
    raise UserError(f"no world's comparison gives all that it needs: {', '.join(sorted(protocol.needs))}")


def check_protocol(make_protocol: Callable[[], Any]) -> list[Breach]:
    """The rules of :data:`RULES` that a protocol breaks; an empty list where it keeps them all.

    Args:
        make_protocol: gives a new protocol; its class will do where it needs no arguments.
    """
    return breaches_of(RULES, make_protocol, needed=("door", "judges"))


# ----------------------------------------------------------------------------------------------------------- the rules


@rule(RULES, "derive from Protocol, and set name, metrics and needs")
def door(make: Make) -> Reasons:
    """It derives from Protocol, has a name and metrics, and needs what there is."""
    protocol = make()
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
def judges(make: Make) -> Reasons:
    """``judge`` gives records: each agent by each metric that is ranked by, once."""
    protocol, trial = _trial(make)
    records = protocol.judge(trial)
    if not isinstance(records, list) or not all(isinstance(r, Record) for r in records):
        yield f"judge() must return a list of Records, got {type(records).__name__}"
    ranked = [(r.agent, r.metric) for r in records if protocol.ranks_by(r.metric)]
    if not ranked:
        yield f"no record has one of its metrics: {', '.join(protocol.metrics)}"
    for metric in dict.fromkeys(metric for _, metric in ranked):
        judged = [agent for agent, of in ranked if of == metric]
        if sorted(judged) != sorted(trial.learners):
            yield f"{metric} is of {judged}, the agents are {list(trial.learners)}"


@rule(RULES, "let low <= value <= high, all finite")
def numbers_make_sense(make: Make) -> Reasons:
    """Values are finite, are in their intervals, and details are of JSON types."""
    protocol, trial = _trial(make)
    for r in protocol.judge(trial):
        which = f"{r.metric} of {r.agent}"
        if not math.isfinite(r.value):
            yield f"{which} is {r.value}"
        if not r.low <= r.value <= r.high:
            yield f"{which} is {r.value:.6g}, outside its interval {r.low:.6g} to {r.high:.6g}"
        try:
            json.dumps(r.to_dict())
        except TypeError as error:
            yield f"the details of {which} cannot be written as JSON: {error}"


@rule(RULES, "draw from study.seed_of(label) only")
def same_twice(make: Make) -> Reasons:
    """The same trial gives the same values."""
    values = []
    for _ in range(2):
        protocol, trial = _trial(make)
        values.append({(r.agent, r.metric): (r.value, r.low, r.high) for r in protocol.judge(trial)})
    for key, first in values[0].items():
        if not np.array_equal(first, values[1].get(key, (math.nan,) * 3), equal_nan=True):
            yield f"{key[1]} of {key[0]} is {first[0]:.6g} and then {values[1][key][0]:.6g}"


@rule(RULES, "copy what you change")
def trial_is_left_alone(make: Make) -> Reasons:
    """It writes in no log and takes away no agent."""
    protocol, trial = _trial(make)
    digest = None if trial.test_log is None else trial.test_log.digest()
    names = list(trial.policies)
    protocol.judge(trial)
    if trial.test_log is not None and trial.test_log.digest() != digest:
        yield "judge() changes the test log, which other protocols read"
    if list(trial.policies) != names:
        yield "judge() changes the policies, which other protocols judge"
