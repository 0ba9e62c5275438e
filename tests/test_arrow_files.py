"""Arrow files: the same log and the same estimates as from Parquet, and nothing hidden under a null is believed."""

import json

import numpy as np
import pyarrow as pa
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.simulation.run_folder import simulate_to
from recsim_mnar.tables.files import read_table
from recsim_mnar.tables.parts import TableFile, verify
from recsim_mnar.tables.rows import Numbering
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins.commands import status_of
from twins.own_schema import estimate_file
from twins.policies import Uniform


def test_a_run_keeps_its_format(tmp_path):
    world = SessionsWorld(SessionsParams(n_items=30, n_flips=9))
    simulate_to(tmp_path / "run", world, Uniform(30), 50, 5, form="arrow")
    with pytest.raises(UserError, match="differs in format"):
        simulate_to(tmp_path / "run", world, Uniform(30), 50, 5, resume=True)
    with pytest.raises(UserError, match="format 'csv'"):
        simulate_to(tmp_path / "other", world, Uniform(30), 50, 5, form="csv")


def test_commands_read_and_write_it(tmp_path):
    """The same estimates as from Parquet."""
    answers = []
    for form in ("parquet", "arrow"):
        simulate = ("simulate", "--world", "sessions", "--preset", "quick", "--policy", "random", "--users", 50)
        log, train, file = tmp_path / f"log-{form}", tmp_path / f"train-{form}", tmp_path / f"replayed.{form}"
        for seed, folder in enumerate((log, train)):
            assert status_of(*simulate, "--seed", seed, "--format", form, "--out", folder) == 0
        assert status_of("replay", log, "--policy", "popularity,random", "--train", train, "--out", file) == 0
        answer = tmp_path / f"{form}.json"
        target = ("--target", "popularity", "--baseline", "random")
        assert status_of("estimate", file, *target, "--json", answer) == 0
        answers.append(json.loads(answer.read_text()))
        answers[-1][0].pop("input")  # its name and bytes
    assert answers[0] == answers[1]
    assert answers[0][0]["n"] > 1000


def test_what_lies_under_a_null_is_not_read(tmp_path):
    n = 2000
    rng = np.random.default_rng(0)
    user = np.sort(rng.integers(0, 50, n))
    bandit = rng.random(n) < 0.7
    reward, propensity, target = rng.random((3, n))
    unknown = rng.random(n) < 0.2
    event = pa.array(np.where(bandit, "bandit", "organic")).dictionary_encode()
    table = pa.table(
        {
            "user": user,
            "event": event,
            "reward": pa.array(reward, mask=~bandit),
            "propensity": pa.array(propensity, mask=~bandit),
            "target": pa.array(target, mask=unknown | ~bandit),
        }
    )
    write_arrow(tmp_path / "x.arrow", table, max_chunksize=700)
    rows = TableFile.open(tmp_path / "x.arrow").read({"reward": "number", "target": "number", "user": "id"})
    log = rows.kept(bandit)
    np.testing.assert_array_equal(log.numbers("reward"), reward[bandit])
    np.testing.assert_array_equal(log.numbers("target"), np.where(unknown, np.nan, target)[bandit])
    np.testing.assert_array_equal(Numbering().codes(log, "user"), user[bandit])
    with pytest.raises(UserError, match="'target' is missing in"):
        estimate_file(tmp_path / "x.arrow", ["target"])


def write_arrow(path, table, **how):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, **how)


def test_codes_beyond_their_words_are_named(tmp_path):
    codes, words = pa.array([0, 7], pa.int8()), pa.array(["organic", "bandit"])
    event = pa.DictionaryArray.from_buffers(pa.dictionary(pa.int8(), pa.string()), 2, codes.buffers(), words)
    columns = {"event": event, "reward": pa.array([0.0, 1.0]), "propensity": pa.array([0.5, 0.5])}
    table = pa.table(columns)
    write_arrow(tmp_path / "a.arrow", table)
    with pytest.raises(UserError, match=r"a\.arrow is not a readable Arrow file"):
        read_table(tmp_path / "a.arrow")
    assert verify(tmp_path / "a.arrow").faults
