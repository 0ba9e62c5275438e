"""Values of one column of a table, as estimators take them: numbers, ids of users, and which rows are bandit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.columns import Clusters, column
from recsim_mnar.tables.arrow import floats_of, integers_of, is_text


def numbers_of(values: Any, name: str, rows: NDArray[np.int64] | None) -> NDArray[np.float64]:
    """Numbers (n,) of a pyarrow column at these rows of it, all where ``rows`` is None.

    Raises:
        UserError: it holds none.
    """
    import pyarrow as pa

    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        if pa.types.is_null(kind):
            raise UserError(f"column {name!r} is empty; fill it in")
        raise UserError(
            f"column {name!r} must hold numbers, it holds {kind}{_first_other(values)}: write numbers there"
        )
    if pa.types.is_float64(kind):
        return floats_of(values, rows)
    array = values.to_numpy()
    if array.dtype == object:  # booleans with nulls
        array = np.array([np.nan if value is None else float(value) for value in array])
    return column(array if rows is None else array[rows], name)


def _first_other(values: Any) -> str:
    """Row and value of the first entry of a pyarrow column that is no number."""
    for row, value in enumerate(values):
        text = value.as_py()
        if text is None:
            continue
        try:
            float(text)
        except (TypeError, ValueError):
            shown = str(text)
            return f" (row {row + 1:,}, from 1 below the header: {shown[:27] + '...' if len(shown) > 30 else shown})"
    return ""


def clusters_of(values: Any, name: str, rows: NDArray[np.int64] | None) -> Clusters | None:
    """What makes rows dependent, by a pyarrow column at these rows of it.

    Raises:
        UserError: a row has none.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if rows is not None and pa.types.is_integer(values.type) and not values.null_count:
        return Clusters.of(integers_of(values, rows), len(rows), name)
    absent = values.is_null()
    if is_text(values.type):
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


def whole_ids(values: Any, name: str, rows: NDArray[np.int64] | None, first: int) -> NDArray[np.int64]:
    """Whole-number ids (n,) of a pyarrow column at these rows of it, the first of which has number ``first``."""
    if values.null_count:
        missing = np.flatnonzero(np.asarray(values.is_null().to_numpy(zero_copy_only=False), dtype=bool))
        bad = missing if rows is None else np.intersect1d(missing, rows)
        if bad.size:
            raise UserError(
                f"column {name!r}, row {int(bad[0]) + first} (from 1, below the header): the id is missing; give every "
                "row one"
            )
        values = values.fill_null(0)
    found = values.to_numpy() if rows is None else integers_of(values, rows)
    return np.ascontiguousarray(found).astype(np.int64, copy=False)


def whole_where_possible(text: Any) -> Any:
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


_WORDS = ("organic", "bandit", 0, 1, None)


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
        bandit = pc.equal(column, "bandit" if is_text(column.type) else 1)
    except pa.ArrowNotImplementedError:  # dates, lists, ...
        return np.zeros(len(column), dtype=bool)
    return np.asarray(pc.fill_null(bandit, False).to_numpy(zero_copy_only=False), dtype=bool)


@dataclass
class EventWords:
    """Words of a column ``event``, met block by block: others beside organic and bandit could be either.

    A column that holds neither marks no recommendation, which :func:`events_held` says.

    Attributes:
        source: the log's name.
    """

    source: str
    _known: bool = False
    _other: tuple[Any, int] | None = None

    def meet(self, column: Any, first: int = 1) -> None:
        """Look at a pyarrow column whose first row has this number in the file.

        Raises:
            UserError: it holds other words, and organic or bandit stand in it or stood before it.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            words = column.unique().to_pylist()
        except pa.ArrowNotImplementedError:  # tables, lists, ...
            return
        others = [value for value in words if value not in _WORDS]
        self._known |= len(others) < len(words)
        if others and self._other is None:
            plain = column.cast(column.type.value_type) if hasattr(column.type, "value_type") else column
            self._other = others[0], pc.index(plain, others[0]).as_py() + first
        if self._known and self._other is not None:
            word, row = self._other
            raise UserError(
                f"{self.source}: column 'event', row {row:,} (from 1, below the header): {word!r} is neither organic "
                "nor bandit: write one of them"
            )


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
