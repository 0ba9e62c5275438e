"""Read a log in Parquet or Arrow files in blocks of whole users, in memory that does not grow with it."""

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
"""Rows decoded at a time."""
_USERS = 4096
"""Users per block of :class:`FiledLog`."""
Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Survey:
    """Facts about a log in files, from a first pass over a few of its columns.

    Attributes:
        n_rows: number of rows, organic and bandit.
        n_users: number of users; 0 if the column of users was not read.
        highest_item: the largest item or action; -1 if there is none.
        all_bandit: True if no row is organic.
        shared_users: number of users that also occur in another log.
        with_gaps: columns of whole numbers with missing values.
        slate_size: items per slate; 1 if rows have no positions.
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
    """A log in Parquet or Arrow files, which can be read in blocks.

    Attributes:
        path: path of the folder or file, as the user named it.
        parts: the files.
        read_rows: number of rows that are decoded at a time.
    """

    path: Path
    parts: Parts
    read_rows: int = READ_ROWS

    @classmethod
    def open(cls, path: str | os.PathLike[str], read_rows: int = READ_ROWS) -> LogBlocks | None:
        """Open a log, without reading rows.

        Returns:
            the log; None if its rows must be read all at once, as in text tables and files with columns of other types.

        Raises:
            UserError: nothing there, or not the files that were written.
        """
        parts = Parts.of(path)
        if any(is_text_file(part) for part in parts.files):
            return None
        blocks = cls(parts.path, parts, read_rows)
        if blocks._are_independent():
            return blocks
        return None

    def _are_independent(self) -> bool:
        """Return True if blocks can be read independently of each other, without conversions that need all rows.

        This takes parts with the same columns and types, in which ids and columns beyond the schema are numbers: ids
        that are text would be numbered differently in each block.
        """
        import pyarrow as pa

        try:
            schemas = [schema_of(file) for file in self.parts.files]
        except (OSError, ValueError, pa.ArrowException):
            return False
        types = [dict(zip(part_schema.names, part_schema.types, strict=True)) for part_schema in schemas]
        for name, kind in types[0].items():
            must_be_number = name in ("user", "item", "action") or name not in (*schema.BY_NAME, *schema.OPTIONAL)
            if must_be_number and not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                return False
        return all(types_of_part == types[0] for types_of_part in types)

    @property
    def provenance(self) -> Provenance:
        """Provenance of the log, which the first part has in its metadata."""
        return provenance_of(self.parts)

    def survey(
        self,
        others: NDArray[np.int64] | None = None,
        columns: Sequence[str] = ("user", "event", "item", "action", "position"),
    ) -> Survey:
        """Read some columns of all rows, and return facts about the log.

        Args:
            others: users of another log, to be counted if this one has them, too; None for no such count.
            columns: columns to read; without ``user`` no users are counted.

        Raises:
            UserError: a file that cannot be read, or is no log.
        """
        import pyarrow as pa

        kinds = schema_of(self.parts.files[0])
        integral_columns = [
            name
            for name, kind in zip(kinds.names, kinds.types, strict=True)
            if name not in schema.BY_NAME and name not in schema.OPTIONAL and pa.types.is_integer(kind)
        ]
        n_rows = n_users = n_shared = n_shown = 0
        highest = last_user = -1
        highest_position = 0
        gaps = set()
        for table, _, _ in self._tables([name for name in (*columns, *integral_columns) if name in kinds.names]):
            n_rows += len(table)
            if "user" in table.column_names and len(table):
                users = table.column("user").to_numpy()
                new_users = users[user_begins(users)]
                if n_users and new_users[0] == last_user:  # this user's first rows ended the table before
                    new_users = new_users[1:]
                last_user = users[-1]
                n_users += len(new_users)
                if others is not None:
                    n_shared += int(np.isin(new_users, others).sum())
            if "event" in table.column_names:
                n_shown += int(Events.of(table.column("event")).shown.sum())
            highest = max(highest, _highest(table, "item"), _highest(table, "action"))
            highest_position = max(highest_position, _highest(table, "position"))
            gaps |= {name for name in integral_columns if table.column(name).null_count}
        all_bandit = n_shown == n_rows
        return Survey(
            n_rows=n_rows,
            n_users=n_users,
            highest_item=highest,
            all_bandit=all_bandit,
            shared_users=n_shared,
            with_gaps=frozenset(gaps),
            slate_size=highest_position + 1,
        )

    def blocks(self, users: int, with_gaps: frozenset[str] = frozenset()) -> Iterator[Log]:
        """Yield all rows, checked, in blocks of whole users.

        Args:
            users: number of users per block; the last block may have fewer.
            with_gaps: columns of whole numbers with missing values. They become floats in every block, also in blocks
                without a missing value, so that the types of blocks are equal.

        Raises:
            UserError: a file that cannot be read, or the first row that breaks a rule of the schema.
        """
        pending: list[Columns] = []  # rows that were read and not yet yielded
        done = 0  # number of rows yielded
        last_user = None
        for log in self._logs(with_gaps):
            pending.append(log.columns)
            columns = _concatenated(pending)
            starts = user_starts(columns["user"])
            # Number of users in full blocks; the last user read does not count, as more of its rows may follow.
            n_whole = max(len(starts) - 1, 0) // users * users
            cut = 0  # number of rows of ``columns`` yielded
            for first in range(0, n_whole, users):
                begin = cut
                cut = int(starts[first + users])
                yield _validated({name: values[begin:cut] for name, values in columns.items()}, done + begin, last_user)
                last_user = int(columns["user"][cut - 1])
            pending = [columns]
            if cut:  # a copy, so that the yielded rows can be freed
                pending = [{name: values[cut:].copy() for name, values in columns.items()}]
            done += cut
        columns = _concatenated(pending)
        if len(columns.get("user", ())):
            yield _validated(columns, done, last_user)

    def _logs(self, with_gaps: frozenset[str]) -> Iterator[Log]:
        """Yield all rows in the pieces in which they are decoded, unchecked, with the columns in the same order."""
        import pyarrow as pa

        names: list[str] = []
        for table, part, first in self._tables(None):
            for name in with_gaps:
                place = table.column_names.index(name)
                table = table.set_column(place, name, table.column(name).cast(pa.float64()))
            # Without the metadata: the provenance would be parsed again for every piece.
            log = Log.from_arrow(table.replace_schema_metadata(None), str(part), first_row=first)
            if not names:
                names = list(log.columns)
            yield Log({name: log.columns[name] for name in names})

    def _tables(self, names: list[str] | None) -> Iterator[tuple[Any, Path, int]]:
        """Yield the rows as pyarrow tables of at most ``read_rows`` rows.

        Args:
            names: columns to read; None for all.

        Yields:
            the table, the path of its part, and the number of its first row in the part, from 1.
        """
        for part in self.parts:
            first = 1
            for table in read_blocks(part, self.read_rows, names, verified=self.parts.index is not None):
                yield table, part, first
                first += len(table)


class FiledLog(Log):
    """Log whose rows stay in its files: :meth:`blocks` reads them block by block, reading a column loads all of them.

    Args:
        source: the log's files.

    Raises:
        UserError: a file that cannot be read, or is no log; rows are checked as they are read.
    """

    source: LogBlocks
    surveyed: Survey

    def __init__(self, source: LogBlocks) -> None:
        # The base class is frozen, so attributes are set in __dict__; its __post_init__ would read the columns.
        vars(self).update(source=source, provenance=source.provenance, surveyed=source.survey(columns=()))

    @staticmethod
    def open_or_read(path: str | os.PathLike[str]) -> Log:
        """Return a log that stays in its files if they can be read in blocks, else one that is read and checked now."""
        source = LogBlocks.open(path)
        if source is None:
            return Log.read(path).validate(first_row=1)
        return FiledLog(source)

    @functools.cached_property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Columns of all rows, which are read and checked on first use."""
        return self._check_items(Log.read(self.source.path).validate(first_row=1)).columns

    @functools.cached_property
    def highest_item(self) -> int:
        """Largest item viewed or recommended, -1 without any; only the columns of items and actions are read."""
        return self.source.survey(columns=("item", "action")).highest_item

    @property
    def n_items(self) -> int:
        """Number of items as in :attr:`Log.n_items`; no row is read if the provenance states it.

        That no item is beyond it is then checked when blocks are read.
        """
        return stated_items(self.provenance, 0) or self.highest_item + 1

    def __len__(self) -> int:
        return int(self.surveyed.n_rows)

    def blocks(self) -> Iterator[Log]:
        """Implement :meth:`Log.blocks`."""
        return map(self._check_items, self.source.blocks(_USERS, self.surveyed.with_gaps))

    def _check_items(self, rows: Log) -> Log:
        """Return the rows; raise UserError if they have an item beyond the number that the provenance states."""
        stated_items(self.provenance, rows.highest_item + 1)
        return rows

    def users(self) -> NDArray[np.int64]:
        """Implement :meth:`Log.users`."""
        return np.concatenate([np.zeros(0, np.int64), *(block.users() for block in self.blocks())])


