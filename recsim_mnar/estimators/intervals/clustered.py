"""The interval of a mean over rows that come in clusters, as the rows of a user do."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def ratio_interval(
    sums: ArrayLike, counts: ArrayLike, level: float, largest: float | None = None
) -> tuple[float, float, float]:
    """A mean over rows whose users are independent but whose rows within a user are not: R = sum y_u / sum n_u.

    By user, with Student's quantile at the degrees of freedom that unequal users leave, and with what one more row
    could add: no interval is a point, and one of rewards that are not negative has no negative end (docs/verdict.md).

    Args:
        sums: (U,) each user's sum.
        counts: (U,) each user's number of rows; users without rows count for nothing.
        level: nominal coverage.
        largest: largest reward of a row; None for the largest mean of a user, or 1 where every sum is 0.

    Returns:
        value, low, high; the interval is infinite for fewer than two users with rows.
    """
    from recsim_mnar.estimators.intervals.limits import Deviations, positive_limits

    y, n = np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    y, n = y[n > 0], n[n > 0]
    if len(n) == 0:
        return math.nan, -math.inf, math.inf
    total = float(n.sum())
    value = float(y.sum()) / total
    if len(n) == 1:
        return value, -math.inf, math.inf
    step = float(np.max(np.abs(y) / n)) if largest is None else largest
    spread = Deviations.of(y - value * n, int(np.count_nonzero(y))).spread(total, step or 1.0, max(value, 0.0), level)
    if np.all(y >= 0.0):
        return value, *positive_limits(value, spread, level)
    less, more = spread.reaches(level)
    return value, value - less, value + more
