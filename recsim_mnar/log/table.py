"""The Log: one flat table of organic and bandit events, with the provenance to reproduce it.

Its files are Parquet, Arrow and CSV, written by pyarrow, piece by piece where all rows are too many at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import of_type, refuse_first, table_by_name, text_of, whole_number
from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_begins, user_starts
from recsim_mnar.log.schema import read_only
from recsim_mnar.runs.files import path_of, replacing
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.runs.receipts import digest_of
from recsim_mnar.tables.files import (
    ARROW,
    PACKED,
    PARQUET,
    is_text_file,
    objects_of,
    part_path,
    read_table,
    rows_in,
    schema_in,
)
from recsim_mnar.tables.parts import Parts, mark_of_part
from recsim_mnar.tables.text import typed_table

ROWS_PER_PART = 4_000_000
"""Approximate number of rows per part of a folder that :meth:`Log.write` writes."""


_SHOWN = 5
"""Number of rows of a log that a notebook displays."""


class FixedColumns(dict[str, NDArray[Any]]):
    """Read-only dictionary of read-only arrays by name; :meth:`recsim_mnar.log.Log.with_column` makes another log."""

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        super().__init__({name: read_only(values) for name, values in columns.items()})

    def __getitem__(self, name: str) -> NDArray[Any]:
        return super().__getitem__(name).view()  # a caller may set shape and dtype even of a read-only array

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Raise TypeError: a log is read-only."""
        raise TypeError("a log is read-only: log.with_column(name, values) makes another")

    # Every method by which a dictionary changes.
    __setitem__ = __delitem__ = __ior__ = pop = popitem = clear = update = setdefault = _refuse

    def __reduce__(self) -> Any:
        # By default pickle fills a dictionary entry by entry, which is refused.
        return FixedColumns, (dict(self),)


Provenance = dict[str, Any]
"""Description of how a log was made, JSON types only; its keys differ by what made the log."""


