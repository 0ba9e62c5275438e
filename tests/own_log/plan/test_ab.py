"""plan_ab against formulas written out, brute simulation, and what is said of bad input."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from recsim_mnar import plan_ab
from recsim_mnar.errors import UserError
from recsim_mnar.log.columns import Clusters
from recsim_mnar.own_log.ab_pilot import Pilot
from recsim_mnar.own_log.ab_plan import Returning, UserTotals
from recsim_mnar.own_log.bandit_file import Reading
from toys import refused

USERS = 20_000
MAY = np.datetime64("2026-05-01T00:00:00", "s")
MARCH = np.datetime64("2026-03-01T00:00:00", "s")


def shop(seed=0, users=USERS, lift=0.0):
    rng = np.random.default_rng(seed)
    rows = 1 + rng.poisson(2.0, users)
    rate = np.minimum(0.1 * np.exp(0.5 * rng.standard_normal(users)), 0.8) * (1.0 + lift)
    user = np.repeat(np.arange(users), rows)
    return {"user": user, "reward": (rng.random(len(user)) < rate[user]).astype(float)}


def plain(log, lift, power, level=0.95):
    """Users an arm, users one by one."""
    sums, counts = {}, {}
    for user, reward in zip(log["user"].tolist(), log["reward"].tolist(), strict=True):
        sums[user] = sums.get(user, 0.0) + reward
        counts[user] = counts.get(user, 0) + 1
    n = len(sums)
    value = sum(sums.values()) / sum(counts.values())
    variance = sum((sums[u] - value * counts[u]) ** 2 for u in sums) / (n - 1)
    mean_sum, mean_count = sum(sums.values()) / n, sum(counts.values()) / n
    treated = (1 + lift) ** 2 * variance - lift * (1 + lift) * mean_sum
    z = norm.ppf(1 - (1 - level) / 2) + norm.ppf(power)
    return z**2 * (variance + treated) / (mean_count * lift * value) ** 2


@pytest.mark.parametrize("power", [0.6, 0.9])
def test_users_are_those_of_the_formula_written_out(power):
    log = shop()
    plan = plan_ab(log, "10%", power=power)
    assert plan.users == int(np.ceil(plain(log, 0.1, power)))
    assert plan.low < plan.users < plan.high


def test_the_variance_under_a_lift_is_that_of_users_with_it():
    pilots = (Pilot.of(log) for log in (shop(1, 200_000), shop(2, 200_000, lift=0.2)))
    before, after = (UserTotals.of(pilot.reward, pilot.clusters) for pilot in pilots)
    # Either has a relative standard error of sqrt((kurtosis - 1) / users), about .004.
    assert before.variance_under(0.2) == pytest.approx(after.variance, rel=0.03)


def mean_and_variance(sums, rows):
    """The mean reward of an arm, by the users' sums and rows, and its variance."""
    mean = sums.sum() / rows.sum()
    return mean, np.sum((sums - mean * rows) ** 2) / rows.sum() ** 2


def finds_lift(control, treatment):
    """Test two arms, each of sums and rows of users: true if the treatment is found to earn more."""
    (mean_of_control, variance_of_control), (mean, variance) = (mean_and_variance(*arm) for arm in (control, treatment))
    return mean - mean_of_control > norm.ppf(0.975) * np.sqrt(variance_of_control + variance)


def test_least_lift_is_the_inverse():
    log = shop()
    plan = plan_ab(log, "10%")
    back = plan_ab(log, users=plan.users)
    assert back.least_share == pytest.approx(0.1, rel=1e-3)
    assert plan_ab(log, users=4 * plan.users).least_share == pytest.approx(0.05, rel=0.05)


def test_the_range_holds_the_truth():
    """The ranges of 40 small logs hold the users that a large one asks for, at .95; fewer than 33 do once in 1,000."""
    truth = plan_ab(shop(9, 200_000), "10%").users
    held = [plan_ab(shop(100 + seed, 1000), "10%") for seed in range(40)]
    assert sum(plan.low <= truth <= plan.high for plan in held) >= 33


