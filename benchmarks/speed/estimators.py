"""Clipped IPS with all its moments, over ten million rows, next to reading the same three columns in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from table import Row

from recsim_mnar.estimators import Moments
from recsim_mnar.estimators.off_policy.from_moments import estimate_from_moments

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
    moments = Moments.of(*data, clip=CLIP)
    return [estimate_from_moments(moments, name) for name in THREE]


def three_values(*data: np.ndarray) -> tuple[float, float, float]:
    """The moments behind everything, and the three values."""
    m = Moments.of(*data, clip=CLIP)
    return m.sum("x") / m.rows, m.sum("y") / m.rows, m.sum("x") / m.sum("w")


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
    """Clipped IPS with all its moments, and with intervals and verdicts, next to reading the same columns."""
    from _floors_kernel import read

    n = 1_000_000 if quick else 10_000_000
    data = columns(n)
    ways = {"read": lambda: read(*data), "values": lambda: three_values(*data), "all": lambda: three_estimates(*data)}
    seconds = in_turn(ways)
    common = {"theirs": seconds["read"], "unit": "s", "floor": seconds["read"], "floor_is": "reading the three columns"}
    peer = "reading the same columns"
    return [
        Row(f"clipped IPS, all moments, {n:,} rows", peer, seconds["values"], bar=0.9, **common),
        Row("the same, with intervals and verdicts", peer, seconds["all"], bar=None, **common),
    ]
