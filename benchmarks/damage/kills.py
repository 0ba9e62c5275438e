"""Commands killed at random moments and taken up again; and two that start in one folder."""

from __future__ import annotations

import atexit
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from children import bytes_of, command, scratch, warm

WORLD = ("--world", "sessions", "--set", "n_items=20", "--set", "n_flips=5")
SIMULATE = ("simulate", *WORLD, "--policy", "user-popularity+epsilon=0.3", "--users", 1280, "--train-users", 40,
            "--seed", 3, "--truth", "--workers", 1)  # fmt: skip
REPLAYED = ("user-popularity+epsilon=0.1", "item-knn", "svd+rank=5")
SIZES = ("train_users=40", "test_users=40", "arm_users=40", "truth_users=60", "folds=2")
STUDY = """catalogues = 6
agents = ["random", "user-popularity"]
protocols = ["loocv", "off_policy"]
[options]
train_users = 40
test_users = 40
arm_users = 40
truth_users = 60
folds = 2
[[worlds]]
world = "sessions"
preset = "quick"
params = { n_items = 20, n_flips = 5 }
"""
TIMES = ("timings.json",)
"""A study's times differ from run to run."""
SLOW = '''import time
import numpy as np
class Slow:
    """Acts at random, and takes its time."""
    name = "slow"
    def __init__(self, n_items): self.n_items = n_items
    def act(self, users, uniforms):
        time.sleep(0.01)
        return (uniforms * self.n_items).astype(int), np.full(len(users), 1 / self.n_items)
    def probabilities(self, users): return np.full((len(users), self.n_items), 1 / self.n_items)
'''


@cache
def undisturbed(kind: str) -> tuple[dict[str, bytes], float]:
    """The bytes of an undisturbed run, and the seconds that it takes."""
    with scratch() as place:
        warm(*_words(kind, place / "warm"))
        began = time.monotonic()
        ended = command(*_words(kind, place))
        assert ended.status == 0, ended
        return bytes_of(place / "out", without=TIMES), time.monotonic() - began


