"""The columns of a log, each declared once: name, type, what stands for null, meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.tables.values import as_dictionary

SCHEMA_VERSION = 5
"""Raised when the same parameters and seed give other bytes, or when a column changes its meaning.

2, 3: in the sessions world with uneven popularity (sigma_mu_organic >= 1), 200 items or more and at most ten factors,
views are drawn in cheaper ways: 2 weighs the most popular items at every view, 3 keeps the others in two more tiers.

4: the ratings world's default marginals have four digits; campaigns share no draws, whatever the lengths of their
lists; where acceptance depends on affinity, its mean over items is 0 in every catalogue.
"""

ORGANIC = 0
BANDIT = 1
EVENTS = ("organic", "bandit")
"""Names of the event codes: ``EVENTS[0]`` is organic, ``EVENTS[1]`` bandit."""


@dataclass(frozen=True)
class Column:
    """A column of a log.

    Attributes:
        name: name of the column, in memory and on disk.
        dtype: NumPy type in memory; on disk it is little-endian.
        null: value that stands for null in memory, where the disk has Parquet's null; None for a column without nulls.
        meaning: description in one line.
    """

    name: str
    dtype: np.dtype
    null: float | int | None
    meaning: str


def as_type(values: Any, dtype: np.dtype, name: str) -> NDArray[Any]:
    """Convert values to a contiguous array of ``dtype``, to integers only if that changes no value.

    Args:
        values: the values, of any type that NumPy can convert.
        dtype: type of the result.
        name: name of the column, for messages.

    Raises:
        UserError: the values are no such numbers; a single value that is not whole is named with its row.
    """
    array = np.asarray(values)
    if array.dtype == dtype:
        return np.ascontiguousarray(array)
    required = "numbers"
    if dtype.kind == "i":
        required = "whole numbers"
    refusal = UserError(
        f"{name} must hold {required} ({dtype}), it holds {array.dtype}; number or convert the values first"
    )
    if array.dtype.kind in "cmM":  # complex numbers, durations and dates, which NumPy would convert
        raise refusal
    try:
        with np.errstate(invalid="ignore"):  # NaN as an integer: refused below
            typed = np.ascontiguousarray(array, dtype=dtype)
    except (TypeError, ValueError, OverflowError):
        raise refusal from None
    if dtype.kind == "i" and array.dtype.kind in "iufO" and not np.array_equal(typed, array):
        row = int(np.flatnonzero(typed != array)[0])
        raise UserError(f"row {row}: {name} must be a whole number ({dtype}), got {array[row]}")
    return typed


def event_codes(values: Any, source: str, first_row: int = 1) -> NDArray[Any]:
    """Convert a pyarrow column of event names to their codes, (n,) int8.

    Args:
        values: the column, of text or a dictionary of text.
        source: name of its origin, for messages.
        first_row: number of the first row, for messages.

    Raises:
        UserError: a name that is neither ``organic`` nor ``bandit``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        encoded = as_dictionary(values)  # each name is looked up once, not each row
        code_of_name = pc.index_in(encoded.dictionary.cast(pa.string()), value_set=pa.array(EVENTS))
    except pa.ArrowException:
        raise UserError(f"{source}: column 'event' ({values.type}) must hold organic or bandit") from None
    codes = code_of_name.take(encoded.indices)
    if codes.null_count:
        row = int(np.flatnonzero(codes.is_null().to_numpy(zero_copy_only=False))[0])
        got = repr(values[row].as_py())
        raise UserError(f"{source}: row {row + first_row}: event must be organic or bandit, got {got}")
    return np.asarray(codes, np.int8)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view of an array; the array itself stays writable for its owner."""
    view = array.view()
    view.flags.writeable = False
    return view


COLUMNS: tuple[Column, ...] = (
    Column("user", np.dtype(np.int64), None, "user"),
    Column("step", np.dtype(np.int32), None, "position in the user's life, from 0"),
    Column("time", np.dtype(np.float64), None, "clock"),
    Column("event", np.dtype(np.int8), None, "organic (0) or bandit (1)"),
    Column("item", np.dtype(np.int32), -1, "organic: item viewed"),
    Column("action", np.dtype(np.int32), -1, "bandit: item recommended"),
    Column("propensity", np.dtype(np.float64), np.nan, "bandit: probability with which the logging policy chose it"),
    Column(
        "reward", np.dtype(np.float64), np.nan, "bandit: observed reward; organic: the rating, where views are ratings"
    ),
)
OPTIONAL: dict[str, Column] = {
    "observation_propensity": Column(
        "observation_propensity",
        np.dtype(np.float64),
        np.nan,
        "organic: probability with which this rating was revealed, where it is known",
    ),
    "slate": Column("slate", np.dtype(np.int32), -1, "bandit: number of the slate among the user's, from 0"),
    "position": Column("position", np.dtype(np.int32), -1, "bandit: place in the slate, from 0 at the top"),
    "conditional_propensity": Column(
        "conditional_propensity",
        np.dtype(np.float64),
        np.nan,
        "bandit: probability of this item at this place, given the items above it",
    ),
    "slate_propensity": Column(
        "slate_propensity", np.dtype(np.float64), np.nan, "bandit: probability of the whole slate in this order"
    ),
    "set_propensity": Column(
        "set_propensity", np.dtype(np.float64), np.nan, "bandit: probability of the slate's items in any order"
    ),
}
"""Columns that a log may have besides :data:`COLUMNS`, by name."""

OF_RANKINGS: tuple[str, ...] = ("slate", "position", "conditional_propensity", "slate_propensity", "set_propensity")
"""Further columns of a log of slates, one row per place. Its ``propensity`` is the probability of the item there."""

NAMES: tuple[str, ...] = tuple(column.name for column in COLUMNS)
BY_NAME: dict[str, Column] = {column.name: column for column in COLUMNS}
