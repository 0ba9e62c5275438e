"""Does `validate` find worlds that are wrong, leave right ones alone, and say what is known of real logs?

    python benchmarks/validation/run.py [defects] [right] [fitted] [ml100k] [open_bandit] [coat] [--quick]
        [--ml100k FILE] [--open-bandit DIR] [--coat DIR] [--logs N] [--development]

Each log's result is written as it is done, under ``runs/`` beside this file, and not done again; ``results.json`` is
made of them at the end, and a table printed. Data that are not named are left out: none of them is shipped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import families
import numpy as np

from recsim_mnar.fitting.calibration import calibrate_world
from recsim_mnar.fitting.validation import Validation, validate_world
from recsim_mnar.fitting.validation.simulated import SharesPolicy
from recsim_mnar.log.files import write_json
from recsim_mnar.log.table import Log
from recsim_mnar.protocols.records import plain
from recsim_mnar.simulate import simulate
from recsim_mnar.worlds.sessions.world import SessionsWorld

HERE = Path(__file__).parent
PARTS = ("defects", "right", "fitted", "ml100k", "open_bandit", "coat")
DEVELOPMENT = 1_000_000
CHECKS = ("statistics", "classifier", "ranking")
LOGS = {"defects": 20, "right": 60, "fitted": 40}
Result = dict[str, Any]


def log_of(world: SessionsWorld, number: int, n_users: int) -> Log:
    """A log of a world under the uniform policy."""
    return simulate(world, SharesPolicy(np.ones(world.n_items), "random"), n_users, seed=number)


def summary(found: Validation, began: float) -> Result:
    """What is kept of a validation."""
    checks = [
        {name: getattr(c, name) for name in ("name", "grade", "real", "simulated", "distance", "ceiling",
                                             "ceiling_high", "visible", "p", "p_adjusted", "says")}
        for c in found.checks
    ]  # fmt: skip
    control = [c.details["planted_auc"] for c in found.checks if c.kind == "classifier"]
    found_it = [c.details["control_found"] for c in found.checks if c.kind == "classifier"]
    return {"checks": checks, "alarms": [c["name"] for c in checks if told_apart(c)],
            "off": [c["name"] for c in checks if c["grade"] == "off"], "planted_auc": control,
            "planted_found": found_it, "seconds": round(time.process_time() - began, 2)}  # fmt: skip


def told_apart(check: Result) -> bool:
    """Whether a check says that the world is not the log's: by its test, or for the ranking by pairs turned round."""
    p = check["p_adjusted"]
    return check["grade"] == "off" if p is None else p <= 0.05


def defect(name: str, number: int, n_users: int) -> Result:
    """A wrong world held against the log of the right one."""
    began = time.process_time()
    of_log, of_world = {**families.KNOWN, **families.HELD_OUT}[name]
    world = families.right(number)
    log = log_of(of_log(world), number, n_users)
    return summary(validate_world(of_world(world), log, number, CHECKS, same_items=True), began)


def right(number: int, n_users: int) -> Result:
    """The right world, with its right parameters."""
    began = time.process_time()
    world = families.right(number)
    return summary(validate_world(world, log_of(world, number, n_users), number, CHECKS, same_items=True), began)


def fitted(number: int, n_users: int) -> Result:
    """The right kind of world, fitted to half of the users and held against the other half."""
    began = time.process_time()
    world = families.right(number)
    log = log_of(world, number, n_users)
    return summary(validate_world(_fit(world.n_items, number), log, number, CHECKS), began)


def _fit(n_items: int, seed: int, members: int = 0) -> Callable[[Log], Any]:
    return lambda log: calibrate_world(log, "sessions", seed, n_items=n_items, ensemble=members)


def kept(path: Path, make: Callable[[], Result]) -> Result:
    """A result that is there, or made and written."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, plain(make()))
    found: Result = json.loads(path.read_text())
    return found


def counts(results: list[Result]) -> Result:
    """How often each check told the world from the log, and any of them."""
    names = list(dict.fromkeys(c["name"] for r in results for c in r["checks"]))
    return {
        "logs": len(results), "any": sum(bool(r["alarms"]) for r in results),
        "told_apart": {name: sum(name in r["alarms"] for r in results) for name in names},
        "off": {name: sum(name in r["off"] for r in results) for name in names},
        "planted_found": sum(all(r["planted_found"]) for r in results),
        "cpu_seconds": round(float(np.median([r["seconds"] for r in results])), 2),
    }  # fmt: skip


def shown(table: dict[str, Result]) -> None:
    """Print how often each check found what."""
    for name, row in table.items():
        most = sorted(row["told_apart"].items(), key=lambda each: -each[1])
        found = ", ".join(f"{check} {n}" for check, n in most if n)
        print(f"{name:<36} any {row['any']} of {row['logs']}: {found}", flush=True)


def main() -> None:
    """Run the parts asked for."""
    options = _options()
    first = DEVELOPMENT if options.development else 0
    folder = HERE / "runs" / ("quick" if options.quick else "development" if options.development else "judged")
    n_users = 300 if options.quick else families.N_USERS
    for part in options.parts or PARTS:
        if part in LOGS:
            found = _simulated(part, folder, first, options.logs or (2 if options.quick else LOGS[part]), n_users)
            shown(found)
        else:
            import real_logs

            source = getattr(options, part)
            if source is None:
                print(f"{part}: left out, its data are not named")
                continue
            found = real_logs.PARTS[part](source, folder)
            print(json.dumps(plain(found["short"]), indent=1))
        if not options.quick and not options.development:
            _keep(part, found)


def _keep(part: str, found: Result) -> None:
    """Put a part's result among the others, which may have been made side by side."""
    path = HERE / "results.json"
    results = json.loads(path.read_text()) if path.is_file() else {}
    write_json(path, {**results, part: plain(found)})


def _simulated(part: str, folder: Path, first: int, n: int, n_users: int) -> dict[str, Result]:
    names = [*families.KNOWN, *families.HELD_OUT] if part == "defects" else [part]
    if part == "defects" and first == DEVELOPMENT:
        names = [*families.KNOWN]
    offset = {"defects": 0, "right": 1000, "fitted": 4000}[part]
    make = {"right": right, "fitted": fitted}
    table = {}
    for name in names:
        rows = []
        for number in range(first + offset, first + offset + n):
            path = folder / f"{name.replace(' ', '-')}-{number}.json"
            if part == "defects":
                rows.append(kept(path, lambda name=name, number=number: defect(name, number, n_users)))
            else:
                rows.append(kept(path, lambda number=number: make[part](number, n_users)))
        table[name] = counts(rows)
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--development", action="store_true")
    parser.add_argument("--logs", type=int, default=None)
    for name in ("ml100k", "open-bandit", "coat"):
        parser.add_argument(f"--{name}", type=Path, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    main()
