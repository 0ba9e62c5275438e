"""Who may write into a folder: locks, leases, and what dead owners leave."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.log import files, owned_folder
from recsim_mnar.log.files import replacing, sweep
from recsim_mnar.log.owned_folder import LEASE, LOCK, TakenError, holder_of, owned

HOLD = """
import sys, time
from pathlib import Path
from recsim_mnar.log.owned_folder import owned
with owned(Path(sys.argv[1])):
    print("mine", flush=True)
    time.sleep(100)
"""


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
    lock, removed = owned_folder.lock_file, []

    def removes_first(file, **more):
        if not removed:
            removed.append(os.fstat(file).st_ino)
            (tmp_path / LOCK).unlink()
        return lock(file, **more)

    monkeypatch.setattr(owned_folder, "lock_file", removes_first)
    with owned(tmp_path) as held:
        assert not held.lost()
        assert os.stat(tmp_path / LOCK).st_ino == os.fstat(held.file).st_ino
        (tmp_path / LOCK).unlink()
        assert held.lost()


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
    monkeypatch.setattr(owned_folder, "lock_file", lambda file, **more: False)
    monkeypatch.setattr(owned_folder, "RENEWED_EVERY", 0.02)


def lease_of(folder, **more):
    told = {"host": "elsewhere", "pid": 1, "since": "then", "token": "t", **more}
    (folder / LEASE).write_text(json.dumps(told))


def test_a_lease_is_held_renewed_and_given_back(tmp_path, no_locks):
    with owned(tmp_path) as held:
        assert not (tmp_path / LOCK).exists()
        with pytest.raises(TakenError, match=str(os.getpid())), owned(tmp_path):
            pytest.fail("it is taken")
        os.utime(tmp_path / LEASE, (1.0, 1.0))
        deadline = time.monotonic() + 30
        while (tmp_path / LEASE).stat().st_mtime == 1.0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (tmp_path / LEASE).stat().st_mtime > 1.0
        lease_of(tmp_path)
        while not held.lost() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert held.lost()
    assert json.loads((tmp_path / LEASE).read_text())["host"] == "elsewhere"  # not ours to remove


def test_a_lease_of_another_host_is_taken_over_when_it_was_not_renewed(tmp_path, no_locks):
    lease_of(tmp_path)
    with pytest.raises(TakenError, match="process 1 on elsewhere since then"), owned(tmp_path):
        pytest.fail("it is taken")
    old = time.time() - 2 * owned_folder.DEAD_AFTER
    os.utime(tmp_path / LEASE, (old, old))
    with owned(tmp_path):
        assert json.loads((tmp_path / LEASE).read_text())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_a_lease_of_a_process_that_has_ended_is_taken_over_at_once(tmp_path, no_locks):
    here = socket.gethostname()
    lease_of(tmp_path, host=here, pid=os.getpid(), started="long ago")  # the number is another process's today
    with owned(tmp_path):
        pass
    lease_of(tmp_path, host=here, pid=2**22 + 1)
    with owned(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_of_two_who_take_a_dead_lease_over_one_gets_it(tmp_path, no_locks):
    """The second moved aside what the first had put there since: it puts it back."""
    lease_of(tmp_path, token="alive")
    owned_folder._Lease(tmp_path)._take_away({"host": "elsewhere", "token": "dead"})
    assert json.loads((tmp_path / LEASE).read_text())["token"] == "alive"
    assert [path.name for path in tmp_path.iterdir()] == [LEASE]


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
    lock, swept = files.lock_file, []

    def swept_first(file, **more):
        if not swept:
            swept.extend(tmp_path.glob(".*.tmp"))
            swept[0].unlink()
        return lock(file, **more)

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
