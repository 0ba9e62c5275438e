"""What a pilot says of second moments, made steadier by what is known beside the target's own rows.

**Users weighted so that the mean weights come out as they must.**
The mean of pi_t / p over a log is 1 where the log shows all that target t does, so that how far it is from 1 says how
often, by chance, the target's actions were met: too seldom, and every sum over them is too small. With factors g_u for
users, linear in the sums c_u of their (w - 1), such that sum g_u c_u = 0, sums are those that regression on c_u gives
(control variates; Deville & Sarndal 1992).

**How rewards spread, shared by all rows.** Of rewards that are not 0 let k = E[r^2] / E[r]^2. A target's own k rests on
the few rows with its actions, and squares are noisy; that of the whole pilot does not. The logarithms of both are put
together by their variances, with a standard deviation of :data:`DIFFERENCE` for what may truly differ between policies.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.log.columns import Clusters, Floats, user_sums

LEAST, MOST = 0.2, 3.0
"""Factors are kept between."""
DIFFERENCE = 0.15
"""Standard deviation of the logarithm of k between policies."""
_FEW = 30
"""Users with another sum than most, below which it is no control."""


def user_factors(weights: Floats, clusters: Clusters | None) -> Floats:
    """(U,) factors of mean 1, in the order of the users' codes.

    Args:
        weights: (n, J) weights whose mean is 1, but for chance.
        clusters: users; None where rows are independent.
    """
    sums = np.column_stack([user_sums(each - 1.0, clusters) for each in weights.T])
    mean = sums.mean(axis=0)
    spread = np.atleast_2d(np.cov(sums, rowvar=False))
    varied = np.diag(spread) > 0.0
    if len(sums) < _FEW or not varied.any():
        return np.ones(len(sums))
    slope = np.linalg.lstsq(spread[np.ix_(varied, varied)], mean[varied], rcond=1e-9)[0]
    factors = np.clip(1.0 - (sums[:, varied] - mean[varied]) @ slope, LEAST, MOST)
    return factors / factors.mean()


def of_rows(factors: NDArray[Any], clusters: Clusters | None) -> NDArray[Any]:
    """(n,) each row's user's factor."""
    return factors if clusters is None else factors[clusters.dense()[0]]


def spread_factor(reward: Floats, weights: Floats, clusters: Clusters | None) -> float:
    """By what to multiply a target's sum of weighted squares, so that its k is the one put together.

    Args:
        reward: (n,) not negative.
        weights: (n,) of the rows in the sum, 0 where the target never takes the action.
        clusters: users.
    """
    earning = reward > 0.0
    if not (weights[earning] > 0.0).any():
        return 1.0
    own, error = _log_spread(reward, weights * earning, clusters)
    pooled, known = _log_spread(reward, earning.astype(np.float64), clusters)
    noise, room = error**2, DIFFERENCE**2 + known**2
    return math.exp((pooled - own) * noise / (noise + room)) if noise > 0.0 else 1.0


def _log_spread(reward: Floats, weights: Floats, clusters: Clusters | None) -> tuple[float, float]:
    """log(sum W r^2 sum W / (sum W r)^2) and its standard error, by users' influences."""
    total, first, second = (float(weights @ reward**power) for power in (0, 1, 2))
    influence = weights * (reward**2 / second + 1.0 / total - 2.0 * reward / first)
    sums = user_sums(influence, clusters)
    return math.log(second * total / first**2), math.sqrt(float(sums @ sums))
