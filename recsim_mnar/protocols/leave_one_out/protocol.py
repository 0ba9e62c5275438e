"""Leave-one-out: every user loses one view, the agent is fitted on the rest, and ranks what was lost."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals.proportions import user_mean_interval
from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.policy.adapting import as_learner, fitted
from recsim_mnar.policy.base import Learner, Policy
from recsim_mnar.policy.capabilities import (
    ChoosesSettings,
    CountsLeaveOneOut,
    ScoresWithoutViews,
    able,
    rewrapped,
)
from recsim_mnar.protocols.records import Record
from recsim_mnar.rng import Stream, check_seed, derive_seed, uniforms
from recsim_mnar.simulate.executor import run_in_order

CANDIDATES = ("all", "unseen", "auto")

_SCORES_AT_A_TIME = 1 << 21
"""Scores held at once, n_users x n_items of a chunk; the chunk changes no result."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Views:
    """The organic rows of a log, user by user.

    Attributes:
        users: (U,) ids, ascending.
        starts: (U + 1,) where each user's views begin.
        items: (V,) items viewed, int32.
        rows: (V,) row of each view in the log.
    """

    users: Ints
    starts: Ints
    items: NDArray[np.int32]
    rows: Ints

    @classmethod
    def of(cls, log: Log) -> Views:
        """The views of a log."""
        rows = np.flatnonzero(log["event"] == schema.ORGANIC)
        owner = log["user"][rows]
        new = user_starts(owner)
        return cls(owner[new], np.append(new, len(rows)), log["item"][rows], rows)

    def owners(self) -> Ints:
        """(V,) index of each view's user."""
        return np.repeat(np.arange(len(self.users)), np.diff(self.starts))

    def repeat(self) -> bool:
        """Whether any user views an item twice."""
        if len(self.items) == 0:
            return False
        pairs = self.owners() * (int(self.items.max()) + 1) + self.items
        return len(np.unique(pairs)) < len(pairs)


