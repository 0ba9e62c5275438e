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
from recsim_mnar.log.table import Log
from recsim_mnar.log.views import Views, sharing_counts
from recsim_mnar.numerics.checks import level_of
from recsim_mnar.policy.adapting import as_learner, fitted
from recsim_mnar.policy.base import Learner
from recsim_mnar.policy.capabilities import ChoosesSettings, able, rewrapped
from recsim_mnar.progress import counted
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.leave_one_out.ranks import exhaustive_ranks, ranks_of
from recsim_mnar.protocols.records import Record
from recsim_mnar.rng import Stream, check_seed, derive_seed, uniforms
from recsim_mnar.simulate.executor import carrying, run_in_order

CANDIDATES = ("all", "unseen", "auto")

Ints = NDArray[np.int64]


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
    if not exhaustive:
        found = fold_ranks(
            log, learners, n_items=n_items, folds=folds, seed=seed, candidates=candidates, executor=executor
        )
        records = []
        for name, ranks in found.ranks.items():
            told = (world, name, ranks.shape[1], found.seconds[name])
            records += _records(ranks, _mean_over_folds, ks, level, told, found.details)
        return records
    learners = {name: as_learner(learner, name=name) for name, learner in learners.items()}
    seed = check_seed(seed)
    views, eligible, unseen = _held_from(log, n_items, candidates)
    owner = views.owners()
    kept = np.flatnonzero(np.diff(views.starts)[owner] >= 2)
    tie_draws = uniforms(derive_seed(seed, "ties"), Stream.PROTOCOL, views.users[owner[kept]], kept)
    details = {**_details(views, eligible, unseen), "exhaustive": True, "held_out": len(kept)}
    records = []
    for name, learner in learners.items():
        began = time.perf_counter()
        above, n_tied = exhaustive_ranks(name, learner, log, views, n_items, unseen, seed)
        ranks = 1 + above[kept] + (tie_draws * (n_tied[kept] + 1)).astype(np.int64)
        by_user = functools.partial(_mean_by_user, owner=owner[kept], eligible=eligible)
        seconds = time.perf_counter() - began
        records += _records(ranks, by_user, ks, level, (world, name, len(eligible), seconds), details)
    return records


@dataclass(frozen=True)
class FoldRanks:
    """Where agents rank what users lost, fold by fold.

    Attributes:
        ranks: (folds, U) rank of each held-out item, 1 for the first, by agent; U users with two views or more.
        seconds: by agent.
        details: candidates, users left out, folds and held-out views; JSON types.
    """

    ranks: dict[str, Ints]
    seconds: dict[str, float]
    details: dict[str, Any]


def fold_ranks(
    log: Log,
    learners: Mapping[str, Learner],
    *,
    n_items: int,
    folds: int = 10,
    seed: int = 0,
    candidates: str = "all",
    executor: Executor | None = None,
) -> FoldRanks:
    """The ranks that :func:`leave_one_out` makes its records of; arguments and errors as there."""
    _check_arguments(n_items, folds, (1,), 0.5, candidates)
    learners = {name: as_learner(learner, name=name) for name, learner in learners.items()}
    seed = check_seed(seed)
    views, eligible, unseen = _held_from(log, n_items, candidates)
    ready, choosing = _with_choices(log, learners, n_items, seed)
    one_fold = carrying(_fold, log, ready, views, eligible, n_items, unseen, seed, in_python=True)
    jobs = (functools.partial(one_fold, fold) for fold in range(folds))
    advance = counted(folds, "folds")
    results = []
    for result in run_in_order(jobs, executor):
        results.append(result)
        advance(1)
    ranks = {name: np.stack([found[index] for found, _ in results]) for index, name in enumerate(learners)}
    seconds = {name: choosing[index] + sum(times[index] for _, times in results) for index, name in enumerate(learners)}
    details = {**_details(views, eligible, unseen), "folds": folds, "held_out": folds * len(eligible)}
    return FoldRanks(ranks, seconds, details)


