"""IPS and SNIPS with their sums by user, over ten million rows, next to reading the same columns in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from table import Row

from recsim_mnar.estimators import estimate_value
from recsim_mnar.estimators.sums import PolicySums

CLIP = 15.0
REPEATS = 60
"""The best of a few is still noise on a shared machine."""
THREE = ("ips", "clipped_ips", "snips")


def columns(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reward, propensity and target, filled in place so that no second copy is ever held."""
    rng = np.random.default_rng(0)
    reward, propensity, target = np.empty(rows), np.empty(rows), np.empty(rows)
    for start in range(0, rows, 1 << 16):
        part = slice(start, start + (1 << 16))
        rng.random(out=propensity[part])
        propensity[part] *= 0.49
        propensity[part] += 0.01
        rng.random(out=target[part])
        target[part] *= 0.5
        rng.random(out=reward[part])
        reward[part] = reward[part] < 0.05
    return reward, propensity, target


def three_estimates(*data: np.ndarray) -> list[Any]:
    """Values, intervals and verdicts."""
    return [estimate_value(*data, estimator=name, clip=CLIP) for name in THREE]


def two_values(reward: np.ndarray, propensity: np.ndarray, target: np.ndarray) -> tuple[float, float]:
    """The sums by user behind ips and snips, and their values."""
    sums = PolicySums.of(propensity, target, reward=reward)
    earned = sums.by_user.total("earned")
    return earned / sums.rows, earned / sums.by_user.total("weight")


def in_turn(functions: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Best wall seconds of each, run in turn so that all meet the same neighbours."""
    best = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()
    for _ in range(REPEATS):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def rows(quick: bool) -> list[Row]:
    """Sums by user, and three estimates with intervals and verdicts, next to reading the same columns."""
    from _floors_kernel import read

    n = 1_000_000 if quick else 10_000_000
    data = columns(n)
    ways = {"read": lambda: read(*data), "values": lambda: two_values(*data), "all": lambda: three_estimates(*data)}
    seconds = in_turn(ways)
    common = {"theirs": seconds["read"], "unit": "s", "floor": seconds["read"], "floor_is": "reading the three columns"}
    peer = "reading the same columns"
    return [
        Row(f"ips and snips, sums by user, {n:,} rows", peer, seconds["values"], bar=None, **common),
        Row("ips, clipped_ips and snips with intervals and verdicts", peer, seconds["all"], bar=None, **common),
    ]
