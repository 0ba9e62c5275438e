"""The files of a log by name, and columns of Parquet and Arrow files as pyarrow holds them."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from recsim_mnar.errors import UserError, not_written
from recsim_mnar.kernels.memory import refuse_want_of_memory
from recsim_mnar.runs.files import path_of, replacing

PARQUET = (".parquet", ".pq")
"""Endings of Parquet files."""
ARROW = (".arrow", ".feather")
"""Endings of Arrow's own files (IPC)."""
TEXT = (".csv", ".tsv", ".inter", ".txt", ".dat")
"""Endings of text tables."""
COMPRESSED = (".gz", ".bz2", ".zst")
"""Endings that follow those of compressed text tables."""
PACKED = {"compression": "zstd", "compression_level": 1, "write_page_checksum": True}
"""Options of pyarrow's writer of Parquet, for all of ours."""


IN_MEMORY = "the table in memory"
"""Name of a table that was handed over in place of a path, in messages and answers."""


def part_path(folder: Path, index: int, ending: str = PARQUET[0]) -> Path:
    """The path of part ``index`` of a log folder."""
    return folder / f"part-{index:05d}{ending}"


def write_table(table: Any, path: Path) -> None:
    """Write a pyarrow Table as Parquet under a temporary name, then rename it; its pages bear checksums."""
    import pyarrow.parquet as pq

    with replacing(path) as temporary:
        pq.write_table(table, temporary, **PACKED)


@contextlib.contextmanager
def called(copy: Path, name: str) -> Iterator[None]:
    """Give errors about a temporary copy the name of its original.

    Raises:
        UserError: the error about the copy, in other words.
    """
    try:
        yield
    except UserError as error:
        raise type(error)(str(error).replace(str(copy), name), code=error.code) from error


def is_in_memory(table: Any) -> bool:
    """Return whether a table is an object of Arrow's stream interface, not a path."""
    return hasattr(table, "__arrow_c_stream__")


@contextlib.contextmanager
def as_file(table: Any) -> Iterator[Path]:
    """Yield the path of a table; one in memory is an Arrow file for as long as the context lasts.

    Args:
        table: a path, or an object of Arrow's stream interface: a data frame of pandas or polars, a relation of duckdb,
            a table of pyarrow.

    Raises:
        UserError: neither a path nor such an object; or an error about the rows, naming :data:`IN_MEMORY`.
    """
    if not is_in_memory(table):
        yield path_of(table)
        return
    with tempfile.TemporaryDirectory(prefix="recsim-mnar-") as folder:
        copy = Path(folder) / "table.arrow"
        _write_stream(table, copy)
        with called(copy, IN_MEMORY):
            yield copy


def _write_stream(table: Any, path: Path) -> None:
    """Write an object of Arrow's stream interface batch by batch, without the index of a pandas frame."""
    import pyarrow as pa

    batches = pa.RecordBatchReader.from_stream(table)
    columns = [field for field in batches.schema if not field.name.startswith("__index_level_")]
    schema = pa.schema([pa.field(field.name, _written_type(field.type)) for field in columns])
    with pa.ipc.new_file(str(path), schema) as writer:
        for batch in batches:
            values = [_cast(batch.column(field.name), field.type) for field in schema]
            writer.write(pa.record_batch(values, schema=schema))


def _written_type(kind: Any) -> Any:
    """Get the Arrow type in a file of several batches, each of which may have a dictionary of its own."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _written_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return kind


def _cast(values: Any, kind: Any) -> Any:
    """Cast an array, or what its dictionary has at each row."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        return values.dictionary.cast(kind).take(values.indices)
    return values.cast(kind)


def kind_of(path: Path) -> str:
    """A file's ending without that of its compression, in lower case."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if len(suffixes) > 1 and suffixes[-1] in COMPRESSED:
        if suffixes[-2] in TEXT:
            return suffixes[-2]
        return suffixes[-1]
    return (suffixes or [""])[-1]


def is_text_file(path: Path) -> bool:
    """Return whether a file's name says that it is a text table."""
    return kind_of(path) in TEXT


