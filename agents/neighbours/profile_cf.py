"""Collaborative filtering on profiles, sets of distinct items: by cosine, and naive (de Myttenaere et al. 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.acting import GreedyPolicy, TrainingRows
from recsim_mnar.agents.neighbours.knn import compressed
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.views import view_counts, views_of
from recsim_mnar.policies.base import Learner, Policy

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

Int64s = NDArray[np.int64]

_BITS = 32
"""Number of fraction bits of 1 / sqrt(n) in fixed point: sums are exact, and up to 10^9 terms fit in 62 bits."""


def _inverse_roots(lengths: Int64s) -> Int64s:
    """Return 1 / sqrt(n) in fixed point for each profile length n, (U,) int64; 1 for an empty profile."""
    return np.rint(2.0**_BITS / np.sqrt(np.maximum(lengths, 1).astype(np.float64))).astype(np.int64)


class Pairs(NamedTuple):
    """Number for each ordered pair of items that are together in some user's profile, also of an item with itself.

    Attributes:
        begins: (I + 1,) index of each item's first partner.
        partners: second items of the pairs, ascending for each first item.
        values: number of each pair.
    """

    begins: Int64s
    partners: NDArray[np.int32]
    values: Int64s


def pairs_of(starts: Int64s, items: NDArray[np.int32], unit: Int64s, n_items: int) -> Pairs:
    """Sum ``unit[u]`` over the users u with both items in their profiles, for each pair of items.

    Args:
        starts: (U + 1,) index of each user's first item.
        items: distinct items of each user's profile.
        unit: (U,) integer of each user.
        n_items: number of items I.
    """
    from scipy import sparse

    shape = (len(starts) - 1, n_items)
    profiles = sparse.csr_array((np.ones(len(items), np.int64), items, starts), shape)
    weighted_profiles = sparse.csr_array((np.repeat(unit, np.diff(starts)), items, starts), shape)
    table = sparse.csr_array(profiles.T @ weighted_profiles)
    table.sort_indices()
    return Pairs(table.indptr.astype(np.int64), table.indices.astype(np.int32), table.data)


def counts_of(starts: Int64s, items: NDArray[np.int32], n_items: int) -> Pairs:
    """Count the users with both items of each pair; the arguments are those of :func:`pairs_of`."""
    return pairs_of(starts, items, np.ones(len(starts) - 1, np.int64), n_items)


def distinct_rows(log: Log, n_items: int) -> tuple[Int64s, NDArray[np.int32]] | None:
    """Return the users' profiles with an entry for each view, if no user views an item twice.

    Returns:
        starts: (U + 1,) index of each user's first view.
        items: (V,) viewed items, in the order of the log.

        None instead of both if a user views an item twice: leaving out one view then leaves the item in the profile.
    """
    users, items = views_of(log, n_items)
    if len(np.unique(users * n_items + items)) < len(items):
        return None
    starts = np.append(user_starts(users), len(users))
    return starts.astype(np.int64), np.ascontiguousarray(items, np.int32)


class _ProfilePolicy(GreedyPolicy):
    """Base of policies that recommend the best item by float64 scores, in which viewed items have -inf."""

    keeps_views = True
    score_type = np.float64


class CosineCF(Learner):
    """Learner of a policy that scores items by all other users' profiles, weighted by cosine; viewed items excluded.

    With B_v the indicator vector of user v's profile, the scores of user u are ``b_u = sum over v != u of
    (B_u . B_v) / (|B_u| |B_v|) B_v`` (de Myttenaere et al. 2015, section 5.1 a). They are linear in the profile x up to
    its norm: ``b = x' G / |x|`` with ``G = sum over v of B_v B_v' / |B_v|``, from which the user's own term is taken.
    """

    name = "cosine-cf"
    ignores_own_views = True

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`; no draws are made."""
        counts, users = view_counts(log, n_items)
        starts, items, _ = compressed(counts)
        return CosineCFPolicy(n_items, self.name, starts=starts, items=items, users=users)

    def leave_one_out_ranks(self, log: Log, *, n_items: int, unseen: bool = True) -> tuple[Int64s, Int64s] | None:
        """Rank each view's item by a policy fitted without that view, for all V views of a log, without refitting.

        Args:
            log: log of which each view is left out in turn.
            n_items: number of items.
            unseen: True to exclude the items of the user's other views from the candidates.

        Returns:
            n_above: (V,) number of candidates with a larger score than the item.
            n_equal: (V,) number of other candidates with an equal score.

            None instead of both without ``unseen``, or if a user views an item twice, for lack of a closed form.
        """
        from recsim_mnar.agents.neighbours import _profile_cf_kernel as kernel

        if not unseen:
            return None
        distinct = distinct_rows(log, n_items)
        if distinct is None:
            return None
        starts, items = distinct
        unit = _inverse_roots(np.diff(starts))
        n_above, n_equal = np.empty((2, len(items)), np.int64)
        sums, minus, touched = np.zeros((3, n_items), np.int64)
        seen = np.zeros(n_items, np.bool_)
        pairs = pairs_of(starts, items, unit, n_items)
        kernel.cosine_places(starts, items, unit, *pairs, sums, minus, seen, touched, n_above, n_equal)
        return n_above, n_equal


