"""Estimates of a value, and of a difference of two values, from sums by user: interval, diagnostics and verdict.

The sums of an estimator's scores (:mod:`recsim_mnar.estimators.sums`) give the value, its influence function and its
interval. The difference of two policies is estimated with the weight w - b, w being the target's and b the baseline's.

Inside this module, values are those of rewards from which ``Bounds.least`` has been subtracted; in estimates it is
added again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.checks import Evidence, Support, judge
from recsim_mnar.estimators.facts import PRECISION, Facts
from recsim_mnar.estimators.intervals import Interval
from recsim_mnar.estimators.scores import Rows, Scores
from recsim_mnar.estimators.sums import Limits, PolicySums, ScoreSums, UserSums
from recsim_mnar.estimators.verdict import Diagnostics, Estimate, Verdict

AUTO = "auto"
"""Name that stands for the default estimator."""
LEADING = "snips"
"""The default estimator without a clip: the one with the least error in benchmarks/ope_trust, in any unit of the
reward."""


@dataclass(frozen=True)
class Bounds:
    """Range of rewards, as stated and as the log shows it.

    Attributes:
        least: reward that was subtracted from all rewards.
        stated: largest possible reward as stated; None if it is not stated.
        seen: largest reward of the log; ``least`` if none is larger.
    """

    least: float
    stated: float | None
    seen: float

    @staticmethod
    def of(policy: PolicySums, facts: Facts) -> Bounds:
        """Combine the stated bounds with those that the log shows."""
        stated = None
        if facts.reward_max is not None:
            stated = float(facts.reward_max)
        return Bounds(policy.shift, stated, max(policy.reward_max, policy.shift))

    @property
    def most(self) -> float:
        """The largest possible reward as stated, else the log's; inf if the log has no reward above the least."""
        if self.stated is not None:
            return self.stated
        return self.seen if self.seen > self.least else math.inf

    @property
    def reach(self) -> float:
        """The largest reward minus the least."""
        return self.most - self.least

    @property
    def ceiling(self) -> float:
        """The largest possible value minus the least reward; inf if no largest reward is stated."""
        return math.inf if self.stated is None else self.reach

    @property
    def one_reward(self) -> float:
        """The assumed size of one more reward: the largest of the log, else the largest as stated, else inf."""
        return self.seen - self.least if self.seen > self.least else self.reach


# -------------------------------------------------------------------------------------------------------------- a value


def value_of(
    scored: ScoreSums,
    estimator: str,
    *,
    facts: Facts,
    level: float,
    precision: float = PRECISION,
    clip: float = math.inf,
    sampling: Interval | None = None,
) -> Estimate:
    """Estimate a policy's value, with interval, diagnostics and verdict.

    Args:
        scored: sums of the estimator's scores.
        estimator: name of the estimator.
        facts: facts about the log that its user states.
        level: nominal coverage.
        precision: largest ratio of half the interval to the value with which the value is trusted.
        clip: largest weight; inf for no clipping.
        sampling: interval for the sampling error; None for Student's.

    Raises:
        UserError: weights so small that their squares are 0.
    """
    policy = scored.policy
    value = scored.value
    if policy.by_user.total("weight") > 0.0 and policy.ess == 0.0:  # the squares underflow
        raise UserError(f"no weight is above {policy.weight_max:g}; give the probability of the logged action")
    bounds = Bounds.of(policy, facts)
    support = Support.of(policy, facts.supports, level)
    clips = math.isfinite(clip)
    sampling, total, evidence = _value_intervals(scored, estimator, bounds, level, sampling, clips=clips)
    clip_part = _beyond(total, sampling)
    gap = _gap(support, bounds)
    low, high = _value_limits(scored, total, support, bounds, evidence)
    diagnostics = replace(
        _diagnostics(policy, bounds, sampling, clip),
        clip_part=clip_part,
        gap_part=gap,
        share_clipped=scored.share_clipped,
        missing_mass=support.entering,
        full_support=facts.supports,
        **_identified(policy, support, value, sampling, estimator, level),
    )
    base = bounds.least
    evidence |= {"scale": abs(value + base), "precision": precision, "hidden": clip_part, "warnings": scored.warnings}
    verdict = judge(Evidence(diagnostics, policy, support, estimator, low, high, bounds=facts.bounds, **evidence))
    return Estimate(
        value=value + base,
        low=low + base,
        high=high + base,
        level=level,
        method=_method(sampling, clip_part, gap),
        n=policy.rows,
        ess=policy.ess,
        diagnostics=diagnostics,
        verdict=verdict,
        estimator=estimator,
    )


