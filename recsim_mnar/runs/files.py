"""Write files under a temporary name, then rename them; no link is followed."""

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
"""Bytes of the largest index or manifest that is read: room for a million parts. A larger file is no index."""

_TEMPORARY = re.compile(r"\.(?:.+\.)?[0-9a-f]{16}\.tmp")
_LONGEST_NAME = 220
"""Bytes of the longest name that still fits into a temporary name: file systems allow 255, and 22 are added."""


def refuse_link(path: Path) -> None:
    """Raise UserError if a path is a link: nothing behind links is changed."""
    if path.is_symlink():
        raise UserError(
            f"{path} is a symbolic link; nothing is written or removed behind it: remove it, or name another place"
        )


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary file to write; if the block succeeds, the file is renamed to ``path``.

    The bytes reach the disk before the name does, so the file is complete or missing.

    Raises:
        UserError: ``path`` is a symbolic link.
        OSError: the file cannot be written; the error names ``path``, whatever raised it.
    """
    target = path_of(path)
    refuse_link(target)
    temporary: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = new_temporary(target)
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        # Libraries' errors may lack a file name or have the temporary one, and then get the target's. An error with
        # any other name is about that file.
        if temporary is None or error.filename in (None, str(temporary), temporary):
            raise _of_file(error, target) from error
        raise


def new_temporary(path: Path) -> Path:
    """Create an empty file with a unique name in the folder of ``path``, and return its path."""
    name = f".{os.urandom(8).hex()}.tmp"
    if len(os.fsencode(path.name)) < _LONGEST_NAME:  # with a longer one, the result would exceed the system's limit
        name = f".{path.name}{name}"
    temporary = path.with_name(name)
    temporary.touch(exist_ok=False)
    return temporary


def is_temporary(path: Path) -> bool:
    """Return True if the name is one of :func:`new_temporary`: a file that is being written, or was left by a kill."""
    return _TEMPORARY.fullmatch(path.name) is not None


def _of_file(error: OSError, path: Path) -> OSError:
    """Return the same error with the name of the file that it is about, ``path``."""
    reason = str(error).partition("\n")[0]  # the first line, for errors without a number
    if error.errno:
        reason = os.strerror(error.errno)
    return OSError(error.errno or errno.EIO, reason, str(path))


def path_of(path: Any) -> Path:
    """Convert a user's path to a Path, and replace a leading ``~`` by the home folder, as a shell does.

    Any other path that begins with ``~``, such as ``./~/x`` without its ``./``, becomes absolute, because libraries
    would take it for the home folder.

    Raises:
        UserError: it is empty, no path, or no UTF-8, which the libraries that read and write files require.
    """
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise UserError(f"a path must be a text or a Path that is not empty, got {path!r}")
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        printable = os.fsencode(path).decode(errors="backslashreplace")
        raise UserError(f"{printable}: the path is not UTF-8; rename it") from None
    expanded = Path(os.path.expanduser(path))
    if str(expanded).startswith("~"):
        return expanded.absolute()
    return expanded


def read_toml(path: Path) -> dict[str, Any]:
    """Read a user's TOML file.

    Raises:
        UserError: the file does not exist, is a folder, is a pipe or a device (which might never end), or is no TOML.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder: name its TOML file")
    if not path.exists():
        raise UserError(f"{path} does not exist: name a TOML file")
    if not path.is_file():
        raise UserError(f"{path} is no regular file: write its lines into one, and name that")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # a number of 5,000 digits raises a plain ValueError
        raise UserError(f"{path} is not a TOML file: {why_unreadable(error)}; correct it") from None


def read_json(path: Path) -> Any:
    """Read a JSON file; None if it is missing or damaged."""
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
    """Convert a NumPy scalar to a Python number; raise TypeError for any other object."""
    import numpy as np

    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no JSON")
