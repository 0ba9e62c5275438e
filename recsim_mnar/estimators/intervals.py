"""Confidence intervals: from moments of user sums (gamma, Student, ratios), and from one number per user.

Intervals from one number per user are the Poisson bootstrap, and betting, which is valid for any number of users. The
observation of betting is a user with two numbers: v, the sum of the user's weighted rewards over the largest possible
one, and l, the user's number of rows over the largest possible one, so that 0 <= v <= l <= 1. The estimand is the ratio
E[v] / E[l]. It is m if and only if z = v - m l, which is in [-m, 1 - m], has mean 0, which is tested for every m. So
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
"""Share of the terms that cancel in a sum of squared deviations, below which the sum is a rounding error and counts as
0."""

LEAST_FREEDOM = 3.0
"""Least degrees of freedom of an interval. With fewer, verdicts do not trust it, and quantiles would be arbitrary."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval.

    Attributes:
        low: lower end.
        high: upper end.
        method: method that computed it, in words.
    """

    low: float
    high: float
    method: str

    def within(self, least: float, largest: float) -> Interval:
        """Clip both ends to [least, largest]."""
        return Interval(min(max(self.low, least), largest), max(min(self.high, largest), least), self.method)


def small_sample_factor(users: int, level: float, freedom: float | None = None) -> float:
    """Return the factor U/(U-1) (t / z)^2 that corrects a variance estimated from U independent user sums.

    The first part is Bell & McCaffrey's (2002) simplest correction (CR1). The second one makes limits with the normal
    quantile z equal to limits with Student's quantile t.

    Args:
        users: number U of users.
        level: nominal coverage of the two-sided interval.
        freedom: degrees of freedom of t; None for U - 1.

    Returns:
        The factor; inf for fewer than two users.
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
    """Estimate the degrees of freedom of a variance from user sums with heavy tails (Satterthwaite 1946).

    A variance from U values of kurtosis k is worth 2 U / (k - 1) degrees of freedom. Here 1.5 replaces 2, because a
    sample underestimates the kurtosis of heavy tails (benchmarks/coverage). The part U / (users with a reward) of k is
    subtracted: it comes from rewards being rare, which gamma limits account for already.

    Args:
        users: number U of users.
        rewarded_users: number of users with a reward.
        second: sum over users of the squared deviation from the estimate.
        fourth: sum over users of the fourth power of that deviation.

    Returns:
        Degrees of freedom, between 2 and U - 1.
    """
    most = users - 1.0
    if second <= 0.0 or rewarded_users == 0:
        return most
    excess = users * (fourth / second**2 - 1.0 / rewarded_users)
    if excess > 0.0:
        return max(min(1.5 * users / excess, most), 2.0)
    return max(most, 2.0)


