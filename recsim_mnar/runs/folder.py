"""RunFolder: a folder while its one owner fills it. Its lock, its settings, its files, and at the end its index.

The lock is an ``flock``, which the system releases when its process ends, however it ends; the file names its holder.
Where the file system has no locks, making the file is the lock, and who was killed leaves it to be removed by hand.
Every file is written under a temporary name, and its receipt stands in the journal before it gets its own; the index
comes last. Resumed, a folder keeps the files that fit their receipts, and the others are made again.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import json
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from recsim_mnar.errors import MachineError, UserError, not_written
from recsim_mnar.runs.files import (
    is_temporary,
    lock_file,
    opened,
    opened_to_read,
    path_of,
    read_ours,
    recorded,
    refuse_link,
    sweep,
    sync,
    write_json,
)
from recsim_mnar.runs.receipts import (
    INDEX,
    JOURNAL,
    DamagedIndexError,
    Index,
    Journal,
    Receipt,
    digest_of,
    made_with,
    refuse_other_versions,
)

LOCK, LEASE = ".lock", ".lease"
"""Names of the file: where there are locks, and where there are none."""
_TRIES, _APART = 10, 0.01
"""Of a lock that is held, and the seconds between: who asks for the holder has it for an instant."""


class TakenError(MachineError):
    """The folder has another owner, who may be done soon."""


class Lock:
    """A folder's lock, held from :meth:`of` to :meth:`release`.

    Attributes:
        path: of its file.
        file: open, and locked where the file system can.
    """

    def __init__(self, path: Path, file: int) -> None:
        self.path, self.file = path, file
        began = time.strftime("%Y-%m-%d %H:%M:%S %z")
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "since": began}
        with contextlib.suppress(OSError):  # a full disk: the lock holds without words, too
            os.truncate(file, 0)
            os.write(file, json.dumps(holder).encode())

    @classmethod
    def of(cls, folder: Path, what: str = "folder") -> Lock:
        """Lock an existing folder; ``what`` is the user's name for it.

        Raises:
            TakenError: it has an owner, which may be another block of this process.
            NotOursError: a link or another user's file has the place of the lock.
            OSError: no file can be made in it.
        """
        path, tries = folder / LOCK, _TRIES
        while True:
            file = opened(path, os.O_RDWR | os.O_CREAT)
            try:
                locks = lock_file(file)
                # The owner before removes its file and then lets go: what was locked may be no longer the folder's.
                if locks and _same(file, path):
                    return cls(path, os.dup(file))
            except BlockingIOError:
                tries -= 1
                if not tries:
                    raise TakenError(_refusal(folder, what, path)) from None
                time.sleep(_APART)
                continue
            finally:
                os.close(file)
            if not locks:
                path.unlink(missing_ok=True)
                return cls._without_locks(folder, what)

    @classmethod
    def _without_locks(cls, folder: Path, what: str) -> Lock:
        path = folder / LEASE
        try:
            return cls(path, opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            raise TakenError(f"{_refusal(folder, what, path)}; if it has ended, remove {path}") from None

    def lost(self) -> bool:
        """Whether somebody took it away."""
        return not _same(self.file, self.path)

    def release(self) -> None:
        """Give it back and remove its file."""
        mine, is_locked = not self.lost(), self.path.name == LOCK
        if mine and is_locked:  # before another can lock it
            self.path.unlink(missing_ok=True)
        os.close(self.file)
        if mine and not is_locked:  # Windows removes no file that is open
            self.path.unlink(missing_ok=True)


def holder_of(folder: Path) -> str | None:
    """The process that fills a folder at this moment, in words; None where there is none."""
    for path in (folder / LEASE, folder / LOCK):
        with contextlib.suppress(OSError):
            file = opened_to_read(path)
            try:
                if path.name == LEASE:
                    return _in_words(path)
                lock_file(file, shared=True)
            except BlockingIOError:
                return _in_words(path)
            finally:
                os.close(file)
    return None


def _same(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except OSError:
        return False


def _in_words(path: Path) -> str:
    try:
        holder = json.loads(read_ours(path))
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"


def _refusal(folder: Path, what: str, path: Path) -> str:
    return f"{what} {folder} is being written by {_in_words(path)}: wait for it, or name another folder"


SIMULATION, REPLAY, STUDY = MANIFESTS = ("simulation.json", "replay.json", "study.json")
"""Names of manifests: the settings of a run that can be taken up."""
_OURS = (LOCK, LEASE, JOURNAL)
"""Files that are in a folder only while it is filled, or after a run that was killed."""
_LONGEST = 60
"""Characters of a value that a refusal quotes."""


class RunFolder:
    """A folder that this process fills; see :meth:`fill`.

    Attributes:
        path: of the folder.
        index: receipts of the files that this run or, where it goes on with one, an earlier run has written.
    """

    def __init__(self, path: Path, lock: Lock) -> None:
        self.path = path
        self.index = Index()
        self._lock = lock
        self._journal = Journal(path)
        self._began = False
        self._new: list[Path] = []
        self._last: list[str] = []
        self._unsynced: list[str] = []

    @classmethod
    @contextlib.contextmanager
    def fill(
        cls, folder: Path, *, resume: bool = False, keep_others: bool = False, what: str = "folder"
    ) -> Iterator[RunFolder]:
        """Own a folder, made where it is not there, and fill it; its index is written at the end.

        Within another such block on the same folder that one's object is handed out, and the outermost writes the
        index. So a folder that cannot be written is found before the work, and where the work fails before it wrote
        anything of use, what this process made is removed: the command can be given again as it is.

        Args:
            folder: where.
            resume: take up the run that it holds, if it holds one; else it must be empty.
            keep_others: allow other files in the folder, and keep its receipts.
            what: the user's name for it.

        Raises:
            UserError: it is a file, holds something else, cannot be made or written, or another process owns it; a
                folder within one that is being filled is a link.
        """
        place, outer = os.path.realpath(folder), _filled.get() or {}
        if place in outer:
            yield outer[place]
            return
        folder = path_of(folder)
        if os.path.realpath(folder.parent) in outer:
            refuse_link(folder)
        goes_on = keep_others or (resume and any((folder / name).exists() for name in (*MANIFESTS, INDEX, JOURNAL)))
        with _locked(folder, what, goes_on) as lock:
            it = cls(folder, lock)
            if goes_on:
                it._take_up()
            else:
                it._remove_left()
                refuse_occupied(folder, what)
            before = _filled.set({**outer, place: it})
            try:
                yield it
                it._finish()
            except BaseException:
                it._leave()
                raise
            finally:
                _filled.reset(before)

    def _take_up(self) -> None:
        """Read the receipts of an earlier run: of its index or, where that is missing or damaged, of its journal."""
        try:
            index = Index.read(self.path)
            if index is None and _json_in(self.path / INDEX) is not None:
                raise UserError(f"{self.path / INDEX} belongs to another program. Name another folder, or move it away")
        except DamagedIndexError:
            index = None
        self.index = self._journal.read() if index is None else index

    def _remove_left(self) -> None:
        """Remove what a killed run left that nothing takes up: files of its journal, no manifest, and nothing else."""
        there = {path.name for path in strangers_in(self.path)}
        receipts = self._journal.read().receipts
        ours = there <= receipts.keys() and not there & {*MANIFESTS}
        if ours and all(receipts[name].fits(self.path) for name in there):
            for name in there:
                self.drop(name)

    # ------------------------------------------------------------------------------------------------- what it is for

    def begin(self, made: str | None) -> None:
        """Name what makes the files from here on, by its digest; earlier receipts are kept where they are of the same.

        An index that is there is taken away: until the end the folder is not finished.
        """
        kept = self.index.receipts if self.index.made == made else {}
        self.index = Index(dict(kept), made, made_with())
        self._begin()

    def _begin(self) -> None:
        self._journal.begin(self.index)
        self._began = True
        (self.path / INDEX).unlink(missing_ok=True)

    def refuse_other_run(
        self,
        manifest: str,
        settings: Mapping[str, Any],
        *,
        made: str | None = None,
        alike: Callable[[Any, Any], tuple[Any, Any]] | None = None,
    ) -> str:
        """Find that the folder holds no run, or this one; returns the digest of what makes it.

        Args:
            manifest: its name.
            settings: of the run, JSON types only; ``code`` has digests of the code and files that have part in it.
            made: digest of those settings on which every file depends; of all where None.
            alike: what must be the same of the settings there and here, where not all must; None from it where the
                settings there are none.

        Raises:
            UserError: the folder holds another run, or one of other versions.
        """
        wanted, path = json.loads(json.dumps(settings)), self.path / manifest
        made = digest_of(wanted) if made is None else made
        known, before = self.index.made == made, _json_in(path)
        # Receipts say what made the files: a manifest that says otherwise was changed since, and is written anew.
        if not isinstance(before, dict) or (known and alike is None):
            before = None
        versions = self.index.made_with if known or before is None else before.get("made_with")
        if before is not None:
            before.pop("made_with", None)
            if "code" not in before or not isinstance(versions, dict) or not versions:
                raise UserError(
                    f"cannot resume: {self.path} holds a run of a version without receipts: name another folder"
                )
            before, wanted = (before, wanted) if alike is None else alike(before, wanted)
        if before is not None:
            refuse_differences(f"{self.path} holds a run", before, wanted)
        elif not known and (self.index.made is not None or path.exists() or (self.path / INDEX).exists()):
            raise UserError(f"cannot resume: {path} is missing or damaged: restore it, or name another folder")
        refuse_other_versions(f"{self.path} holds a run that was made", versions)
        return made

    def begin_run(self, manifest: str, settings: Mapping[str, Any], made: str) -> None:
        """Write the manifest of a run, of which :meth:`refuse_other_run` gave the digest; it is recorded at the end."""
        self.begin(made)
        path = self.path / manifest
        if not path.exists():
            self.made_here(path)
        write_json(path, {**json.loads(json.dumps(settings)), "made_with": made_with()})
        self._last.append(manifest)

    # --------------------------------------------------------------------------------------------------- what is done

    def whole(self, name: str) -> Receipt | None:
        """The receipt of a file that is there as it was written; None, and its receipt is dropped, for any other."""
        receipt = self.index.receipts.get(name)
        if receipt is not None and receipt.fits(self.path):
            return receipt
        self.index.receipts.pop(name, None)
        return None

    @contextlib.contextmanager
    def recording(
        self, name: str, *, rows: Callable[[Path], int] | None = None, users: tuple[int, int] | None = None
    ) -> Iterator[Path]:
        """Record the file of this name that is written within the block, by ``replacing`` and under the path given.

        Its receipt is in the journal before the file has its name: a file without one was never finished.

        Args:
            name: in the folder.
            rows: what reads how many rows the table holds that was written; None of what is no table.
            users: the first and the last of them.

        Raises:
            UserError: somebody took the folder away from us, or a link leads out of it.
        """
        self._ready()
        path = self.inside(name)

        def record(temporary: Path, target: Path) -> bool:
            if target == path:
                read_back = None if rows is None else rows(temporary)
                self._add(Receipt.of(temporary, name, rows=read_back, users=users))
            return target == path

        with recorded(record):
            yield path

    def write_json(self, name: str, value: Any) -> None:
        """Write JSON as a file of this name, and record it."""
        with self.recording(name) as path:
            write_json(path, value)

    def record(self, name: str) -> None:
        """Record a file that is there, written by others.

        Raises:
            UserError: somebody took the folder away from us.
        """
        self._ready()
        self._add(Receipt.of(self.path / name, name))

    def _ready(self) -> None:
        self._refuse_lost()
        if not self._began:
            self._begin()

    def _refuse_lost(self) -> None:
        if self._lock.lost():
            raise UserError(f"{self.path} was taken over by another process: nothing more is written into it")

    def _add(self, receipt: Receipt) -> None:
        self.index.receipts[receipt.file] = receipt
        self._journal.add(receipt)
        self._unsynced.append(receipt.file)

    def drop(self, name: str) -> None:
        """Remove a file that is of use no longer, with its receipt.

        Raises:
            NotOursError: a link leads out of the folder.
        """
        self.index.receipts.pop(name, None)
        self.inside(name).unlink(missing_ok=True)

    def inside(self, name: str) -> Path:
        """The path of a file of this name.

        Raises:
            NotOursError: a folder on the way to it is a link.
        """
        for above in reversed(Path(name).parents[:-1]):
            refuse_link(self.path / above)
        return self.path / name

    def made_here(self, path: Path) -> None:
        """Remember a file that is of no use alone: it goes where the work fails before it made more."""
        self._new.append(path)

    def _finish(self) -> None:
        self._refuse_lost()
        for name in self._last:
            self.record(name)
        written = [name for name in self._unsynced if name in self.index.receipts]
        for name in written:
            sync(self.path / name)
        for folder in {(self.path / name).parent for name in written}:
            sync(folder)
        if self._began:
            self.index.write(self.path)
        self._journal.close(remove=True)

    def _leave(self) -> None:
        """After a failure: keep what was written, and its journal; remove what is of no use, unless it is another's."""
        if self._lock.lost():
            self._journal.close(remove=False)
            return
        kept = [path for path in strangers_in(self.path) if path not in self._new]
        self._journal.close(remove=not kept)
        if not kept:
            for file in self._new:
                file.unlink(missing_ok=True)


