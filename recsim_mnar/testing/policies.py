"""Rules for a policy: its statements of propensities, the order of calls, and whose events change its state."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.policies.answers import (
    AGREEMENT,
    FREQUENCY,
    REPETITION,
    TOLERANCE,
    call_readonly,
    checked_decisions,
    checked_distribution,
    checked_propensities,
    far,
    number,
)
from recsim_mnar.policies.base import Floats, Ints, Policy, observe_events
from recsim_mnar.policies.door import as_policy, learning_of
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation.items import simulate, simulate_online
from recsim_mnar.testing.rules import Breach, Reasons, Rules, breaches_of, first_breach, rule
from recsim_mnar.worlds.features import FeatureWorld

SEED = 20190912
_DECISIONS = 50
"""Number of decisions per user in which the statements of propensities are compared."""
_FALSE_ALARM = 1e-4
"""Probability that a correct policy fails the test of frequencies for one user."""
DRAWS = 40_000
"""Number of decisions per user in the test of frequencies.

If each probability p has the relative error d, the test detects it for one user with power .9 where the sum of p d^2 is
.0011 for 12 items, or .0007 for two items (.261 in place of .25).
"""

_DISTANCES = np.array([0, 1, 1_000, 1_024, 10**6, 2**31, 2**32])
"""Distances of user ids from the first: a policy that takes ids modulo 1,000, or in 32 bits, confuses some of them."""
_BELOW_ONE = 1.0 - 2e-8
"""A uniform that float32 rounds to 1, and that cumulative sums in float32 need not reach."""
_BYTE_OVERFLOW = 256
"""Number of views of an item at which an 8-bit count starts again at 0."""
_EXP_OVERFLOW = 2_000
"""Number of views of an item at which exp() of the count overflows, which it does from 710 on in float64."""

RULES: Rules = {}


def check_policy(make_policy: Callable[[], Any], *, n_draws: int = DRAWS, tolerance: float = TOLERANCE) -> list[Breach]:
    """Return the rules of :data:`RULES` that a policy breaks, an empty list if it keeps them all.

    Args:
        make_policy: function that makes a new policy without users, always an equal one, of any kind that
            :func:`recsim_mnar.policies.door.as_policy` takes.
        n_draws: number of decisions per user in the test of frequencies.
        tolerance: largest difference between two values of the same propensity; the default allows float32's rounding.
    """
    case = PolicyCase(make_policy, n_draws=n_draws, tolerance=tolerance)
    return breaches_of(case.rules(), case, needed=("door", "distributions"))


def example_views(n_users: int, n_items: int) -> list[NDArray[np.int32]]:
    """Return the items viewed by each of users 0 .. n_users - 1: user u has u views, some of them of the same item."""
    views = []
    for user in range(n_users):
        u = rng.uniforms(SEED, rng.Stream.PROTOCOL, user, np.arange(user))
        # Squared, so that items with low numbers are more popular and occur several times.
        views.append(np.minimum((u * u * n_items).astype(np.int32), n_items - 1))
    return views


@dataclass
class PolicyCase:
    """A policy under test, its users and their views.

    Attributes:
        make_policy: function that makes a new policy without users; one that is fitted, always to the same data.
        n_users: number of users; user number u has u views, so the first has none.
        first_user: id of the first user, too large for an array indexed by user; 0 for consecutive ids.
        n_draws: number of decisions per user in the test of frequencies.
        tolerance: largest difference between two values of the same propensity; 0 requires equality to the last bit.
        count: function of (policy, user, uniforms, counts) that adds the actions of one user's decisions to the counts;
            None for :meth:`_counter_of`.
    """

    make_policy: Callable[[], Any]
    n_users: int = 7
    first_user: int = 2**40
    n_draws: int = DRAWS
    tolerance: float = TOLERANCE
    count: Callable[[Policy, Ints, Floats, Floats], None] | None = None

    @property
    def users(self) -> NDArray[np.int64]:
        """Ids of the users, (n_users,).

        Unless consecutive, they differ by round numbers such as 1,000 and 2^32, so that a policy that uses only a part
        of an id confuses some users.
        """
        consecutive = np.arange(self.n_users)
        if self.first_user == 0:
            return consecutive
        # Users beyond the listed distances follow the last of these one by one.
        distances = np.concatenate([_DISTANCES, _DISTANCES[-1] + 1 + consecutive])
        return self.first_user + distances[: self.n_users]

    def rules(self) -> Rules:
        """Return the rules that apply; those that compare two objects are only for replayable policies."""
        if first_breach(RULES["door"], self) is not None or self.policy().replayable:
            return RULES
        return {name: rule for name, rule in RULES.items() if name not in TWO_OBJECT_RULES}

    @property
    def is_consistent(self) -> bool:
        """True if the policy keeps ``propensities_agree``.

        If it does not, other rules skip this comparison, because they would only report the same fault again.
        """
        return first_breach(RULES["propensities_agree"], self) is None

    def describe_user(self, j: int) -> str:
        """Describe user number j for messages."""
        return f"the user of {j} views"

    def policy(self) -> Policy:
        """Make a new policy."""
        return as_policy(self.make_policy())

    def policy_after_views(self, order: NDArray[np.int64] | None = None) -> Policy:
        """Make a new policy that has observed all views.

        Args:
            order: numbers of the users, in the order in which they are observed; None for ascending.
        """
        policy = self.policy()
        if order is None:
            order = np.arange(self.n_users)
        self.show_views(policy, order)
        return policy

    def show_views(self, policy: Policy, which: NDArray[np.int64]) -> None:
        """Reset users number ``which`` in a policy, and let it observe their views in one call."""
        policy.reset(self.users[which])
        policy.observe(*self.views_of(policy.n_items, which))

    def views_of(self, n_items: int, which: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the views of users number ``which``.

        Returns:
            users: (v,) user of each view.
            items: (v,) viewed items.
        """
        views = example_views(self.n_users, n_items)
        items_of_users = [views[j] for j in which]
        users = np.repeat(self.users[which], [len(items) for items in items_of_users])
        return users, np.concatenate([*items_of_users, np.zeros(0, np.int32)])

    def act(self, policy: Policy, users: Ints, uniforms: Floats) -> tuple[NDArray[np.int32], Floats]:
        """Return the actions (n,) and propensities (n,) of a policy's decisions, checked."""
        return checked_decisions(policy, policy.act(users, uniforms), n=len(users), n_items=policy.n_items)

    def uniforms(self, decision: int = 0) -> Floats:
        """Return the uniforms (n_users,) of one decision of every user."""
        return rng.policy_uniforms(SEED, self.users, decision)

    def checked_probabilities(self, policy: Policy) -> Floats:
        """Return the users' probabilities (n_users, n_items), checked."""
        return checked_distribution(policy, policy.probabilities(self.users), policy.n_items, n=self.n_users)

    def disagreements(self, policy: Policy, uniforms: Floats, when: str = "") -> Reasons:
        """Yield where ``act``, ``propensity_of`` and ``probabilities`` differ in one decision of every user.

        Args:
            policy: the policy, which has observed the users' views.
            uniforms: (n_users,) uniform of each user's decision.
            when: beginning of the messages.
        """
        actions, stated = self.act(policy, self.users, uniforms)
        propensities = checked_propensities(policy, policy.propensity_of(self.users, actions), self.n_users)
        p = np.asarray(policy.probabilities(self.users))[np.arange(self.n_users), actions]
        # A single entry is often computed in another order than the whole distribution, which rounds differently.
        statements = {
            "propensity_of": (propensities, self.tolerance),
            "probabilities": (p, max(self.tolerance, 1e-12)),
        }
        for method, (other, tolerance) in statements.items():
            for why in AGREEMENT.finds(self.describe_user, actions, stated, method, other, tolerance) or ():
                yield when + why

    def decision_differences(self, j: int, one: Any, other: Any, when: str, than: str) -> Reasons:
        """Yield how two decisions for user number j differ.

        Args:
            j: number of the user.
            one: action and propensity of a decision.
            other: action and propensity of the decision that should be equal.
            when: circumstances of the first decision, for messages.
            than: circumstances of the second.
        """
        action, propensity = one
        other_action, other_propensity = other
        if action != other_action:
            yield f"{when}, {self.describe_user(j)} gets item {action:.0f}, {than} item {other_action}"
        if far(propensity, other_propensity, self.tolerance):
            answer = f"{number(propensity)}, {than} {number(other_propensity)}"
            yield f"{when}, the propensity of item {action:.0f} for {self.describe_user(j)} is {answer}"

    def probability_differences(self, one: Any, other: Any, what: str, than: str, first: int = 0) -> Reasons:
        """Yield where two tables of probabilities differ.

        Args:
            one: (n, n_items) probabilities for n users.
            other: (n, n_items) probabilities that should be equal.
            what: circumstances of the first table, for messages.
            than: circumstances of the second.
            first: number of the user in row 0.
        """
        for j, item in np.argwhere(far(one, other, self.tolerance)).tolist():
            p = number(float(one[j, item]))
            other_p = number(float(other[j, item]))
            user = self.describe_user(first + j)
            yield f"the probability of item {item} for {user} is {p} {what}, and {other_p} {than}"

    def differences_when_alone(
        self, show: Callable[[Policy, Ints, Ints], None], when: str, than: str, *, acting: bool
    ) -> Reasons:
        """Yield where users who are handled one by one, an event per call, differ from all users in the same calls.

        Args:
            show: function of (policy, users, items) by which a policy observes events.
            when: circumstances of users alone, for messages.
            than: circumstances of users together.
            acting: let a user alone decide after each event as well, which must change no later decision.
        """
        policy_of_all = self.policy()
        policy_of_one = self.policy()
        views = example_views(self.n_users, policy_of_all.n_items)
        u = self.uniforms()
        policy_of_all.reset(self.users)
        show(policy_of_all, *self.views_of(policy_of_all.n_items, np.arange(self.n_users)))
        actions, stated = self.act(policy_of_all, self.users, u)
        self.checked_probabilities(policy_of_all)
        scores = policy_of_all.scores(self.users)
        for j in range(self.n_users):
            user = self.users[j : j + 1]
            uniform = u[j : j + 1]
            policy_of_one.reset(user)
            for item in views[j]:
                show(policy_of_one, user, np.array([item], np.int32))
                if acting:
                    self.act(policy_of_one, user, uniform)
            decision = np.ravel(self.act(policy_of_one, user, uniform))
            yield from self.decision_differences(j, decision, (actions[j], stated[j]), when, than)
            if far(policy_of_one.scores(user)[0], scores[j], self.tolerance).any():
                yield f"{when}, scores() of {self.describe_user(j)} are others than {than}"

    def _counter_of(self, j: int) -> Callable[[Policy, Ints, Floats, Floats], None]:
        """Return a function that adds the actions of many decisions of user number j to counts.

        For speed many decisions are made in one call. A policy that takes a user only once per call acts for many users
        with the same views instead; if these get other probabilities than user j, decisions are made one by one.
        """

        def count(policy: Policy, user: Ints, uniforms: Floats, count: Floats) -> None:
            """Add to ``count`` (n_items,) the actions of ``user`` (1,) at each of the uniforms (n_draws,)."""
            views = example_views(self.n_users, policy.n_items)[j]
            batch = min(1_000, len(uniforms))
            acting = policy
            users = np.repeat(user, batch)
            if not policy.batches_decisions:
                acting = policy.fresh()
                users = np.arange(batch)
                acting.reset(users)
                acting.observe(np.repeat(users, len(views)), np.tile(views, batch))
                if far(acting.probabilities(users[-2:]), policy.probabilities(user), self.tolerance).any():
                    # Probabilities depend on the user's id: the same views do not make users equal.
                    acting = policy
                    users = user
                    batch = 1
            for begin in range(0, len(uniforms), batch):
                part = uniforms[begin : begin + batch]
                np.add.at(count, acting.act(users[: len(part)].copy(), part)[0], 1.0)

        return count


