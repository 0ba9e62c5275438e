"""What a shard costs beyond its work: milliseconds of a job that does nothing, by each kind of executor.

    python benchmarks/reproducibility/overhead.py [--jobs N] [--json FILE]

A job carries what a shard does (a world and a fitted policy by digest, the numbers of its first user and of users) and
hands back a kilobyte. ``wall`` is the time between results, ``CPU`` what this process, the scheduler and the workers
spent on a job together, which other programs on the machine do not change.
"""

from __future__ import annotations

import argparse
import functools
import os
import tempfile
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import faces

from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.runs.files import write_json
from recsim_mnar.simulation.executor import carrying, run_in_order
from recsim_mnar.simulation.items import simulate
from recsim_mnar.worlds import make_world

KINDS = {
    "2 threads": lambda folder: ThreadPoolExecutor(2),
    "2 processes": lambda folder: ProcessPoolExecutor(2, mp_context=get_context("spawn")),
    "Dask, 2 workers": faces.dask(2),
}


def nothing(world: Any, policy: Any, first_user: int, n_users: int) -> bytes:
    return bytes(1024)


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of processes."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and all below it."""
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in below for each in family(int(child)))]


def measured(executor: Executor, jobs: int) -> dict[str, float]:
    world: Any = make_world("sessions", None, ["n_items=200"])
    uniform = registry.learner("random").fit(Log({}), n_items=200, seed=0)
    policy = registry.learner("item-knn").fit(simulate(world, uniform, 200, 0), n_items=200, seed=0)
    shard = carrying(nothing, world, policy)

    def run(n: int) -> None:
        for _ in run_in_order((functools.partial(shard, 1024 * k, 1024) for k in range(n)), executor):
            pass

    run(20)  # workers read modules, and load what is carried
    mine = family(os.getpid())
    began, before = time.perf_counter(), cpu_seconds(mine)
    run(jobs)
    wall, cpu = time.perf_counter() - began, cpu_seconds(mine) - before
    return {"wall_ms": round(1000 * wall / jobs, 3), "cpu_ms": round(1000 * cpu / jobs, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    found = {}
    for kind, start in KINDS.items():
        try:
            with tempfile.TemporaryDirectory() as folder, start(Path(folder)) as executor:
                found[kind] = measured(executor, options.jobs)
        except faces.NotHereError as error:
            print(f"{kind:<20} left out: {error}")
            continue
        print(
            f"{kind:<20} {found[kind]['wall_ms']:8.2f} ms wall, {found[kind]['cpu_ms']:8.2f} ms of CPU a job",
            flush=True,
        )
    if options.json:
        write_json(options.json, {"jobs": options.jobs, "processors": os.cpu_count(), "found": found})


if __name__ == "__main__":
    main()
