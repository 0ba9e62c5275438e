"""Rules about state: what may change what a policy does, and whose."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from recsim_mnar import rng
from recsim_mnar.contracts.findings import BrokenRuleError, number
from recsim_mnar.contracts.policy_case import SEED, PolicyCase, same_distributions, who
from recsim_mnar.policy.acting import reading
from recsim_mnar.policy.capabilities import learning_of


def acting_changes_nothing(case: PolicyCase) -> None:
    """Asked twice with the same uniforms it does the same, and its probabilities stay as they are."""
    policy = case.begun()
    before = policy.probabilities(case.users)
    u = rng.policy_uniforms(SEED, case.users, 0)
    first, _ = case.act(policy, case.users, u)
    again, _ = case.act(policy, case.users, u)
    for j in np.flatnonzero(first != again)[:1]:
        raise BrokenRuleError(
            f"asked twice for {who(case, j)} with the uniform {number(u[j])}, act() takes item {first[j]} and then "
            f"item {again[j]}"
        )
    same_distributions(case, before, policy.probabilities(case.users), "before act()", "after it")


def inputs_are_left_alone(case: PolicyCase) -> None:
    """No call writes in the arrays that it is given, and read-only arrays are welcome."""
    policy = case.policy()
    users, items = case.users, np.zeros(case.n_users, np.int32)
    u = rng.policy_uniforms(SEED, case.users, 0)
    reading(policy, "reset", policy.reset, users.copy())
    reading(policy, "observe", policy.observe, users.copy(), items.copy())
    actions, stated = reading(policy, "act", policy.act, users.copy(), u)
    actions = np.array(actions)
    reading(policy, "propensity_of", policy.propensity_of, users.copy(), actions.copy())
    if learning_of(policy) != "nothing":
        rewards = (np.arange(case.n_users) % 2).astype(np.float64)
        reading(policy, "learn", policy.learn, users.copy(), actions, rewards, np.array(stated))


def learns_as_declared(case: PolicyCase) -> None:
    """One that declares to learn from each user alone does for others what it did."""
    policy = case.begun()
    if learning_of(policy) != "own user":
        return
    some, others = case.users[-2:], case.users[:-2]
    before = policy.probabilities(others)
    actions, stated = case.act(policy, some, rng.policy_uniforms(SEED, some, 0))
    for _ in range(3):
        policy.learn(some, actions, np.ones(len(some)), stated)
    same_distributions(case, before, policy.probabilities(others), "before learn() of other users", "after it")


def reset_and_forget(case: PolicyCase) -> None:
    """A user who begins again, or comes back after being forgotten, is as new; others are untouched."""
    policy = case.begun()
    before = policy.probabilities(case.users)
    last, others = case.users[-1:], case.users[:-1]
    newcomer = case.policy()
    newcomer.reset(last)
    new = newcomer.probabilities(last)
    policy.reset(last)
    same_distributions(case, new, policy.probabilities(last), "for a new user", "after reset()", case.n_users - 1)
    case.tell(policy, np.array([case.n_users - 1]))
    same_distributions(case, before, policy.probabilities(case.users), "of users", "after one began again")
    policy.forget(last)
    policy.forget(last)
    same_distributions(case, before[:-1], policy.probabilities(others), "of users", "after forget() of another")
    policy.reset(last)
    same_distributions(
        case, new, policy.probabilities(last), "for a new user", "after forget() and reset()", case.n_users - 1
    )


def fresh_shares_no_user(case: PolicyCase) -> None:
    """``fresh`` gives a policy that acts the same and does not notice what happens to the first."""
    policy = case.begun()
    twin = policy.fresh()
    case.tell(twin, np.arange(case.n_users))
    before = twin.probabilities(case.users)
    same_distributions(case, policy.probabilities(case.users), before, "of the policy", "of its fresh() copy")
    policy.reset(case.users)
    policy.observe(case.users, np.zeros(case.n_users, np.int32))
    same_distributions(
        case, before, twin.probabilities(case.users), "of the fresh() copy", "after the first one's users viewed more"
    )


def copies_are_apart(case: PolicyCase) -> None:
    """A deep copy does the same for the same uniforms, and what happens to it is not noticed by the policy.

    One that cannot be copied so has a ``fresh`` of its own, which another rule looks at.
    """
    policy = case.begun()
    try:
        twin = copy.deepcopy(policy)
    except Exception:  # whatever a library's object says of it
        return
    u = rng.policy_uniforms(SEED, case.users, 0)
    actions, stated = case.act(policy, case.users, u)
    again, _ = case.act(twin, case.users, u)
    for j in np.flatnonzero(actions != again)[:1]:
        raise BrokenRuleError(
            f"asked for {who(case, j)} with the uniform {number(u[j])}, act() takes item {actions[j]}, that of a deep "
            f"copy item {again[j]}"
        )
    before = np.array(policy.probabilities(case.users))
    if learning_of(policy) != "nothing":
        for _ in range(3):
            twin.learn(case.users, actions, np.ones(case.n_users), stated)
    twin.observe(case.users, np.zeros(case.n_users, np.int32))
    twin.reset(case.users[:-1])
    same_distributions(
        case,
        before,
        policy.probabilities(case.users),
        "of the policy",
        "after a deep copy of it viewed and learned more",
    )


def answers_are_given_away(case: PolicyCase) -> None:
    """An array that it returned is the caller's: no later call changes it, nor does writing in it change the policy."""
    policy, users = case.begun(), case.users
    u, v = (rng.policy_uniforms(SEED, users, decision) for decision in range(2))

    def answers() -> dict[str, Any]:
        actions, stated = policy.act(users.copy(), u.copy())
        said = policy.propensity_of(users.copy(), np.array(actions))
        whole = policy.probabilities(users.copy())
        return {
            "act()'s actions": actions,
            "act()'s propensities": stated,
            "propensity_of()'s": said,
            "probabilities()'s": whole,
        }

    kept = {name: np.array(answer) for name, answer in answers().items()}
    again = answers()
    for name in kept:
        if isinstance(again[name], np.ndarray) and again[name].flags.writeable:  # a list is made anew
            again[name][...] = 0
            again = answers()
            if any(case.far(kept[other], again[other]).any() for other in kept):
                raise BrokenRuleError(f"{name} array was written in by its caller, and the next answers are others")
    policy.act(users.copy(), v)
    policy.propensity_of(users.copy(), np.array(again["act()'s actions"])[::-1].copy())
    policy.observe(users.copy(), np.zeros(case.n_users, np.int32))
    policy.probabilities(users.copy())
    for name in kept:
        if case.far(kept[name], again[name]).any():
            raise BrokenRuleError(f"{name} array was changed by a later call")
