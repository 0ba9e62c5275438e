"""replay(log, policy): the probability with which another policy would have taken every logged action."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import of_type
from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_begins, user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.policies.answers import TOLERANCE, call_propensity_of, checked_decisions, spot_check_probabilities
from recsim_mnar.policies.base import Policy, observe_events
from recsim_mnar.policies.door import as_policy, learning_of, refuse_common_learning
from recsim_mnar.policies.rankings import (
    PlackettLuce,
    RankingPolicy,
    as_ranking_policy,
    checked_propensities_of,
)
from recsim_mnar.policies.softening import EpsilonMixture, MixturePolicy
from recsim_mnar.policies.storage import Stored
from recsim_mnar.progress import counted
from recsim_mnar.simulation.executor import SHARD_USERS, carrying, run_in_order

Columns = dict[str, NDArray[Any]]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


Rows = Ints
Replayed = Policy | RankingPolicy
Policies = Mapping[str, Replayed]
T = TypeVar("T")

UNSUPPORTED = "_unsupported"
"""Ending of the column, next to a policy's, of its mass where the logging probability is 0."""
OF_RANKING = ("_conditional", "_slate", "_set")
"""Endings of the columns next to a ranking policy's, whose own column holds the probability of an item at its place:
those of the item given the items above, of the slate in this order, and of its items in any order."""
_CELLS = 1 << 22
_REPLAYED = ("user", "event", "item", "action", "propensity", "reward", "slate")
_NOBODY = np.zeros(0, np.int64)


def replay(log: Log, policy: Any, *, executor: Executor | None = None) -> Floats:
    """Compute the probability with which a policy, shown each user's events as logged, takes each logged action.

    A policy that learns from all users is replayed on a whole log of
    :func:`recsim_mnar.simulation.items.simulate_online` only: round by round, by one copy of the object that is handed
    in, which must not have learned yet. The one that made the log gets the propensities that are logged, or an error.

    Args:
        log: ordered by (user, step).
        policy: a :class:`~recsim_mnar.policies.base.Policy`, or what :func:`as_policy` makes one of; it is not changed.
        executor: to spread users over; the result is the same with and without.

    Returns:
        (n,) probabilities, NaN on organic rows; in a log of slates those of each item at its place.

    Raises:
        UserError: the log holds items that the policy does not know, or the policy answers with what is no probability
            or learns from all users, and the log is not the whole of an online run, or says otherwise of its own
            policy.
    """
    of_type(log, "log", Log, "a Log (read_log reads one)")
    policy = as_replayed(policy, slate_size_of(log))
    if not learns_online(log.provenance, policy):
        return _replayed(log, policy, None, executor)[0]
    _refuse_unknown(log.highest_item, policy)
    return _replay_online(log, policy)


def replay_with_support(
    log: Log, policy: Any, logging: Any, *, executor: Executor | None = None
) -> tuple[Floats, Floats]:
    """Replay a policy, and compute its probability of actions that the log cannot show.

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
    size = slate_size_of(log)
    probability, missing = _replayed(log, as_replayed(policy, size), as_replayed(logging, size), executor)
    return probability, missing


def replay_ranking(log: Log, policy: Any, *, executor: Executor | None = None) -> Columns:
    """Compute all probabilities of a ranking policy on a log of slates.

    Args:
        log: ordered by (user, step), with the column ``position``.
        policy: a ranking policy, or what :func:`as_policy` takes.
        executor: to spread users over; the result is the same with and without.

    Returns:
        (n,) each, NaN on organic rows: ``marginal`` of an item at its place, ``conditional`` on the items above,
        ``slate`` and ``set``.
    """
    of_type(log, "log", Log, "a Log (read_log reads one)")
    policies = {"": as_ranking_policy(policy, slate_size_of(log))}
    check_replayable(log.highest_item, policies)
    keep = functools.partial(added, policies)
    blocks = list(replay_blocks(blocks_of(log), policies, None, keep, executor))
    columns = {}
    for ending in ("", *OF_RANKING):
        columns[ending[1:] or "marginal"] = np.concatenate([np.zeros(0), *(block[ending] for block in blocks)])
    return columns


def slate_size_of(log: Log) -> int:
    """Items of each slate of a log, 1 where it has no places."""
    if "position" in log.columns:
        return int(log["position"].max(initial=0)) + 1
    return 1


def as_replayed(policy: Any, slate_size: int) -> Replayed:
    """Adapt a user's object to a log with slates of this size."""
    if slate_size == 1:
        return as_policy(policy)
    return as_ranking_policy(policy, slate_size)


