"""Agents on a user's own interactions: leave-one-out, a split by time, what is recommended, and who can be best."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.datasets.interactions import Interactions, events_in_words
from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.intervals import user_mean_interval
from recsim_mnar.estimators.verdict import LEAST_USERS
from recsim_mnar.kernels.checks import level_of, of_type, one_of, table_by_name, whole_number
from recsim_mnar.log.rows import shown_time
from recsim_mnar.log.table import Log
from recsim_mnar.log.views import Views
from recsim_mnar.policies.base import Learner
from recsim_mnar.policies.door import as_learner, check_needs, fitted
from recsim_mnar.protocols.base import Protocol, RawResults, Trial, check_names, protocol
from recsim_mnar.protocols.comparison import Comparison, judged_by
from recsim_mnar.protocols.holdout import Split, recall_and_ndcg, split_log
from recsim_mnar.protocols.leave_one_out.protocol import CANDIDATES, fold_ranks
from recsim_mnar.protocols.leave_one_out.ranks import NONE, top_items
from recsim_mnar.protocols.records import Record, listed, with_half_widths
from recsim_mnar.rng import check_seed, derive_seed
from recsim_mnar.simulation.executor import run_in_order
from recsim_mnar.worlds.params import Params

Facts = dict[str, Any]


def facts_of(data: Interactions) -> Facts:
    """Counts of interactions, JSON types.

    ``duplicates`` are rows that say again what an earlier row says (user, item and time alike), ``repeats`` rows whose
    user has met the item in an earlier row, the duplicates among them.
    """
    log = data.log
    user, item, time = log["user"], log["item"].astype(np.int64), log["time"]
    pairs = user * data.n_items + item
    n_rows = len(log)
    rows_of_user, rows_of_item = np.bincount(user), np.sort(np.bincount(item))[::-1]
    top = max(1, round(0.01 * data.n_items))
    facts = {
        "rows": n_rows,
        "users": data.n_users,
        "items": data.n_items,
        "density": len(np.unique(pairs)) / (data.n_users * data.n_items),
        "repeats": n_rows - len(np.unique(pairs)),
        "duplicates": 0,
        "rows_of_a_user_median": float(np.median(rows_of_user)),
        "rows_of_a_user_most": int(rows_of_user.max()),
        "users_of_one_row": int(np.sum(rows_of_user == 1)),
        "items_of_one_row": int(np.sum(rows_of_item == 1)),
        "share_of_top_items": float(rows_of_item[:top].sum()) / n_rows,
        "first": None,
        "last": None,
    }
    if data.timed:
        order = np.lexsort((time, pairs))
        again = (pairs[order][1:] == pairs[order][:-1]) & (time[order][1:] == time[order][:-1])
        facts |= {"duplicates": int(again.sum()), "first": float(time.min()), "last": float(time.max())}
    return facts


def described_facts(facts: Facts) -> list[tuple[str, str]]:
    """Facts as a person reads them: what, and how much."""
    timed = facts["first"] is not None
    again = f"{facts['repeats']:,} ({100 * facts['repeats'] / facts['rows']:.2g} % of the rows)"
    return [
        ("rows", f"{facts['rows']:,}"),
        ("users", f"{facts['users']:,}, {facts['users_of_one_row']:,} of them with one row"),
        ("items", f"{facts['items']:,}, {facts['items_of_one_row']:,} of them met once"),
        ("times", f"{shown_time(facts['first'])} to {shown_time(facts['last'])}" if timed else "none in the file"),
        ("pairs of user and item that are met", f"{100 * facts['density']:.3g} %"),
        ("rows of a user", f"median {facts['rows_of_a_user_median']:g}, most {facts['rows_of_a_user_most']:,}"),
        ("rows of an item that the user has met before", again),
        *([("rows that say the same user, item and time again", f"{facts['duplicates']:,}")] if timed else []),
        ("rows of the most frequent 1 % of items", f"{100 * facts['share_of_top_items']:.3g} %"),
    ]


PROVIDES = frozenset({"train_log", "test_log"})
"""What a protocol of one's own, or a built-in one, may need here: views, without a truth and without propensities."""

LOOCV, BY_TIME, LISTS = "loocv", "by_time", "lists"
PROTOCOLS = (LOOCV, BY_TIME, LISTS)
"""Leave-one-out, the split by time, and what the lists of recommendations are made of."""

K = 10
"""Items of a list, unless asked for others."""

