"""Estimates of logs that are read in blocks: the bits of all rows at once, wherever blocks and parts divide them."""

from __future__ import annotations

import errno
import io
import itertools
import json
import tempfile
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

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
NAMES = ["t", "b", "propensity"]


def table(n: int, *, users: int = 60, ordered: bool = True, negative: bool = False) -> pa.Table:
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


def written(path, rows: pa.Table, n_parts: int, ending: str = "parquet"):
    path.mkdir()
    edges = np.linspace(0, len(rows), n_parts + 1).astype(int)
    for i in range(n_parts):
        part = rows.slice(edges[i], edges[i + 1] - edges[i])
        name = path / f"piece-{i}.{ending}"
        if ending == "parquet":
            pq.write_table(part, name, row_group_size=max(1, len(part) // 3))
        else:
            with pa.OSFile(str(name), "wb") as file, pa.ipc.new_file(file, part.schema) as writer:
                writer.write_table(part)
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


@pytest.mark.parametrize("n_parts", [1, pytest.param(2, marks=pytest.mark.slow), 7])
@pytest.mark.parametrize("case", ["plain", "rows", "out of order", "negative", "arrow", "one user", "limits"])
def test_blocks_give_the_bits_of_all_rows(tmp_path, monkeypatch, case, n_parts):
    n = 3 * CHUNK + 77 if case == "rows" else 6_000
    rows = table(n, users=1 if case == "one user" else 60, ordered=case != "out of order", negative=case == "negative")
    if case == "rows":
        rows = rows.drop_columns(["user"])
    path = written(tmp_path / "log", rows, n_parts, "arrow" if case == "arrow" else "parquet")
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 5_000 if case == "rows" else 97)
    monkeypatch.setattr(blocks, "SORTED_ROWS", 500)
    question = QUESTION | ({"reward_limit": "price", "propensity_min": 0.01} if case == "limits" else {})
    expected = at_once(path, ["t", "propensity"], **question)
    found = estimate_file(path, ["t", "propensity"], **question)
    assert json.dumps(found) == json.dumps(expected)
    assert len(found) == 15
    assert found[0]["findings"]


def test_what_needs_all_rows_is_refused_where_they_do_not_fit(tmp_path, monkeypatch):
    path = written(tmp_path / "log", table(200_000), 1)
    assert estimate_file(path, ["t"], estimators=["dm"], q_logged="b", q_target="b")
    monkeypatch.setattr(parts, "free_memory", lambda: 1_000_000)
    assert estimate_file(path, ["t"])
    for question in ({"estimators": ["dm"], "q_logged": "b", "q_target": "b"}, {"keep_rows": True}):
        with pytest.raises(UserError, match=r"all of its rows are needed at once.* this machine has 1 MB left"):
            estimate_file(path, ["t"], **question)


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
    rows = table(6_000)
    event = np.asarray(rows.column("event")).copy()
    event[5_000] = "bandit"
    rows = rows.set_column(1, "event", pa.array(event))
    values = rows.column(name).to_numpy().copy()
    values[5_000] = value
    path = written(tmp_path / "log", rows.set_column(rows.column_names.index(name), name, pa.array(values)), 2)
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 500)
    with pytest.raises(UserError, match=words):
        estimate_file(path, ["t"])


def test_blocks_are_cut_between_users_and_sorted_ones_hold_all_rows():
    user = np.sort(np.random.default_rng(0).integers(0, 9, 500))
    whole = Block({"x": np.arange(500.0)}, user, np.arange(500))
    for size in (1, 7, 100, 600):
        pieces = [whole[i : i + size] for i in range(0, 500, size)]
        cut = list(cut_blocks(pieces))
        np.testing.assert_array_equal(np.concatenate([each.numbers for each in cut]), np.arange(500))
        met = [np.unique(each.user) for each in cut]
        assert len(np.concatenate(met)) == 9
        mixed = [whole[np.random.default_rng(size).permutation(500)]]
        found = list(sorted_blocks(mixed, 100, lambda: None))
        assert len(found) > 3
        users = np.concatenate([each.user for each in found])
        np.testing.assert_array_equal(users, np.sort(user))


@pytest.mark.parametrize("first", ["bandit", "shop"])
def test_words_of_events_that_fill_a_block_of_their_own_are_named(tmp_path, monkeypatch, first):
    """Blocks are looked at one by one: none of their rows may be left out because the block knows no other word."""
    other = {"bandit": "shop", "shop": "bandit"}[first]
    rows = pa.table({
        "event": [first] * 10 + [other] * 10, "user": np.arange(20), "reward": np.ones(20),
        "propensity": np.full(20, 0.5), "target": np.full(20, 0.5),
    })  # fmt: skip
    pq.write_table(rows, tmp_path / "log.parquet", row_group_size=10)
    words = rf"column 'event' is neither organic nor bandit in 10 rows \({11 if other == 'shop' else 1}: shop"
    for size in (10, 100):
        monkeypatch.setattr(blocks, "BLOCK_ROWS", size)
        with pytest.raises(UserError, match=words):
            estimate_file(tmp_path / "log.parquet", ["target"])


