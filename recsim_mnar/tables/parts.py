"""Verify the files of a table against their receipts, and read their columns."""

from __future__ import annotations

import filecmp
import functools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.errors import MachineError, UserError, not_written
from recsim_mnar.kernels.memory import free_memory, in_words
from recsim_mnar.runs.files import path_of
from recsim_mnar.runs.folder import MANIFESTS
from recsim_mnar.runs.receipts import INDEX, UNFINISHED, Index, Receipt, file_digest
from recsim_mnar.tables.files import (
    ARROW,
    PARQUET,
    is_text_file,
    listed,
    log_folder,
    objects_of,
    part_files,
    part_path,
    partition_columns,
    read_blocks,
    rows_in,
    schema_in,
    schema_of,
)
from recsim_mnar.tables.rows import AgainError, Rows
from recsim_mnar.tables.text import TextForm, TextPart, rows_in_text
from recsim_mnar.tables.values import Decimal, Faults

PART_KEY = b"recsim_mnar_part"
"""In the metadata of a part: its number, and the digest of what made it."""

MEND = "restore it, or make it again with the command that wrote it (simulate: and --resume)"


@dataclass(frozen=True)
class Parts:
    """The files of a log in the order of their names; iterating verifies each against its receipt.

    Attributes:
        path: path as the user named it.
        files: paths of the files.
        index: receipts of the files; None if they have none, which is usual for a folder of the user's own.
        _verified: files that agree with their receipts, so that none is hashed twice.
    """

    path: Path
    files: list[Path]
    index: Index | None = None
    _verified: set[Path] = field(default_factory=set)

    @classmethod
    def of(cls, path: str | os.PathLike[str] | Parts) -> Parts:
        """Find the files of a folder, or the file itself, with their receipts.

        Raises:
            UserError: the path does not exist; a file of the index is missing, or a file is not in it; the index is
                damaged, or missing although the parts were written with one.
        """
        if isinstance(path, Parts):
            return path
        path = path_of(path)
        if not path.is_dir():
            return cls(path, part_files(path), _index_of(path))
        folder = log_folder(path)
        index = Index.read(folder)
        if index is not None:
            _check_names(folder, index)
            return cls(path, part_files(path), index)
        files = part_files(path)
        _refuse_unfinished(folder, files)
        _refuse_two_runs(folder, files)
        _refuse_equal(files)
        return cls(path, files)

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Path]:
        """Yield each file after verifying it.

        Raises:
            UserError: a file differs from its receipt, or cannot be read.
        """
        return map(self.verified, self.files)

    @property
    def first(self) -> Path:
        """The first file, verified."""
        return self.verified(self.files[0])

    def verified(self, file: Path) -> Path:
        """Return a file of the folder after verifying it against its receipt, if it has one.

        Raises:
            UserError: the file differs from its receipt, or cannot be read.
        """
        receipt = None if self.index is None else self.index.receipts.get(file.name)
        if receipt is not None and file not in self._verified:
            try:
                digest = file_digest(file)
            except OSError as error:
                raise not_written(error, f"{file} cannot be read: {error.strerror}") from None
            if digest != receipt.sha256:
                raise UserError(_differs(file))
            self._verified.add(file)
        return file


def _differs(file: Path) -> str:
    """Format the message for a file that differs from its receipt."""
    return f"{file} is not what {INDEX} lists; {MEND}"


def _check_names(folder: Path, index: Index) -> None:
    """Raise UserError for files that are missing, or that the index does not list."""
    missing = [name for name in sorted(index.receipts) if not (folder / name).is_file()]
    unlisted = [file.name for file in listed(folder) if file.name not in index.receipts]
    if missing:
        raise UserError(f"{folder / missing[0]} is missing{_and_more(missing)}; {MEND}")
    if unlisted:
        raise UserError(
            f"{folder / unlisted[0]} is not listed in {INDEX} of this log{_and_more(unlisted)}: move it away"
        )


def _and_more(names: list[str]) -> str:
    """Format the number of names after the first one, which the message shows."""
    if len(names) > 1:
        return f", and {len(names) - 1} more"
    return ""


def _refuse_unfinished(folder: Path, files: list[Path]) -> None:
    """Raise UserError for parts of a run without the index that is written after them.

    Only the first and the last file are looked at, as a log has many.
    """
    if (folder / UNFINISHED).exists() or any(_is_marked(file) for file in files[:1] + files[-1:]):
        raise UserError(
            f"{folder / INDEX} is missing: the run goes on or was interrupted (simulate, replay: --resume finishes "
            "it), or the file was lost; parts that you put together yourself are read under other names than part-*"
        )