def gives_propensities(log: Log, policy: Any, *, executor: Executor | None = None) -> bool:
    """Return whether a policy's replayed propensities are those of a log; not so where it cannot be replayed there."""
    try:
        replayed = replay(log, policy, executor=executor)
    except UserError:
        return False
    return bool(np.all(np.abs(replayed - log["propensity"])[log.is_bandit] <= TOLERANCE))


def replay_blocks(
    blocks: Iterable[Columns],
    policies: Policies,
    logging: Replayed | None,
    reduce: Callable[[Columns], T],
    executor: Executor | None,
) -> Iterator[T]:
    """Yield ``reduce(columns)`` of every block, in order, with each policy's replayed columns added.

    Args:
        blocks: columns of whole users, ordered by (user, step). With :data:`SHARD_USERS` users each, which is what
            :func:`replay` hands to a policy at a time, the columns have the bits that it gives.
        policies: by the names of their columns, checked by :func:`check_replayable`.
        logging: the policy under which the log was collected, where it is known: then there is a second column of each
            policy, its mass on actions that the logging policy never takes.
        reduce: what is made of the columns, where the job runs.
        executor: to spread blocks over; the result is the same with and without.
    """
    job = carrying(_reduced_block, reduce, policies, logging, with_gaps(policies, logging), in_python=True)
    return run_in_order((functools.partial(job, block) for block in blocks), executor)


def _reduced_block(
    reduce: Callable[[Columns], T],
    policies: Policies,
    logging: Replayed | None,
    gaps: Sequence[str],
    columns: Columns,
) -> T:
    rows = replayed_columns(columns)
    prices = Prices(rows, policies, logging, gaps)
    for decisions, acting, logger in walks(rows, policies, logging, gaps):
        prices.add(decisions, acting, logger)
    return reduce({**columns, **prices.columns})


def added(names: Iterable[str], columns: Columns) -> Columns:
    """Select the columns of these policies from a replayed block."""
    own_columns = {name + ending for name in names for ending in ("", UNSUPPORTED, *OF_RANKING)}
    return {name: values for name, values in columns.items() if name in own_columns}


def replayed_columns(columns: Columns | Log) -> Columns:
    """List the columns of a log that a replay reads."""
    if isinstance(columns, Log):
        columns = columns.columns
    return {name: columns[name] for name in _REPLAYED if name in columns}


def blocks_of(log: Log, size: int = SHARD_USERS) -> Iterator[Columns]:
    """Read the columns for a replay, ``size`` users at a time, none divided."""
    edges = [*user_starts(log["user"])[::size].tolist(), len(log)]
    columns = replayed_columns(log)
    for first, last in itertools.pairwise(edges):
        yield {name: values[first:last] for name, values in columns.items()}


def check_replayable(highest_item: int, policies: Policies, logging: Replayed | None = None) -> None:
    """Refuse policies that cannot be replayed on a log with such items.

    Raises:
        UserError: as :func:`replay`.
    """
    for one in (*policies.values(), *([] if logging is None else [logging])):
        _refuse_unknown(highest_item if one is not logging else -1, one)
        refuse_common_learning(one, "replay")


def _refuse_unknown(highest_item: int, policy: Replayed) -> None:
    if not policy.replayable:
        raise UserError(
            f"policy {policy.name!r} is not replayable: it draws from its own generator, so its choices cannot "
            "be repeated; use the propensities that it logged"
        )
    if highest_item >= policy.n_items:
        raise UserError(f"the log has item {highest_item}, policy {policy.name!r} knows items 0..{policy.n_items - 1}")


