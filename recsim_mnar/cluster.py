"""Workers of a Dask cluster as an executor."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import ipaddress
import logging
import pickle
import re
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass
from typing import Any, TypeVar

from recsim_mnar.errors import UserError, described
from recsim_mnar.runs.receipts import made_with
from recsim_mnar.simulation.executor import Carried, carried_by, object_of
from recsim_mnar.simulation.own_code import files_of, is_installed
from recsim_mnar.simulation.pools import run_job

T = TypeVar("T")

_ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9a-fA-F:.]+\]|[^\s:/@]+):(\d{1,5})")
_ANSWER_SECONDS = 8.0
"""Seconds within which a scheduler must answer and have a worker."""
_DOCS = "docs/cluster.md"


@dataclass(frozen=True)
class Requirements:
    """Requirements of a job on its worker.

    Attributes:
        versions: versions that the worker must have, by name.
        threads: number of threads for products of matrices, which decides the rounding of sums.
        modules: the user's modules by name, pickled.
    """

    versions: tuple[tuple[str, str], ...]
    threads: int
    modules: bytes


class ClusterExecutor(Executor):
    """Workers of a Dask cluster.

    Jobs are pickled with the user's code, which workers need not have. The common part of many jobs is a separate Dask
    task, so that each worker receives it once.
    """

    def __init__(self, client: Any, requirements: Requirements) -> None:
        self._client = client
        self._jobs = client.get_executor(pure=False)
        self._requirements = requirements
        self._shared: weakref.WeakKeyDictionary[Carried[Any], tuple[str, Any]] = weakref.WeakKeyDictionary()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Implement :meth:`concurrent.futures.Executor.submit`."""
        import cloudpickle

        common: tuple[str | None, Any] = (None, None)
        # A job that `carrying` has made is partial(call, carried, *arguments), any other carries nothing: the loop runs
        # once or never. The carried part is replaced by its Dask task, which _run_on_worker passes on as `common`.
        for carried in carried_by(fn):
            common = self._task_of_common_part(carried)
            fn = functools.partial(_call_with, *getattr(fn, "args", ())[1:])
        job = cloudpickle.dumps(functools.partial(fn, *args, **kwargs))
        done: Future[T] = self._jobs.submit(_run_on_worker, self._requirements, job, *common)
        return done

    def n_workers(self) -> int:
        """Return the current number of workers."""
        return len(self._client.nthreads())

    def _task_of_common_part(self, carried: Carried[Any]) -> tuple[str, Any]:
        """Return the digest of the jobs' common part, and the Dask task with its bytes."""
        if carried not in self._shared:
            data = carried.pickled()
            task = self._client.submit(bytes, data, pure=False)
            self._shared[carried] = hashlib.sha256(data).hexdigest(), task
        return self._shared[carried]


@contextlib.contextmanager
def cluster(
    address: str, *, modules: Iterable[str] = (), warn: Callable[[str], object] = warnings.warn
) -> Iterator[ClusterExecutor]:
    """Connect to a Dask scheduler whose workers do what this process would do, bit for bit.

    Args:
        address: ``tcp://HOST:PORT`` or ``tls://HOST:PORT`` of the scheduler. Anyone who reaches it can run code as the
            workers' user.
        modules: names of your loaded modules; they and their imports travel with jobs.
        warn: function for a warning about an unencrypted address of another host.

    Raises:
        UserError: Dask is not installed, no scheduler answers, it has no workers, a worker has other versions, or
            scheduler or workers were lost.
    """
    warning = check_address(address)
    if warning:
        warn(warning)
    client = _connect(address)
    versions = _versions()
    try:
        _check_workers(client, versions)
        with _pickled_by_value(modules) as pickled, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            yield ClusterExecutor(client, Requirements(tuple(versions.items()), _blas_threads(), pickled))
    except Exception as error:
        message = _message_on_loss(error, client, address)
        if not message:
            raise
        raise UserError(message) from error
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=2)


