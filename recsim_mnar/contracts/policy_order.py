"""Rules about who is asked when: alone, among others, in another order, several times in one call."""

from __future__ import annotations

import numpy as np

from recsim_mnar import rng
from recsim_mnar.contracts.findings import BrokenRuleError
from recsim_mnar.contracts.policy_case import SEED, PolicyCase, example_views, same_answer, who
from recsim_mnar.policy.adapting import scores_of
from recsim_mnar.policy.base import observe_events
from recsim_mnar.policy.capabilities import learning_of
from recsim_mnar.policy.checks import checked_distribution


def one_user_at_a_time(case: PolicyCase) -> None:
    """Users alone get the actions, propensities and scores that they get together."""
    together = case.begun()
    u = rng.policy_uniforms(SEED, case.users, 0)
    actions, stated = case.act(together, case.users, u)
    scores = scores_of(together, case.users)
    alone = case.policy()
    views = example_views(case.n_users, together.n_items)
    for j in range(case.n_users):
        user = case.users[j : j + 1]
        alone.reset(user)
        for item in views[j]:
            alone.observe(user, np.array([item], np.int32))
            case.act(alone, user, u[j : j + 1])  # looking must not change what comes after
        same_answer(case, j, case.act(alone, user, u[j : j + 1]), (actions[j], stated[j]), "alone", "among others")
        if case.far(scores_of(alone, user)[0], scores[j]).any():
            raise BrokenRuleError(f"scores() of {who(case, j)} are others alone than among others")


def order_within_a_batch(case: PolicyCase) -> None:
    """In whatever order users stand in a call, and are told of, each gets the same."""
    policy = case.begun()
    u = rng.policy_uniforms(SEED, case.users, 0)
    actions, stated = case.act(policy, case.users, u)
    order = np.argsort(rng.uniforms(SEED, rng.Stream.PROTOCOL, case.users, 10**6))
    for other, words in ((policy, "asked in another order"), (case.begun(order), "told of in another order")):
        again, stated_again = case.act(other, case.users[order], u[order])
        for k, j in enumerate(order.tolist()):
            same_answer(case, j, (again[k : k + 1], stated_again[k : k + 1]), (actions[j], stated[j]), words, "before")


def runs_of_decisions(case: PolicyCase) -> None:
    """With ``batches_decisions``, several decisions for a user in one call are as in several calls."""
    policy = case.begun()
    if not policy.batches_decisions:
        return
    if learning_of(policy) != "nothing":
        raise BrokenRuleError("it states batches_decisions and learns: between two decisions it must be told")
    runs = 1 + np.arange(case.n_users) % 4
    place = np.repeat(np.arange(case.n_users), runs)
    u = rng.policy_uniforms(SEED, case.users[place], np.concatenate([np.arange(n) for n in runs]))
    actions, stated = case.act(policy, case.users[place], u)
    for k, j in enumerate(place.tolist()):
        one = case.act(policy, case.users[j : j + 1], u[k : k + 1])
        same_answer(case, j, one, (actions[k], stated[k]), "in a call of its own", "several times in one call")


def ratings_one_user_at_a_time(case: PolicyCase) -> None:
    """Ratings told of all users together or one by one lead to the same actions."""
    together = case.policy()
    views = example_views(case.n_users, together.n_items)
    u = rng.policy_uniforms(SEED, case.users, 0)
    together.reset(case.users)
    owners, items = np.repeat(case.users, [len(v) for v in views]), np.concatenate([*views, np.zeros(0, np.int32)])
    observe_events(together, owners, items, 1.0 + (items % 5))
    actions, stated = case.act(together, case.users, u)
    checked_distribution(together, together.probabilities(case.users), together.n_items, n=case.n_users)
    scores = scores_of(together, case.users)
    alone = case.policy()
    for j in range(case.n_users):
        user = case.users[j : j + 1]
        alone.reset(user)
        for item in views[j]:
            observe_events(alone, user, np.array([item], np.int32), np.array([1.0 + item % 5]))
        one = case.act(alone, user, u[j : j + 1])
        same_answer(case, j, one, (actions[j], stated[j]), "told of ratings one by one", "together")
        if case.far(scores_of(alone, user)[0], scores[j]).any():
            raise BrokenRuleError(f"scores() of {who(case, j)} depend on whether ratings are told one by one")
