"""Every field of the doctor on files with planted faults, on clean ones, and the lines that it says to type."""

from __future__ import annotations

import json
import re
import shlex

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsim_mnar import estimate_file
from recsim_mnar.errors import UserError
from recsim_mnar.own_log.doctor import Asked, examine_file
from recsim_mnar.own_log.doctor_commands import commands_for
from twins.commands import run, status_of
from twins.findings import codes, finding

N_USERS, PER_USER, N = 200, 10, 2000
LOGGING = np.array([0.4, 0.3, 0.2, 0.1])


def base(seed=0):
    """A clean log of four actions: each user's rows at distinct seconds; a target that sums to 1."""
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
    def text(value):
        if value is None:
            return ""
        return str(value).replace(".", decimal) if isinstance(value, float) else str(value)

    lines = [separator.join(data), *(separator.join(map(text, row)) for row in zip(*data.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def facts_of(path, **asked):
    found = examine_file(path, Asked(**asked))
    return found, found.facts


def fits(found):
    return {fit.command for fit in commands_for(found) if fit.fits}


def runs(found, capsys, *, more=()):
    """Every line that is said to fit, typed as it stands (``more`` behind that of compare): they end with 0."""
    for fit in commands_for(found):
        if not fit.fits:
            assert fit.says
            continue
        program, *words = shlex.split(fit.line)
        assert program == "recsim-mnar"
        status, _, err = run(capsys, *words, *(more if words[0] == "compare" else ()))
        assert status == 0, f"{fit.line}: {err}"


def test_1_a_clean_file(tmp_path, capsys):
    found, facts = facts_of(write(tmp_path / "a log, with spaces.csv", base()))
    assert found.kind == "bandit log"
    assert found.columns.names == {
        "reward": "clicks", "propensity": "pscore", "user": "user_id", "action": "arm", "time": "served_at",
    }  # fmt: skip
    assert found.targets == ("target_new",)
    assert [facts[k] for k in ("rows", "users", "actions", "duplicates", "missing")] == [N, N_USERS, 4, 0, {}]
    assert facts["rows_of_a_user"] == {"median": PER_USER, "most": PER_USER}
    data = base()
    assert facts["repeats"] == N - len(set(zip(data["user_id"], data["arm"], strict=True)))
    assert (facts["time"]["from"], facts["time"]["to"]) == ("2026-03-01 10:00", "2026-03-28 10:59")
    assert facts["propensity"] == {
        "least": 0.1, "largest": 0.4, "zero": 0, "negative": 0, "above_1": 0, "impossible": 0, "percent": False,
    }  # fmt: skip
    target, uniform = facts["mean_weight"]
    weights = np.array(data["target_new"]) / np.array(data["pscore"])
    assert target["mean"] == pytest.approx(weights.mean())
    assert uniform["mean"] == pytest.approx(np.mean(0.25 / np.array(data["pscore"])))
    assert target["holds"]
    assert uniform["holds"]
    assert codes(found) == set()
    assert fits(found) == {"estimate", "plan ab"}
    runs(found, capsys)


def test_2_a_shops_file_with_missing_values_and_duplicates(tmp_path, capsys):
    """Semicolons, decimal commas; 17 clicks and 5 propensities missing in rows of their own, 23 rows said twice."""
    data = base()
    for row in range(17):
        data["clicks"][100 + row] = None
    for row in range(5):
        data["pscore"][300 + row] = None
    data = {name: values + values[1000:1023] for name, values in data.items()}
    found, facts = facts_of(write(tmp_path / "shop.csv", data, ";", ","))
    assert found.written == ["separated by semicolons", "decimal commas"]
    assert facts["rows"] == N + 23
    assert facts["missing"] == {"pscore": 5, "clicks": 17}
    assert facts["duplicates"] == 23
    assert codes(found) == {"missing", "duplicates"}
    said = finding(found, "duplicates")
    assert "23 rows" in said.message
    assert f"rows {N + 1}, {N + 2}, {N + 3}, ..." in said.message
    runs(found, capsys)


def test_3_percent(tmp_path):
    data = base()
    data["pscore"] = [100 * p for p in data["pscore"]]
    found, facts = facts_of(write(tmp_path / "f.csv", data))
    assert facts["propensity"]["percent"]
    assert facts["propensity"]["above_1"] == N
    said = finding(found, "propensity_above_1")
    assert "divide the column by 100" in said.advice
    assert fits(found) == set()


def test_4_a_few_impossible_propensities(tmp_path):
    data = base()
    data["pscore"][7], data["pscore"][8], data["pscore"][9], data["pscore"][10] = 13.9, 0.0, -0.1, 0.0
    found, facts = facts_of(write(tmp_path / "f.csv", data))
    assert facts["propensity"] | {"zero": 2, "negative": 1, "above_1": 1, "impossible": 4} == facts["propensity"]
    assert not facts["propensity"]["percent"]
    above, low = (finding(found, code) for code in ("propensity_above_1", "propensity_not_positive"))
    assert "row 8: 13.9" in above.message
    assert "these are no probabilities" in above.advice  # percent only where most values are above 1
    assert "3 rows (9: 0, 10: -0.1, 11: 0)" in low.message
    assert fits(found) == set()


def test_5_percent_that_are_all_below_1(tmp_path):
    """Of 200 actions each has half a percent: 0.5 written is possible, and a hundred times too large."""
    rng = np.random.default_rng(1)
    data = base()
    data["arm"] = [f"a{k}" for k in rng.permutation(np.arange(N) % 200)]
    data["pscore"] = [0.5] * N
    del data["target_new"]
    found, facts = facts_of(write(tmp_path / "f.csv", data))
    (uniform,) = facts["mean_weight"]
    assert uniform["mean"] == pytest.approx(0.01)
    assert not uniform["holds"]
    said = finding(found, "mean_weight")
    assert "looks like percent" in said.advice


def test_6_weights_whose_mean_cannot_be_1(tmp_path, capsys):
    """A target that sums to 1.5, and one that is right; propensities that are too small by half."""
    data = base()
    data["target_bad"] = [1.5 * t for t in data["target_new"]]
    found, facts = facts_of(write(tmp_path / "f.csv", data))
    holds = {each["policy"]: each["holds"] for each in facts["mean_weight"]}
    assert holds == {"target_new": True, "target_bad": False, None: True}
    data["pscore"] = [p / 2 for p in data["pscore"]]
    found, facts = facts_of(write(tmp_path / "g.csv", data), targets=["target_new"])
    assert [each["holds"] for each in facts["mean_weight"]] == [False, False]
    assert facts["mean_weight"][1]["mean"] == pytest.approx(2.0, abs=0.25)
    assert "mean_weight" in codes(found, "problem")
    said = " ".join(map(str, found.problems))
    assert "either 'pscore' or 'target_new' is not the probability of the item shown" in said
    assert "estimate" not in fits(found)


def test_7_interactions_with_repeats_and_two_times(tmp_path, capsys):
    rng = np.random.default_rng(0)
    items = np.concatenate([rng.permutation(30)[:8] for _ in range(40)]).tolist()
    rows = [(f"k{i // 8}", item, 881250949 + i) for i, item in enumerate(items)]
    rows += [rows[3], rows[4], (rows[5][0], rows[5][1], rows[5][2] + 7)]
    data = dict(zip(("customer_id", "product_id", "timestamp"), map(list, zip(*rows, strict=True)), strict=True))
    file = write(tmp_path / "met.csv", data)
    found, facts = facts_of(file)
    assert found.kind == "interactions"
    assert (facts["rows"], facts["users"], facts["items"]) == (323, 40, len(set(data["product_id"])))
    assert (facts["duplicates"], facts["repeats"]) == (2, 3)
    assert fits(found) == {"compare --interactions"}
    more = ("--agents", "random,popularity", "--option", "folds=1", "--out", str(tmp_path / "out"))
    runs(found, capsys, more=more)
    data["created_at"] = data["timestamp"]
    found, facts = facts_of(write(tmp_path / "two.csv", data))
    assert facts["time"] is None
    assert found.columns.unclear == {"time": ("timestamp", "created_at")}
    named, facts = facts_of(tmp_path / "two.csv", columns={"time": "created_at"})
    assert facts["time"]["first"] == 881250949
    (fit,) = [fit for fit in commands_for(named) if fit.fits]
    assert fit.line.endswith("--time-column created_at")


def test_8_values_that_are_no_numbers_and_no_dates(tmp_path):
    data = base()
    data["clicks"][4], data["clicks"][5] = "perhaps", "never"
    data["pscore"][6] = "inf"
    data["served_at"][0] = "yesterday"
    found, facts = facts_of(write(tmp_path / "f.csv", data))
    counted = {(problem.code, problem.columns): problem.message for problem in found.problems}
    assert "2 rows (5: perhaps, 6: never)" in counted["not_a_number", ("clicks",)]
    assert "row 7" in counted["not_finite", ("pscore",)]
    assert "row 1: yesterday" in counted["not_a_date", ("served_at",)]
    assert facts["missing"] == {}
    assert fits(found) == set()


def test_9_nothing_to_compare(tmp_path):
    """One user, one time, one reward, no exploration."""
    data = base()
    data |= {"user_id": ["me"] * N, "served_at": ["2026-03-01"] * N, "clicks": [0] * N, "pscore": [1.0] * N}
    del data["target_new"]
    found, facts = facts_of(write(tmp_path / "f.csv", data))
    assert codes(found) >= {"one_user", "one_time", "one_reward", "no_exploration"}
    assert facts["users"] == 1
    assert facts["reward"] == {"least": 0.0, "largest": 0.0, "mean": 0.0}


def test_10_parquet_with_actions_never_shown_loggers_and_no_user(tmp_path, capsys):
    data = base()
    table = pa.table({
        "action": pa.array(data["arm"]).dictionary_encode(),
        "reward": pa.array(data["clicks"]).cast(pa.decimal128(22, 2)),
        "propensity": data["pscore"],
        "policy_id": ["old", "new"] * (N // 2),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "f.parquet")
    found, facts = facts_of(tmp_path / "f.parquet", n_actions=10)
    assert (facts["actions"], facts["actions_known"], facts["share_shown"]) == (4, 10, 0.4)
    assert facts["loggers"] == 2
    assert facts["users"] is None
    assert facts["repeats"] is None
    assert facts["time"] is None
    runs(found, capsys)


def test_11_a_log_of_ours(tmp_path, capsys, monkeypatch):
    """Its world says how many items there are; organic rows miss no propensity; it can be replayed."""
    quick = ("simulate", "--world", "sessions", "--preset", "quick", "--policy", "constant+item=3", "--users", 30)
    assert status_of(*quick, "--out", tmp_path / "log") == 0
    found, facts = facts_of(tmp_path / "log")
    assert found.ours
    assert facts["bandit_rows"] + facts["organic_rows"] == facts["rows"]
    assert (facts["actions"], facts["actions_known"], facts["share_shown"]) == (1, 200, 1 / 200)
    assert facts["missing"] == {}
    assert "no_exploration" in codes(found)
    assert fits(found) == {"estimate", "plan ab", "replay"}
    monkeypatch.chdir(tmp_path)
    runs(found, capsys)
    assert "all are what their receipts say" in facts["receipts"]
    found, facts = facts_of(tmp_path / "replayed.parquet")
    assert found.targets == ("user-popularity",)
    assert facts["missing"] == {}


def test_a_damaged_log_of_ours_is_named(tmp_path):
    quick = ("simulate", "--world", "sessions", "--preset", "quick", "--policy", "random", "--users", 20)
    assert status_of(*quick, "--out", tmp_path / "run") == 0
    (part,) = (tmp_path / "run" / "log").glob("part-*")
    whole = part.read_bytes()
    part.write_bytes(whole[:500] + bytes([whole[500] ^ 1]) + whole[501:])
    with pytest.raises(UserError, match=f"{part.name} is not what index.json lists"):
        examine_file(tmp_path / "run")


@pytest.mark.parametrize("by_word", [False, True])
def test_views_and_recommendations_in_one_file(tmp_path, capsys, monkeypatch, by_word):
    """A column each for what was met and shown, or one column and a word for what it was."""
    data = base()
    shown = np.arange(N) % 3 > 0
    data["pscore"] = [p if s else None for p, s in zip(data["pscore"], shown, strict=True)]
    data["clicks"] = [c if s else None for c, s in zip(data["clicks"], shown, strict=True)]
    del data["target_new"]
    if by_word:
        data["event_type"] = ["impression" if s else "view" for s in shown]
        data["event_type"][0] = "purchase"
    else:
        data["item_id"] = [None if s else a for a, s in zip(data["arm"], shown, strict=True)]
        data["arm"] = [a if s else None for a, s in zip(data["arm"], shown, strict=True)]
    found, facts = facts_of(write(tmp_path / "f.csv", data))
    assert (facts["bandit_rows"], facts["organic_rows"]) == (shown.sum(), (~shown).sum() - by_word)
    assert facts["other_rows"] == by_word
    assert facts["missing"] == {}
    assert codes(found) == set()
    assert fits(found) == {"estimate", "plan ab", "replay"}
    monkeypatch.chdir(tmp_path)
    runs(found, capsys)


def test_an_event_column_without_recommendations(tmp_path):
    data = {**base(), "event": ["buy"] * N}
    found, _ = facts_of(write(tmp_path / "f.csv", data))
    assert codes(found) == {"no_recommendations"}
    assert fits(found) == set()


def test_without_propensities(tmp_path, capsys):
    data = base()
    del data["pscore"]
    found, facts = facts_of(write(tmp_path / "f.csv", data), targets=["target_new"])
    assert found.kind == "bandit log"
    assert facts["propensity"] is None
    assert facts["mean_weight"] == []
    runs(found, capsys)
    for columns in ({}, {"propensity": "none"}):  # the name is usual for a target
        without = examine_file(tmp_path / "f.csv", Asked(columns))
        assert without.targets == ("target_new",)
        (fit,) = [fit for fit in commands_for(without) if fit.command == "estimate"]
        assert fit.fits
        assert "--target target_new --baseline today" in fit.line
    del data["target_new"]
    without = examine_file(write(tmp_path / "f.csv", data))
    (fit,) = [fit for fit in commands_for(without) if fit.command == "estimate"]
    assert not fit.fits
    assert "--target" in fit.says


def test_a_table_that_is_neither(tmp_path):
    found = examine_file(write(tmp_path / "f.csv", {"x": [1, 2], "z": [3, 4]}))
    assert found.kind == "table"
    assert fits(found) == set()
    assert found.others == ["x", "z"]
    with pytest.raises(UserError, match="--reward-column"):
        examine_file(tmp_path / "f.csv", Asked({"reward": "y"}))


def test_the_command_and_its_json(tmp_path, capsys):
    file = write(tmp_path / "f.csv", base())
    status, out, _ = run(capsys, "doctor", file, "--json", tmp_path / "found.json")
    assert status == 0
    assert "nothing wrong was found" in out
    assert f"  recsim-mnar estimate {file} --target target_new --baseline today\n" in out
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["rows"] == N
    assert found["columns"]["reward"] == {"column": "clicks", "how": "recognised"}
    fitting = {fit["command"] for fit in found["commands"] if fit["fits"]}
    assert fitting == {"estimate", "plan ab"}
    assert json.loads(run(capsys, "doctor", file, "--json", "-")[1]) == found
    for bad, said in ((["--user-column", "x"], "needs FILE"), ([file, "--actions", "0"], "--actions must be")):
        status, _, err = run(capsys, "doctor", *bad)
        assert status == 2
        assert said in err


def test_a_problem_is_an_exit_status(tmp_path, capsys):
    """3, as `check` has it for a broken rule; what is merely worth knowing leaves it at 0."""
    percent = write(tmp_path / "percent.csv", base() | {"pscore": [100 * each for each in base()["pscore"]]})
    for file, status in ((percent, 3), (write(tmp_path / "fine.csv", base()), 0)):
        assert status_of("doctor", file, "--quiet") == status
    assert "! " in capsys.readouterr().out


@pytest.mark.parametrize(("separator", "decimal"), [(",", "."), (";", ",")])
def test_a_column_that_looks_like_a_target_is_named(tmp_path, separator, decimal):
    data = base()
    shares, wide = data.pop("target_new"), [float(i) for i in range(N)]
    data |= {"model_b": shares, "price": wide, "flag": data["clicks"]}
    file = write(tmp_path / "f.csv", data, separator, decimal)
    found = finding(examine_file(file), "maybe_target")
    assert (found.level, found.columns) == ("note", ("model_b",))
    assert "--target model_b" in str(found)
    assert "maybe_target" not in codes(examine_file(file, Asked({}, ["model_b"])))


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
    if without and {"rabatt", "feature 0"} & set(
        order
    ):  # nothing tells a discount from a probability where the item is not known
        return
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
    lines = [fit.line for fit in commands_for(examine_file(path, Asked(decimal=mark))) if fit.fits]
    assert lines[0].endswith(f"--decimal {mark}")


def test_a_long_file_is_examined_from_its_beginning(tmp_path, monkeypatch):
    lines = [f"{i % 30},0,0,0.5\n" for i in range(90)]
    (tmp_path / "log.csv").write_text("user_id,action,reward,propensity\n" + "".join(lines))
    monkeypatch.setattr("recsim_mnar.own_log.doctor.MOST_EXAMINED", 60)
    examination = examine_file(tmp_path / "log.csv")
    assert examination.contents.rows == 60
    assert "first_rows" in codes(examination)
    monkeypatch.setattr("recsim_mnar.own_log.doctor.MOST_EXAMINED", 91)
    examination = examine_file(tmp_path / "log.csv")
    assert examination.contents.rows == 90
    assert "first_rows" not in codes(examination)
