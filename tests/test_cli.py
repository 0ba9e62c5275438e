"""The command line as a person and as a script meet it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

from recsim_mnar.cli import _can_resume
from recsim_mnar.log import Log
from recsim_mnar.runs.receipts import Index
from recsim_mnar.tables.parts import verify
from twins.cases import quick_first
from twins.commands import done, fails, run, status_of

SMALL = ["--set", "n_items=20", "--set", "n_flips=5"]
_SIZES = ("train_users=60", "test_users=60", "arm_users=60", "truth_users=100", "folds=2")
SIZES = [word for size in _SIZES for word in ("--option", size)]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    out = tmp_path_factory.mktemp("cli") / "sim"
    logger = ("--policy", "user-popularity+epsilon=0.3", "--users", 120, "--seed", 5, "--truth")
    assert status_of("simulate", "--world", "sessions", *SMALL, *logger, "--out", out) == 0
    return out


def test_compare_writes_what_it_promises_and_the_same_for_any_workers(capsys, tmp_path):
    command = ("compare", "--preset", "quick", *SMALL, *SIZES, "--agents", "random,item-knn,svd+rank=4", "--seed", 3)
    assert run(capsys, *command, "--workers", 3, "--out", tmp_path / "three")[0] == 0
    out = tmp_path / "run"
    assert str(out) in done(capsys, *command, "--workers", 1, "--out", out)
    for name in ("results.json", "summary.json", "report.html"):
        assert (out / name).read_bytes() == (tmp_path / "three" / name).read_bytes()
    results = json.loads((out / "results.json").read_text())
    assert set(results) == {"schema", "package", "records"}
    metrics = {(r["protocol"], r["metric"]) for r in results["records"]}
    assert {protocol for protocol, _ in metrics} == {"loocv", "off_policy", "ab_test", "truth"}
    assert metrics >= {("loocv", "hr@1"), ("off_policy", "clipped_ips"), ("ab_test", "ctr"), ("truth", "ctr")}
    timings = json.loads((out / "timings.json").read_text())
    assert len(timings["records"]) == len(results["records"])
    page = (out / "report.html").read_text()
    assert page.count('role="img"') == 2
    names_only = r"http://(www\.w3\.org|purl\.org|creativecommons\.org)"
    assert "http://" not in re.sub(names_only, "", page)
    assert len(Log.read(out / "log").validate(20).users()) == 60


def test_simulate_writes_log_truth_and_catalogue(simulated):
    log = Log.read(simulated).validate(20)
    shown = log.bandit()
    truth = pq.read_table(simulated / "truth.parquet")
    assert truth.column_names == ["user", "step", "click_probability"]
    for name in ("user", "step"):
        assert_array_equal(truth[name], shown[name])
    probability = truth["click_probability"].to_numpy()
    assert probability.min() > 0.0044
    assert probability.max() < 0.0294
    with np.load(simulated / "catalogue.npz", allow_pickle=False) as arrays:
        assert set(arrays) == {"item_factors", "item_offsets", "click_factors", "click_offsets"}
        assert arrays["click_factors"].shape == (20, 5)
    assert not list(simulated.glob(".*"))


@pytest.fixture(autouse=True)
def interrupts_are_heard():
    """Children ignore interrupts where this process does: started in the background, or under ``nohup``."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_an_interrupted_simulation_resumes(tmp_path):
    """SIGINT half-way, then --resume: one line, status 130, whole parts only, and in the end a whole run."""
    command = [sys.executable, "-m", "recsim_mnar", "simulate", "--world", "sessions", "--policy", "random",
               "--users", "60000", "--seed", "2", "--truth", "--workers", "1", "--out"]  # fmt: skip
    out = tmp_path / "broken"
    process = subprocess.Popen([*command, str(out)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while process.poll() is None and not Index.of(out / "log").receipts:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    if process.returncode != 0:  # it may have been faster than the signal
        assert process.returncode == 130, err
        hint = "To go on from here, run the same command with --resume."
        assert err.strip().splitlines()[-2:] == [hint, "interrupted"]
        assert not (out / "truth.parquet").exists()
    resumed = subprocess.run([*command, str(out), "--resume"], capture_output=True, text=True, check=True)
    assert "already" in resumed.stdout
    assert not verify(out).faults
    assert not list(out.glob(".*"))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("compare --catalogues 4 --out .", True),
        ("", False),
        ("simulate --out . --resume", False),
        ("simulate --out .", True),
        ("compare --out .", False),
    ],
)
def test_resume_is_named_where_it_helps(words, named):
    assert _can_resume(words.split()) == named


