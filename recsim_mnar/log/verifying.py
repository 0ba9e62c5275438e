"""A folder or a file against its receipts, to the last file: every fault that there is, not the first alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from recsim_mnar.errors import UserError
from recsim_mnar.log.files import SEPARATORS, check_utf8, is_table, part_files
from recsim_mnar.log.parts import MEND, Parts, read_table
from recsim_mnar.log.receipts import INDEX, Index, is_as


@dataclass
class Verified:
    """What was found.

    Attributes:
        n_files: that were held against receipts.
        n_read: that have none, and were read through.
        n_rows: of the tables among them.
        faults: a line each.
    """

    n_files: int = 0
    n_read: int = 0
    n_rows: int = 0
    faults: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """In a line."""
        if self.n_files:
            return f"{_files(self.n_files)}, {self.n_rows:,} rows: all are what their receipts say"
        return (
            f"{_files(self.n_read)} without receipts, {self.n_rows:,} rows: all can be read, and whether they are as "
            "they were written nobody knows"
        )


def _files(n: int) -> str:
    return "1 file" if n == 1 else f"{n:,} files"


def verify(path: str | Path) -> Verified:
    """Hold what lies at a path against its receipts: a run's folder with all its files, a log, a part, a single file.

    Files without receipts are read through, and their pages held against the checksums that they bear.

    Raises:
        UserError: nothing there.
    """
    path = Path(path)
    check_utf8(path)
    if not path.exists():
        raise UserError(f"{path} does not exist: name a folder or a file")
    found = Verified()
    for folder in _folders(path):
        _verify_folder(folder, found)
    found.faults += list(_faults_of_parts(path, found))
    found.faults[:] = list(dict.fromkeys(found.faults))
    return found


def _folders(path: Path) -> list[Path]:
    """The folders with an index of their own: a run's and its log's."""
    if not path.is_dir():
        return []
    return [path, path / "log"] if (path / "log").is_dir() else [path]


def _verify_folder(folder: Path, found: Verified) -> None:
    """The files that the index of a folder lists beside the parts of a log."""
    try:
        index = Index.read(folder)
    except UserError as error:
        found.faults.append(str(error))
        return
    for receipt in index.receipts.values() if index is not None else ():
        found.n_files += 1
        found.n_rows += receipt.rows or 0
        if not (folder / receipt.file).is_file():
            found.faults.append(f"{folder / receipt.file} is missing; {MEND}")
        elif not is_as(folder, receipt):
            found.faults.append(_fault_of(folder / receipt.file))


def _fault_of(file: Path) -> str:
    """What is wrong with a file that is not what the index lists."""
    if is_table(file):
        try:
            Parts.of(file).held(file)  # it knows more of parts
        except UserError as error:
            return str(error)
    return f"{file} is damaged: it is not what {INDEX} lists; {MEND}"


def _faults_of_parts(path: Path, found: Verified) -> Iterator[str]:
    """What a reader would find, and what reading files without receipts finds."""
    try:
        parts = Parts.of(path)
    except UserError as error:
        # A folder of other things than a log, all of which have receipts.
        if not (path.is_dir() and found.n_files and not _holds_parts(path)):
            yield str(error)
        return
    if parts.index is not None and path.is_dir():
        return
    for file in parts.files:
        try:
            parts.held(file)
            if parts.index is None:
                found.n_read += 1
                found.n_rows += 0 if file.suffix.lower() in SEPARATORS else read_table(file).num_rows
            else:
                found.n_files += 1
                found.n_rows += parts.index.receipts[file.name].rows or 0
        except UserError as error:
            yield str(error)


def _holds_parts(path: Path) -> bool:
    """Whether a reader of logs finds files in a folder."""
    try:
        return bool(part_files(path))
    except UserError:
        return False
