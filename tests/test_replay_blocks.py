"""Replaying a log block by block: the bytes of all rows at once, in one file and in a folder that resumes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.log import Log, blocks
from recsim_mnar.log import table as log_table
from recsim_mnar.log.blocks import FiledLog, LogBlocks
from recsim_mnar.log.table import write_part, write_stream
from recsim_mnar.policies import registry
from recsim_mnar.replays.probabilities import identical_policies, replay_with_support
from recsim_mnar.replays.replayed_log import ReplayRun
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.pools import pool
from recsim_mnar.tables.files import rows_in
from recsim_mnar.tables.parts import verify
from recsim_mnar.worlds import make_world
from toys import bytes_of
from twins.cases import quick_first
from twins.commands import done, run
from twins.differences import assert_same
from twins.logs import log_of

N_ITEMS = 10


@pytest.fixture(scope="module")
def world():
    return make_world("sessions", None, {"n_items": N_ITEMS})


@pytest.fixture(scope="module")
def policies(world):
    train = simulate(world, registry.uniform_policy(N_ITEMS), 40, 7)
    names = ("user-popularity", "item-knn", "random")
    return {name: registry.learner(name).fit(train, n_items=N_ITEMS, seed=0) for name in names}


@pytest.fixture(scope="module")
def log(world, policies):
    found = simulate(world, policies["user-popularity"], 60, 1)
    return found.with_column("hour", (np.arange(len(found)) % 24).astype(np.int64))


@pytest.fixture
def small(monkeypatch):
    """Blocks of 5 users, parts of 15."""
    monkeypatch.setattr("recsim_mnar.replays.probabilities.SHARD_USERS", 5)
    monkeypatch.setattr("recsim_mnar.replays.replayed_log.SHARD_USERS", 5)
    monkeypatch.setattr("recsim_mnar.replays.replayed_log.PART_SHARDS", 3)
    monkeypatch.setattr(blocks, "READ_ROWS", 300)


def in_parts(path, log: Log, n_parts: int):
    """Write the log in parts that divide users."""
    path.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(len(log)), n_parts)):
        write_part(path / f"piece-{i}.parquet", [log.select(rows).columns], log.provenance)
    return path


def opened(path, read_rows=200) -> LogBlocks:
    log = LogBlocks.open(path, read_rows=read_rows)
    assert log is not None
    return log


def run_on(path, policies, logging=None, executor=None) -> ReplayRun:
    log = opened(path, read_rows=300)
    return ReplayRun(log, log.survey(), policies, logging, executor)


def at_once(log: Log, policies, logging) -> Log:
    """Replay with all rows in memory: the plain twin."""
    for name, policy in policies.items():
        probability, missing = replay_with_support(log, policy, logging)
        log = log.with_column(name, probability).with_column(f"{name}_unsupported", missing)
    return log


@pytest.mark.parametrize("n_parts", quick_first([2, 1, 7]))
def test_one_file_has_the_bytes_of_all_rows_at_once(tmp_path, small, log, policies, n_parts):
    logging = policies["user-popularity"]
    expected = at_once(log, policies, logging)
    write_part(tmp_path / "expected.parquet", [expected.columns], log.provenance)
    expected.write_csv(tmp_path / "expected.csv")
    path = in_parts(tmp_path / "log", log, n_parts)
    for n in (1, 2):
        with pool(n) as executor:
            run = run_on(path, policies, logging, executor)
            for form in ("parquet", "csv", "arrow"):
                run.to_file(tmp_path / f"{n}.{form}", form)
        assert (tmp_path / f"{n}.parquet").read_bytes() == (tmp_path / "expected.parquet").read_bytes()
        assert (tmp_path / f"{n}.csv").read_bytes() == (tmp_path / "expected.csv").read_bytes()
    assert_same(Log.read(tmp_path / "2.arrow").columns, expected.columns)
    assert (tmp_path / "1.arrow").read_bytes() == (tmp_path / "2.arrow").read_bytes()


def test_a_survey_says_what_the_log_holds(tmp_path, log):
    filed = opened(in_parts(tmp_path / "log", log, 7), read_rows=100)
    survey = filed.survey(np.array([3, 5, 1000]))
    assert (survey.n_rows, survey.n_users, survey.shared_users) == (len(log), len(log.users()), 2)
    assert survey.highest_item == max(log["item"].max(), log["action"].max())
    assert not survey.all_bandit
    users = [block.users() for block in filed.blocks(7)]
    np.testing.assert_array_equal(np.concatenate(users), log.users())
    assert {len(block) for block in users[:-1]} == {7}


def test_a_bad_value_is_named_as_in_the_log(tmp_path, log):
    row = int(np.flatnonzero(log.is_bandit)[-3])
    propensity = log["propensity"].copy()
    propensity[row] = 1.5
    path = in_parts(tmp_path / "bad", log.with_column("propensity", propensity), 2)
    with pytest.raises(UserError, match=f"row {row + 1}: propensity must be"):
        list(opened(path).blocks(5))


def test_rows_out_of_order_are_named_as_in_the_log(tmp_path, log):
    swapped = Log.concat([log.select(log["user"] >= 30), log.select(log["user"] < 30)])
    row = int(np.flatnonzero(np.diff(swapped["user"]) < 0)[0]) + 2
    path = in_parts(tmp_path / "swapped", swapped, 1)
    with pytest.raises(UserError, match=f"row {row}: user is out of order"):
        list(opened(path).blocks(5))


def test_a_stream_has_the_bytes_of_its_rows_at_once(tmp_path):
    n = 2 * log_table.GROUP_ROWS + 777
    rng = np.random.default_rng(0)
    bandit = rng.random(n) < 0.5
    columns = np.where(bandit[:, None], [-1, 4, 0.5, 1.0], [3, -1, np.nan, np.nan]).T
    log = log_of(np.sort(rng.integers(0, 1000, n)), *columns).with_column("svd", rng.random(n))
    write_part(tmp_path / "whole.parquet", [log.columns], {"seed": 1})
    edges = [1, 50_000, log_table.GROUP_ROWS, log_table.GROUP_ROWS + 5, n - 3]
    pieces = [log.select(rows).columns for rows in np.split(np.arange(n), edges)]
    write_stream(tmp_path / "stream.parquet", pieces, {"seed": 1}, "parquet")
    assert (tmp_path / "stream.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_a_folder_has_parts_and_receipts(tmp_path, small, log, policies):
    out = tmp_path / "out"
    run = run_on(in_parts(tmp_path / "log", log, 2), policies)
    assert run.to_folder(out, {"seed": 0}) == 0
    assert len(list((out / "log").iterdir())) == 5  # four parts and their index
    assert verify(out).faults == []
    expected = log
    for name, policy in policies.items():
        expected = expected.with_column(name, replay_with_support(log, policy, policy)[0])
    replayed = Log.read(out)
    assert_same({name: replayed[name] for name in expected.columns}, expected.columns, exact=False)


def test_a_folder_resumes(tmp_path, small, log, policies):
    out = tmp_path / "out"
    run = run_on(in_parts(tmp_path / "log", log, 2), policies)
    run.to_folder(out, {"seed": 0})
    content = bytes_of(out / "log")
    part = out / "log" / "part-00002.parquet"
    part.write_bytes(part.read_bytes()[:-9])
    (out / "log" / "part-00001.parquet").unlink()
    assert run.to_folder(out, {"seed": 0}, resume=True) == 2
    assert bytes_of(out / "log") == content
    with pytest.raises(UserError, match="differs in seed"):
        run.to_folder(out, {"seed": 1}, resume=True)
    with pytest.raises(UserError, match="not empty"):
        run.to_folder(out, {"seed": 0})


def test_a_folder_and_a_file_give_the_same_estimates(tmp_path, capsys):
    log, train, parts, file = (tmp_path / name for name in ("log", "train", "parts", "file.parquet"))
    simulate = ("simulate", "--world", "sessions", "--policy", "random", "--users", "30")
    replay = ("replay", log, "--policy", "user-popularity,random", "--train", train, "--out")
    done(capsys, *simulate, "--out", log)
    done(capsys, *simulate, "--seed", "3", "--out", train)
    done(capsys, *replay, f"{parts}/")
    done(capsys, *replay, parts, "--resume")
    done(capsys, *replay, file)
    target = ("--target", "user-popularity", "--baseline", "random", "--json", "-")
    of_parts, of_file = (json.loads(done(capsys, "estimate", path, *target)) for path in (parts, file))
    for records in (of_parts, of_file):
        records[0].pop("input")  # its name and bytes
    assert of_parts == of_file
    assert rows_in(file) == sum(map(rows_in, (parts / "log").glob("*.parquet")))


def test_a_filed_log_checks_its_rows(tmp_path, log):
    columns = {name: values.copy() for name, values in log.columns.items()}
    columns["step"][5] = columns["step"][4]
    write_part(tmp_path / "bad.parquet", [columns], log.provenance)
    with pytest.raises(UserError, match="row 6"):
        registry.learner("popularity").fit(FiledLog.open_or_read(tmp_path / "bad.parquet"), n_items=N_ITEMS, seed=0)


@pytest.mark.parametrize(
    ("more", "words"),
    [(["--resume", "--out", "x.parquet"], "--resume"), (["--out", "x.txt"], "--out")],
    ids=["a file resumed", "an unknown ending"],
)
def test_where_parts_cannot_be_written_is_a_line(tmp_path, monkeypatch, capsys, log, more, words):
    monkeypatch.chdir(tmp_path)
    in_parts(tmp_path / "log", log, 1)
    status, _, err = run(capsys, "replay", "log", "--policy", "random", *more)
    assert status == 2
    assert err.splitlines()[-1].startswith("error: ")
    assert words in err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize("damaged", ["log", "train"])
@pytest.mark.parametrize("form", ["parquet", "csv"])  # by blocks, and all rows at once
def test_an_item_beyond_those_of_the_logs_own_world_is_damage(tmp_path, capsys, world, form, damaged):
    for seed, name in enumerate(("log", "train")):
        log = simulate(world, registry.uniform_policy(N_ITEMS), 30, seed)
        action = log["action"].copy()
        action[np.flatnonzero(log.is_bandit)[5]] += (name == damaged) << 24  # one bit
        Log({**log.columns, "action": action}, log.provenance).write(tmp_path / f"{name}.{form}")
    given = [str(tmp_path / f"log.{form}"), "--train", str(tmp_path / f"train.{form}"), "--policy", "popularity"]
    status, _, err = run(capsys, "replay", *given, "--out", str(tmp_path / "out.parquet"))
    assert status == 2
    assert "says that its world has items 0..9: the file is damaged" in err


LEARNERS = {"popularity": True, "most-recommended": True, "never-recommended": True, "random": True, "item-knn": False}
"""Those that only count never read a log as a whole."""


@pytest.mark.parametrize("name", LEARNERS)
def test_what_is_made_of_counts_is_fitted_block_by_block(tmp_path, log, monkeypatch, name):
    """A log that stays in its files gives the same policies."""
    monkeypatch.setattr(blocks, "_USERS", 7)
    filed = FiledLog.open_or_read(in_parts(tmp_path / "log", log, 3))
    assert (len(filed), filed.highest_item) == (len(log), log.highest_item)
    np.testing.assert_array_equal(filed.users(), log.users())
    in_memory, in_blocks = (fitted_or_refused(name, rows) for rows in (log, filed))
    if isinstance(in_memory, str):
        assert in_blocks == in_memory
        return
    assert identical_policies(in_blocks, in_memory)
    assert ("columns" not in vars(filed)) == LEARNERS[name]


def fitted_or_refused(name, log):
    try:
        return registry.learner(name).fit(log, n_items=N_ITEMS + 2, seed=0)
    except UserError as error:
        return str(error)


def test_items_out_of_range_are_refused_block_by_block(tmp_path, log):
    filed = FiledLog.open_or_read(in_parts(tmp_path / "log", log, 3))
    with pytest.raises(UserError, match="must be in"):
        registry.learner("popularity").fit(filed, n_items=2, seed=0)