class CosineCFPolicy(TrainingRows, _ProfilePolicy):
    """Policy that recommends the item with the largest cosine-weighted sum over the training users' profiles.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        starts: (U + 1,) index of each training user's first item.
        items: distinct items of each training user's profile.
        users: (U,) ids of the training users, ascending.
    """

    def __init__(
        self, n_items: int, name: str, *, starts: NDArray[Any], items: NDArray[Any], users: NDArray[Any]
    ) -> None:
        self._rows = (np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(items, np.int32))
        self._unit = _inverse_roots(np.diff(self._rows[0]))
        self._users = np.asarray(users, np.int64)
        self._pairs = pairs_of(*self._rows, self._unit, n_items)
        super().__init__(n_items, name, {"starts": self._rows[0], "items": self._rows[1], "users": self._users})

    def _start(self) -> None:
        """Remove all users, and make new scratch arrays of the kernel, which a copy of the policy must not share."""
        self._held = np.zeros(self.n_items, np.bool_)
        self._sums = np.empty(self.n_items, np.int64)
        super()._start()

    def _score(self, slots: NDArray[np.int64]) -> NDArray[Any]:
        """Implement :meth:`recsim_mnar.agents.acting.GreedyPolicy._score`."""
        from recsim_mnar.agents.neighbours import _profile_cf_kernel

        out = np.empty((len(slots), self.n_items))
        work = (self._held, self._sums, out)
        _profile_cf_kernel.cosine_scores(
            self._histories.arrays, slots, self._own_row, *self._pairs, *self._rows, self._unit, *work
        )
        # A factor that is a power of two rounds nothing. The user's own norm would not change the ranking.
        return out * 2.0**-_BITS


class NaiveCF(Learner):
    """Learner of a policy that scores an item by its share among the users of one of the user's items.

    With U_i the users who have item i and I_u the items of user u, the score is the maximum over j in I_u of
    #(U_i and U_j) / #U_j (de Myttenaere et al. 2015, section 5.1 b). Viewed items are excluded.
    """

    name = "naive-cf"

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`; no draws are made."""
        starts, items, _ = compressed(view_counts(log, n_items)[0])
        begins, partners, counts = counts_of(starts, items, n_items)
        return NaiveCFPolicy(n_items, self.name, begins=begins, partners=partners, counts=counts)

    def leave_one_out_ranks(self, log: Log, *, n_items: int, unseen: bool = True) -> tuple[Int64s, Int64s] | None:
        """Rank each view's item by a policy fitted without that view, as :meth:`CosineCF.leave_one_out_ranks` does."""
        from recsim_mnar.agents.neighbours import _profile_cf_kernel as kernel

        if not unseen:
            return None
        distinct = distinct_rows(log, n_items)
        if distinct is None:
            return None
        starts, items = distinct
        counts = counts_of(starts, items, n_items)
        ratios = _ratios(counts)
        holders = np.bincount(items, minlength=n_items)
        n_above, n_equal = np.empty((2, len(items)), np.int64)
        first, second = np.empty((2, n_items))
        which, touched = np.empty((2, n_items), np.int64)
        common = np.zeros(n_items, np.int64)
        seen = np.zeros(n_items, np.bool_)
        kernel.ratio_places(
            starts, items, *counts, ratios, holders, first, second, which, common, seen, touched, n_above, n_equal
        )
        return n_above, n_equal


class NaiveCFPolicy(_ProfilePolicy):
    """Policy that recommends the item with the largest score of :class:`NaiveCF`.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        begins: (n_items + 1,) index of each item's first partner, as in :class:`Pairs`.
        partners: second items of the pairs, ascending for each first item.
        counts: number of users with both items of each pair.
    """

    def __init__(
        self, n_items: int, name: str, *, begins: NDArray[Any], partners: NDArray[Any], counts: NDArray[Any]
    ) -> None:
        self._pairs = Pairs(
            np.ascontiguousarray(begins, np.int64),
            np.ascontiguousarray(partners, np.int32),
            np.ascontiguousarray(counts, np.int64),
        )
        self._ratios = _ratios(self._pairs)
        stored: dict[str, NDArray[Any]] = {
            "begins": self._pairs.begins,
            "partners": self._pairs.partners,
            "counts": self._pairs.values,
        }
        super().__init__(n_items, name, stored)

    def _score(self, slots: NDArray[np.int64]) -> NDArray[Any]:
        """Implement :meth:`recsim_mnar.agents.acting.GreedyPolicy._score`."""
        from recsim_mnar.agents.neighbours import _profile_cf_kernel

        out = np.empty((len(slots), self.n_items))
        begins, partners, _ = self._pairs
        _profile_cf_kernel.best_ratios(self._histories.arrays, slots, begins, partners, self._ratios, out)
        return out


def _ratios(counts: Pairs) -> NDArray[np.float64]:
    """Compute the share of the users with item j who also have item i, for each pair (j, i)."""
    begins, partners, values = counts
    item = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
    with_itself = item == partners  # its number of common users is the item's number of users
    n_users = np.zeros(len(begins) - 1)  # of each item
    n_users[item[with_itself]] = values[with_itself]
    return values / n_users[item]
