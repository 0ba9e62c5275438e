"""Rules about propensities: what a policy states is what it says elsewhere, and what it then does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from recsim_mnar import rng
from recsim_mnar.contracts.findings import BrokenRuleError, number
from recsim_mnar.contracts.policy_case import SEED, PolicyCase, agree, example_views, same_distributions, who
from recsim_mnar.policy.base import Floats, Ints, Policy
from recsim_mnar.policy.capabilities import learning_of
from recsim_mnar.policy.checks import checked_distribution
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation.items import simulate
from recsim_mnar.simulation.online import simulate_online
from recsim_mnar.worlds.features import FeatureWorld

_DECISIONS = 50


def distributions(case: PolicyCase) -> None:
    """``probabilities`` are (n, n_items), none negative, rows summing to 1."""
    policy = case.begun()
    checked_distribution(policy, policy.probabilities(case.users), policy.n_items, n=case.n_users)


def propensities_agree(case: PolicyCase) -> None:
    """What ``act`` states is what ``propensity_of`` and ``probabilities`` say of the action."""
    policy = case.begun()
    for decision in range(_DECISIONS):
        agree(case, policy, decision)
    p = policy.probabilities(case.users)
    for item in range(policy.n_items):
        said = policy.propensity_of(case.users, np.full(case.n_users, item, np.int32))
        for j in np.flatnonzero(case.far(said, p[:, item]) & (np.abs(said - p[:, item]) > 1e-12))[:1]:
            raise BrokenRuleError(
                f"propensity_of() says {number(said[j])} of item {item} for {who(case, j)}, probabilities() says "
                f"{number(p[j, item])}"
            )


def learns_then_agrees(case: PolicyCase) -> None:
    """After ``learn``, with rewards that are no zeros, all that it says goes with what it then does."""
    policy, twin = case.begun(), case.begun()
    if learning_of(policy) == "nothing":
        return
    for round_ in range(3):
        u = rng.policy_uniforms(SEED, case.users, round_)
        actions, stated = case.act(policy, case.users, u)
        rewards = ((np.arange(case.n_users) + round_) % 2).astype(np.float64)
        for each in (policy, twin):
            each.learn(case.users, actions, rewards, stated)
        agree(case, policy, round_ + 100, "after learn(), ")
        checked_distribution(policy, policy.probabilities(case.users), policy.n_items, n=case.n_users)
        if policy.replayable:
            same_distributions(
                case, policy.probabilities(case.users), twin.probabilities(case.users), "after learn()",
                "of another object that is told the same",
            )  # fmt: skip


def frequencies_follow(case: PolicyCase) -> None:
    """Actions of many decisions come as often as stated: chi-square for three users."""
    from scipy import stats

    policy = case.begun()
    for j in sorted({0, case.n_users // 2, case.n_users - 1}):
        user = case.users[j : j + 1]
        p = np.asarray(policy.probabilities(user)[0], np.float64)
        count = np.zeros(policy.n_items)
        u = rng.uniforms(SEED, rng.Stream.POLICY, user, np.arange(case.n_draws))
        (case.count or _count(case, j))(policy, user, u, count)
        for item in np.flatnonzero((p <= 0.0) & (count > 0))[:1]:
            raise BrokenRuleError(
                f"act() takes item {item} for {who(case, j)}, of which probabilities() says 0 "
                f"({count[item]:,.0f} times in {case.n_draws:,})"
            )
        expected, observed = case.n_draws * p[p > 0.0] / p.sum(), count[p > 0.0]
        pooled = expected < 5.0
        if pooled.any():
            observed = np.append(observed[~pooled], observed[pooled].sum())
            expected = np.append(expected[~pooled], expected[pooled].sum())
        statistic = float(np.sum((observed - expected) ** 2 / expected))
        if len(expected) > 1 and stats.chi2.sf(statistic, len(expected) - 1) <= 1e-6:
            item = int(np.argmax(np.abs(count / case.n_draws - p)))
            raise BrokenRuleError(
                f"act() takes item {item} for {who(case, j)} in {number(count[item] / case.n_draws)} of "
                f"{case.n_draws:,} decisions, probabilities() says {number(p[item])}"
            )


def runs_and_replays(case: PolicyCase) -> None:
    """Among users it acts, learns and is replayed with the propensities that it stated, within what is tolerated."""
    policy = case.policy()
    world = _small_world(policy.n_items)
    if learning_of(policy) == "all users":
        log = simulate_online(world, policy, 40, SEED, lanes=8).log
    else:
        log = simulate(world, policy, 40, SEED)
    if not policy.replayable:
        return
    shown = log.is_bandit
    said, stated = replay(log, case.policy())[shown], log["propensity"][shown]
    other = case.far(said, stated)
    for row in np.flatnonzero(other)[:1]:
        raise BrokenRuleError(
            f"in a run it states {number(stated[row])}, and when the log is replayed by a second object "
            f"{number(said[row])} ({other.sum():,} of {other.size:,} decisions differ)"
        )


def _count(case: PolicyCase, j: int) -> Callable[[Policy, Ints, Floats, Floats], None]:
    """How actions of user number j are counted: in one call, by users of the same views, or one after the other."""

    def count(policy: Policy, user: Ints, uniforms: Floats, count: Floats) -> None:
        views = example_views(case.n_users, policy.n_items)[j]
        batch = min(1_000, len(uniforms))
        asked, who = policy, np.repeat(user, batch)
        if not policy.batches_decisions:
            asked, who = policy.fresh(), np.arange(batch)
            asked.reset(who)
            asked.observe(np.repeat(who, len(views)), np.tile(views, batch))
            if case.far(asked.probabilities(who[-2:]), policy.probabilities(user)).any():
                asked, who, batch = policy, user, 1  # what it does depends on who asks
        for begin in range(0, len(uniforms), batch):
            part = uniforms[begin : begin + batch]
            actions, _ = asked.act(who[: len(part)].copy(), part)
            np.add.at(count, actions, 1.0)

    return count


def _small_world(n_items: int) -> FeatureWorld:
    """A world of 20 users who answer some recommendations, of which a third are rewarded."""
    users = rng.uniforms(SEED, rng.Stream.PROTOCOL, 1, np.arange(40)).reshape(20, 2)
    items = rng.uniforms(SEED, rng.Stream.PROTOCOL, 2, np.arange(2 * n_items)).reshape(n_items, 2)
    return FeatureWorld(users, items, reward=lambda x, z: (1.0 + x @ z.T) / 6.0, length=6)
