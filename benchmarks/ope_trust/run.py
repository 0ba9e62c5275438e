"""OPE-trust: `python benchmarks/ope_trust/run.py [--version v2] [--quick] [--entry module:function] [--out DIR]`.

Answers of the entries of entries.py are kept per setting under DIR, so that an interrupted run goes on; remove them
after a change. Those of an entry of yours are made each time.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

import halves
import halves_v2
import numpy as np
import tables
from _study import into_marks, once, parser_of, write_results, write_text
from entries import ENTRIES, Entry, of_pair

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


VERSIONS = {"v1": halves, "v2": halves_v2}
SUFFIX = {"v1": "", "v2": "_v2"}
"""Of the files of results."""


def truths(world: Any) -> dict[str, float]:
    """The target's value; of v2's worlds a policy's, acting in every row, and its difference from the baseline's."""
    if not hasattr(world, "baseline"):
        return {"value": world.value}
    value = world.value(world.target)
    return {"value": value, "difference": value - world.value(world.baseline)}


def estimates(log: Any) -> tuple[float, float]:
    """ips and snips with the weights of rows that v2 has, which decide whether a setting is usable."""
    rows = getattr(log, "weight", np.ones(len(log.reward)))
    weight = rows * log.target / log.propensity
    total = float(weight @ log.reward)
    return total / float(rows.sum()), total / max(float(weight.sum()), np.finfo(float).tiny)


def answer(setting: halves.Setting | halves_v2.Setting, entries: dict[str, Entry], logs: int, folder: Path) -> Found:
    """Each entry's answers to the logs of a setting, and under "setting" what is true and what ips and snips give.

    Of v2's logs also what we say of the target's difference from the baseline, with every fact and with none.
    """
    world = setting.world()
    drawn: list = []

    def every(function):
        drawn[:] = drawn or [setting.log(world, number) for number in range(logs)]
        return [[float(x) for x in function(log)] for log in drawn]

    kept = folder / setting.name
    of_setting = lambda: {**truths(world), "estimates": every(estimates)}  # noqa: E731  (once per setting)
    found = {"setting": once(kept / "setting.json", of_setting)}
    for name, entry in entries.items():
        make = lambda entry=entry: every(lambda log: entry(log, world.facts))  # noqa: E731  (one call per entry)
        found[name] = once(kept / f"{name}.json", make, finite=False) if name in ENTRIES else make()
    if hasattr(world, "baseline"):
        for name, facts in zip(tables.PAIRS, (world.facts, None), strict=True):
            make = lambda facts=facts: every(lambda log: of_pair(log, facts))  # noqa: E731  (one call per log)
            found[name] = once(kept / f"{name}.json", make, finite=False)
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of(__doc__, quick="one setting per family and half, four logs")
    parser.add_argument("--version", choices=VERSIONS, default="v1", help="of the families")
    parser.add_argument("--entry", action="append", default=[], help="an entry of yours, module:function")
    parser.add_argument("--out", type=Path, default=HERE / "runs")
    given = parser.parse_args(arguments)
    version = VERSIONS[given.version]
    version.check_frozen()
    entries = ENTRIES | {name: named(name) for name in given.entry}
    part = f"quick{SUFFIX[given.version]}" if given.quick else given.version
    logs, folder = 4 if given.quick else version.settings()["logs"], given.out / part
    chosen = [s for s in version.all_settings(halves.HALVES) if not (given.quick and s.number)]
    found = {}
    for setting in chosen:
        found[setting] = answer(setting, entries, logs, folder)
        print(f"{setting.name} {len(found)} of {len(chosen)}", file=sys.stderr, flush=True)
    thresholds = {name: float(getattr(entry, "threshold", 1.0)) for name, entry in entries.items()}
    results = tables.results(found, thresholds)
    lines = tables.lines(results)
    print("\n".join(lines))
    if not given.quick and not given.entry:
        name = f"results{SUFFIX[given.version]}"
        write_results(HERE / f"{name}.json", results, 4, finite=False)
        write_text(HERE / f"{name}.md", "\n".join([f"# OPE-trust {given.version}", "", *lines]) + "\n")
        of_us = tables.of_us(results["families"])
        shown = [*tables.short(results), "", lines[0], "", "What it says of us:", "", *of_us]
        into_marks(HERE / "README.md", f"table{SUFFIX[given.version]}", shown)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
