"""IPS, clipped IPS and SNIPS as functions of moments: sampling variation and missing mass (docs/verdict-theory.md).

The target's mass that the log never shows is known as stated, as the mean weight proves it, or as it may hide.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import (
    ROUNDING,
    Cut,
    Deviations,
    Interval,
    Spread,
    clipping_bias_bound,
    positive_limits,
    small_sample_factor,
    student_limits,
)
from recsim_mnar.estimators.off_policy.moments import N_TOP, Moments
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.estimators.off_policy.verdict import judge, loosening
from recsim_mnar.estimators.verdict import Estimate
from recsim_mnar.log.columns import Floats

STRICT = 0.998
"""Level of the two-sided limits that contradict what is stated: met by chance once in a thousand true statements a
side."""


@dataclass(frozen=True)
class Support:
    """Limits of the missing mass m; the value is in the interval with support plus [0, m (range of rewards)].

    Attributes:
        entering: the upper limit on m that enters the interval: of the column, or of a gap that the mean weight proves.
        known: mean of the column that states it, None without one.
        stated: whether support, or what is missing of it, was stated.
        proved: whether the mean weight proves a gap beyond what is stated: at the interval's level, at the strict one
            where support is stated.
        contradicted: whether it does at the strict level.
        hidden: the log's own upper limit on what m may be beyond what is stated, where no gap is proved and no bound of
            the weights is stated; 0 otherwise. Full support bounds no weight: an action may be too rare to be met.
        unbounded: whether support is stated and no bound of the weights is.
        excess: lower limit of the mean weight beyond what support leaves it, 0 where none is proved.
        mean: mean weight.
    """

    entering: float
    known: float | None
    stated: bool
    proved: bool
    contradicted: bool
    hidden: float
    unbounded: bool
    excess: float
    mean: float

    @property
    def too_much(self) -> float:
        """Share of a weighted mean that goes where logged probabilities are too small by as much as the mean weight."""
        return 1.0 - 1.0 / self.mean if self.excess > 0.0 else 0.0


def mean_weight_limits(moments: Moments, stated: Stated, level: float) -> tuple[float, float]:
    """Limits of E[w], which is 1 less the missing mass; a heavier weight than the largest could still be drawn."""
    n, mean = moments.rows, moments.sum("w") / moments.rows
    second = moments.power("ww") - 2.0 * mean * moments.power("lw") + mean**2 * moments.power("ll")
    given = stated.largest_weight
    heaviest = moments.weight_max if given is None else max(given, moments.weight_max)
    up = max(heaviest, moments.user_excess_max)
    factor = small_sample_factor(moments.users, level)
    if math.isinf(factor):
        return 0.0, math.inf
    third = 0.0
    return positive_limits(mean, Spread(max(second, 0.0) / n**2 * factor, third, up / n, mean / n), level)


def support_of(moments: Moments, stated: Stated, level: float) -> Support:
    """Compare statements on support with the mean weight.

    Args:
        moments: of the log, with the column of missing mass where it was given.
        stated: what the user states.
        level: of the interval.
    """
    n, mean = moments.rows, moments.sum("w") / moments.rows
    known = None if moments.missing is None else moments.missing / n
    given = known or 0.0
    low, high = mean_weight_limits(moments, stated, level)
    strict_low, strict_high = mean_weight_limits(moments, stated, STRICT)
    is_stated = known is not None or stated.supports
    bounded = stated.largest_weight is not None
    proved = given + (strict_high if is_stated else high) < 1.0
    upper = min(max(1.0 - low, 0.0), 1.0)
    entering = 0.0
    if known is not None:
        entering = min(student_limits(known, moments.missing_error() ** 2, moments.users, level)[1], 1.0)
    if proved:
        entering = max(entering, upper)
    return Support(
        entering=entering,
        known=known,
        stated=is_stated,
        proved=proved,
        contradicted=given + strict_high < 1.0,
        # A mean weight that is above 1 by luck leaves no less room: what it leaves is at least its own reach below.
        hidden=0.0 if (is_stated and bounded) or proved else max(upper - given, mean - low),
        unbounded=is_stated and not bounded,
        excess=max(given + strict_low - 1.0, 0.0),
        mean=mean,
    )


@dataclass(frozen=True)
class Bounds:
    """The range of rewards.

    Attributes:
        least: smallest reward possible, from which rewards are counted.
        largest: largest reward that a row of the log can have; inf where none was given and every reward is the least
            one.
        given: whether the largest was given.
        most: largest reward of any action, also of those that the log never shows.
        open: whether that is not known, where each shown action's largest is.
    """

    least: float
    largest: float
    given: bool
    most: float
    open: bool = False

    @staticmethod
    def of(moments: Moments, stated: Stated) -> Bounds:
        """As given, or as the log shows them.

        The limits of shown actions bound what rows can earn where no action is left that the log could have shown.
        """
        most, limit = None if stated.reward_max is None else float(stated.reward_max), moments.reward_limit
        if limit is None:
            seen = moments.reward_max if moments.rows and moments.reward_max > moments.shift else math.inf
            top = seen if most is None else most
            return Bounds(moments.shift, top, most is not None, top)
        every = shows_every_action(moments, stated)
        if most is None:
            return Bounds(moments.shift, limit, True, limit, open=not every or bool(moments.missing))
        return Bounds(moments.shift, min(limit, most) if every else most, True, most)

    @property
    def range(self) -> float:
        """Largest minus least, of what rows can earn."""
        return self.largest - self.least

    @property
    def reach(self) -> float:
        """Largest minus least, of what any action can earn."""
        return self.most - self.least

    def nothing(self, moments: Moments) -> float:
        """Zero point for the size of a value: the least reward, or no reward if that is more.

        A least reward that was stated far below 0 and all that was seen would make any interval look narrow.
        """
        return max(min(0.0, moments.reward_min) - self.least, 0.0) if moments.rows else 0.0

    def one_reward(self, moments: Moments) -> float:
        """Size assumed for one more reward, above the least one: the range if it is given.

        Else the mean reward of the log, each weighing in proportion to itself: 1 for clicks. The largest reward seen
        would be met at the heaviest weight hardly ever; what heavy tails do beyond that the verdict says.
        """
        if self.given or math.isinf(self.range):
            return self.range
        return moments.sum("rr") / moments.sum("r")

    def within(self, interval: Interval) -> Interval:
        """The part of an interval, in the reward's unit, that the rewards allow."""
        return interval.within(self.least, self.largest)


