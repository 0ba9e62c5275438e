"""Propensities that the log itself disproves, item by item (docs/verdict-theory.md, "Item by item")."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals.limits import Spread, positive_limits, small_sample_factor
from recsim_mnar.estimators.off_policy.sampling import STRICT
from recsim_mnar.estimators.verdict import GRAVE, Finding
from recsim_mnar.log.columns import Clusters, Floats, Ints, column

MOST_LEVELS = 10
"""Levels of a context column: more values than that are cut at their quantiles or, if they are no numbers, pooled."""
TABLES, TOTALS = ("x", "xx", "xl"), ("rows", "users", "ll")
OTHERS, MISSING = "any other value", "no value"
ACTION = "log the propensities of the policy as it acted, after rules and stock changed what could be shown"


@dataclass(frozen=True)
class Levels:
    """A column cut into few levels: the same cut for every block of a log.

    Attributes:
        name: of the column; "" without one.
        names: of the levels.
        edges: of a column of numbers, a value at an edge belongs above it; None of any other. Numbers that are missing
            have a level of their own, the last.
        values: the levels' values of any other column, those that are none of them being the last level.
    """

    name: str = ""
    names: tuple[str, ...] = ("",)
    edges: Floats | None = None
    values: tuple[Any, ...] = ()

    @staticmethod
    def of(values: Any, name: str = "context") -> Levels:
        """At most ten levels of a column (n,), whatever the rewards and the actions are."""
        import pandas as pd

        array = np.asarray(values)
        if array.dtype.kind in "iuf":
            found = np.unique(array[~np.isnan(array)]).astype(np.float64)
            last = (MISSING,) if np.isnan(array).any() else ()
            if found.size + len(last) <= MOST_LEVELS:
                return Levels(name, (*(f"{value:g}" for value in found), *last) or ("",), found[1:])
            most = MOST_LEVELS - len(last)
            edges = np.unique(np.quantile(array[np.isfinite(array)], np.arange(most) / most))[1:]
            ends = [f"{edge:.3g}" for edge in edges]
            between = [f"{a} to {b}" for a, b in itertools.pairwise(ends)]
            return Levels(name, (f"below {ends[0]}", *between, f"above {ends[-1]}", *last), edges.astype(np.float64))
        common = pd.Series(array.astype(str)).value_counts().index[: MOST_LEVELS - 1]
        chosen = tuple(sorted(common))
        return Levels(name, (*chosen, OTHERS), None, chosen)

    def codes(self, values: Any, rows: int) -> Ints:
        """(n,) the level of each value."""
        import pandas as pd

        array = np.asarray(values)
        if array.shape != (rows,):
            raise UserError(f"column {self.name!r} has shape {array.shape} and there are {rows} rows; give one each")
        if self.edges is not None:
            level = np.searchsorted(self.edges, array, side="right").astype(np.int64)
            return np.where(np.isnan(array), len(self.names) - 1, level) if self.names[-1] == MISSING else level
        found = pd.Index(self.values).get_indexer(array.astype(str))
        return np.where(found < 0, len(self.values), found).astype(np.int64)


@dataclass
class ItemSums:
    """Per level of a context column and item, sums over users of x, the user's sum of 1 / propensity of the item.

    Attributes:
        levels: of the column.
        items: (K,) ids in ascending order.
        x, xx, xl: (C, K) sums of x, x^2 and x times the user's rows in the level.
        rows, users, ll: (C,) rows and users of a level, and the sum over users of squared rows.
        longest: (C,) most rows of a user in the level.
        heaviest: largest 1 / propensity.
    """

    levels: Levels
    items: NDArray[Any]
    x: Floats
    xx: Floats
    xl: Floats
    rows: Floats
    users: Floats
    ll: Floats
    longest: Floats
    heaviest: float

    @staticmethod
    def of(
        action: Any, propensity: Any, cluster: Any = None, *, context: Any = None, levels: Levels | None = None
    ) -> ItemSums:
        """Gather the sums of rows, or of a block of whole users.

        Args:
            action: (n,) ids of the items shown, of any kind.
            propensity: (n,) in (0, 1].
            cluster: (n,) users, or None.
            context: (n,) a column that was known before the item was chosen.
            levels: its levels; None to make them of these rows.

        Raises:
            UserError: columns of other lengths, missing ids, propensities outside (0, 1].
        """
        p = column(propensity, "propensity")
        if not np.all((p > 0.0) & (p <= 1.0)):
            raise UserError("column 'propensity' must be in (0, 1]; drop or correct the other rows")
        shown = Clusters.of(action, p.size, "action")
        assert shown is not None
        code, n_items = shown.dense()
        items = np.asarray(action)[shown.first_rows()]
        levels = levels or (Levels() if context is None else Levels.of(context))
        level = np.zeros(p.size, np.int64) if context is None else levels.codes(context, p.size)
        found = _sums_of(1.0 / p, code, n_items, Clusters.of(cluster, p.size), level, len(levels.names))
        order = np.argsort(items, kind="stable")
        found |= {name: found[name][:, order] for name in TABLES}
        return ItemSums(levels, items[order], heaviest=float(np.max(1.0 / p, initial=0.0)), **found)

    def __add__(self, other: ItemSums) -> ItemSums:
        """Of the rows of both; no user may be in both."""
        if not isinstance(other, ItemSums):
            return NotImplemented
        if self.levels.names != other.levels.names:
            raise UserError("sums by item merge only with the same levels; give every block those of the first")
        items = np.union1d(self.items, other.items)
        found: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in TOTALS}
        for name in TABLES:
            table = np.zeros((2, len(self.rows), items.size))
            for part, one in zip(table, (self, other), strict=True):
                part[:, np.searchsorted(items, one.items)] = getattr(one, name)
            found[name] = table.sum(axis=0)
        found["longest"] = np.maximum(self.longest, other.longest)
        return ItemSums(self.levels, items, heaviest=max(self.heaviest, other.heaviest), **found)

    def findings(self, *, propensity_min: float | None = None) -> list[Finding]:
        """The finding of items with disproved propensities, at the strict level for all items together.

        Args:
            propensity_min: the least propensity of any item in any row, where every item can always be shown; None
                where that is not known. Only then can a mean below 1 be a proof.
        """
        limits = self.limits(1.0 - (1.0 - STRICT) / max(self.x.size, 1), propensity_min)
        low, high = limits
        high = np.where(high < 1.0, high, np.inf) if propensity_min is not None else np.full(high.shape, np.inf)
        off = np.maximum(low, 1.0 / np.maximum(high, 1e-300))
        if not np.any(off > 1.0):
            return []
        place, item = np.unravel_index(int(np.argmax(off)), off.shape)
        mean = float(self.x[place, item] / self.rows[place])
        return [self._finding(int(place), item, mean, int(np.count_nonzero((off > 1.0).any(axis=0))))]

    def limits(self, level: float, propensity_min: float | None = None) -> tuple[Floats, Floats]:
        """(C, K) limits of the mean over the rows of a level of 1{item} / propensity, by user."""
        low, high = np.zeros(self.x.shape), np.full(self.x.shape, np.inf)
        heaviest = self.heaviest if propensity_min is None else max(1.0 / propensity_min, self.heaviest)
        for place in np.flatnonzero(self.users > 1):
            n = float(self.rows[place])
            factor = small_sample_factor(int(self.users[place]), level)
            means = self.x[place] / n
            second = self.xx[place] - 2.0 * means * self.xl[place] + means**2 * self.ll[place]
            # One draw may hold for all rows of a user.
            up = heaviest * float(self.longest[place]) / n
            for item in np.flatnonzero((means > 1.0) | (propensity_min is not None)):
                mean, variance = float(means[item]), max(float(second[item]), 0.0) / n**2 * factor
                ends = positive_limits(mean, Spread(variance, 0.0, up, mean / n), level)
                low[place, item], high[place, item] = ends
        return low, high

    def _finding(self, place: int, item: Any, mean: float, wrong: int) -> Finding:
        where = f" where {self.levels.name} is {self.levels.names[place]}" if self.levels.name else ""
        should = "1 at most" if mean > 1.0 else "1"
        message = (
            f"the mean of 1 / propensity over all rows, counting those with item {self.items[item]}{where} only, is "
            f"{mean:.3g} and should be {should}: the propensities of {wrong:,} of {self.items.size:,} items are proved "
            "wrong"
        )
        return Finding("item_propensities", GRAVE, mean, message, ACTION)


def _sums_of(
    weight: Floats, code: Ints, n_items: int, clusters: Clusters | None, level: Ints, n_levels: int
) -> dict[str, Any]:
    """``TABLES`` and ``TOTALS`` of :class:`ItemSums`, from cells of a user, a level and an item."""
    from scipy.sparse import coo_matrix

    if clusters is None:
        size, own, n_own, item, data = np.ones(weight.size), level, weight.size, code, weight
        cell = level * n_items + item
        each = np.ones(weight.size)
    else:
        user, n_users = clusters.dense()
        group, n_own = user, n_users
        if n_levels > 1:
            both = Clusters.of(user * n_levels + level, user.size)
            assert both is not None
            group, n_own = both.dense()
        own = np.zeros(n_own, np.int64)
        own[group] = level
        size = np.bincount(group, minlength=n_own).astype(np.float64)
        table = coo_matrix((weight, (group, code)), (n_own, n_items)).tocsr()
        counts, item, data = np.diff(table.indptr), table.indices.astype(np.int64), table.data
        cell, each = np.repeat(own, counts) * n_items + item, np.repeat(size, counts)
    total = n_levels * n_items
    tables = [np.bincount(cell, values, total) for values in (data, data * data, data * each)]
    totals = [np.bincount(own, values, n_levels) for values in (size, np.ones(size.size), size * size)]
    longest = np.zeros(n_levels)
    np.maximum.at(longest, own, size)
    found: dict[str, Any] = {"longest": longest} | dict(zip(TOTALS, totals, strict=True))
    shaped = (table.reshape(n_levels, n_items) for table in tables)
    return found | dict(zip(TABLES, shaped, strict=True))


def item_findings(
    action: Any,
    propensity: Any,
    cluster: Any = None,
    *,
    complete: bool = False,
    propensity_min: float | None = None,
    context: Any = None,
    context_name: str = "context",
) -> list[Finding]:
    """Propensities that the log disproves, item by item and, with ``context``, by item and level of the column.

    The mean over rows of 1{action = k} / propensity is 1 for an item k that can always be shown, and less for any
    other: above 1 is a proof. Below 1 is one only where every item can always be shown and the least propensity is
    known, for else the rows that are missing could be rare and heavy.

    Args:
        action: (n,) ids of the items shown, of any kind.
        propensity: (n,) in (0, 1].
        cluster: (n,) the user of each row, or None.
        complete: every item can be shown in every row.
        propensity_min: no item has a smaller propensity in any row.
        context: (n,) a column that was known before the item was chosen, or None. Errors that average out within an
            item are seen with it only.
        context_name: of the column, for the message.

    Returns:
        At most one finding: by item where one is proved wrong, else by item and level.

    Raises:
        UserError: as :meth:`ItemSums.of`.
    """
    p = column(propensity, "propensity")
    clusters = Clusters.of(cluster, p.size)
    least = propensity_min if complete else None
    found = ItemSums.of(action, p, clusters).findings(propensity_min=least)
    if found or context is None:
        return found
    levels = Levels.of(context, context_name)
    return ItemSums.of(action, p, clusters, context=context, levels=levels).findings(propensity_min=least)
