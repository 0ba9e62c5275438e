"""How much memory a process may take: what a user allows, or what the machine has left."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
from dataclasses import dataclass

from recsim_mnar.errors import UserError

MB = 1 << 20
RESERVE = 200 * MB
"""What kernels and libraries take beyond what the process holds when it is asked."""

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: str, flag: str) -> int:
    """Bytes of a size as people write it: 1GB, 1.5 GiB, 800M, 1000000000.

    Raises:
        UserError: it is none; ``flag`` names where it stands.
    """
    found = _SIZE.fullmatch(text)
    size = 0 if found is None else round(float(found[1]) * (1024 if found[3] else 1000) ** _POWERS[found[2].lower()])
    if size <= 0:
        raise UserError(f"{flag} {text!r} is no size: write 1GB or 800MB, for instance")
    return size


def in_words(size: float) -> str:
    """A number of bytes for a person."""
    return f"{size / 1e9:.2g} GB" if size >= 1e9 else f"{max(size / 1e6, 1.0):.0f} MB"


def resident() -> int:
    """Bytes that this process holds in memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0


def give_back() -> None:
    """Hand memory that was freed in many small pieces back to the system, where the C library can."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _free() -> int:
    """Bytes that the machine has left; very many where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError, IndexError):
        return sys.maxsize


@dataclass(frozen=True)
class MemoryLimit:
    """What a process may take.

    Attributes:
        size: bytes in all, as a user allows; None for what the machine has left.
        flag: what the user knows it by.
    """

    size: int | None = None
    flag: str = "--max-memory"

    @property
    def room(self) -> int:
        """Bytes beyond what the process holds."""
        if self.size is None:
            return max(_free() - RESERVE, 0)
        return max(self.size - resident() - RESERVE, 0)

    def count(self, each: float, least: int, most: int, what: str, *, beside: float = 0.0) -> int:
        """How many things of ``each`` bytes there is room for, from ``least`` to ``most``.

        Args:
            each: bytes of one.
            least: so many are needed.
            most: and more are of no use.
            what: takes them, for the message.
            beside: bytes that are needed whatever the number.

        Raises:
            UserError: not for ``least``; the line says what is needed.
        """
        room = self.room - beside
        if each * least > room:
            self.refuse(each * least + beside, what)
        return most if self.size is None else max(least, min(most, int(room / each)))

    def hold(self, size: float, what: str) -> None:
        """Raise UserError where there is no room for so many bytes."""
        if size > self.room:
            self.refuse(size, what)

    def refuse(self, size: float, what: str) -> None:
        """Raise the UserError that says what ``what`` needs.

        Raises:
            UserError: always.
        """
        if self.size is None:
            raise UserError(
                f"{what} takes {in_words(size)} of memory and this machine has {in_words(self.room + RESERVE)} left"
            )
        needed = in_words((size + resident() + RESERVE) * 1.05)
        raise UserError(f"{self.flag} {in_words(self.size)}: {what} needs at least {needed}")
