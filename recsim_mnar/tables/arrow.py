"""Columns of Parquet and Arrow files as pyarrow holds them, and as NumPy arrays without a copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.tables.files import ARROW


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
    """A column of float64, null as NaN, at these ascending rows or whole; values are read where they lie."""
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
    """Each chunk in which some of the rows lie, what is added to a row to find it there, and which rows these are."""
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