_WORLD = "interactions"
_FEW_REPEATS = 0.05
_FEW_ITEMS = 5
"""Lists of so many times all items: with fewer items a hit is no feat."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class InteractionsSettings(Params):
    """Options of a comparison on a user's own interactions.

    Attributes:
        folds: of leave-one-out: views of each user that are held out, one at a time.
        length: items of a list, the N of HR@N, NDCG@N and recall@N.
        test_share: share of the rows, the latest, that the split by time holds out.
        candidates: items that are ranked for a user: ``all``, ``unseen`` ones, or ``auto``: unseen where no user meets
            an item twice.
        events: which events of the file count, with commas, as ``view,purchase``; all of them where empty.
        level: of all intervals.
    """

    folds: int = 10
    length: int = K
    test_share: float = 0.2
    candidates: str = "auto"
    events: str = ""
    level: float = 0.95

    def check(self) -> None:
        """Refuse a share that is none."""
        if not 0.0 < self.test_share < 1.0:
            raise UserError(f"test_share {self.test_share:g}: a share of the rows, above 0 and below 1")

    def of_comparison(self) -> dict[str, Any]:
        """Arguments of :func:`compare_interactions`; ``events`` is of the reading of the file."""
        return {name: value for name, value in self.to_dict().items() if name != "events"}


LEAD = (
    "Leave-one-out hides one view of a user and asks each agent for it. The split by time hides all views after a "
    "date. There is no truth: the page names every agent that may predict best, as far as this many users can show."
)
"""What a comparison without a truth shows."""


def compare_interactions(
    data: Interactions,
    learners: Mapping[str, Learner],
    *,
    protocols: Sequence[str | Protocol] | None = None,
    folds: int = 10,
    test_share: float = 0.2,
    candidates: str = "auto",
    length: int = K,
    level: float = 0.95,
    seed: int = 0,
    executor: Executor | None = None,
    report: Callable[[str], None] = lambda stage: None,
    raw: RawResults | None = None,
) -> Comparison:
    """Judge every agent on interactions; there is no truth, so the conclusion says what users' sampling leaves open.

    Args:
        data: read from a file.
        learners: by name.
        protocols: of :data:`PROTOCOLS`, or any other that needs views alone, as ``holdout+split=time`` or
            ``package.module:Class``; None for all that the file allows (``by_time`` needs times).
        folds: of leave-one-out: views of each user that are held out, one at a time.
        test_share: of the split by time: share of the rows, the latest, that is held out.
        candidates: "all" items are ranked; "unseen": not those that the user has met; "auto": "unseen" where no user
            meets an item twice, else "all".
        length: items of a list, k of HR@k, MRR@k, NDCG@k and recall@k; HR@1 is there in any case.
        level: of the intervals.
        seed: of the draws and the training.
        executor: folds and agents run in parallel; results do not depend on it.
        report: called with a line whenever a stage begins.
        raw: receives the rows that values are means of.

    Raises:
        UserError: an unknown protocol or one that needs times, an argument out of range, or no users to judge by.
    """
    of_type(data, "data", Interactions, "Interactions (read_interactions reads them)")
    table_by_name(learners, "learners")
    chosen, others = chosen_protocols(protocols, data.timed)
    one_of(candidates, "candidates", CANDIDATES)
    learners = {name: as_learner(learner, name=name) for name, learner in learners.items()}
    for name, learner in learners.items():
        check_needs(name, learner, (), "a file of interactions (users, items and times)")
    level_of(level)
    k = whole_number(length, "length", 2)
    if data.n_users < 2:
        raise UserError("the interactions are of one user: intervals come from users, give those of two or more")
    facts = facts_of(data)
    repeats = facts["repeats"] > 0
    unseen = candidates == "unseen" or (candidates == "auto" and not repeats)
    trial = Trial(
        cast(Any, NoWorld(data.n_items, views_repeat=not unseen, slate_size=k)),
        learners,
        InteractionsSettings(length=k, level=level),
        check_seed(seed),
        executor,
        report,
        n_items=data.n_items,
        level=level,
        train_log=data.log,
        test_log=data.log,
        policies=cast(Any, NoPolicies()),
        raw=raw,
    )
    run = _Run(data, learners, unseen, level, seed, k, executor, trial)
    why_not = ""
    details: dict[str, Any] = {"facts": facts, "candidates": run.candidates}
    if LOOCV in chosen:
        report(f"leave-one-out, {folds} folds")
        run.leave_one_out(folds)
    if BY_TIME in chosen or LISTS in chosen:
        split, why_not = _split(data, test_share, unseen, needed=protocols is not None and BY_TIME in protocols)
        report("fit and list recommendations" if split is None else "split by time")
        run.lists(split, chosen)
        details |= {"split_by_time": split_facts(data.log, split)} if split is not None and BY_TIME in chosen else {}
    headed = run.other_protocols(others)
    if raw is not None:
        raw.check(run.records)
    there = {(r.protocol, r.metric) for r in run.records}
    return Comparison(
        run.records,
        title="Which agent predicts what your users do?",
        lead=f"Read: {facts['rows']:,} interactions of {facts['users']:,} users with {facts['items']:,} items; in "
        f"{100 * facts['repeats'] / facts['rows']:.2g} % the user meets an item again. {LEAD}",
        conclusion=conclusion(run.ranked, level, len(learners)),
        notes=[*_notes(data, facts, unseen, k, details.get("split_by_time")), *([why_not] if why_not else [])],
        facts=described_facts(facts),
        details={**details, "best": [one.to_dict() for one in run.ranked]},
        columns=[key for key in _columns(run.ranking, k, headed) if key in there],
        headings={(r.protocol, r.metric): _heading(r.protocol, r.metric) for r in run.records} | headed,
        hints=alike(run.records),
        neutral=frozenset({f"coverage@{k}", f"popularity@{k}"}),
    )  # fmt: skip


def _columns(ranking: str, k: int, further: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """(protocol, metric) of the short table, those of other protocols after leave-one-out and the split by time."""
    own = [(LOOCV, ranking), (LOOCV, f"hr@{k}"), (BY_TIME, ranking), (BY_TIME, f"recall@{k}")]
    return [*own, *further, (LISTS, f"coverage@{k}"), (LISTS, f"popularity@{k}")]


def chosen_protocols(protocols: Sequence[str | Protocol] | None, timed: bool) -> tuple[tuple[str, ...], list[Protocol]]:
    """Names of :data:`PROTOCOLS`, and the other protocols."""
    if protocols is None:
        return (PROTOCOLS if timed else (LOOCV, LISTS)), []
    others = []
    for one in protocols:
        if one == BY_TIME and not timed:
            raise UserError(f"protocol {BY_TIME!r} needs times: name the column with --time-column, or leave it out")
        if one not in PROTOCOLS:
            made = protocol_here(one) if isinstance(one, str) else one
            missing = sorted(set(made.needs) - PROVIDES)
            if missing:
                raise UserError(
                    f"protocol {made.name!r} needs a world ({', '.join(missing)}): interactions are views alone"
                )
            others.append(made)
    check_names(others)
    return tuple(one for one in protocols if isinstance(one, str) and one in PROTOCOLS), others


def protocol_here(name: str) -> Protocol:
    """The protocol of a name that is none of :data:`PROTOCOLS`.

    Raises:
        UserError: an unknown name, or options of a protocol that has none here.
    """
    kind = name.partition("+")[0].strip()
    if kind in PROTOCOLS:
        raise UserError(f"{name}: {kind} has no options on interactions. Write {kind} alone, and length=N as an option")
    near = nearest(name, PROTOCOLS)
    if near.startswith("did you mean"):
        raise UserError(f"unknown protocol {name!r}; {near}")
    return protocol(name)


def alike(records: Sequence[Record]) -> list[str]:
    """A sentence for agents that agree in every value, as where none of their favourites is a candidate."""
    values: dict[str, list[tuple[str, str, float]]] = {}
    for r in records:
        values.setdefault(r.agent, []).append((r.protocol, r.metric, r.value))
    groups: dict[str, list[str]] = {}
    for agent, own in values.items():
        groups.setdefault(repr(own), []).append(agent)
    same = [agents for agents in groups.values() if len(agents) > 1]
    return [f"{listed(agents)} agree in every number: they rank the candidates alike." for agents in same]


class NoPolicies(Mapping[str, Any]):
    """In the place of fitted policies: fitted on the views that they are judged by, they would have seen the answer."""

    def _refuse(self, *name: str) -> Any:
        raise UserError(
            "on interactions there are no policies fitted on other users: fit study.learners on a part of study.log() "
            "and judge them by the rest, as holdout does"
        )

    __getitem__ = __iter__ = __len__ = _refuse


@dataclass(frozen=True)
class NoWorld:
    """In the place of a world where there is none.

    Attributes:
        n_items: size of the catalogue.
        views_repeat: whether items that a user has met are candidates.
        slate_size: length of the lists.
    """

    n_items: int
    views_repeat: bool
    name: str = "interactions"
    slate_size: int = 1


def _split(data: Interactions, share: float, unseen: bool, *, needed: bool) -> tuple[Split | None, str]:
    """The split by time, or None and why there is none, which is an error only where it is asked for."""
    if not data.timed:
        return None, "The file has no times, so there is no split by time: leave-one-out stands alone."
    try:
        return split_log(data.log, "time", share=share, unseen=unseen)[0], ""
    except UserError as error:
        if needed or not 0.0 < share < 1.0:
            raise
        return None, f"There is no split by time: {str(error).removeprefix('holdout: ')}."


@dataclass(frozen=True)
class _Run:
    """Interactions, the agents, what all protocols share, and what they have found so far."""

    data: Interactions
    learners: Mapping[str, Learner]
    unseen: bool
    level: float
    seed: int
    k: int
    executor: Executor | None
    trial: Trial
    records: list[Record] = field(default_factory=list)
    ranked: list[Leaders] = field(default_factory=list)

    @property
    def ranking(self) -> str:
        """The metric that agents are ranked by."""
        return f"ndcg@{self.k}"

    @property
    def candidates(self) -> str:
        """Which items are ranked."""
        return "unseen" if self.unseen else "all"

    def leave_one_out(self, folds: int) -> None:
        """Ranks of held-out views."""
        found = fold_ranks(
            self.data.log,
            self.learners,
            n_items=self.data.n_items,
            folds=folds,
            seed=derive_seed(self.seed, "loocv"),
            candidates=self.candidates,
            executor=self.executor,
        )
        for name, seconds in found.seconds.items():
            for metric in ("hr@1", f"hr@{self.k}", f"mrr@{self.k}", self.ranking):
                self.record((LOOCV, name, metric), found.by_user(name, metric), seconds, found.details)
                self.trial.keep_raw(LOOCV, metric, name, **found.raw(name, metric))
        self.rank(LOOCV, {name: found.by_user(name, self.ranking) for name in found.ranks})

    def lists(self, split: Split | None, protocols: Sequence[str]) -> None:
        """Each agent's lists, for the judged users, or for all of them where nothing is held out."""
        views = Views.of(self.data.log) if split is None else split.views
        known = (self.data.log, views, np.arange(len(views.users)))
        known = known if split is None else (split.train, split.views, np.unique(split.owners))
        jobs = (functools.partial(self._lists_of, name, *known) for name in self.learners)
        found = dict(zip(self.learners, run_in_order(jobs, self.executor), strict=True))
        if split is not None and BY_TIME in protocols:
            self._by_time(found, split)
        if LISTS in protocols:
            about = {"lists": len(known[2]), "fitted_on": "all rows" if split is None else "rows before the split"}
            self._contents(found, views, about)

    def _lists_of(self, name: str, log: Log, views: Views, owners: Ints) -> tuple[Ints, float]:
        began, fit_seed = time.perf_counter(), derive_seed(self.seed, "fit")
        policy = fitted(self.learners[name], log, n_items=self.data.n_items, seed=fit_seed)
        seed = derive_seed(self.seed, "lists")
        lists = top_items(name, policy, views, owners, k=self.k, unseen=self.unseen, seed=seed)
        return lists, time.perf_counter() - began

    def _by_time(self, lists: Mapping[str, tuple[Ints, float]], split: Split) -> None:
        """How many of the items met after the split stand in the lists."""
        details = {"candidates": self.candidates, **split_facts(self.data.log, split)}
        users = split.views.users[np.unique(split.owners)]
        values: dict[str, dict[str, Floats]] = {}
        for name, (found, seconds) in lists.items():
            ranks, weights = ranks_in_lists(found, split), np.ones(len(split.items))
            for metric, (sums, counts) in recall_and_ndcg(split.owners, ranks, weights, self.k).items():
                values.setdefault(metric, {})[name] = sums / counts
                self.record((BY_TIME, name, metric), sums / counts, seconds, details)
                self.trial.keep_raw(BY_TIME, metric, name, user=users, value=sums / counts)
        self.rank(BY_TIME, values[self.ranking])

    def _contents(self, lists: Mapping[str, tuple[Ints, float]], views: Views, details: dict[str, Any]) -> None:
        """Coverage and popularity of the lists; coverage is a fact of these lists and has no interval."""
        for name, (found, seconds) in lists.items():
            coverage, shares = recommended(found, views, self.data.n_items)
            key, n = (_WORLD, LISTS, name, f"coverage@{self.k}"), len(found)
            interval = (coverage, math.nan, math.nan)
            self.records.append(Record.of(*key, interval, level=self.level, n=n, seconds=seconds, details=details))
            self.record((LISTS, name, f"popularity@{self.k}"), shares, seconds, details)

    def other_protocols(self, protocols: Sequence[Protocol]) -> dict[tuple[str, str], str]:
        """Judge by protocols that need views alone; returns the headings of what they rank by."""
        headings: dict[tuple[str, str], str] = {}
        for one in protocols:
            found = judged_by(one, self.trial)
            self.records.extend(found)
            headings |= {
                (one.name, metric): one.heading(metric)
                for metric in dict.fromkeys(r.metric for r in found)
                if one.ranks_by(metric)
            }
        return headings

    def record(self, key: tuple[str, str, str], values: Floats, seconds: float, details: dict[str, Any]) -> None:
        """Keep the mean of what each user gives, by protocol, agent and metric."""
        interval, n = user_mean_interval(values, self.level), len(values)
        self.records.append(Record.of(_WORLD, *key, interval, level=self.level, n=n, seconds=seconds, details=details))

    def rank(self, protocol: str, values: Mapping[str, Floats]) -> None:
        """Keep who may be the best by one protocol, and with its records how well differences are known."""
        ranked = [r for r in self.records if (r.protocol, r.metric) == (protocol, self.ranking)]
        others = [r for r in self.records if r not in ranked]
        self.records[:] = [*others, *with_half_widths(ranked, values, self.level)]
        self.ranked.append(leaders(values, self.level, protocol=protocol, metric=self.ranking))


