"""Find the kind of ``package.module:name`` and check its rules; those of learners are here."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import text_of
from recsim_mnar.log.table import Log
from recsim_mnar.plugins import imported
from recsim_mnar.policies import registry
from recsim_mnar.policies.base import Floats, Learner, Policy
from recsim_mnar.policies.door import as_learner, as_policy, binds
from recsim_mnar.protocols.base import Protocol, protocol
from recsim_mnar.simulation.items import simulate
from recsim_mnar.testing import estimators, policies, protocols, worlds
from recsim_mnar.testing.environments import check_vector
from recsim_mnar.testing.policies import SEED, PolicyCase
from recsim_mnar.testing.rules import Breach, Reasons, Rules, breaches_of, rule
from recsim_mnar.worlds.base import DecisionWorld, World
from recsim_mnar.worlds.registry import make_world


@dataclass(frozen=True)
class Checked:
    """Result of a check of an object.

    Attributes:
        kind: kind of the object: policy, learner, world, protocol or estimator.
        n_rules: number of rules for this kind.
        breaches: the rules that the object breaks.
        remarks: further sentences for the user.
    """

    kind: str
    n_rules: int
    breaches: list[Breach]
    remarks: tuple[str, ...] = ()


def check_named(spec: str) -> Checked:
    """Check the object of this name by the rules of its kind.

    Args:
        spec: one of two: ``package.module:name``, the class of a policy, learner, world or protocol, or the function
            of an estimator, followed by ``+parameter=value`` for parameters of an agent or protocol; or the name of
            an installed agent.

    Raises:
        UserError: no object of this name, or one of a kind that has no rules.
    """
    name = text_of(spec, "name").partition("+")[0].strip()
    if re.fullmatch(r".+-v\d+", name):
        raise UserError(
            f"{name!r} is an environment: check it by gymnasium.utils.env_checker.check_env, and its lanes by "
            "recsim_mnar.testing.check_vector(make_vector, make_single)"
        )
    if ":" not in name:
        return _policy(registry.learner(spec).fit, learns=True)
    checked = imported("object", name)
    fit = _fit_of(spec, checked)
    if fit is not None:
        is_policy = callable(getattr(checked, "act", None))
        return _policy(fit, learns=not is_policy)
    if inspect.isroutine(checked):
        return Checked("estimator", len(estimators.RULES), estimators.check_estimator(spec))
    if inspect.isclass(checked) and issubclass(checked, World):
        return _world(spec)
    if inspect.isclass(checked) and (issubclass(checked, Protocol) or callable(getattr(checked, "judge", None))):
        return Checked("protocol", len(protocols.RULES), protocols.check_protocol(lambda: protocol(spec)))
    raise UserError(
        f"{spec!r} is {checked!r}: what can be checked is the class of a policy (act), a learner (fit), a World "
        "or a Protocol, or an estimator's function of the rows; a vector environment by "
        "recsim_mnar.testing.check_vector(make_vector, make_single)"
    )


def _fit_of(spec: str, kind: Any) -> Callable[..., Any] | None:
    """Return a function of (log, n_items, seed) that makes a policy by a class of policies or learners.

    Args:
        spec: name of the class, with its parameters.
        kind: the object of this name.

    Returns:
        the function; for a class of policies it ignores the log. None if ``kind`` is neither.
    """
    if not inspect.isclass(kind) or issubclass(kind, (World, Protocol)) or callable(getattr(kind, "judge", None)):
        return None
    if issubclass(kind, (Policy, Learner)):
        return registry.learner(spec).fit
    if callable(getattr(kind, "fit", None)):
        return lambda log, **options: as_learner(kind()).fit(log, **options)
    if not callable(getattr(kind, "act", None)):
        return None
    size = {}
    if binds(kind, (), {"n_items": N_ITEMS}):  # its constructor takes the number of items
        size = {"n_items": N_ITEMS}
    return lambda log, **options: kind(**size)


def _policy(fit: Callable[..., Any], *, learns: bool) -> Checked:
    """Check a policy, and with ``learns`` also the learner that fits it.

    Args:
        fit: function of (log, n_items, seed) that makes the policy; it gets a log of users who browse and click.
        learns: check the rules for learners first.
    """

    def make() -> Any:
        """Make a new policy, always an equal one."""
        return fit(training_log(), n_items=N_ITEMS, seed=0)

    kind = "policy"
    n_rules = len(policies.RULES)
    breaches = []
    if learns:
        kind = "learner"
        n_rules += len(LEARNER_RULES)
        breaches = check_learner(fit)
        if any(breach.rule == "door" for breach in breaches):  # it makes no policy that could be checked
            return Checked(kind, n_rules, breaches)
    breaches += policies.check_policy(make)
    remarks = []
    if not getattr(make(), "replayable", True):
        remarks.append(f"It draws from its own generator: {len(policies.TWO_OBJECT_RULES)} of the rules are skipped.")
    return Checked(kind, n_rules, breaches, tuple(remarks))


def _world(spec: str) -> Checked:
    """Check a world, and if it keeps all rules and users make decisions one by one, its vector environment."""
    from recsim_mnar.envs.single import WorldEnv
    from recsim_mnar.envs.vector import WorldVectorEnv

    def make() -> Any:
        return make_world(spec, None)

    breaches = worlds.check_world(make)
    n_rules = len(worlds.RULES)
    if not breaches and isinstance(make(), DecisionWorld):
        breaches = check_vector(
            make_vector=lambda mode: WorldVectorEnv(make(), 3, autoreset_mode=mode),
            make_single=lambda: WorldEnv(make()),
            steps=60,
        )
        n_rules += len(AutoresetMode)
    return Checked("world", n_rules, breaches)


# ---------------------------------------------------------------------------------------------------------- a learner

N_ITEMS = 12
"""Number of items of the policies that are made to be checked."""
_TRAINING_USERS = 200
"""Number of users in the logs on which learners are fitted."""

LEARNER_RULES: Rules = {}


@dataclass
class LearnerCase:
    """A learner under test.

    Attributes:
        fits: the learner's method :meth:`recsim_mnar.policies.base.Learner.fit`.
    """

    fits: Callable[..., Any]

    def fit(self, log: Log, seed: int = 0) -> Policy:
        """Fit a policy on a log."""
        return as_policy(self.fits(log, n_items=N_ITEMS, seed=seed))

    def probabilities(self, policy: Policy) -> Floats:
        """Return a policy's probabilities (n_users, n_items) for users with a few views, checked."""
        case = PolicyCase(lambda: policy)
        return case.checked_probabilities(case.policy_after_views())

    def check_fit(self, log: Log) -> None:
        """Fit a policy on a log, and raise UserError if the policy is invalid; the learner may refuse the log."""
        try:
            policy = self.fit(log)
        except UserError:
            return
        if policy.n_items != N_ITEMS:
            raise UserError(f"its policy is of {policy.n_items} items, fit() was given n_items={N_ITEMS}")
        self.probabilities(policy)


