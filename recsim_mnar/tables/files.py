"""The files of a log by name: parts, tables, what makes a folder a log."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError, not_written
from recsim_mnar.runs.files import path_of, replacing

PARQUET = (".parquet", ".pq")
"""Endings of Parquet files."""
ARROW = (".arrow", ".feather")
"""Endings of Arrow's own files (IPC)."""
TEXT = (".csv", ".tsv", ".inter", ".txt", ".dat")
"""Endings of text tables."""
COMPRESSED = (".gz", ".bz2", ".zst")
"""Endings that follow those of compressed text tables."""
LARGEST = 1 << 28
"""Bytes that a table of any size may unpack to."""
FACTOR = 200
"""How many times its own size a larger one may; logs of this package have shrunk to a seventieth at most."""
_IN_BLOCKS = 5
"""Times more where no more than a block of it is held."""
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
    return pa.large_string() if pa.types.is_string_view(kind) else kind


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
        return suffixes[-2] if suffixes[-2] in TEXT else suffixes[-1]
    return (suffixes or [""])[-1]


def is_text(path: Path) -> bool:
    """Whether a file's name says that it is a text table."""
    return kind_of(path) in TEXT


def is_table(path: Path) -> bool:
    """Whether a file's name ends as those of tables do."""
    return kind_of(path) in (*PARQUET, *ARROW, *TEXT)


def most_unpacked(size: int) -> int:
    """Bytes that may be held at once of tables whose files have ``size`` bytes together."""
    return max(LARGEST, FACTOR * size)


def refuse_unpacked(path: Path, unpacked: int, *, in_blocks: bool = False) -> None:
    """Raise UserError where a table would take ``unpacked`` bytes, far more than its file does."""
    size = path.stat().st_size
    if unpacked > most_unpacked(size * (_IN_BLOCKS if in_blocks else 1)):
        raise UserError(
            f"{path} would unpack from {size:,} to {unpacked:,} bytes or more: if it is yours, write it without "
            "compression"
        )


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
    folder = path / "log" if (path / "log").is_dir() else path
    found = listed(folder) or [file for part in partitions(folder) for file in part_files(part)]
    if not found:
        raise UserError(f"{folder} holds no Parquet or CSV parts")
    other = next((file for file in found if _format_of(file) != _format_of(found[0])), None)
    if other is not None:
        raise UserError(
            f"{folder} holds {found[0].name} and {other.name}: the parts of a log have one format. Name one of them, "
            "or move the others away"
        )
    return found


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
    """Which of the formats a table's name says."""
    return next(number for number, endings in enumerate((PARQUET, ARROW, TEXT)) if kind_of(file) in endings)
