"""The interval of a mean over rows that come in clusters, as the rows of a user do."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def ratio_interval(sums: ArrayLike, counts: ArrayLike, level: float) -> tuple[float, float, float]:
    """A mean over rows whose users are independent but whose rows within a user are not: R = sum y_u / sum n_u.

    The delta method by user, se^2 = U/(U-1) sum_u (y_u - R n_u)^2 / (sum n_u)^2, with Student's quantile.

    Args:
        sums: (U,) each user's sum.
        counts: (U,) each user's number of rows; users without rows count for nothing.
        level: nominal coverage.

    Returns:
        value, low, high; the interval is infinite for fewer than two users with rows.
    """
    from scipy.special import stdtrit

    y, n = np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    y, n = y[n > 0], n[n > 0]
    if len(n) == 0:
        return math.nan, -math.inf, math.inf
    value = float(y.sum() / n.sum())
    if len(n) == 1:
        return value, -math.inf, math.inf
    residual = y - value * n
    error = math.sqrt(len(n) / (len(n) - 1) * float(residual @ residual)) / float(n.sum())
    quantile = float(stdtrit(len(n) - 1, 0.5 + level / 2))
    return value, value - quantile * error, value + quantile * error
