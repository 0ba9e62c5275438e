"""Leave-one-out: hide one view of every user, fit on the rest or on a log of other users, and rank the hidden item.

With hidden item i(u, f) of user u in fold f, HR@k is the mean over users of the mean over folds of [rank of i(u, f) <=
k]; for k = 1, how often the hidden item has the largest score (Jeunen, Rohde & Vasile 2019, section 2). Agents are
fitted on what remains of the judged users, as that text has it; its notebook, and so Figure 1, fits once on others.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import user_mean_interval
from recsim_mnar.kernels.checks import one_of, whole_number
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.table import Log
from recsim_mnar.log.views import Views
from recsim_mnar.policies import registry
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.door import able, as_learner, fitted, rewrapped
from recsim_mnar.progress import counted
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.ranks import CANDIDATES, TIES, ranks_of
from recsim_mnar.protocols.records import Record
from recsim_mnar.rng import Stream, check_seed, derive_seed, uniforms
from recsim_mnar.simulation.executor import carrying, run_in_order
from recsim_mnar.simulation.items import simulate

ONE_VIEW = ("omit", "miss")
FIT_ON = ("rest", "train")
KS: tuple[int, ...] = (1, 10)
OF_ONE: tuple[str, ...] = ("hr", "mrr")
"""List lengths and metrics that are reported by default."""
METRICS = ("hr", "mrr", "ndcg")
"""Metrics of lists of any length; for length 1 all equal the hit rate. With one held-out item, recall@k is HR@k."""


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
    one_view: str = "omit",
    keep_raw: Callable[..., None] | None = None,
    **how: Any,
) -> list[Record]:
    """Cross-validate agents by leaving one view out: HR@k, MRR@k and NDCG@k of the held-out items.

    One item is held out at a time, so recall@k is HR@k, precision@k is HR@k / k, and the best list has a DCG of 1.
    Users count equally. Figure 1 of Jeunen, Rohde & Vasile 2019 is ``train=LOG, one_view="miss", ties="lowest"``.

    Args:
        log: log of the judged users; bandit rows remain in the training data, for learners that read them.
        learners: learners by the name to report.
        n_items: number of items, which are 0 .. n_items - 1.
        folds: number of views of each user that are held out, one at a time (a view may be drawn in several folds).
        seed: seed of the draws and of the training.
        ks: list lengths k to report.
        metrics: names of :data:`METRICS` to report for each k.
        level: nominal coverage of the intervals, which treat a user's folds as dependent.
        world: name of the data in the records.
        one_view: "omit" users with a single view, or count each as a "miss", which lowers every rate.
        keep_raw: function that receives hit and rank of each held-out view; None if they are not kept.
        **how: further arguments of :func:`fold_ranks`: candidates, train, ties, executor.

    Returns:
        Records of protocol ``loocv``: each metric for each k, such as ``hr@10``, agent by agent. Their n is the number
        of users who count; the details have that of users with one view (``users_left_out`` or ``users_missed``).

    Raises:
        UserError: an argument is out of range, or :func:`fold_ranks` raises an error.
    """
    names = [f"{metric}@{k}" for k in ks for metric in metrics]
    _check_choices(one_view=one_view)
    ranks, all_seconds, users, details = fold_ranks(log, learners, n_items=n_items, folds=folds, seed=seed, **how)
    missed = np.zeros(0)
    if one_view == "miss":
        missed = np.zeros(details["users_left_out"])  # the value of each user with one view
        details = {**details, "users_left_out": 0, "users_missed": len(missed)}
    records = []
    for agent, seconds in all_seconds.items():
        for metric in names:
            gained = gains(metric, ranks[agent])
            values = np.concatenate([gained.mean(axis=0), missed])
            key = (world, "loocv", agent, metric)
            interval = user_mean_interval(values, level)
            records.append(Record.of(*key, interval, level=level, n=len(values), seconds=seconds, details=details))
            if keep_raw is not None:
                rows = {"user": np.tile(users, folds), "value": gained.ravel(), "rank": ranks[agent].ravel()}
                keep_raw(metric, agent, missed=len(missed), **rows, weight=np.full(gained.size, 1.0 / folds))
    return records


def fold_ranks(
    log: Log,
    learners: Mapping[str, Learner],
    *,
    n_items: int,
    folds: int = 10,
    seed: int = 0,
    train: Log | None = None,
    executor: Executor | None = None,
    **choices: str,
) -> tuple[dict[str, Ints], dict[str, float], Ints, dict[str, Any]]:
    """Rank the items of held-out views by each agent's scores.

    In each fold one view of every user, drawn at the address (seed, PROTOCOL, user, fold), is held out. The agent is
    fitted on all other rows of the same users, or once on the log ``train`` of other users. It observes the user's
    remaining views and ranks the candidates by its scores.

    Args:
        log: log of the judged users.
        learners: learners by name.
        n_items: number of items, which are 0 .. n_items - 1.
        folds: number of views of each user that are held out, one at a time.
        seed: seed of the draws and of the training.
        train: a log of other users (who may have the same ids), or of the same users' rows that are not judged, on
            which each agent is fitted once; None to fit agents in each fold on the judged users' other rows.
        executor: executor over which folds are spread; results do not depend on it.
        **choices: two further arguments. ``candidates``: "all" items, or "unseen" for items that are not among the
            user's remaining views. ``ties``: order of candidates with the held-out item's score, "drawn" or by "lowest"
            index first.

    Returns:
        ranks: by agent, (folds, U) rank of the item held out from each of U users in each fold, 1 for the first.
        seconds: by agent, the wall time.
        users: (U,) ids of the users with two views or more.
        details: kind of candidates, and numbers of users left out, folds and held-out views; JSON types.

    Raises:
        UserError: no user has two views, an argument is out of range, ``train`` is no log or contains the judged views
            (for most users in both logs, step and item of all views of the shorter log agree), or an agent's scores are
            not numbers.
    """
    learners = {name: as_learner(learner, name=name) for name, learner in learners.items()}
    data = _FoldData.of(log, n_items, check_seed(seed), **choices)
    _check_train(log, train)
    agents, seconds = _prepare_agents(data, learners, train)
    one_fold = carrying(_rank_fold, data, agents, in_python=True)
    jobs = (functools.partial(one_fold, fold) for fold in range(folds))
    advance = counted(folds, "folds")
    ranks: dict[str, list[Ints]] = {name: [] for name in agents}
    for results in run_in_order(jobs, executor):
        for name, (ranks_of_fold, took) in results.items():
            ranks[name].append(ranks_of_fold)
            seconds[name] += took
        advance(1)
    stacked = {name: np.stack(by_fold) for name, by_fold in ranks.items()}
    return stacked, seconds, data.views.users[data.eligible], data.details(train, folds)


@dataclass(frozen=True)
class _FoldData:
    """A log whose views are held out, and the users who have enough of them.

    Attributes:
        log: log of the judged users.
        n_items: number of items.
        seed: seed of the draws and of the training.
        ties: order of equal scores, "drawn" or "lowest".
        views: all views of the log.
        eligible: (U,) users with two views or more, as indexes in ``views``.
        unseen: True if the items of a user's remaining views are no candidates.
    """

    log: Log
    n_items: int
    seed: int
    ties: str
    views: Views
    eligible: Ints
    unseen: bool

    @staticmethod
    def of(log: Log, n_items: int, seed: int, candidates: str = "all", ties: str = "drawn") -> _FoldData:
        """Check the views of a log, and find the users with two views or more.

        Raises:
            UserError: rows are out of order, no user has two views, or an item is out of range.
        """
        _check_choices(candidates=candidates, ties=ties)
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
        return _FoldData(log, n_items, seed, ties, views, eligible, candidates == "unseen")

    @property
    def fit_seed(self) -> int:
        """Seed of the training."""
        return derive_seed(self.seed, "fit")

    def details(self, train: Log | None, folds: int) -> dict[str, Any]:
        """Describe the held-out views; JSON types."""
        details: dict[str, Any] = {"candidates": "unseen" if self.unseen else "all"}
        details["users_left_out"] = len(self.views.users) - len(self.eligible)
        if train is not None:
            details["fit_on"] = "train"
        if self.ties != "drawn":
            details["ties"] = self.ties
        return details | {"folds": folds, "held_out": folds * len(self.eligible)}


def _prepare_agents(
    data: _FoldData, learners: Mapping[str, Learner], train: Log | None
) -> tuple[dict[str, Learner | Policy], dict[str, float]]:
    """Prepare agents for all folds: fit them on ``train`` or, without it, let learners choose their hyperparameters.

    A learner with a method ``chosen_on`` chooses hyperparameters (a few strengths of shrinkage) on the whole log. They
    are then the same in every fold, as if they had been stated; everything else is fitted on the fold's rows. Choosing
    them anew in each fold would be a cross-validation within a cross-validation, for values that one view per user
    hardly changes.

    Returns:
        agents: by name, policies fitted on ``train``, or learners that are fitted in each fold.
        seconds: by name, the wall time.
    """
    agents: dict[str, Learner | Policy] = {}
    seconds = {}
    for name, learner in learners.items():
        began = time.perf_counter()
        choosing = able(learner, "chosen_on")
        agents[name] = learner
        if train is not None:
            agents[name] = fitted(learner, train, n_items=data.n_items, seed=data.fit_seed)
        elif choosing is not None:
            chosen = choosing.chosen_on(data.log, n_items=data.n_items, seed=data.fit_seed)
            agents[name] = rewrapped(learner, chosen)
        seconds[name] = time.perf_counter() - began
    return agents, seconds


def _check_train(log: Log, train: Any) -> None:
    """Raise UserError if the training log is no log, or contains judged views; None is allowed."""
    if train is None:
        return
    if not isinstance(train, Log):
        raise UserError(f"leave-one-out: train must be a Log of other users, got {train!r}")
    same, shared = _count_same_users(log.organic(), train.organic())
    if 2 * same > shared:  # most users in both logs have the same views in them
        raise UserError(
            f"leave-one-out: train holds views that are judged (of {same} of the {shared} users in both logs), so they "
            "would not be held out. Give a log of other users, or omit train to refit on the judged users' other rows"
        )


def _count_same_users(judged: Log, trained: Log) -> tuple[int, int]:
    """Count the user ids that seem to be the same users in both logs.

    Different people with one id hardly ever agree in step and item of all views. Earlier or later rows of the same
    users, which may be trained on, have other steps.

    Returns:
        same: number of ids whose views in the shorter log are all in the other one.
        shared: number of ids with two views or more in both logs.
    """
    import pandas as pd

    columns = ("user", "step", "item")
    judged_views = pd.DataFrame({name: judged[name] for name in columns}).drop_duplicates()
    train_views = pd.DataFrame({name: trained[name] for name in columns}).drop_duplicates()
    n_judged = judged_views.groupby("user").size()
    n_train = train_views.groupby("user").size()
    n_common = judged_views.merge(train_views).groupby("user").size()
    n_shorter = pd.concat([n_judged, n_train], axis=1, join="inner").min(axis=1)  # of users in both logs
    n_shorter = n_shorter[n_shorter >= 2]  # a single view agrees too easily by chance
    same = n_common.reindex(n_shorter.index, fill_value=0) == n_shorter
    return int(same.sum()), len(n_shorter)


def _check_choices(**arguments: Any) -> None:
    """Raise UserError for an argument that is none of its possible values."""
    choices = {"candidates": CANDIDATES, "one_view": ONE_VIEW, "ties": TIES, "fit_on": FIT_ON}
    for name, value in arguments.items():
        one_of(value, f"leave-one-out: {name}", choices[name])


def held_out_views(views: Views, eligible: Ints, seed: int, fold: int) -> Ints:
    """Draw the held-out view of each eligible user in a fold, (U,) positions in ``views``."""
    draw = uniforms(seed, Stream.PROTOCOL, views.users[eligible], fold)
    n_views = np.diff(views.starts)[eligible]
    return views.starts[eligible] + np.minimum((draw * n_views).astype(np.int64), n_views - 1)


def _rank_fold(data: _FoldData, agents: Mapping[str, Learner | Policy], fold: int) -> dict[str, tuple[Ints, float]]:
    """Rank the held-out items of one fold.

    Args:
        data: the log and its users.
        agents: by name, learners, which are fitted on the fold's rows, or policies fitted on a log of other users.
        fold: number of the fold.

    Returns:
        By agent, the ranks (U,) and the seconds taken.
    """
    views = data.views
    eligible = data.eligible
    held_out = held_out_views(views, eligible, data.seed, fold)
    kept = np.ones(len(data.log), bool)
    kept[views.rows[held_out]] = False
    rest = data.log.select(kept)
    tie_draws = uniforms(derive_seed(data.seed, "ties"), Stream.PROTOCOL, views.users[eligible], fold)
    results = {}
    for name, agent in agents.items():
        began = time.perf_counter()
        own_rows = not isinstance(agent, Policy)
        if isinstance(agent, Policy):
            policy = agent.fresh()  # parallel folds must not share the policy's state
        else:
            policy = fitted(agent, rest, n_items=data.n_items, seed=data.fit_seed)
        above, n_tied = ranks_of(
            name, policy, views, eligible, held_out, data.unseen, ties=data.ties, own_rows=own_rows
        )
        ranks = 1 + above + (tie_draws * (n_tied + 1)).astype(np.int64)  # a uniform place among equal scores
        results[name] = (ranks, time.perf_counter() - began)
    return results


def gains(metric: str, ranks: Ints) -> Floats:
    """Compute the gain of each rank: for ``hr@k`` 1, for ``mrr@k`` 1 / rank, for ``ndcg@k`` 1 / log2(rank + 1).

    The gain of ranks above k is 0.
    """
    name, _, k = metric.partition("@")
    value = {"hr": 1.0, "mrr": 1.0 / ranks, "ndcg": 1.0 / np.log2(ranks + 1.0)}[name]
    return np.where(ranks <= int(k), value, 0.0)


class LeaveOneOut(Protocol):
    """Leave one view of every user out, and rank agents by the hit rates of the held-out items.

    If users see lists of k items, or with ``k``, agents are ranked by HR@k, MRR@k and NDCG@k, otherwise by HR@1.
    Recall@k is HR@k, because one item is held out at a time.
    ``loocv+fit_on=train+logging=random+one_view=miss+ties=lowest`` is Figure 1 of Jeunen, Rohde & Vasile 2019.

    Args:
        folds: number of views of each user that are held out, one at a time; None for the comparison's setting, or 10.
        fit_on: "rest" to refit agents in each fold on the judged users' other rows; "train" to fit them once on the
            comparison's training log of other users.
        one_view: "omit" to leave out users with a single view; "miss" to count each as a miss.
        ties: order of equal scores, "drawn" or by "lowest" index first.
        logging: agent under which the judged users' log is collected; empty for the comparison's test log.
        k: length of the judged lists; None for that of the lists that the world's users see.
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
        self.refits = fit_on == "rest"
        self.one_view = one_view
        self.ties = ties
        self.logging = str(logging)
        self.k = k
        self.metrics = _metrics_of_lists(k or 1)
        if self.logging:
            registry.learner(self.logging)  # an unknown name is refused before any work
        # In a world without further users, the training log would be that of the judged users.
        if self.logging or fit_on == "train":
            self.needs = self.needs | {"train_log", "users"}

    def judge(self, study: Trial) -> list[Record]:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        folds = self.folds or study.settings.to_dict().get("folds", 10)
        study.report(f"{_with_options('leave-one-out', self._options())}, {folds} folds")
        k = self.k or study.world.slate_size
        self.metrics = _metrics_of_lists(k)
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
        """Return the test log, or simulate the same users under another logging policy."""
        if not self.logging or study.train_log is None:
            return study.log()
        learner = registry.learner(self.logging)
        policy = fitted(learner, study.train_log, n_items=study.n_items, seed=study.seed_of("fit"))
        return simulate(study.world, policy, study.settings.test_users, study.test_seed, executor=study.executor)

    def title(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return _with_options("leave-one-out", [metric.upper(), *self._options()])

    def heading(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        return _with_options(metric.upper(), self._options())

    def _options(self) -> list[str]:
        """List the options after the name, without ``k``, which is part of the metric."""
        return [option for option in self.name.split("+")[1:] if not option.strip().startswith("k=")]


def _keep_as(name: str, study: Trial, metric: str, agent: str, *, missed: int, **columns: Any) -> None:
    """Keep raw results under a protocol's name, with one further row for each user who counts as a miss.

    Args:
        name: name of the protocol.
        study: the trial.
        metric: metric of the results.
        agent: name of the agent.
        missed: number of users who count as misses; their rows have user -1 and rank 0.
        **columns: user, value, rank and weight of each held-out view.
    """
    misses = {"user": -1, "value": 0.0, "rank": 0, "weight": 1.0}
    padded = {key: np.concatenate([column, np.full(missed, misses[key])]) for key, column in columns.items()}
    study.keep_raw(name, metric, agent, **padded)


def _metrics_of_lists(k: int) -> list[str]:
    """List the metrics of lists of k items; only the hit rate for k = 1, where all of them are equal."""
    metrics = METRICS if k > 1 else METRICS[:1]
    return [f"{metric}@{k}" for metric in metrics]


def _with_options(title: str, options: Sequence[str]) -> str:
    """Append options in brackets to a title, if there are any."""
    if options:
        return f"{title} ({', '.join(options)})"
    return title
