"""Neighbourhood recommenders: cosine between items or users, and ranks when fitted without one view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.acting import GreedyPolicy, TrainingRows
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import flag, whole_number
from recsim_mnar.log.views import view_counts, views_of
from recsim_mnar.policies.base import Ints, Learner, Policy

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

_ROWS_AT_A_TIME = 4096
"""Number of items whose neighbours are found in one call of the kernel, to bound memory."""


def inverse_norms(counts: Any, axis: int) -> NDArray[np.float64]:
    """Return 1 / Euclidean norm of each column (axis 0) or row (axis 1) of a CSR array of counts; 0 for empty ones."""
    square = np.zeros(counts.shape[1 - axis], np.int64)
    index = counts.indices
    if axis == 1:
        index = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    np.add.at(square, index, counts.data.astype(np.int64) ** 2)
    scale = np.zeros(len(square))
    np.divide(1.0, np.sqrt(square), out=scale, where=square > 0)
    return scale


def compressed(matrix: Any) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Return index pointers, indices and counts of a CSR or CSC matrix, in the types that kernels are compiled for."""
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data.astype(np.int32)


def squared_norms(counts: Any) -> NDArray[np.int64]:
    """Return the squared Euclidean norm of each column of a CSR array of counts, (n_items,) int64."""
    squares = np.zeros(counts.shape[1], np.int64)
    np.add.at(squares, counts.indices, counts.data.astype(np.int64) ** 2)
    return squares