# ----------------------------------------------------------------------------------------------------------- the rules


@rule(RULES, "give it n_items and act(users, uniforms)")
def door(case: PolicyCase) -> Reasons:
    """Check that the object is a policy, and that its ``learns`` is one of the words for it."""
    policy = case.policy()
    if learning_of(policy) != "nothing" and policy.batches_decisions:
        yield "it states batches_decisions and learns: between two decisions comes an outcome"


@rule(RULES, "return (n, n_items) probabilities whose rows sum to 1")
def distributions(case: PolicyCase) -> None:
    """Check that ``probabilities`` are (n, n_items), none negative, with rows that sum to 1."""
    case.checked_probabilities(case.policy_after_views())


@rule(RULES, AGREEMENT.fix)
def propensities_agree(case: PolicyCase) -> Reasons:
    """Check that the propensities of ``act`` equal those of ``propensity_of`` and ``probabilities``."""
    policy = case.policy_after_views()
    for decision in range(_DECISIONS):
        yield from case.disagreements(policy, case.uniforms(decision))
    yield from case.disagreements(policy, np.full(case.n_users, _BELOW_ONE), f"at the uniform {_BELOW_ONE}, ")
    # act() shows the recommended items alone: compare the propensities of all the others, too.
    p = policy.probabilities(case.users)
    propensities = [policy.propensity_of(case.users, np.full(case.n_users, i, np.int32)) for i in range(policy.n_items)]
    for j, item in np.argwhere(far(np.transpose(propensities), p, max(case.tolerance, 1e-12))).tolist():
        propensity = number(propensities[item][j])
        stated = f"propensity_of() says {propensity} of item {item} for {case.describe_user(j)}"
        yield f"{stated}, probabilities() says {number(p[j, item])}"


