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
"""Suffix of the column with a policy's probability of all actions that the logging policy never takes."""
OF_RANKING = ("_conditional", "_slate", "_set")
"""Suffixes of further columns of a ranking policy, whose column without suffix is the probability of an item at its
place: of the item given the items above it, of the slate in this order, and of its items in any order."""
_CELLS = 1 << 22
"""Entries of the tables (users, items) of probabilities that are held at a time."""
_REPLAYED = ("user", "event", "item", "action", "propensity", "reward", "slate")
"""Columns of a log that a replay reads."""
_NO_ROWS = np.zeros(0, np.int64)


def replay(log: Log, policy: Any, *, executor: Executor | None = None) -> Floats:
    """Compute the probability with which a policy, having observed each user's logged events, takes each logged action.

    A policy that learns from all users can be replayed only on a complete log of
    :func:`recsim_mnar.simulation.items.simulate_online`: one copy of it goes through the rounds. The policy handed in
    must not have learned yet. If it is the one that made the log, its replayed propensities must equal those logged.

    Args:
        log: log ordered by (user, step).
        policy: a :class:`~recsim_mnar.policies.base.Policy`, or any object that :func:`as_policy` accepts; it is not
            changed.
        executor: executor to spread users over; the result does not depend on it.

    Returns:
        Probabilities (n,), NaN on organic rows; in a log of slates, of each item at its place.

    Raises:
        UserError: the log holds items that the policy does not know; the policy returns values that are not
            probabilities; or it learns from all users, and the log is not a complete online run, or was made by this
            policy with other propensities.
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
    """Replay a policy, and compute its probability of actions that the logging policy never takes.

    Args:
        log: log ordered by (user, step).
        policy: the target policy; it is not changed.
        logging: the policy under which the log was collected; it is not changed.
        executor: executor to spread users over; the result does not depend on it.

    Returns:
        Probabilities (n,) of the logged actions, NaN on organic rows.
        The target's probability (n,) in [0, 1], at each logged decision, of all actions together whose probability
        under the logging policy is 0; NaN on organic rows.

    Raises:
        UserError: :func:`replay` refuses the log or a policy; or one of the two learns from all users.
    """
    size = slate_size_of(log)
    probability, missing = _replayed(log, as_replayed(policy, size), as_replayed(logging, size), executor)
    return probability, missing


def replay_ranking(log: Log, policy: Any, *, executor: Executor | None = None) -> Columns:
    """Compute all probabilities of a ranking policy on a log of slates.

    Args:
        log: log ordered by (user, step), with the column ``position``.
        policy: a ranking policy, or any object that :func:`as_policy` accepts.
        executor: executor to spread users over; the result does not depend on it.

    Returns:
        Probabilities (n,) by name, NaN on organic rows: ``marginal``, of the item at its place; ``conditional``, given
        the items above it; ``slate``, of the ranking; ``set``, of its items in any order.
    """
    of_type(log, "log", Log, "a Log (read_log reads one)")
    policies = {"": as_ranking_policy(policy, slate_size_of(log))}
    check_replayable(log.highest_item, policies)
    keep = functools.partial(added_columns, policies)
    blocks = list(replay_blocks(blocks_of(log), policies, None, keep, executor))
    columns = {}
    for ending in ("", *OF_RANKING):
        columns[ending[1:] or "marginal"] = np.concatenate([np.zeros(0), *(block[ending] for block in blocks)])
    return columns


def slate_size_of(log: Log) -> int:
    """Return the number of items in each slate of a log; 1 if the log has no column ``position``."""
    if "position" in log.columns:
        return int(log["position"].max(initial=0)) + 1
    return 1


def as_replayed(policy: Any, slate_size: int) -> Replayed:
    """Adapt a user's object to a policy, or to a ranking policy if slates hold several items."""
    if slate_size == 1:
        return as_policy(policy)
    return as_ranking_policy(policy, slate_size)