def rounded(records):
    """Records with nine digits: sums over blocks are added up in another order."""
    return json.loads(json.dumps(records), parse_float=lambda number: f"{float(number):.9g}")


def own(n: int, users: str, event: str = "") -> pa.Table:
    """A file of somebody else: 40 rows for each user, copies among them, and a value that is missing."""
    rng = np.random.default_rng(n)
    code = np.repeat(rng.permutation(n // 40 + 1), 40)[:n]
    code = rng.permutation(code) if users == "mixed" else np.sort(code) if users == "sorted" else code
    rows = {
        "user_id": [f"u{each}" for each in code] if users == "text" else code * 3,
        "ts": np.arange(n) // 2.0,
        "item_id": [f"item {each}" for each in rng.integers(0, 9, n)],
        "click": np.where(rng.random(n) < 0.1, rng.choice([1.0, 2.5], n), 0.0),
        "pscore": rng.uniform(0.05, 1.0, n),
        "new": rng.uniform(0.0, 1.0, n),
    }
    if event:
        rows["kind"] = np.where(rng.random(n) < 0.5, "view", "show") if event == "known" else np.full(n, "web")
    made = pa.table(rows)
    twice = pa.concat_tables([made.slice(0, 45), made.slice(40)]).combine_chunks()
    click = twice.column("click").to_pylist()
    click[77] = None
    return twice.set_column(3, "click", pa.array(click))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "users", "event"),
    [
        *itertools.product(["parquet", "csv"], ["sorted", "together", "mixed", "text"], [""]),
        *itertools.product(["parquet", "csv"], ["mixed"], ["known", "about something else"]),
    ],
)
def test_a_file_of_ones_own_gives_in_blocks_what_it_gives_at_once(tmp_path, monkeypatch, kind, users, event):
    rows = own(4_000, users, event)
    path = tmp_path / f"own.{kind}"
    if kind == "csv":
        csv.write_csv(rows, path)
        monkeypatch.setattr(text, "_BLOCK_BYTES", 4096)
    else:
        pq.write_table(rows, path, row_group_size=300)
    columns = {"event": "kind"} if event else {}
    question = Question(["new", "propensity"], baseline="today", estimators=["ips", "clipped_ips", "snips"], clip=3.0)
    reading = Reading(columns, drop_missing=True)
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 97)
    monkeypatch.setattr(blocks, "SORTED_ROWS", 500)
    found = estimate_log(path, question, reading=reading)
    whole = estimate_log(path, replace(question, keep_rows=True), reading=reading)
    assert found.log is None
    assert len(whole.log) < 4_000 if event == "known" else len(whole.log) == 4_004
    assert found.lines == whole.lines
    assert rounded(found.records) == rounded(whole.records)
    assert codes(found.records[0]) >= {"rows_dropped", "rows_repeated"}


@pytest.mark.parametrize("ids", ["text", "numbers", "numbers in text"])
def test_users_in_any_order_are_read_from_the_log_once_more(tmp_path, monkeypatch, ids):
    """A second pass stores the rows; their order is that of the ids, so shuffled rows give the same estimate."""
    rows = table(6_000, ordered=False)
    expected = rounded(at_once(written(tmp_path / "sorted", rows.sort_by("user"), 1), ["t"], **QUESTION))
    if ids != "numbers":
        names = [f"u{user + 1000:04}" if ids == "text" else str(user) for user in rows.column("user").to_pylist()]
        rows = rows.set_column(rows.column_names.index("user"), "user", pa.array(names))
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 97)
    monkeypatch.setattr(blocks, "SORTED_ROWS", 500)
    passes = []
    read = BanditLog.blocks
    monkeypatch.setattr(BanditLog, "blocks", lambda log, rows: passes.append(rows) or read(log, rows))
    by_user = np.argsort(rows.column("user").to_numpy(zero_copy_only=False), kind="stable")
    for seed in (0, 1):
        users = rows.column("user").take(np.random.default_rng(seed).permutation(len(rows)))
        order = np.empty(len(rows), np.int64)  # a user's rows stay in theirs
        order[np.argsort(users.to_numpy(zero_copy_only=False), kind="stable")] = by_user
        path = written(tmp_path / f"log{seed}", rows.take(order), 1)
        assert rounded(estimate_file(path, ["t"], **QUESTION)) == expected
    assert len(passes) == 2 * 2  # in order, then stored


def test_a_full_disk_is_named_with_what_to_do(monkeypatch):
    class FullDisk(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", FullDisk)
    block = Block({"x": np.arange(5.0)}, np.arange(5), np.arange(5))
    with pytest.raises(MachineError, match=r"No space left on device.*TMPDIR"):
        list(sorted_blocks([block], 10, lambda: None))


def test_no_folder_for_temporary_files_is_an_error_in_one_line(monkeypatch):
    def refuse(*args):
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    block = Block({"x": np.arange(5.0)}, np.arange(5), np.arange(5))
    with pytest.raises(MachineError, match="No usable"):
        list(sorted_blocks([block], 10, lambda: None))
