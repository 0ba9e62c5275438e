"""The estimates of a log file."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.estimate import estimate_file, read_columns, records_table
from recsim_mnar.estimators import difference, estimate_value

ALL = ("ips", "clipped_ips", "snips")


def frame(n: int = 3000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
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


def write(table: pd.DataFrame, path) -> str:
    if path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return str(path)


def test_files_of_every_kind_give_the_same_records(tmp_path):
    table = frame()
    coded = table.assign(event=(table.event == "bandit").astype(np.int8))
    folder = tmp_path / "run" / "log"
    folder.mkdir(parents=True)
    write(table[:1100], folder / "part-00000.parquet")
    write(table[1100:], folder / "part-00001.parquet")
    paths = [
        write(table, tmp_path / "log.parquet"),
        write(table.assign(event=table.event.astype("category")), tmp_path / "category.parquet"),
        write(coded, tmp_path / "coded.parquet"),
        write(table, tmp_path / "log.csv"),
        write(table, tmp_path / "log.tsv"),
        folder,
        folder.parent,
    ]
    found = [estimate_file(path, ["a", "b"], baseline="a", estimators=ALL) for path in paths]
    for records in found[1:]:
        assert records == found[0]
    assert json.loads(json.dumps(found[0])) == found[0]


def test_records_are_the_estimates_of_the_bandit_rows(tmp_path):
    table = frame()
    bandit = table[table.event == "bandit"]
    path = write(table, tmp_path / "log.parquet")
    records = estimate_file(path, ["a"], baseline="b", estimators=ALL, clip=2.0)
    assert [(r["policy"], r["estimator"]) for r in records] == [
        (policy, estimator) for policy in ("a", "b", "a - b") for estimator in ALL
    ]
    columns = {k: bandit[k].to_numpy() for k in ("reward", "propensity")}
    for record in records:
        common = {"estimator": record["estimator"], "clip": 2.0, "cluster": bandit.user.to_numpy()}
        if record["policy"] == "a - b":
            wanted = difference(**columns, target=bandit.a.to_numpy(), baseline=bandit.b.to_numpy(), **common)
            assert record["baseline"] == "b"
        else:
            wanted = estimate_value(**columns, target=bandit[record["policy"]].to_numpy(), **common)
        for key in ("value", "low", "high", "level", "n", "ess", "method", "verdict"):
            assert record[key] == getattr(wanted, key), key


def test_defaults_of_the_command_line(tmp_path):
    table = frame()[["propensity", "reward", "a"]].dropna()
    records = estimate_file(write(table, tmp_path / "log.csv"), ["a"])
    assert [r["estimator"] for r in records] == ["clipped_ips"]
    assert records[0]["diagnostics"]["clip"] == 15.0
    assert not records[0]["diagnostics"]["clustered"]
    table["session"] = np.arange(len(table)) // 10
    records = estimate_file(write(table, tmp_path / "log.csv"), ["a"], cluster="session")
    assert records[0]["diagnostics"]["users"] == -(-len(table) // 10)


def test_only_the_columns_needed_are_read(tmp_path):
    table = frame().assign(unreadable=[{"x": 1}] * 3000)
    log = read_columns(write(table, tmp_path / "log.parquet"), ["a"])
    assert set(log.others) == {"a"}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_bad_values_are_named_with_their_row_in_the_file(tmp_path, kind):
    table = frame()
    row = int(np.flatnonzero(table.event == "bandit")[40])
    for column, value in (("propensity", 0.0), ("propensity", 1.5), ("a", -0.1), ("reward", np.nan), ("a", np.nan)):
        bad = table.copy()
        bad.loc[row, column] = value
        with pytest.raises(UserError, match=f"'{column}', row {row} ") as caught:
            estimate_file(write(bad, tmp_path / f"bad.{kind}"), ["a"])
        assert "\n" not in str(caught.value)
    bad = table.astype({"user": "Int64"})
    bad.loc[row, "user"] = pd.NA
    with pytest.raises(UserError, match=rf"'user', row {row} .*missing"):
        estimate_file(write(bad, tmp_path / f"bad.{kind}"), ["a"])
    organic = int(np.flatnonzero(table.event == "organic")[4])
    bad = table.astype({"user": "Int64"})
    bad.loc[organic, "user"] = pd.NA
    assert estimate_file(write(bad, tmp_path / f"fine.{kind}"), ["a"])[0]["n"] == (table.event == "bandit").sum()


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        (lambda t: t.drop(columns="reward"), {}, "no column 'reward'"),
        (lambda t: t.drop(columns="propensity"), {}, "no column 'propensity'"),
        (lambda t: t.rename(columns={"a": "a_"}), {}, "no column 'a'; did you mean 'a_'"),
        (lambda t: t, {"cluster": "session"}, "no column 'session'"),
        (lambda t: t, {"baseline": "c"}, "no column 'c'"),
        (lambda t: t[:0], {}, "holds no rows"),
        (lambda t: t.assign(event="organic"), {}, "no bandit rows"),
        (lambda t: t.assign(a="high"), {}, "must hold numbers"),
        (lambda t: t, {"clip": 0.0}, "clip must be"),
        (lambda t: t, {"level": 95}, "level must"),
        (lambda t: t, {"estimators": ["isp"]}, "did you mean"),
        (lambda t: t, {"estimators": []}, "no estimator"),
        (lambda t: t, {"estimators": ["dr"]}, "needs q_logged"),
    ],
)
def test_one_line_for_what_is_wrong(tmp_path, change, arguments, words):
    path = write(change(frame(200)), tmp_path / "log.csv")
    with pytest.raises(UserError, match=words) as caught:
        estimate_file(path, ["a"], **arguments)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    empty = tmp_path / "empty.csv"
    empty.touch()
    broken = tmp_path / "broken.parquet"
    broken.write_text("hello")
    ragged = tmp_path / "ragged.csv"
    ragged.write_text("propensity,reward,a\n0.5,1,0.5\n0.5,1,0.5,7\n")
    (tmp_path / "folder").mkdir()
    other = tmp_path / "log.xlsx"
    other.touch()
    for path, words in (
        (empty, "is empty"),
        (broken, "cannot be read"),
        (ragged, "cannot be read"),
        (tmp_path / "folder", "holds no Parquet or CSV"),
        (tmp_path / "nothing.csv", "no file or folder"),
        (other, "neither Parquet nor CSV"),
    ):
        with pytest.raises(UserError, match=words) as caught:
            estimate_file(path, ["a"])
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="no target column"):
        estimate_file(empty, [])


def test_one_row_and_no_reward_get_a_verdict(tmp_path):
    table = frame()[["propensity", "reward", "a"]].dropna()
    one = estimate_file(write(table[:1], tmp_path / "one.csv"), ["a"], estimators=ALL)
    assert all(r["verdict"].startswith("do not use: only 1 row,") for r in one)
    silent = estimate_file(write(table.assign(reward=0), tmp_path / "silent.csv"), ["a"], estimators=ALL)
    assert all(r["verdict"].startswith("do not use: no reward") and r["high"] > 0 for r in silent)


def test_models_come_from_columns(tmp_path):
    table = frame().assign(q=0.05, q_a=0.04)
    path = write(table, tmp_path / "log.parquet")
    records = estimate_file(path, ["a"], estimators=["dr", "dm"], q_logged="q", q_target="q_a")
    assert records[1]["value"] == pytest.approx(0.04)


def test_table_for_a_person(tmp_path):
    from rich.console import Console

    records = estimate_file(write(frame(), tmp_path / "log.csv"), ["a"], baseline="b", estimators=ALL)
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(records_table(records))
    text = console.export_text()
    assert "clipped_ips" in text
    assert "a - b" in text
    assert f"{records[0]['value']:.4g}" in text