def leave_one_out(
    log: Log,
    learners: Mapping[str, Learner],
    *,
    n_items: int,
    folds: int = 10,
    seed: int = 0,
    ks: Sequence[int] = (1, 10),
    level: float = 0.95,
    world: str = "sessions",
    candidates: str = "all",
    exhaustive: bool = False,
    executor: Executor | None = None,
) -> list[Record]:
    """Leave-one-out cross-validation: HR@k and MRR@k of held-out views.

    In each fold one view of every user, drawn at the address (seed, PROTOCOL, user, fold), is held out; the agent is
    fitted on all other rows of the same users, told the user's remaining views, and ranks the candidates by its scores.
    Where others tie with the held-out item its place among them is drawn at an address too, so that nobody gains from
    ties. HR@k is the share of held-out views at rank k or better, MRR@k the mean of 1 / rank where it is k or better,
    else 0; users count equally.

    Args:
        log: bandit rows are left in the training data, for learners that read them.
        learners: by the name to report.
        n_items: items are 0 .. n_items - 1.
        folds: how many views of each user are held out, one at a time (a view may be drawn in several folds).
        seed: of the draws and of the training.
        ks: ranks to report.
        level: of the intervals, which treat a user's folds as dependent.
        world: what the records say the data are.
        candidates: "all" items are ranked; "unseen": not those among the user's remaining views; "auto": "unseen" where
            no user views an item twice, else "all".
        exhaustive: hold out every view of every user, each alone, instead of drawing; for agents that need no refitting
            for it. The result is what the mean over ever more folds tends to, with one view missing from the training
            data instead of one a user.
        executor: folds run in parallel; results do not depend on it.

    Returns:
        Records of protocol ``loocv``: ``hr@k`` and ``mrr@k`` of each k, agent by agent; n is the number of users with
        at least two views, and ``details`` counts the others, who are left out.

    Raises:
        UserError: no user has two views, an argument is out of range, an agent's scores are not numbers, or it cannot
            do the exhaustive form.
    """
    _check_arguments(n_items, folds, ks, level, candidates)
    learners = {name: as_learner(learner, name=name) for name, learner in learners.items()}
    seed = check_seed(seed)
    views = Views.of(log)
    n_views = np.diff(views.starts)
    if np.any(views.users[1:] < views.users[:-1]):
        raise UserError("leave-one-out: the log's rows are out of order: sort them by (user, step)")
    eligible = np.flatnonzero(n_views >= 2)
    if len(eligible) == 0:
        raise UserError(f"leave-one-out needs users with at least two views; none of {len(views.users)} users has them")
    if int(views.items.min()) < 0 or int(views.items.max()) >= n_items:
        raise UserError(f"leave-one-out: items must lie in 0..{n_items - 1}, the log has {int(views.items.max())}")
    if candidates == "auto":
        candidates = "all" if views.repeat() else "unseen"
    unseen = candidates == "unseen"
    details = {
        "candidates": candidates,
        "users_left_out": len(views.users) - len(eligible),
    }
    records = []
    if exhaustive:
        owner = views.owners()
        kept = np.flatnonzero(n_views[owner] >= 2)
        tie_draws = uniforms(derive_seed(seed, "ties"), Stream.PROTOCOL, views.users[owner[kept]], kept)
        for name, learner in learners.items():
            began = time.perf_counter()
            above, n_tied = _exhaustive_places(name, learner, log, views, n_items, unseen, seed)
            ranks = 1 + above[kept] + (tie_draws * (n_tied[kept] + 1)).astype(np.int64)
            by_user = functools.partial(_mean_by_user, owner=owner[kept], eligible=eligible)
            seconds = time.perf_counter() - began
            told = {**details, "exhaustive": True, "held_out": len(kept)}
            records += _records(ranks, by_user, ks, level, (world, name, len(eligible), seconds), told)
        return records
    ready, choosing = _with_choices(log, learners, n_items, seed)
    jobs = (functools.partial(_fold, log, ready, views, eligible, n_items, unseen, seed, fold) for fold in range(folds))
    results = list(run_in_order(jobs, executor))
    for index, name in enumerate(learners):
        ranks = np.stack([ranks[index] for ranks, _ in results])
        seconds = choosing[index] + sum(times[index] for _, times in results)
        told = {**details, "folds": folds, "held_out": int(ranks.size)}
        records += _records(ranks, _mean_over_folds, ks, level, (world, name, len(eligible), seconds), told)
    return records


def _check_arguments(n_items: int, folds: int, ks: Sequence[int], level: float, candidates: str) -> None:
    if n_items < 1:
        raise UserError(f"leave-one-out: n_items must be at least 1, got {n_items}")
    if isinstance(folds, bool) or int(folds) != folds or folds < 1:
        raise UserError(f"leave-one-out: folds must be a whole number of at least 1, got {folds}")
    if not ks or any(isinstance(k, bool) or int(k) != k or k < 1 for k in ks):
        raise UserError(f"leave-one-out: ks must be whole numbers of at least 1, got {list(ks)}")
    if not 0.0 < level < 1.0:
        raise UserError(f"leave-one-out: level must lie in (0, 1), got {level}")
    if candidates not in CANDIDATES:
        raise UserError(f"leave-one-out: candidates must be one of {', '.join(CANDIDATES)}, got {candidates!r}")


def held_out_views(views: Views, eligible: Ints, seed: int, fold: int) -> Ints:
    """Which view of each user is held out in a fold: (len(eligible),) positions among the views."""
    draw = uniforms(seed, Stream.PROTOCOL, views.users[eligible], fold)
    n_views = np.diff(views.starts)[eligible]
    return views.starts[eligible] + np.minimum((draw * n_views).astype(np.int64), n_views - 1)


