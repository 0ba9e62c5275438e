"""Estimates whose parts are read side by side, with the bits of one part after another."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.log.table import Log
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.blocks import gather_parts
from recsim_mnar.own_log.estimating import Question, estimate_log
from recsim_mnar.simulation.executor import run_in_order
from recsim_mnar.tables.files import write_table
from twins.commands import status_of
from twins.own_schema import estimate_file


def log_of(first, n_users, rng, lowest=0.0):
    """Six decisions a user, with two policies' probabilities."""
    n = 6 * n_users
    columns = {
        "user": np.repeat(np.arange(first, first + n_users), 6),
        "step": np.tile(np.arange(6, dtype=np.int32), n_users),
        "event": np.full(n, schema.BANDIT, np.int8),
        "item": np.full(n, -1, np.int32),
        "action": rng.integers(0, 5, n).astype(np.int32),
        "propensity": rng.uniform(0.05, 1.0, n),
        "reward": rng.uniform(lowest, 1.0, n),
        "target": rng.uniform(0.0, 1.0, n),
        "other": rng.uniform(0.0, 1.0, n),
    }
    return Log({"time": np.tile(np.arange(6.0), n_users), **columns})


def estimates(folder, gather=None, **more):
    asked = {"baseline": "other", "estimators": ("ips", "clipped_ips", "snips"), "clip": 3.0, **more}
    found = estimate_file(folder, ["target"], gather=gather, **asked)
    return json.dumps(found)


@pytest.fixture
def side_by_side():
    asked = []

    def gather(*args):
        found = gather_parts(*args, executor=threads, run_in_order=run_in_order)
        asked.append(found is not None)
        return found

    with ThreadPoolExecutor(3) as threads:
        yield gather, asked


@pytest.mark.slow
@pytest.mark.parametrize("lowest", [0.0, -2.0])
def test_the_bits_of_one_part_after_another(tmp_path, side_by_side, lowest):
    gather, asked = side_by_side
    rng = np.random.default_rng(3)
    for k in range(5):
        rows = log_of(1000 * k, 40 + 30 * k, rng, lowest).to_arrow()
        price = pa.array(np.full(len(rows), 1.1 + 0.1 * k))
        write_table(rows.append_column("price", price), tmp_path / f"p{k}.parquet")
    assert estimates(tmp_path, gather) == estimates(tmp_path)
    limits = {"reward_limit": "price", "propensity_min": 0.05}
    assert estimates(tmp_path, gather, **limits) == estimates(tmp_path, **limits)
    assert asked == [True] * 2


def test_findings_of_rows_in_order_are_those_of_one_part_after_another(tmp_path, side_by_side):
    """Item 0 makes all later rows of its user earn more, and an item that was shown before earns half."""
    gather, asked = side_by_side
    rng = np.random.default_rng(5)
    for k in range(4):
        log = log_of(1000 * k, 600, rng)
        shown = log["action"].reshape(-1, 6)
        before = [np.zeros((len(shown), 6)), np.zeros((len(shown), 6))]
        for i in range(1, 6):
            before[0][:, i] = (shown[:, :i] == 0).any(1)
            before[1][:, i] = (shown[:, :i] == shown[:, i : i + 1]).any(1)
        loud, seen = (each.ravel() > 0 for each in before)
        reward = np.round(log["reward"] * np.where(loud, 2.0, 0.5) * np.where(seen, 0.5, 1.0), 1)
        columns = {name: log[name] for name in log.columns} | {"reward": reward, "propensity": np.full(len(seen), 0.2)}
        write_table(Log(columns).to_arrow(), tmp_path / f"p{k}.parquet")
    together = estimates(tmp_path, gather)
    assert together == estimates(tmp_path)
    assert '"shown_before"' in together
    assert '"lasts"' in together
    assert asked == [True]


@pytest.mark.parametrize("second", [5, 0])
def test_users_in_two_parts_or_out_of_order_are_read_one_after_another(tmp_path, side_by_side, second):
    gather, asked = side_by_side
    rng = np.random.default_rng(4)
    write_table(log_of(0 if second else 100, 6, rng).to_arrow(), tmp_path / "p0.parquet")
    write_table(log_of(second, 6, rng).to_arrow(), tmp_path / "p1.parquet")
    assert estimates(tmp_path, gather) == estimates(tmp_path)
    assert asked == [False]


@pytest.mark.slow
def test_a_row_that_is_no_data_is_named_by_its_number(tmp_path, side_by_side):
    gather, _ = side_by_side
    rng = np.random.default_rng(5)
    write_table(log_of(0, 10, rng).to_arrow(), tmp_path / "p0.parquet")
    wrong = log_of(100, 10, rng)
    target = np.where(np.arange(60) == 7, 1.5, wrong["target"])
    write_table(wrong.with_column("target", target).to_arrow(), tmp_path / "p1.parquet")
    said = []
    for each in (gather, None):
        with pytest.raises(UserError) as raised:
            estimates(tmp_path, each)
        said.append(str(raised.value))
    assert said[0] == said[1]
    assert "68" in said[0]


def test_the_command_says_the_same_with_workers(tmp_path, capsys):
    rng = np.random.default_rng(6)
    for k in range(3):
        write_table(log_of(1000 * k, 40, rng).to_arrow(), tmp_path / "log" / f"p{k}.parquet")
    for n in (1, 2):
        words = ("estimate", tmp_path / "log", "--target", "target", "--workers", n, "--json", tmp_path / f"{n}.json")
        assert status_of(*words) == 0
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / "2.json").read_bytes()


@pytest.mark.parametrize("ids", ["numbers", "text"])
def test_parts_of_a_log_of_ones_own_are_read_side_by_side_where_ids_are_numbers(tmp_path, side_by_side, ids):
    gather, asked = side_by_side
    rng = np.random.default_rng(7)
    (tmp_path / "own").mkdir()
    for k in range(4):
        n = 200
        user = np.repeat(np.arange(20) + 20 * k, 10)
        rows = {
            "user_id": user if ids == "numbers" else [f"u{each}" for each in user],
            "item_id": rng.integers(0, 9, n),
            "click": np.where(rng.random(n) < 0.1, np.nan, rng.integers(0, 2, n)),
            "pscore": rng.uniform(0.1, 1.0, n),
            "new": rng.uniform(0.0, 1.0, n),
            "ts": np.arange(n) // 2,
        }
        pq.write_table(pa.table(rows), tmp_path / "own" / f"p{k}.parquet")
    reading, question = Reading(drop_missing=True), Question(["new"], baseline="today")
    found = estimate_log(tmp_path / "own", question, reading=reading, gather=gather)
    whole = estimate_log(tmp_path / "own", question, reading=reading)
    assert json.dumps(found.records) == json.dumps(whole.records)
    assert found.lines == whole.lines
    assert asked == [ids == "numbers"]
