"""Writing of files: a temporary name first, then the rename; no link is followed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError, why_unreadable

LARGEST = 1 << 28
"""Bytes of an index or a manifest: room for a million parts. A larger file is none of ours."""

_TEMPORARY = re.compile(r"\.(?:.+\.)?[0-9a-f]{16}\.tmp")
_LONGEST_NAME = 220
"""Bytes of a name with room for what a temporary name adds."""


def refuse_link(path: Path) -> None:
    """Raise UserError where a name that we chose is a link: what is behind it is not ours to change."""
    if path.is_symlink():
        raise UserError(
            f"{path} is a symbolic link; nothing is written or removed behind it: remove it, or name another place"
        )


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Hand out a temporary file to write to; where the block succeeds it takes the name ``path``.

    The bytes reach the disk before the name does, so the file is whole or not there.

    Raises:
        UserError: ``path`` is a symbolic link.
        OSError: the file cannot be written; it names ``path``, whatever raised it.
    """
    target = path_of(path)
    refuse_link(target)
    temporary: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = new_temporary(target)
        try:
            yield temporary
            with temporary.open("rb+") as written:
                os.fsync(written.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        # Libraries raise errors without a file's name; one with the name of another file is about that.
        if temporary is None or error.filename in (None, str(temporary), temporary):
            raise _of_file(error, target) from error
        raise


def new_temporary(path: Path) -> Path:
    """Make an empty file next to ``path``, of a name that no other process takes."""
    unique = f"{os.urandom(8).hex()}.tmp"
    if len(os.fsencode(path.name)) < _LONGEST_NAME:
        name = f".{path.name}.{unique}"
    else:
        name = f".{unique}"
    temporary = path.with_name(name)
    temporary.touch(exist_ok=False)
    return temporary


def is_temporary(path: Path) -> bool:
    """Return whether this is the name of a file that is being written, or was when its writer was killed."""
    return _TEMPORARY.fullmatch(path.name) is not None


def _of_file(error: OSError, path: Path) -> OSError:
    """The error with the name of the file that it is about, which is not always the one that it names."""
    if error.errno:
        reason = os.strerror(error.errno)
    else:
        reason = str(error).partition("\n")[0]
    return OSError(error.errno or errno.EIO, reason, str(path))


def path_of(path: Any) -> Path:
    """Resolve a path that a user named, with ``~`` before it in the home folder, as a shell does.

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
        printable = os.fsencode(path).decode(errors="backslashreplace")
        raise UserError(f"{printable}: the path is not UTF-8; rename it") from None
    named = Path(os.path.expanduser(path))
    if str(named).startswith("~"):
        return named.absolute()
    return named


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file that a user named.

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


def read_json(path: Path) -> Any:
    """The value of a JSON file of ours; None where there is none, or none that is whole."""
    try:
        if path.is_file() and path.stat().st_size <= LARGEST:
            return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        pass
    return None


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
