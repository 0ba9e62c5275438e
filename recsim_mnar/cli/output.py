"""A command's output, progress, workers and record of its run."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import shutil
import socket
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from recsim_mnar.cli.options import NEW_PATH, WHOLE, all_of, checked_file, n_workers, option, writing
from recsim_mnar.errors import UserError, printable

_QUIET = "recsim_mnar.quiet"
"""Key of ``--quiet`` in click's context."""
_STANDARD_OUTPUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_EVERY_SECONDS = 10.0
"""Seconds between lines of progress without a terminal."""
_LEAST_WIDTH = 20
"""Least width of a terminal that is taken seriously."""


def quiet_option(command: click.Command) -> click.Command:
    """Give a command, or all commands of a group, the flag ``--quiet``."""
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            quiet_option(subcommand)
        return command

    def store(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        """Store the flag in the context, where :func:`is_quiet` finds it."""
        context.meta[_QUIET] = value

    help = "Nothing but the answer: no progress and no remarks."
    command.params.append(click.Option(["--quiet"], is_flag=True, expose_value=False, callback=store, help=help))
    return command


def is_quiet() -> bool:
    """Return True if the running command has the flag ``--quiet``."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_QUIET))


def answer(*lines: str) -> None:
    """Print lines on standard output, without interpreting markup."""
    for line in lines:
        # With an explicit file, click keeps the stream's encoding, even if that is ASCII.
        click.echo(printable(line), file=sys.stdout)


def say(*lines: str) -> None:
    """Print lines on standard output unless ``--quiet`` is given."""
    if not is_quiet():
        answer(*lines)


def sentence(line: str) -> None:
    """Print a sentence of the answer; on a terminal it is wrapped between words."""
    width = screen_width()
    line = printable(line)
    if width is not None:
        line = textwrap.fill(line, width, break_on_hyphens=False)
    click.echo(line, file=sys.stdout)


def warn(line: str) -> None:
    """Print a line on standard error unless ``--quiet`` is given."""
    if not is_quiet():
        click.echo(printable(line), err=True)


def screen_width() -> int | None:
    """Return the width of the terminal on standard output; None for a pipe or a file."""
    if not sys.stdout.isatty():
        return None
    return max(shutil.get_terminal_size().columns, _LEAST_WIDTH)


def show_pairs(rows: Sequence[tuple[str, str]]) -> None:
    """Print one name and text per row; on a terminal the text is wrapped below itself."""
    rows = [(printable(name), printable(text)) for name, text in rows]
    width = screen_width()
    head_width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        head = f"{name:<{head_width}}  "
        if width is None:
            click.echo(head + text)
            continue
        if len(head) > width // 2:
            click.echo(textwrap.fill(name, width))
            head = "    "
        indent = " " * len(head)
        click.echo(textwrap.fill(text, width, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False))


# ---------------------------------------------------------------------------------------------------- progress


class Reporter:
    """Display of the running stage and its progress: a bar on a terminal, lines elsewhere, or nothing.

    It is also a :class:`recsim_mnar.progress.Watcher`.

    Args:
        bar: progress display of rich; None to print lines.
        task: number of the task in that display.
        quiet: True to print nothing.
    """

    def __init__(self, bar: Any = None, task: Any = None, *, quiet: bool = False) -> None:
        self._bar = bar
        self._task = task
        self._quiet = quiet
        self._stage = ""
        self.begins(0, "")

    def __call__(self, stage: str) -> None:
        """Begin a stage, and show its name; counted work that is not done yet goes on in it."""
        self._stage = printable(stage)
        if self._done >= self._total:
            self.begins(0, "")
        if self._bar is not None:
            done = self._done if self._total else 0
            self._bar.update(self._task, description=_escaped(self._stage), total=self._total or None, completed=done)
        elif not self._quiet:
            print(self._stage, file=sys.stderr, flush=True)

    def begins(self, total: int, unit: str) -> None:
        """Begin work of ``total`` units within the stage."""
        self._total = total
        self._unit = unit
        self.goes_on(0)
        if self._bar is not None and total:
            self._bar.update(self._task, total=total, completed=0)

    def goes_on(self, kept: int) -> None:
        """Start counting from ``kept`` units that an earlier run has done; they do not count for the rate."""
        self._done = self._kept = kept
        self._began = self._last_line = time.monotonic()

    def advance(self, amount: int) -> None:
        """Count units just done."""
        self._done += amount
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=_escaped(self._line()))
        elif not self._quiet and time.monotonic() - self._last_line >= _EVERY_SECONDS:
            self._last_line = time.monotonic()
            print(self._line(), file=sys.stderr, flush=True)

    def _line(self) -> str:
        """Return the stage, the share done, the rate, and the remaining time at that rate."""
        rate = (self._done - self._kept) / max(time.monotonic() - self._began, 1e-6)
        remaining = "?"
        if rate:
            remaining = time_in_words((self._total - self._done) / rate)
        stage = f"{self._stage}: " if self._stage else ""
        return f"{stage}{self._done:,} of {self._total:,} {self._unit}, {rate:,.3g} a second, {remaining} left"


def _escaped(text: str) -> str:
    """Escape the markup of rich."""
    from rich.markup import escape

    return escape(text)


def time_in_words(seconds: float) -> str:
    """Return a duration in words: ``40 s``, ``7 min``, ``2.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


@contextlib.contextmanager
def progress(total: int | None = None, unit: str = "") -> Iterator[Reporter]:
    """Show progress within the block.

    Args:
        total: number of units, if the caller counts them itself; None to watch counted work of this thread.
        unit: name of the units in the plural.

    Yields:
        The reporter: call it with the name of each stage, or its ``advance`` with each number of done units.
    """
    from recsim_mnar.progress import watched_by

    with _bar() as report, watched_by(report) if total is None else contextlib.nullcontext():
        if total is not None:
            report.begins(total, unit)
        yield report


@contextlib.contextmanager
def _bar() -> Iterator[Reporter]:
    """Yield a reporter with a bar if standard error is a terminal, else one without; with ``--quiet`` a silent one."""
    if is_quiet() or not sys.stderr.isatty():
        yield Reporter(quiet=is_quiet())
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    # A long description goes on in another line; by default rich would cut it.
    description = TextColumn("{task.description}", table_column=Column())
    columns: list[Any] = [SpinnerColumn(), description, BarColumn(bar_width=20)]
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        yield Reporter(bar, bar.add_task("", total=None))


# -------------------------------------------------------------------------------------------------------- JSON


class JsonOutput:
    """Destination of a command's JSON: a file, a device, standard output, or nowhere.

    Its methods that print for people print nothing if standard output has only the JSON.

    Attributes:
        path: path as typed; None for no JSON.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    @property
    def alone(self) -> bool:
        """True if standard output has the JSON and nothing else."""
        return str(self.path) == "-"

    @property
    def printed(self) -> bool:
        """True if standard output has the JSON."""
        return self.alone or str(self.path) in _STANDARD_OUTPUT

    def check(self, *inputs: Path | None) -> None:
        """Check the destination before the work.

        Args:
            inputs: files and folders that the command reads, which the JSON must not replace; None for no file.

        Raises:
            UserError: it cannot be written, its folder does not exist, or it would replace an input.
        """
        if self.path is None or self.printed:
            return
        if not self.path.absolute().parent.is_dir():
            raise UserError(f"--json {self.path}: {self.path.parent} is not a folder. Create it, or name another")
        target = self.path.resolve()
        for source in inputs:
            if source is not None and source.resolve() == target:
                raise UserError(f"--json {self.path} would replace what is read: name another file")
            if source is not None and source.resolve() in target.parents:
                raise UserError(f"--json {self.path} would be in {source}, which is read: name another file")
        if not self._is_device:
            checked_file(self.path, "--json")

    def say(self, *lines: str) -> None:
        """Print lines for the reader unless ``--quiet`` is given."""
        if not self.alone:
            say(*lines)

    def answer(self, *lines: str) -> None:
        """Print lines of the answer."""
        if not self.alone:
            answer(*lines)

    def sentence(self, line: str, *, remark: bool = False) -> None:
        """Print a sentence of the answer, or a remark on it, unless ``--quiet`` is given."""
        if not (self.alone or (remark and is_quiet())):
            sentence(line)

    def write(self, content: Any) -> None:
        """Convert the content to JSON types, and write it to the destination; do nothing without one."""
        from recsim_mnar.protocols.records import plain
        from recsim_mnar.runs.files import write_json

        if self.path is None:
            return
        text = json.dumps(plain(content), indent=1, allow_nan=False)
        if self.printed:
            click.echo(text)
            sys.stdout.flush()
            return
        with writing(self.path, "--json"):
            if not self._is_device:
                write_json(self.path, plain(content))
                return
            # Without O_CREAT and O_TRUNC: if a file has replaced the device in the meantime, it is not emptied.
            with open(os.open(self.path, os.O_WRONLY), "w", encoding="utf-8") as device:
                device.write(text + "\n")

    @property
    def _is_device(self) -> bool:
        """True if the path exists and is neither a file nor a folder: it is written to, not replaced."""
        return self.path is not None and os.path.exists(self.path) and not (self.path.is_file() or self.path.is_dir())


def json_option(what: str) -> Callable[[Any], Any]:
    """Make the option ``--json``, which gives the command its ``json_output``.

    Args:
        what: contents for the help, such as "the estimates".
    """
    text = f"Write {what} there too; with - to standard output, and nothing else."
    return option("--json json_output", text, NEW_PATH, callback=lambda *given: JsonOutput(given[-1]), metavar="FILE")


RUN = "run.json"
"""Name of the file with time and memory of a run; it has no receipt, because it differs between identical runs."""


def worker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--workers`` and ``--scheduler``, which the command gets as ``crew``, a :class:`Crew`."""

    @functools.wraps(command)
    def call_with_crew(workers: int | None, scheduler: str | None, **options: Any) -> None:
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
    )(call_with_crew)  # fmt: skip