_filled: contextvars.ContextVar[dict[str, RunFolder] | None] = contextvars.ContextVar("filled", default=None)


def is_filled_here(folder: Path) -> bool:
    """Whether the code that asks runs within a block that fills this folder."""
    return os.path.realpath(folder) in (_filled.get() or {})


@contextlib.contextmanager
def _locked(folder: Path, what: str, goes_on: bool) -> Iterator[Lock]:
    """Make the folder and own it; where the work fails, folders that were not there go if they are empty."""
    made: list[Path] = []
    try:
        while True:
            if not goes_on and not any((folder / name).exists() for name in _OURS):
                refuse_occupied(folder, what)  # before a file of ours is there
            made += [path for path in (folder, *folder.parents) if path not in made and not path.exists()]
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                said = f"{what} {folder} cannot be made: {error.strerror}; name another folder"
                raise not_written(error, said) from None
            try:
                lock = Lock.of(folder, what)
                break
            except FileNotFoundError:  # its owner failed at this moment and removed it
                continue
            except OSError as error:
                said = f"{what} {folder} cannot be written: {error.strerror}; name another folder"
                raise not_written(error, said) from None
        try:
            sweep(folder)
            yield lock
        finally:
            lock.release()
    except BaseException:
        for empty in made:
            with contextlib.suppress(OSError):  # not there, or somebody else's file is in it
                empty.rmdir()
        raise


