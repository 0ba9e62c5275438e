"""Estimates from row scores: every estimator, every interval."""

from __future__ import annotations

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.intervals.clipping import hidden_part
from recsim_mnar.estimators.intervals.gamma import gamma_of_rows
from recsim_mnar.estimators.intervals.limits import Interval, degrees_of_freedom, gamma_limits, student_limits
from recsim_mnar.estimators.off_policy.from_moments import diagnostics, reward_bounds
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.scores import Rows, Scores
from recsim_mnar.estimators.off_policy.verdict import verdict
from recsim_mnar.estimators.result import Estimate
from recsim_mnar.log.columns import user_sums

INTERVALS = ("auto", "gamma", "delta", "bootstrap", "bernstein", "betting", "log_smoothing", "anytime")
_GUARANTEED = {
    "bernstein": "empirical Bernstein (Maurer-Pontil)",
    "betting": "betting (Waudby-Smith-Ramdas)",
    "log_smoothing": "log smoothing (Sakhi)",
    "anytime": "betting confidence sequence, anytime-valid",
}


def estimate_from_scores(
    scores: Scores,
    rows: Rows,
    moments: Moments,
    estimator: str,
    *,
    level: float,
    interval: str = "auto",
    reward_max: float | None = None,
    replicates: int = 1000,
    seed: int = 0,
) -> Estimate:
    """Value, interval, diagnostics and verdict of any estimator.

    Args:
        scores: of the estimator on the rows.
        rows: the columns.
        moments: of the columns, for the diagnostics.
        estimator: its name.
        level: nominal coverage.
        interval: one of ``INTERVALS``; "auto" is gamma for weighted rewards that are not negative, else delta. Where no
            reward was seen delta and the bootstrap, which would have no width, are gamma too.
        reward_max: largest reward possible; None for 1 or the largest one seen.
        replicates: of the bootstrap.
        seed: of the bootstrap.

    Raises:
        UserError: an unknown interval, or one that the estimator or the rewards do not allow.
    """
    if interval not in INTERVALS:
        raise UserError(f"no interval {interval!r}; {nearest(str(interval), INTERVALS)}")
    bounds = reward_bounds(moments, reward_max)
    value = scores.value()
    unit = "by user" if moments.clustered else "by row"
    if moments.users < 2:
        sampling = Interval(bounds[0], bounds[1], "no interval: one user")
    elif moments.supported == 0 and estimator != "dm":
        sampling = Interval(bounds[0], bounds[1], "no interval: no support")
    elif interval == "bootstrap" and (moments.rewarded or rows.q_target is not None):
        sampling = _bootstrap(scores, rows, level, replicates, seed, unit)
    elif interval in _GUARANTEED:
        sampling = _guaranteed(scores, rows, moments, level, interval, bounds, unit)
    else:
        sampling = _moment_based(scores, rows, moments, value, level, interval, bounds, unit)
    if moments.reward_min >= 0.0 and moments.reward_max <= 1.0:
        sampling = sampling.within(*bounds)
    below, above = hidden_part(scores, rows, level, bounds)
    low, high = sampling.low - below, sampling.high + above
    warnings = ["the reward model's own error is not in the interval: compare with dr"] if estimator == "dm" else []
    facts = diagnostics(moments) | {
        "sampling_low": sampling.low,
        "sampling_high": sampling.high,
        "clip_part": max(below, above),
        "reward_max": bounds[1],
        "warnings": warnings,
    }
    if moments.reward_min >= 0.0 and moments.reward_max <= 1.0:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    method = sampling.method + (" + clip part" if max(below, above) > 0.0 else "")
    ends = min(low, value), max(high, value)
    return Estimate(value, *ends, level, method, moments.rows, moments.ess, facts, verdict(facts, estimator), estimator)


