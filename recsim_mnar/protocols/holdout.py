"""Hold-out of views: the last one of every user, or all after a moment."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import user_mean_interval
from recsim_mnar.kernels.checks import number_in, one_of, whole_number
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.rows import steps_within, user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.log.views import Views
from recsim_mnar.policies.base import Learner
from recsim_mnar.policies.door import fitted
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.ranks import CANDIDATES, checked_scores, scores_after, views_of
from recsim_mnar.protocols.records import Record
from recsim_mnar.rng import Stream, derive_seed, uniforms
from recsim_mnar.simulation.executor import run_in_order

SPLITS = ("last", "time")

_SCORES_AT_A_TIME = 1 << 21
"""Largest number of scores in memory, n_users x n_items of a chunk; the chunk changes no result."""


@dataclass(frozen=True)
class Split:
    """A log divided into training rows and the items that each judged user views later.

    Attributes:
        train: rows before the cut.
        views: views of the training rows, user by user.
        owners: (n,) user of each held-out item, as the index in ``views``, ascending.
        items: (n,) held-out items, distinct and ascending for each user.
    """

    train: Log
    views: Views
    owners: Ints
    items: Ints


def split_log(log: Log, split: str, *, share: float = 0.2, unseen: bool = False) -> Split:
    """Hold out views of a log.

    Args:
        log: log ordered by (user, step).
        split: ``last`` for the last view of every user with two or more (leave-last-out); ``time`` for the last
            ``share`` of all views.
        share: share of the views that is held out.
        unseen: True to hold out no item that the user has viewed before the cut.

    Raises:
        UserError: an argument is out of range, or no user has views on both sides of the cut.
    """
    one_of(split, "holdout: split", SPLITS)
    number_in(share, "holdout: share", 0.0, 1.0, ends="()")
    if not log.is_bandit.all():
        before = _before_last(log) if split == "last" else _before_cut(log, share)
        divided = _split(log, before, ~before & ~log.is_bandit, unseen)
        if len(divided.items):
            return divided
    raise UserError("holdout: no user has views before and after the cut. Hold out another share")


def _before_last(log: Log) -> NDArray[np.bool_]:
    """Return a mask (rows,) of the rows before the last view of their user; all rows of users with fewer than two."""
    user = log["user"]
    rows = np.flatnonzero(~log.is_bandit)
    starts = user_starts(user[rows])
    lengths = np.diff(np.append(starts, len(rows)))
    cut = np.full(int(user.max()) + 1, len(log), np.int64)  # row of each user's held-out view; none by default
    several = lengths >= 2
    cut[user[rows[starts[several]]]] = rows[(starts + lengths - 1)[several]]
    return np.arange(len(log)) < cut[user]


def _before_cut(log: Log, share: float) -> NDArray[np.bool_]:
    """Return a mask (rows,) of the rows before the moment after which the last ``share`` of all views are."""
    moment = log["time"]
    ordered = np.sort(moment[~log.is_bandit])
    # At least the views of the first moment come before the cut, and at least one view after it.
    begin = max(int(len(ordered) * (1.0 - share)), int(np.searchsorted(ordered, ordered[0], side="right")))
    return moment < ordered[min(begin, len(ordered) - 1)]


def _split(log: Log, before: NDArray[np.bool_], after: NDArray[np.bool_], unseen: bool) -> Split:
    """Divide a log by masks of its training rows and its held-out views.

    Held-out views of users without training views are dropped and, if ``unseen``, those of items that the user has
    viewed in the training rows.
    """
    import pandas as pd

    train = log.select(before)
    views = Views.of(train)
    item = log["item"][after].astype(np.int64)
    user_index = pd.Index(views.users).get_indexer(log["user"][after])  # -1 for users without training views
    n_items = int(log["item"].max()) + 1
    judged = user_index >= 0
    pairs = np.unique(user_index[judged] * n_items + item[judged])  # distinct users and items, in one number each
    if unseen:
        pairs = np.setdiff1d(pairs, views.owners() * n_items + views.items)
    return Split(train, views, pairs // n_items, pairs % n_items)


def held_out_ranks(name: str, learner: Learner, split: Split, *, n_items: int, seed: int, candidates: str) -> Ints:
    """Rank each held-out item among its user's candidates; equal scores are in a drawn order.

    Args:
        name: name of the agent, for messages.
        learner: learner, which is fitted on ``split.train``.
        split: held-out items.
        n_items: number of items, which are 0 .. n_items - 1.
        seed: seed of the training and of ties.
        candidates: ``all`` items; ``unseen`` for those that the user has not viewed in the training rows, besides the
            held-out ones.

    Returns:
        (n,) rank of each held-out item, 1 for the first.

    Raises:
        UserError: the agent's scores are not numbers.
    """
    policy = fitted(learner, split.train, n_items=n_items, seed=derive_seed(seed, "fit"))
    judged, user_index = np.unique(split.owners, return_inverse=True)
    ranks = np.empty(len(split.items), np.int64)
    step = max(1, _SCORES_AT_A_TIME // n_items)
    for first in range(0, len(judged), step):
        part = judged[first : first + step]
        rows = np.flatnonzero((user_index >= first) & (user_index < first + step))
        owner = user_index[rows] - first
        items = split.items[rows]
        users = split.views.users[part]
        seen_by, seen = views_of(split.views, part)
        scores = checked_scores(name, scores_after(policy, users, users[seen_by], seen, users), len(users), n_items)
        if np.isnan(scores).any():
            raise UserError(f"agent {name!r}: scores() must return a number for each of {n_items} items")
        ties = uniforms(
            derive_seed(seed, "ties"),
            Stream.PROTOCOL,
            np.repeat(users, n_items),
            np.tile(np.arange(n_items), len(users)),
        )
        is_candidate = np.ones(scores.shape, np.bool_)
        if candidates == "unseen":
            is_candidate[seen_by, seen] = False
        is_candidate[owner, items] = True  # held-out items are candidates, also if they were viewed before
        ranks[rows] = _ranks(scores, ties.reshape(scores.shape), is_candidate, owner, items)
    return ranks


def _ranks(
    scores: NDArray[np.floating], ties: Floats, is_candidate: NDArray[np.bool_], owner: Ints, items: Ints
) -> Ints:
    """Rank each held-out item among its user's candidates.

    Args:
        scores: (U, n_items) scores.
        ties: (U, n_items) draws by which equal scores are ordered, ascending.
        is_candidate: (U, n_items) True for candidates.
        owner: (n,) row of the user of each held-out item.
        items: (n,) held-out items.

    Returns:
        (n,) ranks from 1.
    """
    out = np.empty(len(items), np.int64)
    for i, (user, item) in enumerate(zip(owner, items, strict=True)):
        score = scores[user, item]
        before = scores[user] > score
        before |= (scores[user] == score) & (ties[user] < ties[user, item])
        out[i] = 1 + np.count_nonzero(is_candidate[user] & before)
    return out


def recall_and_ndcg(owners: Ints, ranks: Ints, k: int) -> dict[str, Floats]:
    """Compute each user's recall and NDCG; (U,) each, one per user with held-out items.

    Recall@k is the share of a user's held-out items with rank <= k. NDCG@k is the sum of 1 / log2(rank + 1) over those,
    over the largest possible sum for k items (Jarvelin & Kekalainen 2002).

    Args:
        owners: (n,) user of each held-out item, ascending.
        ranks: (n,) rank of each held-out item.
        k: length of the list.
    """
    starts = user_starts(owners)
    hits = ranks <= k
    recall = np.add.reduceat(1.0 * hits, starts) / np.diff(np.append(starts, len(owners)))
    gained = np.add.reduceat(np.where(hits, 1.0 / np.log2(ranks + 1.0), 0.0), starts)
    position = steps_within(owners)
    best = np.add.reduceat(np.where(position < k, 1.0 / np.log2(position + 2.0), 0.0), starts)
    return {f"recall@{k}": recall, f"ndcg@{k}": gained / best}


class HoldOut(Protocol):
    """Fit agents on earlier views, and compute recall and NDCG of the later ones in each agent's list of k items.

    Args:
        split: ``last`` (leave-last-out) or ``time`` (all views after a moment). Times are those of the log: in the
            sessions world the time of every user begins at 0.
        share: share of the views that is held out; ``last`` ignores it.
        k: length of the lists; None for that of the lists that the world's users see.
        candidates: ``all`` items or ``unseen`` ones; empty for the world's default.
    """

    name = "holdout"
    summary = "later views held out: leave-last-out, or a split by time"
    metrics: Sequence[str] = ("recall", "ndcg")
    needs = frozenset({"test_log"})
    refits = True

    def __init__(self, split: str = "last", share: float = 0.2, k: int | None = None, candidates: str = "") -> None:
        self.split = one_of(split, "holdout: split", SPLITS)
        self.share = number_in(share, "holdout: share", 0.0, 1.0, ends="()")
        self.k = None if k is None else whole_number(k, "holdout: k", 1)
        self.candidates = candidates and one_of(candidates, "holdout: candidates", CANDIDATES)

    def judge(self, study: Trial) -> list[Record]:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        study.report(f"hold out views ({self.split})")
        k: int = self.k or study.world.slate_size
        self.metrics = (f"recall@{k}",)
        if k > 1:
            self.metrics = (f"recall@{k}", f"ndcg@{k}")
        candidates = self.candidates or ("all" if study.world.views_repeat else "unseen")
        split = split_log(study.log(), self.split, share=self.share, unseen=candidates == "unseen")
        users = split.views.users[np.unique(split.owners)]
        rank = functools.partial(
            _timed_ranks,
            split=split,
            n_items=study.n_items,
            seed=study.seed_of("holdout"),
            candidates=candidates,
        )
        jobs = [functools.partial(rank, name, learner) for name, learner in study.learners.items()]
        details = {"candidates": candidates, "held_out": len(split.items)}
        records = []
        results = run_in_order(jobs, study.executor)
        for name, (ranks, seconds) in zip(study.learners, results, strict=True):
            values = recall_and_ndcg(split.owners, ranks, k)
            for metric in self.metrics:
                study.keep_raw(self.name, metric, name, user=users, value=values[metric], weight=np.ones(len(users)))
                interval = user_mean_interval(values[metric], study.level)
                key = (study.world.name, self.name, name, metric)
                records.append(
                    Record.of(*key, interval, level=study.level, n=len(users), seconds=seconds, details=details)
                )
        return records

    def title(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return f"{self._split_title()} ({metric})"

    def _split_title(self) -> str:
        """Name the split as the field does, with its options."""
        named = {"last": "leave-last-out", "time": "split by time"}
        options = [option for option in self.name.split("+")[1:] if not option.strip().startswith(("split=", "k="))]
        return ", ".join([named[self.split], *options])


def _timed_ranks(name: str, learner: Learner, **how: Any) -> tuple[Ints, float]:
    """Return an agent's ranks (n,) and the seconds taken; ``how`` are arguments of :func:`held_out_ranks`."""
    began = time.perf_counter()
    ranks = held_out_ranks(name, learner, **how)
    return ranks, time.perf_counter() - began
