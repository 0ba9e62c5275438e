"""The files of a table, checked against their receipts before anything in them is believed, and their columns."""

from __future__ import annotations

import collections
import filecmp
import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recsim_mnar.errors import MachineError, UserError, not_written
from recsim_mnar.kernels.memory import free_memory, in_words
from recsim_mnar.runs.files import path_of
from recsim_mnar.runs.folder import MANIFESTS, is_filled_here
from recsim_mnar.runs.receipts import INDEX, SIDECAR, UNFINISHED, Index, Receipt, file_digest, made_with
from recsim_mnar.tables.files import (
    ARROW,
    PARQUET,
    is_table,
    is_text_file,
    listed,
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
_AHEAD = 3
"""Parts that are hashed beyond the one that is read."""

MEND = "restore it, or make it again with the command that wrote it (simulate: and --resume)"


@dataclass(frozen=True)
class Parts:
    """The files of a log, in the order of their names; iterating checks each against its receipt.

    Attributes:
        path: what the user named.
        files: their paths.
        index: their receipts; None if there are none, as in a user's own folder.
    """

    path: Path
    files: list[Path]
    index: Index | None = None
    _sound: set[Path] = field(default_factory=set)

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Parts:
        """The files of a folder, or the file itself, see :func:`recsim_mnar.tables.files.part_files`.

        Raises:
            UserError: nothing there; a file that the index lists is missing, or one is there that it does not list;
                the index is damaged, or missing where parts have one.
        """
        path = path_of(path)
        if (path / "log").is_dir():
            folder = path / "log"
        else:
            folder = path
        if not path.is_dir():
            return cls(path, part_files(path), _index_of(path))
        _check_run(path if folder != path else path.parent, folder)
        index = Index.read(folder)
        if index is not None:
            _check_names(folder, index)
            return cls(path, part_files(path), index)
        files = part_files(path)
        _refuse_unfinished(folder, files)
        _refuse_two_runs(folder, files)
        _refuse_equal(files)
        return cls(path, files, _index_beside(files))

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Path]:
        """Each file, when it has been found to be what its receipt says; the next ones are looked at meanwhile.

        Raises:
            UserError: it is not; or it cannot be read.
        """
        if all(file in self._sound or self._receipt(file) is None for file in self.files):
            yield from self.files
            return
        waiting: collections.deque[tuple[Path, Future[str]]] = collections.deque()
        threads = ThreadPoolExecutor(min(_AHEAD, len(self.files), os.cpu_count() or 1), "receipts")
        try:
            for file in self.files:
                waiting.append((file, threads.submit(file_digest, file)))
                if len(waiting) > _AHEAD:
                    yield self._held(*waiting.popleft())
            while waiting:
                yield self._held(*waiting.popleft())
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    @property
    def first(self) -> Path:
        """The first file, checked against its receipt."""
        return self.held(self.files[0])

    def held(self, file: Path) -> Path:
        """A file of the folder, checked against its receipt where it has one.

        Raises:
            UserError: it is not what its receipt says.
        """
        return next(iter(Parts(self.path, [file], self.index, self._sound)))

    def _held(self, file: Path, digest: Future[str]) -> Path:
        receipt = self._receipt(file)
        if receipt is not None and file not in self._sound:
            try:
                digest_found = digest.result()
            except OSError as error:
                raise not_written(error, f"{file} cannot be read: {error.strerror}") from None
            if digest_found != receipt.sha256:
                raise UserError(_differs(file))
            self._sound.add(file)
        return file

    def _receipt(self, file: Path) -> Receipt | None:
        if self.index is None:
            return None
        return self.index.receipts.get(file.name)


def _differs(file: Path) -> str:
    """Describe a file whose bytes are not those of its receipt."""
    if file.with_name(file.name + SIDECAR).exists():
        return f"{file} is not what was written: restore it, or, if you wrote it anew, remove {file.name}{SIDECAR}"
    return f"{file} is not what {INDEX} lists; {MEND}"


def _check_names(folder: Path, index: Index) -> None:
    """Raise UserError where files are missing, or too many."""
    missing = [name for name in sorted(index.receipts) if not (folder / name).is_file()]
    strangers = [file.name for file in listed(folder) if file.name not in index.receipts]
    if missing:
        raise UserError(f"{folder / missing[0]} is missing{_others(missing)}; {MEND}")
    if strangers:
        raise UserError(
            f"{folder / strangers[0]} is not listed in {INDEX} of this log{_others(strangers)}: move it away"
        )