def _moment_based(
    scores: Scores,
    rows: Rows,
    moments: Moments,
    value: float,
    level: float,
    interval: str,
    bounds: tuple[float, float],
    unit: str,
) -> Interval:
    n = moments.rows
    allowed = scores.counts and moments.reward_min >= 0.0
    if interval == "gamma" and not allowed:
        raise UserError(
            "the gamma interval is for weighted rewards that are not negative (ips, clipped_ips, sg_ips, ix_ips, "
            "balanced_ips); use interval='auto' or 'delta'"
        )
    if allowed and interval in ("auto", "gamma", "bootstrap"):  # the bootstrap comes here where no reward was seen
        assert scores.linear is not None
        used = rows.weight if scores.used is None else scores.used
        ends = gamma_of_rows(scores.linear, used, rows.clusters, moments, level=level, reward_max=bounds[1])
        why = ", because no reward was seen" if interval == "bootstrap" else ""
        return Interval(*ends, f"gamma (Fay-Feuer), {unit}{why}")
    if moments.rewarded == 0 and rows.q_target is None:
        below = rows.weight if scores.denominator is None else scores.denominator
        total = n if scores.denominator is None else float(np.sum(below))
        step = float(np.max(below)) * bounds[1] / total
        high = gamma_limits(0.0, 0.0, step, level)[1]
        return Interval(0.0, min(high, bounds[1]), "gamma (Fay-Feuer), because no reward was seen")
    sums = user_sums(scores.influence(), rows.clusters)
    square = sums * sums
    second = float(np.sum(square))
    degrees = None
    if moments.clustered and moments.users < n:
        degrees = degrees_of_freedom(moments.users, moments.rewarded_users, second, float(square @ square))
    low, high = student_limits(value, second / n**2, moments.users, level, degrees)
    why = ", because rewards are negative" if interval == "auto" and scores.counts else ""
    return Interval(low, high, f"{unit} delta, asymptotic{why}")


def _bootstrap(scores: Scores, rows: Rows, level: float, replicates: int, seed: int, unit: str) -> Interval:
    from recsim_mnar.estimators.intervals.bootstrap import poisson_ratios

    total = np.zeros(1)
    ones = np.ones(rows.reward.size)
    if scores.linear is not None:
        total = total + poisson_ratios(
            user_sums(scores.linear, rows.clusters), user_sums(ones, rows.clusters), replicates=replicates, seed=seed
        )
    if scores.numerator is not None and scores.denominator is not None:
        total = total + poisson_ratios(
            user_sums(scores.numerator, rows.clusters),
            user_sums(scores.denominator, rows.clusters),
            replicates=replicates,
            seed=seed,
        )
    half = (1.0 - level) / 2.0
    low, high = np.quantile(total, [half, 1.0 - half])
    return Interval(float(low), float(high), f"Poisson bootstrap, {unit}, percentile, asymptotic")


def _guaranteed(
    scores: Scores, rows: Rows, moments: Moments, level: float, interval: str, bounds: tuple[float, float], unit: str
) -> Interval:
    """Intervals for bounded, non-negative scores; a user's sum over the mean number of rows is one observation."""
    from recsim_mnar.estimators.intervals import concentration as guarantees

    if not scores.counts or moments.reward_min < 0.0 or scores.linear is None:
        raise UserError(
            f"interval {interval!r} is for weighted rewards that are not negative (ips, clipped_ips, sg_ips, ix_ips, "
            "balanced_ips); use interval='auto'"
        )
    sums = user_sums(scores.linear, rows.clusters)
    largest = min(rows.clip, 1.0 / moments.propensity_min) if scores.used is not None else 1.0 / moments.propensity_min
    per_user = moments.rows / moments.users
    longest = 1.0
    if moments.clustered:
        longest = float(np.max(user_sums(np.ones(rows.reward.size), rows.clusters)))
    bound = largest * bounds[1] * longest / per_user
    values = sums / per_user
    if interval == "bernstein":
        ends = guarantees.empirical_bernstein(values, bound, level)
    elif interval == "log_smoothing":
        ends = guarantees.log_smoothing(values, bound, level)
    else:
        ends = guarantees.betting(values, bound, level, anytime=interval == "anytime")
    return Interval(*ends, f"{_GUARANTEED[interval]}, {unit}")
