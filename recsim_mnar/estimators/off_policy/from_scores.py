"""Estimates from row scores: every estimator, every interval, and what changed weights may hide."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.intervals.limits import (
    ROUNDING,
    Cut,
    Deviations,
    Interval,
    Spread,
    clipping_bias_bound,
    degrees_of_freedom,
    gamma_limits,
    positive_limits,
    small_sample_factor,
    student_limits,
)
from recsim_mnar.estimators.off_policy.from_moments import assemble, intersected, narrow, spread_facts
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.sampling import Bounds, mean_limits, unit
from recsim_mnar.estimators.off_policy.scores import Rows, Scores
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.estimators.verdict import Estimate
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


def hidden_part(
    scores: Scores, rows: Rows, level: float, reward_range: float, one_reward: float
) -> tuple[float, float]:
    """How far below and above the estimate's mean the target policy's value may lie because weights were changed.

    With weights u in place of w the bias is E[(w - u)(r - q)], q = 0 without a reward model. Where neither rewards nor
    the model are negative it lies between -E[(w - u)+ q] - E[(u - w)+ r] and E[(w - u)+ r] + E[(u - w)+ q], each of
    which is taken at an upper limit; otherwise between the ranges of r - q times E[(w - u)+] and E[(u - w)+] (Bottou et
    al. 2013, eq. 12-13).

    Args:
        scores: of the estimator.
        rows: the columns.
        level: nominal coverage; every limit is one-sided at half of 1 - level, by user.
        one_reward: what one more reward is reckoned as, above the least.
        reward_range: largest minus least reward possible; rewards and model are counted from the least one.

    Returns:
        (below, above), in the reward's unit.
    """
    if scores.used is None or scores.other_weights:
        return 0.0, 0.0
    bounds = (0.0, reward_range)
    if np.isinf(reward_range):
        return 0.0 if scores.counts else reward_range, reward_range
    users = rows.reward.size if rows.clusters is None else rows.clusters.number
    if users < 2:
        return bounds[1] - bounds[0], bounds[1] - bounds[0]
    inflate = small_sample_factor(users, level)
    kept = np.minimum(rows.weight, scores.used)
    excess, more = rows.weight - kept, scores.used - kept
    cut = Cut(
        kept=float(np.mean(kept)),
        kept_variance=_variance(kept - np.mean(kept), rows) * inflate,
        excess=float(np.mean(excess)),
        excess_variance=_variance(excess, rows) * inflate,
        reward=None,
        reward_variance=0.0,
        weight=float(np.mean(rows.weight)),
        weight_variance=_variance(rows.weight - np.mean(rows.weight), rows) * inflate,
        largest=float(np.max(excess)) / rows.reward.size,
    )
    q = rows.q_logged if rows.q_logged is not None and not scores.counts else np.zeros(1)
    q_low, q_high = float(np.min(q)), float(np.max(q))
    if bounds[0] < 0.0 or q_low < 0.0:
        up, down = max(bounds[1] - q_low, 0.0), max(q_high - bounds[0], 0.0)
        grown = student_limits(float(np.mean(more)), _variance(more - np.mean(more), rows), users, level)[1]
        return clipping_bias_bound(cut, down, down, level) + grown * up, clipping_bias_bound(
            cut, up, up, level
        ) + grown * down

    def lost(outcome: Floats, most: float, one: float) -> float:
        """Upper limit of E[(w - u)+ outcome]."""
        product = excess * outcome
        own = replace(cut, reward=float(np.mean(product)), reward_variance=_variance(product, rows) * inflate)
        return clipping_bias_bound(own, most, one, level) if most > 0.0 else 0.0

    def added(outcome: Floats, most: float) -> float:
        """Upper limit of E[(u - w)+ outcome]."""
        largest = float(np.max(more)) * most
        if largest <= 0.0:
            return 0.0
        product = more * outcome
        return gamma_limits(
            float(np.mean(product)), _variance(product, rows) * inflate, largest / rows.reward.size, level
        )[1]

    below = lost(q, q_high, q_high) + added(rows.reward, one_reward)
    return below, lost(rows.reward, bounds[1], one_reward) + added(q, q_high)


def _variance(values: Floats, rows: Rows) -> float:
    """Sum of squared user sums of ``values`` (n,) over n^2: the variance of a mean of rows about 0."""
    sums = user_sums(values, rows.clusters)
    return float(sums @ sums) / values.size**2


INTERVALS = ("auto", "gamma", "delta", "bootstrap", "bernstein", "betting", "log_smoothing", "anytime")
_GUARANTEED = {
    "bernstein": "empirical Bernstein (Maurer-Pontil)",
    "betting": "betting (Waudby-Smith-Ramdas)",
    "log_smoothing": "log smoothing (Sakhi)",
    "anytime": "betting confidence sequence, anytime-valid",
}


@dataclass(frozen=True)
class Case:
    """What the limits of one estimate are made of; rewards and model are counted from the least reward.

    Attributes:
        scores: of the estimator.
        rows: the columns.
        moments: of the columns (of the estimator's own weights, where it has others).
        stated: what is known of the log.
        bounds: of rewards.
        level: nominal coverage.
    """

    scores: Scores
    rows: Rows
    moments: Moments
    stated: Stated
    bounds: Bounds
    level: float

    @property
    def used(self) -> Floats:
        """The weights that multiply rewards."""
        return self.rows.weight if self.scores.used is None else self.scores.used

    @property
    def largest(self) -> float:
        """The largest of them possible, as given and where none changes it; else the largest seen."""
        seen = float(np.max(self.used))
        given = self.stated.largest_weight
        if given is None or self.scores.other_weights:
            return seen
        return max(given if self.scores.used is None else min(given, self.scores.most), seen)


def estimate_from_scores(
    scores: Scores,
    rows: Rows,
    moments: Moments,
    estimator: str,
    *,
    level: float,
    interval: str = "auto",
    stated: Stated | None = None,
    replicates: int = 1000,
    seed: int = 0,
) -> Estimate:
    """Value, interval, diagnostics and verdict of any estimator.

    Args:
        scores: of the estimator on the rows.
        rows: the columns, rewards and model counted from the moments' least reward.
        moments: of the columns, for the diagnostics.
        estimator: its name.
        level: nominal coverage.
        interval: one of ``INTERVALS``; "auto" is gamma for weighted rewards and their ratios, else Student's limits
            that
            reckon with one more of the heaviest rows. Where no reward was seen delta and the bootstrap are "auto" too.
        stated: what is known of the log beside its rows.
        replicates: of the bootstrap.
        seed: of the bootstrap.

    Raises:
        UserError: an unknown interval, or one that the estimator does not allow.
    """
    if interval not in INTERVALS:
        raise UserError(f"no interval {interval!r}; {nearest(str(interval), INTERVALS)}")
    stated = stated or Stated()
    bounds = Bounds.of(moments, stated)
    case = Case(scores, rows, moments, stated, bounds, level)
    value = scores.value()
    influence = scores.influence()
    extras: dict[str, Any] = spread_facts(moments, stated)
    warnings = list(scores.warnings)
    sampling = _no_interval(case, estimator, interval)
    if sampling is None:
        sampling = _default(case, value, influence, interval)
        silent = not moments.rewarded and rows.q_target is None
        if interval in ("delta", "bootstrap") and not silent:
            honest = sampling
            sampling = _delta(case, value, influence) if interval == "delta" else _bootstrap(case, replicates, seed)
            warnings += narrow(sampling, honest)
        elif interval in ("delta", "bootstrap"):
            sampling = Interval(sampling.low, sampling.high, f"{sampling.method}, because no reward was seen")
        elif interval in _GUARANTEED:
            sampling = _guaranteed(case, interval)
    whole = sampling
    below, above = hidden_part(scores, rows, level, bounds.reach, bounds.one_reward(moments))
    if max(below, above) > 0.0:
        extras["changed"] = True
        whole = Interval(sampling.low - below, sampling.high + above, sampling.method)
        if scores.counts and interval in ("auto", "gamma") and not sampling.method.startswith("no interval"):
            unclipped = mean_limits(moments, stated, bounds.one_reward(moments), level, clipped=False)
            whole = intersected(Interval(whole.low, sampling.high, sampling.method), above, unclipped)
            extras["unclipped_half"] = (unclipped.high - unclipped.low) / 2.0
            extras["value_outside"] = max(unclipped.low - value, value - unclipped.high, 0.0)
    extras["warnings"] = warnings
    extras["ratio"] = scores.linear is None
    extras["slope"] = scores.slope if rows.q_logged is None else max(float(np.max(rows.q_logged)), 0.0)
    return assemble(value, sampling, whole, moments, bounds, stated, estimator, level, extras)


def _no_interval(case: Case, estimator: str, interval: str) -> Interval | None:
    """The whole range, where the log allows no interval."""
    counted = case.scores.counts or (case.scores.linear is None and case.rows.q_target is None)
    if interval == "gamma" and not counted:
        raise UserError(
            "the gamma interval is for weighted rewards (ips, clipped_ips, snips, sg_ips, ix_ips, balanced_ips); use "
            "interval='auto' or 'delta'"
        )
    if interval in _GUARANTEED and not (case.scores.counts and case.scores.linear is not None):
        raise UserError(
            f"interval {interval!r} is for weighted rewards (ips, clipped_ips, sg_ips, ix_ips, balanced_ips); use "
            "interval='auto'"
        )
    reason = ""
    if case.moments.users < 2:
        reason = "one user"
    elif case.moments.supported == 0 and estimator != "dm":
        reason = "no support"
    return Interval(0.0, case.bounds.reach, f"no interval: {reason}") if reason else None


def _default(case: Case, value: float, influence: Floats, interval: str) -> Interval:
    scores, rows, moments, level = case.scores, case.rows, case.moments, case.level
    words = unit(moments)
    mean_reward, one = max(moments.sum("r") / moments.rows, 0.0), case.bounds.one_reward(moments)
    if scores.counts:
        assert scores.linear is not None
        ends = gamma_of_rows(
            scores.linear, case.used, rows.clusters, moments, level=level, one_reward=one, largest=case.largest,
        )  # fmt: skip
        return Interval(*ends, f"gamma (Fay-Feuer), {words}")
    if scores.linear is None and scores.denominator is not None:
        n, mean = rows.reward.size, float(np.mean(scores.denominator))
        if mean <= 0.0:
            return Interval(0.0, case.bounds.reach, "no interval: no support")
        heaviest = float(np.max(scores.denominator))
        if case.stated.largest_weight is not None and scores.denominator is rows.weight:
            heaviest = max(heaviest, case.stated.largest_weight)
        up = row_step(scores.denominator / mean, rows.clusters, heaviest / mean, one, mean_reward)
        sums = user_sums(scores.denominator, rows.clusters)
        down = value * max(heaviest, float(sums @ sums) / float(np.sum(sums))) / mean
        spread = deviations_of(influence, rows.clusters, moments).spread(n, up, down, level)
        return Interval(*positive_limits(value, spread, level), f"gamma (Fay-Feuer) of a ratio, {words}")
    up, down = scores.steps(rows, case.largest, one)
    less, more = reaches(influence, rows.clusters, moments, up=up, down=down, level=level)
    return Interval(value - less, value + more, f"{words} Student with the heaviest step")


def _delta(case: Case, value: float, influence: Floats) -> Interval:
    moments, n = case.moments, case.rows.reward.size
    found = deviations_of(influence, case.rows.clusters, moments)
    degrees = None
    if found.grouped:
        degrees = degrees_of_freedom(found.users, found.rewarded_users, found.second, found.fourth)
    low, high = student_limits(value, found.second / n**2, moments.users, case.level, degrees)
    return Interval(low, high, f"{unit(moments)} delta, asymptotic")


def _bootstrap(case: Case, replicates: int, seed: int) -> Interval:
    from recsim_mnar.estimators.intervals.by_user import poisson_ratios

    scores, clusters = case.scores, case.rows.clusters
    total = np.zeros(1)
    ones = np.ones(case.rows.reward.size)
    if scores.linear is not None:
        total = total + poisson_ratios(
            user_sums(scores.linear, clusters), user_sums(ones, clusters), replicates=replicates, seed=seed
        )
    if scores.numerator is not None and scores.denominator is not None:
        total = total + poisson_ratios(
            user_sums(scores.numerator, clusters),
            user_sums(scores.denominator, clusters),
            replicates=replicates,
            seed=seed,
        )
    half = (1.0 - case.level) / 2.0
    low, high = np.quantile(total, [half, 1.0 - half])
    return Interval(float(low), float(high), f"Poisson bootstrap, {unit(case.moments)}, percentile, asymptotic")


def _guaranteed(case: Case, interval: str) -> Interval:
    """Intervals for bounded scores: the observations are users, in order of first appearance (docs/verdict.md)."""
    from recsim_mnar.estimators.intervals import by_user as concentration

    scores, rows, moments = case.scores, case.rows, case.moments
    assert scores.linear is not None
    if math.isinf(case.bounds.range):
        return Interval(0.0, math.inf, f"{_GUARANTEED[interval]}: no end without the range of rewards")
    ones = np.ones(rows.reward.size)
    sums, lengths = user_sums(scores.linear, rows.clusters), user_sums(ones, rows.clusters)
    if rows.clusters is not None:
        order = np.argsort(rows.clusters.first_rows(), kind="stable")
        sums, lengths = sums[order], lengths[order]
    longest = float(np.max(lengths))
    provisos = []
    given = case.stated.user_rows_max
    if given is not None and longest > given:
        raise UserError(f"user_rows_max is {given:g} and a user has {longest:g} rows; raise it")
    if given is None and moments.clustered:
        provisos.append("no user can have more rows")
    if case.stated.largest_weight is None and not math.isfinite(scores.most):
        provisos.append("no larger weight is possible")
    if not case.bounds.given or case.bounds.open:
        provisos.append("no larger reward is possible")
    longest = float(given) if given is not None and moments.clustered else longest
    most = case.largest * case.bounds.range
    ends = concentration.METHODS[interval](sums / (most * longest), lengths / longest, case.level)
    words = f"{_GUARANTEED[interval]}, {unit(moments)}"
    words += f", if {' and '.join(provisos)}" if provisos else ""
    return Interval(ends[0] * most, ends[1] * most, words)
