"""Memory of the machine and of processes.

Only this module uses interfaces of one operating system; each function has a fallback for systems that lack them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sys
from pathlib import Path


def in_words(size: float) -> str:
    """Format a number of bytes, such as ``1.5 GB`` or ``12 MB``."""
    if size >= 1e9:
        return f"{size / 1e9:.2g} GB"
    return f"{max(size / 1e6, 1.0):.0f} MB"


def give_back() -> None:
    """Return freed memory to the operating system, if the C library is glibc; otherwise do nothing."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def refuse_want_of_memory(error: BaseException, what: str) -> None:
    """Raise MemoryError if a library's error states that memory is exhausted; otherwise return.

    pyarrow, for example, raises an OSError for a file that it cannot map.

    Args:
        error: error that a library raised.
        what: subject of the message.
    """
    if os.strerror(errno.ENOMEM) in str(error):
        raise MemoryError(f"{what}: {error}") from None


def free_memory() -> int:
    """Return the bytes of available memory; ``sys.maxsize`` if the system does not state it."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError, IndexError):
        return sys.maxsize


LEAST_ADDRESSES = 1_000_000_000
"""Bytes of address space that loading libraries and compiling kernels takes; with less they abort or crash."""


def address_limit() -> float:
    """Return the largest address space in bytes that this process may have (``ulimit -v``); infinity if unlimited."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    except (ImportError, AttributeError):  # not a POSIX system
        return float("inf")
    if limit == resource.RLIM_INFINITY:
        return float("inf")
    return limit


def peak_memory() -> int:
    """Return the largest number of bytes that this process has had in memory; 0 if the system does not state it."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    return _most_held("RUSAGE_SELF")


def peak_memory_of_a_child() -> int:
    """Return the largest :func:`peak_memory` of the child processes that have ended; 0 if it is not known."""
    return _most_held("RUSAGE_CHILDREN")


def _most_held(processes: str) -> int:
    """Return the largest resident set in bytes; ``processes`` is ``RUSAGE_SELF`` or ``RUSAGE_CHILDREN``."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return 0
    unit = 1024  # POSIX leaves the unit open: macOS counts bytes, other systems kilobytes
    if sys.platform == "darwin":
        unit = 1
    return unit * resource.getrusage(getattr(resource, processes)).ru_maxrss
