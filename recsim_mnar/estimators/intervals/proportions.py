"""Intervals for means of numbers in [0, 1] over users, sound for means near 0 and 1."""

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
