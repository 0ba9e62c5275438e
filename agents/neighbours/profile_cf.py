"""Collaborative filtering on profiles, sets of distinct items: by cosine, and naive (de Myttenaere et al. 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.neighbours.similarity import compressed
from recsim_mnar.agents.state.acting import GreedyPolicy
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.views import view_counts, views_of
from recsim_mnar.policies.base import Ints, Learner, Policy

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

Int64s = NDArray[np.int64]

_BITS = 32
"""Fraction bits of 1 / sqrt(n): sums of such numbers are exact, and fit in 62 bits for a thousand million terms."""

MOST_DENSE = 10_000
"""Items of which a table of all pairs is kept (.8 GB); of more, the pairs that somebody holds, with the same sums."""

_CHUNK = 64


def _units(lengths: Int64s) -> Int64s:
    """1 / sqrt(n) in fixed point for each profile length n, (U,) int64."""
    return np.rint(2.0**_BITS / np.sqrt(np.maximum(lengths, 1).astype(np.float64))).astype(np.int64)


def pairs_met(
    starts: Int64s, items: NDArray[np.int32], unit: Int64s, n_items: int
) -> tuple[Int64s, NDArray[np.int32], Int64s]:
    """Sum of unit[u] over the users who hold both items, for the pairs that somebody holds, i = j included.

    Returns:
        (I + 1,) where each item's partners begin, the partners ascending, and the sums.
    """
    from scipy import sparse

    shape = (len(starts) - 1, n_items)
    held = sparse.csr_array((np.ones(len(items), np.int64), items, starts), shape)
    weighted = sparse.csr_array((np.repeat(unit, np.diff(starts)), items, starts), shape)
    table = sparse.csr_array(held.T @ weighted)
    table.sort_indices()
    return table.indptr.astype(np.int64), table.indices.astype(np.int32), table.data


def distinct_rows(log: Log, n_items: int) -> tuple[Int64s, NDArray[np.int32]] | None:
    """Starts of the users and the items of the organic rows, in their order.

    None where a user has an item twice, so that leaving one row out leaves the item in the profile.
    """
    users, items = views_of(log, n_items)
    if len(np.unique(users * n_items + items)) < len(items):
        return None
    new = user_starts(users)
    return np.append(new, len(users)).astype(np.int64), np.ascontiguousarray(items, np.int32)


class _ProfilePolicy(GreedyPolicy):
    """Greedy on float64 scores; known items have -inf."""

    keeps_views = True

    def scores(self, users: Ints) -> NDArray[np.float64]:
        """By what the policy ranks items, (n, n_items) float64; -inf for items that the user holds."""
        slots = self._slots.find(users)
        out = np.empty((len(slots), self.n_items))
        for begin in range(0, len(slots), _CHUNK):
            part = slots[begin : begin + _CHUNK]
            out[begin : begin + len(part)] = self._score(part)
        return out


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
        """Exhaustive leave-one-out in closed form: of each organic row's item, fitted without that row.

        Args:
            log: whose rows are left out.
            n_items: number of items.
            unseen: the items of the user's other rows are no candidates.

        Returns:
            (E,) how many of the items that the user does not hold score above it, and (E,) how many level with it;
            None, there being no closed form, where known items are candidates or a user has an item twice.
        """
        from recsim_mnar.agents.neighbours import _profile_cf_kernel, _sparse_profile_cf_kernel

        distinct = distinct_rows(log, n_items) if unseen else None
        if distinct is None:
            return None
        starts, items = distinct
        unit = _units(np.diff(starts))
        if n_items > MOST_DENSE:
            places = np.empty(len(items), np.int64), np.empty(len(items), np.int64)
            _sparse_profile_cf_kernel.cosine_places(
                starts, items, unit, *pairs_met(starts, items, unit, n_items), np.zeros(n_items, np.int64),
                np.zeros(n_items, np.int64), np.zeros(n_items, np.bool_), np.empty(n_items, np.int64), *places,
            )  # fmt: skip
            return places
        table = np.zeros((n_items, n_items), np.int64)
        _profile_cf_kernel.cooccurrence(starts, items, unit, table)
        above, level = np.empty(len(items), np.int64), np.empty(len(items), np.int64)
        _profile_cf_kernel.cosine_places(starts, items, unit, table, np.empty(n_items, np.int64), above, level)
        return above, level


class CosineCFPolicy(_ProfilePolicy):
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
        from recsim_mnar.agents.neighbours import _profile_cf_kernel

        self._rows = (np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(items, np.int32))
        self._unit = _units(np.diff(self._rows[0]))
        self._users = np.asarray(users, np.int64)
        self._table: tuple[NDArray[Any], ...]
        if n_items > MOST_DENSE:
            self._table = pairs_met(*self._rows, self._unit, n_items)
        else:
            self._table = (np.zeros((n_items, n_items), np.int64),)
            _profile_cf_kernel.cooccurrence(*self._rows, self._unit, self._table[0])
        super().__init__(n_items, name)

    def _start(self) -> None:
        self._own_row = np.empty(0, np.int64)
        self._held, self._sums = np.zeros(self.n_items, np.bool_), np.empty(self.n_items, np.int64)
        super()._start()

    def _resize(self, n_slots: int) -> None:
        super()._resize(n_slots)
        self._own_row = np.concatenate([self._own_row, np.full(n_slots - len(self._own_row), -1, np.int64)])

    def _clear(self, slots: NDArray[np.int64]) -> None:
        super()._clear(slots)
        self._own_row[slots] = -1

    def reset_training_users(self, users: Ints, originals: Ints) -> None:
        """See :meth:`recsim_mnar.policies.Policy.reset_training_users`: v != u leaves the user's own row out."""
        self.reset(users)
        ids = np.asarray(originals, np.int64)
        row = np.minimum(np.searchsorted(self._users, ids), len(self._users) - 1)
        self._own_row[self._slots.find(users)] = np.where(self._users[row] == ids, row, -1)

    def _score(self, slots: NDArray[np.int64]) -> NDArray[Any]:
        from recsim_mnar.agents.neighbours import _profile_cf_kernel, _sparse_profile_cf_kernel

        histories = self._histories
        out = np.empty((len(slots), self.n_items))
        dense = len(self._table) == 1
        score = _profile_cf_kernel.cosine_scores if dense else _sparse_profile_cf_kernel.cosine_scores
        score(
            histories.pool, histories.start, histories.length, slots, self._own_row, *self._table, *self._rows,
            self._unit, self._held, self._sums, out,
        )  # fmt: skip
        # A power of two keeps every bit; the norm of the user's own profile scales a row alone and is left out.
        return out * 2.0**-_BITS

    def fitted(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """See :meth:`recsim_mnar.policies.storage.Stored.fitted`."""
        return {"starts": self._rows[0], "items": self._rows[1], "users": self._users}, {}


class NaiveCF(Learner):
    """Largest share, over the items j of the user, of the holders of j who hold the item; known items excluded.

    b_u(i) = max over j in I_u of #(U_i and U_j) / #U_j (de Myttenaere et al. 2015, section 5.1 b).
    """

    name = "naive-cf"

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """See :meth:`recsim_mnar.policies.Learner.fit`; no draws are made."""
        starts, items, _ = compressed(view_counts(log, n_items)[0])
        if n_items > MOST_DENSE:
            begins, partners, met = pairs_met(starts, items, np.ones(len(starts) - 1, np.int64), n_items)
            return NaiveCFPolicy(n_items, self.name, begins=begins, partners=partners, counts=met)
        return NaiveCFPolicy(n_items, self.name, counts=_pair_counts(starts, items, n_items))

    def leave_one_out_ranks(self, log: Log, *, n_items: int, unseen: bool = True) -> tuple[Int64s, Int64s] | None:
        """As :meth:`CosineCF.leave_one_out_ranks`."""
        from recsim_mnar.agents.neighbours import _profile_cf_kernel, _sparse_profile_cf_kernel

        distinct = distinct_rows(log, n_items) if unseen else None
        if distinct is None:
            return None
        starts, items = distinct
        if n_items > MOST_DENSE:
            places = np.empty(len(items), np.int64), np.empty(len(items), np.int64)
            begins, partners, met = pairs_met(starts, items, np.ones(len(starts) - 1, np.int64), n_items)
            holders = np.bincount(items, minlength=n_items)
            _sparse_profile_cf_kernel.ratio_places(
                starts, items, begins, partners, met, _ratios_met(begins, met, holders), holders, np.zeros(n_items),
                np.zeros(n_items), np.empty(n_items, np.int64), np.zeros(n_items, np.int64),
                np.zeros(n_items, np.bool_), np.empty(n_items, np.int64), *places,
            )  # fmt: skip
            return places
        counts = _pair_counts(starts, items, n_items)
        above, level = np.empty(len(items), np.int64), np.empty(len(items), np.int64)
        scratch = np.empty(n_items), np.empty(n_items), np.empty(n_items, np.int64)
        _profile_cf_kernel.ratio_places(starts, items, counts, _ratios(counts), *scratch, above, level)
        return above, level


class NaiveCFPolicy(_ProfilePolicy):
    """Greedy on the largest share.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        counts: (n_items, n_items) users who hold both items; on the diagonal, who hold the item. With ``begins`` and
            ``partners`` those of the pairs that somebody holds, as :func:`pairs_met` has them.
        begins: (n_items + 1,) where each item's partners begin.
        partners: of each item, ascending.
    """

    def __init__(
        self, n_items: int, name: str, *, counts: NDArray[Any], begins: NDArray[Any] | None = None,
        partners: NDArray[Any] | None = None,
    ) -> None:  # fmt: skip
        self._counts = np.ascontiguousarray(counts, np.int64)
        if begins is None or partners is None:
            self._met: tuple[NDArray[Any], ...] = ()
            self._ratios = _ratios(self._counts)
        else:
            self._met = (np.ascontiguousarray(begins, np.int64), np.ascontiguousarray(partners, np.int32))
            item = np.repeat(np.arange(n_items), np.diff(self._met[0]))
            holders = np.zeros(n_items, np.int64)
            itself = item == self._met[1]
            holders[item[itself]] = self._counts[itself]
            self._ratios = _ratios_met(self._met[0], self._counts, holders)
        super().__init__(n_items, name)

    def _start(self) -> None:
        self._held = np.zeros(self.n_items, np.bool_)
        super()._start()

    def _score(self, slots: NDArray[np.int64]) -> NDArray[Any]:
        from recsim_mnar.agents.neighbours import _profile_cf_kernel, _sparse_profile_cf_kernel

        histories = self._histories
        out = np.empty((len(slots), self.n_items))
        score = _sparse_profile_cf_kernel.best_ratios if self._met else _profile_cf_kernel.best_ratios
        score(
            histories.pool, histories.start, histories.length, slots, *self._met, self._ratios, self._held, out
        )  # fmt: skip
        return out

    def fitted(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """See :meth:`recsim_mnar.policies.storage.Stored.fitted`."""
        return {"counts": self._counts, **dict(zip(("begins", "partners"), self._met, strict=False))}, {}


def _pair_counts(starts: Int64s, items: NDArray[np.int32], n_items: int) -> Int64s:
    from recsim_mnar.agents.neighbours import _profile_cf_kernel

    counts = np.zeros((n_items, n_items), np.int64)
    _profile_cf_kernel.cooccurrence(starts, items, np.ones(len(starts) - 1, np.int64), counts)
    return counts


def _ratios(counts: Int64s) -> NDArray[np.float64]:
    """counts[j, i] / counts[j, j], 0 where nobody holds j."""
    holders = np.diagonal(counts).astype(np.float64)[:, None]
    out = np.zeros(counts.shape)
    np.divide(counts, holders, out=out, where=holders > 0)
    return out


def _ratios_met(begins: Int64s, counts: Int64s, holders: Int64s) -> NDArray[np.float64]:
    """Share of the holders of the item whose partners they are."""
    return counts / np.repeat(holders, np.diff(begins)).astype(np.float64)