@dataclass(frozen=True)
class Log:
    """Organic and bandit events, ordered by (user, step).

    A log and its arrays are read-only, because many learners are fitted on one: copy a column before changing it, and
    make another log with :meth:`with_column`.

    Attributes:
        columns: arrays of equal length by name: every column of :data:`recsim_mnar.log.schema.COLUMNS`, and any
            further columns, such as features of the context.
        provenance: package version, world parameters, seed, policy; JSON types only.
    """

    columns: dict[str, NDArray[Any]]
    provenance: Provenance = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Convert the columns to the schema's types and order.

        Columns that may be null (item, action, propensity, reward) are filled with nulls if they are missing.

        Raises:
            UserError: columns of different lengths, a missing column, or values of the wrong kind.
        """
        columns = table_by_name(self.columns, "columns")
        arrays = {text_of(name, "a column's name"): np.asarray(values) for name, values in columns.items()}
        shapes = {name: values.shape for name, values in arrays.items()}
        if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
            raise UserError(f"a log's columns must be one-dimensional and of one length, got {shapes}")
        n = len(next(iter(arrays.values()), ()))
        ordered: dict[str, NDArray[Any]] = {}
        for column in schema.COLUMNS:
            if column.name in arrays:
                values = arrays.pop(column.name)
                if column.null == -1 and values.dtype.kind == "f":  # pandas has integers with nulls as floats with NaN
                    values = np.where(np.isnan(values), column.null, values)
                ordered[column.name] = schema.as_type(values, column.dtype, column.name)
            elif n and column.null is None:
                raise UserError(f"a log needs a column {column.name!r}: {column.meaning}")
            else:
                ordered[column.name] = np.full(n, column.null or 0, column.dtype)
        for name, extra in schema.OPTIONAL.items():
            if name in arrays:
                arrays[name] = schema.as_type(arrays[name], extra.dtype, name)
        object.__setattr__(self, "columns", FixedColumns({**ordered, **arrays}))

    def __repr__(self) -> str:
        """Return the log's size, mean reward, world and policy in a line."""
        n_shown = int(self.is_bandit.sum())
        recommended = f"{n_shown:,} recommendations"
        if n_shown:
            recommended += f" (mean reward {np.nanmean(self.columns['reward'][self.is_bandit]):.4g})"
        users = np.unique(self.columns["user"]).size
        parts = [f"{len(self):,} rows", f"{users:,} users", recommended, f"{len(self) - n_shown:,} views"]
        for key in ("world", "policy"):
            description = self.provenance.get(key)
            if isinstance(description, dict) and description.get("name", "") != "":
                parts.append(f"{key} {description['name']}")
        return f"Log({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """Return a summary and the first rows as an HTML table, for notebooks."""
        first = Log({name: values[:_SHOWN] for name, values in self.columns.items()}).to_frame()
        return f"<p>{html.escape(repr(self))}</p>{first.to_html(index=False)}"

    def __len__(self) -> int:
        return len(self.columns["user"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        try:
            return self.columns[name]
        except KeyError:
            from recsim_mnar.errors import nearest

            raise UserError(f"the log has no column {name!r}; {nearest(name, self.columns)}") from None

    @property
    def is_bandit(self) -> NDArray[np.bool_]:
        """Flag per row, (n,), True for recommendations."""
        return self.columns["event"] == schema.BANDIT

    @property
    def highest_item(self) -> int:
        """The largest item viewed or recommended; -1 if there is none."""
        return max(int(self.columns["item"].max(initial=-1)), int(self.columns["action"].max(initial=-1)))

    @property
    def n_items(self) -> int:
        """Number of items of the world in the log's provenance; without one, the largest item in the log plus 1.

        Raises:
            UserError: the log has an item beyond the number in its provenance.
        """
        return stated_items(self.provenance, self.highest_item + 1)

    def blocks(self) -> Iterator[Log]:
        """Yield the log in blocks of whole users, so that a caller needs memory for one block at a time.

        A log in memory is a single block; one that stays in its files (:class:`recsim_mnar.log.blocks.FiledLog`) is
        read block by block.
        """
        yield self

    def users(self) -> NDArray[np.int64]:
        """Return the distinct users, ascending."""
        user = self.columns["user"]
        return user[user_begins(user)]

    def select(self, rows: NDArray[Any]) -> Log:
        """Return a log of the rows at a boolean mask or at indices, in the order of these."""
        return Log({name: values[rows] for name, values in self.columns.items()}, dict(self.provenance))

    def organic(self) -> Log:
        """Return a log of the organic rows."""
        return self.select(~self.is_bandit)

    def bandit(self) -> Log:
        """Return a log of the bandit rows."""
        return self.select(self.is_bandit)

    def with_column(self, name: str, values: NDArray[Any]) -> Log:
        """Return a copy of this log with a column added or replaced.

        Raises:
            UserError: a name that is no text, or empty; values that are not one per row.
        """
        if not text_of(name, "a column's name"):
            raise UserError("a column's name is empty: give the values one")
        return Log({**self.columns, name: values}, dict(self.provenance))

    def split(self, n_parts: int) -> list[Log]:
        """Cut the log into at most ``n_parts`` logs of consecutive users; all rows of a user are in one of them."""
        n_parts = whole_number(n_parts, "n_parts", 1)
        return [self.select(np.arange(first, end)) for first, end in self._ranges(n_parts)]

    def _ranges(self, n_parts: int) -> Iterator[tuple[int, int]]:
        """Yield the first row and the end (last row + 1) of each part of :meth:`split`; one part if there is no row."""
        starts = user_starts(self.columns["user"])
        if not len(starts):
            return itertools.pairwise([0, len(self)])
        parts = min(n_parts, len(starts))
        edges = [int(starts[i * len(starts) // parts]) for i in range(parts)] + [len(self)]
        return itertools.pairwise(edges)

    @classmethod
    def concat(cls, logs: Sequence[Log]) -> Log:
        """Concatenate logs with the same columns; the result has the provenance of the first.

        Raises:
            UserError: no log, or logs with different columns.
        """
        for log in of_type(logs, "logs", (list, tuple), "a list of logs"):
            of_type(log, "each of logs", Log, "a Log")
        if not logs:
            raise UserError("concat needs at least one log")
        names = list(logs[0].columns)
        for log in logs[1:]:
            if set(log.columns) != set(names):
                raise UserError(f"logs with different columns cannot be put together: {names} and {list(log.columns)}")
        columns = {name: np.concatenate([log.columns[name] for log in logs]) for name in names}
        return cls(columns, dict(logs[0].provenance))

    def digest(self, *, optional: bool = False) -> str:
        """Return the SHA-256 of the schema's columns in their order, little-endian, null as -1 or NumPy's NaN.

        Args:
            optional: include the columns of :data:`recsim_mnar.log.schema.OPTIONAL` that the log has.
        """
        sha = hashlib.sha256()
        extra = [column for name, column in schema.OPTIONAL.items() if optional and name in self.columns]
        for column in (*schema.COLUMNS, *extra):
            values = self.columns[column.name].astype(column.dtype.newbyteorder("<"))
            if column.dtype.kind == "f":  # NaNs may differ in their bits
                values = np.where(np.isnan(values), np.nan, values).astype(values.dtype)
            sha.update(values.tobytes())
        return sha.hexdigest()

    def validate(self, n_items: int | None = None, *, first_row: int = 0) -> Log:
        """Check every rule of the schema, and return the log itself.

        Args:
            n_items: number of items, which items and actions must be below; None for no such limit.
            first_row: number of the first row in messages; 1 for logs of a file.

        Raises:
            UserError: a rule is broken; the column and the first bad row are named.
        """

        def check(bad: NDArray[np.bool_], name: str, rule: str) -> None:
            """Raise UserError for the first row of a column that is bad."""
            values = self.columns[name]
            refuse_first(bad, lambda row: f"row {row + first_row}: {name} {rule}, got {values[row]}")

        c = self.columns
        user = c["user"]
        step = c["step"]
        bandit = c["event"] == schema.BANDIT
        check(~bandit & (c["event"] != schema.ORGANIC), "event", "must be organic or bandit")
        first = np.zeros(len(user[:1]), np.bool_)  # the first row, if any, has none before it to compare with
        descends = np.concatenate([first, user[1:] < user[:-1]])
        check(descends, "user", "is out of order: sort the rows by (user, step)")
        does_not_ascend = np.concatenate([first, (user[1:] == user[:-1]) & (step[1:] <= step[:-1])])
        check(does_not_ascend, "step", "is out of order: a user's steps must increase")
        check(~np.isfinite(c["time"]), "time", "must be a finite number")
        limit = int(np.iinfo(np.int32).max)
        if n_items is not None:
            limit = n_items - 1
        for name, rows in (("item", ~bandit), ("action", bandit)):
            check(rows & ((c[name] < 0) | (c[name] > limit)), name, f"must be in 0..{limit}")
        p = c["propensity"]
        check(bandit & ~((p > 0) & (p <= 1)), "propensity", "must be in (0, 1]")
        check(bandit & ~np.isfinite(c["reward"]), "reward", "must be a finite number")
        check(~bandit & np.isinf(c["reward"]), "reward", "must be a finite number or null")
        name = "observation_propensity"
        if name in c:
            p = c[name]
            check(~bandit & ~np.isnan(p) & ~((p > 0) & (p <= 1)), name, "must be in (0, 1]")
        return self

    # ------------------------------------------------------------------------------------------- in and out of memory

    def to_frame(self) -> Any:
        """Convert to a pandas DataFrame, with ``event`` as a categorical column and pandas' nulls."""
        return self.to_arrow().to_pandas()

    def to_arrow(self) -> Any:
        """Convert to a pyarrow Table with the schema's types and nulls, and the provenance in its metadata."""
        return arrow_of(self.columns, metadata_of(self.provenance))

    @classmethod
    def from_arrow(cls, table: Any, source: str = "table", *, first_row: int = 1) -> Log:
        """Convert a pyarrow Table with the schema's columns.

        Args:
            table: a table with a column for each column of the schema that is never null.
            source: name of its origin in messages.
            first_row: number of the first row in messages.

        Raises:
            UserError: a column is missing or of the wrong kind.
        """
        columns = {name: _from_arrow(name, table.column(name), source, first_row) for name in table.column_names}
        try:
            provenance = parsed_metadata(table.schema.metadata, META_KEY)
        except UserError as error:
            raise UserError(f"{source}: {error}") from None
        for column in schema.COLUMNS:
            if column.null is None and column.name not in columns:
                raise UserError(f"{source}: no column {column.name!r} ({column.meaning})")
        return cls(columns, provenance)

    def write(self, folder: str | os.PathLike[str], rows_per_part: int = ROWS_PER_PART) -> None:
        """Write as a folder of Parquet parts, each of whole users and about ``rows_per_part`` rows, and their index.

        Every part is written under a temporary name and renamed, the index last.

        Raises:
            UserError: the folder exists and holds something, or another process writes it.
        """
        with RunFolder.fill(path_of(folder)) as into:
            into.begin(digest_of({"provenance": self.provenance, "rows": len(self)}))
            n_parts = max(1, -(-len(self) // rows_per_part))  # rounded up
            for i, (first, end) in enumerate(self._ranges(n_parts)):
                rows = {name: values[first:end] for name, values in self.columns.items()}  # views, no copies
                record_part(into, i, [rows], self.provenance)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Log:
        """Read a folder of parts, or a Parquet, CSV or TSV file (see :func:`recsim_mnar.tables.files.part_files`).

        Files with receipts are verified.

        Raises:
            UserError: nothing there, not a log, or not the files that were written.
        """
        parts = Parts.of(path)
        logs = []
        for part in parts:
            if is_text_file(part):
                table = typed_table(part)
            else:
                table = read_table(part, verified=parts.index is not None)
            logs.append(cls.from_arrow(table, str(part)))
        if len(logs) == 1:
            return logs[0]
        return cls.concat(logs)

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Write as one CSV file, without the provenance, for which CSV has no place."""
        write_stream(path_of(path), [self.columns], {}, "csv")


def stated_items(provenance: Any, n_in_rows: int) -> int:
    """Return the number of items of the world in a log's provenance; without a valid one, the number in the rows.

    Args:
        provenance: provenance of the log, which may be any JSON.
        n_in_rows: smallest number of items that the rows allow, their largest item plus 1.

    Raises:
        UserError: the rows have an item beyond the number in the provenance.
    """
    try:
        stated = provenance["world"]["params"]["n_items"]
    except (KeyError, TypeError):
        return n_in_rows
    if not isinstance(stated, int) or not 0 < stated < 1 << 31:
        return n_in_rows
    if stated < n_in_rows:
        raise UserError(
            f"the log has item {n_in_rows - 1}, and says that its world has items 0..{stated - 1}: "
            "the file is damaged, or what it says of itself is of another log"
        )
    return stated


# -------------------------------------------------------------------------------------------------- tables of pyarrow's

META_KEY = b"recsim_mnar"
"""Key in the schema metadata of a file, under which its log's provenance is JSON."""


def metadata_of(provenance: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return the schema metadata of a file: a log's provenance and the version of the schema, as JSON."""
    meta = json.dumps({"schema_version": schema.SCHEMA_VERSION, **provenance}, sort_keys=True)
    return {META_KEY: meta.encode()}


def arrow_of(columns: Mapping[str, NDArray[Any]], metadata: Mapping[bytes, bytes]) -> Any:
    """Convert columns of a Log to a pyarrow Table with the schema's types and nulls, without copying numbers.

    Args:
        columns: arrays by name, with the schema's null values (-1, NaN), which become pyarrow's nulls.
        metadata: schema metadata of the table.
    """
    import pyarrow as pa

    arrays = []
    for name, values in columns.items():
        column = _column_of(name)
        if name == "event":
            array = pa.DictionaryArray.from_arrays(pa.array(values), pa.array(schema.EVENTS))
        elif column is not None and column.null is not None:
            is_null = values == column.null
            if column.dtype.kind == "f":  # NaN, which equals nothing
                is_null = np.isnan(values)
            array = pa.array(values, mask=is_null)
        else:
            array = pa.array(values)
        arrays.append(array)
    return pa.table(arrays, names=list(columns)).replace_schema_metadata(dict(metadata))


def _column_of(name: str) -> schema.Column | None:
    """Return the schema's column of this name; None for a column beyond the schema."""
    return schema.BY_NAME.get(name) or schema.OPTIONAL.get(name)


def _from_arrow(name: str, values: Any, source: str, first_row: int) -> NDArray[Any]:
    """Convert a pyarrow column to the array of a Log.

    Args:
        name: name of the column, which determines its type and null value.
        values: the pyarrow column.
        source: name of its origin, for messages.
        first_row: number of the first row, for messages.

    Raises:
        UserError: a value is missing, or of the wrong kind.
    """
    import pyarrow as pa

    column = _column_of(name)
    if name == "event":
        if pa.types.is_integer(values.type) and not values.null_count:
            return np.asarray(values)
        return schema.event_codes(values, source, first_row)
    if column is None and pa.types.is_dictionary(values.type):
        # The None, removed afterwards, keeps NumPy from making a matrix of entries that are sequences.
        return np.array([*objects_of(values), None], object)[:-1]
    if column is None:
        return np.asarray(values)
    if column.null is None and values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy())[0])
        raise UserError(f"{source}: row {row + first_row}: {name} is missing")
    try:
        typed = values.cast(pa.from_numpy_dtype(column.dtype))
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{source}: column {name!r} ({values.type}) is not {column.dtype}: {reason}") from None
    if typed.null_count:
        typed = typed.fill_null(column.null)
    return np.asarray(typed)


def parsed_metadata(metadata: Mapping[bytes, bytes] | None, key: bytes) -> Provenance:
    """Parse the JSON object under a key of a file's schema metadata; empty if there is none.

    Raises:
        UserError: no JSON object, or one of another version of the schema.
    """
    meta = (metadata or {}).get(key)
    try:
        result = json.loads(meta) if meta else {}
    except (ValueError, RecursionError):
        result = None
    if not isinstance(result, dict):
        raise UserError(f"the metadata {key.decode()!r} is no table of JSON: the file was changed; write it anew")
    version = result.pop("schema_version", schema.SCHEMA_VERSION)
    if type(version) is not int or version != schema.SCHEMA_VERSION:
        raise UserError(
            f"schema version {json.dumps(version)[:20]}: this package reads version {schema.SCHEMA_VERSION}. Read the "
            "file with the package that wrote it, or write it anew"
        )
    return result


def provenance_of(path: str | os.PathLike[str] | Parts) -> Provenance:
    """Read the provenance of a log from its file or first part; empty if there is none, as in text tables.

    Raises:
        UserError: no such file, or one that cannot be read.
    """
    part = Parts.of(path).first
    if is_text_file(part):
        return {}
    try:
        return parsed_metadata(schema_in(part).metadata, META_KEY)
    except UserError as error:
        raise UserError(f"{part.name}: {error}") from None


# ---------------------------------------------------------------------------------------------------------------- files

FORMATS = {"parquet": PARQUET[0], "arrow": ARROW[0]}
"""Formats of parts, and the endings of their files."""
GROUP_ROWS = 1 << 17
"""Largest number of rows of a row group or batch, those of about 1,024 users of the sessions world."""
_ENCODINGS = {
    "user": "PLAIN",
    "step": "PLAIN",
    "time": "BYTE_STREAM_SPLIT",
    "item": "DELTA_BINARY_PACKED",
    "action": "DELTA_BINARY_PACKED",
}
"""Encodings of the columns of a Parquet file that have no dictionary, by measured size and time of writing."""
_DICTIONARY_BYTES = 1 << 15
"""Largest size of a column's dictionary in a Parquet file; when it is full, Parquet writes further values plainly."""

Columns = Mapping[str, NDArray[Any]]


def check_format(form: str) -> str:
    """Check the name of a format, and return it.

    Raises:
        UserError: no such format.
    """
    if form not in FORMATS:
        raise UserError(f"format {form!r}: name one of {', '.join(FORMATS)}")
    return form


def write_part(
    path: Path, pieces: Sequence[Columns], provenance: Mapping[str, Any], more: Mapping[bytes, bytes] | None = None
) -> int:
    """Write one part of a log, under a temporary name first.

    Args:
        path: path of the part; its ending determines the format.
        pieces: columns of consecutive rows, as a Log has them; each piece begins a row group.
        provenance: provenance of the log, JSON types only.
        more: further metadata of the file; None without any.

    Returns:
        the number of rows.
    """
    form = "parquet"
    if path.suffix in ARROW:
        form = "arrow"
    metadata = metadata_of(provenance)
    if more:
        metadata |= more
    _write(path, pieces, metadata, form)
    return sum(len(piece["user"]) for piece in pieces)


def write_stream(path: Path, blocks: Iterable[Columns], provenance: Mapping[str, Any], form: str) -> None:
    """Write one file of a log whose rows come in blocks, under a temporary name first.

    Its bytes do not depend on how the rows are divided into blocks: row groups and batches have :data:`GROUP_ROWS`.

    Args:
        path: path of the file.
        blocks: columns of consecutive rows, as a Log has them; at least one block.
        provenance: provenance of the log, JSON types only.
        form: ``parquet``, ``arrow`` or ``csv`` (which has no place for the provenance).
    """
    _write(path, _in_runs(blocks, GROUP_ROWS), metadata_of(provenance), form)


def record_part(
    into: RunFolder, number: int, pieces: Sequence[Columns], provenance: Mapping[str, Any], form: str = "parquet"
) -> None:
    """Write one part of a log into a folder that is being filled, and its receipt into the folder's index.

    Args:
        into: the folder.
        number: number of the part, from 0.
        pieces: columns of consecutive rows, as a Log has them.
        provenance: provenance of the log, JSON types only.
        form: a format of :data:`FORMATS`.
    """
    users = [piece["user"] for piece in pieces if len(piece["user"])]
    span = None  # first and last user
    if users:
        span = (int(users[0][0]), int(users[-1][-1]))
    name = part_path(into.path, number, FORMATS[form]).name
    with into.recording(name, rows=lambda written: rows_in(written, FORMATS[form]), users=span) as path:
        write_part(path, pieces, provenance, mark_of_part(number, into.index.made))


def _in_runs(blocks: Iterable[Columns], rows: int) -> Iterator[Columns]:
    """Yield the rows of the blocks in pieces of exactly ``rows`` rows; the last piece may have fewer.

    Without any row, one empty piece is yielded, so that a file gets its columns.
    """
    pending: list[Columns] = []
    n_pending = 0
    any_full = False
    for block in blocks:
        pending.append(block)
        n_pending += len(block["user"])
        if n_pending < rows:
            continue
        any_full = True
        columns = {name: np.concatenate([piece[name] for piece in pending]) for name in block}
        n_full = n_pending // rows * rows  # number of rows in full pieces
        for first in range(0, n_full, rows):
            yield {name: values[first : first + rows] for name, values in columns.items()}
        pending = [{name: values[n_full:].copy() for name, values in columns.items()}]  # copies: rows can be freed
        n_pending -= n_full
    if n_pending or not any_full:
        yield {name: np.concatenate([piece[name] for piece in pending]) for name in pending[0]}


def _write(path: Path, pieces: Iterable[Columns], metadata: Mapping[bytes, bytes], form: str) -> None:
    """Write pieces one after another into one file, under a temporary name first.

    Args:
        path: path of the file.
        pieces: columns of consecutive rows, at least one piece.
        metadata: schema metadata of the file.
        form: ``parquet``, ``arrow`` or ``csv``.
    """
    tables = (arrow_of(piece, metadata) for piece in pieces)
    if form == "csv":
        tables = (_with_event_names(table) for table in tables)
    first = next(tables)  # a writer needs the schema
    with replacing(path) as temporary, contextlib.ExitStack() as stack:
        writer = _writer(temporary, first.schema, form, stack)
        for table in itertools.chain([first], tables):
            writer.write_table(table, GROUP_ROWS)


def _with_event_names(table: Any) -> Any:
    """Convert the events of a table to text, as CSV has no dictionaries."""
    return table.set_column(table.schema.get_field_index("event"), "event", table.column("event").cast("string"))


def _writer(temporary: Path, schema: Any, form: str, stack: contextlib.ExitStack) -> Any:
    """Open pyarrow's writer of a format, an object with ``write_table``; leaving ``stack`` closes it."""
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
