"""Pools of workers on this machine: threads, and processes for long work in Python."""

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
"""Number of threads up to which threads suffice for this package's agents: they hold the interpreter's lock for 0.3 to
0.4 of the time (``docs/cluster.md``), so that more threads wait for each other."""
PATIENCE = 3.0
"""Seconds that interrupted processes have to end."""
PAYS_AFTER = 5.0
"""CPU seconds of work in Python after which processes are started: work that has lasted so long is likely to last
longer than it takes to start them."""


class Pool(Executor):
    """Executor of threads that moves to processes when jobs spend long in Python.

    Threads start at once, share memory, and run compiled kernels without the interpreter's lock. Jobs in Python, which
    hold it (``in_python`` of :class:`recsim_mnar.simulation.executor.Carried`), go to processes once such jobs have
    taken ``pays_after`` seconds, if they can be pickled. Results do not depend on it.

    Args:
        n: number of workers, at least 2.
        pays_after: CPU seconds from the first job in Python to the start of processes.
    """

    def __init__(self, n: int, *, pays_after: float = PAYS_AFTER) -> None:
        self._max_workers = n
        self._threads = ThreadPoolExecutor(n)
        self._processes: Executor | None = None
        self._pays_after = pays_after
        self._lock = threading.Lock()
        self._began: float | None = None  # CPU time of the first job in Python

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
        """Return whether a job in Python should go to processes, and start them when the first one should."""
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
    """Open a :class:`Pool` of ``n`` workers as a context; its value is None if n is 1.

    Processes are spawned and import the main module, so a program that calls this needs ``if __name__ == "__main__"``.

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
    """Open an executor of n new processes as a context; its value is None if n is 1.

    Threads would not do: agents are fitted in Python, which one thread runs at a time.
    """
    if n == 1:
        return contextlib.nullcontext()
    return _started(n)


class _Processes(ProcessPoolExecutor):
    """Pool of processes whose context ends within a few seconds after an interrupt, such as Ctrl-C."""

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        # An interrupt is a BaseException that is no Exception. Shutting down may block, so a thread does it.
        interrupted = kind is not None and not issubclass(kind, Exception)
        ending = threading.Thread(target=self.shutdown, kwargs={"cancel_futures": interrupted}, daemon=True)
        ending.start()
        ending.join(PATIENCE if interrupted else None)


def _started(n: int) -> ProcessPoolExecutor:
    """Return a pool of n spawned processes that find a user's own modules."""
    import multiprocessing

    return _Processes(
        n, mp_context=multiprocessing.get_context("spawn"), initializer=_begin, initargs=(own_folder_named(),)
    )


def _carried(job: Callable[..., Any]) -> Iterator[Any]:
    """Yield the constant arguments of a job, and the elements of lists, tuples and dictionaries among them.

    Agents and worlds of a user's own may be among these.
    """
    waiting = [carried.value[1] for carried in carried_by(job)]  # value: (function, constant arguments)
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            value = tuple(value.values())
        if isinstance(value, (list, tuple)):
            waiting += value
        else:
            yield value


def _can_travel(job: Callable[..., Any]) -> bool:
    """Return whether a job can be pickled: an agent may hold a lock or an open file, which cannot."""
    try:
        for carried in carried_by(job):
            carried.store()
        pickle.dumps(job)
    except Exception:
        return False
    return True


def run_job(job: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Run a job in a worker process, and turn errors of the user's own code into a UserError.

    Raises:
        UserError: an agent, world or protocol of the user's own raised an exception, or tried to end the process.
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
    """Initialise a worker process: find a user's modules in ``folder``, and end when the parent process ends.

    Without the latter, workers of a killed parent would wait for ever.
    """
    import multiprocessing
    import os

    look_in(folder)
    parent = multiprocessing.parent_process()

    def exit_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