@rule(RULES, "take off the largest exponent before exp(), and count in int64 or float64")
def long_histories(case: PolicyCase) -> Reasons:
    """Check that after thousands of views of an item the probabilities are distributions, and no count overflows."""
    policy = case.policy_after_views()
    user = case.users[:1]
    views = np.zeros(_EXP_OVERFLOW, np.int32)
    new = policy.probabilities(user)

    def after_views(n: int) -> Floats:
        """Return the first user's probabilities, (1, n_items), after n more views of item 0."""
        policy.observe(np.repeat(user, n), views[:n])
        return case.checked_probabilities(policy)[:1]

    before_overflow = after_views(_BYTE_OVERFLOW - 1)
    after_overflow = after_views(1)
    if far(before_overflow, new, 1e-9).any() and not far(after_overflow, new, 1e-9).any():
        n = _BYTE_OVERFLOW
        yield f"after {n} views of one item a user is as new, after {n - 1} not: a count began again"
    after_views(_EXP_OVERFLOW)
    if case.is_consistent:
        yield from case.disagreements(policy, case.uniforms(), f"after {_BYTE_OVERFLOW + _EXP_OVERFLOW:,} views, ")


@rule(RULES, REPETITION.fix)
def acting_changes_nothing(case: PolicyCase) -> Reasons:
    """Check that the same uniforms give the same actions twice, and leave probabilities unchanged."""
    policy = case.policy_after_views()
    u = case.uniforms()
    before = policy.probabilities(case.users)
    first, _ = case.act(policy, case.users, u)
    again, _ = case.act(policy, case.users, u)
    yield from REPETITION.finds(case.describe_user, u, first, again) or ()
    yield from case.probability_differences(before, policy.probabilities(case.users), "before act()", "after it")


