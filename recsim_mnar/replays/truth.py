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
    Prices,
    Rows,
    as_replayed,
    blocks_of,
    check_replayable,
    walks,
    with_gaps,
)
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.executor import SHARD_USERS, carrying, run_in_order
from recsim_mnar.simulation.items import users_at_once
from recsim_mnar.worlds.base import DecisionWorld, World, decision_world

_RANKINGS = 8
"""Rankings, drawn at addresses of their own, that stand for what a ranking policy may show in a state."""

_MEAN_BYTES = 1 << 24
"""Expected rewards held at once."""


class PolicyOnLog(NamedTuple):
    """A policy on a log.

    Attributes:
        probability: (n,) of each logged action; NaN on organic rows.
        missing: (n,) its probability of all that the logging policy never takes, NaN on organic rows; None where the
            logging policy is not known or cannot be replayed.
        value: its exact mean expected reward in the log's states.
    """

    probability: Floats
    missing: Floats | None
    value: float


def value_on_log(
    world: World, log: Log, policies: Mapping[str, Policy], seed: int, *, executor: Executor | None = None
) -> dict[str, float]:
    """Compute each policy's mean expected reward over the decisions of a log, in its states.

    This is what single-step importance weighting estimates. It is not the policy's on-policy value: a policy that runs
    itself leads users into other states. In a world of slates it is a mean per item shown; of a ranking policy that is
    not sure of its ranking it is an average over some that are drawn in each state.

    Args:
        world: that made the log.
        log: as ``simulate`` made it, with every user whole.
        policies: by name.
        seed: with which the log was made.
        executor: to spread users over.

    Raises:
        UserError: the log is not one of this world and seed.
    """
    of_type(log, "log", Log, "a Log (read_log reads one)")
    size = world.slate_size
    full = {name: as_replayed(policy, size) for name, policy in table_by_name(policies, "policies").items()}
    for policy in full.values():
        refuse_common_learning(policy, "the value on a log")
    return _values(list(_blocks(world, log, full, None, seed, executor, priced=False)), full)


def policies_on_log(
    world: World,
    log: Log,
    policies: Mapping[str, Policy],
    logging: Policy | None,
    seed: int,
    *,
    executor: Executor | None = None,
) -> dict[str, PolicyOnLog]:
    """Compute ``replay_with_support`` and ``value_on_log`` of each policy in one pass.

    Args:
        world: that made the log.
        log: as ``simulate`` made it, with every user whole.
        policies: by name.
        logging: the policy under which the log was collected, where it is known.
        seed: with which the log was made.
        executor: to spread users over; no number depends on it.
    """
    if logging is not None and not logging.replayable:
        logging = None
    check_replayable(log.highest_item, policies, logging)
    blocks = list(_blocks(world, log, policies, logging, seed, executor, priced=True))
    values = _values(blocks, policies)
    columns = {name: np.concatenate([block.columns[name] for block in blocks]) for name in blocks[0].columns}
    return {name: PolicyOnLog(columns[name], columns.get(name + UNSUPPORTED), value) for name, value in values.items()}


def _values(blocks: list[_Block], names: Iterable[str]) -> dict[str, float]:
    """Return each policy's mean over all decisions."""
    n_decisions = sum(float(block.decisions.sum()) for block in blocks)
    if n_decisions == 0:
        raise UserError("the log has no recommendation: there is no state to value a policy in")
    return {name: float(np.concatenate([block.sums[name] for block in blocks]).sum()) / n_decisions for name in names}


class _Block(NamedTuple):
    """Users of a block: number of decisions (U,), sums (U,) by policy, and prices (n,) where asked for."""

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
    priced: bool,
) -> Iterator[_Block]:
    world = decision_world(world, "the value on a log")
    if not world.knows_rewards:
        raise UserError(
            f"the {world.name} world does not say its expected rewards, which the value on a log needs: define "
            "reward_means(state), and state in its lanes"
        )
    job = carrying(_block, world, policies, logging, with_gaps(policies, logging), seed, priced, in_python=True)
    advance = counted(int(np.count_nonzero(log.is_bandit)), "decisions")
    blocks = blocks_of(log, SHARD_USERS if executor is not None else users_at_once(world))
    for block in run_in_order((functools.partial(job, rows) for rows in blocks), executor):
        advance(int(block.decisions.sum()))
        yield block


def _block(
    world: DecisionWorld,
    policies: Policies,
    logging: Policy | None,
    gaps: Sequence[str],
    seed: int,
    priced: bool,
    rows: Columns,
) -> _Block:
    user = rows["user"]
    states = states_of(world, rows, seed)
    number = user_numbers(user)
    prices = Prices(rows, policies, logging, gaps)
    counts = np.bincount(number[rows["event"] == schema.BANDIT], minlength=number[-1] + 1).astype(np.float64)
    sums = {name: np.zeros(len(counts)) for name in policies}
    for decisions, acting, logger in walks(rows, policies, logging, gaps):
        if priced:
            prices.add(decisions, acting, logger)
        # Decisions of one user in one state count together: the first row of each run, with the run's length.
        is_new = user_begins(user[decisions])
        is_new[1:] |= (states[decisions[1:]] != states[decisions[:-1]]).any(axis=1)
        starts = np.flatnonzero(is_new)
        first = decisions[starts]
        weight = np.diff(np.append(starts, len(decisions)))
        if world.slate_size > 1:
            after = first - user_starts(user)[number[first]]
            expected = _expected_of_rankings(world, acting, states[first], user[first], after, seed)
        else:
            expected = _expected(world, acting, states[first], user[first])
        for name in acting:
            np.add.at(sums[name], number[first], expected[name] * weight)
    return _Block(counts, sums, prices.columns if priced else {})


