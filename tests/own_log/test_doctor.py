"""The fields of doctor on clean files and on files with planted faults, and the lines that it prints to be typed."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.own_log.doctor import Asked, examine_file
from toys import read_json
from twins.commands import done, fails, run, status_of
from twins.findings import advice_of, codes, finding, fitting_lines

N_USERS, PER_USER, N = 200, 10, 2000
LOGGING = np.array([0.4, 0.3, 0.2, 0.1])
SIMULATE = ("simulate", "--world", "sessions", "--preset", "quick")


@pytest.fixture
def frame():
    """A clean log of four actions: each user's rows at distinct seconds; a target that sums to 1."""
    return pd.DataFrame(base())


@pytest.fixture
def examine(tmp_path):
    """Examine a table that is written into a CSV file."""

    def examine_table(frame, *, separator=",", decimal=".", **asked):
        path = tmp_path / "a log, with spaces.csv"
        frame.to_csv(path, index=False, sep=separator, decimal=decimal)
        return examine_file(path, Asked(**asked))

    return examine_table


def assert_lines_run(examination, capsys, *, of_compare=()):
    """Every line that fits ends with 0 when it is typed as it stands, and every other one gives a reason."""
    for fit in advice_of(examination).values():
        if not fit.fits:
            assert fit.says
            continue
        program, *words = shlex.split(fit.line)
        assert program == "recsim-mnar"
        done(capsys, *words, *(of_compare if words[0] == "compare" else ()))


# ------------------------------------------------------------------------------------------------------ bandit logs


def test_a_clean_file(frame, examine, capsys):
    examination = examine(frame)
    facts = examination.facts
    assert examination.kind == "bandit log"
    assert examination.columns.names == {
        "reward": "clicks",
        "propensity": "pscore",
        "user": "user_id",
        "action": "arm",
        "time": "served_at",
    }
    assert examination.targets == ("target_new",)
    assert [facts[key] for key in ("rows", "users", "actions", "duplicates", "missing")] == [N, N_USERS, 4, 0, {}]
    assert facts["rows_of_a_user"] == {"median": PER_USER, "most": PER_USER}
    assert (facts["time"]["from"], facts["time"]["to"]) == ("2026-03-01 10:00", "2026-03-28 10:59")
    assert facts["propensity"] == {"least": 0.1, "largest": 0.4, "impossible": 0}
    assert codes(examination) == set()
    assert set(fitting_lines(examination)) == {"estimate", "plan ab"}
    assert_lines_run(examination, capsys)


def test_missing_values_and_duplicates_are_counted(frame, examine, capsys):
    """Semicolons and decimal commas; missing clicks and propensities are in rows of their own."""
    frame.loc[100:116, "clicks"] = np.nan
    frame.loc[300:304, "pscore"] = np.nan
    examination = examine(pd.concat([frame, frame[1000:1023]]), separator=";", decimal=",")
    facts = examination.facts
    assert examination.written == ["separated by semicolons", "decimal commas"]
    assert facts["rows"] == N + 23
    assert facts["missing"] == {"pscore": 5, "clicks": 17}
    assert facts["duplicates"] == 23
    assert codes(examination) == {"missing", "duplicates"}
    assert f"rows {N + 1}, {N + 2}, {N + 3}, ..." in finding(examination, "duplicates").message
    assert_lines_run(examination, capsys)


def test_values_that_are_no_numbers_and_no_dates(frame, examine):
    frame = frame.astype(object)
    frame.loc[4:5, "clicks"] = ["perhaps", "never"]
    frame.loc[6, "pscore"] = "inf"
    frame.loc[0, "served_at"] = "yesterday"
    examination = examine(frame)
    messages = {(problem.code, problem.columns): problem.message for problem in examination.problems}
    assert "2 rows (5: perhaps, 6: never)" in messages["not_a_number", ("clicks",)]
    assert "row 7" in messages["not_finite", ("pscore",)]
    assert "row 1: yesterday" in messages["not_a_date", ("served_at",)]
    assert examination.facts["missing"] == {}
    assert fitting_lines(examination) == {}


