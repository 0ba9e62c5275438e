"""From row scores to an answer: sums by user, their interval, the checks, the estimate.

An estimator gives scores per row (:mod:`recsim_mnar.estimators.scores`): a linear part, whose mean is taken, and a
numerator and a denominator, of which the ratio of sums is taken. Their sums by user give the value, its influence and
its interval; a difference of two policies is an estimate with the weight w - b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.checks import Evidence, Support, judge
from recsim_mnar.estimators.facts import PRECISION, Facts
from recsim_mnar.estimators.intervals import (
    Cut,
    Deviations,
    Interval,
    clipping_bias_bound,
    gamma_limits,
    small_sample_factor,
)
from recsim_mnar.estimators.scores import Rows, Scores
from recsim_mnar.estimators.sums import PolicySums, UserSums
from recsim_mnar.estimators.verdict import Diagnostics, Estimate, Finding, Verdict
from recsim_mnar.log.columns import Floats

AUTO = "auto"
"""The estimator that leads."""
LEADING = "snips"
"""The estimator that leads, with no clip: the one of least error in benchmarks/ope_trust, and at home in any unit."""


# ------------------------------------------------------------------------------------------------------- scores, summed


@dataclass
class LeftOut:
    """What is left out by weights u in place of w: sums by user of min(w, u), (w - u)+, (u - w)+, and of these times r.

    Attributes:
        by_user: the sums; of a reward model q, too, where there is one or where some u is above w.
        rows_cut: rows with (w - u)+ above 0.
        largest_excess, largest_more: of (w - u)+ and of (u - w)+.
        model_min, model_max: least and largest q; 0 without a model.
    """

    by_user: UserSums
    rows_cut: int = 0
    largest_excess: float = 0.0
    largest_more: float = 0.0
    model_min: float = 0.0
    model_max: float = 0.0

    PLAIN = ("rows", "weight", "kept", "excess", "excess earned")
    MODELLED = (*PLAIN, "more", "more earned", "excess model", "more model")

    @staticmethod
    def of(rows: Rows, used: Floats, *, counts: bool) -> LeftOut:
        """Of all rows of a log, or of whole users.

        Args:
            rows: of the log.
            used: (n,) the weights u.
            counts: whether scores are weight times reward, without a model.
        """
        kept = np.minimum(rows.weight, used)
        excess, more = rows.weight - kept, used - kept
        columns = [np.ones(kept.size), rows.weight, kept, excess, excess * rows.reward]
        q = None if counts else rows.q_logged
        modelled = q is not None or bool(np.any(more > 0.0))
        model = np.zeros(kept.size) if q is None else q
        if modelled:
            columns += [more, more * rows.reward, excess * model, more * model]
        names = LeftOut.MODELLED if modelled else LeftOut.PLAIN
        sums = UserSums(names, ("reward", "squared reward"), degree=2)
        sums.extend([*columns, rows.reward, rows.reward * rows.reward], rows.clusters)
        ends = float(np.max(excess)), float(np.max(more)), float(np.min(model)), float(np.max(model))
        return LeftOut(sums, int(np.count_nonzero(excess)), *ends)

    def __add__(self, other: LeftOut) -> LeftOut:
        """Of the rows of both, which share no user."""
        return LeftOut(
            self.by_user + other.by_user,
            self.rows_cut + other.rows_cut,
            max(self.largest_excess, other.largest_excess),
            max(self.largest_more, other.largest_more),
            min(self.model_min, other.model_min),
            max(self.model_max, other.model_max),
        )

    def hidden(self, policy: PolicySums, reach: float, level: float, *, usual: bool) -> tuple[float, float]:
        """How far below and above the estimate's mean the value may be.

        The bias is E[(w - u)(r - q)], q = 0 without a model. Where the model is not negative either it is between
        -E[(w - u)+ q] - E[(u - w)+ r] and E[(w - u)+ r] + E[(u - w)+ q], each of which is taken at an upper limit;
        otherwise between the ranges of r - q times E[(w - u)+] and E[(u - w)+] (Bottou et al. 2013, eq. 12-13). Every
        limit is one-sided at half of 1 - level, by user.

        Args:
            policy: of the same rows.
            reach: size of a reward that the log happens not to show.
            level: nominal coverage.
            usual: whether one more reward is of the size that a reward of the log has; else of the largest.
        """
        modelled = len(self.by_user.names) > len(self.PLAIN)
        if math.isinf(reach):
            return reach if modelled else 0.0, reach
        n, inflate = policy.rows, small_sample_factor(policy.users, level)

        def mean(name: str) -> float:
            return self.by_user.total(name) / n

        def about_0(name: str) -> float:
            return max(self.by_user.product({name: 1.0}, {name: 1.0}), 0.0) / n**2 * inflate

        def centred(name: str) -> float:
            return self.by_user.centred(name, n) / n**2 * inflate

        cut = Cut(
            mean("kept"),
            centred("kept"),
            mean("excess"),
            about_0("excess"),
            None,
            0.0,
            mean("weight"),
            centred("weight"),
            self.largest_excess / n,
        )

        def lost(name: str, most: float, one: float) -> float:
            """Upper limit of the mean of an excess."""
            if most <= 0.0:
                return 0.0
            return clipping_bias_bound(replace(cut, reward=mean(name), reward_variance=about_0(name)), most, one, level)

        def added(name: str, most: float) -> float:
            """Upper limit of the mean of what the weights u add."""
            if self.largest_more * most <= 0.0:
                return 0.0
            return gamma_limits(mean(name), about_0(name), self.largest_more * most / n, level)[1]

        rewards = self.by_user.total("reward")
        one_reward = self.by_user.total("squared reward") / rewards if usual and rewards > 0.0 else reach
        if not modelled:
            return 0.0, lost("excess earned", reach, one_reward)
        if self.model_min < 0.0:
            up, down = max(reach - self.model_min, 0.0), max(self.model_max, 0.0)
            grown = gamma_limits(mean("more"), about_0("more"), self.largest_more / n, level)[1]
            below, above = (clipping_bias_bound(cut, most, most, level) for most in (down, up))
            return below + grown * up, above + grown * down
        below = lost("excess model", self.model_max, self.model_max) + added("more earned", reach)
        return below, lost("excess earned", reach, one_reward) + added("more model", self.model_max)


@dataclass
class ScoreSums:
    """Sums by user of an estimator's row scores.

    Attributes:
        policy: of the same rows; its sums serve where the scores are weights and weighted rewards.
        by_user: of ones ("rows") and of the parts that the estimator has.
        linear, numerator, denominator: names of the parts; "" for none.
        positive: whether the estimate is a sum of parts that are not negative.
        modelled: whether a reward model takes part.
        slope: largest size of what a row's score takes off per unit of weight.
        left_out: by weights in place of target / propensity; None where there are none.
        warnings: what the estimator brings along.
    """

    policy: PolicySums
    by_user: UserSums
    linear: str
    numerator: str
    denominator: str
    positive: bool
    modelled: bool = False
    slope: float = 0.0
    left_out: LeftOut | None = None
    warnings: tuple[Finding, ...] = ()

    @staticmethod
    def of(scores: Scores, rows: Rows, policy: PolicySums) -> ScoreSums:
        """Of all rows of a log, or of whole users."""
        parts = {"linear": scores.linear, "numerator": scores.numerator, "denominator": scores.denominator}
        given = {name: values for name, values in parts.items() if values is not None}
        known = {id(rows.weight): "weight", id(rows.earned): "earned"}
        if all(id(values) in known for values in given.values()):
            sums = policy.by_user
            names = {part: known[id(values)] for part, values in given.items()}
        else:
            sums = UserSums(("rows", *given))
            sums.extend([np.ones(rows.reward.size), *given.values()], rows.clusters)
            names = {part: part for part in given}
        used = None if scores.other_weights else scores.used
        return ScoreSums(
            policy,
            sums,
            linear=names.get("linear", ""),
            numerator=names.get("numerator", ""),
            denominator=names.get("denominator", ""),
            positive=scores.counts or scores.linear is None,
            modelled=rows.q_target is not None,
            slope=scores.slope if rows.q_logged is None else max(float(np.max(rows.q_logged)), 0.0),
            left_out=None if used is None else LeftOut.of(rows, used, counts=scores.counts),
            warnings=scores.warnings,
        )

    def merged(self, other: ScoreSums, policy: PolicySums) -> ScoreSums:
        """Of the rows of both, which share no user; ``policy`` is of both, too."""
        own = self.by_user is not self.policy.by_user
        left = self.left_out
        if left is not None and other.left_out is not None:
            left = left + other.left_out
        sums = self.by_user + other.by_user if own else policy.by_user
        return replace(self, policy=policy, by_user=sums, left_out=left)

    @staticmethod
    def weighted(policy: PolicySums, *, ratio: bool) -> ScoreSums:
        """Of ips, or of snips."""
        names = ("", "earned", "weight") if ratio else ("earned", "", "")
        return ScoreSums(policy, policy.by_user, *names, positive=True)

    @property
    def mean(self) -> float:
        """Mean of the linear part."""
        return self.by_user.total(self.linear) / self.policy.rows if self.linear else 0.0

    @property
    def ratio(self) -> float:
        """Ratio of the sums of numerator and denominator; without a denominator 0."""
        below = self.by_user.total(self.denominator) if self.denominator else 0.0
        return self.by_user.total(self.numerator) / below if below != 0.0 else 0.0

    @property
    def value(self) -> float:
        """The estimate, above the reward from which rewards are counted."""
        return self.mean + self.ratio

    def influence(self) -> dict[str, float]:
        """The estimate's first-order response to a user, times the number of rows, as a form of the user's sums."""
        form = dict.fromkeys(self.by_user.names, 0.0)
        if self.linear:
            form[self.linear] += 1.0
            form["rows"] -= self.mean
        below = self.by_user.total(self.denominator) if self.denominator else 0.0
        if below != 0.0:
            form[self.numerator] += self.policy.rows / below
            form[self.denominator] -= self.policy.rows / below * self.ratio
        return form

    def deviations(self) -> Deviations:
        """Of the users from the estimate."""
        return self.policy.deviations(self.by_user, self.influence())

    def limits(self, reach: float, level: float) -> Limits:
        """Student's limits by user, on a log scale where the estimate is a positive sum of parts that are not negative.

        Where the target's rows have no reward, up to -log((1 - level) / 2) of them at the largest weight.
        """
        policy, value, deviations = self.policy, self.value, self.deviations()
        if self.positive and value == 0.0 and deviations.second == 0.0:
            high = -math.log((1.0 - level) / 2.0) * policy.weight_max * reach / policy.rows
            return Limits(Interval(0.0, high, f"no reward seen, {unit(policy)}"), 0.0, 0.0)
        return Limits.of(deviations, value, policy, level, log_scale=self.positive and value > 0.0)


@dataclass(frozen=True)
class Limits:
    """Limits of a value above the least reward, and what they rest on.

    Attributes:
        interval: by user.
        carrying: users that carry the variance.
        error: standard error.
    """

    interval: Interval
    carrying: float
    error: float

    @staticmethod
    def of(deviations: Deviations, value: float, policy: PolicySums, level: float, *, log_scale: bool) -> Limits:
        """Student's, of a mean over rows."""
        n = float(policy.rows)
        low, high = deviations.limits(value, n, level, log_scale=log_scale)
        method = f"Student {unit(policy)}" + (", log scale" if log_scale else "")
        return Limits(Interval(low, high, method), deviations.carrying, deviations.error(n))


