"""plan_ab: how many users an A/B test needs for a lift, what lift so many users find, and what a log finds instead."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import level_of, number_in, whole_number
from recsim_mnar.log.columns import Clusters, Floats, user_sums
from recsim_mnar.own_log.ab_pilot import FEW_USERS, Amount, Pilot, factor_range, names_of_columns, quantile, two_sided
from recsim_mnar.own_log.bandit_file import Reading


@dataclass(frozen=True)
class UserTotals:
    """Each user's decisions and rewards, a user an entry.

    With y a user's rewards, l its decisions and R = sum y / sum l, a user's deviation is d = y - R l, and the variance
    of R over U users is Var(d) / (U mean(l)^2) (the delta method of a ratio, as in an A/B test's interval).

    Attributes:
        rewards: (U,) y.
        decisions: (U,) l.
        squares: (U,) sum of the rewards' squares.
        row_square: sum over decisions of (r - R)^2.
        unit: whether every reward is 0 or 1.
    """

    rewards: Floats
    decisions: Floats
    squares: Floats
    row_square: float
    unit: bool

    @staticmethod
    def of(reward: Floats, clusters: Clusters | None) -> UserTotals:
        """Sum the rewards (n,) of a log's decisions; without users every decision is one."""
        return UserTotals(
            user_sums(reward, clusters),
            user_sums(np.ones(reward.size), clusters),
            user_sums(reward * reward, clusters),
            float(np.sum((reward - float(reward.mean())) ** 2)),
            bool(np.all((reward == 0.0) | (reward == 1.0))),
        )

    @property
    def users(self) -> int:
        """U."""
        return self.decisions.size

    @property
    def length(self) -> float:
        """Mean number of decisions of a user."""
        return float(self.decisions.mean())

    @property
    def value(self) -> float:
        """R, the mean reward of a decision."""
        return float(self.rewards.sum() / self.decisions.sum())

    @cached_property
    def deviations(self) -> Floats:
        """(U,) d."""
        return self.rewards - self.value * self.decisions

    @cached_property
    def variance(self) -> float:
        """Var(d)."""
        return float(self.deviations @ self.deviations) / max(self.users - 1.0, 1.0)

    @property
    def design_effect(self) -> float:
        """Compute the ratio of the variance to that of as many independent decisions."""
        if self.row_square > 0.0:
            return float(self.deviations @ self.deviations) / self.row_square
        return 1.0

    def variance_under(self, lift: float) -> float:
        """Var(d) where a recommender earns 1 + lift times as much of every user.

        A mean reward m of a decision becomes (1 + lift) m. Where rewards are 0 or 1 the part of the variance that is
        within users is E[l m (1 - m)], so that it becomes (1 + lift)^2 Var(d) - lift (1 + lift) E[y]; other rewards are
        taken to become so many times as large each.
        """
        grown = (1.0 + lift) ** 2 * self.variance
        if not self.unit:
            return grown
        return max(grown - lift * (1.0 + lift) * float(self.rewards.mean()), 0.0)

    def relative_error(self, *, relative: bool) -> float:
        """Standard error, as a share, of Var(d) / (length R)^2 where ``relative``, else of Var(d) / length^2.

        By the influence of a user on its logarithm: d^2 / Var(d) - 1 - 2 (b / mean(b) - 1), b being y or l.
        """
        if self.variance <= 0.0 or self.users < 2:
            return math.inf
        below = self.decisions
        if relative:
            below = self.rewards
        influence = self.deviations**2 / self.variance - 1.0 - 2.0 * (below / below.mean() - 1.0)
        return float(influence.std(ddof=1)) / math.sqrt(self.users)


MOST_DAYS = 3650
"""Days looked ahead."""
_NEAR = 1.1
"""Times its floor at which the least lift is said to have levelled off."""


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
        """From the rows (n,) of a log: their days, users, and rewards less the log's value.

        Rows of day -1 have no date. They are taken to lack it at random: with a share s of rows dated, products of
        different rows count 1 / s^2 times, and decisions and each row's square 1 / s times.
        """
        from scipy.sparse import coo_matrix

        there = days >= 0
        share = float(there.mean())
        number = int(days.max()) + 1
        codes = clusters.dense()[0][there]
        days = days[there]
        deviations = deviations[there]
        codes = np.unique(codes, return_inverse=True)[1]
        users = int(codes.max()) + 1
        table = coo_matrix((deviations, (codes, days)), (users, number)).tocsr()
        products = (table.T @ table).toarray() / share**2
        lags = np.array([np.diagonal(products, lag).sum() for lag in range(number)])
        lags[0] -= float(deviations @ deviations) * (1.0 / share - 1.0) / share
        late = np.arange(max(number // 2, 1), number)
        lasting = max(float(lags[late].sum() / (number - late).sum()), 0.0)
        c = np.full(MOST_DAYS, lasting)
        c[: late[0]] = lags[: late[0]] / (number - np.arange(late[0]))
        squares = np.cumsum(c[0] + 2.0 * np.concatenate([[0.0], np.cumsum(c[1:])]))
        return Returning(_present(codes, days, number), np.maximum(squares, 0.0), lasting, days.size / share / number)

    def error(self, before: float, after: float) -> Floats:
        """(MOST_DAYS,) standard error of the difference of two arms of half the users each.

        Args:
            before: Var(d) of one arm, as a share of that of the log.
            after: of the other.
        """
        days = np.arange(1, MOST_DAYS + 1)
        return np.sqrt(2.0 * (before + after) * self.squares) / (self.decisions * days)

    def floor(self, before: float, after: float) -> float:
        """Get the limit of the standard error as days grow."""
        return math.sqrt(2.0 * (before + after) * self.lasting) / self.decisions


def first_day(reached: NDArray[np.bool_]) -> int | None:
    """The first T from which on (MOST_DAYS,) holds; None where it never does."""
    missed = np.flatnonzero(~reached)
    day = 1
    if missed.size:
        day = int(missed[-1]) + 2
    if day <= MOST_DAYS:
        return day
    return None


def levels_off(errors: Floats, floor: float) -> int | None:
    """Days from which the error is within a tenth of its floor; None where it keeps falling."""
    if floor > 0.0:
        return first_day(errors <= _NEAR * floor)
    return None


def _present(codes: NDArray[np.int64], days: NDArray[np.int64], number: int) -> Floats:
    """Compute :attr:`Returning.present`."""
    visits = np.unique(codes * number + days)
    user = visits // number
    day = visits % number
    first = np.append(True, user[1:] != user[:-1])
    last = np.append(user[1:] != user[:-1], True)
    before = day - np.where(first, -1, np.append(0, day[:-1])) - 1
    idle = np.bincount(np.concatenate([before, number - 1 - day[last]]), minlength=number + 1)
    windows = number - np.arange(number)
    # A window of T days misses a user where it fits into a run of idle days.
    missed = [np.sum(np.maximum(np.arange(number + 1) - length, 0) * idle) for length in range(number)]
    inside = int(first.sum()) - np.array(missed) / windows
    seen = np.bincount(np.bincount(user)[np.unique(user)], minlength=3)
    once = float(seen[1])
    twice = float(seen[2])
    unseen = (number - 1) / number * (once**2 / (2.0 * twice) if twice else once * (once - 1.0) / 2.0)
    more = np.arange(1, MOST_DAYS - number + 1)
    if unseen > 0.0:
        beyond = unseen * -np.expm1(more * np.log1p(-once / (number * unseen + once)))
    else:
        beyond = 0.0 * more
    return np.concatenate([inside, inside[-1] + beyond])[:MOST_DAYS]


@dataclass(frozen=True)
class ABPlan:
    """An A/B test of two arms of equal size, judged by the difference of the arms' mean rewards of a decision.

    Attributes:
        value: today's mean reward of a decision.
        lift: that is to be found, in the reward's unit, and ``lift_share`` of the value.
        users: an arm, of those who come to a decision.
        low, high: between which that number is, at ``level``, by what the log leaves open.
        power: with which the lift is found at ``level``.
        half_width: of the interval of the difference.
        rows: decisions per arm.
        decisions_a_user: mean number.
        design_effect: how many times as large the variance is as that of as many independent decisions.
        least_lift: where a number of users was given: what they find at ``power``; ``least_share`` of the value.
        users_per_day: who enter the test a day, both arms together, as given; else the different users of a mean day of
            the log. None where it is not known.
        log_days: days of the log, as long as ``users`` are watched; None without dates.
        days: until the test finds the lift if everybody who comes takes part; where users are given, until they have
            come and have been watched for as long as those of the log. None if that is not known, or if it never does.
        days_low, days_high: between which that number is, by what the log leaves open; None as ``days``.
        users_by_then: different users who come in these days, both arms together.
        rows_by_then: decisions per arm in these days.
        by_days: for some numbers of days: days, users (as ``users_by_then``), half_width of the interval, and least
            lift (found at ``power``); empty without dates.
        levels_off: days from which on more of them narrow the interval by less than a tenth; None where it keeps
            falling.
        floor: least lift that is found, however many days; None without dates.
        off_policy: where a target was given: rows of a log like this one whose interval of the same difference is as
            narrow; None else.
        log_users: in the log.
        notes: what to know of the plan.
        reading: what was taken from a file, where that had to be recognised.
        slates_a_user: mean number, where a "decision" above is one item shown in a slate; None of single items.
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
    by_days: tuple[Mapping[str, float], ...]
    levels_off: int | None
    floor: float | None
    off_policy: int | None
    log_users: int
    notes: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()
    slates_a_user: float | None = None

    def to_dict(self) -> Mapping[str, object]:
        """For JSON."""
        return asdict(self) | {"notes": list(self.notes), "by_days": list(self.by_days)}


def plan_ab(
    log: Any,
    lift: Any = None,
    *,
    users: int | None = None,
    power: float = 0.8,
    level: float = 0.95,
    users_per_day: float | None = None,
    target: str | None = None,
    baseline: str | None = None,
    columns: Mapping[str, str | None] | Reading | None = None,
) -> ABPlan:
    """Plan an A/B test from a log of today's recommender.

    Args:
        log: a file or folder, a :class:`recsim_mnar.log.Log`, or columns by name. Only users and rewards are read.
        lift: to find: ``"5%"`` of the value, or an amount in the reward's unit; negative for a loss.
        users: an arm; without a lift the plan is for the least lift that they find.
        power: probability of finding the lift, that is of an interval of the difference that excludes 0 on its side.
        level: coverage of that interval.
        users_per_day: who enter the test a day, both arms together; None to find the days from the log's dates, as
            users come and come back.
        target: column of a policy's probability of the logged action: adds how many rows of a log like this one give
            an interval of the same width for its difference from ``baseline``.
        baseline: such a column; None or "today" for the logging policy itself.
        columns: column by role (reward, propensity, user, time), those left out are recognised; or a whole ``Reading``.

    Raises:
        UserError: neither lift nor users, a lift of 0 or one that no rate can have, a power or level outside (0, 1), a
            log without users, or one in which nothing varies.
    """
    level = level_of(level)
    power = number_in(power, "power", 0.0, 1.0, ends="()")
    if power <= (1.0 - level) / 2.0:
        raise UserError(f"power {power:g} is reached without any effect at level {level:g}; ask for more, 0.8 is usual")
    if lift is None and users is None:
        raise UserError("give a lift to detect (5%), or the users available per arm")
    stated_users = None
    if users is not None:
        stated_users = whole_number(users, "users", least=2)
    pilot, baseline = _pilot(log, target, baseline, columns)
    totals = UserTotals.of(pilot.reward, pilot.clusters)
    if totals.users < 2 or totals.variance <= 0.0:
        raise UserError(f"{pilot.name}: {totals.users} users whose rewards do not differ; a plan needs users that do")
    if users_per_day is not None:
        users_per_day = number_in(users_per_day, "users_per_day", ends="(]")
    least = None
    if stated_users is not None:
        least = least_lift(totals, stated_users, power, level)
    if lift is None:
        assert least is not None
        size, relative = least, True
    else:
        amount = Amount.of(lift, "lift")
        size, relative = amount.of_value(totals.value, "lift"), amount.relative
    _check_rate(totals, size)
    needed = users_needed(totals, size, power, level)
    low, high = factor_range(totals.relative_error(relative=relative), level)
    arm = math.ceil(needed) if stated_users is None else stated_users
    error = standard_error(totals, size, arm)
    reach = (low, 1.0, high) if stated_users is None else None
    dates = _Test(size, power, level, arm, reach).dates(pilot, totals, users_per_day)
    return ABPlan(
        value=totals.value,
        lift=size,
        lift_share=size / totals.value if totals.value else math.inf,
        users=max(math.ceil(needed), 2),
        low=max(math.floor(needed * low), 2),
        high=math.ceil(min(needed * high, 1e15)),
        power=power,
        level=level,
        half_width=two_sided(level) * error,
        rows=round(arm * totals.length),
        decisions_a_user=totals.length,
        design_effect=totals.design_effect,
        least_lift=least,
        least_share=None if least is None or not totals.value else least / totals.value,
        **vars(dates),
        off_policy=None if target is None else _off_policy_rows(pilot, target, baseline, error),
        log_users=totals.users,
        notes=_notes(totals, math.ceil(needed), stated_users, dates.users_per_day, pilot.undated),
        reading=pilot.lines,
        slates_a_user=None if pilot.slates is None else pilot.slates / totals.users,
    )


def _pilot(
    log: Any, target: str | None, baseline: str | None, columns: Mapping[str, str | None] | Reading | None
) -> tuple[Pilot, str | None]:
    """The log with its users, and the baseline's column; None for the policy that logged."""
    if baseline is not None and target is None:
        raise UserError("baseline has no effect without a target: name both, or neither")
    if baseline == "today" and baseline not in names_of_columns(log):
        baseline = None
    policies = [name for name in (target, baseline) if name is not None]
    pilot = Pilot.of(log, policies, propensity=target is not None, columns=columns)
    if pilot.clusters is None:
        raise UserError(f"{pilot.name} has no users, which an A/B test needs: name their column with --user-column")
    return pilot, baseline


_SHOWN_DAYS = (7, 14, 28, 56, 112)


@dataclass(frozen=True)
class Dates:
    """The fields of an :class:`ABPlan` that say when; see there."""

    users_per_day: float | None = None
    log_days: int | None = None
    days: float | None = None
    days_low: float | None = None
    days_high: float | None = None
    users_by_then: float | None = None
    rows_by_then: int | None = None
    by_days: tuple[Mapping[str, float], ...] = ()
    levels_off: int | None = None
    floor: float | None = None


@dataclass(frozen=True)
class _Test:
    """Question that a test answers.

    Attributes:
        lift: in the reward's unit.
        power: with which.
        level: of the interval.
        arm: users.
        factors: between which multiples of them the number is that is needed; None where it is given.
    """

    lift: float
    power: float
    level: float
    arm: int
    factors: tuple[float, float, float] | None

    def dates(self, pilot: Pilot, totals: UserTotals, entering: float | None) -> Dates:
        """When it finds it.

        Args:
            pilot: the log.
            totals: of its users.
            entering: users who enter a day, as given.
        """
        span = None
        if pilot.days is not None:
            span = int(pilot.days.max()) + 1
        both_arms = 2.0 * self.arm
        if entering is not None:
            days = both_arms / entering
            low, _, high = (None, None, None) if self.factors is None else (days * factor for factor in self.factors)
            return Dates(entering, span, days, low, high, both_arms, round(self.arm * totals.length))
        if span is None or pilot.days is None or pilot.clusters is None:
            return Dates(log_days=span)
        log = Returning.of(pilot.days, pilot.clusters, pilot.reward - totals.value)
        after = totals.variance_under(self.lift / totals.value if totals.value else 0.0) / totals.variance
        errors = log.error(1.0, after)
        floor = log.floor(1.0, after)
        users = log.present
        z = two_sided(self.level)
        found_at = two_sided(self.level) + quantile(self.power)
        if self.factors is None:
            ends = [first_day((users >= both_arms) & (np.arange(users.size) + 1 >= span))]
        else:
            ends = [first_day(errors * math.sqrt(factor) * found_at <= abs(self.lift)) for factor in self.factors]
        low = ends[0]
        middle = ends[len(ends) // 2]
        high = ends[-1]
        by_then = rows = None
        if middle is not None:
            by_then = both_arms
            if self.factors is not None:
                by_then = float(users[middle - 1])
            rows = round(self.arm * totals.length if self.factors is None else middle * log.decisions / 2)
        table = tuple(
            {
                "days": day,
                "users": float(users[day - 1]),
                "half_width": float(z * errors[day - 1]),
                "least_lift": float(found_at * errors[day - 1]),
            }
            for day in _SHOWN_DAYS
        )
        flat = levels_off(errors, floor)
        return Dates(float(users[0]), span, middle, low, high, by_then, rows, table, flat, found_at * floor)


def users_needed(totals: UserTotals, lift: float, power: float, level: float) -> float:
    """Users an arm: (z_level + z_power)^2 (Var(d_0) + Var(d_1)) / (length lift)^2."""
    share = 0.0
    if totals.value:
        share = lift / totals.value
    both = totals.variance + totals.variance_under(share)
    return (two_sided(level) + quantile(power)) ** 2 * both / (totals.length * lift) ** 2


def standard_error(totals: UserTotals, lift: float, users: int) -> float:
    """Compute the standard error of the difference of two arms of this many users each."""
    share = 0.0
    if totals.value:
        share = lift / totals.value
    return math.sqrt((totals.variance + totals.variance_under(share)) / users) / totals.length


def least_lift(totals: UserTotals, users: int, power: float, level: float) -> float:
    """The smallest positive lift that so many users per arm find."""
    from scipy.optimize import brentq

    most = 1.0
    if totals.value > 0.0:
        most = totals.value
    if totals.unit:
        most = (1.0 - totals.value) * (1.0 - 1e-9)
    else:
        while users_needed(totals, most, power, level) > users and most < 1e6 * abs(totals.value or 1.0):
            most *= 2.0
    if users_needed(totals, most, power, level) > users:
        raise UserError(f"users {users:,}: so few cannot detect any lift possible with this log's rewards. Give more")
    return float(brentq(lambda lift: math.log(users_needed(totals, lift, power, level) / users), most * 1e-9, most))


def _check_rate(totals: UserTotals, lift: float) -> None:
    """Raise UserError for a lift that no rate can have."""
    after = totals.value + lift
    if totals.unit and not 0.0 <= after <= 1.0:
        raise UserError(
            f"lift: from {totals.value:.3g} to {after:.3g}, and rewards here are 0 or 1: name one that leaves the rate "
            "in [0, 1]"
        )


def _off_policy_rows(pilot: Pilot, target: str, baseline: str | None, error: float) -> int:
    """Rows whose weighted difference has this standard error, by the users' sums of its row influences."""
    if baseline is None:
        other = np.ones(len(pilot))
    else:
        other = pilot.policies[baseline] / pilot.propensity
    scores = (pilot.policies[target] / pilot.propensity - other) * pilot.reward
    if not pilot.policies[target].any():
        raise UserError(
            f"target {target}: it takes none of the logged actions, so no number of such rows says anything"
        )
    sums = user_sums(scores - scores.mean(), pilot.clusters)
    square = float(sums @ sums)
    if square <= 0.0:
        raise UserError(
            f"target {target} does what {baseline or 'the logging policy'} does: there is nothing to compare"
        )
    return math.ceil(square / (len(pilot) * error**2))


def _notes(totals: UserTotals, users: int, given: int | None, entering: float | None, undated: str) -> tuple[str, ...]:
    notes = []
    if given is not None and given < users:
        notes.append(f"the {given:,} users per arm do not find this lift: it takes {users:,}")
    if totals.users < FEW_USERS:
        notes.append(f"only {totals.users} users in the log: the plan is a guess; it needs at least {FEW_USERS}")
    elif np.count_nonzero(totals.rewards) < 30:
        rewarded = int(np.count_nonzero(totals.rewards))
        notes.append(f"only {rewarded} users of the log earn anything: the range says how little that is to plan from")
    if users < FEW_USERS:
        notes.append(f"the interval of an A/B test needs at least {FEW_USERS} users per arm, whatever the plan says")
    if entering is None:
        notes.append(
            undated
            or "no column of dates is recognised: name it (--time-column), or say how many users enter a day "
            "(--users-per-day); then the plan says how many days"
        )
    return tuple(notes)
