"""cluster(address): a Dask scheduler's workers as an executor, each of which has been found to be like this process."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from recsim_mnar.cluster.greeting import Greeting, RefusedError, answer, greeting, read_back, working
from recsim_mnar.errors import UserError, described
from recsim_mnar.simulation.executor import Carried, carried_by

T = TypeVar("T")

_ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9a-fA-F:.]+\]|[^\s:/@]+):(\d{1,5})")
_ANSWER_SECONDS = 30.0
"""Until a scheduler, and its first worker, must have answered."""
_LOOK_SECONDS = 300.0
"""Until a worker must have said what it is like: it may have to compile kernels for that."""
EXTRA = "pip install 'recsim-mnar[cluster]'"
_BESIDE = ("dask", "distributed", "threadpoolctl")


class ClusterExecutor(Executor):
    """Workers of a Dask cluster; what their jobs share lies in the folder that all share."""

    def __init__(self, client: Any, asked: Greeting) -> None:
        self._client = client  # whose size :func:`recsim_mnar.simulation.executor.executor_size` asks for
        self._jobs = client.get_executor(pure=False)
        self._folder = Path(asked.folder) if asked.writes and asked.folder else None
        self._greeting = Carried(asked)
        self._greeting.store(self._folder)
        self._greeting.inline = self._folder is None
        self.kind = "cluster"

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """See :meth:`concurrent.futures.Executor.submit`."""
        for carried in carried_by(fn):
            carried.store(self._folder)
        done: Future[T] = self._jobs.submit(working, self._greeting, fn, *args, **kwargs)
        return done

    def peaks(self) -> dict[str, int]:
        """Bytes of memory that each worker has held at most since it was started."""
        from recsim_mnar.runs.versions import peak_memory

        found: dict[str, int] = self._client.run(peak_memory)
        return found


@contextlib.contextmanager
def cluster(
    address: str,
    folder: str | Path | None = None,
    *,
    modules: Iterable[str] = (),
    files: Mapping[str, str] | None = None,
    warn: Callable[[str], object] = warnings.warn,
) -> Iterator[ClusterExecutor]:
    """The workers of a Dask scheduler, each of which has been found to be like this process, as an executor.

    Each must have the same versions of this package (its sources, too), of NumPy, SciPy, Numba and PyArrow, give the
    same bits for a little work, and see ``folder``. One that differs is refused, and with it the run; so is one that
    joins later. What workers do is what this process would do, bit for bit.

    Args:
        address: ``tcp://HOST:PORT`` or ``tls://HOST:PORT`` of the scheduler. Whoever reaches it can run code as the
            workers' user.
        folder: that all workers share; what jobs have in common lies there meanwhile.
        modules: of your own, by name, loaded; they and what they import travel.
        files: digests of files that workers read, by name.
        warn: told of a plain address off this host.

    Raises:
        UserError: Dask is not installed; nobody answers; there is no worker; one differs (:class:`RefusedError`); or
            in the end, scheduler or workers were lost for good.
    """
    plain = check_address(address)
    _check_installed()
    if plain:
        warn(plain)
    client = _client(address)
    try:
        with greeting(None if folder is None else Path(folder), modules, dict(files or {})) as asked:
            _look_at_all(client, asked)
            yield ClusterExecutor(client, asked)
    except Exception as error:
        lost = _lost(error, address)
        if lost is None:
            raise
        raise UserError(lost) from error
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=5)


def check_address(address: str) -> str | None:
    """A warning of an address that is plain and off this host; None for others.

    Raises:
        UserError: it is none.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found[3]) < 1 << 16:
        raise UserError(f"scheduler {address!r}: write it as tcp://HOST:PORT or tls://HOST:PORT")
    if found[1] == "tls" or _is_here(found[2].strip("[]")):
        return None
    return (
        f"scheduler {address}: plain tcp:// to another host; whoever reaches its port, or the workers', runs code as "
        "their user: use tls:// (docs/cluster.md)"
    )


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_installed() -> None:
    for name in _BESIDE:
        try:
            version(name)
        except PackageNotFoundError:
            raise UserError(f"a scheduler needs {name}, which is not installed: {EXTRA}") from None


def _client(address: str) -> Any:
    from distributed import Client

    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what is lost is said here, in one line
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions, which are compared here
            client = Client(address, timeout=_ANSWER_SECONDS, set_as_default=False, name="recsim-mnar")
    except Exception as error:  # TypeError and ValueError of tls:// without certificates, OSError of its connections
        reason = "nobody answers there" if isinstance(error, OSError) else described(error)
        raise UserError(f"scheduler {address}: {reason}; start one (docs/cluster.md)") from error
    try:
        client.wait_for_workers(1, timeout=_ANSWER_SECONDS)
    except Exception as error:
        with contextlib.suppress(Exception):
            client.close(timeout=5)
        raise UserError(f"scheduler {address} has no workers: start some (docs/cluster.md)") from error
    return client


def _look_at_all(client: Any, asked: Greeting) -> None:
    """Ask every worker what it is like. One that is lost meanwhile is passed over: what follows it is asked later.

    Raises:
        RefusedError: one differs.
    """
    # First what can be asked of a worker that knows nothing of this package.
    for name, here in asked.versions.items():
        if name not in ("sources", "python", "machine"):
            for worker, there in client.run(version, name, on_error="return").items():
                if isinstance(there, Exception) and not isinstance(there, PackageNotFoundError):
                    continue  # it was lost at this moment
                if there != here:
                    there = "not installed" if isinstance(there, Exception) else there
                    raise RefusedError(f"worker {worker} differs: {name} {there}, here {here}")
    once = {"allow_other_workers": False, "pure": False}
    looks = {worker: client.submit(answer, asked, workers=[worker], **once) for worker in client.nthreads()}
    refusals = [line for worker, look in looks.items() if (line := _refusal(client, worker, look, asked))]
    if refusals:
        more = f" (and {len(refusals) - 1} more of {len(looks)} workers)" if len(refusals) > 1 else ""
        raise RefusedError(refusals[0] + more)


def _refusal(client: Any, worker: str, look: Any, asked: Greeting) -> str | None:
    """Why a worker is refused, by its answer; None for one that is like this process, or was lost."""
    end = time.monotonic() + _LOOK_SECONDS
    while True:
        try:
            found = look.result(timeout=1.0)
            break
        except Exception as error:
            if worker not in client.nthreads():
                look.cancel()
                return None
            if not isinstance(error, TimeoutError) or time.monotonic() > end:
                return f"worker {worker} does not say what it is like: {described(error)}"
    wrong = found.differences + read_back(asked, found)
    return f"worker {worker} ({found.process}) differs: {'; '.join(wrong)}" if wrong else None


def _lost(error: Exception, address: str) -> str | None:
    """What became of scheduler or workers, where an exception says that they were lost."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError
    from distributed.comm import CommClosedError

    if isinstance(error, KilledWorker):
        return (
            f"scheduler {address}: one job ended several workers, for want of memory perhaps: give them more, or "
            "fewer threads; --resume goes on"
        )
    if isinstance(error, (CommClosedError, CancelledError, FutureCancelledError)):
        return f"scheduler {address} was lost: start it again; --resume goes on"
    return None
