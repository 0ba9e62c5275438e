"""Receipts: what a folder's files should be, and what they were made with, so that what differs is noticed.

``index.json`` lists the files of a folder with their sizes and sha256. It is written last, so a folder without it was
not finished. Until then the receipts stand in ``.unfinished.json``, from which an interrupted run learns which of its
files are whole. Versions and sources stand with them, on which the files' bytes may depend.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.runs.files import LARGEST, path_of, replacing

_LIBRARIES = ("numpy", "scipy", "numba", "llvmlite", "pyarrow")
_NO_PART = ("cli", "testing", "export", "report", "installation.py")
"""Places of the package that have no part in any log or result."""


@functools.cache
def _made_with() -> dict[str, str]:
    from recsim_mnar._version import __version__

    versions = {
        "recsim-mnar": __version__,
        "sources": _sources(),
        "python": ".".join(platform.python_version_tuple()[:2]),
    }
    for name in _LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {**versions, "machine": platform.machine()}


def made_with() -> dict[str, str]:
    """Versions of the package, its sources and the libraries, and the kind of machine."""
    return dict(_made_with())


def _sources() -> str:
    """A digest of the sources that make logs and results: two states of one version may differ."""
    package = Path(__file__).resolve().parents[1]
    if (package / "agents").exists():
        agents = package / "agents"
    else:
        agents = package.parent / "agents"
    digest = hashlib.sha256()
    for root in dict.fromkeys((package, agents)):
        for path in sorted(root.rglob("*.py")):
            place = path.relative_to(root).as_posix()
            first = place.split("/")[0]
            if root != package or first not in (*_NO_PART, "agents"):
                digest.update(f"{place}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def refuse_other_versions(what: str, before: Mapping[str, str]) -> None:
    """Raise UserError where an earlier run, of which ``what`` says where it is, was made with other versions."""
    here = made_with() if before else {}
    names = [name for name in {**before, **here} if before.get(name) != here.get(name)]
    if names:
        changed = [f"{name} ({before.get(name, 'none')} there, {here.get(name, 'none')} here)" for name in names]
        raise UserError(
            f"cannot resume: {what} with other versions: {', '.join(changed)}; restore them, or name another folder"
        )


INDEX = "index.json"
UNFINISHED = ".unfinished.json"
"""The index of a folder that is being filled, or whose run was killed."""
SIDECAR = ".index.json"
"""Behind the name of a single file: its receipt."""
FORMAT = "recsim-mnar index 1"
_NO_RECEIPTS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What bytes that hold no receipts raise."""


class DamagedIndexError(UserError):
    """An index of ours that is not what was written."""


@dataclass(frozen=True)
class Receipt:
    """Identity of a file: size and digest.

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

    @classmethod
    def of(cls, path: Path, name: str, *, rows: int | None = None, users: tuple[int, int] | None = None) -> Receipt:
        """The receipt, under ``name``, of a file that was just written."""
        return cls(name, path.stat().st_size, file_digest(path), rows, users)

    @classmethod
    def from_json(cls, known: Mapping[str, Any]) -> Receipt:
        """A receipt of what JSON holds.

        Raises:
            ValueError, KeyError, TypeError, AttributeError, OverflowError: it is none.
        """
        rows = known.get("rows")
        users = known.get("users")
        name = Path(known["file"])
        if name.is_absolute() or ".." in name.parts or len(known["sha256"]) != 64:
            raise ValueError("no receipt of a file in this folder")
        return cls(
            known["file"],
            int(known["bytes"]),
            str(known["sha256"]),
            None if rows is None else int(rows),
            None if users is None else (int(users[0]), int(users[1])),
        )

    def to_json(self) -> dict[str, Any]:
        """Write the form that :meth:`from_json` reads."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def fits(self, folder: Path) -> bool:
        """Return whether the file in this folder is what was written."""
        path = folder / self.file
        try:
            return path.is_file() and path.stat().st_size == self.bytes and file_digest(path) == self.sha256
        except OSError:
            return False


@dataclass
class Index:
    """The files of a folder.

    Attributes:
        receipts: by file.
        made: digest of what made them: world, policy with its code, seed; None where it is not known.
        made_with: versions of the package and of the libraries, which have no part in ``made``.
    """

    receipts: dict[str, Receipt] = field(default_factory=dict)
    made: str | None = None
    made_with: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The one text of this index, with a digest of itself."""
        files = [self.receipts[name].to_json() for name in sorted(self.receipts)]
        fields = {"format": FORMAT, "made": self.made, "made_with": self.made_with, "files": files}
        return json.dumps({**fields, "sha256": digest_of(fields)}, indent=1, sort_keys=True) + "\n"

    def write(self, folder: Path, name: str = INDEX) -> None:
        """Write ``index.json``."""
        with replacing(folder / name) as temporary:
            temporary.write_text(self.text())

    @classmethod
    def of(cls, folder: Path) -> Index:
        """The receipts of a folder, finished or not; none where its index is missing or damaged.

        Raises:
            UserError: the index is another program's.
        """
        for name in (INDEX, UNFINISHED):
            try:
                index = cls.read(folder, name)
            except DamagedIndexError:
                continue
            if index is not None:
                return index
            if name == INDEX and (folder / name).exists():
                raise UserError(f"{folder / name} belongs to another program. Name another folder, or move it away")
        return cls()

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
            if path.stat().st_size <= LARGEST:
                raw = path.read_bytes()
            else:
                raw = b""
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
            content = json.loads(raw)
            receipts = [Receipt.from_json(entry) for entry in content["files"]]
            index = cls({entry.file: entry for entry in receipts}, *_made(content))
            if index.text().encode() == raw:
                return index
            return None
        except _NO_RECEIPTS:
            return None


def _made(known: Mapping[str, Any]) -> tuple[str | None, dict[str, str]]:
    made = known["made"]
    return None if made is None else str(made), dict(known["made_with"])


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
    with open(path_of(path), "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