def shows_every_action(moments: Moments, stated: Stated) -> bool:
    """Whether a log that leaves out an action is met once in a thousand times, where each can be shown in every row.

    A least propensity P leaves room for 1 / P actions, and U users, whose rows may share one draw, all miss one of them
    with a probability of at most (1 - P)^U / P.
    """
    least = stated.propensity_min
    return least is not None and moments.users * least >= -math.log((1.0 - STRICT) / 2.0 * least)


def of_letters(moments: Moments, above: str, below: str, value: float) -> Deviations:
    """Deviations d = a - value b of user sums a (x or y) and b (l or w)."""
    power, grouped, a, b = moments.power, moments.grouped, above, below

    def together(times_a: int, times_b: int) -> float:
        return power(b * times_b + a * times_a)

    second = together(2, 0) - 2.0 * value * together(1, 1) + value**2 * together(0, 2)
    if second <= ROUNDING * together(2, 0):
        return Deviations(0.0, 0.0, 0.0, moments.users, moments.rewarded_users, grouped)
    third = fourth = 0.0
    if grouped:
        third = together(3, 0) - 3.0 * value * together(2, 1) + 3.0 * value**2 * together(1, 2)
        third -= value**3 * together(0, 3)
        fourth = together(4, 0) - 4.0 * value * together(3, 1) + 6.0 * value**2 * together(2, 2)
        fourth += -4.0 * value**3 * together(1, 3) + value**4 * together(0, 4)
    return Deviations(max(second, 0.0), third, max(fourth, 0.0), moments.users, moments.rewarded_users, grouped)


