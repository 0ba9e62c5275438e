"""Values that are read without a fault, but probably mean something else."""

import numpy as np
import pandas as pd
import pytest

from recsim_mnar import estimate_file
from recsim_mnar.errors import UserError
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.doctor import examine_file
from recsim_mnar.own_log.odd_values import columns_of_one_policy, odd_rewards, only_first_days
from recsim_mnar.tables.values import POINT
from toys import only
from twins.findings import codes, finding

N = 400


def frame(**columns):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "user_id": rng.integers(0, 200, N),
            "action": rng.integers(0, 3, N),
            "reward": (rng.random(N) < 0.2).astype(float),
            "propensity": np.full(N, 1 / 3),
            "new": rng.choice([0.2, 0.6], N),
            **columns,
        }
    )


@pytest.fixture
def log(tmp_path):
    """Write a table into a file."""

    def write(**columns):
        frame(**columns).to_csv(tmp_path / "log.csv", index=False)
        return tmp_path / "log.csv"

    return write


def lines_of(path):
    """The lines on a log that `estimate` prints."""
    log = BanditLog.open(path, ["new"])
    log.read()
    return log.lines


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1.0, 2.0], ["coded_rewards"]),
        ([0.0, 1.0], []),
        ([0.0, 2.5], []),
        ([0.0, 1.0, -1.0], ["missing_code"]),
        ([0.0, 1.0, -999.0], ["missing_code"]),
        ([0.0, 12.0, 9999.0], ["missing_code"]),
        ([0.0, 1200.0, 9999.0], []),  # not far from the others
        ([-2.0, -1.0, 1.0], []),  # losses
    ],
)
def test_rewards_that_are_codes(rewards, expected):
    assert [problem.code for problem in odd_rewards(np.tile(rewards, 20), "reward")] == expected


def test_a_row_of_totals_is_found_in_whatever_row_it_is():
    rewards = (np.random.default_rng(1).random(N) < 0.3).astype(float)
    assert list(odd_rewards(rewards, "reward")) == []
    for row in (0, N // 2, N):
        (problem,) = odd_rewards(np.insert(rewards, row, rewards.sum()), "reward")
        assert problem.code == "total_row"
        assert f"row {row + 1:,} " in problem.message


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"p_0": [0.2] * 10, "p_1": [0.3] * 10, "p_2": [0.5] * 10}, ["p_0", "p_1", "p_2"]),
        ({"p_0": [0.333] * 10, "p_1": [0.333] * 10, "p_2": [0.333] * 10}, ["p_0", "p_1", "p_2"]),
        ({"p_0": [0.2] * 10, "p_1": [0.3] * 10}, []),
        ({"always_0": [0, 1] * 5, "always_1": [1, 0] * 5}, []),  # two policies, each of which shows one item
        ({"red": [0.2] * 10, "blue": [0.8] * 10}, []),  # names that share nothing
        ({"p_0": [0.2] * 9 + [""], "p_1": [0.8] * 10}, []),
    ],
)
def test_columns_that_sum_to_one(columns, expected):
    assert columns_of_one_policy(columns, list(columns), POINT) == expected


def test_probabilities_of_all_items_are_not_several_policies(log):
    targets = ["new_0", "new_1", "new_2"]
    shares = np.random.default_rng(2).dirichlet(np.ones(3), N)
    path = log(**dict(zip(targets, shares.T, strict=True)))
    assert "shares_of_items" in codes(examine_file(path))
    with pytest.raises(UserError) as caught:
        estimate_file(path, targets)
    assert caught.value.code == "one_policy"
    assert estimate_file(path, targets, target_is="probability")


@pytest.mark.parametrize(
    ("rewards", "code"),
    [(np.tile([1.0, 2.0], N // 2), "coded_rewards"), (np.tile([0, 1, 0, -1], N // 4), "missing_code")],
)
def test_doctor_and_estimate_name_odd_rewards(log, rewards, code):
    path = log(reward=rewards)
    assert str(finding(examine_file(path), code)) in lines_of(path)


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ([f"2026-{month:02}-01" for month in range(1, 13)], True),
        (["2026-01-01", "2026-02-01"], False),
        ([f"2026-01-{day:02}" for day in range(1, 13)], False),
    ],
)
def test_dates_on_the_first_of_months_alone(days, expected):
    times = pd.to_datetime(days).to_numpy().astype("datetime64[s]").astype(float)
    assert only_first_days(np.append(times, np.nan)) == expected


def test_empty_rewards_beside_ones_may_be_zeros(log):
    path = log(reward=np.where(np.arange(N) % 5, np.nan, 1.0))
    assert "write 0" in finding(examine_file(path), "missing").advice
    with pytest.raises(UserError, match="write 0"):
        estimate_file(path, ["new"])


def test_empty_rewards_beside_zeros_are_no_zeros(log):
    with pytest.raises(UserError) as caught:
        estimate_file(log(reward=np.where(np.arange(N) % 5, 0.0, np.nan)), ["new"])
    assert "write 0" not in str(caught.value)


@pytest.mark.parametrize("text", ["sep=;\na;b;c\n1;2;3\n3;4;3\n", "Report of March\n\na,b\n1,2\n3,4\n"])
def test_lines_above_the_header_are_refused(tmp_path, text):
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(UserError, match="nothing above the header"):
        examine_file(tmp_path / "log.csv")


def test_a_header_alone_is_refused(tmp_path):
    (tmp_path / "log.csv").write_text("a,b")
    with pytest.raises(UserError) as error:
        examine_file(tmp_path / "log.csv")
    assert error.value.code == "empty"


def test_a_lock_of_an_office_program_is_no_part(log):
    path = log()
    (path.parent / "~$log.csv").write_text("lock")
    assert examine_file(path.parent).contents.rows == N


def test_the_variant_of_an_ab_test_is_what_was_shown(tmp_path):
    """Taken for the logger of its rows, each variant would have propensities that are not its own."""
    rng = np.random.default_rng(3)
    variant = rng.choice(["A", "B"], 2_000)
    reward = (rng.random(2_000) < np.where(variant == "B", 0.3, 0.1)).astype(int)
    table = pd.DataFrame({"user_id": np.arange(2_000), "variant": variant, "propensity": 0.5, "reward": reward})
    table["new"] = (variant == "B").astype(int)
    path = tmp_path / "ab.csv"
    table.to_csv(path, index=False)
    assert examine_file(path).columns["action"] == "variant"
    estimate = only(estimate_file(path, ["new"]).records, estimator="snips")
    assert estimate["value"] == pytest.approx(reward[variant == "B"].mean())
    assert estimate["verdict_level"] == "trust"


def test_candidates_that_were_not_shown_are_no_recommendations(log):
    shown = (np.arange(N) % 3 == 0).astype(int)
    path = log(shown=shown, reward=shown * (np.arange(N) % 2))
    assert "not_shown" in codes(examine_file(path))
    assert any("'shown'" in line for line in lines_of(path))
    rewarded_elsewhere = log(shown=shown)
    assert "not_shown" not in codes(examine_file(rewarded_elsewhere))
