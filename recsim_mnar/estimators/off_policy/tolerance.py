"""How wrong the propensities may be before a comparison with today's value says nothing more."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.written import Amounts, Record, target_of
from recsim_mnar.log.columns import column

ByRows = Callable[..., float]
"""Of a policy's name and ``today``, ``half_width`` and ``worse``, see
:func:`weight_tolerance`."""

TOLERANCE = "propensity_tolerance"


def propensity_tolerance(end: float, today: float) -> float:
    """Factor by which every propensity may be off before ``snips`` of 0/1 rewards reaches today's value.

    Propensities that are off by a factor of at most G change weights by as much, and so the odds of the self-normalised
    mean by at most G^2. The factor is the root of the ratio of odds.

    Args:
        end: the end of the interval that is nearer to today's value: the lower one of a policy that is better, the
            upper one of one that is worse.
        today: the mean reward of the log, strictly between 0 and 1 as ``end``, or one of them 0 or 1.

    Returns:
        1 and more, inf where one of the two is 0 or 1 and the other is not.

    Raises:
        UserError: no probabilities.
    """
    for value, name in ((end, "end"), (today, "today")):
        if not 0.0 <= value <= 1.0:
            raise UserError(f"{name} must lie in [0, 1], the mean of 0/1 rewards, got {value!r}")
    if end == today:
        return 1.0
    high, low = max(end, today), min(end, today)
    below = low * (1.0 - high)
    return math.sqrt(high * (1.0 - low) / below) if below > 0.0 else math.inf


def weight_tolerance(
    reward: Any, propensity: Any, target: Any, *, today: float, half_width: float, worse: bool = False
) -> float:
    """As :func:`propensity_tolerance`, of any rewards: by the extremes of sum(g w r) / sum(g w), g in [1/G, G].

    The least of these ratios is the v at which sum(g w (r - v)) has the least value 0: g is G where r < v and 1/G where
    r > v (Zhao, Small & Bhattacharya 2019, who sort the rewards to find v for a given G). The G for a given v needs no
    sorting: it is the root of sum w (r - v)+ over sum w (v - r)+. The interval's half width is taken off,
    as if it did not depend on G: v is today's value plus it.

    Args:
        reward: (n,) any real numbers.
        propensity: (n,) in (0, 1].
        target: (n,) in [0, 1].
        today: the mean reward of the log.
        half_width: from the value to the end of its interval that is nearer to today's value.
        worse: whether the policy is worse than today, so that the largest ratio is asked for.

    Returns:
        1 and more; 1 where the interval reaches today's value, inf where no factor brings it there.
    """
    r = column(reward, "reward")
    p, t = (column(values, name, rows=r.size) for values, name in ((propensity, "propensity"), (target, "target")))
    if r.size == 0:
        raise UserError("the log has no rows; give at least one")
    sign = -1.0 if worse else 1.0
    beyond = (t / p) * (sign * (r - today) - half_width)
    gain, loss = float(np.sum(np.maximum(beyond, 0.0))), float(np.sum(np.maximum(-beyond, 0.0)))
    if gain <= loss:
        return 1.0
    return math.sqrt(gain / loss) if loss > 0.0 else math.inf


def tolerated(record: Mapping[str, Any], by_rows: ByRows | None = None) -> dict[str, float]:
    """The tolerance of a difference from today's policy whose interval excludes 0; else, or if it has no end, nothing.

    Args:
        record: a difference.
        by_rows: for rewards other than 0 and 1; without it nothing is said of them.
    """
    low, high = float(record["low"]), float(record["high"])
    if "baseline" not in record or not record["today"] or low <= 0.0 <= high:
        return {}
    today, worse = record["diagnostics"]["mean_reward"], high < 0.0
    near = high if worse else low
    if Amounts.of([dict(record)]).shares:
        factor = propensity_tolerance(min(max(today + near, 0.0), 1.0), min(max(today, 0.0), 1.0))
    elif by_rows is not None:
        factor = by_rows(target_of(dict(record)), today=today, half_width=abs(record["value"] - near), worse=worse)
    else:
        return {}
    return {TOLERANCE: factor} if math.isfinite(factor) else {}


def with_tolerance(record: Record, by_rows: ByRows | None = None) -> Record:
    """The record, its diagnostics with :func:`tolerated`."""
    return record | {"diagnostics": record["diagnostics"] | tolerated(record, by_rows)}


def unless(record: Mapping[str, Any]) -> str:
    """How the sentence of a difference ends: for a person, with two digits of what is above 1."""
    factor = record.get("best_of", record["diagnostics"]).get(TOLERANCE)
    if factor is None or factor <= 1.0:
        return ""
    return f", unless propensities are off by more than {1.0 + float(f'{factor - 1.0:.2g}'):.6g} times"