def work_space(squares: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
    """Return the scratch arrays of the kernels that find neighbours, in their order.

    Args:
        squares: (n_items,) squared norm of each item's column.

    Returns:
        dot products, candidates, float32 cosines as integers, chosen cosines, the same memory as float32, and maxima of
        blocks.
    """
    from recsim_mnar.agents.neighbours import _neighbours_kernel

    n_items = len(squares)
    bits = np.zeros(n_items, np.int32)
    # No dot product of two columns exceeds the largest squared norm; if 32 bits suffice, they are faster.
    kind: type = np.int64
    if squares.max(initial=0) < 2**31:
        kind = np.int32
    return (
        np.zeros(n_items, kind),
        np.empty(n_items, np.int32),
        bits,
        np.empty(n_items, np.int32),
        bits.view(np.float32),
        np.empty(-(-n_items // _neighbours_kernel.BLOCK), np.int32),
    )


def most_similar(
    counts: Any, k: int, include_self: bool
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Find the k items with the largest cosine of each item.

    Args:
        counts: (n_users, n_items) scipy CSR array of integer view counts.
        k: largest number of neighbours of an item. Only positive cosines count; of equal ones the lower item is taken.
        include_self: let an item be its own neighbour.

    Returns:
        starts: (n_items + 1,) index of each item's first neighbour.
        items: neighbours, ascending for each item.
        cosines: float32 cosine of each neighbour.
    """
    from recsim_mnar.agents.neighbours import _neighbours_kernel

    n_items = counts.shape[1]
    k = min(k, n_items)
    scale = inverse_norms(counts, 0)
    work = work_space(squared_norms(counts))
    by_item = compressed(counts.tocsc())
    by_user = compressed(counts)
    if counts.data.max(initial=1) == 1:
        starts, items, data = by_user
        by_user = (starts, items, data[:0])  # the kernel's sign that all counts are 1
    n_out = np.empty(n_items, np.int64)
    columns = []
    values = []
    for first in range(0, n_items, _ROWS_AT_A_TIME):
        last = min(first + _ROWS_AT_A_TIME, n_items)
        out_items = np.empty((last - first, k), np.int32)
        out_values = np.empty((last - first, k), np.float32)
        length = n_out[first:last]
        _neighbours_kernel.similar_items(
            by_item, by_user, scale, k, include_self, first, last, work, out_items, out_values, length
        )
        kept = np.arange(k) < length[:, None]
        columns.append(out_items[kept])
        values.append(out_values[kept])
    return np.concatenate([[0], np.cumsum(n_out)]), np.concatenate(columns), np.concatenate(values)


_GRAM_UP_TO = 4096
"""Largest number of items for which all dot products are computed at once, in at most 64 MB."""

_SPARE = 2
"""Number of nearest users in reserve, as a multiple of those needed, because some may drop out without a view."""


def entry_of_each_view(counts: Any, log: Log, n_items: int) -> Ints:
    """Return for each of V views the position of its user and item among the entries of the CSR count matrix, (V,)."""
    users, items = views_of(log, n_items)
    row = np.cumsum(np.concatenate([[False], users[1:] != users[:-1]]))
    # One ascending number per entry of the matrix, in which the views' numbers are searched.
    entry_keys = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr)) * n_items + counts.indices
    return np.searchsorted(entry_keys, row * n_items + items)


def popularity_places(log: Log, n_items: int, unseen: bool) -> tuple[Ints, Ints]:
    """Rank each view's item by popularity, when the view is left out.

    Args:
        log: log with V views.
        n_items: number of items.
        unseen: leave the items of the user's other views out.

    Returns:
        n_above: (V,) number of items that are viewed more often.
        n_equal: (V,) number of other items that are viewed equally often.
    """
    from recsim_mnar.agents.neighbours import _neighbours_kernel

    items = views_of(log, n_items)[1]
    popularity = np.bincount(items, minlength=n_items)
    ascending = np.sort(popularity)
    # Without the view its item has one view less; the item itself is among those with more than that.
    n_not_above = np.searchsorted(ascending, popularity - 1, side="right")
    n_above = n_items - n_not_above - 1
    n_equal = n_not_above - np.searchsorted(ascending, popularity - 1)
    if not unseen:
        return n_above[items], n_equal[items]
    counts, _ = view_counts(log, n_items)
    starts, columns, _ = compressed(counts)
    n_above = n_above[columns]
    n_equal = n_equal[columns]
    _neighbours_kernel.leave_out_seen(starts, columns, popularity, n_above, n_equal)
    entry = entry_of_each_view(counts, log, n_items)
    return n_above[entry], n_equal[entry]


def item_places(log: Log, n_items: int, k: int, include_self: bool, unseen: bool) -> tuple[Ints, Ints]:
    """Rank each view's item by the user's other views, with neighbours fitted on the log without that view.

    Args:
        log: log with V views.
        n_items: number of items.
        k: number of neighbours of an item.
        include_self: let an item be its own neighbour.
        unseen: leave the items of the user's other views out.

    Returns:
        n_above: (V,) number of items with a larger score, where scores equal to the last bit those of a separate fit.
        n_equal: (V,) number of other items with an equal score.
    """
    from recsim_mnar.agents.neighbours import _neighbours_kernel

    counts, _ = view_counts(log, n_items)
    squares = squared_norms(counts)
    k = min(k, n_items)
    work = work_space(squares)
    gram = np.zeros((0, 0), work[0].dtype)
    if n_items <= _GRAM_UP_TO:
        gram = np.ascontiguousarray((counts.T @ counts).toarray(), dtype=gram.dtype)
    tables = compressed(counts.tocsc()), compressed(counts), gram, squares, inverse_norms(counts, 0)
    rows = _rows_and_next(counts, k, include_self)
    n_above = np.empty(counts.nnz, np.int64)
    n_equal = np.empty(counts.nnz, np.int64)
    own_counts = np.zeros(n_items, np.int64)
    base = np.empty(n_items)
    row = np.empty(n_items)
    _neighbours_kernel.item_places(
        unseen, *tables, k, include_self, rows, work, own_counts, base, row, n_above, n_equal
    )
    entry = entry_of_each_view(counts, log, n_items)
    return n_above[entry], n_equal[entry]


def user_places(log: Log, n_items: int, k: int, unseen: bool) -> tuple[Ints, Ints]:
    """Rank each view's item by the most similar other users, when the view is left out.

    Args:
        log: log with V views.
        n_items: number of items.
        k: number of most similar users.
        unseen: leave the items of the user's other views out.

    Returns:
        n_above: (V,) number of items with a larger score.
        n_equal: (V,) number of other items with an equal score.
    """
    from recsim_mnar.agents.neighbours import _neighbours_kernel

    counts, _ = view_counts(log, n_items)
    n_users = counts.shape[0]
    room = (1 + _SPARE) * k
    n_above = np.empty(counts.nnz, np.int64)
    n_equal = np.empty(counts.nnz, np.int64)
    _neighbours_kernel.user_places(
        unseen,
        compressed(counts.tocsc()),
        compressed(counts),
        inverse_norms(counts, 1),
        k,
        np.zeros(n_users, np.int64),  # from here on scratch: dots
        np.empty(n_users, np.int32),  # touched
        np.full(n_users, -1, np.int64),  # stamp
        (np.empty(room, np.int32), np.empty(room)),  # listed
        (np.empty(k, np.int32), np.empty(k)),  # chosen
        np.zeros(n_items, np.float32),  # row
        n_above,
        n_equal,
    )
    entry = entry_of_each_view(counts, log, n_items)
    return n_above[entry], n_equal[entry]


def _rows_and_next(counts: Any, k: int, include_self: bool) -> tuple[NDArray[Any], ...]:
    """Find the neighbours of each item, with what is needed to change one of them.

    Args:
        counts: (n_users, n_items) scipy CSR array of view counts.
        k: number of neighbours of an item.
        include_self: let an item be its own neighbour.

    Returns:
        items (n_items, k), ascending, and their cosines; number of neighbours (n_items,); item and cosine of the
        weakest neighbour of each full row, (n_items,) each; item and cosine of the best item that is no neighbour. Item
        -1 stands for none.
    """
    n_items = counts.shape[1]
    starts, neighbours, cosines = most_similar(counts, k + 1, include_self)
    length = np.diff(starts)
    width = int(length.max(initial=0))
    items = np.full((n_items, max(width, k) + 1), n_items, np.int32)  # n_items: no neighbour, sorts last
    values = np.full(items.shape, np.inf, np.float32)
    filled = np.arange(items.shape[1]) < length[:, None]
    items[filled] = neighbours
    values[filled] = cosines
    # Of rows with k + 1 neighbours the weakest is the best item that is no neighbour.
    best_out = _take_weakest(items, values, length > k)
    length = np.minimum(length, k)
    weakest = _take_weakest(items.copy(), values.copy(), length == k)  # copies: the weakest neighbour stays one
    order = np.argsort(items, axis=1, kind="stable")[:, :k]  # removed items sort last
    return (
        np.ascontiguousarray(np.take_along_axis(items, order, axis=1)),
        np.ascontiguousarray(np.take_along_axis(values, order, axis=1)),
        length.astype(np.int64),
        *weakest,
        *best_out,
    )


def _take_weakest(
    items: NDArray[np.int32], values: NDArray[np.float32], rows: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Remove the entry with the smallest value from some rows, of equal ones that of the highest item.

    Args:
        items: (n_items, w) items of each row, ascending; changed in place.
        values: (n_items, w) their values; changed in place.
        rows: (n_items,) True for the rows from which an entry is removed.

    Returns:
        item: (n_items,) the removed item; -1 for other rows.
        value: (n_items,) its value; 0 for other rows.
    """
    which = np.flatnonzero(rows)
    item = np.full(len(items), -1, np.int32)
    value = np.zeros(len(items), np.float32)
    # Rows are in the order of items: the last of the smallest values is the first in reverse.
    column = items.shape[1] - 1 - values[which, ::-1].argmin(axis=1)
    item[which] = items[which, column]
    value[which] = values[which, column]
    items[which, column] = np.iinfo(np.int32).max  # sorts last
    values[which, column] = np.inf  # is never the weakest
    return item, value


class ItemKNN(Learner):
    """Learner of a policy that ranks items by their similarity to the user's views (item-based neighbourhood).

    An item's score is the sum of its similarities to the viewed items of which it is a neighbour: with view counts
    n[u, i], score(u, i) = sum over j with i among the k nearest of j of n[u, j] cos(i, j). The similarity is the cosine
    of two columns, ``cos(i, j) = n[:, i] . n[:, j] / (|n[:, i]| |n[:, j]|)`` (Sarwar et al. 2001; Jeunen, Rohde &
    Vasile 2019, section 3).

    Args:
        neighbours: number of most similar items that are the neighbours of an item; of equally similar ones the lower
            index is taken.
        include_self: count an item as its own neighbour with similarity 1, as the authors' notebook of 2019 does.
    """

    name = "item-knn"

    def __init__(self, neighbours: int = 500, include_self: bool = False) -> None:
        self.neighbours = whole_number(neighbours, f"{self.name}: neighbours", least=1)
        self.include_self = flag(include_self, "include_self")

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`; no draws are made."""
        counts, _ = view_counts(log, n_items)
        starts, neighbours, similarities = most_similar(counts, self.neighbours, self.include_self)
        return ItemKNNPolicy(
            n_items,
            self.name,
            starts=starts,
            neighbours=neighbours,
            similarities=similarities,
            parameters={"neighbours": self.neighbours, "include_self": self.include_self},
        )

    def leave_one_out_ranks(self, log: Log, *, n_items: int, unseen: bool) -> tuple[Ints, Ints]:
        """Implement :meth:`recsim_mnar.agents.baselines.Popularity.leave_one_out_ranks`."""
        return item_places(log, n_items, self.neighbours, self.include_self, unseen)


class ItemKNNPolicy(GreedyPolicy):
    """Policy that recommends the item with the largest sum of similarities to the user's views.

    Similarities are rounded to float32 and summed in float64, in which such sums are exact. So scores do not depend on
    the order of the views, and items with equal similarities are tied.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        starts: (n_items + 1,) index of each item's first neighbour.
        neighbours: neighbours of all items.
        similarities: float32 similarity of each neighbour.
        parameters: the learner's parameters, for provenance.
    """

    def __init__(
        self,
        n_items: int,
        name: str,
        *,
        starts: NDArray[Any],
        neighbours: NDArray[Any],
        similarities: NDArray[Any],
        parameters: Mapping[str, Any],
    ) -> None:
        self._rows = (
            np.ascontiguousarray(starts, np.int64),
            np.ascontiguousarray(neighbours, np.int32),
            np.ascontiguousarray(similarities, np.float32),
        )
        stored: dict[str, NDArray[Any]] = dict(zip(("starts", "neighbours", "similarities"), self._rows, strict=True))
        super().__init__(n_items, name, stored, parameters)

    def _start(self) -> None:
        """Implement :meth:`recsim_mnar.agents.acting.SlotPolicy._start`."""
        self._sums = np.empty((0, self.n_items))  # (n_slots, n_items) scores
        self._used = np.zeros(0, np.bool_)  # (n_slots,) True for slots with views
        super()._start()

    def _resize(self, n_slots: int) -> None:
        """Grow to ``n_slots`` slots; rows of unused slots are not copied, so that they take no memory."""
        super()._resize(n_slots)
        sums = np.zeros((n_slots, self.n_items))
        used = np.zeros(n_slots, np.bool_)
        used_before = np.flatnonzero(self._used)
        sums[used_before] = self._sums[used_before]
        used[used_before] = True
        self._sums = sums
        self._used = used

    def _clear(self, slots: NDArray[np.int64]) -> None:
        """Implement :meth:`recsim_mnar.agents.acting.SlotPolicy._clear`."""
        super()._clear(slots)
        # Rows of zeros that were never written to take no memory yet: writing zeros to them would.
        used = slots[self._used[slots]]
        self._sums[used] = 0.0
        self._used[used] = False

    def _view(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        """Add the similarities of the viewed items' neighbours to the users' scores, and rank their items at once."""
        from recsim_mnar.agents.neighbours import _neighbours_kernel

        super()._view(slots, items)
        self._used[slots] = True
        _neighbours_kernel.add_rows(self._sums, slots, items, *self._rows, self._ties, self._tied)

    def top(self, views: Any, n: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return the n best items for many users at once, without storing their views.

        Args:
            views: (n_users, n_items) scipy CSR array of view counts.
            n: number of items per user.

        Returns:
            items: (n_users, n) items, best first, of equal ones the lower index; -1 in the rest of a row if fewer items
                have a positive score.
            scores: (n_users, n) their scores; 0 in the rest of such a row.
        """
        from recsim_mnar.agents.neighbours import _neighbours_kernel

        if views.shape[1] != self.n_items:
            raise UserError(f"views have {views.shape[1]} items, {self.name} was made for {self.n_items}")
        items = np.empty((views.shape[0], n), np.int32)
        scores = np.empty((views.shape[0], n))
        _neighbours_kernel.top_items(*compressed(views), *self._rows, np.zeros(self.n_items), items, scores)
        return items, scores

    def _score(self, slots: NDArray[np.int64]) -> NDArray[np.floating]:
        return self._sums[slots]

    def scores(self, users: Ints) -> NDArray[np.floating]:
        """Implement :meth:`recsim_mnar.agents.acting.SlotPolicy.scores`."""
        return self._sums[self._slots.find(users)]

    def _rank(self, slots: NDArray[np.int64]) -> None:
        """Implement :meth:`recsim_mnar.agents.acting.GreedyPolicy._rank`, from the stored scores."""
        from recsim_mnar.agents import _acting_kernel

        _acting_kernel.best(self._sums, slots, slots, self._ties, self._tied)


class UserKNN(Learner):
    """Learner of a policy that ranks items by the views of the most similar training users (user-based neighbourhood).

    An item's score is the sum of these users' view counts, each weighted by the cosine with the user's own counts: with
    view counts n[u, i], score(u, i) = sum over the k users v nearest to u of cos(u, v) n[v, i], and
    ``cos(u, v) = n[u] . n[v] / (|n[u]| |n[v]|)`` (Herlocker et al. 1999; Jeunen, Rohde & Vasile 2019, section 3).

    Args:
        neighbours: number of most similar users; of equally similar ones the first in the log is taken.
    """

    name = "user-knn"
    ignores_own_views = True

    def __init__(self, neighbours: int = 20) -> None:
        self.neighbours = whole_number(neighbours, f"{self.name}: neighbours", least=1)

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`; no draws are made."""
        counts, users = view_counts(log, n_items)
        starts, items, data = compressed(counts)
        return UserKNNPolicy(
            n_items,
            self.name,
            starts=starts,
            items=items,
            counts=data,
            users=users,
            parameters={"neighbours": self.neighbours},
        )

    def leave_one_out_ranks(self, log: Log, *, n_items: int, unseen: bool) -> tuple[Ints, Ints]:
        """Implement :meth:`recsim_mnar.agents.baselines.Popularity.leave_one_out_ranks`."""
        return user_places(log, n_items, self.neighbours, unseen)


class UserKNNPolicy(TrainingRows, GreedyPolicy):
    """Policy that recommends the item with the largest weighted view count among the most similar training users.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        starts: (n_users + 1,) index of each training user's first item.
        items: items that the training users viewed.
        counts: view count of each of these.
        users: (n_users,) ids of the training users, ascending.
        parameters: the learner's parameters, for provenance.
    """

    keeps_views = True

    def __init__(
        self,
        n_items: int,
        name: str,
        *,
        starts: NDArray[Any],
        items: NDArray[Any],
        counts: NDArray[Any],
        users: NDArray[Any],
        parameters: Mapping[str, Any],
    ) -> None:
        from scipy import sparse

        rows = sparse.csr_array((counts, items, starts), shape=(len(users), n_items))
        self._by_user = compressed(rows)
        self._by_item = compressed(rows.tocsc())
        self._scale = inverse_norms(rows, 1)
        self._users = np.asarray(users, np.int64)
        self._k = int(parameters["neighbours"])
        stored: dict[str, NDArray[Any]] = dict(zip(("starts", "items", "counts"), self._by_user, strict=True))
        super().__init__(n_items, name, {**stored, "users": self._users}, parameters)

    def _start(self) -> None:
        """Remove all users, and make new scratch arrays, which a copy of the policy must not share."""
        n_users = len(self._users)
        self._work = (  # scratch of the kernel
            np.zeros(n_users, np.int64),  # dots
            np.empty(n_users + 1, np.int32),  # touched
            np.zeros(self.n_items, np.int32),  # the user's counts
            np.empty(self._k, np.int32),  # nearest users
            np.empty(self._k),  # their similarities
        )
        super()._start()

    def _score(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """Implement :meth:`recsim_mnar.agents.acting.GreedyPolicy._score`."""
        from recsim_mnar.agents.neighbours import _neighbours_kernel

        out = np.empty((len(slots), self.n_items), np.float32)
        counts = (self._by_item, self._by_user)
        views = self._histories.arrays
        _neighbours_kernel.user_scores(views, slots, self._own_row, *counts, self._scale, self._k, self._work, out)
        return out
