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
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.options import NEW_PATH, WHOLE, all_of, checked_file, n_workers, option, writing
from recsim_mnar.errors import UserError, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table


_QUIET = "recsim_mnar.quiet"
_STANDARD_OUTPUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_EVERY_SECONDS = 10.0
"""Between lines that say how far work has come, where there is no terminal."""
_LEAST_TEXT = 24
"""Columns of the screen below which a cell of text is not folded: lines take the table's place."""
_LEAST_WIDTH = 20
_PIPED = 120
"""Columns of the widest table in a pipe or a file; a wider one becomes lines."""
_UNBROKEN = 10_000
"""A width at which no line of text is folded."""
_PADDING = 3
"""Columns of the screen that a column of a table needs besides its cells."""


def quiet_option(command: click.Command) -> click.Command:
    """Give a command, or all commands of a group, the flag ``--quiet``."""
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            quiet_option(subcommand)
        return command

    def keep(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        context.meta[_QUIET] = value

    help = "Nothing but the answer: no progress and no remarks."
    command.params.append(click.Option(["--quiet"], is_flag=True, expose_value=False, callback=keep, help=help))
    return command


def is_quiet() -> bool:
    """True if the running command was given ``--quiet``."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_QUIET))


def answer(*lines: str) -> None:
    """Print lines on standard output, without interpreting markup."""
    for line in lines:
        # Named, or click would write other bytes than the stream's encoding has where that is ASCII.
        click.echo(printable(line), file=sys.stdout)


def say(*lines: str) -> None:
    """Print lines on standard output unless ``--quiet`` is given."""
    if not is_quiet():
        answer(*lines)


def sentence(line: str) -> None:
    """Print a sentence of the answer; on a terminal it is wrapped between words."""
    width = screen_width()
    line = printable(line)
    click.echo(line if width is None else textwrap.fill(line, width, break_on_hyphens=False), file=sys.stdout)


def warn(line: str) -> None:
    """Print a line on standard error unless ``--quiet`` is given."""
    if not is_quiet():
        click.echo(printable(line), err=True)


def screen_width() -> int | None:
    """Width of the terminal on standard output; None for a pipe or a file, where lines may have any length."""
    if not sys.stdout.isatty():
        return None
    return max(shutil.get_terminal_size().columns, _LEAST_WIDTH)


def show_table(table: Table) -> None:
    """Print a whole table; if it is wider than the screen, print a few lines per row with every column in them."""
    width = screen_width()
    if width is None and _natural_width(table) > _PIPED:
        _show_rows(table, _UNBROKEN)  # programs read whole names
    elif width is not None and _least_width(table) > width:
        _show_rows(table, width)
    else:
        _screen(_natural_width(table) if width is None else width).print(table)


def _screen(width: int) -> Console:
    from rich.console import Console

    return Console(width=width, highlight=False, file=sys.stdout)


def _natural_width(table: Table) -> int:
    """Screen width at which no cell of the table is folded, title and caption included."""
    around = max((_cells(text) for text in (table.title, table.caption) if text), default=0)
    return max(sum(_widest(column) for column in table.columns) + _PADDING * len(table.columns) + 1, around)


def _least_width(table: Table) -> int:
    """Compute :func:`_natural_width` with text cells and foldable headers folded."""
    widths = [
        min(_widest(column), _LEAST_TEXT) if column.overflow == "fold" else _widest(column, folded=not column.no_wrap)
        for column in table.columns
    ]
    return sum(widths) + _PADDING * len(widths) + 1


def _widest(column: Column, *, folded: bool = False) -> int:
    if folded:
        head = max((len(word) for word in str(column.header).split()), default=0)
    else:
        head = _cells(column.header)
    return max([head, *(_cells(cell) for cell in column.cells)])


def _text(cell: Any) -> Any:
    """A cell as rich Text: markup is parsed, Text is returned unchanged."""
    from rich.text import Text

    if isinstance(cell, Text):
        return cell
    return Text.from_markup(str(cell))


def _cells(cell: Any) -> int:
    from rich.cells import cell_len

    return max((cell_len(line) for line in _text(cell).plain.splitlines()), default=0)


def _show_rows(table: Table, width: int) -> None:
    """Each row as lines: its leading text columns, then ``head value`` for each other one."""
    screen = _screen(width)
    if table.title:
        screen.print(_text(table.title), style="italic")
    columns = [(_text(column.header).plain, [_text(cell) for cell in column.cells]) for column in table.columns]
    n_names = next((i for i, column in enumerate(table.columns) if column.justify != "left"), 1) or 1
    head = min(max((_cells(name) for name, _ in columns[n_names:]), default=0), width // 2)
    for place, row in enumerate(table.rows):
        names = ", ".join(cells[place].plain for _, cells in columns[:n_names])
        screen.print(*textwrap.wrap(names, width) or [""], sep="\n", style=row.style or "bold", markup=False)
        for name, cells in columns[n_names:]:
            for line in _hanging(name, cells[place].plain, head, width, margin=2):
                screen.print(line, markup=False)
    if table.caption:
        screen.print(*textwrap.wrap(_text(table.caption).plain, width), sep="\n", markup=False)


def _hanging(name: str, text: str, head: int, width: int, *, margin: int = 0) -> list[str]:
    """``name text`` in lines of at most ``width``, continued below the beginning of the text."""
    begin = margin + head + 2
    wrapped = textwrap.wrap(text, max(width - begin, 8), break_on_hyphens=False) or [""]
    left = textwrap.wrap(name, max(head, 1), break_on_hyphens=False) or [""]
    lines = []
    for place in range(max(len(wrapped), len(left))):
        if place < len(left):
            label = left[place]
        else:
            label = ""
        if place < len(wrapped):
            value = wrapped[place]
        else:
            value = ""
        lines.append(f"{' ' * margin}{label:<{head}}  {value}".rstrip())
    return lines


def show_pairs(rows: Sequence[tuple[str, str]]) -> None:
    """Print one name and text per row; on a terminal the text is wrapped below itself."""
    rows = [(printable(name), printable(text)) for name, text in rows]
    width = screen_width()
    head = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        if width is None or len(name) + 2 + len(text) <= width - (head - len(name)):
            click.echo(f"{name:<{head}}  {text}")
            continue
        if head > width // 2:
            click.echo(textwrap.fill(name, width))
            click.echo(textwrap.fill(text, width, initial_indent="    ", subsequent_indent="    "))
            continue
        click.echo("\n".join(_hanging(name, text, head, width)))


# ---------------------------------------------------------------------------------------------------- progress


class Reporter:
    """Reports which stage runs and how far it is: a bar on a terminal, lines elsewhere, or nothing.

    It is a :class:`recsim_mnar.progress.Watcher`, too.
    """

    def __init__(self, bar: Any = None, task: Any = None, *, quiet: bool = False) -> None:
        self._bar = bar
        self._task = task
        self._quiet = quiet
        self._stage = ""
        self._total = 0
        self._unit = ""
        self._done = 0
        self._kept = 0
        self._began = self._said = time.monotonic()

    def __call__(self, stage: str) -> None:
        """Begin a stage."""
        stage = printable(stage)
        self._stage = stage
        self._total = 0
        if self._bar is not None:
            self._bar.update(self._task, description=_escaped(stage), total=None, completed=0)
        elif not self._quiet:
            print(stage, file=sys.stderr, flush=True)

    def begins(self, total: int, unit: str) -> None:
        """Begin work of this many units."""
        self._total = total
        self._unit = unit
        self.goes_on(0)
        if self._bar is not None:
            self._bar.update(self._task, total=total, completed=0)

    def goes_on(self, kept: int) -> None:
        """Count units that were done earlier; they are left out of the rate."""
        self._done = self._kept = kept
        self._began = self._said = time.monotonic()

    def advance(self, amount: int) -> None:
        """Count units just done."""
        self._done += amount
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=_escaped(self._so_far()))
        elif not self._quiet and time.monotonic() - self._said >= _EVERY_SECONDS:
            self._said = time.monotonic()
            print(self._so_far(), file=sys.stderr, flush=True)

    def _so_far(self) -> str:
        """The stage, the share done, the rate, and the remaining time at that rate."""
        rate = (self._done - self._kept) / max(time.monotonic() - self._began, 1e-6)
        if rate:
            left = time_in_words((self._total - self._done) / rate)
        else:
            left = "?"
        if self._stage:
            stage = f"{self._stage}: "
        else:
            stage = ""
        return f"{stage}{self._done:,} of {self._total:,} {self._unit}, {rate:,.3g} a second, {left} left"


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def time_in_words(seconds: float) -> str:
    """A duration in words: ``40 s``, ``7 min``, ``2.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


@contextlib.contextmanager
def progress(total: int | None = None, unit: str = "") -> Iterator[Reporter]:
    """Make a :class:`Reporter` of stages or, with a total, of the share done; it listens to the counted work."""
    from recsim_mnar.progress import watched_by

    with _bar() as report, watched_by(report) if total is None else contextlib.nullcontext():
        if total is not None:
            report.begins(total, unit)
        yield report


@contextlib.contextmanager
def _bar() -> Iterator[Reporter]:
    if is_quiet() or not sys.stderr.isatty():
        yield Reporter(quiet=is_quiet())
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns: list[Any] = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20)]
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        yield Reporter(bar, bar.add_task("", total=None))


