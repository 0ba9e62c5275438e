"""What several commands share."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from recsim_mnar.errors import UserError

MOST_A_PROCESSOR = 8
"""Workers for each processor; more would only wait for each other."""


def names_of(text: str, flag: str) -> list[str]:
    """Names that commas separate; a UserError that names the flag where there is none, or one twice."""
    names = [name.strip() for name in text.split(",")]
    if not any(names):
        raise UserError(f"{flag}: name at least one")
    if not all(names):
        raise UserError(f"{flag} {text!r}: a name is missing beside a comma")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{flag}: {twice} is named twice")
    return names


def checked_seed(seed: int) -> int:
    """The seed, or a UserError that names --seed."""
    from recsim_mnar.rng import check_seed

    return check_seed(seed, "--seed")


def n_workers(given: int | None) -> int:
    """Number of threads: as many as processors unless given."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if given is not None:
        if not 1 <= given <= MOST_A_PROCESSOR * processors:
            raise UserError(
                f"--workers must lie in 1 .. {MOST_A_PROCESSOR * processors}, {MOST_A_PROCESSOR} for each processor, "
                f"got {given}"
            )
        return given
    return processors


def checked_file(path: Path, flag: str) -> None:
    """Raise UserError where a file of this name cannot be, before the work whose result it is to hold."""
    if path.is_dir():
        raise UserError(f"{flag} {path} is a folder: name a file")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise UserError(f"{flag} {path}: {above} is not a folder that can be written; name another file")
    try:
        os.lstat(above / path.name)
        tempfile.TemporaryFile(dir=above).close()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UserError(f"{flag} {path} cannot be written: {error.strerror}; name another file") from None


def new_file(path: Path, flag: str) -> None:
    """As :func:`checked_file`, and raise UserError where there is something already: no work is replaced unasked."""
    checked_file(path, flag)
    if path.exists():
        raise UserError(f"{flag} {path} exists: name another file, or remove it first")


@contextlib.contextmanager
def resumably(path: Path, flag: str, *, resume: bool, beside: Sequence[Path] = ()) -> Iterator[None]:
    """Make a file in the block, whose work is kept in a folder beside it until the file is there.

    Args:
        path: of a file that is not there, or that a run wrote which was killed before its end.
        flag: by which the user names it.
        resume: take up what an interrupted run left.
        beside: other files that are written with it.
    """
    from recsim_mnar.runs.stages import making, unfinished

    for each in (path, *beside):
        said = flag if each == path else f"{flag} {path}: its"
        (checked_file if resume and unfinished(path).exists() else new_file)(each, said)
    with making(path, resume=resume, beside=beside):
        yield


@contextlib.contextmanager
def writing(path: Path, flag: str) -> Iterator[None]:
    """Name the flag where writing its file fails."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{flag} {path} cannot be written: {error.strerror or error}; name another file") from error


class _Memory(click.ParamType):
    """A size, as what a process may take."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See :meth:`click.ParamType.convert`."""
        from recsim_mnar.kernels.memory import MemoryLimit, parse_size

        return value if isinstance(value, MemoryLimit) else MemoryLimit(parse_size(value, "--max-memory"))


def memory_option(command: Any) -> Any:
    """Add ``--max-memory`` to a command, handed to it as a :class:`recsim_mnar.kernels.memory.MemoryLimit`."""

    def given(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        from recsim_mnar.kernels.memory import MemoryLimit

        return value or MemoryLimit()

    return click.option(
        "--max-memory",
        type=_Memory(),
        default=None,
        callback=given,
        metavar="SIZE",
        help="Most memory of the process, such as 1GB; what takes more is refused.",
    )(command)


class WholeNumber(click.ParamType):
    """An integer; one written with a point or an exponent is refused with the digits to write in its place."""

    name = "integer"

    def cost_of(self, number: int) -> str:
        """What so many would cost, in brackets; "" where that is no question."""
        return ""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See :meth:`click.ParamType.convert`."""
        with contextlib.suppress(ValueError):
            return int(value)
        number = math.nan
        with contextlib.suppress(ValueError):
            number = float(value)
        right = "is not a whole number, such as 2000"
        if number.is_integer() and abs(number) < 1e18:
            right = f"must be written in digits: {int(number)}{self.cost_of(int(number))}"
        return self.fail(f"{value!r} {right}", param, ctx)


WHOLE = WholeNumber()


class NumberOfUsers(WholeNumber):
    """Users of a simulation."""

    def cost_of(self, number: int) -> str:
        """Events and bytes of the sessions world's presets: some 100 events, .2 kB a user."""
        return f" (in the sessions world some {100 * number:,} events, {number / 5e6:,.1f} GB)"


USERS = NumberOfUsers()


class Number(click.ParamType):
    """A number; what is none is refused with an example, infinities and NaN too."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See :meth:`click.ParamType.convert`."""
        number = math.nan
        with contextlib.suppress(ValueError, TypeError):
            number = float(value)
        if math.isfinite(number):
            return number
        hint = ": write a decimal point" if "," in str(value) else ""
        return self.fail(f"{value!r} is not a number, such as 0.95{hint}", param, ctx)


NUMBER = Number()


class NewPath(click.Path):
    """A path that is to be written; one that no file system takes is refused before any work.

    Args:
        as_text: hand it on as it was typed, for a slash at its end.
    """

    def __init__(self, *, as_text: bool = False) -> None:
        super().__init__(path_type=Path)
        self.as_text = as_text

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See :meth:`click.ParamType.convert`."""
        from recsim_mnar.runs.files import check_utf8

        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        check_utf8(path)
        flag = param.opts[0] if param is not None else "path"
        if not str(value).strip():
            raise UserError(f"{flag}: the path is empty; name one")
        if "\0" in str(path):
            raise UserError(f"{flag} {path}: a path has no NUL character in it; name another")
        longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
        if longest > _LONGEST_NAME or len(os.fsencode(path)) > _LONGEST_PATH:
            raise UserError(
                f"{flag} {path}: the path is too long: a name has at most {_LONGEST_NAME} bytes, a path {_LONGEST_PATH}"
            )
        return str(value) if self.as_text else path


_LONGEST_NAME, _LONGEST_PATH = 240, 4000  # temporary names have some bytes more
NEW_PATH = NewPath()
NEW_PLACE = NewPath(as_text=True)


class ReadPath(click.Path):
    """A path that is read; an empty one is no folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """See :meth:`click.ParamType.convert`."""
        if not str(value).strip():
            name = "path" if param is None else param.opts[0]
            raise UserError(f"{name if name.startswith('-') else name.upper()}: the path is empty; name one")
        return Path(os.fsdecode(super().convert(value, param, ctx)))


READ_PATH = ReadPath()


def clock() -> Callable[[], float]:
    """Seconds since now, when called."""
    began = time.perf_counter()
    return lambda: time.perf_counter() - began
