"""From sums by user to an answer: their interval, the checks, the estimate.

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
"""The estimator that leads, with no clip: the one of least error in benchmarks/ope_trust, and at home in any unit."""


@dataclass(frozen=True)
class Bounds:
    """The range of rewards.

    Attributes:
        least: reward from which rewards are counted.
        stated: largest reward possible as stated, None where it is not.
        seen: largest reward of the log, ``least`` where none is larger.
    """

    least: float
    stated: float | None
    seen: float

    @staticmethod
    def of(policy: PolicySums, facts: Facts) -> Bounds:
        """Combine the stated bounds with those that the log shows."""
        if facts.reward_max is None:
            stated = None
        else:
            stated = float(facts.reward_max)
        return Bounds(policy.shift, stated, max(policy.reward_max, policy.shift))

    @property
    def most(self) -> float:
        """Largest reward possible as stated, else of the log; inf where that shows none."""
        if self.stated is not None:
            return self.stated
        if self.seen > self.least:
            return self.seen
        return math.inf

    @property
    def reach(self) -> float:
        """Largest reward minus the least."""
        return self.most - self.least

    @property
    def ceiling(self) -> float:
        """Get the largest possible value, from the least reward on; only a stated range has one."""
        if self.stated is None:
            return math.inf
        return self.stated - self.least

    @property
    def one_reward(self) -> float:
        """Size of a reward that the log happens not to show: the largest seen, else as stated, else inf."""
        if self.seen > self.least:
            return self.seen - self.least
        return self.reach


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
    """The estimate of a policy's value, its interval, diagnostics and verdict.

    Args:
        scored: of the estimator.
        estimator: its name.
        facts: of the log.
        level: nominal coverage.
        precision: half the interval over the value up to which the value is trusted.
        clip: weights are cut there.
        sampling: an interval from sample size in place of Student's.

    Raises:
        UserError: no rows, or no weight that counts.
    """
    policy, value = scored.policy, scored.value
    if policy.by_user.total("weight") > 0.0 and policy.ess == 0.0:  # their squares are below the least number
        raise UserError(f"no weight is above {policy.weight_max:g}; give the probability of the logged action")
    bounds = Bounds.of(policy, facts)
    reason = ""
    if policy.users < 2:
        reason = "one user"
    elif policy.supported == 0 and estimator != "dm":
        reason = "no support"
    evidence: dict[str, Any] = {}
    if reason:
        sampling = total = Interval(0.0, bounds.reach, f"no interval: {reason}")
    else:
        limits = scored.limits(bounds.one_reward, level)
        sampling = total = limits.interval if sampling is None else sampling
        if not scored.modelled:
            heavy = heavy_tail(policy, ScoreSums.weighted(policy, ratio=True).limits(bounds.one_reward, level).error)
            evidence |= {"carrying": limits.carrying, "heavy_tail": heavy}
        total, outside = _with_hidden(scored, sampling, bounds, level, clips=math.isfinite(clip))
        evidence["value_outside"] = outside
    sampling, total = (interval.within(0.0, bounds.ceiling) for interval in (sampling, total))
    part = _beyond(total, sampling)
    support = Support.of(policy, facts.supports, level)
    gap = support.entering * bounds.reach if support.entering > 0.0 else 0.0
    # Ratios and control variates take the missing mass for mass that earns as the rest does. A weighted mean may be too
    # large by the proved excess of the mean weight.
    low = total.low * (1.0 - (support.too_much if scored.linear or reason else support.entering))
    low, high = max(low - support.entering * scored.slope, 0.0), min(total.high + gap, bounds.ceiling)
    if not evidence.get("value_outside"):  # a point whose bias is proved does not stretch the interval
        low, high = min(low, value), max(high, value)
    base = bounds.least
    diagnostics = replace(
        _diagnostics(policy, bounds, sampling, clip),
        clip_part=part,
        gap_part=gap,
        share_clipped=None if scored.left_out is None else scored.left_out.rows_cut / policy.rows,
        missing_mass=support.entering,
        full_support=facts.supports,
        **_identified(policy, support, value, sampling, estimator, level),
    )
    judged = Evidence(
        diagnostics,
        policy,
        support,
        estimator,
        low,
        high,
        facts.bounds,
        abs(value + base),
        precision,
        hidden=part,
        warnings=scored.warnings,
        **evidence,
    )
    method = _method(sampling, part, gap)
    ends = value + base, low + base, high + base
    return Estimate(*ends, level, method, policy.rows, policy.ess, diagnostics, judge(judged), estimator)


def _beyond(whole: Interval, sampling: Interval) -> float:
    """Compute how far an interval goes beyond another one, at either end; 0 where both have no end."""
    if math.isfinite(sampling.high):
        above = whole.high - sampling.high
    else:
        above = 0.0
    return max(above, sampling.low - whole.low, 0.0)


def _method(sampling: Interval, part: float, gap: float) -> str:
    return sampling.method + (" + clip part" if part > 0.0 else "") + (" + missing mass" if gap > 0.0 else "")


def _with_hidden(
    scored: ScoreSums, sampling: Interval, bounds: Bounds, level: float, *, clips: bool
) -> tuple[Interval, float]:
    """The interval with what changed weights may hide, and how far the value is outside that of unchanged ones.

    Where scores are weighted rewards and the two intervals agree, both hold.
    """
    if scored.left_out is None:
        return sampling, 0.0
    usual = clips and scored.positive and sampling.method.startswith("Student")
    below, above = scored.left_out.hidden(scored.policy, bounds.one_reward, level, usual=usual)
    interval = Interval(sampling.low - below, sampling.high + above, sampling.method)
    if not scored.positive or not sampling.method.startswith(("Student", "no reward")):
        return interval, 0.0
    unchanged = ScoreSums.weighted(scored.policy, ratio=False).limits(bounds.one_reward, level).interval
    return _both(interval, unchanged, scored.value)


def _both(whole: Interval, unchanged: Interval, value: float) -> tuple[Interval, float]:
    """Intersect two intervals, or return the second where they share nothing.

    And how far the value is outside that one.
    """
    outside = max(unchanged.low - value, value - unchanged.high, 0.0)
    low = max(whole.low, unchanged.low)
    high = min(whole.high, unchanged.high)
    return unchanged if low > high else Interval(low, high, whole.method), outside


def heavy_tail(policy: PolicySums, error: float, squares: float | None = None) -> float:
    """Compute the ratio of the standard error of the ratio to the one expected from its weights.

    The expected variance is that of rewards which do not follow the weights, sum w^2 times the target's variance of
    rewards, sum w (r - v)^2 / sum w. Where the heaviest rows happen to earn nothing the error is far smaller than it.

    Args:
        policy: sums of the target.
        error: of the self-normalised value, or difference.
        squares: sum of squared weights; None for the policy's own.
    """
    sums = policy.by_user
    total, earned = sums.total("weight"), sums.total("earned")
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
    by_user = policy.by_user.product({"weight": 1.0}, {"weight": 1.0})
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
    """The covered share of the target, and the mean reward of that part with an interval."""
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
        ratio: of (w - b) r, b r, w - b and b.
        means: of 1 and (w - b) r; of the changed weights first, where the estimator changes them. None of a ratio.
        differing: rows whose weights differ.
    """

    ours: ScoreSums
    theirs: ScoreSums
    ratio: UserSums
    means: tuple[UserSums, ...]
    differing: int

    @staticmethod
    def of(target: tuple[Rows, Scores, ScoreSums], baseline: tuple[Rows, Scores, ScoreSums]) -> PairSums:
        """Sum all rows of a log, or those of whole users; each policy's rows, scores and sums."""
        (rows, scores, ours), (baseline_rows, other_scores, theirs) = target, baseline
        ones = np.ones(rows.reward.size)
        apart = rows.weight - baseline_rows.weight
        earned = apart * rows.reward
        columns = earned, baseline_rows.earned, apart, baseline_rows.weight
        # Of a mean the ratio's error is asked for, and no more.
        if scores.linear is None:
            degree = 4
        else:
            degree = 2
        ratio = UserSums.of(("earned apart", "earned", "apart", "weight"), columns, rows.clusters, degree=degree)
        if scores.linear is None:
            of_means = []
        else:
            of_means = [earned]
        if scores.used is not None and other_scores.used is not None:
            of_means.insert(0, (scores.used - other_scores.used) * rows.reward)
        means = tuple(UserSums.of(("rows", "apart"), (ones, mean), rows.clusters) for mean in of_means)
        return PairSums(ours, theirs, ratio, means, int(np.count_nonzero(apart)))

    def __add__(self, other: PairSums) -> PairSums:
        """Add the sums of further rows, which share no user."""
        means = tuple(one + more for one, more in zip(self.means, other.means, strict=True))
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
        """The difference of the two estimates."""
        return self.ours.value - self.theirs.value

    def limits(self, sums: UserSums, value: float, level: float) -> Limits:
        """Limits of a difference of weighted means, on the plain scale: it has either sign."""
        policy = self.ours.policy
        deviations = policy.deviations(sums, {"apart": 1.0, "rows": -value})
        return Limits.of(deviations, value, policy, level, log_scale=False)

    def ratio_limits(self, level: float) -> Limits:
        """Limits of the difference of two ratios: each user's w (r - v) / mean w, of the one less that of the other."""
        policies = self.ours.policy, self.theirs.policy
        one, other = (1.0 / (policy.mean_weight or 1.0) for policy in policies)
        ours, theirs = (
            policy.by_user.total("earned") / policy.rows * factor
            for policy, factor in zip(policies, (one, other), strict=True)
        )
        # In numbers that are small where the policies are nearly the same.
        form = {
            "earned apart": one,
            "earned": one - other,
            "apart": -ours * one,
            "weight": theirs * other - ours * one,
        }
        deviations = policies[0].deviations(self.ratio, form)
        return Limits.of(deviations, ours - theirs, policies[0], level, log_scale=False)


