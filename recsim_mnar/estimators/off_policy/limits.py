"""What moments say of a value: support, bounds of rewards, and limits by user of means and ratios."""

from __future__ import annotations

import math
from dataclasses import dataclass

from recsim_mnar.estimators.intervals import ROUNDING, Deviations, Interval, student_limits
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.stated import Stated

STRICT = 0.998
"""Level of two-sided limits that contradict what a log says of itself: met by chance once in a thousand logs a side."""
BY_DIGITS = 0.01
"""A mean weight this close to 1 may be off by the digits of the columns."""


@dataclass(frozen=True)
class Support:
    """What is known of the target's mass on actions that the log never shows.

    Attributes:
        entering: the upper limit of that mass as the column states it, which enters the interval.
        known: mean of the column that states it, None without one.
        stated: full support as stated: True, False, or None.
        proved: whether the mean weight proves a gap beyond what is stated.
        excess: how far the mean weight is proved to be above what support leaves it, 0 where it is not.
        mean: mean weight.
    """

    entering: float
    known: float | None
    stated: bool | None
    proved: bool
    excess: float
    mean: float

    @property
    def too_much(self) -> float:
        """Share of a weighted mean that goes where logged probabilities are too small by as much as the mean weight."""
        return 1.0 - 1.0 / self.mean if self.excess > 0.0 else 0.0


def mean_weight_limits(moments: Moments, level: float) -> tuple[float, float]:
    """Limits of E[w] by user on a log scale; E[w] is 1 less the target's mass that the log never shows."""
    from scipy.special import ndtri

    n, mean = moments.rows, moments.sum("w") / moments.rows
    if moments.users < 2 or mean <= 0.0:
        return 0.0, math.inf
    second = moments.power("ww") - 2.0 * mean * moments.power("lw") + mean**2 * moments.power("ll")
    error = math.sqrt(max(second, 0.0) * moments.users / (moments.users - 1.0)) / n
    reach = min(float(ndtri(0.5 + level / 2.0)) * error / mean, 30.0)
    return mean * math.exp(-reach), mean * math.exp(reach)


def support_of(moments: Moments, stated: Stated, level: float) -> Support:
    """Compare the mean weight with 1, less the mass that a column says the log never shows.

    Args:
        moments: of the log, with the column of missing mass where it was given.
        stated: what the user states.
        level: of the interval.
    """
    n, mean = moments.rows, moments.sum("w") / moments.rows
    known = None if moments.missing is None else moments.missing / n
    given = known or 0.0
    low, high = mean_weight_limits(moments, STRICT)
    proved = given + high < 1.0 and given + mean < 1.0 - BY_DIGITS
    entering = 0.0
    if known is not None:
        entering = min(student_limits(known, moments.missing_error() ** 2, moments.users, level)[1], 1.0)
    excess = given + low - 1.0 if given + mean > 1.0 + BY_DIGITS else 0.0
    return Support(entering, known, stated.supports, proved, max(excess, 0.0), mean)


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
    def of(moments: Moments, stated: Stated) -> Bounds:
        """As stated, and as the log shows them."""
        most = None if stated.reward_max is None else float(stated.reward_max)
        return Bounds(moments.shift, most, max(moments.reward_max, moments.shift) if moments.rows else moments.shift)

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


def of_letters(moments: Moments, above: str, below: str, value: float) -> Deviations:
    """Deviations d = a - value b of user sums a (x or y) and b (l or w)."""
    power, a, b = moments.power, above, below

    def together(times_a: int, times_b: int) -> float:
        return power(b * times_b + a * times_a)

    second = together(2, 0) - 2.0 * value * together(1, 1) + value**2 * together(0, 2)
    if second <= ROUNDING * together(2, 0):
        return Deviations(0.0, 0.0, 0.0, moments.users, moments.rewarded_users, moments.grouped)
    fourth = together(4, 0) - 4.0 * value * together(3, 1) + 6.0 * value**2 * together(2, 2)
    fourth += -4.0 * value**3 * together(1, 3) + value**4 * together(0, 4)
    return Deviations(second, 0.0, max(fourth, 0.0), moments.users, moments.rewarded_users, moments.grouped)


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


def mean_limits(moments: Moments, one_reward: float, level: float, *, clipped: bool) -> Limits:
    """Limits of E[w r] (of E[min(w, clip) r]), r above the least reward."""
    letter = "y" if clipped else "x"
    value = moments.sum(letter) / moments.rows
    if not value > 0.0:
        return _of_nothing(moments, one_reward, level)
    return limits_of(of_letters(moments, letter, "l", value), value, float(moments.rows), level, unit(moments))


def ratio_limits(moments: Moments, one_reward: float, level: float) -> Limits:
    """Limits of the self-normalised mean E[w r] / E[w], r above the least reward."""
    total = moments.sum("w")
    value = moments.sum("x") / total
    if not value > 0.0:
        return _of_nothing(moments, one_reward, level)
    return limits_of(of_letters(moments, "x", "w", value), value, total, level, unit(moments))


def _of_nothing(moments: Moments, one_reward: float, level: float) -> Limits:
    """Limits where the target's rows have no reward: up to -log((1 - level) / 2) of them at the largest weight."""
    high = -math.log((1.0 - level) / 2.0) * moments.weight_max * one_reward / moments.rows
    return Limits(Interval(0.0, high, f"no reward seen, {unit(moments)}"), 0.0, 0.0)


def limits_of(found: Deviations, value: float, scale: float, level: float, unit: str) -> Limits:
    """Limits of a value above the least reward, on the log scale; a value of 0 or less has limits on the plain one."""
    low, high = found.limits(value, scale, level, log_scale=value > 0.0)
    method = f"Student {unit}" + (", log scale" if value > 0.0 else "")
    return Limits(Interval(low, high, method), found.carrying, found.error(scale))


def heavy_tail(moments: Moments, error: float) -> float:
    """How many times the standard error of the ratio is what its weights let one expect.

    The expected variance is that of rewards which do not follow the weights, sum w^2 times the target's variance of
    rewards, sum w (r - v)^2 / sum w. Where the heaviest rows happen to earn nothing the error is far smaller than it.
    """
    total = moments.sum("w")
    if total <= 0.0 or error <= 0.0 or moments.thinned:
        return 1.0
    value = moments.sum("x") / total
    spread = max(moments.sum("xr") - 2.0 * value * moments.sum("x") + value**2 * total, 0.0) / total
    return math.sqrt(spread * moments.sum("ww")) / total / error


def unit(moments: Moments) -> str:
    """Unit of independence: users or rows."""
    return "by user" if moments.clustered else "by row"
