"""Arrays from untrusted ``.npz`` files, read with a bound on their size and without executing any code."""

from __future__ import annotations

import os
import tokenize
import zipfile
import zlib
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError

LARGEST = 1 << 28
"""Number of bytes to which an archive of any size may unpack."""
FACTOR = 100
"""Largest ratio of unpacked to packed size beyond :data:`LARGEST`; arrays of this package are compressed by less."""


def read_arrays(path: str | os.PathLike[str], names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read the arrays of an ``.npz`` file.

    Args:
        path: path of the file.
        names: names of the arrays to read, all of which must exist; None to read all arrays.

    Returns:
        Arrays by name.

    Raises:
        FileNotFoundError: there is no such file.
        UserError: it is no archive of arrays, lacks one, is damaged, or would unpack to more than :data:`LARGEST` bytes
            and :data:`FACTOR` times its size.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_size(path, sum(member.file_size for member in archive.infolist()))
        with np.load(path, allow_pickle=False) as arrays:
            for name in names or ():
                if name not in arrays:
                    raise UserError(f"{path} holds no array {name!r}: it is not the file that is wanted")
            read = {name: arrays[name] for name in names or arrays}
        for name, array in read.items():
            if not isinstance(array, np.ndarray):  # NumPy returns the bytes of what is no array
                raise ValueError(f"{name} is no array")
        return read
    except (FileNotFoundError, UserError):
        raise
    except _UNREADABLE as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} is no .npz file of arrays, or damaged: {reason}") from None


_UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, EOFError, OverflowError, IndexError, SyntaxError,
    NotImplementedError, RuntimeError, RecursionError, zipfile.BadZipFile, zlib.error,
    tokenize.TokenError,
)  # fmt: skip
"""Exceptions by which ``zipfile`` and NumPy refuse invalid bytes; RuntimeError means that the archive is encrypted."""


def _check_size(path: str | os.PathLike[str], unpacked: int) -> None:
    """Raise UserError if an archive would unpack to more bytes than is allowed, as a decompression bomb does."""
    size = os.path.getsize(path)
    if unpacked > max(LARGEST, FACTOR * size):
        raise UserError(
            f"{path} would unpack from {size:,} to {unpacked:,} bytes: save it with numpy.savez, which does not pack"
        )
