"""A folder or a file against its receipts, to the last file: every fault that there is, not the first alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from recsim_mnar.errors import UserError
from recsim_mnar.runs.files import check_utf8
from recsim_mnar.runs.receipts import INDEX, Index, Receipt
from recsim_mnar.tables.arrow import read_blocks, rows_in
from recsim_mnar.tables.files import is_table, is_text, part_files
from recsim_mnar.tables.parts import MEND, Parts
from recsim_mnar.tables.text import rows_in_text


@dataclass
class Verified:
    """The outcome of :func:`verify`.

    Attributes:
        n_files: files with receipts.
        n_read: files without, which were read through.
        n_rows: rows of the tables among both.
        faults: one line per fault.
    """

    n_files: int = 0
    n_read: int = 0
    n_rows: int = 0
    faults: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """The outcome in one line."""
        if self.n_files:
            return f"{_files(self.n_files)}, {self.n_rows:,} rows: all are what their receipts say"
        return (
            f"{_files(self.n_read)} without receipts, {self.n_rows:,} rows: all can be read, and whether they are as "
            "they were written is unknown"
        )


def _files(n: int) -> str:
    return "1 file" if n == 1 else f"{n:,} files"


def verify(path: str | Path) -> Verified:
    """Check what is at a path against its receipts: a run's folder with all its files, a log, a part, a single file.

    Files without receipts are read through; their pages are checked against the checksums that they bear.

    Raises:
        UserError: nothing there.
    """
    path = Path(path)
    check_utf8(path)
    if not path.exists():
        raise UserError(f"{path} does not exist: name a folder or a file")
    found = Verified()
    folders = [each for each in (path, path / "log") if each.is_dir()]
    for folder in folders:
        found.faults += _faults_of_folder(folder, found)
    found.faults += _faults_of_parts(path, found)
    found.faults[:] = list(dict.fromkeys(found.faults))
    return found


def _faults_of_folder(folder: Path, found: Verified) -> Iterator[str]:
    """The faults of the files that the index of a folder lists."""
    try:
        index = Index.read(folder) or Index()
    except UserError as error:
        yield str(error)
        return
    for receipt in index.receipts.values():
        yield from _faults_of_file(folder, receipt, found)


def _faults_of_file(folder: Path, receipt: Receipt, found: Verified) -> Iterator[str]:
    file = folder / receipt.file
    found.n_files += 1
    found.n_rows += receipt.rows or 0
    if not file.is_file():
        yield f"{file} is missing; {MEND}"
    elif not receipt.fits(folder):
        yield _fault_of(file)
    elif receipt.rows is not None and is_table(file) and _rows_of(file) != receipt.rows:
        yield f"{file} has {_rows_of(file):,} rows, its receipt says {receipt.rows:,}: the receipt was changed; {MEND}"


def _fault_of(file: Path) -> str:
    """The fault of a file that does not fit its receipt."""
    if is_table(file):
        try:
            Parts.of(file).held(file)  # it knows more of parts
        except UserError as error:
            return str(error)
    return f"{file} is damaged: it is not what {INDEX} lists; {MEND}"


def _faults_of_parts(path: Path, found: Verified) -> Iterator[str]:
    """The faults that a reader would find, and those of files that no index of a folder lists."""
    try:
        parts = Parts.of(path)
    except UserError as error:
        # A folder of other things than a log, all of which have receipts.
        if not (path.is_dir() and found.n_files and not _holds_parts(path)):
            yield str(error)
        return
    if path.is_dir() and Index.read(parts.files[0].parent) is not None:
        return
    for file in parts.files:
        if parts.index is not None:
            yield from _faults_of_file(file.parent, parts.index.receipts[file.name], found)
            continue
        try:
            found.n_read += 1
            found.n_rows += _rows_of(file, through=True)
        except UserError as error:
            yield str(error)


def _holds_parts(path: Path) -> bool:
    """Whether a reader of logs finds files in a folder."""
    try:
        return bool(part_files(path))
    except UserError:
        return False


def _rows_of(file: Path, *, through: bool = False) -> int:
    """How many rows a table holds; with ``through`` all of them are read.

    Raises:
        UserError: it cannot be read.
    """
    if is_text(file):
        return rows_in_text(file)
    return sum(len(table) for table in read_blocks(file, 1 << 20)) if through else rows_in(file)
