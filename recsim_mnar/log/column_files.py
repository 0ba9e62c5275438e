"""The columns of a log file that estimators read: Parquet, CSV or a folder of parts, checked as they come in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log.arrow import floats_of, integers_of, schema_of
from recsim_mnar.log.columns import Clusters, column
from recsim_mnar.log.files import SEPARATORS
from recsim_mnar.log.parts import Parts, read_table

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


def read_columns(
    path: str | Path,
    names: Sequence[str],
    *,
    cluster: str | None = None,
    reward: str = "reward",
    propensity: str = "propensity",
) -> LogColumns:
    """Read the bandit rows of a log file, only the columns that are needed.

    Args:
        path: as in :func:`recsim_mnar.estimators.off_policy.from_file.estimate_file`.
        names: number columns beside reward and propensity.
        cluster: column of user ids, None for ``user`` where there is such a column.
        reward: column of rewards.
        propensity: column of propensities.

    Raises:
        UserError: no such file or column, no rows, a missing cluster id, values that are not numbers.
    """
    parts = Parts.of(path)
    known = _column_names(parts.first)
    wanted = [reward, propensity, *names]
    for name in wanted if cluster is None else [*wanted, cluster]:
        if name not in known:
            raise UserError(
                f"{parts.first.name} has no column {name!r}; {nearest(name, known)}{_other_separator(known)}"
            )
    if cluster is None and "user" in known:
        cluster = "user"
    every = list(dict.fromkeys([*wanted, *([cluster] if cluster else []), *(["event"] if "event" in known else [])]))
    table = _read(parts, every, None if cluster in wanted else cluster)
    if table.num_rows == 0:
        raise UserError(f"{Path(path).name} holds no rows; give a log with at least one")
    rows = None
    if "event" in table.column_names:
        keep = bandit_rows(table.column("event"))
        if not keep.any():
            raise UserError(f"{Path(path).name} holds no bandit rows: {events_held(table.column('event'))}")
        if not keep.all():
            rows = np.flatnonzero(keep)
    columns = {name: _numbers(table.column(name), name, rows) for name in dict.fromkeys(wanted)}
    clusters = None if cluster is None else _clusters(table.column(cluster), cluster, rows)
    numbers = range(1, table.num_rows + 1) if rows is None else rows + 1
    return LogColumns(columns[reward], columns[propensity], clusters, {name: columns[name] for name in names}, numbers)


def _other_separator(known: Sequence[str]) -> str:
    """A hint where the header of a text table is one name with what may be other separators in it."""
    found = [sign for sign in (";", "\t", "|") if len(known) == 1 and sign in known[0]]
    if not found:
        return ""
    name = "tabs" if found[0] == "\t" else repr(found[0])
    return f" (its columns seem to be separated by {name}: write commas, or tabs in a file that ends in .tsv)"


def column_names(path: str | Path) -> list[str]:
    """Names of the columns of a log file, or of the first of its parts.

    Raises:
        UserError: no such file, or one that cannot be read.
    """
    return _column_names(Parts.of(path).first)


def provenance_of(path: str | Path) -> dict[str, Any]:
    """What a log file, or the first of its parts, says of how it was made; empty where it says nothing, as in CSV.

    Raises:
        UserError: no such file, or one that cannot be read.
    """
    from recsim_mnar.log.table import parsed_provenance

    part = Parts.of(path).first
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
        table = table.set_column(names.index(ids), ids, _whole(table.column(ids)))
    return table


def _whole(text: Any) -> Any:
    """Ids of a CSV file as int64 where all of them are such numbers (1.0 too, as pandas writes them), else as text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(text)
    try:
        return text.cast(pa.int64())
    except pa.ArrowInvalid:
        pass
    try:
        numbers = text.cast(pa.float64())
        exact = pc.all(pc.less(pc.abs(numbers), 2.0**53)).as_py()
        return numbers.cast(pa.int64()) if exact else text
    except pa.ArrowInvalid:
        return text


def bandit_rows(column: Any) -> NDArray[np.bool_]:
    """(n,) which rows are recommendations, from a pyarrow column of names (organic, bandit) or codes (0, 1)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        if not column.null_count:  # a look at each name instead of at each row
            marks = [(bandit_rows(chunk.dictionary), np.asarray(chunk.indices)) for chunk in column.chunks]
            return np.concatenate([np.zeros(0, bool), *(mark[indices] for mark, indices in marks)])
        column = column.cast(column.type.value_type)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    try:
        bandit = pc.equal(column, "bandit" if _is_text(column.type) else 1)
    except pa.ArrowNotImplementedError:  # dates, lists, ...
        return np.zeros(len(column), dtype=bool)
    return np.asarray(pc.fill_null(bandit, False).to_numpy(zero_copy_only=False), dtype=bool)


def events_held(column: Any) -> str:
    """Why a pyarrow column ``event`` marks no recommendation, in words."""
    import pyarrow as pa

    try:
        met = [value for value in column.unique().to_pylist() if value is not None]
    except pa.ArrowNotImplementedError:
        met = [column.type]
    unknown = [str(value) for value in met if value not in ("organic", 0)]
    if not unknown:
        return "its column 'event' says so, and nothing was recommended in it"
    listed = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
    return f"its column 'event' holds {listed}; write bandit (or 1) where something was recommended"


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _numbers(values: Any, name: str, rows: NDArray[np.int64] | None) -> NDArray[np.float64]:
    import pyarrow as pa

    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        if pa.types.is_null(kind):
            raise UserError(f"column {name!r} is empty; fill it in")
        raise UserError(f"column {name!r} must hold numbers, it holds {kind}; convert it first")
    if pa.types.is_float64(kind):
        return floats_of(values, rows)
    array = values.to_numpy()
    if array.dtype == object:  # booleans with nulls
        array = np.array([np.nan if value is None else float(value) for value in array])
    return column(array if rows is None else array[rows], name)


def _clusters(values: Any, name: str, rows: NDArray[np.int64] | None) -> Clusters | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if rows is not None and pa.types.is_integer(values.type) and not values.null_count:
        return Clusters.of(integers_of(values, rows), len(rows), name)
    absent = values.is_null()
    if _is_text(values.type):
        absent = pc.or_(absent, pc.fill_null(pc.equal(values, ""), True))
    missing = np.asarray(absent.to_numpy(zero_copy_only=False), dtype=bool)
    if missing.any():
        bad = np.flatnonzero(missing) if rows is None else rows[missing[rows]]
        if bad.size:
            raise UserError(
                f"column {name!r}, row {int(bad[0]) + 1} (from 1, below the header): the id is missing; give every "
                "row one"
            )
    if values.null_count and rows is not None:  # in rows that are left out: with them integers would become floats
        kept = np.zeros(len(values), dtype=bool)
        kept[rows] = True
        values, rows = values.filter(pa.array(kept)), None
    array = values.to_numpy()
    array = array if rows is None else array[rows]
    return Clusters.of(array, array.size, name)
