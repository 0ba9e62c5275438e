"""Exceptions in one line: what the user got wrong, and what a policy of the user's own raised."""

from __future__ import annotations

import os
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import click

from recsim_mnar.errors import UserError, described
from recsim_mnar.worlds.base import Lanes, World

TRACEBACK = "RECSIM_MNAR_TRACEBACK"
"""Environment variable: where it is set, an error's traceback is printed before its line."""


def in_one_line(error: Exception) -> str | None:
    """What to tell of an exception; None where it is a fault of this package's, whose traceback is then of use."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, click.ClickException):
        return " ".join(error.format_message().split())
    own = _raised_by_own_code(error)
    if own is not None:
        return own
    if isinstance(error, MemoryError):
        return f"not enough memory: ask for fewer users or items ({described(error)})"
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        return f"{error.filename or 'a file'}: {error.strerror or error}"
    return None


def wants_traceback() -> bool:
    """Whether the user asks for tracebacks."""
    return bool(os.environ.get(TRACEBACK))


def _raised_by_own_code(error: Exception) -> str | None:
    """Policy, method and exception, where it came out of a policy, learner or world that is not this package's."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        method = _own_method(trace.tb_frame)
        if method is not None:
            where = f"{Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno}"
            return f"{method} raised {described(error)} ({where}; {TRACEBACK}=1 shows the traceback)"
        trace = trace.tb_next
    return None


def _own_method(frame: FrameType) -> str | None:
    """The method of a policy, learner or world that a frame runs, unless the code is this package's."""
    if (str(frame.f_globals.get("__name__")) + ".").startswith("recsim_mnar."):
        return None
    from recsim_mnar.policy.adapting import role_of

    actor: Any = frame.f_locals.get("self")
    what = "world" if isinstance(actor, (World, Lanes)) else role_of(actor)
    if what is None:
        return None
    kind = type(actor)
    return f"{what} '{kind.__module__}:{kind.__qualname__}': its {frame.f_code.co_name}()"
