"""What commands show: tables, lists, and how far a job has come."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


def console(*, stderr: bool = False) -> Any:
    """A rich console on standard output, or on standard error."""
    from rich.console import Console

    # In a pipe there is no width to fit: tables keep their columns whole.
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else 200)


class Reporter:
    """Says which stage runs, or how far it has come: a bar on a terminal, lines elsewhere."""

    def __init__(self, bar: Any, task: Any) -> None:
        self._bar, self._task = bar, task

    def __call__(self, stage: str) -> None:
        """A stage begins."""
        if self._bar is None:
            print(stage, file=sys.stderr, flush=True)
        else:
            self._bar.update(self._task, description=stage)

    def advance(self, amount: int) -> None:
        """So many more units are done."""
        if self._bar is not None:
            self._bar.update(self._task, advance=amount)


@contextlib.contextmanager
def progress(total: int | None = None, unit: str = "") -> Iterator[Reporter]:
    """A :class:`Reporter`, of stages or, with a total, of how much of it is done."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield Reporter(None, None)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns: list[Any] = [SpinnerColumn(), TextColumn("{task.description}")]
    if total is not None:
        columns += [BarColumn(), MofNCompleteColumn(), TextColumn(unit)]
    with Progress(*columns, TimeElapsedColumn(), console=screen, transient=True) as bar:
        yield Reporter(bar, bar.add_task("", total=total))


def print_list(rows: list[tuple[str, str]]) -> None:
    """A name and a description a line."""
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"{name:<{width}}  {text}")
