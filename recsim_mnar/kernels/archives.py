"""Arrays from untrusted ``.npz`` files: nothing larger than allowed is unpacked, and no code is run."""

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
"""Bytes that an archive of any size may unpack to."""
FACTOR = 100
"""How many times its own size a larger one may unpack to; the arrays of this package shrink by less."""

_CHUNK = 1 << 24


def read_arrays(path: str | os.PathLike[str], names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read the arrays of an ``.npz`` file.

    Args:
        path: path of the file.
        names: arrays that must be there, the only ones that are read; all where None.

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
"""What ``zipfile`` and NumPy's reader of headers raise at bytes that are not theirs; RuntimeError: it is encrypted."""


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _check_sizes(path: str | os.PathLike[str], members: Collection[zipfile.ZipInfo]) -> None:
    size = os.path.getsize(path)
    unpacked = sum(member.file_size for member in members)
    if unpacked > max(LARGEST, FACTOR * size):
        raise UserError(
            f"{path} would unpack from {size:,} to {unpacked:,} bytes: save it with numpy.savez, which does not pack"
        )


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Read an array whose header agrees with its size in the archive."""
    with archive.open(member) as file:
        shape, fortran, kind = _header(file)
        rest = member.file_size - file.tell()
        if kind.hasobject or math.prod(shape) * kind.itemsize != rest or any(n < 0 for n in shape):
            raise ValueError(f"{member.filename} does not hold what its header says")
        data = bytearray(rest)
        end = 0
        while chunk := file.read(_CHUNK):  # to its end, where the archive's own checksum is looked at
            data[end : end + len(chunk)] = chunk
            end += len(chunk)
        if end != rest:
            raise ValueError(f"{member.filename} does not end where it should")
        flat = np.frombuffer(data, kind)
        return flat.reshape(shape, order="F" if fortran else "C")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"arrays of format {version} are not read")