def gives_propensities(log: Log, policy: Any, *, executor: Executor | None = None) -> bool:
    """Return whether a policy's replayed propensities equal those of a log; False if it cannot be replayed on it."""
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
    """Replay policies on blocks of a log, and yield ``reduce(columns)`` of each block with the replayed columns added.

    Args:
        blocks: columns of whole users, ordered by (user, step). With :data:`SHARD_USERS` users each, the results equal
            those of :func:`replay` to the bit, because a policy gets the same batches.
        policies: policies by the names of their columns, checked by :func:`check_replayable`.
        logging: policy under which the log was collected, or None if unknown. If it is known, each policy gets a second
            column with its probability of actions that the logging policy never takes.
        reduce: function of a block's columns; an executor runs it in the job that replays the block.
        executor: executor to spread blocks over; the result does not depend on it.
    """
    unsupported = may_lack_support(policies, logging)
    # in_python: policies compute their probabilities in Python, so that processes are faster than threads.
    job = carrying(_replay_and_reduce, reduce, policies, logging, unsupported, in_python=True)
    return run_in_order((functools.partial(job, block) for block in blocks), executor)


def _replay_and_reduce(
    reduce: Callable[[Columns], T],
    policies: Policies,
    logging: Replayed | None,
    unsupported: Sequence[str],
    columns: Columns,
) -> T:
    """Replay policies on a block, and return ``reduce`` of its columns: the job of :func:`replay_blocks`.

    Args:
        reduce: function of the block's columns, those of the replay included.
        policies: policies by the names of their columns.
        logging: logging policy; None if unknown.
        unsupported: names of policies that may take actions that the logging policy never takes.
        columns: columns of whole users, ordered by (user, step).
    """
    rows = replayed_columns(columns)
    collected = ReplayedProbabilities(rows, policies, logging, unsupported)
    for decisions, acting, logging_copy in replay_passes(rows, policies, logging, unsupported):
        collected.add(decisions, acting, logging_copy)
    return reduce({**columns, **collected.columns})


def added_columns(names: Iterable[str], columns: Columns) -> Columns:
    """Select the columns that a replay added for the policies of these names."""
    added = {name + ending for name in names for ending in ("", UNSUPPORTED, *OF_RANKING)}
    return {name: values for name, values in columns.items() if name in added}


def replayed_columns(columns: Columns | Log) -> Columns:
    """Select the columns of a log that a replay reads."""
    if isinstance(columns, Log):
        columns = columns.columns
    return {name: columns[name] for name in _REPLAYED if name in columns}


def blocks_of(log: Log, size: int = SHARD_USERS) -> Iterator[Columns]:
    """Yield the columns that a replay reads in blocks of ``size`` whole users."""
    edges = [*user_starts(log["user"])[::size].tolist(), len(log)]  # the first row of every ``size``-th user
    columns = replayed_columns(log)
    for first, last in itertools.pairwise(edges):
        yield {name: values[first:last] for name, values in columns.items()}


def check_replayable(highest_item: int, policies: Policies, logging: Replayed | None = None) -> None:
    """Refuse policies that cannot be replayed on a log whose largest item number is ``highest_item``.

    Raises:
        UserError: a policy draws from a generator of its own, learns from all users, or does not know all items. The
            logging policy need not know all: its probabilities of the logged actions are not asked for.
    """
    for policy in policies.values():
        needed_item = -1 if policy is logging else highest_item  # -1: the policy need not know any item
        _refuse_unknown(needed_item, policy)
        refuse_common_learning(policy, "replay")
    if logging is not None:
        _refuse_unknown(-1, logging)
        refuse_common_learning(logging, "replay")


def _refuse_unknown(highest_item: int, policy: Replayed) -> None:
    """Raise UserError if a policy cannot be replayed at all, or not on a log with this largest item number."""
    if not policy.replayable:
        raise UserError(
            f"policy {policy.name!r} is not replayable: it draws from its own generator, so its choices cannot "
            "be repeated; use the propensities that it logged"
        )
    if highest_item >= policy.n_items:
        raise UserError(f"the log has item {highest_item}, policy {policy.name!r} knows items 0..{policy.n_items - 1}")


