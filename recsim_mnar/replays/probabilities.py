"""replay(log, policy): the probability with which another policy would have taken every logged action."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_begins, user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.policies.answers import TOLERANCE, asked_propensities, checked_decisions, spot_check_probabilities
from recsim_mnar.policies.base import Policy, observe_events
from recsim_mnar.policies.door import as_policy, learning_of, refuse_common_learning
from recsim_mnar.policies.mixture import MixturePolicy
from recsim_mnar.policies.softening import EpsilonMixture
from recsim_mnar.policies.storage import Stored
from recsim_mnar.progress import counted
from recsim_mnar.simulation.executor import SHARD_USERS, carrying, run_in_order

Rows = NDArray[np.int64]
UNSUPPORTED = "_unsupported"
"""Ending of the column, beside a policy's, of its mass where the logging probability is 0."""
_CELLS = 1 << 22

Columns = dict[str, NDArray[Any]]
T = TypeVar("T")
_REPLAYED = ("user", "event", "item", "action", "propensity", "reward")


def replay(log: Log, policy: Any, *, executor: Executor | None = None) -> NDArray[np.float64]:
    """The policy sees each user's events as logged and says how likely it was to take each logged action.

    A policy that learns from all users is replayed on a whole log of
    :func:`recsim_mnar.simulation.online.simulate_online` only: round by round, by one copy of the object that is handed
    in, which must not have learned yet. The one that made the log gets the propensities that are logged, or an error.

    Args:
        log: ordered by (user, step).
        policy: a :class:`~recsim_mnar.policies.base.Policy`, or what :func:`as_policy` makes one of; it is not changed.
        executor: to spread users over; the result is the same with and without.

    Returns:
        (n,) probabilities, NaN on organic rows.

    Raises:
        UserError: the log holds items that the policy does not know, or the policy answers with what is no probability
            or learns from all users, and the log is not the whole of an online run, or says otherwise of its own
            policy.
    """
    return _replayed(log, as_policy(policy), None, executor)[0]


