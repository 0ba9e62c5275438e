"""Workers of a Dask cluster as an executor: each is found to be like this process before it works."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import hashlib
import importlib.util
import ipaddress
import itertools
import logging
import os
import re
import shutil
import ssl
import sys
import tempfile
import threading
import time
import warnings
import weakref
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from recsim_mnar.errors import UserError, described
from recsim_mnar.kernels.memory import peak_memory
from recsim_mnar.runs.receipts import file_digest, made_with
from recsim_mnar.simulation.executor import carried_by, forget_loaded
from recsim_mnar.simulation.own_code import files_of, is_installed
from recsim_mnar.simulation.pools import said_here

T = TypeVar("T")

_ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9a-fA-F:.]+\]|[^\s:/@]+):(\d{1,5})")
_ANSWER_SECONDS = 8.0
"""Until a scheduler, its first worker, or a worker that is asked must have answered; and for how long a run waits for
workers that have all gone."""
_SILENT_SECONDS = 12.0
"""After which a worker that is still loading, and a scheduler or worker without a sign of life, is named."""
_LOAD_SECONDS = 120.0
"""Until a worker that answers must have loaded this package."""
_LOST_SECONDS = 300.0
"""For how long a run waits for a silent scheduler; Dask itself gives up a silent worker then (its ``worker-ttl``)."""
_NOBODY = "who works"
_LOADING = "from recsim_mnar import cluster; cluster.made_with(); cluster.processor()"
_DOCS = "docs/cluster.md"
_THIS = os.urandom(16).hex()
"""This process; hosts may have names, and processes numbers, in common."""


class RefusedError(UserError):
    """A worker differs from the process that it was to work for."""


class LostError(RefusedError):
    """All workers that were asked ended instead of answering."""


@dataclass(frozen=True)
class Asked:
    """Requirements on a worker, and the modules it was sent.

    Attributes:
        like: versions, processor, digests of installed modules and of files, by name.
        blas: threads in which products of matrices are computed, which decide how their sums round.
        sent: digests of the modules that travel, by name.
        archive: sha256 of the file in which they do, and its name.
        process: who asks.
    """

    like: dict[str, str]
    blas: int
    sent: dict[str, str] = field(default_factory=dict)
    archive: str = ""
    process: str = _THIS


class ClusterExecutor(Executor):
    """Workers of a Dask cluster; what many jobs need is a file in ``folder``, or travels where a worker sees none."""

    kind = "cluster"

    def __init__(self, dask: Any, asked: Asked, folder: Path | None, warn: Callable[[str], object]) -> None:
        self._dask, self._jobs = dask, dask.get_executor(pure=False)
        self._asked, self._folder, self._warn = asked, folder, warn
        self._under_way: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self.ended, self.why, self.stored = threading.Event(), "", set[str]()
        there = _known(dask)
        self.max_workers = sum(each["nthreads"] for each in there.values())
        _made_ready(dask, asked, there, warn)
        self._met = {*there}
        dask.subscribe_topic("all", self._heard)
        threading.Thread(target=self._watch, daemon=True).start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """See :meth:`concurrent.futures.Executor.submit`."""
        for carried in carried_by(fn):
            self.stored.add(carried.store(self._folder)[0])
        done: Future[T] = self._jobs.submit(working, self._asked, fn, *args, **kwargs)
        self._under_way.add(done)
        return done

    def _watch(self) -> None:
        """Name what is silent, and cancel what is under way where nobody will do it: Dask waits without a word."""
        scheduler, named = f"scheduler {self._dask.scheduler.addr}", set[str]()
        last: dict[str, tuple[object, float]] = {}  # what was last heard of each, and since when
        while not self.ended.wait(1.0):
            now = time.monotonic()
            signs: dict[str, object] = {scheduler: None}
            with contextlib.suppress(Exception):  # it is silent; or lost, which Dask says to each job
                signs = {scheduler: now} | self._signs()
            same = {name for name, sign in signs.items() if name in last and last[name][0] == sign}
            last = {name: last[name] if name in same else (sign, now) for name, sign in signs.items()}
            now = time.monotonic()  # some seconds later, if there was no answer
            late = {name for name, (_, since) in last.items() if now - since > _SILENT_SECONDS}
            for name in late - named:
                self._warn(f"{name} is silent: waiting for it, for 5 minutes at most (a worker: Dask's worker-ttl)")
            named = late
            if now - last.get(_NOBODY, ("", now))[1] > _ANSWER_SECONDS:
                self.why = f"{scheduler} has no workers left: start some; --resume goes on"
            if now - last[scheduler][1] > _LOST_SECONDS:
                self.why = f"{scheduler} was lost: start it again; --resume goes on"
            if self.why:
                for future in list(self._under_way):
                    future.cancel()

    def _signs(self) -> dict[str, Any]:
        """The last sign of life of each worker, or that there is none; those that are new are met."""
        there = _known(self._dask)
        self.max_workers = sum(each["nthreads"] for each in there.values())
        new = there.keys() - self._met
        self._met |= new
        if new:
            threading.Thread(target=self.meet, args=(new,), daemon=True).start()
        return {f"worker {name}": each["last_seen"] for name, each in there.items()} or {_NOBODY: None}

    def _heard(self, event: tuple[float, Mapping[str, Any]]) -> None:
        """Name a worker that was lost; it may have come and gone unmet, ended by the job that it was given."""
        if event[1].get("action") == "remove-worker" and not event[1].get("expected"):
            self._warn(f"worker {event[1]['worker']} has gone (see what it printed): others do what it had to do")

    def meet(self, new: Iterable[str]) -> None:
        """Find out why the run must end, if one of these workers differs; one that has gone again is no hindrance."""
        try:
            _made_ready(self._dask, self._asked, new, self._warn)
        except LostError as error:
            self._warn(str(error))
        except RefusedError as error:
            self.why = f"{error}; --resume goes on"

    def peaks(self) -> dict[str, int]:
        """Bytes of memory that each worker has held at most since it was started."""
        found: dict[str, Any] = {}
        with contextlib.suppress(UserError):  # the work is done
            found = _answers(self._dask, _known(self._dask), _ANSWER_SECONDS, peak_memory)
        return {worker: peak for worker, peak in found.items() if isinstance(peak, int)}


@contextlib.contextmanager
def cluster(
    address: str,
    folder: str | Path | None = None,
    *,
    modules: Iterable[str] = (),
    files: Mapping[str, str] | None = None,
    warn: Callable[[str], object] = warnings.warn,
) -> Iterator[ClusterExecutor]:
    """Connect to a Dask scheduler whose workers do what this process would do, bit for bit.

    Each worker must have the same versions of this package (its sources, too), of NumPy, SciPy, Numba and PyArrow and
    the same kind of processor, and see ``files``. One that differs is refused, and with it the run; so is one that
    joins later.

    Args:
        address: ``tcp://HOST:PORT`` or ``tls://HOST:PORT`` of the scheduler. Anyone who reaches it can run code as the
            workers' user.
        folder: for what many jobs have in common; best one that workers see, too.
        modules: of your own, by name, loaded; they and what they import travel.
        files: sha256 of files that workers read, by name.
        warn: called with a warning about a plain address off this host.

    Raises:
        UserError: Dask is not installed; no answer from it; there is no worker; one differs (:class:`RefusedError`); or
            in the end, scheduler or workers were lost for good.
    """
    plain = check_address(address)
    if plain:
        warn(plain)
    client, executor = _connected(address), None
    try:
        _same_version(client, _known(client), warn)  # before anything is sent, for which Dask would wait
        asked = _uploaded(client, modules, files or {})
        executor = ClusterExecutor(client, asked, None if folder is None else Path(folder), warn)
        yield executor
    except KeyboardInterrupt:  # after which a command leaves at once
        for path in executor.stored if executor is not None else ():
            Path(path).unlink(missing_ok=True)
        raise
    except Exception as error:
        if executor is not None and not executor.why and not isinstance(error, UserError):
            executor.meet(_known(client))
        lost = (executor.why if executor is not None else "") or _lost(error, client, address)
        if not lost:
            raise
        raise UserError(lost) from error
    finally:
        if executor is not None:
            executor.ended.set()
        _close(client)


def check_address(address: str) -> str | None:
    """Return a warning about an address that is plain and off this host; None for others.

    Raises:
        UserError: it is none.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found[3]) < 1 << 16:
        # Not as it was given: a password may be in it.
        raise UserError("scheduler: write its address as tcp://HOST:PORT or tls://HOST:PORT, and nothing else in it")
    host = found[2].strip("[]")
    with contextlib.suppress(ValueError):
        if found[1] == "tls" or host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return None
    return (
        f"scheduler {address}: plain tcp:// to another host; all who reach its port, or the workers', run code as "
        f"their user: use tls:// ({_DOCS})"
    )


