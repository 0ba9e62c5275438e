"""The files in which logs lie: how they are opened, parts, temporary names, what makes a folder a log."""

from __future__ import annotations

import contextlib
import contextvars
import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

PARQUET = (".parquet", ".pq")
"""Endings of Parquet files."""
ARROW = (".arrow", ".feather")
"""Endings of Arrow's own files (IPC)."""
SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": ","}
"""Endings of text tables, and what separates their columns."""
PACKED = {"compression": "zstd", "compression_level": 1, "write_page_checksum": True}
"""Options of pyarrow's writer of Parquet, for all of ours."""

MOST_TOLD = 1 << 28
"""Bytes of an index, a journal or a manifest: room for a million parts. A larger file is none of ours."""

_TEMPORARY = re.compile(r"\.(?:(?P<of>.+)\.)?(?:[0-9a-f]{16}|\d+)\.tmp")
"""Names of temporary files; those of digits alone are of version 0.2.0 and before."""
_NOT_FOLLOWED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


class NotOursError(UserError):
    """What lies where we are to write is a link, no regular file, or another user's."""


def opened(path: Path, flags: int, mode: int = 0o666) -> int:
    """Open a file that is to be written, in a folder that others may have prepared; all of this package do so here.

    No link is followed. What is there already must be a regular file of this user's that has no other name.

    Args:
        path: of the file.
        flags: of ``os.open``; what was there is not truncated by them, for it is looked at first.
        mode: of a new file.

    Raises:
        NotOursError: something else is there; it is left as it is.
        OSError: it cannot be opened; FileExistsError with ``O_EXCL`` where anything is there.
    """
    while True:
        if flags & os.O_CREAT:  # what is made here is ours, whatever owner the file system gives it
            try:
                return os.open(path, flags | os.O_EXCL | _NOT_FOLLOWED, mode)
            except FileExistsError:
                if flags & os.O_EXCL:
                    raise
        try:
            file = os.open(path, flags & ~(os.O_CREAT | os.O_TRUNC) | _NOT_FOLLOWED)
        except FileNotFoundError:
            if flags & os.O_CREAT:  # gone since
                continue
            raise
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                _refuse_strange(path, os.lstat(path))
            raise
        try:
            _refuse_strange(path, os.fstat(file))
        except NotOursError:
            os.close(file)
            raise
        return file


def _refuse_strange(path: Path, found: os.stat_result) -> None:
    remedy = "remove it, or name another folder"
    if stat.S_ISLNK(found.st_mode):
        why = "is a symbolic link"
    elif not stat.S_ISREG(found.st_mode):
        why = "is no regular file"
    elif found.st_nlink > 1:
        why = "is a hard link: the file has another name, too"
    elif hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        why, remedy = "belongs to another user", "wait until they have done, or name another folder"
    else:
        return
    raise NotOursError(f"{path} {why}; nothing is written into it: {remedy}")


def refuse_link(folder: Path) -> None:
    """Raise NotOursError where a folder whose name we chose is a link: what lies behind it is not ours to change."""
    if folder.is_symlink():
        raise NotOursError(
            f"{folder} is a symbolic link; nothing is written or removed behind it: remove it, or name another folder"
        )


def told_in(path: Path) -> bytes:
    """What a file of ours says that bears no receipt: others may have put anything in its place.

    Raises:
        OSError: it cannot be read, is a link or no regular file, or is larger than one of ours.
    """
    file = os.open(path, os.O_RDONLY | _NOT_FOLLOWED)
    with open(file, "rb") as reading:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_TOLD:
            raise OSError(errno.EINVAL, "no file of ours", str(path))
        return reading.read()


