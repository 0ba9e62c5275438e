"""Who may write into a folder: locks, and what dead owners leave."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.runs import files
from recsim_mnar.runs import folder as run_folder
from recsim_mnar.runs.files import replacing, sweep
from recsim_mnar.runs.folder import LEASE, LOCK, Lock, RunFolder, TakenError, holder_of
from recsim_mnar.runs.receipts import INDEX

HOLD = """
import sys, time
from pathlib import Path
from recsim_mnar.runs.folder import Lock
held = Lock.of(Path(sys.argv[1]))
if held:
    print("mine", flush=True)
    time.sleep(100)
"""


@contextlib.contextmanager
def owned(folder):
    held = Lock.of(folder)
    try:
        yield held
    finally:
        held.release()


@pytest.fixture
def holder(tmp_path):
    """Another process that owns the folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "mine\n"
    yield process
    process.kill()
    process.communicate()


def test_a_folder_has_one_owner_who_is_named(tmp_path, holder):
    with pytest.raises(TakenError, match=f"process {holder.pid} on {socket.gethostname()} since "), owned(tmp_path):
        pytest.fail("it is taken")
    assert str(holder.pid) in holder_of(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert holder_of(tmp_path) is None
    with owned(tmp_path):
        assert str(os.getpid()) in holder_of(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_thread_of_the_same_process_is_refused_too(tmp_path):
    refused = []

    def other():
        try:
            with owned(tmp_path):
                pass
        except TakenError as error:
            refused.append(error)

    with owned(tmp_path):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert (tmp_path / LOCK).exists()
    assert len(refused) == 1


def test_the_lock_of_a_file_that_was_removed_is_nobodys(tmp_path, monkeypatch):
    """Between opening the file and locking it the owner before removes it: what is locked is not the folder's."""
    lock_file, removed = run_folder.lock_file, []

    def removes_first(file, **more):
        if not removed:
            removed.append(os.fstat(file).st_ino)
            (tmp_path / LOCK).unlink()
        return lock_file(file)

    monkeypatch.setattr(run_folder, "lock_file", removes_first)
    with owned(tmp_path) as held:
        assert not held.lost()
        assert os.stat(tmp_path / LOCK).st_ino == os.fstat(held.file).st_ino
        (tmp_path / LOCK).unlink()
        assert held.lost()


def test_who_asks_for_the_holder_turns_no_owner_away(tmp_path):
    """It holds the lock for an instant, and an owner tries again; a lock that a killed run left has no holder."""
    (tmp_path / LOCK).write_text('{"host": "elsewhere", "pid": 1}')
    ended = threading.Event()

    def ask():
        while not ended.is_set():
            holder_of(tmp_path)

    thread = threading.Thread(target=ask)
    assert holder_of(tmp_path) is None
    thread.start()
    try:
        for _ in range(200):
            with owned(tmp_path):
                assert str(os.getpid()) in (holder_of(tmp_path) or "")
    finally:
        ended.set()
        thread.join()


def test_two_who_count_under_the_lock_lose_nothing(tmp_path):
    """Forty owners after each other, from eight threads: every one adds one."""
    (tmp_path / "count").write_text("0")

    def add():
        done = 0
        while done < 5:
            try:
                with owned(tmp_path):
                    n = int((tmp_path / "count").read_text())
                    time.sleep(0.001)
                    (tmp_path / "count").write_text(str(n + 1))
                    done += 1
            except TakenError:
                time.sleep(0.001)

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "count").read_text() == "40"


def test_a_lock_that_goes_and_comes_while_it_is_opened_is_taken(tmp_path, monkeypatch):
    (tmp_path / LOCK).touch()
    real, gone = os.open, []

    def once_gone(path, flags, *mode):
        if not flags & os.O_CREAT and not gone:
            gone.append(path)
            raise FileNotFoundError(2, "gone", str(path))
        return real(path, flags, *mode)

    monkeypatch.setattr(os, "open", once_gone)
    with owned(tmp_path):
        assert gone == [tmp_path / LOCK]


# -------------------------------------------------------------------------------------------- where there are no locks


@pytest.fixture
def no_locks(monkeypatch):
    monkeypatch.setattr(run_folder, "lock_file", lambda file, **more: False)


def test_a_file_is_the_lock_where_there_are_none(tmp_path, no_locks):
    with owned(tmp_path) as held:
        assert not (tmp_path / LOCK).exists()
        assert str(os.getpid()) in holder_of(tmp_path)
        with pytest.raises(TakenError, match=rf"{os.getpid()}.*; if it has ended, remove .*\.lease"), owned(tmp_path):
            pytest.fail("it is taken")
        assert not held.lost()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_of_a_killed_process_is_removed_by_hand_where_there_are_none(tmp_path, no_locks):
    """And who is alive and lost its lock so writes nothing more, no index either, and leaves that of the other."""

    def robbed():
        with RunFolder.fill(tmp_path) as first:
            first.begin("made")
            (tmp_path / LEASE).unlink()
            with owned(tmp_path), pytest.raises(UserError, match="was taken over by another process"):
                first.record("a")
            (tmp_path / LEASE).write_text("of another host")

    with pytest.raises(UserError, match="was taken over"):
        robbed()
    assert (tmp_path / LEASE).read_text() == "of another host"
    assert not (tmp_path / INDEX).exists()


# ----------------------------------------------------------------------------------------------------- temporary files


def test_what_a_killed_writer_left_is_swept_and_what_one_writes_is_not(tmp_path):
    left = tmp_path / ".part-00001.parquet.0123456789abcdef.tmp"
    before = tmp_path / ".part-00002.parquet.4711.tmp"  # as version 0.2.0 named them
    mine = [tmp_path / ".mine.tmp", tmp_path / "a.0123456789abcdef.tmp", tmp_path / ".0123456789abcdef.tmp.txt"]
    for path in (left, before, *mine):
        path.write_text("x")
    with replacing(tmp_path / "part-00003.parquet") as temporary:
        temporary.write_text("half")
        sweep(tmp_path)
        assert temporary.read_text() == "half"
    assert sorted(tmp_path.iterdir()) == sorted([*mine, tmp_path / "part-00003.parquet"])


def test_a_sweep_for_one_file_leaves_the_others(tmp_path):
    names = [".a.json.0123456789abcdef.tmp", ".b.json.0123456789abcdef.tmp"]
    for name in names:
        (tmp_path / name).write_text("x")
    sweep(tmp_path, "a.json")
    assert [path.name for path in tmp_path.iterdir()] == names[1:]


def test_a_writer_whose_file_is_swept_before_it_is_locked_takes_another(tmp_path, monkeypatch):
    lock_file, swept = files.lock_file, []

    def swept_first(file, **more):
        if not swept:
            swept.extend(tmp_path.glob(".*.tmp"))
            swept[0].unlink()
        return lock_file(file)

    monkeypatch.setattr(files, "lock_file", swept_first)
    with replacing(tmp_path / "a") as temporary:
        temporary.write_text("whole")
    assert swept
    assert temporary != swept[0]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_names_of_temporary_files_are_unique_and_fit(tmp_path):
    long = "x" * 250
    with replacing(tmp_path / long) as one, replacing(tmp_path / long) as other:
        assert one != other
        one.write_text("1")
        other.write_text("2")
    assert (tmp_path / long).read_text() == "1"  # the last to end


def test_errors_name_the_file_that_was_asked_for(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"out\.json") as caught, replacing(tmp_path / "file" / "out.json"):
        pytest.fail("no folder")
    assert caught.value.filename == str(tmp_path / "file" / "out.json")
    with pytest.raises(OSError, match="No space left") as caught, replacing(tmp_path / "out.json"):
        raise OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device")
    assert caught.value.filename == str(tmp_path / "out.json")
    with pytest.raises(FileNotFoundError) as caught, replacing(tmp_path / "out.json"):
        (tmp_path / "other").read_text()
    assert caught.value.filename == str(tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_paths_that_are_no_utf8_are_a_line(tmp_path):
    bad = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.parquet")
    with pytest.raises(UserError, match=r"xff.parquet: the path is not UTF-8"), replacing(bad):
        pytest.fail("no such name")