def _replayed(log: Log, policy: Replayed, logging: Replayed | None, executor: Executor | None) -> list[Floats]:
    """Replay one policy on a log, with progress.

    Returns:
        The probabilities (n,) of the logged actions; with a logging policy, also the probability (n,) of all actions
        that it never takes.
    """
    policies = {"policy": policy}
    check_replayable(log.highest_item, policies, logging)
    names = ["policy"]
    if logging is not None:
        names.append("policy" + UNSUPPORTED)
    keep = functools.partial(added_columns, policies)
    blocks: list[Columns] = []
    advance = counted(int(np.count_nonzero(log.is_bandit)), "decisions")
    for columns in replay_blocks(blocks_of(log), policies, logging, keep, executor):
        blocks.append(columns)
        advance(int(np.count_nonzero(~np.isnan(columns["policy"]))))
    return [np.concatenate([np.zeros(0), *(columns[name] for columns in blocks)]) for name in names]


# ----------------------------------------------------------------------------------------------- replay through rounds


class Round(NamedTuple):
    """Rows of a log that one call each of a policy's methods handles, each array by ascending user.

    Attributes:
        arrived: one row of each user who starts, for ``reset``.
        views: organic events before the decisions, for ``observe``.
        decisions: decisions, whose probabilities are computed before ``learn``.
        later: organic events after the decisions, for ``observe``.
        left: one row of each user who leaves, for ``forget``.
    """

    arrived: Rows
    views: Rows
    decisions: Rows
    later: Rows = _NO_ROWS
    left: Rows = _NO_ROWS


def replay_rounds(log: Log | Columns, acting: Iterable[Replayed], rounds: Iterable[Round]) -> Iterator[Rows]:
    """Let policies observe a log round by round, and yield the rows of its decisions before policies learn from them.

    Args:
        log: the log.
        acting: policies, which change: they reset users, observe views, learn from rewards and forget users.
        rounds: rows of each round.

    Yields:
        Rows of the decisions of each round that has any. The caller computes probabilities before it takes the next.
    """
    user, item, action, reward, propensity = (log[name] for name in ("user", "item", "action", "reward", "propensity"))
    policies = list(acting)
    learners = [policy for policy in policies if learning_of(policy) != "nothing"]
    for events in rounds:
        for policy in policies:
            if len(events.arrived):
                policy.reset(user[events.arrived])
            if len(events.views):
                observe_events(policy, user[events.views], item[events.views], reward[events.views])
        if len(events.decisions):
            yield events.decisions
            for policy in learners:
                policy.learn(*(values[events.decisions] for values in (user, action, reward, propensity)))
        for policy in policies:
            if len(events.later):
                observe_events(policy, user[events.later], item[events.later], reward[events.later])
            if len(events.left):
                policy.forget(user[events.left])


def replay_passes(
    rows: Columns, policies: Policies, logging: Replayed | None = None, unsupported: Sequence[str] = ()
) -> Iterator[tuple[Rows, dict[str, Replayed], Replayed | None]]:
    """Drive fresh copies of policies through a log: first all that only observe, then all that learn.

    Policies that only observe get long rounds; those that learn get one decision of each user per round, as does any
    policy that is compared with a logging policy that learns.

    Args:
        rows: columns of whole users, ordered by (user, step).
        policies: policies by name.
        logging: logging policy, a copy of which goes along with the policies named in ``unsupported``; None if unknown.
        unsupported: names of policies that may take actions that the logging policy never takes.

    Yields:
        Rows of decisions from which the policies have not learned yet.
        Copies of policies by name, in the state before these decisions.
        The copy of the logging policy, or None.
    """
    logger_learns = logging is not None and learning_of(logging) != "nothing"
    stepwise = {
        name: learning_of(policy) != "nothing" or (logger_learns and name in unsupported)
        for name, policy in policies.items()
    }
    for one_by_one in (False, True):  # long rounds first, then one decision of each user per round
        acting = {name: policies[name].fresh() for name, steps in stepwise.items() if steps is one_by_one}
        if not acting:
            continue
        driven = list(acting.values())
        logger = None
        if logging is not None and set(acting) & set(unsupported):
            logger = logging.fresh()
            driven.append(logger)
        for decisions in replay_rounds(rows, driven, rounds_of(rows, one_by_one=one_by_one)):
            yield decisions, acting, logger


