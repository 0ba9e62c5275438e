"""The log: rules, files, provenance, digest."""

import hashlib
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.log import Log, replacing, schema
from recsim_mnar.policies import registry
from recsim_mnar.runs.files import write_json
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from toys import refused, untrained
from twins.logs import log_of


@pytest.fixture(scope="module")
def log():
    world = make_world("sessions", "recogym-v1", ["clock=normal"])
    return simulate(world, registry.uniform_policy(10), 40, 3)


def broken(log, name, row, value):
    columns = {key: values.copy() for key, values in log.columns.items()}
    columns[name][row] = value
    return Log(columns)


def test_a_simulated_log_keeps_every_rule(log):
    assert log.validate(10) is log
    assert set(log.columns) == set(schema.NAMES)
    assert [log[c.name].dtype for c in schema.COLUMNS] == [c.dtype for c in schema.COLUMNS]


def test_parquet_parts_give_the_same_log(log, tmp_path):
    log.write(tmp_path / "log", rows_per_part=1000)
    parts = sorted((tmp_path / "log").glob("part-*.parquet"))
    assert len(parts) > 2
    again = Log.read(tmp_path / "log")
    assert again.digest() == log.digest()
    assert again.provenance == log.provenance
    users = np.concatenate([np.unique(pq.read_table(part)["user"]) for part in parts])
    np.testing.assert_array_equal(users, log.users())  # none is in two parts


def test_provenance_suffices_to_make_the_log_again(log, tmp_path):
    log.write(tmp_path)
    run_config = Log.read(tmp_path).provenance
    settings = [f"{name}={value}" for name, value in run_config["world"]["params"].items()]
    world = make_world(run_config["world"]["name"], None, settings)
    policy = untrained(run_config["policy"]["name"], world.n_items)
    assert simulate(world, policy, run_config["n_users"], run_config["seed"]).digest() == log.digest()


def test_digest_is_that_of_the_declared_bytes(log):
    sha = hashlib.sha256()
    for name, kind in zip(schema.NAMES, ["<i8", "<i4", "<f8", "i1", "<i4", "<i4", "<f8", "<f8"], strict=True):
        sha.update(log[name].astype(kind).tobytes())
    assert log.digest() == sha.hexdigest()
    other_nan = log["reward"].copy()
    other_nan[np.isnan(other_nan)] = np.frombuffer(np.uint64(0xFFF8000000000001).tobytes(), np.float64)[0]
    assert Log({**log.columns, "reward": other_nan}).digest() == log.digest()
    assert broken(log, "item", 0, (log["item"][0] + 1) % 10).digest() != log.digest()


def test_split_divides_no_user_and_concat_restores(log):
    parts = log.split(7)
    assert len(parts) == 7
    assert Log.concat(parts).digest() == log.digest()
    met = [set(part["user"].tolist()) for part in parts]
    assert sum(len(users) for users in met) == len(set.union(*met))
    assert len(log.split(10_000)) == len(log.users())


BANDIT = [("propensity", 0.0), ("propensity", 1.5), ("propensity", np.nan), ("reward", np.nan), ("action", 10)]
ORGANIC = [("item", -1), ("item", 10), ("time", np.inf), ("event", 3), ("step", 999)]


@pytest.mark.parametrize(("name", "value"), BANDIT + ORGANIC)
def test_broken_rows_are_named(log, name, value):
    row = int(np.flatnonzero(log.is_bandit == ((name, value) in BANDIT))[3])
    expected = row + 1 if name == "step" else row
    with pytest.raises(UserError, match=f"row {expected}: {name}"):
        broken(log, name, row, value).validate(10)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("user", lambda v: np.array([f"u{u}" for u in v]), "user must hold whole numbers"),
        ("user", lambda v: np.where(np.arange(len(v)) == 7, 0.5, v), "row 7: user must be a whole number .*got 0.5"),
        ("user", lambda v: np.where(np.arange(len(v)) == 7, np.nan, v), "row 7: user must be a whole number .*got nan"),
        ("item", lambda v: np.where(np.arange(len(v)) == 7, 2**40, v.astype(np.int64)), f"row 7: item .*got {2**40}"),
        ("time", lambda v: v.astype("M8[s]"), "time must hold numbers"),
        ("reward", lambda v: np.full(len(v), "good"), "reward must hold numbers"),
    ],
)
def test_values_that_a_column_cannot_hold_are_named(log, name, change, words):
    with refused(words):
        Log({**log.columns, name: change(log[name])})


