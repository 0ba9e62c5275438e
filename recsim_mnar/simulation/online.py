"""simulate_online(world, policy, n_users, seed): one policy learns from all users while it acts, round by round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.kernels.checks import whole_number
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.policies.answers import Acting
from recsim_mnar.policies.base import Policy
from recsim_mnar.policies.door import as_policy, learning_of
from recsim_mnar.simulation.executor import together
from recsim_mnar.simulation.items import (
    Columns,
    checked_run,
    described,
    drive,
    in_user_order,
    provenance,
)
from recsim_mnar.worlds.checks import decision_world

ROUND = "round"
"""Name of the column that says in which round a row was made, from 0."""

_ROUNDS_TOGETHER = 4096
"""Rounds whose rows are kept apart before they become one: small arrays take more room than what they hold."""


@dataclass(frozen=True)
class Curve:
    """What a policy has earned, round by round; R rounds.

    Attributes:
        decisions: (R,) made up to the end of each round.
        rewards: (R,) earned by then.
    """

    decisions: NDArray[np.int64]
    rewards: NDArray[np.float64]

    @property
    def mean_rewards(self) -> NDArray[np.float64]:
        """(R,) mean reward of all decisions up to the end of each round; NaN before the first decision."""
        with np.errstate(invalid="ignore"):
            return self.rewards / self.decisions


@dataclass(frozen=True)
class OnlineRun:
    """What :func:`simulate_online` gives.

    Attributes:
        log: ordered by (user, step), with the column :data:`ROUND`. Its users are not independent of each other: what
            was shown to one depends on what others did.
        policy: the object that acted and learned.
        curve: what it earned.
    """

    log: Log
    policy: Policy
    curve: Curve


def simulate_online(world: Any, policy: Any, n_users: int, seed: int, *, lanes: int = 1) -> OnlineRun:
    """Users 0 .. n_users - 1 of a seed live under one object that acts and learns throughout.

    A round is one decision for every user who waits for one. In each, users who arrive (one in every lane that is free)
    are reset and show their views, then comes ``act``, then ``learn``, then the views that followed, then ``forget`` of
    those who left: each of them one call, users ascending. The order is a function of the arguments, so the bytes are
    too; with another number of lanes a policy that learns from all users meets them in another order.

    Args:
        world: whose users are recommended one item at a time.
        policy: as :func:`recsim_mnar.policies.door.as_policy` takes it, or the name of an agent that needs no log
            (``lin-ucb+alpha=0.5``). It is not changed: what acts is one ``fresh()`` copy, which is
            :attr:`OnlineRun.policy`.
        n_users: how many, at least 1.
        seed: of the users and of the policy's uniforms, in [0, 2**64).
        lanes: users who live side by side: decisions between two calls of ``learn``.

    Returns:
        The log, ordered by (user, step), the policy as it was left, and what it earned.

    Raises:
        UserError: a bad argument, or a policy that returns an impossible action or propensity.
    """
    world = decision_world(world, "simulate_online")
    if isinstance(policy, str):
        policy = registry.learner(policy).fit(Log({}), n_items=world.n_items)
    original = as_policy(policy)
    acting = original.fresh()
    n_users, seed = checked_run(world, acting, n_users, seed, 0)
    n_lanes = whole_number(lanes, "lanes", 1)
    describes = described(acting)
    parts: list[Columns] = []
    compacted: list[Columns] = []
    decisions: list[int] = []
    rewards: list[float] = []
    asked, lanes_of = Acting(acting, world.n_items, original), world.lanes(min(n_lanes, n_users))
    for transitions, earned in drive(world, asked, lanes_of, seed, 0, n_users):
        columns = together([transition.columns for transition in transitions])
        parts.append({**columns, ROUND: np.full(len(columns["user"]), len(decisions))})
        decisions.append(len(earned))
        rewards.append(float(earned.sum()))
        if len(parts) == _ROUNDS_TOGETHER:
            compacted.append(together(parts))
            parts = []
    whole = in_user_order(together(compacted + parts), 0, n_users)
    log = Log(whole, {**provenance(world, acting, n_users, seed), "policy": describes})
    log.provenance["online"] = online_provenance(log, acting, n_lanes)
    curve = Curve(np.cumsum(np.array(decisions, np.int64)), np.cumsum(np.array(rewards, np.float64)))
    return OnlineRun(log, acting, curve)


def online_provenance(log: Log, policy: Policy, lanes: int) -> dict[str, Any]:
    """What a log says of a run that one object went through: by it ``replay`` knows whether it has the whole."""
    learns = learning_of(policy)
    return {"learns": learns, "lanes": lanes, "rounds": int(log[ROUND].max(initial=-1)) + 1, "rows": len(log)}
