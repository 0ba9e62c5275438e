"""What a user got wrong, said in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake that the user can mend; the message is one line that names what is wrong and the mend.

    The command line prints the message and exits with status 2.
    """


def described(error: BaseException) -> str:
    """Type and text of an exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the known name closest to ``name``, or the list of all known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(names)}"