def largest_weight(moments: Moments, stated: Stated, clip: float = math.inf) -> float:
    """The largest weight that counts: as given, else as seen, and cut at ``clip``.

    A policy whose weight is 1 in every row is the one that logged them, and has no other.
    """
    given = None if moments.weight_max == 1.0 and moments.sum("w") == moments.rows else stated.largest_weight
    return min(moments.weight_max if given is None else max(given, moments.weight_max), clip)


def heaviest_step(moments: Moments, stated: Stated, one_reward: float, clip: float = math.inf) -> float:
    """The largest effect of one more reward: the heaviest weight, and the contribution of its user's other rows.

    These are the rows by which the user's weights sum to more than the user has rows, at the mean reward.
    """
    weight = largest_weight(moments, stated, clip)
    with_it = max(min(moments.user_excess_max, moments.user_rows_max * clip) - (weight - 1.0), 0.0)
    return weight * one_reward + with_it * max(moments.sum("r") / moments.rows, 0.0)


def mean_limits(moments: Moments, stated: Stated, one_reward: float, level: float, *, clipped: bool) -> Interval:
    """Limits of E[w r] (of E[min(w, clip) r]), r above the least reward: see :func:`positive_limits`."""
    letter, clip = ("y", moments.clip) if clipped else ("x", math.inf)
    value = moments.sum(letter) / moments.rows
    deviations = of_letters(moments, letter, "l", value)
    spread = deviations.spread(moments.rows, heaviest_step(moments, stated, one_reward, clip), max(value, 0.0), level)
    return Interval(*positive_limits(value, spread, level), f"gamma (Fay-Feuer), {unit(moments)}")


def ratio_limits(moments: Moments, stated: Stated, level: float) -> Interval:
    """Limits of the self-normalised mean: one more of the heaviest rows may be fully rewarded, or not at all.

    A ratio does not change with what rewards are counted from: the steps are of rewards above the least one possible,
    which is the least one seen where none is stated.
    """
    total = moments.sum("w")
    base = ratio_base(moments, stated)
    value = moments.sum("x") / total
    heaviest = largest_weight(moments, stated)
    up = max(heaviest_step(moments, stated, one_reward_above(moments, stated, base)), 0.0)
    down = (value - base) * max(heaviest, moments.power("ww") / total)
    spread = of_letters(moments, "x", "w", value).spread(total, up, down, level)
    low, high = positive_limits(value - base, spread, level)
    return Interval(low + base, high + base, f"gamma (Fay-Feuer) of a ratio, {unit(moments)}")


def ratio_base(moments: Moments, stated: Stated) -> float:
    """The least reward of ratios, above ``moments.shift``: 0 where it is stated, or nothing says that there is less."""
    if stated.reward_min is not None or moments.binary or moments.reward_min == moments.reward_max:
        return 0.0
    return max(moments.reward_min - moments.shift, 0.0)


def one_reward_above(moments: Moments, stated: Stated, base: float) -> float:
    """As :meth:`Bounds.one_reward`, of rewards counted from ``base`` above ``moments.shift``."""
    bounds = Bounds.of(moments, stated)
    total = moments.sum("r") - base * moments.rows
    if bounds.given or math.isinf(bounds.range) or total <= 0.0:
        return max(bounds.range - base, 0.0)
    return (moments.sum("rr") - 2.0 * base * moments.sum("r") + base**2 * moments.rows) / total


