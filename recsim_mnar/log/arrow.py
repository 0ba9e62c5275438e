"""Columns of a log as tables of pyarrow's, and what their metadata say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.log.files import ARROW

META_KEY = b"recsim_mnar"
"""In the metadata of a file: how its log was made."""


def metadata_of(provenance: Mapping[str, Any]) -> dict[bytes, bytes]:
    """The metadata of a file's schema that say how its log was made."""
    meta = json.dumps({"schema_version": schema.SCHEMA_VERSION, **provenance}, sort_keys=True)
    return {META_KEY: meta.encode()}


def arrow_of(columns: Mapping[str, NDArray[Any]], metadata: Mapping[bytes, bytes]) -> Any:
    """A pyarrow Table of columns as a Log holds them: the schema's types, and nulls.

    Under a null stands what stands for it in memory, and no number is copied.
    """
    import pyarrow as pa

    arrays = []
    for name, values in columns.items():
        column = schema.BY_NAME.get(name) or schema.OPTIONAL.get(name)
        if name == "event":
            array = pa.DictionaryArray.from_arrays(pa.array(values), pa.array(schema.EVENTS))
        elif column is not None and column.null is not None:
            null = np.isnan(values) if column.dtype.kind == "f" else values == column.null
            array = pa.array(values, mask=null)
        else:
            array = pa.array(values)
        arrays.append(array)
    return pa.table(arrays, names=list(columns)).replace_schema_metadata(dict(metadata))


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


def floats_of(values: Any, rows: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """A column of float64, null as NaN, at these ascending rows or whole; values are read where they lie."""
    if rows is None:
        found: NDArray[np.float64] = values.to_numpy()
        return found
    from recsim_mnar.log import _taking_kernel

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


def event_codes(values: Any, source: str, first_row: int = 1) -> NDArray[Any]:
    """Codes of events from their names; messages number rows from ``first_row``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pa.array(schema.EVENTS)
    named = pa.types.is_dictionary(values.type) and pa.types.is_string(values.type.value_type)
    if named and not values.null_count:  # a look at each name instead of at each row
        codes = []
        for chunk in values.chunks:
            known = pc.index_in(chunk.dictionary.cast(pa.string()), value_set=names)
            if known.null_count:
                break
            codes.append(np.asarray(known, np.int8)[np.asarray(chunk.indices)])
        else:
            return np.concatenate([np.zeros(0, np.int8), *codes])
    try:
        text = values.cast(pa.string())
    except pa.ArrowException:
        raise UserError(f"{source}: column 'event' ({values.type}) must hold organic or bandit") from None
    found = pc.index_in(text, value_set=names)
    if found.null_count:
        row = int(np.flatnonzero(found.is_null().to_numpy())[0])
        raise UserError(f"{source}: row {row + first_row}: event must be organic or bandit, got {text[row].as_py()!r}")
    codes_of_all: NDArray[Any] = found.to_numpy()
    return codes_of_all


def is_text(kind: Any) -> bool:
    """Whether a pyarrow type is text."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
