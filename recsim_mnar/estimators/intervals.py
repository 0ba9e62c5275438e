"""Intervals from sums by user: gamma, Student, ratios, proportions, and the part that clipping may hide.

And intervals from one number per user: the Poisson bootstrap, and betting, which holds for any number of users. A
bettor's observation is a user: v, the sum of the user's weighted rewards over the largest it could be, and l, the
user's rows over the most that a user can have, so that 0 <= v <= l <= 1. The estimand is the ratio E[v] / E[l]. That it
is m is the same as that z = v - m l, which is in [-m, 1 - m], has mean 0: each method tests that for every m, so that
neither the number of rows nor the longest user is taken from the sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recsim_mnar.kernels.checks import whole_number
from recsim_mnar.log.columns import Floats
from recsim_mnar.rng import Stream, check_seed, uniforms

ROUNDING = 1e-13
"""A sum of squared deviations below this share of the squares that it is a difference of is a rounding of 0."""

LEAST_FREEDOM = 3.0
"""Degrees of freedom of an interval at least; with so few users the verdict does not trust it."""


@dataclass(frozen=True)
class Interval:
    """Two ends and the method that made them."""

    low: float
    high: float
    method: str

    def within(self, least: float, largest: float) -> Interval:
        """Return the part of the interval in [least, largest]."""
        return Interval(min(max(self.low, least), largest), max(min(self.high, largest), least), self.method)


def small_sample_factor(users: int, level: float, freedom: float | None = None) -> float:
    """Factor on a variance estimated from ``users`` independent sums: U/(U-1) (t / z)^2; inf for one user.

    The first part is Bell & McCaffrey's (2002) simplest correction (CR1), the second replaces the normal quantile by
    Student's with ``freedom`` degrees, U - 1 where it is None.
    """
    from scipy.special import ndtri, stdtrit

    if users < 2:
        return math.inf
    tail = 1.0 - (1.0 - level) / 2.0
    if freedom is None:
        degrees = users - 1.0
    else:
        degrees = freedom
    return users / (users - 1.0) * float(stdtrit(degrees, tail) / ndtri(tail)) ** 2


def degrees_of_freedom(users: int, rewarded_users: int, second: float, fourth: float) -> float:
    """Degrees of freedom of a variance estimated from user sums that differ much from each other (Satterthwaite 1946).

    A variance from U values of kurtosis k is worth 2 U / (k - 1) degrees; 1.5 is taken for 2, because the kurtosis of a
    sample comes out too low where tails are heavy (benchmarks/coverage). Of k the part U / (users with a reward) is
    taken away: it comes from rewards being rare, which the gamma limits account for already.

    Args:
        users: U.
        rewarded_users: users with a reward.
        second: sum over users of the squared deviation.
        fourth: sum over users of its square.
    """
    if second <= 0.0 or rewarded_users == 0:
        return users - 1.0
    excess = users * (fourth / second**2 - 1.0 / rewarded_users)
    return max(min(1.5 * users / excess, users - 1.0) if excess > 0.0 else users - 1.0, 2.0)


def poisson_reach(variance: float, step: float, level: float) -> float:
    """Distance above its estimate that a sum of independent parts may reach, no part being larger than ``step``.

    Of all such sums with this variance the one with the longest tail is ``step`` times a Poisson count of mean
    N = variance / step^2: its exact upper limit (Garwood 1936) minus the count is taken, with N in place of the count.
    It is Student's or the normal reach where the step is small next to the standard error, and 3.69 steps where the
    variance is 0 (at level .95).

    Args:
        variance: of the estimate, corrected for few users.
        step: the largest that one more part could add to the estimate.
        level: nominal coverage, two-sided.
    """
    from scipy.special import gammainccinv, ndtri

    half = (1.0 - level) / 2.0
    variance = max(variance, 0.0)
    usual = float(ndtri(1.0 - half)) * math.sqrt(variance)
    if step <= 0.0:
        return usual
    if not math.isfinite(step):
        return math.inf
    count = variance / step**2
    if count > 1e8:
        return usual
    return max(step * (float(gammainccinv(count + 1.0, half)) - count), usual)


@dataclass(frozen=True)
class Spread:
    """Sampling variation of a ratio of sums over users, in the estimate's unit.

    Attributes:
        variance: of the estimate, corrected for few and for unequal users.
        third: sum over users of the cubed deviation over that of the squared one: the step of a Poisson count with the
            same skewness; negative where the users furthest from the others pull the estimate down.
        up: the largest that one more part could add.
        down: the largest that one more part could take away.
    """

    variance: float
    third: float
    up: float
    down: float

    def reaches(self, level: float) -> tuple[float, float]:
        """Distance of the value below and above the estimate; for estimates of any sign."""
        return (
            poisson_reach(self.variance, max(self.down, -self.third), level),
            poisson_reach(self.variance, max(self.up, self.third), level),
        )


@dataclass(frozen=True)
class Deviations:
    """Sums over users of powers of a user's deviation d from the estimate.

    Attributes:
        second, third, fourth: sums of d^2, d^3 and d^4; the last two 0 where rows are the users.
        users: number of users.
        rewarded_users: those with a reward.
    """

    second: float
    third: float
    fourth: float
    users: int
    rewarded_users: int

    @staticmethod
    def of(apart: NDArray[np.float64], rewarded_users: int | None = None) -> Deviations:
        """Compute deviations from ``apart`` (U,); all users have a reward unless their number is given."""
        square = apart * apart
        powers = (float(np.sum(square)), float(square @ apart), float(square @ square))
        return Deviations(*powers, apart.size, apart.size if rewarded_users is None else rewarded_users)

    @property
    def carrying(self) -> float:
        """Compute how many users carry the variance: (sum d^2)^2 / sum d^4."""
        if self.fourth > 0.0:
            return self.second**2 / self.fourth
        return 0.0

    def error(self, scale: float) -> float:
        """Standard error of an estimate that is a sum over users divided by ``scale``; inf for one user."""
        if self.users < 2:
            return math.inf
        return math.sqrt(max(self.second, 0.0) * self.users / (self.users - 1.0)) / scale

    def limits(self, value: float, scale: float, level: float, *, log_scale: bool = False) -> tuple[float, float]:
        """Student's limits, with as many degrees of freedom as users carry the variance.

        Args:
            value: the estimate, a sum over users divided by ``scale``.
            scale: of it.
            level: nominal coverage, asymptotic.
            log_scale: for a positive estimate of a sum of parts that are not negative, whose errors are skewed.
        """
        from scipy.special import stdtrit

        error = self.error(scale)
        if not math.isfinite(error):
            return -math.inf, math.inf
        reach = float(stdtrit(max(self.carrying - 1.0, LEAST_FREEDOM), 0.5 + level / 2.0)) * error
        if not log_scale:
            return value - reach, value + reach
        factor = math.exp(min(reach / value, 30.0))
        return value / factor, value * factor

    def spread(self, scale: float, up: float, down: float, level: float) -> Spread:
        """Return the spread of a sum over users divided by ``scale``; ``up`` and ``down`` are before the division."""
        degrees = degrees_of_freedom(self.users, self.rewarded_users, self.second, self.fourth)
        variance = self.second * small_sample_factor(self.users, level, degrees) / scale**2
        skewed = abs(self.third) > 1e-9 * self.second**1.5  # two users have no skewness, but for roundings
        if skewed and self.second > 0.0:
            third = self.third / self.second
        else:
            third = 0.0
        return Spread(variance, third / scale, max(up, third) / scale, down / scale)


def positive_limits(value: float, spread: Spread, level: float) -> tuple[float, float]:
    """Limits of an estimate of a sum of parts that are not negative, as are weighted rewards above the least one.

    The upper end is Fay & Feuer's (1997). The lower end is the gamma limit after one more part that earns nothing was
    added; where users that pull the estimate down are the furthest from the others it is :func:`poisson_reach` with the
    skewness of the sample, for then no gamma law of the sum has its shape.
    """
    if math.isfinite(spread.up):
        high = gamma_limits(value, spread.variance, spread.up, level)[1]
    else:
        high = math.inf
    less = value - spread.down
    more = spread.variance + spread.down**2
    if less > 0.0:
        low = gamma_limits(less, more, 0.0, level)[0]
    else:
        low = 0.0
    if spread.third < 0.0:
        low = min(low, value - poisson_reach(spread.variance, -spread.third, level))
    return max(low, 0.0), high


def gamma_limits(y: float, s: float, m: float, level: float) -> tuple[float, float]:
    """Fay & Feuer's (1997, eq. 3-4) gamma interval of a weighted sum of Poisson counts.

    Args:
        y: the weighted sum, sum of w_i r_i / n, not negative.
        s: its variance, sum of w_i^2 r_i^2 / n^2 (user sums squared, where users are given).
        m: the largest step that one more event could add, largest weight / n.
        level: nominal coverage.

    Returns:
        (s / 2y) chi2(alpha/2; 2 y^2 / s) and ((s + m^2) / 2(y + m)) chi2(1 - alpha/2; 2 (y + m)^2 / (s + m^2)).
    """
    from scipy.special import gammainccinv, gammaincinv

    half = (1.0 - level) / 2.0
    if y > 0.0 and s > 0.0:
        low = s / y * float(gammaincinv(y * y / s, half))
    else:
        low = 0.0
    up = y + m
    variance = s + m * m
    if up > 0.0 and variance > 0.0:
        high = variance / up * float(gammainccinv(up * up / variance, half))
    else:
        high = y
    return low, high


def student_limits(value: float, variance: float, users: int, level: float) -> tuple[float, float]:
    """Value plus and minus Student's quantile times the standard error, corrected by :func:`small_sample_factor`."""
    from scipy.special import ndtri

    if users < 2:
        return -math.inf, math.inf
    half = float(ndtri(1.0 - (1.0 - level) / 2.0)) * math.sqrt(max(variance, 0.0) * small_sample_factor(users, level))
    return value - half, value + half