def _heading(protocol: str, metric: str) -> str:
    named = metric if metric.startswith(("recall", "coverage", "popularity")) else metric.upper()
    return {BY_TIME: f"{named}, later views", LOOCV: f"{named}, leave-one-out"}.get(protocol, named)


def _notes(data: Interactions, facts: dict[str, Any], unseen: bool, k: int, split: dict[str, Any] | None) -> list[str]:
    notes = []
    if len(data.events) > 1:
        notes.append(f"Pooled as interactions: {events_in_words(data.events)} rows; --option events=NAME,... chooses.")
    share = facts["repeats"] / facts["rows"]
    if unseen and not facts["repeats"]:
        notes.append("No user meets an item twice, so items that a user has met are not recommended to that user.")
    elif unseen:
        notes.append("As asked, items that a user has met are not recommended to that user.")
    elif share < _FEW_REPEATS:
        notes.append(
            f"Only {share:.2%} of the rows meet an item again, and yet items that a user has met are candidates: "
            "--option candidates=unseen leaves them out."
        )
    if data.n_items < _FEW_ITEMS * k:
        chance = min(k / data.n_items, 1.0)
        notes.append(
            f"A list of {k} holds {100 * chance:.0f} % of the {data.n_items:,} items, so HR@{k} is large for everybody "
            f"({chance:.2g} at random): look at HR@1 and NDCG@{k}."
        )
    if facts["duplicates"]:
        notes.append(
            f"{facts['duplicates']:,} rows repeat an earlier row (user, item and time alike) and count as "
            "further views: remove them if they are copies."
        )
    if split is not None:
        lost = split["rows_after_of_new_users"], split["rows_after_of_new_items"]
        notes.append(
            f"The split by time holds out what came from {shown_time(split['moment'])} on: {split['rows_after']:,} "
            f"rows. {lost[0]:,} of them are of users without earlier rows, who are not judged, and {lost[1]:,} of "
            f"items that no recommender had met. {split['users_judged']:,} users are judged."
        )
    return notes


