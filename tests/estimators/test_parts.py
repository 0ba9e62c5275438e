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


def estimates(folder, gather=None, **options):
    question = {"baseline": "other", "estimators": ("ips", "clipped_ips", "snips"), "clip": 3.0}
    return json.dumps(estimate_file(folder, ["target"], gather=gather, **question, **options))


def write_parts(folder, parts):
    for number, part in enumerate(parts):
        write_table(part, folder / f"p{number}.parquet")


@pytest.fixture
def side_by_side():
    """Reads parts by three threads; ``answers`` says of each call whether they could be."""
    answers = []

    def gather(*args):
        sums = gather_parts(*args, executor=threads, run_in_order=run_in_order)
        answers.append(sums is not None)
        return sums

    with ThreadPoolExecutor(3) as threads:
        yield gather, answers


@pytest.mark.slow
@pytest.mark.parametrize("lowest", [0.0, -2.0])
def test_the_bits_of_one_part_after_another(tmp_path, side_by_side, lowest):
    gather, answers = side_by_side
    rng = np.random.default_rng(3)
    parts = []
    for k in range(5):
        rows = log_of(1000 * k, 40 + 30 * k, rng, lowest).to_arrow()
        parts.append(rows.append_column("price", pa.array(np.full(len(rows), 1.1 + 0.1 * k))))
    write_parts(tmp_path, parts)
    for limits in ({}, {"reward_limit": "price", "propensity_min": 0.05}):
        assert estimates(tmp_path, gather, **limits) == estimates(tmp_path, **limits)
    assert answers == [True] * 2


def after_first(rows):
    """True of the rows after the first true one of their user."""
    return np.pad(np.logical_or.accumulate(rows, axis=1)[:, :-1], ((0, 0), (1, 0)))


def test_findings_of_rows_in_order_are_those_of_one_part_after_another(tmp_path, side_by_side):
    """Item 0 makes all later rows of its user earn more, and an item that was shown before earns half."""
    gather, answers = side_by_side
    rng = np.random.default_rng(5)
    parts = []
    for k in range(4):
        log = log_of(1000 * k, 600, rng)
        items = log["action"].reshape(-1, 6)
        loud = after_first(items == 0)
        seen = sum(after_first(items == item) & (items == item) for item in range(5))
        effect = np.where(loud, 2.0, 0.5) * np.where(seen, 0.5, 1.0)
        reward = np.round(log["reward"] * effect.ravel(), 1)
        log = log.with_column("reward", reward).with_column("propensity", np.full(reward.size, 0.2))
        parts.append(log.to_arrow())
    write_parts(tmp_path, parts)
    together = estimates(tmp_path, gather)
    assert together == estimates(tmp_path)
    assert '"shown_before"' in together
    assert '"lasts"' in together
    assert answers == [True]


@pytest.mark.parametrize("first_users", [(0, 5), (100, 0)], ids=["in two parts", "out of order"])
def test_users_in_two_parts_or_out_of_order_are_read_one_after_another(tmp_path, side_by_side, first_users):
    gather, answers = side_by_side
    rng = np.random.default_rng(4)
    write_parts(tmp_path, [log_of(first, 6, rng).to_arrow() for first in first_users])
    assert estimates(tmp_path, gather) == estimates(tmp_path)
    assert answers == [False]


@pytest.mark.slow
def test_a_row_that_is_no_data_is_named_by_its_number(tmp_path, side_by_side):
    gather, _ = side_by_side
    rng = np.random.default_rng(5)
    right, wrong = log_of(0, 10, rng), log_of(100, 10, rng)
    target = np.where(np.arange(60) == 7, 1.5, wrong["target"])
    write_parts(tmp_path, [right.to_arrow(), wrong.with_column("target", target).to_arrow()])
    for way in (gather, None):
        with pytest.raises(UserError, match="row 68"):
            estimates(tmp_path, way)


def test_the_command_says_the_same_with_workers(tmp_path, capsys):
    rng = np.random.default_rng(6)
    log = tmp_path / "log"
    write_parts(log, [log_of(1000 * k, 40, rng).to_arrow() for k in range(3)])
    files = [tmp_path / f"{n}.json" for n in (1, 2)]
    for n, file in enumerate(files, start=1):
        assert status_of("estimate", log, "--target", "target", "--workers", n, "--json", file) == 0
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("ids", ["numbers", "text"])
def test_parts_of_a_foreign_log_are_read_side_by_side_where_ids_are_numbers(tmp_path, side_by_side, ids):
    gather, answers = side_by_side
    rng = np.random.default_rng(7)
    n = 200
    for k in range(4):
        user = np.repeat(np.arange(20) + 20 * k, 10)
        rows = {
            "user_id": user if ids == "numbers" else np.char.add("u", user.astype(str)),
            "item_id": rng.integers(0, 9, n),
            "click": np.where(rng.random(n) < 0.1, np.nan, rng.integers(0, 2, n)),
            "pscore": rng.uniform(0.1, 1.0, n),
            "new": rng.uniform(0.0, 1.0, n),
            "ts": np.arange(n) // 2,
        }
        pq.write_table(pa.table(rows), tmp_path / f"p{k}.parquet")
    question = Question(["new"], baseline="today")
    reading = Reading(drop_missing=True)
    together = estimate_log(tmp_path, question, reading=reading, gather=gather)
    in_turn = estimate_log(tmp_path, question, reading=reading)
    assert json.dumps(together.records) == json.dumps(in_turn.records)
    assert together.lines == in_turn.lines
    assert answers == [ids == "numbers"]