def _value_intervals(
    scored: ScoreSums, estimator: str, bounds: Bounds, level: float, sampling: Interval | None, *, clips: bool
) -> tuple[Interval, Interval, dict[str, Any]]:
    """Compute the intervals of a value, before the mass that the log lacks is considered.

    Args:
        scored: sums of the estimator's scores.
        estimator: name of the estimator.
        bounds: range of rewards.
        level: nominal coverage.
        sampling: interval for the sampling error; None for Student's.
        clips: whether the estimator clips weights.

    Returns:
        The interval for the sampling error.
        The interval that also allows for the bias of changed weights.
        Fields of :class:`Evidence` from both; empty if the log allows no interval.
    """
    policy = scored.policy
    evidence: dict[str, Any] = {}
    if policy.users < 2 or (policy.supported == 0 and estimator != "dm"):  # dm uses no weights
        reason = "one user" if policy.users < 2 else "no support"
        sampling = Interval(0.0, bounds.reach, f"no interval: {reason}")
        total = sampling
    else:
        limits = scored.limits(bounds.one_reward, level)
        sampling = sampling or limits.interval
        if not scored.modelled:
            error = ScoreSums.weighted(policy, ratio=True).limits(bounds.one_reward, level).error
            evidence |= {"carrying": limits.carrying, "heavy_tail": heavy_tail(policy, error)}
        total, evidence["value_outside"] = _with_hidden(scored, sampling, bounds, level, clips=clips)
    return sampling.within(0.0, bounds.ceiling), total.within(0.0, bounds.ceiling), evidence


def _value_limits(
    scored: ScoreSums, total: Interval, support: Support, bounds: Bounds, evidence: dict[str, Any]
) -> tuple[float, float]:
    """Widen the interval of a value so that it holds whatever the target's missing mass earns.

    Args:
        scored: sums of the estimator's scores.
        total: interval for the sampling error and for the bias of changed weights.
        support: knowledge of the missing mass.
        bounds: range of rewards.
        evidence: evidence from :func:`_value_intervals`; empty if the log allows no interval.

    Returns:
        Lower and upper end, which include the value unless it is proved biased.
    """
    # The lower end must hold if the missing mass earns nothing. A ratio takes that mass to earn as much as the rest.
    # Control variates subtract too much for it. A weighted mean is too large by the proved excess of the mean weight.
    too_much = support.too_much if scored.linear or not evidence else support.entering
    low = max(total.low * (1.0 - too_much) - support.entering * scored.slope, 0.0)
    high = min(total.high + _gap(support, bounds), bounds.ceiling)
    if evidence.get("value_outside"):
        return low, high
    return min(low, scored.value), max(high, scored.value)


def _gap(support: Support, bounds: Bounds) -> float:
    """Return the largest possible value of the target's actions that the log never shows; 0 if there are none."""
    return support.entering * bounds.reach if support.entering > 0.0 else 0.0


def _beyond(total: Interval, sampling: Interval) -> float:
    """Compute by how much an interval is wider than that for the sampling error: the larger excess of the two ends.

    An upper end counts only if that of the sampling interval is finite.
    """
    above = 0.0
    if math.isfinite(sampling.high):
        above = total.high - sampling.high
    return max(above, sampling.low - total.low, 0.0)


