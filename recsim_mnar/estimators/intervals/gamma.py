"""The gamma interval of any mean of non-negative row scores."""

from __future__ import annotations

import numpy as np

from recsim_mnar.estimators.intervals.limits import degrees_of_freedom, gamma_limits, gamma_step, small_sample_factor
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.log.columns import Clusters, Floats, user_sums


def gamma_of_rows(
    scores: Floats, weights: Floats, clusters: Clusters | None, moments: Moments, *, level: float, reward_max: float
) -> tuple[float, float]:
    """Gamma limits of the mean of ``scores``, as those of :mod:`recsim_mnar.estimators.off_policy.from_moments`.

    Args:
        scores: (n,) weight times reward, not negative.
        weights: (n,) the weights, not negative.
        clusters: users, or None.
        moments: of the same rows, for the numbers of users.
        level: nominal coverage.
        reward_max: largest reward possible.
    """
    n = scores.size
    value = float(np.mean(scores))
    sums = user_sums(scores, clusters)
    square = user_sums(scores - value, clusters) ** 2
    second = float(np.sum(square))
    degrees = None
    if moments.clustered and moments.users < n:
        degrees = degrees_of_freedom(moments.users, moments.rewarded_users, second, float(square @ square))
    widest = float(np.max(weights)) * reward_max
    step = widest
    largest = float(np.max(scores))
    if value > 0.0:
        usual = max(largest, float(weights @ weights) / float(np.sum(weights)) * reward_max)
        step = gamma_step(usual, widest, float(sums @ sums) / float(np.sum(sums)))
    variance = max(second, largest * largest)
    return gamma_limits(value, variance / n**2 * small_sample_factor(moments.users, level, degrees), step / n, level)
