"""Exact values of policies in the states of a log, which only the world knows."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import of_type, table_by_name
from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_begins, user_numbers, user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.policies.answers import checked_decisions, checked_distribution
from recsim_mnar.policies.base import Ints, Policy
from recsim_mnar.policies.door import refuse_common_learning
from recsim_mnar.policies.rankings import ranking_uniforms
from recsim_mnar.progress import counted
from recsim_mnar.replays.probabilities import (
    UNSUPPORTED,
    Columns,
    Floats,
    Policies,
    ReplayedProbabilities,
    Rows,
    as_replayed,
    blocks_of,
    check_replayable,
    may_lack_support,
    replay_passes,
)
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.executor import SHARD_USERS, carrying, run_in_order
from recsim_mnar.simulation.items import users_at_once
from recsim_mnar.worlds.base import DecisionWorld, World, decision_world

_RANKINGS = 8
"""Number of rankings that are drawn in a state to approximate the mean over a ranking policy's distribution."""

_MEAN_BYTES = 1 << 24
"""Largest memory of a table (states, items) of expected rewards."""


class PolicyOnLog(NamedTuple):
    """A policy's replayed probabilities and true value on a log of n rows.

    Attributes:
        probability: (n,) probability of each logged action; NaN on organic rows.
        missing: (n,) the policy's probability of all actions that the logging policy never takes, NaN on organic rows;
            None if the logging policy is unknown or cannot be replayed.
        value: exact mean, over the log's states, of the policy's expected reward.
    """

    probability: Floats
    missing: Floats | None
    value: float


def value_on_log(
    world: World, log: Log, policies: Mapping[str, Policy], seed: int, *, executor: Executor | None = None
) -> dict[str, float]:
    """Compute each policy's expected reward, averaged over the hidden states at the decisions of a log.

    This is the estimand of single-step importance weighting. It is not the policy's on-policy value: the policy itself
    would lead users into other states. In a world of slates it is a mean per shown item; for a stochastic ranking
    policy it is an average over a few rankings drawn in each state.

    Args:
        world: world in which the log was simulated.
        log: log of ``simulate``, with all rows of each user.
        policies: policies by name.
        seed: seed of the simulation.
        executor: executor to spread users over.

    Raises:
        UserError: the log was not made in this world with this seed.
    """
    of_type(log, "log", Log, "a Log (read_log reads one)")
    size = world.slate_size
    adapted = {name: as_replayed(policy, size) for name, policy in table_by_name(policies, "policies").items()}
    for policy in adapted.values():
        refuse_common_learning(policy, "the value on a log")
    blocks = _blocks(world, log, adapted, logging=None, seed=seed, executor=executor, with_probabilities=False)
    return _values(list(blocks), adapted)


def policies_on_log(
    world: World,
    log: Log,
    policies: Mapping[str, Policy],
    logging: Policy | None,
    seed: int,
    *,
    executor: Executor | None = None,
) -> dict[str, PolicyOnLog]:
    """Compute the results of ``replay_with_support`` and ``value_on_log`` for each policy in one pass.

    Args:
        world: world in which the log was simulated.
        log: log of ``simulate``, with all rows of each user.
        policies: policies by name.
        logging: policy under which the log was collected; None if unknown.
        seed: seed of the simulation.
        executor: executor to spread users over; the results do not depend on it.
    """
    if logging is not None and not logging.replayable:
        logging = None
    check_replayable(log.highest_item, policies, logging)
    blocks = list(_blocks(world, log, policies, logging=logging, seed=seed, executor=executor, with_probabilities=True))
    values = _values(blocks, policies)
    columns = {name: np.concatenate([block.columns[name] for block in blocks]) for name in blocks[0].columns}
    return {name: PolicyOnLog(columns[name], columns.get(name + UNSUPPORTED), value) for name, value in values.items()}


def _values(blocks: list[_Block], names: Iterable[str]) -> dict[str, float]:
    """Return, by policy, the mean expected reward over the decisions of all blocks."""
    n_decisions = sum(float(block.decisions.sum()) for block in blocks)
    if n_decisions == 0:
        raise UserError("the log has no recommendation: there is no state to value a policy in")
    return {name: float(np.concatenate([block.sums[name] for block in blocks]).sum()) / n_decisions for name in names}