@rule(RULES, "copy an array before you write in it")
def inputs_are_left_alone(case: PolicyCase) -> None:
    """Check that no call writes in its arguments, and that all take read-only arrays."""
    policy = case.policy()
    users = case.users
    call_readonly(policy, "reset", policy.reset, users.copy())
    call_readonly(policy, "observe", policy.observe, users.copy(), np.zeros(case.n_users, np.int32))
    decisions = call_readonly(policy, "act", policy.act, users.copy(), case.uniforms())
    actions, stated = map(np.array, decisions)
    call_readonly(policy, "propensity_of", policy.propensity_of, users.copy(), actions.copy())
    if learning_of(policy) != "nothing":
        call_readonly(policy, "learn", policy.learn, users.copy(), actions, np.arange(case.n_users) % 2.0, stated)


@rule(RULES, "compute each user's answer from that user's own state")
def one_user_at_a_time(case: PolicyCase) -> Reasons:
    """Check that users alone get the actions, propensities and scores that they get together."""
    return case.differences_when_alone(
        lambda policy, users, items: policy.observe(users, items), "alone", "among others", acting=True
    )


@rule(RULES, "go through ratings in their order, user by user")
def ratings_one_user_at_a_time(case: PolicyCase) -> Reasons:
    """Check that ratings observed together or one by one lead to the same actions."""

    def show(policy: Policy, users: Ints, items: Ints) -> None:
        """Let a policy observe ratings of 1 to 5 that depend on the item."""
        observe_events(policy, users, items, 1.0 + (items % 5).astype(np.float64))

    return case.differences_when_alone(show, "after ratings one by one", "together", acting=False)


