"""What only the world can say of a policy: its exact value in the states that a log met."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import schema
from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.policy import Policy
from recsim_mnar.replay import innermost, learns, user_blocks, visits
from recsim_mnar.simulate import fresh, run_in_order
from recsim_mnar.worlds.base import World

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
    sums = dict.fromkeys(policies, 0.0)
    total = int(log.is_bandit.sum())
    if total == 0:
        raise UserError("the log has no recommendation: there is no state to value a policy in")
    jobs = (
        functools.partial(_sums, world, log, policies, seed, first, last) for first, last in user_blocks(log["user"])
    )
    for part in run_in_order(jobs, executor):
        for name, value in part.items():
            sums[name] += value
    return {name: value / total for name, value in sums.items()}


def states_of(world: World, log: Log, seed: int, first: int, last: int) -> NDArray[np.float64]:
    """Hidden state at each row's decision, for rows first..last-1 (which divide no user); NaN on organic rows.

    The users live again: the streams are addressed, so the logged actions lead them through the same life.
    """
    user, action = log["user"][first:last], log["action"][first:last]
    bandit = np.flatnonzero(log["event"][first:last] == schema.BANDIT)
    users, position = np.unique(user, return_inverse=True)
    lanes = world.open_lanes(len(users))
    which = np.arange(len(users))
    out = np.full((last - first, lanes.state.shape[1]), np.nan)
    first_of = np.searchsorted(position[bandit], which)
    n_of = np.bincount(position[bandit], minlength=len(users))
    moment = lanes.begin(which, np.full(len(users), seed, np.uint64), users)
    decision = 0
    while True:
        which = which[moment.alive]
        if not np.array_equal(which, np.flatnonzero(n_of > decision)):
            raise UserError("the log does not follow from this world and seed: was it changed, or cut within a user?")
        if len(which) == 0:
            return out
        rows = bandit[first_of[which] + decision]
        out[rows] = lanes.state[which]
        moment = lanes.take(which, action[rows], np.ones(len(rows)))
        decision += 1


def _sums(
    world: World, log: Log, policies: Mapping[str, Policy], seed: int, first: int, last: int
) -> dict[str, float]:
    states = states_of(world, log, seed, first, last)
    user, item, action, reward = log["user"], log["item"], log["action"], log["reward"]
    acting = {name: fresh(policy) for name, policy in policies.items()}
    one_by_one = {name: learns(innermost(policy)) for name, policy in acting.items()}
    stepwise = any(one_by_one.values())
    sums = dict.fromkeys(policies, 0.0)
    for policy in acting.values():
        policy.reset(np.unique(user[first:last]))
    chunk = max(1, _CHUNK_BYTES // (8 * world.n_items))
    for views, decisions in visits(log, first, last, one_by_one=stepwise):
        if len(views):
            for policy in acting.values():
                policy.observe(user[views], item[views])
        if len(decisions) == 0:
            continue
        # Decisions of one user in one state count together; where interests drift between them each stands alone.
        here = states[decisions - first]
        new = np.concatenate([[True], (user[decisions][1:] != user[decisions][:-1]) | (here[1:] != here[:-1]).any(axis=1)])
        representative = np.flatnonzero(new)
        weight = np.diff(np.append(representative, len(decisions)))
        for a in range(0, len(representative), chunk):
            rows = representative[a : a + chunk]
            means = world.reward_means(here[rows])
            for name, policy in acting.items():
                expected = np.einsum("ij,ij->i", policy.probabilities(user[decisions][rows]), means)
                sums[name] += float(expected @ weight[a : a + chunk])
        if stepwise:
            for policy in acting.values():
                policy.learn(user[decisions], action[decisions], reward[decisions])
    return sums