def _method(sampling: Interval, clip_part: float, gap: float) -> str:
    """Return the method of an interval in words, with the parts that widen it.

    Args:
        sampling: interval for the sampling error.
        clip_part: amount by which changed weights widen the interval.
        gap: amount by which missing mass widens it.
    """
    method = sampling.method
    if clip_part > 0.0:
        method += " + clip part"
    if gap > 0.0:
        method += " + missing mass"
    return method


def _with_hidden(
    scored: ScoreSums, sampling: Interval, bounds: Bounds, level: float, *, clips: bool
) -> tuple[Interval, float]:
    """Widen an interval by the largest possible bias of changed weights.

    If scores are weighted rewards, the interval of ips, with unchanged weights, is valid too, and the two are
    intersected.

    Args:
        scored: sums of the estimator's scores.
        sampling: interval for the sampling error.
        bounds: range of rewards.
        level: nominal coverage.
        clips: whether the estimator clips weights; one more reward then has the typical size of the log's rewards.

    Returns:
        The interval.
        The value's distance from the interval of ips, which proves a bias if it is above 0.
    """
    if scored.left_out is None:
        return sampling, 0.0
    usual = clips and scored.positive and sampling.method.startswith("Student")
    below, above = scored.left_out.hidden(scored.policy, bounds.one_reward, level, usual=usual)
    interval = Interval(sampling.low - below, sampling.high + above, sampling.method)
    if not scored.positive or not sampling.method.startswith(("Student", "no reward")):
        return interval, 0.0
    unchanged = ScoreSums.weighted(scored.policy, ratio=False).limits(bounds.one_reward, level).interval
    return _intersection(interval, unchanged, scored.value)


def _intersection(interval: Interval, unchanged: Interval, value: float) -> tuple[Interval, float]:
    """Intersect the interval of changed weights with that of the unchanged ones; disjoint ones give the latter.

    Returns:
        The interval.
        The value's distance from the interval of the unchanged weights; 0 inside it.
    """
    outside = max(unchanged.low - value, value - unchanged.high, 0.0)
    low = max(interval.low, unchanged.low)
    high = min(interval.high, unchanged.high)
    if low > high:
        return unchanged, outside
    return Interval(low, high, interval.method), outside


def heavy_tail(policy: PolicySums, error: float, squares: float | None = None) -> float:
    """Compute the standard error expected from the weights over the observed one of a self-normalised estimate.

    The expected variance assumes that rewards do not depend on the weights: it is sum w^2 times the target's variance
    of rewards, sum w (r - v)^2 / sum w. If the heaviest rows happen to earn nothing, the observed error is far smaller.

    Args:
        policy: sums of the target.
        error: standard error of the self-normalised value, or of the difference of two.
        squares: sum of squared differences w - b, for a difference; None for a value.

    Returns:
        The ratio; 1 if it cannot be computed, or if rows have weights of their own that depend on rewards.
    """
    sums = policy.by_user
    total = sums.total("weight")
    earned = sums.total("earned")
    if total <= 0.0 or error <= 0.0 or policy.thinned:
        return 1.0
    value = earned / total
    spread = max(sums.total("earned reward") - 2.0 * value * earned + value**2 * total, 0.0) / total
    if squares is None:
        return math.sqrt(spread * sums.total("squared weight")) / total / error
    return math.sqrt(spread * squares) / policy.rows / error


def _diagnostics(policy: PolicySums, bounds: Bounds, sampling: Interval, clip: float) -> Diagnostics:
    """Return the diagnostics of a value, without those of changed weights and missing mass."""
    n = policy.rows
    total = policy.by_user.total("weight")
    base = bounds.least
    squares_by_user = policy.by_user.squares("weight")
    return Diagnostics(
        n=n,
        users=policy.users,
        clustered=policy.clustered,
        clicks=policy.rewarded,
        ess=policy.ess,
        mean_weight=policy.mean_weight,
        mean_weight_se=policy.mean_weight_error,
        max_weight=policy.weight_max,
        max_weight_share=policy.weight_max / total if total > 0.0 else 0.0,
        support=policy.supported / n,
        mean_reward=policy.by_user.total("reward") / n + base,
        propensity_min=policy.propensity_min,
        least_propensity_rows=policy.least_propensity_rows,
        effective_users=total**2 / squares_by_user if squares_by_user > 0.0 else 0.0,
        sampling_low=sampling.low + base,
        sampling_high=sampling.high + base,
        clip_part=0.0,
        gap_part=0.0,
        reward_min=base,
        reward_max=bounds.most,
        clip=None if math.isinf(clip) else clip,
    )


