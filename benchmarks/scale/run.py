"""What growing beyond one core costs, and what it would take to simulate a billion users: see README.md.

    python benchmarks/scale/run.py [--users N] [--rounds K] [--json FILE]

CPU seconds are user and system time of all processes; wall times mean something on a quiet machine only, so they stand
beside those of two runs that share nothing and run side by side.
"""

from __future__ import annotations

import argparse
import functools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import read, write_results

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

PROGRAM = "import sys; from recsim_mnar.cli import main; sys.exit(main())"
JOBS = 2000
USERS_WANTED = 1_000_000_000
CORES = 64
DISK = 1.0e9
"""Bytes a second that a shared disk takes from one machine: an assumption."""


def simulate(users: int, workers: int, folder: str, seed: int, form: str = "parquet") -> subprocess.Popen[bytes]:
    """Begin ``simulate --out`` of the default sessions world under the uniform policy."""
    words = ["simulate", "--world", "sessions", "--policy", "random", "--users", str(users), "--seed", str(seed)]
    words += ["--workers", str(workers), "--format", form, "--out", folder]
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *words], stdout=subprocess.DEVNULL)


def timed(begin: Callable[[str], list[subprocess.Popen[bytes]]]) -> tuple[float, float, int]:
    """Wall and CPU seconds of some runs side by side, and the bytes that they left."""
    with tempfile.TemporaryDirectory() as folder:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        for process in begin(folder):
            if process.wait() != 0:
                raise RuntimeError("simulate failed")
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, size


def scaling(users: int, rounds: int) -> dict[str, float]:
    """One worker, two workers, and two runs of half the users that share nothing, in turn; medians."""
    ways: dict[str, Callable[[str], list[subprocess.Popen[bytes]]]] = {
        "nothing": lambda folder: [simulate(1, 1, f"{folder}/a", 0)],
        "one worker": lambda folder: [simulate(users, 1, f"{folder}/a", 0)],
        "two workers": lambda folder: [simulate(users, 2, f"{folder}/a", 0)],
        "two runs side by side": lambda folder: [simulate(users // 2, 1, f"{folder}/{i}", i) for i in range(2)],
        "one worker, Arrow files": lambda folder: [simulate(users, 1, f"{folder}/a", 0, "arrow")],
    }
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].append(timed(way))
    told: dict[str, float] = {}
    for name, times in found.items():
        told[f"wall s, {name}"] = statistics.median(wall for wall, _, _ in times)
        told[f"CPU s, {name}"] = statistics.median(cpu for _, cpu, _ in times)
        told[f"bytes, {name}"] = times[0][2]
    return told


def nothing(common: Any, number: int) -> int:
    """A job that does nothing."""
    return number


def engine(rounds: int) -> dict[str, float]:
    """CPU ms that an engine adds to a job: jobs that do nothing, through the door that all jobs go through."""
    told = {}
    for name, opened in engines().items():
        took = []
        for _ in range(rounds):
            with opened() as executor:
                through(executor, 50)
                before = cpu()
                through(executor, JOBS)
                took.append((cpu() - before) / JOBS * 1e3)
        told[f"CPU ms a job, {name}"] = statistics.median(took)
    return told


def engines() -> dict[str, Callable[[], Any]]:
    """Engines that are installed here."""
    found: dict[str, Callable[[], Any]] = {
        "no executor": lambda: nullcontext(None),
        "two threads": lambda: ThreadPoolExecutor(2),
        "two processes": lambda: ProcessPoolExecutor(2),
    }
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        return found
    return {**found, "Dask, two workers": lambda: _Dask(LocalCluster, Client)}


class _Dask:
    """A local Dask cluster of two processes, as an executor."""

    def __init__(self, cluster: Any, client: Any) -> None:
        self._cluster = cluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
        self._client = client(self._cluster)

    def __enter__(self) -> Executor:
        executor: Executor = self._client.get_executor()
        return executor

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._cluster.close()


def through(executor: Executor | None, n: int) -> None:
    """So many jobs that do nothing."""
    from recsim_mnar.simulation.executor import carrying, run_in_order

    job = carrying(nothing, "common")
    for _ in run_in_order((functools.partial(job, i) for i in range(n)), executor):
        pass


def cpu() -> float:
    """CPU seconds of this process and of its children, those that run included."""
    own = time.process_time()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            own += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own


def extrapolated(users: int, told: dict[str, float], rows: int) -> dict[str, float]:
    """A billion users, from what a user costs here."""
    cpu_hours = (told["CPU s, one worker"] - told["CPU s, nothing"]) / users * USERS_WANTED / 3600
    size = told["bytes, one worker"] / users * USERS_WANTED
    return {
        "users": USERS_WANTED,
        "rows": rows / users * USERS_WANTED,
        "core hours": cpu_hours,
        "bytes": size,
        "bytes a row": told["bytes, one worker"] / rows,
        "bytes a row, Arrow files": told["bytes, one worker, Arrow files"] / rows,
        f"minutes on one machine of {CORES} cores": cpu_hours / CORES * 60,
        "minutes to write at 1 GB/s": size / DISK / 60,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    from recsim_mnar.log import Log
    from recsim_mnar.policies import registry
    from recsim_mnar.simulation import simulate as log_of
    from recsim_mnar.worlds import make_world

    world = make_world("sessions")
    uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
    rows = len(log_of(world, uniform, a.users, 0))
    load = os.getloadavg()[0]
    told = {"users": a.users, "rows": rows, "load": load, **scaling(a.users, a.rounds), **engine(a.rounds)}
    told["speed-up of two workers"] = told["wall s, one worker"] / told["wall s, two workers"]
    told["speed-up of two runs side by side"] = told["wall s, one worker"] / told["wall s, two runs side by side"]
    found = {"measured": told, "a billion users": extrapolated(a.users, told, rows)}
    for title, values in found.items():
        print(f"\n{title}")
        for name, value in values.items():
            print(f"{value:16,.4g}  {name}")
    if a.json:
        write_results(a.json, read(a.json) | found)


if __name__ == "__main__":
    main()