# -------------------------------------------------------------------------------------------------------- JSON


class JsonOutput:
    """Destination of JSON: a file, a device, standard output, or nowhere.

    Attributes:
        path: as it was given; None where no JSON is asked for.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    @property
    def alone(self) -> bool:
        """True if standard output holds the JSON and nothing else."""
        return str(self.path) == "-"

    @property
    def printed(self) -> bool:
        """True if standard output holds the JSON."""
        return self.alone or str(self.path) in _STANDARD_OUTPUT

    def check(self, *inputs: Path | None) -> None:
        """Check the destination before the work whose result it will hold.

        Args:
            inputs: files and folders that are read, which it must not replace.

        Raises:
            UserError: it cannot be written, its folder is not there, or it would replace what is read.
        """
        if self.path is None or self.printed:
            return
        if not self.path.absolute().parent.is_dir():
            raise UserError(f"--json {self.path}: {self.path.parent} is not a folder. Create it, or name another")
        for read in inputs:
            if read is not None and read.resolve() == self.path.resolve():
                raise UserError(f"--json {self.path} would replace what is read: name another file")
            if read is not None and read.resolve() in self.path.resolve().parents:
                raise UserError(f"--json {self.path} would be in {read}, which is read: name another file")
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

    def show(self, table: Table) -> None:
        """Print a table of the answer."""
        if not self.alone:
            show_table(table)

    def write(self, content: Any) -> None:
        """Write the JSON, as plain types."""
        from recsim_mnar.protocols.records import plain
        from recsim_mnar.runs.files import write_json

        if self.path is None:
            return
        if self.printed or self._is_device:
            text = json.dumps(plain(content), indent=1, allow_nan=False)
            if self.printed:
                click.echo(text)
                sys.stdout.flush()
                return
            # Neither made nor truncated: a file that has taken the device's place meanwhile keeps its length.
            with writing(self.path, "--json"), open(os.open(self.path, os.O_WRONLY), "w", encoding="utf-8") as device:
                device.write(text + "\n")
            return
        with writing(self.path, "--json"):
            write_json(self.path, plain(content))

    @property
    def _is_device(self) -> bool:
        """True if the path is something other than a file or a folder: it is written to, not replaced."""
        return self.path is not None and os.path.exists(self.path) and not (self.path.is_file() or self.path.is_dir())


def json_option(what: str) -> Callable[[Any], Any]:
    """The option ``--json``, which gives the command its ``json_output``.

    Args:
        what: is written, for the help: "the estimates".
    """

    def made(context: click.Context, parameter: click.Parameter, value: Path | None) -> JsonOutput:
        return JsonOutput(value)

    text = f"Write {what} there too; with - to standard output, and nothing else."
    return click.option("--json", "json_output", type=NEW_PATH, callback=made, metavar="FILE", help=text)


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
        self._began = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self._clock = time.perf_counter()

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
        with processes(n) if in_processes else pool(n) as result:
            if result is not None:
                record.workers = {"kind": "processes", "number": n}
            yield result
            if result is not None and not in_processes:
                record.workers = {"kind": result.kind, "number": n}


def _warn(line: str) -> None:
    warn(f"warning: {line}")