@rule(RULES, "declare learns = 'all users' and run it by simulate_online")
def learns_as_declared(case: PolicyCase) -> Reasons:
    """Check that a policy that declares ``learns = 'own user'`` does not change for other users when one learns."""
    policy = case.policy_after_views()
    if learning_of(policy) != "own user":
        return
    learning_users = case.users[-2:]
    other_users = case.users[:-2]
    before = policy.probabilities(other_users)
    actions, stated = case.act(policy, learning_users, case.uniforms()[-2:])
    for _ in range(3):
        policy.learn(learning_users, actions, np.ones(2), stated)
    yield from case.probability_differences(
        before, policy.probabilities(other_users), "before learn() of other users", "after it"
    )


@rule(RULES, "begin a user anew in reset(), and touch no other")
def reset_and_forget(case: PolicyCase) -> Reasons:
    """Check that after ``reset``, also after ``forget``, a user is as new, and that other users are unchanged."""
    policy = case.policy_after_views()
    newcomer = case.policy()
    n = case.n_users
    before = policy.probabilities(case.users)
    last = case.users[-1:]
    newcomer.reset(last)
    new = newcomer.probabilities(last)
    policy.reset(last)
    yield from case.probability_differences(new, policy.probabilities(last), "for a new user", "after reset()", n - 1)
    case.show_views(policy, np.array([n - 1]))
    yield from case.probability_differences(
        before, policy.probabilities(case.users), "of users", "after one began again"
    )
    policy.forget(last)
    policy.forget(last)  # a user who is forgotten already, which must raise no error
    yield from case.probability_differences(
        before[:-1], policy.probabilities(case.users[:-1]), "of users", "after forget() of another"
    )
    policy.reset(last)
    yield from case.probability_differences(
        new, policy.probabilities(last), "for a new user", "after forget() and reset()", n - 1
    )