def _index_of(file: Path) -> Index | None:
    """Read the index of a single file's folder; None if it does not list the file."""
    if file.suffix.lower() not in (*PARQUET, *ARROW):
        return None
    index = Index.read(file.parent)
    if index is None or file.name not in index.receipts:
        return None
    return index


def write_file(file: Path, rows: int, write: Callable[[Path], object]) -> None:
    """Write a table of ``rows`` rows by calling ``write(file)``, and count its rows.

    Raises:
        UserError: what is read back has another number of rows.
    """
    write(file)
    try:
        if not is_text_file(file) and rows_in(file) != rows:
            raise UserError(f"{file}: not all of its rows can be read back; name another folder")
    except UserError:
        file.unlink(missing_ok=True)
        raise


def mark_of_part(number: int, made: str | None) -> dict[bytes, bytes]:
    """Return the metadata that identifies a part: its number, and the digest of its run or None."""
    return {PART_KEY: json.dumps({"part": number, "made": made}, sort_keys=True).encode()}


def _refuse_two_runs(folder: Path, files: list[Path]) -> None:
    """Raise UserError for parts of several runs in one folder: equal user numbers would mean different users."""
    runs: dict[str, Path] = {}  # by run, its first part; files that this package did not write are of none
    for file in files:
        run = _mark_of(file).get("made")
        if run is not None:
            runs.setdefault(run, file)
    if len(runs) > 1:
        first, second, *_ = runs.values()
        raise UserError(
            f"{folder} holds parts of two runs, {first.name} and {second.name}, whose users are numbered alike: "
            "name one run's folder, or move the other's parts away"
        )


def _refuse_equal(files: list[Path]) -> None:
    """Raise UserError for two files of the same bytes, whose rows would count twice."""
    seen: dict[tuple[int, bytes], Path] = {}
    for file in files:
        try:
            # Only files with the same size and the same first 4 KiB are compared byte for byte.
            with file.open("rb") as stream:
                other = seen.setdefault((file.stat().st_size, stream.read(1 << 12)), file)
            equal = other is not file and filecmp.cmp(other, file, shallow=False)
        except OSError as error:
            raise not_written(error, f"{file} cannot be read: {error.strerror}") from None
        if equal and _count_rows(file):
            raise UserError(f"{file} is the same as {other.name}, byte for byte: move one of them away")


def _mark_of(file: Path) -> Mapping[str, Any]:
    """Read the metadata that :func:`mark_of_part` wrote; empty if the file has none, or cannot be read."""
    import pyarrow as pa

    try:
        mark = json.loads((schema_of(file).metadata or {})[PART_KEY])
    except (OSError, ValueError, KeyError, pa.ArrowException, RecursionError):
        return {}
    if isinstance(mark, dict) and isinstance(mark.get("made"), str | None):
        return mark
    return {}


def _is_marked(file: Path) -> bool:
    """Return whether a file is a part of this package's under its original name."""
    number = _mark_of(file).get("part")
    return isinstance(number, int) and file.name == part_path(file.parent, number, file.suffix).name


# -------------------------------------------------------------------------------------------------------------- columns

_HEAD = 4096
"""Number of first rows that are looked at before a file is read."""
_WHOLE_ROWS = 1 << 20
"""Number of rows decoded at a time if all rows are kept."""
_COPIES = 8
"""Memory for working with all rows at once, as a multiple of the table's size."""


