"""Progress of work: code counts its units, and a watcher is notified."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

Thing = TypeVar("Thing")


class Watcher(Protocol):
    """Receives progress."""

    def begins(self, total: int, unit: str) -> None:
        """Begin work of this many units."""

    def advance(self, amount: int) -> None:
        """Count units just done."""


class _Watched:
    """The outermost work under way, and its watcher."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.left = 0

    def advance(self, amount: int) -> None:
        self.left -= amount
        self.watcher.advance(amount)


_watched: contextvars.ContextVar[_Watched | None] = contextvars.ContextVar("watched", default=None)


@contextlib.contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Report work that is counted in this thread to ``watcher`` within the block."""
    before = _watched.set(_Watched(watcher))
    try:
        yield
    finally:
        _watched.reset(before)


def counted(total: int, unit: str) -> Callable[[int], None]:
    """Begin work of ``total`` units, and return a function to call with the units just done.

    Work within other counted work is not reported.
    """
    watched = _watched.get()
    if watched is None or watched.left > 0 or total < 1:
        return lambda amount: None
    watched.left = total
    watched.watcher.begins(total, unit)
    return watched.advance


def counting(things: Sequence[Thing], unit: str) -> Iterator[Thing]:
    """Yield things and count each when it is done; a ``break`` counts the rest, too."""
    done = counted(len(things), unit)
    left = len(things)
    try:
        for thing in things:
            yield thing
            done(1)
            left -= 1
    finally:
        if left:
            done(left)
