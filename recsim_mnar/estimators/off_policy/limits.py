"""What moments say of a value: support, bounds, limits of means and ratios (docs/verdict-theory.md).

The target's mass that the log never shows is known as stated, as the mean weight proves it, or as it may hide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from recsim_mnar.estimators.intervals import (
    ROUNDING,
    Deviations,
    Interval,
    Spread,
    positive_limits,
    small_sample_factor,
    student_limits,
)
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.stated import Stated

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