@pytest.mark.parametrize(
    ("column", "rows", "advice"),
    [
        (lambda p: 100 * p, "2,000 rows", "divide them by 100"),
        (lambda p: np.where(np.arange(N) == 7, 0.0, p), "row 8: 0", "give the probability"),
        (lambda p: np.where(np.arange(N) == 7, 13.9, p), "row 8: 13.9", "give the probability"),
    ],
    ids=["per cent", "zero", "above 1"],
)
def test_impossible_propensities(frame, examine, column, rows, advice):
    examination = examine(frame.assign(pscore=column(frame.pscore)))
    problem = finding(examination, "outside")
    assert rows in problem.message
    assert advice in problem.advice
    assert examination.facts["propensity"]["impossible"] == (N if "," in rows else 1)
    assert fitting_lines(examination) == {}


def test_a_deterministic_log_of_loggers_without_users_in_parquet(frame, tmp_path, capsys):
    table = pa.table(
        {
            "action": pa.array(frame.arm).dictionary_encode(),
            "reward": pa.array(frame.clicks).cast(pa.decimal128(22, 2)),
            "propensity": np.ones(N),
            "policy_id": ["old", "new"] * (N // 2),
        }
    )
    pq.write_table(table, tmp_path / "f.parquet")
    examination = examine_file(tmp_path / "f.parquet")
    assert "no_exploration" in codes(examination)
    assert [examination.facts[key] for key in ("actions", "loggers", "users", "time")] == [4, 2, None, None]
    assert_lines_run(examination, capsys)


def test_without_propensities(frame, examine, capsys):
    frame = frame.drop(columns="pscore")
    examination = examine(frame, targets=["target_new"])
    assert examination.kind == "bandit log"
    assert examination.facts["propensity"] is None
    assert_lines_run(examination, capsys)
    for columns in ({}, {"propensity": "none"}):  # the name is usual for a target
        without = examine(frame, columns=columns)
        assert without.targets == ("target_new",)
        fit = advice_of(without)["estimate"]
        assert fit.fits
        assert "--target target_new --baseline today" in fit.line
    fit = advice_of(examine(frame.drop(columns="target_new")))["estimate"]
    assert not fit.fits
    assert "--target" in fit.says


@pytest.mark.parametrize(("separator", "decimal"), [(",", "."), (";", ",")])
def test_a_column_that_looks_like_a_target_is_named(frame, examine, separator, decimal):
    frame = frame.rename(columns={"target_new": "model_b"}).assign(price=np.arange(N, dtype=float), flag=frame.clicks)
    likely = finding(examine(frame, separator=separator, decimal=decimal), "maybe_target")
    assert (likely.level, likely.columns) == ("note", ("model_b",))
    named = examine(frame, separator=separator, decimal=decimal, targets=["model_b"])
    assert "maybe_target" not in codes(named)


def test_of_several_columns_that_may_be_propensities_one_is_to_be_named(frame, examine):
    frame = frame.rename(columns={"pscore": "p_alt", "target_new": "p_neu", "clicks": "Umsatz"})
    examination = examine(frame)
    assert examination.guesses == {"reward": "Umsatz"}
    assert examination.columns.unclear["propensity"] == ("p_alt", "p_neu")
    named = examine(frame, columns={"propensity": "p_alt", "reward": "Umsatz"})
    assert "--target p_neu --baseline today" in advice_of(named)["estimate"].line


def base(seed=0):
    """The columns of a clean log of four actions as lists."""
    rng = np.random.default_rng(seed)
    action = rng.choice(4, N, p=LOGGING)
    action[:4] = range(4)
    return {
        "user_id": [f"u{i // PER_USER:04}" for i in range(N)],
        "served_at": [f"2026-03-{1 + i * 28 // N:02} 10:{i % 60:02}:{i // 60 % 60:02}" for i in range(N)],
        "arm": [f"a{k}" for k in action],
        "pscore": LOGGING[action].tolist(),
        "clicks": (rng.random(N) < 0.1 + 0.1 * action).astype(int).tolist(),
        "target_new": np.array([0.1, 0.2, 0.3, 0.4])[action].tolist(),
    }


def write(path, data, separator=",", decimal="."):
    pd.DataFrame(data).to_csv(path, sep=separator, decimal=decimal, index=False)
    return path


def test_why_there_is_no_line_to_type_is_what_a_command_lacks(tmp_path, capsys):
    data = base()
    for name in ("pscore", "target_new"):
        del data[name]
    _, out, _ = run(capsys, "doctor", write(tmp_path / "f.csv", data))
    (line,) = [line for line in out.splitlines() if line.startswith("No line to type yet")]
    assert "--target" in line


@pytest.mark.parametrize("mark", [".", ","])
def test_a_decimal_mark_that_is_stated_stands_in_the_line_to_type(tmp_path, mark):
    path = tmp_path / "log.csv"
    path.write_text("user_id;action;propensity;reward;new\n1;a;1;1.250;1\n2;a;1;3;1\n3;a;1;2.300;1\n")
    with pytest.raises(UserError) as caught:
        examine_file(path)
    assert caught.value.code == "unclear_numbers"
    line = next(iter(fitting_lines(examine_file(path, Asked(decimal=mark))).values()))
    assert line.endswith(f"--decimal {mark}")


# ------------------------------------------------------------------------------------------------------ other files


def test_interactions_with_repeats(save, tmp_path, capsys):
    rng = np.random.default_rng(0)
    items = np.concatenate([rng.permutation(30)[:8] for _ in range(40)])
    views = pd.DataFrame({"customer_id": [f"k{i // 8}" for i in range(320)], "product_id": items})
    views["timestamp"] = 881250949 + np.arange(320)
    later = views[5:6].assign(timestamp=views.timestamp[5] + 7)
    views = pd.concat([views, views[3:5], later])
    path = save(views, "one.csv")
    examination = examine_file(path)
    facts = examination.facts
    assert examination.kind == "interactions"
    assert (facts["rows"], facts["users"], facts["items"]) == (323, 40, views.product_id.nunique())
    assert facts["duplicates"] == 2
    assert set(fitting_lines(examination)) == {"compare --interactions"}
    few = ("--agents", "random,popularity", "--option", "folds=1", "--out", str(tmp_path / "out"))
    assert_lines_run(examination, capsys, of_compare=few)


def test_one_of_two_columns_of_times_is_to_be_named(tmp_path):
    times = 881250949 + np.arange(20)
    views = {"customer_id": np.arange(20) // 4, "product_id": np.arange(20) % 7, "timestamp": times}
    path = tmp_path / "two.csv"
    pd.DataFrame(views | {"created_at": times}).to_csv(path, index=False)
    unclear = examine_file(path)
    assert unclear.facts["time"] is None
    assert unclear.columns.unclear == {"time": ("timestamp", "created_at")}
    named = examine_file(path, Asked({"time": "created_at"}))
    assert named.facts["time"]["first"] == 881250949
    assert fitting_lines(named)["compare --interactions"].endswith("--time-column created_at")


def test_a_log_of_ours(tmp_path, capsys, monkeypatch):
    """Organic rows miss no propensity; it can be replayed."""
    logging = ("--policy", "constant+item=3", "--users", 30, "--out", tmp_path / "log")
    assert status_of(*SIMULATE, *logging) == 0
    examination = examine_file(tmp_path / "log")
    facts = examination.facts
    assert examination.ours
    assert facts["bandit_rows"] + facts["organic_rows"] == facts["rows"]
    assert facts["actions"] == 1
    assert facts["missing"] == {}
    assert "no_exploration" in codes(examination)
    assert set(fitting_lines(examination)) == {"estimate", "plan ab", "replay"}
    monkeypatch.chdir(tmp_path)
    assert_lines_run(examination, capsys)
    replayed = examine_file(tmp_path / "replayed.parquet")
    assert replayed.targets == ("user-popularity",)
    assert replayed.facts["missing"] == {}


def test_a_damaged_log_of_ours_is_named(tmp_path):
    assert status_of(*SIMULATE, "--policy", "random", "--users", 20, "--out", tmp_path / "run") == 0
    (part,) = (tmp_path / "run" / "log").glob("part-*")
    content = bytearray(part.read_bytes())
    content[500] ^= 1
    part.write_bytes(content)
    with pytest.raises(UserError, match=f"{part.name} is not what index.json lists"):
        examine_file(tmp_path / "run")


@pytest.mark.parametrize("by_word", [False, True])
def test_views_and_recommendations_in_one_file(frame, examine, tmp_path, capsys, monkeypatch, by_word):
    """A column each for the items of views and of recommendations, or one column and a word for the kind of row."""
    shown = np.arange(N) % 3 > 0
    frame = frame.drop(columns="target_new")
    frame.loc[~shown, ["pscore", "clicks"]] = np.nan
    if by_word:
        frame["event_type"] = np.where(shown, "impression", "view")
        frame.loc[0, "event_type"] = "purchase"
    else:
        frame["item_id"] = frame.arm.mask(shown)
        frame["arm"] = frame.arm.where(shown)
    examination = examine(frame)
    facts = examination.facts
    assert (facts["bandit_rows"], facts["organic_rows"]) == (shown.sum(), (~shown).sum() - by_word)
    assert facts["other_rows"] == by_word
    assert facts["missing"] == {}
    assert codes(examination) == set()
    assert set(fitting_lines(examination)) == {"estimate", "plan ab", "replay"}
    monkeypatch.chdir(tmp_path)
    assert_lines_run(examination, capsys)


def test_an_event_column_without_recommendations(frame, examine):
    examination = examine(frame.assign(event="buy"))
    assert codes(examination) == {"no_recommendations"}
    assert fitting_lines(examination) == {}


def test_a_table_that_is_neither(examine):
    frame = pd.DataFrame({"x": [1, 2], "z": [3, 4]})
    examination = examine(frame)
    assert examination.kind == "table"
    assert fitting_lines(examination) == {}
    assert examination.others == ["x", "z"]
    with pytest.raises(UserError, match="--reward-column"):
        examine(frame, columns={"reward": "y"})


def test_a_long_file_is_examined_from_its_beginning(tmp_path, monkeypatch):
    lines = [f"{i % 30},0,0,0.5\n" for i in range(90)]
    (tmp_path / "log.csv").write_text("user_id,action,reward,propensity\n" + "".join(lines))
    for most, rows, cut in ((60, 60, True), (91, 90, False)):
        monkeypatch.setattr("recsim_mnar.own_log.doctor.MOST_EXAMINED", most)
        examination = examine_file(tmp_path / "log.csv")
        assert examination.contents.rows == rows
        assert ("first_rows" in codes(examination)) is cut


# ------------------------------------------------------------------------------------------------------ the command


def test_the_command_and_its_json(frame, tmp_path, capsys):
    file = tmp_path / "f.csv"
    frame.to_csv(file, index=False)
    out = done(capsys, "doctor", file, "--json", tmp_path / "found.json")
    assert "nothing wrong was found" in out
    assert f"  recsim-mnar estimate {file} --target target_new --baseline today\n" in out
    written = read_json(tmp_path / "found.json")
    assert written["rows"] == N
    assert written["columns"]["reward"] == {"column": "clicks", "how": "recognised"}
    assert {fit["command"] for fit in written["commands"] if fit["fits"]} == {"estimate", "plan ab"}
    assert json.loads(done(capsys, "doctor", file, "--json", "-")) == written


def test_a_problem_is_status_3(frame, save, capsys):
    """The same status as that of `check` for a broken rule."""
    path = save(frame.assign(pscore=100 * frame.pscore), "percent.csv")
    status, out, _ = run(capsys, "doctor", path, "--quiet")
    assert status == 3
    assert "! " in out


def test_columns_without_a_file_are_refused(capsys):
    assert "needs FILE" in fails(capsys, "doctor", "--user-column", "x")
