"""Exposures: recommendations and purchases of users, the second part of a log of purchases.

Uplift needs both sides of every recommendation (Sato et al. 2019): what was shown and bought, shown and not bought, not
shown and bought. The grid users x items x periods is far too large to write out, and nearly all of it is the fourth
class, neither shown nor bought. Only the other three are rows here; the propensity of any cell is a small table next to
them.
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
    """Items of each (period, user) in one observed class, as compressed rows.

    Attributes:
        indptr: (n_rows + 1,) int64; row r's items are ``items[indptr[r] : indptr[r + 1]]``.
        items: int32, ascending within a row.
    """

    indptr: Ints
    items: Actions

    def of(self, row: int) -> Actions:
        """Return the items of one row."""
        return self.items[self.indptr[row] : self.indptr[row + 1]]

    def counts(self) -> Ints:
        """(n_rows,) number of items in each row."""
        return np.diff(self.indptr)


@dataclass(frozen=True)
class Classes:
    """The observed classes of some periods; row ``k * n_users + u`` is user u in ``periods[k]``.

    Attributes:
        periods: (K,) which.
        n_users, n_items: sizes.
        rp, rnp, nrp: R-P, R-NP and NR-P; every item in none of the three is NR-NP.
    """

    periods: Ints
    n_users: int
    n_items: int
    rp: CSRLists
    rnp: CSRLists
    nrp: CSRLists

    def active(self) -> Ints:
        """Rows of users who bought something in the period."""
        return np.flatnonzero(self.rp.counts() + self.nrp.counts() > 0)


PropensityOf = Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], Floats]
"""(users, items, periods) -> P(recommended) of those cells, all of one length."""

REQUIRED = {
    "user": "user, from 0",
    "item": "item, from 0",
    "time": "period, from 0",
    "recommended": "whether the item was recommended to the user in the period",
    "purchased": "whether the user bought it in the period",
}


@dataclass(frozen=True)
class Exposures:
    """The cells (user, item, period) that were recommended or purchased, or both; ordered by (time, user, item).

    The arrays are read-only: a learner that changes one copies it first.

    Attributes:
        user: (n,) int64 in 0 .. n_users - 1.
        item: (n,) int32 in 0 .. n_items - 1.
        time: (n,) int32 period in 0 .. n_periods - 1.
        recommended, purchased: (n,) flags; at least one is true.
        n_users, n_items, n_periods: of the whole grid, cells without a row included.
        propensities: P(recommended) of every cell: an array that broadcasts to (U, I, P) (for example (U, I, 1) where
            it is the same in all periods, (1, I, P) where it is the same for all users), a function of
            (users, items, periods), or None where it is unknown.
        provenance: what made them; JSON types only.
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
        """Bring the arrays to their types and order, and check them.

        Raises:
            UserError: lengths that differ, an index out of range, a cell twice or in neither set, a table of another
                shape or with values outside [0, 1].
        """
        kinds = (("user", np.int64), ("item", np.int32), ("time", np.int32), ("recommended", bool), ("purchased", bool))
        arrays = {name: _typed(name, getattr(self, name), np.dtype(kind)) for name, kind in kinds}
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
        key = self._key(arrays["user"], arrays["item"], arrays["time"])
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
        object.__setattr__(self, "_keys", read_only(key))
        if self.propensities is not None and not callable(self.propensities):
            object.__setattr__(self, "propensities", self._checked_table(self.propensities))

    def _key(self, users: NDArray[Any], items: NDArray[Any], times: NDArray[Any]) -> Ints:
        return (np.asarray(times, np.int64) * self.n_users + users) * self.n_items + items

    def _checked_table(self, table: Any) -> NDArray[np.floating]:
        """Return a table of propensities of the grid's shape, single or double precision."""
        table = np.asarray(table)
        if table.dtype != np.float32:  # single precision halves the table, but keeps 1 - e to 6e-8 only
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
        """P(recommended) of cells; the arguments broadcast together, NaN where it is unknown."""
        users, items, times = np.broadcast_arrays(users, items, times)
        if self.propensities is None:
            return np.full(users.shape, np.nan)
        if callable(self.propensities):
            flat = self.propensities(users.ravel(), items.ravel(), times.ravel())
            return np.asarray(flat, np.float64).reshape(users.shape)
        table = self.propensities
        place = tuple(x if size > 1 else 0 for x, size in zip((users, items, times), table.shape, strict=True))
        return np.broadcast_to(table[place], users.shape).astype(np.float64)

    @property
    def propensity(self) -> Floats:
        """(n,) P(recommended) of the rows; NaN where it is unknown."""
        return self.propensity_of(self.user, self.item, self.time)

    def need_propensities(self) -> None:
        """Raise UserError if there are no propensities."""
        if self.propensities is None:
            raise UserError(
                "the exposures have no propensities: give them (with_propensities), or estimate them with "
                "recsim_mnar.estimators.ratings.exposure"
            )

    def with_propensities(self, propensities: NDArray[Any] | PropensityOf | None) -> Exposures:
        """Return the same cells with other propensities."""
        return self._like(np.arange(len(self)), propensities=propensities)

    def _like(self, rows: Any, **changes: Any) -> Exposures:
        values = {name: getattr(self, name)[rows] for name in REQUIRED}
        return replace(self, **values, provenance=dict(self.provenance), **changes)

    # ------------------------------------------------------------------------------------------------- periods, classes

    def rows_of(self, time: int) -> slice:
        """The rows of one period.

        Raises:
            UserError: there is no such period.
        """
        if not 0 <= time < self.n_periods:
            raise UserError(f"there is no period {time}: the exposures have periods 0..{self.n_periods - 1}")
        first, last = np.searchsorted(self.time, [time, time + 1])
        return slice(int(first), int(last))

    def between(self, first: int, last: int) -> Exposures:
        """Return periods ``first .. last - 1``, with their numbers.

        Raises:
            UserError: no such periods.
        """
        if not 0 <= first < last <= self.n_periods:
            raise UserError(f"periods {first}..{last - 1} are not within 0..{self.n_periods - 1}")
        return self._like((self.time >= first) & (self.time < last))

    def classes(self, periods: Sequence[int] | NDArray[Any] | None = None) -> Classes:
        """The observed classes R-P, R-NP and NR-P of every user in these periods (all by default).

        Raises:
            UserError: no such period.
        """
        chosen = np.arange(self.n_periods)
        if periods is not None:
            chosen = np.asarray(periods, np.int64)
        parts = [self.rows_of(int(t)) for t in chosen]
        index = np.r_[(np.zeros(0, np.int64), *parts)]
        period = np.repeat(np.arange(len(parts)), [part.stop - part.start for part in parts])
        row = period * self.n_users + self.user[index]
        r = self.recommended[index]
        p = self.purchased[index]
        item = self.item[index]

        def lists(mask: Flags) -> CSRLists:
            counts = np.bincount(row[mask], minlength=len(parts) * self.n_users)
            return CSRLists(np.append(0, np.cumsum(counts)), item[mask])

        return Classes(chosen, self.n_users, self.n_items, lists(r & p), lists(r & ~p), lists(~r & p))

    def active_users(self, time: int) -> Ints:
        """Users who bought something in a period, ascending.

        Raises:
            UserError: no user did.
        """
        rows = self.rows_of(time)
        users = np.unique(self.user[rows][self.purchased[rows]])
        if len(users) == 0:
            raise UserError(f"period {time} has no purchase: leave it out of the periods used")
        return users

    def flags(self, users: Any, items: Any, times: Any) -> tuple[Flags, Flags]:
        """Return whether cells were recommended and whether they were purchased; the arguments broadcast together."""
        keys = self._key(*np.broadcast_arrays(users, items, times))
        known_keys: Ints = self._keys  # type: ignore[attr-defined]  # set by __post_init__
        if len(known_keys) == 0:
            return np.zeros(keys.shape, bool), np.zeros(keys.shape, bool)
        row = np.minimum(np.searchsorted(known_keys, keys), len(known_keys) - 1)
        has_row = known_keys[row] == keys
        return has_row & self.recommended[row], has_row & self.purchased[row]

    def dense(self, time: int) -> tuple[Flags, Flags]:
        """(U, I) whether recommended, and whether purchased, in one period."""
        rows = self.rows_of(time)
        out = np.zeros((2, self.n_users, self.n_items), bool)
        out[0, self.user[rows], self.item[rows]] = self.recommended[rows]
        out[1, self.user[rows], self.item[rows]] = self.purchased[rows]
        return out[0], out[1]

    def validate(self) -> Exposures:
        """Check that uplift can be learnt; returns the exposures themselves.

        Raises:
            UserError: nothing was recommended, nothing purchased, or a period has no purchase.
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
        """Read a log: bandit rows are recommended cells, organic rows purchases without recommendation.

        Args:
            log: ``time`` is the period.
            n_users: one more than the largest met where it is left out.
            n_items: likewise.
            n_periods: likewise.
            propensities: see the class; a log knows them for what was recommended only.

        Raises:
            UserError: a period that is not a whole number, a reward other than 0 or 1, a cell twice.
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
            user,
            item,
            time,
            recommended,
            ~recommended | (reward == 1),
            _size(n_users, user),
            _size(n_items, item),
            _size(n_periods, time),
            propensities,
            dict(log.provenance),
        )

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any], **sizes: Any) -> Exposures:
        """Read a table of a user's own log: a mapping of columns, or a pandas DataFrame.

        A row that is neither recommended nor purchased is dropped: it is implied. A column ``propensity`` is kept only
        through ``propensities``, because the estimators need it on cells without a row too.

        Args:
            columns: with those of :data:`REQUIRED`.
            **sizes: n_users, n_items, n_periods, propensities, provenance; sizes from the largest index by default.

        Raises:
            UserError: a missing column, or what the class refuses.
        """
        for name, meaning in REQUIRED.items():
            if name not in columns:
                raise UserError(f"the purchase log has no column {name!r} ({meaning}): add it")
        arrays = {name: np.asarray(columns[name]) for name in REQUIRED}
        flags = {name: _typed(name, arrays[name], np.dtype(bool)) for name in ("recommended", "purchased")}
        keep = flags["recommended"] | flags["purchased"]
        for size, name in (("n_users", "user"), ("n_items", "item"), ("n_periods", "time")):
            sizes.setdefault(size, _size(None, arrays[name]))
        kept: dict[str, Any] = {name: values[keep] for name, values in {**arrays, **flags}.items()}
        return cls(**kept, **sizes)

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write ``exposures.parquet`` and, where the propensities are a table, ``propensities.npz``.

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
        """Read the folder of :meth:`write`, or its Parquet file.

        A Parquet or CSV file of another make needs the columns of :data:`REQUIRED`.

        Raises:
            UserError: nothing there, or a column is missing.
        """
        columns, metadata = read_files(path_of(path))
        for name in metadata:
            if name not in _KNOWN:
                raise UserError(
                    f"{path}: its metadata have {name!r}, which is no word of a purchase log: is it damaged?"
                )
        return cls.from_columns(columns, **metadata)


