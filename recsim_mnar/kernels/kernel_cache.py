"""Files of compiled kernels, each with its sha256 in front: a damaged one is compiled anew, and never run.

Numba reads its cache with pickle and runs the machine code that it finds, so what is there is trusted: the folder
must be its user's own (:func:`is_private`). The digest guards against accidents, not against who may write there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import stat
from pathlib import Path
from typing import Any

from numba.core.caching import IndexDataCacheFile

_DIGEST = hashlib.sha256().digest_size


class _CheckedFile(IndexDataCacheFile):
    """Numba's index and data files, checked against their digests; a disk that takes no more of them is no error."""

    def save(self, key: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save(key, data)

    def _load_index(self) -> dict[Any, Any]:
        try:
            version, stamp, overloads = pickle.loads(_checked(self._index_path))
        except (OSError, ValueError):
            return {}
        return overloads if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_index(self, overloads: dict[Any, Any]) -> None:
        self._write(self._index_path, self._dump((self._version, self._source_stamp, overloads)))

    def _load_data(self, name: str) -> Any:
        try:
            return pickle.loads(_checked(self._data_path(name)))
        except ValueError as error:
            raise OSError(str(error)) from None  # numba takes it for a file that is gone

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), self._dump(data))

    def _write(self, path: str, data: bytes) -> None:
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(data).digest() + data)


def _checked(path: str) -> bytes:
    """The contents after a file's digest.

    Raises:
        ValueError: it is not what the digest was taken of.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        digest, data = file.read(_DIGEST), file.read()
    if hashlib.sha256(data).digest() != digest:
        raise ValueError(f"{path} is damaged")
    return data


def guard(compiled: Any) -> Any:
    """Let numba's function that is cached on disk check what it reads there; handed back."""
    file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if type(file) is IndexDataCacheFile:
        file.__class__ = _CheckedFile
    return compiled


def is_private(folder: Path) -> bool:
    """Whether only this user and the superuser may put machine code there."""
    if not hasattr(os, "getuid"):
        return True
    found = folder.stat()
    return found.st_uid in (os.getuid(), 0) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
