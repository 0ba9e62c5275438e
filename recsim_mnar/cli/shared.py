"""What several commands share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

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
        return given
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def clock() -> Callable[[], float]:
    """Seconds since now, when called."""
    began = time.perf_counter()
    return lambda: time.perf_counter() - began
