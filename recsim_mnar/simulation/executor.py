"""Work in shards of users, in order, on any executor."""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import itertools
import os
import pickle
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import whole_number
from recsim_mnar.plugins import own_folder

Columns = dict[str, NDArray[Any]]

SHARD_USERS = 1024
"""Users simulated as one unit of work. Results do not depend on it; memory and the overhead of a step do."""

MOST_USERS = 1 << 32
"""Of one log; a number above it is a slip of the keyboard, and would be noticed by what it does to memory."""

T = TypeVar("T")


def checked_users(name: str, n: Any) -> int:
    """Check a number of users; return it as an int.

    Raises:
        UserError: it is not a whole number from 1 to :data:`MOST_USERS`.
    """
    n_users = whole_number(n, name, 1)
    if n_users > MOST_USERS:
        raise UserError(f"{name} must be at most {MOST_USERS:,}, got {n:,}: simulate several logs of other seeds")
    return n_users


def user_shards(first_user: int, n_users: int, size: int | None = None) -> Iterator[tuple[int, int]]:
    """First user and number of users of consecutive shards of ``size`` users, :data:`SHARD_USERS` where None."""
    last = first_user + n_users
    size = size or SHARD_USERS
    for first in range(first_user, last, size):
        yield first, min(size, last - first)


def together(parts: list[Columns]) -> Columns:
    """Concatenate the rows of parts."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class Carried(Generic[T]):
    """Constant data of many jobs (a world, a fitted policy): pickled once, and loaded once by a process.

    In threads it is the object itself. Pickled, it is the path of a private temporary file and the digest of its bytes.

    Attributes:
        in_python: what is done with it holds the interpreter's lock for longer than a few threads can share.
    """

    def __init__(self, value: T, *, in_python: bool = False) -> None:
        self._value: Any = (value,)
        self._lock = threading.Lock()
        self._sent: tuple[str, str] | None = None
        self.in_python = in_python

    @property
    def value(self) -> T:
        """The object.

        Raises:
            OSError: the file has gone, or holds other bytes.
        """
        if self._value is None:
            path, digest = cast("tuple[str, str]", self._sent)
            self._value = (object_of(digest, Path(path).read_bytes),)
        return self._value[0]

    def pickled(self) -> bytes:
        """The object as bytes."""
        # Dask's pickler, where it is in use, knows classes of scripts, which workers cannot import.
        pickler: Any = sys.modules.get("cloudpickle", pickle)
        return pickler.dumps(self.value, protocol=5)

    def store(self) -> tuple[str, str]:
        """Write the file, for this user alone, where it is not written yet; return its path and digest."""
        with self._lock:  # executors pickle in threads of their own
            if self._sent is None:
                data = self.pickled()
                folder = tempfile.TemporaryDirectory(prefix="recsim-mnar-")
                weakref.finalize(self, folder.cleanup)
                path = Path(folder.name) / "carried"
                path.write_bytes(data)
                self._sent = str(path), hashlib.sha256(data).hexdigest()
            return self._sent

    def __reduce__(self) -> Any:
        return _received, (self._sent if self._value is None else self.store(),)


def carrying(function: Callable[..., T], *common: Any, in_python: bool = False) -> Callable[..., T]:
    """Return a function with its first arguments bound as :class:`Carried`; jobs are partials of it.

    Args:
        function: what is called.
        *common: its first arguments.
        in_python: see :class:`Carried`.
    """
    return functools.partial(_called, Carried((function, common), in_python=in_python))


def carried_by(job: Callable[..., Any]) -> list[Carried[Any]]:
    """Get the data that a job carries."""
    return [argument for argument in getattr(job, "args", ()) if isinstance(argument, Carried)]


def _called(carried: Carried[Any], *own: Any) -> Any:
    function, common = carried.value
    return function(*common, *own)


def _received(sent: tuple[str, str]) -> Carried[Any]:
    carried: Carried[Any] = Carried(None)
    carried._sent = sent
    carried._value = None
    return carried


_LOADED: collections.OrderedDict[str, Any] = collections.OrderedDict()
_LOADING = threading.Lock()
_MOST_LOADED = 4
"""Objects that a process keeps for jobs to come."""


def object_of(digest: str, read: Callable[[], bytes]) -> Any:
    """Return the object of a digest, unpickled unless cached; bytes of another digest are refused."""
    with _LOADING:
        if digest not in _LOADED:
            data = read()
            if hashlib.sha256(data).hexdigest() != digest:
                raise OSError(f"bytes of another digest than {digest}")
            with own_folder():
                _LOADED[digest] = pickle.loads(data)
            if len(_LOADED) > _MOST_LOADED:
                _LOADED.popitem(last=False)
        _LOADED.move_to_end(digest)
        return _LOADED[digest]


def executor_size(executor: Executor) -> int:
    """Get how many jobs an executor runs at a time: its own statement, else the number of processors."""
    client = getattr(executor, "_client", None)  # of Dask, whose cluster may grow
    with contextlib.suppress(AttributeError, TypeError):
        return max(1, sum(client.nthreads().values()))  # type: ignore[union-attr]  # None has none
    for name in ("_max_workers", "max_workers", "num_workers"):
        size = getattr(executor, name, None)
        if isinstance(size, int) and size > 0:
            return size
    return os.cpu_count() or 1


def check_executor(executor: Any) -> None:
    """Raise UserError for what is no executor, and not None."""
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise UserError(f"executor must be one of concurrent.futures, or None, got {executor!r}")


def run_in_order(jobs: Iterable[Callable[[], T]], executor: Executor | None) -> Iterator[T]:
    """Yield the results of jobs in order; at most a few are submitted at a time.

    On an executor of processes a job is pickled: it is best a ``functools.partial`` of what :func:`carrying` returns,
    with what only it needs.
    """
    check_executor(executor)
    if executor is None:
        for job in jobs:
            yield job()
        return
    pending: collections.deque[Future[T]] = collections.deque()
    jobs = iter(jobs)
    size = 0
    try:
        while True:
            if len(pending) <= size:
                # Up to twice what runs at a time, so that no worker waits; asked again, for a cluster may grow.
                size = executor_size(executor)
                more = itertools.islice(jobs, 2 * size + 1 - len(pending))
                pending.extend(executor.submit(job) for job in more)
            if not pending:
                return
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