def _replayed(log: Log, policy: Replayed, logging: Replayed | None, executor: Executor | None) -> list[Floats]:
    policies = {"policy": policy}
    check_replayable(log.highest_item, policies, logging)
    names = ["policy"]
    if logging is not None:
        names.append("policy" + UNSUPPORTED)
    blocks: list[Columns] = []
    advance = counted(int(np.count_nonzero(log.is_bandit)), "decisions")
    for columns in replay_blocks(blocks_of(log), policies, logging, functools.partial(added, policies), executor):
        blocks.append(columns)
        advance(int(np.count_nonzero(~np.isnan(columns["policy"]))))
    return [np.concatenate([np.zeros(0), *(columns[name] for columns in blocks)]) for name in names]


# ------------------------------------------------------------------------------------------------------------- the walk


class Round(NamedTuple):
    """Rows of a log that policies meet together, each by ascending user.

    Attributes:
        arrived: a row of each user who begins.
        views: that come before the decisions.
        decisions: to be priced and learned from.
        later: views that follow them.
        left: a row of each user who leaves.
    """

    arrived: Rows
    views: Rows
    decisions: Rows
    later: Rows = _NOBODY
    left: Rows = _NOBODY


def walk(log: Log | Columns, acting: Iterable[Replayed], rounds: Iterable[Round]) -> Iterator[Rows]:
    """Show policies a log as it was logged; yield the rows of decisions before they learn from them."""
    user, item, action, reward, propensity = (log[name] for name in ("user", "item", "action", "reward", "propensity"))
    policies = list(acting)
    learners = [policy for policy in policies if learning_of(policy) != "nothing"]
    for now in rounds:
        for policy in policies:
            if len(now.arrived):
                policy.reset(user[now.arrived])
            if len(now.views):
                observe_events(policy, user[now.views], item[now.views], reward[now.views])
        if len(now.decisions):
            yield now.decisions
            for policy in learners:
                policy.learn(*(values[now.decisions] for values in (user, action, reward, propensity)))
        for policy in policies:
            if len(now.later):
                observe_events(policy, user[now.later], item[now.later], reward[now.later])
            if len(now.left):
                policy.forget(user[now.left])


def walks(
    rows: Columns, policies: Policies, logging: Replayed | None = None, gaps: Sequence[str] = ()
) -> Iterator[tuple[Rows, dict[str, Replayed], Replayed | None]]:
    """Walk fresh copies of policies through a log: those that observe together, those that learn together.

    Args:
        rows: of whole users, ordered by (user, step).
        policies: by name.
        logging: that walks along with those whose names are in ``gaps``.
        gaps: see :func:`with_gaps`.

    Yields:
        Rows of decisions, before they are learned from, copies of the policies by name that stand before them, and that
        of the logging policy or None.
    """
    logger_learns = logging is not None and learning_of(logging) != "nothing"
    stepwise = {
        name: learning_of(policy) != "nothing" or (logger_learns and name in gaps) for name, policy in policies.items()
    }
    for one_by_one in (False, True):
        acting = {name: policies[name].fresh() for name, steps in stepwise.items() if steps is one_by_one}
        if not acting:
            continue
        walkers = list(acting.values())
        logger = None
        if logging is not None and set(acting) & set(gaps):
            logger = logging.fresh()
            walkers.append(logger)
        for decisions in walk(rows, walkers, rounds_of(rows, one_by_one=one_by_one)):
            yield decisions, acting, logger


