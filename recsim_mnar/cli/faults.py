"""Exceptions in one line: what the user got wrong, and what a policy of the user's own raised."""

from __future__ import annotations

import os

import click

from recsim_mnar.errors import UserError, described
from recsim_mnar.protocols.own_code import TRACEBACK, raised_by_own_code


def in_one_line(error: Exception) -> str | None:
    """What to tell of an exception; None where it is a fault of this package's, whose traceback is then of use."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, click.ClickException):
        return " ".join(error.format_message().split())
    own = raised_by_own_code(error)
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