def poisson_reach(variance: float, step: float, level: float) -> float:
    """Return the distance from an estimate, a sum of independent parts, to its upper confidence limit.

    If no part is larger than ``step``, the sum with this variance and the longest tail is ``step`` times a Poisson
    count of mean N = variance / step^2. The distance is that of the exact upper limit of such a count (Garwood 1936),
    with N in place of the count. It is the normal distance if the step is small compared with the standard error, and
    3.69 steps if the variance is 0 (at level .95).

    Args:
        variance: variance of the estimate, corrected for few users.
        step: largest amount that one more part could add to the estimate.
        level: two-sided nominal coverage.
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
    if count > 1e8:  # the limit minus the count would be a difference of nearly equal numbers
        return usual
    # Garwood's upper limit of a Poisson count is a quantile of the gamma distribution with shape count + 1.
    return max(step * (float(gammainccinv(count + 1.0, half)) - count), usual)


@dataclass(frozen=True)
class Spread:
    """Sampling variation of an estimate that is a ratio of sums over users, in the estimate's unit.

    Attributes:
        variance: variance of the estimate, corrected for few users and for users that differ much.
        third: sum over users of the cubed deviation over the sum of the squared ones: the step of a Poisson count with
            the same skewness; negative if the largest deviations lower the estimate.
        up: largest amount that one more part could add to the estimate.
        down: largest amount that one more part could subtract from it.
    """

    variance: float
    third: float
    up: float
    down: float

    def reaches(self, level: float) -> tuple[float, float]:
        """Return the distances from the estimate to its lower and to its upper limit; for estimates of any sign."""
        return (
            poisson_reach(self.variance, max(self.down, -self.third), level),
            poisson_reach(self.variance, max(self.up, self.third), level),
        )


@dataclass(frozen=True)
class Deviations:
    """Sums over users of powers of d, the user's deviation from the estimate.

    Attributes:
        second: sum of d^2.
        third: sum of d^3; 0 if it was not computed.
        fourth: sum of d^4; 0 if it was not computed.
        users: number of users.
        rewarded_users: number of users with a reward.
    """

    second: float
    third: float
    fourth: float
    users: int
    rewarded_users: int

    @staticmethod
    def of(deviations: NDArray[np.float64], rewarded_users: int | None = None) -> Deviations:
        """Compute the sums from the deviations of all users.

        Args:
            deviations: (U,) each user's deviation.
            rewarded_users: number of users with a reward; None if all have one.
        """
        square = deviations * deviations
        if rewarded_users is None:
            rewarded_users = deviations.size
        return Deviations(
            second=float(np.sum(square)),
            third=float(square @ deviations),
            fourth=float(square @ square),
            users=deviations.size,
            rewarded_users=rewarded_users,
        )

    @property
    def carrying(self) -> float:
        """The effective number of users that the variance comes from: (sum d^2)^2 / sum d^4; 0 if d^4 is unknown."""
        if self.fourth > 0.0:
            return self.second**2 / self.fourth
        return 0.0

    def error(self, scale: float) -> float:
        """Return the standard error of an estimate that is a sum over users divided by ``scale``; inf for one user."""
        if self.users < 2:
            return math.inf
        return math.sqrt(max(self.second, 0.0) * self.users / (self.users - 1.0)) / scale

    def limits(self, value: float, scale: float, level: float, *, log_scale: bool = False) -> tuple[float, float]:
        """Compute Student's limits; the degrees of freedom are the effective number of users, minus 1.

        Args:
            value: estimate, a sum over users divided by ``scale``.
            scale: divisor of the sum.
            level: nominal coverage, which is asymptotic.
            log_scale: whether to compute the limits for the logarithm of the value. That suits a positive estimate
                whose parts are not negative, because its errors are skewed.

        Returns:
            Lower and upper limit; infinite for one user.
        """
        from scipy.special import stdtrit

        error = self.error(scale)
        if not math.isfinite(error):
            return -math.inf, math.inf
        reach = float(stdtrit(max(self.carrying - 1.0, LEAST_FREEDOM), 0.5 + level / 2.0)) * error
        if not log_scale:
            return value - reach, value + reach
        factor = math.exp(min(reach / value, 30.0))  # e^30 is as good as infinite, and does not overflow
        return value / factor, value * factor

    def spread(self, scale: float, up: float, down: float, level: float) -> Spread:
        """Return the spread of an estimate that is a sum over users divided by ``scale``.

        Args:
            scale: divisor of the sum.
            up: largest amount that one more part could add to the sum.
            down: largest amount that one more part could subtract from the sum.
            level: nominal coverage of the intervals that are computed from the spread.
        """
        degrees = degrees_of_freedom(self.users, self.rewarded_users, self.second, self.fourth)
        variance = self.second * small_sample_factor(self.users, level, degrees) / scale**2
        skewed = abs(self.third) > 1e-9 * self.second**1.5  # the skewness of two users is 0 except for rounding errors
        if skewed and self.second > 0.0:
            third = self.third / self.second
        else:
            third = 0.0
        return Spread(variance, third / scale, max(up, third) / scale, down / scale)


def positive_limits(value: float, spread: Spread, level: float) -> tuple[float, float]:
    """Compute the limits of an estimate whose parts are not negative, for instance weighted rewards above the least.

    The upper limit is Fay & Feuer's (1997). The lower limit is their gamma limit after adding one more part that earns
    nothing. If the largest deviations lower the estimate, no gamma distribution has the sum's shape, and the lower
    limit is at most that of :func:`poisson_reach` with the skewness of the sample.

    Args:
        value: estimate.
        spread: its sampling variation.
        level: nominal coverage.

    Returns:
        Lower and upper limit, neither of them negative; the upper one is infinite if ``spread.up`` is.
    """
    if math.isfinite(spread.up):
        high = gamma_limits(value, spread.variance, spread.up, level)[1]
    else:
        high = math.inf
    # Value and variance after one more part that earns nothing.
    lowered_value = value - spread.down
    raised_variance = spread.variance + spread.down**2
    if lowered_value > 0.0:
        low = gamma_limits(lowered_value, raised_variance, 0.0, level)[0]
    else:
        low = 0.0
    if spread.third < 0.0:
        low = min(low, value - poisson_reach(spread.variance, -spread.third, level))
    return max(low, 0.0), high


def gamma_limits(y: float, s: float, m: float, level: float) -> tuple[float, float]:
    """Compute Fay & Feuer's (1997, eq. 3-4) gamma interval of a weighted sum of Poisson counts.

    Args:
        y: weighted sum, sum of w_i r_i / n, not negative.
        s: variance of y, sum of w_i^2 r_i^2 / n^2 (of squared user sums, if users are known).
        m: largest amount that one more event could add to y, the largest weight / n.
        level: nominal coverage.

    Returns:
        The lower limit (s / 2y) chi2(alpha/2; 2 y^2 / s); 0 if y or s is 0.
        The upper limit ((s + m^2) / 2(y + m)) chi2(1 - alpha/2; 2 (y + m)^2 / (s + m^2)); y if s and m are 0.
    """
    from scipy.special import gammainccinv, gammaincinv

    half = (1.0 - level) / 2.0
    # Quantiles of the gamma distribution with mean y and variance s: chi2(p; 2a) / 2 is gammaincinv(a, p).
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
    """Compute Student's limits of a value from the uncorrected variance of user sums; infinite for one user."""
    from scipy.special import ndtri

    if users < 2:
        return -math.inf, math.inf
    half = float(ndtri(1.0 - (1.0 - level) / 2.0)) * math.sqrt(max(variance, 0.0) * small_sample_factor(users, level))
    return value - half, value + half


