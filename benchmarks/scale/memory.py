"""A log of 100 million events simulated, replayed for three policies and estimated: what each process takes.

    python benchmarks/scale/memory.py [--users N] [--work DIR] [--json FILE]

A step whose figures stand in the JSON, and whose files are there, is not run again. Remove the folder afterwards.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import parser_of, read, write_results

BAR_BYTES = 1_500_000_000
"""No process may take more."""
POLICIES = "user-popularity+epsilon=0.1,item-knn,svd"
TARGETS, BASELINE = "user-popularity+epsilon=0.1,item-knn", "svd"
ASKED = ("--target", TARGETS, "--baseline", BASELINE, "--estimators", "ips,clipped_ips,snips", "--clip", "15")
FITS = 10
"""The log that is estimated in memory, too, has so many times fewer users."""

TWIN = """
import json, sys
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.estimating import Question, estimate_log
path, targets, baseline = sys.argv[1], sys.argv[2].split(","), sys.argv[3]
asked = {"estimators": ["ips", "clipped_ips", "snips"], "clip": 15.0, "keep_rows": True}
question = Question(targets, baseline=baseline, **asked)
print(json.dumps(estimate_log(path, question, reading=Reading(exact=True)).records))
"""
"""All rows of a file in memory, and every estimate from its columns."""


def measured(arguments: list[str], out: Path | None = None) -> dict[str, Any]:
    """Run a command; its seconds, CPU seconds and the most memory that it, or a process of its own, took."""
    began = time.perf_counter()
    with open(out or os.devnull, "w") as file:
        child = subprocess.Popen(arguments, stdout=file)
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with status {child.returncode}")
    return {
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_bytes": used.ru_maxrss * 1024,
    }


def rows_of(index: Path) -> int:
    """Rows that the receipts of a folder list."""
    return sum(each.get("rows") or 0 for each in json.loads(index.read_text())["files"])


class Study:
    """Steps that are taken once each, and the figures of those that were."""

    def __init__(self, work: Path, figures: Path, users: int) -> None:
        self.work, self.figures, self.users = work, figures, users
        self.command = str(Path(sys.executable).with_name("recsim-mnar"))
        known = read(figures).get("memory", {})
        self.steps: dict[str, Any] = known.get("steps", {}) if known.get("users") == users else {}

    def take(self, name: str, arguments: list[str], made: Path, out: Path | None = None) -> None:
        """Run a command of ours unless its figures and what it makes are there."""
        if name in self.steps and made.exists():
            return
        self.steps[name] = measured([self.command, *arguments], out)
        self.write()
        print(f"{name}: {self.steps[name]}", flush=True)

    def write(self) -> None:
        """Write all figures."""
        peaks = [step["peak_bytes"] for step in self.steps.values() if "peak_bytes" in step and not step.get("twin")]
        whole = {"users": self.users, "bar_bytes": BAR_BYTES, "highest_peak_bytes": max(peaks, default=0)}
        write_results(self.figures, read(self.figures) | {"memory": {**whole, "steps": self.steps}})

    def run(self) -> None:
        """All steps."""
        large, small, train = (self.work / name for name in ("log", "fits", "train"))
        world = ["simulate", "--world", "sessions", "--policy", "random"]
        self.take("train", [*world, "--users", "2000", "--seed", "7", "--out", str(train)], train)
        self.take("simulate", [*world, "--users", str(self.users), "--out", str(large)], large)
        fits = [*world, "--users", str(self.users // FITS), "--seed", "1", "--out", str(small)]
        self.take("simulate what fits", fits, small)
        for source, name in ((large, "large"), (small, "fits")):
            replay = ["replay", str(source), "--policy", POLICIES, "--train", str(train), "--out"]
            file, parts = self.work / f"{name}.parquet", self.work / f"{name}-parts"
            self.take(f"replay {name} to a file", [*replay, str(file)], file)
            self.take(f"replay {name} to parts", [*replay, f"{parts}/"], parts)
            for made in (file, parts):
                estimates = self.work / f"{made.name}.json"
                self.take(f"estimate {made.name}", ["estimate", str(made), *ASKED, "--json", str(estimates)], estimates)
        self.check(large)

    def check(self, large: Path) -> None:
        """Rows and estimates against each other, and against all rows in memory."""
        rows = rows_of(large / "log" / "index.json")
        counted = {rows, pq.read_metadata(self.work / "large.parquet").num_rows}
        counted.add(rows_of(self.work / "large-parts" / "log" / "index.json"))
        answers = {
            name: json.loads((self.work / f"{name}.json").read_text())
            for name in ("large.parquet", "large-parts", "fits.parquet", "fits-parts")
        }
        for records in answers.values():
            for record, name in itertools.product(records, ("schema", "sentence", "input")):
                record.pop(name, None)  # which the command alone adds
        said = self.work / "twin.json"
        twin = [sys.executable, "-c", TWIN, str(self.work / "fits.parquet"), TARGETS, BASELINE]
        if "estimate in memory" not in self.steps or not said.exists():
            self.steps["estimate in memory"] = {**measured(twin, said), "twin": True}
        self.steps["checks"] = {
            "rows": rows,
            "rows_are_the_same": len(counted) == 1,
            "parts_and_file_give_the_same": answers["large.parquet"] == answers["large-parts"],
            "in_memory_to_the_last_bit": answers["fits.parquet"]
            == answers["fits-parts"]
            == json.loads(said.read_text()),
        }
        self.write()
        print(json.dumps(self.steps["checks"]))


def main() -> None:
    """The study of the command line's sizes; status 1 where a bar was missed."""
    options = parser_of(__doc__)
    options.add_argument("--users", type=int, default=1_000_000)
    options.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "recsim-mnar-scale")
    options.add_argument("--json", type=Path, default=Path(__file__).with_name("results.json"))
    given = options.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    study = Study(given.work, given.json, given.users)
    study.run()
    found = read(given.json)["memory"]
    sound = all(value for value in found["steps"]["checks"].values())
    raise SystemExit(0 if sound and found["highest_peak_bytes"] < BAR_BYTES else 1)


if __name__ == "__main__":
    main()