def is_table(path: Path) -> bool:
    """Return whether a file's name ends as those of tables do."""
    return kind_of(path) in (*PARQUET, *ARROW, *TEXT)


def part_files(path: Path) -> list[Path]:
    """The files of a log, in the order of their names: those of a folder, or the file itself.

    A folder holds them itself, in its folder ``log`` (as what ``simulate`` and ``compare`` write, with other files
    beside it) or in its partitions. Hidden files, whose names begin with a dot or an underscore, do not count.
    :class:`recsim_mnar.tables.parts.Parts` checks them against their receipts, too.

    Raises:
        UserError: nothing there, nothing in it, tables of two formats, or a file of another kind.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist: give a Parquet or CSV file, or a folder of parts", code="no_such_file")
    if not path.is_dir():
        if not is_table(path):
            raise UserError(
                f"{path} is neither Parquet nor CSV: tables are read from {', '.join((*TEXT, *PARQUET, *ARROW))} files "
                f"(text may be compressed: {', '.join(COMPRESSED)}), not {kind_of(path) or 'without an ending'}",
                code="not_a_table",
            )
        if not path.is_file():
            raise UserError(f"{path} is no regular file, and tables are read more than once: write it into one first")
        if path.stat().st_size == 0:
            raise UserError(f"{path} is empty: give a log with at least one row", code="empty")
        return [path]
    if (path / "log").is_dir():
        folder = path / "log"
    else:
        folder = path
    files = listed(folder) or [file for part in partitions(folder) for file in part_files(part)]
    if not files:
        raise UserError(f"{folder} holds no Parquet or CSV parts")
    other = next((file for file in files if _format_of(file) != _format_of(files[0])), None)
    if other is not None:
        raise UserError(
            f"{folder} holds {files[0].name} and {other.name}: the parts of a log have one format. Name one of them, "
            "or move the others away"
        )
    return files


def partitions(folder: Path) -> list[Path]:
    """List the folders ``column=value`` in a folder, by name: a table that Hive, Spark or pyarrow has partitioned."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and "=" in path.name and path.name[0] not in "._")


def partition_columns(folder: Path, file: Path) -> list[str]:
    """List the columns that are in the names of the folders between a folder and a file, not in the file."""
    if not file.is_relative_to(folder):
        return []
    return [part.partition("=")[0] for part in file.relative_to(folder).parts[:-1] if "=" in part]


def listed(folder: Path) -> list[Path]:
    """The tables in a folder, by name, but for hidden ones.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return sorted(path for path in folder.iterdir() if path.name[0] not in "._" and is_table(path))
    except OSError as error:
        raise not_written(error, f"{folder} cannot be read: {error.strerror}") from None


def _format_of(file: Path) -> int:
    """Get the format that a table's name states."""
    return next(number for number, endings in enumerate((PARQUET, ARROW, TEXT)) if kind_of(file) in endings)


def batches_of(path: Path, names: Sequence[str] | None = None) -> Any:
    """The reader of an Arrow file's batches, of all columns unless named; what is not compressed is mapped.

    Raises:
        OSError: no such file.
        pyarrow.ArrowException: it is damaged.
        KeyError: it has no column of that name, or several.
    """
    import pyarrow as pa

    file = pa.memory_map(str(path))
    reader = pa.ipc.open_file(file)
    if not names:
        return reader
    places = [reader.schema.get_field_index(name) for name in names]
    if -1 in places:
        raise KeyError(f"no one column {names[places.index(-1)]!r}")
    return pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=places))


