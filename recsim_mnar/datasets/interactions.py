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
        log: organic rows by (user, time), or in the file's order where no time is given; users and items are numbered
            from 0.
        user_ids: (n_users,) the file's id of each user, integers or text, ascending.
        item_ids: (n_items,) the file's id of each item, likewise.
        events: rows by the word of the file's column of events, of those that count; empty without such a column.
        left_out: rows without a user, item or time, where these are left out.
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
        """True if the file has times; otherwise times only number a user's rows."""
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
        table: path of a text file with a header line (comma, tab, semicolon or bar between fields; RecBole's
            ``user_id:token`` headers too; compressed with gzip, bz2 or zstd where the name says so), or of a Parquet
            file; or a table in memory, of pandas, polars, duckdb or pyarrow.
        user_column: name of the column of users; recognised from common names where None.
        item_column: likewise, of items.
        time_column: likewise, of times: numbers, or dates. Without any such column the file's order counts.
        events: words of the file's column of events ("view", "purchase") whose rows count; None for all of them.
        drop_missing: leave out rows without a user, item or time.

    Returns:
        The rows as organic events, other columns left aside.

    Raises:
        UserError: no such file, nothing in it, not readable, a column is missing or several could be meant; or with all
            faults of values, each counted.
    """
    with as_file(table) as path:
        return open_interactions(path, user_column, item_column, time_column)(events, drop_missing)


def open_interactions(
    path: str | os.PathLike[str], user_column: str | None, item_column: str | None, time_column: str | None
) -> Callable[[Sequence[str] | None, bool], Interactions]:
    """Look at a file, and at which of its columns are what; what is returned reads it.

    That takes the events and ``drop_missing`` of :func:`read_interactions`.

    Raises:
        UserError: as :func:`read_interactions`, of what is known before a row is read.
    """
    file = TableFile.open(path)
    named = {"user": user_column, "item": item_column, "time": time_column}
    columns = find_columns(str(path), file.names, named=named, needed=("user", "item"), optional=("time", "event"))
    columns.refuse_unclear(str(path), "user", "item", "time")
    return partial(_read, Path(path).name, file, columns)


def _read(
    file_name: str, file: TableFile, columns: Columns, events: Sequence[str] | None, drop_missing: bool
) -> Interactions:
    kinds = {"user": "id", "item": "id", "time": "time", "event": "id"}
    rows = file.read({columns[role]: kind for role, kind in kinds.items() if role in columns})
    rows, pooled = _of_events(rows, columns.get("event"), events)
    users = rows.ids(columns["user"])
    items = rows.ids(columns["item"])
    if "time" in columns:
        time = rows.times(columns["time"])
    else:
        time = None
    if rows.missing is None or not drop_missing:
        kept_rows = np.ones(len(rows), np.bool_)
    else:
        kept_rows = ~rows.missing
    rows.faults.forgive([MISSING] if drop_missing else [])
    rows.faults.refuse(DROP)
    if not kept_rows.any():
        raise UserError(f"{rows.source}: no row is left")
    if events is not None or not kept_rows.all():
        users, items = (Ids(ids.codes[kept_rows], ids.ids).used() for ids in (users, items))
        if time is None:
            time = None
        else:
            time = time[kept_rows]
    user = users.codes
    item = items.codes
    if time is None:
        order = np.argsort(user, kind="stable")
    else:
        order = np.lexsort((time, user))
    user = user[order]
    item = item[order]
    step = steps_within(user)
    log = Log(
        {
            "user": user,
            "step": step,
            "time": step.astype(np.float64) if time is None else time[order],
            "event": np.full(len(user), schema.ORGANIC, np.int8),
            "item": item,
        },
        {
            "kind": "interactions",
            "file": file_name,
            "columns": {role: columns.get(role) for role in ("user", "item", "time")},
            **({"events": pooled} if pooled else {}),
        },
    )
    return Interactions(log, users.ids, items.ids, pooled, int(np.sum(~kept_rows)))


def _of_events(rows: Rows, name: str | None, wanted: Sequence[str] | None) -> tuple[Rows, dict[str, int]]:
    """The rows of some events, and how many there are of each.

    Raises:
        UserError: events are named that the file has none of, or no column of events.
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
    chosen = np.array([wanted is None or word in wanted for word in words] + [wanted is None], np.bool_)
    counts = np.bincount(events.codes[events.codes >= 0], minlength=len(words))
    kept = {word: int(counts[code]) for code, word in enumerate(words) if chosen[code]}
    return (rows if chosen.all() else rows.kept(chosen[events.codes])), kept
