"""The fields of doctor on clean files and on files with planted faults, and the lines that it prints to be typed."""

from __future__ import annotations

import json
import re
import shlex

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsim_mnar import estimate_file
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
    assert facts["repeats"] == frame.duplicated(["user_id", "arm"]).sum()
    assert (facts["time"]["from"], facts["time"]["to"]) == ("2026-03-01 10:00", "2026-03-28 10:59")
    none = dict.fromkeys(("zero", "negative", "above_1", "impossible"), 0)
    assert facts["propensity"] == {"least": 0.1, "largest": 0.4, "percent": False, **none}
    target, uniform = facts["mean_weight"]
    assert target["mean"] == pytest.approx(np.mean(frame.target_new / frame.pscore))
    assert uniform["mean"] == pytest.approx(np.mean(0.25 / frame.pscore))
    assert target["holds"]
    assert uniform["holds"]
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


def test_propensities_in_percent(frame, examine):
    examination = examine(frame.assign(pscore=100 * frame.pscore))
    assert examination.facts["propensity"]["percent"]
    assert examination.facts["propensity"]["above_1"] == N
    assert "divide the column by 100" in finding(examination, "propensity_above_1").advice
    assert fitting_lines(examination) == {}


def test_a_few_impossible_propensities(frame, examine):
    frame.loc[7:10, "pscore"] = [13.9, 0.0, -0.1, 0.0]
    examination = examine(frame)
    counts = {"zero": 2, "negative": 1, "above_1": 1, "impossible": 4, "percent": False}
    assert examination.facts["propensity"].items() >= counts.items()
    above = finding(examination, "propensity_above_1")
    assert "row 8: 13.9" in above.message
    assert "these are no probabilities" in above.advice  # percent only where most values are above 1
    assert "3 rows (9: 0, 10: -0.1, 11: 0)" in finding(examination, "propensity_not_positive").message
    assert fitting_lines(examination) == {}


def test_percent_that_are_all_below_1(frame, examine):
    """Each of 200 actions has half a percent: 0.5 written is possible, and a hundred times too large."""
    action = np.random.default_rng(1).permutation(np.arange(N) % 200)
    frame = frame.assign(arm=[f"a{k}" for k in action], pscore=0.5).drop(columns="target_new")
    examination = examine(frame)
    (uniform,) = examination.facts["mean_weight"]
    assert uniform["mean"] == pytest.approx(0.01)
    assert not uniform["holds"]
    assert "looks like percent" in finding(examination, "mean_weight").advice


def test_weights_whose_mean_cannot_be_1(frame, examine):
    """A target that sums to 1.5 beside one that is right; then propensities that are too small by half."""
    examination = examine(frame.assign(target_bad=1.5 * frame.target_new))
    holds = {weight["policy"]: weight["holds"] for weight in examination.facts["mean_weight"]}
    assert holds == {"target_new": True, "target_bad": False, None: True}
    examination = examine(frame.assign(pscore=frame.pscore / 2), targets=["target_new"])
    target, uniform = examination.facts["mean_weight"]
    assert not target["holds"]
    assert not uniform["holds"]
    assert uniform["mean"] == pytest.approx(2.0, abs=0.25)
    assert "mean_weight" in codes(examination, "problem")
    assert "estimate" not in fitting_lines(examination)


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


def test_nothing_to_compare(frame, examine):
    frame = frame.assign(user_id="me", served_at="2026-03-01", clicks=0, pscore=1.0).drop(columns="target_new")
    examination = examine(frame)
    assert codes(examination) >= {"one_user", "one_time", "one_reward", "no_exploration"}
    assert examination.facts["users"] == 1
    assert examination.facts["reward"] == {"least": 0.0, "largest": 0.0, "mean": 0.0}


