"""Columns of numbers and of ids as they arrive, made into what kernels read; one clear line for what cannot be read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.rows import user_numbers, user_starts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
RowNumbers = NDArray[np.integer] | range | None
"""Numbers of rows in a file, from 1 below the header; None for rows of an array."""


def column(values: Any, name: str, *, rows: int | None = None) -> Floats:
    """Convert values to a contiguous (n,) float64 array, without a copy if they are one already.

    Args:
        values: a sequence of numbers, an array, a pandas Series or a pyarrow array.
        name: name of the column, for messages.
        rows: required length; None for any.

    Raises:
        UserError: values that are no real numbers, masked, not one-dimensional, or of another length.
    """
    try:
        if not getattr(getattr(values, "dtype", None), "kind", None):  # no array, or one without NumPy's kinds of types
            values = np.asarray(values)
        real = values.dtype.kind not in "cmM"  # complex numbers, durations and dates would be converted
        array = values
        if real:
            array = np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"column {name!r} must hold numbers{_first_text(values)}") from None
    if not real:
        raise UserError(f"column {name!r} must hold real numbers, it holds {values.dtype}: give plain numbers")
    if np.ndim(values) != 1:
        raise UserError(f"column {name!r} must be one-dimensional, got shape {np.shape(values)}")
    if rows is not None and array.size != rows:
        raise UserError(f"column {name!r} has {array.size} rows and 'reward' has {rows}; give one value per row")
    refuse_masked(values, name)
    return array


def _first_text(values: Any) -> str:
    """Return the end of a message that names the first entry that is not a number; "" if no entry can be named."""
    if not isinstance(values, (list, tuple)) and np.ndim(values) != 1:
        return ""
    for row, value in enumerate(values):
        try:
            float(value)
        except (TypeError, ValueError):
            return f": row {row} (counted from 0) is {str(value)[:30]!r}"
        except OverflowError:
            return f": row {row} (counted from 0) is too large"
    return ""


def refuse_masked(values: Any, name: str) -> None:
    """Raise UserError if some values are masked: conversion to a plain array would drop the mask and use the values."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        row = int(np.argmax(np.ma.getmaskarray(values)))
        raise UserError(f"column {name!r}, row {row} (counted from 0): the value is masked; drop the row or fill it in")


def finite_column(values: Any, name: str, rows: int, numbers: RowNumbers = None) -> Floats:
    """Convert a column as :func:`column` does, and check that every value is finite.

    Args:
        values: the column.
        name: name of the column, for messages.
        rows: required length.
        numbers: row numbers in the file from which it was read, for messages; None for arrays.

    Raises:
        UserError: as :func:`column`, or a value that is not finite.
    """
    array = column(values, name, rows=rows)
    refuse_rows(~np.isfinite(array), array, name, "is not a finite number; drop the row or correct the value", numbers)
    return array


def row_in_words(row: int, numbers: RowNumbers = None) -> str:
    """Describe the position of a row for a message: by its number in the file if there is one, else by its index."""
    if numbers is None:
        return f"row {row} (counted from 0)"
    return f"row {int(numbers[row])} (from 1, below the header)"


def refuse_rows(bad: NDArray[np.bool_], values: Floats, name: str, why: str, numbers: RowNumbers = None) -> None:
    """Raise UserError for the first bad row of a column, if any is bad.

    Args:
        bad: (n,) True for rows with an invalid value.
        values: (n,) values of the column.
        name: name of the column.
        why: end of the message, after the value.
        numbers: row numbers in the file; None for arrays.
    """
    if bad.any():
        row = int(np.argmax(bad))
        raise UserError(f"column {name!r}, {row_in_words(row, numbers)}: {values[row]:g} {why}")


