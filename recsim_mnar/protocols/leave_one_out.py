"""Leave-one-out: hide one view of every user, fit on the rest or on a log of other users, and rank the hidden item."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import level_of, list_of, one_of, whole_number
from recsim_mnar.log.table import Log
from recsim_mnar.log.views import Views
from recsim_mnar.policies import registry
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.door import able, as_learner, fitted, rewrapped
from recsim_mnar.progress import counted
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.ranks import TIES, ranks_of
from recsim_mnar.protocols.records import Record, user_mean_interval
from recsim_mnar.rng import Stream, check_seed, derive_seed, uniforms
from recsim_mnar.simulation.executor import carrying, run_in_order
from recsim_mnar.simulation.items import simulate

CANDIDATES = ("all", "unseen", "auto")
ONE_VIEW = ("omit", "miss")
FIT_ON = ("rest", "train")
KS: tuple[int, ...] = (1, 10)
OF_ONE: tuple[str, ...] = ("hr", "mrr")
"""Ranks and metrics that are reported, unless others are asked for."""
METRICS = ("hr", "mrr", "ndcg")
"""Of lists, at any k; at 1 they are all the hit rate. Recall@k of one held-out item is HR@k."""

Ints = NDArray[np.int64]


def leave_one_out(
    log: Log,
    learners: Mapping[str, Learner],
    *,
    n_items: int,
    folds: int = 10,
    seed: int = 0,
    ks: Sequence[int] = KS,
    metrics: Sequence[str] = OF_ONE,
    level: float = 0.95,
    world: str = "sessions",
    candidates: str = "all",
    train: Log | None = None,
    one_view: str = "omit",
    ties: str = "drawn",
    executor: Executor | None = None,
    keep_raw: Callable[..., None] | None = None,
) -> list[Record]:
    """Leave-one-out cross-validation: HR@k, MRR@k and NDCG@k of held-out views.

    In each fold one view of every user, drawn at the address (seed, PROTOCOL, user, fold), is held out. The agent is
    fitted on all other rows of the same users, or once on the log ``train`` of other users. It observes the user's
    remaining views and ranks the candidates by its scores. HR@k is the share of held-out views at rank k or better,
    MRR@k the mean of 1 / rank where it is k or better, else 0, and NDCG@k that of 1 / log2(rank + 1); users count
    equally. One item is held out at a time, so recall@k is HR@k, precision@k is HR@k / k, and the best list has a DCG
    of 1. All metrics are of the same ranks.

    Jeunen, Rohde & Vasile 2019 (Figure 1) fit on a log of other users, count users with one view as misses and rank
    equal scores by index: ``train=LOG, one_view="miss", ties="lowest"``.

    Args:
        log: bandit rows are left in the training data, for learners that read them.
        learners: by the name to report.
        n_items: items are 0 .. n_items - 1.
        folds: how many views of each user are held out, one at a time (a view may be drawn in several folds).
        seed: of the draws and of the training.
        ks: ranks to report.
        metrics: to report at each rank, of :data:`METRICS`.
        level: of the intervals, which treat a user's folds as dependent.
        world: what the records say the data are.
        candidates: "all" items are ranked; "unseen": not those among the user's remaining views; "auto": "unseen" where
            no user views an item twice, else "all".
        train: a log of other users (who may have the same ids), or of the same users' rows that are not judged, on
            which each agent is fitted once; no agent is refitted. None: the agents are fitted on the judged users'
            other rows.
        one_view: "omit" users with a single view, or count each as a "miss", so that they lower every rate.
        ties: candidates with the held-out item's score are ranked by a "drawn" order, or by "lowest" index first.
        executor: folds run in parallel; results do not depend on it.
        keep_raw: receives hit and rank of each held-out view (:meth:`recsim_mnar.protocols.base.Trial.keep_raw`).

    Returns:
        Records of protocol ``loocv``: each metric of each k, as ``hr@10``, agent by agent; n is the number of users who
        count, and ``details`` has the number of users with one view (``users_left_out`` or ``users_missed``).

    Raises:
        UserError: no user has two views, an argument is out of range, ``train`` is no log or holds views that are
            judged (of most users in both logs step and item of all views agree, as far as the shorter log goes), or
            an agent's scores are not numbers.
    """
    for k in ks:
        whole_number(k, "leave-one-out: each of ks", 1)
    for metric in list_of(metrics, "leave-one-out: metrics"):
        one_of(metric, "leave-one-out: each of metrics (recall@k is hr@k here)", METRICS)
    if not ks or not metrics:
        raise UserError(f"leave-one-out: {'metrics' if ks else 'ks'} is empty. Name at least one")
    level_of(level, "leave-one-out: level")
    _check_choices(one_view=one_view)
    ranks = fold_ranks(
        log,
        learners,
        n_items=n_items,
        folds=folds,
        seed=seed,
        candidates=candidates,
        train=train,
        ties=ties,
        executor=executor,
    )
    details, missed = ranks.details, np.zeros(0)
    if one_view == "miss":
        missed = np.zeros(details["users_left_out"])
        details = {**details, "users_left_out": 0, "users_missed": len(missed)}
    records = []
    for name, seconds in ranks.seconds.items():
        for metric in (f"{what}@{k}" for k in ks for what in metrics):
            values = np.concatenate([ranks.by_user(name, metric), missed])
            key, interval = (world, "loocv", name, metric), user_mean_interval(values, level)
            records.append(Record.of(*key, interval, level=level, n=len(values), seconds=seconds, details=details))
            if keep_raw is not None:
                keep_raw(metric, name, missed=len(missed), **ranks.raw(name, metric))
    return records


@dataclass(frozen=True)
class HeldOutRanks:
    """Ranks of the views held out from users.

    Attributes:
        ranks: by agent, (folds, U) rank of each held-out item, 1 for the first, of U users with two views or more.
        seconds: by agent.
        details: candidates, users left out, folds and held-out views; JSON types.
        users: (U,) ids.
    """

    ranks: dict[str, Ints]
    seconds: dict[str, float]
    details: Mapping[str, Any]
    users: Ints

    def raw(self, name: str, metric: str) -> Mapping[str, NDArray[Any]]:
        """User, gain, rank and weight of each held-out view; users count equally."""
        ranks = self.ranks[name]
        flat = ranks.ravel()
        weight = np.full(ranks.size, 1.0 / len(ranks))
        return {"user": np.tile(self.users, len(ranks)), "value": gains(metric, flat), "rank": flat, "weight": weight}

    def by_user(self, name: str, metric: str) -> NDArray[np.float64]:
        """(U,) each user's mean of a metric."""
        return np.asarray(gains(metric, self.ranks[name]).mean(axis=0))