def expected_half(
    moments: Moments, stated: Stated, estimator: str, variance: float, level: float, times: float = 1.0
) -> float:
    """Half width expected from logs with these weights, averaged over the luck of their rewards.

    The variance is that of the sum of w r where rewards do not follow the weights, ``mean w^2`` times ``mean r^2`` of
    the log (see :func:`luck_of_weights`); what users' dependence adds is taken from the log itself.

    Args:
        moments: of the log.
        stated: what is known of it.
        estimator: "snips" leaves the variance of the rewards in place of their mean square. A clip changes nothing:
            what it takes from the variance it may hide.
        variance: of sum w r over users, without what rewards and weights have in common.
        level: nominal coverage.
        times: of a log of so many times the rows.
    """
    n, mean = moments.rows, moments.sum("r") / moments.rows
    bounds = Bounds.of(moments, stated)
    base = ratio_base(moments, stated) if estimator == "snips" else 0.0
    one = one_reward_above(moments, stated, base)
    step = heaviest_step(moments, stated, one)
    if math.isinf(bounds.range) or moments.users < 2:
        return bounds.range
    spread = Deviations(variance * times, 0.0, 0.0, moments.users, moments.rewarded_users, False).spread(
        n * times, step, max(mean - base, 0.0), level
    )
    low, high = positive_limits(max(mean - base, 0.0), spread, level)
    return (high - low) / 2.0


def expected_variance(moments: Moments, estimator: str) -> float:
    """Of the sum of a value's parts over users, as :func:`expected_half` takes it.

    Args:
        moments: of the log.
        estimator: "ips", "clipped_ips" or "snips".
    """
    n, value, below = moments.rows, moments.sum("x") / moments.rows, "l"
    rewards = moments.sum("rr") / n
    rows = moments.sum("xx") - n * value**2
    if estimator == "snips":
        total, below = moments.sum("w"), "w"
        value = moments.sum("x") / total if total > 0.0 else 0.0
        rewards -= (moments.sum("r") / n) ** 2
        rows = moments.sum("xx") - 2.0 * value * moments.sum("wx") + value**2 * moments.sum("ww")
    second = of_letters(moments, "x", below, value).second
    together = second / rows if rows > ROUNDING * moments.sum("xx") else 1.0
    squares = moments.sum("ww") * luck_of_weights(moments)
    return max(squares * max(rewards, 0.0), 0.0) * max(together, 1.0)


def luck_of_weights(moments: Moments) -> float:
    """Factor on sums of squared weights: (rows less missing mass) / sum w, 1 on average.

    A log that happens to meet few of its heaviest rows has both, a small sum of squares and a low estimate; per sum of
    weights the squares are those of any log.
    """
    total = moments.sum("w")
    return max(moments.rows - (moments.missing or 0.0), 0.0) / total if total > 0.0 else 1.0


def expected_ess(moments: Moments) -> float:
    """Expected number of effective rows of logs with these weights."""
    return min(moments.ess * luck_of_weights(moments), float(moments.rows))


def unit(moments: Moments) -> str:
    """Unit of independence: users or rows."""
    return "by user" if moments.clustered else "by row"


# ------------------------------------------------------------------------------------------------------------ estimates

AUTO = "auto"
"""The estimator that leads, see :func:`leading`."""
DENSE = 0.5
"""Squared mean over mean square of the log's rewards from which ``snips`` leads; the rate, where they are 0 or 1."""


def leading(moments: Moments) -> str:
    """The estimator whose number is shown first: "ips", or "snips" where most rows are rewarded.

    No clip: unclipped weights alone leave no bias that the interval has to hold. Where rewards do not follow the
    weights the variance of ``snips`` is that of ``ips`` times 1 - (mean r)^2 / mean r^2, where r is the log's reward
    above the least one. So the two are alike where few rows are rewarded, and ``snips`` is the better one where most
    are. The choice looks at no weight: it says nothing of the target's luck.
    """
    square = moments.sum("rr")
    return "snips" if square > 0.0 and moments.sum("r") ** 2 >= DENSE * moments.rows * square else "ips"