def replay_with_support(
    log: Log, policy: Any, logging: Any, *, executor: Executor | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """:func:`replay`, and what the log cannot show of the policy, in one pass.

    Args:
        log: ordered by (user, step).
        policy: the target; it is not changed.
        logging: the policy under which the log was collected; it is not changed.
        executor: to spread users over; the result is the same with and without.

    Returns:
        (n,) probabilities of the logged actions, and (n,) masses in [0, 1]: the policy's probability, before each
        logged decision, of all the actions that the logging policy never takes. NaN on organic rows.

    Raises:
        UserError: as :func:`replay`; or one of the two learns from all users.
    """
    policy, logging = as_policy(policy), as_policy(logging)
    for one in (policy, logging):
        refuse_common_learning(one, "replay_with_support")
    if _misses_nothing(policy, logging):
        probability, _ = _replayed(log, policy, None, executor)
        return probability, np.where(log["event"] == schema.BANDIT, 0.0, np.nan)
    return _replayed(log, policy, logging, executor)


def gives_propensities(log: Log, policy: Any, *, executor: Executor | None = None) -> bool:
    """Whether a policy's replayed propensities are those of a log; not so where it cannot be replayed there."""
    try:
        apart = np.abs(replay(log, policy, executor=executor) - log["propensity"])[log.is_bandit]
    except UserError:
        return False
    return bool(np.all(apart <= TOLERANCE))


@dataclass(frozen=True)
class Replayed:
    """A policy that is replayed on a log block by block.

    Attributes:
        name: of its column.
        policy: the target.
        logging: the policy under which the log was collected, where it is known: then there is a second column, of the
            policy's mass on actions that the logging policy never takes.
    """

    name: str
    policy: Policy
    logging: Policy | None

    def check(self, highest_item: int) -> None:
        """Refuse a policy that cannot be replayed on a log with such items.

        Raises:
            UserError: as :func:`replay`.
        """
        _check_replayable(highest_item, self.policy, self.logging)
        refuse_common_learning(self.policy, "replay")
        if self.logging is not None:
            refuse_common_learning(self.logging, "replay")


def replay_blocks(
    blocks: Iterable[Columns | Callable[[], Columns]],
    replayed: Sequence[Replayed],
    reduce: Callable[[Columns], T],
    executor: Executor | None,
) -> Iterator[T]:
    """``reduce(columns)`` of every block, in order: its columns and, for each policy, those that a replay adds.

    Args:
        blocks: columns of whole users, ordered by (user, step). With :data:`SHARD_USERS` users each, which is what
            :func:`replay` hands to a policy at a time, the columns have the bits that it gives. Or a function that
            reads them, which is called where the job runs.
        replayed: the policies, checked.
        reduce: what is made of the columns, where the job runs.
        executor: to spread blocks over; the result is the same with and without.
    """
    plan = [(each, each.logging is not None and _misses_nothing(each.policy, each.logging)) for each in replayed]
    job = carrying(_reduced_block, reduce, plan, in_python=True)
    jobs = (functools.partial(job, block) for block in blocks)
    return run_in_order(jobs, executor)


def _reduced_block(
    reduce: Callable[[Columns], T], plan: Sequence[tuple[Replayed, bool]], block: Columns | Callable[[], Columns]
) -> T:
    """``plan`` holds each policy, and whether it is known to miss nothing of what the logging policy shows."""
    columns = block() if callable(block) else block
    rows = {name: columns[name] for name in _REPLAYED}
    shown = columns["event"] == schema.BANDIT
    found = dict(columns)
    for each, certain in plan:
        logging = None if certain else each.logging
        decisions, probability, mass = _replay_rows(rows, each.policy, logging, 0, len(shown))
        found[each.name] = np.full(len(shown), np.nan)
        found[each.name][decisions] = probability
        if each.logging is not None:
            found[each.name + UNSUPPORTED] = np.where(shown, 0.0, np.nan)
        if logging is not None:
            found[each.name + UNSUPPORTED][decisions] = mass
    return reduce(found)


def _misses_nothing(policy: Policy, logging: Policy) -> bool:
    """Whether what a policy takes, the logging policy can take, by what kind of policies they are."""
    return supports_every_action(logging) or same_law(policy, logging)


def missing_mass(log: Log, policy: Any, logging: Any, *, executor: Executor | None = None) -> NDArray[np.float64]:
    """The masses of :func:`replay_with_support` alone, (n,)."""
    return replay_with_support(log, policy, logging, executor=executor)[1]


def _replayed(
    log: Log, policy: Policy, logging: Policy | None, executor: Executor | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    _check_replayable(max(int(log["item"].max(initial=-1)), int(log["action"].max(initial=-1))), policy, logging)
    if learns_online(log.provenance, policy):
        return _replay_online(log, policy), np.empty(0)
    refuse_common_learning(policy, "replay")
    out = np.full((2, len(log)), np.nan)
    block = carrying(_replay_block, policy, logging, in_python=True)
    jobs = (functools.partial(block, rows_of(log, first, last), first) for first, last in user_blocks(log["user"]))
    advance = counted(int(np.count_nonzero(log.is_bandit)), "decisions")
    for rows, *found in run_in_order(jobs, executor):
        out[:, rows] = found
        advance(len(rows))
    return out[0], out[1]


def _check_replayable(highest_item: int, policy: Policy, logging: Policy | None) -> None:
    for one in (policy, logging):
        if one is not None and not one.replayable:
            raise UserError(
                f"policy {one.name!r} is not replayable: it draws by a generator of its own, so nobody can say again "
                "what it would have done; use the propensities that it logged"
            )
    if highest_item >= policy.n_items:
        raise UserError(f"the log has item {highest_item}, policy {policy.name!r} knows items 0..{policy.n_items - 1}")


def same_law(policy: Policy, logging: Policy) -> bool:
    """Whether two policies are known to do the same: a policy misses nothing of its own."""
    if policy is logging:
        return True
    if isinstance(policy, EpsilonMixture) and isinstance(logging, EpsilonMixture):
        return policy.epsilon == logging.epsilon and same_law(policy.inner, logging.inner)
    if type(policy) is not type(logging) or not isinstance(policy, Stored) or not isinstance(logging, Stored):
        return False
    (arrays, parameters), (others, theirs) = policy.fitted(), logging.fitted()
    return (
        policy.n_items == logging.n_items
        and parameters == theirs
        and arrays.keys() == others.keys()
        and all(np.array_equal(arrays[key], others[key]) for key in arrays)
    )


def probability_range(policy: Policy) -> tuple[float, float]:
    """The least and the largest probability that a policy gives any action in any state, by what kind of policy it is.

    0 and 1 where nobody knows.
    """
    if isinstance(policy, EpsilonMixture):
        ends = np.multiply(1.0 - policy.epsilon, probability_range(policy.inner)) + policy.epsilon / policy.n_items
    elif isinstance(policy, MixturePolicy):
        parts = zip(policy.policies, policy.weights, strict=True)
        ends = sum(np.multiply(weight, probability_range(each)) for each, weight in parts)
    elif policy.is_uniform:
        return 1.0 / policy.n_items, 1.0 / policy.n_items
    else:
        fixed = policy.fixed_distribution()
        ends = np.array([0.0, 1.0] if fixed is None else [np.min(fixed), np.max(fixed)])
    return float(ends[0]), min(float(ends[1]), 1.0)


def least_propensity(policy: Policy) -> float | None:
    """The least of :func:`probability_range`; None where it may be 0, and where nobody knows."""
    return probability_range(policy)[0] or None


def supports_every_action(policy: Policy) -> bool:
    """Whether a policy takes every action with some probability, by what kind of policy it is."""
    return least_propensity(policy) is not None


def user_blocks(user: NDArray[np.int64], size: int = SHARD_USERS) -> list[tuple[int, int]]:
    """Ranges of rows that hold ``size`` users each, none divided."""
    if len(user) == 0:
        return []
    starts = user_starts(user)
    edges = [*starts[::size].tolist(), len(user)]
    return list(itertools.pairwise(edges))


def replay_batches(log: Log | Columns, first: int, last: int, *, one_by_one: bool) -> Iterator[tuple[Rows, Rows]]:
    """Rows first..last-1 as a policy meets them: views to observe, then decisions, again and again, all users at once.

    Args:
        log: ordered by (user, step).
        first: first row of a range that divides no user.
        last: the row after its last.
        one_by_one: each user has at most one decision a round (for policies that learn); otherwise all the decisions
            up to the user's next view, in which the state of a policy that only observes does not change.

    Yields:
        (rows of views, rows of decisions); views after a user's last decision are left out.
    """
    user = log["user"][first:last]
    bandit = log["event"][first:last] == schema.BANDIT
    begins = user_begins(user)
    after_decision = np.concatenate([[False], bandit[:-1]]) & ~begins
    new_round = after_decision if one_by_one else after_decision & ~bandit
    counted = np.cumsum(new_round)
    starts = np.flatnonzero(begins)
    number = np.cumsum(begins) - 1
    rounds = counted - counted[starts][number]
    # Views that no decision follows are of no use: the last decision's round bounds what is kept.
    last_round = np.full(len(starts), -1)
    np.maximum.at(last_round, number[bandit], rounds[bandit])
    kept = np.flatnonzero(rounds <= last_round[number])
    order = kept[np.argsort(rounds[kept], kind="stable")]
    edges = np.searchsorted(rounds[order], np.arange(rounds.max(initial=0) + 2))
    for a, b in itertools.pairwise(edges):
        if a == b:
            return
        rows = order[a:b]
        is_decision = bandit[rows]
        yield rows[~is_decision] + first, rows[is_decision] + first


def rows_of(log: Log, first: int, last: int) -> Columns:
    """What a job that replays needs of a range of rows."""
    return {name: log[name][first:last] for name in _REPLAYED}


def _replay_block(
    policy: Policy, logging: Policy | None, rows: Columns, first: int
) -> tuple[Rows, NDArray[np.float64], NDArray[np.float64]]:
    decisions, *found = _replay_rows(rows, policy, logging, 0, len(rows["user"]))
    return decisions + first, found[0], found[1]


def _replay_rows(
    log: Columns, policy: Policy, logging: Policy | None, first: int, last: int
) -> tuple[Rows, NDArray[np.float64], NDArray[np.float64]]:
    """Decisions in a range of rows, the policy's probability of each, and its mass outside the logging policy's."""
    policy = policy.fresh()
    everyone = [policy] if logging is None else [policy, logging.fresh()]
    user, item, action, reward, propensity = (log[name] for name in ("user", "item", "action", "reward", "propensity"))
    learners = [each for each in everyone if learning_of(each) != "nothing"]
    for each in everyone:
        each.reset(user[first:last][user_begins(user[first:last])])
    rows: list[Rows] = []
    probabilities: list[NDArray[np.float64]] = []
    masses: list[NDArray[np.float64]] = []
    for views, decisions in replay_batches(log, first, last, one_by_one=bool(learners)):
        if len(views):
            for each in everyone:
                observe_events(each, user[views], item[views], reward[views])
        if not rows:  # a look at a few users whether its probabilities are any
            spot_check_probabilities(policy, np.unique(user[decisions]))
        rows.append(decisions)
        probabilities.append(asked_propensities(policy, user[decisions], action[decisions]))
        if logging is not None:
            # Between two views of a user no state changes: one answer is good for all the decisions there.
            asked = user[decisions]
            begins = user_begins(asked)
            masses.append(mass_outside(policy, everyone[1], asked[begins])[np.cumsum(begins) - 1])
        for each in learners:
            each.learn(user[decisions], action[decisions], reward[decisions], propensity[decisions])
    if not rows:
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
    found = np.concatenate(probabilities)
    return np.concatenate(rows), found, np.concatenate(masses) if masses else np.full(len(found), np.nan)


def mass_outside(policy: Policy, logging: Policy, users: NDArray[np.int64]) -> NDArray[np.float64]:
    """Probability (n_users,) of what the logging policy cannot take, in the users' present state."""
    middle = np.full(len(users), 0.5)
    answer = checked_decisions(policy, policy.act(users, middle), n=len(users), n_items=policy.n_items)
    actions, propensities = answer
    # Who is sure of an action takes no other: only the others' whole distributions are of interest.
    out = (asked_propensities(logging, users, actions) <= 0.0).astype(np.float64)
    unsure = np.flatnonzero(propensities < 1.0)
    step = max(1, _CELLS // policy.n_items)
    for start in range(0, len(unsure), step):
        some = unsure[start : start + step]
        possible = logging.probabilities(users[some]) > 0.0
        out[some] = _mass_off(possible, policy, users[some])
    return out


def _mass_off(possible: NDArray[np.bool_], policy: Policy, users: NDArray[np.int64]) -> NDArray[np.float64]:
    """Probability (n_users,) of the items that are not marked for each user, (n_users, n_items)."""
    fixed = policy.fixed_distribution()
    if fixed is None:
        return np.minimum(np.where(possible, 0.0, policy.probabilities(users)).sum(axis=1), 1.0)
    of, item = np.divmod(np.flatnonzero(possible), policy.n_items)
    covered = np.bincount(of, weights=fixed[item], minlength=len(users))
    # What rounding leaves of nothing is nothing.
    return np.where(covered > 1.0 - 1e-12, 0.0, 1.0 - covered)


# ----------------------------------------------------------------------------------- learners from all users, by rounds


def learns_online(provenance: Mapping[str, Any], policy: Any) -> bool:
    """Whether a policy learns from all users and a log is of an online run: it is replayed on all its rows then."""
    return learning_of(as_policy(policy)) == "all users" and "online" in provenance


def _replay_online(log: Log, policy: Policy) -> NDArray[np.float64]:
    """Every round as :func:`recsim_mnar.simulation.online.simulate_online` made it, through one object."""
    _check_whole(log)
    acting = policy.fresh()
    out = np.full(len(log), np.nan)
    user, item, action, reward, propensity = (log[name] for name in ("user", "item", "action", "reward", "propensity"))
    looked = False
    for arrived, before, decisions, after, left in _logged_rounds(log):
        if len(arrived):
            acting.reset(user[arrived])
        if len(before):
            observe_events(acting, user[before], item[before], reward[before])
        if len(decisions):
            if not looked:
                spot_check_probabilities(acting, user[decisions])
                looked = True
            out[decisions] = asked_propensities(acting, user[decisions], action[decisions])
            acting.learn(user[decisions], action[decisions], reward[decisions], propensity[decisions])
        if len(after):
            observe_events(acting, user[after], item[after], reward[after])
        if len(left):
            acting.forget(user[left])
    if json.loads(json.dumps(policy.describe())) == log.provenance.get("policy"):
        _check_same(log, policy, out)
    return out


def _check_whole(log: Log) -> None:
    made = log.provenance["online"]
    rows, rounds = len(log), int(log["round"].max(initial=-1)) + 1
    if (rows, rounds) != (made["rows"], made["rounds"]):
        raise UserError(
            f"the log has {rows:,} rows of {rounds:,} rounds, its run made {made['rows']:,} of {made['rounds']:,}: a "
            "policy that learns from all users is replayed on the whole log only"
        )


def _check_same(log: Log, policy: Policy, replayed: NDArray[np.float64]) -> None:
    shown = log.is_bandit
    other = np.abs(replayed - log["propensity"])[shown] > TOLERANCE
    if other.any():
        row = int(np.flatnonzero(shown)[np.flatnonzero(other)[0]])
        raise UserError(
            f"policy {policy.name!r} made this log and is replayed with other propensities on {other.sum():,} of "
            f"{other.size:,} decisions (row {row}: {log['propensity'][row]:.6g} logged, {replayed[row]:.6g} replayed): "
            "hand in an object that has not learned yet, whose propensity_of() says what act() does"
        )


def _logged_rounds(log: Log) -> Iterator[tuple[Rows, Rows, Rows, Rows, Rows]]:
    """Rows of each round, by ascending user.

    Yields:
        (first rows of who arrives, their views, decisions, views that followed, last rows of who leaves).
    """
    user, rounds, bandit = log["user"], log["round"], log.is_bandit
    firsts = user_starts(user)
    lasts = np.append(firsts[1:], len(user)) - 1
    counted = np.cumsum(bandit)
    decided: Rows = counted - np.repeat(counted[firsts] - bandit[firsts], np.diff(np.append(firsts, len(user))))
    phase = np.where(bandit, 1, np.where(decided == 0, 0, 2))
    n_rounds = int(rounds.max(initial=-1)) + 1
    rows = _by_key(np.arange(len(user)), 3 * rounds + phase, 3 * n_rounds)
    arrived, left = (_by_key(ends, rounds[ends], n_rounds) for ends in (firsts, lasts))
    for arrives, leaves in zip(arrived, left, strict=True):
        yield arrives, next(rows), next(rows), next(rows), leaves


def _by_key(rows: Rows, key: NDArray[np.integer], n_keys: int) -> Iterator[Rows]:
    """The rows (n,) of each key 0 .. n_keys - 1, in their order."""
    order = np.argsort(key, kind="stable")
    edges = np.searchsorted(key[order], np.arange(n_keys + 1)).tolist()
    return (rows[order[a:b]] for a, b in itertools.pairwise(edges))