def ratio_interval(sums: ArrayLike, counts: ArrayLike, level: float) -> tuple[float, float, float]:
    """A mean over rows whose users are independent but whose rows within a user are not: R = sum y_u / sum n_u.

    By user, with Student's quantile at the degrees of freedom that unequal users leave, and with what one more row
    could add (the largest mean of a user, or 1 where every sum is 0): no interval is a point, and one of rewards that
    are not negative has no negative end (docs/verdict.md).

    Args:
        sums: (U,) each user's sum.
        counts: (U,) each user's number of rows; users without rows count for nothing.
        level: nominal coverage.

    Returns:
        value, low, high; the interval is infinite for fewer than two users with rows.
    """
    y = np.asarray(sums, dtype=np.float64)
    n = np.asarray(counts, dtype=np.float64)
    y = y[n > 0]
    n = n[n > 0]
    if len(n) == 0:
        return math.nan, -math.inf, math.inf
    total = float(n.sum())
    value = float(y.sum()) / total
    if len(n) == 1:
        return value, -math.inf, math.inf
    step = float(np.max(np.abs(y) / n))
    spread = Deviations.of(y - value * n, int(np.count_nonzero(y))).spread(total, step or 1.0, max(value, 0.0), level)
    if np.all(y >= 0.0):
        return value, *positive_limits(value, spread, level)
    less, more = spread.reaches(level)
    return value, value - less, value + more