def strangers_in(folder: Path) -> list[Path]:
    """What a folder holds but for locks, journals and temporary files."""
    return [path for path in folder.iterdir() if path.name not in _OURS and not is_temporary(path)]


def foreign_in(folder: Path, names: Collection[str]) -> str | None:
    """What a folder holds besides files of these names as a run of ours has written them, in words.

    Returns:
        The first such file by name, "" where there is none, None where the folder is empty or not there.
    """
    there = sorted({path.name for path in strangers_in(folder)} - {INDEX}) if folder.is_dir() else []
    try:
        receipts = (Index.read(folder) or Journal(folder).read()).receipts
    except DamagedIndexError:
        return f"{INDEX} is damaged"
    for name in there:
        if name not in names or name not in receipts:
            return f"{name} was not written by this command"
        if not receipts[name].fits(folder):
            return f"{name} was changed after it was written"
    return "" if there else None


def refuse_occupied(folder: Path, what: str = "folder") -> None:
    """Raise UserError where ``folder`` is a file or holds something; ``what`` is the user's name for it."""
    if folder.is_file():
        raise UserError(f"{what} {folder} is a file: name a folder")
    if not folder.exists() or not strangers_in(folder):
        return
    hint = " (--resume takes up the run that it holds)" if any((folder / name).exists() for name in MANIFESTS) else ""
    raise UserError(f"{what} {folder} exists and is not empty: name another folder, or remove it first{hint}")


