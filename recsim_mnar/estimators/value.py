"""Estimates from sums by user: interval, checks and verdict.

The sums of an estimator's scores (:mod:`recsim_mnar.estimators.sums`) give the value, its influence and its interval; a
difference of two policies is an estimate with the weight w - b.
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
"""The estimator that leads."""
LEADING = "snips"
"""The leading estimator without a clip: the one of least error in benchmarks/ope_trust, in any unit of the reward."""


@dataclass(frozen=True)
class Bounds:
    """The range of rewards.

    Attributes:
        least: reward from which rewards are counted.
        stated: largest possible reward as stated, or None.
        seen: largest reward of the log, ``least`` where none is larger.
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
        """Largest possible reward as stated, else of the log; inf where that shows none."""
        if self.stated is not None:
            return self.stated
        return self.seen if self.seen > self.least else math.inf

    @property
    def reach(self) -> float:
        """Largest reward minus the least."""
        return self.most - self.least

    @property
    def ceiling(self) -> float:
        """Largest possible value above the least reward, if stated; else inf."""
        return math.inf if self.stated is None else self.reach

    @property
    def one_reward(self) -> float:
        """Size of a reward that the log happens not to show: the largest of the log, else as stated, else inf."""
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
        estimator: its name.
        facts: knowledge of the log.
        level: nominal coverage.
        precision: half the interval over the value up to which the value is trusted.
        clip: largest weight.
        sampling: an interval from sample size in place of Student's.

    Raises:
        UserError: weights too small to be squared.
    """
    policy = scored.policy
    value = scored.value
    if policy.by_user.total("weight") > 0.0 and policy.ess == 0.0:  # the squares underflow
        raise UserError(f"no weight is above {policy.weight_max:g}; give the probability of the logged action")
    bounds = Bounds.of(policy, facts)
    support = Support.of(policy, facts.supports, level)
    clips = math.isfinite(clip)
    sampling, total, evidence = _value_intervals(scored, estimator, bounds, level, sampling, clips=clips)
    part = _beyond(total, sampling)
    gap = _gap(support, bounds)
    # Ratios and control variates extrapolate to the missing mass. A weighted mean may be too large by the proved excess
    # of the mean weight.
    too_much = support.too_much if scored.linear or not evidence else support.entering
    low = max(total.low * (1.0 - too_much) - support.entering * scored.slope, 0.0)
    high = min(total.high + gap, bounds.ceiling)
    if not evidence.get("value_outside"):  # a value that is proved biased does not stretch the interval
        low = min(low, value)
        high = max(high, value)
    share_clipped = None
    if scored.left_out is not None:
        share_clipped = scored.left_out.rows_cut / policy.rows
    diagnostics = replace(
        _diagnostics(policy, bounds, sampling, clip),
        clip_part=part,
        gap_part=gap,
        share_clipped=share_clipped,
        missing_mass=support.entering,
        full_support=facts.supports,
        **_identified(policy, support, value, sampling, estimator, level),
    )
    base = bounds.least
    evidence |= {"scale": abs(value + base), "precision": precision, "hidden": part, "warnings": scored.warnings}
    verdict = judge(Evidence(diagnostics, policy, support, estimator, low, high, facts.bounds, **evidence))
    ends = (value + base, low + base, high + base)
    method = _method(sampling, part, gap)
    return Estimate(*ends, level, method, policy.rows, policy.ess, diagnostics, verdict, estimator)


def _value_intervals(
    scored: ScoreSums, estimator: str, bounds: Bounds, level: float, sampling: Interval | None, *, clips: bool
) -> tuple[Interval, Interval, dict[str, Any]]:
    """Return the interval from sample size, the one that allows for changed weights, and evidence from both.

    There is no evidence where the log allows no interval.
    """
    policy = scored.policy
    evidence: dict[str, Any] = {}
    if policy.users < 2 or (policy.supported == 0 and estimator != "dm"):
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


def _gap(support: Support, bounds: Bounds) -> float:
    """Return the largest possible value of the target's missing mass."""
    return support.entering * bounds.reach if support.entering > 0.0 else 0.0


def _beyond(total: Interval, sampling: Interval) -> float:
    """Compute how far an interval extends beyond another one, at either end; 0 where both are unbounded."""
    above = 0.0
    if math.isfinite(sampling.high):
        above = total.high - sampling.high
    return max(above, sampling.low - total.low, 0.0)


def _method(sampling: Interval, part: float, gap: float) -> str:
    method = sampling.method
    if part > 0.0:
        method += " + clip part"
    if gap > 0.0:
        method += " + missing mass"
    return method


