"""Hold out views and rank them: the last of every user, a share of each, or all after a moment; weighted or sampled."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import ratio_interval
from recsim_mnar.kernels.checks import number_in, one_of, whole_number
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.rows import steps_within, user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.log.views import Views
from recsim_mnar.policies.base import Learner
from recsim_mnar.policies.door import fitted
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.ranks import checked_scores, scores_after, views_of
from recsim_mnar.protocols.records import Record, user_mean_interval
from recsim_mnar.rng import Stream, derive_seed, uniforms
from recsim_mnar.simulation.executor import run_in_order

SPLITS = ("last", "user", "time", "rolling")
CANDIDATES = ("all", "unseen", "sampled")
WEIGHTINGS = ("none", "stratified", "snips")

_SCORES_AT_A_TIME = 1 << 21


@dataclass(frozen=True)
class Split:
    """A log in two: what agents learn from, and the items that each judged user goes on to view.

    Attributes:
        train: rows before the cut of their user.
        views: its views, user by user.
        owners: (n,) index in ``views`` of the user of each held-out item, ascending.
        items: (n,) held-out items, distinct for each user and ascending.
    """

    train: Log
    views: Views
    owners: Ints
    items: Ints


def split_log(log: Log, split: str, *, share: float = 0.2, windows: int = 4, unseen: bool = False) -> list[Split]:
    """Hold out views of a log; a window in which nobody can be judged is left out.

    Args:
        log: ordered by (user, step).
        split: ``last``: the last view of every user with two or more (leave-last-out); ``user``: the last ``share`` of
            each user's views; ``time``: all views after the moment that this share of all views reaches; ``rolling``:
            this share in ``windows`` parts of equal numbers of views, each predicted from all before it.
        share: of the views that is held out.
        windows: of ``rolling``.
        unseen: items that a user has viewed before the cut are nothing to find.

    Raises:
        UserError: an argument out of range, or no user with views on both sides.
    """
    one_of(split, "holdout: split", SPLITS)
    number_in(share, "holdout: share", 0.0, 1.0, ends="()")
    whole_number(windows, "holdout: windows", 1)
    parts = [_split(log, before, after, unseen) for before, after in _cuts(log, split, share, windows)]
    judged = [part for part in parts if len(part.items)]
    if not judged:
        raise UserError("holdout: no user has views before and after the cut. Hold out another share")
    return judged


def _cuts(log: Log, split: str, share: float, windows: int) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Rows to learn from and views to find, one pair per window."""
    organic = ~log.is_bandit
    rows = np.flatnonzero(organic)
    if len(rows) == 0:
        return []
    user = log["user"]
    moment = log["time"]
    if split in ("last", "user"):
        first = _first_held_out(user[rows], 0.0 if split == "last" else share)
        cut = np.full(int(user.max()) + 1, len(log), np.int64)
        is_known = first >= 0
        cut[np.unique(user[rows])[is_known]] = rows[first[is_known]]
        held = np.arange(len(log)) >= cut[user]
        return [(~held, held & organic)]
    ordered = np.sort(moment[rows])
    # Something must come before the moment, and something after it.
    begin = max(int(len(ordered) * (1.0 - share)), int(np.searchsorted(ordered, ordered[0], side="right")))
    begin = min(begin, len(ordered) - 1)
    if split == "time":
        parts = 1
    else:
        parts = windows
    edges = ordered[np.linspace(begin, len(ordered), parts + 1).astype(np.int64)[:-1]]
    ends = [*edges[1:], np.inf]
    return [
        (moment < low, organic & (moment >= low) & (moment < high))
        for low, high in zip(edges, ends, strict=True)
        if low < high
    ]


def _first_held_out(user: Ints, share: float) -> Ints:
    """Position of each user's first held-out view among all views; -1 of users with fewer than two."""
    starts = user_starts(user)
    lengths = np.diff(np.append(starts, len(user)))
    held = np.clip(np.floor(share * lengths).astype(np.int64), 1, lengths - 1)
    return np.where(lengths >= 2, starts + lengths - held, -1)


