"""Where ``--json`` writes: a file, a device, standard output alone; and what it leaves alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from recsim_mnar.cli import main

COMMAND = [sys.executable, "-m", "recsim_mnar", "estimate"]


@pytest.fixture
def log(tmp_path):
    """200 rows with a target."""
    rng = np.random.default_rng(3)
    lines = [f"u{i // 2},{rng.integers(2)},.5,.4\n" for i in range(200)]
    path = tmp_path / "log.csv"
    path.write_text("user,clicks,propensity,new\n" + "".join(lines))
    return path


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        main([str(a) for a in arguments])
    assert left.value.code == 2
    return capsys.readouterr().err


def test_json_to_standard_output_is_all_there_is(log, capsys):
    for command in (("estimate", log, "--target", "new"), ("doctor", log)):
        with pytest.raises(SystemExit) as left:
            main([*map(str, command), "--json", "-"])
        assert left.value.code == 0
        assert json.loads(capsys.readouterr().out)


def test_no_folder_is_made_and_nothing_read_is_replaced(log, tmp_path, capsys):
    before = log.read_bytes()
    there = "estimate", log, "--target", "new", "--json"
    assert "is no folder" in refused(capsys, *there, tmp_path / "no" / "such.json")
    assert not (tmp_path / "no").exists()
    assert "is a folder" in refused(capsys, *there, tmp_path)
    assert "would replace" in refused(capsys, *there, log)
    assert "would replace" in refused(capsys, "doctor", log, "--json", log)
    assert log.read_bytes() == before


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="no /dev/stdout")
def test_a_device_stays_a_device(log, tmp_path):
    link = os.readlink("/dev/stdout")
    done = subprocess.run(
        [*COMMAND, str(log), "--target", "new", "--json", "/dev/stdout"], capture_output=True, text=True, check=True
    )
    assert os.readlink("/dev/stdout") == link
    assert json.loads(done.stdout[done.stdout.index("\n[") :])

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    subprocess.run([*COMMAND, str(log), "--target", "new", "--json", str(pipe)], capture_output=True, check=True)
    reader.join(timeout=30)
    assert json.loads(read[0])
    assert pipe.is_fifo()