def _held_from(log: Log, n_items: int, candidates: str) -> tuple[Views, Ints, bool]:
    """The log's views, which users can lose one, and whether what they have viewed is no candidate."""
    views = Views.of(log)
    if np.any(views.users[1:] < views.users[:-1]):
        raise UserError("leave-one-out: the log's rows are out of order: sort them by (user, step)")
    eligible = np.flatnonzero(np.diff(views.starts) >= 2)
    if len(eligible) == 0:
        raise UserError(
            f"leave-one-out needs users with at least two views; none of {len(views.users)} users has "
            "them: name other protocols, off_policy or ab_test in a world, by_time or lists on interactions"
        )
    if int(views.items.min()) < 0 or int(views.items.max()) >= n_items:
        raise UserError(f"leave-one-out: items must lie in 0..{n_items - 1}, the log has {int(views.items.max())}")
    unseen = candidates == "unseen" or (candidates == "auto" and not views.repeat())
    return views, eligible, unseen


def _details(views: Views, eligible: Ints, unseen: bool) -> dict[str, Any]:
    return {"candidates": "unseen" if unseen else "all", "users_left_out": len(views.users) - len(eligible)}


def _check_arguments(n_items: int, folds: int, ks: Sequence[int], level: float, candidates: str) -> None:
    if n_items < 1:
        raise UserError(f"leave-one-out: n_items must be at least 1, got {n_items}")
    if isinstance(folds, bool) or int(folds) != folds or folds < 1:
        raise UserError(f"leave-one-out: folds must be a whole number of at least 1, got {folds}")
    if not ks or any(isinstance(k, bool) or int(k) != k or k < 1 for k in ks):
        raise UserError(f"leave-one-out: ks must be whole numbers of at least 1, got {list(ks)}")
    level_of(level, "leave-one-out: level")
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
    train = log.select_when_read(kept)  # agents read three of the columns, and folds lie in memory side by side
    tie_draws = uniforms(derive_seed(seed, "ties"), Stream.PROTOCOL, views.users[eligible], fold)
    ranks, seconds = [], []
    with sharing_counts(train):
        for name, learner in learners.items():
            began = time.perf_counter()
            policy = fitted(learner, train, n_items=n_items, seed=derive_seed(seed, "fit"))
            above, n_tied = ranks_of(name, policy, views, eligible, held, unseen)
            ranks.append(1 + above + (tie_draws * (n_tied + 1)).astype(np.int64))
            seconds.append(time.perf_counter() - began)
    return ranks, seconds


def gains(metric: str, ranks: Ints) -> NDArray[np.float64]:
    """What each rank counts for: in ``hr@k`` 1, ``mrr@k`` 1 / rank and ``ndcg@k`` 1 / log2(rank + 1), up to rank k."""
    name, _, k = metric.partition("@")
    value = {"hr": 1.0, "mrr": 1.0 / ranks, "ndcg": 1.0 / np.log2(ranks + 1.0)}[name]
    return np.where(ranks <= int(k), value, 0.0)


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
        for metric in (f"hr@{k}", f"mrr@{k}"):
            value, low, high = user_mean_interval(by_user(gains(metric, ranks)), level)
            records.append(
                Record(
                    world=world,
                    protocol="loocv",
                    agent=agent,
                    metric=metric,
                    value=value,
                    low=low,
                    high=high,
                    level=level,
                    n=n,
                    seconds=seconds,
                    details=dict(details),
                )
            )
    return records


class LeaveOneOut(Protocol):
    """Leave-one-out of views: hit rates of what was held out.

    Args:
        folds: views of each user that are held out, one at a time; 0 for what the comparison's settings say, or 10.
    """

    name = "loocv"
    summary = "leave-one-out: how often an agent ranks a held-out view first"
    metrics = ("hr@1",)
    needs = frozenset({"test_log"})

    def __init__(self, folds: int = 0) -> None:
        self.folds = folds

    def judge(self, study: Trial) -> list[Record]:
        """See :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        folds = self.folds or study.settings.to_dict().get("folds", 10)
        study.report(f"leave-one-out, {folds} folds")
        return leave_one_out(
            study.log(),
            study.learners,
            n_items=study.n_items,
            folds=folds,
            seed=study.seed_of("loocv"),
            level=study.level,
            world=study.world.name,
            candidates="all" if study.world.views_repeat else "unseen",
            executor=study.executor,
        )

    def ranks_by(self, metric: str) -> bool:
        """See :meth:`recsim_mnar.protocols.base.Protocol.ranks_by`."""
        return metric in self.metrics

    def title(self, metric: str) -> str:
        """See :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return "leave-one-out"

    def heading(self, metric: str) -> str:
        """See :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        return metric.upper()