def test_design_effect_counts_dependence():
    rng = np.random.default_rng(0)
    user = np.repeat(np.arange(2000), 10)
    dependent = (rng.random(2000) < 0.3).astype(float)[user]
    assert plan_ab({"user": user, "reward": dependent}, "10%").design_effect == pytest.approx(10.0)
    independent = (rng.random(20_000) < 0.3).astype(float)
    assert plan_ab({"user": user, "reward": independent}, "10%").design_effect == pytest.approx(1.0, abs=0.1)


def test_days_are_counted_by_dates():
    log = shop()
    days = np.random.default_rng(0).uniform(0.0, 10.0, USERS)[log["user"]]
    plan = plan_ab(log | {"time": MARCH + (days * 86400).astype("timedelta64[s]")}, "10%")
    assert plan.users_per_day == pytest.approx(USERS / 10.0, rel=0.05)  # nobody comes on a second day
    assert plan.days == pytest.approx(2 * plan.users / plan.users_per_day, abs=1.0)
    assert (plan.levels_off, plan.floor) == (None, 0.0)


def test_days_are_counted_by_the_users_per_day_that_are_stated():
    log = shop()
    assert plan_ab(log, "10%").days is None
    plan = plan_ab(log, "10%", users_per_day=100)
    assert plan.days == pytest.approx(2 * plan.users / 100)


def returning(seed, users, days, lift=0.0):
    """Users who come on each day with a probability of their own: (n,) user, day, reward; (users,) arm."""
    rng = np.random.default_rng(seed)
    rate = np.minimum(0.1 * np.exp(0.4 * rng.standard_normal(users)), 0.5)
    user, day = np.nonzero(rng.random((users, days)) < rng.beta(4.0, 6.0, users)[:, None])
    rows = 1 + rng.poisson(1.0, user.size)
    user = np.repeat(user, rows)
    day = np.repeat(day, rows)
    arm = rng.integers(0, 2, users)
    reward = rng.random(user.size) < rate[user] * (1.0 + lift * arm[user])
    return user, day, reward.astype(float), arm


def dated(seed, users, days):
    user, day, reward, _ = returning(seed, users, days)
    clock = np.random.default_rng(seed).integers(0, 86_400, user.size)
    return {"user": user, "reward": reward, "time": MAY + day * 86_400 + clock}


@pytest.mark.slow
@pytest.mark.verify
def test_the_days_of_returning_users_come_true():
    """A log of 14 days plans a test of some 25; of 200 such tests .8 find the lift, with a standard error of .028."""
    users, lift = 4000, 0.08
    plan = plan_ab(dated(1, users, 14), f"{100 * lift}%")
    assert 14 < plan.days_low <= plan.days <= plan.days_high < 40
    assert plan.users_per_day == pytest.approx(0.4 * users, rel=0.03)
    assert plan.users_by_then == pytest.approx(users, rel=0.02)
    found = 0
    for seed in range(200):
        user, _, reward, arm = returning(100 + seed, users, int(plan.days), lift)
        sums = np.bincount(user, reward, users)
        rows = np.bincount(user, minlength=users)
        found += finds_lift(*((sums[arm == number], rows[arm == number]) for number in (0, 1)))
    assert found / 200 == pytest.approx(0.8, abs=0.085)


def days_needed(lift, users):
    """Days that a test of ``returning`` users takes, and the least lift of endless ones: by moments of many users."""
    rng = np.random.default_rng(0)
    rate = np.minimum(0.1 * np.exp(0.4 * rng.standard_normal(1_000_000)), 0.5)
    comes = rng.beta(4.0, 6.0, rate.size)
    value = np.average(rate, weights=comes)
    mean = 2.0 * (rate - value)  # of a day's deviation, of 1 + Poisson(1) rows
    square = 2.0 * rate * (1.0 - rate) + 5.0 * (rate - value) ** 2
    days = np.arange(1, 3651)
    squares = days * np.mean(comes * square) + days * (days - 1.0) * np.mean((comes * mean) ** 2)
    rows = days * 2.0 * comes.mean()
    after = (1.0 + lift) ** 2 * squares - lift * (1.0 + lift) * rows * value
    detected = (norm.ppf(0.975) + norm.ppf(0.8)) * np.sqrt(2.0 * (squares + after) / users) / rows / value
    enough = np.flatnonzero(detected <= lift)
    return (int(enough[0]) + 1 if enough.size else None), detected[-1]


