"""Find the files of a log, and read columns of Parquet and Arrow files with pyarrow."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
"""Endings that a compressed text table has after that of the text: ``.csv.gz``."""
PACKED = {"compression": "zstd", "compression_level": 1, "write_page_checksum": True}
"""Options of pyarrow's Parquet writer; the checksums of pages show damage when a file is read."""
IN_MEMORY = "the table in memory"
"""Name of a table that is passed in place of a path, in messages and answers."""


def part_path(folder: Path, index: int, ending: str = PARQUET[0]) -> Path:
    """Return the path of part ``index`` of a log folder."""
    return folder / f"part-{index:05d}{ending}"


def write_table(table: Any, path: Path) -> None:
    """Write a pyarrow Table as Parquet with page checksums, under a temporary name first."""
    import pyarrow.parquet as pq

    with replacing(path) as temporary:
        pq.write_table(table, temporary, **PACKED)


@contextlib.contextmanager
def called(copy: Path, name: str) -> Iterator[None]:
    """Replace the path of a temporary copy by the name of its original in error messages.

    Raises:
        UserError: an error about the copy, with the other name.
    """
    try:
        yield
    except UserError as error:
        raise type(error)(str(error).replace(str(copy), name), code=error.code) from error


def is_in_memory(table: Any) -> bool:
    """Return whether a table is an object of Arrow's stream interface rather than a path."""
    return hasattr(table, "__arrow_c_stream__")


@contextlib.contextmanager
def as_file(table: Any) -> Iterator[Path]:
    """Yield the path of a table; one in memory is written to a temporary Arrow file.

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
    """Return the Arrow type to write: no dictionary, of which each batch may have another, and no string view."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _written_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return kind


def _cast(values: Any, kind: Any) -> Any:
    """Cast a pyarrow array to a type; a dictionary array becomes an array of its values."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        return values.dictionary.cast(kind).take(values.indices)
    return values.cast(kind)


def kind_of(path: Path) -> str:
    """Return a file's ending in lower case, ``.csv`` for ``log.csv.gz``; "" without an ending."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if len(suffixes) > 1 and suffixes[-1] in COMPRESSED and suffixes[-2] in TEXT:
        return suffixes[-2]
    return path.suffix.lower()


def is_text_file(path: Path) -> bool:
    """Return whether a file's ending is that of a text table."""
    return kind_of(path) in TEXT


def log_folder(path: Path) -> Path:
    """Return the folder ``log`` of a run's folder; any other path as it is."""
    folder = path / "log"
    if folder.is_dir():
        return folder
    return path


def is_table(path: Path) -> bool:
    """Return whether a file's ending is that of a table."""
    return kind_of(path) in (*PARQUET, *ARROW, *TEXT)


def part_files(path: Path) -> list[Path]:
    """List the files of a log by name: those of a folder, or the file itself.

    A folder holds them directly, in its folder ``log`` (as ``simulate`` and ``compare`` write them) or in partitions
    ``column=value``, as Hive, Spark and pyarrow write them. Files whose names begin with a dot, an underscore or
    ~$ are skipped. :class:`recsim_mnar.tables.parts.Parts` also verifies checksums.

    Raises:
        UserError: nothing there, nothing in it, tables of two formats, or a file of another kind.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist: give a Parquet or CSV file, or a folder of parts", code="no_such_file")
    if not path.is_dir():
        _check_file(path)
        return [path]
    folder = log_folder(path)
    files = listed(folder)
    if not files:
        partitions = [entry for entry in folder.iterdir() if entry.is_dir() and "=" in entry.name]
        for partition in sorted(partitions):
            if partition.name[0] not in "._":
                files += part_files(partition)
    if not files:
        raise UserError(f"{folder} holds no Parquet or CSV parts")
    for file in files:
        if _format_of(file) != _format_of(files[0]):
            raise UserError(
                f"{folder} holds {files[0].name} and {file.name}: the parts of a log have one format. Name one of "
                "them, or move the others away"
            )
    return files


def _check_file(path: Path) -> None:
    """Raise UserError unless a path is a regular, non-empty file with the ending of a table."""
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


def partition_columns(folder: Path, file: Path) -> list[str]:
    """List the columns that a partitioned table keeps in the names of folders between ``folder`` and ``file``."""
    if not file.is_relative_to(folder):
        return []
    return [part.partition("=")[0] for part in file.relative_to(folder).parts[:-1] if "=" in part]


def listed(folder: Path) -> list[Path]:
    """List the tables in a folder by name, without hidden ones.

    Raises:
        UserError: the folder cannot be read.
    """
    try:
        # Office programs lock a file that is open by one whose name begins with "~$".
        return sorted(path for path in folder.iterdir() if path.name[0] not in "._~" and is_table(path))
    except OSError as error:
        raise not_written(error, f"{folder} cannot be read: {error.strerror}") from None


def _format_of(file: Path) -> int:
    """Return a number for the format that a file's ending states."""
    return [kind_of(file) in endings for endings in (PARQUET, ARROW, TEXT)].index(True)


