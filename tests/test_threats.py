"""What a folder, the current folder and a learner may do to who runs a command: the lines of docs/threats.md."""

from __future__ import annotations

import ast
import json
import os
import socket
import stat
import time
from pathlib import Path

import pytest

import recsim_mnar
from recsim_mnar.cli import main
from recsim_mnar.errors import UserError
from recsim_mnar.log.files import opened, replacing, sweep
from recsim_mnar.log.filled_folder import filling
from recsim_mnar.log.made_with import made_with
from recsim_mnar.log.owned_folder import LEASE, LOCK, holder_of, owned
from recsim_mnar.log.receipts import INDEX, JOURNAL, digest_of
from recsim_mnar.resuming import making, resumable
from recsim_mnar.simulate.run_folder import claimed

# ------------------------------------------------------------------------------------------------- a folder, its links


def _to(target):
    return lambda path, outside: path.symlink_to(outside / target)


def _hard(path, outside):
    os.link(outside / "precious", path)


def _socket(path, outside):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def _others(path, outside):
    if os.geteuid() != 0:
        pytest.skip("only the superuser gives files away")
    path.write_text("{}")
    os.chown(path, 12345, -1)


STRANGE = {
    "symbolic link": (_to("precious"), "is a symbolic link"),
    "hard link": (_hard, "is a hard link"),
    "link to nothing": (_to("new"), "is a symbolic link"),
    "link to a folder": (_to("."), "is a symbolic link"),
    "link to a device": (lambda path, outside: path.symlink_to("/dev/zero"), "is a symbolic link"),
    "link to itself": (lambda path, outside: path.symlink_to(path), "is a symbolic link"),
    "pipe": (lambda path, outside: os.mkfifo(path), "is no regular file"),
    "socket": (_socket, "is no regular file"),
    "folder": (lambda path, outside: path.mkdir(), "is no regular file"),
    "another user's": (_others, "belongs to another user"),
}


