"""What ``package.module:name`` is, and the rules of its kind."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gymnasium.vector import AutoresetMode

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import text_of
from recsim_mnar.plugins import imported
from recsim_mnar.policies import registry
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.door import as_learner, binds
from recsim_mnar.protocols.base import Protocol, protocol
from recsim_mnar.testing import estimators, learners, policies, protocols, worlds
from recsim_mnar.testing.environments import check_registered, check_vector
from recsim_mnar.testing.rules import Breach
from recsim_mnar.worlds.base import DecisionWorld, World
from recsim_mnar.worlds.registry import make_world


@dataclass(frozen=True)
class Checked:
    """What was checked, and how.

    Attributes:
        kind: policy, learner, world, protocol, estimator or environment.
        n_rules: number of its rules.
        breaches: the rules that it breaks.
        remarks: what else was seen, in sentences.
    """

    kind: str
    n_rules: int
    breaches: list[Breach]
    remarks: tuple[str, ...] = ()


def check_named(spec: str) -> Checked:
    """Check what a name stands for by the rules of its kind.

    Args:
        spec: ``package.module:name`` of a policy's or learner's class, a world's, a protocol's, or an estimator's
            function; an agent's or protocol's may be followed by ``+parameter=value``. Or an agent's announced name, or
            a Gymnasium id (``package.module:Name-v0``).

    Raises:
        UserError: nothing of that name, or something that has no rules.
    """
    name = text_of(spec, "name").partition("+")[0].strip()
    if re.fullmatch(r".+-v\d+", name):
        breaches, n_rules = check_registered(name)
        return Checked("environment", n_rules, breaches)
    found = imported("object", name) if ":" in name else None
    fit = registry.learner(spec).fit if found is None else _fit_of(spec, found)
    if fit is not None:
        return _policy(fit, learns=not callable(getattr(found, "act", None)))
    if inspect.isroutine(found):
        return Checked("estimator", len(estimators.RULES), estimators.check_estimator(spec))
    if inspect.isclass(found) and issubclass(found, World):
        return _world(spec)
    if inspect.isclass(found) and (issubclass(found, Protocol) or callable(getattr(found, "judge", None))):
        return Checked("protocol", len(protocols.RULES), protocols.check_protocol(lambda: protocol(spec)))
    raise UserError(
        f"{spec!r} is {found!r}: what can be checked is the class of a policy (act), a learner (fit), a World or a "
        "Protocol, or an estimator's function of the rows; an environment by its Gymnasium id, or a vector environment "
        "by recsim_mnar.testing.check_vector(make_vector, make_single)"
    )


def _fit_of(spec: str, found: Any) -> Callable[..., Any] | None:
    """How a class of policies or learners is fitted; None for anything else."""
    if not inspect.isclass(found) or issubclass(found, (World, Protocol)) or callable(getattr(found, "judge", None)):
        return None
    if issubclass(found, (Policy, Learner)):
        return registry.learner(spec).fit
    if callable(getattr(found, "fit", None)):
        return lambda log, **given: as_learner(found()).fit(log, **given)
    if callable(getattr(found, "act", None)):
        sized = {"n_items": learners.N_ITEMS} if binds(found, (), {"n_items": learners.N_ITEMS}) else {}
        return lambda log, **given: found(**sized)
    return None


def _policy(fit: Callable[..., Any], *, learns: bool) -> Checked:
    """A policy that is fitted where users browse and click, and what fits it."""

    def make() -> Any:
        return fit(learners.training_log(), n_items=learners.N_ITEMS, seed=0)

    breaches, n_rules = (learners.check_learner(fit), len(learners.RULES)) if learns else ([], 0)
    kind = "learner" if learns else "policy"
    n_rules = n_rules + len(policies.RULES)
    if any(breach.rule == "door" for breach in breaches):
        return Checked(kind, n_rules, breaches)
    breaches = breaches + policies.check_policy(make)
    remarks = []
    if not getattr(make(), "replayable", True):
        remarks.append(f"It draws from its own generator: {len(policies.OF_TWINS)} of the rules are skipped.")
    return Checked(kind, n_rules, breaches, tuple(remarks))


def _world(spec: str) -> Checked:
    from recsim_mnar.envs.single import WorldEnv
    from recsim_mnar.envs.vector import WorldVectorEnv

    def make() -> Any:
        return make_world(spec, None)

    breaches = worlds.check_world(make)
    n_rules = len(worlds.RULES)
    if not breaches and isinstance(make(), DecisionWorld):
        breaches = check_vector(
            lambda mode: WorldVectorEnv(make(), 3, autoreset_mode=mode), lambda: WorldEnv(make()), steps=60
        )
        n_rules += len(AutoresetMode)
    return Checked("world", n_rules, breaches)
