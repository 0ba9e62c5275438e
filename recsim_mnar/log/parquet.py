"""Parquet of a log's columns: encodings chosen by column, made by our own kernels, read by every reader of Parquet.

A general writer spends most of its time on what a log's columns make easy. Users, steps, items and actions are whole
numbers that differ little from row to row; clocks, propensities and rewards often take few values; a null is a marked
value. So rows become the bytes of a row group in one pass a column, by the worker that made them, and a file is such
groups one after another. Rows of other types than numbers are left to pyarrow (:func:`encodable`).
"""

from __future__ import annotations

import base64
import threading
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import __version__
from recsim_mnar.log import schema
from recsim_mnar.log.thrift import BINARY, BOOL, I16, I32, I64, LIST, STRUCT, struct

GROUP_ROWS = 1 << 17
"""Most rows of a group, some 1,024 users of the sessions world."""

MOST_DISTINCT = 4096
"""Numbers of a column that are written once each and referred to; a column with more of them is written as it is."""

_SAMPLE = 4096
_MAGIC = b"PAR1"
_TYPES = {"int32": 1, "int64": 2, "float64": 5, "text": 6}
_PLAIN, _RLE, _DELTA_BINARY_PACKED, _RLE_DICTIONARY = 0, 3, 5, 8
_UNCOMPRESSED, _LZ4_RAW = 0, 7
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_OPTIONAL = 1
_UTF8 = 0


@dataclass(frozen=True)
class Chunk:
    """One column of a row group, encoded.

    Attributes:
        pages: its bytes, headers included.
        dictionary_bytes: those of its first page where that is a dictionary, else 0.
        unpacked_bytes: of the pages before compression, headers included.
        encodings: of Parquet's numbers.
        codec: of Parquet's numbers.
    """

    pages: bytes
    dictionary_bytes: int
    unpacked_bytes: int
    encodings: tuple[int, ...]
    codec: int


@dataclass(frozen=True)
class RowGroup:
    """Consecutive rows of a log as they lie in a file: a hundredth to a tenth of what they take in memory.

    Attributes:
        n_rows: how many.
        types: of the columns, by name in their order: int32, int64, float64, text.
        chunks: of the columns, in the same order.
    """

    n_rows: int
    types: tuple[tuple[str, str], ...]
    chunks: tuple[Chunk, ...]


def encodable(columns: Mapping[str, NDArray[Any]]) -> bool:
    """Whether all columns are of types that are encoded here."""
    return all(_type_of(name, values) in _TYPES for name, values in columns.items())


def _type_of(name: str, values: NDArray[Any]) -> str:
    return "text" if name == "event" else str(values.dtype)


def encoded(columns: Mapping[str, NDArray[Any]]) -> list[RowGroup]:
    """Rows of a log, its columns as :class:`recsim_mnar.log.table.Log` holds them, as groups of equal size or less."""
    n = len(next(iter(columns.values())))
    return [
        _group({name: values[first : first + GROUP_ROWS] for name, values in columns.items()})
        for first in range(0, n, GROUP_ROWS)
    ]


def write_groups(
    path: Path, groups: Iterable[RowGroup], types: Mapping[str, str], metadata: Mapping[bytes, bytes]
) -> int:
    """Write row groups as one Parquet file, as they come; returns the number of rows.

    Args:
        path: of the file, overwritten.
        groups: in the order of their rows.
        types: of the columns by name, as :func:`types_of` gives them.
        metadata: of the file, the provenance among them.
    """
    described: list[bytes] = []
    n_rows = 0
    with path.open("wb") as file:
        file.write(_MAGIC)
        for group in groups:
            described.append(_write_group(file, group, len(described)))
            n_rows += group.n_rows
        footer = _footer(types, described, n_rows, metadata)
        file.write(footer + len(footer).to_bytes(4, "little") + _MAGIC)
    return n_rows


