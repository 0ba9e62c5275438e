"""Users who come and come back: how many a test meets in so many days, and how narrow its interval becomes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.log.columns import Clusters, Floats

MOST_DAYS = 3650
"""Days looked ahead."""
_FIRST_DATE = 1e8
"""Seconds from 1970 to 1973: smaller numbers are no dates."""
_NEAR = 1.1
"""Times its floor at which the least lift is said to have levelled off."""


def day_numbers(times: Floats) -> NDArray[np.int64] | None:
    """Days (n,) from 0, of seconds or milliseconds since 1970; the last one may be shorter or longer by half.

    None where the times are no dates (smaller numbers), one is missing, or they span less than a day and a half.
    """
    if times.size == 0 or not np.isfinite(times).all() or np.median(times) < _FIRST_DATE:
        return None
    a_day = 86_400.0 * (1000.0 if np.median(times) > 1000.0 * _FIRST_DATE else 1.0)
    days = (times - times.min()) / a_day
    number = round(float(days.max()))
    return np.minimum(days.astype(np.int64), number - 1) if number >= 2 else None


@dataclass(frozen=True)
class Returning:
    """Users of a log by days, S of them.

    With d_us what user u adds on day s to rewards less the log's value per decision, a test of T days in which every
    user is in one of two arms has sums d_u = sum_s d_us, and sum_u d_u^2 = T c_0 + 2 sum_{0 < k < T} (T - k) c_k with
    c_k the mean over days s of sum_u d_us d_u,s+k. Users who are seen once have c_k = 0 for k > 0, those who return
    with rates of their own c_k > 0 however long the test is.

    Attributes:
        present: (MOST_DAYS,) mean number of different users in T = 1, 2, ... days: of all such windows in the log, and
            beyond its S days what users seen on one day and on two foresee (Chao et al. 2014, equation 12).
        squares: (MOST_DAYS,) sum_u d_u^2 of T days. Lags from half the log's on have the mean of their c_k, at least 0.
        lasting: that mean.
        decisions: a day.
    """

    present: Floats
    squares: Floats
    lasting: float
    decisions: float

    @staticmethod
    def of(days: NDArray[np.int64], clusters: Clusters, deviations: Floats) -> Returning:
        """From the rows (n,) of a log: their days, users, and rewards less the log's value."""
        from scipy.sparse import coo_matrix

        codes, users = clusters.dense()
        number = int(days.max()) + 1
        table = coo_matrix((deviations, (codes, days)), (users, number)).tocsr()
        products = (table.T @ table).toarray()
        lags = np.array([np.diagonal(products, lag).sum() for lag in range(number)])
        late = np.arange(max(number // 2, 1), number)
        lasting = max(float(lags[late].sum() / (number - late).sum()), 0.0)
        c = np.full(MOST_DAYS, lasting)
        c[: late[0]] = lags[: late[0]] / (number - np.arange(late[0]))
        squares = np.cumsum(c[0] + 2.0 * np.concatenate([[0.0], np.cumsum(c[1:])]))
        return Returning(_present(codes, days, number), np.maximum(squares, 0.0), lasting, days.size / number)

    def error(self, before: float, after: float) -> Floats:
        """(MOST_DAYS,) standard error of the difference of two arms of half the users each.

        Args:
            before: Var(d) of one arm, as a share of that of the log.
            after: of the other.
        """
        days = np.arange(1, MOST_DAYS + 1)
        return np.sqrt(2.0 * (before + after) * self.squares) / (self.decisions * days)

    def floor(self, before: float, after: float) -> float:
        """That standard error after days without end."""
        return math.sqrt(2.0 * (before + after) * self.lasting) / self.decisions


def first_day(reached: NDArray[np.bool_]) -> int | None:
    """The first T from which on (MOST_DAYS,) holds; None where it never does."""
    missed = np.flatnonzero(~reached)
    day = int(missed[-1]) + 2 if missed.size else 1
    return day if day <= MOST_DAYS else None


def levels_off(errors: Floats, floor: float) -> int | None:
    """Days from which the error is within a tenth of its floor; None where it keeps falling."""
    return first_day(errors <= _NEAR * floor) if floor > 0.0 else None


def _present(codes: NDArray[np.int64], days: NDArray[np.int64], number: int) -> Floats:
    """As :attr:`Returning.present`."""
    visits = np.unique(codes * number + days)
    user, day = visits // number, visits % number
    first, last = np.append(True, user[1:] != user[:-1]), np.append(user[1:] != user[:-1], True)
    before = day - np.where(first, -1, np.append(0, day[:-1])) - 1
    idle = np.bincount(np.concatenate([before, number - 1 - day[last]]), minlength=number + 1)
    windows = number - np.arange(number)
    # A window of T days misses a user where it fits into a run of idle days.
    missed = [np.sum(np.maximum(np.arange(number + 1) - length, 0) * idle) for length in range(number)]
    inside = int(first.sum()) - np.array(missed) / windows
    seen = np.bincount(np.bincount(user)[np.unique(user)], minlength=3)
    once, twice = float(seen[1]), float(seen[2])
    unseen = (number - 1) / number * (once**2 / (2.0 * twice) if twice else once * (once - 1.0) / 2.0)
    more = np.arange(1, MOST_DAYS - number + 1)
    beyond = unseen * -np.expm1(more * np.log1p(-once / (number * unseen + once))) if unseen > 0.0 else 0.0 * more
    return np.concatenate([inside, inside[-1] + beyond])[:MOST_DAYS]