def fold_ranks(
    log: Log, learners: Mapping[str, Learner], *, folds: int = 10, executor: Executor | None = None, **how: Any
) -> HeldOutRanks:
    """The ranks that :func:`leave_one_out` makes its records of; arguments and errors as there."""
    whole_number(folds, "leave-one-out: folds", 1)
    case = _Case.of(log, learners, **how)
    agents, before = case.made_ready()
    one_fold = carrying(_fold, replace(case, learners={}, train=None), agents, in_python=True)
    jobs = (functools.partial(one_fold, fold) for fold in range(folds))
    advance = counted(folds, "folds")
    results = []
    for result in run_in_order(jobs, executor):
        results.append(result)
        advance(1)
    ranks = {
        name: np.stack([ranks_of_fold[index] for ranks_of_fold, _ in results]) for index, name in enumerate(agents)
    }
    took = {name: before[index] + sum(times[index] for _, times in results) for index, name in enumerate(agents)}
    details = {**case.details(), "folds": folds, "held_out": folds * len(case.eligible)}
    return HeldOutRanks(ranks, took, details, case.views.users[case.eligible])


@dataclass(frozen=True)
class _Case:
    """A log whose views are held out, and how: checked, with the users who can lose a view."""

    log: Log
    learners: dict[str, Learner]
    n_items: int
    seed: int
    train: Log | None
    ties: str
    views: Views
    eligible: Ints
    unseen: bool

    @staticmethod
    def of(
        log: Log,
        learners: Mapping[str, Learner],
        *,
        n_items: int,
        seed: int = 0,
        candidates: str = "all",
        train: Log | None = None,
        ties: str = "drawn",
    ) -> _Case:
        """Check the arguments of :func:`leave_one_out` and find the users who can lose a view."""
        whole_number(n_items, "leave-one-out: n_items", 1)
        _check_choices(candidates=candidates, ties=ties)
        made = {name: as_learner(learner, name=name) for name, learner in learners.items()}
        seed = check_seed(seed)
        held = _held_from(log, n_items, candidates)
        _check_train(log, train)
        return _Case(log, made, n_items, seed, train, ties, *held)

    def details(self) -> dict[str, object]:
        """JSON types."""
        left_out = len(self.views.users) - len(self.eligible)
        result: dict[str, object] = {"candidates": "unseen" if self.unseen else "all", "users_left_out": left_out}
        result |= {"fit_on": "train"} if self.train is not None else {}
        return result | ({"ties": self.ties} if self.ties != "drawn" else {})

    def made_ready(self) -> tuple[dict[str, Learner | Policy], list[float]]:
        """Policies fitted on ``train``, or else learners that have chosen their settings on the log; and the seconds.

        A learner with a method ``chosen_on`` chooses settings of its own (a few strengths of shrinkage). They are then
        the same in every fold, as if they had been given; everything else is fitted on the fold's rows. Choosing them
        anew in each fold would cost a cross-validation within a cross-validation, for settings that one view per user
        hardly moves.
        """
        ready: dict[str, Learner | Policy] = {}
        seconds = []
        fit_seed = derive_seed(self.seed, "fit")
        for name, learner in self.learners.items():
            began = time.perf_counter()
            choosing = able(learner, "chosen_on")
            if self.train is not None:
                ready[name] = fitted(learner, self.train, n_items=self.n_items, seed=fit_seed)
            elif choosing is not None:
                chosen = choosing.chosen_on(self.log, n_items=self.n_items, seed=fit_seed)
                ready[name] = rewrapped(learner, chosen)
            else:
                ready[name] = learner
            seconds.append(time.perf_counter() - began)
        return ready, seconds


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
        raise UserError(f"leave-one-out: items must be in 0..{n_items - 1}, the log has {int(views.items.max())}")
    unseen = candidates == "unseen" or (candidates == "auto" and not views.repeat())
    return views, eligible, unseen


