"""Our own Parquet: what it writes is read by pyarrow, an independent reader, as what was given, checksums included."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from recsim_mnar.log import Log, parquet
from recsim_mnar.log.packing import packed, write_part
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.run_folder import simulate_to
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins.policies import Uniform

SIZES = [1, 2, 7, 8, 9, 31, 32, 33, 127, 128, 129, 130, 257, 1000]


def rows(n, seed, **other):
    """A log of ``n`` rows, a random half of them recommendations."""
    rng = np.random.default_rng(seed)
    bandit = rng.random(n) < 0.5
    return Log(
        {
            "user": np.sort(rng.integers(-3, 5, n)) * 10**12,
            "step": np.arange(n, dtype=np.int32),
            "time": rng.normal(size=n),
            "event": bandit.astype(np.int8),
            "item": np.where(bandit, -1, rng.integers(0, 2**31 - 1, n)).astype(np.int32),
            "action": np.where(bandit, rng.integers(0, 9, n), -1).astype(np.int32),
            "propensity": np.where(bandit, rng.random(n), np.nan),
            "reward": np.where(bandit, rng.integers(0, 2, n), np.nan),
            **other,
        },
        {"seed": seed},
    )


def read_back(log, path):
    write_part(path, [packed(log.columns)], log.provenance)
    table = pq.read_table(path, page_checksum_verification=True)
    table.validate(full=True)
    assert len(log) == table.num_rows
    return table


def same(one, other):
    assert one.provenance == other.provenance
    assert list(one.columns) == list(other.columns)
    for name, values in one.columns.items():
        assert values.dtype == other.columns[name].dtype, name
        np.testing.assert_array_equal(values, other.columns[name], err_msg=name)


@pytest.mark.parametrize("n", SIZES)
def test_every_row_comes_back(n, tmp_path):
    for seed in range(5):
        log = rows(n, seed)
        same(Log.from_arrow(read_back(log, tmp_path / "x.parquet")), log)


@pytest.mark.parametrize("width", range(65))
def test_integers_of_every_width_come_back(width, tmp_path):
    n, rng = 300, np.random.default_rng(width)
    wide = rng.integers(0, 2**width, n, dtype=np.uint64, endpoint=width == 64) if width < 64 else rng.bytes(8 * n)
    wide = np.frombuffer(wide, np.int64) if width == 64 else wide.astype(np.int64)
    narrow = (wide & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    log = rows(n, 0, wide=wide, narrow=narrow, ends=np.where(rng.random(n) < 0.5, 2**63 - 1, -(2**63)))
    log = log.with_column("small_ends", np.where(rng.random(n) < 0.5, 2**31 - 1, -(2**31)).astype(np.int32))
    same(Log.from_arrow(read_back(log, tmp_path / "x.parquet")), log)


def test_floats_come_back_bit_for_bit(tmp_path):
    n = 9000
    odd = np.resize([0.0, -0.0, np.inf, -np.inf, 5e-324, np.nan, 1.0], n)
    many = np.arange(n, dtype=np.float64) / 7
    at_most = np.resize(many[: parquet.MOST_DISTINCT], n)
    one_more = np.resize(many[: parquet.MOST_DISTINCT + 1], n)
    mixed = np.random.default_rng(1).choice(many[:50], n)  # numbers met again in another order
    log = rows(n, 1, odd=odd, mixed=mixed, many=many, at_most=at_most, one_more=one_more, constant=np.full(n, 0.1))
    table = read_back(log, tmp_path / "x.parquet")
    for name in ("odd", "mixed", "many", "at_most", "one_more", "constant"):
        assert table[name].null_count == 0
        np.testing.assert_array_equal(table[name].to_numpy().view(np.int64), log[name].view(np.int64), err_msg=name)
    of = {
        chunk.path_in_schema: chunk.encodings
        for chunk in (pq.read_metadata(tmp_path / "x.parquet").row_group(0).column(i) for i in range(14))
    }
    assert "RLE_DICTIONARY" in of["at_most"]
    assert "RLE_DICTIONARY" not in of["one_more"]


@pytest.mark.parametrize("event", [0, 1])
def test_columns_of_nulls_alone(event, tmp_path):
    n = 50
    log = Log({"user": np.zeros(n), "step": np.arange(n), "time": np.zeros(n), "event": np.full(n, event, np.int8)})
    table = read_back(log, tmp_path / "x.parquet")
    assert [table[name].null_count for name in ("item", "action", "propensity", "reward")] == [n] * 4
    same(Log.from_arrow(table), log)


def test_no_rows(tmp_path):
    same(Log.from_arrow(read_back(Log({}), tmp_path / "x.parquet")), Log({}))


def test_groups_of_rows_follow_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "GROUP_ROWS", 64)
    log = rows(1000, 2)
    same(Log.from_arrow(read_back(log, tmp_path / "x.parquet")), log)
    assert pq.read_metadata(tmp_path / "x.parquet").num_row_groups == -(-1000 // 64)


def test_other_types_are_left_to_pyarrow(tmp_path):
    log = rows(100, 3, word=np.resize(["a", "bc"], 100), flag=np.resize([True, False, False], 100))
    table = read_back(log, tmp_path / "x.parquet")
    assert table["word"].to_pylist() == log["word"].tolist()
    assert table["flag"].to_pylist() == log["flag"].tolist()


def test_a_flipped_bit_of_a_page_is_noticed(tmp_path):
    path = tmp_path / "x.parquet"
    read_back(rows(5000, 4), path)
    whole = path.read_bytes()
    group = pq.read_metadata(path).row_group(0)
    rng = np.random.default_rng(0)
    for column in range(group.num_columns):
        chunk = group.column(column)
        end = chunk.data_page_offset + chunk.total_compressed_size
        first = chunk.dictionary_page_offset
        end = (chunk.data_page_offset if first is None else first) + chunk.total_compressed_size
        place = int(rng.integers(end - 10, end))  # behind the page's header
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(OSError, match="CRC checksum"):
            pq.read_table(path, page_checksum_verification=True)


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SessionsParams(n_items=40, n_flips=9, clock="normal"))


def test_parts_hold_their_rows_in_a_few_bytes(world, tmp_path):
    simulate_to(tmp_path / "run", world, Uniform(40), 1500, 3)
    part = tmp_path / "run" / "log" / "part-00000.parquet"
    log = Log.read(tmp_path / "run")
    assert log.digest() == simulate(world, Uniform(40), 1500, 3).digest()
    assert pq.read_metadata(part).num_row_groups == 2  # 1,024 users each, packed by who simulated them
    in_memory = sum(values.itemsize for values in log.columns.values())
    assert part.stat().st_size / len(log) < 8 + 4 < in_memory  # a drawn clock cannot be told in less than its 8 bytes
