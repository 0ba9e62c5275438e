"""Neighbourhood recommenders: cosine between items, and cosine between users."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.neighbours.similarity import ItemDowndate, compressed, inverse_norms, most_similar, user_places
from recsim_mnar.agents.state.acting import GreedyPolicy, TrainingRows
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import whole_number
from recsim_mnar.log.views import view_counts
from recsim_mnar.policies.base import Ints, Learner, Policy

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log


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
        self.include_self = bool(include_self)

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """See :meth:`recsim_mnar.policies.Learner.fit`; no draws are made."""
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

    def scores_without_each_view(
        self, log: Log, *, n_items: int, chunk: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Scores when fitted without each organic row in turn: (row positions, (m, n_items) scores), m <= chunk."""
        return self._downdate(log, n_items).scores(chunk)

    def leave_one_out_ranks(self, log: Log, *, n_items: int, unseen: bool) -> tuple[Ints, Ints]:
        """See :meth:`recsim_mnar.agents.baselines.Popularity.leave_one_out_ranks`."""
        return self._downdate(log, n_items).places(unseen)

    def _downdate(self, log: Log, n_items: int) -> ItemDowndate:
        return ItemDowndate(log, n_items=n_items, k=self.neighbours, include_self=self.include_self)


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
        parameters: dict[str, Any],
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
        sums, used = np.zeros((n_slots, self.n_items)), np.zeros(n_slots, np.bool_)
        before = np.flatnonzero(self._used)
        sums[before] = self._sums[before]
        used[before] = True
        self._sums, self._used = sums, used

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
        items, scores = np.empty((views.shape[0], n), np.int32), np.empty((views.shape[0], n))
        _neighbours_kernel.top_items(*compressed(views), *self._rows, np.zeros(self.n_items), items, scores)
        return items, scores

    def _score(self, slots: NDArray[np.int64]) -> NDArray[np.floating]:
        return self._sums[slots]

    def scores(self, users: Ints) -> NDArray[np.floating]:
        """See :meth:`recsim_mnar.agents.state.acting.SlotPolicy.scores`."""
        return self._sums[self._slots.find(users)]

    def _rank(self, slots: NDArray[np.int64]) -> None:
        from recsim_mnar.agents.state import _acting_kernel

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
        """See :meth:`recsim_mnar.policies.Learner.fit`; no draws are made."""
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
        """See :meth:`recsim_mnar.agents.baselines.Popularity.leave_one_out_ranks`."""
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
        parameters: dict[str, Any],
    ) -> None:
        from scipy import sparse

        rows = sparse.csr_array((counts, items, starts), shape=(len(users), n_items))
        self._by_user, self._by_item = compressed(rows), compressed(rows.tocsc())
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
        counts, views = (self._by_item, self._by_user), self._histories.arrays
        _neighbours_kernel.user_scores(views, slots, self._own_row, *counts, self._scale, self._k, self._work, out)
        return out
