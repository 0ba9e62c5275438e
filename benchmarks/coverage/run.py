"""Coverage of the intervals on logs of known value: `python benchmarks/coverage/run.py [setting ...]`.

Each setting is a step whose result is kept in `results.json`; a setting that stands there is not run again. Without a
click a method that then has no width counts as a miss, as it should.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from analysis import load, report, save
from methods import clusters, others, ours, summary
from worlds import GRID, Setting, World

QUICK_FIRST = 50_000  # a quick look never sees the logs of the study


def run(setting: Setting, logs: int | None = None, first: int = 0) -> dict:
    """One setting: coverage, mean width and misses on either side of every method.

    Args:
        setting: which one.
        logs: how many logs; the setting's own unless given.
        first: number of the first log.
    """
    world = World(setting)
    bound = float(world.weight.max())
    start = time.process_time()
    ends: dict[str, list[tuple[float, float]]] = {}
    clicks, trusted, right = [], 0, 0
    for number in range(setting.logs if logs is None else logs):
        log = world.log(first + number)
        clicks.append(float(log[0].sum()))
        own, sure = ours(*log[:3], clusters(log[3], setting.users))
        trusted += sure
        right += sure and own["default"][0] <= world.value <= own["default"][1]
        for name, pair in (own | others(log, setting.users, bound)).items():
            ends.setdefault(name, []).append(pair)
    return {
        "value": world.value,
        "mean_clicks": float(np.mean(clicks)),
        "logs_without_click": int(np.sum(np.array(clicks) == 0)),
        "trusted": [int(trusted), int(right)],
        "methods": {name: summary(pairs, world.value) for name, pairs in ends.items()},
        "cpu_seconds": time.process_time() - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*", help="names or parts of names; all where none is given")
    parser.add_argument("--quick", type=int, help="this many logs a setting, printed and not kept")
    arguments = parser.parse_args()
    chosen = [s for s in GRID if not arguments.settings or any(part in s.name for part in arguments.settings)]
    found = load()
    results = {} if arguments.quick else found["settings"]
    for setting in chosen:
        if setting.name not in results:
            results[setting.name] = run(setting, arguments.quick, QUICK_FIRST if arguments.quick else 0)
            if not arguments.quick:
                save(found)
        methods, seconds = (results[setting.name][key] for key in ("methods", "cpu_seconds"))
        print(
            f"{setting.name}: default {methods['default']['coverage']:.4f}, normal by user "
            f"{methods['normal by user']['coverage']:.4f}, {seconds:.0f} s",
            flush=True,
        )
    if not arguments.quick:
        save(found)
    print(report({setting.name: results[setting.name] for setting in chosen}))


if __name__ == "__main__":
    main()
