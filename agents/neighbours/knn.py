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


def inverse_norms(counts: Any, axis: int) -> NDArray[np.float64]:
    """1 / Euclidean norm of the columns (axis 0) or rows (axis 1) of counts; 0 for empty ones."""
    square = np.zeros(counts.shape[1 - axis], np.int64)
    if axis == 0:
        index = counts.indices
    else:
        index = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    np.add.at(square, index, counts.data.astype(np.int64) ** 2)
    scale = np.zeros(len(square))
    np.divide(1.0, np.sqrt(square), out=scale, where=square > 0)
    return scale


def compressed(matrix: Any) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Index pointer, indices and counts of a compressed matrix, in the types the kernels are compiled for."""
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data.astype(np.int32)


def squared_norms(counts: Any) -> NDArray[np.int64]:
    """Compressed columns of the count matrix."""
    squares = np.zeros(counts.shape[1], np.int64)
    np.add.at(squares, counts.indices, counts.data.astype(np.int64) ** 2)
    return squares


def work_space(squares: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
    """Scratch arrays of the kernels that find neighbours."""
    from recsim_mnar.agents.neighbours import _neighbours_kernel

    n_items = len(squares)
    bits = np.zeros(n_items, np.int32)
    # No dot product of columns is larger than the largest squared norm; half the bytes, where they suffice, are faster.
    kind = np.int32 if squares.max(initial=0) < 2**31 else np.int64
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
    """The k items of largest cosine with each item, as (starts, items, cosines); rows in the order of items.

    Args:
        counts: (n_users, n_items) scipy CSR array of integers.
        k: at most so many an item; only positive cosines count, and equal ones go to the lower item.
        include_self: let an item be among its own.
    """
    from recsim_mnar.agents.neighbours import _neighbours_kernel

    n_items = counts.shape[1]
    k = min(k, n_items)
    scale = inverse_norms(counts, 0)
    work = work_space(squared_norms(counts))
    by_item = compressed(counts.tocsc())
    by_user = compressed(counts)
    if counts.data.max(initial=1) == 1:
        by_user = (*by_user[:2], by_user[2][:0])
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
"""Items up to which all dot products are made at once: 64 MB at most."""

_SPARE = 2
"""How many nearest users are kept beyond those needed, as a multiple of these, against the loss of some of them."""


def entry_of_each_view(counts: Any, log: Log, n_items: int) -> Ints:
    """(V,) position of each organic row's user and item among the entries of the CSR count matrix."""
    users, items = views_of(log, n_items)
    owner = np.cumsum(np.concatenate([[False], users[1:] != users[:-1]]))
    keys = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr)) * n_items + counts.indices
    return np.searchsorted(keys, owner * n_items + items)


def popularity_places(log: Log, n_items: int, unseen: bool) -> tuple[Ints, Ints]:
    """For each view: items viewed more often than its item when the view is left out, and items tied with it.

    Args:
        log: the organic rows are the views.
        n_items: number of items.
        unseen: leave the items of the user's other views out.
    """
    from recsim_mnar.agents.neighbours import _neighbours_kernel

    items = views_of(log, n_items)[1]
    popularity = np.bincount(items, minlength=n_items)
    ordered = np.sort(popularity)
    right = np.searchsorted(ordered, popularity - 1, side="right")
    above = n_items - right - 1
    level = right - np.searchsorted(ordered, popularity - 1)
    if not unseen:
        return above[items], level[items]
    counts, _ = view_counts(log, n_items)
    starts, columns, _ = compressed(counts)
    above = above[columns]
    level = level[columns]
    _neighbours_kernel.leave_out_seen(starts, columns, popularity, above, level)
    entry = entry_of_each_view(counts, log, n_items)
    return above[entry], level[entry]