def check_address(address: str) -> str | None:
    """Return a warning about an unencrypted address of another host; None for other addresses.

    Raises:
        UserError: the address is invalid.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match[3]) < 1 << 16:
        # The message does not quote the address, which may contain a password.
        raise UserError("scheduler: write its address as tcp://HOST:PORT or tls://HOST:PORT, and nothing else in it")
    host = match[2].strip("[]")
    with contextlib.suppress(ValueError):  # a host name is no IP address
        if match[1] == "tls" or host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return None
    return (
        f"scheduler {address}: plain tcp:// to another host; all who reach its port, or the workers', run code as "
        f"their user: use tls:// ({_DOCS})"
    )


def _connect(address: str) -> Any:
    """Return a Dask client of the scheduler, once it has a worker.

    Raises:
        UserError: Dask is not installed, the scheduler does not answer, or it has no workers.
    """
    try:
        import threadpoolctl  # noqa: F401
        from distributed import Client
    except ImportError as error:
        line = f"a scheduler needs {error.name}, which is not installed: pip install 'recsim-mnar[cluster]'"
        raise UserError(line) from None
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("distributed"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # errors are reported below, in one line
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Dask warns of other versions, which _check_workers compares
            client = Client(address, timeout=_ANSWER_SECONDS, set_as_default=False, name="recsim-mnar")
    except Exception as error:
        raise UserError(f"scheduler {address}: no connection to it: {described(error)} ({_DOCS})") from error
    try:
        client.wait_for_workers(1, timeout=_ANSWER_SECONDS)
    except Exception as error:
        client.close(timeout=2)
        raise UserError(f"scheduler {address}: it has no workers: start some ({_DOCS})") from error
    return client


def _check_workers(client: Any, versions: dict[str, str]) -> None:
    """Raise UserError for the first worker that cannot load this package or has other versions.

    Workers that end meanwhile are left out; those that join later are checked by :func:`_prepare`.
    """
    from distributed.comm import CommClosedError

    for worker, answer in client.run(_versions, on_error="return").items():
        if isinstance(answer, CommClosedError):
            continue
        if isinstance(answer, Exception):
            raise UserError(f"worker {worker} cannot load recsim-mnar: {described(answer)}")
        _refuse_other_versions(worker, answer, versions)


def _refuse_other_versions(worker: str, there: dict[str, str], here: dict[str, str]) -> None:
    """Raise UserError for the first version of a worker (``there``) that differs from this process's (``here``)."""
    for name, version in here.items():
        if there.get(name) != version:
            raise UserError(f"worker {worker} differs: {name} {there.get(name)}, here {version}")


@contextlib.contextmanager
def _pickled_by_value(names: Iterable[str]) -> Iterator[bytes]:
    """Yield pickled modules that are not installed; within the block their contents are pickled by value."""
    import cloudpickle

    files = files_of(names)
    modules = {name: sys.modules[name] for name in files if name in sys.modules and not is_installed(files[name])}
    for module in modules.values():
        cloudpickle.register_pickle_by_value(module)
    try:
        yield cloudpickle.dumps(modules)
    finally:
        for module in modules.values():
            cloudpickle.unregister_pickle_by_value(module)


def _message_on_loss(error: Exception, client: Any, address: str) -> str:
    """Return the message for an error that means the loss of scheduler or workers; "" for other errors."""
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    if isinstance(error, KilledWorker):
        return (
            f"scheduler {address}: one job ended several workers, for want of memory perhaps: give them more, or "
            "fewer threads; --resume goes on"
        )
    if isinstance(error, (CommClosedError, CancelledError)) or client.status != "running":
        if isinstance(error, UserError):
            return ""
        return f"scheduler {address} was lost: start it again; --resume goes on"
    return ""


# ------------------------------------------------------------------------------------------------- on a worker


@functools.cache
def _versions() -> dict[str, str]:
    """Return everything that decides rounding: versions, and the processor that kernels are compiled for."""
    import llvmlite.binding as llvm

    return made_with() | {"processor": llvm.get_host_cpu_name()}


def _blas_threads() -> int:
    """Return the largest number of threads of the loaded BLAS libraries, which decides the rounding of sums."""
    import scipy.linalg  # noqa: F401  (loads SciPy's own BLAS, next to NumPy's)
    import threadpoolctl

    libraries = threadpoolctl.threadpool_info()
    return max((library["num_threads"] for library in libraries if library["user_api"] == "blas"), default=1)


def _call_with(*arguments: Any, common: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    """Call the function of the common part with the common arguments, followed by those of this job."""
    function, common_arguments = common
    return function(*common_arguments, *arguments)


@functools.lru_cache(maxsize=1)
def _prepare(requirements: Requirements) -> None:
    """Give this worker the settings of the process that submits jobs.

    It runs once per process, because of the cache.

    Raises:
        UserError: the worker has other versions; those that join after :func:`_check_workers` are checked only here.
    """
    import threadpoolctl
    from distributed import get_worker

    _refuse_other_versions(get_worker().address, _versions(), dict(requirements.versions))
    threadpoolctl.threadpool_limits(limits=requirements.threads, user_api="blas")
    sys.modules.update(pickle.loads(requirements.modules))


def _run_on_worker(requirements: Requirements, job: bytes, digest: str | None, common: bytes | None) -> Any:
    """Run a pickled job of :meth:`ClusterExecutor.submit` on a worker, and return its result.

    Args:
        requirements: requirements of the job.
        job: pickled call.
        digest: digest of the common part, under which a worker keeps the loaded object; None for a job without one.
        common: bytes of the common part; None for a job without one.
    """
    _prepare(requirements)
    call = pickle.loads(job)
    # A worker loads the common part once for all jobs with its digest.
    if digest is not None and common is not None:
        call = functools.partial(call, common=object_of(digest, lambda: common))
    return run_job(call)