def states_of(world: DecisionWorld, log: Log | Columns, seed: int) -> Floats:
    """Return the hidden state at each row's decision, (n, .); NaN on organic rows.

    The users live again: the streams are addressed, so the logged actions lead them through the same life.
    """
    user = log["user"]
    action = log["action"]
    bandit = np.flatnonzero(log["event"] == schema.BANDIT)
    size = world.slate_size
    users, position = np.unique(user, return_inverse=True)
    lanes = world.lanes(len(users))
    which = np.arange(len(users))
    out = np.full((len(user), lanes.state.shape[1]), np.nan)
    first_of = np.searchsorted(position[bandit], which)
    n_of = np.bincount(position[bandit], minlength=len(users)) // size
    transition = lanes.begin(which, np.full(len(users), seed, np.uint64), users)
    done = np.zeros(len(users), np.int64)
    while True:
        which = which[transition.alive]
        if not np.array_equal(which, np.flatnonzero(n_of > done)):
            raise UserError("the log does not follow from this world and seed: was it changed, or cut within a user?")
        if len(which) == 0:
            return out
        runs = np.minimum(lanes.runs(which), n_of[which] - done[which])
        lane = np.repeat(np.arange(len(which)), runs)  # of each decision
        place = np.arange(len(lane)) - np.repeat(np.cumsum(runs) - runs, runs)
        rows = bandit[(first_of[which] + size * done[which])[lane] + place]
        if size > 1:
            rows = rows[:, None] + np.arange(size)
            out[rows] = lanes.state[which][:, None]
            transition = lanes.take(which, action[rows], np.ones(rows.shape))
        else:
            out[rows] = lanes.state[which][lane]
            transition = lanes.take_runs(which, runs, action[rows], np.ones(len(rows)))
        done[which] += runs


def _expected_of_rankings(
    world: DecisionWorld, policies: Mapping[str, Any], state: Floats, users: Ints, after: Rows, seed: int
) -> dict[str, Floats]:
    """Compute, by policy, the mean expected reward (n,) per item of its rankings in these states.

    ``after``: (n,) rows of the user before; they address the draws.
    """
    of = np.repeat(np.arange(len(users)), _RANKINGS)
    size = world.slate_size
    number = (after[:, None] * _RANKINGS + np.arange(_RANKINGS)).ravel()
    drawn = ranking_uniforms(derive_seed(seed, "value_on_log"), users[of], number, size)
    out = {}
    for name, policy in policies.items():
        means = world.ranking_means(state[of], policy.rank(users[of], drawn))
        out[name] = means.reshape(len(users), -1).mean(axis=1)
    return out


def _expected(world: DecisionWorld, policies: Mapping[str, Any], state: Floats, users: Ints) -> dict[str, Floats]:
    """Compute, by policy, the expected reward (n,) of its choice for users (n,) in states (n, .).

    Who is sure of an item needs that item's mean alone; the means of all items are made where some policy is not sure.
    """
    n = len(users)
    n_items = world.n_items
    out = {name: np.empty(n) for name in policies}
    fixed = {name: policy.fixed_distribution() for name, policy in policies.items()}
    unsure = dict.fromkeys(policies, np.ones(n, np.bool_))
    for name, policy in policies.items():
        if fixed[name] is not None or not policy.batches_decisions:
            continue
        decided = policy.act(users, np.full(n, 0.5))
        actions, propensities = checked_decisions(policy, decided, n=n, n_items=n_items)
        unsure[name] = propensities < 1.0
        sure = np.flatnonzero(~unsure[name])
        out[name][sure] = world.reward_means_of(state[sure], actions[sure])
    rows_asked = np.flatnonzero(np.any(list(unsure.values()), axis=0))
    step = max(1, _MEAN_BYTES // (8 * n_items))
    for begin in range(0, len(rows_asked), step):
        rows = rows_asked[begin : begin + step]
        means = world.reward_means(state[rows])
        for name, policy in policies.items():
            some = unsure[name][rows]
            if fixed[name] is not None:
                out[name][rows] = np.einsum("j,ij->i", checked_distribution(policy, fixed[name], n_items), means)
            elif some.any():
                law = policy.probabilities(users[rows[some]])
                probability = checked_distribution(policy, law, n_items, n=int(some.sum()))
                out[name][rows[some]] = np.einsum("ij,ij->i", probability, means if some.all() else means[some])
    return out