def schema_of(path: Path) -> Any:
    """Read the schema of a Parquet or Arrow file with its metadata.

    Raises:
        OSError: the file does not exist.
        pyarrow.ArrowException: the file is of another kind, or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix.lower() not in ARROW:
        return pq.read_schema(path)
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).schema


def is_text(kind: Any) -> bool:
    """Return whether a pyarrow type is text."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def objects_of(values: Any) -> list[Any]:
    """Convert a column to Python objects; equal texts of a dictionary share one object."""
    result: list[Any] = []
    for chunk in values.chunks:
        if hasattr(chunk, "dictionary"):
            words = [*chunk.dictionary.to_pylist(), None]
            result += [words[code] for code in chunk.indices.fill_null(-1).to_pylist()]
        else:
            result += chunk.to_pylist()
    return result


def schema_in(path: Path) -> Any:
    """Read the schema of a Parquet or Arrow file.

    Raises:
        UserError: the file cannot be read.
    """
    with _readable(path):
        return schema_of(path)


def read_table(file: Path, columns: list[str] | None = None, *, verified: bool = False) -> Any:
    """Read a Parquet or Arrow file as a pyarrow Table; the arguments are those of :func:`read_blocks`.

    Raises:
        UserError: the file cannot be read.
    """
    import pyarrow as pa

    return pa.concat_tables(read_blocks(file, 1 << 62, columns, verified=verified))


def read_blocks(file: Path, rows: int, columns: list[str] | None = None, *, verified: bool = False) -> Iterator[Any]:
    """Yield the rows of a Parquet or Arrow file as pyarrow Tables with at most ``rows`` rows each.

    Row groups are kept whole if they are not larger. A file without rows yields one empty table, for its schema.

    Args:
        file: path of the file.
        rows: largest number of rows of a table.
        columns: names of the columns to read, all of them if None.
        verified: whether its checksum was compared with a receipt. If not, the checksums of Parquet pages are
            compared, and the buffers of an Arrow file, which has none, are checked for consistency.

    Raises:
        UserError: the file cannot be read.
    """
    read = _batches if file.suffix.lower() in ARROW else _row_groups
    with _readable(file):
        pending: list[Any] = []
        n_rows = 0
        for table in read(file, rows, columns, verified):
            # Tables without columns, which have nothing but a number of rows, cannot be joined.
            if pending and (n_rows + len(table) > rows or not table.num_columns):
                yield _joined(pending)
                pending = []
                n_rows = 0
            pending.append(table)
            n_rows += len(table)
        if pending:
            yield _joined(pending)
        else:
            empty = schema_of(file).empty_table()
            yield _with_dictionaries(empty if columns is None else empty.select(columns))


def _joined(tables: list[Any]) -> Any:
    """Join tables; a single one is returned as it is."""
    import pyarrow as pa

    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables)


