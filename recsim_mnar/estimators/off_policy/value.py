"""estimate_value: from the columns of a log to an estimate with its interval and verdict."""

from __future__ import annotations

import math
from typing import Any

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.from_moments import INTERVALS as MOMENT_INTERVALS
from recsim_mnar.estimators.off_policy.from_moments import estimate_from_moments
from recsim_mnar.estimators.off_policy.inputs import check_clip, check_level, model_column
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.registry import EstimatorInfo, check_name
from recsim_mnar.estimators.result import Estimate
from recsim_mnar.log.columns import Clusters, column

_FROM_MOMENTS = ("ips", "clipped_ips", "snips")
_COMMON = ("reward_max", "replicates", "seed")
_MEANING = {
    "q_logged": "a reward model's value of each row's logged action",
    "q_target": "the reward model's mean under the target policy, for each row",
    "groups": "the action group or discrete embedding of each row",
    "loggers": "each logger's probability of the logged action, a row a row and a column a logger",
    "logger": "the number of each row's logger, a column of loggers",
}


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
        interval: "auto" chooses and says what it chose in ``method``: "gamma" (Fay & Feuer, on user sums) for weighted
            rewards that are not negative, else "delta" (by user, asymptotic). Also "bootstrap" (Poisson, by user);
            where no reward was seen these two would have no width, and gamma is taken. With a guarantee "bernstein",
            "betting", "log_smoothing" and "anytime" (holds while the log grows).
        **parameters: of the estimator: tau (switch_dr: weights up to tau are kept), lam (dros, sg_ips, sg_dr), gamma
            (ix_ips), groups (mips: the action group or embedding of each row), folds (beta_ips: a number, every K-th
            user or row being a fold, or a label a row), loggers and logger (balanced_ips: (n, J) probabilities of the
            logged action and each row's logger); and for all reward_max, replicates and seed (of the bootstrap).

    Returns:
        The estimate; ``low`` and ``high`` cover the target policy's value, what clipping may hide included.

    Raises:
        UserError: for input that is no data, with the column and row.
    """
    info = check_name(estimator)
    level = check_level(level)
    check_clip(clip)
    unknown = sorted(set(parameters) - {*info.takes, *info.requires, *_COMMON})
    if unknown:
        known = ", ".join((*info.requires, *info.takes, *_COMMON))
        raise UserError(f"estimator {estimator!r} has no parameter {unknown[0]!r}; it takes: {known}")
    missing = [name for name in info.requires if parameters.get(name) is None]
    if missing:
        raise UserError(f"estimator {estimator!r} needs the parameter {missing[0]!r}: {_MEANING[missing[0]]}")
    rewards = column(reward, "reward")
    if rewards.size == 0:
        raise UserError("the log has no rows; give at least one")
    clusters = Clusters.of(cluster, rewards.size)
    used_clip = clip if info.clips else None
    moments = Moments.of(rewards, propensity, target, clip=used_clip, cluster=clusters)
    if estimator in _FROM_MOMENTS and interval in MOMENT_INTERVALS:
        return estimate_from_moments(
            moments, estimator, level=level, interval=interval, reward_max=parameters.get("reward_max")
        )
    return _from_rows(
        (rewards, propensity, target, q_logged, q_target, clusters, check_clip(used_clip)),
        moments,
        info,
        level,
        interval,
        parameters,
    )


def _from_rows(
    columns: tuple[Any, ...],
    moments: Moments,
    info: EstimatorInfo,
    level: float,
    interval: str,
    parameters: dict[str, Any],
) -> Estimate:
    """Estimate through row scores."""
    from recsim_mnar.estimators.off_policy.from_scores import estimate_from_scores
    from recsim_mnar.estimators.off_policy.scores import FUNCTIONS, Rows

    reward, propensity, target, q_logged, q_target, clusters, clip = columns
    n = reward.size
    models = {"q_logged": q_logged, "q_target": q_target}
    for name in info.needs:
        if models[name] is None:
            raise UserError(f"estimator {info.name!r} needs {name}: {_MEANING[name]}")
    widest = moments.weight_max
    q = [model_column(models[k], k, reward, widest) if k in info.needs else None for k in ("q_logged", "q_target")]
    p, t = column(propensity, "propensity", rows=n), column(target, "target", rows=n)
    rows = Rows(reward, p, t, t / p, q[0], q[1], clusters, clip)
    own = {name: given for name, given in parameters.items() if name not in _COMMON}
    common = {name: given for name, given in parameters.items() if name in _COMMON}
    scores = FUNCTIONS[info.name](rows, **own)
    return estimate_from_scores(scores, rows, moments, info.name, level=level, interval=interval, **common)


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
    from recsim_mnar.estimators.off_policy.difference import estimate_difference

    check_name(estimator)
    if estimator not in ("ips", "clipped_ips", "snips"):
        raise UserError(f"difference knows the estimators ips, clipped_ips and snips, not {estimator!r}")
    rewards = column(reward, "reward")
    if rewards.size == 0:
        raise UserError("the log has no rows; give at least one")
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