def rounds_of(log: Log | Columns, *, one_by_one: bool) -> Iterator[Round]:
    """Yield a log in rounds of views and then decisions, of all users at once.

    Views after a user's last decision are left out.

    Args:
        log: ordered by (user, step).
        one_by_one: each user has at most one decision a round (for policies that learn); otherwise all the decisions
            up to the user's next view, in which the state of a policy that only observes does not change.
    """
    user = log["user"]
    bandit = log["event"] == schema.BANDIT
    begins = user_begins(user)
    after_decision = np.concatenate([[False], bandit[:-1]]) & ~begins
    columns = log.columns if isinstance(log, Log) else log
    if "slate" in columns:  # the places of a slate are one decision
        after_decision[1:] &= ~bandit[1:] | (log["slate"][1:] != log["slate"][:-1])
    new_round = after_decision
    if not one_by_one:
        new_round = after_decision & ~bandit
    so_far = np.cumsum(new_round)
    starts = np.flatnonzero(begins)
    number = np.cumsum(begins) - 1
    rounds = so_far - so_far[starts][number]
    # Views that no decision follows are of no use: the last decision's round bounds what is kept.
    last_round = np.full(len(starts), -1)
    np.maximum.at(last_round, number[bandit], rounds[bandit])
    kept = np.flatnonzero(rounds <= last_round[number])
    order = kept[np.argsort(rounds[kept], kind="stable")]
    edges = np.searchsorted(rounds[order], np.arange(rounds.max(initial=0) + 2))
    arrived = starts
    for a, b in itertools.pairwise(edges):
        if a == b:
            return
        rows = order[a:b]
        is_decision = bandit[rows]
        yield Round(arrived, rows[~is_decision], rows[is_decision])
        arrived = _NOBODY


class Prices:
    """Policies' probabilities of the logged actions of a block of rows.

    Args:
        rows: of whole users, ordered by (user, step).
        policies: by name.
        logging: see :func:`replay_blocks`.
        gaps: see :func:`with_gaps`.

    Attributes:
        columns: (n,) probabilities by the names of policies and, where the logging policy is known, masses that it
            never takes; NaN on organic rows.
    """

    def __init__(
        self, rows: Columns | Log, policies: Policies, logging: Replayed | None = None, gaps: Sequence[str] = ()
    ) -> None:
        decision_rows = rows["event"] == schema.BANDIT
        self.columns: dict[str, Floats] = {}
        for name, policy in policies.items():
            endings = ("", *OF_RANKING) if isinstance(policy, RankingPolicy) else ("",)
            for ending in endings:
                self.columns[name + ending] = np.full(len(decision_rows), np.nan)
            if logging is not None:
                self.columns[name + UNSUPPORTED] = np.where(decision_rows, 0.0, np.nan)
        self._user = rows["user"]
        self._action = rows["action"]
        self._gaps = gaps
        self._looked: set[str] = set()

    def add(self, decisions: Rows, acting: Policies, logger: Replayed | None = None) -> None:
        """Add policies' probabilities in the state before these decisions."""
        users = self._user[decisions]
        actions = self._action[decisions]
        begins = user_begins(users)
        for name, policy in acting.items():
            if isinstance(policy, RankingPolicy):
                self._add_rankings(name, policy, decisions)
                continue
            if name not in self._looked:  # at a few users, whether its probabilities are any
                spot_check_probabilities(policy, np.unique(users))
                self._looked.add(name)
            self.columns[name][decisions] = call_propensity_of(policy, users, actions)
            if isinstance(logger, Policy) and name in self._gaps:
                # Between two views of a user no state changes: one answer is good for all the decisions there.
                mass = _mass_outside(policy, logger, users[begins])
                self.columns[name + UNSUPPORTED][decisions] = mass[np.cumsum(begins) - 1]

    def _add_rankings(self, name: str, policy: RankingPolicy, decisions: Rows) -> None:
        size = policy.slate_size
        if len(decisions) % size:
            raise UserError(f"a slate of the log has not {size} rows: the places of each must be there, from 0 on")
        places = decisions.reshape(-1, size)
        users = self._user[places[:, 0]]
        rankings = self._action[places]
        stated = checked_propensities_of(policy, users, rankings)
        self.columns[name][places] = stated.marginal
        parts = (stated.conditional, stated.slate[:, None], stated.set[:, None])
        for ending, values in zip(OF_RANKING, parts, strict=True):
            self.columns[name + ending][places] = values


