"""Every field of the doctor on files with planted faults, on clean ones, and the lines that it says to type."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsim_mnar.cli import main
from recsim_mnar.errors import UserError
from recsim_mnar.own_log.doctor import Asked, examine_file
from recsim_mnar.own_log.doctor_commands import commands_for

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


def codes(found, level=None):
    return {problem.code for problem in found.problems if level in (None, problem.level)}


def fits(found):
    return {fit.command for fit in commands_for(found) if fit.fits}


def runs(found, capsys, *, more=()):
    """Every line that is said to fit, typed as it stands (``more`` behind that of compare): they end with 0."""
    for fit in commands_for(found):
        if not fit.fits:
            assert fit.says
            continue
        words = shlex.split(fit.line)
        assert words[0] == "recsim-mnar"
        with pytest.raises(SystemExit) as left:
            main([*words[1:], *(more if words[1] == "compare" else ())])
        assert left.value.code == 0, f"{fit.line}: {capsys.readouterr().err}"


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
    (said,) = [problem for problem in found.problems if problem.code == "duplicates"]
    assert "23 rows" in said.message
    assert f"rows {N + 1}, {N + 2}, {N + 3}, ..." in said.message
    runs(found, capsys)


def test_3_percent(tmp_path):
    data = base()
    data["pscore"] = [100 * p for p in data["pscore"]]
    found, facts = facts_of(write(tmp_path / "f.csv", data))
    assert facts["propensity"]["percent"]
    assert facts["propensity"]["above_1"] == N
    (said,) = [problem for problem in found.problems if problem.code == "propensity_above_1"]
    assert "divide the column by 100" in said.advice
    assert fits(found) == set()


def test_4_a_few_impossible_propensities(tmp_path):
    data = base()
    data["pscore"][7], data["pscore"][8], data["pscore"][9], data["pscore"][10] = 13.9, 0.0, -0.1, 0.0
    found, facts = facts_of(write(tmp_path / "f.csv", data))
    assert facts["propensity"] | {"zero": 2, "negative": 1, "above_1": 1, "impossible": 4} == facts["propensity"]
    assert not facts["propensity"]["percent"]
    by_code = {problem.code: problem for problem in found.problems}
    above, low = by_code["propensity_above_1"], by_code["propensity_not_positive"]
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
    (said,) = [problem for problem in found.problems if problem.code == "mean_weight"]
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
    assert "either 'pscore' or 'target_new' is not the probability of the item shown" in next(
        str(p) for p in found.problems if p.code == "mean_weight"
    )
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
    with pytest.raises(SystemExit):
        main(["simulate", "--world", "sessions", "--preset", "quick", "--policy", "constant+item=3", "--users", "30",
              "--out", str(tmp_path / "log")])  # fmt: skip
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
    with pytest.raises(SystemExit):
        main(["simulate", "--world", "sessions", "--preset", "quick", "--policy", "random", "--users", "20",
              "--out", str(tmp_path / "run")])  # fmt: skip
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
    for columns, says in (({}, "first correct"), ({"propensity": "none"}, "would be estimated")):
        without = examine_file(tmp_path / "f.csv", Asked(columns))
        (fit,) = [fit for fit in commands_for(without) if fit.command == "estimate"]
        assert not fit.fits
        assert says in fit.says


def test_a_table_that_is_neither(tmp_path):
    found = examine_file(write(tmp_path / "f.csv", {"x": [1, 2], "z": [3, 4]}))
    assert found.kind == "table"
    assert fits(found) == set()
    assert found.others == ["x", "z"]
    with pytest.raises(UserError, match="--reward-column"):
        examine_file(tmp_path / "f.csv", Asked({"reward": "y"}))


def test_the_command_and_its_json(tmp_path, capsys):
    file = write(tmp_path / "f.csv", base())
    with pytest.raises(SystemExit) as left:
        main(["doctor", str(file), "--json", str(tmp_path / "found.json")])
    assert left.value.code == 0
    out = capsys.readouterr().out
    assert "nothing wrong was found" in out
    assert f"  recsim-mnar estimate {file} --target target_new --baseline today\n" in out
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["rows"] == N
    assert found["columns"]["reward"] == {"column": "clicks", "how": "recognised"}
    fitting = {fit["command"] for fit in found["commands"] if fit["fits"]}
    assert fitting == {"estimate", "plan ab"}
    with pytest.raises(SystemExit):
        main(["doctor", str(file), "--json", "-"])
    assert json.loads(capsys.readouterr().out) == found
    for bad, said in ((["--user-column", "x"], "needs FILE"), ([str(file), "--actions", "0"], "--actions must be")):
        with pytest.raises(SystemExit) as left:
            main(["doctor", *bad])
        assert left.value.code == 2
        assert said in capsys.readouterr().err


def sample(package, *path):
    """A file of an installed package, or below the folder that RECSIM_MNAR_TEST_DATA names; None where it is not."""
    spec = importlib.util.find_spec(package)
    places = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    if os.environ.get("RECSIM_MNAR_TEST_DATA"):
        places.append(Path(os.environ["RECSIM_MNAR_TEST_DATA"]) / package)
    return next((place.joinpath(*path) for place in places if place.joinpath(*path).exists()), None)


@pytest.mark.parametrize("policy", ["random", "bts"])
def test_the_open_bandit_sample_is_clean(policy, capsys):
    file = sample("obp", "dataset", "obd", policy, "all", "all.csv")
    if file is None:
        pytest.skip("the Open Bandit sample is in the PyPI package obp, which is not installed")
    found, facts = facts_of(file)
    assert found.columns.names == {
        "reward": "click", "propensity": "propensity_score", "action": "item_id", "time": "timestamp",
    }  # fmt: skip
    assert (facts["rows"], facts["actions"], facts["duplicates"], facts["missing"]) == (10_000, 80, 0, {})
    assert facts["reward"]["mean"] == pytest.approx({"random": 0.0038, "bts": 0.0042}[policy])
    assert facts["propensity"]["impossible"] == 0
    assert facts["mean_weight"][0]["holds"]
    assert facts["time"]["from"].startswith("2019-11-24")
    assert codes(found) == set()
    runs(found, capsys)


def test_movielens_is_clean():
    file = sample("recbole", "dataset_example", "ml-100k", "ml-100k.inter")
    if file is None:
        pytest.skip("ML-100K is in the PyPI package recbole, which is not installed")
    found, facts = facts_of(file)
    assert found.kind == "interactions"
    assert [facts[k] for k in ("rows", "users", "items", "duplicates", "repeats")] == [100_000, 943, 1682, 0, 0]
    assert (facts["time"]["from"], facts["time"]["to"]) == ("1997-09-20 03:05", "1998-04-22 23:10")
    assert facts["missing"] == {}
    assert codes(found) == set()
    assert fits(found) == {"compare --interactions"}
    assert math.isclose(facts["rows_of_a_user"]["median"], 65)


def test_a_problem_is_an_exit_status(tmp_path, capsys):
    """3, as `check` has it for a broken rule; what is merely worth knowing leaves it at 0."""
    percent = write(tmp_path / "percent.csv", base() | {"pscore": [100 * each for each in base()["pscore"]]})
    for file, status in ((percent, 3), (write(tmp_path / "fine.csv", base()), 0)):
        with pytest.raises(SystemExit) as left:
            main(["doctor", str(file), "--quiet"])
        assert left.value.code == status
    assert "! " in capsys.readouterr().out


@pytest.mark.parametrize(("separator", "decimal"), [(",", "."), (";", ",")])
def test_a_column_that_looks_like_a_target_is_named(tmp_path, separator, decimal):
    data = base()
    shares, wide = data.pop("target_new"), [float(i) for i in range(N)]
    data |= {"model_b": shares, "price": wide, "flag": data["clicks"]}
    file = write(tmp_path / "f.csv", data, separator, decimal)
    (found,) = (each for each in examine_file(file).problems if each.code == "maybe_target")
    assert (found.level, found.columns) == ("note", ("model_b",))
    assert "--target model_b" in str(found)
    named = examine_file(file, Asked({}, ["model_b"]))
    assert not any(each.code == "maybe_target" for each in named.problems)


@pytest.mark.parametrize("mark", [".", ","])
def test_a_decimal_mark_that_is_stated_stands_in_the_line_to_type(tmp_path, mark):
    path = tmp_path / "log.csv"
    path.write_text("user_id;action;propensity;reward;new\n1;a;1;1.250;1\n2;a;1;3;1\n3;a;1;2.300;1\n")
    with pytest.raises(UserError) as caught:
        examine_file(path)
    assert caught.value.code == "unclear_numbers"
    lines = [fit.line for fit in commands_for(examine_file(path, Asked(decimal=mark))) if fit.fits]
    assert lines[0].endswith(f"--decimal {mark}")