def _identified(
    policy: PolicySums, support: Support, value: float, sampling: Interval, estimator: str, level: float
) -> dict[str, Any]:
    """Return the diagnostics about the part of the target that the log covers.

    Args:
        policy: sums of the target's weights and rewards.
        support: knowledge of the mass that the log lacks.
        value: estimate of the estimator.
        sampling: interval of the estimator for the sampling error.
        estimator: name of the estimator.
        level: nominal coverage.

    Returns:
        Fields of :class:`Diagnostics`: the covered share and, if it is below 1 and a self-normalised mean can be
        computed, the mean reward of the covered part with its interval.
    """
    share = support.covered
    base = policy.shift
    if share >= 1.0 or policy.users < 2 or policy.by_user.total("weight") <= 0.0:
        return {"identified_share": share}
    if policy.supported and estimator in ("ips", "clipped_ips") and policy.rewarded:
        ratio = ScoreSums.weighted(policy, ratio=True)
        value = ratio.value
        sampling = ratio.limits(math.inf, level).interval
    elif estimator != "snips":
        return {"identified_share": share}
    return {
        "identified_share": share,
        "value_identified": value + base,
        "identified_low": sampling.low + base,
        "identified_high": sampling.high + base,
    }


# --------------------------------------------------------------------------------------------------------- a difference


@dataclass
class PairSums:
    """Sums by user for the difference of two policies, with weights w of the target and b of the baseline.

    Attributes:
        target_sums: sums of the target's scores.
        baseline_sums: sums of the baseline's scores under the same estimator.
        ratio: sums of (w - b) r, b r, w - b and b, for the difference of two self-normalised means.
        means: sums of 1 and (w - b) r, for the difference of two means. If the estimator changes the weights, sums with
            the changed ones come first, then those with w and b. Empty for a self-normalised estimator.
        differing: number of rows whose weights differ.
    """

    target_sums: ScoreSums
    baseline_sums: ScoreSums
    ratio: UserSums
    means: tuple[UserSums, ...]
    differing: int

    @staticmethod
    def of(target: tuple[Rows, Scores, ScoreSums], baseline: tuple[Rows, Scores, ScoreSums]) -> PairSums:
        """Sum all rows of a log, or a block of whole users.

        Args:
            target: rows, scores and score sums of the target.
            baseline: rows, scores and score sums of the baseline, for the same rows of the log.
        """
        rows, scores, target_sums = target
        baseline_rows, baseline_scores, baseline_sums = baseline
        ones = np.ones(rows.reward.size)
        weight_difference = rows.weight - baseline_rows.weight
        earned = weight_difference * rows.reward
        products = []
        if scores.used is not None and baseline_scores.used is not None:
            products.append((scores.used - baseline_scores.used) * rows.reward)
        if scores.linear is not None:
            products.append(earned)
        means = tuple(UserSums.of(("rows", "apart"), (ones, product), rows.clusters) for product in products)
        degree = 4 if scores.linear is None else 2  # for means, only the standard error of the ratio is used
        columns = (earned, baseline_rows.earned, weight_difference, baseline_rows.weight)
        ratio = UserSums.of(("earned apart", "earned", "apart", "weight"), columns, rows.clusters, degree=degree)
        return PairSums(target_sums, baseline_sums, ratio, means, int(np.count_nonzero(weight_difference)))

    def __add__(self, other: PairSums) -> PairSums:
        """Return the sums of both blocks of rows, which have no user in common."""
        means = tuple(mean + other_mean for mean, other_mean in zip(self.means, other.means, strict=True))
        target_sums = self.target_sums + other.target_sums
        baseline_sums = self.baseline_sums + other.baseline_sums
        ratio = self.ratio + other.ratio
        return PairSums(target_sums, baseline_sums, ratio, means, self.differing + other.differing)

    @property
    def finite(self) -> bool:
        """Return whether no sum has overflowed."""
        return all(sums.finite for sums in (self.ratio, *self.means))

    @property
    def value(self) -> float:
        """The difference of the two estimates."""
        return self.target_sums.value - self.baseline_sums.value

    def mean_limits(self, sums: UserSums, value: float, level: float) -> Limits:
        """Return limits of a difference of weighted means, which may have either sign.

        Args:
            sums: one of ``means``.
            value: the difference of the means.
            level: nominal coverage.
        """
        policy = self.target_sums.policy
        deviations = policy.deviations(sums, {"apart": 1.0, "rows": -value})
        return Limits.of(deviations, value, policy, level, log_scale=False)

    def ratio_limits(self, level: float) -> Limits:
        """Return limits of the difference of two self-normalised means.

        A user's deviation is w (r - v) / mean w of the target minus the same of the baseline.
        """
        policy = self.target_sums.policy
        baseline = self.baseline_sums.policy
        inverse_mean = 1.0 / (policy.mean_weight or 1.0)
        baseline_inverse_mean = 1.0 / (baseline.mean_weight or 1.0)
        value = policy.by_user.total("earned") / policy.rows * inverse_mean
        baseline_value = baseline.by_user.total("earned") / baseline.rows * baseline_inverse_mean
        # Written with w - b, so that the terms are small, and no digits cancel, for policies that are nearly the same.
        form = {
            "earned apart": inverse_mean,
            "earned": inverse_mean - baseline_inverse_mean,
            "apart": -value * inverse_mean,
            "weight": baseline_value * baseline_inverse_mean - value * inverse_mean,
        }
        deviations = policy.deviations(self.ratio, form)
        return Limits.of(deviations, value - baseline_value, policy, level, log_scale=False)