# ------------------------------------------------------------------ what comes of it, without a truth

TITLES = {"loocv": "leave-one-out", "by_time": "predicting later views"}


@dataclass(frozen=True)
class Leaders:
    """Which agents one metric of one protocol leaves as candidates for the best.

    Attributes:
        names: the agent with the largest mean, then those that may be as good or better, the best mean first: none is
            significantly worse than another.
        n_users: on whom it rests.
        protocol, metric: by what it ranks.
    """

    names: tuple[str, ...]
    n_users: int = 0
    protocol: str = ""
    metric: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        by = {"protocol": self.protocol, "metric": self.metric, "users": self.n_users}
        return {**by, "first": self.names[0], "may_be_the_best": list(self.names)}


def leaders(values: Mapping[str, Floats], level: float, *, protocol: str = "", metric: str = "") -> Leaders:
    """A set of agents that holds the best one with probability ``level`` or more, over the sampling of users.

    An agent is left out where another one is better by a paired, one-sided t-test at (1 - level) / (A - 1), A being the
    number of agents. The best one is then left out with probability at most 1 - level (Bonferroni over the A - 1
    agents that could beat it by chance). From fewer than :data:`LEAST_USERS` users no agent is left out: the t-test is
    not to be relied on there.

    Args:
        values: (U,) a number per user, larger being better, by agent; users are the same and in the same order.
        level: of the set.
        protocol: for the result.
        metric: for the result.
    """
    from scipy.special import stdtrit

    names = list(values)
    table = np.stack([values[name] for name in names])
    means = table.mean(axis=1)
    n_users, rivals = table.shape[1], len(names) - 1
    order = [names[i] for i in np.argsort(-means, kind="stable")]
    if rivals == 0 or n_users < LEAST_USERS:
        return Leaders(tuple(order), n_users, protocol, metric)
    quantile = float(stdtrit(n_users - 1, 1.0 - (1.0 - level) / rivals))
    beaten = set()
    for i, name in enumerate(names):
        gap = table - table[i]
        error = gap.std(axis=1, ddof=1) / math.sqrt(n_users)
        if np.any(gap.mean(axis=1) > quantile * error + 1e-15):  # more than roundings of agents that do the same
            beaten.add(name)
    return Leaders(tuple(name for name in order if name not in beaten), n_users, protocol, metric)


