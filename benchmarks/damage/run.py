"""Damage, kills, double starts, mutated files: see README.md."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fuzz
import kills
from children import small_parts

from recsim_mnar.runs.files import write_json

HERE = Path(__file__).resolve().parent
SIZES = {"simulate": 30, "replay": 30, "compare": 30, "study": 30, "worker": 50, "double": 20, "fuzz": 10_000}
QUICK = {"simulate": 3, "replay": 2, "compare": 1, "study": 1, "worker": 2, "double": 1, "fuzz": 300}
"""Trials of each step."""
KILLED = ("simulate", "replay", "compare", "study")
BATCH = 50
"""Mutated files before a child is forked anew."""


def trials(place: Path) -> dict[str, Callable[[int], dict[str, Any]]]:
    """A trial of each step, by its number."""
    killed = {kind: functools.partial(kills.killed, kind) for kind in KILLED}
    return killed | {
        "worker": lambda i: kills.worker_killed(kills.Workers.of(place), i),
        "double": kills.double_start,
    }


def run_step(step: str, out: Path, quick: bool) -> list[dict[str, Any]]:
    """The trials of a step: those that a file holds already, and the others, each written as it ends."""
    file = out / f"{step}.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    n = (QUICK if quick else SIZES)[step]
    if len(done) < n:
        if step == "worker" and not kills.has_dask():
            print(f"{step}: skipped, dask is not installed (pip install 'recsim-mnar[cluster]')")
            return []
        from children import scratch

        with scratch() as place, file.open("a") as written:
            one = trials(place).get(step)
            while len(done) < n:
                numbers = range(len(done), min(len(done) + (BATCH if step == "fuzz" else 1), n))
                new = [one(numbers[0])] if one else fuzz.fuzzed(place, numbers)
                done += new
                written.writelines(json.dumps(each) + "\n" for each in new)
                written.flush()
    return done


def summary(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Counts of each step."""
    totals: dict[str, Any] = {}
    for kind in (*KILLED, "worker"):
        if found.get(kind):
            totals[f"kills of {kind}"] = {"trials": len(found[kind]), **_sums(found[kind], "killed", "same"),
                                        **_moments(found[kind])}  # fmt: skip
    if found.get("double"):
        totals["double starts"] = {"trials": len(found["double"]), **_sums(found["double"], "good", "same")}
    if found.get("fuzz"):
        rows = found["fuzz"]
        most = {"most CPU seconds": max(r["cpu"] for r in rows), "most MB": max(r["mb"] for r in rows)}
        refused = sum(r["status"] == 2 for r in rows)
        totals["fuzz"] = {"trials": len(rows), **_sums(rows, "clean"), "refused": refused, **most}
    return totals


def shortcomings(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Trials that did not end as they must."""
    must = {
        **dict.fromkeys(KILLED, ("same",)),
        "worker": ("killed", "same"),
        "double": ("good",),
        "fuzz": ("clean",),
    }
    return [
        f"{step} {i}: {row}"
        for step, rows in found.items()
        for i, row in enumerate(rows)
        if not all(row[key] for key in must.get(step, ()))
    ]


def _moments(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How the kills are spread over a run: how many in each fifth of its time, and what they found there."""
    if not all("at" in row for row in rows):
        return {}
    fifths = Counter(min(int(5 * row["at"]), 4) for row in rows)
    totals: dict[str, Any] = {"in each fifth of the run": [fifths[k] for k in range(5)]}
    if all("temporary" in row for row in rows):
        totals |= {"with some files": sum(row["files"] > 0 for row in rows),
                 "with a half-written file": sum(row["temporary"] > 0 for row in rows)}  # fmt: skip
    return totals


def _sums(rows: list[dict[str, Any]], *keys: str) -> dict[str, int]:
    return {key: sum(bool(row[key]) for row in rows) for key in keys}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="*", choices=[*SIZES, []], help="these alone")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=None, help="where trials are kept; runs/damage unless named")
    options = parser.parse_args()
    steps = options.steps or list(SIZES)
    out = options.out or Path("runs") / ("damage-quick" if options.quick else "damage")
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[dict[str, Any]]] = {}
    for step in SIZES:
        if step in steps:
            if step != "double":
                small_parts()
            found[step] = run_step(step, out, options.quick)
        elif (out / f"{step}.jsonl").exists():
            found[step] = [json.loads(line) for line in (out / f"{step}.jsonl").read_text().splitlines()]
    totals = summary(found)
    print(json.dumps(totals, indent=1))
    if not options.quick:
        kept = json.loads((HERE / "results.json").read_text()) if (HERE / "results.json").exists() else {}
        write_json(HERE / "results.json", {**kept, **totals})  # steps that were not run stay as they are
    short = shortcomings(found)
    if short:
        sys.exit("\n".join(short))


if __name__ == "__main__":
    main()