def table_of(path: Path, names: Sequence[str] | None = None, numbers: Iterable[int] | None = None) -> Any:
    """Columns of an Arrow file, all unless named, from all its batches or those of these numbers.

    Raises:
        As :func:`batches_of`.
    """
    import pyarrow as pa

    reader = batches_of(path, names)
    batches = [reader.get_batch(k) for k in (range(reader.num_record_batches) if numbers is None else numbers)]
    if batches:
        table = pa.Table.from_batches(batches)
    else:
        table = reader.schema.empty_table()
    if names is None:
        return table
    return table.select(list(names))


def schema_of(path: Path) -> Any:
    """The schema of a Parquet file or an Arrow file, metadata included.

    Raises:
        OSError: no such file, or none of that kind.
        pyarrow.ArrowException: the same.
    """
    import pyarrow as pa

    if path.suffix.lower() in ARROW:
        with pa.OSFile(str(path)) as file:
            return pa.ipc.open_file(file).schema
    import pyarrow.parquet as pq

    return pq.read_schema(path)


def is_text(kind: Any) -> bool:
    """Return whether a pyarrow type is text."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def objects_of(values: Any) -> list[Any]:
    """A column's values as Python's objects; a text of a dictionary is one object, in however many rows it stands."""
    result: list[Any] = []
    for chunk in values.chunks:
        if hasattr(chunk, "dictionary"):
            words = [*chunk.dictionary.to_pylist(), None]
            result += [words[-1 if k is None else k] for k in chunk.indices.to_pylist()]
        else:
            result += chunk.to_pylist()
    return result


def schema_in(path: Path) -> Any:
    """The schema of a Parquet file or an Arrow file.

    Raises:
        UserError: it cannot be read.
    """
    with _readable(path):
        return schema_of(path)


def read_table(file: Path, columns: list[str] | None = None, *, held: bool = False) -> Any:
    """The pyarrow Table of a Parquet file or an Arrow file.

    Args:
        file: its path.
        columns: their names; all where None.
        held: it was checked against its receipt. Where it was not, its pages are checked against the checksums they
            bear, if they do (those of Parquet); an Arrow file, which bears none, must not contradict itself.

    Raises:
        UserError: it cannot be read.
    """
    with _readable(file), _opened(file, columns, held) as groups:
        return groups.read(list(range(len(groups.sizes))))


def read_blocks(file: Path, rows: int, columns: list[str] | None = None, *, held: bool = False) -> Iterator[Any]:
    """Read a table as :func:`read_table` does, in tables of at most about ``rows`` rows, one after another.

    They are whole row groups or batches where these are small enough.
    """
    with _readable(file), _opened(file, columns, held) as groups:
        for run in _runs(groups.sizes, rows):
            if len(run) == 1 and groups.sizes[run[0]] > rows:
                yield from groups.divided(run[0], rows)
            else:
                yield groups.read(run)
        if not groups.sizes:
            yield groups.read([])


def read_rows(file: Path, first: int, n: int) -> Any:
    """Rows ``first`` (from 0) to ``first + n - 1`` of a file, as :func:`read_table`, of their groups or batches alone.

    Raises:
        UserError: it cannot be read.
    """
    with _readable(file), _opened(file) as groups:
        numbers = _groups_of(groups.sizes, first, n)
        return groups.read(numbers).slice(first - sum(groups.sizes[: numbers[0]]), n)


def rows_to_read(file: Path, first: int, n: int) -> int:
    """Count the rows that :func:`read_rows` decodes.

    Raises:
        UserError: it cannot be read.
    """
    with _readable(file), _opened(file) as groups:
        return sum(groups.sizes[k] for k in _groups_of(groups.sizes, first, n))


def rows_in(file: Path, ending: str = "") -> int:
    """Count the rows of a Parquet or Arrow file, by its own statement.

    Args:
        file: its path.
        ending: that it will have, where it bears a temporary name.

    Raises:
        UserError: it cannot be read.
    """
    with _readable(file), _opened(file, ending=ending) as groups:
        return sum(groups.sizes)


@contextlib.contextmanager
def _opened(file: Path, columns: list[str] | None = None, held: bool = False, ending: str = "") -> Iterator[_Groups]:
    if (ending or file.suffix.lower()) in ARROW:
        yield _Batches(file, columns, held)
        return
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(file)
    with pq.ParquetFile(
        file,
        page_checksum_verification=not held,
        read_dictionary=_dictionary_columns(metadata),
        metadata=metadata,
    ) as opened:
        yield _RowGroups(opened, columns)


def _dictionary_columns(metadata: Any) -> list[str]:
    """Names of the text columns of a Parquet file but those written as differences, which cannot be dictionaries."""
    texts = set[str]()
    differences = set[str]()
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(place)
            if chunk.physical_type == "BYTE_ARRAY":
                texts.add(chunk.path_in_schema)
                if any(encoding.startswith("DELTA") for encoding in chunk.encodings):
                    differences.add(chunk.path_in_schema)
    return sorted(texts - differences)


_Groups: TypeAlias = "_RowGroups | _Batches"


class _RowGroups:
    """The row groups of a Parquet file: how many rows each has, and tables of them.

    Texts come as dictionaries, so that one that stands in many rows is in memory once.
    """

    def __init__(self, file: Any, columns: list[str] | None) -> None:
        self._file = file
        self._columns = columns
        self.sizes = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]

    def read(self, numbers: list[int]) -> Any:
        return _with_dictionaries(self._file.read_row_groups(numbers, columns=self._columns))

    def divided(self, number: int, rows: int) -> Iterator[Any]:
        import pyarrow as pa

        for batch in self._file.iter_batches(rows, row_groups=[number], columns=self._columns):
            yield _with_dictionaries(pa.Table.from_batches([batch]))


def _with_dictionaries(table: Any) -> Any:
    """The table with every text column as a dictionary."""
    for place, name in enumerate(table.column_names):
        if is_text(table.column(place).type):
            table = table.set_column(place, name, table.column(place).dictionary_encode())
    return table


class _Batches:
    """The batches of an Arrow file; it is mapped anew for every table: what was read before takes no memory."""

    def __init__(self, file: Path, columns: list[str] | None, held: bool) -> None:
        self._file = file
        self._columns = columns
        self._held = held
        import pyarrow as pa

        reader = pa.ipc.open_file(pa.memory_map(str(file)), options=pa.ipc.IpcReadOptions(included_fields=[0]))
        self.sizes = [reader.get_batch(k).num_rows for k in range(reader.num_record_batches)]

    def read(self, numbers: list[int]) -> Any:
        table = table_of(self._file, self._columns, numbers)
        if not self._held:  # codes must be within their words, and buffers as long as they say
            table.validate(full=True)
        return table

    def divided(self, number: int, rows: int) -> Iterator[Any]:
        table = self.read([number])
        for first in range(0, len(table), rows):
            yield table.slice(first, rows)


def _groups_of(sizes: list[int], first: int, n: int) -> list[int]:
    """The groups that hold the rows."""
    ends = list(itertools.accumulate(sizes))
    return [k for k, end in enumerate(ends) if end > first and end - sizes[k] < first + n]


def _runs(sizes: list[int], rows: int) -> Iterator[list[int]]:
    """Groups one after another that hold at most ``rows`` rows together, at least one each time."""
    run: list[int] = []
    held = 0
    for number, size in enumerate(sizes):
        if run and held + size > rows:
            yield run
            run = []
            held = 0
        run.append(number)
        held += size
    if run:
        yield run


@contextlib.contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Say in a line that a file cannot be read."""
    import pyarrow as pa

    try:
        yield
    except (UserError, MemoryError):
        raise
    except (OSError, ValueError, KeyError, TypeError, IndexError, OverflowError, pa.ArrowException) as error:
        refuse_want_of_memory(error, str(file))
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        if file.suffix.lower() in ARROW:
            kind = "Arrow"
        else:
            kind = "Parquet"
        message = f"{file} is not a readable {kind} file: {reason}; restore it, or name it as what it is"
        raise not_written(error, message) from None