@rule(RULES, "omit fresh(), or start its states anew")
def fresh_shares_no_user(case: PolicyCase) -> Reasons:
    """Check that ``fresh`` gives a policy that acts the same and is independent of the first."""
    policy = case.policy_after_views()
    twin = policy.fresh()
    case.show_views(twin, np.arange(case.n_users))
    before = twin.probabilities(case.users)
    yield from case.probability_differences(
        policy.probabilities(case.users), before, "of the policy", "of its fresh() copy"
    )
    policy.reset(case.users)
    policy.observe(case.users, np.zeros(case.n_users, np.int32))
    after = twin.probabilities(case.users)
    yield from case.probability_differences(
        before, after, "of the fresh() copy", "after the first one's users viewed more"
    )


@rule(RULES, "keep what changes in attributes of the object, not of the class, and let copy.deepcopy copy it")
def copies_are_apart(case: PolicyCase) -> Reasons:
    """Check that a deep copy acts the same and is independent of the policy.

    A policy that cannot be copied must define ``fresh``, which ``fresh_shares_no_user`` checks.
    """
    policy = case.policy_after_views()
    u = case.uniforms()
    try:
        twin = copy.deepcopy(policy)
    except Exception:  # a library's object may raise anything
        return
    actions, stated = case.act(policy, case.users, u)
    again, _ = case.act(twin, case.users, u)
    for j in np.flatnonzero(actions != again).tolist():
        message = f"act() takes item {actions[j]}, that of a deep copy item {again[j]}"
        yield f"for {case.describe_user(j)} with the uniform {number(u[j])}, {message}"
    before = np.array(policy.probabilities(case.users))
    if learning_of(policy) != "nothing":
        for _ in range(3):
            twin.learn(case.users, actions, np.ones(case.n_users), stated)
    twin.observe(case.users, np.zeros(case.n_users, np.int32))
    twin.reset(case.users[:-1])
    after = policy.probabilities(case.users)
    yield from case.probability_differences(
        before, after, "of the policy", "after a deep copy of it viewed and learned more"
    )


@rule(RULES, "return new arrays: a copy of what the policy keeps")
def answers_are_given_away(case: PolicyCase) -> Reasons:
    """Check that later calls change no returned array, and that a caller who writes in one changes no later result."""
    policy = case.policy_after_views()
    users = case.users

    def answers() -> Mapping[str, Any]:
        """Call each method that returns an array, and return the arrays under their names for messages."""
        actions, stated = policy.act(users.copy(), case.uniforms())
        propensities = policy.propensity_of(users.copy(), np.array(actions))
        return {
            "act()'s actions": actions,
            "act()'s propensities": stated,
            "propensity_of()'s": propensities,
            "probabilities()'s": policy.probabilities(users.copy()),
        }

    def changed(name: str) -> bool:
        """Return True if the latest array of this name differs from the copy of the first one."""
        return bool(far(copies[name], latest[name], case.tolerance).any())

    copies = {name: np.array(answer) for name, answer in answers().items()}
    latest = answers()
    for name in copies:
        if isinstance(latest[name], np.ndarray) and latest[name].flags.writeable:  # not a list
            latest[name][...] = 0
            latest = answers()
            if any(map(changed, copies)):
                yield f"{name} array was written in by its caller, and the next answers are others"
    policy.act(users.copy(), case.uniforms(1))
    # Other calls, with other results, which may be written into the arrays that were returned before.
    policy.propensity_of(users.copy(), np.array(latest["act()'s actions"])[::-1].copy())
    policy.observe(users.copy(), np.zeros(case.n_users, np.int32))
    policy.probabilities(users.copy())
    for name in filter(changed, copies):
        yield f"{name} array was changed by a later call"


@rule(RULES, "return a dict of texts, numbers and lists with the name")
def describes_itself(case: PolicyCase) -> Reasons:
    """Check that ``describe`` returns JSON types with the name."""
    policy = case.policy()
    try:
        name = json.loads(json.dumps(policy.describe())).get("name")
    except TypeError as error:
        yield f"describe() cannot be written as JSON: {error}"
        return
    if name != policy.name:
        yield f"describe() names it {name!r}, its name is {policy.name!r}"