def rows_in(file: Path, ending: str = "") -> int:
    """Count the rows of a Parquet or Arrow file from its footer.

    Args:
        file: path of the file.
        ending: final ending of a file that still has a temporary name.

    Raises:
        UserError: the file cannot be read.
    """
    import pyarrow.parquet as pq

    with _readable(file):
        if (ending or file.suffix.lower()) in ARROW:
            reader = _opened(file, [0])  # one column is enough to count rows
            return sum(reader.get_batch(k).num_rows for k in range(reader.num_record_batches))
        return int(pq.read_metadata(file).num_rows)


def _row_groups(file: Path, rows: int, columns: list[str] | None, verified: bool) -> Iterator[Any]:
    """Yield the row groups of a Parquet file in tables of at most ``rows`` rows, texts as dictionaries.

    So a repeated text is in memory once.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(file)
    texts = _dictionary_columns(metadata)
    with pq.ParquetFile(
        file, page_checksum_verification=not verified, read_dictionary=texts, metadata=metadata
    ) as opened:
        for number in range(metadata.num_row_groups):
            if metadata.row_group(number).num_rows <= rows:
                yield _with_dictionaries(opened.read_row_group(number, columns=columns))
                continue
            for batch in opened.iter_batches(rows, row_groups=[number], columns=columns):
                yield _with_dictionaries(pa.Table.from_batches([batch]))


def _batches(file: Path, rows: int, columns: list[str] | None, verified: bool) -> Iterator[Any]:
    """Yield the record batches of an Arrow file in tables of at most ``rows`` rows.

    The file is mapped anew for each batch so that earlier ones can be freed.

    Raises:
        KeyError: no column of a name, or several.
    """
    import pyarrow as pa

    reader = _opened(file)
    places = None
    if columns:
        places = [reader.schema.get_field_index(name) for name in columns]
        if -1 in places:
            raise KeyError(f"no one column {columns[places.index(-1)]!r}")
    for number in range(reader.num_record_batches):
        batch = _opened(file, places).get_batch(number)
        table = pa.Table.from_batches([batch])
        if columns is not None:
            table = table.select(columns)
        if not verified:  # dictionary codes within their words, buffers as long as stated
            table.validate(full=True)
        for first in range(0, len(table), rows):
            yield table.slice(first, rows)


def _opened(file: Path, places: list[int] | None = None) -> Any:
    """Map an Arrow file to read the columns at these places, all of them if None."""
    import pyarrow as pa

    return pa.ipc.open_file(pa.memory_map(str(file)), options=pa.ipc.IpcReadOptions(included_fields=places))


def _dictionary_columns(metadata: Any) -> list[str]:
    """List the text columns of a Parquet file that can be read as dictionaries: those without delta encoding."""
    texts = set[str]()
    deltas = set[str]()
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(place)
            if chunk.physical_type == "BYTE_ARRAY":
                texts.add(chunk.path_in_schema)
                if any(encoding.startswith("DELTA") for encoding in chunk.encodings):
                    deltas.add(chunk.path_in_schema)
    return sorted(texts - deltas)


def _with_dictionaries(table: Any) -> Any:
    """Encode every text column of a table as a dictionary."""
    for place, name in enumerate(table.column_names):
        values = table.column(place)
        if is_text(values.type):
            table = table.set_column(place, name, values.dictionary_encode())
    return table


@contextlib.contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Raise UserError, in one line, for whatever pyarrow raises about a file."""
    import pyarrow as pa

    try:
        yield
    except (UserError, MemoryError):
        raise
    except (OSError, ValueError, KeyError, TypeError, IndexError, OverflowError, pa.ArrowException) as error:
        refuse_want_of_memory(error, str(file))
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        kind = "Arrow" if file.suffix.lower() in ARROW else "Parquet"
        message = f"{file} is not a readable {kind} file: {reason}; restore it, or name it as what it is"
        raise not_written(error, message) from None