def check_learner(fits: Callable[..., Any]) -> list[Breach]:
    """Return the rules of :data:`LEARNER_RULES` that a learner breaks, an empty list if it keeps them all."""
    return breaches_of(LEARNER_RULES, LearnerCase(fits))


def training_log(seed: int = 1, n_items: int = N_ITEMS) -> Log:
    """Return a log of users who view items, and click on random recommendations or not.

    Args:
        seed: seed of the simulation.
        n_items: number of items.

    Returns:
        a log with new arrays, so that a learner that writes in them changes no other log.
    """
    log = _simulated(seed, n_items)
    return log.select(np.arange(len(log)))  # a copy: the cached log must not change


@functools.cache
def _simulated(seed: int, n_items: int) -> Log:
    """Simulate :data:`_TRAINING_USERS` users under the uniform policy, once per process for the same arguments."""
    world: Any = make_world("ratings", "quick", [f"n_items={n_items}"])
    uniform = registry.learner("random").fit(Log({}), n_items=n_items, seed=0)
    return simulate(world, uniform, _TRAINING_USERS, seed)


# ----------------------------------------------------------------------------------------------------------- the rules


@rule(LEARNER_RULES, "define fit(log, *, n_items, seed), which writes in no log and returns a policy")
def door(case: LearnerCase) -> None:
    """Check that it makes a policy from a log."""
    case.fit(training_log())


@rule(LEARNER_RULES, "copy a column before you write in it, and draw from a generator of your own")
def log_is_left_alone(case: LearnerCase) -> Reasons:
    """Check that ``fit`` changes neither the log nor NumPy's global generator."""
    log = training_log()
    state_before = np.random.get_state()  # noqa: NPY002  (the caller's, restored below)
    digest = log.digest()
    np.random.seed(SEED)  # noqa: NPY002
    expected_draw = np.random.RandomState(SEED).random()
    case.fit(log)
    draw = np.random.random()  # noqa: NPY002  (as expected only if fit() left the generator alone)
    np.random.set_state(state_before)  # noqa: NPY002
    if log.digest() != digest:
        yield "fit() changes the log, which other learners are fitted on"
    if draw != expected_draw:
        yield "fit() seeds NumPy's global generator, or draws from it"


@rule(LEARNER_RULES, "make a new policy in each fit(), and keep nothing of it in the learner")
def a_policy_per_fit(case: LearnerCase) -> Reasons:
    """Check that another fit leaves an earlier policy unchanged, and that fits are reproducible."""
    first = case.fit(training_log())
    before = case.probabilities(first)
    case.fit(training_log(2), seed=3)
    if not first.replayable:
        return
    if not np.array_equal(case.probabilities(first), before):
        yield "a policy does something else after the learner was fitted on another log"
    if not np.array_equal(case.probabilities(case.fit(training_log())), before):
        yield "the same log and seed give another policy after a fit on another log"


@rule(LEARNER_RULES, "take n_items as it is given, and let items that the log never shows have a probability")
def all_items(case: LearnerCase) -> None:
    """Check that a log with half of the items gives a valid policy of all items."""
    case.check_fit(training_log(1, N_ITEMS // 2))


@rule(LEARNER_RULES, "say in a UserError what the log lacks, or do without it")
def nothing_earned(case: LearnerCase) -> None:
    """Check that a log without rewards gives a valid policy, or a UserError."""
    log = training_log()
    case.check_fit(log.with_column("reward", np.where(log.is_bandit, 0.0, log["reward"])))