def _validated(columns: Columns, first: int, last: int | None) -> Log:
    """Return a block of rows as a log, checked by every rule of the schema.

    Args:
        columns: columns of the block.
        first: index of its first row in the whole log, for messages.
        last: user of the row before it; None for the first block.

    Raises:
        UserError: the first row that breaks a rule; users must ascend from block to block, too.
    """
    log = Log(columns)
    if last is not None and int(columns["user"][0]) <= last:
        raise UserError(
            f"row {first + 1}: user is out of order: sort the rows by (user, step), got {int(columns['user'][0])}"
        )
    return log.validate(first_row=first + 1)


def _concatenated(pieces: list[Columns]) -> Columns:
    """Concatenate pieces of a log column by column; the result of a single piece is no copy.

    Empty pieces are skipped, except a last one, which gives the columns and types if there are no rows.
    """
    pieces = [piece for piece in pieces[:-1] if len(piece["user"])] + pieces[-1:]
    if not pieces:
        return {}
    if len(pieces) == 1:
        return pieces[0]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def _highest(table: Any, name: str) -> int:
    """Return the largest value of a column of a pyarrow table; -1 without such a column or values."""
    import pyarrow.compute as pc

    if name not in table.column_names:
        return -1
    highest = pc.max(table.column(name)).as_py()
    if highest is None:
        return -1
    return int(highest)