def conclusion(ranked: Sequence[Leaders], level: float, n_agents: int) -> list[str]:
    """Sentences: what each protocol finds, what they come to together, and what none of them can say."""
    if n_agents < 2 or not ranked:
        return ["There is one agent, so there is nothing to choose."] if n_agents == 1 and ranked else []
    sentences = [_alone(one, level, n_agents) for one in ranked]
    if len(ranked) == 2:
        sentences.append(_together(*ranked))
    sentences.append(
        "This predicts what users view by themselves, not what recommending it would change: that needs an A/B test, "
        "or a log with the probability of each item shown."
    )
    return sentences


def _alone(one: Leaders, level: float, n_agents: int) -> str:
    title = TITLES.get(one.protocol, one.protocol)
    begins = f"{title[0].upper()}{title[1:]} ({one.metric.upper()}) puts {one.names[0]} first"
    others = one.names[1:]
    if not others:
        return f"{begins}, and it beats all others at {100 * level:g} % confidence."
    if one.n_users < LEAST_USERS:
        return (
            f"{begins}, but rests on {one.n_users:,} users, and it takes {LEAST_USERS:,} for a test of who is worse: "
            "take it as a hint."
        )
    if len(others) == n_agents - 1:
        return f"{begins}, but beats no other one at {100 * level:g} % confidence: more users are needed."
    return f"{begins}; {listed(others)} may be equally good (at {100 * level:g} % confidence); the others are worse."


