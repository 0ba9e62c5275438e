"""A user's own interactions: a CSV, TSV, RecBole ``.inter`` or Parquet file as a log of organic rows."""

from __future__ import annotations

import csv
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log import schema
from recsim_mnar.log.rows import steps_within
from recsim_mnar.log.table import Log
from recsim_mnar.numerics.checks import refuse_first

TEXT = (".csv", ".tsv", ".inter", ".txt", ".dat")
PARQUET = (".parquet", ".pq")
COMPRESSED = (".gz", ".bz2", ".zst")

COMMON_NAMES: dict[str, tuple[str, ...]] = {
    "user": ("user", "userid", "uid", "useridx", "visitorid", "customerid", "reviewerid", "memberid", "profileid"),
    "item": (
        *("item", "itemid", "iid", "itemidx", "movieid", "productid", "parentasin", "asin", "articleid", "newsid"),
        *("trackid", "songid", "artistid", "bookid", "isbn", "businessid", "gameid", "videoid", "sku"),
    ),
    "time": ("time", "timestamp", "ts", "datetime", "date", "eventtime", "unixreviewtime", "createdat", "t"),
}
"""Names by which a column is recognised, in lower case without anything but letters and digits, best first."""

_RECBOLE_TYPE = re.compile(r":(token|float|token_seq|float_seq)$")
_MISSING = ["", "nan", "NaN", "null", "NULL"]


@dataclass(frozen=True)
class Interactions:
    """Interactions as a log, and what its numbers stand for.

    Attributes:
        log: organic rows by (user, time), or in the file's order where no time is given; users and items are numbered
            from 0.
        user_ids: (n_users,) the file's id of each user, integers or text, ascending.
        item_ids: (n_items,) the file's id of each item, likewise.
    """

    log: Log
    user_ids: NDArray[Any]
    item_ids: NDArray[Any]

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_ids)

    @property
    def timed(self) -> bool:
        """Whether the file has times; without any they only count a user's rows."""
        return self.log.provenance.get("columns", {}).get("time") is not None


def read_interactions(
    path: str | os.PathLike[str],
    *,
    user_column: str | None = None,
    item_column: str | None = None,
    time_column: str | None = None,
) -> Interactions:
    """Read interactions from a file.

    Args:
        path: a text file with a header line (comma, tab or semicolon between fields; RecBole's ``user_id:token``
            headers too; compressed with gzip, bz2 or zstd where the name says so), or a Parquet file.
        user_column: name of the column of users; recognised from common names where None.
        item_column: likewise, of items.
        time_column: likewise, of times: numbers, or dates. Without any such column the file's order counts.

    Returns:
        All rows as organic events, other columns left aside.

    Raises:
        UserError: no such file, nothing in it, not readable, a column is missing, or a value is missing or not finite.
    """
    path = Path(path)
    suffixes = [s.lower() for s in path.suffixes]
    kind = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] in COMPRESSED else (suffixes or [""])[-1]
    if kind not in TEXT + PARQUET:
        raise UserError(f"{path}: interactions are read from {', '.join(TEXT + PARQUET)} files, not {kind or 'this'}")
    if not path.exists():
        raise UserError(f"{path} does not exist")
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file of interactions")
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty")
    is_text = kind in TEXT
    delimiter, names = _header(path) if is_text else ("", _parquet_names(path))
    wanted = {"user": user_column, "item": item_column, "time": time_column}
    columns = {role: _find(path, role, name, names) for role, name in wanted.items()}
    chosen = [name for name in columns.values() if name is not None]
    if len(set(chosen)) < len(chosen):
        twice = next(name for name in chosen if chosen.count(name) > 1)
        raise UserError(f"{path}: column {twice!r} is named for two of user, item and time")
    table = _read_text(path, delimiter, columns) if is_text else _read_parquet(path, chosen)
    if table.num_rows == 0:
        raise UserError(f"{path} has a header but no rows")
    user, user_ids = _numbered(table.column(columns["user"]), str(path), str(columns["user"]))
    item, item_ids = _numbered(table.column(columns["item"]), str(path), str(columns["item"]))
    order = np.argsort(user, kind="stable")
    time: NDArray[np.float64] | None = None
    if columns["time"] is not None:
        time = _seconds(table.column(columns["time"]), str(path), columns["time"])
        order = np.lexsort((time, user))
    user, item = user[order], item[order]
    step = steps_within(user)
    log = Log(
        {
            "user": user,
            "step": step,
            "time": step.astype(np.float64) if time is None else time[order],
            "event": np.full(len(user), schema.ORGANIC, np.int8),
            "item": item,
        },
        {"kind": "interactions", "file": path.name, "columns": columns},
    )
    return Interactions(log, user_ids, item_ids)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", _RECBOLE_TYPE.sub("", name).lower())


