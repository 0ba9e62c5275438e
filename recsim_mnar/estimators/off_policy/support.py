"""The target's mass that the log never shows: as stated, as the mean weight proves it, or as it may hide."""

from __future__ import annotations

import math
from dataclasses import dataclass

from recsim_mnar.estimators.intervals.limits import Spread, positive_limits, small_sample_factor, student_limits
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.stated import Stated

STRICT = 0.998
"""Level of the two-sided limits that contradict what is stated: met by chance once in a thousand true statements a
side."""


@dataclass(frozen=True)
class Support:
    """What is known of the missing mass m; the value lies in the interval with support plus [0, m (range of rewards)].

    Attributes:
        entering: the upper limit on m that enters the interval: of the column, or of a gap that the mean weight proves.
        known: mean of the column that states it, None without one.
        stated: whether support, or what is missing of it, was stated.
        proved: whether the mean weight proves a gap beyond what is stated: at the interval's level, at the strict one
            where support is stated.
        contradicted: whether it does at the strict level.
        hidden: the log's own upper limit on what m may be beyond what is stated, where no gap is proved and no bound of
            the weights is stated; 0 otherwise. Full support bounds no weight: an action may be too rare to be met.
        unbounded: whether support is stated and no bound of the weights is.
        excess: lower limit of the mean weight beyond what support leaves it, 0 where none is proved.
        mean: mean weight.
    """

    entering: float
    known: float | None
    stated: bool
    proved: bool
    contradicted: bool
    hidden: float
    unbounded: bool
    excess: float
    mean: float


def mean_weight_limits(moments: Moments, stated: Stated, level: float) -> tuple[float, float]:
    """Limits of E[w], which is 1 less the missing mass; a heavier weight than the largest could still be drawn."""
    n, mean = moments.rows, moments.sum("w") / moments.rows
    second = moments.power("ww") - 2.0 * mean * moments.power("lw") + mean**2 * moments.power("ll")
    given = stated.largest_weight
    heaviest = moments.weight_max if given is None else max(given, moments.weight_max)
    up = max(heaviest, moments.user_excess_max)
    factor = small_sample_factor(moments.users, level)
    if math.isinf(factor):
        return 0.0, math.inf
    third = 0.0
    return positive_limits(mean, Spread(max(second, 0.0) / n**2 * factor, third, up / n, mean / n), level)


def support_of(moments: Moments, stated: Stated, level: float) -> Support:
    """Weigh what is stated of support against the mean weight.

    Args:
        moments: of the log, with the column of missing mass where it was given.
        stated: what the user states.
        level: of the interval.
    """
    n, mean = moments.rows, moments.sum("w") / moments.rows
    known = None if moments.missing is None else moments.missing / n
    told = known or 0.0
    low, high = mean_weight_limits(moments, stated, level)
    strict_low, strict_high = mean_weight_limits(moments, stated, STRICT)
    is_stated = known is not None or stated.supports
    bounded = stated.largest_weight is not None
    proved = told + (strict_high if is_stated else high) < 1.0
    upper = min(max(1.0 - low, 0.0), 1.0)
    entering = 0.0
    if known is not None:
        entering = min(student_limits(known, moments.missing_error() ** 2, moments.users, level)[1], 1.0)
    if proved:
        entering = max(entering, upper)
    return Support(
        entering=entering,
        known=known,
        stated=is_stated,
        proved=proved,
        contradicted=told + strict_high < 1.0,
        # A mean weight that is above 1 by luck leaves no less room: what it leaves is at least its own reach below.
        hidden=0.0 if (is_stated and bounded) or proved else max(upper - told, mean - low),
        unbounded=is_stated and not bounded,
        excess=max(told + strict_low - 1.0, 0.0),
        mean=mean,
    )