def test_parquet_with_actions_never_shown_loggers_and_no_user(frame, tmp_path, capsys):
    table = pa.table(
        {
            "action": pa.array(frame.arm).dictionary_encode(),
            "reward": pa.array(frame.clicks).cast(pa.decimal128(22, 2)),
            "propensity": frame.pscore,
            "policy_id": ["old", "new"] * (N // 2),
        }
    )
    pq.write_table(table, tmp_path / "f.parquet")
    examination = examine_file(tmp_path / "f.parquet", Asked(n_actions=10))
    facts = examination.facts
    assert (facts["actions"], facts["actions_known"], facts["share_shown"]) == (4, 10, 0.4)
    assert facts["loggers"] == 2
    assert [facts[key] for key in ("users", "repeats", "time")] == [None, None, None]
    assert_lines_run(examination, capsys)


def test_without_propensities(frame, examine, capsys):
    frame = frame.drop(columns="pscore")
    examination = examine(frame, targets=["target_new"])
    assert examination.kind == "bandit log"
    assert examination.facts["propensity"] is None
    assert examination.facts["mean_weight"] == []
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


def typed(file, capsys, *words):
    """The command that `doctor` says to type, without its name; empty without any."""
    _, out, _ = run(capsys, "doctor", file, *words, "--json", "-")
    command = json.loads(out)["type_this"]
    return [] if command is None else shlex.split(command["line"])[1:]


def option_of(words, name):
    return words[words.index(name) + 1] if name in words else None


def neutral(order):
    """The clean log in a semicolon file's names, with columns of two policies in an order: p_alt logged the rows."""
    data = base(1)
    columns = {"p_alt": data["pscore"], "p_neu": data["target_new"]}
    rng = np.random.default_rng(2)
    columns |= {f"feature {i}": rng.uniform(0.1, 1.0, N).round(3).tolist() for i in range(8)}
    columns["rabatt"] = rng.choice([0.5, 0.6, 0.75], N).tolist()
    names = {"Kunde": data["user_id"], "Datum": data["served_at"], "Artikel": data["arm"]}
    return names | {name: columns[name] for name in order} | {"Klick": data["clicks"]}


@pytest.mark.parametrize(
    "order",
    [
        *(("p_neu", "p_alt"), ("p_alt", "p_neu"), ("rabatt", "p_alt"), ("rabatt", "p_neu", "p_alt")),
        (*(f"feature {i}" for i in range(8)), "p_alt"),
    ],
)
@pytest.mark.parametrize("without", ["", "Artikel"])
def test_the_propensities_are_the_column_that_the_rows_agree_with(tmp_path, capsys, order, without):
    data = neutral(order)
    data.pop(without, None)
    if without and {"rabatt", "feature 0"} & set(order):
        return  # nothing tells a discount from a probability where the item is not known
    file = write(tmp_path / "f.csv", data, ";", ",")
    words = typed(file, capsys)
    assert option_of(words, "--propensity-column") == "p_alt"
    assert option_of(words, "--by") is None
    if "p_neu" in order:
        assert option_of(words, "--target") == "p_neu"
        status, out, _ = run(capsys, *words, "--json", "-")
        assert status == 0
        assert {record["verdict_level"] for record in json.loads(out)} <= {"trust", "caution"}


@pytest.mark.parametrize(("logged", "new"), [("p_a", "p_b"), ("p_b", "p_a"), ("p1", "p2"), ("p_is", "p_of")])
def test_a_letter_or_a_small_word_does_not_name_the_propensities(tmp_path, capsys, logged, new):
    data = neutral(("p_alt", "p_neu"))
    first, second = sorted((logged, new))
    columns = {logged: data.pop("p_alt"), new: data.pop("p_neu")}
    words = typed(write(tmp_path / "f.csv", data | {second: columns[second], first: columns[first]}), capsys)
    assert option_of(words, "--propensity-column") == logged


def test_the_first_of_two_columns_that_pass_is_a_guess(tmp_path, capsys):
    data = neutral(("p_alt",)) | {"p_neu": neutral(("p_alt",))["p_alt"]}
    file = write(tmp_path / "f.csv", data, ";", ",")
    assert option_of(typed(file, capsys), "--propensity-column") == "p_alt"
    problems = examine_file(file).problems
    (unclear,) = [problem for problem in problems if problem.code == "unclear" and "p_alt" in problem.columns]
    assert unclear.columns == ("p_alt", "p_neu")
    assert "p_alt is a mere guess" in str(unclear)


def test_a_column_of_probabilities_is_no_segment(tmp_path):
    file = write(tmp_path / "f.csv", neutral(("p_alt", "p_neu")) | {"Land": ["DE", "AT"] * (N // 2)}, ";", ",")
    found = examine_file(file, Asked({"propensity": "p_alt", "reward": "Klick"}))
    assert found.segments == ["Land"]


def without_propensities(**more):
    """A log whose policy depends on the device, with a new policy's probabilities and no propensities."""
    rng = np.random.default_rng(4)
    data = base(4)
    device = rng.integers(0, 2, N)
    logging = np.array([LOGGING, LOGGING[::-1]])
    action = (rng.random(N)[:, None] > logging.cumsum(axis=1)[device]).sum(axis=1).clip(0, 3)
    target = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])
    data |= {
        "arm": [f"a{k}" for k in action],
        "clicks": (rng.random(N) < 0.1 + 0.1 * action).astype(int).tolist(),
        "device": [("phone", "tablet")[k] for k in device],
        "new_prob": target[device, action].tolist(),
        "category": [f"c{k % 2}" for k in action],
    }
    data["result"] = ["win" if click else "none" for click in data["clicks"]]
    for name in ("pscore", "target_new"):
        del data[name]
    return data | more


@pytest.mark.parametrize("name", ["new_prob", "candidate_probability", "p_neu"])
@pytest.mark.parametrize("more", [(), ("--propensity-column", "none")])
def test_propensities_are_estimated_within_the_columns_that_look_like_context(tmp_path, capsys, name, more):
    """Neither what the item tells nor what tells the reward is context; a neutral name is disproved by the rows."""
    data = without_propensities()
    data[name] = data.pop("new_prob")
    words = typed(write(tmp_path / "f.csv", data), capsys, *more)
    assert option_of(words, "--target") == name
    assert option_of(words, "--baseline") == "today"
    assert option_of(words, "--context-columns") == "device"
    assert option_of(words, "--propensity-column") in (None, "none")
    status, out, _ = run(capsys, *words, "--json", "-")
    assert status == 0
    assert {record["verdict_level"] for record in json.loads(out)} <= {"trust", "caution"}


def test_too_many_values_for_the_rows_are_no_context(tmp_path):
    data = without_propensities(city=[f"town {i % 25}" for i in range(N)], area=["south", "north"] * (N // 2))
    assert examine_file(write(tmp_path / "f.csv", data)).context == ["device", "area"]


def test_why_there_is_no_line_to_type_is_what_a_command_lacks(tmp_path, capsys):
    data = base()
    for name in ("pscore", "target_new"):
        del data[name]
    _, out, _ = run(capsys, "doctor", write(tmp_path / "f.csv", data))
    (line,) = [line for line in out.splitlines() if line.startswith("No line to type yet")]
    assert "--target" in line


@pytest.mark.parametrize("sign", [" EUR", "€", " USD"])
def test_an_amount_of_money_may_be_the_reward(tmp_path, capsys, sign):
    data = neutral(("p_alt", "p_neu"))
    amounts = [f"{7.5 * click + 0.25:.2f}{sign}".replace(".", ",") for click in data["Klick"]]
    problems = examine_file(write(tmp_path / "f.csv", data | {"Umsatz": amounts}, ";", ",")).problems
    assert ("Klick", "Umsatz") in [problem.columns for problem in problems if problem.code == "unclear"]
    del data["Klick"]
    file = write(tmp_path / "f.csv", data | {"Umsatz": amounts, "Umsatz_id": list(range(N))}, ";", ",")
    words = typed(file, capsys)
    assert option_of(words, "--reward-column") == "Umsatz"
    assert run(capsys, *words)[0] == 0


def test_the_smallest_propensity_is_one_number(tmp_path, capsys):
    data = base()
    data["pscore"] = [value * 0.9816667 for value in data["pscore"]]
    _, out, _ = run(capsys, "doctor", write(tmp_path / "f.csv", data))
    (of_fact,) = re.findall(r"propensities +([0-9.]+) to", out)
    (of_advice,) = set(re.findall(r"smallest in this log is ([0-9.]+)", out))
    assert of_fact == of_advice
    assert 0.0 < min(data["pscore"]) - float(of_fact) < 1e-4


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("logged", [False, True])
def test_chance_makes_as_many_rows_equal_for_doctor_as_for_estimate(tmp_path, views, logged):
    rng = np.random.default_rng(7)
    data = base(7)
    data["user_id"] = [f"u{i // 100:02}" for i in range(N)]
    data["served_at"] = [each[:10] for each in data["served_at"]]
    data["new_prob"] = data.pop("target_new")
    if not logged:
        del data["pscore"]
    if views:
        data["event"] = np.where(rng.random(N) < 0.5, "organic", "bandit").tolist()
        for name in {"pscore", "new_prob", "clicks"} & set(data):
            data[name] = [
                None if event == "organic" else value for value, event in zip(data[name], data["event"], strict=True)
            ]
    file = write(tmp_path / "f.csv", data)
    (line,) = [line for line in estimate_file(file, "new_prob").found.lines if "repeat an earlier row" in line]
    counts = [int(number.replace(",", "")) for number in re.findall(r"[0-9][0-9,]*", line)]
    examined = examine_file(file)
    problem = finding(examined, "duplicates")
    assert counts[0] == examined.contents.duplicates > 0
    assert counts[1] == int(re.search(r"chance makes some ([0-9,]+)", str(problem))[1].replace(",", "")) > 0


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
    assert (facts["duplicates"], facts["repeats"]) == (2, 3)
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
    """Its world knows how many items there are; organic rows miss no propensity; it can be replayed."""
    logging = ("--policy", "constant+item=3", "--users", 30, "--out", tmp_path / "log")
    assert status_of(*SIMULATE, *logging) == 0
    examination = examine_file(tmp_path / "log")
    facts = examination.facts
    assert examination.ours
    assert facts["bandit_rows"] + facts["organic_rows"] == facts["rows"]
    assert (facts["actions"], facts["actions_known"], facts["share_shown"]) == (1, 200, 1 / 200)
    assert facts["missing"] == {}
    assert "no_exploration" in codes(examination)
    assert set(fitting_lines(examination)) == {"estimate", "plan ab", "replay"}
    monkeypatch.chdir(tmp_path)
    assert_lines_run(examination, capsys)
    assert "all are what their receipts say" in facts["receipts"]
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


@pytest.mark.parametrize(
    ("words", "message"), [(["--user-column", "x"], "needs FILE"), (["f.csv", "--actions", "0"], "--actions must be")]
)
def test_wrong_calls_of_the_command(capsys, words, message):
    assert message in fails(capsys, "doctor", *words)
