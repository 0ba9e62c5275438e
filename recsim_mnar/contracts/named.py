"""What ``package.module:name`` is, and the contract that it is held against."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gymnasium.vector import AutoresetMode

from recsim_mnar.contracts import estimators, policies, worlds
from recsim_mnar.contracts import protocols as protocol_rules
from recsim_mnar.contracts.estimators import check_estimator
from recsim_mnar.contracts.findings import Finding
from recsim_mnar.contracts.policies import check_policy
from recsim_mnar.contracts.protocols import check_protocol
from recsim_mnar.contracts.vector_envs import check_registered, check_vector
from recsim_mnar.contracts.worlds import check_world
from recsim_mnar.errors import UserError
from recsim_mnar.log.table import Log
from recsim_mnar.plugins import imported
from recsim_mnar.policy import registry
from recsim_mnar.policy.adapting import as_learner, binds
from recsim_mnar.policy.base import Learner, Policy
from recsim_mnar.protocols.base import Protocol, protocol
from recsim_mnar.worlds.base import DecisionWorld, World
from recsim_mnar.worlds.registry import make_world

N_ITEMS = 12
"""Of the policies that are made to be checked."""
_TRAINING_USERS = 200


@dataclass(frozen=True)
class Checked:
    """What was held against which contract.

    Attributes:
        kind: what it is: policy, world, protocol, estimator or environment.
        n_rules: how many it was held against.
        findings: those that it breaks.
        remarks: what else was seen, in sentences.
    """

    kind: str
    n_rules: int
    findings: list[Finding]
    remarks: tuple[str, ...] = ()


def check_named(spec: str) -> Checked:
    """Hold what a name stands for against the contract of its kind.

    Args:
        spec: ``package.module:name`` of a policy's or learner's class, a world's, a protocol's, or an estimator's
            function; an agent's or protocol's may be followed by ``+parameter=value``. Or an agent's announced name, or
            a Gymnasium id (``package.module:Name-v0``).

    Raises:
        UserError: nothing of that name, or something that has no contract.
    """
    name = spec.partition("+")[0].strip()
    if re.fullmatch(r".+-v\d+", name):
        findings, n_rules = check_registered(name)
        return Checked("environment", n_rules, findings)
    if ":" not in name:
        return _policy(registry.learner(spec).fit)
    found = imported("object", name)
    if inspect.isclass(found):
        if issubclass(found, World):
            return _world(spec)
        if issubclass(found, Protocol) or callable(getattr(found, "judge", None)):
            findings = check_protocol(lambda: protocol(spec))
            return Checked("protocol", len(protocol_rules.RULES), findings)
        if issubclass(found, (Policy, Learner)):
            return _policy(registry.learner(spec).fit)
        if callable(getattr(found, "fit", None)):
            return _policy(lambda log, **given: as_learner(found()).fit(log, **given))
        if callable(getattr(found, "act", None)):
            made: Any = found
            sized = {"n_items": N_ITEMS} if binds(found, (), {"n_items": N_ITEMS}) else {}
            return _policy(lambda log, **given: made(**sized))
    elif inspect.isroutine(found):
        return Checked("estimator", len(estimators.RULES), check_estimator(spec))
    raise UserError(
        f"{spec!r} is {found!r}: what can be checked is the class of a policy (act), a learner (fit), a World or a "
        "Protocol, or an estimator's function of the rows; an environment by its Gymnasium id, or a vector environment "
        "by recsim_mnar.testing.check_vector(make_vector, make_single)"
    )


def _policy(fit: Callable[..., Any]) -> Checked:
    """A learner's fit, held against the contract of what it returns; fitted where users browse and click."""
    log = _training_log()

    def make() -> Any:
        return fit(log, n_items=N_ITEMS, seed=0)

    findings = check_policy(make)
    remarks = []
    policy = make()
    if not getattr(policy, "replayable", True):
        remarks.append(f"It draws by a generator of its own: {len(policies.OF_TWINS)} of the rules are not asked.")
    return Checked("policy", len(policies.RULES), findings, tuple(remarks))


def _training_log() -> Log:
    from recsim_mnar.simulation.items import simulate

    world: Any = make_world("ratings", "quick", [f"n_items={N_ITEMS}"])
    uniform = registry.learner("random").fit(Log({}), n_items=N_ITEMS, seed=0)
    return simulate(world, uniform, _TRAINING_USERS, 1)


def _world(spec: str) -> Checked:
    from recsim_mnar.envs.single import WorldEnv
    from recsim_mnar.envs.vector import WorldVectorEnv

    def make() -> Any:
        return make_world(spec, None)

    findings = check_world(make)
    n_rules = len(worlds.RULES)
    if not findings and isinstance(make(), DecisionWorld):
        findings = check_vector(
            lambda mode: WorldVectorEnv(make(), 3, autoreset_mode=mode), lambda: WorldEnv(make()), steps=60
        )
        n_rules += len(AutoresetMode)
    return Checked("world", n_rules, findings)
