"""Estimates from row scores: every estimator, every interval, and what changed weights may hide."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.intervals import (
    ROUNDING,
    Cut,
    Deviations,
    Interval,
    clipping_bias_bound,
    gamma_limits,
    positive_limits,
    small_sample_factor,
    student_limits,
)
from recsim_mnar.estimators.off_policy.from_moments import (
    Bounds,
    assemble,
    intersected,
    mean_limits,
    spread_facts,
    unit,
)
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.scores import Rows, Scores
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.estimators.verdict import CAUTION, Estimate, Finding
from recsim_mnar.log.columns import Floats, user_sums

GUARANTEED = {
    "betting": "betting (Waudby-Smith-Ramdas)",
    "anytime": "betting confidence sequence, anytime-valid",
}
INTERVALS = ("auto", "bootstrap", *GUARANTEED)
NARROW = 0.8
"""Width over that of the default interval below which an asymptotic one leaves out too much to be trusted."""


@dataclass(frozen=True)
class Case:
    """Ingredients of one estimate's limits; rewards and model are counted from the least reward.

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
        """The largest weight possible, as given and if none changes it; else the largest seen."""
        seen = float(np.max(self.used))
        given = self.stated.largest_weight
        if given is None or self.scores.other_weights:
            return seen
        return max(given if self.scores.used is None else min(given, self.scores.most), seen)

    @property
    def one_reward(self) -> float:
        """Size assumed for one more reward, above the least one."""
        return self.bounds.one_reward(self.moments)

    def sums(self, values: Floats) -> Floats:
        """(U,) sums by user of row values (n,)."""
        return user_sums(values, self.rows.clusters)

    def variance(self, values: Floats) -> float:
        """Sum of squared user sums over n^2: the variance of a mean of rows about 0."""
        sums = self.sums(values)
        return float(sums @ sums) / values.size**2

    def deviations(self, influence: Floats) -> Deviations:
        """User sums of row influences, (n,), with mean 0."""
        sums, moments = self.sums(influence), self.moments
        square = sums * sums
        powers = float(np.sum(square)), 0.0, 0.0
        if powers[0] <= ROUNDING**2 * moments.power("xx"):
            powers = 0.0, 0.0, 0.0
        elif moments.grouped:
            powers = powers[0], float(square @ sums), float(square @ square)
        return Deviations(*powers, moments.users, moments.rewarded_users, moments.grouped)

    def step(self, weights: Floats, largest: float) -> float:
        """The largest effect of one more reward, as ``sampling.heaviest_step``.

        Args:
            weights: (n,) not negative.
            largest: the largest weight possible.
        """
        mean_reward = self.moments.sum("r") / self.moments.rows
        with_it = max(float(np.max(self.sums(weights - 1.0))) - (largest - 1.0), 0.0)
        return largest * self.one_reward + with_it * max(mean_reward, 0.0)


