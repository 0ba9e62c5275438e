"""What several commands share."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from recsim_mnar.errors import UserError


def names_of(text: str, flag: str) -> list[str]:
    """Names that commas separate; a UserError that names the flag where there is none, or one twice."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UserError(f"{flag}: name at least one")
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
    if given is not None:
        if given < 1:
            raise UserError(f"--workers must be at least 1, got {given}")
        return given
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def clock() -> Callable[[], float]:
    """Seconds since now, when called."""
    began = time.perf_counter()
    return lambda: time.perf_counter() - began