def _find(path: Path, role: str, given: str | None, names: list[str]) -> str | None:
    """The file's name of the column of a role; None for a time that is not there.

    Raises:
        UserError: no such column.
    """
    if given is not None:
        for name in names:
            if given in (name, name.strip(), _RECBOLE_TYPE.sub("", name)):
                return name
        raise UserError(f"{path} has no column {given!r}; {nearest(given, names)} (--{role}-column)")
    plain = {_plain(name): name for name in reversed(names)}
    for common in COMMON_NAMES[role]:
        if common in plain:
            return plain[common]
    if role == "time":
        return None
    if all(re.fullmatch(r"[-+0-9.eE]*", name) for name in names):
        raise UserError(
            f"{path} has no header line: put one with the columns' names first, for instance user,item,time"
        )
    close = [name for name in names if role in name.lower()]
    hint = f"did you mean {close[0]!r}? " if close else f"columns: {', '.join(names)}; "
    raise UserError(f"{path}: no column is recognised as the {role}; {hint}name it with --{role}-column")


def _header(path: Path) -> tuple[str, list[str]]:
    """Delimiter and column names of a text file."""
    import pyarrow as pa

    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            begin = stream.read(1 << 16).decode("utf-8-sig", errors="replace")
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
    lines = [line for line in begin.splitlines() if line.strip()]
    if not lines:
        raise UserError(f"{path} is empty")
    counts = {mark: lines[0].count(mark) for mark in "\t,;"}
    delimiter = max(counts, key=lambda mark: counts[mark]) if any(counts.values()) else ","
    names = next(csv.reader([lines[0]], delimiter=delimiter))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{path}: column {twice!r} appears twice in the header")
    return delimiter, names


def _read_text(path: Path, delimiter: str, columns: dict[str, str | None]) -> Any:
    import pyarrow as pa
    import pyarrow.csv as pacsv

    try:
        return pacsv.read_csv(
            path,
            read_options=pacsv.ReadOptions(use_threads=False),  # only a serial reader names the row of a broken line
            parse_options=pacsv.ParseOptions(delimiter=delimiter),
            convert_options=pacsv.ConvertOptions(
                include_columns=[name for name in columns.values() if name is not None],
                column_types={str(columns[role]): pa.string() for role in ("user", "item")},
                strings_can_be_null=True,
                null_values=_MISSING,
            ),
        )
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is not a readable table: {str(error).splitlines()[0]}") from None


def _parquet_names(path: Path) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return list(pq.read_schema(path).names)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}") from None


def _read_parquet(path: Path, names: list[str]) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path, columns=names)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}") from None


def _check_rows(bad: NDArray[np.bool_], where: str, name: str, says: str) -> None:
    refuse_first(bad, lambda row: f"{where}: row {row + 1} (the first is row 1): {name} {says}")


def _numbered(column: Any, where: str, name: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Numbers 0 .. n - 1 in place of ids, and the ids ascending; integers where all ids are written as such."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_nested(column.type):
        raise UserError(f"{where}: column {name!r} holds {column.type}: ids are numbers or text, one a row")
    if column.null_count:
        _check_rows(column.is_null().to_numpy(), where, name, "is missing")
    if pa.types.is_floating(column.type):
        values = column.to_numpy()
        _check_rows(~np.isfinite(values), where, name, "is not a finite number")
        if np.all(values == np.floor(values)) and np.all(np.abs(values) < 2**53):
            column = column.cast(pa.int64())
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0) if encoded.num_chunks else pa.array([], column.type).dictionary_encode()
    ids = encoded.dictionary
    if pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type):
        # Written as integers without signs, spaces or leading zeros, so that nothing of an id is lost.
        if pc.all(pc.match_substring_regex(ids, r"^(0|-?[1-9][0-9]{0,17})$")).as_py():
            ids = ids.cast(pa.int64())
    elif not (pa.types.is_integer(ids.type) or pa.types.is_floating(ids.type)):
        ids = ids.cast(pa.string())
    rank = pc.sort_indices(ids).to_numpy()
    number = np.empty(len(rank), np.int64)
    number[rank] = np.arange(len(rank))
    originals = ids.take(pa.array(rank)).to_numpy(zero_copy_only=False)
    return number[encoded.indices.to_numpy()], originals


def _seconds(column: Any, where: str, name: str) -> NDArray[np.float64]:
    """Times as numbers; dates as seconds since 1970."""
    import pyarrow as pa

    if column.null_count:
        _check_rows(column.is_null().to_numpy(), where, name, "is missing")
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        import pandas as pd

        text = column.to_pandas()
        numbers = pd.to_numeric(text, errors="coerce")
        dates = pd.to_datetime(text, errors="coerce", utc=True, format="ISO8601")
        if numbers.notna().sum() >= dates.notna().sum():
            _check_rows(
                numbers.isna().to_numpy(), where, name, "is neither a number nor a date (like 2024-05-31 17:00:00)"
            )
            values = numbers.to_numpy(dtype=np.float64)
        else:
            _check_rows(dates.isna().to_numpy(), where, name, "is not a date (like 2024-05-31 17:00:00)")
            values = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(dtype=np.float64)
    elif pa.types.is_temporal(kind):
        values = column.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy().astype(np.float64) / 1e6
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = column.cast(pa.float64()).to_numpy()
    else:
        raise UserError(f"{where}: column {name!r} holds {kind}: times are numbers or dates")
    _check_rows(~np.isfinite(values), where, name, "is not a finite number")
    return np.asarray(values, dtype=np.float64)