class _Block(NamedTuple):
    """Results for a block of n rows of U users.

    Attributes:
        decisions: (U,) number of each user's decisions.
        sums: (U,) sums of expected rewards over each user's decisions, by policy.
        columns: (n,) replayed probabilities, by column name; {} if they were not requested.
    """

    decisions: Floats
    sums: dict[str, Floats]
    columns: Columns


def _blocks(
    world: World,
    log: Log,
    policies: Policies,
    logging: Policy | None,
    seed: int,
    executor: Executor | None,
    *,
    with_probabilities: bool,
) -> Iterator[_Block]:
    """Yield the results of each block of a log in order; ``with_probabilities`` requests replayed probabilities too."""
    world = decision_world(world, "the value on a log")
    if not world.knows_rewards:
        raise UserError(
            f"the {world.name} world does not say its expected rewards, which the value on a log needs: define "
            "reward_means(state), and state in its lanes"
        )
    job = carrying(
        _block, world, policies, logging, may_lack_support(policies, logging), seed, with_probabilities, in_python=True
    )
    advance = counted(int(np.count_nonzero(log.is_bandit)), "decisions")
    blocks = blocks_of(log, SHARD_USERS if executor is not None else users_at_once(world))
    for block in run_in_order((functools.partial(job, rows) for rows in blocks), executor):
        advance(int(block.decisions.sum()))
        yield block


def _block(
    world: DecisionWorld,
    policies: Policies,
    logging: Policy | None,
    unsupported: Sequence[str],
    seed: int,
    with_probabilities: bool,
    rows: Columns,
) -> _Block:
    """Compute true values and, with ``with_probabilities``, replayed probabilities of a block of rows.

    This is the job of :func:`_blocks`, which describes the arguments.
    """
    user = rows["user"]
    states = states_of(world, rows, seed)
    number = user_numbers(user)
    collected = ReplayedProbabilities(rows, policies, logging, unsupported)
    counts = np.bincount(number[rows["event"] == schema.BANDIT], minlength=number[-1] + 1).astype(np.float64)
    sums = {name: np.zeros(len(counts)) for name in policies}
    for decisions, acting, logger in replay_passes(rows, policies, logging, unsupported):
        if with_probabilities:
            collected.add(decisions, acting, logger)
        # Consecutive decisions of a user in the same state have the same expected reward: compute it at the first one.
        is_new = user_begins(user[decisions])
        is_new[1:] |= (states[decisions[1:]] != states[decisions[:-1]]).any(axis=1)
        starts = np.flatnonzero(is_new)
        first = decisions[starts]
        weight = np.diff(np.append(starts, len(decisions)))
        if world.slate_size > 1:
            rows_before = first - user_starts(user)[number[first]]
            expected = _expected_of_rankings(world, acting, states[first], user[first], rows_before, seed)
        else:
            expected = _expected(world, acting, states[first], user[first])
        for name in acting:
            np.add.at(sums[name], number[first], expected[name] * weight)
    columns: Columns = {}
    if with_probabilities:
        columns = collected.columns
    return _Block(counts, sums, columns)


def states_of(world: DecisionWorld, log: Log | Columns, seed: int) -> Floats:
    """Return the hidden state (n, d) at the decision of each row of a log; NaN on organic rows.

    The users are simulated again under the logged actions: random numbers have addresses, so the same actions lead to
    the same states.

    Raises:
        UserError: the decisions of the simulation are not those of the log.
    """
    user = log["user"]
    action = log["action"]
    bandit = np.flatnonzero(log["event"] == schema.BANDIT)
    size = world.slate_size
    users, position = np.unique(user, return_inverse=True)
    lanes = world.lanes(len(users))
    which = np.arange(len(users))
    out = np.full((len(user), lanes.state.shape[1]), np.nan)
    first_decision = np.searchsorted(position[bandit], which)  # index in ``bandit``, by user
    n_decisions = np.bincount(position[bandit], minlength=len(users)) // size
    transition = lanes.begin(which, np.full(len(users), seed, np.uint64), users)
    done = np.zeros(len(users), np.int64)
    while True:
        which = which[transition.alive]  # lanes of users who have a decision to make
        if not np.array_equal(which, np.flatnonzero(n_decisions > done)):
            raise UserError("the log does not follow from this world and seed: was it changed, or cut within a user?")
        if len(which) == 0:
            return out
        # Each user's decisions before the next organic event, or up to the last logged one, are taken at once.
        runs = np.minimum(lanes.runs(which), n_decisions[which] - done[which])
        lane = np.repeat(np.arange(len(which)), runs)  # index in ``which`` of each decision
        place = np.arange(len(lane)) - np.repeat(np.cumsum(runs) - runs, runs)
        rows = bandit[(first_decision[which] + size * done[which])[lane] + place]
        if size > 1:
            rows = rows[:, None] + np.arange(size)
            out[rows] = lanes.state[which][:, None]
            transition = lanes.take(which, action[rows], np.ones(rows.shape))
        else:
            out[rows] = lanes.state[which][lane]
            transition = lanes.take_runs(which, runs, action[rows], np.ones(len(rows)))
        done[which] += runs


