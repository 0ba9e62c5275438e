"""Estimates of logs that are read in blocks: the bits of all rows at once, wherever blocks and parts divide them."""

from __future__ import annotations

import errno
import io
import json
import tempfile
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, feather

from recsim_mnar.answers.records import estimate_columns
from recsim_mnar.errors import MachineError, UserError
from recsim_mnar.estimators import Facts
from recsim_mnar.own_log import blocks
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.blocks import CHUNK, Block, cut_blocks, sorted_blocks
from recsim_mnar.own_log.estimating import Question, estimate_log
from recsim_mnar.tables import parts, text
from twins.findings import codes
from twins.own_schema import estimate_file

QUESTION = {"baseline": "b", "estimators": ["ips", "clipped_ips", "snips"], "clip": 3.0}


def table(n, *, users=60, ordered=True, negative=False):
    rng = np.random.default_rng(n + users)
    user = rng.integers(0, users, n) * 7 - 100
    target = np.where(rng.random(n) < 0.2, 0.0, rng.uniform(0.0, 1.0, n))
    return pa.table(
        {
            "user": np.sort(user) if ordered else user,
            "event": np.where(rng.random(n) < 0.3, "organic", "bandit"),
            "reward": np.where(rng.random(n) < 0.1, rng.choice([1.0, 2.5], n), 0.0) - 0.5 * negative,
            "propensity": rng.uniform(0.01, 1.0, n),
            "t": target,
            "b": rng.uniform(0.0, 1.0, n),
            "t_unsupported": rng.uniform(0.0, 1.0, n) * (1.0 - target),
            "price": 2.5 + rng.uniform(0.0, 1.0, n),
        }
    )


def written(path, rows, n_parts, ending="parquet"):
    path.mkdir()
    for i, numbers in enumerate(np.array_split(np.arange(len(rows)), n_parts)):
        part = rows.take(numbers)
        name = path / f"piece-{i}.{ending}"
        if ending == "parquet":
            pq.write_table(part, name, row_group_size=max(1, len(part) // 3))
        else:
            feather.write_feather(part, name, compression="uncompressed")
    return path


def at_once(path, targets, **question):
    """The plain twin: all rows in memory, every estimate from its columns."""
    log = BanditLog.open(path, ["t", "b"], reading=Reading(exact=True), extra_columns=["t_unsupported", "price"]).read()
    log.policies["propensity"] = log.propensity
    facts = {name: question.pop(name) for name in ("propensity_min", "reward_limit") if name in question}
    if "reward_limit" in facts:
        facts["reward_limit"] = log.others[facts["reward_limit"]]
    missing = {"t": log.others["t_unsupported"]}
    return estimate_columns(log.values(), targets, missing=missing, facts=Facts(**facts), **question)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 97)
    monkeypatch.setattr(blocks, "SORTED_ROWS", 500)


@pytest.mark.parametrize("n_parts", [1, pytest.param(2, marks=pytest.mark.slow), 7])
@pytest.mark.parametrize(
    ("rows", "ending", "options"),
    [
        pytest.param({}, "parquet", {}, id="plain"),
        pytest.param({"ordered": False}, "parquet", {}, id="out of order"),
        pytest.param({"negative": True}, "parquet", {}, id="negative"),
        pytest.param({}, "arrow", {}, id="arrow"),
        pytest.param({"users": 1}, "parquet", {}, id="one user"),
        pytest.param({}, "parquet", {"reward_limit": "price", "propensity_min": 0.01}, id="limits"),
    ],
)
@pytest.mark.usefixtures("small_blocks")
def test_blocks_give_the_bits_of_all_rows(tmp_path, rows, ending, options, n_parts):
    path = written(tmp_path / "log", table(6_000, **rows), n_parts, ending)
    check_bits(path, **QUESTION, **options)


@pytest.mark.parametrize("n_parts", [1, pytest.param(2, marks=pytest.mark.slow), 7])
def test_blocks_of_rows_without_users_give_the_bits_of_all_rows(tmp_path, monkeypatch, n_parts):
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 5_000)
    rows = table(3 * CHUNK + 77).drop_columns(["user"])
    check_bits(written(tmp_path / "log", rows, n_parts), **QUESTION)