@dataclass(frozen=True)
class TableFile:
    """A table on disk, of which only the header was read.

    Attributes:
        path: path as the user named it.
        parts: its files, verified against their receipts; several if ``path`` is a folder of parts.
        names: names of the columns, in order.
        form: format of a text file; None for Parquet and Arrow.
    """

    path: Path
    parts: Parts
    names: list[str]
    form: TextForm | None = None

    @staticmethod
    def open(path: str | os.PathLike[str] | Parts | TableFile, decimal: str | None = None) -> TableFile:
        """Open a file, or a folder of parts, and read its header.

        Args:
            path: a text file with a header line, compressed with gzip, bz2 or zstd if its name says so; a Parquet or
                Arrow file; a folder of one of them; or a table that is open already.
            decimal: the decimal mark of a text file, "." or ","; None to detect it.

        Raises:
            UserError: no such file, nothing in it, not of these kinds, a column named twice.
        """
        if isinstance(path, TableFile):
            return path
        parts = Parts.of(path)
        first = parts.first
        form = None
        if is_text_file(first):
            form = TextForm.of(first, decimal)
            names = form.names
        else:
            names = schema_in(first).names
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"{first}: column {name!r} appears twice in the header; rename one")
        return TableFile(parts.path, parts, names, form)

    @property
    def decimal(self) -> Decimal:
        """The decimal mark."""
        if self.form is None:
            return Decimal()
        return self.form.decimal

    def how_written(self) -> list[str]:
        """Describe what is unusual: a text file without commas, points or UTF-8, and columns in names of folders."""
        columns = partition_columns(self.path, self.parts.files[0])
        lines = [] if self.form is None else self.form.how_written()
        if columns:
            lines.append(f"not read: {', '.join(columns)}, in the names of folders")
        return lines

    def head(self) -> dict[str, list[Any]]:
        """Read the first rows of the first file: by column a list of values, which are texts if the file is text."""
        first = self.parts.files[0]
        if self.form is not None:
            return self.form.head(first)
        for table in read_blocks(first, _HEAD):
            if len(table):
                return {name: objects_of(table.column(name).slice(0, _HEAD)) for name in table.column_names}
        return {}

    def read(self, kinds: Mapping[str, str], most: int | None = None) -> Rows:
        """Read columns of all rows.

        Args:
            kinds: by column how its values are used: "number", "id", "time" or "text".
            most: number of first rows to read; None for all.

        Raises:
            UserError: the file is no table, a row has another number of fields, or memory is too small for all rows.
        """
        import pyarrow as pa

        while True:  # once more after each AgainError
            tables = []
            size = 0
            left = math.inf if most is None else most  # number of rows to read
            try:
                for rows in self.blocks(kinds, _WHOLE_ROWS):
                    tables.append(rows.table if len(rows) <= left else rows.table.slice(0, int(left)))
                    size += rows.table.nbytes
                    _check_room(self.path, size)
                    left -= len(rows)
                    if left <= 0:
                        break
            except AgainError:
                continue
            break
        try:
            table = pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException:
            raise UserError(
                f"{self.path}: the parts hold columns of different types; write them with one schema"
            ) from None
        return Rows(str(self.path), table, self.decimal)

    def blocks(self, kinds: Mapping[str, str], rows: int, faults: Faults | None = None) -> Iterator[Rows]:
        """Yield columns of about ``rows`` rows at a time, which collect their faults in ``faults``.

        Raises:
            UserError: the file is no table or has no rows, or a row has another number of fields.
            AgainError: the file must be read again from its first row.
        """
        first = 1
        faults = faults or Faults(str(self.path))
        for part in self.parts:
            for table in self._tables(part, kinds, rows):
                if len(table):
                    numbers = np.arange(first, first + len(table))
                    yield Rows(str(self.path), table, self.decimal, faults, row_numbers=numbers)
                    first += len(table)
        if first == 1:
            raise UserError(f"{self.path} has a header but no rows", code="empty")

    def _tables(self, part: Path, kinds: Mapping[str, str], rows: int) -> Iterator[Any]:
        """Return an iterator over pyarrow tables with these columns of a part.

        Raises:
            UserError: the part lacks a column that the first part has.
        """
        text = None if self.form is None else self._text_part(part)
        names = schema_in(part).names if text is None else text.form.names
        for name in kinds:
            if name not in names:
                raise UserError(
                    f"{part.name} has no column {name!r}, which another part has: {self.parts.files[0].name} comes "
                    "first. Move files away that are no parts of the log"
                )
        if text is not None:
            return text.blocks(kinds)
        return read_blocks(part, rows, list(kinds), verified=self.parts.index is not None)

    def _text_part(self, part: Path) -> TextPart:
        """Return the reader of a text part, which remembers between passes how the part must be read."""
        if part not in self._text_parts:
            form = self.form
            assert form is not None
            if part != self.parts.files[0]:
                form = TextForm.of(part, form.decimal.mark if form.decimal.stated else None)
            self._text_parts[part] = TextPart(part, form)
        return self._text_parts[part]

    @functools.cached_property
    def _text_parts(self) -> dict[Path, TextPart]:
        """The readers of text parts so far, by path."""
        return {}


