"""RunFolder: the lock, settings, files and index of a folder while one process fills it.

The lock is ``filelock``'s: the system releases it when its process ends, however it ends. Every file is written under a
temporary name and renamed, then its receipt is written; the index comes last. Resumed, a folder keeps the files that
fit their receipts, and the others are made again.
"""

from __future__ import annotations

import contextlib
import contextvars
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
"""Names of manifests: the settings of a run that can be resumed."""
_TEMPORARY_NAMES = (LOCK, UNFINISHED)
"""Files of a folder that is being filled, or whose run was killed."""
_LONGEST_QUOTED = 60
"""Characters of a value that a refusal quotes."""


class RunFolder:
    """A folder that this process fills with files; :meth:`fill` makes it.

    Attributes:
        path: path of the folder.
        index: receipts of the files that this run, or the run that it resumes, has written.
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
        """Create a folder if necessary, lock it while it is filled, and write its index at the end.

        A nested block on the same folder yields the outer block's object, and the outermost writes the index. A folder
        that cannot be written is found before the work. If the work fails before it has written anything useful, what
        this process created is removed, so that the same command can be typed again.

        Args:
            folder: path of the folder.
            resume: continue the run in the folder, if any; else the folder must be empty.
            keep_others: allow other files in the folder, and keep its receipts.
            what: name of the folder in messages.

        Raises:
            UserError: it is a file, has other contents, cannot be created or written, or another process fills it; or
                it is a link in a folder that is being filled.
        """
        real_path = os.path.realpath(folder)
        outer = _being_filled.get() or {}
        if real_path in outer:  # a nested block on the same folder, which the outer block has locked
            yield outer[real_path]
            return
        folder = path_of(folder)
        if os.path.realpath(folder.parent) in outer:  # a folder in one that is being filled
            refuse_link(folder)
        with _created(folder, what), _locked_for_block(folder, what):
            holds_run = any((folder / name).exists() for name in (*MANIFESTS, INDEX))
            continues = keep_others or (resume and holds_run)
            if not continues:
                _refuse_occupied(folder, what)
            if not keep_others:
                _remove_temporaries(folder)
            run_folder = cls(folder)
            if continues:
                run_folder.index = Index.of(folder)
            token = _being_filled.set({**outer, real_path: run_folder})
            try:
                yield run_folder
                run_folder._finish()
            except BaseException:
                run_folder._clean_up()
                raise
            finally:
                _being_filled.reset(token)

    # ---------------------------------------------------------------------------------------------------- settings

    def begin(self, made: str | None) -> None:
        """Set the digest of the settings from here on; receipts of other settings are dropped.

        An earlier index is removed: until the end the folder is not finished.
        """
        receipts = {}
        if self.index.made == made:
            receipts = dict(self.index.receipts)
        self.index = Index(receipts, made, made_with())
        self._begin()

    def _begin(self) -> None:
        """Mark the folder as unfinished: write the receipts so far, and remove an earlier index."""
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
        """Raise UserError if the folder has another run than this one; else return the digest of this run's settings.

        Args:
            manifest: name of the manifest.
            settings: settings of the run, JSON types only; ``code`` has digests of the code and files it uses.
            made: digest of the settings on which every file depends; of all settings if None.
            alike: function from the earlier settings and these to the parts that must be equal, if not all must be;
                its first result is None for earlier settings that are invalid.

        Raises:
            UserError: the folder has another run, or one of other versions.
        """
        path = self.path / manifest
        settings = json.loads(json.dumps(settings))  # tuples become lists, as they are in a manifest that is read back
        if made is None:
            made = digest_of(settings)
        has_receipts = self.index.made == made
        # The index has the versions of this very run, if it has any; otherwise the manifest says them.
        versions: Any = self.index.made_with
        earlier = read_json(path)
        if not isinstance(earlier, dict):
            earlier = None
        else:
            stored_versions = earlier.pop("made_with", None)
            if not has_receipts:
                versions = stored_versions
        if alike is not None and earlier is not None:
            earlier, settings = alike(earlier, settings)
        elif has_receipts:
            earlier = None  # equal digests prove that the settings are equal; the manifest is written anew
        if earlier is not None:
            refuse_differences(f"{self.path} holds a run", earlier, settings)
        elif not has_receipts and (path.exists() or self.index.receipts):
            raise UserError(f"cannot resume: {path} is missing or damaged: restore it, or name another folder")
        refuse_other_versions(f"{self.path} holds a run that was made", versions if isinstance(versions, dict) else {})
        return made

    def begin_run(self, manifest: str, settings: Mapping[str, Any], made: str) -> None:
        """Write the manifest of a run, its settings and the versions; ``made`` is their digest."""
        self.begin(made)
        self.write_json(manifest, {**json.loads(json.dumps(settings)), "made_with": made_with()})

    # ------------------------------------------------------------------------------------------------------- files

    def whole(self, name: str) -> Receipt | None:
        """Return the receipt of a file if it is intact; otherwise drop the receipt and return None."""
        receipt = self.index.receipts.get(name)
        if receipt is not None and receipt.fits(self.path):
            return receipt
        self.index.receipts.pop(name, None)  # so that no index vouches for the damaged file
        return None

    @contextlib.contextmanager
    def recording(
        self, name: str, *, rows: Callable[[Path], int] | None = None, users: tuple[int, int] | None = None
    ) -> Iterator[Path]:
        """Yield the path of a file to write, and record the file at the end of the block.

        Args:
            name: path of the file in the folder.
            rows: function that counts the rows of the written table; None for other files.
            users: first and last user of the table.

        Raises:
            UserError: a link leads out of the folder.
        """
        if not self._began:
            self._begin()
        path = self.inside(name)
        yield path
        try:
            n_rows = None if rows is None else rows(path)
        except UserError:  # the written file cannot be read back
            path.unlink(missing_ok=True)
            raise
        self.index.receipts[name] = Receipt.of(path, name, rows=n_rows, users=users)
        self.index.write(self.path, UNFINISHED)

    def write_json(self, name: str, value: Any) -> None:
        """Write JSON as a file of this name, and record it."""
        with self.recording(name) as path:
            write_json(path, value)

    def record(self, name: str) -> None:
        """Record an existing file of the folder that was written by other means."""
        with self.recording(name):
            pass

    def drop(self, name: str) -> None:
        """Remove a file and its receipt.

        Raises:
            UserError: a link leads out of the folder.
        """
        self.index.receipts.pop(name, None)
        self.inside(name).unlink(missing_ok=True)

    def inside(self, name: str) -> Path:
        """Return the path of a file in the folder.

        Raises:
            UserError: a folder on the way to it is a link.
        """
        for parent in reversed(Path(name).parents[:-1]):
            refuse_link(self.path / parent)
        return self.path / name

    def _finish(self) -> None:
        """Write the final index in place of the unfinished one, if anything was written."""
        if self._began:
            self.index.write(self.path)
            (self.path / UNFINISHED).unlink(missing_ok=True)

    def _clean_up(self) -> None:
        """After a failure, remove the manifests and the unfinished index if the folder has no other files."""
        if self._began:
            manifests = {UNFINISHED, *self.index.receipts.keys() & {*MANIFESTS}}
            if all(path.name in manifests for path in _contents_of(self.path)):
                for name in manifests:
                    (self.path / name).unlink(missing_ok=True)


_being_filled: contextvars.ContextVar[dict[str, RunFolder] | None] = contextvars.ContextVar("filled", default=None)
"""Folders that this thread fills at the moment, by real path, so that nested blocks do not lock a folder twice."""


@contextlib.contextmanager
def _created(folder: Path, what: str) -> Iterator[None]:
    """Create the folder for the block; if the block fails, remove the folders created here that are empty.

    Raises:
        UserError: the folder is a file, or cannot be created; ``what`` is its name in the message.
    """
    if folder.is_file():
        raise UserError(f"{what} {folder} is a file: name a folder")
    made = [path for path in (folder, *folder.parents) if not path.exists()]  # the innermost first, as rmdir needs it
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"{what} {folder} cannot be made: {error.strerror}; name another folder"
            raise not_written(error, message) from None
        yield
    except BaseException:
        for empty in made:
            with contextlib.suppress(OSError):  # missing, or another process has a file in it
                empty.rmdir()
        raise


@contextlib.contextmanager
def _locked_for_block(folder: Path, what: str) -> Iterator[None]:
    """Lock the folder within the block; a lock file that a killed process left does not matter.

    Args:
        folder: the folder, which exists.
        what: name of the folder in messages.

    Raises:
        UserError: another process has the lock, the folder cannot be written, or the lock file is no regular file.
    """
    from filelock import FileLock, Timeout

    path = folder / LOCK
    with contextlib.suppress(FileNotFoundError):  # its owner may remove it at any time
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
        # Removed while it is locked: after the release it could be another process's. Windows removes no open file.
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()


def _remove_temporaries(folder: Path) -> None:
    """Remove the half-written files of a killed run; the lock guarantees that nobody else writes."""
    for path in list(folder.rglob(".*.tmp")):
        if is_temporary(path):
            with contextlib.suppress(OSError):
                path.unlink()


def _contents_of(folder: Path) -> list[Path]:
    """List the contents of a folder, except the files that exist only while it is filled."""
    return [path for path in folder.iterdir() if path.name not in _TEMPORARY_NAMES and not is_temporary(path)]


def describe_foreign_file(folder: Path, names: Collection[str]) -> str | None:
    """Describe the first file of a folder that a command has not written, or that was changed since.

    Args:
        folder: path of the folder.
        names: names of the files that the command writes.

    Returns:
        The description; "" if all files are the command's and intact; None if the folder is empty or does not exist.
    """
    contents = []
    if folder.is_dir():
        contents = sorted({path.name for path in _contents_of(folder)} - {INDEX})
    receipts = Index.of(folder).receipts
    for name in contents:
        if name not in names or name not in receipts:
            return f"{name} was not written by this command"
        if not receipts[name].fits(folder):
            return f"{name} was changed after it was written"
    return "" if contents else None


def _refuse_occupied(folder: Path, what: str) -> None:
    """Raise UserError if ``folder`` is not empty; ``what`` is its name in the message."""
    if not _contents_of(folder):
        return
    hint = ""
    if any((folder / name).exists() for name in MANIFESTS):
        hint = " (--resume takes up the run that it holds)"
    raise UserError(f"{what} {folder} exists and is not empty: name another folder, or remove it first{hint}")


def output_path(out: str | Path | None, kind: str) -> Path:
    """Return the path of the folder to write: ``out``, or a free name under ``./runs`` made of ``kind`` and the time.

    The folder is not created.
    """
    if out is not None:
        return Path(out)
    first_choice = Path("runs") / time.strftime(f"{kind}-%Y%m%d-%H%M%S")
    folder = first_choice
    number = 1
    while folder.exists():  # from another run of the same second
        number += 1
        folder = first_choice.with_name(f"{first_choice.name}-{number}")
    return folder


def refuse_differences(what: str, before: Any, now: Any, remedy: str = "name another folder") -> None:
    """Raise UserError if the settings of an earlier run differ.

    Args:
        what: subject of the message, such as ``FOLDER holds a run``.
        before: settings of the earlier run.
        now: settings of this run.
        remedy: end of the message, which says what to do.
    """
    changed = differences(before, now)
    if changed:
        raise UserError(f"cannot resume: {what} that differs in {', '.join(changed)}: {remedy}")


def differences(before: Any, now: Any, path: str = "") -> list[str]:
    """List the paths at which two JSON values differ, such as ``world.params.n_items (10 there, 20 here)``.

    Args:
        before: the earlier value; messages say that it is "there".
        now: the present value; messages say that it is "here".
        path: path of both values within the settings; empty at the top.
    """
    if isinstance(before, dict) and isinstance(now, dict):
        changed = []
        for key in sorted({*before, *now}):
            changed += differences(before.get(key), now.get(key), f"{path}.{key}" if path else key)
        return changed
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        changed = []
        for i, (old, new) in enumerate(zip(before, now, strict=True)):
            changed += differences(old, new, f"{path}[{i}]")
        return changed
    if before == now:
        return []
    if path.startswith("code."):  # the values are digests, which nobody wants to read
        return [f"the code of {path.removeprefix('code.')}"]
    texts = [json.dumps(before), json.dumps(now)]
    if max(map(len, texts)) > _LONGEST_QUOTED:
        return [path]
    return [f"{path} ({texts[0]} there, {texts[1]} here)"]