def check_bits(path, **question):
    targets = ["t", "propensity"]
    records = estimate_file(path, targets, **question)
    assert json.dumps(records) == json.dumps(at_once(path, targets, **question))
    assert len(records) == 15
    assert records[0]["findings"]


def test_what_needs_all_rows_is_refused_where_they_do_not_fit(tmp_path, monkeypatch):
    path = written(tmp_path / "log", table(200_000), 1)
    monkeypatch.setattr(parts, "free_memory", lambda: 1_000_000)
    assert estimate_file(path, ["t"])
    with pytest.raises(UserError, match=r"all of its rows are needed at once.* this machine has 1 MB left"):
        estimate_file(path, ["t"], keep_rows=True)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("propensity", 0.0, r"column 'propensity' is outside \(0, 1\] in row 5001: 0"),
        ("t", 1.5, r"column 't' is outside \[0, 1\] in row 5001: 1.5"),
        ("reward", np.nan, "column 'reward' is missing in row 5001"),
        ("t_unsupported", 1.5, "column 'unsupported', row 5001 .*cannot add to the logged action's"),
    ],
)
def test_a_bad_row_is_named_as_in_the_file(tmp_path, monkeypatch, name, value, words):
    columns = {column: np.array(values) for column, values in table(6_000).to_pydict().items()}
    columns["event"][5_000] = "bandit"
    columns[name][5_000] = value
    path = written(tmp_path / "log", pa.table(columns), 2)
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 500)
    with pytest.raises(UserError, match=words):
        estimate_file(path, ["t"])


@pytest.fixture
def all_rows():
    user = np.sort(np.random.default_rng(0).integers(0, 9, 500))
    return Block({"x": np.arange(500.0)}, user, np.arange(500))


@pytest.mark.parametrize("size", [1, 7, 100, 600])
def test_blocks_are_cut_between_users(all_rows, size):
    cut = list(cut_blocks([all_rows[start : start + size] for start in range(0, 500, size)]))
    np.testing.assert_array_equal(np.concatenate([block.numbers for block in cut]), np.arange(500))
    assert sum(np.unique(block.user).size for block in cut) == 9


def test_sorted_blocks_hold_all_rows_by_user(all_rows):
    mixed = all_rows[np.random.default_rng(7).permutation(500)]
    in_order = list(sorted_blocks([mixed], 100, lambda: None))
    assert len(in_order) > 3
    np.testing.assert_array_equal(np.concatenate([block.user for block in in_order]), all_rows.user)


@pytest.mark.parametrize(("events", "row"), [(["bandit", "shop"], 11), (["shop", "bandit"], 1)])
@pytest.mark.parametrize("size", [10, 100])
def test_words_of_events_that_fill_a_block_of_their_own_are_named(tmp_path, monkeypatch, events, row, size):
    """Blocks are looked at one by one: none of their rows may be left out because the block knows no other word."""
    half = np.full(20, 0.5)
    columns = {"event": np.repeat(events, 10), "user": np.arange(20), "reward": np.ones(20)}
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(columns | {"propensity": half, "target": half}), path, row_group_size=10)
    monkeypatch.setattr(blocks, "BLOCK_ROWS", size)
    with pytest.raises(UserError, match=rf"column 'event' is neither organic nor bandit in 10 rows \({row}: shop"):
        estimate_file(path, ["target"])


def rounded(records):
    """Records with nine digits: sums over blocks are added up in another order."""
    return json.loads(json.dumps(records), parse_float=lambda number: f"{float(number):.9g}")


ORDERS = {"sorted": np.sort, "together": np.asarray, "mixed": lambda user: np.random.default_rng(1).permutation(user)}