def _check_train(log: Log, train: Any) -> None:
    """Raise UserError for a training log that is none, or in which held-out views stand."""
    if train is None:
        return
    if not isinstance(train, Log):
        raise UserError(f"leave-one-out: train must be a Log of other users, got {train!r}")
    same, shared = _same_users(log.organic(), train.organic())
    if 2 * same > shared:
        raise UserError(
            f"leave-one-out: train holds views that are judged (of {same} of the {shared} users in both logs), so they "
            "would not be held out. Give a log of other users, or omit train to refit on the judged users' other rows"
        )


def _same_users(judged: Log, trained: Log) -> tuple[int, int]:
    """Ids with two views or more in both logs: those whose views in one all stand in the other, and their number.

    Other people may bear the same ids. That step and item of all their views agree is then chance, and rare; the same
    users' earlier or later rows have other steps.
    """
    import pandas as pd

    columns = ("user", "step", "item")
    one, other = (pd.DataFrame({name: log[name] for name in columns}).drop_duplicates() for log in (judged, trained))
    n_one, n_other, n_common = (rows.groupby("user").size() for rows in (one, other, one.merge(other)))
    shorter = pd.concat([n_one, n_other], axis=1, join="inner").min(axis=1)
    shorter = shorter[shorter >= 2]
    same = n_common.reindex(shorter.index, fill_value=0) == shorter
    return int(same.sum()), len(shorter)


def _check_choices(**chosen: Any) -> None:
    known_choices = {"candidates": CANDIDATES, "one_view": ONE_VIEW, "ties": TIES, "fit_on": FIT_ON}
    for name, value in chosen.items():
        one_of(value, f"leave-one-out: {name}", known_choices[name])


def held_out_views(views: Views, eligible: Ints, seed: int, fold: int) -> Ints:
    """Choose each user's held-out view in a fold: (len(eligible),) positions among the views."""
    draw = uniforms(seed, Stream.PROTOCOL, views.users[eligible], fold)
    n_views = np.diff(views.starts)[eligible]
    return views.starts[eligible] + np.minimum((draw * n_views).astype(np.int64), n_views - 1)


def _fold(case: _Case, agents: Mapping[str, Learner | Policy], fold: int) -> tuple[list[Ints], list[float]]:
    """Ranks of the held-out items of one fold, one array per agent, and the seconds that each agent took.

    ``agents`` are learners, which are fitted on the fold's rows, or policies fitted on a log of other users.
    """
    log = case.log
    views = case.views
    eligible = case.eligible
    seed = case.seed
    held = held_out_views(views, eligible, seed, fold)
    kept = np.ones(len(log), bool)
    kept[views.rows[held]] = False
    rest = log.select(kept)
    tie_draws = uniforms(derive_seed(seed, "ties"), Stream.PROTOCOL, views.users[eligible], fold)
    ranks = []
    seconds = []
    for name, agent in agents.items():
        began = time.perf_counter()
        if isinstance(agent, Policy):
            policy = agent.fresh()  # folds side by side keep a state each
            own_rows = False
        else:
            policy = fitted(agent, rest, n_items=case.n_items, seed=derive_seed(seed, "fit"))
            own_rows = True
        above, n_tied = ranks_of(name, policy, views, eligible, held, case.unseen, ties=case.ties, own_rows=own_rows)
        ranks.append(1 + above + (tie_draws * (n_tied + 1)).astype(np.int64))
        seconds.append(time.perf_counter() - began)
    return ranks, seconds


def gains(metric: str, ranks: Ints) -> NDArray[np.float64]:
    """Compute the gain of each rank.

    In ``hr@k`` 1, ``mrr@k`` 1 / rank and ``ndcg@k`` 1 / log2(rank + 1), up to rank k.
    """
    name, _, k = metric.partition("@")
    value = {"hr": 1.0, "mrr": 1.0 / ranks, "ndcg": 1.0 / np.log2(ranks + 1.0)}[name]
    return np.where(ranks <= int(k), value, 0.0)


