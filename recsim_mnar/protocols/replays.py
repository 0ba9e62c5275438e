"""Several policies on one simulated log, in one pass: what each would have done, and the truth of it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_begins
from recsim_mnar.log.table import Log
from recsim_mnar.policies.answers import (
    asked_propensities,
    checked_decisions,
    checked_distribution,
    spot_check_probabilities,
)
from recsim_mnar.policies.base import Ints, Policy, observe_events
from recsim_mnar.policies.door import learning_of
from recsim_mnar.replays.probabilities import (
    Columns,
    mass_outside,
    replay,
    replay_batches,
    replay_with_support,
    rows_of,
    same_law,
    supports_every_action,
    user_blocks,
)
from recsim_mnar.replays.truth import states_of, value_on_log
from recsim_mnar.simulation.executor import SHARD_USERS, carrying, run_in_order
from recsim_mnar.simulation.items import users_at_once
from recsim_mnar.worlds.base import DecisionWorld, World

Floats = NDArray[np.float64]

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


def replays(
    world: World,
    log: Log,
    policies: Mapping[str, Policy],
    logging: Policy | None,
    seed: int,
    *,
    executor: Executor | None = None,
) -> dict[str, PolicyOnLog]:
    """The probabilities of ``replay_with_support`` and the value of ``value_on_log``, of each policy.

    Policies that observe and do not learn share one pass over the log, in which each of them ranks items once.

    Args:
        world: that made the log.
        log: as ``simulate`` made it, with every user whole.
        policies: by name.
        logging: the policy under which the log was collected, where it is known.
        seed: with which the log was made.
        executor: to spread users over; no number depends on it.
    """
    known = logging if logging is not None and logging.replayable else None
    together = {name: policy for name, policy in policies.items() if _shares_a_pass(world, policy, known)}
    found = _in_one_pass(world, log, together, known, seed, executor) if together else {}
    for name, policy in policies.items():
        if name not in together:
            value = value_on_log(world, log, {name: policy}, seed, executor=executor)[name]
            if known is None:
                found[name] = PolicyOnLog(replay(log, policy, executor=executor), None, value)
            else:
                found[name] = PolicyOnLog(*replay_with_support(log, policy, known, executor=executor), value)
    return {name: found[name] for name in policies}


def _shares_a_pass(world: World, policy: Policy, logging: Policy | None) -> bool:
    if not isinstance(world, DecisionWorld) or not world.knows_rewards or not policy.replayable:
        return False
    if policy.n_items != world.n_items or (not policy.batches_decisions and policy.fixed_distribution() is None):
        return False
    return all(learning_of(one) == "nothing" for one in (policy, logging) if one is not None)


def _in_one_pass(
    world: World, log: Log, policies: dict[str, Policy], logging: Policy | None, seed: int, executor: Executor | None
) -> dict[str, PolicyOnLog]:
    held = [
        name
        for name, policy in policies.items()
        if logging is not None and not supports_every_action(logging) and not same_law(policy, logging)
    ]
    blocks = user_blocks(log["user"], SHARD_USERS if executor is not None else users_at_once(world))
    block = carrying(_block, world, policies, logging, held, seed, in_python=True)
    jobs = (functools.partial(block, rows_of(log, first, last), first) for first, last in blocks)
    probability = {name: np.full(len(log), np.nan) for name in policies}
    nothing = np.where(log["event"] == schema.BANDIT, 0.0, np.nan)
    missing = {name: nothing.copy() if logging is not None else None for name in policies}
    sums: dict[str, list[Floats]] = {name: [] for name in policies}
    for rows, found in run_in_order(jobs, executor):
        for name, (of_action, outside, expected) in found.items():
            probability[name][rows] = of_action
            sums[name].append(expected)
            of_policy = missing[name]
            if outside is not None and of_policy is not None:
                of_policy[rows] = outside
    n = int(log.is_bandit.sum())
    return {
        name: PolicyOnLog(probability[name], missing[name], float(np.concatenate(sums[name]).sum()) / n)
        for name in policies
    }


def _block(
    world: DecisionWorld,
    policies: dict[str, Policy],
    logging: Policy | None,
    held: list[str],
    seed: int,
    log: Columns,
    first: int,
) -> tuple[Ints, dict[str, tuple[Floats, Floats | None, Floats]]]:
    """Rows of decisions, and by policy: probability of each logged action, mass outside, sums (n_users,) of means."""
    user, item, action, reward = (log[name] for name in ("user", "item", "action", "reward"))
    states = states_of(world, log, seed, 0, len(user))
    begins = user_begins(user)
    number = np.cumsum(begins) - 1
    users = user[begins]
    acting = {name: policy.fresh() for name, policy in policies.items()}
    logger = logging.fresh() if logging is not None and held else None
    everyone = [*acting.values(), *([] if logger is None else [logger])]
    for policy in everyone:
        policy.reset(users)
    sums = {name: np.zeros(len(users)) for name in acting}
    rows: list[Ints] = []
    chosen: dict[str, list[Floats]] = {name: [] for name in acting}
    outside: dict[str, list[Floats]] = {name: [] for name in held}
    for views, decisions in replay_batches(log, 0, len(user), one_by_one=False):
        if len(views):
            for policy in everyone:
                observe_events(policy, user[views], item[views], reward[views])
        if not rows:
            for policy in acting.values():
                spot_check_probabilities(policy, np.unique(user[decisions]))
        rows.append(decisions)
        here = states[decisions]
        new = user_begins(user[decisions])
        moved = new.copy()
        moved[1:] |= (here[1:] != here[:-1]).any(axis=1)
        starts = np.flatnonzero(moved)
        weight = np.diff(np.append(starts, len(decisions)))
        place = number[decisions[starts]]
        expected = _expected(world, acting, here[starts], user[decisions[starts]])
        for name, policy in acting.items():
            chosen[name].append(asked_propensities(policy, user[decisions], action[decisions]))
            np.add.at(sums[name], place, expected[name] * weight)
            if name in held and logger is not None:
                mass = mass_outside(policy, logger, user[decisions][new])
                outside[name].append(mass[np.cumsum(new) - 1])
    if not rows:
        return np.zeros(0, np.int64), {name: (np.zeros(0), np.zeros(0), sums[name]) for name in acting}
    return np.concatenate(rows) + first, {
        name: (np.concatenate(chosen[name]), np.concatenate(outside[name]) if name in held else None, sums[name])
        for name in acting
    }


def _expected(world: DecisionWorld, policies: dict[str, Policy], state: Floats, users: Ints) -> dict[str, Floats]:
    """By policy the exact expected reward (n,) of its choice for users (n,) in these states (n, .).

    Who is sure of an item needs that item's mean alone; the means of all items are made where some policy is not sure.
    """
    n, n_items = len(users), world.n_items
    out = {name: np.empty(n) for name in policies}
    fixed = {name: policy.fixed_distribution() for name, policy in policies.items()}
    unsure = {}
    for name, policy in policies.items():
        if fixed[name] is not None:
            unsure[name] = np.ones(n, np.bool_)
            continue
        decided = policy.act(users, np.full(n, 0.5))
        actions, propensities = checked_decisions(policy, decided, n=n, n_items=n_items)
        unsure[name] = propensities < 1.0
        sure = np.flatnonzero(~unsure[name])
        out[name][sure] = world.reward_means_of(state[sure], actions[sure])
    asked = np.flatnonzero(np.any(list(unsure.values()), axis=0))
    step = max(1, _MEAN_BYTES // (8 * n_items))
    for begin in range(0, len(asked), step):
        rows = asked[begin : begin + step]
        means = world.reward_means(state[rows])
        for name, policy in policies.items():
            some = unsure[name][rows]
            if fixed[name] is not None:
                out[name][rows] = np.einsum("j,ij->i", checked_distribution(policy, fixed[name], n_items), means)
            elif some.any():
                given = policy.probabilities(users[rows[some]])
                probability = checked_distribution(policy, given, n_items, n=int(some.sum()))
                out[name][rows[some]] = np.einsum("ij,ij->i", probability, means if some.all() else means[some])
    return out
