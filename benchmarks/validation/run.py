"""Does `validate` spare right worlds, whatever recommends in the log, and find wrong ones?

    python benchmarks/validation/run.py [right] [defects] [fitted] [ml100k] [--quick] [--logs N] [--development]
        [--ml100k FILE]

Each log's result is written as it is done, under ``runs/`` next to this file, and not done again; ``results.json`` is
made of them at the end, and a table printed. Data that are not named are left out: none of them is shipped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

import families
import numpy as np
from _study import exact_limits, once, parser_of, read, write_results

from recsim_mnar.fitting.calibration import calibrate_world
from recsim_mnar.fitting.validation import Validation, validate_world
from recsim_mnar.protocols.records import plain

HERE = Path(__file__).parent
DEVELOPMENT = 1_000_000
LOGS = {"right": 60, "defects": 20, "fitted": 15}
ROWS = {
    "right": families.LOGGERS,
    "defects": families.DEFECTS,
    "fitted": families.LOGGERS[:3],
}
Result = dict[str, Any]


def right(logger: str, number: int, n_users: int) -> Validation:
    """The right world, with its right parameters."""
    world = families.right(number)
    log, _ = families.logged(world, logger, number, n_users)
    return validate_world(world, log, number, same_items=True)


def defects(defect: str, number: int, n_users: int) -> Validation:
    """A world without a defect, checked against a log of one that has it; of three loggers the third is not named."""
    log, policy, world = families.defective(defect, number, n_users)
    return validate_world(world, log, number, same_items=True, logging=None if number % 3 == 2 else policy)


def fitted(logger: str, number: int, n_users: int) -> Validation:
    """The right kind of world, fitted to half of the users and checked against the other half."""
    log, _ = families.logged(families.right(number), logger, number, 2 * n_users)

    def fit(half: Any) -> Any:
        return calibrate_world(half, number, n_items=families.N_ITEMS, ensemble=0)

    return validate_world(fit, log, number)


PARTS: dict[str, Callable[[str, int, int], Validation]] = {"right": right, "defects": defects, "fitted": fitted}


def summary(found: Validation, began: float) -> Result:
    """What is kept of a validation."""
    shown = found.facts["logging_policy"]
    return {
        "p": {c.name: c.p for c in found.checks},
        "alarms": [c.name for c in found.checks if c.differs],
        "off": [c.name for c in found.checks if c.grade == "off"],
        "untested": [c.name for c in found.checks if c.p is None],
        "shown": shown["how"] if shown["known"] else "cannot say", "misses": shown.get("misses", {}),
        "seconds": round(time.process_time() - began, 2),
    }  # fmt: skip


def counts(results: list[Result]) -> Result:
    """How often each check, and any of them, separated the world from the log; with an exact interval."""
    names = list(dict.fromkeys(name for r in results for name in r["p"]))
    n, any_ = len(results), sum(bool(r["alarms"]) for r in results)
    low, high = exact_limits(any_, n)
    return {
        "logs": n, "any": any_, "interval": [round(low, 4), round(high, 4)],
        "told_apart": {name: sum(name in r["alarms"] for r in results) for name in names},
        "below_05": {name: sum((r["p"].get(name) or 1.0) <= 0.05 for r in results) for name in names},
        "alone": {name: sum(r["alarms"] == [name] for r in results) for name in names},
        "cannot_say": sum(bool(r["untested"]) and not r["alarms"] for r in results),
        "shown": {how: sum(r["shown"] == how for r in results) for how in sorted({r["shown"] for r in results})},
        "cpu_seconds": round(float(np.median([r["seconds"] for r in results])), 2),
    }  # fmt: skip


def shown(table: dict[str, Result]) -> None:
    """Print how often each check found what."""
    for name, row in table.items():
        found = ", ".join(f"{c} {n}" for c, n in sorted(row["told_apart"].items(), key=lambda each: -each[1]) if n)
        low, high = row["interval"]
        print(f"{name:<28} different {row['any']} of {row['logs']} [{low:.3f}, {high:.3f}], cannot say "
              f"{row['cannot_say']}; {row['shown']}; {row['cpu_seconds']} s: {found}", flush=True)  # fmt: skip


def main() -> None:
    """Run the parts asked for."""
    options = _options()
    first = DEVELOPMENT if options.development else 0
    folder = HERE / "runs" / ("quick" if options.quick else "development" if options.development else "judged")
    n_users = 300 if options.quick else families.N_USERS
    for part in options.parts or [*PARTS, "ml100k"]:
        if part == "ml100k":
            found = _ml100k(options.ml100k)
            if found is None:
                continue
        else:
            n = options.logs or (1 if options.quick else LOGS[part])
            found = {}
            for i, row in enumerate(ROWS[part][: 2 if options.quick else None]):
                numbers = range(first + 1000 * i, first + 1000 * i + n)  # no two rows share a setting
                found[row] = counts([_one(part, row, number, n_users, folder) for number in numbers])
                shown({row: found[row]})
        if not options.quick and not options.development:
            kept = read(HERE / "results.json")  # other parts may have been made side by side
            write_results(HERE / "results.json", kept | {part: plain(found)}, 17)


def _one(part: str, row: str, number: int, n_users: int, folder: Path) -> Result:
    path = folder / part / f"{row.replace('+', '-').replace('=', '')}-{number}.json"
    began = time.process_time()
    return dict(once(path, lambda: plain(summary(PARTS[part](row, number, n_users), began))))


def _ml100k(path: Path | None) -> Result | None:
    """The sessions world fitted to half of ML-100K's users, checked against the others."""
    from recsim_mnar.datasets.interactions import read_interactions

    if path is None:
        print("ml100k: left out, its data are not named")
        return None
    began, data = time.process_time(), read_interactions(path)

    def fit(half: Any) -> Any:
        return calibrate_world(half, 0, n_items=data.n_items, ensemble=0)

    found = validate_world(fit, data.log, 0, n_items=data.n_items)
    rows = {c.name: [c.grade, *(round(getattr(c, k), 4) for k in ("real", "simulated", "distance", "visible"))]
            for c in found.checks}  # fmt: skip
    print(json.dumps(plain(rows), indent=1))
    return {"checks": rows, "cpu_seconds": round(time.process_time() - began, 1)}


def _options() -> argparse.Namespace:
    parser = parser_of(__doc__, quick="a small slice")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS, "ml100k"])
    parser.add_argument("--development", action="store_true")
    parser.add_argument("--logs", type=int, default=None)
    parser.add_argument("--ml100k", type=Path, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    main()
