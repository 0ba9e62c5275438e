"""A log in Parquet or Arrow files, read a block of whole users at a time: memory does not grow with it."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_begins, user_starts
from recsim_mnar.log.table import Log, Provenance, provenance_of, stated_items
from recsim_mnar.tables.files import is_text_file, read_blocks, schema_of
from recsim_mnar.tables.parts import Parts
from recsim_mnar.tables.rows import Events

READ_ROWS = 1 << 18
"""Rows that are decoded at a time."""
_USERS = 4096
"""Users of a block of :class:`FiledLog`."""
Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Survey:
    """Facts about a log that are needed before reading it through.

    Attributes:
        n_rows: of all kinds.
        n_users: how many.
        highest_item: the largest item or action, -1 where there is none.
        all_bandit: whether no row is organic.
        shared_users: users that another log has, too.
        with_gaps: columns of whole numbers of which some are missing.
        slate_size: items per slate, 1 where rows have no positions.
    """

    n_rows: int
    n_users: int
    highest_item: int
    all_bandit: bool
    shared_users: int
    with_gaps: frozenset[str]
    slate_size: int = 1


@dataclass(frozen=True)
class LogBlocks:
    """A log in files.

    Attributes:
        path: what the user named.
        parts: its files.
        read_rows: rows that are decoded at a time.
    """

    path: Path
    parts: Parts
    read_rows: int = READ_ROWS

    @classmethod
    def open(cls, path: str | os.PathLike[str], read_rows: int = READ_ROWS) -> LogBlocks | None:
        """The log of a path; None where its rows must be read at once: text tables, and columns of other types.

        Raises:
            UserError: nothing there, or not the files that were written.
        """
        parts = Parts.of(path)
        if any(is_text_file(part) for part in parts.files):
            return None
        blocks = cls(parts.path, parts, read_rows)
        if blocks._plain():
            return blocks
        return None

    def _plain(self) -> bool:
        """True if all parts have the same columns, and those beyond the schema are numbers."""
        import pyarrow as pa

        try:
            kinds = [dict(zip(entry.names, entry.types, strict=True)) for entry in map(schema_of, self.parts.files)]
        except (OSError, ValueError, pa.ArrowException):
            return False
        known_columns = (*schema.BY_NAME, *schema.OPTIONAL)
        further = [kind for name, kind in kinds[0].items() if name not in known_columns]
        further += [kinds[0][name] for name in ("user", "item", "action") if name in kinds[0]]
        numbers = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in further)
        return numbers and all(entry == kinds[0] for entry in kinds)

    @property
    def provenance(self) -> Provenance:
        """Read from the first part how the log was made."""
        return provenance_of(self.parts)

    def survey(
        self,
        others: NDArray[np.int64] | None = None,
        columns: Sequence[str] = ("user", "event", "item", "action", "position"),
    ) -> Survey:
        """Read the columns with the facts that are needed first.

        Args:
            others: users of another log, sorted.
            columns: that are read; without ``user`` no users are counted.

        Raises:
            UserError: a file that cannot be read, or is no log.
        """
        import pyarrow as pa

        kinds = schema_of(self.parts.files[0])
        further = [n for n in kinds.names if n not in schema.BY_NAME and n not in schema.OPTIONAL]
        integral_columns = [name for name in further if pa.types.is_integer(kinds.field(name).type)]
        names = [name for name in (*columns, *integral_columns) if name in kinds.names]
        n_rows = n_users = shared = 0
        highest = -1
        all_bandit = True
        last = None
        gaps = set()
        size = 1
        for table, _, _ in self._tables(names):
            if "user" in table.column_names:
                user = table.column("user").to_numpy()
            else:
                user = np.zeros(0, np.int64)
            starts = user[user_begins(user)]
            if last is not None and len(starts) and starts[0] == last:
                starts = starts[1:]
            if len(user):
                last = user[-1]
            n_rows = n_rows + len(table)
            n_users = n_users + len(starts)
            if others is not None:
                shared += int(np.isin(starts, others).sum())
            highest = max(highest, *(_highest(table, name) for name in ("item", "action")))
            size = max(size, _highest(table, "position") + 1)
            all_bandit = all_bandit and "event" in table.column_names
            all_bandit = all_bandit and bool(Events.of(table.column("event")).shown.all())
            gaps |= {name for name in integral_columns if table.column(name).null_count}
        return Survey(n_rows, n_users, highest, all_bandit, shared, frozenset(gaps), size)

    def blocks(self, users: int, with_gaps: frozenset[str] = frozenset()) -> Iterator[Log]:
        """All rows, checked, so many users at a time (the last block: those that are left).

        Args:
            users: of a block.
            with_gaps: columns of whole numbers of which some are missing, which become floats as a whole.

        Raises:
            UserError: a file that cannot be read, or rows that break a rule of the schema, which are named.
        """
        kept: list[Columns] = []
        done = 0
        last = None
        for read in self._logs(with_gaps):
            kept.append(read.columns)
            columns = _together(kept)
            starts = user_starts(columns["user"])
            n_whole = max(len(starts) - 1, 0) // users * users  # of the last user more rows may follow
            for first in range(0, n_whole, users):
                a = int(starts[first])
                b = int(starts[first + users])
                yield _checked({name: values[a:b] for name, values in columns.items()}, done + a, last)
                last = int(columns["user"][b - 1])
            cut = 0
            if n_whole:
                cut = int(starts[n_whole])
            kept = [{name: values[cut:].copy() if cut else values for name, values in columns.items()}]
            done += cut
        columns = _together(kept)
        if len(columns.get("user", ())):
            yield _checked(columns, done, last)

    def _logs(self, with_gaps: frozenset[str]) -> Iterator[Log]:
        names: list[str] = []
        for table, part, first in self._tables(None):
            log = _log_of(table, part, first, with_gaps)
            names = names or list(log.columns)
            yield Log({name: log.columns[name] for name in names})

    def _tables(self, names: list[str] | None) -> Iterator[tuple[Any, Path, int]]:
        """Tables of these columns, the part that each is of, and the number of its first row there, from 1."""
        for part in self.parts:
            first = 1
            for table in read_blocks(part, self.read_rows, names, verified=self.parts.index is not None):
                yield table, part, first
                first += len(table)


class FiledLog(Log):
    """A log that stays in its files: handed out block by block, and read as a whole where a column is asked for.

    Args:
        source: the files.

    Raises:
        UserError: a file that cannot be read, or is no log; rows are checked as they are handed out.
    """

    source: LogBlocks
    surveyed: Survey

    def __init__(self, source: LogBlocks) -> None:
        vars(self).update(source=source, provenance=source.provenance, surveyed=source.survey(columns=()))

    @staticmethod
    def or_whole(path: str | os.PathLike[str]) -> Log:
        """The log of a path; a table of text, and one with columns of other types, read and checked at once."""
        source = LogBlocks.open(path)
        if source is None:
            return Log.read(path).validate(first_row=1)
        return FiledLog(source)

    @functools.cached_property
    def columns(self) -> dict[str, NDArray[Any]]:
        """All rows, checked."""
        return self._stated(Log.read(self.source.path).validate(first_row=1)).columns

    @functools.cached_property
    def highest_item(self) -> int:
        """Compute :attr:`Log.highest_item`; both columns are read for it."""
        return self.source.survey(columns=("item", "action")).highest_item

    @property
    def n_items(self) -> int:
        """Count :attr:`Log.n_items`; where the log states it, items are checked as rows are handed out."""
        return stated_items(self.provenance, 0) or self.highest_item + 1

    def __len__(self) -> int:
        return int(self.surveyed.n_rows)

    def blocks(self) -> Iterator[Log]:
        """Implement :meth:`Log.blocks`."""
        return map(self._stated, self.source.blocks(_USERS, self.surveyed.with_gaps))

    def _stated(self, rows: Log) -> Log:
        """These rows, none of whose items is beyond those of the world that the log says it is of."""
        stated_items(self.provenance, rows.highest_item + 1)
        return rows

    def users(self) -> NDArray[np.int64]:
        """Implement :meth:`Log.users`."""
        return np.concatenate([np.zeros(0, np.int64), *(block.users() for block in self.blocks())])


def _log_of(table: Any, part: Path, first_row: int, with_gaps: frozenset[str]) -> Log:
    import pyarrow as pa

    for name in with_gaps:
        place = table.column_names.index(name)
        table = table.set_column(place, name, table.column(name).cast(pa.float64()))
    return Log.from_arrow(table.replace_schema_metadata(None), str(part), first_row=first_row)


def _checked(columns: Columns, first: int, last: int | None) -> Log:
    """A block whose first row is number ``first`` of the log, after the user ``last``."""
    log = Log(columns)
    if last is not None and int(columns["user"][0]) <= last:
        raise UserError(
            f"row {first + 1}: user is out of order: sort the rows by (user, step), got {int(columns['user'][0])}"
        )
    return log.validate(first_row=first + 1)


def _together(pieces: list[Columns]) -> Columns:
    if not pieces:
        return {}
    if len(pieces) == 1:
        return pieces[0]
    if len(pieces[0]["user"]) == 0:
        return _together(pieces[1:])
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def _highest(table: Any, name: str) -> int:
    import pyarrow.compute as pc

    highest = None
    if name in table.column_names:
        highest = pc.max(table.column(name)).as_py()
    if highest is None:
        return -1
    return int(highest)