def estimate_from_moments(
    moments: Moments, estimator: str, *, level: float = 0.95, stated: Stated | None = None
) -> Estimate:
    """Value, interval, diagnostics and verdict of "ips", "clipped_ips" or "snips".

    Args:
        moments: of the rows; "ips" and "snips" use the unclipped weights whatever the clip of the moments.
        estimator: one of the three, or "auto" for :func:`leading`.
        level: nominal coverage.
        stated: what is known of the log besides its rows; its least reward is that of the moments.

    Raises:
        UserError: no rows, or no weight that counts.
    """
    if moments.rows == 0:
        raise UserError("the log has no rows; give at least one")
    if moments.sum("w") > 0.0 and moments.ess == 0.0:  # their squares are below the least number
        raise UserError(f"no weight is above {moments.weight_max:g}; give the probability of the logged action")
    stated = stated or Stated()
    estimator = leading(moments) if estimator == AUTO else estimator
    bounds = Bounds.of(moments, stated)
    clipped, ratio = estimator == "clipped_ips" and math.isfinite(moments.clip), estimator == "snips"
    total = moments.sum("w") if ratio else moments.rows
    value = moments.sum("y" if clipped else "x") / total if total > 0.0 else 0.0
    expected = functools.partial(
        expected_half, moments, stated, estimator, expected_variance(moments, estimator), level
    )
    extras = spread_facts(moments, stated) | {"expected_half": expected(), "expected_half_at": expected}
    most = 0.0, bounds.reach
    reason = "one user" if moments.users < 2 else "no support" if moments.supported == 0 else ""
    if reason:
        sampling = whole = Interval(0.0, bounds.reach, f"no interval: {reason}")
    elif ratio:
        sampling = whole = ratio_limits(moments, stated, level)
        extras["ratio"] = True
        if stated.largest_weight is not None:
            tighter = ratio_limits(moments, stated.bounded_by(moments.weight_max), level)
            extras |= loosening(stated, moments.weight_max, whole.within(*most), tighter.within(*most))
    else:
        one = bounds.one_reward(moments)
        sampling = whole = mean_limits(moments, stated, one, level, clipped=clipped)
        if stated.largest_weight is not None and not clipped:
            tighter = mean_limits(moments, stated.bounded_by(moments.weight_max), one, level, clipped=False)
            extras |= loosening(stated, moments.weight_max, whole.within(*most), tighter.within(*most))
        if clipped:
            unclipped = mean_limits(moments, stated, one, level, clipped=False)
            whole, facts = intersected(sampling, clip_part(moments, stated, level, bounds), unclipped, value)
            extras |= facts
    return assemble(value, sampling, whole, moments, bounds, stated, estimator, level, extras)