def unit(policy: PolicySums) -> str:
    """Unit of independence: users or rows."""
    return "by user" if policy.clustered else "by row"


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
        """As stated, and as the log shows them."""
        stated = None if facts.reward_max is None else float(facts.reward_max)
        return Bounds(policy.shift, stated, max(policy.reward_max, policy.shift))

    @property
    def most(self) -> float:
        """Largest reward possible as stated, else of the log; inf where that shows none."""
        if self.stated is not None:
            return self.stated
        return self.seen if self.seen > self.least else math.inf

    @property
    def reach(self) -> float:
        """Largest reward minus the least."""
        return self.most - self.least

    @property
    def ceiling(self) -> float:
        """What no value can be above, from the least reward on: only a stated range says it."""
        return math.inf if self.stated is None else self.stated - self.least

    @property
    def one_reward(self) -> float:
        """Size of a reward that the log happens not to show: the largest seen, else as stated, else inf."""
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
    reason = "one user" if policy.users < 2 else "no support" if policy.supported == 0 and estimator != "dm" else ""
    evidence: dict[str, Any] = {}
    if reason:
        sampling = whole = Interval(0.0, bounds.reach, f"no interval: {reason}")
    else:
        limits = scored.limits(bounds.one_reward, level)
        sampling = whole = limits.interval if sampling is None else sampling
        if not scored.modelled:
            heavy = heavy_tail(policy, ScoreSums.weighted(policy, ratio=True).limits(bounds.one_reward, level).error)
            evidence |= {"carrying": limits.carrying, "heavy_tail": heavy}
        whole, outside = _with_hidden(scored, sampling, bounds, level, clips=math.isfinite(clip))
        evidence["value_outside"] = outside
    sampling, whole = (interval.within(0.0, bounds.ceiling) for interval in (sampling, whole))
    changed = scored.left_out is not None and not reason
    part = _beyond(whole, sampling) if changed else 0.0
    support = Support.of(policy, facts.supports, level)
    gap = support.entering * bounds.reach if support.entering > 0.0 else 0.0
    # Ratios and control variates take the missing mass for mass that earns as the rest does. A weighted mean may be too
    # large by the proved excess of the mean weight.
    low = whole.low * (1.0 - (support.too_much if scored.linear or reason else support.entering))
    low, high = max(low - support.entering * scored.slope, 0.0), min(whole.high + gap, bounds.ceiling)
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
    """How far an interval goes beyond another one, at either end; 0 where both have no end."""
    above = whole.high - sampling.high if math.isfinite(sampling.high) else 0.0
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
    whole = Interval(sampling.low - below, sampling.high + above, sampling.method)
    if not scored.positive or not sampling.method.startswith(("Student", "no reward")):
        return whole, 0.0
    unchanged = ScoreSums.weighted(scored.policy, ratio=False).limits(bounds.one_reward, level).interval
    return _both(whole, unchanged, scored.value)