def _size(size: int | None, values: NDArray[Any]) -> int:
    """Return the size given, or one more than the largest value."""
    if size is None:
        return int(values.max(initial=0)) + 1
    return size


_KNOWN = ("n_users", "n_items", "n_periods", "propensities", "provenance")
"""What a file says of a purchase log besides its rows."""


def _typed(name: str, values: Any, kind: np.dtype[Any]) -> NDArray[Any]:
    """Convert values to a type; whole numbers may be floats, flags 0 and 1."""
    values = np.asarray(values)
    if values.dtype == kind:
        return np.ascontiguousarray(values)
    if values.dtype.kind not in "biuf":
        raise UserError(f"exposures: column {name!r} must hold numbers, got {values.dtype}")
    typed = np.nan_to_num(values, nan=-1).astype(kind)
    expected = "true or false" if kind == np.dtype(bool) else "a whole number"
    refuse_first(
        typed.astype(values.dtype) != values,
        lambda row: f"exposures row {row}: {name} must be {expected}, got {values[row]}",
    )
    return np.ascontiguousarray(typed)


# ---------------------------------------------------------------------------------------------------------------- files

FILE, TABLE_FILE = "exposures.parquet", "propensities.npz"
_META_KEY = b"recsim_mnar_exposures"


def write_files(
    folder: Path, columns: Mapping[str, NDArray[Any]], known: Mapping[str, Any], propensities: NDArray[Any] | None
) -> None:
    """Write the columns with their metadata ``known`` (JSON types), and the propensities if any."""
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
    """Read the columns and metadata of a folder or file.

    Raises:
        UserError: nothing there, nothing readable, or not what was written.
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
