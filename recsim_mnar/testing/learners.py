"""Rules for a learner: what a fit leaves behind, and what it must cope with; its policy has rules of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.policies.base import Floats, Policy
from recsim_mnar.policies.door import as_policy
from recsim_mnar.simulation.items import simulate
from recsim_mnar.testing.policies import SEED, PolicyCase
from recsim_mnar.testing.rules import Breach, Reasons, Rules, breaches_of, rule
from recsim_mnar.worlds.registry import make_world

N_ITEMS = 12
"""Of the policies that are made to be checked."""
_TRAINING_USERS = 200

RULES: Rules = {}


@dataclass
class LearnerCase:
    """A learner under test.

    Attributes:
        fits: as :meth:`recsim_mnar.policies.base.Learner.fit`, always of the same learner.
    """

    fits: Callable[..., Any]

    def fit(self, log: Log, seed: int = 0) -> Policy:
        """A policy fitted on a log."""
        return as_policy(self.fits(log, n_items=N_ITEMS, seed=seed))

    def probabilities(self, policy: Policy) -> Floats:
        """Of users who have viewed something, checked."""
        case = PolicyCase(lambda: policy)
        return case.checked(case.begun())

    def copes(self, log: Log) -> None:
        """Raise what is wrong with a policy fitted on this log, unless the learner says that it cannot use it."""
        try:
            policy = self.fit(log)
        except UserError:
            return
        if policy.n_items != N_ITEMS:
            raise UserError(f"its policy is of {policy.n_items} items, fit() was given n_items={N_ITEMS}")
        self.probabilities(policy)


def check_learner(fits: Callable[..., Any]) -> list[Breach]:
    """The rules of :data:`RULES` that a learner breaks; an empty list where it keeps them all."""
    return breaches_of(RULES, LearnerCase(fits))


def training_log(seed: int = 1, n_items: int = N_ITEMS) -> Log:
    """A log of users who browse and click, shown items at random; in arrays of its own, which nobody else loses."""
    log = _simulated(seed, n_items)
    return log.select(np.arange(len(log)))


@functools.cache
def _simulated(seed: int, n_items: int) -> Log:
    world: Any = make_world("ratings", "quick", [f"n_items={n_items}"])
    uniform = registry.learner("random").fit(Log({}), n_items=n_items, seed=0)
    return simulate(world, uniform, _TRAINING_USERS, seed)


# ----------------------------------------------------------------------------------------------------------- the rules


@rule(RULES, "define fit(log, *, n_items, seed), which writes in no log and returns a policy")
def door(case: LearnerCase) -> None:
    """It makes a policy of a log."""
    case.fit(training_log())


@rule(RULES, "copy a column before you write in it, and draw from a generator of your own")
def log_is_left_alone(case: LearnerCase) -> Reasons:
    """``fit`` changes neither the log nor NumPy's global generator, from which others draw."""
    log = training_log()
    kept = np.random.get_state()  # noqa: NPY002  (others', given back below)
    digest = log.digest()
    np.random.seed(SEED)  # noqa: NPY002
    untouched = np.random.RandomState(SEED).random()
    case.fit(log)
    found = np.random.random()  # noqa: NPY002
    np.random.set_state(kept)  # noqa: NPY002
    if log.digest() != digest:
        yield "fit() changes the log, which other learners are fitted on"
    if found != untouched:
        yield "fit() seeds NumPy's global generator, or draws from it"


@rule(RULES, "make a new policy in each fit(), and keep nothing of it in the learner")
def a_policy_per_fit(case: LearnerCase) -> Reasons:
    """Another fit leaves an earlier policy as it is, and the same log and seed give the same policy."""
    first = case.fit(training_log())
    before = case.probabilities(first)
    case.fit(training_log(2), seed=3)
    if not first.replayable:
        return
    if not np.array_equal(case.probabilities(first), before):
        yield "a policy does something else after the learner was fitted on another log"
    if not np.array_equal(case.probabilities(case.fit(training_log())), before):
        yield "the same log and seed give another policy after a fit on another log"


@rule(RULES, "take n_items as it is given, and let items that the log never shows have a probability")
def all_items(case: LearnerCase) -> None:
    """A log that knows half of the items gives a sound policy of all of them."""
    case.copes(training_log(1, N_ITEMS // 2))


@rule(RULES, "say in a UserError what the log lacks, or do without it")
def nothing_earned(case: LearnerCase) -> None:
    """A log whose recommendations earned nothing gives a sound policy, or an error that says why not."""
    log = training_log()
    case.copes(log.with_column("reward", np.where(log.is_bandit, 0.0, log["reward"])))
