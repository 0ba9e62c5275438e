"""Receipts of files, and the readers' door that holds files against them."""

import itertools
import json
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsim_mnar.cli import main
from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.log.table import write_stream
from recsim_mnar.policies import registry
from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.runs.receipts import INDEX, UNFINISHED, DamagedIndexError, Index, Receipt, file_digest
from recsim_mnar.simulation import simulate
from recsim_mnar.tables.files import write_table
from recsim_mnar.tables.parts import Parts, verify
from recsim_mnar.worlds import make_world
from toys import refused
from twins.commands import run
from twins.own_schema import estimate_file


def made(seed, n_users=30):
    world = make_world("sessions", None, ["n_items=20", "n_flips=5"])
    return simulate(world, registry.uniform_policy(20), n_users, seed)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Two logs of several parts each."""
    folder = tmp_path_factory.mktemp("receipts")
    for seed in (1, 2):
        made(seed).write(folder / str(seed), rows_per_part=600)
    return folder


@pytest.fixture
def log(written, tmp_path):
    shutil.copytree(written / "1", tmp_path / "log")
    return tmp_path / "log"


READERS = (Log.read, lambda path: estimate_file(path, ["propensity"]))


def assert_all_say(path, *words):
    """Every reader refuses the path in one line, and verify names the fault, in these words."""
    lines = []
    for read in READERS:
        with pytest.raises(UserError) as caught:
            read(path)
        lines.append(str(caught.value))
    lines += verify(path).faults
    assert len(lines) > len(READERS)
    assert not any("\n" in line for line in lines)
    for line in lines[: len(READERS) + 1]:
        assert all(word in line for word in words), line


# ------------------------------------------------------------------------------------------------------------- indexes


def test_an_index_lists_every_part(log):
    index = Index.read(log)
    parts = sorted(log.glob("part-*"))
    assert len(parts) > 3
    assert sorted(index.receipts) == [part.name for part in parts]
    last_user = -1
    for part in parts:
        receipt = index.receipts[part.name]
        users = pq.read_table(part)["user"].to_numpy()
        assert (receipt.bytes, receipt.sha256) == (part.stat().st_size, file_digest(part))
        assert (receipt.rows, receipt.users) == (len(users), (users[0], users[-1]))
        assert last_user < users[0]
        last_user = users[-1]
    assert {"recsim-mnar", "numpy", "pyarrow", "sources"} <= set(index.made_with)
    assert not (log / UNFINISHED).exists()


@pytest.mark.slow
def test_any_changed_bit_of_an_index_is_noticed(log):
    content = (log / INDEX).read_bytes()
    for at in range(len(content)):
        _flip(log / INDEX, at, 1 << (at % 8))
        with pytest.raises(DamagedIndexError, match=r"index.json is damaged"):
            Index.read(log)
        (log / INDEX).write_bytes(content)


def test_an_index_of_another_program_is_none_of_ours(log, tmp_path):
    folder = tmp_path / "of another program"
    folder.mkdir()
    shutil.copy(log / "part-00000.parquet", folder / "a.parquet")
    (folder / INDEX).write_text('{"files": ["a.parquet"], "by": "another program"}')
    assert Parts.of(folder).index is None
    with refused("belongs to another program"), RunFolder.fill(folder, resume=True):
        pytest.fail("it is not ours")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b"])
def test_an_index_names_files_of_its_folder_alone(tmp_path, name):
    Index({name: Receipt(name, 1, "0" * 64)}).write(tmp_path)
    with pytest.raises(DamagedIndexError):
        Index.read(tmp_path)


def test_the_receipts_of_a_killed_run_count_until_they_are_damaged(tmp_path):
    index = Index({f"part-{i}": Receipt(f"part-{i}", i, f"{i:064}", rows=i, users=(i, i)) for i in range(3)}, "digest")
    index.write(tmp_path, UNFINISHED)
    assert Index.of(tmp_path) == index
    content = (tmp_path / UNFINISHED).read_bytes()
    for damaged in (content[:-5], content.replace(b'"bytes": 1', b'"bytes": 7')):
        (tmp_path / UNFINISHED).write_bytes(damaged)
        assert Index.of(tmp_path) == Index()


# -------------------------------------------------------------------------------------------------------------- faults


def test_a_whole_log_is_read_and_verified(log):
    assert Log.read(log).digest() == made(1).digest()
    verified = verify(log)
    assert not verified.faults
    assert verified.n_rows == len(made(1))
    assert Log.read(log / "part-00001.parquet").columns.keys()


def test_a_part_that_is_missing_is_named(log):
    (log / "part-00002.parquet").rename(log / "part-00099.parquet")
    assert_all_say(log, "part-00002.parquet is missing")


def test_a_part_too_much_is_named(log, written):
    shutil.copy(written / "2" / "part-00000.parquet", log / "more.parquet")
    assert_all_say(log, "more.parquet is not listed in index.json")


def test_a_part_of_other_bytes_is_named(log, written):
    shutil.copy(written / "2" / "part-00001.parquet", log)
    assert_all_say(log, "part-00001.parquet is not what index.json lists")


def test_any_bit_of_a_part_is_noticed(log):
    part = log / "part-00001.parquet"
    content = part.read_bytes()
    for at in np.linspace(0, len(content) - 1, 23).astype(int):
        _flip(part, at, 1 << (at % 8))
        for path in (log, part):
            with refused(r"part-00001.parquet is not what index.json lists"):
                Log.read(path)
        part.write_bytes(content)


def test_a_log_without_its_index_is_not_finished(log):
    (log / INDEX).unlink()
    assert_all_say(log, "index.json is missing")
    for part in log.glob("part-*"):  # put together by a user, under names of their own
        part.rename(log / part.name.replace("part", "mine"))
    assert Log.read(log).digest() == made(1).digest()
    assert verify(log).n_read == len(list(log.glob("mine-*")))


def test_hidden_files_are_alike_to_all_readers(log):
    for name in ("_metadata.parquet", ".part-00000.parquet", "_SUCCESS"):
        (log / name).write_bytes(b"not a table")
    assert Log.read(log).digest() == made(1).digest()
    assert estimate_file(log, ["propensity"])[0]["n"] == made(1).is_bandit.sum()
    assert not verify(log).faults


def test_a_folder_within_a_folder_that_looks_like_a_column_adds_none(log):
    there = log.parent / "reward=7"
    log.rename(there)
    assert Log.read(there).digest() == made(1).digest()


# ---------------------------------------------------------------------------------------------- single files, exposures


def _flip(file, at=2000, bit=1):
    content = bytearray(file.read_bytes())
    content[at] ^= bit
    file.write_bytes(content)


def test_a_folder_of_two_formats_is_refused_and_none_is_dropped(tmp_path):
    write_table(made(1).to_arrow(), tmp_path / "a.parquet")
    made(2).write_csv(tmp_path / "b.csv")
    assert_all_say(tmp_path, "holds a.parquet and b.csv: the parts of a log have one format")
    (tmp_path / "a.parquet").unlink()
    assert verify(tmp_path).n_rows == len(made(2))  # a text's rows are counted, too


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv"])
def test_a_file_is_not_counted_twice_under_two_names(form, tmp_path):
    def write(name, log):
        write_stream(tmp_path / f"{name}.{form}", [log.columns], {}, form)

    nothing = made(1, 1).select(np.arange(0))
    for name, log in {"a": made(1, 20), "b": made(1, 20), "empty": nothing, "empty-too": nothing}.items():
        write(name, log)
    assert_all_say(tmp_path, f"b.{form} is the same as a.{form}, byte for byte: move one of them away")
    write("b", made(1, 21))
    assert len(Log.read(tmp_path)) == len(made(1, 20)) + len(made(1, 21))  # empty ones may be alike


@pytest.mark.parametrize("made_by", [{"a": 1}, "another"], ids=str)
def test_a_strange_mark_of_a_part_is_none(made_by, log):
    table = pq.read_table(log / "part-00000.parquet", partitioning=None)
    mark = json.dumps({"part": 7, "made": made_by}).encode()
    pq.write_table(table.replace_schema_metadata({b"recsim_mnar_part": mark}), log / "z.parquet")
    assert_all_say(log, "z.parquet is not listed in index.json")


CELLS = pa.table({name: np.zeros(2, np.int64) for name in ("user", "item", "time", "recommended", "purchased")})
READ_VERSIONED = {
    "Log.read": lambda path: Log.read(path),
    "estimate": lambda path: main(["estimate", str(path), "--target", "propensity"]),
    "replay": lambda path: main(["replay", str(path), "--policy", "random", "--out", f"{path.parent}/out.parquet"]),
    "doctor": lambda path: main(["doctor", str(path)]),
    "Exposures.read": lambda path: Exposures.read(path),
}


@pytest.mark.parametrize(
    ("reader", "version"),
    [
        *itertools.product(READ_VERSIONED, (4, "../../etc")),
        *(("Log.read", version) for version in (-1, 5.0, None)),
    ],
)
def test_another_version_of_the_schema_is_refused(reader, version, tmp_path, capsys):
    path = tmp_path / "a.parquet"
    key = b"recsim_mnar"
    table = made(1).to_arrow()
    if reader == "Exposures.read":
        path = tmp_path / "exposures.parquet"
        key = b"recsim_mnar_exposures"
        table = CELLS
    meta = {key: json.dumps({"schema_version": version}).encode()}
    pq.write_table(table.replace_schema_metadata(meta), path)
    with pytest.raises((UserError, SystemExit)) as caught:
        READ_VERSIONED[reader](path)
    message = f"{caught.value}{capsys.readouterr().err}"
    assert re.search(r"schema version .*: this package reads version 5. Read the file", message), message
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("name", ["exposures.parquet", "propensities.npz"])
def test_exposures_are_held_against_their_receipts(tmp_path, name):
    propensities = np.random.default_rng(0).uniform(0.1, 0.9, (2, 3, 1)).astype(np.float32)
    Exposures([0, 0, 1], [0, 1, 2], [0, 0, 0], [1, 0, 1], [1, 1, 0], 2, 3, 1, propensities).write(tmp_path)
    assert sorted(Index.read(tmp_path).receipts) == ["exposures.parquet", "propensities.npz"]
    assert not verify(tmp_path).faults
    _flip(tmp_path / name, 60)
    with refused(f"{name} is not what index.json lists"):
        Exposures.read(tmp_path)
    assert name in verify(tmp_path).faults[0]


# ------------------------------------------------------------------------------------------ files without receipts


@pytest.mark.parametrize("meta", [b"{", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_metadata_that_is_no_table_is_a_line(tmp_path, meta):
    pq.write_table(made(1).to_arrow().replace_schema_metadata({b"recsim_mnar": meta}), tmp_path / "a.parquet")
    for read in READERS:
        with refused(r"a.parquet: the metadata 'recsim_mnar' is no table of JSON"):
            read(tmp_path / "a.parquet")


def test_columns_of_tables_are_a_line(tmp_path):
    log = made(1)
    struct = pa.array([{"a": 1}] * len(log))
    table = log.to_arrow()
    for name in ("event", "user", "reward"):
        pq.write_table(table.set_column(table.column_names.index(name), name, struct), tmp_path / "a.parquet")
        for read in READERS if name != "user" else READERS[:1]:
            with refused(name):
                read(tmp_path / "a.parquet")


def test_a_folder_that_was_not_finished_is_no_whole_one(log, tmp_path):
    """Its files may be right, and are not all."""
    folder = tmp_path / "unfinished"
    shutil.copytree(log, folder / "log")
    Index().write(folder, UNFINISHED)
    (fault,) = verify(folder).faults
    assert str(folder) in fault


def test_verify_says_every_fault(log, capsys):
    (log / "part-00001.parquet").unlink()
    (log / "part-00002.parquet").write_bytes(b"PAR1")
    status, _, err = run(capsys, "verify", log)
    assert (status, err.count("error: ")) == (2, 1)
    assert "part-00001.parquet is missing" in err
    assert "part-00002.parquet is not what index.json lists" in err
