"""Files of a log: what is written is read as it was, by pyarrow alone too, and what was damaged is named in a line."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.log import table as log_table
from recsim_mnar.log.table import write_part, write_stream
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.run_folder import simulate_to
from recsim_mnar.tables.files import read_table
from recsim_mnar.tables.parts import verify
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins.cases import quick_first
from twins.differences import assert_same
from twins.own_schema import estimate_file
from twins.policies import Uniform

FORMS = ["parquet", "arrow", "csv"]


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


def pieces_of(log, *edges):
    edges = [0, *edges, len(log)]
    return [log.select(np.arange(a, b)).columns for a, b in itertools.pairwise(edges)]


def read_back(log, path, *edges):
    """The table that another reader finds in a part written in these pieces."""
    assert write_part(path, pieces_of(log, *edges), log.provenance) == len(log)
    table = pq.read_table(path, page_checksum_verification=True)
    table.validate(full=True)
    assert len(log) == table.num_rows
    return table


def same(one, other):
    assert one.provenance == other.provenance
    assert list(one.columns) == list(other.columns)
    assert_same(one.columns, other.columns)


@pytest.mark.parametrize("n", [1, 2, 33, 129, 1000])
@pytest.mark.parametrize("form", FORMS)
def test_every_row_comes_back(n, form, tmp_path, monkeypatch):
    monkeypatch.setattr(log_table, "GROUP_ROWS", 64)
    log = rows(n, n)
    write_stream(path := tmp_path / f"x.{form}", pieces_of(log, n // 3, n // 2), log.provenance, form)
    same(Log.read(path), log if form != "csv" else Log(log.columns))


@pytest.mark.parametrize("form", FORMS)
def test_no_rows(form, tmp_path):
    for blocks in ([Log({}).columns], [Log({}).columns] * 3):
        write_stream(path := tmp_path / f"x.{form}", blocks, {"seed": 1}, form)
        if form != "csv":  # a text table of no rows says nothing of its columns' types
            same(Log.read(path), Log({}, {"seed": 1}))
    assert path.stat().st_size > 0


def test_other_readers_find_types_nulls_and_provenance(tmp_path):
    log = rows(1000, 2)
    table = read_back(log, tmp_path / "x.parquet")
    same(Log.from_arrow(table), log)
    assert table.schema.field("event").type.value_type == pa.string()
    assert [table[name].null_count for name in ("user", "step", "time", "event")] == [0] * 4
    for name, shown in (("item", False), ("action", True), ("propensity", True), ("reward", True)):
        np.testing.assert_array_equal(table[name].is_valid(), log.is_bandit == shown)


def test_each_piece_of_a_part_begins_a_row_group_and_large_ones_are_divided(tmp_path, monkeypatch):
    monkeypatch.setattr(log_table, "GROUP_ROWS", 64)
    log = rows(300, 2)
    same(Log.from_arrow(read_back(log, tmp_path / "x.parquet", 10, 150)), log)
    metadata = pq.read_metadata(tmp_path / "x.parquet")
    assert [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)] == [10, 64, 64, 12, 64, 64, 22]


@pytest.mark.parametrize("form", FORMS)
def test_the_bytes_of_a_file_do_not_depend_on_the_blocks(form, tmp_path, monkeypatch):
    monkeypatch.setattr(log_table, "GROUP_ROWS", 64)
    log = rows(1000, 3, word=np.resize(["a", "bc", "d"], 1000))
    write_stream(tmp_path / "whole", [log.columns], log.provenance, form)
    for edges in ([1], [64], [63, 65, 130], [0, 500, 500, 999]):
        write_stream(tmp_path / "blocks", pieces_of(log, *edges), log.provenance, form)
        assert (tmp_path / "blocks").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_flipped_bit_of_a_page_is_named_in_a_line(tmp_path):
    path = tmp_path / "x.parquet"
    read_back(rows(5000, 4), path)
    content = path.read_bytes()
    group = pq.read_metadata(path).row_group(0)
    rng = np.random.default_rng(0)
    for column in range(group.num_columns):
        chunk = group.column(column)
        first = chunk.dictionary_page_offset or chunk.data_page_offset
        place = first + chunk.total_compressed_size - int(rng.integers(1, 10))  # behind the page's header
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        words = r"x\.parquet is not a readable Parquet file: [^\n]*CRC checksum[^\n]*$"
        with pytest.raises(UserError, match=words):
            Log.read(path)
        if chunk.path_in_schema == "propensity":
            with pytest.raises(UserError, match=words):
                estimate_file(path, ["propensity"])


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SessionsParams(n_items=40, n_flips=9))


@pytest.mark.parametrize("form", quick_first(["parquet", "arrow"]))
def test_parts_have_the_same_bytes_with_any_number_of_workers(form, world, tmp_path, monkeypatch):
    for module in ("executor", "run_folder"):
        monkeypatch.setattr(f"recsim_mnar.simulation.{module}.SHARD_USERS", 64)
    simulate_to(tmp_path / "one", world, Uniform(40), 700, 3, form=form)
    for n in (2, 3):
        with ThreadPoolExecutor(n) as executor:
            simulate_to(tmp_path / str(n), world, Uniform(40), 700, 3, form=form, executor=executor)
        for file in (tmp_path / "one" / "log").glob("part-*"):
            assert (tmp_path / str(n) / "log" / file.name).read_bytes() == file.read_bytes()
    assert Log.read(tmp_path / "2").digest() == simulate(world, Uniform(40), 700, 3).digest()


def test_parts_hold_their_rows_in_a_few_bytes(world, tmp_path):
    simulate_to(tmp_path / "run", world, Uniform(40), 1500, 3)
    part = tmp_path / "run" / "log" / "part-00000.parquet"
    assert pq.read_metadata(part).num_row_groups == 2  # 1,024 users each
    assert part.stat().st_size < 2.2 * len(Log.read(tmp_path / "run"))  # 45 bytes a row in memory


def test_a_run_keeps_its_format(world, tmp_path):
    simulate_to(tmp_path / "run", world, Uniform(40), 50, 5, form="arrow")
    with pytest.raises(UserError, match="differs in format"):
        simulate_to(tmp_path / "run", world, Uniform(40), 50, 5, resume=True)
    with pytest.raises(UserError, match="format 'csv'"):
        simulate_to(tmp_path / "other", world, Uniform(40), 50, 5, form="csv")


def test_codes_beyond_their_words_are_named(tmp_path):
    codes, words = pa.array([0, 7], pa.int8()), pa.array(["organic", "bandit"])
    event = pa.DictionaryArray.from_buffers(pa.dictionary(pa.int8(), pa.string()), 2, codes.buffers(), words)
    columns = {"event": event, "reward": pa.array([0.0, 1.0]), "propensity": pa.array([0.5, 0.5])}
    table = pa.table(columns)
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(UserError, match=r"a\.arrow is not a readable Arrow file"):
        read_table(tmp_path / "a.arrow")
    assert verify(tmp_path / "a.arrow").faults