def _with_hidden(
    scored: ScoreSums, sampling: Interval, bounds: Bounds, level: float, *, clips: bool
) -> tuple[Interval, float]:
    """Widen an interval by the bias of changed weights; also return the value's distance from the unbiased interval.

    Where scores are weighted rewards, the interval of the unchanged weights is valid too, and the two are intersected.
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
    """Intersect two intervals, and return the value's distance from the second, which is kept if they are disjoint."""
    outside = max(unchanged.low - value, value - unchanged.high, 0.0)
    low = max(interval.low, unchanged.low)
    high = min(interval.high, unchanged.high)
    if low > high:
        return unchanged, outside
    return Interval(low, high, interval.method), outside


def heavy_tail(policy: PolicySums, error: float, squares: float | None = None) -> float:
    """Compute the ratio of the standard error expected from the weights to the one of a ratio estimate.

    The expected variance is that of rewards which do not follow the weights, sum w^2 times the target's variance of
    rewards, sum w (r - v)^2 / sum w. Where the heaviest rows happen to earn nothing the error is far smaller.

    Args:
        policy: sums of the target.
        error: standard error of the self-normalised value, or difference.
        squares: sum of squared weights; None for the policy's own.
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
    n = policy.rows
    total = policy.by_user.total("weight")
    base = bounds.least
    by_user = policy.by_user.squares("weight")
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
        effective_users=total**2 / by_user if by_user > 0.0 else 0.0,
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
    """Return the share of the target that the log covers, and the mean reward of that part with an interval."""
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
    """Sums by user of two policies' weights, w of the target and b of the baseline.

    Attributes:
        ours, theirs: scores of the two under one estimator.
        ratio: sums of (w - b) r, b r, w - b and b.
        means: sums of 1 and (w - b) r; of the changed weights first, where the estimator changes them. Empty for a
            ratio.
        differing: rows whose weights differ.
    """

    ours: ScoreSums
    theirs: ScoreSums
    ratio: UserSums
    means: tuple[UserSums, ...]
    differing: int

    @staticmethod
    def of(target: tuple[Rows, Scores, ScoreSums], baseline: tuple[Rows, Scores, ScoreSums]) -> PairSums:
        """Sum all rows of a log, or a block of whole users, from each policy's rows, scores and sums."""
        rows, scores, ours = target
        baseline_rows, baseline_scores, theirs = baseline
        ones = np.ones(rows.reward.size)
        apart = rows.weight - baseline_rows.weight
        earned = apart * rows.reward
        products = []
        if scores.used is not None and baseline_scores.used is not None:
            products.append((scores.used - baseline_scores.used) * rows.reward)
        if scores.linear is not None:
            products.append(earned)
        means = tuple(UserSums.of(("rows", "apart"), (ones, product), rows.clusters) for product in products)
        degree = 4 if scores.linear is None else 2  # of a mean only the ratio's error is used
        columns = (earned, baseline_rows.earned, apart, baseline_rows.weight)
        ratio = UserSums.of(("earned apart", "earned", "apart", "weight"), columns, rows.clusters, degree=degree)
        return PairSums(ours, theirs, ratio, means, int(np.count_nonzero(apart)))

    def __add__(self, other: PairSums) -> PairSums:
        """Add the sums of further rows, which share no user."""
        means = tuple(mean + more for mean, more in zip(self.means, other.means, strict=True))
        ours = self.ours + other.ours
        theirs = self.theirs + other.theirs
        ratio = self.ratio + other.ratio
        return PairSums(ours, theirs, ratio, means, self.differing + other.differing)

    @property
    def finite(self) -> bool:
        """Return whether no sum is too large for a number."""
        return all(sums.finite for sums in (self.ratio, *self.means))

    @property
    def value(self) -> float:
        """Difference of the two estimates."""
        return self.ours.value - self.theirs.value

    def mean_limits(self, sums: UserSums, value: float, level: float) -> Limits:
        """Return limits of a difference of weighted means, which may have either sign."""
        policy = self.ours.policy
        deviations = policy.deviations(sums, {"apart": 1.0, "rows": -value})
        return Limits.of(deviations, value, policy, level, log_scale=False)

    def ratio_limits(self, level: float) -> Limits:
        """Return limits of the difference of two ratios.

        A user's deviation is w (r - v) / mean w, of the target less that of the baseline.
        """
        policy = self.ours.policy
        baseline = self.theirs.policy
        one = 1.0 / (policy.mean_weight or 1.0)
        other = 1.0 / (baseline.mean_weight or 1.0)
        ours = policy.by_user.total("earned") / policy.rows * one
        theirs = baseline.by_user.total("earned") / baseline.rows * other
        # The terms are small where the policies are nearly the same.
        form = {
            "earned apart": one,
            "earned": one - other,
            "apart": -ours * one,
            "weight": theirs * other - ours * one,
        }
        return Limits.of(policy.deviations(self.ratio, form), ours - theirs, policy, level, log_scale=False)


