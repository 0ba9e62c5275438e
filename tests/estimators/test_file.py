"""The estimates of a log file."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from recsim_mnar.cli.estimation import records_table
from recsim_mnar.errors import UserError
from twins.facts import difference, estimate_value
from twins.own_schema import estimate_file

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
    assert [(r["estimator"], r["leads"]) for r in records] == [("ips", False), ("snips", True)]
    assert records[0]["diagnostics"].get("clip") is None
    assert not records[0]["diagnostics"]["clustered"]
    table["session"] = np.arange(len(table)) // 10
    records = estimate_file(write(table, tmp_path / "log.csv"), ["a"], cluster="session")
    assert records[0]["diagnostics"]["users"] == -(-len(table) // 10)


def test_only_the_columns_needed_are_read(tmp_path):
    table = frame().assign(unreadable=[{"x": 1}] * 3000)
    assert estimate_file(write(table, tmp_path / "log.parquet"), ["a"])


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        (lambda t: t.drop(columns="reward"), {}, "no column 'reward'"),
        (lambda t: t.drop(columns="propensity"), {}, "no column 'propensity'"),
        (lambda t: t.rename(columns={"a": "a_"}), {}, "no column 'a'; did you mean 'a_'"),
        (lambda t: t, {"cluster": "session"}, "no column 'session'"),
        (lambda t: t, {"baseline": "c"}, "no column 'c'"),
        (lambda t: t.assign(event="organic"), {}, "no bandit rows"),
        (lambda t: t, {"estimators": []}, "no estimator"),
        (lambda t: t, {"targets": []}, "no target column"),
    ],
)
def test_one_line_for_what_is_wrong(tmp_path, change, arguments, words):
    path = write(change(frame(200)), tmp_path / "log.csv")
    with pytest.raises(UserError, match=words) as caught:
        estimate_file(path, **{"targets": ["a"]} | arguments)
    assert "\n" not in str(caught.value)


def test_models_come_from_columns(tmp_path):
    table = frame().assign(q=0.05, q_a=0.04)
    path = write(table, tmp_path / "log.parquet")
    records = estimate_file(path, ["a"], estimators=["dr", "dm"], q_logged="q", q_target="q_a")
    assert records[1]["value"] == pytest.approx(0.04)


def texts(path, ids: list[str]) -> str:
    rows = [f"{u},0.5,{i % 3 == 0:d},0.{3 + i % 5}" for i, u in enumerate(ids)]
    path.write_text("\n".join(["user,propensity,reward,a", *rows]) + "\n")
    return str(path)


@pytest.mark.parametrize("missing", ["", '""', " ", "NA"])
def test_a_missing_text_id_in_a_csv_is_named(tmp_path, missing):
    ids = [f"u{i // 2}" for i in range(400)]
    ids[7] = missing
    with pytest.raises(UserError, match=r"'user' is missing in row 8\b"):
        estimate_file(texts(tmp_path / "log.csv", ids), ["a"])


def test_an_empty_text_id_in_parquet_is_named(tmp_path):
    table = frame()
    table["user"] = [f"u{u}" for u in table.user]
    row = int(np.flatnonzero(table.event == "bandit")[9])
    table.loc[row, "user"] = ""
    with pytest.raises(UserError, match=rf"'user' is missing in row {row + 1}\b"):
        estimate_file(write(table, tmp_path / "log.parquet"), ["a"])


@pytest.mark.parametrize("first", [2**63 - 50, 10**20, 2**53])
def test_no_two_ids_of_a_csv_become_one(tmp_path, first):
    ids = [str(first + i // 2) for i in range(400)]
    found = estimate_file(texts(tmp_path / "log.csv", ids), ["a"])[0]
    assert found["diagnostics"]["users"] == 200
    mixed = estimate_file(texts(tmp_path / "mixed.csv", [*ids, "someone"]), ["a"])[0]
    assert mixed["diagnostics"]["users"] == 201


def test_ids_are_the_same_in_all_parts(tmp_path):
    folder = tmp_path / "log"
    folder.mkdir()
    texts(folder / "a.csv", [str(i // 2) for i in range(400)])
    texts(folder / "b.csv", [f"{i // 2}.0" for i in range(398, 800)])  # as pandas writes integers with a gap
    assert estimate_file(folder, ["a"])[0]["diagnostics"]["users"] == 400
    texts(folder / "c.csv", [f" {i // 2}" for i in range(400)])
    texts(folder / "d.csv", [f"x{i}" for i in range(3)])
    assert estimate_file(folder, ["a"])[0]["n"] == 400 + 402 + 400 + 3


def test_large_ids_beside_a_missing_one_stay_apart(tmp_path):
    table = frame()
    table["user"] = pd.array(2**60 + np.arange(3000) // 4, dtype="Int64")
    bandit = table.event == "bandit"
    table.loc[int(np.flatnonzero(~bandit)[0]), "user"] = pd.NA
    found = estimate_file(write(table, tmp_path / "log.parquet"), ["a"])[0]
    assert found["diagnostics"]["users"] == table.user[bandit].nunique()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_part_without_a_column_is_named(tmp_path, kind):
    write(frame(), tmp_path / f"part-0.{kind}")
    write(frame().drop(columns="a"), tmp_path / f"part-1.{kind}")
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
def test_events_that_are_none_are_named(tmp_path, event, words):
    table = frame()[["propensity", "reward", "a"]].dropna().assign(event=event)
    with pytest.raises(UserError, match=words):
        estimate_file(write(table, tmp_path / "log.parquet"), ["a"])


def test_a_difference_that_cannot_be_had_is_said(tmp_path):
    path = write(frame().assign(q=0.05), tmp_path / "log.parquet")
    models = {"q_logged": "q", "q_target": "q"}
    with pytest.raises(UserError, match="no difference from the baseline 'b' with dr: it is known for ips"):
        estimate_file(path, ["a"], baseline="b", estimators=["dr"], **models)
    records = estimate_file(path, ["a"], baseline="b", estimators=["ips", "dr"], **models)
    assert [r["estimator"] for r in records if "baseline" in r] == ["ips"]
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(records_table(records))
    text = console.export_text()
    assert "No difference from the baseline with dr" in text
    assert "a - b" in text
    assert f"{100 * records[0]['value']:.3g}" in text
