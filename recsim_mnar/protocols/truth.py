"""The truth of a comparison of decision worlds: each policy's long-run rate, and how well differences are known."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.estimators.intervals.limits import ratio_interval
from recsim_mnar.policies.base import Policy
from recsim_mnar.protocols.ab_test import Floats, rate_of, run_arm
from recsim_mnar.protocols.long_run import asks_at_occasions, interval, long_run
from recsim_mnar.protocols.records import Record, ratio_influence, with_half_widths
from recsim_mnar.rng import derive_seed
from recsim_mnar.worlds.base import World

SHARE = 0.6
"""Of the users of a plain average, how many an average over occasions needs for intervals as narrow: see
``benchmarks/speed/README.md``."""

LEAST = 1000
"""Users from which on control variates are worth their degrees of freedom; fewer live plainly."""


@dataclass(frozen=True)
class _Known:
    """Of one policy: rate, interval, decisions it rests on, each user's part in the error, and how it was found."""

    value: float
    low: float
    high: float
    n: int
    influence: Floats
    details: dict[str, Any]


def truth(
    world: World,
    policies: Mapping[str, Policy],
    n_users: int,
    seed: int,
    *,
    level: float = 0.95,
    executor: Executor | None = None,
) -> list[Record]:
    """Long-run rate of each policy: exact expected rewards of what it shows, the same users for all.

    Where the world foresees occasions and a policy's choice rests on views alone, lives halt at occasions
    (:mod:`recsim_mnar.protocols.long_run`), and :data:`SHARE` of the users give intervals as narrow. Other
    policies, and all of them on fewer than :data:`LEAST` users, live plainly. A record's details tell which of the two
    it was, and how well its difference from each other policy's is known, user by user.

    Args:
        world: where they live.
        policies: by name.
        n_users: over whom a plain average would be taken.
        seed: of the users.
        level: of the intervals.
        executor: to spread users over.
    """
    records: list[Record] = []
    influence: dict[str, Floats] = {}
    for name, policy in policies.items():
        began = time.perf_counter()
        known = _known(world, policy, n_users, derive_seed(seed, "truth"), level, executor)
        influence[name] = known.influence
        records.append(
            Record(
                world=world.name,
                protocol="truth",
                agent=name,
                metric=rate_of(world)[0],
                value=known.value,
                low=known.low,
                high=known.high,
                level=level,
                n=known.n,
                seconds=time.perf_counter() - began,
                details=known.details,
            )
        )
    return with_half_widths(records, influence, level)


def _known(world: World, policy: Policy, n_users: int, seed: int, level: float, executor: Executor | None) -> _Known:
    if n_users >= LEAST and asks_at_occasions(world, policy):
        fewer = math.ceil(SHARE * n_users)
        found = long_run(world, policy, fewer, seed, executor=executor)
        if found is not None:
            low, high = interval(found, level)
            details = {"users": fewer, "method": "occasions"}
            return _Known(found.value, low, high, found.occasions, found.influence, details)
    arm = run_arm(world, policy, n_users, seed, executor=executor)
    value, low, high = ratio_interval(arm.means, arm.decisions, level)
    sums, counts = np.zeros(n_users), np.zeros(n_users)
    sums[arm.user], counts[arm.user] = arm.means, arm.decisions
    n = int(arm.decisions.sum())
    return _Known(value, low, high, n, ratio_influence(sums, counts), {"users": n_users, "method": "lives"})