def difference_of(pair: PairSums, estimator: str, *, facts: Facts, level: float, clip: float = math.inf) -> Estimate:
    """Estimate the difference of two policies' values.

    Args:
        pair: sums of the rows under the estimator.
        estimator: "ips", "clipped_ips" or "snips".
        facts: knowledge of the log.
        level: nominal coverage.
        clip: largest weight.
    """
    ours = pair.ours.policy
    theirs = pair.theirs.policy
    bounds = Bounds.of(ours, facts)
    support = Support.of(ours, facts.supports, level)
    baseline_support = Support.of(theirs, facts.supports, level)
    value = pair.value
    most = bounds.ceiling
    same = pair.differing == 0
    gap = 0.0 if same else _gap(support, bounds)
    baseline_gap = 0.0 if same else _gap(baseline_support, bounds)
    sampling, total, evidence = _difference_intervals(pair, bounds, level)
    part = _beyond(total, sampling)
    low = total.low - baseline_gap
    high = total.high + gap
    if not pair.ours.linear:
        low -= support.entering * pair.ours.value
        high += baseline_support.entering * pair.theirs.value
    low = min(max(low, -most), most)
    high = max(min(high, most), -most)
    if not evidence.get("value_outside"):  # a value that is proved biased does not stretch the interval
        low = min(low, value)
        high = max(high, value)
    diagnostics = replace(
        _diagnostics(ours, bounds, sampling, clip),
        sampling_low=sampling.low,
        sampling_high=sampling.high,
        clip_part=part,
        gap_part=max(gap, baseline_gap),
        value_target=pair.ours.value + bounds.least,
        value_baseline=pair.theirs.value + bounds.least,
        ess_baseline=theirs.ess,
        identified_share_target=support.covered,
        identified_share_baseline=baseline_support.covered,
    )
    common = (estimator, low, high, facts.bounds)
    verdict = judge(Evidence(diagnostics, ours, support, *common, hidden=part, same=same, **evidence))
    of_baseline = _diagnostics(theirs, bounds, sampling, clip)
    verdict = _joined(verdict, judge(Evidence(of_baseline, theirs, baseline_support, *common, same=True)))
    method = _method(sampling, part, max(gap, baseline_gap))
    ess = min(ours.ess, theirs.ess)
    return Estimate(value, low, high, level, method, ours.rows, ess, diagnostics, verdict, estimator)


def _difference_intervals(pair: PairSums, bounds: Bounds, level: float) -> tuple[Interval, Interval, dict[str, Any]]:
    """Return the interval from sample size, the one that allows for changed weights, and evidence from both."""
    if pair.differing == 0:
        interval = Interval(0.0, 0.0, "no interval: the same policy")
        return interval, interval, {}
    if pair.ours.policy.users < 2:
        interval = Interval(-bounds.ceiling, bounds.ceiling, "no interval: one user")
        return interval, interval, {}
    ratio = pair.ratio_limits(level)
    limits = ratio
    if pair.ours.linear:
        limits = pair.mean_limits(pair.means[0], pair.value, level)
    squares = max(pair.ratio.squares("apart"), 0.0)
    heavy = heavy_tail(pair.ours.policy, ratio.error, squares)
    total, outside = _difference_with_hidden(pair, limits.interval, bounds, level)
    return limits.interval, total, {"carrying": limits.carrying, "heavy_tail": heavy, "value_outside": outside}


def _difference_with_hidden(pair: PairSums, sampling: Interval, bounds: Bounds, level: float) -> tuple[Interval, float]:
    """Widen a difference as :func:`_with_hidden` does.

    Mass clipped from the target is above it, from the baseline below.
    """
    if pair.ours.left_out is None or pair.theirs.left_out is None:
        return sampling, 0.0
    _, above = pair.ours.left_out.hidden(pair.ours.policy, bounds.one_reward, level, usual=True)
    _, below = pair.theirs.left_out.hidden(pair.theirs.policy, bounds.one_reward, level, usual=True)
    interval = Interval(sampling.low - below, sampling.high + above, sampling.method)
    unchanged = pair.means[-1]
    mean = unchanged.total("apart") / pair.ours.policy.rows
    return _intersection(interval, pair.mean_limits(unchanged, mean, level).interval, pair.value)


def _joined(ours: Verdict, theirs: Verdict) -> Verdict:
    """Add the baseline's findings, marked as such, to a verdict that does not have them."""
    codes = {finding.code for finding in ours.findings if finding.level != "trust"}
    more = [finding for finding in theirs.findings if finding.level != "trust" and finding.code not in codes]
    return ours.with_findings([replace(entry, message=f"of the baseline, {entry.message}") for entry in more])