def _both(whole: Interval, unchanged: Interval, value: float) -> tuple[Interval, float]:
    """What two intervals share, or the second where they share nothing; and how far the value is outside that one."""
    outside = max(unchanged.low - value, value - unchanged.high, 0.0)
    low, high = max(whole.low, unchanged.low), min(whole.high, unchanged.high)
    return unchanged if low > high else Interval(low, high, whole.method), outside


def heavy_tail(policy: PolicySums, error: float, squares: float | None = None) -> float:
    """How many times the standard error of the ratio is what its weights let one expect.

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
    n, total, base = policy.rows, policy.by_user.total("weight"), bounds.least
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
    share, base = support.covered, policy.shift
    if share >= 1.0 or policy.users < 2 or policy.by_user.total("weight") <= 0.0:
        return {"identified_share": share}
    if policy.supported and estimator in ("ips", "clipped_ips") and policy.rewarded:
        ratio = ScoreSums.weighted(policy, ratio=True)
        value, sampling = ratio.value, ratio.limits(math.inf, level).interval
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
        mean: of 1 and (w - b) r; of the changed weights where the estimator changes them.
        unchanged: of 1 and (w - b) r.
        ratio: of (w - b) r, b r, w - b and b.
        differing: rows whose weights differ.
    """

    ours: ScoreSums
    theirs: ScoreSums
    mean: UserSums
    unchanged: UserSums
    ratio: UserSums
    differing: int

    @staticmethod
    def of(target: tuple[Rows, Scores, ScoreSums], baseline: tuple[Rows, Scores, ScoreSums]) -> PairSums:
        """Of all rows of a log, or of whole users; each policy's rows, scores and sums."""
        (rows, scores, ours), (others, other_scores, theirs) = target, baseline
        ones, apart = np.ones(rows.reward.size), rows.weight - others.weight
        earned = apart * rows.reward
        unchanged = UserSums(("rows", "apart"))
        unchanged.extend((ones, earned), rows.clusters)
        mean = unchanged
        if scores.used is not None and other_scores.used is not None:
            mean = UserSums(("rows", "apart"))
            mean.extend((ones, (scores.used - other_scores.used) * rows.reward), rows.clusters)
        ratio = UserSums(("earned apart", "earned", "apart", "weight"))
        ratio.extend((earned, others.earned, apart, others.weight), rows.clusters)
        return PairSums(ours, theirs, mean, unchanged, ratio, int(np.count_nonzero(apart)))

    def merged(self, other: PairSums, ours: ScoreSums, theirs: ScoreSums) -> PairSums:
        """Of the rows of both, which share no user; with the merged scores of the two policies."""
        unchanged = self.unchanged + other.unchanged
        mean = unchanged if self.mean is self.unchanged else self.mean + other.mean
        return PairSums(ours, theirs, mean, unchanged, self.ratio + other.ratio, self.differing + other.differing)

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
        one, other = (1.0 / (each.mean_weight or 1.0) for each in policies)
        ours, theirs = (
            each.by_user.total("earned") / each.rows * factor
            for each, factor in zip(policies, (one, other), strict=True)
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
    supports = [Support.of(each, facts.supports, level) for each in both]
    gaps = [each.entering * bounds.reach if each.entering > 0.0 else 0.0 for each in supports]
    most, same = bounds.ceiling, pair.differing == 0
    sampling = whole = Interval(-most, most, "no interval: one user")
    evidence: dict[str, Any] = {}
    if same:
        sampling = whole = Interval(0.0, 0.0, "no interval: the same policy")
        gaps = [0.0, 0.0]
    elif ours.users > 1:
        ratios = pair.ratio_limits(level)
        limits = ratios if is_ratio else pair.limits(pair.mean, value, level)
        sampling = whole = limits.interval
        squares = max(pair.ratio.product({"apart": 1.0}, {"apart": 1.0}), 0.0)
        evidence |= {"carrying": limits.carrying, "heavy_tail": heavy_tail(ours, ratios.error, squares)}
        whole, evidence["value_outside"] = _difference_with_hidden(pair, sampling, bounds, level)
    part = _beyond(whole, sampling) if pair.ours.left_out is not None else 0.0
    lost = [
        each.entering * own.value if is_ratio else 0.0
        for each, own in zip(supports, (pair.ours, pair.theirs), strict=True)
    ]
    low = min(max(whole.low - gaps[1] - lost[0], -most), most)
    high = max(min(whole.high + gaps[0] + lost[1], most), -most)
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
    """As :func:`_with_hidden`: what clipping may hide of the target is above the difference, of the baseline below."""
    if pair.ours.left_out is None or pair.theirs.left_out is None:
        return sampling, 0.0
    _, above = pair.ours.left_out.hidden(pair.ours.policy, bounds.one_reward, level, usual=True)
    _, below = pair.theirs.left_out.hidden(pair.theirs.policy, bounds.one_reward, level, usual=True)
    whole = Interval(sampling.low - below, sampling.high + above, sampling.method)
    value = pair.unchanged.total("apart") / pair.ours.policy.rows
    return _both(whole, pair.limits(pair.unchanged, value, level).interval, pair.value)


def _joined(ours: Verdict, theirs: Verdict) -> Verdict:
    """The findings of both verdicts, each once, with the baseline's marked."""
    codes = {finding.code for finding in ours.findings if finding.level != "trust"}
    more = [each for each in theirs.findings if each.level != "trust" and each.code not in codes]
    return ours.with_findings([replace(each, message=f"of the baseline, {each.message}") for each in more])