def test_an_interrupt_while_modules_are_read_is_one_line(tmp_path):
    (tmp_path / "gymnasium.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "recsim_mnar", "worlds"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


IGNORED = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nX = 1\n"
LOST = f"class Ends:\n    def __del__(self):\n        {IGNORED.splitlines()[1]}\nimport os, signal\nEnds()\nX = 1\n"


@pytest.mark.parametrize(
    ("module", "ignored", "status"), quick_first([(LOST, False, 130), (IGNORED, False, 130), (IGNORED, True, 2)])
)
def test_an_interrupt_is_neither_lost_nor_heard_by_who_ignores_it(module, ignored, status, tmp_path):
    """Compilers call back, and finalisers run, where Python drops what is raised; ``nohup`` and shells ignore it."""
    (tmp_path / "own_module.py").write_text(module)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignored else None
    try:
        command = [sys.executable, "-m", "recsim_mnar", "describe", "agent", "own_module:X"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    finally:
        if ignored:
            signal.signal(signal.SIGINT, before)
    assert done.returncode == status
    assert (done.stderr.strip() == "interrupted") == (not ignored)
    assert "Traceback" not in done.stderr


def test_replay_refuses_items_that_the_log_contradicts(capsys, simulated, tmp_path):
    replayed = ("replay", simulated, "--policy", "random", "--items", 10, "--out", tmp_path / "few.parquet")
    assert "--items 10: the log has 20 items" in fails(capsys, *replayed)


@pytest.mark.parametrize(
    ("lines", "refusal"),
    [
        (
            ["user,slate_id,rank,item_id,clicks", "1,a,1,x,0", "1,a,2,y,1", "2,b,1,y,0", "2,b,2,z,0"],
            "holds slates: what was shown is no interaction",
        ),
        (
            ["user,items,clicks", '1,"[""x1"", ""y2""]",0', '2,"[""y2"", ""z3""]",1'],
            "'items' holds lists: explode them",
        ),
    ],
)
def test_slates_are_no_interactions(tmp_path, capsys, lines, refusal):
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    said = fails(capsys, "compare", "--interactions", tmp_path / "mine.csv", "--agents", "random,popularity")
    assert refusal in said
    assert len(said.splitlines()) == 1


def test_the_bare_names_are_the_lists(capsys):
    kinds = ("worlds", "agents", "estimators", "protocols", "presets", "tasks")
    texts = [run(capsys, kind)[1] for kind in kinds]
    for kind, text in zip(kinds, texts, strict=True):
        assert run(capsys, "list", kind) == (0, text, "")
        assert all(len(line.split(None, 1)) == 2 for line in text.splitlines() if line)
    assert run(capsys, "list")[1] == "".join(f"{kind}:\n{text}" for kind, text in zip(kinds, texts, strict=True))
    assert set(json.loads(run(capsys, "list", "--json", "-")[1])) == set(kinds)


def test_help_is_quick_and_imports_little():
    code = (
        "import recsim_mnar.cli, sys; print([m for m in ('numba', 'scipy', 'pandas', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "[]"


def test_a_matrix_of_a_run_makes_a_world_of_ratings(capsys, tmp_path):
    simulate = ("simulate", "--world", "ratings", "--policy", "random", "--set", "density=0.1")
    done(capsys, *simulate, "--set", "n_items=30", "--users", 60, "--truth", "--out", tmp_path / "one")
    matrix = f"ratings_file={tmp_path / 'one' / 'catalogue.npz'}"
    done(capsys, *simulate, "--set", matrix, "--users", 5, "--out", tmp_path / "two")
    assert Log.read(tmp_path / "two").provenance["world"]["matrix"]["users"] == 60


def test_estimates_never_replace_a_part_of_the_log(capsys, tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "a.csv").write_text("propensity,reward,t\n" + ".5,1,.5\n.5,0,.5\n" * 100)
    assert "name another file" in fails(capsys, "estimate", parts, "--target", "t", "--json", parts / "b.csv")
    assert not (parts / "b.csv").exists()


@pytest.fixture
def device_log(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("user,clicks,propensity,new\n" + "".join(f"u{i // 2},{i % 3 // 2},.5,.4\n" for i in range(200)))
    return [sys.executable, "-m", "recsim_mnar", "estimate", str(log), "--target", "new", "--json"]


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="no /dev/stdout")
def test_standard_output_stays_a_device(device_log):
    link = os.readlink("/dev/stdout")
    ended = subprocess.run([*device_log, "/dev/stdout"], capture_output=True, text=True, check=True)
    assert os.readlink("/dev/stdout") == link
    assert json.loads(ended.stdout[ended.stdout.index("\n[") :])


@pytest.mark.slow
def test_a_pipe_stays_a_pipe(device_log, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        text = reader.submit(pipe.read_text)
        subprocess.run([*device_log, str(pipe)], capture_output=True, check=True)
        assert json.loads(text.result(timeout=30))
    assert pipe.is_fifo()
