"""The views of a log (its organic rows): user by user, as counts by item, and as a sparse matrix of users and items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_begins, user_starts

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Views:
    """The V views of a log (its organic rows) of U users, a user's views consecutive.

    Attributes:
        users: (U,) ids of the users with views, ascending.
        starts: (U + 1,) index of each user's first view, and V at the end.
        items: (V,) int32 viewed items.
        rows: (V,) row of each view in the log.
    """

    users: Ints
    starts: Ints
    items: NDArray[np.int32]
    rows: Ints

    @classmethod
    def of(cls, log: Log) -> Views:
        """Collect the views of a log."""
        rows = np.flatnonzero(log["event"] == schema.ORGANIC)
        user = log["user"][rows]
        starts = user_starts(user)
        return cls(user[starts], np.append(starts, len(rows)), log["item"][rows], rows)

    def owners(self) -> Ints:
        """Return the index in ``users`` of each view's user, (V,)."""
        return np.repeat(np.arange(len(self.users)), np.diff(self.starts))


def views_of(log: Log, n_items: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the user and the item of each view of a log, in its order.

    Returns:
        users: (V,) users.
        items: (V,) int32 items.

    Raises:
        UserError: no organic row, or an item out of range.
    """
    organic = log["event"] == schema.ORGANIC
    users = log["user"]
    items = log["item"]
    if not organic.all():  # a log of views alone is not copied
        users = users[organic]
        items = items[organic]
    _check_items(items, n_items, len(items))
    return users, items


def times_viewed(log: Log, n_items: int) -> Ints:
    """Count the views of each item, (n_items,); a log that stays in its files is read block by block.

    Raises:
        UserError: no organic row, or an item out of range.
    """
    counts = np.zeros(n_items, np.int64)
    for block in log.blocks():
        items = block["item"][block["event"] == schema.ORGANIC]
        _check_items(items, n_items, n_views=1)  # a single block may be without views
        counts += np.bincount(items, minlength=n_items)
    no_items = counts[:0]  # all were checked by block; only their number is left to check
    _check_items(no_items, n_items, n_views=int(counts.sum()))
    return counts


def _check_items(items: NDArray[np.integer], n_items: int, n_views: int) -> None:
    """Raise UserError if a log has no views, or one of an item out of range.

    Args:
        items: viewed items, perhaps of a part of the log.
        n_items: number of items.
        n_views: number of views of the whole log; any positive number if it is not known yet.
    """
    if n_views == 0:
        raise UserError(
            "the log has no organic rows: an agent that learns from views cannot be fitted on it; fit it on a log with "
            "views, or name agents that learn from rewards or from nothing, such as reward-cross-entropy and constant"
        )
    if len(items) and (items.min() < 0 or items.max() >= n_items):
        bad = int(items[(items < 0) | (items >= n_items)][0])
        raise UserError(f"the log has item {bad}, but n_items = {n_items}: items must be in 0..{n_items - 1}")


def view_counts(log: Log, n_items: int) -> tuple[Any, NDArray[np.int64]]:
    """Count the views of each user and item of a log.

    Returns:
        counts: (U, n_items) int32 scipy CSR array with sorted indices, a row for each user with views.
        users: (U,) id of each row's user, ascending.

    Raises:
        UserError: no organic row, an item out of range, or users out of order.
    """
    from scipy import sparse

    users, items = views_of(log, n_items)
    begins = user_begins(users)
    row = np.cumsum(begins, dtype=np.int32) - np.int32(1)
    ids = users[begins]
    if np.any(ids[1:] < ids[:-1]):
        raise UserError("the log's rows are out of order: sort them by (user, step)")
    counts = sparse.csr_array((np.ones(len(items), np.int32), (row, items)), shape=(len(ids), n_items), dtype=np.int32)
    counts.sum_duplicates()
    counts.sort_indices()
    return counts, ids