class replacing:  # noqa: N801  (used as a verb in a with-statement)
    """``with replacing(path) as temporary``: write to ``temporary``; on success it takes the name ``path``.

    The bytes reach the disk before the name does, so that after a loss of power the file is whole or not there (where
    :func:`recorded` hands the file on, its receipt tells, and the disk is waited for once, in the end). Its
    temporary file is locked while it is written: one that nobody locks was left by a process that has ended, and
    :func:`sweep` takes it away.

    Raises:
        OSError: the file cannot be written; it names ``path``, whatever raised it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def __enter__(self) -> Path:
        check_utf8(self.path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while True:
                self.temporary = self.path.with_name(_temporary_name(self.path.name))
                self._file = opened(self.temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
                with contextlib.suppress(BlockingIOError, FileNotFoundError):
                    lock_file(self._file)
                    if os.path.samestat(os.fstat(self._file), os.lstat(self.temporary)):
                        return self.temporary
                os.close(self._file)  # somebody who sweeps met it before it was locked
        except OSError as error:
            raise _of_file(error, self.path) from error

    def __exit__(self, kind: Any, error: Any, *_: object) -> None:
        try:
            if kind is None and _recorder.get()(self.temporary, self.path):
                os.replace(self.temporary, self.path)
            elif kind is None:
                os.fsync(self._file)
                os.replace(self.temporary, self.path)
                sync_folder(self.path.parent)
        except OSError as failed:
            error = failed
        finally:
            os.close(self._file)
            if error is not None:
                with contextlib.suppress(OSError):
                    self.temporary.unlink(missing_ok=True)
        # Libraries raise errors without a file's name; one with the name of another file is about that.
        if isinstance(error, OSError) and error.filename in (None, str(self.temporary), self.temporary):
            raise _of_file(error, self.path) from error


_recorder: contextvars.ContextVar[Callable[[Path, Path], bool]] = contextvars.ContextVar(
    "recorder", default=lambda temporary, path: False
)


@contextlib.contextmanager
def recorded(recorder: Callable[[Path, Path], bool]) -> Iterator[None]:
    """Within the block ``recorder(temporary, path)`` is called with every file before it takes its name.

    It answers whether it has taken it down, and will see to it that it reaches the disk.
    """
    before = _recorder.set(recorder)
    try:
        yield
    finally:
        _recorder.reset(before)


def _temporary_name(name: str) -> str:
    """One that no other process takes, on this host or on another that sees the same folder."""
    unique = f"{os.urandom(8).hex()}.tmp"
    return f".{name}.{unique}" if len(os.fsencode(name)) < 220 else f".{unique}"


def private_temporary(path: Path, data: bytes) -> tuple[Path, Callable[[], None]]:
    """Write a temporary file beside ``path`` that this user alone may read, and its remover.

    It is locked for as long as this process lives, so that :func:`sweep` takes it away afterwards and not before.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(_temporary_name(path.name))
    file = opened(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    made_by = os.getpid()

    def remove() -> None:
        if os.getpid() == made_by:  # a forked child has the file, and no part in it
            temporary.unlink(missing_ok=True)
            os.close(file)

    try:
        with contextlib.suppress(BlockingIOError):
            lock_file(file)
        with open(file, "wb", closefd=False) as written:
            written.write(data)
    except OSError:
        remove()
        raise
    return temporary, remove


def _of_file(error: OSError, path: Path) -> OSError:
    """The error with the name of the file that it is about, which is not always the one that it names."""
    reason = os.strerror(error.errno) if error.errno else str(error).partition("\n")[0]
    return OSError(error.errno or errno.EIO, reason, str(path))


def lock_file(file: int, *, wait: bool = False) -> bool:
    """Lock an open file for this process alone; False where the file system has no locks.

    Raises:
        BlockingIOError: another process holds it.
    """
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


def sync_file(path: Path) -> None:
    """Let the bytes of a file reach the disk."""
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)  # Windows asks for the right to write
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Let the names in a folder reach the disk, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def is_temporary(path: Path) -> bool:
    """Whether this is the name of a file that is being written, or was when its writer was killed."""
    return _TEMPORARY.fullmatch(path.name) is not None


def sweep(folder: Path, of: str | None = None) -> None:
    """Take away the temporary files in ``folder`` whose writers have ended; with ``of`` those of this file alone.

    Where the file system has no locks, none is taken away: nobody knows whether its writer still writes.
    """
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            left = _TEMPORARY.fullmatch(path.name)
            if left and of in (None, left["of"]):
                _unlink_unlocked(path)


def _unlink_unlocked(path: Path) -> None:
    with contextlib.suppress(OSError, NotOursError):  # locked, gone, or not ours to take away
        file = opened(path, os.O_RDWR)
        try:
            if lock_file(file):
                path.unlink()
        finally:
            os.close(file)


def check_utf8(path: str | os.PathLike[str]) -> None:
    """Raise UserError where a path is no UTF-8, which the libraries that read and write our files ask for."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        raise UserError(f"{shown}: the path is not UTF-8; rename it") from None


def part_path(folder: Path, index: int, ending: str = PARQUET[0]) -> Path:
    """Where part ``index`` of a log folder lies."""
    return folder / f"part-{index:05d}{ending}"


def write_table(table: Any, path: Path) -> None:
    """Write a pyarrow Table as Parquet under a temporary name, then rename it; its pages bear checksums."""
    import pyarrow.parquet as pq

    with replacing(path) as temporary:
        pq.write_table(table, temporary, **PACKED)


def is_table(path: Path) -> bool:
    """Whether a file's name ends as those of logs do."""
    return path.suffix.lower() in (*PARQUET, *ARROW, *SEPARATORS)


def part_files(path: Path) -> list[Path]:
    """The files of a log, in the order of their names: those of a folder, or the file itself.

    A folder holds them itself or in its folder ``log`` (as what ``simulate`` and ``compare`` write, with other files
    beside). Where there are Parquet files Arrow and CSV files do not count, and hidden files, whose names begin with a
    dot or an underscore, never do. :class:`recsim_mnar.log.parts.Parts` holds them against their receipts, too.

    Raises:
        UserError: nothing there, nothing in it, or a file of another kind.
    """
    check_utf8(path)
    if not path.exists():
        raise UserError(f"{path} does not exist: give a Parquet or CSV file, or a folder of parts")
    if not path.is_dir():
        if not is_table(path):
            raise UserError(f"{path} is neither Parquet nor CSV: name it .parquet, .arrow, .csv or .tsv")
        if path.stat().st_size == 0:
            raise UserError(f"{path} is empty: give a log with at least one row")
        return [path]
    folder = path / "log" if (path / "log").is_dir() else path
    found = listed(folder)
    if not found:
        raise UserError(f"{folder} holds no Parquet or CSV parts")
    return found


def listed(folder: Path) -> list[Path]:
    """The tables in a folder that a reader takes for its parts, by name; see :func:`part_files`."""
    try:
        seen = sorted(p for p in folder.iterdir() if p.name[0] not in "._")
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}") from None
    for endings in (PARQUET, ARROW, tuple(SEPARATORS)):
        found = [p for p in seen if p.suffix.lower() in endings]
        if found:
            return found
    return []


def write_json(path: Path, value: Any) -> None:
    """Write JSON under a temporary name, then rename it."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, allow_nan=False, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    """A number of NumPy's as Python's own; anything else is no JSON."""
    import numpy as np

    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no JSON")
