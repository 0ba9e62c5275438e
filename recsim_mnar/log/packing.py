"""Rows of a log as they go into a file: packed by the worker that made them, written by the one that has the folder.

What is packed crosses between processes at a twentieth of what the columns would take, and the bytes of a part are
those of its packed rows in their order, whoever packed them.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log import parquet
from recsim_mnar.log.arrow import arrow_of, metadata_of
from recsim_mnar.log.files import ARROW, PARQUET, part_path, replacing
from recsim_mnar.log.filled_folder import FilledFolder
from recsim_mnar.log.parts import mark_of_part

FORMATS = {"parquet": PARQUET[0], "arrow": ARROW[0]}
"""Formats of parts, and the endings of their files."""
BATCH_ROWS = 1 << 20
"""Rows of a batch of a file that is written block by block, where pyarrow writes it."""


@dataclass(frozen=True)
class Packed:
    """Rows of a log, ready for a file.

    Attributes:
        n_rows: how many.
        groups: as they lie in a Parquet file, or None where ``columns`` are written.
        columns: of the rows; of none where there are groups (their names and types).
        users: the first and the last, None where there are no rows.
    """

    n_rows: int
    groups: tuple[parquet.RowGroup, ...] | None
    columns: Mapping[str, NDArray[Any]]
    users: tuple[int, int] | None


def packed(columns: Mapping[str, NDArray[Any]], form: str = "parquet") -> Packed:
    """Rows, their columns as a Log holds them, for a part of that format."""
    check_format(form)
    user = columns["user"]
    n_rows, users = len(user), (int(user[0]), int(user[-1])) if len(user) else None
    if form != "parquet" or not parquet.encodable(columns):
        return Packed(n_rows, None, columns, users)
    empty = {name: values[:0].copy() for name, values in columns.items()}
    return Packed(n_rows, tuple(parquet.encoded(columns)), empty, users)


def check_format(form: str) -> str:
    """The format itself.

    Raises:
        UserError: there is none of that name.
    """
    if form not in FORMATS:
        raise UserError(f"format {form!r}: name one of {', '.join(FORMATS)}")
    return form


def write_part(
    path: Path, rows: Sequence[Packed], provenance: Mapping[str, Any], more: Mapping[bytes, bytes] | None = None
) -> int:
    """Write one part of a log, under a temporary name first; its ending says the format. Returns the number of rows.

    Args:
        path: of the part.
        rows: what it holds, all packed for that format, in their order.
        provenance: of the log, JSON types only.
        more: metadata of the file beside it.
    """
    metadata = {**metadata_of(provenance), **(more or {})}
    with replacing(path) as temporary:
        if path.suffix in ARROW:
            _write_arrow(temporary, rows, metadata)
        elif all(each.groups is not None for each in rows):
            groups = (group for each in rows for group in each.groups or ())
            parquet.write_groups(temporary, groups, parquet.types_of(rows[0].columns), metadata)
        else:
            _write_any(temporary, rows, metadata)
    return sum(each.n_rows for each in rows)


def write_stream(
    path: Path, blocks: Iterable[Mapping[str, NDArray[Any]]], provenance: Mapping[str, Any], form: str
) -> None:
    """Write one file of a log whose rows come in blocks, under a temporary name first.

    Its bytes do not depend on how the rows are divided into blocks: a Parquet file has the groups of
    :data:`recsim_mnar.log.parquet.GROUP_ROWS` rows that it would have of all rows at once, an Arrow file batches of
    :data:`BATCH_ROWS`.

    Args:
        path: of the file.
        blocks: columns as a Log holds them, at least one block.
        provenance: of the log, JSON types only.
        form: ``parquet``, ``arrow`` or ``csv`` (which has no place for the provenance).
    """
    metadata = metadata_of(provenance)
    with replacing(path) as temporary:
        blocks = iter(blocks)
        first = next(blocks)
        blocks = itertools.chain([first], blocks)
        if form == "parquet" and parquet.encodable(first):
            groups = (group for rows in _in_runs(blocks, parquet.GROUP_ROWS) for group in parquet.encoded(rows))
            parquet.write_groups(temporary, groups, parquet.types_of(first), metadata)
        else:
            tables = (arrow_of(rows, metadata) for rows in _in_runs(blocks, BATCH_ROWS))
            _write_tables(temporary, tables, form)


def _in_runs(blocks: Iterable[Mapping[str, NDArray[Any]]], rows: int) -> Iterator[Mapping[str, NDArray[Any]]]:
    """The same rows, so many at a time but for the last."""
    kept: list[Mapping[str, NDArray[Any]]] = []
    held = 0
    for block in blocks:
        kept.append(block)
        held += len(block["user"])
        if held < rows:
            continue
        together = {name: np.concatenate([each[name] for each in kept]) for name in kept[0]}
        full = held // rows * rows
        for first in range(0, full, rows):
            yield {name: values[first : first + rows] for name, values in together.items()}
        kept, held = [{name: values[full:].copy() for name, values in together.items()}], held - full
    if held:
        yield {name: np.concatenate([each[name] for each in kept]) for name in kept[0]}


def _write_tables(path: Path, tables: Iterator[Any], form: str) -> None:
    """Tables of one schema, one after another, by pyarrow's writer of a format."""
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    if form == "csv":
        tables = (each.set_column(3, "event", each.column("event").cast(pa.string())) for each in tables)
    first = next(tables)
    with contextlib.ExitStack() as stack:
        if form == "parquet":
            options: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "write_page_checksum": True}
            writer: Any = stack.enter_context(pq.ParquetWriter(path, first.schema, **options))
        elif form == "arrow":
            file = stack.enter_context(pa.OSFile(str(path), "wb"))
            writer = stack.enter_context(pa.ipc.new_file(file, first.schema))
        else:
            writer = stack.enter_context(pacsv.CSVWriter(path, first.schema))
        for table in itertools.chain([first], tables):
            writer.write_table(table)


def record_part(
    into: FilledFolder, number: int, rows: Sequence[Packed], provenance: Mapping[str, Any], form: str = "parquet"
) -> None:
    """Write one part of a log into a folder that is being filled, and take it down in a receipt."""
    users = [each.users for each in rows if each.users is not None]
    span = (users[0][0], users[-1][1]) if users else None
    name = part_path(into.path, number, FORMATS[form]).name
    with into.recording(name, rows=sum(each.n_rows for each in rows), users=span) as path:
        write_part(path, rows, provenance, mark_of_part(number, into.index.made))


def _write_arrow(path: Path, rows: Sequence[Packed], metadata: Mapping[bytes, bytes]) -> None:
    """Columns as they lie in memory, batch by batch, to be mapped by who reads them."""
    import pyarrow as pa

    tables = [arrow_of(each.columns, metadata) for each in rows]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)


def _write_any(path: Path, rows: Sequence[Packed], metadata: Mapping[bytes, bytes]) -> None:
    """Columns of any type that pyarrow knows."""
    import pyarrow.parquet as pq

    columns = {name: np.concatenate([each.columns[name] for each in rows]) for name in rows[0].columns}
    table = arrow_of(columns, metadata)
    pq.write_table(table, path, compression="zstd", compression_level=1, write_page_checksum=True)