def types_of(columns: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """Types of the columns of a file, by name."""
    return {name: _type_of(name, values) for name, values in columns.items()}


# ------------------------------------------------------------------------------------------------- columns into pages


def _group(columns: Mapping[str, NDArray[Any]]) -> RowGroup:
    n = len(next(iter(columns.values())))
    scratch = _Scratch.mine()
    chunks = tuple(_chunk(name, values, scratch) for name, values in columns.items())
    return RowGroup(n, tuple(types_of(columns).items()), chunks)


@dataclass(frozen=True)
class _Scratch:
    """Memory that the columns of a group share, and one group after another of a thread: fresh memory is dear.

    Attributes:
        out: (some 9 n,) uint8, a page.
        dense: (n,) 8 bytes each, the values that are not null.
        indices: (n,) int32, of values in a dictionary.
        slots: (4 * MOST_DISTINCT,) int32, of the table that finds them.
        distinct: (MOST_DISTINCT,) uint64, the dictionary.
        deltas: (128,) int64.
    """

    out: NDArray[np.uint8]
    dense: NDArray[np.float64]
    indices: NDArray[np.int32]
    slots: NDArray[np.int32]
    distinct: NDArray[np.uint64]
    deltas: NDArray[np.int64]

    @classmethod
    def mine(cls) -> _Scratch:
        """The calling thread's."""
        found: _Scratch | None = getattr(_kept, "scratch", None)
        if found is None:
            n = GROUP_ROWS
            found = _kept.scratch = cls(
                # A delta takes at most its 64 bits, and a block of 128 of them 14 bytes more.
                np.empty(9 * n + 4096, np.uint8),
                np.empty(n),
                np.empty(n, np.int32),
                np.empty(4 * MOST_DISTINCT, np.int32),
                np.empty(MOST_DISTINCT, np.uint64),
                np.empty(128, np.int64),
            )
        return found


_kept = threading.local()


def _chunk(name: str, values: NDArray[Any], scratch: _Scratch) -> Chunk:
    """One column of a group: a page of which rows are null and what the others hold, perhaps after a dictionary."""
    from recsim_mnar.log import _encoding_kernel as kernel

    values = schema.read_only(np.ascontiguousarray(values))
    out = scratch.out
    dense, at = _put_levels(name, values, scratch)
    if name == "event":
        texts = b"".join(len(text).to_bytes(4, "little") + text.encode() for text in schema.EVENTS)
        return _pages(len(values), _put_indices(dense, len(schema.EVENTS), out, at), (len(schema.EVENTS), texts))
    if values.dtype.kind == "i":
        end = kernel.put_deltas(dense, values.dtype.itemsize == 4, scratch.deltas, out, at)
        return _pages(len(values), out[:end], None, _DELTA_BINARY_PACKED)
    scratch.slots.fill(-1)
    indices = scratch.indices[: len(dense)]
    found = kernel.find_distinct(dense.view(np.uint64), scratch.slots, scratch.distinct, indices)
    if found > 0:
        page = _put_indices(indices, found, out, at)
        return _pages(len(values), page, (found, scratch.distinct[:found].tobytes()))
    out[at : at + dense.nbytes] = dense.view(np.uint8)
    return _pages(len(values), out[: at + dense.nbytes], None, _PLAIN)


def _put_levels(name: str, values: NDArray[Any], scratch: _Scratch) -> tuple[NDArray[Any], int]:
    """Which rows hold a value, into ``scratch.out``; the values that are there, and the place in ``out`` behind it."""
    from recsim_mnar.log import _encoding_kernel as kernel

    out, n = scratch.out, len(values)
    column = schema.BY_NAME.get(name) or schema.OPTIONAL.get(name)
    dense, n_there, at = values, n, 0
    if column is not None and column.null is not None:
        room = scratch.dense.view(values.dtype)
        n_there, at = kernel.put_present(values, values.dtype.type(column.null), room, out, 4)
        dense = room[:n_there]
    if n_there in (0, n):
        at = kernel.put_run(n, 1 if n_there else 0, out, 4)
    out[:4] = np.frombuffer((at - 4).to_bytes(4, "little"), np.uint8)
    return schema.read_only(dense), at  # as values are: a kernel is compiled for each kind of array that it meets


def _put_indices(indices: NDArray[Any], n_distinct: int, out: NDArray[np.uint8], at: int) -> NDArray[np.uint8]:
    """Places in a dictionary of ``n_distinct`` values behind place ``at`` of ``out``; all that is written there."""
    from recsim_mnar.log import _encoding_kernel as kernel

    out[at] = width = max(1, (n_distinct - 1).bit_length())
    if n_distinct == 1:
        return out[: kernel.put_run(len(indices), 0, out, at + 1)]
    return out[: kernel.put_bits(indices, width, out, at + 1)]


def _pages(
    n: int, data: NDArray[np.uint8], dictionary: tuple[int, bytes] | None, encoding: int = _RLE_DICTIONARY
) -> Chunk:
    """The pages of a column chunk of ``n`` rows: a dictionary of so many values, where there is one, and the data."""
    codec = _LZ4_RAW if _repeats(data) else _UNCOMPRESSED
    found, unpacked = b"", 0
    if dictionary is not None:
        size, values = dictionary
        page = struct((1, I32, size), (2, I32, _PLAIN), (3, BOOL, False))
        found, unpacked = _page(_DICTIONARY_PAGE, values, codec, (7, page))
    header = struct((1, I32, n), (2, I32, encoding), (3, I32, _RLE), (4, I32, _RLE))
    pages, more = _page(_DATA_PAGE, data, codec, (5, header))
    encodings = (_RLE, encoding) if dictionary is None else (_PLAIN, _RLE, encoding)
    return Chunk(found + pages, len(found), unpacked + more, encodings, codec)


def _repeats(data: NDArray[np.uint8]) -> bool:
    """Whether compression pays: a page of encoded values does not shrink unless they follow a pattern."""
    import pyarrow as pa

    sample = data[_SAMPLE : 2 * _SAMPLE] if len(data) >= 2 * _SAMPLE else data
    return pa.compress(sample, "lz4_raw").size <= 0.9 * len(sample)


def _page(kind: int, data: Any, codec: int, header: tuple[int, bytes]) -> tuple[bytes, int]:
    """A page with its header and checksum, and how long it is without compression."""
    import pyarrow as pa

    packed = pa.compress(data, "lz4_raw", asbytes=True) if codec else bytes(data)
    head = struct(
        (1, I32, kind),
        (2, I32, len(data)),
        (3, I32, len(packed)),
        (4, I32, _signed(zlib.crc32(packed))),
        (header[0], STRUCT, header[1]),
    )
    return head + packed, len(head) + len(data)


def _signed(word: int) -> int:
    """32 bits as a signed number."""
    return word - (1 << 32) if word >> 31 else word


# --------------------------------------------------------------------------------------------------- pages into a file


def _write_group(file: BinaryIO, group: RowGroup, ordinal: int) -> bytes:
    """Write a row group; returns its entry in the footer."""
    begin = at = file.tell()
    described = []
    for (name, kind), chunk in zip(group.types, group.chunks, strict=True):
        file.write(chunk.pages)
        described.append(_described_chunk(name, kind, chunk, group.n_rows, at))
        at += len(chunk.pages)
    return struct(
        (1, LIST, (STRUCT, described)),
        (2, I64, sum(chunk.unpacked_bytes for chunk in group.chunks)),
        (3, I64, group.n_rows),
        (5, I64, begin),
        (6, I64, at - begin),
        (7, I16, ordinal if ordinal < 1 << 15 else None),
    )


def _described_chunk(name: str, kind: str, chunk: Chunk, n_rows: int, at: int) -> bytes:
    meta = struct(
        (1, I32, _TYPES[kind]),
        (2, LIST, (I32, chunk.encodings)),
        (3, LIST, (BINARY, [name.encode()])),
        (4, I32, chunk.codec),
        (5, I64, n_rows),
        (6, I64, chunk.unpacked_bytes),
        (7, I64, len(chunk.pages)),
        (9, I64, at + chunk.dictionary_bytes),
        (11, I64, at if chunk.dictionary_bytes else None),
    )
    return struct((2, I64, at), (3, STRUCT, meta))


def _footer(types: Mapping[str, str], groups: list[bytes], n_rows: int, metadata: Mapping[bytes, bytes]) -> bytes:
    elements = [struct((4, BINARY, b"schema"), (5, I32, len(types)))]
    for name, kind in types.items():
        text = kind == "text"
        elements.append(
            struct(
                (1, I32, _TYPES[kind]),
                (3, I32, _OPTIONAL),
                (4, BINARY, name.encode()),
                (6, I32, _UTF8 if text else None),
                (10, STRUCT, struct((1, STRUCT, struct())) if text else None),
            )
        )
    pairs = {**metadata, b"ARROW:schema": _arrow_schema(types, metadata)}
    return struct(
        (1, I32, 2),
        (2, LIST, (STRUCT, elements)),
        (3, I64, n_rows),
        (4, LIST, (STRUCT, groups)),
        (5, LIST, (STRUCT, [struct((1, BINARY, key), (2, BINARY, value)) for key, value in pairs.items()])),
        (6, BINARY, f"recsim-mnar version {__version__}".encode()),
    )


def _arrow_schema(types: Mapping[str, str], metadata: Mapping[bytes, bytes]) -> bytes:
    """What tells pyarrow that the events' names are few; where it stands, metadata are read from it."""
    import pyarrow as pa

    kinds = {"text": pa.dictionary(pa.int8(), pa.string())}
    kinds |= {kind: pa.from_numpy_dtype(np.dtype(kind)) for kind in _TYPES if kind != "text"}
    schema_of_arrow = pa.schema([(name, kinds[kind]) for name, kind in types.items()], metadata=dict(metadata))
    return base64.b64encode(schema_of_arrow.serialize().to_pybytes())
