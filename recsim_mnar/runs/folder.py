"""RunFolder: a folder while its one writer fills it. Its lock, its settings, its files, and at the end its index.

The lock is ``filelock``'s: the system releases it when its process ends, however it ends. Every file is written under a
temporary name and renamed, then its receipt is written; the index comes last. Resumed, a folder keeps the files that
fit their receipts, and the others are made again.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import json
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError, not_written
from recsim_mnar.runs.files import is_temporary, path_of, read_json, refuse_link, write_json
from recsim_mnar.runs.receipts import (
    INDEX,
    UNFINISHED,
    Index,
    Receipt,
    digest_of,
    made_with,
    refuse_other_versions,
)

LOCK = ".lock"
SIMULATION, REPLAY, STUDY = MANIFESTS = ("simulation.json", "replay.json", "study.json")
"""Names of manifests: the settings of a run that can be taken up."""
_OURS = (LOCK, UNFINISHED)
"""Files that are in a folder only while it is filled, or after a run that was killed."""
_LONGEST = 60
"""Characters of a value that a refusal quotes."""


class RunFolder:
    """A folder that this process fills; see :meth:`fill`.

    Attributes:
        path: of the folder.
        index: receipts of the files that this run or, where it goes on with one, an earlier run has written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index = Index()
        self._began = False

    @classmethod
    @contextlib.contextmanager
    def fill(
        cls, folder: Path, *, resume: bool = False, keep_others: bool = False, what: str = "folder"
    ) -> Iterator[RunFolder]:
        """Lock a folder, made where it is not there, and fill it; its index is written at the end.

        Within another such block on the same folder that one's object is handed out, and the outermost writes the
        index. So a folder that cannot be written is found before the work, and where the work fails before it wrote
        anything of use, what this process made is removed: the command can be given again as it is.

        Args:
            folder: where.
            resume: take up the run that it holds, if it holds one; else it must be empty.
            keep_others: allow other files in the folder, and keep its receipts.
            what: the user's name for it.

        Raises:
            UserError: it is a file, holds something else, cannot be made or written, or another process fills it; a
                folder within one that is being filled is a link.
        """
        place = os.path.realpath(folder)
        outer = _filled.get() or {}
        if place in outer:
            yield outer[place]
            return
        folder = path_of(folder)
        if os.path.realpath(folder.parent) in outer:
            refuse_link(folder)
        with _made(folder, what), _locked(folder, what):
            goes_on = keep_others or (resume and any((folder / name).exists() for name in (*MANIFESTS, INDEX)))
            if not goes_on:
                _refuse_occupied(folder, what)
            if not keep_others:
                _remove_temporaries(folder)
            it = cls(folder)
            if goes_on:
                it.index = Index.of(folder)
            before = _filled.set({**outer, place: it})
            try:
                yield it
                it._finish()
            except BaseException:
                it._leave()
                raise
            finally:
                _filled.reset(before)

    # ------------------------------------------------------------------------------------------------- what it is for

    def begin(self, made: str | None) -> None:
        """Name what makes the files from here on, by its digest; earlier receipts are kept where they are of the same.

        An index that is there is taken away: until the end the folder is not finished.
        """
        if self.index.made == made:
            kept = self.index.receipts
        else:
            kept = {}
        self.index = Index(dict(kept), made, made_with())
        self._begin()

    def _begin(self) -> None:
        self.index.write(self.path, UNFINISHED)
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
        """Refuse a folder that holds another run; return the digest of the settings that make this one.

        Args:
            manifest: its name.
            settings: of the run, JSON types only; ``code`` has digests of the code and files that have part in it.
            made: digest of those settings on which every file depends; of all where None.
            alike: what must be the same of the settings there and here, where not all must; None from it where the
                settings there are none.

        Raises:
            UserError: the folder holds another run, or one of other versions.
        """
        path = self.path / manifest
        wanted_settings = json.loads(json.dumps(settings))  # as the manifest gives them back
        if made is None:
            made = digest_of(wanted_settings)
        receipts_are_ours = self.index.made == made
        held = read_json(path)
        if isinstance(held, dict):
            there = {key: value for key, value in held.items() if key != "made_with"}
        else:
            there = None
        versions = self.index.made_with
        if there is not None and not receipts_are_ours:
            versions = held.get("made_with")
        if receipts_are_ours and alike is None:
            there = None  # the receipts settle it, and the manifest is written anew
        if there is not None and alike is not None:
            there, wanted_settings = alike(there, wanted_settings)
        if there is not None:
            refuse_differences(f"{self.path} holds a run", there, wanted_settings)
        elif not receipts_are_ours and (path.exists() or self.index.receipts):
            raise UserError(f"cannot resume: {path} is missing or damaged: restore it, or name another folder")
        refuse_other_versions(f"{self.path} holds a run that was made", versions if isinstance(versions, dict) else {})
        return made

    def begin_run(self, manifest: str, settings: Mapping[str, Any], made: str) -> None:
        """Write the manifest of a run, of which :meth:`refuse_other_run` gave the digest."""
        self.begin(made)
        self.write_json(manifest, {**json.loads(json.dumps(settings)), "made_with": made_with()})

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

        Args:
            name: in the folder.
            rows: what reads how many rows the table holds that was written; None of what is no table.
            users: the first and the last of them.

        Raises:
            UserError: a link leads out of the folder.
        """
        if not self._began:
            self._begin()
        path = self.inside(name)
        yield path
        try:
            if rows is None:
                n_rows = None
            else:
                n_rows = rows(path)
        except UserError:  # what was written cannot be read back
            path.unlink(missing_ok=True)
            raise
        self.index.receipts[name] = Receipt.of(path, name, rows=n_rows, users=users)
        self.index.write(self.path, UNFINISHED)

    def write_json(self, name: str, value: Any) -> None:
        """Write JSON as a file of this name, and record it."""
        with self.recording(name) as path:
            write_json(path, value)

    def record(self, name: str) -> None:
        """Record a file that is there, written by others."""
        with self.recording(name):
            pass

    def drop(self, name: str) -> None:
        """Remove a file that is of use no longer, with its receipt.

        Raises:
            UserError: a link leads out of the folder.
        """
        self.index.receipts.pop(name, None)
        self.inside(name).unlink(missing_ok=True)

    def inside(self, name: str) -> Path:
        """The path of a file of this name.

        Raises:
            UserError: a folder on the way to it is a link.
        """
        for above in reversed(Path(name).parents[:-1]):
            refuse_link(self.path / above)
        return self.path / name

    def _finish(self) -> None:
        if self._began:
            self.index.write(self.path)
            (self.path / UNFINISHED).unlink(missing_ok=True)

    def _leave(self) -> None:
        """After a failure: keep what was written; remove a manifest that nothing else is beside."""
        if self._began:
            alone = {UNFINISHED, *self.index.receipts.keys() & {*MANIFESTS}}
            if all(path.name in alone for path in _strangers_in(self.path)):
                for name in alone:
                    (self.path / name).unlink(missing_ok=True)


_filled: contextvars.ContextVar[dict[str, RunFolder] | None] = contextvars.ContextVar("filled", default=None)


def is_filled_here(folder: Path) -> bool:
    """Return whether the code that asks runs within a block that fills this folder."""
    return os.path.realpath(folder) in (_filled.get() or {})


@contextlib.contextmanager
def _made(folder: Path, what: str) -> Iterator[None]:
    """Make the folder; where the work fails, folders that were not there go if they are empty."""
    if folder.is_file():
        raise UserError(f"{what} {folder} is a file: name a folder")
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"{what} {folder} cannot be made: {error.strerror}; name another folder"
            raise not_written(error, message) from None
        yield
    except BaseException:
        for empty in made:
            with contextlib.suppress(OSError):  # not there, or somebody else's file is in it
                empty.rmdir()
        raise


@contextlib.contextmanager
def _locked(folder: Path, what: str) -> Iterator[None]:
    """Hold the folder's lock within the block; what a killed process left of it is no hindrance.

    Raises:
        UserError: another process holds it, the folder cannot be written, or something else has the lock's place.
    """
    from filelock import FileLock, Timeout

    path = folder / LOCK
    with contextlib.suppress(FileNotFoundError):  # whoever held it may remove it at any time
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise UserError(f"{path} is a link, or no regular file: remove it, or name another folder")
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        message = f"{what} {folder} is being written by another process: wait for it, or name another folder"
        raise UserError(message) from None
    except OSError as error:
        message = f"{what} {folder} cannot be written: {error.strerror}; name another folder"
        raise not_written(error, message) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # before another can lock it; Windows removes no file that is open
            path.unlink()
        lock.release()


def _remove_temporaries(folder: Path) -> None:
    """Remove the half-written files of a killed run: whoever holds the lock is the one writer."""
    for path in list(folder.rglob(".*.tmp")):
        if is_temporary(path):
            with contextlib.suppress(OSError):
                path.unlink()


def _strangers_in(folder: Path) -> list[Path]:
    """List the files in a folder besides our own while it is filled."""
    return [path for path in folder.iterdir() if path.name not in _OURS and not is_temporary(path)]


def foreign_in(folder: Path, names: Collection[str]) -> str | None:
    """Describe the contents of a folder besides files of these names as a run of ours has written them.

    Returns:
        The first such file by name, "" where there is none, None where the folder is empty or not there.
    """
    if folder.is_dir():
        there = sorted({path.name for path in _strangers_in(folder)} - {INDEX})
    else:
        there = []
    receipts = Index.of(folder).receipts
    for name in there:
        if name not in names or name not in receipts:
            return f"{name} was not written by this command"
        if not receipts[name].fits(folder):
            return f"{name} was changed after it was written"
    if there:
        return ""
    return None


def _refuse_occupied(folder: Path, what: str) -> None:
    """Raise UserError where ``folder`` holds something; ``what`` is the user's name for it."""
    if not _strangers_in(folder):
        return
    if any((folder / name).exists() for name in MANIFESTS):
        hint = " (--resume takes up the run that it holds)"
    else:
        hint = ""
    raise UserError(f"{what} {folder} exists and is not empty: name another folder, or remove it first{hint}")


def new_folder(out: str | Path | None, kind: str) -> Path:
    """The folder ``out``, or one that is not there, under ``./runs`` and named after ``kind`` and the time."""
    stamp = time.strftime(f"{kind}-%Y%m%d-%H%M%S")
    names = (stamp + (f"-{i}" if i > 1 else "") for i in itertools.count(1))
    if out is not None:
        return Path(out)
    return next(entry for name in names if not (entry := Path("runs") / name).exists())


def refuse_differences(what: str, before: Any, wanted: Any, remedy: str = "name another folder") -> None:
    """Raise UserError where the settings of an earlier run, of which ``what`` says where they are, are not these."""
    changed = differences(before, wanted)
    if changed:
        raise UserError(f"cannot resume: {what} that differs in {', '.join(changed)}: {remedy}")


def differences(before: Any, wanted: Any, path: str = "") -> list[str]:
    """List where two JSON values differ, as paths with both values where they are short."""
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
    there = json.dumps(before)
    here = json.dumps(wanted)
    return [f"{path} ({there} there, {here} here)" if max(len(there), len(here)) <= _LONGEST else path]
