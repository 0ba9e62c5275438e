"""What Python users get of a file: errors that name arguments, the same statements for each function, and a frame."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

from recsim_mnar import estimate_file, plan_ab
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.verdict import as_arguments, for_command
from twins.commands import run

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


@pytest.mark.parametrize("call", [lambda log: plan_ab(log, "10%"), lambda log: estimate_file(log, "new")])
def test_errors_name_arguments_in_python_and_options_on_the_command_line(call, log, capsys):
    with pytest.raises(UserError) as caught:
        call(log)
    message = str(caught.value)
    assert "drop_missing=True" in message
    assert "deduplicate=True" in message
    assert "--" not in message
    typed = run(capsys, "plan", "ab", log, "--lift", "10%")[2]
    assert for_command(caught.value.args[0]) in typed
    assert "--drop-missing" in typed


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("add --drop-invalid 0.3 to count", "add drop_invalid=0.3 to count"),
        ("name it with --user-column", 'name it with columns={"user": NAME}'),
        ("or add --weight-column none", 'or add columns={"weight": "none"}'),
        ("--baseline today, or name", 'baseline="today", or name'),
        ("--decimal . or --decimal ,", 'decimal="." or decimal=","'),
        ("--by country: one column", 'by="country": one column'),
        ("give --target-file FILE --on KEY", "give target_file=FILE on=KEY"),
        ("name it with --target, or --context-columns", "name it with targets, or context"),
        ("--refute: leave --refute away", "refute=True: leave refute=True away"),
        ("--require better needs --baseline", 'require="better" needs baseline'),
        ("a - b -- c /tmp/a--b.csv", "a - b -- c /tmp/a--b.csv"),
    ],
)
def test_options_as_arguments(text, arguments):
    python = as_arguments(text, target="targets", context_columns="context")
    assert python == arguments
    assert for_command(python) == text
    assert for_command(pickle.loads(pickle.dumps(copy.copy(python)))) == text


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


def test_notes_of_a_plan_name_arguments_and_its_json_options():
    plan = plan_ab(frame().drop(columns="time"), "10%")
    assert "users_per_day" in plan.notes[0]
    assert "--users-per-day" in plan.to_dict()["notes"][0]


def test_an_answer_is_short_and_has_a_frame():
    answer = estimate_file(frame(), "new", baseline="today", by="group", estimators=["ips", "snips"])
    assert len(str(answer)) < 2000
    assert repr(answer) == str(answer)
    assert "--" not in str(answer)
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


def test_records_hold_reasons_to_doubt_and_nothing_else():
    answer = estimate_file(frame(), "new", baseline="today", by="group")
    doubted = [record for record in answer.records if record["findings"]]
    assert {record["verdict_level"] for record in doubted} == {"caution"}
    assert {finding["level"] for record in answer.records for finding in record["findings"]} == {"caution"}


def test_the_terminal_shows_each_interval_that_holds(tmp_path, capsys):
    """Of two segments the value, today's and the difference; every doubt is about a row of the table."""
    frame().to_csv(tmp_path / "log.csv", index=False)
    status, out, _ = run(
        capsys, "estimate", tmp_path / "log.csv", "--target", "new", "--baseline", "today", "--by", "group"
    )
    assert status == 0
    rows = [line for line in out.splitlines() if line.startswith("│ rare") or line.startswith("│ usual")]
    assert len(rows) == 6
    assert "all 6 intervals" in out
    doubts = [line.partition(")")[0] for line in out.splitlines() if line.startswith("caution (")]
    assert len(doubts) == [line.split("│")[-2].strip() for line in rows].count("caution")
    assert set(doubts) <= {"caution (new in rare", "caution (the random traffic in rare"}
