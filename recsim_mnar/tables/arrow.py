"""Columns of Parquet and Arrow files as pyarrow holds them, and as NumPy arrays without a copy."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.tables.arrow_sizes import sizes_of
from recsim_mnar.tables.files import ARROW, refuse_unpacked


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
    found = [reader.get_batch(k) for k in (range(reader.num_record_batches) if numbers is None else numbers)]
    table = pa.Table.from_batches(found) if found else reader.schema.empty_table()
    return table if names is None else table.select(list(names))


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


def floats_of(values: Any, rows: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """A column of float64, null as NaN, at these ascending rows or whole; no value is copied twice."""
    if rows is None:
        found: NDArray[np.float64] = values.to_numpy()
        return found
    from recsim_mnar.tables import _taking_kernel

    out = np.empty(len(rows))
    for chunk, shift, these in _by_chunk(values, rows):
        bits, data = chunk.buffers()
        present = np.frombuffer(bits, np.uint8) if chunk.null_count else np.zeros(0, np.uint8)
        given = np.frombuffer(data, np.float64)
        _taking_kernel.take(given, present, chunk.offset + shift, rows[these], out[these])
    return out


def integers_of(values: Any, rows: NDArray[np.int64]) -> NDArray[Any]:
    """A column of integers without nulls at these ascending rows."""
    pieces = [np.asarray(chunk)[rows[these] + shift] for chunk, shift, these in _by_chunk(values, rows)]
    return np.concatenate([np.zeros(0, values.type.to_pandas_dtype()), *pieces])


def _by_chunk(values: Any, rows: NDArray[np.int64]) -> Iterator[tuple[Any, int, slice]]:
    """Each chunk with some of the rows, what is added to a row to find it there, and which rows these are."""
    first = done = 0
    for chunk in values.chunks:
        end = first + len(chunk)
        until = done + int(np.searchsorted(rows[done:], end))
        if until > done:
            yield chunk, -first, slice(done, until)
        first, done = end, until


def is_text(kind: Any) -> bool:
    """Whether a pyarrow type is text."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def names_in(path: Path) -> list[str]:
    """Names of the columns of a Parquet file or an Arrow file.

    Raises:
        UserError: it cannot be read.
    """
    with _readable(path):
        return list(schema_of(path).names)


def metadata_in(path: Path) -> Any:
    """The metadata of a Parquet file or an Arrow file.

    Raises:
        UserError: it cannot be read.
    """
    with _readable(path):
        return schema_of(path).metadata


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
    import pyarrow.parquet as pq

    refuse_unpacked(file, unpacked_bytes(file, columns))
    with _readable(file):
        if file.suffix.lower() in ARROW:
            return _sound(table_of(file, columns), held)
        return pq.read_table(file, columns=columns, partitioning=None, page_checksum_verification=not held)


def read_blocks(file: Path, rows: int, columns: list[str] | None = None, *, held: bool = False) -> Iterator[Any]:
    """As :func:`read_table`, in tables of some ``rows`` rows at most, one after another.

    They are whole row groups or batches where these are small enough.
    """
    refuse_unpacked(file, unpacked_bytes(file, columns), in_blocks=True)
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
    """How many rows :func:`read_rows` decodes.

    Raises:
        UserError: it cannot be read.
    """
    with _readable(file), _opened(file) as groups:
        return sum(groups.sizes[k] for k in _groups_of(groups.sizes, first, n))


def rows_in(file: Path) -> int:
    """How many rows a Parquet or Arrow file holds, as it says.

    Raises:
        UserError: it cannot be read.
    """
    with _readable(file), _opened(file) as groups:
        return sum(groups.sizes)


def unpacked_bytes(file: Path, columns: list[str] | None = None) -> int:
    """How many bytes columns of a Parquet or Arrow file take in memory, as it says; eight for each value at least.

    Raises:
        UserError: it cannot be read.
    """
    with _readable(file), _opened(file, columns) as groups:
        return groups.unpacked()


@contextlib.contextmanager
def _opened(file: Path, columns: list[str] | None = None, held: bool = False) -> Iterator[_RowGroups | _Batches]:
    if file.suffix.lower() in ARROW:
        yield _Batches(file, columns, held)
        return
    import pyarrow.parquet as pq

    with pq.ParquetFile(file, page_checksum_verification=not held) as opened:
        yield _RowGroups(opened, columns)


class _RowGroups:
    """The row groups of a Parquet file: how many rows each has, and tables of them."""

    def __init__(self, file: Any, columns: list[str] | None) -> None:
        self._file, self._columns = file, columns
        self.sizes = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]

    def unpacked(self) -> int:
        """Bytes of all of it in memory, as its metadata say."""
        meta, wanted = self._file.metadata, self._columns
        groups = [meta.row_group(k) for k in range(meta.num_row_groups)]
        chunks = [group.column(k) for group in groups for k in range(meta.num_columns)]
        chunks = [each for each in chunks if wanted is None or each.path_in_schema.split(".")[0] in wanted]
        return sum(max(each.total_uncompressed_size, 8 * each.num_values) for each in chunks)

    def read(self, numbers: list[int]) -> Any:
        return self._file.read_row_groups(numbers, columns=self._columns)

    def divided(self, number: int, rows: int) -> Iterator[Any]:
        import pyarrow as pa

        for batch in self._file.iter_batches(rows, row_groups=[number], columns=self._columns):
            yield pa.Table.from_batches([batch])


class _Batches:
    """The batches of an Arrow file; it is mapped anew for every table: what was read before takes no memory."""

    def __init__(self, file: Path, columns: list[str] | None, held: bool) -> None:
        self._file, self._columns, self._held = file, columns, held
        import pyarrow as pa

        with pa.memory_map(str(file)) as mapped:
            self.sizes, self._unpacked = sizes_of(memoryview(mapped.read_buffer()))

    def unpacked(self) -> int:
        """Bytes of all of it in memory, as its batches say."""
        return max(self._unpacked, 8 * sum(self.sizes) * len(self._columns or schema_of(self._file).names))

    def read(self, numbers: list[int]) -> Any:
        return _sound(table_of(self._file, self._columns, numbers), self._held)

    def divided(self, number: int, rows: int) -> Iterator[Any]:
        table = self.read([number])
        for first in range(0, len(table), rows):
            yield table.slice(first, rows)


def _sound(table: Any, held: bool) -> Any:
    """The table of an Arrow file, its codes within their words and its buffers as long as they say."""
    if not held:
        table.validate(full=True)
    return table


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
            run, held = [], 0
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
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError, IndexError, OverflowError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        kind = "Arrow" if file.suffix.lower() in ARROW else "Parquet"
        raise UserError(
            f"{file} is not a readable {kind} file: {reason}; restore it, or name it as what it is"
        ) from None