def _others(names: list[str]) -> str:
    if len(names) > 1:
        return f", and {len(names) - 1} more"
    return ""


def _check_run(run: Path, log: Path) -> None:
    """Raise UserError where a run's folder was not finished, or does not belong together with its log."""
    if log.name != "log" or is_filled_here(run):
        return
    index = Index.read(run)
    if index is None:
        if any((run / name).exists() for name in MANIFESTS):
            _refuse_unfinished(run, listed(log))
        return
    for name in (*MANIFESTS, f"{log.name}/{INDEX}"):
        receipt = index.receipts.get(name)
        if receipt is None:
            continue
        if not (run / name).is_file():
            raise UserError(f"{run / name} is missing; {MEND}")
        if not receipt.fits(run):
            raise UserError(_differs(run / name))


def _refuse_unfinished(folder: Path, files: list[Path]) -> None:
    """Raise UserError where there are parts without the index that is written after them."""
    if not ((folder / UNFINISHED).exists() or any(_is_marked(file) for file in files[:1] + files[-1:])):
        return
    raise UserError(
        f"{folder / INDEX} is missing: the run goes on or was interrupted (simulate, replay: --resume finishes it), or "
        "the file was lost; parts that you put together yourself are read under other names than part-*"
    )


def _index_beside(files: list[Path]) -> Index | None:
    """The receipts of files that each have their own; None where one has none.

    Then the others are checked against theirs here, and all are read as files without receipts.

    Raises:
        UserError: one is not what its receipt says.
    """
    indexes = {file: index for file in files if (index := _index_of(file)) is not None}
    if len(indexes) == len(files):
        return Index({file.name: index.receipts[file.name] for file, index in indexes.items()})
    for file, index in indexes.items():
        Parts(file, [file], index).held(file)
    return None


def _index_of(file: Path) -> Index | None:
    """The index that lists a single file: its own, whatever both are called today, or that of its folder."""
    own_index = Index.read(file.parent, file.name + SIDECAR)
    for receipt in [] if own_index is None else own_index.receipts.values():
        return Index({file.name: replace(receipt, file=file.name)})
    if file.suffix.lower() in (*PARQUET, *ARROW):
        index = Index.read(file.parent)
    else:
        index = None
    if index is not None and file.name in index.receipts:
        return index
    return None


def write_file(file: Path, rows: int, write: Callable[[Path], object]) -> None:
    """Let ``write(file)`` write a table of ``rows`` rows as a file of its own, and its receipt next to it.

    Raises:
        UserError: what is read back has another number of rows.
    """
    sidecar = file.with_name(file.name + SIDECAR)
    sidecar.unlink(missing_ok=True)  # of a file that was removed
    write(file)
    try:
        if not is_text_file(file) and rows_in(file) != rows:
            raise UserError(f"{file}: not all of its rows can be read back; name another folder")
    except UserError:
        file.unlink(missing_ok=True)
        raise
    Index({file.name: Receipt.of(file, file.name, rows=rows)}, made_with=made_with()).write(file.parent, sidecar.name)


def mark_of_part(number: int, made: str | None) -> dict[bytes, bytes]:
    """The mark of a part, for the metadata of its file."""
    return {PART_KEY: json.dumps({"part": number, "made": made}, sort_keys=True).encode()}


def _refuse_two_runs(folder: Path, files: list[Path]) -> None:
    """Raise UserError where a folder without an index holds parts of several runs: users are numbered alike in them."""
    first: tuple[str, Path] | None = None
    for file in files:
        made = _mark_of(file).get("made")
        if made is None:
            continue
        first = first or (made, file)
        if made != first[0]:
            raise UserError(
                f"{folder} holds parts of two runs, {first[1].name} and {file.name}, whose users are numbered alike: "
                "name one run's folder, or move the other's parts away"
            )


def _refuse_equal(files: list[Path]) -> None:
    """Raise UserError where two files are the same bytes: their rows would count twice."""
    seen: dict[tuple[int, bytes], Path] = {}
    for file in files:
        try:
            with file.open("rb") as begin:
                other = seen.setdefault((file.stat().st_size, begin.read(1 << 12)), file)
            if other is file or not filecmp.cmp(other, file, shallow=False):
                continue
        except OSError as error:
            raise not_written(error, f"{file} cannot be read: {error.strerror}") from None
        if rows_in_text(file) if is_text_file(file) else rows_in(file):
            raise UserError(f"{file} is the same as {other.name}, byte for byte: move one of them away")


