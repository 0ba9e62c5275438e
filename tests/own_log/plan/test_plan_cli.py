"""The command `plan`: files as people have them, what is printed, written and refused."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from recsim_mnar import plan_ab, plan_logging
from recsim_mnar.policies.mixture import read_mixture
from twins.commands import run
from twins.plan_log import made


@pytest.fixture
def shop(tmp_path):
    log = made(1500, 1)
    rng = np.random.default_rng(0)
    begin = pd.Timestamp("2026-03-01")
    days = rng.uniform(0.0, 14.0, 1500)[log["user"]]
    frame = pd.DataFrame(
        {
            "visitor": [f"v{user}" for user in log["user"]],
            "ts": (begin + pd.to_timedelta(days, unit="D")).strftime("%Y-%m-%d %H:%M:%S"),
            "pscore": log["propensity"],
            "clicks": log["reward"].astype(int),
        }
        | {name: log[name] for name in ("today", "left", "right", "both")}
    )
    path = tmp_path / "shop.csv"
    frame.to_csv(path, index=False, sep=";", decimal=",")
    return path


def test_ab_of_a_shop(shop, capsys):
    status, out, _ = run(capsys, "plan", "ab", shop, "--lift", "10%", "--target", "left", "--baseline", "today")
    assert status == 0
    plan = plan_ab(shop, "10%")
    users, weeks = plan.users_by_then / 2, 7 * -(-plan.days // 7)
    first = f"Run {plan.days:,} days ({users:,.0f} users and {plan.rows_by_then:,} decisions per arm); in whole weeks: "
    assert out.startswith(f"{first}{weeks} days.")
    assert "watched" not in out
    assert "user: visitor" in out
    assert "everybody who comes takes part" in out
    assert "after 28 days: " in out
    assert "the same precision from" in out


def test_logging_writes_a_policy(shop, capsys, tmp_path):
    out_file = tmp_path / "design.json"
    status, out, _ = run(
        capsys, "plan", "logging", shop, "--targets", "left,right,both", "--deployed", "today", "--cost", "10%",
        "--actions", 3, "--out", out_file,
    )  # fmt: skip
    assert status == 0
    plan = plan_logging(made(1500, 1), ["left", "right", "both"], deployed="today", cost="10%")
    assert dict(read_mixture(out_file)) == pytest.approx(plan.weights, rel=1e-4)
    assert "certified best of such mixtures" in out
    assert "uniform exploration over 3 actions" in out
    assert f"--policy {out_file}" in out


def test_estimate_by_finding(shop, capsys):
    status, out, _ = run(capsys, "plan", "estimate", shop, "--target", "right,left", "--rows", 50_000)
    assert status == 0
    assert "- support_unstated, caution today: " in out
    assert "no number of rows turns that" in out
    assert "verdict today: " in out
    assert "trust: no number of rows turns: " in out
    assert "from 50,000 rows: +-" in out


def test_estimate_names_the_rows_at_which_logs_are_trusted(shop, capsys):
    stated = ("--full-support", "--propensity-min", "0.3", "--reward-max", "1", "--trusted", "0.8")
    status, out, _ = run(capsys, "plan", "estimate", shop, "--target", "left", *stated)
    assert status == 0
    found = r"trust: 80 % of fresh logs from [0-9,]+ rows on \(the pilot leaves open [0-9,]+ to [0-9,]+\)"
    assert re.search(found, out)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ab", "LOG"], "give a lift"),
        (["ab", "LOG", "--lift", "5%", "--user-column", "nobody"], "nobody"),
        (["ab", "missing.csv", "--lift", "5%"], "missing.csv"),
        (["logging", "LOG", "--targets", "left", "--cost", "2%", "--out", "x.txt"], "ends in .json"),
        (["logging", "LOG", "--targets", "left"], "name a width"),
        (["estimate", "LOG", "--target", "gone"], "no column 'gone'"),
        (["estimate", "LOG", "--target", "left,right", "--unsupported", "today"], "one target at a time"),
    ],
)
def test_bad_input_is_one_line(shop, capsys, arguments, said):
    status, out, err = run(capsys, "plan", *[shop if each == "LOG" else each for each in arguments])
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1


def test_a_log_without_users(shop, capsys, tmp_path):
    frame = pd.read_csv(shop, sep=";", decimal=",").drop(columns="visitor")
    frame.to_csv(tmp_path / "anonymous.csv", index=False)
    status, _, err = run(capsys, "plan", "ab", tmp_path / "anonymous.csv", "--lift", "5%")
    assert status == 2
    assert "no users" in err
