"""Limits of a mean of row scores, from the rows: of scores that are not negative, and of any."""

from __future__ import annotations

import numpy as np

from recsim_mnar.estimators.intervals.limits import ROUNDING, Deviations, Spread, positive_limits
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.log.columns import Clusters, Floats, user_sums


def deviations_of(influence: Floats, clusters: Clusters | None, moments: Moments) -> Deviations:
    """Of the users' sums of row influences, (n,), whose mean is 0."""
    sums = user_sums(influence, clusters)
    square = sums * sums
    grouped = moments.clustered and moments.users < moments.rows
    if float(np.sum(square)) <= ROUNDING**2 * moments.power("xx"):
        return Deviations(0.0, 0.0, 0.0, moments.users, moments.rewarded_users, grouped)
    third = float(square @ sums) if grouped else 0.0
    fourth = float(square @ square) if grouped else 0.0
    return Deviations(float(np.sum(square)), third, fourth, moments.users, moments.rewarded_users, grouped)


def user_excess(weights: Floats, clusters: Clusters | None) -> float:
    """Most by which a user's weights, (n,), sum to more than the user has rows."""
    return float(np.max(user_sums(weights - 1.0, clusters)))


def row_step(
    weights: Floats, clusters: Clusters | None, largest: float, one_reward: float, mean_reward: float
) -> float:
    """The most that one more reward could bring, as :func:`recsim_mnar.estimators.off_policy.sampling.heaviest_step`.

    Args:
        weights: (n,) not negative.
        clusters: users, or None.
        largest: the largest weight possible.
        one_reward: what one more reward is reckoned as, above the least.
        mean_reward: of the log, above the least reward.
    """
    with_it = max(user_excess(weights, clusters) - (largest - 1.0), 0.0)
    return largest * one_reward + with_it * max(mean_reward, 0.0)


def gamma_of_rows(
    scores: Floats,
    weights: Floats,
    clusters: Clusters | None,
    moments: Moments,
    *,
    level: float,
    one_reward: float,
    largest: float,
) -> tuple[float, float]:
    """Limits of the mean of ``scores``, as those that :mod:`recsim_mnar.estimators.off_policy.sampling` has of moments.

    Args:
        scores: (n,) weight times reward above the least one, not negative.
        weights: (n,) the weights, not negative.
        clusters: users, or None.
        moments: of the same rows, for the numbers of users.
        level: nominal coverage.
        one_reward: what one more reward is reckoned as, above the least.
        largest: the largest weight possible.
    """
    n = scores.size
    value = float(np.mean(scores))
    step = row_step(weights, clusters, largest, one_reward, moments.sum("r") / n)
    spread = deviations_of(scores - value, clusters, moments).spread(n, step, max(value, 0.0), level)
    return positive_limits(value, spread, level)


def reaches(
    influence: Floats, clusters: Clusters | None, moments: Moments, *, up: float, down: float, level: float
) -> tuple[float, float]:
    """How far a value may lie below and above an estimate of any sign.

    Args:
        influence: (n,) row influences, whose mean is 0 and whose mean square is the variance of a row.
        clusters: users, or None.
        moments: of the same rows.
        up: the most that one more row could add, before the division by the number of rows.
        down: the most that it could take away.
        level: nominal coverage.
    """
    spread: Spread = deviations_of(influence, clusters, moments).spread(influence.size, up, down, level)
    return spread.reaches(level)
