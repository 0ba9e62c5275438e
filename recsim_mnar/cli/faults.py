"""Exceptions in one line: what the user got wrong, and what a policy of the user's own raised."""

from __future__ import annotations

import os
from concurrent.futures import BrokenExecutor

import click

from recsim_mnar.errors import UserError, described
from recsim_mnar.simulation.own_code import TRACEBACK, raised_by_own_code


def in_one_line(error: Exception) -> str | None:
    """What to tell of an exception; None where it is a fault of this package's, whose traceback is then of use."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, click.ClickException):
        return _usage(error)
    own = raised_by_own_code(error)
    if own is not None:
        return own
    if isinstance(error, BrokenExecutor):
        return "a worker process was ended from outside, for want of memory perhaps: name fewer --workers"
    if isinstance(error, MemoryError):
        return f"not enough memory: ask for fewer users or items ({described(error)})"
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        return f"{error.filename or 'a file'}: {error.strerror or error}"
    return None


def _usage(error: click.ClickException) -> str:
    """What is wrong with a command line, and where its help stands."""
    context = getattr(error, "ctx", None)
    where = f"`{context.command_path} --help` shows how" if context is not None else ""
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and context is not None:
        return f"name one of {', '.join(context.command.list_commands(context))} ({where})"
    text = " ".join(error.format_message().split())
    bare = isinstance(error, click.MissingParameter) or "unexpected extra argument" in text
    return f"{text.removesuffix('.')} ({where})" if bare and where else text


def wants_traceback() -> bool:
    """Whether the user asks for tracebacks."""
    return bool(os.environ.get(TRACEBACK))
