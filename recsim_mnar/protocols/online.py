"""Arms of agents that learn from all users while they act: whole runs, repeated with other seeds."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

import numpy as np

from recsim_mnar.estimators.verdict import Finding, Verdict, scaled
from recsim_mnar.policies.base import Policy
from recsim_mnar.protocols.ab_test import rate_of
from recsim_mnar.protocols.records import Record
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.executor import carrying, run_in_order
from recsim_mnar.simulation.online import simulate_online
from recsim_mnar.worlds.base import World

PROTOCOL = "online"
LEAST_RUNS = 5
"""Runs from which the t interval over runs is trusted: with four, one run in twenty decides its width."""
WIDE, USELESS = 0.4, 1.0
"""Half widths of the interval over the value, as of any other estimate (docs/verdict.md)."""


def online_arms(
    world: World,
    policies: Mapping[str, Policy],
    n_users: int,
    seed: int,
    *,
    runs: int = 10,
    lanes: int = 32,
    level: float = 0.95,
    executor: Executor | None = None,
) -> list[Record]:
    """Let each policy act and learn among ``n_users`` users, ``runs`` times from the beginning.

    Users of one run are not independent, for what one earns changes what the next is shown. Runs are: the value is
    the mean over runs of a run's mean reward, its interval that of Student's t over runs.

    Args:
        world: where they run.
        policies: by name; none of them is changed.
        n_users: of each run.
        seed: runs of all policies with one number share users; each run has a seed derived from this one.
        runs: how many, at least 2 for an interval.
        lanes: users who live side by side in a run.
        level: of the intervals.
        executor: to spread runs over.

    Returns:
        One record a policy, of protocol ``online`` and metric ``ctr`` (``reward`` where rewards are no clicks). Its
        details hold ``per_run``, the mean reward of each run, and ``last_tenth``, the mean over runs of the mean reward
        in the last tenth of the rounds: what the policy earns once it has learned.
    """
    records = []
    for name, policy in policies.items():
        began = time.perf_counter()
        one = carrying(_one_run, world, policy, n_users, lanes, in_python=True)
        jobs = (functools.partial(one, derive_seed(seed, f"online/{run}")) for run in range(runs))
        outcomes = np.array(list(run_in_order(jobs, executor)))
        value, low, high = over_runs(outcomes[:, 0], level)
        details: dict[str, Any] = {
            "users": n_users,
            "runs": runs,
            "lanes": lanes,
            "per_run": outcomes[:, 0].tolist(),
            "last_tenth": float(outcomes[:, 1].mean()),
            **_judged(runs, value, high - low).to_dict(),
        }
        seconds = time.perf_counter() - began
        n = int(outcomes[:, 2].sum())
        records.append(
            Record(
                world=world.name,
                protocol=PROTOCOL,
                agent=name,
                metric=rate_of(world)[0],
                value=value,
                low=low,
                high=high,
                level=level,
                n=n,
                seconds=seconds,
                details=details,
            )
        )
    return records


def over_runs(values: Any, level: float) -> tuple[float, float, float]:
    """Mean of independent runs (R,) and its interval by Student's t; infinite of a single run."""
    from scipy.special import stdtrit

    values = np.asarray(values, np.float64)
    mean, n = float(values.mean()), len(values)
    if n < 2:
        return mean, -math.inf, math.inf
    half = float(stdtrit(n - 1, 0.5 + level / 2)) * float(values.std(ddof=1)) / math.sqrt(n)
    return mean, mean - half, mean + half


def _one_run(world: World, policy: Policy, n_users: int, lanes: int, seed: int) -> tuple[float, float, float]:
    """Mean reward of a run, of its last tenth of rounds, and its number of decisions."""
    curve = simulate_online(world, policy, n_users, seed, lanes=lanes).curve
    first = len(curve.rewards) - max(1, len(curve.rewards) // 10)
    before = (curve.rewards[first - 1], curve.decisions[first - 1]) if first else (0.0, 0)
    late = (curve.rewards[-1] - before[0]) / max(int(curve.decisions[-1] - before[1]), 1)
    decisions = int(curve.decisions[-1])
    return float(curve.rewards[-1]) / max(decisions, 1), float(late), float(decisions)


def _judged(runs: int, value: float, width: float) -> Verdict:
    ratio = width / 2.0 / value if value > 0.0 else math.inf
    message = f"the interval reaches {100.0 * ratio:.3g} % of the rate to either side"
    findings = [Finding("wide_interval", scaled(ratio, WIDE, USELESS), ratio, message, "repeat it with more seeds")]
    if runs < LEAST_RUNS:
        told = f"{runs} runs, of which the interval is made"
        findings.append(Finding("few_runs", 1.0, float(runs), told, f"repeat it with at least {LEAST_RUNS} seeds"))
    return Verdict.of(findings)
