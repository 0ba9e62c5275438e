"""Work in shards: what is done for a few users at a time, in their order, on any executor."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from recsim_mnar.errors import UserError

SHARD_USERS = 1024
"""Users simulated as one unit of work. Results do not depend on it; memory and the overhead of a step do."""

MOST_USERS = 1 << 32
"""Of one log; a number above it is a slip of the keyboard, and would be noticed by what it does to memory."""

T = TypeVar("T")


def checked_users(name: str, n: Any) -> int:
    """A number of users as an int.

    Raises:
        UserError: it is not a whole number from 1 to :data:`MOST_USERS`.
    """
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise UserError(f"{name} must be a whole number of at least 1, got {n}")
    if n > MOST_USERS:
        raise UserError(f"{name} must be at most {MOST_USERS:,}, got {n:,}: simulate several logs of other seeds")
    return int(n)


def user_shards(first_user: int, n_users: int) -> Iterator[tuple[int, int]]:
    """First user and number of users of consecutive shards of at most :data:`SHARD_USERS` users."""
    last = first_user + n_users
    for first in range(first_user, last, SHARD_USERS):
        yield first, min(SHARD_USERS, last - first)


def run_in_order(jobs: Iterable[Callable[[], T]], executor: Executor | None) -> Iterator[T]:
    """Results of jobs in their order; at most a few are under way or waiting, whatever their number."""
    if executor is None:
        for job in jobs:
            yield job()
        return
    ahead = 2 * (getattr(executor, "_max_workers", None) or 8)
    pending: collections.deque[Future[T]] = collections.deque()
    try:
        for job in jobs:
            pending.append(executor.submit(job))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


@contextlib.contextmanager
def workers(n: int | None) -> Iterator[Executor | None]:
    """An executor of ``n`` threads (the kernels run without the interpreter's lock); None for one worker.

    Raises:
        UserError: ``n`` is below 1.
    """
    if n is not None and n < 1:
        raise UserError(f"the number of workers must be at least 1, got {n}")
    if n is None or n == 1:
        yield None
        return
    with ThreadPoolExecutor(n) as executor:
        yield executor