def rounds_of(log: Log | Columns, *, one_by_one: bool) -> Iterator[Round]:
    """Split a log into rounds, each with views and then decisions of all users who have any left.

    Views after a user's last decision are left out: no probability depends on them.

    Args:
        log: log ordered by (user, step).
        one_by_one: True for one decision of a user per round, for policies that learn. False for all of a user's
            decisions up to the next view, during which the state of a policy that only observes does not change.
    """
    user = log["user"]
    bandit = log["event"] == schema.BANDIT
    begins = user_begins(user)
    after_decision = np.concatenate([[False], bandit[:-1]]) & ~begins  # rows after a decision of the same user
    columns = log.columns if isinstance(log, Log) else log
    if "slate" in columns:  # the rows of a slate are one decision
        after_decision[1:] &= ~bandit[1:] | (log["slate"][1:] != log["slate"][:-1])
    new_round = after_decision
    if not one_by_one:
        new_round = after_decision & ~bandit
    rounds_before = np.cumsum(new_round)  # counted over all users
    starts = np.flatnonzero(begins)
    number = np.cumsum(begins) - 1  # of each row's user
    rounds = rounds_before - rounds_before[starts][number]  # round of each row, from 0 for each user
    last_round = np.full(len(starts), -1)
    np.maximum.at(last_round, number[bandit], rounds[bandit])
    kept = np.flatnonzero(rounds <= last_round[number])
    order = kept[np.argsort(rounds[kept], kind="stable")]  # by round, then as in the log
    edges = np.searchsorted(rounds[order], np.arange(rounds.max(initial=0) + 2))
    arrived = starts  # all users start in the first round
    for first, last in itertools.pairwise(edges):
        if first == last:  # rounds have no gaps: an empty one is after the last
            return
        rows = order[first:last]
        is_decision = bandit[rows]
        yield Round(arrived, rows[~is_decision], rows[is_decision])
        arrived = _NO_ROWS


