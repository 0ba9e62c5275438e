"""Receipts: size and digest of a folder's files, with the versions that made them.

``index.json`` lists the files of a folder with their sizes and sha256. It is written last, so a folder without it was
not finished. Until then the receipts are in ``.unfinished.json``, which tells a resumed run which files are intact.
The index also has the versions and sources on which the files' bytes may depend.
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
"""Parts of the package that contribute to no log or result."""


@functools.cache
def _made_with() -> dict[str, str]:
    """Return versions of Python, the package and its libraries, the digest of the sources, and the kind of machine.

    They are read once per process, and callers must not change the shared result.
    """
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
    """Return versions of the package, Python and the libraries, the digest of the sources, and the kind of machine."""
    return dict(_made_with())


def _sources() -> str:
    """Compute a digest of the sources that make logs and results: two states of one version may differ."""
    package = Path(__file__).resolve().parents[1]
    agents = package / "agents"
    if not agents.exists():
        agents = package.parent / "agents"
    digest = hashlib.sha256()
    for root in (package, agents):
        for path in sorted(root.rglob("*.py")):
            place = path.relative_to(root)
            if root == agents or place.parts[0] not in (*_NO_PART, "agents"):
                digest.update(f"{place.as_posix()}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def refuse_other_versions(what: str, before: Mapping[str, str]) -> None:
    """Raise UserError if an earlier run was made with other versions.

    Args:
        what: subject of the message, such as ``FOLDER holds a run that was made``.
        before: result of :func:`made_with` in the earlier run; if it is empty, nothing is checked.
    """
    if not before:
        return
    here = made_with()
    changed = [
        f"{name} ({before.get(name, 'none')} there, {here.get(name, 'none')} here)"
        for name in {**before, **here}
        if before.get(name) != here.get(name)
    ]
    if changed:
        raise UserError(
            f"cannot resume: {what} with other versions: {', '.join(changed)}; restore them, or name another folder"
        )


INDEX = "index.json"
UNFINISHED = ".unfinished.json"
"""The index of a folder that is being filled, or whose run was killed."""
FORMAT = "recsim-mnar index 1"
_NO_RECEIPTS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors that invalid receipts raise."""


class DamagedIndexError(UserError):
    """An index of this package that was changed after it was written."""


@dataclass(frozen=True)
class Receipt:
    """Identity of a file: size and digest.

    Attributes:
        file: path of the file within the folder, with ``/`` between folders.
        bytes: size in bytes.
        sha256: digest of the contents.
        rows: number of rows of a table; None for other files.
        users: first and last user of a table; None for other files.
    """

    file: str
    bytes: int
    sha256: str
    rows: int | None = None
    users: tuple[int, int] | None = None

    @classmethod
    def of(cls, path: Path, name: str, *, rows: int | None = None, users: tuple[int, int] | None = None) -> Receipt:
        """Make the receipt of a file that was just written."""
        return cls(name, path.stat().st_size, file_digest(path), rows, users)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Receipt:
        """Make a receipt from the JSON of :meth:`to_json`.

        Raises:
            ValueError, KeyError, TypeError, AttributeError, OverflowError: the JSON is invalid.
        """
        rows = content.get("rows")
        users = content.get("users")
        name = Path(content["file"])
        if name.is_absolute() or ".." in name.parts or len(content["sha256"]) != 64:
            raise ValueError("no receipt of a file in this folder")
        return cls(
            content["file"],
            int(content["bytes"]),
            str(content["sha256"]),
            None if rows is None else int(rows),
            None if users is None else (int(users[0]), int(users[1])),
        )

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON types; fields that are None are left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def fits(self, folder: Path) -> bool:
        """Return True if the file in this folder is intact."""
        path = folder / self.file
        try:
            return path.is_file() and path.stat().st_size == self.bytes and file_digest(path) == self.sha256
        except OSError:
            return False


@dataclass
class Index:
    """The files of a folder.

    Attributes:
        receipts: receipts by file.
        made: digest of the settings that made the files: world, policy with its code, seed; None if unknown.
        made_with: versions of the package and of the libraries, which are no part of ``made``.
    """

    receipts: dict[str, Receipt] = field(default_factory=dict)
    made: str | None = None
    made_with: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """Return the JSON text of the index with a digest of its contents; equal indexes have equal texts."""
        files = [self.receipts[name].to_json() for name in sorted(self.receipts)]
        fields = {"format": FORMAT, "made": self.made, "made_with": self.made_with, "files": files}
        return json.dumps({**fields, "sha256": digest_of(fields)}, indent=1, sort_keys=True) + "\n"

    def write(self, folder: Path, name: str = INDEX) -> None:
        """Write the index into a folder."""
        with replacing(folder / name) as temporary:
            temporary.write_text(self.text())

    @classmethod
    def of(cls, folder: Path) -> Index:
        """Read the index of a folder, finished or not; return an empty one if it is missing or damaged.

        Raises:
            UserError: the folder has an ``index.json`` of another program.
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
        """Read an index file, and check that it is what this package wrote, byte by byte.

        Args:
            folder: the folder.
            name: name of the index file.

        Returns:
            The index; None if the file does not exist, or is another program's ``index.json``.

        Raises:
            DamagedIndexError: it is this package's and damaged.
            UserError: it cannot be read.
        """
        path = folder / name
        raw = b""  # stays empty for a file that is too large, which counts as damaged
        try:
            if not path.is_file():
                return None
            if path.stat().st_size <= LARGEST:
                raw = path.read_bytes()
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from None
        try:
            content = json.loads(raw)
            receipts = [Receipt.from_json(entry) for entry in content["files"]]
            made = content["made"]
            if made is not None:
                made = str(made)
            index = cls({receipt.file: receipt for receipt in receipts}, made, dict(content["made_with"]))
            if index.text().encode() == raw:
                return index
        except _NO_RECEIPTS:
            pass
        # A damaged index of this package still has most of these words; another program's index has one at most.
        is_ours = sum(word in raw for word in (FORMAT.encode(), b'"made_with"', b'"sha256"', b'"files"')) >= 2
        if is_ours or not raw or name != INDEX:
            raise DamagedIndexError(
                f"{path} is damaged: it is not what was written; restore it, or make the folder again "
                "(simulate: with --resume)"
            )
        return None


def digest_of(value: Any) -> str:
    """Compute the sha256 of a value of JSON types, independent of the order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Compute the sha256 of arrays: their names, dtypes, shapes and values."""
    sha = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        sha.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def file_digest(path: str | os.PathLike[str]) -> str:
    """Compute the sha256 of a file."""
    with open(path_of(path), "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