class RunRecord:
    """Host, versions, seconds and memory of a run.

    Attributes:
        command: name of the command.
        workers: kind and number of the workers.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self.workers: Mapping[str, object] = {"kind": "this process", "number": 1}
        self._began = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self._clock = time.perf_counter()

    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._clock

    def write(self, path: Path) -> None:
        """Write the record as JSON."""
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
    """Workers of a command.

    Attributes:
        workers: number of workers on this machine, as typed.
        scheduler: address of a Dask scheduler, as typed.

    Raises:
        UserError: both are given, the number is out of range, or the address is invalid.
    """

    workers: int | None
    scheduler: str | None

    def __post_init__(self) -> None:
        """Check the options before any work."""
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
        """Yield the executor of the work; None if this process works alone.

        Args:
            record: record to note the workers in.
            named: names and settings, JSON types, whose modules travel to workers of a cluster.
            in_processes: True if the work is Python's throughout, so that threads do not help.
        """
        if self.scheduler is not None:
            from recsim_mnar.cluster import cluster
            from recsim_mnar.simulation.own_code import modules_named

            modules = modules_named(named)
            with cluster(self.scheduler, modules=modules, warn=lambda line: warn(f"warning: {line}")) as remote:
                record.workers = {"kind": f"cluster {self.scheduler}", "number": remote.n_workers()}
                yield remote
            return
        from recsim_mnar.simulation.pools import pool, processes

        n = n_workers(self.workers)
        with processes(n) if in_processes else pool(n) as result:
            if result is not None:
                record.workers = {"kind": "processes", "number": n}
            yield result
            if result is not None and not in_processes:
                record.workers = {"kind": result.kind, "number": n}