def assemble(
    value: float,
    sampling: Interval,
    whole: Interval,
    moments: Moments,
    bounds: Bounds,
    stated: Stated,
    estimator: str,
    level: float,
    extras: dict[str, Any],
) -> Estimate:
    """The estimate of a value, from limits that count from the least reward.

    Args:
        value: above the least reward.
        sampling: its interval from sample size alone.
        whole: its interval for the target policy's value where the log has support.
        moments: of the log.
        bounds: of rewards.
        stated: what is known of the log.
        estimator: name.
        level: nominal coverage.
        extras: further facts for the verdict.
    """
    known, base = support_of(moments, stated, level), bounds.least
    sampling, whole = (interval.within(0.0, bounds.reach) for interval in (sampling, whole))
    # What clipping or shrinking may hide: how far the interval goes beyond the sampling one.
    clipped = estimator == "clipped_ips" and math.isfinite(moments.clip)
    below = 0.0 if clipped else sampling.low - whole.low
    part = max(whole.high - sampling.high, below, 0.0) if clipped or "changed" in extras else 0.0
    gap = known.entering * bounds.reach if known.entering > 0.0 else 0.0
    # Ratios and control variates take the missing mass for mass that earns as the rest does. A weighted mean may be too
    # large by the proved excess of the mean weight.
    low = whole.low * (1.0 - (known.entering if extras.get("ratio") else known.too_much))
    low, high = max(low - known.entering * extras.get("slope", 0.0), 0.0), min(whole.high + gap, bounds.reach)
    if not extras.get("value_outside"):  # a point whose bias is proved does not stretch the interval
        low, high = min(low, value), max(high, value)
    method = sampling.method + (" + clip part" if part > 0.0 else "") + (" + missing mass" if gap > 0.0 else "")
    facts = diagnostics(moments) | {
        "sampling_low": sampling.low + base,
        "sampling_high": sampling.high + base,
        "clip_part": part,
        "gap_part": gap,
        "missing_mass": known.entering if known.entering > 0.0 else known.hidden,
        "reward_min": base,
        "reward_max": bounds.most,
        "range_given": [stated.reward_min is not None, stated.reward_max is not None],
        "weight_max_given": stated.largest_weight is not None,
        "weight_max": largest_weight(moments, stated),
        "full_support": known.stated,
    }
    facts |= {} if moments.reward_limit is None else {"reward_limit": moments.reward_limit}
    facts |= identified(moments, known, stated, value, sampling, estimator, level)
    judged = (
        facts
        | extras
        | {
            "support": known,
            "range": bounds.reach,
            "low": low,
            "high": high,
            "scale": moments.sum("r") / moments.rows - bounds.nothing(moments),
            "denied": moments.denied,
            "bounds_stated": stated.bounds,
            "reward_base": base + (value if estimator == "snips" else 0.0),
            "expected_ess": expected_ess(moments),
            "bias_part": part,
            "unseen_mass": max(known.entering, known.hidden),
        }
    )
    ends = value + base, low + base, high + base
    return Estimate(*ends, level, method, moments.rows, moments.ess, facts, judge(judged, estimator), estimator)


def spread_facts(moments: Moments, stated: Stated, *others: Moments) -> dict[str, Any]:
    """How much of the rows is one user's, and which ends of the rewards' range are not stated.

    Args:
        moments: of the log.
        stated: what is known of it.
        others: of other policies that the estimate is of.
    """
    facts: dict[str, Any] = {"support_seen": moments.supported / moments.rows}
    if moments.grouped:
        facts["longest_user_share"] = moments.user_rows_max / moments.rows
    bounds = [Bounds.of(each, stated) for each in (moments, *others)]
    limited = moments.reward_limit is not None
    if not moments.binary or (limited and bounds[0].most > 1.0):
        unknown = {
            "reward_min": stated.reward_min is None and moments.reward_min < 0.0,
            "reward_max": any(each.open for each in bounds) if limited else stated.reward_max is None,
        }
        facts["range_unstated"] = [name for name, missing in unknown.items() if missing]
    return facts


def identified(
    moments: Moments,
    known: Support,
    stated: Stated,
    value: float,
    sampling: Interval,
    estimator: str,
    level: float,
) -> dict[str, Any]:
    """The covered share of the target, and the mean reward of that part with an interval."""
    share = 1.0 - (known.known or 0.0)
    if known.proved:
        share = min(known.mean, share)
    if share >= 1.0 or moments.users < 2 or moments.sum("w") <= 0.0:
        return {"identified_share": share}
    if moments.supported and estimator in ("ips", "clipped_ips") and moments.rewarded:
        sampling = ratio_limits(moments, stated, level)
        value = moments.sum("x") / moments.sum("w")
    elif estimator != "snips":
        return {"identified_share": share}
    base = moments.shift
    return {
        "identified_share": share,
        "value_identified": value + base,
        "identified_low": sampling.low + base,
        "identified_high": sampling.high + base,
    }


