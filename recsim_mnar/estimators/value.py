"""estimate_value: from the columns of a log to an estimate with its interval and verdict."""

from __future__ import annotations

import math
from typing import Any

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.from_moments import estimate_from_moments
from recsim_mnar.estimators.inputs import Clusters, check_clip, check_level, column
from recsim_mnar.estimators.moments import Moments
from recsim_mnar.estimators.registry import check_name
from recsim_mnar.estimators.result import Estimate


def estimate_value(
    reward: Any,
    propensity: Any,
    target: Any,
    *,
    estimator: str = "clipped_ips",
    clip: float | None = None,
    q_logged: Any = None,
    q_target: Any = None,
    cluster: Any = None,
    level: float = 0.95,
    interval: str = "auto",
    **parameters: Any,
) -> Estimate:
    """Estimate what a target policy would have earned a decision on the log of another.

    Args:
        reward: (n,) observed rewards, any real numbers.
        propensity: (n,) in (0, 1], the logging policy's probability of the logged action.
        target: (n,) in [0, 1], the target policy's probability of the logged action.
        estimator: a name of :data:`recsim_mnar.estimators.ESTIMATORS`.
        clip: weights of the clipped estimators are cut there; None for no clipping.
        q_logged: (n,) a reward model's value of the logged action.
        q_target: (n,) its mean under the target policy.
        cluster: (n,) the user of each row, ids of any kind in any order; None where rows are independent.
        level: nominal coverage of the interval.
        interval: "auto" chooses and says what it chose in ``method``.
        **parameters: of the estimator.

    Returns:
        The estimate; ``low`` and ``high`` cover the target policy's value, what clipping may hide included.

    Raises:
        UserError: for input that is no data, with the column and row.
    """
    info = check_name(estimator)
    level = check_level(level)
    check_clip(clip)
    unknown = sorted(set(parameters) - set(info.takes))
    if unknown:
        known = ", ".join(info.takes) or "none"
        raise UserError(f"estimator {estimator!r} has no parameter {unknown[0]!r}; it takes: {known}")
    moments = Moments.of(reward, propensity, target, clip=clip, cluster=cluster)
    return estimate_from_moments(moments, estimator, level=level, interval=interval, **parameters)


def difference(
    reward: Any,
    propensity: Any,
    target: Any,
    baseline: Any,
    *,
    estimator: str = "clipped_ips",
    clip: float | None = None,
    cluster: Any = None,
    level: float = 0.95,
    reward_max: float | None = None,
) -> Estimate:
    """Estimate how much more than a baseline policy the target policy would have earned a decision.

    The two policies share the log, so the interval is of the difference itself (Jeunen 2024), not of two intervals.

    Args:
        reward: (n,) observed rewards.
        propensity: (n,) in (0, 1].
        target: (n,) the target policy's probability of the logged action.
        baseline: (n,) the baseline policy's.
        estimator: "ips", "clipped_ips" or "snips".
        clip: weights of clipped_ips are cut there; None for no clipping.
        cluster: (n,) the user of each row.
        level: nominal coverage.
        reward_max: largest reward possible, for what clipping may hide; None for 1 or the largest one seen.

    Raises:
        UserError: as :func:`estimate_value`.
    """
    from recsim_mnar.estimators.pair import estimate_difference

    check_name(estimator)
    if estimator not in ("ips", "clipped_ips", "snips"):
        raise UserError(f"difference knows the estimators ips, clipped_ips and snips, not {estimator!r}")
    rewards = column(reward, "reward")
    clusters = Clusters.of(cluster, rewards.size)
    limit = check_clip(clip) if estimator == "clipped_ips" else math.inf
    return estimate_difference(
        rewards,
        propensity,
        target,
        baseline,
        estimator=estimator,
        clip=limit,
        clusters=clusters,
        level=check_level(level),
        reward_max=reward_max,
    )
