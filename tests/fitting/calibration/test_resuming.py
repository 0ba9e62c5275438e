"""A finished calibrate is printed again, an interrupted one begins anew."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from click.testing import CliRunner

from recsim_mnar.cli import cli
from recsim_mnar.errors import UserError


@pytest.fixture(scope="module")
def finished(small_log, tmp_path_factory):
    """A folder with a log and the world that was fitted to it, and what the command printed and wrote as JSON."""
    folder = tmp_path_factory.mktemp("finished")
    small_log.write(folder / "log")
    printed = CliRunner().invoke(cli, asked_of(folder, folder)).stdout
    return folder, printed, (folder / "said.json").read_text()


def asked_of(folder, out):
    written = ["--out", str(out / "world.toml"), "--json", str(out / "said.json")]
    return ["calibrate", str(folder / "log"), "--ensemble", "1", *written]


@pytest.fixture
def copied(finished, tmp_path):
    """The command, its world's file and the bytes of all that it wrote, as in a folder of the test's own."""
    for path in finished[0].glob("world.*"):
        shutil.copy(path, tmp_path)
    made = {path: path.read_bytes() for path in tmp_path.glob("world.*")}
    assert len(made) == 3
    return asked_of(finished[0], tmp_path), tmp_path / "world.toml", made


def test_a_finished_world_is_printed_again_and_no_byte_of_it_changes(finished, copied, tmp_path):
    asked, _, made = copied
    folder, *said = finished
    again = CliRunner().invoke(cli, [*asked, "--resume"])
    assert again.exit_code == 0, again.output
    found = (again.stdout, (tmp_path / "said.json").read_text())
    assert [each.replace(str(tmp_path), str(folder)) for each in found] == said
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
def test_a_finished_world_of_something_else_is_refused(small_log, copied, tmp_path, changed, named):
    asked, out, _ = copied
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


def test_a_killed_run_is_made_again(copied, tmp_path):
    """Killed between the arrays and the world's file."""
    asked, out, made = copied
    out.unlink()
    out.with_suffix(".npz").write_bytes(b"half")
    assert isinstance(CliRunner().invoke(cli, asked).exception, UserError)
    again = CliRunner().invoke(cli, [*asked, "--resume"])
    assert again.exit_code == 0, again.output
    assert {path: path.read_bytes() for path in tmp_path.glob("world.*")} == made