def _check_room(path: Path, size: int) -> None:
    """Raise MachineError if working with ``size`` bytes of rows needs more memory than is free."""
    free = free_memory()
    if _COPIES * size > free + size:
        raise MachineError(
            f"{path}: all of its rows are needed at once, {in_words(size)} as they are read and "
            f"{in_words(_COPIES * size)} to work with them; this machine has {in_words(free)} left. Give fewer rows or "
            "columns"
        )


# ---------------------------------------------------------------------------------------------- every fault of a folder


@dataclass
class Verified:
    """Result of :func:`verify`.

    Attributes:
        n_files: number of files with receipts.
        n_read: number of files without receipts, which were read to their ends.
        n_rows: number of rows of all tables.
        faults: one line per fault.
    """

    n_files: int = 0
    n_read: int = 0
    n_rows: int = 0
    faults: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """Summarise the result in one line."""
        rows = f"{self.n_rows:,} rows"
        if self.n_files:
            return f"{_files(self.n_files)}, {rows}: all are what their receipts say"
        return (
            f"{_files(self.n_read)} without receipts, {rows}: all can be read, and whether they are as they were "
            "written is unknown"
        )


def _files(n: int) -> str:
    """Format ``1 file``, ``2 files``."""
    return f"{n:,} file{'s' * (n != 1)}"


def verify(path: str | Path) -> Verified:
    """Verify a run's folder with all its files, a log, a part or a single file against the receipts.

    Files without receipts are read through, with the checksums of their pages if they have any.

    Raises:
        UserError: nothing there.
    """
    path = path_of(path)
    if not path.exists():
        raise UserError(f"{path} does not exist: name a folder or a file")
    verified = Verified()
    faults: list[str] = []
    for folder in (path, path / "log"):
        if folder.is_dir():
            faults += _faults_of_folder(folder, verified)
    faults += _faults_of_parts(path, verified)
    verified.faults = list(dict.fromkeys(faults))  # a folder's index and its parts may show the same fault
    return verified


def _faults_of_folder(folder: Path, verified: Verified) -> Iterator[str]:
    """Yield the faults of the files in a folder's index, and count the files in ``verified``."""
    try:
        index = Index.read(folder) or Index()
    except UserError as error:
        yield str(error)
        return
    if not (folder / INDEX).exists() and any((folder / name).exists() for name in (UNFINISHED, *MANIFESTS)):
        yield f"{folder} was not finished: give its command again with --resume, or remove it"
    for receipt in index.receipts.values():
        yield from _faults_of_file(folder, receipt, verified)


def _faults_of_file(folder: Path, receipt: Receipt, verified: Verified) -> Iterator[str]:
    """Yield the fault of a file that differs from its receipt, if it does, and count it in ``verified``."""
    file = folder / receipt.file
    verified.n_files += 1
    verified.n_rows += receipt.rows or 0
    if not file.is_file():
        yield f"{file} is missing; {MEND}"
    elif not receipt.fits(folder):
        yield _differs(file)


def _faults_of_parts(path: Path, verified: Verified) -> Iterator[str]:
    """Yield the faults that opening a log finds, and those of files that no folder's index lists.

    The latter are counted in ``verified``; files of an index are counted with their folder.
    """
    try:
        parts = Parts.of(path)
    except UserError as error:
        # A folder of other things than a log, all of which have receipts, is no fault.
        if not (path.is_dir() and verified.n_files and not _holds_parts(path)):
            yield str(error)
        return
    if path.is_dir() and Index.read(parts.files[0].parent) is not None:
        return
    for file in parts.files:
        if parts.index is not None:
            yield from _faults_of_file(file.parent, parts.index.receipts[file.name], verified)
            continue
        try:
            verified.n_read += 1
            verified.n_rows += _count_rows(file, decode=True)
        except UserError as error:
            yield str(error)


def _holds_parts(path: Path) -> bool:
    """Return whether a folder holds files that a reader of logs would read."""
    try:
        return bool(part_files(path))
    except UserError:
        return False


def _count_rows(file: Path, *, decode: bool = False) -> int:
    """Count the rows of a table; with ``decode`` all of them are read.

    Raises:
        UserError: the file cannot be read.
    """
    if is_text_file(file):
        return rows_in_text(file)
    if decode:
        return sum(len(table) for table in read_blocks(file, _WHOLE_ROWS))
    return rows_in(file)
