"""Files of a log: Parquet, Arrow and CSV, written by pyarrow, piece by piece where all rows are too many at once."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.arrow import arrow_of, metadata_of
from recsim_mnar.runs.files import replacing
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.tables.files import ARROW, PACKED, PARQUET, part_path
from recsim_mnar.tables.parts import mark_of_part

FORMATS = {"parquet": PARQUET[0], "arrow": ARROW[0]}
"""Formats of parts, and the endings of their files."""
GROUP_ROWS = 1 << 17
"""Most rows of a row group or of a batch, some 1,024 users of the sessions world."""
_ENCODINGS = {
    "user": "PLAIN",
    "step": "PLAIN",
    "time": "BYTE_STREAM_SPLIT",
    "item": "DELTA_BINARY_PACKED",
    "action": "DELTA_BINARY_PACKED",
}
"""Of the columns of a Parquet file that have no dictionary: as measured, the smaller or the sooner written."""
_DICTIONARY_BYTES = 1 << 15
"""Of a dictionary at most; a column that outgrows it is written plainly from there on."""

Columns = Mapping[str, NDArray[Any]]


def check_format(form: str) -> str:
    """Return the format itself.

    Raises:
        UserError: there is none of that name.
    """
    if form not in FORMATS:
        raise UserError(f"format {form!r}: name one of {', '.join(FORMATS)}")
    return form


def write_part(
    path: Path, pieces: Sequence[Columns], provenance: Mapping[str, Any], more: Mapping[bytes, bytes] | None = None
) -> int:
    """Write one part of a log, under a temporary name first; its ending says the format. Returns the number of rows.

    Args:
        path: of the part.
        pieces: columns as a Log holds them; each piece begins a row group of its own.
        provenance: of the log, JSON types only.
        more: further metadata of the file.
    """
    form = "arrow" if path.suffix in ARROW else "parquet"
    _write(path, pieces, {**metadata_of(provenance), **(more or {})}, form)
    return sum(len(each["user"]) for each in pieces)


def write_stream(path: Path, blocks: Iterable[Columns], provenance: Mapping[str, Any], form: str) -> None:
    """Write one file of a log whose rows come in blocks, under a temporary name first.

    Its bytes do not depend on how the rows are divided into blocks: row groups and batches have :data:`GROUP_ROWS`.

    Args:
        path: of the file.
        blocks: columns as a Log holds them, at least one block.
        provenance: of the log, JSON types only.
        form: ``parquet``, ``arrow`` or ``csv`` (which has no place for the provenance).
    """
    _write(path, _in_runs(blocks, GROUP_ROWS), metadata_of(provenance), form)


def record_part(
    into: RunFolder, number: int, pieces: Sequence[Columns], provenance: Mapping[str, Any], form: str = "parquet"
) -> None:
    """Write one part of a log into a folder that is being filled, and take it down in a receipt."""
    users = [each["user"] for each in pieces if len(each["user"])]
    span = (int(users[0][0]), int(users[-1][-1])) if users else None
    name = part_path(into.path, number, FORMATS[form]).name
    with into.recording(name, rows=sum(len(user) for user in users), users=span) as path:
        write_part(path, pieces, provenance, mark_of_part(number, into.index.made))


def _in_runs(blocks: Iterable[Columns], rows: int) -> Iterator[Columns]:
    """The same rows, so many at a time but for the last."""
    kept: list[Columns] = []
    held, any_full = 0, False
    for block in blocks:
        kept.append(block)
        held += len(block["user"])
        if held < rows:
            continue
        any_full = True
        together = {name: np.concatenate([each[name] for each in kept]) for name in kept[0]}
        full = held // rows * rows
        for first in range(0, full, rows):
            yield {name: values[first : first + rows] for name, values in together.items()}
        kept, held = [{name: values[full:].copy() for name, values in together.items()}], held - full
    if held or not any_full:  # of no rows a file with their columns
        yield {name: np.concatenate([each[name] for each in kept]) for name in kept[0]}


def _write(path: Path, pieces: Iterable[Columns], metadata: Mapping[bytes, bytes], form: str) -> None:
    """Write pieces one after another by pyarrow's writer of a format."""
    as_table = _texts_of if form == "csv" else arrow_of
    tables = (as_table(each, metadata) for each in pieces)
    first = next(tables)
    with replacing(path) as temporary, contextlib.ExitStack() as stack:
        writer = _writer(temporary, first.schema, form, stack)
        for table in itertools.chain([first], tables):
            writer.write_table(table, GROUP_ROWS)


def _texts_of(columns: Columns, metadata: Mapping[bytes, bytes]) -> Any:
    """Columns as a table with the names of events as text, which CSV holds alone."""
    table = arrow_of(columns, metadata)
    return table.set_column(table.schema.get_field_index("event"), "event", table.column("event").cast("string"))


def _writer(temporary: Path, schema: Any, form: str, stack: contextlib.ExitStack) -> Any:
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    if form == "arrow":
        file = stack.enter_context(pa.OSFile(str(temporary), "wb"))
        return stack.enter_context(pa.ipc.new_file(file, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")))
    if form == "csv":
        return stack.enter_context(pacsv.CSVWriter(temporary, schema))
    options = {
        **PACKED,
        "column_encoding": {name: encoding for name, encoding in _ENCODINGS.items() if name in schema.names},
        "use_dictionary": [name for name in schema.names if name not in _ENCODINGS],
        "dictionary_pagesize_limit": _DICTIONARY_BYTES,
        "write_statistics": False,
    }
    return stack.enter_context(pq.ParquetWriter(temporary, schema, **options))