@dataclass(frozen=True)
class Clusters:
    """Grouping of rows into clusters, such as users, within which they may be dependent.

    Attributes:
        codes: (n,) int64, equal for rows of the same cluster.
        order: (n,) stable permutation after which the rows of each cluster are consecutive; None if they are already.
        again: (n,) True for rows that repeat an earlier row of their cluster; None if repetitions were not looked for.
    """

    codes: Ints
    order: Ints | None
    again: NDArray[np.bool_] | None = None

    @staticmethod
    def of(values: Any, rows: int, name: str = "cluster") -> Clusters | None:
        """Group rows by ids.

        Args:
            values: (n,) ids, numbers or text in any order; or Clusters of n rows, which are returned; None for no
                clusters.
            rows: number of rows n.
            name: name of the column, for messages.

        Returns:
            the clusters; None if ``values`` is None.

        Raises:
            UserError: another length, or a missing id.
        """
        if values is None:
            return None
        if isinstance(values, Clusters):
            if values.codes.size != rows:
                raise UserError(f"{name!r} has clusters of {values.codes.size} rows and 'reward' has {rows} rows")
            return values
        array = np.asarray(values)
        if array.shape != (rows,):
            raise UserError(f"column {name!r} has shape {array.shape} and 'reward' has {rows} rows; give one id a row")
        refuse_masked(values, name)
        if array.dtype.kind in "iub":
            codes = np.ascontiguousarray(array).astype(np.int64, copy=False)
            if rows < 2 or bool(np.all(codes[1:] >= codes[:-1])):  # ascending: needs no sort
                return Clusters(codes, order=None)
        else:
            codes = _factorize(array, name)
        order = np.argsort(codes, kind="stable")
        if np.array_equal(order, np.arange(rows)):
            return Clusters(codes, order=None)  # rows are in order already, and need not be copied
        return Clusters(codes, order)

    def at(self, rows: NDArray[Any]) -> Clusters:
        """Return the clusters of some rows, given by index or mask."""
        codes = self.codes[rows]
        clusters = Clusters.of(codes, codes.size)
        assert clusters is not None
        if self.again is None:
            return clusters
        return replace(clusters, again=self.again[rows])

    def together(self, values: NDArray[Any]) -> NDArray[Any]:
        """Reorder the rows of ``values`` (n, ...) such that those of each cluster are consecutive."""
        if self.order is None:
            return values
        return values[self.order]

    def first_rows(self) -> Ints:
        """Return the row in which each cluster first appears, one per cluster in the order of :func:`user_sums`."""
        starts = user_starts(self.together(self.codes))
        if self.order is None:
            return starts
        return self.order[starts]

    @property
    def number(self) -> int:
        """Number of clusters."""
        return self.dense()[1]

    def dense(self) -> tuple[Ints, int]:
        """Number the k clusters 0 .. k - 1.

        Returns:
            numbers: (n,) number of each row's cluster, rows in their original order.
            k: number of clusters.
        """
        numbers = user_numbers(self.together(self.codes))
        k = 0
        if numbers.size:
            k = int(numbers[-1]) + 1
        return self.back(numbers), k

    def back(self, together: NDArray[Any]) -> NDArray[Any]:
        """Return values (n, ...) to the original order of rows: the inverse of :meth:`together`."""
        if self.order is None:
            return together
        original = np.empty_like(together)
        original[self.order] = together
        return original


def user_sums(values: Floats, clusters: Clusters | None) -> Floats:
    """Sum ``values`` (n,) over each cluster, in the order of :meth:`Clusters.together`; None: each row is a cluster."""
    if clusters is None:
        return values
    starts = user_starts(clusters.together(clusters.codes))
    return np.add.reduceat(clusters.together(values), starts)


def _factorize(array: NDArray[Any], name: str) -> Ints:
    """Return one integer code per distinct id, (n,), for ids that are floats, text or other objects.

    Raises:
        UserError: objects that are no ids, such as lists, or a missing id.
    """
    if array.dtype.kind == "f":
        missing = np.isnan(array)
        codes = np.unique(array, return_inverse=True)[1].astype(np.int64)
    else:
        import pandas as pd

        try:
            result, ids = pd.factorize(array)
        except TypeError:  # dicts, lists
            raise UserError(
                f"column {name!r} must hold ids, numbers or text; it holds {type(array[0]).__name__}"
            ) from None
        codes = result.astype(np.int64)
        missing = codes < 0  # pandas' code of None and NaN
        if array.dtype.kind in "OUT":  # objects and both of NumPy's types of text: an empty text is no id
            missing |= np.isin(codes, np.flatnonzero(np.asarray(ids, dtype=object) == ""))
    if missing.any():
        row = int(np.argmax(missing))
        raise UserError(f"column {name!r}, row {row} (counted from 0): the id is missing; give every row one")
    return codes


@dataclass(frozen=True)
class LogColumns:
    """Columns of a file that estimators read, bandit rows only.

    Attributes:
        reward: (n,) observed rewards.
        propensity: (n,) probabilities of the logged actions.
        cluster: grouping of the rows by user; None without a column of users.
        others: further columns by name, (n,) each.
        numbers: (n,) row numbers in the file, from 1 below the header.
    """

    reward: NDArray[np.float64]
    propensity: NDArray[np.float64]
    cluster: Clusters | None
    others: dict[str, NDArray[np.float64]]
    numbers: NDArray[np.int64] | range
