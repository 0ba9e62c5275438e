"""Progress of work: code counts its units, and a watcher is notified."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

Thing = TypeVar("Thing")


class Watcher(Protocol):
    """Receiver of progress, such as a progress bar."""

    def begins(self, total: int, unit: str) -> None:
        """Note that work of ``total`` units begins; ``unit`` is their name in the plural."""

    def advance(self, amount: int) -> None:
        """Note that ``amount`` further units are done."""


class _Watched:
    """State of the outermost counted work.

    Attributes:
        watcher: receiver of the progress.
        left: number of units to do; 0 between two works.
    """

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
    """Begin counted work, and return a function to call with each number of units that is done.

    Only the outermost work is reported: within it, or without a watcher, the returned function does nothing.

    Args:
        total: number of units of the work.
        unit: name of the units in the plural, such as ``rows``.
    """
    watched = _watched.get()
    if watched is None or watched.left > 0 or total < 1:
        return lambda amount: None
    watched.left = total
    watched.watcher.begins(total, unit)
    return watched.advance


def counting(things: Sequence[Thing], unit: str) -> Iterator[Thing]:
    """Yield things and count each one when the next is requested; after a ``break`` the rest are counted, too.

    So the work always reaches its total, and the next work can begin.
    """
    advance = counted(len(things), unit)
    left = len(things)
    try:
        for thing in things:
            yield thing
            advance(1)
            left -= 1
    finally:
        if left:
            advance(left)