def _mark_of(file: Path) -> Mapping[str, Any]:
    """The mark of a part; empty where there is none to be read."""
    import pyarrow as pa

    try:
        mark = json.loads((schema_of(file).metadata or {})[PART_KEY])
    except (OSError, ValueError, KeyError, pa.ArrowException, RecursionError):
        return {}
    if isinstance(mark, dict) and isinstance(mark.get("made"), str | None):
        return mark
    return {}


def _is_marked(file: Path) -> bool:
    """Return whether a file is a part of ours under the name that it was given."""
    number = _mark_of(file).get("part")
    return isinstance(number, int) and file.name == part_path(file.parent, number, file.suffix).name


# -------------------------------------------------------------------------------------------------------------- columns

_HEAD = 4096
_WHOLE_ROWS = 1 << 20
"""Rows decoded at a time where all of them are wanted."""
_COPIES = 8
"""Times its size that a whole table takes while it is worked with."""


@dataclass(frozen=True)
class TableFile:
    """A table on disk, looked at but not read: what its columns are called, and how it is written.

    Attributes:
        path: as it was named.
        parts: its files, checked against their receipts; several where ``path`` is a folder of parts.
        names: the columns, in order.
        form: how a text file is written; None for Parquet and Arrow.
    """

    path: Path
    parts: Parts
    names: list[str]
    form: TextForm | None = None

    @staticmethod
    def open(path: str | os.PathLike[str] | Parts, decimal: str | None = None) -> TableFile:
        """Look at a file, or at a folder of parts.

        Args:
            path: a text file with a header line, compressed with gzip, bz2 or zstd where the name says so; a Parquet
                or Arrow file; a folder of one of them.
            decimal: the decimal mark of a text file, "." or ","; None to find it.

        Raises:
            UserError: no such file, nothing in it, not of these kinds, a column named twice.
        """
        if isinstance(path, Parts):
            parts = path
        else:
            parts = Parts.of(path)
        first = parts.first
        if is_text_file(first):
            form = TextForm.of(first, decimal)
        else:
            form = None
        names = _unique(first, schema_in(first).names if form is None else form.names)
        return TableFile(parts.path, parts, names, form)

    @property
    def decimal(self) -> Decimal:
        """The decimal mark."""
        if self.form is None:
            return Decimal()
        return self.form.decimal

    def how_written(self) -> list[str]:
        """List what was made of a text file that is not commas, points and UTF-8, and columns that are not read."""
        columns = partition_columns(self.path, self.parts.files[0])
        if columns:
            lines = [f"not read: {', '.join(columns)}, in the names of folders"]
        else:
            lines = []
        if self.form is None:
            return lines
        return [*self.form.how_written(), *lines]

    def head(self) -> dict[str, list[Any]]:
        """The first rows: the values of each column, as text where the file is."""
        if self.form is not None:
            return self.form.head(self.parts.files[0])
        table = next((block for block in read_blocks(self.parts.files[0], _HEAD) if len(block)), None)
        if table is None:
            return {}
        return {name: objects_of(table.column(name).slice(0, _HEAD)) for name in table.column_names}

    def read(self, kinds: Mapping[str, str]) -> Rows:
        """Read columns of all rows.

        Args:
            kinds: by column, what it is read for: "number", "id", "time" or "text".

        Raises:
            UserError: the file is no table, a row has another number of fields, or there is no room for all rows.
        """
        import pyarrow as pa

        while True:
            tables = []
            held = 0
            try:
                for rows in self.blocks(kinds, _WHOLE_ROWS):
                    tables.append(rows.table)
                    held += rows.table.nbytes
                    _check_room(self.path, held)
                if len(tables) == 1:
                    table = tables[0]
                else:
                    table = pa.concat_tables(tables, promote_options="permissive")
            except AgainError:
                continue
            except pa.ArrowException:
                raise UserError(
                    f"{self.path}: the parts hold columns of different types; write them with one schema"
                ) from None
            return Rows(str(self.path), table, self.decimal)

    def blocks(self, kinds: Mapping[str, str], rows: int, faults: Faults | None = None) -> Iterator[Rows]:
        """Read columns, some ``rows`` rows at a time; their faults are gathered together.

        Raises:
            UserError: as :meth:`read`.
            AgainError: the file must be read anew, from its first row.
        """
        first = 1
        if faults is None:
            faults = Faults(str(self.path))
        for part in self.parts:
            for table in self._tables(part, kinds, rows):
                if len(table):
                    yield Rows(str(self.path), table, self.decimal, first, faults=faults)
                    first += len(table)
        if first == 1:
            raise UserError(f"{self.path} has a header but no rows", code="empty")

    def _tables(self, part: Path, kinds: Mapping[str, str], rows: int) -> Iterator[Any]:
        if part == self.parts.files[0]:
            names = self.names
        else:
            names = self._names_of(part)
        for name in kinds:
            if name not in names:
                raise UserError(f"part {part.name} has no column {name!r}, which the other parts have")
        if self.form is not None:
            return self._text_part(part).blocks(kinds)
        return read_blocks(part, rows, list(kinds), held=self.parts.index is not None)

    def _names_of(self, part: Path) -> list[str]:
        if self.form is None:
            return list(schema_in(part).names)
        return self._text_part(part).form.names

    def _text_part(self, part: Path) -> TextPart:
        assert self.form is not None
        if part not in self._text_parts:
            if self.form.decimal.stated:
                stated = self.form.decimal.mark
            else:
                stated = None
            if part == self.parts.files[0]:
                form = self.form
            else:
                form = TextForm.of(part, stated)
            self._text_parts[part] = TextPart(part, form)
        return self._text_parts[part]

    @functools.cached_property
    def _text_parts(self) -> dict[Path, TextPart]:
        return {}


