"""Errors of the user, each in one line."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable


class UserError(ValueError):
    """An error that the user can fix; the message is one line with the problem and the fix.

    The command line prints the message and exits with status 2.

    Attributes:
        code: stable name of the kind of error, for programs; empty if the kind has no name.
    """

    code = ""

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class MachineError(UserError):
    """A shortage or refusal of the machine: memory, room on a disk, permission to read or write.

    The same command may succeed later, or on another machine; the command line exits with status 4.
    """

    code = "machine"


CODES_BY_ERRNO = {
    "permission": (errno.EACCES, errno.EPERM, errno.EROFS),
    "disk": (errno.ENOSPC, errno.EFBIG, errno.EIO, *([errno.EDQUOT] if hasattr(errno, "EDQUOT") else [])),
    "memory": (errno.ENOMEM,),
    MachineError.code: (errno.EMFILE, errno.ENFILE, errno.EAGAIN),
}
"""Values of ``errno`` that mean an error of the machine, by the code of the error."""


def code_of(error: BaseException) -> str:
    """Return the stable name of an error's kind; "" for an error without one."""
    if isinstance(error, UserError):
        return error.code
    if isinstance(error, MemoryError):
        return "memory"
    number = getattr(error, "errno", None)
    for code, numbers in CODES_BY_ERRNO.items():
        if number in numbers:
            return code
    return ""


def is_of_the_machine(error: BaseException) -> bool:
    """Return True if an error is about the machine (memory, disk, permissions), not the user's input."""
    if isinstance(error, OSError):
        return bool(code_of(error))
    return isinstance(error, (MachineError, MemoryError))


def not_written(error: BaseException, message: str) -> UserError:
    """Return the error to raise for a place that cannot be written or read.

    Args:
        error: its cause, which decides the class and the code.
        message: the problem and the fix.
    """
    kind = MachineError if is_of_the_machine(error) else UserError
    return kind(message, code=code_of(error))


def described(error: BaseException) -> str:
    """Return type and text of an exception in one line."""
    text = " ".join(str(error).split())
    if text:
        return f"{type(error).__name__}: {text}"
    return type(error).__name__


def why_unreadable(error: BaseException) -> str:
    """Return why a text cannot be parsed, in one line."""
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return str(error).partition("\n")[0]


_LONGEST = 300
"""Characters of the longest word that a line shows in full."""


def printable(text: str) -> str:
    """Make a text safe for one terminal line: escape control characters and direction marks, and cut very long words.

    Without the escapes, a name in the text could move the cursor or reverse the line.
    """
    return " ".join(_cut(word) for word in visible(text).split(" "))


def visible(text: str, keep: str = "") -> str:
    """Escape control characters and direction marks, except those in ``keep``."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def _cut(word: str) -> str:
    """Cut a word of more than :data:`_LONGEST` characters in the middle: its first 120 and last 60 remain."""
    if len(word) <= _LONGEST:
        return word
    return f"{word[:120]}...({len(word) - 120 - 60:,} more)...{word[-60:]}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` for the known name closest to ``name``, or ``known: ...`` if none is close."""
    names = sorted(filter(None, known))  # the index that pandas writes has no name
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(names)}"