class ReplayedProbabilities:
    """Collector of policies' probabilities of the logged actions in a block of rows.

    Args:
        rows: columns of whole users, ordered by (user, step).
        policies: policies by name.
        logging: logging policy, or None if unknown.
        unsupported: names of policies that may take actions that the logging policy never takes.

    Attributes:
        columns: probabilities (n,) by the names of policies and suffixes; if the logging policy is known, also each
            policy's probability of actions that it never takes. NaN on organic rows.
    """

    def __init__(
        self, rows: Columns | Log, policies: Policies, logging: Replayed | None = None, unsupported: Sequence[str] = ()
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
        self._unsupported = unsupported
        self._spot_checked: set[str] = set()

    def add(self, decisions: Rows, acting: Policies, logger: Replayed | None = None) -> None:
        """Fill in the rows ``decisions`` with the probabilities of policies in their present state."""
        users = self._user[decisions]
        actions = self._action[decisions]
        begins = user_begins(users)
        for name, policy in acting.items():
            if isinstance(policy, RankingPolicy):
                self._add_rankings(name, policy, decisions)
                continue
            if name not in self._spot_checked:  # once, for a few users: do its probabilities sum to 1?
                spot_check_probabilities(policy, np.unique(users))
                self._spot_checked.add(name)
            self.columns[name][decisions] = call_propensity_of(policy, users, actions)
            if isinstance(logger, Policy) and name in self._unsupported:
                # The state is the same at all of a user's decisions in this round: compute the mass once per user.
                mass = _unsupported_mass(policy, logger, users[begins])
                self.columns[name + UNSUPPORTED][decisions] = mass[np.cumsum(begins) - 1]

    def _add_rankings(self, name: str, policy: RankingPolicy, decisions: Rows) -> None:
        """Fill in the rows ``decisions``, k per slate from the top, with all probabilities of a ranking policy."""
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


def _unsupported_mass(policy: Policy, logging: Policy, users: Ints) -> Floats:
    """Return a policy's total probability (n,) of the items that the logging policy never takes, for users (n,)."""
    decided = policy.act(users, np.full(len(users), 0.5))  # any uniform shows whether the policy is deterministic
    actions, propensities = checked_decisions(policy, decided, n=len(users), n_items=policy.n_items)
    # If an action has propensity 1, the mass is 1 or 0 by that action alone. Otherwise all items are summed.
    mass = (call_propensity_of(logging, users, actions) <= 0.0).astype(np.float64)
    unsure = np.flatnonzero(propensities < 1.0)
    fixed = policy.fixed_distribution()
    step = max(1, _CELLS // policy.n_items)
    for start in range(0, len(unsure), step):
        chunk = unsure[start : start + step]
        possible = logging.probabilities(users[chunk]) > 0.0
        if fixed is None:
            impossible = np.where(possible, 0.0, policy.probabilities(users[chunk]))
            mass[chunk] = np.minimum(impossible.sum(axis=1), 1.0)
        else:
            row, item = np.nonzero(possible)
            covered = np.bincount(row, weights=fixed[item], minlength=len(chunk))
            mass[chunk] = np.where(covered > 1.0 - 1e-12, 0.0, 1.0 - covered)  # a smaller rest is rounding error
    return mass


# ---------------------------------------------------------------------------- facts that follow from the kind of policy


def may_lack_support(policies: Policies, logging: Replayed | None) -> list[str]:
    """Return the names of policies that may take actions that the logging policy never takes.

    The list is empty if the logging policy takes every action. It is also empty if the logging policy is unknown or
    shows rankings, because support is not checked then.
    """
    if logging is None or isinstance(logging, RankingPolicy) or least_propensity(logging) is not None:
        return []
    return [name for name, policy in policies.items() if not identical_policies(policy, logging)]


def identical_policies(policy: Replayed, logging: Replayed) -> bool:
    """Return whether two policies are known to act identically; False in doubt."""
    if policy is logging:
        return True
    if isinstance(policy, PlackettLuce) and isinstance(logging, PlackettLuce):
        return policy.slate_size == logging.slate_size and identical_policies(policy.policy, logging.policy)
    if isinstance(policy, RankingPolicy) or isinstance(logging, RankingPolicy):
        return False
    if isinstance(policy, EpsilonMixture) and isinstance(logging, EpsilonMixture):
        return policy.epsilon == logging.epsilon and identical_policies(policy.inner, logging.inner)
    if type(policy) is not type(logging):
        return False
    if not (isinstance(policy, Stored) and isinstance(logging, Stored)):  # no fitted arrays to compare
        return False
    arrays, parameters = policy.fitted()
    logging_arrays, logging_parameters = logging.fitted()
    return (
        policy.n_items == logging.n_items
        and parameters == logging_parameters
        and arrays.keys() == logging_arrays.keys()
        and all(np.array_equal(arrays[key], logging_arrays[key]) for key in arrays)
    )


def probability_range(policy: Replayed) -> tuple[float, float]:
    """Return the least and the largest probability of any action in any state that a policy's kind implies.

    They are 0 and 1 if nothing is known. For rankings they bound the probability of an item at a place.
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
    """Return a positive lower bound on a policy's probability of any action; None if it may be 0 or is unknown."""
    return probability_range(policy)[0] or None


def largest_ratio(policy: Replayed, logging: Replayed | None) -> float | None:
    """Return a bound on the importance weight target / propensity in any state; None if the policies' kinds imply none.

    An epsilon mixture takes each action with at least (1 - epsilon) times the inner policy's probability, and a mixture
    with at least a part's weight times that part's: so a bound for the part gives one for the whole.
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
    """Return whether a policy learns from all users and a log's provenance is of an online run.

    The policy must then be replayed on the whole log at once.
    """
    if not isinstance(policy, RankingPolicy):
        policy = as_policy(policy)
    return learning_of(policy) == "all users" and "online" in provenance


def _replay_online(log: Log, policy: Policy) -> Floats:
    """Replay one copy of a policy through the rounds in which ``simulate_online`` made the log.

    Returns:
        Probabilities (n,) of the logged actions, NaN on organic rows.

    Raises:
        UserError: the log is incomplete, or was made by this policy with other propensities.
    """
    run = log.provenance["online"]
    n_rounds = int(log["round"].max(initial=-1)) + 1
    if (len(log), n_rounds) != (run["rows"], run["rounds"]):
        raise UserError(
            f"the log has {len(log):,} rows of {n_rounds:,} rounds, its run made {run['rows']:,} of {run['rounds']:,}: "
            "a policy that learns from all users is replayed on the whole log only"
        )
    acting = {"policy": policy.fresh()}
    collected = ReplayedProbabilities(log, acting)
    for decisions in replay_rounds(log, acting.values(), _logged_rounds(log)):
        collected.add(decisions, acting)
    replayed = collected.columns["policy"]
    logged = log["propensity"]
    differs = np.abs(replayed - logged) > TOLERANCE  # False on organic rows, where both are NaN
    if differs.any() and json.loads(json.dumps(policy.describe())) == log.provenance.get("policy"):
        row = int(np.argmax(differs))
        raise UserError(
            f"policy {policy.name!r} made this log and is replayed with other propensities on {differs.sum():,} of "
            f"{np.count_nonzero(log.is_bandit):,} decisions (row {row}: {logged[row]:.6g} logged, {replayed[row]:.6g} "
            "replayed): hand in an object that has not learned yet, whose propensity_of() says what act() does"
        )
    return replayed


def _logged_rounds(log: Log) -> Iterator[Round]:
    """Yield the rounds of an online run: within a round, views before the decisions come first, then the later ones."""
    user = log["user"]
    rounds = log["round"]
    bandit = log.is_bandit
    firsts = user_starts(user)
    lasts = np.append(firsts[1:], len(user)) - 1
    n_bandit = np.cumsum(bandit)
    n_before_user: Rows = np.repeat(n_bandit[firsts] - bandit[firsts], np.diff(np.append(firsts, len(user))))
    # Phases of a round: 0 views before a user's first decision, 1 decisions, 2 views after a decision.
    phase = np.where(bandit, 1, np.where(n_bandit == n_before_user, 0, 2))
    n_rounds = int(rounds.max(initial=-1)) + 1
    rows = _by_key(np.arange(len(user)), 3 * rounds + phase, 3 * n_rounds)
    arrived = _by_key(firsts, rounds[firsts], n_rounds)
    left = _by_key(lasts, rounds[lasts], n_rounds)
    for arrives, leaves in zip(arrived, left, strict=True):
        yield Round(arrives, next(rows), next(rows), next(rows), leaves)


def _by_key(rows: Rows, key: NDArray[np.integer], n_keys: int) -> Iterator[Rows]:
    """Yield, for each key 0 .. n_keys - 1, the ``rows`` (n,) whose ``key`` (n,) it is, in their order."""
    order = np.argsort(key, kind="stable")
    edges = np.searchsorted(key[order], np.arange(n_keys + 1)).tolist()
    return (rows[order[first:last]] for first, last in itertools.pairwise(edges))