def _unique(path: Path, names: list[str]) -> list[str]:
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{path}: column {name!r} appears twice in the header; rename one")
    return names


def _check_room(path: Path, size: int) -> None:
    """Raise UserError where the rows read so far fill the memory that is left."""
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
    if n == 1:
        return "1 file"
    return f"{n:,} files"


def verify(path: str | Path) -> Verified:
    """Check what is at a path against its receipts: a run's folder with all its files, a log, a part, a single file.

    Files without receipts are read through; their pages are checked against the checksums that they bear.

    Raises:
        UserError: nothing there.
    """
    path = path_of(path)
    if not path.exists():
        raise UserError(f"{path} does not exist: name a folder or a file")
    verified = Verified()
    for folder in [entry for entry in (path, path / "log") if entry.is_dir()]:
        verified.faults += _faults_of_folder(folder, verified)
    verified.faults += _faults_of_parts(path, verified)
    verified.faults[:] = list(dict.fromkeys(verified.faults))
    return verified


def _faults_of_folder(folder: Path, found: Verified) -> Iterator[str]:
    """The faults of the files that the index of a folder lists."""
    try:
        index = Index.read(folder) or Index()
    except UserError as error:
        yield str(error)
        return
    if (folder / UNFINISHED).exists() and not (folder / INDEX).exists():
        yield f"{folder} was not finished: give its command again with --resume, or remove it"
    for receipt in index.receipts.values():
        yield from _faults_of_file(folder, receipt, found)


def _faults_of_file(folder: Path, receipt: Receipt, found: Verified) -> Iterator[str]:
    file = folder / receipt.file
    found.n_files += 1
    found.n_rows += receipt.rows or 0
    if not file.is_file():
        yield f"{file} is missing; {MEND}"
    elif not receipt.fits(folder):
        yield _differs(file)
    elif receipt.rows is not None and is_table(file) and _rows_of(file) != receipt.rows:
        yield f"{file} has {_rows_of(file):,} rows, its receipt says {receipt.rows:,}: the receipt was changed; {MEND}"


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
    """Return whether a reader of logs finds files in a folder."""
    try:
        return bool(part_files(path))
    except UserError:
        return False


def _rows_of(file: Path, *, through: bool = False) -> int:
    """Count the rows of a table; with ``through`` all of them are read.

    Raises:
        UserError: it cannot be read.
    """
    if is_text_file(file):
        return rows_in_text(file)
    if through:
        return sum(len(table) for table in read_blocks(file, 1 << 20))
    return rows_in(file)
