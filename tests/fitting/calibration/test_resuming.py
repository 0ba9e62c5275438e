"""A finished calibrate is printed again, an interrupted one begins anew."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from recsim_mnar.cli import cli
from recsim_mnar.errors import UserError


def command(small_log, tmp_path):
    small_log.write(tmp_path / "log")
    world = tmp_path / "world.toml"
    return ["calibrate", str(tmp_path / "log"), "--ensemble", "1", "--out", str(world)], world


def test_a_finished_world_is_printed_again_and_no_byte_of_it_changes(small_log, tmp_path):
    asked, _ = command(small_log, tmp_path)
    said = [*asked, "--json", str(tmp_path / "said.json")]
    first = CliRunner().invoke(cli, said)
    made = {path: path.read_bytes() for path in tmp_path.glob("world.*")}
    assert len(made) == 3
    answer = (tmp_path / "said.json").read_bytes()
    (tmp_path / "said.json").unlink()
    again = CliRunner().invoke(cli, [*said, "--resume"])
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    assert (tmp_path / "said.json").read_bytes() == answer
    assert {path: path.read_bytes() for path in tmp_path.glob("world.*")} == made
    assert CliRunner().invoke(cli, asked).exit_code != 0  # unasked it is refused, as before


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (["--seed", "1"], "made_from.seed (0 there, 1 here)"),
        (["--ensemble", "2"], "ensemble (1 there, 2 here)"),
        (["--assume", "click_link=logistic"], 'assume.click_link (null there, "logistic" here)'),
        (["another log"], "made_from.log:"),
        (["no log named"], "made_from:"),
        (["another numpy"], 'numpy ("0.1" there'),
    ],
)
def test_a_finished_world_of_something_else_is_refused(small_log, tmp_path, changed, named):
    asked, out = command(small_log, tmp_path)
    assert CliRunner().invoke(cli, asked).exit_code == 0
    text = out.read_text()
    if changed == ["another log"]:
        reward = small_log["reward"].copy()
        reward[np.flatnonzero(small_log.is_bandit)[0]] = 1.0 - reward[np.flatnonzero(small_log.is_bandit)[0]]
        small_log.with_column("reward", reward).write(tmp_path / "other")
        asked[1] = str(tmp_path / "other")
    elif changed == ["no log named"]:
        out.write_text(text[: text.index("[made_from]")])
    elif changed == ["another numpy"]:
        out.write_text(text.replace(f'numpy = "{np.__version__}"', 'numpy = "0.1"'))
    else:
        asked += changed
    before = out.read_bytes()
    again = CliRunner().invoke(cli, [*asked, "--resume"])
    assert isinstance(again.exception, UserError)
    assert str(again.exception).startswith("cannot resume: ")
    assert named in str(again.exception)
    assert out.read_bytes() == before


def test_a_killed_run_is_made_again(small_log, tmp_path):
    """Killed between the arrays and the world's file."""
    asked, out = command(small_log, tmp_path)
    assert CliRunner().invoke(cli, asked).exit_code == 0
    made = {path: path.read_bytes() for path in tmp_path.glob("world.*")}
    out.unlink()
    out.with_suffix(".npz").write_bytes(b"half")
    assert isinstance(CliRunner().invoke(cli, asked).exception, UserError)
    again = CliRunner().invoke(cli, [*asked, "--resume"])
    assert again.exit_code == 0, again.output
    assert {path: path.read_bytes() for path in tmp_path.glob("world.*")} == made