def intersected(
    sampling: Interval, above: float, unclipped: Interval, value: float
) -> tuple[Interval, dict[str, float]]:
    """The interval of changed weights, with the hidden value above it, where it agrees with that of the unchanged ones.

    And what the verdict needs of the unchanged one: its half width, and how far the value is outside it.
    """
    facts = {
        "unclipped_half": (unclipped.high - unclipped.low) / 2.0,
        "value_outside": max(unclipped.low - value, value - unclipped.high, 0.0),
    }
    low, high = max(sampling.low, unclipped.low), min(sampling.high + above, unclipped.high)
    return unclipped if low > high else Interval(low, high, sampling.method), facts


def clip_part(moments: Moments, stated: Stated, level: float, bounds: Bounds) -> float:
    """How far the value may be above that of min(w, clip) r, see :func:`clipping_bias_bound`."""
    n, clip, reward_range = moments.rows, moments.clip, bounds.reach
    if math.isinf(clip):
        return 0.0
    inflate = small_sample_factor(moments.users, level)
    if math.isinf(inflate) or math.isinf(reward_range):
        return reward_range

    def centred(letter: str) -> float:
        mean = moments.sum(letter) / n
        cross = moments.power("l" + letter)
        return max(moments.power(letter * 2) - 2.0 * mean * cross + mean**2 * moments.power("ll"), 0.0)

    def apart(whole: str, cut: str) -> float:
        both = moments.power(whole * 2) - 2.0 * moments.power(whole + cut) + moments.power(cut * 2)
        return max(both, 0.0) if moments.clipped else 0.0

    cut = Cut(
        kept=moments.sum("c") / n,
        kept_variance=centred("c") / n**2 * inflate,
        excess=max(moments.sum("w") - moments.sum("c"), 0.0) / n if moments.clipped else 0.0,
        excess_variance=apart("w", "c") / n**2 * inflate,
        reward=max(moments.sum("x") - moments.sum("y"), 0.0) / n if moments.clipped else 0.0,
        reward_variance=apart("x", "y") / n**2 * inflate,
        weight=moments.sum("w") / n,
        weight_variance=centred("w") / n**2 * inflate,
        largest=max(largest_weight(moments, stated) - clip, 0.0) / n,
    )
    return clipping_bias_bound(cut, reward_range, bounds.one_reward(moments), level)


def diagnostics(moments: Moments) -> dict[str, Any]:
    """Diagnostics of how far the log can speak of the target; JSON types only."""
    n, mean, squares = moments.rows, moments.sum("w") / moments.rows, moments.power("xx")
    spread = moments.power("ww") - 2.0 * mean * moments.power("lw") + mean**2 * moments.power("ll")
    correction = moments.users / (moments.users - 1.0) if moments.users > 1 else 1.0
    return {
        "n": n,
        "users": moments.users,
        "clustered": moments.clustered,
        "clicks": moments.rewarded,
        "ess": moments.ess,
        "mean_weight": mean,
        "mean_weight_se": math.sqrt(max(spread, 0.0) * correction) / n,
        "max_weight": moments.weight_max,
        "max_weight_share": moments.weight_max / moments.sum("w") if mean > 0.0 else 0.0,
        "tail_index": hill(moments.top_weights) if n >= 10 * N_TOP else None,
        "share_clipped": moments.clipped / n,
        "clip": None if math.isinf(moments.clip) else moments.clip,
        "support": moments.supported / n,
        "mean_reward": moments.sum("r") / n + moments.shift,
        "leading": leading(moments),
        "propensity_min": moments.propensity_min,
        "least_propensity_rows": moments.least_propensity_rows,
        "effective_rewards": moments.sum("x") ** 2 / squares if squares > 0.0 else 0.0,
        "effective_users": moments.sum("w") ** 2 / moments.power("ww") if mean > 0.0 else 0.0,
    }


def hill(top: Floats) -> float | None:
    """Hill's (1975) estimate of a tail index from the largest values, downwards, relative to the last of them.

    Its relative error is one over the root of their number less one; None where one is not positive, or all are equal.
    """
    if top[-1] <= 0.0:
        return None
    spread = float(np.mean(np.log(top[:-1] / top[-1])))
    return 1.0 / spread if spread > 0.0 else None
