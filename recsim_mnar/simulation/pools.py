"""Pools of workers on this machine: threads, and processes where they pay."""

from __future__ import annotations

import contextlib
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, TypeVar

from recsim_mnar.errors import UserError
from recsim_mnar.plugins import look_in, own_folder_named
from recsim_mnar.simulation.executor import carried_by
from recsim_mnar.simulation.own_code import has_own_code, of_own_code

T = TypeVar("T")

FEW_THREADS = 3
"""Threads that share the interpreter well: this package's agents hold its lock for .3 to .4 of the time that they act
(``docs/cluster.md``), so that beyond these they wait for each other."""
PATIENCE = 3.0
"""Seconds that interrupted processes have to end."""
PAYS_AFTER = 5.0
"""CPU seconds of work in Python after which processes are started: what lasted so long may last as long again."""


class Pool(Executor):
    """Executor of threads, and of processes for jobs that hold the interpreter's lock.

    Compiled kernels run without the interpreter's lock, and threads start in no time and share memory. Work in Python
    (``in_python`` of :class:`recsim_mnar.simulation.executor.Carried`) goes to processes once it has lasted for as long
    as it takes to start them, if its jobs can be pickled. No result depends on it.
    """

    def __init__(self, n: int, *, pays_after: float = PAYS_AFTER) -> None:
        self._max_workers = n
        self._threads = ThreadPoolExecutor(n)
        self._processes: Executor | None = None
        self._pays_after = pays_after
        self._lock = threading.Lock()
        self._began: float | None = None

    @property
    def kind(self) -> str:
        """Name the executor that worked, for a record of the run."""
        if self._processes is None:
            return "threads"
        return "threads and processes"

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Implement :meth:`concurrent.futures.Executor.submit`."""
        if any(carried.in_python for carried in carried_by(fn)) and self._processes_pay(fn):
            assert self._processes is not None
            return self._processes.submit(run_job, fn, *args, **kwargs)
        return self._threads.submit(fn, *args, **kwargs)

    def _processes_pay(self, job: Callable[..., Any]) -> bool:
        with self._lock:
            if self._processes is not None:
                return True
            if self._max_workers <= FEW_THREADS and not has_own_code(*_carried(job)):
                return False
            if self._began is None:
                self._began = time.process_time()
            if time.process_time() - self._began < self._pays_after or not _can_travel(job):
                return False
            self._processes = _started(self._max_workers)
            return True

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Implement :meth:`concurrent.futures.Executor.shutdown`."""
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        if self._processes is not None:
            self._processes.shutdown(wait, cancel_futures=cancel_futures)


@contextlib.contextmanager
def pool(n: int) -> Iterator[Pool | None]:
    """A :class:`Pool` of ``n`` workers; None for one.

    Processes are started afresh (spawned), so a program that calls this needs ``if __name__ == "__main__"``.

    Raises:
        UserError: ``n`` is below 1.
    """
    if n < 1:
        raise UserError(f"the number of workers must be at least 1, got {n}")
    if n == 1:
        yield None
        return
    with Pool(n) as made:
        yield made


def processes(n: int) -> Any:
    """An executor of so many fresh processes; None where one suffices.

    Processes and not threads: agents learn in Python, which lets one thread at a time.
    """
    if n == 1:
        return contextlib.nullcontext()
    return _started(n)


class _Processes(ProcessPoolExecutor):
    """Pool of processes that is not waited for without end after an interrupt."""

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        interrupted = kind is not None and not issubclass(kind, Exception)
        ending = threading.Thread(target=self.shutdown, kwargs={"cancel_futures": interrupted}, daemon=True)
        ending.start()
        ending.join(PATIENCE if interrupted else None)


def _started(n: int) -> ProcessPoolExecutor:
    import multiprocessing

    return _Processes(
        n, mp_context=multiprocessing.get_context("spawn"), initializer=_begin, initargs=(own_folder_named(),)
    )


def _carried(job: Callable[..., Any]) -> Iterator[Any]:
    """List the data that a job carries, in lists and tables too.

    Agents and worlds of the user's own may be among it.
    """
    waiting = [carried.value[1] for carried in carried_by(job)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            value = tuple(value.values())
        if isinstance(value, (list, tuple)):
            waiting += value
        else:
            yield value


def _can_travel(job: Callable[..., Any]) -> bool:
    """Return whether a job can be pickled: an agent may hold what cannot, such as a lock or an open file."""
    try:
        for carried in carried_by(job):
            carried.store()
        pickle.dumps(job)
    except Exception:
        return False
    return True


def run_job(job: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Run a job in a process; turn errors of the user's own code into a UserError.

    Raises:
        UserError: an agent, a world or a protocol of the user's own raised an exception, or ended the process.
    """
    try:
        return job(*args, **kwargs)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        own_code = of_own_code(error)
        if own_code is None:
            raise
        raise UserError(own_code) from error


def _begin(folder: str | None) -> None:
    """In a worker: look for a user's own modules where its parent does, and end when that has gone, killed or not.

    A pool's own workers would wait for ever.
    """
    import multiprocessing
    import os

    look_in(folder)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