@pytest.mark.slow
@pytest.mark.verify
@pytest.mark.parametrize(("lift", "inside"), [(0.12, True), (0.09, True), (0.065, False)])
def test_days_beyond_the_log_are_in_the_range_or_called_a_guess(lift, inside):
    """Of 40 ranges at .95, 7 miss the truth once in 1,000. Beyond five times a log's 14 days most plans are guesses."""
    truth, floor = days_needed(lift, 2000)
    assert (truth < 70) == inside
    assert floor < lift
    plans = [plan_ab(dated(1000 + seed, 2000, 14), f"{100 * lift}%") for seed in range(40)]
    ranges = [plan for plan in plans if not plan.is_guess]
    assert all(plan.days_low is None for plan in plans if plan.is_guess)
    assert all(plan.days <= 70 for plan in ranges)
    held = sum(plan.days_low <= truth <= (plan.days_high or np.inf) for plan in ranges)
    assert held >= len(ranges) - 7
    assert (len(ranges) > 30) == inside
    if not inside:
        assert np.mean([plan.may_never for plan in plans]) > 0.8


def test_what_the_log_cannot_know_of_long_tests_leaves_short_ones_alone():
    """Users who are alike have no lasting covariance but by chance: no floor is proved, and a short test has ends."""
    rng = np.random.default_rng(0)
    user, day = np.nonzero(rng.random((3000, 14)) < 0.15)
    time = np.datetime64("2026-05-01T00:00:00", "s") + day * 86_400 + rng.integers(0, 86_400, user.size)
    log = {"user": user, "reward": (rng.random(user.size) < 0.1).astype(float), "time": time}
    plans = [plan_ab(log, lift) for lift in ("30%", "15%")]
    for plan in plans:
        assert plan.days_low <= plan.days <= plan.days_high < 50
        assert not plan.may_never
        assert 0.0 <= plan.floor < 0.05 * plan.value
    assert plan_ab(log, "5%").may_never


def test_a_floor_that_may_be_above_the_lift_is_said():
    log = dated(2, 2000, 14)
    plan = plan_ab(log, "5%")
    assert plan.days > 70
    assert (plan.is_guess, plan.may_never) == (True, True)
    assert (plan.days_low, plan.days_high) == (None, None)
    sure = plan_ab(log, "10%")
    assert (sure.is_guess, sure.may_never) == (False, False)
    assert sure.days_low < sure.days < sure.days_high < 70


def test_a_lift_below_what_the_same_users_can_show_is_never_found():
    plan = plan_ab(dated(2, 2000, 14), "2%")
    assert (plan.days, plan.days_high, plan.users_by_then) == (None, None, None)
    assert plan.floor > 0.02 * plan.value
    assert plan.levels_off > 14


def test_windows_count_different_users():
    """The counts are those of sets of users, in all windows of the log; c_k are products user by user."""
    user, day, reward, _ = returning(3, 60, 9)
    at = Returning.of(day, Clusters.of(user, user.size), reward - reward.mean(), reward)
    sums = np.zeros((60, 9))
    np.add.at(sums, (user, day), reward - reward.mean())
    for length in (1, 2, 5, 9):
        windows = [set(user[(day >= first) & (day < first + length)]) for first in range(10 - length)]
        assert at.present[length - 1] == pytest.approx(np.mean([len(window) for window in windows]))
    c = [np.mean([sums[:, s] @ sums[:, s + k] for s in range(9 - k)]) for k in range(4)]
    assert at.squares[3] == pytest.approx(4 * c[0] + 2 * (3 * c[1] + 2 * c[2] + c[3]))
    assert at.decisions == pytest.approx(user.size / 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lift": "0%"}, "lift is 0"),
        ({"lift": "abc"}, "lift must be a share"),
        ({"lift": "5%", "power": 0.01}, "is reached without any effect"),
        ({"lift": "5%", "level": 95}, "level must be"),
        ({}, "give a lift"),
        ({"lift": "2000%"}, "rewards here are 0 or 1"),
        ({"users": 1}, "users must be a whole number"),
        ({"users": 2}, "so few cannot detect any lift"),
        ({"lift": "5%", "users_per_day": 0}, "users_per_day must be"),
    ],
)
def test_bad_input_is_one_line(options, message):
    with refused(message):
        plan_ab(shop(users=500), **options)


