"""What Python users get of a file: the same statements for each function, a short answer, and a frame."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from recsim_mnar import estimate_file, plan_ab
from recsim_mnar.errors import UserError

N = 3000


def frame() -> pd.DataFrame:
    """Rows of a uniform logger over four items, five rows a user, on ten days, in two groups of users."""
    rng = np.random.default_rng(5)
    items = rng.integers(0, 4, N)
    user = np.arange(N) // 5
    return pd.DataFrame(
        {
            "user": user,
            "item": items,
            "propensity": 0.25,
            "clicks": (rng.random(N) < 0.1 + 0.1 * items).astype(float),
            "new": np.where(items == 3, 0.7, 0.1),
            "group": np.where(user % 6 == 0, "rare", "usual"),
            "time": pd.Timestamp("2026-05-01") + pd.to_timedelta(rng.integers(0, 240, N), unit="h"),
        }
    )


@pytest.fixture
def log(tmp_path):
    rows = frame()
    rows.loc[7, "clicks"] = np.nan
    path = tmp_path / "log.csv"
    pd.concat([rows, rows.iloc[100:140]]).to_csv(path, index=False)
    return path


def test_a_plan_takes_the_statements_of_an_estimate(log):
    kept = plan_ab(log, "10%", drop_missing=True)
    fewer = plan_ab(log, "10%", drop_missing=True, deduplicate=True)
    assert (kept.log_users, kept.rows >= fewer.rows) == (N // 5, True)
    rows = pd.read_csv(log, parse_dates=["time"])
    in_memory = plan_ab(rows, "10%", drop_missing=True, deduplicate=True)
    columns = {name: rows[name].to_numpy() for name in rows}
    by_name = plan_ab(columns, "10%", drop_missing=True, deduplicate=True)
    assert fewer.users == in_memory.users == by_name.users != kept.users
    assert any("the table in memory" in line for line in in_memory.reading)
    for wrong in ({"drop_mising": True}, {"columns": {"usr": "user"}}):
        with pytest.raises(UserError, match="did you mean"):
            plan_ab(log, "10%", **wrong)


def test_an_answer_is_short_and_has_a_frame():
    answer = estimate_file(frame(), "new", baseline="today", by="group", estimators=["ips", "snips"])
    assert len(str(answer)) < 2000
    assert repr(answer) == str(answer)
    table = answer.frame()
    assert list(table) == [
        *("policy", "estimator", "value", "low", "high", "verdict_level", "role", "leads", "by", "segment"),
    ]
    assert table.value.tolist() == [record["value"] for record in answer.records]
    leaders = table[table.leads & (table.role == "difference")]
    assert leaders.segment.fillna("all").tolist() == ["all", "usual", "rare"]
    assert set(leaders.estimator) == {"snips"}
    alone = estimate_file(frame(), "new")
    assert "segment" not in alone.frame()
    assert alone.frame().shape == (2, 8)
