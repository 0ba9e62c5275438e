"""What loaders of purchase logs return: who was recommended and bought what, period by period."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.purchases.exposures import Exposures

Floats = NDArray[np.float64]
RECOMMENDED, PURCHASED = 1, 2


@dataclass(frozen=True)
class Counts:
    """Sums over periods, from which a semi-synthetic world is smoothed.

    Attributes:
        visits: (U,) periods in which the user was present, V.
        treatments: (U, I) in which the item was recommended, T.
        purchases: (U, I) in which it was bought, Y.
        treated_purchases: (U, I) in which it was both, TY.
    """

    visits: Floats
    treatments: NDArray[np.float32]
    purchases: NDArray[np.float32]
    treated_purchases: NDArray[np.float32]


@dataclass(frozen=True)
class PurchaseHistory:
    """A purchase log after its filters.

    Attributes:
        name: of the data.
        cells: a sparse (U, I) uint8 matrix a period: 1 recommended, 2 purchased, 3 both.
        present: (U, P) whether the user was there in the period.
        users, items, periods: (U,), (I,), (P,) names in the source.
        notes: how this reading of the data differs from the paper's.
    """

    name: str
    cells: list[Any]
    present: NDArray[np.bool_]
    users: NDArray[Any]
    items: NDArray[Any]
    periods: NDArray[Any]
    notes: tuple[str, ...] = ()

    def exposures(self, propensities: Any = None) -> Exposures:
        """The cells as exposures; ``propensities`` as there."""
        sizes = [matrix.nnz for matrix in self.cells]
        user, item = np.empty(sum(sizes), np.int64), np.empty(sum(sizes), np.int32)
        code, time = np.empty(sum(sizes), np.uint8), np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        for matrix, first in zip(self.cells, itertools.accumulate([0, *sizes]), strict=False):
            matrix.sort_indices()
            rows = slice(first, first + matrix.nnz)
            user[rows] = np.repeat(np.arange(len(self.users)), np.diff(matrix.indptr))
            item[rows], code[rows] = matrix.indices, matrix.data
        return Exposures(
            user, item, time, (code & RECOMMENDED) > 0, (code & PURCHASED) > 0,
            len(self.users), len(self.items), len(self.periods), propensities, {"data": self.name},
        )  # fmt: skip

    def counts(self) -> Counts:
        """Sums over all periods."""
        sums = np.zeros((3, len(self.users), len(self.items)), np.float32)
        for matrix in self.cells:
            dense = matrix.toarray()
            sums[0] += dense & RECOMMENDED
            sums[1] += (dense & PURCHASED) > 0
            sums[2] += dense == RECOMMENDED | PURCHASED
        return Counts(self.present.sum(axis=1).astype(np.float64), *sums)

    def statistics(self) -> dict[str, float]:
        """Sizes, and how often items are recommended and purchased."""
        codes = np.sum([np.bincount(matrix.data, minlength=4) for matrix in self.cells], axis=0)
        there = int(self.present.sum())
        shown, bought = int(codes[1] + codes[3]), int(codes[2] + codes[3])
        rest = there * len(self.items) - shown
        return {
            "users": len(self.users),
            "items": len(self.items),
            "periods": len(self.periods),
            "user-periods": there,
            "purchases": bought,
            "recommendations": shown,
            "R-P": int(codes[3]),
            "R-NP": int(codes[1]),
            "NR-P": int(codes[2]),
            "recommendations a user-period": shown / there,
            "purchases a user-period": bought / there,
            "share bought of recommended": codes[3] / shown if shown else float("nan"),
            "share bought of not recommended": codes[2] / rest if rest else float("nan"),
        }


def history_of(
    name: str, columns: dict[str, NDArray[Any]], present: NDArray[np.bool_], labels: tuple[Any, Any, Any],
    notes: tuple[str, ...] = (),
) -> PurchaseHistory:  # fmt: skip
    """From pairs: ``columns`` has (user, item, period) of purchases and, after ``r_``, of recommendations."""
    from scipy import sparse

    users, items, periods = labels
    shape = (len(users), len(items))
    cells = []
    for t in range(len(periods)):
        parts = []
        for prefix, code in (("r_", RECOMMENDED), ("", PURCHASED)):
            rows = columns[f"{prefix}period"] == t
            pair = columns[f"{prefix}user"][rows], columns[f"{prefix}item"][rows]
            parts.append(flags(sparse.coo_matrix((np.ones(len(pair[0]), np.int32), pair), shape).tocsr(), code))
        cells.append(parts[0] + parts[1])
    return PurchaseHistory(name, cells, present, *labels, notes)


def flags(matrix: Any, code: int) -> Any:
    """Every stored entry of a sparse matrix, once, holding a code; the matrix is changed."""
    matrix.sum_duplicates()
    matrix.data = np.full(matrix.nnz, code, np.uint8)
    return matrix


def need_file(path: Path, source: str) -> None:
    """Raise UserError naming a missing file and where its owner publishes it."""
    if not path.is_file():
        raise UserError(f"{path} does not exist. {source}")


def read_columns(
    path: Path, names: list[str], source: str, *, whole: Sequence[str] = (), text: Sequence[str] = ()
) -> Any:
    """These columns of a Parquet file, as a pyarrow Table; those in ``whole`` are whole numbers without gaps.

    Raises:
        UserError: no such file, not Parquet, no rows, a column is missing, or one of ``whole`` or ``text`` is not what
            it says.
    """
    check_columns(path, names, source, whole=whole, text=text)
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, columns=names)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}") from None
    if len(table) == 0:
        raise UserError(f"{path} has no rows")
    refuse_gaps(path, table, whole)
    return table


def refuse_gaps(path: Path, table: Any, names: Sequence[str]) -> None:
    """Raise UserError where one of these columns of a pyarrow table or batch has rows without a value."""
    for name in names:
        if table[name].null_count:
            raise UserError(f"{path}: column {name!r} has {table[name].null_count} rows without a value")


def check_columns(
    path: Path, names: list[str], source: str, *, whole: Sequence[str] = (), text: Sequence[str] = ()
) -> None:
    """Raise UserError where a Parquet file is missing or unreadable, or lacks a column of its kind."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    need_file(path, source)
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}") from None
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise UserError(f"{path} has no column {missing[0]!r}; it has {', '.join(schema.names)}")
    for name in whole:
        if not pa.types.is_integer(schema.field(name).type):
            raise UserError(f"{path}: column {name!r} must hold whole numbers, it holds {schema.field(name).type}")
    for name in text:
        kind = getattr(schema.field(name).type, "value_type", schema.field(name).type)  # of a dictionary's values
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
            raise UserError(f"{path}: column {name!r} must hold text, it holds {kind}")


def at_least(codes: NDArray[np.int64], times: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """(size,) number of distinct times with which each code occurs."""
    if len(codes) == 0:
        return np.zeros(size, np.int64)
    width = int(times.max()) + 1
    return np.bincount(np.unique(codes * width + times) // width, minlength=size)