@rule(RULES, "let its probabilities depend on reset(), observe() and learn() alone, and drop there what was computed")
def runs_and_replays(case: PolicyCase) -> Reasons:
    """Check that replaying a simulated log gives the propensities that the policy stated when it acted."""
    if not case.is_consistent:
        return
    policy = case.policy()
    world = _small_world(policy.n_items)
    if learning_of(policy) == "all users":
        log = simulate_online(world, policy, 40, SEED, lanes=8).log
    else:
        log = simulate(world, policy, 40, SEED)
    if not policy.replayable:
        return
    decision_rows = log.is_bandit
    replayed = replay(log, case.policy())[decision_rows]
    stated = log["propensity"][decision_rows]
    different = np.flatnonzero(far(replayed, stated, case.tolerance)).tolist()
    for row in different:
        again = f"{number(replayed[row])} ({len(different):,} of {replayed.size:,} decisions differ)"
        yield f"in a run it states {number(stated[row])}, and when the log is replayed by a second object {again}"


@rule(RULES, FREQUENCY.fix)
def frequencies_follow(case: PolicyCase) -> Reasons:
    """Check by chi-square for three users that actions are as frequent as stated."""
    policy = case.policy_after_views()
    for j in sorted({0, case.n_users // 2, case.n_users - 1}):
        user = case.users[j : j + 1]
        count = np.zeros(policy.n_items)
        p = np.asarray(policy.probabilities(user)[0], np.float64)
        u = rng.uniforms(SEED, rng.Stream.POLICY, user, np.arange(case.n_draws))
        add_actions = case.count or case._counter_of(j)
        add_actions(policy, user, u, count)
        excess = _improbable(p, case.n_draws)
        yield from FREQUENCY.finds(case.describe_user(j), count, p, excess) or ()


TWO_OBJECT_RULES = frozenset(
    {
        "one_user_at_a_time",
        "ratings_one_user_at_a_time",
        "reset_and_forget",
        "fresh_shares_no_user",
        "copies_are_apart",
        "answers_are_given_away",
    }
)
"""Rules that compare two objects, for replayable policies only."""


def _improbable(p: Floats, n: int) -> Callable[[Floats], Floats]:
    """Return a function that tests the frequencies of items in n decisions against their probabilities p, (n_items,).

    The function takes frequencies (n_items,) and returns their distances from the probabilities, (n_items,), or zeros
    if the chi-square test accepts the frequencies. An item with probability 0 that was recommended is refused without a
    test.
    """
    from scipy import stats

    def excess(frequency: Floats) -> Floats:
        """Return the distances of refused frequencies (n_items,), or zeros."""
        distance = np.abs(frequency - p)
        impossible = (p <= 0.0) & (frequency > 0.0)
        if impossible.any():
            return distance * impossible
        expected = n * p[p > 0.0] / p.sum()
        observed = n * frequency[p > 0.0]
        rare = expected < 5.0  # pooled: the usual rule for the chi-square approximation
        if rare.any():
            observed = np.append(observed[~rare], observed[rare].sum())
            expected = np.append(expected[~rare], expected[rare].sum())
        statistic = float(np.sum((observed - expected) ** 2 / expected))
        if len(expected) > 1 and stats.chi2.sf(statistic, len(expected) - 1) <= _FALSE_ALARM:
            return distance
        return np.zeros_like(distance)

    return excess


def _small_world(n_items: int) -> FeatureWorld:
    """Make a world of two random features per user and item, in which about a third of recommendations are rewarded."""
    users = rng.uniforms(SEED, rng.Stream.PROTOCOL, 1, np.arange(40)).reshape(20, 2)
    items = rng.uniforms(SEED, rng.Stream.PROTOCOL, 2, np.arange(2 * n_items)).reshape(n_items, 2)
    return FeatureWorld(users, items, reward=lambda x, z: (1.0 + x @ z.T) / 6.0, length=6)
