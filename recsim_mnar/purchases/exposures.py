"""Exposures: recommendations and purchases of users, the second part of a log of purchases.

Uplift models (Sato et al. 2019) need every cell of the grid users x items x periods in one of four classes: recommended
(R) or not (NR), and purchased (P) or not (NP). Nearly all cells are NR-NP. Only those of the other three classes are
rows here; a table of propensities, for any cell, stands next to them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.archives import read_arrays
from recsim_mnar.kernels.checks import refuse_first
from recsim_mnar.log import schema
from recsim_mnar.log.schema import read_only
from recsim_mnar.log.table import parsed_metadata
from recsim_mnar.runs.files import path_of, replacing
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.tables.files import is_text_file, read_table, rows_in, write_table
from recsim_mnar.tables.parts import Parts
from recsim_mnar.tables.text import typed_table

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

Actions = NDArray[np.int32]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CSRLists:
    """Items of each (period, user) in one class, as compressed sparse rows.

    Attributes:
        indptr: (n_rows + 1,) int64 bounds; row r has the items ``items[indptr[r] : indptr[r + 1]]``.
        items: int32 items, ascending within a row.
    """

    indptr: Ints
    items: Actions

    def of(self, row: int) -> Actions:
        """Return the items of one row."""
        return self.items[self.indptr[row] : self.indptr[row + 1]]

    def counts(self) -> Ints:
        """Return the number (n_rows,) of items in each row."""
        return np.diff(self.indptr)


@dataclass(frozen=True)
class Classes:
    """Items of each class for all users in K periods; row ``k * n_users + u`` is user u in ``periods[k]``.

    Attributes:
        periods: (K,) numbers of the periods.
        n_users: number of users.
        n_items: number of items.
        rp: recommended and purchased items, R-P.
        rnp: recommended items that were not purchased, R-NP.
        nrp: purchased items that were not recommended, NR-P. Items in none of the three classes are NR-NP.
    """

    periods: Ints
    n_users: int
    n_items: int
    rp: CSRLists
    rnp: CSRLists
    nrp: CSRLists

    def active(self) -> Ints:
        """Return the rows of users who bought an item in the period."""
        return np.flatnonzero(self.rp.counts() + self.nrp.counts() > 0)


PropensityOf = Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], Floats]
"""Function of users, items and periods, (n,) each, that returns the P(recommended) of these cells."""

REQUIRED = {
    "user": "user, from 0",
    "item": "item, from 0",
    "time": "period, from 0",
    "recommended": "whether the item was recommended to the user in the period",
    "purchased": "whether the user bought it in the period",
}


@dataclass(frozen=True)
class Exposures:
    """Cells (user, item, period) that were recommended or purchased, or both; ordered by (time, user, item).

    The arrays are read-only: a learner must copy an array before it changes it.

    Attributes:
        user: (n,) int64 user in 0 .. n_users - 1.
        item: (n,) int32 item in 0 .. n_items - 1.
        time: (n,) int32 period in 0 .. n_periods - 1.
        recommended: (n,) flags of recommended cells.
        purchased: (n,) flags of purchased cells; each row has at least one flag set.
        n_users: number of users in the whole grid, including those without a row.
        n_items: number of items in the whole grid.
        n_periods: number of periods in the whole grid.
        propensities: P(recommended) of every cell: an array that broadcasts to (U, I, P), for example (U, I, 1) if all
            periods have the same, or (1, I, P) if all users have; a function of (users, items, periods); or None if
            unknown.
        provenance: description of their origin; JSON types only.
    """

    user: Ints
    item: Actions
    time: Actions
    recommended: Flags
    purchased: Flags
    n_users: int
    n_items: int
    n_periods: int
    propensities: NDArray[np.floating] | PropensityOf | None = None
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Convert the arrays to their types, sort them, and check them.

        Raises:
            UserError: lengths differ, an index is out of range, a cell is repeated or neither recommended nor
                purchased, or the table of propensities has another shape or values outside [0, 1].
        """
        kinds = (("user", np.int64), ("item", np.int32), ("time", np.int32), ("recommended", bool), ("purchased", bool))
        arrays = {name: _converted(name, getattr(self, name), np.dtype(kind)) for name, kind in kinds}
        lengths = {name: values.shape for name, values in arrays.items()}
        if len(set(lengths.values())) > 1 or arrays["user"].ndim != 1:
            raise UserError(f"exposures: the columns must be one-dimensional and of one length, got {lengths}")
        for name, limit in (("user", self.n_users), ("item", self.n_items), ("time", self.n_periods)):
            values = arrays[name]
            if limit < 1:
                raise UserError(f"exposures: there must be at least one {name}, got {limit}")
            refuse_first(
                (values < 0) | (values >= limit),
                lambda row, name=name, limit=limit: (
                    f"exposures row {row}: {name} {arrays[name][row]} is out of range 0..{limit - 1}"
                ),
            )
        refuse_first(
            ~(arrays["recommended"] | arrays["purchased"]),
            lambda row: (
                f"exposures row {row} is neither recommended nor purchased: leave such rows out, they are implied"
            ),
        )
        key = self._cell_keys(arrays["user"], arrays["item"], arrays["time"])
        if np.any(key[1:] < key[:-1]):
            order = np.argsort(key, kind="stable")
            key = key[order]
            arrays = {name: values[order] for name, values in arrays.items()}
        twice = np.flatnonzero(key[1:] == key[:-1])
        if len(twice):
            u, i, t = (int(arrays[name][twice[0]]) for name in ("user", "item", "time"))
            raise UserError(f"exposures: user {u}, item {i}, period {t} has two rows; merge their flags into one")
        for name, values in arrays.items():
            object.__setattr__(self, name, read_only(values))
        object.__setattr__(self, "_row_keys", read_only(key))
        if self.propensities is not None and not callable(self.propensities):
            object.__setattr__(self, "propensities", self._checked_table(self.propensities))

    def _cell_keys(self, users: NDArray[Any], items: NDArray[Any], times: NDArray[Any]) -> Ints:
        """Return one integer per cell, by which cells are ordered as rows are."""
        return (np.asarray(times, np.int64) * self.n_users + users) * self.n_items + items

    def _checked_table(self, table: Any) -> NDArray[np.floating]:
        """Return a table of propensities as a read-only array, in double precision unless it has single precision.

        Raises:
            UserError: the table does not broadcast to the grid, or has values outside [0, 1].
        """
        table = np.asarray(table)
        if table.dtype != np.float32:  # kept, to save memory, although 1 - e is then accurate to 6e-8 only
            table = table.astype(np.float64)
        full = (self.n_users, self.n_items, self.n_periods)
        if table.ndim != 3 or any(a not in (1, b) for a, b in zip(table.shape, full, strict=True)):
            raise UserError(
                f"exposures: propensities of shape {table.shape} do not broadcast to users x items x periods {full}"
            )
        refuse_first(
            ~((table >= 0) & (table <= 1)),  # NaN too
            lambda *cell: f"exposures: a propensity is {table[cell]:g}, outside [0, 1]",
        )
        return read_only(table)

    def __len__(self) -> int:
        return len(self.user)

    # ---------------------------------------------------------------------------------------------------- propensities

    def propensity_of(self, users: Any, items: Any, times: Any) -> Floats:
        """Return P(recommended) of cells, NaN if unknown; the arguments are broadcast against each other."""
        users, items, times = np.broadcast_arrays(users, items, times)
        if self.propensities is None:
            return np.full(users.shape, np.nan)
        if callable(self.propensities):
            flat = self.propensities(users.ravel(), items.ravel(), times.ravel())
            return np.asarray(flat, np.float64).reshape(users.shape)
        table = self.propensities
        # A dimension of size 1 is shared by all users, items or periods.
        place = tuple(x if size > 1 else 0 for x, size in zip((users, items, times), table.shape, strict=True))
        return np.broadcast_to(table[place], users.shape).astype(np.float64)

    @property
    def propensity(self) -> Floats:
        """Return P(recommended) (n,) of the rows, NaN if unknown."""
        return self.propensity_of(self.user, self.item, self.time)

    def need_propensities(self) -> None:
        """Raise UserError if there are no propensities."""
        if self.propensities is None:
            raise UserError(
                "the exposures have no propensities: give them (with_propensities), or estimate them with "
                "recsim_mnar.estimators.ratings.exposure"
            )

    def with_propensities(self, propensities: NDArray[Any] | PropensityOf | None) -> Exposures:
        """Return a copy with other propensities."""
        return self._copy_with_rows(np.arange(len(self)), propensities=propensities)

    def _copy_with_rows(self, rows: Any, **changes: Any) -> Exposures:
        """Return a copy with only the rows that ``rows`` selects, and with other fields changed."""
        values = {name: getattr(self, name)[rows] for name in REQUIRED}
        return replace(self, **values, provenance=dict(self.provenance), **changes)

    # ------------------------------------------------------------------------------------------------- periods, classes

    def rows_of(self, time: int) -> slice:
        """Return the slice of a period's rows.

        Raises:
            UserError: there is no such period.
        """
        if not 0 <= time < self.n_periods:
            raise UserError(f"there is no period {time}: the exposures have periods 0..{self.n_periods - 1}")
        first, last = np.searchsorted(self.time, [time, time + 1])
        return slice(int(first), int(last))

    def between(self, first: int, last: int) -> Exposures:
        """Return the exposures of periods ``first .. last - 1``, which keep their numbers.

        Raises:
            UserError: these are not all periods of the exposures.
        """
        if not 0 <= first < last <= self.n_periods:
            raise UserError(f"periods {first}..{last - 1} are not within 0..{self.n_periods - 1}")
        return self._copy_with_rows((self.time >= first) & (self.time < last))

    def classes(self, periods: Sequence[int] | NDArray[Any] | None = None) -> Classes:
        """Return the items of the classes R-P, R-NP and NR-P for every user in these periods, or in all if None.

        Raises:
            UserError: there is no such period.
        """
        chosen = np.arange(self.n_periods)
        if periods is not None:
            chosen = np.asarray(periods, np.int64)
        parts = [self.rows_of(int(t)) for t in chosen]
        index = np.r_[(np.zeros(0, np.int64), *parts)]
        period = np.repeat(np.arange(len(parts)), [part.stop - part.start for part in parts])
        row = period * self.n_users + self.user[index]
        is_recommended = self.recommended[index]
        is_purchased = self.purchased[index]
        item = self.item[index]

        def lists_of_class(mask: Flags) -> CSRLists:
            """Return the items of the flagged cells as one list per (period, user)."""
            counts = np.bincount(row[mask], minlength=len(parts) * self.n_users)
            return CSRLists(np.append(0, np.cumsum(counts)), item[mask])

        return Classes(
            periods=chosen,
            n_users=self.n_users,
            n_items=self.n_items,
            rp=lists_of_class(is_recommended & is_purchased),
            rnp=lists_of_class(is_recommended & ~is_purchased),
            nrp=lists_of_class(~is_recommended & is_purchased),
        )

    def active_users(self, time: int) -> Ints:
        """Return the users who bought an item in a period, ascending.

        Raises:
            UserError: no user did.
        """
        rows = self.rows_of(time)
        users = np.unique(self.user[rows][self.purchased[rows]])
        if len(users) == 0:
            raise UserError(f"period {time} has no purchase: leave it out of the periods used")
        return users

    def flags(self, users: Any, items: Any, times: Any) -> tuple[Flags, Flags]:
        """Look up cells; the arguments are broadcast against each other.

        Returns:
            Flags of recommended cells.
            Flags of purchased cells.
        """
        keys = self._cell_keys(*np.broadcast_arrays(users, items, times))
        row_keys: Ints = self._row_keys  # type: ignore[attr-defined]  # set by __post_init__, ascending
        if len(row_keys) == 0:
            return np.zeros(keys.shape, bool), np.zeros(keys.shape, bool)
        row = np.minimum(np.searchsorted(row_keys, keys), len(row_keys) - 1)
        has_row = row_keys[row] == keys  # a cell without a row is neither recommended nor purchased
        return has_row & self.recommended[row], has_row & self.purchased[row]

    def validate(self) -> Exposures:
        """Check that uplift can be learnt from the exposures, and return them.

        Raises:
            UserError: there is no recommendation, or a period has no purchase.
        """
        if not self.recommended.any():
            raise UserError("nothing is recommended in these exposures: uplift needs a log with recommendation flags")
        for time in range(self.n_periods):
            self.active_users(time)
        return self

    # ------------------------------------------------------------------------------------------------------ in and out

    @classmethod
    def from_log(
        cls,
        log: Log,
        *,
        n_users: int | None = None,
        n_items: int | None = None,
        n_periods: int | None = None,
        propensities: NDArray[Any] | PropensityOf | None = None,
    ) -> Exposures:
        """Make exposures from a log: bandit rows are recommended cells, organic rows purchases without recommendation.

        Args:
            log: log whose column ``time`` holds the period.
            n_users: number of users; None for one more than the largest id.
            n_items: number of items; None for one more than the largest.
            n_periods: number of periods; None for one more than the largest.
            propensities: P(recommended) of every cell, in a form that the class takes; the log has that of
                recommended cells only.

        Raises:
            UserError: a period is not a whole number, a reward is not 0 or 1, or a cell is repeated.
        """
        recommended = log.is_bandit
        user = log["user"]
        item = np.where(recommended, log["action"], log["item"])
        time = log["time"]
        reward = log["reward"]
        refuse_first(
            recommended & (reward != 0) & (reward != 1),
            lambda row: f"row {row}: the reward of a recommendation must be 0 or 1 (purchased), got {reward[row]}",
        )
        return cls(
            user=user,
            item=item,
            time=time,
            recommended=recommended,
            purchased=~recommended | (reward == 1),
            n_users=_size_or_default(n_users, user),
            n_items=_size_or_default(n_items, item),
            n_periods=_size_or_default(n_periods, time),
            propensities=propensities,
            provenance=dict(log.provenance),
        )

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any], **sizes: Any) -> Exposures:
        """Make exposures from a table of a user's own log: a mapping of columns, or a pandas DataFrame.

        Rows neither recommended nor purchased are the default and are dropped. A column ``propensity`` is ignored: the
        estimators need the propensities of cells without a row, too, so pass all of them as ``propensities``.

        Args:
            columns: table with the columns of :data:`REQUIRED`.
            **sizes: n_users, n_items, n_periods, propensities, provenance. Sizes are one more than the largest number
                by default.

        Raises:
            UserError: a column is missing, or the class refuses a value.
        """
        for name, meaning in REQUIRED.items():
            if name not in columns:
                raise UserError(f"the purchase log has no column {name!r} ({meaning}): add it")
        arrays = {name: np.asarray(columns[name]) for name in REQUIRED}
        flags = {name: _converted(name, arrays[name], np.dtype(bool)) for name in ("recommended", "purchased")}
        keep = flags["recommended"] | flags["purchased"]
        for size, name in (("n_users", "user"), ("n_items", "item"), ("n_periods", "time")):
            sizes.setdefault(size, _size_or_default(None, arrays[name]))
        cells: dict[str, Any] = {name: values[keep] for name, values in {**arrays, **flags}.items()}
        return cls(**cells, **sizes)

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write ``exposures.parquet`` and, if the propensities are a table, ``propensities.npz`` into a folder.

        Raises:
            UserError: the propensities are a function, which no file can hold.
        """
        if callable(self.propensities):
            raise UserError(
                "propensities that are a function cannot be written: write with_propensities(table), or with None"
            )
        columns = {**{name: getattr(self, name) for name in REQUIRED}, "propensity": self.propensity}
        sizes = {name: int(getattr(self, name)) for name in ("n_users", "n_items", "n_periods")}
        write_files(path_of(folder), columns, {**sizes, "provenance": self.provenance}, self.propensities)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Exposures:
        """Read exposures from a folder that :meth:`write` wrote, from its Parquet file, or from a file of other origin.

        The last may be Parquet or CSV with the columns of :data:`REQUIRED`.

        Raises:
            UserError: there is no such file, or a column is missing.
        """
        columns, metadata = read_files(path_of(path))
        for name in metadata:
            if name not in _METADATA_NAMES:
                raise UserError(
                    f"{path}: its metadata have {name!r}, which is no word of a purchase log: is it damaged?"
                )
        return cls.from_columns(columns, **metadata)


def _size_or_default(size: int | None, values: NDArray[Any]) -> int:
    """Return ``size``, or one more than the largest value if it is None."""
    if size is None:
        return int(values.max(initial=0)) + 1
    return size


_METADATA_NAMES = ("n_users", "n_items", "n_periods", "propensities", "provenance")
"""Names in the metadata of a purchase log."""


def _converted(name: str, values: Any, kind: np.dtype[Any]) -> NDArray[Any]:
    """Convert the values of a column to a type: floats to whole numbers, 0 and 1 to flags.

    Raises:
        UserError: a value would change.
    """
    values = np.asarray(values)
    if values.dtype == kind:
        return np.ascontiguousarray(values)
    if values.dtype.kind not in "biuf":
        raise UserError(f"exposures: column {name!r} must hold numbers, got {values.dtype}")
    typed = np.nan_to_num(values, nan=-1).astype(kind)  # NaN becomes a number that the comparison below refuses
    expected = "true or false" if kind == np.dtype(bool) else "a whole number"
    refuse_first(
        typed.astype(values.dtype) != values,
        lambda row: f"exposures row {row}: {name} must be {expected}, got {values[row]}",
    )
    return np.ascontiguousarray(typed)


# ---------------------------------------------------------------------------------------------------------------- files

FILE = "exposures.parquet"
TABLE_FILE = "propensities.npz"
_META_KEY = b"recsim_mnar_exposures"


def write_files(
    folder: Path, columns: Mapping[str, NDArray[Any]], known: Mapping[str, Any], propensities: NDArray[Any] | None
) -> None:
    """Write columns with the metadata ``known`` (JSON types) to a Parquet file, and propensities to another."""
    import pyarrow as pa

    table = pa.table(dict(columns))
    run_config = {**known, "schema_version": schema.SCHEMA_VERSION}
    table = table.replace_schema_metadata({_META_KEY: json.dumps(run_config)})
    with RunFolder.fill(folder, keep_others=True) as into:
        if propensities is not None:
            with into.recording(TABLE_FILE) as to, replacing(to) as temporary, temporary.open("wb") as file:
                np.savez(file, propensities=propensities)
        with into.recording(FILE, rows=rows_in) as to:
            write_table(table, to)


def read_files(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read exposures from a folder or a file.

    Returns:
        The columns.
        The metadata, with a table of propensities if there is one; {} for a file of other origin.

    Raises:
        UserError: the file does not exist, cannot be read, or was changed after it was written.
    """
    file = path
    if path.is_dir():
        file = path / FILE
    if not file.is_file():
        raise UserError(f"{file} does not exist: name a folder that holds {FILE}, or a Parquet or CSV file")
    parts = Parts.of(file)
    if is_text_file(file):
        table = typed_table(file)
    else:
        table = read_table(parts.first, verified=parts.index is not None)
    metadata = parsed_metadata(table.schema.metadata, _META_KEY)
    propensities = file.with_name(TABLE_FILE)
    if metadata and propensities.is_file():
        metadata["propensities"] = read_arrays(parts.verified(propensities), ("propensities",))["propensities"]
    return {name: table.column(name).to_numpy() for name in table.column_names}, metadata
