"""Intervals that are functions of moments: gamma, clustered delta, and the part that clipping may hide."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """Two ends and how they were made."""

    low: float
    high: float
    method: str


def few_users(users: int, level: float, freedom: float | None = None) -> float:
    """Factor on a variance estimated from ``users`` independent sums: U/(U-1) (t / z)^2; inf for one user.

    The first part is Bell & McCaffrey's (2002) simplest correction (CR1), the second replaces the normal quantile by
    Student's with ``freedom`` degrees, U - 1 where it is None.
    """
    from scipy.special import ndtri, stdtrit

    if users < 2:
        return math.inf
    tail = 1.0 - (1.0 - level) / 2.0
    degrees = users - 1.0 if freedom is None else freedom
    return users / (users - 1.0) * float(stdtrit(degrees, tail) / ndtri(tail)) ** 2


def freedom(users: int, rewarded_users: int, second: float, fourth: float) -> float:
    """Degrees of freedom of a variance estimated from user sums that differ much from each other (Satterthwaite 1946).

    A variance from U values of kurtosis k is worth 2 U / (k - 1) degrees. Of k the part U / (users with a reward) is
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
    return max(min(2.0 * users / excess, users - 1.0) if excess > 0.0 else users - 1.0, 2.0)


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
    low = s / y * float(gammaincinv(y * y / s, half)) if y > 0.0 and s > 0.0 else 0.0
    up, variance = y + m, s + m * m
    high = variance / up * float(gammainccinv(up * up / variance, half)) if up > 0.0 and variance > 0.0 else y
    return low, high


def student_limits(
    value: float, variance: float, users: int, level: float, degrees: float | None = None
) -> tuple[float, float]:
    """Value plus and minus Student's quantile times the standard error, with :func:`few_users`' correction."""
    from scipy.special import ndtri

    if users < 2:
        return -math.inf, math.inf
    half = float(ndtri(1.0 - (1.0 - level) / 2.0)) * math.sqrt(max(variance, 0.0) * few_users(users, level, degrees))
    return value - half, value + half


def clip_mass(
    mean_clipped: float, variance: float, excess: float, excess_square: float, largest: float, clip: float, level: float
) -> float:
    """Upper bound of E[(w - clip)+], the share of the target policy's probability that clipping cuts off.

    With r in [0, r_max] clipping lowers the value by at most r_max times it (Bottou et al. 2013, eq. 12-13). Two
    bounds hold, and the smaller is taken: E[(w - M)+] <= 1 - E[min(w, M)], with the normal lower limit of that mean;
    and, where the log covers the target, the gamma upper limit of the mean excess, a single step of which is at most
    ``largest`` - clip.

    Args:
        mean_clipped: mean of min(w, clip).
        variance: of that mean (user sums).
        excess: mean of (w - clip)+.
        excess_square: variance of that mean (user sums).
        largest: the largest weight possible, divided by the number of rows where ``clip`` is too.
        clip: the clip.
        level: nominal coverage of the interval that the part is added to; each bound is one-sided at half of 1 - level.
    """
    from scipy.special import ndtri

    if math.isinf(clip):
        return 0.0
    quantile = float(ndtri(1.0 - (1.0 - level) / 2.0))
    missing = 1.0 - (mean_clipped - quantile * math.sqrt(max(variance, 0.0)))
    step = max(largest - clip, 0.0)
    seen = gamma_limits(excess, excess_square, step, level)[1]
    return min(max(min(missing, seen), 0.0), 1.0)