def _expected_of_rankings(
    world: DecisionWorld, policies: Mapping[str, Any], state: Floats, users: Ints, rows_before: Rows, seed: int
) -> dict[str, Floats]:
    """Compute, by policy, the expected reward (n,) per shown item, averaged over rankings drawn in each state.

    Args:
        world: world of the states.
        policies: ranking policies by name.
        state: (n, d) states.
        users: (n,) users in these states.
        rows_before: (n,) number of the user's earlier rows in the log, by which the draws of rankings are addressed.
        seed: seed of the log.
    """
    row = np.repeat(np.arange(len(users)), _RANKINGS)  # index of the state of each draw
    size = world.slate_size
    # Number of each draw among the user's, which is unique because no two states begin at one row.
    number = (rows_before[:, None] * _RANKINGS + np.arange(_RANKINGS)).ravel()
    draws = ranking_uniforms(derive_seed(seed, "value_on_log"), users[row], number, size)
    out = {}
    for name, policy in policies.items():
        means = world.ranking_means(state[row], policy.rank(users[row], draws))
        out[name] = means.reshape(len(users), -1).mean(axis=1)
    return out


def _expected(world: DecisionWorld, policies: Mapping[str, Any], state: Floats, users: Ints) -> dict[str, Floats]:
    """Compute, by policy, the expected reward (n,) of its action for users (n,) in states (n, d).

    If a policy takes an action with probability 1, the mean of that item suffices. The means of all items, which cost
    more, are computed only for states in which some policy is stochastic.
    """
    n = len(users)
    n_items = world.n_items
    out = {name: np.empty(n) for name in policies}
    fixed = {name: policy.fixed_distribution() for name, policy in policies.items()}
    unsure = dict.fromkeys(policies, np.ones(n, np.bool_))  # True where the whole distribution is needed
    for name, policy in policies.items():
        if fixed[name] is not None or not policy.batches_decisions:
            continue
        decided = policy.act(users, np.full(n, 0.5))  # a deterministic policy does the same for any uniform
        actions, propensities = checked_decisions(policy, decided, n=n, n_items=n_items)
        unsure[name] = propensities < 1.0
        sure = np.flatnonzero(~unsure[name])
        out[name][sure] = world.reward_means_of(state[sure], actions[sure])
    rows_of_means = np.flatnonzero(np.any(list(unsure.values()), axis=0))
    step = max(1, _MEAN_BYTES // (8 * n_items))
    for begin in range(0, len(rows_of_means), step):
        rows = rows_of_means[begin : begin + step]
        means = world.reward_means(state[rows])
        for name, policy in policies.items():
            is_unsure = unsure[name][rows]
            if fixed[name] is not None:
                out[name][rows] = np.einsum("j,ij->i", checked_distribution(policy, fixed[name], n_items), means)
            elif is_unsure.any():
                probabilities = policy.probabilities(users[rows[is_unsure]])
                distribution = checked_distribution(policy, probabilities, n_items, n=int(is_unsure.sum()))
                means_needed = means if is_unsure.all() else means[is_unsure]
                out[name][rows[is_unsure]] = np.einsum("ij,ij->i", distribution, means_needed)
    return out
