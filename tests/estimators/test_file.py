"""The estimates of a log file."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.errors import UserError
from toys import refused
from twins.facts import difference, estimate_value
from twins.own_schema import estimate_file

ALL = ("ips", "clipped_ips", "snips")


def frame(n=3000):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "user": np.sort(rng.integers(0, 300, n)),
            "event": np.where(rng.random(n) < 0.3, "organic", "bandit"),
            "propensity": rng.uniform(0.05, 0.5, n),
            "reward": (rng.random(n) < 0.05) * 1.0,
        }
    )
    table["a"] = table.propensity * rng.uniform(0.5, 1.5, n)
    table["b"] = rng.uniform(0.0, 0.5, n)
    table.loc[table.event == "organic", ["propensity", "reward", "a", "b"]] = np.nan
    return table


@pytest.fixture
def table():
    return frame()


@pytest.fixture
def decisions(table):
    """The bandit rows without users and events."""
    return table[["propensity", "reward", "a"]].dropna()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.parquet"


def write(table, path):
    if path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, sep={".csv": ",", ".tsv": "\t"}[path.suffix])
    return path


def test_files_of_every_kind_give_the_same_records(tmp_path, table):
    folder = tmp_path / "run" / "log"
    folder.mkdir(parents=True)
    write(table[:1100], folder / "part-00000.parquet")
    write(table[1100:], folder / "part-00001.parquet")
    paths = [
        write(table.assign(event=table.event.astype("category")), tmp_path / "category.parquet"),
        write(table.assign(event=(table.event == "bandit").astype(np.int8)), tmp_path / "coded.parquet"),
        write(table, tmp_path / "log.csv"),
        write(table, tmp_path / "log.tsv"),
        folder,
        folder.parent,
    ]
    question = {"baseline": "a", "estimators": ALL}
    expected = estimate_file(write(table, tmp_path / "log.parquet"), ["a", "b"], **question)
    assert json.loads(json.dumps(expected)) == expected
    for path in paths:
        assert estimate_file(path, ["a", "b"], **question) == expected, path


def test_records_are_the_estimates_of_the_bandit_rows(path, table):
    records = estimate_file(write(table, path), ["a"], baseline="b", estimators=ALL, clip=2.0)
    assert [(r["policy"], r["estimator"]) for r in records] == [
        (policy, estimator) for policy in ("a", "b", "a - b") for estimator in ALL
    ]
    bandit = {name: values.to_numpy() for name, values in table[table.event == "bandit"].items()}
    columns = {"reward": bandit["reward"], "propensity": bandit["propensity"], "cluster": bandit["user"]}
    for record in records:
        options = {"estimator": record["estimator"], "clip": 2.0}
        if record["policy"] == "a - b":
            assert record["baseline"] == "b"
            expected = difference(**columns, target=bandit["a"], baseline=bandit["b"], **options)
        else:
            expected = estimate_value(**columns, target=bandit[record["policy"]], **options)
        for key in ("value", "low", "high", "level", "n", "ess", "method", "verdict"):
            assert record[key] == getattr(expected, key), key


def test_defaults_of_the_command_line(path, decisions):
    records = estimate_file(write(decisions, path), ["a"])
    assert [(r["estimator"], r["leads"]) for r in records] == [("ips", False), ("snips", True)]
    assert records[0]["diagnostics"].get("clip") is None
    assert not records[0]["diagnostics"]["clustered"]
    decisions["session"] = np.arange(len(decisions)) // 10
    records = estimate_file(write(decisions, path), ["a"], cluster="session")
    assert records[0]["diagnostics"]["users"] == -(-len(decisions) // 10)


def test_only_the_columns_needed_are_read(path, table):
    assert estimate_file(write(table.assign(unreadable=[{"x": 1}] * 3000), path), ["a"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop(columns="reward"), "no column 'reward'"),
        (lambda t: t.drop(columns="propensity"), "no column 'propensity'"),
        (lambda t: t.rename(columns={"a": "a_"}), "no column 'a'; did you mean 'a_'"),
        (lambda t: t.assign(event="organic"), "no bandit rows"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path, change, words):
    path = write(change(frame(200)), tmp_path / "log.csv")
    with refused(words):
        estimate_file(path, ["a"])


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"cluster": "session"}, "no column 'session'"),
        ({"baseline": "c"}, "no column 'c'"),
        ({"estimators": []}, "no estimator"),
        ({"targets": []}, "no target column"),
    ],
)
def test_a_wrong_question_is_refused_in_one_line(path, table, question, words):
    write(table, path)
    with refused(words):
        estimate_file(path, **{"targets": ["a"]} | question)


def write_ids(path, ids):
    rows = [f"{user},0.5,{i % 3 == 0:d},0.{3 + i % 5}" for i, user in enumerate(ids)]
    path.write_text("\n".join(["user,propensity,reward,a", *rows]) + "\n")
    return path


def users_of(path):
    return estimate_file(path, ["a"])[0]["diagnostics"]["users"]


@pytest.mark.parametrize("missing", ["", '""', " ", "NA"])
def test_a_missing_text_id_in_a_csv_is_named(tmp_path, missing):
    ids = [f"u{i // 2}" for i in range(400)]
    ids[7] = missing
    with pytest.raises(UserError, match=r"'user' is missing in row 8\b"):
        estimate_file(write_ids(tmp_path / "log.csv", ids), ["a"])


def test_an_empty_text_id_in_parquet_is_named(path, table):
    table["user"] = [f"u{user}" for user in table.user]
    row = int(np.flatnonzero(table.event == "bandit")[9])
    table.loc[row, "user"] = ""
    with pytest.raises(UserError, match=rf"'user' is missing in row {row + 1}\b"):
        estimate_file(write(table, path), ["a"])


@pytest.mark.parametrize("first", [2**63 - 50, 10**20, 2**53])
def test_no_two_ids_of_a_csv_become_one(tmp_path, first):
    ids = [str(first + i // 2) for i in range(400)]
    assert users_of(write_ids(tmp_path / "log.csv", ids)) == 200
    assert users_of(write_ids(tmp_path / "mixed.csv", [*ids, "someone"])) == 201


def test_ids_are_the_same_in_all_parts(tmp_path):
    write_ids(tmp_path / "a.csv", [str(i // 2) for i in range(400)])
    write_ids(tmp_path / "b.csv", [f"{i // 2}.0" for i in range(398, 800)])  # as pandas writes integers with a gap
    assert users_of(tmp_path) == 400
    write_ids(tmp_path / "c.csv", [f" {i // 2}" for i in range(400)])
    write_ids(tmp_path / "d.csv", [f"x{i}" for i in range(3)])
    assert estimate_file(tmp_path, ["a"])[0]["n"] == 400 + 402 + 400 + 3


def test_large_ids_beside_a_missing_one_stay_apart(path, table):
    bandit = table.event == "bandit"
    table["user"] = pd.array(2**60 + np.arange(3000) // 4, dtype="Int64")
    table.loc[int(np.flatnonzero(~bandit)[0]), "user"] = pd.NA
    assert users_of(write(table, path)) == table.user[bandit].nunique()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_part_without_a_column_is_named(tmp_path, table, kind):
    write(table, tmp_path / f"part-0.{kind}")
    write(table.drop(columns="a"), tmp_path / f"part-1.{kind}")
    with pytest.raises(UserError, match=rf"part-1.{kind} has no column 'a', which another part has"):
        estimate_file(tmp_path, ["a"])


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ("web", "'event' holds web; write bandit"),
        (2, "'event' holds 2; write bandit"),
        (0, "nothing was recommended"),
        (False, "nothing was recommended"),
        ("organic", "nothing was recommended"),
        (pd.Timestamp("2020-01-01"), "'event' holds 2020-01-01"),
    ],
)
def test_events_that_are_none_are_named(path, decisions, event, words):
    with pytest.raises(UserError, match=words):
        estimate_file(write(decisions.assign(event=event), path), ["a"])
