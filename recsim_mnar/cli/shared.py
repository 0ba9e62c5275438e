"""What several commands share."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
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


@contextlib.contextmanager
def writing(path: Path, flag: str) -> Iterator[None]:
    """Name the flag where writing its file fails."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{flag} {path} cannot be written: {error.strerror or error}; name another file") from error


class WholeNumber(click.ParamType):
    """An integer; one written with a point or an exponent is refused with the digits to write in its place."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See :meth:`click.ParamType.convert`."""
        with contextlib.suppress(ValueError):
            return int(value)
        number = math.nan
        with contextlib.suppress(ValueError):
            number = float(value)
        right = "is not a whole number, such as 2000"
        if number.is_integer() and abs(number) < 1e18:
            right = f"must be written in digits: {int(number)}"
        return self.fail(f"{value!r} {right}", param, ctx)


WHOLE = WholeNumber()


def clock() -> Callable[[], float]:
    """Seconds since now, when called."""
    began = time.perf_counter()
    return lambda: time.perf_counter() - began
