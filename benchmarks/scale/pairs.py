"""Two workers beside two programs that share nothing: what of a second core replay and truth make use of.

    python benchmarks/scale/pairs.py [--users N] [--rounds K] [--tasks NAMES] [--ways NAMES] [--work DIR] [--json FILE]

Each way is timed from the moment at which its programs have read their modules, compiled kernels, started their workers
and done a little of the work, to the end of the last; in turn, round by round, so that what else the machine does meets
all of them. The bar: two processes reach .8 of the speed-up of two programs side by side that do half each, as the
median over rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import read, write_results

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

BAR = 0.8
POLICIES = ("user-popularity+epsilon=0.1", "item-knn")
LITTLE = 4096
"""Users of the work that warms a program up."""
TASKS = ("replay", "value on the log", "truth")
WAYS = ("one", "two processes", "two threads", "side by side")


def made(folder: Path, users: int) -> None:
    """Logs of all users, of each half, and of a few."""
    from recsim_mnar.cli import main

    for name, n, seed in (("whole", users, 0), ("half0", users // 2, 1), ("half1", users // 2, 2), ("few", LITTLE, 3)):
        if not (folder / name / "index.json").exists():
            shutil.rmtree(folder / name, ignore_errors=True)
            words = ["simulate", "--world", "sessions", "--policy", "random", "--users", str(n), "--seed", str(seed)]
            _quietly(main, [*words, "--out", str(folder / name), "--quiet"])


def _quietly(main: Callable[[list[str]], Any], words: list[str]) -> None:
    try:
        main(words)
    except SystemExit as left:
        if left.code:
            raise


def task_of(name: str, folder: Path, log: str, users: int, seed: int, executor: Executor | None) -> Callable[[], None]:
    """What is timed; what it needs is made before."""
    from recsim_mnar.log import Log
    from recsim_mnar.log.blocks import LogBlocks
    from recsim_mnar.policies import registry
    from recsim_mnar.policies.door import as_policy
    from recsim_mnar.protocols.truth import truth
    from recsim_mnar.replays.replayed_log import ReplayRun
    from recsim_mnar.replays.truth import value_on_log
    from recsim_mnar.worlds import make_world

    world: Any = make_world("sessions")
    train = Log.read(folder / "few")
    policies = {each: registry.learner(each).fit(train, n_items=world.n_items, seed=0) for each in POLICIES}
    if name == "truth":
        return lambda: _ignore(truth(world, policies, users, seed, executor=executor))
    if name == "value on the log":
        rows = Log.read(folder / log)
        return lambda: _ignore(value_on_log(world, rows, policies, seed, executor=executor))

    def replayed() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as out:
            blocks = LogBlocks.open(folder / log)
            assert blocks is not None
            asked = {each: as_policy(policy) for each, policy in policies.items()}
            ReplayRun(blocks, blocks.survey(), asked, executor=executor).to_folder(Path(out) / "out", {})

    return replayed


def _ignore(result: object) -> None:
    """A result that is only timed."""


def program(name: str, folder: Path, log: str, users: int, seed: int, way: str) -> None:
    """One program: get ready, say so, wait to be told, work, say so."""
    from recsim_mnar.simulation.pools import Pool

    opened: Any = nullcontext(None)
    if way == "two processes":
        opened = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    elif way == "two threads":
        opened = Pool(2)
    with opened as executor:
        if executor is not None:
            list(executor.map(time.sleep, [0.5, 0.5]))
        for _ in range(2):
            task_of(name, folder, "few", LITTLE, 3, executor)()
        work = task_of(name, folder, log, users, seed, executor)
        print("ready", flush=True)
        sys.stdin.readline()
        work()
        print("done", flush=True)
        sys.stdin.readline()


def timed(name: str, folder: Path, users: int, way: str) -> float:
    """Seconds of a way."""
    jobs = [("whole", users, 0)]
    if way == "side by side":
        jobs = [("half0", users // 2, 1), ("half1", users // 2, 2)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = []
    for log, n, seed in jobs:
        words = ["--program", name, "--log", log, "--seed", str(seed), "--way", way, "--users", str(n)]
        started.append(subprocess.Popen([sys.executable, __file__, *words, "--work", str(folder)], **pipes))
    for each in started:
        _expect(each, "ready")
    began = time.perf_counter()
    for each in started:
        _tell(each)
    for each in started:
        _expect(each, "done")
    seconds = time.perf_counter() - began
    for each in started:
        _tell(each)
        each.wait()
    return seconds


def _expect(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    if process.stdout.readline().strip() != word:
        raise SystemExit(f"a program ended before it was {word}")


def _tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def summary(seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Medians: seconds, speed-ups over one program, and each way's share of that of two programs side by side."""
    told: dict[str, Any] = {"seconds": {way: [round(s, 2) for s in took] for way, took in seconds.items()}}
    for way, took in seconds.items():
        if way == "one":
            continue
        told[way] = {"speed-up": _median(seconds["one"], took)}
        if way != "side by side":
            told[way]["share of side by side"] = _median(seconds["side by side"], took)
    return told


def _median(a: list[float], b: list[float]) -> float:
    return round(statistics.median(x / y for x, y in zip(a, b, strict=True)), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=200_000, help="some 100 rows each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--work", type=Path, default=None, help="a folder for the logs, kept")
    parser.add_argument("--json", type=Path, default=None)
    for name in ("--program", "--log", "--way"):
        parser.add_argument(name, default="", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.program:
        program(a.program, a.work, a.log, a.users, a.seed, a.way)
        return
    found: dict[str, Any] = {}
    short = False
    with tempfile.TemporaryDirectory() as own:
        folder = a.work or Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        made(folder, a.users)
        for task in a.tasks.split(","):
            took: dict[str, list[float]] = {way: [] for way in a.ways.split(",")}
            for number in range(a.rounds):
                for way in took:
                    took[way].append(timed(task, folder, a.users, way))
                last = ", ".join(f"{way} {seconds[-1]:.2f}" for way, seconds in took.items())
                print(f"{task}, round {number + 1}: {last}", flush=True)
            found[task] = {"users": a.users, "load": round(os.getloadavg()[0], 1), **summary(took)}
            print(f"{task}: {json.dumps(found[task])}", flush=True)
            short |= found[task].get("two processes", {}).get("share of side by side", 1.0) < BAR
    if a.json:
        kept = read(a.json)
        write_results(a.json, kept | {"pairs": kept.get("pairs", {}) | found})
    sys.exit("below the bar" if short else 0)


if __name__ == "__main__":
    main()
