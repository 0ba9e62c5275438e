"""The whole table of speeds, each path against its peer in the same run.

    python benchmarks/speed/run.py [--quick] [--rows NAME,...] [--json FILE]
    python benchmarks/speed/run.py growth [--quick] [--out FOLDER]

CPU seconds of one thread, minima or medians of rounds in which ours and the peer take turns. Peers live in their own
virtual environments (``make_peers.sh``); one that was not run prints "not measured", and its bar is not met.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from table import HEADER, Row, into_results, line, markdown, parser_of, write_text  # noqa: E402  (threads are set before numpy is loaded)

GROUPS = {
    "simulate": ("simulate", "rows"),
    "acting": ("acting", "acting"),
    "environments": ("acting", "environments"),
    "study": ("study", "rows"),
    "leave_one_out": ("fits", "held_out"),
    "neighbours": ("fits", "neighbours"),
    "svd": ("fits", "svd"),
    "estimators": ("estimators", "rows"),
}


def group(name: str) -> Callable[[bool], list[Row]]:
    """The function that measures a group of rows, its module loaded only now."""
    module, function = GROUPS[name]
    return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]


def table(names: list[str], quick: bool) -> tuple[list[Row], dict[str, str]]:
    """All rows, printed as they are measured; and what failed."""
    found: list[Row] = []
    failed: dict[str, str] = {}
    print(HEADER)
    for name in names:
        began = time.perf_counter()
        try:
            rows = group(name)(quick)
        except Exception as error:  # one path that breaks must not lose the others
            failed[name] = f"{type(error).__name__}: {error}"
            traceback.print_exc(limit=3)
            continue
        for row in rows:
            print(line(row), flush=True)
        if not rows:
            print(f"{name}: this version of the package does not have it")
        print(f"    ({name}: {time.perf_counter() - began:.0f} s)", file=sys.stderr)
        found += rows
    return found, failed


def main() -> int:
    if sys.argv[1:2] == ["growth"]:
        import growth

        return growth.main(sys.argv[2:])
    parser = parser_of(__doc__, quick="small sizes and single rounds: shows that all of it runs")
    parser.add_argument("--rows", default=",".join(GROUPS), help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--json", type=Path, help="put the table into this file, and next to it as Markdown")
    a = parser.parse_args()
    names = a.rows.split(",")
    if unknown := [name for name in names if name not in GROUPS]:
        parser.error(f"--rows: no {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    found, failed = table(names, a.quick)
    from table import machine

    print("\nFloors, one core: " + ", ".join(f"{key} {value:.3g}" for key, value in asdict(machine()).items()))
    for row in {row.path: row for row in found if row.floor_is}.values():
        print(f"  {row.path}: {row.floor_is}")
    missed = [row for row in found if row.met is False]
    print(f"\n{sum(row.met is True for row in found)} bars reached, {len(missed)} not")
    for row in missed:
        print(f"  not: {row.path}{'; ' + row.peer if row.peer else ''}")
    for name, reason in failed.items():
        print(f"  failed: {name}: {reason}")
    if a.json:
        into_results(
            a.json,
            "table",
            {
                "machine": platform.processor() or platform.machine(),
                "python": platform.python_version(),
                "quick": a.quick,
                "floors": asdict(machine()),
                "rows": [row.to_dict() for row in found],
                "failed": failed,
            },
        )
        write_text(a.json.with_suffix(".md"), markdown(found))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
