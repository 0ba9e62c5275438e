"""Workers of this machine: threads or processes, what they say, how far they have come, and what a run took."""

import functools
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from recsim_mnar.cli import output
from recsim_mnar.cli.output import Reporter, time_in_words
from recsim_mnar.errors import UserError
from recsim_mnar.progress import counted, watched_by
from recsim_mnar.simulation import pools
from recsim_mnar.simulation.executor import carrying, run_in_order
from recsim_mnar.simulation.pools import Pool, pool
from twins.commands import status_of
from twins.policies import Uniform

SIMULATE = ("simulate", "--world", "sessions", "--set", "n_items=20", "--set", "n_flips=5", "--policy", "random",
            "--users", 50)  # fmt: skip


def number(thing, k):
    return k


def ran(made, thing, *, in_python=True):
    job = carrying(number, thing, in_python=in_python)
    assert list(run_in_order((functools.partial(job, k) for k in range(9)), made)) == list(range(9))


@pytest.fixture
def started(monkeypatch):
    """Threads in the place of processes; whether they were started."""
    seen = []
    monkeypatch.setattr(pools, "_started", lambda n: seen.append(n) or ThreadPoolExecutor(n))
    return seen


def test_processes_are_started_where_they_pay(started):
    for n, thing, in_python, pays in (
        (2, 1, True, False),  # this package's agents: two threads share the interpreter well
        (2, Uniform(3), True, True),
        (2, {"deep": [Uniform(3)]}, True, True),
        (4, 1, True, True),
        (4, Uniform(3), False, False),
        (4, threading.Lock(), True, False),  # cannot travel
    ):
        started.clear()
        with Pool(n, pays_after=0.0) as made:
            ran(made, thing, in_python=in_python)
            assert started == ([n] if pays else []), (n, thing)
            assert ("processes" in made.kind) == pays


def test_processes_are_not_started_for_what_is_soon_over(started):
    with Pool(4) as made:
        ran(made, 1)
    assert started == []


def test_one_worker_is_this_process_and_none_is_refused():
    with pool(1) as made:
        assert made is None
    with pytest.raises(UserError, match="at least 1"), pool(0):
        pass


class Loud:
    """A policy that raises."""

    def act(self, users, uniforms):
        raise KeyError("nobody")


def test_what_code_of_ones_own_raises_is_said_where_it_ran():
    with pytest.raises(UserError, match=r"policy '.*:Loud': its act\(\) raised KeyError: 'nobody'"):
        pools.run_job(Loud().act, [0], [0.5])
    with pytest.raises(ZeroDivisionError):
        pools.run_job(divmod, 1, 0)


@pytest.mark.slow
def test_real_processes(tmp_path):
    with Pool(2, pays_after=0.0) as made:
        ran(made, Uniform(3))
        assert "processes" in made.kind


class Seen:
    def __init__(self):
        self.updates = []

    def begins(self, total, unit):
        self.updates.append((total, unit))

    def advance(self, amount):
        self.updates.append(amount)


def test_of_work_within_work_the_outermost_is_reported():
    seen = Seen()
    with watched_by(seen):
        outer = counted(2, "folds")
        inner = counted(100, "users")
        inner(100)
        outer(1)
        outer(1)
        counted(5, "rows")(5)
    counted(9, "rows")(9)
    assert seen.updates == [(2, "folds"), 1, 1, (5, "rows"), 5]


def test_lines_say_how_fast_and_how_long(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    report = Reporter()
    report("replay svd")
    report.begins(10_000, "rows")
    report.goes_on(2_000)
    for second in range(1, 21):
        now[0] = float(second)
        report.advance(100)
    assert capsys.readouterr().err.splitlines() == [
        "replay svd",
        "replay svd: 3,000 of 10,000 rows, 100 a second, 70 s left",
        "replay svd: 4,000 of 10,000 rows, 100 a second, 60 s left",
    ]
    silent = Reporter(quiet=True)
    silent("replay svd")
    silent.begins(10, "rows")
    now[0] += 100
    silent.advance(1)
    assert capsys.readouterr().err == ""
    assert [time_in_words(s) for s in (7.2, 600, 9000)] == ["7 s", "10 min", "2.5 h"]


def test_a_stage_within_counted_work_does_not_forget_its_total(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    report = Reporter()
    report.begins(4, "comparisons")
    for task in range(1, 5):
        now[0] += 200.0
        report(f"c{task}")
        report.advance(1)
    report("write")
    report.begins(3, "rows")
    now[0] += 200.0
    report.advance(1)
    counts = [line.partition(": ")[2] for line in capsys.readouterr().err.splitlines() if ": " in line]
    assert [count.partition(" a second")[0] for count in counts] == [
        *(f"{done} of 4 comparisons, 0.005" for done in range(1, 5)), "1 of 3 rows, 0.005",
    ]  # fmt: skip
    assert [count.rpartition(", ")[2] for count in counts] == [
        "10 min left",
        "7 min left",
        "3 min left",
        "0 s left",
        "7 min left",
    ]


def run(*arguments):
    assert status_of(*arguments) == 0


def test_a_run_leaves_a_record_that_no_receipt_knows(tmp_path, capsys):
    out = tmp_path / "out"
    run(*SIMULATE, "--workers", 2, "--quiet", "--out", out)
    record = json.loads((out / "run.json").read_text())
    assert record["command"] == "simulate"
    assert record["workers"] == {"kind": "threads", "number": 2}
    assert record["peak_memory_bytes"] > 1 << 24
    assert {"numpy", "numba", "scipy", "pyarrow", "recsim-mnar", "sources"} <= {*record["made_with"]}
    assert {"host", "began", "seconds", "cpu_seconds", "processors", "arguments"} <= {*record}
    assert "run.json" not in (out / "index.json").read_text()
    run("verify", out)
    run(*SIMULATE, "--workers", 1, "--resume", "--out", out)
    assert json.loads((out / "run.json").read_text())["workers"] == {"kind": "this process", "number": 1}
    assert capsys.readouterr().err == ""