def _with_choices(
    log: Log, learners: Mapping[str, Learner], n_items: int, seed: int
) -> tuple[dict[str, Learner], list[float]]:
    """The learners, those that choose settings of their own having done so on the whole log; and the seconds it took.

    A learner says that it does by a method ``chosen_on``. Its settings (a few strengths of shrinkage) are then the same
    in every fold, as if they had been given; everything else is fitted on the fold's rows. Choosing them anew in each
    fold would cost a cross-validation within a cross-validation, for settings that one view a user less hardly moves.
    """
    ready, seconds = {}, []
    for name, learner in learners.items():
        began = time.perf_counter()
        choosing = able(learner, ChoosesSettings)
        if choosing is not None:
            learner = rewrapped(learner, choosing.chosen_on(log, n_items=n_items, seed=derive_seed(seed, "fit")))
        ready[name] = learner
        seconds.append(time.perf_counter() - began)
    return ready, seconds


def _fold(
    log: Log,
    learners: Mapping[str, Learner],
    views: Views,
    eligible: Ints,
    n_items: int,
    unseen: bool,
    seed: int,
    fold: int,
) -> tuple[list[Ints], list[float]]:
    """Ranks of the held-out items of one fold, an array an agent, and the seconds that each agent took."""
    held = held_out_views(views, eligible, seed, fold)
    kept = np.ones(len(log), bool)
    kept[views.rows[held]] = False
    train = log.select(kept)
    tie_draws = uniforms(derive_seed(seed, "ties"), Stream.PROTOCOL, views.users[eligible], fold)
    ranks, seconds = [], []
    for name, learner in learners.items():
        began = time.perf_counter()
        policy = fitted(learner, train, n_items=n_items, seed=derive_seed(seed, "fit"))
        above, n_tied = _places(name, policy, views, eligible, held, unseen)
        ranks.append(1 + above + (tie_draws * (n_tied + 1)).astype(np.int64))
        seconds.append(time.perf_counter() - began)
    return ranks, seconds