def estimate_from_scores(
    scores: Scores,
    rows: Rows,
    moments: Moments,
    estimator: str,
    *,
    level: float,
    interval: str,
    stated: Stated,
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
            that reckon with one more of the heaviest rows. Where no reward was seen the bootstrap is "auto" too.
        stated: what is known of the log besides its rows.
        replicates: of the bootstrap.
        seed: of the bootstrap.

    Raises:
        UserError: an unknown interval, or one that the estimator does not allow.
    """
    if interval not in INTERVALS:
        raise UserError(f"no interval {interval!r}; {nearest(str(interval), INTERVALS)}")
    if interval in GUARANTEED and not (scores.counts and scores.linear is not None):
        raise UserError(
            f"interval {interval!r} is for weighted rewards (ips, clipped_ips, sg_ips, ix_ips, balanced_ips); use "
            "interval='auto'"
        )
    bounds = Bounds.of(moments, stated)
    case = Case(scores, rows, moments, stated, bounds, level)
    value, warnings = scores.value(), list(scores.warnings)
    reason = "one user" if moments.users < 2 else "no support" if moments.supported == 0 and estimator != "dm" else ""
    if reason:
        sampling = Interval(0.0, bounds.reach, f"no interval: {reason}")
    elif interval in GUARANTEED:
        sampling = _guaranteed(case, interval)
    else:
        sampling = _default(case, value)
        if interval == "bootstrap" and (moments.rewarded or rows.q_target is not None):
            default, sampling = sampling, _bootstrap(case, replicates, seed)
            warnings += _narrow(sampling, default)
        elif interval == "bootstrap":
            sampling = replace(sampling, method=f"{sampling.method}, because no reward was seen")
    extras = spread_facts(moments, stated) | {"warnings": warnings, "ratio": scores.linear is None}
    extras["slope"] = scores.slope if rows.q_logged is None else max(float(np.max(rows.q_logged)), 0.0)
    whole = sampling
    below, above = hidden_part(case)
    if max(below, above) > 0.0:
        extras["changed"] = True
        whole = Interval(sampling.low - below, sampling.high + above, sampling.method)
        if scores.counts and interval == "auto" and not sampling.method.startswith("no interval"):
            unclipped = mean_limits(moments, stated, case.one_reward, level, clipped=False)
            whole, facts = intersected(replace(whole, high=sampling.high), above, unclipped, value)
            extras |= facts
    return assemble(value, sampling, whole, moments, bounds, stated, estimator, level, extras)


def _default(case: Case, value: float) -> Interval:
    scores, rows, level, words = case.scores, case.rows, case.level, unit(case.moments)
    found, n = case.deviations(scores.influence()), rows.reward.size
    if scores.counts:
        spread = found.spread(n, case.step(case.used, case.largest), max(value, 0.0), level)
        return Interval(*positive_limits(value, spread, level), f"gamma (Fay-Feuer), {words}")
    if scores.linear is None and scores.denominator is not None:
        mean = float(np.mean(scores.denominator))
        if mean <= 0.0:
            return Interval(0.0, case.bounds.reach, "no interval: no support")
        heaviest = float(np.max(scores.denominator))
        if case.stated.largest_weight is not None and scores.denominator is rows.weight:
            heaviest = max(heaviest, case.stated.largest_weight)
        sums = case.sums(scores.denominator)
        down = value * max(heaviest, float(sums @ sums) / float(np.sum(sums))) / mean
        spread = found.spread(n, case.step(scores.denominator / mean, heaviest / mean), down, level)
        return Interval(*positive_limits(value, spread, level), f"gamma (Fay-Feuer) of a ratio, {words}")
    less, more = found.spread(n, *scores.steps(rows, case.largest, case.one_reward), level).reaches(level)
    return Interval(value - less, value + more, f"{words} Student with the heaviest step")


def _bootstrap(case: Case, replicates: int, seed: int) -> Interval:
    from recsim_mnar.estimators.intervals import poisson_ratios

    scores, total = case.scores, np.zeros(1)
    for above, below in ((scores.linear, np.ones(case.rows.reward.size)), (scores.numerator, scores.denominator)):
        if above is not None and below is not None:
            total = total + poisson_ratios(case.sums(above), case.sums(below), replicates=replicates, seed=seed)
    half = (1.0 - case.level) / 2.0
    low, high = np.quantile(total, [half, 1.0 - half])
    return Interval(float(low), float(high), f"Poisson bootstrap, {unit(case.moments)}, percentile, asymptotic")


def _narrow(sampling: Interval, default: Interval) -> list[Finding]:
    """The finding that an asymptotic interval excludes values inside the default one."""
    width, wide = sampling.high - sampling.low, default.high - default.low
    ratio = width / wide if wide > 0.0 and math.isfinite(wide) else 0.0
    if ratio >= NARROW:
        return []
    message = f"the asymptotic interval is {100 * ratio:.0f} % as wide as one that reckons with rewards not seen"
    return [Finding("asymptotic", CAUTION, ratio, message, "use interval='auto'")]


def _guaranteed(case: Case, interval: str) -> Interval:
    """Intervals for bounded scores; observations are users, in order of first appearance (docs/verdict-theory.md)."""
    from recsim_mnar.estimators.intervals import betting

    scores, rows, moments = case.scores, case.rows, case.moments
    assert scores.linear is not None
    if math.isinf(case.bounds.range):
        return Interval(0.0, math.inf, f"{GUARANTEED[interval]}: no end without the range of rewards")
    sums, lengths = case.sums(scores.linear), case.sums(np.ones(rows.reward.size))
    if rows.clusters is not None:
        order = np.argsort(rows.clusters.first_rows(), kind="stable")
        sums, lengths = sums[order], lengths[order]
    longest, given = float(np.max(lengths)), case.stated.user_rows_max
    if given is not None and longest > given:
        raise UserError(f"user_rows_max is {given:g} and a user has {longest:g} rows; raise it")
    provisos = {
        "no user can have more rows": given is None and moments.clustered,
        "no larger weight is possible": case.stated.largest_weight is None and not math.isfinite(scores.most),
        "no larger reward is possible": not case.bounds.given or case.bounds.open,
    }
    longest = float(given) if given is not None and moments.clustered else longest
    most = case.largest * case.bounds.range
    ends = betting(sums / (most * longest), lengths / longest, case.level, anytime=interval == "anytime")
    said = " and ".join(words for words, needed in provisos.items() if needed)
    words = f"{GUARANTEED[interval]}, {unit(moments)}" + (f", if {said}" if said else "")
    return Interval(ends[0] * most, ends[1] * most, words)


def hidden_part(case: Case) -> tuple[float, float]:
    """Distance below and above the estimate's mean that the value may be because weights were changed.

    With weights u in place of w the bias is E[(w - u)(r - q)], q = 0 without a reward model. Where the model is not
    negative either it is between -E[(w - u)+ q] - E[(u - w)+ r] and E[(w - u)+ r] + E[(u - w)+ q], each of
    which is taken at an upper limit; otherwise between the ranges of r - q times E[(w - u)+] and E[(u - w)+] (Bottou et
    al. 2013, eq. 12-13). Every limit is one-sided at half of 1 - level, by user.

    Returns:
        (below, above), in the reward's unit.
    """
    scores, rows, level, reach, one_reward = case.scores, case.rows, case.level, case.bounds.reach, case.one_reward
    if scores.used is None or scores.other_weights:
        return 0.0, 0.0
    if math.isinf(reach):
        return 0.0 if scores.counts else reach, reach
    n, users = rows.reward.size, rows.reward.size if rows.clusters is None else rows.clusters.number
    if users < 2:
        return reach, reach
    inflate = small_sample_factor(users, level)
    kept = np.minimum(rows.weight, scores.used)
    excess, more = rows.weight - kept, scores.used - kept
    cut = Cut(
        kept=float(np.mean(kept)),
        kept_variance=case.variance(kept - np.mean(kept)) * inflate,
        excess=float(np.mean(excess)),
        excess_variance=case.variance(excess) * inflate,
        reward=None,
        reward_variance=0.0,
        weight=float(np.mean(rows.weight)),
        weight_variance=case.variance(rows.weight - np.mean(rows.weight)) * inflate,
        largest=float(np.max(excess)) / n,
    )
    q = rows.q_logged if rows.q_logged is not None and not scores.counts else np.zeros(1)
    q_low, q_high = float(np.min(q)), float(np.max(q))
    if q_low < 0.0:
        up, down = max(reach - q_low, 0.0), max(q_high, 0.0)
        grown = student_limits(float(np.mean(more)), case.variance(more - np.mean(more)), users, level)[1]
        below, above = (clipping_bias_bound(cut, most, most, level) for most in (down, up))
        return below + grown * up, above + grown * down

    def lost(outcome: Floats, most: float, one: float) -> float:
        """Upper limit of E[(w - u)+ outcome]."""
        product = excess * outcome
        own = replace(cut, reward=float(np.mean(product)), reward_variance=case.variance(product) * inflate)
        return clipping_bias_bound(own, most, one, level) if most > 0.0 else 0.0

    def added(outcome: Floats, most: float) -> float:
        """Upper limit of E[(u - w)+ outcome]."""
        largest, product = float(np.max(more)) * most, more * outcome
        if largest <= 0.0:
            return 0.0
        return gamma_limits(float(np.mean(product)), case.variance(product) * inflate, largest / n, level)[1]

    below = lost(q, q_high, q_high) + added(rows.reward, one_reward)
    return below, lost(rows.reward, reach, one_reward) + added(q, q_high)
