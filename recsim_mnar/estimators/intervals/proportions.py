"""Intervals for means of numbers with a least one, or with a range: of hit rates, of costs, of rank correlations."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def user_mean_interval(values: ArrayLike, level: float) -> tuple[float, float, float]:
    """Mean over independent users of a number in [0, 1] (a hit rate, a mean reciprocal rank), and an interval.

    The Clopper-Pearson interval of an effective number of trials, n = v (1 - v) / se^2 (Korn & Graubard 1998,
    "Confidence intervals for proportions with small expected number of positive counts estimated from survey data"),
    where se^2 is estimated between users, so that what one user does in several folds may depend; with Student's
    quantile for few users. Where all users have the same value there is no estimate of se, and every user counts as one
    trial.

    Args:
        values: (U,) one number in [0, 1] a user.
        level: nominal coverage.

    Returns:
        value, low, high; NaN, 0, 1 without any user.
    """
    from scipy.special import betaincinv, ndtri, stdtrit

    y = np.asarray(values, dtype=np.float64)
    n_users = len(y)
    if n_users == 0:
        return math.nan, 0.0, 1.0
    value = float(y.mean())
    tail = (1.0 - level) / 2.0
    variance = float(y.var(ddof=1)) / n_users if n_users > 1 else 0.0
    trials = float(n_users)
    # A spread that is rounding error counts as none.
    if variance > 1e-24 and 0.0 < value < 1.0:
        trials = value * (1.0 - value) / variance
        if n_users > 1:
            trials *= float(ndtri(1.0 - tail) / stdtrit(n_users - 1, 1.0 - tail)) ** 2
    hits = value * trials
    low = float(betaincinv(hits, trials - hits + 1.0, tail)) if hits > 0.0 else 0.0
    high = float(betaincinv(hits + 1.0, trials - hits, 1.0 - tail)) if hits < trials else 1.0
    return value, low, high


def positive_mean_interval(values: ArrayLike, level: float) -> tuple[float, float, float]:
    """Mean of independent numbers that are not negative (costs over catalogues), and an interval with no negative end.

    The gamma limits of :func:`recsim_mnar.estimators.intervals.limits.positive_limits`, with Student's quantile for few
    values. A sum of Poisson counts of parts of size c has variance c times its mean; one more part of the size that the
    values have by that rule, variance over mean, is added for the upper end (of size 1 where all are 0), and as much is
    taken away for the lower. Values that are nearly alike have small parts, and an interval near Student's.

    Args:
        values: (n,) numbers, none of them negative.
        level: nominal coverage.

    Returns:
        value, low, high; the interval is [0, inf) for fewer than two values.
    """
    from recsim_mnar.estimators.intervals.limits import Spread, positive_limits, small_sample_factor

    x = np.asarray(values, dtype=np.float64)
    n = len(x)
    if n == 0:
        return math.nan, 0.0, math.inf
    value = float(x.mean())
    if n == 1:
        return value, 0.0, math.inf
    variance = float(x.var()) / n * small_sample_factor(n, level)
    step = float(x.var(ddof=1)) / value if value > 0.0 else 1.0
    return value, *positive_limits(value, Spread(variance, 0.0, step / n, min(step, value) / n), level)


def ranged_mean_interval(values: ArrayLike, level: float, least: float, largest: float) -> tuple[float, float, float]:
    """Mean of independent numbers in [least, largest], and an interval within: :func:`user_mean_interval`, moved.

    Args:
        values: (n,) numbers; what roundings put outside the range is moved into it.
        level: nominal coverage.
        least: the least value possible.
        largest: the largest.
    """
    width = largest - least
    y = np.clip((np.asarray(values, dtype=np.float64) - least) / width, 0.0, 1.0)
    value, low, high = user_mean_interval(y, level)
    return least + width * value, least + width * low, least + width * high
