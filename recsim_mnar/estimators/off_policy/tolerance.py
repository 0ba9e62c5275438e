"""How wrong the propensities may be before a comparison with today's value says nothing more."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.log.columns import column


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