def _places(name: str, policy: Policy, views: Views, owners: Ints, held: Ints, unseen: bool) -> tuple[Ints, Ints]:
    """For each held-out view: the number of candidates above its item, and of others level with it.

    Args:
        name: of the agent, for messages.
        policy: fitted on the users' other views.
        views: all views.
        owners: (n,) index of each held-out view's user, each user once or one view after another.
        held: (n,) position of each held-out view.
        unseen: leave the items of the remaining views out of the candidates.
    """
    items = views.items[held]
    fixed = policy.fixed_distribution() is not None and not unseen
    if fixed:
        score = np.asarray(policy.scores(views.users[:1])[0], dtype=np.float64)
        _check_scores(name, score[None], 1, policy.n_items)
        ordered = np.sort(score)
        right = np.searchsorted(ordered, score[items], side="right")
        return len(ordered) - right, right - np.searchsorted(ordered, score[items], side="left") - 1
    above, n_tied = np.empty(len(held), np.int64), np.empty(len(held), np.int64)
    distinct = len(np.unique(owners)) == len(owners)
    chunk = max(1, _SCORES_AT_A_TIME // policy.n_items)
    for begin in range(0, len(held), chunk):
        part = slice(begin, min(begin + chunk, len(held)))
        place, seen = _remaining(views, owners[part], held[part])
        originals = views.users[owners[part]]
        # A user with several held-out views is several users here, each without one of them.
        users = originals if distinct else np.arange(part.stop - part.start)
        policy.reset_training_users(users, originals)
        policy.observe(users[place], seen)
        scores = _check_scores(name, policy.scores(users), len(users), policy.n_items)
        policy.forget(users)
        _count(name, scores, items[part], place, seen, unseen, above[part], n_tied[part])
    return above, n_tied


def _remaining(views: Views, owners: Ints, held: Ints) -> tuple[Ints, NDArray[np.int32]]:
    """The views left to each held-out view's user: (index among the held-out ones, item), in the user's order."""
    first = views.starts[owners]
    length = views.starts[owners + 1] - first
    place = np.repeat(np.arange(len(owners)), length)
    position = np.arange(len(place)) - np.repeat(np.cumsum(length) - length, length) + np.repeat(first, length)
    kept = position != held[place]
    return place[kept], views.items[position[kept]]


def _check_scores(name: str, scores: Any, n: int, n_items: int) -> NDArray[np.floating]:
    found = np.asarray(scores)
    if found.shape != (n, n_items) or found.dtype.kind not in "fiub":
        raise UserError(
            f"agent {name!r}: scores() must return numbers of shape ({n}, {n_items}), got {found.dtype} {found.shape}"
        )
    return found


def _count(
    name: str,
    scores: NDArray[Any],
    items: NDArray[np.int32],
    place: Ints,
    seen: NDArray[np.int32],
    unseen: bool,
    above: Ints,
    n_tied: Ints,
) -> None:
    """Fill ``above`` and ``n_tied`` from score rows."""
    from recsim_mnar.protocols.leave_one_out import _ranks_kernel

    single = scores.dtype == np.float32
    table = np.array(scores, dtype=np.float32 if single else np.float64, order="C", copy=unseen or None)
    if unseen:
        rows = np.arange(len(items))
        own = table[rows, items]
        table[place, seen] = -np.inf
        table[rows, items] = own
    if not table.flags.writeable:  # the kernel is compiled for one kind of array only
        table = table.copy()
    _ranks_kernel.above_and_tied(table, items, above, n_tied)
    if n_tied.min() < 0:
        raise UserError(f"agent {name!r}: scores() returned NaN; every item needs a number")


def _exhaustive_places(
    name: str, learner: Learner, log: Log, views: Views, n_items: int, unseen: bool, seed: int
) -> tuple[Ints, Ints]:
    """As ``_places`` for every view, each with the agent as fitted without it."""
    owner = views.owners()
    counting = able(learner, CountsLeaveOneOut)
    if counting is not None:
        found = counting.leave_one_out_ranks(log, n_items=n_items, unseen=unseen)
        if found is not None:
            return found
    if learner.ignores_own_views:
        policy = fitted(learner, log, n_items=n_items, seed=derive_seed(seed, "fit"))
        return _places(name, policy, views, owner, np.arange(len(views.items)), unseen)
    scoring = able(learner, ScoresWithoutViews)
    if scoring is None:
        raise UserError(
            f"agent {name!r} cannot leave out every view without refitting: use folds (exhaustive=False), or give it a "
            "method scores_without_each_view"
        )
    above, n_tied = np.empty(len(views.items), np.int64), np.empty(len(views.items), np.int64)
    chunk = max(1, _SCORES_AT_A_TIME // n_items)
    for held, scores in scoring.scores_without_each_view(log, n_items=n_items, chunk=chunk):
        place, seen = _remaining(views, owner[held], held) if unseen else (held[:0], views.items[:0])
        a, b = np.empty(len(held), np.int64), np.empty(len(held), np.int64)
        _count(name, _check_scores(name, scores, len(held), n_items), views.items[held], place, seen, unseen, a, b)
        above[held], n_tied[held] = a, b
    return above, n_tied


def _mean_over_folds(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values.mean(axis=0)


def _mean_by_user(values: NDArray[np.float64], *, owner: Ints, eligible: Ints) -> NDArray[np.float64]:
    total = np.bincount(owner, values)[eligible]
    return total / np.bincount(owner)[eligible]


def _records(
    ranks: Ints,
    by_user: Any,
    ks: Sequence[int],
    level: float,
    told: tuple[str, str, int, float],
    details: dict[str, Any],
) -> list[Record]:
    world, agent, n, seconds = told
    records = []
    for k in ks:
        hit = ranks <= k
        for metric, values in ((f"hr@{k}", hit.astype(np.float64)), (f"mrr@{k}", hit / ranks)):
            value, low, high = user_mean_interval(by_user(values), level)
            records.append(Record(world, "loocv", agent, metric, value, low, high, level, n, seconds, dict(details)))
    return records
