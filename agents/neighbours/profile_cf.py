"""Collaborative filtering on profiles, sets of distinct items: by cosine, and naive (de Myttenaere et al. 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.neighbours.knn import compressed
from recsim_mnar.agents.state.acting import GreedyPolicy, TrainingRows
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.views import view_counts, views_of
from recsim_mnar.policies.base import Learner, Policy

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

Int64s = NDArray[np.int64]

_BITS = 32
"""Fraction bits of 1 / sqrt(n): sums of such numbers are exact, and fit in 62 bits for a thousand million terms."""

MOST_DENSE = 10_000
"""Items of which a table of all pairs is kept (.8 GB); of more, the pairs that somebody holds, with the same sums."""


def _units(lengths: Int64s) -> Int64s:
    """1 / sqrt(n) in fixed point for each profile length n, (U,) int64."""
    return np.rint(2.0**_BITS / np.sqrt(np.maximum(lengths, 1).astype(np.float64))).astype(np.int64)


Pairs = tuple[Int64s | None, NDArray[np.int32] | None, Int64s]
"""Where each item's partners begin, (I + 1,), the partners, ascending, and a number of each pair; or None, None and all
pairs, (I, I)."""


def pairs_of(starts: Int64s, items: NDArray[np.int32], unit: Int64s, n_items: int) -> Pairs:
    """Sum of unit[u] over the users who have both items, i = j included; for occurring pairs or all pairs."""
    from recsim_mnar.agents.neighbours import _profile_cf_kernel

    if n_items <= MOST_DENSE:
        every = np.zeros((n_items, n_items), np.int64)
        _profile_cf_kernel.cooccurrence(starts, items, unit, every)
        return None, None, every
    from scipy import sparse

    shape = (len(starts) - 1, n_items)
    held = sparse.csr_array((np.ones(len(items), np.int64), items, starts), shape)
    weighted = sparse.csr_array((np.repeat(unit, np.diff(starts)), items, starts), shape)
    table = sparse.csr_array(held.T @ weighted)
    table.sort_indices()
    return table.indptr.astype(np.int64), table.indices.astype(np.int32), table.data


def counts_of(starts: Int64s, items: NDArray[np.int32], n_items: int) -> Pairs:
    """Number of users who have both items."""
    return pairs_of(starts, items, np.ones(len(starts) - 1, np.int64), n_items)


def distinct_rows(log: Log, n_items: int) -> tuple[Int64s, NDArray[np.int32]] | None:
    """Index pointers of the users and items of the organic rows, in order.

    None where a user has an item twice, so that leaving one row out leaves the item in the profile.
    """
    users, items = views_of(log, n_items)
    if len(np.unique(users * n_items + items)) < len(items):
        return None
    new = user_starts(users)
    return np.append(new, len(users)).astype(np.int64), np.ascontiguousarray(items, np.int32)


class _ProfilePolicy(GreedyPolicy):
    """Greedy on float64 scores; known items score -inf."""

    keeps_views = True
    score_type = np.float64


class CosineCF(Learner):
    """Sum of all other users' profiles, each weighted by its cosine with the user's; known items excluded.

    ``b_u = sum over v != u of (B_u . B_v) / (|B_u| |B_v|) B_v`` (de Myttenaere et al. 2015, section 5.1 a). Linear in
    the profile x: ``b = x' G / |x|`` with ``G = sum over v of B_v B_v' / |B_v|``, the user's own row taken out.
    """

    name = "cosine-cf"
    ignores_own_views = True

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """See :meth:`recsim_mnar.policies.Learner.fit`; no draws are made."""
        counts, users = view_counts(log, n_items)
        starts, items, _ = compressed(counts)
        return CosineCFPolicy(n_items, self.name, starts=starts, items=items, users=users)

    def leave_one_out_ranks(self, log: Log, *, n_items: int, unseen: bool = True) -> tuple[Int64s, Int64s] | None:
        """Exhaustive leave-one-out ranks in closed form: each organic row's item, fitted without that row.

        Args:
            log: whose rows are left out.
            n_items: number of items.
            unseen: the items of the user's other rows are no candidates.

        Returns:
            (E,) how many of the items that the user does not hold score above it, and (E,) how many level with it;
            None, there being no closed form, where known items are candidates or a user has an item twice.
        """
        from recsim_mnar.agents.neighbours import _profile_cf_kernel as kernel

        distinct = distinct_rows(log, n_items) if unseen else None
        if distinct is None:
            return None
        starts, items = distinct
        unit = _units(np.diff(starts))
        begins, partners, sums = pairs_of(starts, items, unit, n_items)
        places, scratch = (np.empty(len(items), np.int64), np.empty(len(items), np.int64)), np.zeros(n_items, np.int64)
        if begins is None:
            kernel.cosine_places(starts, items, unit, sums, scratch, *places)
        else:
            more = np.zeros(n_items, np.int64), np.zeros(n_items, np.bool_), np.empty(n_items, np.int64)
            kernel.cosine_places_met(starts, items, unit, begins, partners, sums, scratch, *more, *places)
        return places


class CosineCFPolicy(TrainingRows, _ProfilePolicy):
    """Greedy on the cosine-weighted sum of the training users' profiles.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        starts: (U + 1,) where each training user's items begin.
        items: the distinct items of each.
        users: (U,) their ids, ascending.
    """

    def __init__(
        self, n_items: int, name: str, *, starts: NDArray[Any], items: NDArray[Any], users: NDArray[Any]
    ) -> None:
        self._rows = (np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(items, np.int32))
        self._unit = _units(np.diff(self._rows[0]))
        self._users = np.asarray(users, np.int64)
        self._pairs = pairs_of(*self._rows, self._unit, n_items)
        super().__init__(n_items, name, {"starts": self._rows[0], "items": self._rows[1], "users": self._users})

    def _start(self) -> None:
        self._held, self._sums = np.zeros(self.n_items, np.bool_), np.empty(self.n_items, np.int64)
        super()._start()

    def _score(self, slots: NDArray[np.int64]) -> NDArray[Any]:
        from recsim_mnar.agents.neighbours import _profile_cf_kernel

        out = np.empty((len(slots), self.n_items))
        work = (self._held, self._sums, out)
        _profile_cf_kernel.cosine_scores(
            self._histories.arrays, slots, self._own_row, *self._pairs, *self._rows, self._unit, *work
        )
        # A power of two keeps every bit; the norm of the user's own profile scales a row alone and is left out.
        return out * 2.0**-_BITS


class NaiveCF(Learner):
    """Largest share, over the user's items j, of the users with j who also have the item; known items excluded.

    b_u(i) = max over j in I_u of #(U_i and U_j) / #U_j (de Myttenaere et al. 2015, section 5.1 b).
    """

    name = "naive-cf"

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """See :meth:`recsim_mnar.policies.Learner.fit`; no draws are made."""
        starts, items, _ = compressed(view_counts(log, n_items)[0])
        begins, partners, counts = counts_of(starts, items, n_items)
        return NaiveCFPolicy(n_items, self.name, begins=begins, partners=partners, counts=counts)

    def leave_one_out_ranks(self, log: Log, *, n_items: int, unseen: bool = True) -> tuple[Int64s, Int64s] | None:
        """As :meth:`CosineCF.leave_one_out_ranks`."""
        from recsim_mnar.agents.neighbours import _profile_cf_kernel as kernel

        distinct = distinct_rows(log, n_items) if unseen else None
        if distinct is None:
            return None
        starts, items = distinct
        begins, partners, counts = counts_of(starts, items, n_items)
        places = np.empty(len(items), np.int64), np.empty(len(items), np.int64)
        scratch = np.zeros(n_items), np.zeros(n_items), np.empty(n_items, np.int64)
        if begins is None:
            kernel.ratio_places(starts, items, counts, _ratios(begins, partners, counts), *scratch, *places)
        else:
            kernel.ratio_places_met(
                starts, items, begins, partners, counts, _ratios(begins, partners, counts),
                np.bincount(items, minlength=n_items), *scratch, np.zeros(n_items, np.int64),
                np.zeros(n_items, np.bool_), np.empty(n_items, np.int64), *places,
            )  # fmt: skip
        return places


class NaiveCFPolicy(_ProfilePolicy):
    """Greedy on the largest share.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        counts: (n_items, n_items) users who hold both items; on the diagonal, who hold the item. With ``begins`` and
            ``partners`` those of the pairs that somebody holds, as :func:`pairs_of` has them.
        begins: (n_items + 1,) where each item's partners begin.
        partners: of each item, ascending.
    """

    def __init__(
        self, n_items: int, name: str, *, counts: NDArray[Any], begins: NDArray[Any] | None = None,
        partners: NDArray[Any] | None = None,
    ) -> None:  # fmt: skip
        self._pairs: Pairs = (
            None if begins is None else np.ascontiguousarray(begins, np.int64),
            None if partners is None else np.ascontiguousarray(partners, np.int32),
            np.ascontiguousarray(counts, np.int64),
        )
        self._ratios = _ratios(*self._pairs)
        named = zip(("counts", "begins", "partners"), (self._pairs[2], *self._pairs[:2]), strict=True)
        super().__init__(n_items, name, {name: values for name, values in named if values is not None})

    def _score(self, slots: NDArray[np.int64]) -> NDArray[Any]:
        from recsim_mnar.agents.neighbours import _profile_cf_kernel

        out = np.empty((len(slots), self.n_items))
        _profile_cf_kernel.best_ratios(self._histories.arrays, slots, *self._pairs[:2], self._ratios, out)
        return out


def _ratios(begins: Int64s | None, partners: NDArray[np.int32] | None, counts: Int64s) -> NDArray[np.float64]:
    """Share of the users with item j who also have item i, for each pair (j, i); 0 if no user has j."""
    if begins is None or partners is None:
        holders = np.diagonal(counts).astype(np.float64)[:, None]
        return np.divide(counts, holders, out=np.zeros(counts.shape), where=holders > 0)
    item = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
    holders = np.zeros(len(begins) - 1)
    holders[item[item == partners]] = counts[item == partners]
    return counts / holders[item]