def difference_of(pair: PairSums, estimator: str, *, facts: Facts, level: float, clip: float = math.inf) -> Estimate:
    """Estimate the difference of two policies' values.

    Args:
        pair: sums for both policies under the estimator.
        estimator: name of the estimator, "ips", "clipped_ips" or "snips".
        facts: facts about the log that its user states.
        level: nominal coverage.
        clip: largest weight; inf for no clipping.
    """
    target_policy = pair.target_sums.policy
    baseline_policy = pair.baseline_sums.policy
    bounds = Bounds.of(target_policy, facts)
    support = Support.of(target_policy, facts.supports, level)
    baseline_support = Support.of(baseline_policy, facts.supports, level)
    same = pair.differing == 0
    gap = 0.0 if same else _gap(support, bounds)
    baseline_gap = 0.0 if same else _gap(baseline_support, bounds)
    sampling, total, evidence = _difference_intervals(pair, bounds, level)
    clip_part = _beyond(total, sampling)
    # Missing mass of the target may add to the difference, and that of the baseline may subtract.
    low = total.low - baseline_gap
    high = total.high + gap
    if not pair.target_sums.linear:  # ratios take missing mass to earn as much as the rest, though it may earn nothing
        low -= support.entering * pair.target_sums.value
        high += baseline_support.entering * pair.baseline_sums.value
    low = min(max(low, -bounds.ceiling), bounds.ceiling)
    high = max(min(high, bounds.ceiling), -bounds.ceiling)
    if not evidence.get("value_outside"):  # the interval includes the value, unless it is proved biased
        low = min(low, pair.value)
        high = max(high, pair.value)
    diagnostics = replace(
        _diagnostics(target_policy, bounds, sampling, clip),
        sampling_low=sampling.low,
        sampling_high=sampling.high,
        clip_part=clip_part,
        gap_part=max(gap, baseline_gap),
        value_target=pair.target_sums.value + bounds.least,
        value_baseline=pair.baseline_sums.value + bounds.least,
        ess_baseline=baseline_policy.ess,
        identified_share_target=support.covered,
        identified_share_baseline=baseline_support.covered,
    )
    common: dict[str, Any] = {"estimator": estimator, "low": low, "high": high, "bounds": facts.bounds}
    verdict = judge(Evidence(diagnostics, target_policy, support, hidden=clip_part, same=same, **common, **evidence))
    # Of the baseline only the weights are checked: checks of the interval are those of the difference.
    baseline_diagnostics = _diagnostics(baseline_policy, bounds, sampling, clip)
    of_baseline = Evidence(baseline_diagnostics, baseline_policy, baseline_support, same=True, **common)
    return Estimate(
        value=pair.value,
        low=low,
        high=high,
        level=level,
        method=_method(sampling, clip_part, max(gap, baseline_gap)),
        n=target_policy.rows,
        ess=min(target_policy.ess, baseline_policy.ess),
        diagnostics=diagnostics,
        verdict=_join_verdicts(verdict, judge(of_baseline)),
        estimator=estimator,
    )


