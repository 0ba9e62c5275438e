"""The command `plan`: files as people have them, what is printed, written and refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from recsim_mnar import plan_ab
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
    status, out, _ = run(capsys, "plan", "ab", shop, "--lift", "10%")
    assert status == 0
    plan = plan_ab(shop, "10%")
    users, weeks = plan.users_by_then / 2, 7 * -(-plan.days // 7)
    first = f"Run {plan.days:,} days ({users:,.0f} users and {plan.rows_by_then:,} decisions per arm); in whole weeks: "
    assert out.startswith(f"{first}{weeks} days.")
    assert "watched" not in out
    assert "user: visitor" in out
    assert "everybody who comes takes part" in out