def item_places(log: Log, n_items: int, k: int, include_self: bool, unseen: bool) -> tuple[Ints, Ints]:
    """For each view, the rank of its item by the user's other views, under a neighbourhood fitted without that view.

    Args:
        log: the organic rows are the views.
        n_items: number of items.
        k: neighbours of an item.
        include_self: an item may be its own neighbour.
        unseen: leave the items of the user's other views out.

    Returns:
        Items above it, and items tied with it, by the scores, to the last bit, of a fit on the log without that row.
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
    rows, above, level = _rows_and_next(counts, k, include_self), *np.empty((2, counts.nnz), np.int64)
    own_counts = np.zeros(n_items, np.int64)
    base = np.empty(n_items)
    row = np.empty(n_items)
    _neighbours_kernel.item_places(unseen, *tables, k, include_self, rows, work, own_counts, base, row, above, level)
    entry = entry_of_each_view(counts, log, n_items)
    return above[entry], level[entry]


def user_places(log: Log, n_items: int, k: int, unseen: bool) -> tuple[Ints, Ints]:
    """For each view, the rank of its item under the user neighbourhood, from the user's other views.

    Args:
        log: the organic rows are the views.
        n_items: number of items.
        k: most similar users taken; a user is never compared with their own row.
        unseen: leave the items of the user's other views out.
    """
    from recsim_mnar.agents.neighbours import _neighbours_kernel

    counts, _ = view_counts(log, n_items)
    n_users = counts.shape[0]
    room = (1 + _SPARE) * k
    above = np.empty(counts.nnz, np.int64)
    level = np.empty(counts.nnz, np.int64)
    _neighbours_kernel.user_places(
        unseen,
        compressed(counts.tocsc()),
        compressed(counts),
        inverse_norms(counts, 1),
        k,
        np.zeros(n_users, np.int64),
        np.empty(n_users, np.int32),
        np.full(n_users, -1, np.int64),
        (np.empty(room, np.int32), np.empty(room)),
        (np.empty(k, np.int32), np.empty(k)),
        np.zeros(n_items, np.float32),
        above,
        level,
    )
    entry = entry_of_each_view(counts, log, n_items)
    return above[entry], level[entry]


def _rows_and_next(counts: Any, k: int, include_self: bool) -> tuple[NDArray[Any], ...]:
    """Neighbour rows (n_items, k), their lengths, the weakest entry of each full row, and the best item outside."""
    n_items = counts.shape[1]
    starts, neighbours, cosines = most_similar(counts, k + 1, include_self)
    length = np.diff(starts)
    width = int(length.max(initial=0))
    items = np.full((n_items, max(width, k) + 1), n_items, np.int32)
    values = np.full(items.shape, np.inf, np.float32)
    filled = np.arange(items.shape[1]) < length[:, None]
    items[filled], values[filled] = neighbours, cosines
    best_out = _take_weakest(items, values, length > k)
    length = np.minimum(length, k)
    kept_items = items.copy()
    kept_values = values.copy()
    weakest = _take_weakest(kept_items, kept_values, length == k)
    order = np.argsort(items, axis=1, kind="stable")[:, :k]
    in_order = np.take_along_axis(items, order, axis=1), np.take_along_axis(values, order, axis=1)
    return (
        np.ascontiguousarray(in_order[0]),
        np.ascontiguousarray(in_order[1]),
        length.astype(np.int64),
        *weakest,
        *best_out,
    )


def _take_weakest(
    items: NDArray[np.int32], values: NDArray[np.float32], rows: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Remove the smallest value (of ties the highest item) from the named rows; (-1, 0) for the other rows."""
    which = np.flatnonzero(rows)
    item = np.full(len(items), -1, np.int32)
    value = np.zeros(len(items), np.float32)
    # Rows are in the order of items: the last of the smallest is the first in reverse.
    column = items.shape[1] - 1 - values[which, ::-1].argmin(axis=1)
    item[which], value[which] = items[which, column], values[which, column]
    items[which, column], values[which, column] = np.iinfo(np.int32).max, np.inf
    return item, value


class ItemKNN(Learner):
    """Sum over the user's views of each item's cosine with the viewed item, where it is among that item's neighbours.

    Cosine of the columns of the matrix of view counts (Sarwar et al. 2001; Jeunen, Rohde & Vasile 2019).

    Args:
        neighbours: most similar items kept for each item; equally similar ones by lower index.
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
    """Greedy on the sum of the similarity rows of the user's views.

    Cosines are rounded to float32 and summed in float64, which holds their sums exactly: scores do not depend on the
    order of the views, and items with equal cosines tie.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        starts: (n_items + 1,) where each item's neighbours begin.
        neighbours: items.
        similarities: cosines, float32.
        parameters: the learner's, for provenance.
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
        self._sums = np.empty((0, self.n_items))
        self._used = np.zeros(0, np.bool_)
        super()._start()

    def _resize(self, n_slots: int) -> None:
        super()._resize(n_slots)
        sums = np.zeros((n_slots, self.n_items))
        used = np.zeros(n_slots, np.bool_)
        before = np.flatnonzero(self._used)
        sums[before] = self._sums[before]
        used[before] = True
        self._sums = sums
        self._used = used

    def _clear(self, slots: NDArray[np.int64]) -> None:
        super()._clear(slots)
        # Zeros that were never written to take no memory yet, and are left alone.
        used = slots[self._used[slots]]
        self._sums[used] = 0.0
        self._used[used] = False

    def _view(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        from recsim_mnar.agents.neighbours import _neighbours_kernel

        super()._view(slots, items)
        self._used[slots] = True
        _neighbours_kernel.add_rows(self._sums, slots, items, *self._rows, self._ties, self._tied)

    def top(self, views: Any, n: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Best items for many users at once, without keeping a state for them.

        Args:
            views: (n_users, n_items) scipy CSR array of view counts.
            n: how many items.

        Returns:
            (n_users, n) items, best first, equals by lower index, -1 where fewer have a positive score; and their
            scores, 0 there.
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
        from recsim_mnar.agents import _acting_kernel

        _acting_kernel.best(self._sums, slots, slots, self._ties, self._tied)


class UserKNN(Learner):
    """Sum of the view counts of the most similar training users, each weighted by its cosine with the user.

    Args:
        neighbours: most similar users taken; equally similar ones by their order in the log.
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
    """Greedy on the counts of the nearest training users.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        starts: (n_users + 1,) where each training user's items begin.
        items: items that the training users viewed.
        counts: how often.
        users: (n_users,) ascending ids of the training users.
        parameters: the learner's, for provenance.
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
        n_users = len(self._users)
        self._work = (
            np.zeros(n_users, np.int64),
            np.empty(n_users + 1, np.int32),
            np.zeros(self.n_items, np.int32),
            np.empty(self._k, np.int32),
            np.empty(self._k),
        )
        super()._start()

    def _score(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        from recsim_mnar.agents.neighbours import _neighbours_kernel

        out = np.empty((len(slots), self.n_items), np.float32)
        counts = (self._by_item, self._by_user)
        views = self._histories.arrays
        _neighbours_kernel.user_scores(views, slots, self._own_row, *counts, self._scale, self._k, self._work, out)
        return out