@pytest.mark.parametrize(("columns", "message"), [({}, "no users"), ({"user": np.arange(10)}, "do not differ")])
def test_a_log_without_users_or_without_differences_is_refused(columns, message):
    with refused(message):
        plan_ab({"reward": np.ones(10), **columns}, "5%")


def test_a_small_log_says_so():
    assert any("guess" in note for note in plan_ab(shop(users=50), "10%").notes)


def test_users_that_are_stated_are_watched_as_long_as_those_of_the_log():
    """Arms of 200 are full on the first day or two, but the least lift is that of twenty days."""
    log = shop(users=3000)
    log["time"] = MARCH + 3600 * np.random.default_rng(1).integers(0, 20 * 24, len(log["user"]))
    plan = plan_ab(log, "20%", users=200)
    assert (plan.log_days, plan.days, plan.users_by_then) == (20, 20, 400)
    assert plan.notes[0] == f"the 200 users per arm do not find this lift: it takes {plan.users:,}"
    assert plan_ab(log, "40%").days < 20


@pytest.mark.parametrize("dates", [str, object, "datetime64[h]", "datetime64[ns]"])
def test_dates_in_memory_are_read_as_those_of_a_file(dates):
    """In text, as Python's, or as NumPy's of any unit."""
    log = shop(users=500)
    hours = np.random.default_rng(1).integers(0, 20 * 24, len(log["user"]))
    plan = plan_ab(log | {"time": (MARCH + 3600 * hours).astype(dates)}, "40%")
    assert plan.log_days == 20
    assert plan.days == plan_ab(log | {"time": 1.7e9 + 3600.0 * hours}, "40%").days


def undated(tmp_path, share):
    """A log of 21 days as a file, and the same with a share of dates that cannot be read."""
    user, day, reward, _ = returning(2, 2000, 21)
    rng = np.random.default_rng(2)
    date = MAY + day * 86_400 + rng.integers(0, 86_400, user.size)
    frame = pd.DataFrame({"user": [f"C{number}" for number in user], "click": reward.astype(int), "served_at": date})
    frame.to_csv(tmp_path / "all.csv", index=False)
    words = rng.choice(["", "unknown", "2026-13-45", "0000-00-00"], user.size)
    frame["served_at"] = frame.served_at.astype(str).where(rng.random(user.size) >= share, words)
    frame.to_csv(tmp_path / "some.csv", index=False)
    return tmp_path / "all.csv", tmp_path / "some.csv"


def test_dates_that_cannot_be_read_are_left_out_and_counted(tmp_path):
    """The plan is that of all dates, nearly: decisions without a date are decisions."""
    of_all, of_some = (plan_ab(path, "15%") for path in undated(tmp_path, 0.04))
    assert (of_some.users, of_some.log_days) == (of_all.users, 21)
    assert of_some.days == pytest.approx(of_all.days, rel=0.02)
    assert of_some.floor == pytest.approx(of_all.floor, rel=0.1)
    no_date = (
        r"[\d,]+ of [\d,]+ rows \([34](\.\d)? %\) have no date that can be read .*: days are counted by the others"
    )
    assert [bool(re.fullmatch(no_date, line)) for line in of_some.reading if "no date" in line] == [True]
    assert not any("no date" in line for line in of_all.reading)


def test_many_dates_that_cannot_be_read_need_a_number(tmp_path):
    all_dates, some_dates = undated(tmp_path, 0.3)
    plan = plan_ab(some_dates, "15%")
    assert plan.days is None
    advice = r"more than 5 %, so no days are counted: correct them, add --drop-invalid (0\.\d+) to"
    share = float(re.search(advice, "\n".join(plan.notes))[1])
    with pytest.raises(UserError, match=r"some\.csv: .* have no date that can be read"):
        plan_ab(some_dates, "15%", columns={"time": "served_at"})
    of_some = plan_ab(some_dates, "15%", columns=Reading(drop_invalid=share))
    of_all = plan_ab(all_dates, "15%")
    assert of_some.days == pytest.approx(of_all.days, rel=0.1)