def test_rows_out_of_order_are_named(log):
    with pytest.raises(UserError, match=r"row \d+: user is out of order"):
        log.select(np.arange(len(log))[::-1]).validate()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("nothing", None, "does not exist"),
        ("x.csv", "a,b\n1,2\n", "user"),
        ("x.csv", "user,step,time,event\n1,0,0,organic\n1,1,1,click\n", "row 2: event"),
        ("x.csv", "user,step,time,event\n1,0,0,organic\n,1,1,bandit\n", "row 2: user is missing"),
    ],
)
def test_files_that_are_no_log(tmp_path, name, text, words):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=words):
        Log.read(tmp_path / name)


def test_a_failed_write_leaves_nothing(tmp_path):
    def fail(temporary):
        temporary.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError), replacing(tmp_path / "whole.txt") as temporary:
        fail(temporary)
    assert list(tmp_path.iterdir()) == []


def test_context_columns_are_kept(log, tmp_path):
    more = log.with_column("device", np.arange(len(log)))
    more.write(tmp_path)
    again = Log.read(tmp_path)
    assert again["device"].tolist() == list(range(len(log)))
    with pytest.raises(UserError, match="device"):
        again["devise"]


@pytest.fixture
def rated():
    """A log whose views are ratings, with the propensities that they were revealed with."""
    rows = log_of([0, 0, 1], [3, -1, 2], [-1, 1, -1], [np.nan, 0.5, np.nan], [5.0, 2.0, 1.0])
    return rows.with_column("observation_propensity", np.array([0.25, np.nan, 1.0])).validate(4)


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("rows", ["all", "bandit"])
def test_observation_propensities_come_back_from_files(rated, tmp_path, form, rows):
    log = {"all": rated, "bandit": rated.bandit()}[rows]
    {"csv": log.write_csv, "parquet": log.write}[form](tmp_path / f"log.{form}")
    again = Log.read(tmp_path / f"log.{form}").validate(4)
    assert again.digest(optional=True) == log.digest(optional=True)
    assert again["observation_propensity"].dtype == np.float64


def test_observation_propensities_are_a_column_of_their_own(rated):
    assert rated.to_arrow().column("observation_propensity").null_count == 1
    changed = rated.with_column("observation_propensity", np.array([0.5, np.nan, 1.0]))
    assert changed.digest() == rated.digest()
    assert changed.digest(optional=True) != rated.digest(optional=True)


@pytest.mark.parametrize("propensity", [0.0, 1.5, -1.0])
def test_observation_propensities_out_of_range_are_named(rated, propensity):
    log = rated.with_column("observation_propensity", np.array([0.5, np.nan, propensity]))
    with pytest.raises(UserError, match=r"row 2: observation_propensity must be in \(0, 1\]"):
        log.validate()


def test_rewards_of_views_are_finite(rated):
    with pytest.raises(UserError, match="row 0: reward must be a finite number or null"):
        Log({**rated.columns, "reward": np.array([np.inf, 1.0, 1.0])}).validate()


def test_a_frame_has_the_columns_and_pandas_own_nulls():
    log = log_of([0, 0], [3, -1], [-1, 2], [np.nan, 0.5], [np.nan, 1.0])
    frame = log.to_frame()
    assert list(frame.columns) == list(log.columns)
    assert frame["event"].tolist() == ["organic", "bandit"]
    assert frame[["item", "action", "reward"]].isna().to_numpy().tolist() == [[False, True, True], [True, False, False]]


def test_json_takes_numpy_numbers_and_refuses_the_rest(tmp_path):
    write_json(tmp_path / "x.json", {"a": np.float64(0.5), "b": np.bool_(True), "c": [np.int32(3)]})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 0.5, "b": True, "c": [3]}
    for wrong in (object(), np.zeros(2), float("nan")):
        with pytest.raises((TypeError, ValueError)):
            write_json(tmp_path / "y.json", {"a": wrong})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.json"]


def test_a_log_prints_as_a_person_reads_it():
    rows = log_of([0, 0, 1], [2, -1, -1], [-1, 2, 3], [np.nan, 0.5, 0.5], [np.nan, 1, 0])
    log = Log(rows.columns, {"world": {"name": "<b>"}})
    assert repr(log) == "Log(3 rows, 2 users, 2 recommendations (mean reward 0.5), 1 views, world <b>)"
    assert "world &lt;b&gt;" in log._repr_html_()
    assert log._repr_html_().count("<tr") == 4
    assert repr(Log({})) == "Log(0 rows, 0 users, 0 recommendations, 0 views)"
