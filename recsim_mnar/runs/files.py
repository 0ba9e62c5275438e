"""The one way to open a file for writing: no link is followed, a temporary name first, then the rename."""

from __future__ import annotations

import contextlib
import contextvars
import errno
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError, why_unreadable

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

LARGEST = 1 << 28
"""Bytes of an index, a journal or a manifest: room for a million parts. A larger file is none of ours."""

_TEMPORARY = re.compile(r"\.(?:(?P<of>.+)\.)?(?:[0-9a-f]{16}|\d+)\.tmp")
"""Names of temporary files; those of digits alone are of version 0.2.0 and before."""
_NOT_FOLLOWED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


class NotOursError(UserError):
    """What is where we are to write is a link, no regular file, or another user's."""


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
    """Raise NotOursError where a folder whose name we chose is a link: what is behind it is not ours to change."""
    if folder.is_symlink():
        raise NotOursError(
            f"{folder} is a symbolic link; nothing is written or removed behind it: remove it, or name another folder"
        )


def opened_to_read(path: Path) -> int:
    """Open a file of ours that bears no receipt: others may have put anything in its place.

    Raises:
        OSError: it cannot be read, is a link or no regular file, or is larger than one of ours.
    """
    file = os.open(path, os.O_RDONLY | _NOT_FOLLOWED)
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
        os.close(file)
        raise OSError(errno.EINVAL, "no file of ours", str(path))
    return file


def read_ours(path: Path) -> bytes:
    """The bytes of a file, opened as by :func:`opened_to_read`."""
    with open(opened_to_read(path), "rb") as file:
        return file.read()


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Hand out a temporary file to write to; where the block succeeds it takes the name ``path``.

    The bytes reach the disk before the name does, so that after a loss of power the file is whole or not there (where
    a file is :func:`recorded`, its receipt says so, and the disk is waited for once, at the end).

    Raises:
        OSError: the file cannot be written; it names ``path``, whatever raised it.
    """
    target = path_of(path)
    temporary: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary, file = _temporary(target)
        try:
            yield temporary
            waits = not _recorder.get()(temporary, target)
            if waits:
                os.fsync(file)
            os.replace(temporary, target)
            if waits:
                sync(target.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)
    except OSError as error:
        # Libraries raise errors without a file's name; one with the name of another file is about that.
        if temporary is None or error.filename in (None, str(temporary), temporary):
            raise _of_file(error, target) from error
        raise


def _temporary(path: Path, mode: int = 0o666) -> tuple[Path, int]:
    """A new temporary file next to ``path``, open, and locked for as long as it is.

    An unlocked one was left by a process that has ended, and :func:`sweep` takes it away.
    """
    while True:
        temporary = path.with_name(_temporary_name(path.name))
        file = opened(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            lock_file(file)
            if os.path.samestat(os.fstat(file), os.lstat(temporary)):
                return temporary, file
        os.close(file)  # somebody who sweeps met it before it was locked


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
    """Write a temporary file next to ``path`` that this user alone may read, and its remover.

    It is locked for as long as this process lives, so that :func:`sweep` takes it away afterwards and not before.

    Raises:
        OSError: it cannot be written.
    """
    temporary, file = _temporary(path, 0o600)
    made_by = os.getpid()

    def remove() -> None:
        if os.getpid() == made_by:  # a forked child has the file, and no part in it
            temporary.unlink(missing_ok=True)
            os.close(file)

    try:
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


def lock_file(file: int, *, shared: bool = False) -> bool:
    """Lock an open file for this process alone, or with others that share it; False where there are no locks.

    Raises:
        BlockingIOError: another process holds it.
    """
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


def sync(path: Path) -> None:
    """Let the bytes of a file reach the disk or, where the file system can, the names in a folder."""
    names = path.is_dir()
    with contextlib.suppress(OSError) if names else contextlib.nullcontext():
        handle = os.open(path, os.O_RDWR if os.name == "nt" and not names else os.O_RDONLY)  # Windows writes to sync
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def is_temporary(path: Path) -> bool:
    """Whether this is the name of a file that is being written, or was when its writer was killed."""
    return _TEMPORARY.fullmatch(path.name) is not None


def sweep(folder: Path, of: str | None = None) -> None:
    """Take away the temporary files in ``folder`` whose writers have ended; with ``of`` those of this file alone.

    Where the file system has no locks, none is removed: it is unknown whether its writer still writes.
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


def path_of(path: Any) -> Path:
    """What a user named as a file or a folder: with ``~`` before it in the home folder, as a shell has it.

    What begins with ``~`` otherwise, as ``./~/x`` does without its ``./``, comes back absolute: no path of ours is one
    that libraries would take for the home folder.

    Raises:
        UserError: it is empty, which would be the current folder, no path, or no UTF-8, which the libraries that
            read and write our files ask for.
    """
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise UserError(f"a path must be a text or a Path that is not empty, got {path!r}")
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        raise UserError(f"{shown}: the path is not UTF-8; rename it") from None
    named = Path(os.path.expanduser(path))
    return named.absolute() if str(named).startswith("~") else named


def read_toml(path: Path) -> dict[str, Any]:
    """What a TOML file says that a user has named.

    Raises:
        UserError: no such file, a folder, a pipe or a device, which might never end, or no TOML.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder: name its TOML file")
    if not path.exists():
        raise UserError(f"{path} does not exist: name a TOML file")
    if not path.is_file():
        raise UserError(f"{path} is no regular file: write its lines into one, and name that")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # a number of 5,000 digits is a plain ValueError
        raise UserError(f"{path} is not a TOML file: {why_unreadable(error)}; correct it") from None


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