def foreign_table(n, order, *, text=False, events=()):
    """A file of somebody else: 40 rows for each user, copies among them, and a value that is missing."""
    rng = np.random.default_rng(n)
    user = ORDERS[order](np.repeat(rng.permutation(n // 40 + 1), 40)[:n])
    rows = {
        "user_id": np.char.add("u", user.astype(str)) if text else user * 3,
        "ts": np.arange(n) // 2.0,
        "item_id": np.char.add("item ", rng.integers(0, 9, n).astype(str)),
        "click": np.where(rng.random(n) < 0.1, rng.choice([1.0, 2.5], n), 0.0),
        "pscore": rng.uniform(0.05, 1.0, n),
        "new": rng.uniform(0.0, 1.0, n),
    }
    if events:
        rows["kind"] = rng.choice(events, n)
    rows = {name: np.concatenate([values[:45], values[40:]]) for name, values in rows.items()}
    missing = np.arange(n + 5) == 77
    return pa.table(rows | {"click": pa.array(rows["click"], mask=missing)})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("order", "columns", "decisions"),
    [
        ("sorted", {}, 4_004),
        ("together", {}, 4_004),
        ("mixed", {}, 4_004),
        ("mixed", {"text": True}, 4_004),
        ("mixed", {"events": ("view", "show")}, 2_049),
        ("mixed", {"events": ("web",)}, 4_004),
    ],
)
@pytest.mark.usefixtures("small_blocks")
def test_a_foreign_file_gives_in_blocks_what_it_gives_at_once(tmp_path, monkeypatch, kind, order, columns, decisions):
    rows = foreign_table(4_000, order, **columns)
    path = tmp_path / f"foreign.{kind}"
    if kind == "csv":
        csv.write_csv(rows, path)
        monkeypatch.setattr(text, "_BLOCK_BYTES", 4096)
    else:
        pq.write_table(rows, path, row_group_size=300)
    names = {"event": "kind"} if "events" in columns else {}
    question = Question(["new", "propensity"], baseline="today", estimators=["ips", "clipped_ips", "snips"], clip=3.0)
    reading = Reading(names, drop_missing=True)
    in_blocks = estimate_log(path, question, reading=reading)
    at_once = estimate_log(path, replace(question, keep_rows=True), reading=reading)
    assert in_blocks.log is None
    assert len(at_once.log) == decisions
    assert in_blocks.lines == at_once.lines
    assert rounded(in_blocks.records) == rounded(at_once.records)
    assert codes(in_blocks.records[0]) >= {"rows_dropped", "rows_repeated"}


@pytest.mark.parametrize("name", ["u{:04}", "{}", None], ids=["text", "numbers in text", "numbers"])
@pytest.mark.usefixtures("small_blocks")
def test_users_in_any_order_are_read_from_the_log_once_more(tmp_path, monkeypatch, name):
    """A second pass stores the rows; their order is that of the ids, so shuffled rows give the same estimate."""
    rows = table(6_000, ordered=False)
    expected = rounded(at_once(written(tmp_path / "sorted", rows.sort_by("user"), 1), ["t"], **QUESTION))
    user = rows.column("user").to_numpy()
    if name:
        ids = pa.array([name.format(number + 1000) for number in user])
        rows = rows.set_column(rows.column_names.index("user"), "user", ids)
    passes = []
    read = BanditLog.blocks
    monkeypatch.setattr(BanditLog, "blocks", lambda log, rows: passes.append(rows) or read(log, rows))
    by_user = np.argsort(user, kind="stable")
    for seed in (0, 1):
        shuffled = np.random.default_rng(seed).permutation(user)
        order = np.empty(len(rows), np.int64)  # a user's rows stay in theirs
        order[np.argsort(shuffled, kind="stable")] = by_user
        path = written(tmp_path / f"log{seed}", rows.take(order), 1)
        assert rounded(estimate_file(path, ["t"], **QUESTION)) == expected
    # In order, then stored.
    assert passes.count(97) == 2 * 2


def test_a_full_disk_is_named_with_what_to_do(monkeypatch, all_rows):
    class FullDisk(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", FullDisk)
    with pytest.raises(MachineError, match=r"No space left on device.*TMPDIR"):
        list(sorted_blocks([all_rows], 10, lambda: None))


def test_no_folder_for_temporary_files_is_an_error_in_one_line(monkeypatch, all_rows):
    def refuse(*args):
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(MachineError, match="No usable"):
        list(sorted_blocks([all_rows], 10, lambda: None))