@cache
def _log() -> Path:
    """A log to replay, with another to train on: as long as this process lives."""
    place = Path(tempfile.mkdtemp(prefix="damage-log-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    for name, seed, users in (("log", 3, 2560), ("train", 4, 64)):
        warm(*SIMULATE, "--users", users, "--seed", seed, "--out", place / name)
    return place


def _words(kind: str, place: Path) -> tuple[object, ...]:
    if kind == "simulate":
        return (*SIMULATE, "--out", place / "out")
    if kind == "replay":
        policies = (word for name in REPLAYED for word in ("--policy", name))
        return ("replay", _log() / "log", "--train", _log() / "train", *policies, "--workers", 1, "--out",
                f"{place / 'out'}/")  # fmt: skip
    if kind == "compare":
        sizes = (word for name in SIZES for word in ("--option", name))
        return ("compare", *WORLD, "--preset", "quick", "--agents", "random,user-popularity", "--protocols",
                "loocv,off_policy", *sizes, "--catalogues", 6, "--workers", 1, "--out", place / "out")  # fmt: skip
    place.mkdir(exist_ok=True)
    (place / "study.toml").write_text(STUDY)
    return ("study", place / "study.toml", "--workers", 1, "--out", place / "out")


def killed(kind: str, number: int) -> dict[str, Any]:
    """Kill a run once, or a third of them twice, and take it up: the bytes, and what was there at the kill."""
    wanted, seconds = undisturbed(kind)
    draw = random.Random(f"{kind} {number}")
    with scratch() as place:
        words = _words(kind, place)
        before = {path.name for path in place.iterdir()}
        for _ in range(50):  # until the moment comes before the end, which on a crowded machine is not known
            moment = draw.uniform(0.0, seconds)
            first = command(*words, kill_after=moment)
            if first.status == -9:
                break
            shutil.rmtree(place / "out", ignore_errors=True)
        there = sorted(bytes_of(place / "out")) if (place / "out").exists() else []
        if draw.random() < 1 / 3:
            command(*words, "--resume", kill_after=draw.uniform(0.0, 0.5 * seconds))
        last = command(*words, "--resume")
        found = bytes_of(place / "out", without=TIMES)
        left = sorted({path.name for path in place.iterdir()} - before - {"out"})
        same = last.status == 0 and found == wanted and not left
        differ = left + sorted(n for n in {*found, *wanted} if found.get(n) != wanted.get(n))
    parts = [n for n in there if n.endswith((".parquet", ".json")) and "/" in n and ".tmp" not in n]
    return {"killed": first.status == -9, "at": round(moment / seconds, 3), "files": len(there), "parts": len(parts),
            "temporary": sum(".tmp" in n for n in there), "same": same,
            **({} if same else {"differ": differ[:5], "said": last.lines[-3:]})}  # fmt: skip


def has_dask() -> bool:
    """Whether the extra that clusters need is installed."""
    return importlib.util.find_spec("distributed") is not None


class Workers:
    """A Dask scheduler and two workers on this machine, each below a nanny that starts it again when it is killed."""

    def __init__(self, place: Path) -> None:
        from distributed import Client

        port = 20_000 + os.getpid() % 20_000
        self.address = f"tcp://127.0.0.1:{port}"
        here = ["--host", "127.0.0.1", "--no-dashboard"]
        ways = [["scheduler", *here, "--port", str(port)], ["worker", self.address, *here, "--nworkers", "2",
                 "--nthreads", "1"]]  # fmt: skip
        with (place / "said.txt").open("w") as said:
            self.processes = [
                subprocess.Popen([sys.executable, "-m", "dask", *way], stdout=said, stderr=said, cwd=place)
                for way in ways
            ]
        self.client = Client(self.address, timeout=60, set_as_default=False)
        self.client.wait_for_workers(2, timeout=120)

    @staticmethod
    @cache
    def of(place: Path) -> Workers:
        """Those of this process, started when they are first asked for."""
        made = Workers(place)
        atexit.register(made.close)
        return made

    def kill_one(self, draw: random.Random) -> bool:
        """Kill one of the workers that run at this moment."""
        pids = self.client.run(os.getpid, on_error="ignore")
        if not pids:
            return False
        os.kill(draw.choice(sorted(pids.values())), signal.SIGKILL)
        return True

    def close(self) -> None:
        self.client.close(timeout=5)
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(timeout=60)


@cache
def _on_cluster(workers: Workers, kind: str) -> float:
    """Seconds of a run on an undisturbed cluster, from its folder to its end."""
    _by_workers(workers, kind, lambda: False, 0.0)
    return _by_workers(workers, kind, lambda: False, 0.0)[2]


def _by_workers(
    workers: Workers, kind: str, disturb: Callable[[], bool], after: float
) -> tuple[Any, dict[str, bytes], float, bool]:
    """A run by a cluster, disturbed so long after its folder is there: how it ended, its bytes, seconds, and whether
    it was disturbed."""
    with scratch() as place:
        words = [each for each in _words(kind, place) if each not in ("--workers", 1)]
        workers.client.wait_for_workers(2, timeout=120)
        # A process of its own, not a fork: this one has a client's threads.
        alone = "import sys; from children import *; small_parts(); cli.main(sys.argv[1:])"
        way = [sys.executable, "-c", alone, *map(str, words), "--scheduler", workers.address]
        began, ended = threading.Event(), threading.Event()
        disturbed = []

        def wait_and_disturb() -> None:
            while not ((place / "out").exists() or ended.is_set()):
                time.sleep(0.002)
            began.set()
            if not ended.wait(after):
                disturbed.append(disturb())

        waiting = threading.Thread(target=wait_and_disturb)
        waiting.start()
        process = subprocess.Popen(
            way, cwd=Path(__file__).parent, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        began.wait()
        start = time.monotonic()
        _, said = process.communicate(timeout=600)
        seconds = time.monotonic() - start
        ended.set()
        waiting.join()
        found = bytes_of(place / "out", without=TIMES) if (place / "out").exists() else {}
    return (process.returncode, said.splitlines()[-3:]), found, seconds, any(disturbed)


def worker_killed(workers: Workers, number: int) -> dict[str, Any]:
    """Kill a worker of a cluster while it works for a run: the run goes on, with the bytes of one without a cluster.

    The moment is drawn from the run's own time: from when its folder is there, the program's start excluded.
    """
    kind = ("simulate", "study")[number % 5 == 4]
    wanted, _ = undisturbed(kind)
    usual = _on_cluster(workers, kind)
    draw = random.Random(f"worker {number}")
    for _ in range(20):  # until the moment comes before the end
        moment = draw.uniform(0.0, usual)
        how, found, seconds, killed = _by_workers(workers, kind, lambda: workers.kill_one(draw), moment)
        if killed:
            break
    same = how[0] == 0 and found == wanted
    outcome = {"kind": kind, "killed": killed, "at": round(moment / max(seconds, moment), 3), "same": same}
    if same:
        return outcome
    differ = sorted(n for n in {*found, *wanted} if found.get(n) != wanted.get(n))
    return {**outcome, "differ": differ[:5], "status": how[0], "said": how[1]}


SLOWLY = [sys.executable, "-m", "recsim_mnar", "simulate", *WORLD, "--policy", "slow_agent:Slow", "--users", "400",
          "--workers", "1", "--train-users", "5"]  # fmt: skip


@cache
def _alone(seed: int) -> dict[str, bytes]:
    """The bytes of the slow agent's run when no second one starts."""
    with scratch() as place:
        (place / "slow_agent.py").write_text(SLOW)
        subprocess.run([*SLOWLY, "--seed", str(seed), "--out", "out"], cwd=place, capture_output=True, check=True)
        return bytes_of(place / "out")


def double_start(number: int) -> dict[str, Any]:
    """Two processes that start in one folder, 0 to 4 s apart, half of them with one seed."""
    draw = random.Random(f"double {number}")
    delay = 4.0 * (number % 10) / 9 if number >= 4 else 0.0
    seeds = (0, 0) if number % 2 == 0 else (0, 9)
    with scratch() as place:
        (place / "slow_agent.py").write_text(SLOW)
        ways = [["--seed", str(seed), "--out", "out"] for seed in seeds]
        if draw.random() < 0.25:
            ways[1].append("--resume")
        started = []
        for i, way in enumerate(ways):
            if i:
                time.sleep(delay)
            pipes: dict[str, Any] = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            started.append(subprocess.Popen([*SLOWLY, *way], cwd=place, **pipes))
        errors = [each.communicate(timeout=300)[1].strip().splitlines() for each in started]
        codes = [each.returncode for each in started]
        owners = [i for i in (0, 1) if codes[i] == 0]
        found = bytes_of(place / "out") if (place / "out").exists() else {}
    wanted = _alone(seeds[owners[0]] if owners else 0)
    refused = [errors[i] for i in (0, 1) if codes[i] == 2]
    # With --resume the same run may be taken up after its end, which changes nothing.
    again = "--resume" in ways[1] and len(owners) == 2 and seeds[0] == seeds[1]
    good = (again or (len(owners), len(refused)) == (1, 1)) and found == wanted
    good &= all(len(lines) == 1 and lines[0].startswith("error: ") for lines in refused)
    outcome = {"delay": round(delay, 2), "seeds": seeds, "statuses": codes, "resume": "--resume" in ways[1]}
    return {**outcome, "refusal": refused[0][0] if refused else None, "same": found == wanted, "good": good}
