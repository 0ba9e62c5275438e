"""What commands say on standard output: lines, tables and lists that lose nothing in any width, and ``--quiet``."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table

_QUIET = "recsim_mnar.quiet"
_LEAST_TEXT = 24
"""Columns of the screen below which a cell of text is not folded: lines take the table's place."""
_LEAST_WIDTH = 20
_PADDING = 3
"""Columns of the screen that a column of a table needs beside its cells."""


def quiet_option(command: click.Command) -> click.Command:
    """Give a command, or all commands of a group, the flag ``--quiet``."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            quiet_option(each)
        return command

    def keep(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        context.meta[_QUIET] = value

    flag = click.Option(
        ["--quiet"],
        is_flag=True,
        expose_value=False,
        callback=keep,
        help="Nothing but the answer: no progress and no remarks.",
    )
    command.params.append(flag)
    return command


def is_quiet() -> bool:
    """Whether the command that runs was given ``--quiet``."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_QUIET))


def answer(line: str) -> None:
    """A line on standard output, whatever stands in it."""
    # Named, or click would write other bytes than the stream's encoding has where that is ASCII.
    click.echo(printable(line), file=sys.stdout)


def say(line: str) -> None:
    """A line on standard output that ``--quiet`` leaves away."""
    if not is_quiet():
        answer(line)


def sentence(line: str) -> None:
    """A sentence of the answer; on a terminal its lines end between words."""
    width, line = screen_width(), printable(line)
    click.echo(line if width is None else textwrap.fill(line, width, break_on_hyphens=False), file=sys.stdout)


def warn(line: str) -> None:
    """A line on standard error that ``--quiet`` leaves away."""
    if not is_quiet():
        click.echo(printable(line), err=True)


def screen_width() -> int | None:
    """Columns of the terminal on standard output; None in a pipe or a file, which take lines of any length."""
    if not sys.stdout.isatty():
        return None
    return max(shutil.get_terminal_size().columns, _LEAST_WIDTH)


def show_table(table: Table) -> None:
    """Print a table whole; where it is wider than the screen, a few lines a row with every column in them."""
    width = screen_width()
    if width is not None and _least_width(table) > width:
        _show_rows(table, width)
        return
    _screen(_natural_width(table) if width is None else width).print(table)


def _screen(width: int) -> Console:
    from rich.console import Console

    return Console(width=width, highlight=False, file=sys.stdout)


def _natural_width(table: Table) -> int:
    """Columns of the screen that the table needs so that no cell is folded; its title and caption too."""
    told = max((_cells(text) for text in (table.title, table.caption) if text), default=0)
    return max(sum(_widest(column) for column in table.columns) + _PADDING * len(table.columns) + 1, told)


def _least_width(table: Table) -> int:
    """As :func:`_natural_width`, with cells of text folded, and headers where they may be."""
    widths = [
        min(_widest(column), _LEAST_TEXT) if column.overflow == "fold" else _widest(column, folded=not column.no_wrap)
        for column in table.columns
    ]
    return sum(widths) + _PADDING * len(widths) + 1


def _widest(column: Column, *, folded: bool = False) -> int:
    head = max((len(word) for word in str(column.header).split()), default=0) if folded else _cells(column.header)
    return max([head, *(_cells(cell) for cell in column.cells)])


def _text(cell: Any) -> Any:
    """A cell as rich Text: markup read, what is Text already as it is."""
    from rich.text import Text

    return cell if isinstance(cell, Text) else Text.from_markup(str(cell))


def _cells(cell: Any) -> int:
    from rich.cells import cell_len

    return max((cell_len(line) for line in _text(cell).plain.splitlines()), default=0)


def _show_rows(table: Table, width: int) -> None:
    """Each row as lines: what its first columns of text say, then ``head  value`` for each other one."""
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
    """``name  text`` in lines of at most ``width``, what goes on below the text's beginning."""
    begin = margin + head + 2
    wrapped = textwrap.wrap(text, max(width - begin, 8), break_on_hyphens=False) or [""]
    left = textwrap.wrap(name, max(head, 1), break_on_hyphens=False) or [""]
    lines = []
    for place in range(max(len(wrapped), len(left))):
        label = left[place] if place < len(left) else ""
        value = wrapped[place] if place < len(wrapped) else ""
        lines.append(f"{' ' * margin}{label:<{head}}  {value}".rstrip())
    return lines


def show_pairs(rows: Sequence[tuple[str, str]]) -> None:
    """A name and a text a row; on a terminal the text goes on below itself."""
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