def ratio_interval(sums: ArrayLike, counts: ArrayLike, level: float) -> tuple[float, float, float]:
    """Estimate a mean over rows, sum y_u / sum n_u, with an interval for independent users with dependent rows.

    The interval allows for users that differ much (:func:`degrees_of_freedom`), and for what one more row could add:
    the largest mean of a user, or 1 if every sum is 0. So no interval is a point, and one of rewards that are not
    negative has no negative end (docs/verdict.md).

    Args:
        sums: (U,) each user's sum y_u.
        counts: (U,) each user's number n_u of rows; users without rows are ignored.
        level: nominal coverage.

    Returns:
        The mean; nan without rows.
        The lower limit.
        The upper limit; both are infinite for fewer than two users with rows.
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
    deviations = Deviations.of(y - value * n, rewarded_users=int(np.count_nonzero(y)))
    spread = deviations.spread(scale=total, up=step or 1.0, down=max(value, 0.0), level=level)
    if np.all(y >= 0.0):
        return value, *positive_limits(value, spread, level)
    less, more = spread.reaches(level)
    return value, value - less, value + more


def user_mean_interval(values: ArrayLike, level: float) -> tuple[float, float, float]:
    """Compute the mean over independent users of a number in [0, 1], such as a hit rate, with an interval.

    It is the Clopper-Pearson interval of an effective number of trials, n = v (1 - v) / se^2 (Korn & Graubard 1998,
    "Confidence intervals for proportions with small expected number of positive counts estimated from survey data"),
    where se^2 is estimated between users, so that a user's folds may be dependent. The number is corrected for few
    users by Student's quantile. If all users have the same value, se cannot be estimated, and each user counts as one
    trial.

    Args:
        values: (U,) one number in [0, 1] per user.
        level: nominal coverage.

    Returns:
        Value, low and high end; NaN, 0 and 1 without any user.
    """
    from scipy.special import betaincinv, ndtri, stdtrit

    y = np.asarray(values, dtype=np.float64)
    n_users = len(y)
    if n_users == 0:
        return math.nan, 0.0, 1.0
    value = float(y.mean())
    tail = (1.0 - level) / 2.0
    trials = float(n_users)
    if n_users > 1 and 0.0 < value < 1.0:
        variance = float(y.var(ddof=1)) / n_users
        if variance > 1e-24:  # a smaller one is rounding error
            trials = value * (1.0 - value) / variance
            trials *= float(ndtri(1.0 - tail) / stdtrit(n_users - 1, 1.0 - tail)) ** 2  # correction for few users
    hits = value * trials
    low = 0.0
    high = 1.0
    if hits > 0.0:
        low = float(betaincinv(hits, trials - hits + 1.0, tail))
    if hits < trials:
        high = float(betaincinv(hits + 1.0, trials - hits, 1.0 - tail))
    return value, low, high


def student_mean_interval(values: ArrayLike, level: float) -> tuple[float, float, float]:
    """Compute the mean of independent numbers (n,) of any sign, and Student's t interval of the mean.

    Returns:
        Value, low and high end; the ends are infinite for a single number.
    """
    from scipy.special import stdtrit

    x = np.asarray(values, np.float64)
    mean = float(x.mean())
    n = len(x)
    if n < 2:
        return mean, -math.inf, math.inf
    half = float(stdtrit(n - 1, 0.5 + level / 2)) * float(x.std(ddof=1)) / math.sqrt(n)
    return mean, mean - half, mean + half


def bounded_mean_limits(values: ArrayLike, least: float, largest: float, level: float) -> tuple[float, float]:
    """Compute limits of a mean of independent bounded numbers, whatever their distribution (Gaffke 2005).

    The values and one unseen value get random weights, the lengths into which uniform points cut [0, 1]. The lower
    limit is a quantile of the weighted sum in which the unseen value is ``least``, the upper one of that in which it is
    ``largest``. Both grow with every value. Where all values are at the bounds they are the exact limits of Clopper &
    Pearson; for others the coverage is a conjecture that no distribution is known to violate.

    Args:
        values: (n,) numbers.
        least: least possible value.
        largest: largest possible value.
        level: nominal coverage.

    Returns:
        Lower and upper limit, within [least, largest].
    """
    x = np.clip(np.asarray(values, np.float64), least, largest)
    tail = (1.0 - level) / 2.0
    return _weighted_quantile(np.append(x, least), tail), _weighted_quantile(np.append(x, largest), 1.0 - tail)


def _weighted_quantile(values: Floats, share: float) -> float:
    """Return the quantile of a sum of values (n,) with the weights of :func:`bounded_mean_limits`."""
    from scipy.optimize import brentq

    low = float(values.min())
    high = float(values.max())
    if low == high:
        return low
    return float(brentq(lambda point: _share_below_zero(values - point) - share, low, high, xtol=1e-9 * (high - low)))


def _share_below_zero(factors: Floats) -> float:
    """Return the probability that a sum of independent standard exponential numbers times factors (n,) is negative.

    It is the integral of Gil-Pelaez (1951) over the logarithm of the frequency. The integrand is analytic and vanishes
    at both ends, so that a sum over equal steps is exact to nine digits. Its oscillations need shorter steps for more
    numbers.
    """
    sizes = np.abs(factors[factors != 0.0])
    distinct, counts = np.unique(factors, return_counts=True)
    step = 0.5 / math.sqrt(len(factors))
    frequency = np.exp(np.arange(-25.0 - math.log(sizes.max()), 25.0 - math.log(sizes.min()), step))
    characteristic = np.exp(-np.log(1.0 - 1j * np.outer(frequency, distinct)) @ counts)
    return 0.5 - step / math.pi * float(characteristic.imag.sum())


# --------------------------------------------------------------------------------------------- from one number per user

_POOL_LEAST = 2000
"""Number of users without a numerator above which most of them are resampled as one pool."""
_POOL_SINGLE = 1000
"""Number of these users, those with the largest denominators, that are resampled one by one nevertheless."""
_POOL_ADDRESS = 2**63
"""Address of the pool's random draws, beyond those of users."""


