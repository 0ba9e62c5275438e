"""What slates cost: events a CPU second beside SARDINE in the same run, growth, moments, and slates of one item.

    bash benchmarks/speed/make_peers.sh sardine
    python benchmarks/slates/speed.py [--quick] [--parts NAME,...] [--json FILE]

An event is a view or a whole slate. CPU seconds of one thread; what is compared takes turns, and medians are printed.
See speed.md.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402  (threads are set before numpy is loaded)

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "shared"), str(HERE.parent / "speed")]

from _study import read, write_results  # noqa: E402
from table import cpu_seconds, peer  # noqa: E402

from recsim_mnar.estimators.rankings import estimate_ranking_value  # noqa: E402
from recsim_mnar.estimators.sums import PolicySums  # noqa: E402
from recsim_mnar.log import Log  # noqa: E402
from recsim_mnar.policies import registry  # noqa: E402
from recsim_mnar.simulation import simulate  # noqa: E402
from recsim_mnar.worlds import make_world  # noqa: E402

SIZES, CATALOGUES = (1, 5, 10), (100, 1000)
PERSONAL = "user-popularity+epsilon=0.2"
BEFORE = "e97fc2b1"
"""The commit before slates."""
BAR = 200.0
ONE_ITEM = """
import hashlib, json, sys, time
import numpy as np
from recsim_mnar.log import Log
from recsim_mnar.policies import registry
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
found = {}
for agent in ("random", "user-popularity+epsilon=0.2"):
    world = make_world("sessions", "recogym-v1", ["n_items=100"])
    policy = registry.learner(agent).fit(Log({}), n_items=100, seed=0)
    simulate(world, policy, 10, seed=1)
    n_users = int(sys.argv[1]) // (1 if agent == "random" else 4)
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        log = simulate(world, policy, n_users, seed=2)
        best = min(best, time.process_time() - began)
    digest = hashlib.sha256()
    for name, column in log.columns.items():
        digest.update(name.encode() + np.ascontiguousarray(column).tobytes())
    found[agent] = {"digest": digest.hexdigest(), "ns": best / len(log) * 1e9}
print(json.dumps(found))
"""


def world_of(n_items: int, size: int) -> Any:
    """Sessions with so many items and places, all else by default."""
    return make_world("sessions", "recogym-v1", [f"n_items={n_items}", f"slate_size={size}"])


def simulated(n_items: int, size: int, agent: str, n_users: int, runs: int) -> dict[str, float]:
    """Events, places and CPU seconds of a log in memory, the median of so many; no catalogue, no compilation."""
    world = world_of(n_items, size)
    policy = registry.learner(agent).fit(Log({}), n_items=n_items, seed=0)
    simulate(world, policy, 4, seed=1)
    seconds = []
    for _ in range(runs):
        log = None  # its memory is there for the next
        spent, log = cpu_seconds(lambda: simulate(world, policy, n_users, seed=2))
        seconds.append(spent)
    cpu = statistics.median(seconds)
    shown = int(np.count_nonzero(log.columns["event"] == 1))
    views = len(log) - shown
    return {"cpu": cpu, "events": views + shown // size, "places": shown, "views": views, "rows": len(log)}


def beside_sardine(quick: bool, n_items: int, size: int) -> dict[str, dict[str, Any]]:
    """Uniform rankings and a personal logger, each round beside SARDINE's steps; by agent."""
    rounds, scale, steps = (1, 0.05, 500) if quick else (7, 1.0, 5000)
    runs: dict[str, list[dict[str, float]]] = {"random": [], PERSONAL: []}
    theirs: list[float] = []
    for _ in range(rounds):
        for agent, of_agent in runs.items():
            of_agent.append(simulated(n_items, size, agent, int(1024 * scale), 9 if agent == "random" else 1))
        other = peer("sardine", "sardine_slates", [n_items, size, steps])
        if other is not None:
            theirs.append(float(other["rate"]))
    found = {}
    for agent, of_agent in runs.items():
        rate = statistics.median(run["events"] / run["cpu"] for run in of_agent)
        ratios = [run["events"] / run["cpu"] / other for run, other in zip(of_agent, theirs, strict=False)]
        found[agent] = {
            "items": n_items, "slate_size": size, "events a CPU second": rate,
            "places a CPU second": statistics.median(run["places"] / run["cpu"] for run in of_agent),
            "sardine": statistics.median(theirs) if theirs else None,
            "ratio": statistics.median(ratios) if ratios else None,
            "ratios": [min(ratios), max(ratios)] if ratios else None,
        }  # fmt: skip
        print(f"{agent}, {describe(found[agent])}", flush=True)
    return found


def describe(row: dict[str, Any]) -> str:
    """A row of that table for a terminal."""
    ratio = "SARDINE not measured"
    if row["ratio"] is not None:
        low, high = row["ratios"]
        ratio = f"SARDINE {row['sardine']:,.0f}, ratio {row['ratio']:,.0f} ({low:,.0f} to {high:,.0f})"
    return (
        f"{row['items']:,} items, k = {row['slate_size']}: {row['events a CPU second']:,.0f} events, "
        f"{row['places a CPU second']:,.0f} places a CPU second; {ratio}"
    )


