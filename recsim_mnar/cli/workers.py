"""Executor of a command (``--workers``, ``--scheduler``), and the record of its run (``run.json``)."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsim_mnar.cli.options import WHOLE, all_of, n_workers, option
from recsim_mnar.cli.output import warn as remark
from recsim_mnar.errors import UserError

RUN = "run.json"
"""What a run took: outside the receipts, for two runs that write the same files differ in it."""


def worker_options(command: Callable[..., None]) -> Callable[..., None]:
    """``--workers`` and ``--scheduler``, handed on as ``crew``, a :class:`Crew`."""

    @functools.wraps(command)
    def with_a_crew(workers: int | None, scheduler: str | None, **options: Any) -> None:
        command(crew=Crew(workers, scheduler), **options)

    return all_of(
        option("--workers", "On this machine, threads or processes; as many as there are processors unless named.",
               WHOLE),
        option(
            "--scheduler",
            "A Dask scheduler, whose workers do the work (docs/cluster.md).",
            metavar="tcp://HOST:PORT",
            hidden=True,
        ),
    )(with_a_crew)  # fmt: skip


class RunRecord:
    """Host, versions, seconds and memory of a run.

    Attributes:
        workers: who did the work: kind and number.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self.workers: Mapping[str, object] = {"kind": "this process", "number": 1}
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


@dataclass(frozen=True)
class Crew:
    """Who does the work of a command.

    Attributes:
        workers: on this machine, as given.
        scheduler: address of a Dask scheduler, as given.

    Raises:
        UserError: both are given, a number that cannot be, or an invalid address.
    """

    workers: int | None
    scheduler: str | None

    def __post_init__(self) -> None:
        """Refuse what cannot be, before any work."""
        n_workers(self.workers)
        if self.scheduler is None:
            return
        if self.workers is not None:
            raise UserError("--workers is of this machine, and --scheduler has workers of its own: give one of the two")
        from recsim_mnar.cluster import check_address

        check_address(self.scheduler)

    @contextlib.contextmanager
    def executor(
        self, record: RunRecord, *, named: Sequence[object] = (), in_processes: bool = False
    ) -> Iterator[Executor | None]:
        """Make the executor of the work; None if this process works alone.

        Args:
            record: receives who.
            named: names and settings, JSON types, whose modules travel to workers of a cluster.
            in_processes: the work is Python's throughout.
        """
        if self.scheduler is not None:
            from recsim_mnar.cluster import cluster
            from recsim_mnar.simulation.own_code import modules_named

            with cluster(self.scheduler, modules=modules_named(named), warn=_warn) as remote:
                record.workers = {"kind": f"cluster {self.scheduler}", "number": remote.n_workers()}
                yield remote
            return
        from recsim_mnar.simulation.pools import pool, processes

        n = n_workers(self.workers)
        with processes(n) if in_processes else pool(n) as found:
            if found is not None:
                record.workers = {"kind": "processes", "number": n}
            yield found
            if found is not None and not in_processes:
                record.workers = {"kind": found.kind, "number": n}


def _warn(line: str) -> None:
    remark(f"warning: {line}")