def poisson_ratios(above: Floats, below: Floats, *, replicates: int = 1000, seed: int = 0) -> Floats:
    """Resample sum(above) / sum(below) by a Poisson bootstrap of users (Chamandy et al. 2012).

    In each resample every user counts Poisson(1) times. Users whose ``above`` is 0 change only the denominator. If they
    are many, all but the largest ones are pooled: their total is drawn from its normal limit, with the exact mean and
    variance.

    Args:
        above: (n,) user sums of the numerator.
        below: (n,) user sums of the denominator, not negative.
        replicates: number of resamples.
        seed: seed of the counts, which are addressed by user number.

    Returns:
        (replicates,) ratios; 0 where the denominator is 0.
    """
    from scipy.special import ndtri

    seed = check_seed(seed)
    whole_number(replicates, "replicates", 8)
    n_drawn = 8 * -(-int(replicates) // 8)  # rounded up, because random blocks give eight counts each
    single = np.ones(above.size, bool)
    without_numerator = np.flatnonzero(above == 0.0)
    pool = without_numerator[:0]  # empty unless there are many
    if without_numerator.size > _POOL_LEAST:
        pool_size = without_numerator.size - _POOL_SINGLE
        pool = without_numerator[np.argpartition(below[without_numerator], pool_size)][:pool_size]
        single[pool] = False
    above_sums, below_sums = resampled_sums(np.stack([above, below * single]), replicates=n_drawn, seed=seed)
    if pool.size:
        draws = uniforms(seed, Stream.BOOTSTRAP, _POOL_ADDRESS, np.arange(n_drawn))
        spread = float(np.sqrt(np.sum(below[pool] ** 2)))
        below_sums += np.sum(below[pool]) + spread * ndtri(np.clip(draws, 1e-16, None))  # the quantile of 0 is infinite
    ratios = np.divide(above_sums, below_sums, out=np.zeros(n_drawn), where=below_sums > 0.0)
    return ratios[: int(replicates)]


def resampled_sums(columns: Floats, *, replicates: int, seed: int) -> Floats:
    """Resample sums over users by a Poisson bootstrap: each user counts Poisson(1) times, equally in all columns.

    Args:
        columns: (K, n) user sums.
        replicates: number of resamples.
        seed: seed of the counts, which are addressed by user number.

    Returns:
        (K, replicates) sums.
    """
    from recsim_mnar.estimators import _by_user_kernel as kernels

    blocks = -(-replicates // 8)  # random blocks of four words give eight counts each
    sums = np.zeros((len(columns) + len(columns) % 2, 8 * blocks))
    words = np.empty((4, blocks), np.uint32)
    # The kernel sums two columns at a time; the last of an odd number is paired with itself.
    for k in range(0, len(columns), 2):
        above = columns[k]
        below = columns[min(k + 1, len(columns) - 1)]
        users = np.flatnonzero((above != 0.0) | (below != 0.0))
        with np.errstate(over="ignore"):  # random numbers are integers that wrap around
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
    """Return (n_users, replicates) how many times each resample of :func:`resampled_sums` counts each user."""
    # The sum over users of a column that is 1 for one user and 0 for the others is that user's count.
    pairs = (np.eye(2, n_users, first) for first in range(0, n_users, 2))
    counts = [resampled_sums(pair, replicates=replicates, seed=seed).astype(np.int8) for pair in pairs]
    return np.concatenate(counts)[:n_users]


def betting(values: Floats, lengths: Floats, level: float, *, anytime: bool = False) -> tuple[float, float]:
    """Compute the betting interval of Waudby-Smith & Ramdas (2024, theorem 3) for the ratio E[v] / E[l].

    A ratio m is outside the interval if a bettor against it has multiplied the stake by 2 / (1 - level).

    Args:
        values: (n,) v of each user, in the order in which the users appeared: a bet uses only the users before.
        lengths: (n,) l of each user.
        level: nominal coverage.
        anytime: whether the bets are tuned to a growing number of users (a confidence sequence) instead of to n.

    Returns:
        Lower and upper end, in [0, 1].
    """
    from recsim_mnar.estimators import _by_user_kernel as kernels

    bets = np.empty_like(values)
    threshold = math.log(2.0 / (1.0 - level))  # half of the error probability for either side
    horizon = 0.0 if anytime else float(values.size)
    kernels.fill_bets(values, 2.0 * threshold, horizon, bets)
    return ends_of_bets(values, lengths, above=bets, below=bets, threshold=threshold)


def ends_of_bets(
    values: Floats, lengths: Floats, above: Floats, below: Floats, threshold: float
) -> tuple[float, float]:
    """Return the smallest and the largest ratio m against which bets have not won.

    Args:
        values: (n,) v of each user.
        lengths: (n,) l of each user.
        above: (n,) bets that the ratio is above m, or (1,) for the same bet on all users.
        below: (n,) bets that the ratio is below m, or (1,).
        threshold: log of the capital with which a bet has won.
    """
    from recsim_mnar.estimators import _by_user_kernel as kernels

    inside = ratio_inside(values, lengths)
    low = crossing(lambda m: kernels.log_capital(values, lengths, above, m, 1.0) >= threshold, inside, 0.0)
    high = crossing(lambda m: kernels.log_capital(values, lengths, below, m, -1.0) >= threshold, inside, 1.0)
    return low, high


def ratio_inside(values: Floats, lengths: Floats) -> float:
    """Return the ratio of the means of v and l, moved inside (0, 1) if it is 0 or 1."""
    return min(max(float(np.sum(values) / np.sum(lengths)), 1e-15), 1.0 - 1e-15)


def crossing(rejected: Callable[[float], bool], inside: float, end: float) -> float:
    """Find by bisection where rejection begins between two points, to seven digits.

    Args:
        rejected: test of a point, False at ``inside``.
        inside: point from which the search starts.
        end: end of the range, 0 or 1.

    Returns:
        The rejected point that is nearest to ``inside``; ``end`` if it is not rejected itself.
    """
    out = min(max(end, 1e-300), 1.0 - 1e-16)  # the test is not defined at 0 and 1
    if not rejected(out):
        return end
    for _ in range(60):  # more halvings than a float has digits
        middle = 0.5 * (inside + out)
        if rejected(middle):
            out = middle
        else:
            inside = middle
        if abs(out - inside) <= 1e-7 * max(inside, 1e-12):
            break
    return out