def growth(quick: bool) -> dict[str, list[dict[str, float]]]:
    """Nanoseconds an event as slates get longer (100 items), and as catalogues grow (k = 5); uniform rankings."""
    rounds, users = (1, 50) if quick else (5, 1024)
    cases = {
        "slate_size": [(100, size) for size in (1, 2, 3, 5, 7, 10, 15, 20)],
        "items": [(n_items, 5) for n_items in (10, 30, 100, 300, 1000, 3000, 10_000)],
    }
    found: dict[str, list[dict[str, float]]] = {}
    for name, of_name in cases.items():
        costs: dict[tuple[int, int], list[dict[str, float]]] = {case: [] for case in of_name}
        for _ in range(rounds):
            for case, runs in costs.items():
                runs.append(simulated(*case, "random", users, 3))
        found[name] = [
            {
                "items": case[0],
                "slate_size": case[1],
                "ns an event": statistics.median(run["cpu"] / run["events"] * 1e9 for run in runs),
                "ns a place": statistics.median(run["cpu"] / run["places"] * 1e9 for run in runs),
            }
            for case, runs in costs.items()
        ]
        for row in found[name]:
            print(f"{row['items']:,} items, k = {row['slate_size']}: {row['ns an event']:.0f} ns an event, "
                  f"{row['ns a place']:.1f} a place", flush=True)  # fmt: skip
    return found


def best_of(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Least wall seconds of each, in turn."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def moments(quick: bool) -> dict[str, float]:
    """Item-position IPS over the rows of a log of slates, beside summing the same bytes."""
    users, rounds = (500, 3) if quick else (6_000, 5)
    size = 5
    policy = registry.learner("random").fit(Log({}), n_items=100, seed=0)
    log = simulate(world_of(100, size), policy, users, seed=2)
    shown = log.columns["event"] == 1
    columns = {name: column[shown] for name, column in log.columns.items()}
    reward, propensity = columns["reward"], columns["propensity"]
    target = np.where(columns["action"] < 50, 0.015, 0.005)  # a policy that shows half of the items thrice as often
    three = (reward, propensity, target)
    varied = 0.005 + 0.01 * np.random.default_rng(0).random(len(reward))
    targets = {"marginal": target}
    asked = {"estimators": ["independent_ips"], "assumption": "independent"}
    ways: dict[str, Callable[[], Any]] = {
        "np.sum of the three columns": lambda: [column.sum() for column in three],
        "sums by user, two weights": lambda: PolicySums.of(propensity, target, reward=reward),
        "sums by user, every weight another": lambda: PolicySums.of(propensity, varied, reward=reward),
        "estimate, interval by user, verdict": lambda: estimate_ranking_value(columns, targets, **asked),
    }
    seconds = best_of(ways, rounds)
    found = {"rows": float(len(reward)), **{name: value / len(reward) * 1e9 for name, value in seconds.items()}}
    print(", ".join(f"{name} {value:,.3g}" + ("" if name == "rows" else " ns a row") for name, value in found.items()))
    return found


def one_item(quick: bool) -> dict[str, Any]:
    """Slates of one item beside the commit before slates: the same bytes, and how long each takes."""
    rounds, users = (1, 200) if quick else (7, 4000)
    here = HERE.parents[1]
    runs: dict[str, list[dict[str, Any]]] = {"before": [], "now": []}
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "-C", str(here), "archive", BEFORE, "recsim_mnar"], capture_output=True)
        if archive.returncode != 0:
            print("slates of one item: not measured, the history is not here")
            return {}
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        for turn in range(rounds + 1):
            for name, path in (("before", folder), ("now", str(here))):
                environment = {**os.environ, "PYTHONPATH": path}
                command = [sys.executable, "-c", ONE_ITEM, str(users)]
                done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
                if turn:  # the first one compiles
                    runs[name].append(json.loads(done.stdout))
    found = {}
    for agent in runs["now"][0]:
        digests = {run[agent]["digest"] for each in runs.values() for run in each}
        pairs = [now[agent]["ns"] / then[agent]["ns"] for then, now in zip(*runs.values(), strict=True)]
        found[agent] = {
            "same bytes": len(digests) == 1,
            **{
                f"ns an event, {name}": statistics.median(run[agent]["ns"] for run in each)
                for name, each in runs.items()
            },
            "ratio": statistics.median(pairs),
            "ratios": [min(pairs), max(pairs)],
        }
        print(f"slates of one item, {agent}: {found[agent]}", flush=True)
    return found


PARTS: dict[str, Callable[[bool], Any]] = {
    **{
        f"sardine-{n_items}-{size}": functools.partial(beside_sardine, n_items=n_items, size=size)
        for n_items in CATALOGUES
        for size in SIZES
    },
    "growth": growth,
    "moments": moments,
    "one-item": one_item,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes and single rounds: shows that all of it runs")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--json", type=Path, help="put what was measured into this file")
    a = parser.parse_args()
    names = a.parts.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"--parts: no {', '.join(unknown)}; there are {', '.join(PARTS)}")
    for name in names:
        found = PARTS[name](a.quick)
        if a.json:
            write_results(a.json, read(a.json) | {name: found}, digits=4)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
