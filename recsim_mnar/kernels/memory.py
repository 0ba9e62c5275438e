"""Memory of the machine and of processes: the one module that asks systems in their own ways, and does without."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sys
from pathlib import Path


def in_words(size: float) -> str:
    """Return a number of bytes in words."""
    if size >= 1e9:
        return f"{size / 1e9:.2g} GB"
    return f"{max(size / 1e6, 1.0):.0f} MB"


def give_back() -> None:
    """Hand memory that was freed in many small pieces back to the system, where the C library can."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def refuse_want_of_memory(error: BaseException, what: str) -> None:
    """Raise MemoryError for a library's error about memory, such as pyarrow's for a file that it cannot map.

    Args:
        error: error of a library.
        what: subject of the message.
    """
    if os.strerror(errno.ENOMEM) in str(error):
        raise MemoryError(f"{what}: {error}") from None


def free_memory() -> int:
    """Return the bytes of free memory; a very large number if the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError, IndexError):
        return sys.maxsize


LEAST_ADDRESSES = 1_000_000_000
"""Bytes of addresses that libraries take as they are loaded and kernels compiled; below it they abort or crash."""


def address_limit() -> float:
    """Bytes of addresses that this process may have (``ulimit -v``); infinity where nothing is said."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    except (ImportError, AttributeError):  # not a POSIX system
        return float("inf")
    if limit == resource.RLIM_INFINITY:
        return float("inf")
    return limit


def peak_memory() -> int:
    """Bytes that this process has held in memory at most; 0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    return _most_held("RUSAGE_SELF")


def peak_memory_of_a_child() -> int:
    """Measure :func:`peak_memory` of the largest of the processes that this one started and that have ended."""
    return _most_held("RUSAGE_CHILDREN")


def _most_held(of: str) -> int:
    try:
        import resource
    except ImportError:  # not a POSIX system
        return 0
    if sys.platform == "darwin":
        unit = 1
    else:
        unit = 1024
    return unit * resource.getrusage(getattr(resource, of)).ru_maxrss
