"""Estimates of logs that are read in blocks: the bits of all rows at once, wherever blocks and parts divide them."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy import from_file
from recsim_mnar.estimators.off_policy.blocks import CHUNK, cut_blocks, sorted_blocks
from recsim_mnar.estimators.off_policy.from_file import estimate_columns, estimate_file
from recsim_mnar.kernels.memory import MB, MemoryLimit, parse_size
from recsim_mnar.log.column_files import Block, LogFile

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
    file = LogFile.open(path, [*NAMES, "t_unsupported", "price"])
    log = file.read()
    lost = {"t": log.others["t_unsupported"]}
    log.others["propensity"] = log.propensity
    if "reward_limit" in question:
        question["reward_limit"] = log.others[question["reward_limit"]]
    return estimate_columns(log, targets, missing=lost, **question)


@pytest.mark.parametrize("n_parts", [1, 2, 7])
@pytest.mark.parametrize("case", ["plain", "rows", "out of order", "negative", "arrow", "one user", "limits"])
def test_blocks_give_the_bits_of_all_rows(tmp_path, monkeypatch, case, n_parts):
    n = 3 * CHUNK + 77 if case == "rows" else 6_000
    rows = table(n, users=1 if case == "one user" else 60, ordered=case != "out of order", negative=case == "negative")
    if case == "rows":
        rows = rows.drop_columns(["user"])
    path = written(tmp_path / "log", rows, n_parts, "arrow" if case == "arrow" else "parquet")
    monkeypatch.setattr(from_file, "_BLOCK_ROWS", 5_000 if case == "rows" else 97)
    monkeypatch.setattr(from_file, "_SORTED_BYTES", from_file._LEAST_ROWS)
    monkeypatch.setattr(from_file, "_LEAST_ROWS", 1)
    question = QUESTION | ({"reward_limit": "price", "propensity_min": 0.01} if case == "limits" else {})
    expected = at_once(path, ["t", "propensity"], **question)
    found = estimate_file(path, ["t", "propensity"], **question)
    assert ("reward_limit" in found[0]["diagnostics"]) == (case == "limits")
    assert json.dumps(found) == json.dumps(expected)
    assert len(found) == 15
    assert found[0]["findings"]


def test_an_estimator_that_needs_all_rows_is_named_above_the_limit(tmp_path):
    path = written(tmp_path / "log", table(200_000), 1)
    limit = MemoryLimit(100 * MB)
    for question, words in (
        ({"estimators": ["sg_ips"]}, "sg_ips needs all rows"),
        ({"estimators": ["ips"], "interval": "bootstrap"}, "the bootstrap interval needs all rows"),
    ):
        with pytest.raises(UserError, match=f"{words}.*--max-memory 1.0|{words}.*needs at least"):
            estimate_file(path, ["t"], limit=limit, **question)
        assert estimate_file(path, ["t"], **question)


def test_too_little_memory_is_refused_with_the_least(tmp_path):
    path = written(tmp_path / "log", table(100), 1)
    with pytest.raises(UserError, match=r"--max-memory 1 MB: estimate .* needs at least [0-9.]+ [MG]B"):
        estimate_file(path, ["t"], limit=MemoryLimit(MB))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("propensity", 0.0, "column 'propensity', row 5001 .*outside"),
        ("t", 1.5, "column 't', row 5001 .*no probability"),
        ("reward", np.nan, "column 'reward', row 5001 .*finite"),
        ("t_unsupported", 1.5, "column 'unsupported', row 5001 .*no mass"),
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
    monkeypatch.setattr(from_file, "_BLOCK_ROWS", 500)
    monkeypatch.setattr(from_file, "_LEAST_ROWS", 1)
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
        found = list(sorted_blocks(lambda mixed=mixed: mixed, 100))
        assert len(found) > 3
        users = np.concatenate([each.user for each in found])
        np.testing.assert_array_equal(users, np.sort(user))


@pytest.mark.parametrize(
    ("text", "size"), [("1GB", 10**9), ("1.5 GiB", 3 << 29), ("800m", 8 * 10**8), ("12", 12), ("2TB", 2 * 10**12)]
)
def test_sizes(text, size):
    assert parse_size(text, "--max-memory") == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1 apple", "0"])
def test_what_is_no_size_is_said(text):
    with pytest.raises(UserError, match=r"--max-memory .* is no size"):
        parse_size(text, "--max-memory")


@pytest.mark.parametrize("first", ["bandit", "Bandit"])
def test_words_of_events_that_fill_a_block_of_their_own_are_named(tmp_path, first):
    """Blocks are looked at one by one: none of their rows may be left out because the block knows no other word."""
    other = {"bandit": "Bandit", "Bandit": "bandit"}[first]
    table = pa.table({
        "event": [first] * 10 + [other] * 10, "user": np.arange(20), "reward": np.ones(20),
        "propensity": np.full(20, 0.5), "target": np.full(20, 0.5),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=10)
    file = LogFile.open(tmp_path / "log.parquet", ["target"])
    row = 11 if other == "Bandit" else 1
    with pytest.raises(UserError, match=rf"row {row} .*'Bandit' is neither organic nor bandit"):
        list(file.blocks(10))
    with pytest.raises(UserError, match=rf"row {row} .*'Bandit' is neither organic nor bandit"):
        file.read()
