"""Coverage of the intervals on logs of known value: `python benchmarks/coverage/run.py [setting ...]`.

Each setting is a step of its own whose result is kept under `results/`; a setting that is done is not run again.
Without a click a method that then has no width counts as a miss, as it should.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from methods import intervals, summary
from settings import GRID, Setting
from table import report
from table import summary as summary_table
from worlds import World

HERE = Path(__file__).resolve().parent

RESULTS = HERE / "results"
QUICK_FIRST = 50_000  # a quick look never sees the logs of the study


def run(setting: Setting, logs: int | None = None, first: int = 0) -> dict:
    """One setting: coverage, mean width and misses on either side of every method."""
    world = World(setting)
    bound = float(world.weight.max())
    start = time.process_time()
    ends: dict[str, list[tuple[float, float]]] = {}
    clicks = []
    for number in range(setting.logs if logs is None else logs):
        log = world.log(first + number)
        clicks.append(float(log[0].sum()))
        for name, pair in intervals(log, setting.users, bound).items():
            ends.setdefault(name, []).append(pair)
    return {
        "setting": setting.as_dict(),
        "value": world.value,
        "mean_clicks": float(np.mean(clicks)),
        "logs_without_click": int(np.sum(np.array(clicks) == 0)),
        "methods": {name: summary(pairs, world.value) for name, pairs in ends.items()},
        "cpu_seconds": time.process_time() - start,
    }


def add_obp(results: list[dict]) -> None:
    """What with_obp.py measured, where it did."""
    path = RESULTS / "obp.json"
    measured = json.loads(path.read_text()) if path.exists() else {}
    for result in results:
        found = measured.get(result["setting"]["name"])
        if found:
            result["methods"] |= found["methods"]
            result["obp_agreement"] = found["agreement"]


def into_readme(lines: list[str]) -> None:
    """The summary, between its marks."""
    path, mark = HERE / "README.md", "<!-- summary -->"
    before, _, after = path.read_text().split(mark)
    path.write_text(mark.join([before, "\n" + "\n".join(lines) + "\n", after]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*", help="names or parts of names; all where none is given")
    parser.add_argument("--quick", type=int, help="this many logs a setting, printed and not kept")
    arguments = parser.parse_args()
    chosen = [s for s in GRID if not arguments.settings or any(part in s.name for part in arguments.settings)]
    RESULTS.mkdir(exist_ok=True)
    results = []
    for setting in chosen:
        path = RESULTS / f"{setting.name}.json"
        if arguments.quick:
            result = run(setting, arguments.quick, QUICK_FIRST)
        elif path.exists():
            result = json.loads(path.read_text())
        else:
            result = run(setting)
            part = path.with_suffix(".part")
            part.write_text(json.dumps(result, indent=1) + "\n")
            part.replace(path)
        default = result["methods"]["default"]
        print(
            f"{setting.name}: default {default['coverage']:.4f}, normal by user "
            f"{result['methods']['normal by user']['coverage']:.4f}, {result['cpu_seconds']:.0f} s",
            flush=True,
        )
        results.append(result)
    if not arguments.quick:
        add_obp(results)
    text = report(results)
    if not arguments.quick and len(results) == len(GRID):
        (HERE / "results.md").write_text(text)
        into_readme(summary_table(results))
        (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
