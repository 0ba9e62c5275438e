"""A user's own interactions: a CSV, TSV, RecBole ``.inter`` or Parquet file as a log of organic rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log import schema
from recsim_mnar.log.rows import steps_within
from recsim_mnar.log.table import Log
from recsim_mnar.tables.files import as_file
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import Columns, find_columns
from recsim_mnar.tables.rows import DROP, Rows
from recsim_mnar.tables.values import MISSING, Ids


@dataclass(frozen=True)
class Interactions:
    """Interactions as a log, and the meaning of its numbers.

    Attributes:
        log: organic rows ordered by (user, time), or by user in the file's order if it has no times; users and items
            are numbered from 0.
        user_ids: (n_users,) the file's id of each user number, integers or text, ascending.
        item_ids: (n_items,) the file's id of each item number, integers or text, ascending.
        events: number of rows by word of the file's column of events; empty without such a column.
        left_out: number of rows that were left out, because they lack a user, item or time.
    """

    log: Log
    user_ids: NDArray[Any]
    item_ids: NDArray[Any]
    events: Mapping[str, int] = field(default_factory=dict)
    left_out: int = 0

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
        """True if the file has times; else the log's times only number a user's rows."""
        return self.log.provenance.get("columns", {}).get("time") is not None


def events_in_words(events: Mapping[str, int]) -> str:
    """Count the rows of each event, in words."""
    return ", ".join(f"{number:,} {word}" for word, number in events.items())


def read_interactions(
    table: Any,
    *,
    user_column: str | None = None,
    item_column: str | None = None,
    time_column: str | None = None,
    events: Sequence[str] | None = None,
    drop_missing: bool = False,
) -> Interactions:
    """Read interactions from a file.

    Args:
        table: path of a text file with a header line (comma, tab, semicolon or bar between fields; also RecBole's
            ``user_id:token`` headers; compressed with gzip, bz2 or zstd by its name) or of a Parquet file; or a table
            of pandas, polars, duckdb or pyarrow.
        user_column: column of users; recognised from common names if None.
        item_column: column of items; recognised from common names if None.
        time_column: column of times, numbers or dates; recognised from common names if None. Without such a column a
            user's rows keep the order of the file.
        events: words in the column of events ("view", "purchase") whose rows are read; None for all.
        drop_missing: leave out rows without a user, item or time.

    Returns:
        the rows as organic events; further columns of the file are not read.

    Raises:
        UserError: no such file, nothing in it, not readable, a missing or ambiguous column; or invalid values, counted
            by fault.
    """
    with as_file(table) as path:
        return open_interactions(path, user_column, item_column, time_column)(events, drop_missing)


def open_interactions(
    path: str | os.PathLike[str], user_column: str | None, item_column: str | None, time_column: str | None
) -> Callable[[Sequence[str] | None, bool], Interactions]:
    """Find the columns of a file, and return a function of ``events`` and ``drop_missing`` that reads its rows.

    Reading is a second step so that a caller can report wrong columns before it starts a long read.

    Raises:
        UserError: as :func:`read_interactions`, for errors that are found before a row is read.
    """
    file = TableFile.open(path)
    named = {"user": user_column, "item": item_column, "time": time_column}
    columns = find_columns(str(path), file.names, named=named, needed=("user", "item"), optional=("time", "event"))
    columns.refuse_unclear(str(path), "user", "item", "time")
    return partial(_read, Path(path).name, file, columns)


def _read(
    file_name: str, file: TableFile, columns: Columns, events: Sequence[str] | None, drop_missing: bool
) -> Interactions:
    """Read the rows of a file as :func:`read_interactions` does.

    Args:
        file_name: name of the file for the log's provenance.
        file: the file.
        columns: its columns by role.
        events: words in the column of events whose rows are read; None for all.
        drop_missing: leave out rows without a user, item or time.

    Raises:
        UserError: invalid values, or no row that is kept.
    """
    kinds = {"user": "id", "item": "id", "time": "time", "event": "id"}
    rows = file.read({columns[role]: kind for role, kind in kinds.items() if role in columns})
    rows, n_by_event = _of_events(rows, columns.get("event"), events)
    users = rows.ids(columns["user"])
    items = rows.ids(columns["item"])
    time = np.zeros(len(rows))  # without times the file's order counts
    if "time" in columns:
        time = rows.times(columns["time"])
    keep = np.ones(len(rows), np.bool_)
    if drop_missing:
        if rows.missing is not None:
            keep = ~rows.missing
        rows.faults.forgive([MISSING])
    rows.faults.refuse(DROP)
    if not keep.any():
        raise UserError(f"{rows.source}: no row is left")
    if events is not None or not keep.all():
        # Renumber: ids that only rows left out had are no users or items.
        users = Ids(users.codes[keep], users.ids).used()
        items = Ids(items.codes[keep], items.ids).used()
        time = time[keep]
    order = np.lexsort((time, users.codes))  # by user, then time; ties keep the file's order
    user = users.codes[order]
    step = steps_within(user)
    log = Log(
        {
            "user": user,
            "step": step,
            "time": time[order] if "time" in columns else step.astype(np.float64),
            "event": np.full(len(user), schema.ORGANIC, np.int8),
            "item": items.codes[order],
        },
        {
            "kind": "interactions",
            "file": file_name,
            "columns": {role: columns.get(role) for role in ("user", "item", "time")},
            **({"events": n_by_event} if n_by_event else {}),
        },
    )
    return Interactions(log, users.ids, items.ids, events=n_by_event, left_out=int(np.sum(~keep)))


def _of_events(rows: Rows, name: str | None, wanted: Sequence[str] | None) -> tuple[Rows, dict[str, int]]:
    """Select the rows of some events, and count the rows of each event.

    Args:
        rows: the rows of the file.
        name: name of the column of events; None without one.
        wanted: words of the events to select; None for all, rows without an event included.

    Returns:
        rows: the selected rows.
        counts: number of rows by word of each selected event; empty without a column of events.

    Raises:
        UserError: the file has no such event, or no column of events.
    """
    if name is None and wanted is not None:
        raise UserError(f"{rows.source}: events are named, and no column is recognised as the event. Call it 'event'")
    if name is None:
        return rows, {}
    events = rows.quiet().ids(name)
    words = [str(word) for word in events.ids]
    for word in wanted or ():
        if word not in words:
            raise UserError(f"{rows.source}: no row of column {name!r} is {word!r}; {nearest(word, words)} (events)")
    # One flag per word, and a last one for the code -1 of a row without an event, which indexes it from the end.
    chosen = np.array([wanted is None or word in wanted for word in words] + [wanted is None], np.bool_)
    counts = np.bincount(events.codes[events.codes >= 0], minlength=len(words))
    kept = {word: int(counts[code]) for code, word in enumerate(words) if chosen[code]}
    if not chosen.all():
        rows = rows.kept(chosen[events.codes])
    return rows, kept
