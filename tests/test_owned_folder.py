"""Who may write into a folder: one process at a time, whatever killed ones left; and the names of written files."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.runs.files import is_temporary, replacing
from recsim_mnar.runs.folder import LOCK, STUDY, RunFolder
from toys import refused

HOLD = """
import sys, time
from pathlib import Path
from recsim_mnar.runs.folder import RunFolder
with RunFolder.fill(Path(sys.argv[1])):
    print("mine", flush=True)
    time.sleep(100)
"""
TAKEN = "is being written by another process: wait for it"


@pytest.fixture
def holder(tmp_path):
    """Another process that fills the folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "mine\n"
    yield process
    process.kill()
    process.communicate()


def test_a_folder_has_one_writer_and_a_killed_one_leaves_no_lasting_lock(tmp_path, holder):
    with refused(TAKEN), RunFolder.fill(tmp_path):
        pytest.fail("it is taken")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / LOCK).exists()
    with RunFolder.fill(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_two_who_count_under_the_lock_lose_nothing(tmp_path):
    """Forty writers after each other, from eight threads: every one adds one, though each removes the lock's file."""
    (tmp_path / "count").write_text("0")

    def add():
        done = 0
        while done < 5:
            try:
                with RunFolder.fill(tmp_path, keep_others=True):
                    n = int((tmp_path / "count").read_text())
                    time.sleep(0.001)
                    (tmp_path / "count").write_text(str(n + 1))
                    done += 1
            except UserError:
                time.sleep(0.001)

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "count").read_text() == "40"


# ----------------------------------------------------------------------------------------------------- temporary files


def test_what_a_killed_writer_left_goes_and_what_is_named_otherwise_stays(tmp_path):
    left = [tmp_path / ".part-00001.parquet.0123456789abcdef.tmp", tmp_path / "tasks" / ".a.json.0123456789abcdef.tmp"]
    mine = [tmp_path / ".mine.tmp", tmp_path / "a.0123456789abcdef.tmp", tmp_path / ".0123456789abcdef.tmp.txt"]
    (tmp_path / "tasks").mkdir()
    for path in (*left, *mine):
        path.write_text("x")
    assert [is_temporary(path) for path in (*left, *mine)] == [True, True, False, False, False]

    def files():
        return sorted(path for path in tmp_path.rglob("*") if path.is_file())

    with RunFolder.fill(tmp_path, keep_others=True):
        assert set(left) <= set(files())  # another command may be writing there
    (tmp_path / STUDY).write_text("{}")
    with RunFolder.fill(tmp_path, resume=True):
        pass
    assert files() == sorted([*mine, tmp_path / STUDY])


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
