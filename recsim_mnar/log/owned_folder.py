"""Who may write into a folder: one process, which holds a lock for as long as it does.

The lock is an ``flock`` on a file in the folder, which the system releases when its process ends, however it ends. The
file says who holds it. Where the file system has no locks a lease takes its place: a file that its owner renews every
few seconds, and that others may take over when it was not renewed for a minute or its process has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from recsim_mnar.errors import UserError
from recsim_mnar.log.files import lock_file, opened, sweep, told_in

LOCK, LEASE = ".lock", ".lease"
RENEWED_EVERY = 5.0
"""Seconds between renewals of a lease."""
DEAD_AFTER = 60.0
"""Seconds without a renewal after which a lease may be taken over, by the clock of the file system."""


class TakenError(UserError):
    """Another process owns the folder."""


class Held(Protocol):
    """A lock or a lease, held."""

    def lost(self) -> bool:
        """Whether somebody took it away."""

    def release(self) -> None:
        """Give it back and remove its file."""


@contextlib.contextmanager
def owned(folder: Path, what: str = "folder") -> Iterator[Held]:
    """Own an existing folder while it is filled; temporary files of dead owners are swept.

    Raises:
        TakenError: another process owns it, or another block of this one.
        NotOursError: a link or another user's file lies where the lock is to be.
        OSError: no file can be made in it.
    """
    held = _take(folder, what)
    try:
        sweep(folder)
        yield held
    finally:
        held.release()


def holder_of(folder: Path) -> str | None:
    """Who fills a folder at this moment, in words; None where nobody is known to.

    No lock is tried: one that a reader held for an instant would turn an owner away.
    """
    for name in (LOCK, LEASE):
        holder = _read(folder / name)
        if holder and (holder.get("host") != socket.gethostname() or _runs(holder)):
            return _in_words(holder)
    return None


def _take(folder: Path, what: str) -> Held:
    path = folder / LOCK
    while True:
        file = opened(path, os.O_RDWR | os.O_CREAT)
        try:
            if not lock_file(file):
                os.close(file)
                with contextlib.suppress(OSError):
                    path.unlink()
                return _Lease(folder).take(what)
            # The owner before removes its file and then lets go: what was locked may be no longer the folder's.
            if _same(file, path):
                with contextlib.suppress(OSError):  # a full disk: the lock holds without words, too
                    os.truncate(file, 0)
                    os.pwrite(file, json.dumps(_this_process()).encode(), 0)
                return _Lock(path, file)
            os.close(file)
        except BlockingIOError:
            os.close(file)
            raise TakenError(_refusal(folder, what, _told(path))) from None
        except OSError:
            os.close(file)
            raise


class _Lock:
    def __init__(self, path: Path, file: int) -> None:
        self.path, self.file = path, file

    def lost(self) -> bool:
        return not _same(self.file, self.path)

    def release(self) -> None:
        if not self.lost():
            self.path.unlink(missing_ok=True)
        os.close(self.file)


class _Lease:
    """For file systems without locks; see the module."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / LEASE
        self.me = {**_this_process(), "token": os.urandom(8).hex()}
        self._ended = threading.Event()
        self._lost = False

    def take(self, what: str) -> _Lease:
        while True:
            try:
                file = opened(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                break
            except FileExistsError:
                holder = _told(self.path)
                if not self.is_dead(holder):
                    raise TakenError(_refusal(self.folder, what, holder)) from None
                self._take_away(holder)
        with os.fdopen(file, "w") as written:
            written.write(json.dumps(self.me))
            written.flush()
            os.fsync(written.fileno())
        threading.Thread(target=self._renew, daemon=True, name="lease").start()
        return self

    def is_dead(self, holder: dict[str, Any]) -> bool:
        """Whether the owner's process has ended, or has not renewed for long."""
        # On Windows signal 0 is an interrupt: whether a process lives is not asked there.
        if holder.get("host") == self.me["host"] and os.name != "nt":
            return not _runs(holder)
        try:
            return self._clock() - self.path.stat().st_mtime > DEAD_AFTER
        except OSError:
            return False

    def _clock(self) -> float:
        """The time as the file system tells it; hosts' own clocks may differ."""
        probe = self.folder / f".{self.me['token']}.tmp"
        try:
            os.close(opened(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            return probe.stat().st_mtime
        except OSError:  # a folder that cannot be written
            return time.time()
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()

    def _take_away(self, holder: dict[str, Any]) -> None:
        """Remove a dead lease; of several who try, each removes the one that it found dead, or none."""
        aside = self.folder / f"{LEASE}.{self.me['token']}.tmp"
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.path, aside)
            if _read(aside) != holder:  # somebody else was quicker: this one lives
                with contextlib.suppress(OSError):
                    os.link(aside, self.path)
            aside.unlink()

    def _renew(self) -> None:
        while not self._ended.wait(RENEWED_EVERY):
            if _read(self.path).get("token") != self.me["token"]:
                self._lost = True
                return
            with contextlib.suppress(OSError):
                os.utime(self.path)

    def lost(self) -> bool:
        return self._lost

    def release(self) -> None:
        self._ended.set()
        if _read(self.path).get("token") == self.me["token"]:
            self.path.unlink(missing_ok=True)


def _same(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except OSError:
        return False


def _this_process() -> dict[str, Any]:
    pid = os.getpid()
    began = time.strftime("%Y-%m-%d %H:%M:%S %z")
    return {"host": socket.gethostname(), "pid": pid, "since": began, "started": _start_time(pid)}


def _start_time(pid: int) -> str | None:
    """When a process of this host began, in ticks since the host did: a number may be given to another process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _runs(holder: dict[str, Any]) -> bool:
    try:
        os.kill(int(holder["pid"]), 0)
    except ProcessLookupError:
        return False
    except (OSError, KeyError, TypeError, ValueError, OverflowError):
        return True
    return holder.get("started") in (None, _start_time(int(holder["pid"])))


def _read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(told_in(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _told(path: Path) -> dict[str, Any]:
    """What the owner says of itself; it may have the lock and not have written it yet."""
    for _ in range(10):
        told = _read(path)
        if told:
            return told
        time.sleep(0.01)
    return {}


def _in_words(holder: dict[str, Any]) -> str:
    if not holder:
        return "another process"
    return f"process {holder.get('pid')} on {holder.get('host')} since {holder.get('since')}"


def _refusal(folder: Path, what: str, holder: dict[str, Any]) -> str:
    return f"{what} {folder} is being written by {_in_words(holder)}: wait for it, or name another folder"
