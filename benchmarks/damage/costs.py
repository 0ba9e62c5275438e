"""What holding parts against receipts costs `estimate` and `replay`: with and without, in turn, in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from children import warm

from recsim_mnar.runs.receipts import Index
from recsim_mnar.tables import parts as parts_module

SIMULATE = ("simulate", "--world", "sessions", "--preset", "quick", "--policy", "user-popularity+epsilon=0.3",
            "--train-users", 200, "--seed", 1)  # fmt: skip


def _without(of: Callable[..., Any]) -> Callable[..., Any]:
    """The files as they lie there, held against nothing: no receipts, and no checksums of pages either."""
    return lambda path: replace(of(path), index=Index())


def paired(place: Path, users: int, rounds: int) -> dict[str, Any]:
    """Wall and CPU seconds of each command with and without receipts, and the median of the ratios in pairs."""
    log, replayed = place / "log", place / "replayed.parquet"
    warm(*SIMULATE, "--users", users, "--out", log)
    warm("replay", log, "--policy", "random", "--out", replayed)
    commands: dict[str, Callable[[int], tuple[object, ...]]] = {
        "estimate": lambda i: ("estimate", log, "--target", "propensity"),
        "estimate, one file": lambda i: ("estimate", replayed, "--target", "random"),
        "replay": lambda i: ("replay", log, "--policy", "random", "--out", place / f"r{i}.parquet"),
    }
    of = parts_module.Parts.of
    found: dict[str, Any] = {"users": users, "bytes": sum(p.stat().st_size for p in (log / "log").iterdir())}
    for name, words in commands.items():
        took: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for i in range(2 * rounds + 2):
            held = i % 2 == (i // 2) % 2  # in turn, and which one is first in turn
            with mock.patch.object(parts_module.Parts, "of", of if held else _without(of)):
                wall, cpu = time.perf_counter(), time.process_time()
                warm(*words(i))
                if i >= 2:  # the first of each is not counted
                    took[held].append((time.perf_counter() - wall, time.process_time() - cpu))
            (place / f"r{i}.parquet").unlink(missing_ok=True)
            (place / f"r{i}.parquet.index.json").unlink(missing_ok=True)
        found[name] = {
            kind: {
                "with": statistics.median(t[k] for t in took[True]),
                "without": statistics.median(t[k] for t in took[False]),
                "ratio": statistics.median(a[k] / b[k] for a, b in zip(took[True], took[False], strict=True)),
            }
            for k, kind in enumerate(("wall", "cpu"))
        }  # fmt: skip
    return found