def new_folder(out: str | Path | None, kind: str) -> Path:
    """The folder ``out``, or one that is not there, under ``./runs`` and named after ``kind`` and the time."""
    stamp = time.strftime(f"{kind}-%Y%m%d-%H%M%S")
    names = (stamp + (f"-{i}" if i > 1 else "") for i in itertools.count(1))
    return Path(out) if out is not None else next(each for name in names if not (each := Path("runs") / name).exists())


def _json_in(path: Path) -> Any:
    """The value of a JSON file; None where there is none, or none that is whole."""
    try:
        return json.loads(read_ours(path))
    except (OSError, ValueError, RecursionError):
        return None


def refuse_differences(what: str, before: Any, wanted: Any, remedy: str = "name another folder") -> None:
    """Raise UserError where the settings of an earlier run, of which ``what`` says where they are, are not these."""
    changed = differences(before, wanted)
    if changed:
        raise UserError(f"cannot resume: {what} that differs in {', '.join(changed)}: {remedy}")


def differences(before: Any, wanted: Any, path: str = "") -> list[str]:
    """Where two JSON values differ, as paths with both values where they are short."""
    if isinstance(before, dict) and isinstance(wanted, dict):
        keys = sorted({*before, *wanted})
        return [d for k in keys for d in differences(before.get(k), wanted.get(k), f"{path}.{k}" if path else k)]
    if isinstance(before, list) and isinstance(wanted, list) and len(before) == len(wanted):
        pairs = enumerate(zip(before, wanted, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{path}[{i}]")]
    if before == wanted:
        return []
    if path.startswith("code."):
        return [f"the code of {path.removeprefix('code.')}"]
    there, here = json.dumps(before), json.dumps(wanted)
    return [f"{path} ({there} there, {here} here)" if max(len(there), len(here)) <= _LONGEST else path]
