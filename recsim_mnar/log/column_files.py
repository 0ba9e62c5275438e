"""The columns of a log file that estimators read: Parquet, CSV or a folder of parts, checked as they come in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log.column_values import (
    EventWords,
    bandit_rows,
    clusters_of,
    events_held,
    numbers_of,
    whole_ids,
    whole_where_possible,
)
from recsim_mnar.log.columns import Clusters
from recsim_mnar.tables.arrow import schema_of
from recsim_mnar.tables.files import SEPARATORS
from recsim_mnar.tables.parts import Parts, read_blocks, read_table, rows_in

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class LogColumns:
    """The columns of a file that estimators read, bandit rows only.

    Attributes:
        reward: (n,).
        propensity: (n,).
        cluster: the user of each row, or None.
        others: further columns by name, (n,) each.
        numbers: (n,) row numbers in the file, from 1 below the header.
    """

    reward: NDArray[np.float64]
    propensity: NDArray[np.float64]
    cluster: Clusters | None
    others: dict[str, NDArray[np.float64]]
    numbers: NDArray[np.int64] | range


@dataclass(frozen=True)
class Block:
    """Bandit rows that follow one another in a file.

    Attributes:
        columns: (n,) numbers by name.
        user: (n,) int64 ids of the users, or None.
        numbers: (n,) row numbers in the file, from 1 below the header.
    """

    columns: dict[str, NDArray[np.float64]]
    user: NDArray[np.int64] | None
    numbers: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> Block:
        user = None if self.user is None else self.user[rows]
        return Block({name: values[rows] for name, values in self.columns.items()}, user, self.numbers[rows])

    @staticmethod
    def concat(blocks: Sequence[Block]) -> Block:
        """Rows of blocks one after another."""
        if len(blocks) == 1:
            return blocks[0]
        columns = {name: np.concatenate([each.columns[name] for each in blocks]) for name in blocks[0].columns}
        users = [each.user for each in blocks if each.user is not None]
        numbers = np.concatenate([each.numbers for each in blocks])
        return Block(columns, np.concatenate(users) if users else None, numbers)


@dataclass(frozen=True)
class LogFile:
    """A log file and the columns of it that are asked for; nothing is read before it is needed.

    Attributes:
        path: as in :func:`recsim_mnar.estimators.off_policy.from_file.estimate_file`.
        parts: its files.
        names: number columns beside reward and propensity.
        cluster: column of user ids; None where there is none.
        reward: column of rewards.
        propensity: column of propensities.
    """

    path: Path
    parts: Parts
    names: Sequence[str]
    cluster: str | None
    reward: str
    propensity: str

    @classmethod
    def open(
        cls,
        path: str | Path | Parts,
        names: Sequence[str],
        *,
        cluster: str | None = None,
        reward: str = "reward",
        propensity: str = "propensity",
    ) -> LogFile:
        """Find the columns of a log file.

        Args:
            path: see above, or the files that were found there.
            names: see above.
            cluster: column of user ids, None for ``user`` where there is such a column.
            reward: see above.
            propensity: see above.

        Raises:
            UserError: no such file or column.
        """
        parts = path if isinstance(path, Parts) else Parts.of(path)
        known = _column_names(parts.first)
        for name in [reward, propensity, *names, *([] if cluster is None else [cluster])]:
            if name not in known:
                raise UserError(
                    f"{parts.first.name} has no column {name!r}; {nearest(name, known)}{_other_separator(known)}"
                )
        if cluster is None and "user" in known:
            cluster = "user"
        return cls(parts.path, parts, names, cluster, reward, propensity)

    @property
    def _wanted(self) -> list[str]:
        return list(dict.fromkeys([self.reward, self.propensity, *self.names]))

    @property
    def _every(self) -> list[str]:
        events = ["event"] if "event" in _column_names(self.parts.first) else []
        return list(dict.fromkeys([*self._wanted, *([self.cluster] if self.cluster else []), *events]))

    def read(self) -> LogColumns:
        """All bandit rows.

        Raises:
            UserError: no rows, a missing cluster id, values that are not numbers, a file that cannot be read.
        """
        cluster = self.cluster
        table = _read(self.parts, self._every, None if cluster in self._wanted else cluster)
        if table.num_rows == 0:
            raise UserError(f"{self.path.name} holds no rows; give a log with at least one")
        rows = None
        if "event" in table.column_names:
            keep = bandit_rows(table.column("event"))
            if not keep.any():
                raise UserError(f"{self.path.name} holds no bandit rows: {events_held(table.column('event'))}")
            EventWords(self.path.name).meet(table.column("event"))
            if not keep.all():
                rows = np.flatnonzero(keep)
        columns = {name: numbers_of(table.column(name), name, rows) for name in self._wanted}
        clusters = None if cluster is None else clusters_of(table.column(cluster), cluster, rows)
        numbers = range(1, table.num_rows + 1) if rows is None else rows + 1
        others = {name: columns[name] for name in self.names}
        return LogColumns(columns[self.reward], columns[self.propensity], clusters, others, numbers)

    @property
    def provenance(self) -> dict[str, Any]:
        """As :func:`provenance_of`."""
        return _provenance_in(self.parts.first)

    @property
    def n_rows(self) -> int | None:
        """How many rows it holds, organic ones too; None where a text table does not say."""
        if any(part.suffix.lower() in SEPARATORS for part in self.parts.files):
            return None
        receipts = {} if self.parts.index is None else self.parts.index.receipts
        told = [receipts[part.name].rows if part.name in receipts else None for part in self.parts]
        return sum(rows_in(part) if rows is None else rows for part, rows in zip(self.parts, told, strict=True))

    @property
    def in_blocks(self) -> bool:
        """Whether it can be read in blocks: no text table, parts with columns of the same types, ids whole numbers."""
        import pyarrow as pa

        if any(part.suffix.lower() in SEPARATORS for part in self.parts.files):
            return False
        try:
            schemas = [schema_of(part) for part in self.parts.files]
            kinds = [[each.field(name).type for name in self._every] for each in schemas]
        except (OSError, ValueError, KeyError, pa.ArrowException):
            return False
        whole = self.cluster is None or pa.types.is_integer(schemas[0].field(self.cluster).type)
        return whole and all(kind == kinds[0] for kind in kinds)

    def blocks(self, rows: int) -> Iterator[Block]:
        """Bandit rows in their order, from some ``rows`` rows of the file at a time.

        Raises:
            UserError: as :meth:`read`.
        """
        first, any_bandit, events, words = 1, False, None, EventWords(self.path.name)
        for part in self.parts:
            for table in read_blocks(part, rows, self._every, held=self.parts.index is not None):
                if len(table):
                    block = self._block(table, first, words)
                    any_bandit |= len(block) > 0
                    events = table.column("event") if events is None and "event" in table.column_names else events
                    first += len(table)
                    if len(block):
                        yield block
        if first == 1:
            raise UserError(f"{self.path.name} holds no rows; give a log with at least one")
        if not any_bandit:
            raise UserError(f"{self.path.name} holds no bandit rows: {events_held(events)}")

    def _block(self, table: Any, first: int, words: EventWords) -> Block:
        """The bandit rows of a table whose first row has this number."""
        rows = None
        if "event" in table.column_names:
            keep = bandit_rows(table.column("event"))
            words.meet(table.column("event"), first)
            rows = None if keep.all() else np.flatnonzero(keep)
        columns = {name: numbers_of(table.column(name), name, rows) for name in self._wanted}
        numbers = np.arange(first, first + len(table)) if rows is None else rows + first
        user = None if self.cluster is None else whole_ids(table.column(self.cluster), self.cluster, rows, first)
        return Block(columns, user, numbers)


def read_columns(
    path: str | Path,
    names: Sequence[str],
    *,
    cluster: str | None = None,
    reward: str = "reward",
    propensity: str = "propensity",
) -> LogColumns:
    """Read the bandit rows of a log file, only the columns that are needed.

    Arguments and errors as :meth:`LogFile.open` and :meth:`LogFile.read`.
    """
    return LogFile.open(path, names, cluster=cluster, reward=reward, propensity=propensity).read()


def _other_separator(known: Sequence[str]) -> str:
    """A hint where the header of a text table is one name with what may be other separators in it."""
    found = [sign for sign in (";", "\t", "|") if len(known) == 1 and sign in known[0]]
    if not found:
        return ""
    name = "tabs" if found[0] == "\t" else repr(found[0])
    return f" (its columns seem to be separated by {name}: write commas, or tabs in a file that ends in .tsv)"


def column_names(path: str | Path | Parts) -> list[str]:
    """Names of the columns of a log file, or of the first of its parts.

    Raises:
        UserError: no such file, or one that cannot be read.
    """
    return _column_names((path if isinstance(path, Parts) else Parts.of(path)).first)


def provenance_of(path: str | Path | Parts) -> dict[str, Any]:
    """What a log file, or the first of its parts, says of how it was made; empty where it says nothing, as in CSV.

    Raises:
        UserError: no such file, or one that cannot be read.
    """
    return _provenance_in((path if isinstance(path, Parts) else Parts.of(path)).first)


def _provenance_in(part: Path) -> dict[str, Any]:
    from recsim_mnar.log.table import parsed_provenance

    if part.suffix.lower() in SEPARATORS:
        return {}
    import pyarrow as pa

    try:
        return parsed_provenance(schema_of(part).metadata)
    except UserError as error:
        raise UserError(f"{part.name}: {error}") from None
    except (OSError, ValueError, pa.ArrowException):
        raise UserError(f"{part.name} cannot be read as {part.suffix.lower()[1:]}; check the file") from None


def _column_names(part: Path) -> list[str]:
    import csv

    import pyarrow as pa

    try:
        if part.suffix.lower() not in SEPARATORS:
            return list(schema_of(part).names)
        with part.open(encoding="utf-8-sig", newline="") as lines:
            return [name.strip() for name in next(csv.reader(lines, delimiter=SEPARATORS[part.suffix.lower()]), [])]
    except (OSError, ValueError, csv.Error, pa.ArrowException):
        raise UserError(f"{part.name} cannot be read as {part.suffix.lower()[1:]}; check the file") from None


def _read(parts: Parts, names: list[str], ids: str | None) -> pa.Table:
    """The columns ``names`` of all parts; ``ids`` is one whose values are compared, never computed with."""
    import pyarrow as pa

    tables = []
    for part in parts:
        columns = _column_names(part)
        for name in names:
            if name not in columns:
                raise UserError(f"part {part.name} has no column {name!r}, which the other parts have")
            if columns.count(name) > 1:
                raise UserError(f"column {name!r} appears twice in the header of {part.name}; keep or rename one")
        try:
            if part.suffix.lower() not in SEPARATORS:
                tables.append(read_table(part, names, held=parts.index is not None))
            else:
                from pyarrow import csv

                delimiter = SEPARATORS[part.suffix.lower()]
                types = {} if ids is None else {ids: pa.string()}  # a number too large for int64 would become a double
                tables.append(
                    csv.read_csv(
                        part,
                        read_options=csv.ReadOptions(column_names=columns, skip_rows=1),
                        parse_options=csv.ParseOptions(delimiter=delimiter),
                        convert_options=csv.ConvertOptions(
                            include_columns=names, column_types=types, strings_can_be_null=True
                        ),
                    )
                )
        except UserError:
            raise
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{part.name} cannot be read: {reason}; check the file") from None
    try:
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        raise UserError("the parts of the log hold columns of different types; write them with one schema") from None
    if ids is not None and parts.files[0].suffix.lower() in SEPARATORS:
        table = table.set_column(names.index(ids), ids, whole_where_possible(table.column(ids)))
    return table