class LeaveOneOut(Protocol):
    """Leave-one-out of views: hit rates of what was held out.

    Where users are shown lists of k items, or with ``k``, agents are ranked by HR@k, MRR@k and NDCG@k; else by HR@1.
    Recall@k is HR@k, as one item is held out at a time.
    ``loocv+fit_on=train+logging=random+one_view=miss+ties=lowest`` is Figure 1 of Jeunen, Rohde & Vasile 2019.

    Args:
        folds: views of each user that are held out, one at a time; None for what the comparison's settings say, or 10.
        fit_on: "rest" refits agents in each fold on the judged users' other rows; "train" fits them once on the
            comparison's training log, of other users.
        one_view: "omit" users with a single view, or count each as a "miss".
        ties: equal scores are ranked in a "drawn" order, or by "lowest" index first.
        logging: the agent under which the judged users' log is collected; the comparison's test log where empty.
        k: length of the lists that are judged; None for that of the lists that the world's users are shown.
    """

    name = "loocv"
    summary = "leave-one-out: how often an agent ranks a held-out view first"
    metrics: Sequence[str] = ("hr@1",)
    needs = frozenset({"test_log"})

    def __init__(
        self,
        folds: int | None = None,
        fit_on: str = "rest",
        one_view: str = "omit",
        ties: str = "drawn",
        logging: str = "",
        k: int | None = None,
    ) -> None:
        for what, number in (("folds", folds), ("k", k)):
            if number is not None:
                whole_number(number, f"leave-one-out: {what}", 1)
        _check_choices(fit_on=fit_on, one_view=one_view, ties=ties)
        self.folds = folds
        self.fit_on = fit_on
        self.one_view = one_view
        self.ties = ties
        self.logging = str(logging)
        self.k = k
        self.metrics = _of_lists(k or 1)
        if self.logging:
            registry.learner(self.logging)  # an unknown name is refused before any work
        if self.logging or fit_on == "train":  # a world without further users trains on the very users that are judged
            self.needs = self.needs | {"train_log", "users"}

    def judge(self, study: Trial) -> list[Record]:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        folds = self.folds or study.settings.to_dict().get("folds", 10)
        study.report(f"{_titled('leave-one-out', self._options())}, {folds} folds")
        k = self.k or study.world.slate_size
        self.metrics = _of_lists(k)
        ks = KS
        metrics = OF_ONE
        if self.k or k > 1:
            ks = (k,)
            metrics = tuple(metric.partition("@")[0] for metric in self.metrics)
        return leave_one_out(
            self._log(study),
            study.learners,
            n_items=study.n_items,
            folds=folds,
            seed=study.seed_of("loocv"),
            level=study.level,
            world=study.world.name,
            candidates="all" if study.world.views_repeat else "unseen",
            train=study.train_log if self.fit_on == "train" else None,
            one_view=self.one_view,
            ties=self.ties,
            executor=study.executor,
            keep_raw=functools.partial(_keep_as, self.name, study),
            ks=ks,
            metrics=metrics,
        )

    def _log(self, study: Trial) -> Log:
        """The test log, or the same users under another logging policy."""
        if not self.logging or study.train_log is None:
            return study.log()
        learner = registry.learner(self.logging)
        policy = fitted(learner, study.train_log, n_items=study.n_items, seed=study.seed_of("fit"))
        n_users = study.settings.test_users
        return simulate(study.world, policy, n_users, study.test_seed, executor=study.executor)

    def title(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return _titled("leave-one-out", [metric.upper(), *self._options()])

    def heading(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        return _titled(metric.upper(), self._options())

    def _options(self) -> list[str]:
        """List the options after the name, without ``k``, which stands in the metric."""
        return [option for option in self.name.split("+")[1:] if not option.strip().startswith("k=")]


def _keep_as(name: str, study: Trial, metric: str, agent: str, *, missed: int, **columns: Any) -> None:
    """Keep raw results under a protocol's own name; who has one view and counts as a miss is user -1, rank 0."""
    misses = {"user": -1, "value": 0.0, "rank": 0, "weight": 1.0}
    padded = {key: np.concatenate([column, np.full(missed, misses[key])]) for key, column in columns.items()}
    study.keep_raw(name, metric, agent, **padded)


def _of_lists(k: int) -> list[str]:
    """By which lists of k items are judged, each once."""
    return [f"{metric}@{k}" for metric in (METRICS if k > 1 else METRICS[:1])]


def _titled(title: str, options: Sequence[str]) -> str:
    if options:
        return f"{title} ({', '.join(options)})"
    return title