def _difference_intervals(pair: PairSums, bounds: Bounds, level: float) -> tuple[Interval, Interval, dict[str, Any]]:
    """Compute the intervals of a difference, before the mass that the log lacks is considered.

    Args:
        pair: sums for both policies under the estimator.
        bounds: range of rewards.
        level: nominal coverage.

    Returns:
        The interval for the sampling error.
        The interval that also allows for the bias of changed weights.
        Fields of :class:`Evidence` from both; empty if the log allows no interval.
    """
    if pair.differing == 0:
        interval = Interval(0.0, 0.0, "no interval: the same policy")
        return interval, interval, {}
    if pair.target_sums.policy.users < 2:
        interval = Interval(-bounds.ceiling, bounds.ceiling, "no interval: one user")
        return interval, interval, {}
    ratio = pair.ratio_limits(level)
    limits = ratio
    if pair.target_sums.linear:
        limits = pair.mean_limits(pair.means[0], pair.value, level)
    squares = max(pair.ratio.squares("apart"), 0.0)
    heavy = heavy_tail(pair.target_sums.policy, ratio.error, squares)
    total, outside = _difference_with_hidden(pair, limits.interval, bounds, level)
    return limits.interval, total, {"carrying": limits.carrying, "heavy_tail": heavy, "value_outside": outside}


def _difference_with_hidden(pair: PairSums, sampling: Interval, bounds: Bounds, level: float) -> tuple[Interval, float]:
    """Widen the interval of a difference by the largest possible bias of clipped weights.

    Clipping lowers both values: the target's part may add to the difference, and the baseline's part may subtract.

    Args:
        pair: sums for both policies under the estimator.
        sampling: interval for the sampling error.
        bounds: range of rewards.
        level: nominal coverage.

    Returns:
        The interval, intersected with that of the unchanged weights.
        The difference's distance from the latter, which proves a bias if it is above 0.
    """
    if pair.target_sums.left_out is None or pair.baseline_sums.left_out is None:
        return sampling, 0.0
    _, above = pair.target_sums.left_out.hidden(pair.target_sums.policy, bounds.one_reward, level, usual=True)
    _, below = pair.baseline_sums.left_out.hidden(pair.baseline_sums.policy, bounds.one_reward, level, usual=True)
    interval = Interval(sampling.low - below, sampling.high + above, sampling.method)
    unchanged = pair.means[-1]
    mean = unchanged.total("apart") / pair.target_sums.policy.rows
    return _intersection(interval, pair.mean_limits(unchanged, mean, level).interval, pair.value)


def _join_verdicts(target_verdict: Verdict, baseline_verdict: Verdict) -> Verdict:
    """Return the target's verdict with the findings on the baseline that it does not have, marked as the baseline's."""
    codes = {finding.code for finding in target_verdict.findings if finding.level != "trust"}
    further = [
        replace(finding, message=f"of the baseline, {finding.message}")
        for finding in baseline_verdict.findings
        if finding.level != "trust" and finding.code not in codes
    ]
    return target_verdict.with_findings(further)
