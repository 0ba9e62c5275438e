"""What a family of logs is: the door between those who draw families and the judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Log:
    """One log, columns of equal length n.

    reward: (n,) floats. propensity: (n,) the logging policy's probability of the logged action AS THE LOG STATES IT.
    target: (n,) the new policy's probability of the logged action. baseline: (n,) that of a policy the new one is
    compared with; equal to propensity where it is the policy that logged ("today's"). user: (n,) int codes, or None
    where rows are independent; a user's rows stand together, in time order. action: (n,) int codes. context: (n,) int
    codes of what the policies looked at, or None. reward_limit: (n,) the largest reward possible of each row's action
    (its price, say), for callers who state the facts, or None.
    """

    reward: np.ndarray
    propensity: np.ndarray
    target: np.ndarray
    baseline: np.ndarray
    user: np.ndarray | None
    action: np.ndarray
    context: np.ndarray | None = None
    reward_limit: np.ndarray | None = None


@dataclass(frozen=True)
class Family:
    """A kind of log whose truth is known.

    name: short. honest: whether propensities are right, every action of the target can be logged, users are independent
    and the policy was fixed without the log (False: say in note what is wrong). production: one of the realistic
    production settings. draw: seed -> Log, the same seed the same log. value, baseline_value: exact (or to 1e-4 of the
    value) expected reward per decision of the target and the baseline policy, in the states that the log's policy
    meets. facts: what a user who knows the logger could truly state: propensity_min (least probability of any action
    the target can take), reward_max, reward_min, weight_max. note: one or two sentences.
    """

    name: str
    honest: bool
    production: bool
    draw: Callable[[int], Log]
    value: float
    baseline_value: float
    facts: dict[str, Any] = field(default_factory=dict)
    note: str = ""
