"""Hold-out of views: the last one of every user, a share of each user's, or all after a moment."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import ratio_interval, user_mean_interval
from recsim_mnar.kernels.checks import number_in, one_of, whole_number
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.rows import steps_within, user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.log.views import Views
from recsim_mnar.policies.base import Learner
from recsim_mnar.policies.door import fitted
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.ranks import checked_scores, scores_after, views_of
from recsim_mnar.protocols.records import Record
from recsim_mnar.rng import Stream, derive_seed, uniforms
from recsim_mnar.simulation.executor import run_in_order

SPLITS = ("last", "user", "time", "rolling")
CANDIDATES = ("all", "unseen", "sampled")
WEIGHTINGS = ("none", "stratified", "snips")

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


def split_log(log: Log, split: str, *, share: float = 0.2, windows: int = 4, unseen: bool = False) -> list[Split]:
    """Hold out views of a log.

    Args:
        log: log ordered by (user, step).
        split: ``last`` for the last view of every user with two or more (leave-last-out); ``user`` for the last
            ``share`` of each user's views; ``time`` for the last ``share`` of all views; ``rolling`` for the same in
            ``windows`` parts of equal numbers of views, each predicted from all views before it.
        share: share of the views that is held out.
        windows: number of parts of ``rolling``.
        unseen: True to hold out no item that the user has viewed before the cut.

    Returns:
        One split per part; parts in which no user has views on both sides of the cut are left out.

    Raises:
        UserError: an argument is out of range, or no user has views on both sides of a cut.
    """
    one_of(split, "holdout: split", SPLITS)
    number_in(share, "holdout: share", 0.0, 1.0, ends="()")
    whole_number(windows, "holdout: windows", 1)
    parts = [_split(log, before, after, unseen) for before, after in _split_masks(log, split, share, windows)]
    judged = [part for part in parts if len(part.items)]
    if not judged:
        raise UserError("holdout: no user has views before and after the cut. Hold out another share")
    return judged


def _split_masks(log: Log, split: str, share: float, windows: int) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Return masks (rows,) of training rows and of held-out views, one pair per part; [] for a log without views.

    Args:
        log: log ordered by (user, step).
        split: ``last``, ``user``, ``time`` or ``rolling``.
        share: share of the views that is held out.
        windows: number of parts of ``rolling``.
    """
    organic = ~log.is_bandit
    rows = np.flatnonzero(organic)
    if len(rows) == 0:
        return []
    if split in ("last", "user"):
        user = log["user"]
        first = _first_held_out(user[rows], 0.0 if split == "last" else share)
        cut = np.full(int(user.max()) + 1, len(log), np.int64)  # first held-out row of each user; none by default
        has_cut = first >= 0
        cut[np.unique(user[rows])[has_cut]] = rows[first[has_cut]]
        after_cut = np.arange(len(log)) >= cut[user]
        return [(~after_cut, after_cut & organic)]
    moment = log["time"]
    ordered = np.sort(moment[rows])
    # At least the views of the first moment come before the cut, and at least one view after it.
    begin = max(int(len(ordered) * (1.0 - share)), int(np.searchsorted(ordered, ordered[0], side="right")))
    begin = min(begin, len(ordered) - 1)
    if split == "time":
        windows = 1
    edges = ordered[np.linspace(begin, len(ordered), windows + 1).astype(np.int64)[:-1]]
    cuts = []
    for low, high in zip(edges, [*edges[1:], np.inf], strict=True):
        if low < high:  # equal times may leave a part empty
            cuts.append((moment < low, organic & (moment >= low) & (moment < high)))
    return cuts


def _first_held_out(user: Ints, share: float) -> Ints:
    """Return the position, among all views, of each user's first held-out view; -1 for users with fewer than two views.

    Args:
        user: (n,) user of each view, ascending.
        share: share of each user's views that is held out; at least one view is, and one is not.
    """
    starts = user_starts(user)
    lengths = np.diff(np.append(starts, len(user)))
    n_held_out = np.clip(np.floor(share * lengths).astype(np.int64), 1, lengths - 1)
    return np.where(lengths >= 2, starts + lengths - n_held_out, -1)


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


