"""A user's own interactions: a CSV, TSV, RecBole ``.inter`` or Parquet file as a log of organic rows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.log import schema
from recsim_mnar.log.rows import steps_within
from recsim_mnar.log.table import Log
from recsim_mnar.tables.roles import find_columns
from recsim_mnar.tables.table_file import TableFile


@dataclass(frozen=True)
class Interactions:
    """Interactions as a log, and the meaning of its numbers.

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
        """True if the file has times; otherwise times only number a user's rows."""
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
        path: a text file with a header line (comma, tab, semicolon or bar between fields; RecBole's ``user_id:token``
            headers too; compressed with gzip, bz2 or zstd where the name says so), or a Parquet file.
        user_column: name of the column of users; recognised from common names where None.
        item_column: likewise, of items.
        time_column: likewise, of times: numbers, or dates. Without any such column the file's order counts.

    Returns:
        All rows as organic events, other columns left aside.

    Raises:
        UserError: no such file, nothing in it, not readable, a column is missing or several could be meant; or with all
            faults of values, each counted.
    """
    file = TableFile.open(path)
    named = {"user": user_column, "item": item_column, "time": time_column}
    columns = find_columns(str(path), file.names, named=named, needed=("user", "item"), optional=("time",))
    columns.refuse_unclear(str(path))
    kinds = {"user": "id", "item": "id", "time": "time"}
    rows = file.read({columns[role]: kind for role, kind in kinds.items() if role in columns})
    users, items = rows.ids(columns["user"]), rows.ids(columns["item"])
    time = rows.times(columns["time"]) if "time" in columns else None
    rows.faults.refuse()
    user, item = users.codes, items.codes
    order = np.argsort(user, kind="stable") if time is None else np.lexsort((time, user))
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
        {
            "kind": "interactions",
            "file": Path(path).name,
            "columns": {role: columns.get(role) for role in ("user", "item", "time")},
        },
    )
    return Interactions(log, users.ids, items.ids)
