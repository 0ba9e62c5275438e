"""plan_ab: compute the users that an A/B test needs for a lift, the lift that users detect, and when."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import level_of, number_in, whole_number
from recsim_mnar.log.columns import Clusters, Floats, user_sums
from recsim_mnar.own_log.ab_pilot import FEW_USERS, Amount, Pilot, factor_range, quantile, two_sided
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.gate import stated_reading


@dataclass(frozen=True)
class UserTotals:
    """Decisions and rewards of each user.

    With y a user's rewards, l its decisions and R = sum y / sum l, a user's deviation is d = y - R l, and the variance
    of R over U users is Var(d) / (U mean(l)^2) (the delta method of a ratio, as in an A/B test's interval).

    Attributes:
        rewards: (U,) sum y of each user's rewards.
        decisions: (U,) number l of each user's decisions.
        row_square: sum of (r - R)^2 over the rewards r of all decisions.
        binary: True if every reward is 0 or 1.
    """

    rewards: Floats
    decisions: Floats
    row_square: float
    binary: bool

    @staticmethod
    def of(reward: Floats, clusters: Clusters | None) -> UserTotals:
        """Sum the rewards (n,) of a log's decisions by user; without users every decision counts as a user."""
        return UserTotals(
            user_sums(reward, clusters),
            user_sums(np.ones(reward.size), clusters),
            float(np.sum((reward - float(reward.mean())) ** 2)),
            bool(np.isin(reward, (0.0, 1.0)).all()),
        )

    @property
    def users(self) -> int:
        """The number of users U."""
        return self.decisions.size

    @property
    def length(self) -> float:
        """Mean number of decisions per user."""
        return float(self.decisions.mean())

    @property
    def value(self) -> float:
        """The mean reward per decision, R."""
        return float(self.rewards.sum() / self.decisions.sum())

    @cached_property
    def deviations(self) -> Floats:
        """The deviation d = y - R l of each user, (U,)."""
        return self.rewards - self.value * self.decisions

    @cached_property
    def variance(self) -> float:
        """The variance Var(d) of the deviations between users."""
        return float(self.deviations @ self.deviations) / max(self.users - 1.0, 1.0)

    @property
    def design_effect(self) -> float:
        """Ratio of the variance to that of as many independent decisions."""
        if self.row_square > 0.0:
            return float(self.deviations @ self.deviations) / self.row_square
        return 1.0

    def share(self, lift: float) -> float:
        """Return a lift as a share of R; 0 if R is 0."""
        if self.value:
            return lift / self.value
        return 0.0

    def variance_under(self, lift: float) -> float:
        """Return the variance between users of the deviations d = y - R l if every user's expected reward rises.

        With y a user's rewards, l its number of decisions and m its expected reward per decision, m becomes
        (1 + lift) m. Rewards that are not binary are assumed to be multiplied by 1 + lift, so that Var(d) becomes
        (1 + lift)^2 Var(d). Binary rewards cannot be multiplied: their variance within users is E[l m (1 - m)] before
        and after, so that Var(d) becomes (1 + lift)^2 Var(d) - lift (1 + lift) E[y].

        Args:
            lift: relative lift; 0.05 for 5 % more reward.
        """
        scaled = (1.0 + lift) ** 2 * self.variance
        if self.binary:
            # The estimate may be negative by chance, the variance is not.
            return max(scaled - lift * (1.0 + lift) * float(self.rewards.mean()), 0.0)
        return scaled

    def least_lift(self, unit: Floats, *, loss: bool = False) -> Floats:
        """Return the least lift l that solves l^2 = unit (Var(d_0) + Var(d_1)) / Var(d_0), arm 1 being the one with l.

        Var(d_1) is that of :meth:`variance_under`, so that the equation is quadratic in l.

        Args:
            unit: any number of squared lifts: those that are detected if the variance of both arms is that of one.
            loss: True for the size of a negative lift.

        Returns:
            Lifts above 0 of the same shape; inf where no lift that is possible with these rewards solves it.
        """
        per_value = self.share(-1.0 if loss else 1.0)
        # Var(d_1) / Var(d_0) = (1 + s)^2 - binary s (1 + s) for the lift s as a share of the value.
        binary = float(self.rewards.mean()) / self.variance if self.binary else 0.0
        linear = unit * (2.0 - binary) * per_value
        square = 1.0 - unit * (1.0 - binary) * per_value**2
        with np.errstate(divide="ignore", invalid="ignore"):
            lift = 4.0 * unit / (np.sqrt(linear**2 + 8.0 * unit * square) - linear)
        lift = np.where(lift > 0.0, lift, np.where(unit > 0.0, np.inf, 0.0))
        lift = np.maximum(lift, np.sqrt(unit))  # Var(d_1) is at least 0
        if self.binary:
            lift = np.where(lift <= (self.value if loss else 1.0 - self.value), lift, np.inf)
        return lift

    def relative_error(self, *, relative: bool) -> float:
        """Return the relative standard error of the number of users that a test needs.

        That number is proportional to Var(d) / (length R)^2 for a lift that is a share of the value (``relative``), and
        to Var(d) / length^2 otherwise. The error follows from each user's influence on its logarithm,
        d^2 / Var(d) - 1 - 2 (b / mean(b) - 1), where b is y for a share and l otherwise.
        """
        if self.variance <= 0.0 or self.users < 2:
            return math.inf
        base = self.rewards if relative else self.decisions
        influence = self.deviations**2 / self.variance - 1.0 - 2.0 * (base / base.mean() - 1.0)  # on the logarithm
        return float(influence.std(ddof=1)) / math.sqrt(self.users)


MOST_DAYS = 3650
"""Longest test that is considered, in days."""
_NEAR = 1.1
"""Ratio of the least lift to its limit below which more days no longer help."""
LONGEST_KNOWN = 5
"""Number of times the days of the log beyond which the days of a test are a guess, whose range is not known."""


@dataclass(frozen=True)
class Returning:
    """Users of a log over its S days.

    Let d_us be the rewards of user u on day s less the log's value per decision. In a test of T days user u has the
    deviation d_u = sum_s d_us, and sum_u d_u^2 = T c_0 + 2 sum_{0 < k < T} (T - k) c_k, where c_k is the mean over days
    s of sum_u d_us d_u,s+k. If users come only once, c_k = 0 for k > 0; if they return and have different rates,
    c_k > 0 for any lag k, and the variance of a long test does not fall to 0.

    Attributes:
        present: (MOST_DAYS,) number of different users in T = 1, 2, ... days: up to S days the mean over all windows of
            the log, beyond them extrapolated from the users of one day and of two days (Chao et al. 2014, equation 12).
        squares: (MOST_DAYS,) sum_u d_u^2 of T days.
        relative_errors: (MOST_DAYS,) standard error, over users, of the logarithm of squares / base^2.
        lasting: mean of c_k over lags k from half of S on, at least 0, which stands for each of them.
        decisions: number of decisions per day.
    """

    present: Floats
    squares: Floats
    relative_errors: Floats
    lasting: float
    decisions: float

    @staticmethod
    def of(days: NDArray[np.int64], clusters: Clusters, deviations: Floats, base: Floats) -> Returning:
        """Summarise the rows of a log.

        Rows without a date are assumed to be missing at random: if a share s of the rows is dated, products of
        different rows count 1 / s^2 times, and numbers of decisions and squares of rows 1 / s times.

        Args:
            days: (n,) day of each row, from 0; -1 for a row without a date.
            clusters: user of each row.
            deviations: (n,) reward of each row less the log's value per decision.
            base: (n,) amounts of the rows whose sum a lift is compared with: rewards for a lift that is a share of the
                value, ones for other lifts.
        """
        dated = days >= 0
        share = float(dated.mean())
        n_days = int(days.max()) + 1
        # Users without a dated row are dropped, and the others numbered from 0.
        codes = np.unique(clusters.dense()[0][dated], return_inverse=True)[1]
        days = days[dated]
        lags = _lag_sums(codes, days, deviations[dated], share)
        n_groups = len(lags)
        half = max(n_days // 2, 1)  # longer lags have few pairs of days, so that one mean replaces them
        windows = n_days - np.arange(n_days)  # number of pairs of days with each lag
        lasting = lags[:, half:].sum(axis=1) / windows[half:].sum()
        total = max(float(lasting.sum()), 0.0)
        lasting += (total - lasting.sum()) / n_groups  # the differences between groups remain
        c = np.repeat(lasting[:, None], MOST_DAYS, axis=1)
        c[:, :half] = lags[:, :half] / windows[:half]
        # From T to T + 1 days the sum of squares grows by c_0 + 2 (c_1 + ... + c_T).
        growth = 2.0 * np.cumsum(c, axis=1) - c[:, :1]
        by_group = np.cumsum(growth, axis=1)
        squares = np.maximum(by_group.sum(axis=0), 1e-12 * growth[:, 0].sum())
        bases = np.bincount(codes % n_groups, base[dated], n_groups)
        influence = by_group / squares - 2.0 * bases[:, None] / bases.sum()
        errors = influence.std(axis=0) * n_groups / math.sqrt(max(n_groups - 1, 1))
        present = _present(codes, days, n_days)
        return Returning(present, squares, errors, total, days.size / share / n_days)

    @cached_property
    def variance(self) -> Floats:
        """The variance (MOST_DAYS,) of the difference of two arms, each with half the users, per variance of a user.

        It counts once for either arm: times Var(d_0) + Var(d_1), as ratios to the Var(d) of the log.
        """
        # Half the users: each arm's sum of squares and its decisions are half of those of all users, hence the 2.
        return 2.0 * self.squares / (self.decisions * np.arange(1.0, MOST_DAYS + 1.0)) ** 2

    @property
    def least_variance(self) -> float:
        """The limit of :attr:`variance` as the number of days grows."""
        return 2.0 * self.lasting / self.decisions**2


_GROUPS = 200
"""Largest number of groups of users from whose differences a standard error is computed."""


def _lag_sums(codes: NDArray[np.int64], days: NDArray[np.int64], deviations: Floats, share: float) -> Floats:
    """Compute the sums over days s of d_us d_u,s+k, by lag k, of some groups of users.

    Args:
        codes: (n,) user of each dated row, from 0.
        days: (n,) its day, from 0.
        deviations: (n,) its part of d_us.
        share: share of the rows that are dated.

    Returns:
        (groups, days) sums by group, which are the users with one remainder of their number, and lag.
    """
    from scipy.sparse import coo_matrix

    n_users = int(codes.max()) + 1
    n_days = int(days.max()) + 1
    n_groups = min(n_users, _GROUPS)
    table = coo_matrix((deviations, (codes, days)), (n_users, n_days)).tocsr()  # d_us
    lags = np.zeros((n_groups, n_days))
    for group in range(n_groups):
        part = table[group::n_groups]
        products = (part.T @ part).toarray() / share**2  # sum_u d_us d_ut for days s and t
        lags[group] = [np.trace(products, lag) for lag in range(n_days)]
    squares = np.bincount(codes % n_groups, deviations**2, n_groups)
    lags[:, 0] -= squares * (1.0 / share - 1.0) / share  # squares of rows count 1 / s times only
    return lags


def first_day(reached: NDArray[np.bool_]) -> int | None:
    """Return the first day from which on ``reached`` (MOST_DAYS,) is True on all days; None if there is none."""
    missed = np.flatnonzero(~reached)
    if not missed.size:
        return 1
    if missed[-1] == MOST_DAYS - 1:
        return None
    return int(missed[-1]) + 2  # the day after the last miss, counted from 1


def levels_off(lifts: Floats, floor: float) -> int | None:
    """Return the day from which on lifts (MOST_DAYS,) exceed ``floor`` by at most a tenth; None if it is 0 or inf."""
    if 0.0 < floor < math.inf:
        return first_day(lifts <= _NEAR * floor)
    return None


def _present(codes: NDArray[np.int64], days: NDArray[np.int64], n_days: int) -> Floats:
    """Compute the number (MOST_DAYS,) of different users who come in 1, 2, ... days.

    Up to ``n_days`` it is the mean over all windows of that length; beyond, it is extrapolated (Chao et al. 2014).

    Args:
        codes: (n,) user of each row, from 0.
        days: (n,) day of each row, from 0.
        n_days: number of days.
    """
    # Different pairs of a user and a day, sorted by user and then by day.
    visits = np.unique(codes * n_days + days)
    user = visits // n_days
    day = visits % n_days
    changes = user[1:] != user[:-1]
    first = np.append(True, changes)  # the user's first day
    last = np.append(changes, True)  # the user's last day
    # Lengths of all runs of days without the user: before each visit, and after the last one.
    idle_before = day - np.where(first, -1, np.append(0, day[:-1])) - 1
    idle_after = n_days - 1 - day[last]
    idle = np.bincount(np.concatenate([idle_before, idle_after]), minlength=n_days + 1)  # their number by length
    lengths = np.arange(n_days)
    # A window of T days misses a user if it fits into a run of idle days.
    missed = np.array([np.sum(np.maximum(np.arange(n_days + 1) - length, 0) * idle) for length in lengths])
    # lengths[T - 1] = T - 1, so that a window of T days has n_days - lengths[T - 1] positions.
    inside = int(first.sum()) - missed / (n_days - lengths)
    n_visits = np.bincount(np.bincount(user)[np.unique(user)], minlength=3)
    once = float(n_visits[1])
    twice = float(n_visits[2])
    # Estimated number of users of the population whom the log has not seen (Chao's estimator).
    unseen = (n_days - 1) / n_days * (once**2 / (2.0 * twice) if twice else once * (once - 1.0) / 2.0)
    further_days = np.arange(1, MOST_DAYS - n_days + 1)
    further_users = 0.0 * further_days
    if unseen > 0.0:
        # unseen (1 - (1 - once / (n_days unseen + once))^days), without cancellation
        further_users = unseen * -np.expm1(further_days * np.log1p(-once / (n_days * unseen + once)))
    return np.concatenate([inside, inside[-1] + further_users])[:MOST_DAYS]


@dataclass(frozen=True)
class ABPlan:
    """An A/B test of two arms of equal size, judged by the difference of their mean rewards per decision.

    Attributes:
        value: mean reward per decision of the logging policy.
        lift: lift to detect, in the reward's unit.
        lift_share: the same lift as a share of the value.
        users: number of users per arm; only users with a decision count.
        low, high: confidence limits of that number at ``level``.
        power: probability of detecting the lift.
        level: coverage of the interval of the difference.
        half_width: half the width of this interval.
        rows: number of decisions per arm.
        decisions_a_user: mean number of decisions per user.
        design_effect: ratio of the variance to that of as many independent decisions.
        least_lift: smallest lift that a stated number of users detects at ``power``; None if no number was stated.
        least_share: the same lift as a share of the value.
        users_per_day: stated number of users who enter the test per day, both arms together; otherwise the mean number
            of different users per day of the log; None if it is unknown.
        log_days: number of days of the log, for which ``users`` are observed; None without dates.
        days: number of days until the test detects the lift if all users who come take part; if users are stated, until
            they have come and have been observed for as long as those of the log; None if it is unknown or infinite.
        days_low, days_high: confidence limits of that number; None if it is unknown or infinite, or a guess.
        users_by_then: number of different users who come in these days, both arms together.
        rows_by_then: number of decisions per arm in these days.
        levels_off: day from which on more days lower the least lift by less than a tenth; None if it keeps falling.
        floor: smallest lift that is detected after any number of days; None without dates.
        is_guess: True if the number of days is a guess: more than :data:`LONGEST_KNOWN` times the days of the log, or
            infinite by an estimate that may be wrong.
        may_never: True if the log leaves open that no number of days is enough.
        log_users: number of users in the log.
        notes: caveats.
        reading: notes on the columns of a file, if they had to be recognised.
        slates_a_user: mean number of slates per user if a decision is one item of a slate; None for single items.
    """

    value: float
    lift: float
    lift_share: float
    users: int
    low: int
    high: int
    power: float
    level: float
    half_width: float
    rows: int
    decisions_a_user: float
    design_effect: float
    least_lift: float | None
    least_share: float | None
    users_per_day: float | None
    log_days: int | None
    days: float | None
    days_low: float | None
    days_high: float | None
    users_by_then: float | None
    rows_by_then: int | None
    levels_off: int | None
    floor: float | None
    is_guess: bool
    may_never: bool
    log_users: int
    notes: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()
    slates_a_user: float | None = None

    def to_dict(self) -> Mapping[str, object]:
        """Return the fields as JSON types."""
        return asdict(self) | {"notes": list(self.notes)}


def plan_ab(
    log: Any,
    lift: Any = None,
    *,
    users: int | None = None,
    power: float = 0.8,
    level: float = 0.95,
    users_per_day: float | None = None,
    columns: Mapping[str, str | None] | Reading | None = None,
    **stated: Any,
) -> ABPlan:
    """Plan an A/B test from a log of the current recommender.

    Args:
        log: a file or folder, a :class:`recsim_mnar.log.Log`, columns by name, or a table in memory. Only users,
            rewards and times are read.
        lift: lift to detect: ``"5%"`` of the value, or an amount in the reward's unit; negative for a loss.
        users: users per arm; without a lift the plan is for the least lift that they detect.
        power: probability of detecting the lift, that is of an interval of the difference that excludes 0 on its side.
        level: coverage of that interval.
        users_per_day: users who enter the test per day, both arms together; None to find the days from the log's
            dates, as users come and come back.
        columns: column by role (reward, user, time), those left out are recognised; or a whole ``Reading``.
        **stated: statements about the rows, as of :func:`recsim_mnar.estimate_file`: drop_missing, drop_invalid,
            deduplicate, separate_events, decimal, weight_column.

    Raises:
        UserError: neither lift nor users, a lift of 0 or one that no rate can have, a power or level outside (0, 1), a
            log without users, one in which nothing varies, or an unknown argument.
    """
    test = _Test(*_checked(power, level))
    if users is not None:
        users = whole_number(users, "users", least=2)
    elif lift is None:
        raise UserError("give a lift to detect (5%), or the users available per arm")
    reading = columns if isinstance(columns, Reading) else stated_reading("plan_ab", columns, stated)
    pilot = Pilot.of(log, reading)
    if pilot.clusters is None:
        raise UserError(f"{pilot.name} has no users, which an A/B test needs: name their column with --user-column")
    totals = UserTotals.of(pilot.reward, pilot.clusters)
    if totals.users < 2 or totals.variance <= 0.0:
        raise UserError(f"{pilot.name}: {totals.users} users whose rewards do not differ; a plan needs users that do")
    if users_per_day is not None:
        users_per_day = number_in(users_per_day, "users_per_day", ends="(]")
    return _plan(test, pilot, totals, lift=lift, users=users, users_per_day=users_per_day)


def _plan(
    test: _Test,
    pilot: Pilot,
    totals: UserTotals,
    lift: Any,
    users: int | None,
    users_per_day: float | None,
) -> ABPlan:
    """Plan a test from checked arguments; :func:`plan_ab` describes them.

    Args:
        test: power and level of the test.
        pilot: the log.
        totals: sums of its users.
        lift: lift to detect, as text or number; None if users are stated.
        users: stated users per arm; None if a lift is stated.
        users_per_day: stated users per day; None to find them from the log's dates.
    """
    least = None if users is None else test.least_lift(totals, users)
    if lift is None:
        amount = Amount(least or 0.0, relative=False)
    else:
        amount = Amount.of(lift, "lift")
    size = amount.of_value(totals.value, "lift")
    _check_rate(totals, size)
    needed = test.users_needed(totals, size)
    low, high = factor_range(totals.relative_error(relative=amount.relative), test.level)
    arm = math.ceil(needed) if users is None else users
    factors = (low, 1.0, high) if users is None else None
    dates = test.dates(pilot, totals, amount, arm=arm, entering=users_per_day, factors=factors)
    return ABPlan(
        value=totals.value,
        lift=size,
        lift_share=size / totals.value if totals.value else math.inf,
        users=max(math.ceil(needed), 2),
        low=max(math.floor(needed * low), 2),
        high=math.ceil(min(needed * high, 1e15)),
        power=test.power,
        level=test.level,
        half_width=test.z * standard_error(totals, size, arm),
        rows=round(arm * totals.length),
        decisions_a_user=totals.length,
        design_effect=totals.design_effect,
        least_lift=least,
        least_share=None if least is None or not totals.value else least / totals.value,
        **vars(dates),
        log_users=totals.users,
        notes=_notes(totals, math.ceil(needed), users, dates.users_per_day, undated=pilot.undated),
        reading=tuple(pilot.lines),
        slates_a_user=None if pilot.slates is None else pilot.slates / totals.users,
    )


def _checked(power: float, level: float) -> tuple[float, float]:
    """Return the checked power and level of a test.

    Raises:
        UserError: a power or level outside (0, 1), or a power that a test has even if there is no lift.
    """
    level = level_of(level)
    power = number_in(power, "power", 0.0, 1.0, ends="()")
    if power <= (1.0 - level) / 2.0:
        raise UserError(f"power {power:g} is reached without any effect at level {level:g}; ask for more, 0.8 is usual")
    return power, level


@dataclass(frozen=True)
class Dates:
    """The fields of an :class:`ABPlan` that are about time, under the same names."""

    users_per_day: float | None = None
    log_days: int | None = None
    days: float | None = None
    days_low: float | None = None
    days_high: float | None = None
    users_by_then: float | None = None
    rows_by_then: int | None = None
    levels_off: int | None = None
    floor: float | None = None
    is_guess: bool = False
    may_never: bool = False


@dataclass(frozen=True)
class _Test:
    """A test of the difference of two arms.

    Attributes:
        power: probability of detecting the lift.
        level: coverage of the interval.
    """

    power: float
    level: float

    @property
    def z(self) -> float:
        """Half the width of the interval, in standard errors."""
        return two_sided(self.level)

    @property
    def detectable(self) -> float:
        """Smallest lift that is detected with this power, in standard errors."""
        return self.z + quantile(self.power)

    def users_needed(self, totals: UserTotals, lift: float) -> float:
        """Return the number of users per arm that detects a lift.

        It is (z_level + z_power)^2 (Var(d_0) + Var(d_1)) / (length lift)^2, for arms 0 and 1 without and with the lift.
        """
        both = totals.variance + totals.variance_under(totals.share(lift))
        return self.detectable**2 * both / (totals.length * lift) ** 2

    def least_lift(self, totals: UserTotals, users: int) -> float:
        """Return the smallest positive lift that ``users`` per arm detect.

        Raises:
            UserError: they are too few for any lift that is possible with the log's rewards.
        """
        unit = self.detectable**2 * totals.variance / (users * totals.length**2)
        lift = float(totals.least_lift(np.array(unit)))
        if lift == math.inf:
            raise UserError(
                f"users {users:,}: so few cannot detect any lift possible with this log's rewards. Give more"
            )
        return lift

    def dates(
        self,
        pilot: Pilot,
        totals: UserTotals,
        lift: Amount,
        arm: int,
        entering: float | None,
        factors: tuple[float, float, float] | None,
    ) -> Dates:
        """Compute the duration of the test.

        Args:
            pilot: the log.
            totals: sums of its users.
            lift: lift to detect.
            arm: number of users per arm.
            entering: number of users who enter per day; None to find it from the log's dates.
            factors: multiples of ``arm`` for the lower confidence limit, the estimate and the upper limit of the needed
                users; None if ``arm`` is stated and not estimated.
        """
        span = None if pilot.days is None else int(pilot.days.max()) + 1  # days of the log
        both_arms = 2.0 * arm
        if entering is not None:
            days = both_arms / entering
            low, _, high = (None, None, None) if factors is None else (days * factor for factor in factors)
            return Dates(entering, span, days, low, high, both_arms, round(arm * totals.length))
        if span is None or pilot.days is None or pilot.clusters is None:
            return Dates(log_days=span)
        # A user who comes on several days is one user, so that errors fall more slowly than with new users each day.
        base = pilot.reward if lift.relative else np.ones(len(pilot))
        log = Returning.of(pilot.days, pilot.clusters, pilot.reward - totals.value, base)
        size = lift.of_value(totals.value, "lift")
        limit = self._limit(log, totals, size, span)
        if factors is not None:
            return self._until_detected(log, totals, size, limit)
        as_long_as_log = np.arange(MOST_DAYS) + 1 >= span
        until = first_day((log.present >= both_arms) & as_long_as_log)
        if until is None:
            return limit
        is_guess = until > LONGEST_KNOWN * span
        end = None if is_guess else until
        return replace(
            limit,
            days=until,
            days_low=end,
            days_high=end,
            is_guess=is_guess,
            users_by_then=both_arms,
            rows_by_then=round(arm * totals.length),
        )

    def _least_lifts(self, log: Returning, totals: UserTotals, lift: float, deviate: float = 0.0) -> Floats:
        """Return the least lifts (MOST_DAYS,) that tests of these days detect; inf for none.

        Args:
            log: users over the days of the log.
            totals: sums of its users.
            lift: lift to detect, whose sign is that of the least lifts; these are written without it.
            deviate: number of standard errors by which the variance differs from its estimate.
        """
        factor = np.exp(np.minimum(deviate * log.relative_errors, 50.0))  # the limit avoids an overflow
        return totals.least_lift(self.detectable**2 * log.variance * factor, loss=lift < 0.0)

    def _limit(self, log: Returning, totals: UserTotals, lift: float, span: int) -> Dates:
        """Return the lift that no number of days detects, and when it is near; the arguments are as elsewhere here."""
        # Of these days and of all more, as a plan is for the first day from which on the lift is detected.
        lifts = np.maximum.accumulate(self._least_lifts(log, totals, lift)[::-1])[::-1]
        limit = np.array(self.detectable**2 * log.least_variance)
        floor = float(totals.least_lift(limit, loss=lift < 0.0))
        return Dates(float(log.present[0]), span, levels_off=levels_off(lifts, floor), floor=floor)

    def _until_detected(self, log: Returning, totals: UserTotals, lift: float, limit: Dates) -> Dates:
        """Return the days until a lift is detected, with their range.

        Args:
            log: users over the days of the log.
            totals: sums of its users.
            lift: lift to detect, in the reward's unit.
            limit: the fields that do not depend on it.
        """
        most = abs(lift)
        low, middle = (first_day(self._least_lifts(log, totals, lift, z) <= most) for z in (-self.z, 0.0))
        if middle is None:
            return replace(limit, is_guess=low is not None, may_never=True)
        # The error grows with the days, so that the upper limit may be low enough on some days and not on later ones.
        enough = np.flatnonzero(self._least_lifts(log, totals, lift, self.z) <= most)
        high = max(int(enough[0]) + 1, middle) if enough.size else None
        is_guess = middle > LONGEST_KNOWN * (limit.log_days or 0)
        return replace(
            limit,
            days=middle,
            days_low=None if is_guess else low,
            days_high=None if is_guess else high,
            is_guess=is_guess,
            may_never=high is None,
            users_by_then=float(log.present[middle - 1]),
            rows_by_then=round(middle * log.decisions / 2),
        )


def standard_error(totals: UserTotals, lift: float, users: int) -> float:
    """Return the standard error of the difference of two arms of ``users`` users each."""
    return math.sqrt((totals.variance + totals.variance_under(totals.share(lift))) / users) / totals.length


def _check_rate(totals: UserTotals, lift: float) -> None:
    """Raise UserError for a lift that would bring a rate outside [0, 1]."""
    after = totals.value + lift
    if totals.binary and not 0.0 <= after <= 1.0:
        raise UserError(
            f"lift: from {totals.value:.3g} to {after:.3g}, and rewards here are 0 or 1: name one that leaves the rate "
            "in [0, 1]"
        )


def _notes(
    totals: UserTotals, needed: int, stated: int | None, entering: float | None, undated: str
) -> tuple[str, ...]:
    """Return caveats of a plan: too few users, in the log or in the test, and missing dates.

    Args:
        totals: sums of the log's users.
        needed: number of users per arm that detects the lift.
        stated: stated number of users per arm; None if a lift is stated.
        entering: number of users per day; None if it is unknown.
        undated: reason why the log's dates are not used; may be empty.
    """
    notes = []
    if stated is not None and stated < needed:
        notes.append(f"the {stated:,} users per arm do not find this lift: it takes {needed:,}")
    rewarded = np.count_nonzero(totals.rewards)
    if totals.users < FEW_USERS:
        notes.append(f"only {totals.users} users in the log: the plan is a guess; it needs at least {FEW_USERS}")
    elif rewarded < 30:
        notes.append(f"only {rewarded} users of the log earn anything: the range says how little that is to plan from")
    if needed < FEW_USERS:
        notes.append(f"the interval of an A/B test needs at least {FEW_USERS} users per arm, whatever the plan says")
    if entering is None:
        notes.append(
            undated
            or "no column of dates is recognised: name it (--time-column), or say how many users enter a day "
            "(--users-per-day); then the plan says how many days"
        )
    return tuple(notes)
