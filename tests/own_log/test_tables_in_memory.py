"""A data frame, or a partitioned folder, gives what the file of the same rows gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from recsim_mnar import agent, compare_interactions, estimate_file
from recsim_mnar.datasets.interactions import read_interactions
from recsim_mnar.errors import UserError

N = 400


def frame() -> pd.DataFrame:
    """Rows of a uniform logger over four items, two rows per user."""
    rng = np.random.default_rng(5)
    items = rng.integers(0, 4, N)
    return pd.DataFrame(
        {
            "user": [f"u{i // 2}" for i in range(N)],
            "item": pd.Categorical([f"item {i}" for i in items]),
            "propensity": 0.25,
            "reward": (rng.random(N) < 0.1 + 0.1 * items).astype(float),
            "new": np.where(items == 3, 0.7, 0.1),
        },
        index=np.arange(N) * 3 + 7,
    )


def of_polars(rows: pd.DataFrame) -> Any:
    return pytest.importorskip("polars").from_pandas(rows)


def of_duckdb(rows: pd.DataFrame) -> Any:
    return pytest.importorskip("duckdb").sql("select * from rows")


def in_batches(rows: pd.DataFrame) -> pa.Table:
    """Several batches whose dictionaries differ."""
    parts = [rows[first : first + 100].astype({"item": str}).astype({"item": "category"}) for first in range(0, N, 100)]
    return pa.concat_tables([pa.Table.from_pandas(part) for part in parts])


@pytest.mark.parametrize("form", [lambda rows: rows, in_batches, of_polars, of_duckdb])
def test_a_table_in_memory_is_estimated_as_its_file_is(form, tmp_path):
    rows = frame()
    rows.to_csv(tmp_path / "log.csv", index=False)
    in_file = estimate_file(tmp_path / "log.csv", "new", baseline="today")
    in_memory = estimate_file(form(rows), "new", baseline="today")
    assert in_memory.records == in_file.records
    assert in_memory.to_json()[0]["input"][0]["path"] == "the table in memory"


@pytest.mark.parametrize("column", ["user", "propensity", "reward", "new"])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_missing_value_is_counted_once(column, at_once, tmp_path):
    rows = frame().reset_index(drop=True)
    rows[column] = rows[column].astype(object)
    rows.loc[[3, 8, 11], column] = np.nan
    rows.to_parquet(tmp_path / "log.parquet")
    rows.to_csv(tmp_path / "log.csv", index=False)
    messages = []
    for log in (rows, tmp_path / "log.parquet", tmp_path / "log.csv"):
        with pytest.raises(UserError, match=r"missing in 3 rows \(4, 9, 12\)") as caught:
            estimate_file(log, "new", refute=at_once)
        messages.append(str(caught.value).partition(":")[2])
    assert len(set(messages)) == 1


def test_errors_name_the_table_in_memory():
    with pytest.raises(UserError, match=r"^the table in memory has no column 'newer'"):
        estimate_file(frame(), "newer")


def test_what_is_neither_a_path_nor_a_table_is_refused():
    with pytest.raises(UserError):
        estimate_file([1, 2, 3], "new")


def test_interactions_in_memory_are_those_of_their_file(save):
    rows = frame()[["user", "item"]]
    path = save(rows, "views.csv")
    in_file = read_interactions(path)
    in_memory = read_interactions(rows)
    assert [*in_memory.item_ids] == [*in_file.item_ids]

    def values(data):
        return [record.value for record in compare_interactions(data, {"popularity": agent("popularity")}).records]

    assert values(in_memory) == values(in_file)


def test_a_partitioned_folder_is_one_table(save, tmp_path):
    """The folders are those of Hive, Spark and pyarrow: year=.../month=.../part-0.parquet."""
    rows = frame()
    path = save(rows)
    for part in range(4):
        folder = tmp_path / "hive" / "year=2026" / f"month={part}"
        folder.mkdir(parents=True)
        rows[part * 100 : (part + 1) * 100].to_parquet(folder / "part-0.parquet", index=False)
    answer = estimate_file(tmp_path / "hive", "new", baseline="today")
    assert answer.records == estimate_file(path, "new", baseline="today").records
    assert any("year, month" in line for line in answer.found.lines)
