"""What only the world can say of a policy: its exact value in the states that a log met."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.log.table import Log
from recsim_mnar.policies.answers import checked_distribution
from recsim_mnar.policies.base import Policy, observe_events
from recsim_mnar.policies.door import as_policy, learning_of, refuse_common_learning
from recsim_mnar.progress import counted
from recsim_mnar.replays.probabilities import Columns, replay_batches, rows_of, user_blocks
from recsim_mnar.simulation.executor import carrying, run_in_order
from recsim_mnar.worlds.base import DecisionWorld, World
from recsim_mnar.worlds.checks import decision_world

_CHUNK_BYTES = 1 << 24


def value_on_log(
    world: World, log: Log, policies: Mapping[str, Policy], seed: int, *, executor: Executor | None = None
) -> dict[str, float]:
    """Each policy's mean expected reward over the decisions of a log, in the states that the logging policy met.

    This is what single-step importance weighting estimates. It is not the policy's on-policy value: a policy that runs
    itself leads users into other states.

    Args:
        world: that made the log.
        log: as ``simulate`` made it, with every user whole.
        policies: by name.
        seed: with which the log was made.
        executor: to spread users over.

    Raises:
        UserError: the log is not one of this world and seed.
    """
    decisions, sums = sums_by_user(world, log, policies, seed, executor=executor)
    total = float(decisions.sum())
    if total == 0:
        raise UserError("the log has no recommendation: there is no state to value a policy in")
    return {name: float(values.sum()) / total for name, values in sums.items()}


def sums_by_user(
    world: World, log: Log, policies: Mapping[str, Policy], seed: int, *, executor: Executor | None = None
) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """What :func:`value_on_log` is made of: number of decisions of each of the log's users, and each policy's sums.

    Arguments and errors as there. Returns (U,) decisions and, by name, (U,) sums of expected rewards, users ascending.
    """
    world = decision_world(world, "the value on a log")
    if not world.knows_rewards:
        raise UserError(
            f"the {world.name} world does not say its expected rewards, which the value on a log needs: define "
            "reward_means(state), and state in its lanes"
        )
    policies = {name: as_policy(policy) for name, policy in policies.items()}
    for policy in policies.values():
        refuse_common_learning(policy, "the value on a log")
    blocks = user_blocks(log["user"])
    block = carrying(_sums, world, policies, seed, in_python=True)
    jobs = (functools.partial(block, rows_of(log, first, last)) for first, last in blocks)
    advance = counted(int(np.count_nonzero(log.is_bandit)), "decisions")
    parts = []
    for part in run_in_order(jobs, executor):
        parts.append(part)
        advance(int(part[0].sum()))
    if not parts:
        return np.zeros(0), {name: np.zeros(0) for name in policies}
    decisions = np.concatenate([counts for counts, _ in parts])
    return decisions, {name: np.concatenate([sums[name] for _, sums in parts]) for name in policies}


def states_of(world: DecisionWorld, log: Log | Columns, seed: int, first: int, last: int) -> NDArray[np.float64]:
    """Hidden state at each row's decision, for rows first..last-1 (which divide no user); NaN on organic rows.

    The users live again: the streams are addressed, so the logged actions lead them through the same life.
    """
    user, action = log["user"][first:last], log["action"][first:last]
    bandit = np.flatnonzero(log["event"][first:last] == schema.BANDIT)
    users, position = np.unique(user, return_inverse=True)
    lanes = world.lanes(len(users))
    which = np.arange(len(users))
    out = np.full((last - first, lanes.state.shape[1]), np.nan)
    first_of = np.searchsorted(position[bandit], which)
    n_of = np.bincount(position[bandit], minlength=len(users))
    transition = lanes.begin(which, np.full(len(users), seed, np.uint64), users)
    done = np.zeros(len(users), np.int64)
    while True:
        which = which[transition.alive]
        if not np.array_equal(which, np.flatnonzero(n_of > done)):
            raise UserError("the log does not follow from this world and seed: was it changed, or cut within a user?")
        if len(which) == 0:
            return out
        runs = np.minimum(lanes.runs(which), n_of[which] - done[which])
        of_run = np.repeat(np.arange(len(which)), runs)
        within = np.arange(len(of_run)) - np.repeat(np.cumsum(runs) - runs, runs)
        rows = bandit[(first_of[which] + done[which])[of_run] + within]
        out[rows] = lanes.state[which][of_run]
        transition = lanes.take_runs(which, runs, action[rows], np.ones(len(rows)))
        done[which] += runs


def _sums(
    world: DecisionWorld, policies: Mapping[str, Policy], seed: int, log: Columns
) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    first, last = 0, len(log["user"])
    states = states_of(world, log, seed, first, last)
    users = np.unique(log["user"])
    bandit = log["event"] == schema.BANDIT
    counts = np.bincount(np.searchsorted(users, log["user"][bandit]), minlength=len(users)).astype(np.float64)
    user, item, action, reward, propensity = (log[name] for name in ("user", "item", "action", "reward", "propensity"))
    acting = {name: policy.fresh() for name, policy in policies.items()}
    stepwise = any(learning_of(policy) != "nothing" for policy in acting.values())
    sums = {name: np.zeros(len(users)) for name in policies}
    for policy in acting.values():
        policy.reset(users)
    chunk = max(1, _CHUNK_BYTES // (8 * world.n_items))
    for views, decisions in replay_batches(log, first, last, one_by_one=stepwise):
        if len(views):
            for policy in acting.values():
                observe_events(policy, user[views], item[views], reward[views])
        if len(decisions) == 0:
            continue
        # Decisions of one user in one state count together; where interests drift between them each stands alone.
        here = states[decisions]
        new = np.concatenate(
            [[True], (user[decisions][1:] != user[decisions][:-1]) | (here[1:] != here[:-1]).any(axis=1)]
        )
        representative = np.flatnonzero(new)
        weight = np.diff(np.append(representative, len(decisions)))
        for a in range(0, len(representative), chunk):
            rows = representative[a : a + chunk]
            means = world.reward_means(here[rows])
            place = np.searchsorted(users, user[decisions][rows])
            for name, policy in acting.items():
                probability = checked_distribution(
                    policy, policy.probabilities(user[decisions][rows]), world.n_items, n=len(rows)
                )
                expected = np.einsum("ij,ij->i", probability, means)
                np.add.at(sums[name], place, expected * weight[a : a + chunk])
        if stepwise:
            for policy in acting.values():
                if learning_of(policy) != "nothing":
                    policy.learn(user[decisions], action[decisions], reward[decisions], propensity[decisions])
    return counts, sums
