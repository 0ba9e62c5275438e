"""What agents would recommend, what these lists are made of, and how many of the items met later stand in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.table import Log
from recsim_mnar.log.views import Views
from recsim_mnar.protocols.leave_one_out.ranks import NONE

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def recommended(lists: Ints, views: Views, n_items: int) -> tuple[float, Floats]:
    """What lists are made of: their coverage, and (U,) their popularity.

    Coverage is the share of the items in the agents' data that stand in at least one list; popularity the mean over
    each user's list of the share of users who have met the item.

    Args:
        lists: (U, k) as :func:`top_items` gives them.
        views: what every user has met.
        n_items: items are 0 .. n_items - 1.
    """
    pairs = np.unique(views.owners() * n_items + views.items)
    holders = np.bincount(pairs % n_items, minlength=n_items)
    known = holders > 0
    there = lists != NONE
    listed = np.zeros(n_items, bool)
    listed[lists[there]] = True
    share = np.where(there, holders[np.where(there, lists, 0)] / len(views.users), 0.0)
    length = np.maximum(there.sum(axis=1), 1)
    return float(np.mean(listed[known])), share.sum(axis=1) / length


@dataclass(frozen=True)
class TimeSplit:
    """Interactions before and after a moment.

    Attributes:
        moment: the first time that is held out.
        train: the rows before it.
        views: these, user by user.
        owners: (U,) index in ``views`` of the users who are judged: those with rows on both sides.
        starts: (U + 1,) where each one's items to find begin.
        items: the items to find, distinct for each user.
        counts: rows on both sides, and how many of those held out no agent can find: those of users or of items that
            are not among the rows before the moment.
    """

    moment: float
    train: Log
    views: Views
    owners: Ints
    starts: Ints
    items: Ints
    counts: dict[str, int]

    def facts(self) -> dict[str, Any]:
        """JSON types."""
        return {"moment": self.moment, **self.counts}


def split_by_time(log: Log, *, share: float = 0.2, unseen: bool = False) -> TimeSplit:
    """Hold out the latest rows of a log of interactions.

    Args:
        log: organic rows by (user, time), with times on one clock for all users.
        share: of the rows that is held out; rows of one time stay together.
        unseen: items that a user has met before the moment are nothing to find.

    Raises:
        UserError: ``share`` is out of range, there is no moment between two rows, or no user has rows on both sides.
    """
    if not 0.0 < share < 1.0:
        raise UserError(f"the split by time: the share of rows held out must be in (0, 1), got {share:g}")
    moment = _moment(log["time"], share)
    later = log["time"] >= moment
    train = log.select(~later)
    views = Views.of(train)
    user, item = log["user"][later], log["item"][later].astype(np.int64)
    place = np.searchsorted(views.users, user)
    known = np.zeros(len(user), bool)
    inside = place < len(views.users)
    known[inside] = views.users[place[inside]] == user[inside]
    n_items = int(log["item"].max()) + 1
    pairs = np.unique(place[known] * n_items + item[known])
    if unseen:
        pairs = np.setdiff1d(pairs, views.owners() * n_items + views.items, assume_unique=False)
    owners, length = np.unique(pairs // n_items, return_counts=True)
    if len(owners) == 0:
        raise UserError(
            "the split by time: no user has rows both before and after it; hold out another share (--test-share)"
        )
    met = np.zeros(n_items, bool)
    met[views.items] = True
    counts = {
        "rows_before": len(train),
        "rows_after": len(user),
        "rows_after_of_new_users": int(np.sum(~known)),
        "rows_after_of_new_items": int(np.sum(~met[item])),
        "users_judged": len(owners),
    }
    starts = np.concatenate([[0], np.cumsum(length)])
    return TimeSplit(moment, train, views, owners, starts, pairs % n_items, counts)


def _moment(time: Floats, share: float) -> float:
    """The earliest time that about this share of rows reaches, later than the first."""
    ordered = np.sort(time)
    if len(ordered) == 0 or ordered[0] == ordered[-1]:
        raise UserError("the split by time: all rows have the same time, so there is no earlier and later part")
    moment = float(ordered[min(int(len(ordered) * (1.0 - share)), len(ordered) - 1)])
    if moment == ordered[0]:
        moment = float(ordered[np.searchsorted(ordered, moment, side="right")])
    return moment


def recall_and_ndcg(lists: Ints, split: TimeSplit) -> dict[str, Floats]:
    """(U,) recall@k and NDCG@k of each judged user's list, by metric.

    Recall is the share of the items to find that stand in the list. NDCG with binary gains (Jarvelin & Kekalainen
    2002): the sum of 1 / log2(place + 1) over those that do, over what the best list of k items would have.

    Args:
        lists: (U, k) items for the users ``split.owners``, best first.
        split: what was held out.
    """
    n_users, k = lists.shape
    n_items = int(max(lists.max(initial=0), split.items.max(initial=0))) + 1
    owner = np.repeat(np.arange(n_users), np.diff(split.starts))
    wanted = owner * n_items + split.items  # ascending: owners ascend, and each one's items do
    asked = np.arange(n_users)[:, None] * n_items + lists
    place = np.minimum(np.searchsorted(wanted, asked), len(wanted) - 1)
    found = (wanted[place] == asked) & (lists >= 0)
    n_wanted = np.diff(split.starts)
    gain = 1.0 / np.log2(np.arange(k) + 2.0)
    best = np.cumsum(gain)[np.minimum(n_wanted, k) - 1]
    return {f"recall@{k}": found.sum(axis=1) / n_wanted, f"ndcg@{k}": (found @ gain) / best}