def _connected(address: str) -> Any:
    try:
        import threadpoolctl  # noqa: F401
        from distributed import Client, Security
    except ImportError as error:
        line = f"a scheduler needs {error.name}, which is not installed: pip install 'recsim-mnar[cluster]'"
        raise UserError(line) from None
    for name in [each for each in logging.root.manager.loggerDict if each.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what is lost is said here, in one line
    try:
        how = Security().get_connection_args("client")
        if address.startswith("tls") and how.get("ssl_context") is None:
            raise ssl.SSLError(0, "none are named")
        with ThreadPoolExecutor(1) as thread:  # this one may have a loop of its own, as in a notebook
            kind = thread.submit(asyncio.run, _kind_at(address, how)).result()
    except Exception as error:  # whatever comes of bytes that another program sends
        raise UserError(f"scheduler {address}: {_reason(error)} ({_DOCS})") from error
    if kind != "Scheduler":
        raise UserError(f"scheduler {address}: a {kind.lower()} answers there: name the scheduler's address ({_DOCS})")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about versions, which are compared here
        client = Client(address, timeout=_ANSWER_SECONDS, set_as_default=False, name="recsim-mnar")
    try:
        client.wait_for_workers(1, timeout=_ANSWER_SECONDS)
    except Exception as error:
        _close(client)
        raise UserError(f"scheduler {address}: it has no workers: start some ({_DOCS})") from error
    return client


def _reason(error: Exception) -> str:
    """Why there is no scheduler at an address, and what to do."""
    cause = error.__cause__ or error
    if isinstance(cause, (ssl.SSLError, FileNotFoundError)) or "SSL" in str(error):
        said = getattr(cause, "strerror", None) or described(cause)
        return f"no certificates that both sides take ({said}): name them in Dask's settings"
    return "no answer from it: start one, or mend the address"


async def _kind_at(address: str, how: Mapping[str, Any]) -> str:
    """What Dask calls that which answers at an address; a client, asked first, could not be given up in time."""
    from distributed.comm import connect
    from distributed.core import send_recv

    async def asked() -> str:
        comm = await connect(address, timeout=_ANSWER_SECONDS, **how)
        try:
            return str((await send_recv(comm, op="identity"))["type"])
        finally:
            comm.abort()

    return await asyncio.wait_for(asked(), _ANSWER_SECONDS)


def _close(client: Any) -> None:
    with contextlib.suppress(Exception):
        client.close(timeout=2)


def _known(client: Any) -> dict[str, Any]:
    """What the scheduler knows of each worker, by address.

    Raises:
        UserError: it does not answer.
    """
    try:
        found: dict[str, Any] = client.sync(client.scheduler.identity, callback_timeout=_ANSWER_SECONDS / 2)
    except (TimeoutError, OSError) as error:
        raise UserError(f"scheduler {client.scheduler.addr} was lost: start it again; --resume goes on") from error
    return found["workers"]


def _answers(
    client: Any, workers: Iterable[str], seconds: float, function: Callable[..., Any], *args: Any
) -> dict[str, Any]:
    """What a function returns on each worker, or its exception: TimeoutError if it is late, OSError if it has gone."""

    def answer(worker: str) -> Any:
        try:
            # callback_timeout is an argument of the client's, and not of the function's.
            found = client.run(function, *args, workers=[worker], on_error="return", callback_timeout=seconds)
            return found[worker]
        except TimeoutError as error:
            return error if worker in _known(client) else OSError()
        except Exception as error:
            return error

    workers = list(workers)
    threads = ThreadPoolExecutor(max(1, len(workers)))
    try:
        return dict(zip(workers, threads.map(answer, workers), strict=True))
    finally:
        threads.shutdown(wait=False)  # whoever is interrupted waits for no answer


def _made_ready(client: Any, asked: Asked, workers: Iterable[str], warn: Callable[[str], object]) -> None:
    """Raise RefusedError for workers that are not like this process, once they have loaded what they need."""
    until, ready = time.monotonic() + _LOAD_SECONDS, list[str]()
    while workers := _same_version(client, workers, warn):
        # In a thread: a worker that loads slowly shows that it lives.
        found = _answers(client, workers, _SILENT_SECONDS, asyncio.to_thread, exec, _LOADING)
        workers = [each for each in found if isinstance(found[each], TimeoutError) and time.monotonic() < until]
        for each in workers:
            del found[each]
            warn(f"worker {each} is still loading recsim-mnar: waiting for it, for {_LOAD_SECONDS:.0f} s at most")
        ready += _fit(found, "{}", None, warn)
    _fit(_answers(client, ready, _SILENT_SECONDS, meet, asked), "{}", "", warn)


def _same_version(client: Any, workers: Iterable[str], warn: Callable[[str], object]) -> list[str]:
    """Ask by what every worker has, whether it knows this package or not."""
    here = made_with()["recsim-mnar"]
    found = _answers(client, workers, _ANSWER_SECONDS, version, "recsim-mnar")
    return _fit(found, "recsim-mnar {}, here " + here, here, warn)


def _fit(answers: Mapping[str, Any], differs: str, good: Any, warn: Callable[[str], object]) -> list[str]:
    """The workers whose answer is ``good``; some that ended are warned of.

    Raises:
        RefusedError: the first that answered anything else, and what it does, in a line.
        LostError: all have ended.
    """
    lost, lines = [], []
    for worker, found in answers.items():
        if isinstance(found, TimeoutError):
            lines.append(f"worker {worker} does not answer: wait until it is free and has loaded it, or end it")
        elif isinstance(found, (OSError, KeyError)):
            lost.append(f"worker {worker} ended when it was asked for recsim-mnar: see what it printed, and mend it")
        elif isinstance(found, PackageNotFoundError) or not isinstance(found, Exception):
            there = "not installed" if isinstance(found, Exception) else found
            lines += [f"worker {worker} differs: {differs.format(there)}"] * (found != good)
        else:
            lines.append(f"worker {worker} cannot load recsim-mnar: {described(found).removeprefix('Exception: ')}")
    gone = len(lost) == len(answers) > 0
    if lines or gone:
        lines += lost
        more = f" (and {len(lines) - 1} more of {len(answers)} workers)" if len(lines) > 1 else ""
        raise (LostError if gone else RefusedError)(lines[0] + more)
    for line in lost:
        warn(line)
    return [worker for worker in answers if not isinstance(answers[worker], Exception)]


def _uploaded(client: Any, modules: Iterable[str], files: Mapping[str, str]) -> Asked:
    """What workers must be like; they, and those that join later, are sent the modules that are not installed here."""
    threads = max((each["num_threads"] for each in _blas()), default=1)
    like = made_with() | processor() | {f"file {name}": digest[:16] for name, digest in files.items()}
    travel: dict[str, tuple[str, bytes]] = {}
    for name, file in files_of(modules).items():
        if is_installed(file):
            like[f"module {name}"] = file_digest(file)[:16]
        else:
            place = name.replace(".", "/") + ("/__init__.py" if file.name == "__init__.py" else ".py")
            travel[name] = place, file.read_bytes()
    for name in list(travel):  # a folder without __init__.py is a package too
        for above in itertools.accumulate(name.split(".")[:-1], "{}.{}".format):
            travel.setdefault(above, (above.replace(".", "/") + "/__init__.py", b""))
    if not travel:
        return Asked(like, threads)
    with tempfile.TemporaryDirectory(prefix="recsim-mnar-") as folder:
        path = Path(folder) / "modules.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for place, data in travel.values():
                archive.writestr(zipfile.ZipInfo(place), data)  # of no date, so that the same modules are the same file
        digest = file_digest(path)
        client.upload_file(str(path.rename(path.with_name(f"{digest}.zip"))), load=False)
    return Asked(like, threads, {name: hashlib.sha256(data).hexdigest() for name, (_, data) in travel.items()}, digest)


def _lost(error: Exception, client: Any, address: str) -> str:
    """Describe the state of the scheduler and workers if an exception says that they were lost."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError
    from distributed.comm import CommClosedError

    if isinstance(error, KilledWorker):
        return (
            f"scheduler {address}: one job ended several workers, for want of memory perhaps: give them more, or "
            "fewer threads; --resume goes on"
        )
    gone = (CommClosedError, CancelledError, FutureCancelledError)
    if isinstance(error, gone) or (client.status != "running" and not isinstance(error, UserError)):
        return f"scheduler {address} was lost: start it again; --resume goes on"
    return ""


# ------------------------------------------------------------------------------------------------- on a worker


def _blas() -> list[dict[str, Any]]:
    import scipy.linalg  # noqa: F401  (it brings a library of its own)
    import threadpoolctl

    return [each for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"]


def processor() -> dict[str, str]:
    """What decides, besides versions, how numbers round: the processor that kernels are compiled for, and its BLAS."""
    import llvmlite.binding as llvm

    features = hashlib.sha256(llvm.get_host_cpu_features().flatten().encode()).hexdigest()[:8]
    parts = {" ".join(str(each.get(key)) for key in ("internal_api", "version", "architecture")) for each in _blas()}
    return {"processor": f"{llvm.get_host_cpu_name()} {features}", "linear algebra": ", ".join(sorted(parts))}


class _AtWork:
    """The process this worker serves, and the modules it has from it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.ready: list[Asked] = []  # for whom it was found fit; the last is whom it is set up for
        self.busy: collections.Counter[str] = collections.Counter()  # jobs under way, by who asked
        self.modules: dict[str, str] = {}  # digests of those that were sent and are in use


_AT_WORK = _AtWork()


def meet(asked: Asked, dask_worker: Any) -> str:
    """Make this worker ready to do what the process that asks would do; what hinders it, in words, or "".

    Dask names ``dask_worker`` to what it runs.
    """
    here = _AT_WORK
    with here.lock:
        if asked.process == _THIS or here.ready[-1:] == [asked]:  # _THIS: a worker in a thread of who asks
            return ""
        others = [name for name, digest in asked.sent.items() if here.modules.get(name, digest) != digest]
        if here.ready and here.ready[-1].blas != asked.blas:
            others.append("number of threads of linear algebra")
        if others and set(+here.busy) - {asked.process}:
            return f"it works for another run with another {others[0]}: wait until that has ended"
        wrong = "" if asked in here.ready else _differences(asked)
        if not wrong:
            _set_up(asked, Path(dask_worker.local_directory))
            here.ready = [*(each for each in here.ready if each != asked), asked]
        return wrong


def working(asked: Asked, job: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Do a job for a process that this worker was found to be like; a worker that joins later is looked at here.

    Raises:
        RefusedError: it differs, or works for another process at the moment that asks for something else.
    """
    from distributed import get_worker

    with _AT_WORK.lock:
        wrong = meet(asked, get_worker())
        if wrong:
            raise RefusedError(f"worker {get_worker().address} differs: {wrong}")
        _AT_WORK.busy[asked.process] += 1
    try:
        return said_here(job, *args, **kwargs)
    finally:
        with _AT_WORK.lock:
            _AT_WORK.busy[asked.process] -= 1


def _differences(asked: Asked) -> str:
    here = made_with() | processor()
    found = {name: here.get(name) or _digest(*name.split(" ", 1)) for name in asked.like}
    wrong = [f"{name} {found[name]}, here {digest}" for name, digest in asked.like.items() if found[name] != digest]
    return "; ".join(wrong)


def _digest(kind: str, name: str = "") -> str:
    """Of a file by its name, or of an installed module as this process would import it."""
    if kind not in ("file", "module"):
        return "none"
    with contextlib.suppress(OSError, ImportError, ValueError):
        spec = importlib.util.find_spec(name) if kind == "module" else None
        return file_digest(str(spec.origin) if spec else name)[:16]
    return "is not there (name it by its whole path, in a folder that workers share)" if kind == "file" else "none"


def _set_up(asked: Asked, folder: Path) -> None:
    """Compute in so many threads, and import the modules that were sent before any that have their names here.

    A module of such a name that was imported already, of other bytes, is forgotten.

    Raises:
        ValueError: the file is not the one that was sent.
    """
    import threadpoolctl

    threadpoolctl.threadpool_limits(limits=asked.blas, user_api="blas")
    if not asked.sent:
        return
    archive, place = folder / f"{asked.archive}.zip", folder / asked.archive
    if file_digest(archive) != asked.archive:
        raise ValueError(f"{archive}: bytes of another digest")
    shutil.unpack_archive(archive, place)
    sys.path[:] = [str(place), *(each for each in sys.path if each != str(place))]
    importlib.invalidate_caches()
    loaded, sent = asked.sent.keys() & sys.modules.keys(), _AT_WORK.modules
    if any(sent.get(name) != asked.sent[name] for name in loaded):
        # Modules that were sent may hold each other's functions: all go, so that none keeps an old one.
        for name in {*asked.sent, *sent}:
            sys.modules.pop(name, None)
        forget_loaded()
    sent.update(asked.sent)
