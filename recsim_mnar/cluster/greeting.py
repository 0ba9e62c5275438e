"""What a worker must be like before it works for this process: the same versions, bits, folder and modules."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from recsim_mnar.cluster.modules import Source, digests_here, install, installed_digests, sources_of
from recsim_mnar.errors import UserError
from recsim_mnar.runs.files import opened, private_temporary
from recsim_mnar.runs.receipts import digest_of, file_digest
from recsim_mnar.runs.versions import made_with
from recsim_mnar.simulation.executor import Carried, forget_loaded
from recsim_mnar.simulation.pools import said_here

T = TypeVar("T")

_THIS = os.urandom(16).hex()
"""This process; hosts may have names, and processes numbers, in common."""


class RefusedError(UserError):
    """A worker differs from the process that it was to work for."""


@dataclass(frozen=True)
class Greeting:
    """What a process says to its workers.

    Attributes:
        versions: of package, sources and libraries.
        golden: digest of a little work.
        blas: threads in which products of matrices are computed, which decide how they round.
        folder: that all share; None where nobody needs one.
        token: a file in it, and its bytes.
        writes: whether workers are to write there too.
        modules: of the user's own, which travel.
        installed: digests of modules that each worker has itself.
        files: digests of files that are named.
        process: who says so, by a name that no other has.
    """

    versions: dict[str, str]
    golden: str
    blas: int
    folder: str | None = None
    token: tuple[str, str] = ("", "")
    writes: bool = False
    modules: dict[str, Source] = field(default_factory=dict)
    installed: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    process: str = ""

    @functools.cached_property
    def digest(self) -> str:
        """Of all that it asks for."""
        modules = {name: source.sha256 for name, source in self.modules.items()}
        asked = (self.versions, self.golden, self.blas, self.folder, self.token, self.installed, self.files)
        return digest_of([*asked, modules, self.process])


@dataclass(frozen=True)
class Answer:
    """What a worker is like.

    Attributes:
        process: its host and number.
        differences: from what the greeting asks for, in words.
        written: a file that it wrote into the shared folder, and its bytes; None where it wrote none.
    """

    process: str
    differences: list[str]
    written: tuple[str, str] | None = None


@contextlib.contextmanager
def greeting(
    folder: Path | None, modules: Iterable[str] = (), files: dict[str, str] | None = None
) -> Iterator[Greeting]:
    """What this process asks of workers; a token lies in the folder within the block, where it can be written.

    Args:
        folder: that all are to share.
        modules: of the user's own, by name, loaded.
        files: digests of files that are named, by the name given.
    """
    travel, installed = sources_of(modules)
    blas = blas_threads()
    known: dict[str, Any] = {"modules": travel, "installed": installed, "files": dict(files or {})}
    known["process"] = _THIS
    if folder is None:
        yield Greeting(made_with(), golden(blas), blas, **known)
        return
    place, token, writes, remove = _token(Path(os.path.realpath(folder)))
    try:
        yield Greeting(made_with(), golden(blas), blas, str(place), token, writes, **known)
    finally:
        remove()
        if writes:
            _remove_answers(place, token[0])


def _remove_answers(folder: Path, token: str) -> None:
    """Take away what workers wrote beside the token and could not name any more: they were lost at that moment."""
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            if path.name.startswith(_answers_to(token)):
                path.unlink(missing_ok=True)


def _answers_to(token: str) -> str:
    """How the names of files begin that workers write in answer to a token; they are temporary files' names."""
    return f".{token.removeprefix('.')}."


def this_process() -> str:
    """Host and number of this process."""
    return f"{socket.gethostname()} process {os.getpid()}"


def _token(folder: Path) -> tuple[Path, tuple[str, str], bool, Callable[[], None]]:
    """A file in the folder and its digest, of our own where the folder can be written, and how it is removed."""
    word = os.urandom(16)
    try:
        path, remove = private_temporary(folder / "token", word)
    except OSError as error:
        files = sorted(path for path in folder.iterdir() if path.is_file())
        if not files:
            raise UserError(f"{folder} cannot be written, and holds no file that workers could read") from error
        smallest = min(files, key=lambda path: path.stat().st_size)
        return folder, (smallest.name, file_digest(smallest)), False, lambda: None
    return folder, (path.name, hashlib.sha256(word).hexdigest()), True, remove


def answer(asked: Greeting) -> Answer:
    """Run on a worker: what it is like, beside what is asked for."""
    here = made_with()
    names = sorted({*asked.versions, *here})
    found = [
        f"{name} {here.get(name, 'none')}, here {asked.versions.get(name, 'none')}"
        for name in names
        if here.get(name) != asked.versions.get(name)
    ]
    for name, digest in digests_here(asked.installed).items():
        if digest != asked.installed[name]:
            found.append(f"module {name} sha256 {digest[:12]}, here {asked.installed[name][:12]}")
    found += [f"file {name} {word}" for name, digest in asked.files.items() if (word := _file_differs(name, digest))]
    written = None
    if asked.folder is not None:
        wrong, written = _meet(Path(asked.folder), asked.token, asked.writes)
        found += wrong
    if not found:
        # Sums are the client's in the number of threads before they are compared.
        threads = blas_threads(asked.blas)
        if threads != asked.blas:
            found.append(f"threads of linear algebra {threads}, here {asked.blas}")
        elif golden(threads) != asked.golden:
            found.append(
                f"bits of the same work {golden(threads)[:12]}, here {asked.golden[:12]} (another kind of processor?)"
            )
    return Answer(this_process(), found, written)


