"""Progress of work: the worker counts, a watcher is notified."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

Thing = TypeVar("Thing")


class Watcher(Protocol):
    """Receives how far work has come."""

    def begins(self, total: int, unit: str) -> None:
        """Work of so many units begins."""

    def advance(self, amount: int) -> None:
        """So many more units are done."""


class _Watched:
    """Work that is watched: of work within work the outermost."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.left = 0

    def advance(self, amount: int) -> None:
        self.left -= amount
        self.watcher.advance(amount)


_watched: contextvars.ContextVar[_Watched | None] = contextvars.ContextVar("watched", default=None)


@contextlib.contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Within the block ``watcher`` receives work that is counted in this thread."""
    before = _watched.set(_Watched(watcher))
    try:
        yield
    finally:
        _watched.reset(before)


def counted(total: int, unit: str) -> Callable[[int], None]:
    """Say that work of ``total`` units begins; call what is returned with the units that were done since.

    Where other work that was counted is under way, of which this is a part, there is no notice.
    """
    watched = _watched.get()
    if watched is None or watched.left > 0 or total < 1:
        return lambda amount: None
    watched.left = total
    watched.watcher.begins(total, unit)
    return watched.advance


def counting(things: Sequence[Thing], unit: str) -> Iterator[Thing]:
    """The things one after another, each counted when it is done; those that a ``break`` leaves out are counted too."""
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
