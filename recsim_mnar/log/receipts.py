"""Receipts: what a folder's files should be, so that one that is missing, damaged or of another run is noticed.

``index.json`` lists the files of a folder with their sizes and sha256. It is written last, so a folder without it was
not finished. While a folder is filled its receipts lie in a journal, a line a file, from which an interrupted run
learns which of its files are whole.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.files import MOST_TOLD, replacing, told_in

INDEX = "index.json"
JOURNAL = ".receipts.jsonl"
FORMAT = "recsim-mnar index 1"
_NO_RECEIPTS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What bytes that hold no receipts raise."""


class DamagedIndexError(UserError):
    """An index of ours that is not what was written."""


@dataclass(frozen=True)
class Receipt:
    """What a file is.

    Attributes:
        file: its name in the folder, with ``/`` between folders.
        bytes: its size.
        sha256: of its bytes.
        rows: of the table that it holds; None where it holds none.
        users: the first and last user of it; None likewise.
    """

    file: str
    bytes: int
    sha256: str
    rows: int | None = None
    users: tuple[int, int] | None = None


@dataclass
class Index:
    """The files of a folder.

    Attributes:
        receipts: by file.
        made: digest of what made them: world, policy with its code, seed; None where nobody said.
        made_with: versions of the package and of the libraries, which have no part in ``made``.
    """

    receipts: dict[str, Receipt] = field(default_factory=dict)
    made: str | None = None
    made_with: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The one text of this index, with a digest of itself."""
        files = [_plain(self.receipts[name]) for name in sorted(self.receipts)]
        known = {"format": FORMAT, "made": self.made, "made_with": self.made_with, "files": files}
        return json.dumps({**known, "sha256": digest_of(known)}, indent=1, sort_keys=True) + "\n"

    def write(self, folder: Path, name: str = INDEX) -> None:
        """Write ``index.json``."""
        with replacing(folder / name) as temporary:
            temporary.write_text(self.text())

    @classmethod
    def read(cls, folder: Path, name: str = INDEX) -> Index | None:
        """The index of a folder, or of one of its files; None where there is none of ours.

        Raises:
            DamagedIndexError: it is ours and damaged.
            UserError: it cannot be read.
        """
        path = folder / name
        try:
            if not path.is_file():
                return None
            raw = path.read_bytes() if path.stat().st_size <= MOST_TOLD else b""
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from None
        index = cls._parsed(raw)
        # A single change of ours leaves most of these words as they are; another program's index has none of them.
        ours = sum(word in raw for word in (FORMAT.encode(), b'"made_with"', b'"sha256"', b'"files"')) >= 2
        if index is None and (ours or not raw or name != INDEX):
            raise DamagedIndexError(
                f"{path} is damaged: it is not what was written; restore it, or make the folder again "
                "(simulate: with --resume)"
            )
        return index

    @classmethod
    def _parsed(cls, raw: bytes) -> Index | None:
        try:
            known = json.loads(raw)
            receipts = [_receipt(each) for each in known["files"]]
            index = cls({each.file: each for each in receipts}, known["made"], known["made_with"])
            return index if index.text().encode() == raw else None
        except _NO_RECEIPTS:
            return None


def _plain(receipt: Receipt) -> dict[str, Any]:
    return {name: value for name, value in asdict(receipt).items() if value is not None}


def _receipt(known: Mapping[str, Any]) -> Receipt:
    """A receipt of what JSON holds.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, OverflowError: it is none.
    """
    users = known.get("users")
    name = Path(known["file"])
    if name.is_absolute() or ".." in name.parts or len(known["sha256"]) != 64:
        raise ValueError("no receipt of a file in this folder")
    return Receipt(
        known["file"],
        int(known["bytes"]),
        str(known["sha256"]),
        None if known.get("rows") is None else int(known["rows"]),
        None if users is None else (int(users[0]), int(users[1])),
    )


def digest_of(value: Any) -> str:
    """Sha256 of a value of JSON types, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Sha256 of arrays: their names, kinds, shapes and values."""
    sha = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        sha.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def file_digest(path: str | os.PathLike[str]) -> str:
    """Sha256 of a file; other threads run meanwhile."""
    with open(path, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def receipt_of(path: Path, name: str, *, rows: int | None = None, users: tuple[int, int] | None = None) -> Receipt:
    """The receipt, under ``name``, of a file that was just written."""
    return Receipt(name, path.stat().st_size, file_digest(path), rows, users)


def is_as(folder: Path, receipt: Receipt) -> bool:
    """Whether a file is what its receipt says."""
    path = folder / receipt.file
    try:
        return path.is_file() and path.stat().st_size == receipt.bytes and file_digest(path) == receipt.sha256
    except OSError:
        return False


class Journal:
    """The receipts of a folder that is being filled: a line a file, written before the file has its name.

    The disk is not waited for. After a loss of power lines may lack, and the files that they told of are made again.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL
        self._file: int | None = None

    def read(self) -> Index:
        """What it holds; lines that were cut off or changed do not count."""
        found = Index()
        try:
            lines = told_in(self.path).splitlines()
        except OSError:
            return found
        for line in lines:
            try:
                entry = json.loads(line)
                if digest_of(entry["entry"]) != entry["sha256"]:
                    continue
                known = entry["entry"]
                if "made" in known:
                    found = Index({}, known["made"], known["made_with"])
                else:
                    receipt = _receipt(known)
                    found.receipts[receipt.file] = receipt
            except _NO_RECEIPTS:
                continue
        return found

    def begin(self, index: Index) -> None:
        """Start anew, with what is known."""
        with replacing(self.path) as temporary:
            temporary.write_bytes(b"".join(_lines(index)))
            self._file = os.open(temporary, os.O_WRONLY | os.O_APPEND)  # not by a name that others know

    def add(self, receipt: Receipt) -> None:
        """Append a receipt."""
        assert self._file is not None
        os.write(self._file, _line(_plain(receipt)))

    def close(self, *, remove: bool) -> None:
        """Stop writing; with ``remove`` take the file away."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if remove:
            self.path.unlink(missing_ok=True)


def _lines(index: Index) -> Iterable[bytes]:
    yield _line({"made": index.made, "made_with": index.made_with})
    for receipt in index.receipts.values():
        yield _line(_plain(receipt))


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps({"entry": entry, "sha256": digest_of(entry)}, sort_keys=True).encode() + b"\n"