def held_out_ranks(
    name: str, learner: Learner, split: Split, *, n_items: int, seed: int, candidates: str, negatives: int
) -> Ints:
    """Rank each held-out item among its user's candidates; equal scores are in a drawn order.

    Args:
        name: name of the agent, for messages.
        learner: learner, which is fitted on ``split.train``.
        split: held-out items.
        n_items: number of items, which are 0 .. n_items - 1.
        seed: seed of the training, of ties and of sampled candidates.
        candidates: ``all`` items; ``unseen`` for those that the user has not viewed in the training rows, besides the
            held-out ones; ``sampled`` for the held-out items and ``negatives`` items drawn from those that the user
            does not view before or after the cut.
        negatives: number of drawn items of ``sampled``.

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
        if candidates != "all":
            is_candidate[seen_by, seen] = False
        if candidates == "sampled":
            is_candidate[owner, items] = False  # held-out items are not drawn as negatives
            is_candidate &= _draw_negatives(users, is_candidate, negatives, derive_seed(seed, "negatives"))
        is_candidate[owner, items] = True  # held-out items are candidates, also if they were viewed before
        ranks[rows] = _ranks(scores, ties.reshape(scores.shape), is_candidate, owner, items)
    return ranks


def _draw_negatives(users: Ints, allowed: NDArray[np.bool_], negatives: int, seed: int) -> NDArray[np.bool_]:
    """Draw ``negatives`` of each user's allowed items; return a mask (U, n_items), as ``allowed`` is.

    Each item of each user has a uniform draw, and those with the smallest draws are taken.
    """
    n_items = allowed.shape[1]
    keys = uniforms(seed, Stream.PROTOCOL, np.repeat(users, n_items), np.tile(np.arange(n_items), len(users)))
    keys = np.where(allowed, keys.reshape(allowed.shape), np.inf)
    n_drawn = min(negatives, n_items)
    limit = np.partition(keys, n_drawn - 1, axis=1)[:, n_drawn - 1]
    return allowed & (keys <= limit[:, None])


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


def item_weights(split: Split, weighting: str, gamma: float, n_items: int) -> Floats:
    """Return (n,) the weight of each held-out item i, from the number n_i of its training views.

    Args:
        split: held-out items and training rows.
        weighting: ``stratified`` for n_i ** -(gamma / (gamma + 1)) (Steck 2011); ``snips`` for 1 / P_i, with P_i
            proportional to n_i ** ((gamma + 1) / 2) (Yang et al. 2018); ``none`` for 1.
        gamma: exponent of the power law by which popular items are observed more often.
        n_items: number of items, which are 0 .. n_items - 1.
    """
    if weighting == "none":
        return np.ones(len(split.items))
    counts = np.maximum(np.bincount(split.views.items, minlength=n_items), 1).astype(np.float64)[split.items]
    exponent = (gamma + 1.0) / 2.0
    if weighting == "stratified":
        exponent = gamma / (gamma + 1.0)
    return counts**-exponent


def recall_and_ndcg(owners: Ints, ranks: Ints, weights: Floats, k: int) -> dict[str, tuple[Floats, Floats]]:
    """Compute numerator and denominator of each user's recall and NDCG.

    Recall@k is sum(w [rank <= k]) / sum(w) over a user's held-out items. NDCG@k is the sum of w / log2(rank + 1) over
    those with rank <= k, over the largest possible sum for k items (Jarvelin & Kekalainen 2002).

    Args:
        owners: (n,) user of each held-out item, ascending.
        ranks: (n,) rank of each held-out item.
        weights: (n,) weight w of each held-out item.
        k: length of the list.

    Returns:
        By metric, numerators and denominators, (U,) each, one per user with held-out items.
    """
    starts = user_starts(owners)
    hits = ranks <= k
    recall = np.add.reduceat(weights * hits, starts), np.add.reduceat(weights, starts)
    gained = np.add.reduceat(np.where(hits, weights / np.log2(ranks + 1.0), 0.0), starts)
    # The best possible list has the heaviest items first. Sorting by weight within users keeps `owners` as it is.
    order = np.lexsort((-weights, owners))
    position = steps_within(owners)
    best = np.add.reduceat(np.where(position < k, weights[order] / np.log2(position + 2.0), 0.0), starts)
    return {f"recall@{k}": recall, f"ndcg@{k}": (gained, best)}


class HoldOut(Protocol):
    """Fit agents on earlier views, and compute recall and NDCG of the later ones in each agent's list of k items.

    Sampled candidates, which many papers use, rank agents differently from all candidates (Krichene & Rendle 2020, "On
    sampled metrics for item recommendation"): compare both.

    Args:
        split: ``last`` (leave-last-out), ``user`` (the last share of each user's views), ``time`` (all views after a
            moment) or ``rolling`` (several such moments). Times are those of the log: in the sessions world the time of
            every user begins at 0.
        share: share of the views that is held out; ``last`` ignores it.
        windows: number of moments of ``rolling``.
        k: length of the lists; None for that of the lists that the world's users see.
        candidates: ``all`` items, ``unseen`` ones, or ``sampled`` ones; empty for the world's default.
        negatives: number of drawn items of ``sampled``.
        weighting: ``none``, ``stratified`` (Steck 2011) or ``snips`` (Yang et al. 2018). The latter is normalised for
            each user, so it would change nothing with a single held-out view per user, and ``last`` refuses it.
        gamma: exponent of the weighting.
    """

    name = "holdout"
    summary = "later views held out: leave-last-out, splits by time, sampled or weighted"
    metrics: Sequence[str] = ("recall", "ndcg")
    needs = frozenset({"test_log"})
    refits = True

    def __init__(
        self,
        split: str = "last",
        share: float = 0.2,
        windows: int = 4,
        k: int | None = None,
        candidates: str = "",
        negatives: int = 100,
        weighting: str = "none",
        gamma: float = 1.0,
    ) -> None:
        self.split = one_of(split, "holdout: split", SPLITS)
        self.share = number_in(share, "holdout: share", 0.0, 1.0, ends="()")
        self.windows = whole_number(windows, "holdout: windows", 1)
        self.k = None if k is None else whole_number(k, "holdout: k", 1)
        self.candidates = candidates and one_of(candidates, "holdout: candidates", CANDIDATES)
        self.negatives = whole_number(negatives, "holdout: negatives", 1)
        self.weighting = one_of(weighting, "holdout: weighting", WEIGHTINGS)
        self.gamma = number_in(gamma, "holdout: gamma")
        if self.weighting == "snips" and self.split == "last":
            raise UserError("holdout: weighting=snips changes nothing with one view per user. Add split=user or time")
        self.by_user = self.weighting != "stratified"  # users count equally; otherwise by the weight of their items

    def judge(self, study: Trial) -> list[Record]:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        study.report(f"hold out views ({self.split})")
        k: int = self.k or study.world.slate_size
        self.metrics = (f"recall@{k}",)
        if k > 1 and self.weighting == "none":
            self.metrics = (f"recall@{k}", f"ndcg@{k}")
        candidates = self.candidates or ("all" if study.world.views_repeat else "unseen")
        unseen = candidates != "all"
        splits = split_log(study.log(), self.split, share=self.share, windows=self.windows, unseen=unseen)
        rank = functools.partial(
            _timed_ranks,
            splits=splits,
            n_items=study.n_items,
            seed=study.seed_of("holdout"),
            candidates=candidates,
            negatives=self.negatives,
        )
        jobs = [functools.partial(rank, name, learner) for name, learner in study.learners.items()]
        details = {"candidates": candidates, "held_out": sum(len(split.items) for split in splits)}
        records = []
        results = run_in_order(jobs, study.executor)
        for name, (ranks, seconds) in zip(study.learners, results, strict=True):
            for metric, sums, counts in self._sums(study, name, splits, ranks, k):
                interval = _interval(sums, counts, study.level)
                key = (study.world.name, self.name, name, metric)
                records.append(
                    Record.of(*key, interval, level=study.level, n=len(sums), seconds=seconds, details=details)
                )
        return records

    def _sums(
        self, study: Trial, name: str, splits: Sequence[Split], ranks: Sequence[Ints], k: int
    ) -> list[tuple[str, Floats, Floats]]:
        """Compute each user's values over all splits, and keep them as raw results.

        Returns:
            Per metric: its name, the weighted sum of each user's values over the splits, and the sum of their weights.
        """
        parts: dict[str, list[tuple[Ints, Floats, Floats]]] = {metric: [] for metric in self.metrics}
        for split, split_ranks in zip(splits, ranks, strict=True):
            weights = item_weights(split, self.weighting, self.gamma, study.n_items)
            users = split.views.users[np.unique(split.owners)]
            by_metric = recall_and_ndcg(split.owners, split_ranks, weights, k)
            for metric in self.metrics:
                sums, counts = by_metric[metric]
                value = sums / counts
                weight = np.ones(len(value)) if self.by_user else counts
                parts[metric].append((users, value, weight))
                study.keep_raw(self.name, metric, name, user=users, value=value, weight=weight)
        return [(metric, *_summed_by_user(of_splits)) for metric, of_splits in parts.items()]

    def title(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return f"{self._split_title()} ({metric})"

    def _split_title(self) -> str:
        """Name the split as the field does, with its options."""
        named = {"last": "leave-last-out", "user": "split by user", "time": "split by time", "rolling": "rolling split"}
        options = [option for option in self.name.split("+")[1:] if not option.strip().startswith(("split=", "k="))]
        return ", ".join([named[self.split], *options])


def _timed_ranks(name: str, learner: Learner, *, splits: Sequence[Split], **how: Any) -> tuple[list[Ints], float]:
    """Return an agent's ranks (n,) in every split, and the seconds taken; ``how`` are arguments of held_out_ranks."""
    began = time.perf_counter()
    ranks = [held_out_ranks(name, learner, split, **how) for split in splits]
    return ranks, time.perf_counter() - began


def _summed_by_user(parts: Sequence[tuple[Ints, Floats, Floats]]) -> tuple[Floats, Floats]:
    """Add up each user's values over the parts of a rolling split.

    Args:
        parts: users, values and weights of each part; a user may be in several parts.

    Returns:
        The sum of each user's weighted values, and the sum of the weights.
    """
    users, values, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    _, user_index = np.unique(users, return_inverse=True)
    sums = np.bincount(user_index, values * weights).astype(np.float64)
    totals = np.bincount(user_index, weights).astype(np.float64)
    return sums, totals


def _interval(sums: Floats, weights: Floats, level: float) -> tuple[float, float, float]:
    """Compute the weighted mean over users of shares and its interval, whose upper end is at most 1."""
    if np.all(weights == 1.0):
        return user_mean_interval(sums, level)
    value, low, high = ratio_interval(sums, weights, level)
    return value, low, min(high, 1.0)