@pytest.fixture
def outside(tmp_path):
    """A folder whose bytes must stay as they are."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "precious").write_text("precious")
    os.utime(place / "precious", (1.0, 1.0))
    yield place
    assert [(p.name, p.read_text(), p.stat().st_mtime) for p in place.iterdir()] == [("precious", "precious", 1.0)]


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "given"
    place.mkdir()
    return place


@pytest.mark.parametrize("kind", STRANGE)
def test_what_lies_where_a_lock_is_to_be_is_left_alone(kind, folder, outside):
    prepare, said = STRANGE[kind]
    prepare(folder / LOCK, outside)
    before = os.lstat(folder / LOCK)
    with pytest.raises(UserError, match=rf"\.lock {said}.*; nothing is written into it: "), owned(folder):
        pytest.fail("it is not ours")
    assert os.lstat(folder / LOCK) == before
    assert holder_of(folder) is None  # nor read, where that would never end


def test_a_command_says_so_in_one_line(folder, outside, capsys):
    (folder / LOCK).symlink_to(outside / "precious")
    with pytest.raises(SystemExit) as left:
        main(["simulate", "--world", "sessions", "--preset", "quick", "--policy", "random", "--users", "9",
              "--out", str(folder)])  # fmt: skip
    assert left.value.code == 2
    assert capsys.readouterr().err == (
        f"error: {folder / LOCK} is a symbolic link; nothing is written into it: remove it, or name another folder\n"
    )


@pytest.mark.parametrize("kind", STRANGE)
def test_a_lease_and_a_temporary_file_are_made_anew_or_not_at_all(kind, folder, outside):
    path = folder / "named.tmp"
    STRANGE[kind][0](path, outside)
    with pytest.raises(FileExistsError):
        opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)


@pytest.mark.parametrize("kind", [kind for kind in STRANGE if kind != "another user's"])
def test_a_sweep_takes_no_link_and_no_pipe_away(kind, folder, outside):
    left = folder / ".a.json.0123456789abcdef.tmp"
    STRANGE[kind][0](left, outside)
    sweep(folder)
    assert os.path.lexists(left)


@pytest.mark.parametrize("kind", ["symbolic link", "link to a device", "pipe", "link to nothing"])
@pytest.mark.parametrize("name", [LEASE, JOURNAL, INDEX, "simulation.json"])
def test_what_an_earlier_run_is_to_have_left_is_no_link_to_follow(name, kind, folder, outside):
    STRANGE[kind][0](folder / name, outside)
    began = time.monotonic()
    try:
        with claimed(folder, resume=True) as into:
            into.take_up()
            into.begin("made", {})
    except UserError:
        pass
    assert time.monotonic() - began < 10


def test_names_that_we_write_replace_a_link_and_not_what_it_points_at(folder, outside):
    for name, prepare in {"soft": _to("precious"), "hard": _hard, "new": _to("nothing")}.items():
        prepare(folder / name, outside)
        with replacing(folder / name) as temporary:
            assert stat.S_ISREG(os.lstat(temporary).st_mode)
            temporary.write_text("ours")
        assert not (folder / name).is_symlink()
        assert (folder / name).read_text() == "ours"


def _left_by_an_interrupted_run(folder, *names):
    """A journal as one of ours would be, of files of these names."""
    entries = [{"made": "stages", "made_with": made_with()}]
    entries += [{"file": name, "bytes": 8, "sha256": "0" * 64} for name in names]
    lines = [json.dumps({"entry": entry, "sha256": digest_of(entry)}, sort_keys=True) for entry in entries]
    (folder / JOURNAL).write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("name", ["sub/precious", "sub/../sub/precious", "deep/sub/precious", "../outside/precious"])
def test_a_receipt_removes_no_file_behind_a_link(name, folder, outside):
    (folder / "sub").symlink_to(outside)
    (folder / "deep").mkdir()
    (folder / "deep" / "sub").symlink_to(outside)
    _left_by_an_interrupted_run(folder, name)
    refused = pytest.raises(UserError, match="sub is a symbolic link; nothing is written or removed behind it: remove")
    with filling(folder, resume=True) if ".." in name else refused, resumable(folder, resume=True):
        pass


@pytest.mark.parametrize("sub", ["log", "made.toml.unfinished"])
def test_folders_that_we_name_are_no_links(sub, folder, tmp_path):
    finished = tmp_path / "finished"
    with filling(finished) as into:
        (finished / "part-00000.csv").write_text("x")
        into.begin("made", {})
        into.record("part-00000.csv")
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    (folder / sub).symlink_to(finished)
    refused = pytest.raises(UserError, match=f"{sub} is a symbolic link; nothing is written or removed behind it")
    if sub == "log":
        with filling(folder, resume=True), refused, filling(folder / sub, resume=True):
            pytest.fail("it is a link")
    else:
        with refused, making(folder / "made.toml", resume=True):
            pytest.fail("it is a link")
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before


def test_a_folder_that_the_user_names_may_be_a_link(tmp_path, folder):
    (tmp_path / "disk").symlink_to(folder)
    with filling(tmp_path / "disk") as into:
        into.begin("made", {})
    assert (folder / INDEX).is_file()


def test_a_lock_that_a_killed_run_left_is_taken(folder):
    """The rule is no hindrance where all is as it should be; what was made here is ours, whoever it is said to be."""
    (folder / LOCK).write_text('{"host": "elsewhere", "pid": 1}' * 9)
    with owned(folder):
        assert json.loads((folder / LOCK).read_text())["pid"] == os.getpid()
    assert list(folder.iterdir()) == []


def test_what_was_made_here_is_ours_where_the_file_system_names_another_owner(folder, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 54321)  # as the superuser on NFS
    with filling(folder) as into:
        into.begin("made", {})
        with into.recording("a") as path, replacing(path) as temporary:
            temporary.write_text("a")
    assert sorted(path.name for path in folder.iterdir()) == ["a", INDEX]


WRITERS = {
    "log/files.py": {"os.open(path)", "open(file)"},  # the one place
    "log/receipts.py": {"os.open(temporary)"},
    "log/parquet.py": {"path.open()"},  # handed a temporary file's name
    "simulate/executor.py": {"path.write_bytes()"},  # in a folder of mkdtemp's
    "cluster/greeting.py": {"open(opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))"},
    "cli/json_output.py": {"open(os.open(self.path, os.O_WRONLY))", "os.open(self.path)"},  # a device, not truncated
    "cli/__init__.py": {"os.open(os.devnull)"},
}
"""Calls that write by another name than that of a temporary file, which nobody can have prepared."""


def test_one_function_opens_what_we_write():
    root = Path(recsim_mnar.__file__).parent
    found = {}
    for path in root.rglob("*.py"):
        if "recsim_mnar/agents/" not in path.as_posix():
            for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
                said = _writes(call)
                if (said and "temporary" not in said) or said == "os.open(temporary)":
                    found.setdefault(path.relative_to(root).as_posix(), set()).add(said)
    found["log/files.py"] -= {"os.open(folder)"}  # to be synchronised
    assert found == WRITERS


def _writes(call):
    """A call that opens a file by its name to write there, without its further arguments; "" for any other."""
    name, given = ast.unparse(call.func), [ast.unparse(each) for each in call.args]
    last = name.rpartition(".")[2]
    if last in ("write_text", "write_bytes", "touch"):
        return f"{name}()"
    if name == "os.open":
        return f"{name}({given[0]})"
    if last == "open" and any(mode in ("'w'", "'wb'", "'a'", "'ab'", "'x'", "'xb'") for mode in given):
        return f"{name}({given[0]})" if name == "open" else f"{name}()"
    return ""
