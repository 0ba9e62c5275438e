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
"""Largest number of users of one log: a larger one is a typing error, which would exhaust the memory."""

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
    """Yield (first user, number of users) of consecutive shards of ``size`` users; None for :data:`SHARD_USERS`."""
    stop = first_user + n_users
    if size is None:
        size = SHARD_USERS
    for first in range(first_user, stop, size):
        yield first, min(size, stop - first)


def concatenate_tables(parts: list[Columns]) -> Columns:
    """Concatenate the rows of tables with the same columns."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class Carried(Generic[T]):
    """Constant data of many jobs, such as a world or a fitted policy, pickled once and loaded once per process.

    Threads share the object itself. Its pickled form is the path of a private temporary file with the object's bytes,
    and their digest.

    Attributes:
        in_python: True if jobs with it run in Python, holding the interpreter's lock, for most of their time.
    """

    def __init__(self, value: T, *, in_python: bool = False) -> None:
        self._value: Any = (value,)  # in a tuple, because the object may be None; None itself means "not loaded yet"
        self._lock = threading.Lock()
        self._sent: tuple[str, str] | None = None  # path and digest of the file; None before it is written
        self.in_python = in_python

    @property
    def value(self) -> T:
        """Return the object, which a process reads from its file on first use.

        Raises:
            OSError: the file is missing, or holds other bytes.
        """
        if self._value is None:
            path, digest = cast("tuple[str, str]", self._sent)
            self._value = (object_of(digest, Path(path).read_bytes),)
        return self._value[0]

    def pickled(self) -> bytes:
        """Return the object as bytes."""
        # cloudpickle, loaded if Dask is in use, pickles classes of a script, which workers cannot import, by value.
        pickler: Any = sys.modules.get("cloudpickle", pickle)
        return pickler.dumps(self.value, protocol=5)

    def store(self) -> tuple[str, str]:
        """Write the file, readable by this user only, unless it is written; return its path and digest."""
        with self._lock:  # executors pickle jobs in threads of their own
            if self._sent is None:
                data = self.pickled()
                folder = tempfile.TemporaryDirectory(prefix="recsim-mnar-")
                weakref.finalize(self, folder.cleanup)
                path = Path(folder.name) / "carried"
                path.write_bytes(data)
                self._sent = str(path), hashlib.sha256(data).hexdigest()
            return self._sent

    def __reduce__(self) -> Any:
        if self._value is None:  # this process has not loaded the object: pass on the file that it came from
            return _received, (self._sent,)
        return _received, (self.store(),)


def carrying(function: Callable[..., T], *common: Any, in_python: bool = False) -> Callable[..., T]:
    """Return ``function`` with its first arguments bound as :class:`Carried`; jobs are partials of the result.

    Args:
        function: function that does a job.
        *common: first arguments of every call, constant over all jobs.
        in_python: True if the function runs in Python, holding the interpreter's lock, for most of its time.
    """
    return functools.partial(_called, Carried((function, common), in_python=in_python))


def carried_by(job: Callable[..., Any]) -> list[Carried[Any]]:
    """Return the :class:`Carried` arguments of a job made by :func:`carrying`."""
    return [argument for argument in getattr(job, "args", ()) if isinstance(argument, Carried)]


def _called(carried: Carried[Any], *own: Any) -> Any:
    """Call a carried function with its carried first arguments, then the arguments of one job."""
    function, common = carried.value
    return function(*common, *own)


def _received(sent: tuple[str, str]) -> Carried[Any]:
    """Make a :class:`Carried` whose object is loaded on first use, from the path and digest of its file."""
    carried: Carried[Any] = Carried(None)
    carried._sent = sent
    carried._value = None
    return carried


_LOADED: collections.OrderedDict[str, Any] = collections.OrderedDict()
_LOADING = threading.Lock()
_MOST_LOADED = 4
"""Number of objects that a process keeps for later jobs; the least recently used one goes first."""


def object_of(digest: str, read: Callable[[], bytes]) -> Any:
    """Return the unpickled object of a digest from the cache, or from the bytes that ``read`` returns.

    Raises:
        OSError: the bytes have another digest.
    """
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
    """Return the number of jobs that an executor runs at a time; the number of processors if it does not state it."""
    client = getattr(executor, "_client", None)  # Dask's, whose cluster may grow
    with contextlib.suppress(AttributeError, TypeError):
        return max(1, sum(client.nthreads().values()))  # type: ignore[union-attr]  # None has none
    for name in ("_max_workers", "max_workers", "num_workers"):
        size = getattr(executor, name, None)
        if isinstance(size, int) and size > 0:
            return size
    return os.cpu_count() or 1


def check_executor(executor: Any) -> None:
    """Raise UserError unless the argument is an executor or None."""
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise UserError(f"executor must be one of concurrent.futures, or None, got {executor!r}")


def run_in_order(jobs: Iterable[Callable[[], T]], executor: Executor | None) -> Iterator[T]:
    """Yield the results of jobs in their order, with a few jobs submitted ahead.

    An executor of processes pickles each job: let it be a ``functools.partial`` of a function of :func:`carrying`, so
    that only the job's own arguments are sent with it.
    """
    check_executor(executor)
    if executor is None:
        for job in jobs:
            yield job()
        return
    pending: collections.deque[Future[T]] = collections.deque()
    jobs = iter(jobs)
    size = 0  # so that the first pass submits jobs
    try:
        while True:
            if len(pending) <= size:
                # Twice as many as run at a time, so that no worker waits. The size is read again: a cluster may grow.
                size = executor_size(executor)
                new_jobs = itertools.islice(jobs, 2 * size + 1 - len(pending))
                pending.extend(executor.submit(job) for job in new_jobs)
            if not pending:
                return
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
