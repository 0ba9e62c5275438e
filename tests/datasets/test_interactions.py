from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsim_mnar.datasets.interactions import read_interactions
from toys import refused

ROWS = "user,item,time\nb,10,3\na,9,2\nb,9,1\na,9,1\n"


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def read(folder, name, text, **columns):
    return read_interactions(write(folder, name, text), **columns)


def events(data):
    log = data.log
    return [
        (str(data.user_ids[u]), int(s), str(data.item_ids[i]), float(t))
        for u, s, i, t in zip(log["user"], log["step"], log["item"], log["time"], strict=True)
    ]


EXPECTED = [("a", 0, "9", 1.0), ("a", 1, "9", 2.0), ("b", 0, "9", 1.0), ("b", 1, "10", 3.0)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.csv", ROWS),
        ("x.tsv", ROWS.replace(",", "\t")),
        ("x.txt", ROWS.replace(",", ";")),
        ("x.csv", "\ufeff" + ROWS),
        ("x.csv", ROWS.replace("user,item,time", "User ID,movieId,Timestamp")),
        ("x.csv", ROWS.replace("user,item,time", '"user_id","item_id","ts"')),
        ("x.inter", ROWS.replace("user,item,time", "user_id:token,item_id:token,timestamp:float").replace(",", "\t")),
        ("x.csv", "rating,time,item,user\n1,3,10,b\n5,2,9,a\n5,1,9,b\n5,1,9,a\n"),
    ],
)
def test_recognised(tmp_path, name, text):
    data = read(tmp_path, name, text)
    assert events(data) == EXPECTED
    assert (data.n_users, data.n_items) == (2, 2)
    assert data.item_ids.tolist() == [9, 10]
    assert not data.log.is_bandit.any()
    data.log.validate(data.n_items)


@pytest.mark.parametrize("header", ["a,b,c", "a:token,b:token,c:float"])
def test_named_by_flags_and_of_recbole_without_their_type(tmp_path, header):
    text = ROWS.replace("user,item,time", header)
    assert events(read(tmp_path, "x.csv", text, user_column="a", item_column="b", time_column="c")) == EXPECTED


def test_without_time_the_order_of_the_file_counts(tmp_path):
    data = read(tmp_path, "x.csv", "user,item\n2,7\n1,5\n2,6\n2,5\n")
    assert events(data) == [("1", 0, "5", 0.0), ("2", 0, "7", 0.0), ("2", 1, "6", 1.0), ("2", 2, "5", 2.0)]


def test_equal_times_keep_the_order_of_the_file(tmp_path):
    data = read(tmp_path, "x.csv", "user,item,time\n1,7,5\n1,6,5\n1,5,5\n1,4,1\n")
    assert data.item_ids[data.log["item"]].tolist() == [4, 7, 6, 5]


def test_ids_lose_nothing(tmp_path):
    data = read(tmp_path, "x.csv", "user,item\n007,a b\n70,é\n-1,c\n")
    assert sorted(data.user_ids.tolist()) == ["-1", "007", "70"]
    assert data.item_ids.tolist() == ["a b", "c", "é"]
    numbers = read(tmp_path, "x.csv", "user,item\n-3,10\n20,9\n3,9\n")
    assert numbers.user_ids.tolist() == [-3, 3, 20]


@pytest.mark.parametrize("dtype", [np.int64, np.int16, np.float64, str])
def test_parquet(tmp_path, dtype):
    users = np.array([2, 1, 2]).astype(dtype)
    table = pa.table({"user_id": users, "item_id": [5, 5, 6], "timestamp": [3.5, 1.0, 2.0], "rating": [1, 2, 3]})
    pq.write_table(table, tmp_path / "x.parquet")
    data = read_interactions(tmp_path / "x.parquet")
    assert data.user_ids.tolist() == [1, 2]
    assert data.log["item"].tolist() == [0, 1, 0]
    assert data.log["time"].tolist() == [1.0, 2.0, 3.5]


def test_parquet_dictionaries_and_dates(tmp_path):
    moment = pa.array([1_000_000, 0], pa.timestamp("us"))
    table = pa.table({"user": pa.array(["b", "a"]).dictionary_encode(), "item": [1, 2], "time": moment})
    pq.write_table(table, tmp_path / "x.parquet")
    data = read_interactions(tmp_path / "x.parquet")
    assert data.user_ids.tolist() == ["a", "b"]
    assert data.log["time"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.csv", "", "is empty"),
        ("x.csv", "\n\n", "is empty"),
        ("x.csv", "user,item\n", "no rows"),
        ("x.csv", "members_id,item\n1,2\n", "recognised as the user; did you mean 'members_id'.*--user-column"),
        ("x.csv", "the_user_x,item\n1,2\n", "did you mean 'the_user_x'.*--user-column"),
        ("x.csv", "user,thing\n1,2\n", "recognised as the item.*--item-column"),
        ("x.csv", "1,2,3\n4,5,6\n", "no header line"),
        ("x.csv", "user,item\n1,2\n,3\n", "'user' is missing in row 2"),
        ("x.csv", "user,item\n1,2\n1,3\n1,nan\n", "'item' is missing in row 3"),
        ("x.csv", "user,item,time\n1,2,5\n1,3,\n", "'time' is missing in row 2"),
        ("x.csv", "user,item,time\n1,2,5\n1,3,inf\n", "'time' is not a finite number in row 2: inf"),
        ("x.csv", "user,item,time\n1,2,5\n1,3,soon\n", "'time' is neither a number nor a date in row 2: soon"),
        ("x.csv", "user,item\n1,2\n1\n", "not a readable table.*[Rr]ow"),
    ],
)
def test_mistakes_are_named(tmp_path, name, text, message):
    with refused(message):
        read(tmp_path, name, text)


def test_flags_that_name_nothing(tmp_path):
    path = write(tmp_path, "x.csv", ROWS)
    with refused(r"no column 'usr'; did you mean 'user'.*--user-column"):
        read_interactions(path, user_column="usr")
    with refused("named as user and item"):
        read_interactions(path, user_column="item", item_column="item")


def test_parquet_values_that_are_missing(tmp_path):
    pq.write_table(pa.table({"user": [1.0, float("inf")], "item": [1, 2]}), tmp_path / "x.parquet")
    with refused("'user' is not a finite number in row 2: inf"):
        read_interactions(tmp_path / "x.parquet")
    pq.write_table(pa.table({"user": [1, 2], "item": pa.array([None, 2], pa.int64())}), tmp_path / "x.parquet")
    with refused("'item' is missing in row 1"):
        read_interactions(tmp_path / "x.parquet")
