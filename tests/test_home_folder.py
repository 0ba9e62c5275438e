"""``~`` in paths: the home folder where it stands first, a name like any other elsewhere, in every way in and out."""

import os
from pathlib import Path

import click
import numpy as np
import pytest

from recsim_mnar import Log
from recsim_mnar.cli.options import NewPath, ReadPath
from recsim_mnar.log import table
from recsim_mnar.log.table import record_part, write_stream
from recsim_mnar.policies import registry
from recsim_mnar.runs.files import path_of
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.runs.receipts import Index
from recsim_mnar.simulation import simulate
from recsim_mnar.tables.parts import verify, write_file
from recsim_mnar.worlds import make_world
from toys import refused
from twins.commands import all_commands, status_of


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder, and another one in which work is done."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


@pytest.fixture(scope="module")
def log():
    return simulate(make_world("sessions", None, ["n_items=10"]), registry.uniform_policy(10), 12, seed=1)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_is_expanded_or_literal_in_one_place(home, kind):
    work = home.parent / "work"
    assert path_of(kind("~")) == home
    assert path_of(kind("~/a/b")) == home / "a" / "b"
    assert path_of(kind("a/~/b")) == Path("a/~/b")
    assert path_of(kind("~no.such.user/b")) == work / "~no.such.user" / "b"
    assert path_of("./~/b") == work / "~" / "b"
    assert path_of(path_of("./~/b")) == work / "~" / "b"


def test_every_path_of_every_command_knows_the_home_folder(home):
    """No option and no argument has click's own type of paths, which knows of no home."""
    checked = 0
    for _, command in all_commands():
        for param in command.params:
            if isinstance(param.type, click.Path):
                assert isinstance(param.type, NewPath | ReadPath), (command.name, param.name)
                assert os.fspath(param.type.convert("~/x.toml", param, None)) == str(home / "x.toml")
                checked += 1
    assert checked > 20


@pytest.mark.parametrize("name", ["~/out.parquet", "~/out.arrow", "~/out.csv", "~/folder/", "./~/out.parquet"])
def test_rows_go_where_the_path_says(home, log, name):
    """Nothing is left in the home folder, under a hidden name or elsewhere, but what was asked for."""
    log.write("~/log")
    assert Log.read(home / "log").digest() == log.digest()
    literal = home.parent / "work" / "~"
    literal.mkdir()
    assert status_of("replay", home / "log", "--policy", "random", f"--out={name}") == 0
    prefix, _, file = name.partition("~/")
    out = (literal if prefix else home) / file
    assert len(Log.read(out)) == len(log)
    written = {path.name for folder in (home, literal) for path in folder.iterdir()}
    assert written - {"log", f"{out.name}.run.json"} == {out.name}
    verified = verify(name)
    assert verified.n_rows == len(log)
    assert not verified.faults


def test_what_is_read_is_where_the_path_says(home, log):
    log.write_csv("~/a.csv")
    assert len(Log.read("~/a.csv")) == len(log)
    with refused("does not exist"):
        Log.read("./~/a.csv")
    with refused("does not exist"):
        verify("./~/a.csv")


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_writer_that_writes_elsewhere_is_noticed(tmp_path, log, form, monkeypatch):
    """No file keeps the name, and no receipt is signed: it is of what was read back."""
    writer = table._writer
    monkeypatch.setattr(table, "_writer", lambda temporary, *rest: writer(temporary.with_name("elsewhere"), *rest))
    file = tmp_path / f"out.{form}"
    with refused("not a readable"):
        write_file(file, len(log), lambda path: write_stream(path, [log.columns], {}, form))
    assert {path.name for path in tmp_path.iterdir()} == {"elsewhere"}
    with refused("not a readable"), RunFolder.fill(tmp_path / "log") as into:
        record_part(into, 0, [log.columns], {}, form)
    assert not list(tmp_path.glob("log/part-*"))


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_receipt_has_the_rows_that_the_file_has(tmp_path, log, form):
    with RunFolder.fill(tmp_path / "log") as into:
        record_part(into, 0, [log.columns], {}, form)
    assert [each.rows for each in Index.read(tmp_path / "log").receipts.values()] == [len(log)]
    half = log.select(np.arange(len(log) // 2)).columns
    file = tmp_path / f"out.{form}"
    with refused("read back"):
        write_file(file, len(log), lambda path: write_stream(path, [half], {}, form))
    assert not file.exists()
