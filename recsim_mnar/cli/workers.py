"""Executor of a command (``--workers``, ``--scheduler``), and the record of its run (``run.json``)."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from recsim_mnar.cli.options import WHOLE, all_of, n_workers, option
from recsim_mnar.cli.output import warn as remark
from recsim_mnar.errors import UserError

RUN = "run.json"
"""What a run took: outside the receipts, for two runs that write the same files differ in it."""


worker_options = all_of(
    option("--workers", "On this machine, threads or processes; as many as there are processors unless named.", WHOLE),
    option(
        "--scheduler",
        "A Dask scheduler, whose workers do the work (docs/cluster.md).",
        metavar="tcp://HOST:PORT",
        hidden=True,
    ),
)
"""``--workers`` and ``--scheduler``."""


class RunRecord:
    """Host, versions, seconds and memory of a run.

    Attributes:
        workers: who did the work: kind, number, and what memory each held at most, where they say so.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self.workers: dict[str, Any] = {"kind": "this process", "number": 1}
        self._began, self._clock = time.strftime("%Y-%m-%dT%H:%M:%S%z"), time.perf_counter()

    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._clock

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        from recsim_mnar.kernels.memory import peak_memory, peak_memory_of_a_child
        from recsim_mnar.runs.files import write_json
        from recsim_mnar.runs.receipts import made_with

        write_json(
            path,
            {
                "command": self.command,
                "arguments": sys.argv[1:],
                "host": socket.gethostname(),
                "platform": platform.platform(),
                "processors": os.cpu_count(),
                "made_with": made_with(),
                "began": self._began,
                "seconds": round(self.seconds(), 3),
                "cpu_seconds": round(sum(os.times()[:4]), 3),
                "peak_memory_bytes": peak_memory(),
                "peak_memory_bytes_of_a_child": peak_memory_of_a_child(),
                "workers": self.workers,
            },
        )


def refuse_both(workers: int | None, scheduler: str | None) -> None:
    """Raise UserError, before any work, for both local and remote workers, or an invalid address."""
    n_workers(workers)
    if scheduler is None:
        return
    if workers is not None:
        raise UserError("--workers is of this machine, and --scheduler has workers of its own: give one of the two")
    from recsim_mnar.cluster import check_address

    check_address(scheduler)


@contextlib.contextmanager
def executor(
    workers: int | None,
    scheduler: str | None,
    record: RunRecord,
    *,
    folder: Path,
    named: Any = (),
    read_by_name: bool = False,
    log: Path | None = None,
    in_processes: bool = False,
) -> Iterator[Executor | None]:
    """Executor of the work; None if this process works alone.

    Args:
        workers: as given.
        scheduler: likewise.
        record: receives who.
        folder: for what jobs on a cluster have in common; best one that its workers see, too.
        named: names and settings, JSON types, whose modules travel to workers of a cluster.
        read_by_name: workers read the files that are named, too.
        log: that workers of a cluster read.
        in_processes: the work is Python's throughout.
    """
    if scheduler is not None:
        files = {} if log is None else _seen(log)
        with _cluster(scheduler, folder, named, read_by_name, files) as found:
            record.workers = {"kind": f"cluster {scheduler}", "number": len(found.peaks())}
            yield found
            record.workers["peak_memory_bytes"] = found.peaks()
        return
    from recsim_mnar.simulation.pools import pool, processes

    n = n_workers(workers)
    with processes(n) if in_processes else pool(n) as found:
        if found is not None:
            record.workers = {"kind": "processes", "number": n}
        yield found
        if found is not None and not in_processes:
            record.workers["kind"] = found.kind


def _seen(log: Path) -> dict[str, str]:
    """A file by which workers can check that they see a log: its checksum index or, without one, its first part."""
    from recsim_mnar.runs.receipts import INDEX, SIDECAR, file_digest
    from recsim_mnar.tables.parts import Parts

    first = Parts.of(log).files[0].absolute()
    known = (first.parent / INDEX, first.with_name(first.name + SIDECAR), first)
    seen = next(path for path in known if path.is_file())
    return {str(seen): file_digest(seen)}


@contextlib.contextmanager
def _cluster(scheduler: str, folder: Path, named: Any, read_by_name: bool, files: dict[str, str]) -> Iterator[Any]:
    from recsim_mnar.cluster import cluster
    from recsim_mnar.simulation.own_code import files_named, modules_named

    files = files | (files_named(named) if read_by_name else {})
    modules = modules_named(named)

    def warn(line: str) -> None:
        remark(f"warning: {line}")

    with cluster(scheduler, folder, modules=modules, files=files, warn=warn) as found:
        yield found