def _mass_outside(policy: Policy, logging: Policy, users: Ints) -> Floats:
    """Return (n,) a policy's probability of the items that the logging policy never takes, in each user's state."""
    decided = policy.act(users, np.full(len(users), 0.5))
    actions, propensities = checked_decisions(policy, decided, n=len(users), n_items=policy.n_items)
    # A policy that is sure of an action takes no other: only the other users' whole distributions are of interest.
    mass = (call_propensity_of(logging, users, actions) <= 0.0).astype(np.float64)
    unsure = np.flatnonzero(propensities < 1.0)
    fixed = policy.fixed_distribution()
    step = max(1, _CELLS // policy.n_items)
    for start in range(0, len(unsure), step):
        some = unsure[start : start + step]
        possible = logging.probabilities(users[some]) > 0.0
        if fixed is None:
            impossible = np.where(possible, 0.0, policy.probabilities(users[some]))
            mass[some] = np.minimum(impossible.sum(axis=1), 1.0)
        else:
            row, item = np.nonzero(possible)
            covered = np.bincount(row, weights=fixed[item], minlength=len(some))
            mass[some] = np.where(covered > 1.0 - 1e-12, 0.0, 1.0 - covered)  # what rounding leaves is nothing
    return mass


# ------------------------------------------------------------------------------- what is known by the kind of policy


def with_gaps(policies: Policies, logging: Replayed | None) -> list[str]:
    """Return names of policies that may take actions that the logging policy cannot."""
    if logging is None or isinstance(logging, RankingPolicy) or least_propensity(logging) is not None:
        return []
    return [name for name, policy in policies.items() if not identical_policies(policy, logging)]


def identical_policies(policy: Replayed, logging: Replayed) -> bool:
    """Return whether two policies are known to act identically."""
    if policy is logging:
        return True
    if isinstance(policy, PlackettLuce) and isinstance(logging, PlackettLuce):
        return policy.slate_size == logging.slate_size and identical_policies(policy.policy, logging.policy)
    if isinstance(policy, RankingPolicy) or isinstance(logging, RankingPolicy):
        return False
    if isinstance(policy, EpsilonMixture) and isinstance(logging, EpsilonMixture):
        return policy.epsilon == logging.epsilon and identical_policies(policy.inner, logging.inner)
    if type(policy) is not type(logging) or not isinstance(policy, Stored) or not isinstance(logging, Stored):
        return False
    (arrays, parameters), (other_arrays, theirs) = policy.fitted(), logging.fitted()
    return (
        policy.n_items == logging.n_items
        and parameters == theirs
        and arrays.keys() == other_arrays.keys()
        and all(np.array_equal(arrays[key], other_arrays[key]) for key in arrays)
    )


def probability_range(policy: Replayed) -> tuple[float, float]:
    """Return bounds of a policy's probabilities of any action in any state, by its kind.

    0 and 1 if unknown. Of rankings: of an item at a place.
    """
    if isinstance(policy, RankingPolicy):
        uniform = 1.0 / policy.n_items
        if not isinstance(policy, PlackettLuce):
            return 0.0, 1.0
        if policy.policy.is_uniform:
            return uniform, uniform
        return policy.epsilon * uniform, 1.0 - policy.epsilon * (1.0 - uniform)
    if isinstance(policy, EpsilonMixture):
        ends = np.multiply(1.0 - policy.epsilon, probability_range(policy.inner)) + policy.epsilon / policy.n_items
    elif isinstance(policy, MixturePolicy):
        parts = zip(policy.policies, policy.weights, strict=True)
        ends = sum(np.multiply(weight, probability_range(part)) for part, weight in parts)
    elif policy.is_uniform:
        return 1.0 / policy.n_items, 1.0 / policy.n_items
    else:
        fixed = policy.fixed_distribution()
        if fixed is None:
            return 0.0, 1.0
        ends = np.array([np.min(fixed), np.max(fixed)])
    return float(ends[0]), min(float(ends[1]), 1.0)


def least_propensity(policy: Replayed) -> float | None:
    """The least of :func:`probability_range`; None if it may be 0 or is unknown."""
    return probability_range(policy)[0] or None


def largest_ratio(policy: Replayed, logging: Replayed | None) -> float | None:
    """Return a bound on target / propensity in any state, by the policies' kinds; None if there is none.

    A policy softened by epsilon takes what the policy within takes with at least 1 - epsilon times its probability, and
    a mixture with at least the part's weight.
    """
    if logging is None or not logging.replayable:
        return None
    if identical_policies(policy, logging):
        return 1.0
    bounds = []
    least = least_propensity(logging)
    if least is not None:
        bounds.append(probability_range(policy)[1] / least)
    parts: list[tuple[float, Policy]] = []
    if isinstance(logging, EpsilonMixture):
        parts = [(1.0 - logging.epsilon, logging.inner)]
    elif isinstance(logging, MixturePolicy):
        parts = list(zip(logging.weights, logging.policies, strict=True))
    for weight, part in parts:
        ratio = largest_ratio(policy, part)
        if weight > 0.0 and ratio is not None:
            bounds.append(ratio / weight)
    return min(bounds, default=None)


# ----------------------------------------------------------------------------------- learners from all users, by rounds


def learns_online(provenance: Mapping[str, Any], policy: Any) -> bool:
    """Return whether a policy learns from all users and a log is of an online run.

    It is replayed on all its rows then.
    """
    full = policy if isinstance(policy, RankingPolicy) else as_policy(policy)
    return learning_of(full) == "all users" and "online" in provenance


def _replay_online(log: Log, policy: Policy) -> Floats:
    """Replay every round as :func:`recsim_mnar.simulation.items.simulate_online` made it, through one object."""
    run = log.provenance["online"]
    n_rounds = int(log["round"].max(initial=-1)) + 1
    if (len(log), n_rounds) != (run["rows"], run["rounds"]):
        raise UserError(
            f"the log has {len(log):,} rows of {n_rounds:,} rounds, its run made {run['rows']:,} of {run['rounds']:,}: "
            "a policy that learns from all users is replayed on the whole log only"
        )
    acting = {"policy": policy.fresh()}
    prices = Prices(log, acting)
    for decisions in walk(log, acting.values(), _logged_rounds(log)):
        prices.add(decisions, acting)
    replayed = prices.columns["policy"]
    logged = log["propensity"]
    differs = np.abs(replayed - logged) > TOLERANCE  # never on organic rows, which have none
    if differs.any() and json.loads(json.dumps(policy.describe())) == log.provenance.get("policy"):
        row = int(np.argmax(differs))
        raise UserError(
            f"policy {policy.name!r} made this log and is replayed with other propensities on {differs.sum():,} of "
            f"{np.count_nonzero(log.is_bandit):,} decisions (row {row}: {logged[row]:.6g} logged, {replayed[row]:.6g} "
            "replayed): hand in an object that has not learned yet, whose propensity_of() says what act() does"
        )
    return replayed


def _logged_rounds(log: Log) -> Iterator[Round]:
    """The rounds of an online run."""
    user = log["user"]
    rounds = log["round"]
    bandit = log.is_bandit
    firsts = user_starts(user)
    lasts = np.append(firsts[1:], len(user)) - 1
    n_bandit = np.cumsum(bandit)
    before_user: Rows = np.repeat(n_bandit[firsts] - bandit[firsts], np.diff(np.append(firsts, len(user))))
    phase = np.where(bandit, 1, np.where(n_bandit == before_user, 0, 2))
    n_rounds = int(rounds.max(initial=-1)) + 1
    rows = _by_key(np.arange(len(user)), 3 * rounds + phase, 3 * n_rounds)
    arrived, left = (_by_key(ends, rounds[ends], n_rounds) for ends in (firsts, lasts))
    for arrives, leaves in zip(arrived, left, strict=True):
        yield Round(arrives, next(rows), next(rows), next(rows), leaves)


def _by_key(rows: Rows, key: NDArray[np.integer], n_keys: int) -> Iterator[Rows]:
    """The rows (n,) of each key 0 .. n_keys - 1, in their order."""
    order = np.argsort(key, kind="stable")
    edges = np.searchsorted(key[order], np.arange(n_keys + 1)).tolist()
    return (rows[order[a:b]] for a, b in itertools.pairwise(edges))
