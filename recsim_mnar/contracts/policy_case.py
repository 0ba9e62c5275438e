"""A policy under test: its users, what they have viewed, and how two of its answers are held against each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.contracts.findings import BrokenRuleError, number
from recsim_mnar.policy.acting import TOLERANCE
from recsim_mnar.policy.adapting import as_policy
from recsim_mnar.policy.base import Floats, Ints, Policy
from recsim_mnar.policy.checks import checked_decisions, checked_propensities

SEED = 20190912


def example_views(n_users: int, n_items: int, seed: int = SEED) -> list[NDArray[np.int32]]:
    """Views of users 0 .. n_users - 1: user u has viewed u items, some of them often."""
    views = []
    for user in range(n_users):
        u = rng.uniforms(seed, rng.Stream.PROTOCOL, user, np.arange(user))
        views.append(np.minimum((u * u * n_items).astype(np.int32), n_items - 1))
    return views


@dataclass
class PolicyCase:
    """A policy under test.

    Attributes:
        make_policy: a new policy without any user; fitted, where it needs to be, always to the same data.
        n_users: users in a test; user u has u views, so the first has none.
        first_user: id of the first, large enough that nothing can be an array indexed by user id.
        n_draws: decisions of the chi-square test.
        tolerance: by which two statements of one propensity may differ; 0 for the last bit.
        count: adds up the actions of one user's decisions, where that is not done by many users of the same views.
    """

    make_policy: Callable[[], Any]
    n_users: int = 7
    first_user: int = 2**40
    n_draws: int = 20_000
    tolerance: float = TOLERANCE
    count: Callable[[Policy, Ints, Floats, Floats], None] | None = None

    @property
    def users(self) -> NDArray[np.int64]:
        """(n_users,) their ids."""
        return self.first_user + np.arange(self.n_users)

    def policy(self) -> Policy:
        """A new policy."""
        return as_policy(self.make_policy())

    def begun(self, order: NDArray[np.int64] | None = None) -> Policy:
        """A new policy whose users have viewed what they view; told of them in this order."""
        policy = self.policy()
        self.tell(policy, np.arange(self.n_users) if order is None else order)
        return policy

    def tell(self, policy: Policy, which: NDArray[np.int64]) -> None:
        """Users number ``which`` begin and view what they view, in one call of ``observe``."""
        views = example_views(self.n_users, policy.n_items)
        users = self.users[which]
        policy.reset(users)
        policy.observe(
            np.repeat(users, [len(views[j]) for j in which]),
            np.concatenate([*(views[j] for j in which), np.zeros(0, np.int32)]),
        )

    def act(self, policy: Policy, users: Ints, uniforms: Floats) -> tuple[NDArray[np.int32], Floats]:
        """What it does, checked."""
        return checked_decisions(policy, policy.act(users, uniforms), n=len(users), n_items=policy.n_items)

    def far(self, one: Any, other: Any) -> NDArray[np.bool_]:
        """Where two statements differ by more than is tolerated."""
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        with np.errstate(invalid="ignore"):  # infinite scores are equal to each other
            near = np.abs(one - other) <= self.tolerance * np.maximum(1.0, np.abs(other))
        return np.asarray(~(near | (one == other)))


def who(case: PolicyCase, j: int) -> str:
    """User number j as sentences name them."""
    return f"the user of {j} views"


def agree(case: PolicyCase, policy: Policy, decision: int, when: str = "") -> None:
    """One decision of every user: ``act``, ``propensity_of`` and ``probabilities`` say the same of it."""
    u = rng.policy_uniforms(SEED, case.users, decision)
    actions, stated = case.act(policy, case.users, u)
    said = checked_propensities(policy, policy.propensity_of(case.users, actions), case.n_users)
    p = np.asarray(policy.probabilities(case.users))[np.arange(case.n_users), actions]
    for name, other in (("propensity_of()", said), ("probabilities()", p)):
        # A distribution is often made by another sum than one of its entries.
        for j in np.flatnonzero(case.far(stated, other) & (np.abs(stated - other) > 1e-12 * (other is p)))[:1]:
            raise BrokenRuleError(
                f"{when}act() states {number(stated[j])} of item {actions[j]} for {who(case, j)}, {name} says "
                f"{number(other[j])}"
            )


def same_answer(case: PolicyCase, j: int, one: Any, other: Any, when: str, than: str) -> None:
    """One decision for user number j, (1,) action and propensity, beside an action and propensity."""
    action, propensity = one
    if action[0] != other[0]:
        raise BrokenRuleError(f"{when}, {who(case, j)} gets item {action[0]}, {than} item {other[0]}")
    if case.far(propensity[0], other[1]):
        raise BrokenRuleError(
            f"{when}, the propensity of item {action[0]} for {who(case, j)} is {number(propensity[0])}, {than} "
            f"{number(other[1])}"
        )


def same_distributions(case: PolicyCase, one: Any, other: Any, what: str, than: str, first: int = 0) -> None:
    """Two (n, n_items) statements, of users from number ``first`` on."""
    for j, item in np.argwhere(case.far(one, other))[:1].tolist():
        raise BrokenRuleError(
            f"the probability of item {item} for {who(case, first + j)} is {number(float(one[j, item]))} {what}, and "
            f"{number(float(other[j, item]))} {than}"
        )
