"""What commands show: tables, lists, and how far a job has come."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from recsim_mnar.cli.output import is_quiet
from recsim_mnar.errors import printable

_EVERY_SECONDS = 10.0
"""Between lines that say how far work has come, where there is no terminal."""


def console(*, stderr: bool = False) -> Any:
    """A rich console on standard output, or on standard error."""
    from rich.console import Console

    # In a pipe there is no width to fit: tables keep their columns whole.
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else 200)


class Reporter:
    """Says which stage runs and how far it has come: a bar on a terminal, lines elsewhere, or nothing.

    It is a :class:`recsim_mnar.progress.Watcher`, too.
    """

    def __init__(self, bar: Any = None, task: Any = None, *, quiet: bool = False) -> None:
        self._bar, self._task, self._quiet = bar, task, quiet
        self._stage = ""
        self._total, self._unit, self._done, self._kept = 0, "", 0, 0
        self._began = self._said = time.monotonic()

    def __call__(self, stage: str) -> None:
        """A stage begins."""
        stage = printable(stage)
        self._stage, self._total = stage, 0
        if self._bar is not None:
            self._bar.update(self._task, description=_plain(stage), total=None, completed=0)
        elif not self._quiet:
            print(stage, file=sys.stderr, flush=True)

    def begins(self, total: int, unit: str) -> None:
        """Work of so many units begins."""
        self._total, self._unit = total, unit
        self.goes_on(0)
        if self._bar is not None:
            self._bar.update(self._task, total=total, completed=0)

    def goes_on(self, kept: int) -> None:
        """So many units were done before: of them no rate is taken."""
        self._done = self._kept = kept
        self._began = self._said = time.monotonic()

    def advance(self, amount: int) -> None:
        """So many more units are done."""
        self._done += amount
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=_plain(self._told()))
        elif not self._quiet and time.monotonic() - self._said >= _EVERY_SECONDS:
            self._said = time.monotonic()
            print(self._told(), file=sys.stderr, flush=True)

    def _told(self) -> str:
        """The stage, and of its work how much is done, how fast, and how long the rest will take at that rate."""
        rate = (self._done - self._kept) / max(time.monotonic() - self._began, 1e-6)
        left = time_in_words((self._total - self._done) / rate) if rate else "?"
        stage = f"{self._stage}: " if self._stage else ""
        return f"{stage}{self._done:,} of {self._total:,} {self._unit}, {rate:,.3g} a second, {left} left"


def _plain(text: str) -> str:
    """Text in which rich finds no markup."""
    from rich.markup import escape

    return escape(text)


def time_in_words(seconds: float) -> str:
    """As a person says it: ``40 s``, ``7 min``, ``2.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextlib.contextmanager
def progress(total: int | None = None, unit: str = "") -> Iterator[Reporter]:
    """A :class:`Reporter`, of stages or, with a total, of how much of it is done; it watches what is counted."""
    from recsim_mnar.progress import watched_by

    with _bar() as report, watched_by(report) if total is None else contextlib.nullcontext():
        if total is not None:
            report.begins(total, unit)
        yield report


@contextlib.contextmanager
def _bar() -> Iterator[Reporter]:
    screen = console(stderr=True)
    if is_quiet() or not screen.is_terminal:
        yield Reporter(quiet=is_quiet())
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns: list[Any] = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20)]
    with Progress(*columns, TimeElapsedColumn(), console=screen, transient=True) as bar:
        yield Reporter(bar, bar.add_task("", total=None))
