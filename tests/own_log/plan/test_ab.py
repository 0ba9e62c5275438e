"""plan_ab against formulas written out, brute simulation, and what is said of bad input."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from recsim_mnar import plan_ab
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import difference
from recsim_mnar.log.columns import Clusters
from recsim_mnar.own_log.ab_pilot import Pilot
from recsim_mnar.own_log.ab_plan import Returning, UserTotals
from recsim_mnar.own_log.bandit_file import Reading
from twins.plan_log import made

USERS = 20_000


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


def test_as_the_formula_written_out():
    log = shop()
    for power in (0.6, 0.9):
        found = plan_ab(log, "10%", power=power)
        assert found.users == int(np.ceil(plain(log, 0.1, power)))
        assert found.low < found.users < found.high


def test_the_variance_under_a_lift_is_that_of_users_with_it():
    pilots = (Pilot.of(each, propensity=False) for each in (shop(1, 200_000), shop(2, 200_000, lift=0.2)))
    before, after = (UserTotals.of(each.reward, each.clusters) for each in pilots)
    # Either has a relative standard error of sqrt((kurtosis - 1) / users), about .004.
    assert before.variance_under(0.2) == pytest.approx(after.variance, rel=0.03)


@pytest.mark.slow
@pytest.mark.verify
def test_power_comes_true():
    """Of 1,000 tests the share that finds the lift: its standard error is .013."""
    plan = plan_ab(shop(3, 100_000), "15%", power=0.8)
    rng = np.random.default_rng(4)
    found = 0
    for _ in range(1000):
        arms = []
        for lift in (0.0, 0.15):
            rows = 1 + rng.poisson(2.0, plan.users)
            rate = np.minimum(0.1 * np.exp(0.5 * rng.standard_normal(plan.users)), 0.8) * (1.0 + lift)
            sums = rng.binomial(rows, rate)
            value = sums.sum() / rows.sum()
            arms.append((value, np.sum((sums - value * rows) ** 2) / rows.sum() ** 2))
        found += arms[1][0] - arms[0][0] > norm.ppf(0.975) * np.sqrt(arms[0][1] + arms[1][1])
    assert found / 1000 == pytest.approx(0.8, abs=0.05)


def test_least_lift_is_the_inverse():
    log = shop()
    plan = plan_ab(log, "10%")
    back = plan_ab(log, users=plan.users)
    assert back.least_share == pytest.approx(0.1, rel=1e-3)
    assert plan_ab(log, users=4 * plan.users).least_share == pytest.approx(0.05, rel=0.05)


def test_the_range_holds_the_truth():
    """Of 40 small logs: the users that a large one asks for are in the range at .95. Fewer than 33: once in 1,000."""
    truth = plan_ab(shop(9, 200_000), "10%").users
    held = [plan_ab(shop(100 + seed, 1000), "10%") for seed in range(40)]
    assert sum(plan.low <= truth <= plan.high for plan in held) >= 33


def test_design_effect_counts_dependence():
    rng = np.random.default_rng(0)
    user = np.repeat(np.arange(2000), 10)
    same = {"user": user, "reward": (rng.random(2000) < 0.3).astype(float)[user]}
    assert plan_ab(same, "10%").design_effect == pytest.approx(10.0)
    alone = {"user": user, "reward": (rng.random(20_000) < 0.3).astype(float)}
    assert plan_ab(alone, "10%").design_effect == pytest.approx(1.0, abs=0.1)


def test_days_from_dates_and_from_what_is_said():
    log = shop()
    days = np.random.default_rng(0).uniform(0.0, 10.0, USERS)[log["user"]]
    dated = log | {"time": np.datetime64("2026-01-01T00:00:00", "s") + (days * 86400).astype("timedelta64[s]")}
    plan = plan_ab(dated, "10%")  # nobody comes on a second day
    assert plan.users_per_day == pytest.approx(USERS / 10.0, rel=0.05)
    assert plan.days == pytest.approx(2 * plan.users / plan.users_per_day, abs=1.0)
    assert (plan.levels_off, plan.floor) == (None, 0.0)
    assert plan_ab(log, "10%").days is None
    assert plan_ab(log, "10%", users_per_day=100).days == pytest.approx(2 * plan.users / 100)


def returning(seed, users, days, lift=0.0):
    """Users who come on each day with a probability of their own: (n,) user, day, reward; (users,) arm."""
    rng = np.random.default_rng(seed)
    rate = np.minimum(0.1 * np.exp(0.4 * rng.standard_normal(users)), 0.5)
    user, day = np.nonzero(rng.random((users, days)) < rng.beta(4.0, 6.0, users)[:, None])
    rows = 1 + rng.poisson(1.0, user.size)
    user, day, arm = np.repeat(user, rows), np.repeat(day, rows), rng.integers(0, 2, users)
    return user, day, (rng.random(user.size) < rate[user] * (1.0 + lift * arm[user])).astype(float), arm


def dated(seed, users, days):
    user, day, reward, _ = returning(seed, users, days)
    clock = np.random.default_rng(seed).integers(0, 86_400, user.size)
    return {"user": user, "reward": reward, "time": np.datetime64("2026-05-01T00:00:00", "s") + day * 86_400 + clock}


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
        sums, rows = np.bincount(user, reward, users), np.bincount(user, minlength=users)
        arms = []
        for which in (0, 1):
            y, n = sums[arm == which], rows[arm == which]
            value = y.sum() / n.sum()
            arms.append((value, np.sum((y - value * n) ** 2) / n.sum() ** 2))
        found += arms[1][0] - arms[0][0] > norm.ppf(0.975) * np.sqrt(arms[0][1] + arms[1][1])
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


def test_each_row_of_the_table_is_a_plan():
    """A test for the least lift of a day takes that day, for gains and losses, of clicks and of money."""
    clicks = dated(4, 800, 14)
    money = clicks | {"reward": clicks["reward"] * np.random.default_rng(0).lognormal(3.0, 1.0, len(clicks["user"]))}
    for log in (clicks, money):
        for sign in (1.0, -1.0):
            rows = plan_ab(log, f"{sign * 5}%").by_days
            assert [row["days"] for row in rows] == [7, 14, 28, 56]
            for row in rows:
                assert plan_ab(log, sign * row["least_lift"] * (1.0 + 1e-9)).days == row["days"]


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
    last = plan.by_days[-1]
    assert plan.floor < last["least_lift"] < plan.by_days[0]["least_lift"]
    assert last["users"] == pytest.approx(2000, rel=0.02)


def test_windows_count_different_users():
    """As sets of users, of all windows of the log; c_k as products user by user."""
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


def test_as_many_off_policy_rows_give_the_same_width():
    """A log of so many rows, made, gives a difference whose interval is as wide."""
    plan = plan_ab(made(5000, 1), "20%", target="left", baseline="today")
    assert plan.off_policy is not None
    again = made(plan.off_policy // 4, 7)
    found = difference(
        again["reward"], again["propensity"], again["left"], again["today"], estimator="ips", cluster=again["user"]
    )
    assert (found.high - found.low) / 2.0 == pytest.approx(plan.half_width, rel=0.15)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lift": "0%"}, "lift is 0"),
        ({"lift": "abc"}, "lift must be a share"),
        ({"lift": "5%", "power": 0.01}, "is reached without any effect"),
        ({"lift": "5%", "level": 95}, "level must be"),
        ({}, "give a lift"),
        ({"lift": "2000%"}, "rewards here are 0 or 1"),
        ({"users": 1}, "users must be a whole number"),
        ({"users": 2}, "so few cannot detect any lift"),
        ({"lift": "5%", "target": "nope"}, "no column 'nope'"),
        ({"lift": "5%", "baseline": "reward"}, "without a target"),
        ({"lift": "5%", "users_per_day": 0}, "users_per_day must be"),
    ],
)
def test_bad_input_is_one_line(given, said):
    with pytest.raises(UserError, match=said) as caught:
        plan_ab(shop(users=500), **given)
    assert "\n" not in str(caught.value)


def test_a_log_without_users_and_one_that_does_not_vary():
    with pytest.raises(UserError, match="no users"):
        plan_ab({"reward": np.ones(10)}, "5%")
    with pytest.raises(UserError, match="do not differ"):
        plan_ab({"reward": np.ones(10), "user": np.arange(10)}, "5%")


def test_a_small_log_says_so():
    assert any("guess" in note for note in plan_ab(shop(users=50), "10%").notes)


def test_users_given_are_watched_as_long_as_those_of_the_log():
    """Arms of 200 are full on the first day or two, but the least lift is that of twenty days."""
    log = shop(users=3000)
    log["time"] = np.datetime64("2026-03-01T00") + np.random.default_rng(1).integers(0, 20 * 24, len(log["user"]))
    plan = plan_ab(log, "20%", users=200)
    assert (plan.log_days, plan.days, plan.users_by_then) == (20, 20, 400)
    assert plan.notes[0] == f"the 200 users per arm do not find this lift: it takes {plan.users:,}"
    without = plan_ab(log, "40%")
    assert without.days < 20 < without.by_days[-1]["days"]


@pytest.mark.parametrize("dates", [str, object, "datetime64[h]", "datetime64[ns]"])
def test_dates_in_memory_are_read_as_those_of_a_file(dates):
    """In text, as Python's, or as NumPy's of any unit."""
    log = shop(users=500)
    days = np.random.default_rng(1).integers(0, 20 * 24, len(log["user"])).astype("timedelta64[h]")
    log["time"] = (np.datetime64("2026-03-01T00", "s") + days).astype(dates)
    plan = plan_ab(log, "40%")
    assert plan.log_days == 20
    seconds = plan_ab(log | {"time": 1.7e9 + 3600.0 * days.astype(float)}, "40%")
    assert plan.by_days == seconds.by_days


def undated(tmp_path, share, seed=2):
    """A log of 21 days as a file, of whose dates a share cannot be read; and the same with all of them."""
    user, day, reward, _ = returning(seed, 2000, 21)
    rng = np.random.default_rng(seed)
    date = np.datetime64("2026-05-01T00:00:00", "s") + day * 86_400 + rng.integers(0, 86_400, user.size)
    frame = pd.DataFrame({"user": [f"C{each}" for each in user], "click": reward.astype(int), "served_at": date})
    paths = tmp_path / "all.csv", tmp_path / "some.csv"
    frame.to_csv(paths[0], index=False)
    frame["served_at"] = frame.served_at.astype(str)
    words = rng.choice(["", "unknown", "2026-13-45", "0000-00-00"], user.size)
    frame["served_at"] = frame.served_at.where(rng.random(user.size) >= share, words)
    frame.to_csv(paths[1], index=False)
    return paths


def test_dates_that_cannot_be_read_are_left_out_and_counted(tmp_path):
    """The plan is that of all dates, nearly: decisions without a date are decisions."""
    whole, some = undated(tmp_path, 0.04)
    plans = [plan_ab(path, "15%") for path in (whole, some)]
    assert (plans[0].users, plans[0].log_days) == (plans[1].users, 21)
    assert plans[1].days == pytest.approx(plans[0].days, rel=0.02)
    widths = [[each["half_width"] for each in plan.by_days] for plan in plans]
    assert widths[1] == pytest.approx(widths[0], rel=0.03)
    (line,) = [each for each in plans[1].reading if "no date that can be read" in each]
    assert re.fullmatch(
        r"[\d,]+ of [\d,]+ rows \([34](\.\d)? %\) have no date that can be read \(column 'served_at' is not a date in "
        r".*; column 'served_at' is missing in .*\): days are counted by the others",
        line,
    )
    assert not any("no date" in each for each in plans[0].reading)


def test_many_dates_that_cannot_be_read_need_a_number(tmp_path):
    whole, some = undated(tmp_path, 0.3)
    plan = plan_ab(some, "15%")
    assert plan.days is None
    (note,) = [each for each in plan.notes if "no date that can be read" in each]
    said = re.search(r"more than 5 %, so no days are counted: correct them, add drop_invalid=(0\.\d+) to", note)
    with pytest.raises(UserError, match=r"some\.csv: .* have no date that can be read"):
        plan_ab(some, "15%", columns={"time": "served_at"})
    taken = plan_ab(some, "15%", columns=Reading(drop_invalid=float(said[1])))
    assert taken.by_days[0]["half_width"] == pytest.approx(plan_ab(whole, "15%").by_days[0]["half_width"], rel=0.05)