def _file_differs(name: str, digest: str) -> str:
    try:
        found = file_digest(name)
    except OSError:
        return "is not there (name it by its whole path, in a folder that workers share)"
    return "" if found == digest else f"sha256 {found[:12]}, here {digest[:12]}"


def _meet(folder: Path, token: tuple[str, str], writes: bool) -> tuple[list[str], tuple[str, str] | None]:
    """Read the token and write one: what is wrong, and what was written."""
    name, digest = token
    try:
        found = file_digest(folder / name)
    except OSError as error:
        return [f"folder {folder} is not shared: {error.strerror}"], None
    if found != digest:
        return [f"folder {folder} is another one there"], None
    if not writes:
        return [], None
    word = os.urandom(16)
    path = folder / f"{_answers_to(name)}{os.urandom(8).hex()}.tmp"
    try:
        with open(opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(word)
    except OSError as error:
        return [f"folder {folder} cannot be written: {error.strerror}"], None
    return [], (path.name, hashlib.sha256(word).hexdigest())


def read_back(asked: Greeting, found: Answer) -> list[str]:
    """What is wrong with the file that a worker wrote, which is removed."""
    if found.written is None or asked.folder is None:
        return []
    name, digest = found.written
    path = Path(asked.folder) / name
    try:
        same = file_digest(path) == digest
        path.unlink()
    except OSError as error:
        return [f"what it wrote into {asked.folder} is not here: {error.strerror}"]
    return [] if same else [f"what it wrote into {asked.folder} is not what is here"]


@functools.cache
def golden(blas: int) -> str:
    """Digest of a little of everything: kernels, an acting agent, a fit by products of matrices, a replay.

    Args:
        blas: threads in which products are computed at the moment.
    """
    from recsim_mnar.log.table import Log
    from recsim_mnar.policy import registry
    from recsim_mnar.replays.probabilities import replay
    from recsim_mnar.simulation.items import simulate
    from recsim_mnar.worlds import make_world

    world = make_world("sessions", None, ["n_items=40", "n_flips=10"])
    uniform = registry.learner("random").fit(Log({}), n_items=40, seed=0)
    log = simulate(world, uniform, 64, 0)
    digest = hashlib.sha256(log.digest().encode())
    for name in ("svd+rank=8", "user-popularity+epsilon=0.3"):
        policy = registry.learner(name).fit(log, n_items=40, seed=0)
        acted = simulate(world, policy, 16, 1)
        digest.update(acted.digest().encode())
        digest.update(replay(log, policy).tobytes())
    return digest.hexdigest()


def blas_threads(wanted: int | None = None) -> int:
    """Threads of the libraries of linear algebra, which are set to ``wanted`` first."""
    import scipy.linalg  # noqa: F401  (it brings a library of its own)
    import threadpoolctl

    if wanted is not None:
        threadpoolctl.threadpool_limits(limits=wanted, user_api="blas")
    found = {each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"}
    return max(found, default=1)


class _Met:
    """Whom this worker works for at the moment, and how many jobs are under way."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.busy: dict[str, int] = {}
        self.ready: Greeting | None = None
        self.checked: set[str] = set()


_MET = _Met()


def working(carried: Carried[Greeting], job: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """On a worker: do a job for a process that it was found to be like; one that joins later is looked at here.

    Raises:
        RefusedError: it differs, or works for another process at the moment that asks for something else.
    """
    asked = carried.value
    if asked.process == _THIS:  # a worker in a thread of the process that it works for
        return job(*args, **kwargs)
    with _MET.lock:
        _make_ready(asked)
        _MET.busy[asked.digest] = _MET.busy.get(asked.digest, 0) + 1
    try:
        return said_here(job, *args, **kwargs)
    finally:
        with _MET.lock:
            _MET.busy[asked.digest] -= 1
            if not _MET.busy[asked.digest]:
                del _MET.busy[asked.digest]


def _make_ready(asked: Greeting) -> None:
    if _MET.ready is not None and _MET.ready.digest == asked.digest:
        return
    sent = installed_digests()
    others = [name for name, source in asked.modules.items() if sent.get(name, source.sha256) != source.sha256]
    if _MET.ready is not None and _MET.ready.blas != asked.blas:
        others.append("number of threads of linear algebra")
    if others and set(_MET.busy) - {asked.digest}:
        raise RefusedError(
            f"worker {this_process()} works for another run with another {others[0]}: wait until that has ended"
        )
    if asked.digest not in _MET.checked:
        found = answer(asked)
        wrong = found.differences + read_back(asked, found)
        if wrong:
            raise RefusedError(f"worker {found.process} differs: {'; '.join(wrong)}")
        _MET.checked.add(asked.digest)
    blas_threads(asked.blas)
    if install(asked.modules):
        forget_loaded()
    _MET.ready = asked
