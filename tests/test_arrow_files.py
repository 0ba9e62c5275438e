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


def test_resume_makes_what_is_missing_in_its_format(tmp_path):
    run = tmp_path / "run", SessionsWorld(SessionsParams(n_items=30, n_flips=9)), Uniform(30), 9000, 5
    simulate_to(*run, form="arrow")
    lost = tmp_path / "run" / "log" / "part-00001.arrow"
    whole = lost.read_bytes()
    lost.unlink()
    assert simulate_to(*run, form="arrow", resume=True).n_kept == 1
    assert lost.read_bytes() == whole
    with pytest.raises(UserError, match="differs in format"):
        simulate_to(*run, resume=True)
    with pytest.raises(UserError, match="format 'csv'"):
        simulate_to(tmp_path / "other", *run[1:], form="csv")


def test_commands_read_and_write_it(tmp_path):
    found = []
    for form in ("parquet", "arrow"):
        log, train, file = tmp_path / f"log-{form}", tmp_path / f"train-{form}", tmp_path / f"replayed.{form}"
        for seed, folder in enumerate((log, train)):
            asked = ("simulate", "--world", "sessions", "--preset", "quick", "--policy", "random", "--users", 50,
                "--seed", seed, "--format", form, "--out", folder)  # fmt: skip
            assert status_of(*asked) == 0
        assert status_of("replay", log, "--policy", "popularity,random", "--train", train, "--out", file) == 0
        answer = "--json", tmp_path / f"{form}.json"
        assert status_of("estimate", file, "--target", "popularity", "--baseline", "random", *answer) == 0
        found.append(json.loads((tmp_path / f"{form}.json").read_text()))
    for records in found:
        records[0].pop("input")  # its name and bytes
    assert found[0] == found[1]
    assert found[0][0]["n"] > 1000


def test_what_lies_under_a_null_is_not_read(tmp_path):
    n = 2000
    rng = np.random.default_rng(0)
    user, bandit = np.sort(rng.integers(0, 50, n)), rng.random(n) < 0.7
    columns = {"reward": rng.random(n), "propensity": rng.random(n), "target": rng.random(n)}
    null = {name: rng.random(n) < (0.2 if name == "target" else 0.0) for name in columns}
    table = pa.table(
        {
            "user": user,
            "event": pa.array(np.where(bandit, "bandit", "organic")).dictionary_encode(),
            **{name: pa.array(values, mask=null[name] | ~bandit) for name, values in columns.items()},
        }
    )
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)
    rows = TableFile.open(tmp_path / "x.arrow").read(dict.fromkeys(("reward", "target"), "number") | {"user": "id"})
    log = rows.kept(bandit)
    np.testing.assert_array_equal(log.numbers("reward"), columns["reward"][bandit])
    np.testing.assert_array_equal(log.numbers("target"), np.where(null["target"], np.nan, columns["target"])[bandit])
    np.testing.assert_array_equal(Numbering().codes(log, "user"), user[bandit])
    with pytest.raises(UserError, match="'target' is missing in"):
        estimate_file(tmp_path / "x.arrow", ["target"])


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
