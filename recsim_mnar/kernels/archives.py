"""Arrays from untrusted ``.npz`` files, read with a bound on their size and without executing any code."""

from __future__ import annotations

import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Collection
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError

LARGEST = 1 << 28
"""Number of bytes to which an archive of any size may unpack."""
FACTOR = 100
"""Largest ratio of unpacked to packed size beyond :data:`LARGEST`; arrays of this package are compressed by less."""

_CHUNK = 1 << 24
"""Number of bytes to read at a time."""


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
            members = {_name(entry): entry for entry in archive.infolist()}
            for name in names or ():
                if name not in members:
                    raise UserError(f"{path} holds no array {name!r}: it is not the file that is wanted")
            if names is not None:
                members = {name: members[name] for name in names}
            _check_sizes(path, members.values())
            return {name: _array(archive, member) for name, member in members.items()}
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


def _name(member: zipfile.ZipInfo) -> str:
    """Return the name of the array in an archive's member."""
    return member.filename.removesuffix(".npy")


def _check_sizes(path: str | os.PathLike[str], members: Collection[zipfile.ZipInfo]) -> None:
    """Raise UserError if the members would unpack to more than is allowed, as a decompression bomb does."""
    size = os.path.getsize(path)
    unpacked = sum(member.file_size for member in members)
    if unpacked > max(LARGEST, FACTOR * size):
        raise UserError(
            f"{path} would unpack from {size:,} to {unpacked:,} bytes: save it with numpy.savez, which does not pack"
        )


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Read an array from a member of an archive.

    Raises:
        ValueError: the header disagrees with the member's size, or the array holds Python objects.
    """
    with archive.open(member) as file:
        shape, fortran, kind = _header(file)
        rest = member.file_size - file.tell()
        if kind.hasobject or math.prod(shape) * kind.itemsize != rest or any(n < 0 for n in shape):
            raise ValueError(f"{member.filename} does not hold what its header says")
        data = bytearray(rest)
        end = 0
        while chunk := file.read(_CHUNK):  # until the end: `zipfile` verifies the checksum there
            data[end : end + len(chunk)] = chunk
            end += len(chunk)
        if end != rest:
            raise ValueError(f"{member.filename} does not end where it should")
        flat = np.frombuffer(data, kind)
        return flat.reshape(shape, order="F" if fortran else "C")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an ``.npy`` file.

    Returns:
        Shape of the array.
        True if the order of the entries is Fortran's.
        Type of the entries.
    """
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"arrays of format {version} are not read")
