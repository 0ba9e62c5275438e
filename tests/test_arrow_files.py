"""Arrow files: the same log and the same estimates as from Parquet, and nothing hidden under a null is believed."""

import pyarrow as pa
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.simulation.run_folder import simulate_to
from recsim_mnar.tables.files import read_table
from recsim_mnar.tables.parts import verify
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins.policies import Uniform


def test_a_run_keeps_its_format(tmp_path):
    world = SessionsWorld(SessionsParams(n_items=30, n_flips=9))
    simulate_to(tmp_path / "run", world, Uniform(30), 50, 5, form="arrow")
    with pytest.raises(UserError, match="differs in format"):
        simulate_to(tmp_path / "run", world, Uniform(30), 50, 5, resume=True)
    with pytest.raises(UserError, match="format 'csv'"):
        simulate_to(tmp_path / "other", world, Uniform(30), 50, 5, form="csv")


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
