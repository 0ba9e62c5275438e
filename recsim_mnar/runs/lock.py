"""The one owner of a folder: a process that holds a lock on a file in it for as long as it writes there.

The lock is an ``flock``, which the system releases when its process ends, however it ends; the file names its holder.
Where the file system has no locks, making the file is the lock, and who was killed leaves it to be removed by hand.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path

from recsim_mnar.errors import UserError
from recsim_mnar.runs.files import lock_file, opened, opened_to_read, read_ours

LOCK, LEASE = ".lock", ".lease"
"""Names of the file: where there are locks, and where there are none."""
_TRIES, _APART = 10, 0.01
"""Of a lock that is held, and the seconds between: who asks for the holder has it for an instant."""


class TakenError(UserError):
    """The folder has another owner."""


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