# --------------------------------------------------------------------------------------------- from one number per user

_POOL_LEAST = 2000
_POOL_SINGLE = 1000
_POOL_ADDRESS = 2**63


def poisson_ratios(above: Floats, below: Floats, *, replicates: int = 1000, seed: int = 0) -> Floats:
    """Replicates of sum(above) / sum(below) with every user's sums counted Poisson(1) times (Chamandy et al. 2012).

    Users whose ``above`` is 0 only move the denominator: where they are many, the thousand largest of them are
    resampled one by one and the total of the rest is drawn from its normal limit, whose mean and variance are exact.

    Args:
        above: (n,) user sums of the numerator.
        below: (n,) user sums of the denominator, not negative.
        replicates: how many; rounded up to a multiple of 8.
        seed: of the counts, which are addressed by user number.

    Returns:
        (replicates,) ratios; 0 where the denominator is.
    """
    from scipy.special import ndtri

    seed = check_seed(seed)
    whole_number(replicates, "replicates", 8)
    size = -(-int(replicates) // 8)
    single = np.ones(above.size, bool)
    idle = np.flatnonzero(above == 0.0)
    rest = idle[:0]
    if idle.size > _POOL_LEAST:
        ranked = idle[np.argpartition(below[idle], idle.size - _POOL_SINGLE)]
        rest = ranked[: idle.size - _POOL_SINGLE]
        single[rest] = False
    above_sums, below_sums = resampled_sums(np.stack([above, below * single]), replicates=8 * size, seed=seed)
    if rest.size:
        draws = uniforms(seed, Stream.BOOTSTRAP, _POOL_ADDRESS, np.arange(8 * size))
        spread = float(np.sqrt(np.sum(below[rest] ** 2)))
        below_sums += np.sum(below[rest]) + spread * ndtri(np.clip(draws, 1e-16, None))
    return np.divide(above_sums, below_sums, out=np.zeros(8 * size), where=below_sums > 0.0)[: int(replicates)]


def resampled_sums(columns: Floats, *, replicates: int, seed: int) -> Floats:
    """Sums of user columns with every user counted Poisson(1) times, the same count in all columns.

    Args:
        columns: (K, n) user sums.
        replicates: how many resamples.
        seed: of the counts, which are addressed by user number.

    Returns:
        (K, replicates) sums.
    """
    from recsim_mnar.estimators import _by_user_kernel as kernels

    size = -(-replicates // 8)
    sums = np.zeros((len(columns) + len(columns) % 2, 8 * size))
    words = np.empty((4, size), np.uint32)
    for k in range(0, len(columns), 2):
        above = columns[k]
        below = columns[min(k + 1, len(columns) - 1)]
        users = np.flatnonzero((above != 0.0) | (below != 0.0))
        with np.errstate(over="ignore"):
            kernels.poisson_sums(
                np.uint64(seed),
                np.uint64(Stream.BOOTSTRAP),
                users.astype(np.uint64),
                above[users],
                below[users],
                words,
                sums[k],
                sums[k + 1],
            )
    return sums[: len(columns), :replicates]


def resampled_counts(n_users: int, *, replicates: int, seed: int) -> NDArray[np.int8]:
    """Count how often each resample of :func:`resampled_sums` draws each user, (n_users, replicates)."""
    pairs = (np.eye(2, n_users, first) for first in range(0, n_users, 2))  # of each user, 1
    counts = [resampled_sums(pair, replicates=replicates, seed=seed).astype(np.int8) for pair in pairs]
    return np.concatenate(counts)[:n_users]


def betting(values: Floats, lengths: Floats, level: float, *, anytime: bool = False) -> tuple[float, float]:
    """Waudby-Smith & Ramdas' (2024, theorem 3) betting interval, with bets on z.

    Each end is where a bettor against that side would have multiplied the stake by 2 / (1 - level).

    Args:
        values: (n,) v in the order in which the users appeared; the bet on a user looks at those before only.
        lengths: (n,) l.
        level: nominal coverage.
        anytime: tuned to hold at every n at once (a confidence sequence) instead of at this n only.
    """
    from recsim_mnar.estimators import _by_user_kernel as kernels

    bets = np.empty_like(values)
    threshold = math.log(2.0 / (1.0 - level))
    kernels.fill_bets(values, 2.0 * threshold, 0.0 if anytime else float(values.size), bets)
    return ends_of_bets(values, lengths, bets, bets, threshold)


def ends_of_bets(
    values: Floats, lengths: Floats, above: Floats, below: Floats, threshold: float
) -> tuple[float, float]:
    """Find where the bets ``above`` (m is too low) and ``below`` (m is too high) have won."""
    from recsim_mnar.estimators import _by_user_kernel as kernels

    inside = ratio_inside(values, lengths)
    low = crossing(lambda m: kernels.log_capital(values, lengths, above, m, 1.0) >= threshold, inside, 0.0)
    high = crossing(lambda m: kernels.log_capital(values, lengths, below, m, -1.0) >= threshold, inside, 1.0)
    return low, high


def ratio_inside(values: Floats, lengths: Floats) -> float:
    """Return the ratio of means, inside (0, 1)."""
    return min(max(float(np.sum(values) / np.sum(lengths)), 1e-15), 1.0 - 1e-15)


def crossing(rejected: Callable[[float], bool], inside: float, end: float) -> float:
    """Return the rejected point nearest to ``inside`` towards ``end``, to seven digits; ``end`` where none is."""
    out = min(max(end, 1e-300), 1.0 - 1e-16)
    if not rejected(out):
        return end
    for _ in range(60):
        middle = 0.5 * (inside + out)
        if rejected(middle):
            out = middle
        else:
            inside = middle
        if abs(out - inside) <= 1e-7 * max(inside, 1e-12):
            break
    return out