def _split(log: Log, before: NDArray[np.bool_], after: NDArray[np.bool_], unseen: bool) -> Split:
    train = log.select(before)
    views = Views.of(train)
    user = log["user"][after]
    item = log["item"][after].astype(np.int64)
    place = np.minimum(np.searchsorted(views.users, user), max(len(views.users) - 1, 0))
    if len(views.users):
        is_known = views.users[place] == user
    else:
        is_known = np.zeros(len(user), np.bool_)
    n_items = int(log["item"].max()) + 1
    pairs = np.unique(place[is_known] * n_items + item[is_known])
    if unseen:
        pairs = np.setdiff1d(pairs, views.owners() * n_items + views.items)
    return Split(train, views, pairs // n_items, pairs % n_items)


def held_out_ranks(
    name: str, learner: Learner, split: Split, *, n_items: int, seed: int, candidates: str, negatives: int
) -> Ints:
    """(n,) rank of each held-out item among its user's candidates, 1 for the first; ties in a drawn order.

    Args:
        name: of the agent, for messages.
        learner: fitted on ``split.train``.
        split: what is held out.
        n_items: items are 0 .. n_items - 1.
        seed: of the training, of ties and of sampled candidates.
        candidates: ``all`` items; ``unseen``: not those that the user has viewed; ``sampled``: the held-out items and
            ``negatives`` items drawn from those that the user does not view on either side. Either is one list per
            user, with all held-out items in it.
        negatives: of ``sampled``.
    """
    policy = fitted(learner, split.train, n_items=n_items, seed=derive_seed(seed, "fit"))
    judged, place = np.unique(split.owners, return_inverse=True)
    ranks = np.empty(len(split.items), np.int64)
    step = max(1, _SCORES_AT_A_TIME // n_items)
    for first in range(0, len(judged), step):
        part = judged[first : first + step]
        rows = np.flatnonzero((place >= first) & (place < first + step))
        owner = place[rows] - first
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
        allowed = np.ones(scores.shape, np.bool_)
        if candidates != "all":
            allowed[seen_by, seen] = False
        if candidates == "sampled":
            allowed[owner, items] = False
            allowed &= _sampled(users, allowed, negatives, derive_seed(seed, "negatives"))
        allowed[owner, items] = True
        ranks[rows] = _ranks(scores, ties.reshape(scores.shape), allowed, owner, items)
    return ranks


def _sampled(users: Ints, allowed: NDArray[np.bool_], negatives: int, seed: int) -> NDArray[np.bool_]:
    """Draw each user's allowed items: those with the smallest draws."""
    n_items = allowed.shape[1]
    keys = uniforms(seed, Stream.PROTOCOL, np.repeat(users, n_items), np.tile(np.arange(n_items), len(users)))
    keys = np.where(allowed, keys.reshape(allowed.shape), np.inf)
    few = min(negatives, n_items)
    limit = np.partition(keys, few - 1, axis=1)[:, few - 1]
    return allowed & (keys <= limit[:, None])


def _ranks(scores: NDArray[np.floating], ties: Floats, allowed: NDArray[np.bool_], owner: Ints, items: Ints) -> Ints:
    """Rank of each held-out item among its user's candidates and itself."""
    own_scores = scores[owner, items]
    draw = ties[owner, items]
    out = np.empty(len(items), np.int64)
    for i, (user, score, tie) in enumerate(zip(owner, own_scores, draw, strict=True)):
        allowed_items = allowed[user]
        level = scores[user] == score
        above = np.count_nonzero(allowed_items & (scores[user] > score))
        out[i] = 1 + above + np.count_nonzero(allowed_items & level & (ties[user] < tie))
    return out


def item_weights(split: Split, weighting: str, gamma: float, n_items: int) -> Floats:
    """(n,) weight of each held-out item.

    Args:
        split: what is held out; popularity is counted in its training rows.
        weighting: ``stratified``: n_i ** -(gamma / (gamma + 1)) (Steck 2011); ``snips``: 1 / P_i, P_i proportional to
            n_i ** ((gamma + 1) / 2) (Yang et al. 2018); ``none``: 1.
        gamma: exponent of the power law by which popular items are observed more often.
        n_items: items are 0 .. n_items - 1.
    """
    if weighting == "none":
        return np.ones(len(split.items))
    counts = np.maximum(np.bincount(split.views.items, minlength=n_items), 1).astype(np.float64)[split.items]
    if weighting == "stratified":
        exponent = gamma / (gamma + 1.0)
    else:
        exponent = (gamma + 1.0) / 2.0
    return counts**-exponent


def recall_and_ndcg(owners: Ints, ranks: Ints, weights: Floats, k: int) -> dict[str, tuple[Floats, Floats]]:
    """By metric, each judged user's numerator and denominator; (U,) each.

    Recall@k is sum(w [rank <= k]) / sum(w). NDCG@k has gains w / log2(rank + 1), over what the best list of k items
    would have (Jarvelin & Kekalainen 2002).

    Args:
        owners: (n,) user of each held-out item, ascending.
        ranks: (n,) rank of each.
        weights: (n,) weight of each.
        k: length of the list.
    """
    starts = user_starts(owners)
    hits = ranks <= k
    recall = np.add.reduceat(weights * hits, starts), np.add.reduceat(weights, starts)
    gained = np.add.reduceat(np.where(hits, weights / np.log2(ranks + 1.0), 0.0), starts)
    # The best list has the heaviest items first.
    order = np.lexsort((-weights, owners))
    place = steps_within(owners)
    best = np.add.reduceat(np.where(place < k, weights[order] / np.log2(place + 2.0), 0.0), starts)
    return {f"recall@{k}": recall, f"ndcg@{k}": (gained, best)}


class HoldOut(Protocol):
    """Fit agents on earlier views, and ask how many of the later ones are among the first k items that they rank.

    Sampled candidates are what many papers use, and rank agents otherwise than all candidates do (Krichene & Rendle
    2020, "On sampled metrics for item recommendation"): compare both before you believe them.

    Args:
        split: ``last`` (leave-last-out), ``user`` (the last share of each user's views), ``time`` (all views after a
            moment) or ``rolling`` (several such moments). Times are those of the log: in the sessions world every
            user's begins at 0.
        share: of the views that is held out, but for ``last``.
        windows: moments of ``rolling``.
        k: length of the lists; None for that of the lists that the world's users are shown.
        candidates: ``all`` items, ``unseen`` ones, or ``sampled``.
        negatives: items beside the held-out one, of ``sampled``.
        weighting: ``none``, ``stratified`` (Steck 2011) or ``snips`` (Yang et al. 2018). The latter is normalised for
            each user, so it changes nothing where a single view of each is held out: it is refused there.
        gamma: of the weighting.
    """

    name = "holdout"
    summary = "later views held out: leave-last-out, splits by time, sampled or weighted"
    metrics: Sequence[str] = ("recall", "ndcg")
    needs = frozenset({"test_log"})

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
        if k is None:
            self.k = None
        else:
            self.k = whole_number(k, "holdout: k", 1)
        self.candidates = candidates and one_of(candidates, "holdout: candidates", CANDIDATES)
        self.negatives = whole_number(negatives, "holdout: negatives", 1)
        self.weighting = one_of(weighting, "holdout: weighting", WEIGHTINGS)
        self.gamma = number_in(gamma, "holdout: gamma")
        if self.weighting == "snips" and self.split == "last":
            raise UserError("holdout: weighting=snips changes nothing with one view per user. Add split=user or time")
        self.by_user = self.weighting != "stratified"

    def judge(self, study: Trial) -> list[Record]:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        study.report(f"hold out views ({self.split})")
        k: int = self.k or study.world.slate_size
        if k == 1 or self.weighting != "none":
            self.metrics = (f"recall@{k}",)
        else:
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
        ranks_by_agent = dict(zip(study.learners, run_in_order(jobs, study.executor), strict=True))
        records = []
        for name, (ranks, seconds) in ranks_by_agent.items():
            for metric, sums, counts in self._sums(study, name, splits, ranks, k):
                interval = _interval(sums, counts, study.level)
                key = (study.world.name, self.name, name, metric)
                details = {"candidates": candidates, "held_out": int(sum(len(one.items) for one in splits))}
                records.append(
                    Record.of(*key, interval, level=study.level, n=len(sums), seconds=seconds, details=details)
                )
        return records

    def _sums(
        self, study: Trial, name: str, splits: Sequence[Split], ranks: Sequence[Ints], k: int
    ) -> list[tuple[str, Floats, Floats]]:
        """By metric, each judged user's weighted sum and weight over all splits; raw results are kept."""
        sums_by_metric: dict[str, list[tuple[Ints, Floats, Floats]]] = {}
        for one, own_ranks in zip(splits, ranks, strict=True):
            weights = item_weights(one, self.weighting, self.gamma, study.n_items)
            users = one.views.users[np.unique(one.owners)]
            for metric, (sums, counts) in recall_and_ndcg(one.owners, own_ranks, weights, k).items():
                if metric not in self.metrics:
                    continue
                value = sums / counts
                if self.by_user:
                    weight = np.ones(len(value))
                else:
                    weight = counts
                sums_by_metric.setdefault(metric, []).append((users, value, weight))
                study.keep_raw(self.name, metric, name, user=users, value=value, weight=weight)
        return [(metric, *_summed_by_user(parts)) for metric, parts in sums_by_metric.items()]

    def title(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return f"{self._words()} ({metric})"

    def _words(self) -> str:
        """The split in the field's words, with the options asked for."""
        named = {"last": "leave-last-out", "user": "split by user", "time": "split by time", "rolling": "rolling split"}
        options = [option for option in self.name.split("+")[1:] if not option.strip().startswith(("split=", "k="))]
        return ", ".join([named[self.split], *options])


def _timed_ranks(name: str, learner: Learner, *, splits: Sequence[Split], **how: Any) -> tuple[list[Ints], float]:
    """Ranks of an agent in every split, and the seconds they took."""
    began = time.perf_counter()
    return [held_out_ranks(name, learner, one, **how) for one in splits], time.perf_counter() - began


def _summed_by_user(parts: Sequence[tuple[Ints, Floats, Floats]]) -> tuple[Floats, Floats]:
    """Each user's weighted sum and weight over the windows in which they are judged."""
    users, values, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    _, place = np.unique(users, return_inverse=True)
    sums = np.bincount(place, values * weights).astype(np.float64)
    totals = np.bincount(place, weights).astype(np.float64)
    return sums, totals


def _interval(sums: Floats, weights: Floats, level: float) -> tuple[float, float, float]:
    """Weighted mean over users of shares, and its interval, which stays below 1."""
    if np.all(weights == 1.0):
        return user_mean_interval(sums, level)
    value, low, high = ratio_interval(sums, weights, level)
    return value, low, min(high, 1.0)
