"""Events a CPU second of the sessions world under uniform logging, next to RecoGym in the same run.

Ours is a complete log in memory, all columns, one worker; catalogue and compilation are timed apart. ``parquet`` and
``arrow`` are what ``simulate --out`` does: the same rows in parts, with their receipts. RecoGym runs in its own
environment (``make_peers.sh`` makes it); the two take turns. A peer that was not run prints "not measured", and its bar
is not met.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from table import Row, machine, peer

from recsim_mnar.log import Log
from recsim_mnar.log.table import write_part
from recsim_mnar.policies import registry
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.run_folder import simulate_to
from recsim_mnar.worlds import make_world

HERE = Path(__file__).parent
BARS = {10: 1000, 100: 1000, 1000: 1000, 10_000: 1000}
"""Ratios to RecoGym that must be reached; other sizes have no bar."""
FILE_BARS = {"parquet": 350, "arrow": 700}
"""The same with files, by their format."""
MOST_WRITING = 100.0
"""Nanoseconds a row of writing Parquet."""
MOST_COST, MOST_BYTES = 4.0, 2e9
"""Of 100,000 items: cost per event next to our own 10,000, and memory at the peak."""
BYTES_AN_EVENT = 8 + 4 + 8 + 1 + 4 + 4 + 8 + 8
"""Of a log's columns in memory."""
PEAK = """
import resource, sys
from simulate import ours
ours(int(sys.argv[1]), int(sys.argv[2]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def ours(n_items: int, n_users: int) -> dict[str, float]:
    """One simulation, its catalogue made beforehand."""
    world = make_world("sessions", "recogym-v1", [f"n_items={n_items}"])
    policy = registry.learner("random").fit(Log({}), n_items=n_items, seed=0)
    began = time.process_time()
    simulate(world, policy, 1, seed=1)
    setup = time.process_time() - began
    began = time.process_time()
    log = simulate(world, policy, n_users, seed=2)
    cpu = time.process_time() - began
    return {"events": len(log), "cpu": cpu, "rate": len(log) / cpu, "setup": setup}


def to_files(n_items: int, n_users: int, form: str) -> dict[str, float]:
    """What ``simulate --out --format`` does, and what writing the same rows takes alone."""
    world = make_world("sessions", "recogym-v1", [f"n_items={n_items}"])
    policy = registry.learner("random").fit(Log({}), n_items=n_items, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        simulate_to(out / "first", world, policy, 1, 1, form=form)  # compiles and imports, untimed
        began = time.process_time()
        simulate_to(out / "run", world, policy, n_users, 2, form=form)
        cpu = time.process_time() - began
        log = Log.read(out / "run")
        size = sum(file.stat().st_size for file in (out / "run").rglob("*") if file.is_file())
        began = time.process_time()
        write_part(out / f"alone.{form}", [log.columns], log.provenance)
        alone = time.process_time() - began
    return {"events": len(log), "rate": len(log) / cpu, "bytes": size / len(log), "ns": alone / len(log) * 1e9}


def recogym(n_items: int, seconds: float) -> dict[str, Any] | None:
    """RecoGym's own generate_logs, in its own environment; None where that is not there."""
    return peer("recogym", "recogym", [n_items, seconds])


def peak_bytes(n_items: int, n_users: int) -> float:
    """Memory of a process that does nothing else."""
    command = [sys.executable, "-c", PEAK, str(n_items), str(n_users)]
    return float(subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True).stdout)


def rows(quick: bool) -> list[Row]:
    """Four sizes against RecoGym, and 100,000 items against our own 10,000."""
    rounds, events, seconds = (1, 1e5, 0.5) if quick else (5, 2e6, 4.0)
    # A view and a recommendation each take one block of four words at least, and the row is written.
    floor = 1.0 / (BYTES_AN_EVENT / machine().write + machine().draw)
    common = {"unit": "events a CPU s", "of_costs": False, "floor": floor}
    common["floor_is"] = "a row of the log written, and one draw"
    found, rates = [], {}
    for n_items, bar in ({10: BARS[10], 1000: BARS[1000]} if quick else BARS).items():
        mine, peers = [], []
        files: dict[str, list[dict[str, float]]] = {form: [] for form in FILE_BARS}
        for _ in range(rounds):
            mine.append(ours(n_items, int(events / 101))["rate"])
            for form, runs in files.items():
                runs.append(to_files(n_items, int(events / 101), form))
            other = recogym(n_items, seconds)
            if other is not None:
                peers.append(float(other["rate"]))
        rates[n_items] = statistics.median(mine)
        theirs = statistics.median(peers) if peers else None
        found.append(
            Row(f"simulate, uniform logging, {n_items:,} items", "RecoGym", rates[n_items], theirs, bar=bar, **common)
        )
        for form, runs in files.items():
            found.append(
                Row(
                    f"simulate --out --format {form}, {n_items:,} items",
                    "RecoGym",
                    median_of(runs, "rate"),
                    theirs,
                    bar=FILE_BARS[form],
                    note=f"{median_of(runs, 'bytes'):.2f} bytes a row",
                    **common,
                )
            )
        found.append(
            Row(f"writing Parquet, {n_items:,} items", "", median_of(files["parquet"], "ns"), None, "ns a row",
                MOST_WRITING, at_least=False, note=f"Arrow {median_of(files['arrow'], 'ns'):.0f}")
        )  # fmt: skip
    if quick:
        return found
    many = [ours(100_000, int(events / 404))["rate"] for _ in range(rounds)]
    few = [ours(10_000, int(events / 404))["rate"] for _ in range(rounds)]
    peak = peak_bytes(100_000, int(events / 404))
    return [
        *found,
        Row("simulate, uniform logging, 100,000 items", "ours with 10,000", 1e9 / statistics.median(many),
            1e9 / statistics.median(few), "ns an event", MOST_COST, at_least=False, floor=1e9 / floor,
            floor_is=common["floor_is"]),
        Row("simulate, 100,000 items, memory at the peak", "", peak / 1e9, None, "GB", MOST_BYTES / 1e9,
            at_least=False),
    ]  # fmt: skip


def median_of(runs: list[dict[str, float]], key: str) -> float:
    """The middle of what several runs measured."""
    return statistics.median(run[key] for run in runs)
