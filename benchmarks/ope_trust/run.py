"""OPE-trust: `python benchmarks/ope_trust/run.py [--quick] [--entry module:function] [--out DIR]`.

Answers of the entries of entries.py are kept per setting under DIR, so that an interrupted run goes on; remove them
after a change. Those of an entry of yours are made each time.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

import tables
from _study import into_marks, once, write_results, write_text
from entries import ENTRIES, Entry
from halves import FROZEN, HALVES, Setting, all_settings, check_frozen, estimates, settings

from recsim_mnar.errors import UserError

HERE = Path(__file__).resolve().parent
Found = dict[str, dict]


def named(name: str) -> Entry:
    """The entry ``module:function``; modules of the current folder are found.

    Raises:
        UserError: there is no such function.
    """
    module, _, function = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"--entry {name}: {error}. Name a function of (log, facts) as module:function.") from None


def answer(setting: Setting, entries: dict[str, Entry], logs: int, folder: Path) -> Found:
    """Each entry's answers to the logs of a setting, and under "setting" its value and what ips and snips give."""
    world = setting.world()
    drawn: list = []

    def every(function):
        drawn[:] = drawn or [setting.log(world, number) for number in range(logs)]
        return [[float(x) for x in function(log)] for log in drawn]

    kept = folder / setting.name
    found = {"setting": once(kept / "setting.json", lambda: {"value": world.value, "estimates": every(estimates)})}
    for name, entry in entries.items():
        make = lambda entry=entry: every(lambda log: entry(log, world.facts))  # noqa: E731  (one call per entry)
        found[name] = once(kept / f"{name}.json", make, finite=False) if name in ENTRIES else make()
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one setting per family and half, four logs")
    parser.add_argument("--entry", action="append", default=[], help="an entry of yours, module:function")
    parser.add_argument("--out", type=Path, default=HERE / "runs")
    given = parser.parse_args(arguments)
    check_frozen()
    entries = ENTRIES | {name: named(name) for name in given.entry}
    logs, folder = (4, given.out / "quick") if given.quick else (settings()["logs"], given.out / FROZEN.stem)
    chosen = [s for s in all_settings(HALVES) if not (given.quick and s.number)]
    found = {}
    for setting in chosen:
        found[setting] = answer(setting, entries, logs, folder)
        print(f"{setting.name} {len(found)} of {len(chosen)}", file=sys.stderr, flush=True)
    thresholds = {name: float(getattr(entry, "threshold", 1.0)) for name, entry in entries.items()}
    results = tables.results(found, thresholds)
    lines = tables.lines(results)
    print("\n".join(lines))
    if not given.quick and not given.entry:
        write_results(HERE / "results.json", results, 4, finite=False)
        write_text(HERE / "results.md", "\n".join([f"# OPE-trust {FROZEN.stem}", "", *lines]) + "\n")
        of_us = tables.of_us(results["families"])
        shown = [*tables.short(results), "", lines[0], "", "What it says of us:", "", *of_us]
        into_marks(HERE / "README.md", "table", shown)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