def difference_of(pair: PairSums, estimator: str, *, facts: Facts, level: float, clip: float = math.inf) -> Estimate:
    """The estimate of the difference of two policies' values.

    Args:
        pair: of the rows, under the estimator.
        estimator: "ips", "clipped_ips" or "snips".
        facts: of the log.
        level: nominal coverage.
        clip: weights are cut there.
    """
    ours, theirs = both = (pair.ours.policy, pair.theirs.policy)
    bounds, value, is_ratio = Bounds.of(ours, facts), pair.value, not pair.ours.linear
    supports = [Support.of(sums, facts.supports, level) for sums in both]
    gaps = [sums.entering * bounds.reach if sums.entering > 0.0 else 0.0 for sums in supports]
    most, same = bounds.ceiling, pair.differing == 0
    sampling = interval = Interval(-most, most, "no interval: one user")
    evidence: dict[str, Any] = {}
    if same:
        sampling = interval = Interval(0.0, 0.0, "no interval: the same policy")
        gaps = [0.0, 0.0]
    elif ours.users > 1:
        ratios = pair.ratio_limits(level)
        limits = ratios if is_ratio else pair.limits(pair.means[0], value, level)
        sampling = interval = limits.interval
        squares = max(pair.ratio.product({"apart": 1.0}, {"apart": 1.0}), 0.0)
        evidence |= {"carrying": limits.carrying, "heavy_tail": heavy_tail(ours, ratios.error, squares)}
        interval, evidence["value_outside"] = _difference_with_hidden(pair, sampling, bounds, level)
    part = _beyond(interval, sampling) if pair.ours.left_out is not None else 0.0
    lost = [
        sums.entering * policy.value if is_ratio else 0.0
        for sums, policy in zip(supports, (pair.ours, pair.theirs), strict=True)
    ]
    low = min(max(interval.low - gaps[1] - lost[0], -most), most)
    high = max(min(interval.high + gaps[0] + lost[1], most), -most)
    if not evidence.get("value_outside"):  # a point whose bias is proved does not stretch the interval
        low, high = min(low, value), max(high, value)
    diagnostics = replace(
        _diagnostics(ours, bounds, sampling, clip),
        sampling_low=sampling.low,
        sampling_high=sampling.high,
        clip_part=part,
        gap_part=max(gaps),
        value_target=pair.ours.value + bounds.least,
        value_baseline=pair.theirs.value + bounds.least,
        ess_baseline=theirs.ess,
        identified_share_target=supports[0].covered,
        identified_share_baseline=supports[1].covered,
    )
    of_target = Evidence(
        diagnostics, ours, supports[0], estimator, low, high, facts.bounds, hidden=part, same=same, **evidence
    )
    of_baseline = Evidence(
        _diagnostics(theirs, bounds, sampling, clip), theirs, supports[1], estimator, low, high, facts.bounds, same=True
    )
    verdict = _joined(judge(of_target), judge(of_baseline))
    method, ess = _method(sampling, part, max(gaps)), min(ours.ess, theirs.ess)
    return Estimate(value, low, high, level, method, ours.rows, ess, diagnostics, verdict, estimator)


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
    value = unchanged.total("apart") / pair.ours.policy.rows
    return _both(interval, pair.limits(unchanged, value, level).interval, pair.value)


def _joined(ours: Verdict, theirs: Verdict) -> Verdict:
    """The findings of both verdicts, each once, with the baseline's marked."""
    codes = {finding.code for finding in ours.findings if finding.level != "trust"}
    more = [entry for entry in theirs.findings if entry.level != "trust" and entry.code not in codes]
    return ours.with_findings([replace(entry, message=f"of the baseline, {entry.message}") for entry in more])
