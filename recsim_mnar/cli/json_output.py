"""Where a command's JSON goes: ``--json FILE``, or ``--json -`` for standard output and nothing else on it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.cli.output import answer, is_quiet, say, sentence, show_table
from recsim_mnar.cli.shared import NEW_PATH, checked_file, writing
from recsim_mnar.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

_STANDARD_OUTPUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


class JsonOutput:
    """A file, a device, standard output, or nowhere.

    Attributes:
        path: as it was given; None where no JSON is asked for.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    @property
    def alone(self) -> bool:
        """Whether standard output is to hold the JSON and nothing else."""
        return str(self.path) == "-"

    @property
    def _printed(self) -> bool:
        return self.alone or str(self.path) in _STANDARD_OUTPUT

    def check(self, *inputs: Path | None) -> None:
        """Look before the work whose result it is to hold.

        Args:
            inputs: files and folders that are read, which it must not replace.

        Raises:
            UserError: it cannot be written, its folder is not there, or it would replace what is read.
        """
        if self.path is None or self._printed:
            return
        if not self.path.absolute().parent.is_dir():
            raise UserError(f"--json {self.path}: {self.path.parent} is no folder; make it first, or name another")
        for read in inputs:
            if read is not None and read.resolve() == self.path.resolve():
                raise UserError(f"--json {self.path} would replace what is read: name another file")
            if read is not None and read.resolve() in self.path.resolve().parents:
                raise UserError(f"--json {self.path} would lie in {read}, which is read: name another file")
        if not self._is_device:
            checked_file(self.path, "--json")

    def say(self, line: str) -> None:
        """A line for a person, which ``--quiet`` leaves away."""
        if not self.alone:
            say(line)

    def answer(self, line: str) -> None:
        """A line of the answer itself."""
        if not self.alone:
            answer(line)

    def sentence(self, line: str, *, remark: bool = False) -> None:
        """A sentence of the answer, or a remark beside it, which ``--quiet`` leaves away."""
        if not (self.alone or (remark and is_quiet())):
            sentence(line)

    def show(self, table: Table) -> None:
        """A table of the answer."""
        if not self.alone:
            show_table(table)

    def write(self, content: Any) -> None:
        """Write it, as plain JSON types."""
        from recsim_mnar.protocols.records import plain
        from recsim_mnar.runs.files import write_json

        if self.path is None:
            return
        if self._printed or self._is_device:
            text = json.dumps(plain(content), indent=1, allow_nan=False)
            if self._printed:
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
        """Whether something other than a file or a folder is there: it is written to, not replaced."""
        return self.path is not None and os.path.exists(self.path) and not (self.path.is_file() or self.path.is_dir())


def json_option(what: str) -> Callable[[Any], Any]:
    """The option ``--json``, which gives the command its ``json_output``.

    Args:
        what: is written, for the help: "the estimates".
    """

    def made(context: click.Context, parameter: click.Parameter, value: Path | None) -> JsonOutput:
        return JsonOutput(value)

    return click.option(
        "--json",
        "json_output",
        type=NEW_PATH,
        callback=made,
        metavar="FILE",
        help=f"Write {what} there too; with - to standard output, and nothing else.",
    )
