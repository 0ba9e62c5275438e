"""A policy against its contract, rule by rule: what is broken, in a sentence, and what to do.

:class:`recsim_mnar.testing.PolicyContract` runs the same rules as tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.contracts.findings import BrokenRuleError, Finding, findings_of, number
from recsim_mnar.policy.acting import TOLERANCE, reading
from recsim_mnar.policy.adapting import as_policy, scores_of
from recsim_mnar.policy.base import Floats, Ints, Policy, observe_events
from recsim_mnar.policy.capabilities import learning_of
from recsim_mnar.policy.checks import checked_decisions, checked_distribution, checked_propensities
from recsim_mnar.replay import replay
from recsim_mnar.simulate.items import simulate
from recsim_mnar.simulate.online import simulate_online
from recsim_mnar.worlds.features import FeatureWorld

SEED = 20190912
_DECISIONS = 50


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


def check_policy(
    make_policy: Callable[[], Any], *, n_draws: int = 20_000, tolerance: float = TOLERANCE
) -> list[Finding]:
    """The rules of :data:`RULES` that a policy breaks; an empty list where it keeps them all.

    Args:
        make_policy: gives a new policy without any user, always the same one; as
            :func:`recsim_mnar.policy.adapting.as_policy` takes it.
        n_draws: decisions of the test whether actions come as often as stated.
        tolerance: by which two statements of one propensity may differ; float32 rounds by less than the default.
    """
    case = PolicyCase(make_policy, n_draws=n_draws, tolerance=tolerance)
    rules = RULES
    if findings_of({"door": RULES["door"]}, case) == [] and not case.policy().replayable:
        rules = {name: rule for name, rule in RULES.items() if name not in OF_TWINS}
    return findings_of(rules, case, needed=_NEEDED)


# ----------------------------------------------------------------------------------------------------------- the rules


def door(case: PolicyCase) -> None:
    """It has what a policy must have, and declares its learning in one of the words there are."""
    learning_of(case.policy())


def distributions(case: PolicyCase) -> None:
    """``probabilities`` are (n, n_items), none negative, rows summing to 1."""
    policy = case.begun()
    checked_distribution(policy, policy.probabilities(case.users), policy.n_items, n=case.n_users)


def propensities_agree(case: PolicyCase) -> None:
    """What ``act`` states is what ``propensity_of`` and ``probabilities`` say of the action."""
    policy = case.begun()
    for decision in range(_DECISIONS):
        _agree(case, policy, decision)
    p = policy.probabilities(case.users)
    for item in range(policy.n_items):
        said = policy.propensity_of(case.users, np.full(case.n_users, item, np.int32))
        for j in np.flatnonzero(case.far(said, p[:, item]) & (np.abs(said - p[:, item]) > 1e-12))[:1]:
            raise BrokenRuleError(
                f"propensity_of() says {number(said[j])} of item {item} for {_who(case, j)}, probabilities() says "
                f"{number(p[j, item])}"
            )


def acting_changes_nothing(case: PolicyCase) -> None:
    """Asked twice with the same uniforms it does the same, and its probabilities stay as they are."""
    policy = case.begun()
    before = policy.probabilities(case.users)
    u = rng.policy_uniforms(SEED, case.users, 0)
    first, _ = case.act(policy, case.users, u)
    again, _ = case.act(policy, case.users, u)
    for j in np.flatnonzero(first != again)[:1]:
        raise BrokenRuleError(
            f"asked twice for {_who(case, j)} with the uniform {number(u[j])}, act() takes item {first[j]} and then "
            f"item {again[j]}"
        )
    _same_distributions(case, before, policy.probabilities(case.users), "before act()", "after it")


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
        _same_answer(case, j, case.act(alone, user, u[j : j + 1]), (actions[j], stated[j]), "alone", "among others")
        if case.far(scores_of(alone, user)[0], scores[j]).any():
            raise BrokenRuleError(f"scores() of {_who(case, j)} are others alone than among others")


def order_within_a_batch(case: PolicyCase) -> None:
    """In whatever order users stand in a call, and are told of, each gets the same."""
    policy = case.begun()
    u = rng.policy_uniforms(SEED, case.users, 0)
    actions, stated = case.act(policy, case.users, u)
    order = np.argsort(rng.uniforms(SEED, rng.Stream.PROTOCOL, case.users, 10**6))
    for other, words in ((policy, "asked in another order"), (case.begun(order), "told of in another order")):
        again, stated_again = case.act(other, case.users[order], u[order])
        for k, j in enumerate(order.tolist()):
            _same_answer(case, j, (again[k : k + 1], stated_again[k : k + 1]), (actions[j], stated[j]), words, "before")


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
        _same_answer(case, j, one, (actions[k], stated[k]), "in a call of its own", "several times in one call")


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
        _same_answer(case, j, one, (actions[j], stated[j]), "told of ratings one by one", "together")
        if case.far(scores_of(alone, user)[0], scores[j]).any():
            raise BrokenRuleError(f"scores() of {_who(case, j)} depend on whether ratings are told one by one")


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
        _agree(case, policy, round_ + 100, "after learn(), ")
        checked_distribution(policy, policy.probabilities(case.users), policy.n_items, n=case.n_users)
        if policy.replayable:
            _same_distributions(
                case, policy.probabilities(case.users), twin.probabilities(case.users), "after learn()",
                "of another object that is told the same",
            )  # fmt: skip


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
    _same_distributions(case, before, policy.probabilities(others), "before learn() of other users", "after it")


def reset_and_forget(case: PolicyCase) -> None:
    """A user who begins again, or comes back after being forgotten, is as new; others are untouched."""
    policy = case.begun()
    before = policy.probabilities(case.users)
    last, others = case.users[-1:], case.users[:-1]
    newcomer = case.policy()
    newcomer.reset(last)
    new = newcomer.probabilities(last)
    policy.reset(last)
    _same_distributions(case, new, policy.probabilities(last), "for a new user", "after reset()", case.n_users - 1)
    case.tell(policy, np.array([case.n_users - 1]))
    _same_distributions(case, before, policy.probabilities(case.users), "of users", "after one began again")
    policy.forget(last)
    policy.forget(last)
    _same_distributions(case, before[:-1], policy.probabilities(others), "of users", "after forget() of another")
    policy.reset(last)
    _same_distributions(
        case, new, policy.probabilities(last), "for a new user", "after forget() and reset()", case.n_users - 1
    )


def fresh_shares_no_user(case: PolicyCase) -> None:
    """``fresh`` gives a policy that acts the same and does not notice what happens to the first."""
    policy = case.begun()
    twin = policy.fresh()
    case.tell(twin, np.arange(case.n_users))
    before = twin.probabilities(case.users)
    _same_distributions(case, policy.probabilities(case.users), before, "of the policy", "of its fresh() copy")
    policy.reset(case.users)
    policy.observe(case.users, np.zeros(case.n_users, np.int32))
    _same_distributions(
        case, before, twin.probabilities(case.users), "of the fresh() copy", "after the first one's users viewed more"
    )


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


def describes_itself(case: PolicyCase) -> None:
    """``describe`` is of JSON types and holds the name."""
    policy = case.policy()
    told = policy.describe()
    try:
        held = json.loads(json.dumps(told))
    except TypeError as error:
        raise BrokenRuleError(f"describe() cannot be written as JSON: {error}") from None
    if held.get("name") != policy.name:
        raise BrokenRuleError(f"describe() names it {held.get('name')!r}, its name is {policy.name!r}")


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
                f"act() takes item {item} for {_who(case, j)}, of which probabilities() says 0 "
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
                f"act() takes item {item} for {_who(case, j)} in {number(count[item] / case.n_draws)} of "
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


RULES: dict[str, tuple[Callable[[PolicyCase], None], str]] = {
    "door": (door, "give it n_items and act(users, uniforms)"),
    "distributions": (distributions, "return (n, n_items) probabilities whose rows sum to 1"),
    "propensities_agree": (propensities_agree, "return the probability, over the uniform, of the action drawn"),
    "acting_changes_nothing": (
        acting_changes_nothing,
        "let the uniform be its only randomness, and change the state in observe() and learn() alone",
    ),
    "inputs_are_left_alone": (inputs_are_left_alone, "copy an array before you write in it"),
    "one_user_at_a_time": (one_user_at_a_time, "compute each user's answer from that user's own state"),
    "order_within_a_batch": (order_within_a_batch, "compute each user's answer from that user's own state"),
    "runs_of_decisions": (runs_of_decisions, "omit batches_decisions"),
    "ratings_one_user_at_a_time": (ratings_one_user_at_a_time, "go through ratings in their order, user by user"),
    "learns_then_agrees": (learns_then_agrees, "drop in learn() whatever was computed before it"),
    "learns_as_declared": (learns_as_declared, "declare learns = 'all users' and run it by simulate_online"),
    "reset_and_forget": (reset_and_forget, "begin a user anew in reset(), and touch no other"),
    "fresh_shares_no_user": (fresh_shares_no_user, "omit fresh(), or start its states anew"),
    "describes_itself": (describes_itself, "return a dict of texts, numbers and lists with the name"),
    "runs_and_replays": (runs_and_replays, "let what it is told be all that its probabilities depend on"),
    "frequencies_follow": (frequencies_follow, "draw from the distribution that is stated, by the uniform"),
}
"""Rules by name: the function that raises where one is broken, and what to do."""

OF_TWINS = frozenset(
    {
        "one_user_at_a_time",
        "order_within_a_batch",
        "ratings_one_user_at_a_time",
        "reset_and_forget",
        "fresh_shares_no_user",
    }
)
"""Rules that compare objects that were told the same: not for a policy that says that it is not replayable."""

_NEEDED = frozenset({"door", "distributions"})


# -------------------------------------------------------------------------------------------------------------- inside


def _small_world(n_items: int) -> FeatureWorld:
    """A world of 20 users who answer some recommendations, of which a third are rewarded."""
    users = rng.uniforms(SEED, rng.Stream.PROTOCOL, 1, np.arange(40)).reshape(20, 2)
    items = rng.uniforms(SEED, rng.Stream.PROTOCOL, 2, np.arange(2 * n_items)).reshape(n_items, 2)
    return FeatureWorld(users, items, reward=lambda x, z: (1.0 + x @ z.T) / 6.0, length=6)


def _who(case: PolicyCase, j: int) -> str:
    return f"the user of {j} views"


def _agree(case: PolicyCase, policy: Policy, decision: int, when: str = "") -> None:
    u = rng.policy_uniforms(SEED, case.users, decision)
    actions, stated = case.act(policy, case.users, u)
    said = checked_propensities(policy, policy.propensity_of(case.users, actions), case.n_users)
    p = np.asarray(policy.probabilities(case.users))[np.arange(case.n_users), actions]
    for name, other in (("propensity_of()", said), ("probabilities()", p)):
        # A distribution is often made by another sum than one of its entries.
        for j in np.flatnonzero(case.far(stated, other) & (np.abs(stated - other) > 1e-12 * (other is p)))[:1]:
            raise BrokenRuleError(
                f"{when}act() states {number(stated[j])} of item {actions[j]} for {_who(case, j)}, {name} says "
                f"{number(other[j])}"
            )


def _same_answer(case: PolicyCase, j: int, one: Any, other: Any, when: str, than: str) -> None:
    """One decision for user number j, (1,) action and propensity, beside an action and propensity."""
    action, propensity = one
    if action[0] != other[0]:
        raise BrokenRuleError(f"{when}, {_who(case, j)} gets item {action[0]}, {than} item {other[0]}")
    if case.far(propensity[0], other[1]):
        raise BrokenRuleError(
            f"{when}, the propensity of item {action[0]} for {_who(case, j)} is {number(propensity[0])}, {than} "
            f"{number(other[1])}"
        )


def _same_distributions(case: PolicyCase, one: Any, other: Any, what: str, than: str, first: int = 0) -> None:
    """Two (n, n_items) statements, of users from number ``first`` on."""
    for j, item in np.argwhere(case.far(one, other))[:1].tolist():
        raise BrokenRuleError(
            f"the probability of item {item} for {_who(case, first + j)} is {number(float(one[j, item]))} {what}, and "
            f"{number(float(other[j, item]))} {than}"
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