def _together(one: Leaders, other: Leaders) -> str:
    shared = [name for name in one.names if name in other.names]
    if not shared:
        return (
            "The two tests contradict each other: nobody may be the best by both. Predicting later views is what a "
            f"recommender deployed on that day would have faced; it puts {other.names[0]} first."
        )
    if len(shared) == 1:
        return f"Both tests agree: {shared[0]} is best."
    return f"Too close to call: {' or '.join(shared)}."


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


def split_facts(log: Log, split: Split) -> dict[str, Any]:
    """Say where a log was split by time, and what no agent can find there; JSON types.

    Args:
        log: whole.
        split: by one moment for all users.
    """
    moment = float(np.sort(log["time"])[len(split.train)])
    later = log["time"] >= moment
    return {
        "moment": moment,
        "rows_before": len(split.train),
        "rows_after": int(later.sum()),
        "rows_after_of_new_users": int(np.sum(~np.isin(log["user"][later], split.views.users))),
        "rows_after_of_new_items": int(np.sum(~np.isin(log["item"][later], split.views.items))),
        "users_judged": len(np.unique(split.owners)),
    }


def ranks_in_lists(lists: Ints, split: Split) -> Ints:
    """Return (n,) the place of each held-out item in its user's list from 1 on, or k + 1 where it is not there.

    Args:
        lists: (U, k) items of the judged users, best first.
        split: what is held out.
    """
    _, place = np.unique(split.owners, return_inverse=True)
    hits = lists[place] == split.items[:, None]
    return np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, lists.shape[1] + 1)
