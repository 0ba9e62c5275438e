"""Comparison of agents on a file of interactions: leave-one-out, a split by time, and properties of top-k lists."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np

from recsim_mnar.datasets.interactions import Interactions, events_in_words
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import user_mean_interval
from recsim_mnar.estimators.verdict import LEAST_USERS
from recsim_mnar.kernels.checks import level_of, number_in, of_type, one_of, table_by_name, whole_number
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.views import Views
from recsim_mnar.policies.base import Learner
from recsim_mnar.policies.door import as_learner, check_needs, fitted
from recsim_mnar.protocols.base import Experiment, Protocol, RawResults, Trial
from recsim_mnar.protocols.comparison import Comparison, judged_comparison
from recsim_mnar.protocols.comparison import chosen_protocols as protocols_of
from recsim_mnar.protocols.holdout import HoldOut, split_log
from recsim_mnar.protocols.ranks import CANDIDATES, NONE, top_items
from recsim_mnar.protocols.records import Record, Target, listed, with_half_widths
from recsim_mnar.rng import check_seed
from recsim_mnar.simulation.executor import run_in_order
from recsim_mnar.worlds.params import Params

Facts = Mapping[str, int]


def facts_of(data: Interactions) -> Facts:
    """Count rows, users, items, repeats and duplicates of interactions; JSON types.

    A row is a repeat if an earlier row has the same user and item, and a duplicate if that row has the same time, too.
    """
    log, n_rows = data.log, len(data.log)
    pairs = log["user"] * data.n_items + log["item"].astype(np.int64)
    rows = np.stack([pairs, log["time"]], axis=1)
    return {
        "rows": n_rows,
        "users": data.n_users,
        "items": data.n_items,
        "repeats": n_rows - len(np.unique(pairs)),
        "duplicates": n_rows - len(np.unique(rows, axis=0)) if data.timed else 0,
    }


LOOCV, BY_TIME, LISTS = "loocv", "by_time", "lists"
PROTOCOLS = (LOOCV, BY_TIME, LISTS)
"""Leave-one-out, the split by time, and coverage and popularity of the lists of recommendations."""

K = 10
"""Default length of a list."""

_FEW_REPEATS = 0.05
"""Share of repeats below which a note says that viewed items are still candidates."""
_FEW_ITEMS = 5
"""Number of items per entry of a list below which a note says that hits are easy."""


@dataclass(frozen=True)
class InteractionsSettings(Params):
    """Options of a comparison on a user's own interactions.

    Attributes:
        folds: number of views of each user that leave-one-out holds out, one at a time.
        length: length of a list, the N of HR@N, NDCG@N and recall@N.
        test_share: share of the rows, the latest ones, that the split by time holds out.
        candidates: items that are ranked for a user: ``all``, ``unseen`` ones, or ``auto`` for unseen ones if no user
            has an item twice.
        events: names of the events that count, with commas, such as ``view,purchase``; empty for all events.
        level: nominal coverage of all intervals.
    """

    folds: int = 10
    length: int = K
    test_share: float = 0.2
    candidates: str = "auto"
    events: str = ""
    level: float = 0.95

    def check(self) -> None:
        """Raise UserError for invalid settings."""
        number_in(self.test_share, "test_share", 0.0, 1.0, ends="()")
        whole_number(self.length, "length", 2)
        one_of(self.candidates, "candidates", (*CANDIDATES, "auto"))
        level_of(self.level)

    @property
    def ranking(self) -> str:
        """Name of the metric by which agents are ranked."""
        return f"ndcg@{self.length}"


LEAD = (
    "Leave-one-out hides one view of a user and asks each agent for it. The split by time hides all views after a "
    "date. There is no truth: the page names every agent that may predict best, as far as this many users can show."
)
"""Explanation of a comparison without a truth, for its page."""


def compare_interactions(
    data: Interactions,
    learners: Mapping[str, Learner],
    *,
    protocols: Sequence[str | Protocol] | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    report: Callable[[str], None] = lambda stage: None,
    raw: RawResults | None = None,
    **options: Any,
) -> Comparison:
    """Judge every agent on interactions.

    There is no truth, so the conclusion names all agents that may be the best, given the sampling error of users.

    Args:
        data: interactions that were read from a file.
        learners: learners by name.
        protocols: names of :data:`PROTOCOLS`, or protocols that need views alone, such as ``loocv+folds=5``,
            ``holdout+split=time`` or ``package.module:Class``; None for all that the file allows (``by_time`` needs
            times).
        seed: seed of the draws and the training.
        executor: executor over which folds and agents are spread; results do not depend on it.
        report: function that is called with a line when a stage begins.
        raw: receiver of the rows whose means are the values; None if they are not kept.
        **options: fields of :class:`InteractionsSettings`, such as ``folds=5`` or ``length=20``.

    Raises:
        UserError: a protocol is unknown or needs times, an argument is out of range, or there is only one user.
    """
    of_type(data, "data", Interactions, "Interactions (read_interactions reads them)")
    table_by_name(learners, "learners")
    settings = InteractionsSettings.from_dict(options)
    if data.n_users < 2:
        raise UserError("the interactions are of one user: intervals come from users, give those of two or more")
    why_no_split = ""
    if protocols is None:
        why_no_split = _why_no_split(data, settings.test_share)
        protocols = [name for name in PROTOCOLS if name != BY_TIME or not why_no_split]
    chosen = chosen_protocols(protocols, data.timed)
    learners = {name: as_learner(learner, name=name) for name, learner in learners.items()}
    for name, learner in learners.items():
        check_needs(name, learner, (), "a file of interactions (users, items and times)")
    facts = facts_of(data)
    unseen = settings.candidates == "unseen" or (settings.candidates == "auto" and not facts["repeats"])
    world = NoWorld(data.n_items, views_repeat=not unseen, slate_size=settings.length)
    trial = _InteractionsTrial(cast(Any, world), learners, settings, check_seed(seed), executor, report, raw=raw)
    trial.n_items = data.n_items
    trial.level = settings.level
    trial.train_log = trial.test_log = data.log
    trial.policies = cast(Any, NoPolicies())
    comparison = judged_comparison(OnInteractions(), chosen, trial)
    comparison.log = None  # it is the user's own file, which is not written again
    _add_conclusion(comparison, trial, data, facts)
    if why_no_split:
        comparison.notes += [why_no_split]
    return comparison


def _add_conclusion(found: Comparison, trial: _InteractionsTrial, data: Interactions, facts: Facts) -> None:
    """Fill in a comparison's conclusion, notes and details, in place of judgements by a truth.

    Args:
        found: the comparison, which is changed.
        trial: the trial, with each user's mean of the ranking metric.
        data: the interactions.
        facts: counts of rows, users, items, repeats and duplicates.
    """
    level = trial.level
    k = trial.settings.length
    metric = trial.settings.ranking
    unseen = not trial.world.views_repeat
    ranked = []
    for protocol, values in trial.by_user.items():
        best = [r for r in found.records if (r.protocol, r.metric) == (protocol, metric)]
        other_records = [r for r in found.records if r not in best]
        found.records = [*other_records, *with_half_widths(best, values, level)]
        ranked.append(leaders(values, level, protocol=protocol, metric=metric))
    found.title = "Which agent predicts what your users do?"
    found.lead = (
        f"Read: {facts['rows']:,} interactions of {facts['users']:,} users with {facts['items']:,} items; in "
        f"{100 * facts['repeats'] / facts['rows']:.2g} % the user meets an item again. {LEAD}"
    )
    found.conclusion = conclusion(ranked, level, len(trial.learners))
    found.notes = _notes(data, facts, unseen, k, found.records)
    found.details = {
        "facts": facts,
        "candidates": "unseen" if unseen else "all",
        "best": [one.to_dict() for one in ranked],
    }
    found.hints = agents_with_same_values(found.records)
    found.neutral = frozenset({f"coverage@{k}", f"popularity@{k}"})


def _why_no_split(data: Interactions, share: float) -> str:
    """Return the reason why a file cannot be split by time, in a sentence; "" if it can."""
    if not data.timed:
        return "The file has no times, so there is no split by time: leave-one-out stands alone."
    try:
        split_log(data.log, "time", share=share)
    except UserError as error:
        return f"There is no split by time: {str(error).removeprefix('holdout: ')}."
    return ""


def chosen_protocols(protocols: Sequence[str | Protocol] | None, timed: bool) -> list[Protocol]:
    """Return the named protocols, or all of :data:`PROTOCOLS`.

    Args:
        protocols: names or protocols; None for all.
        timed: True if the interactions have times.

    Raises:
        UserError: a protocol is unknown, needs a world, or needs times that there are not.
    """
    named = PROTOCOLS if protocols is None else protocols
    if BY_TIME in named and not timed:
        raise UserError(f"protocol {BY_TIME!r} needs times: name the column with --time-column, or leave it out")
    return protocols_of(OnInteractions(), named, OnInteractions.name)


class ByTime(HoldOut):
    """Hold-out of the latest rows of all users, which agents predict from the earlier ones."""

    summary = "a split by time: later views of users with earlier ones (interactions)"

    def __init__(self) -> None:
        super().__init__("time")

    def judge(self, study: Trial) -> list[Record]:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        self.share = study.settings.test_share
        return super().judge(study)

    def heading(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        return f"{metric if metric.startswith('recall') else metric.upper()}, later views"


class Lists(Protocol):
    """Recommendations of agents fitted on all rows: their coverage of the catalogue, and their popularity."""

    summary = "coverage and popularity of what agents recommend (interactions)"
    metrics = ("coverage", "popularity")
    needs = frozenset({"test_log"})

    def judge(self, study: Trial) -> list[Record]:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`; coverage has no interval."""
        study.report("fit and list recommendations")
        k = study.settings.length
        log = study.log()
        views = Views.of(log)
        jobs = (functools.partial(_lists_of, name, learner, study, views) for name, learner in study.learners.items())
        records = []
        for name, (lists, seconds) in zip(study.learners, run_in_order(jobs, study.executor), strict=True):
            coverage, shares = recommended(lists, views, study.n_items)
            intervals = {
                f"coverage@{k}": (coverage, math.nan, math.nan),
                f"popularity@{k}": user_mean_interval(shares, study.level),
            }
            for metric, interval in intervals.items():
                key = (study.world.name, self.name, name, metric)
                records.append(Record.of(*key, interval, level=study.level, n=len(lists), seconds=seconds))
        return records

    def heading(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        return metric


def _lists_of(name: str, learner: Learner, study: Trial, views: Views) -> tuple[Ints, float]:
    """Fit an agent on all rows; return its lists (U, k) for all users, and the seconds taken."""
    began = time.perf_counter()
    policy = fitted(learner, study.log(), n_items=study.n_items, seed=study.seed_of("fit"))
    lists = top_items(
        name,
        policy,
        views,
        np.arange(len(views.users)),
        k=study.settings.length,
        unseen=not study.world.views_repeat,
        seed=study.seed_of("lists"),
    )
    return lists, time.perf_counter() - began


class OnInteractions(Experiment):
    """Comparison on views alone, without simulation and without a known truth."""

    name: ClassVar[str] = "interactions"
    settings_type = InteractionsSettings
    own_protocols: ClassVar = {BY_TIME: f"{__name__}:ByTime", LISTS: f"{__name__}:Lists"}
    provides = frozenset({"train_log", "test_log"})

    def targets(self, settings: InteractionsSettings) -> tuple[Target, ...]:
        """Return a target whose metric no record has, because there is no truth."""
        return (Target("unknown", "unknown"),)

    def prepare(self, trial: Trial) -> None:
        """Do nothing: the trial has its log already."""

    def truth(self, trial: Trial) -> list[Record]:
        """Return no records: there is no truth."""
        return []

    def columns(self, records: Sequence[Record]) -> list[tuple[str, str]]:
        """Implement :meth:`Experiment.columns`: leave-one-out, the split by time, other protocols, then lists."""
        keys = dict.fromkeys((r.protocol, r.metric) for r in records if not r.metric.startswith("mrr"))
        order = {LOOCV: 0, BY_TIME: 1, LISTS: 3}  # 2 for other protocols
        return sorted(keys, key=lambda key: (order.get(key[0], 2), not key[1].startswith("ndcg")))


@dataclass
class _InteractionsTrial(Trial):
    """A trial that keeps each user's mean of the ranking metric, for paired tests.

    Attributes:
        by_user: by protocol and agent, (U,) mean of each user; only leave-one-out and the split by time.
    """

    by_user: dict[str, dict[str, Floats]] = field(default_factory=dict)

    def keep_raw(
        self, protocol: str, metric: str, agent: str, *, user: Any, value: Any, weight: Any = None, **more: Any
    ) -> None:
        """Implement :meth:`Trial.keep_raw`, and keep users' means of the ranking metric."""
        super().keep_raw(protocol, metric, agent, user=user, value=value, weight=weight, **more)
        if protocol in TITLES and metric == self.settings.ranking:
            _, user_index = np.unique(user, return_inverse=True)
            if weight is None:
                weight = np.ones(len(value))
            means = np.bincount(user_index, value * weight) / np.bincount(user_index, weight)
            self.by_user.setdefault(protocol, {})[agent] = means


def agents_with_same_values(records: Sequence[Record]) -> list[str]:
    """Describe, in one sentence per group, agents that have the same values in all records."""
    groups: dict[str, list[str]] = {}
    for agent in dict.fromkeys(r.agent for r in records):
        values = [(r.protocol, r.metric, r.value) for r in records if r.agent == agent]
        groups.setdefault(repr(values), []).append(agent)  # as text, because NaN differs from itself
    same = [agents for agents in groups.values() if len(agents) > 1]
    return [f"{listed(agents)} agree in every number: they rank the candidates alike." for agents in same]


class NoPolicies(Mapping[str, Any]):
    """Placeholder for fitted policies that raises UserError when a protocol uses it.

    Policies fitted on the same views that protocols hold out would know the held-out items.
    """

    def _refuse(self, *name: str) -> Any:
        raise UserError(
            "on interactions there are no policies fitted on other users: fit study.learners on a part of study.log() "
            "and judge them by the rest, as holdout does"
        )

    __getitem__ = __iter__ = __len__ = _refuse


@dataclass(frozen=True)
class NoWorld:
    """Placeholder for the world of a comparison on interactions.

    Attributes:
        n_items: number of items.
        views_repeat: True if items that a user has viewed are candidates.
        name: name of the data in records.
        slate_size: length of the lists.
    """

    n_items: int
    views_repeat: bool
    name: str = "interactions"
    slate_size: int = 1


def _notes(data: Interactions, facts: Facts, unseen: bool, k: int, records: Sequence[Record]) -> list[str]:
    """Return notes for the reader of the result.

    Args:
        data: the interactions.
        facts: counts of rows, users, items, repeats and duplicates.
        unseen: True if items that a user has viewed are no candidates.
        k: length of the lists.
        records: records of the protocols.
    """
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
            f"({chance:.2g} at random): look at NDCG@{k}."
        )
    if facts["duplicates"]:
        notes.append(
            f"{facts['duplicates']:,} rows repeat an earlier row (user, item and time alike) and count as "
            "further views: remove them if they are copies."
        )
    later = next((r for r in records if r.protocol == BY_TIME), None)
    if later is not None:
        notes.append(
            f"The split by time judges {later.n:,} users with earlier and later rows by {later.details['held_out']:,} "
            "later views."
        )
    return notes


# ------------------------------------------------------------------ what comes of it, without a truth

TITLES = {"loocv": "leave-one-out", "by_time": "predicting later views"}
"""Names, in sentences, of the protocols whose rankings are tested."""


@dataclass(frozen=True)
class Leaders:
    """Agents that may be the best by one metric of one protocol.

    Attributes:
        names: the agents in the order of their means, the largest first; none is significantly worse than another
            agent.
        n_users: number of users.
        protocol: protocol by which agents are ranked.
        metric: metric of the protocol by which agents are ranked.
    """

    names: tuple[str, ...]
    n_users: int = 0
    protocol: str = ""
    metric: str = ""

    def to_dict(self) -> Mapping[str, object]:
        """Return the fields as JSON types."""
        ranking = {"protocol": self.protocol, "metric": self.metric, "users": self.n_users}
        return {**ranking, "first": self.names[0], "may_be_the_best": list(self.names)}


def leaders(values: Mapping[str, Floats], level: float, *, protocol: str = "", metric: str = "") -> Leaders:
    """Return a set of agents that contains the best one with probability ``level`` or more, over the sampling of users.

    An agent is left out if another one is better by a paired, one-sided t-test at level (1 - level) / (A - 1), where A
    is the number of agents. The best agent is then left out with probability at most 1 - level (Bonferroni over the
    A - 1 agents that could beat it by chance). With fewer than :data:`LEAST_USERS` users no agent is left out, because
    the t-test is unreliable.

    Args:
        values: by agent, (U,) value of each user, larger being better; all agents have the same users in the same
            order.
        level: probability with which the set contains the best agent.
        protocol: protocol of the values, which is copied into the result.
        metric: metric of the values, which is copied into the result.
    """
    from scipy.special import stdtrit

    names = list(values)
    table = np.stack([values[name] for name in names])
    means = table.mean(axis=1)
    n_users = table.shape[1]
    rivals = len(names) - 1
    order = [names[i] for i in np.argsort(-means, kind="stable")]
    if rivals == 0 or n_users < LEAST_USERS:
        return Leaders(tuple(order), n_users, protocol, metric)
    quantile = float(stdtrit(n_users - 1, 1.0 - (1.0 - level) / rivals))  # Bonferroni over the rivals
    beaten = set()
    for i, name in enumerate(names):
        lead = table - table[i]  # of each agent over this one, user by user
        error = lead.std(axis=1, ddof=1) / math.sqrt(n_users)
        # 1e-15 exceeds the rounding error between agents that are identical.
        if np.any(lead.mean(axis=1) > quantile * error + 1e-15):
            beaten.add(name)
    return Leaders(tuple(name for name in order if name not in beaten), n_users, protocol, metric)


def conclusion(ranked: Sequence[Leaders], level: float, n_agents: int) -> list[str]:
    """Return one sentence per protocol on its leaders, and one on the limits of all of them.

    Args:
        ranked: leaders by each protocol.
        level: probability with which each set of leaders contains the best agent.
        n_agents: number of agents.
    """
    if not ranked or n_agents < 1:
        return []
    if n_agents == 1:
        return ["There is one agent, so there is nothing to choose."]
    sentences = [_leaders_in_words(one, level, n_agents) for one in ranked]
    sentences.append(
        "This predicts what users view by themselves, not what recommending it would change: that needs an A/B test, "
        "or a log with the probability of each item shown."
    )
    return sentences


def _leaders_in_words(one: Leaders, level: float, n_agents: int) -> str:
    """Describe the leaders by one protocol in a sentence."""
    title = TITLES.get(one.protocol, one.protocol)
    begins = f"{title[0].upper()}{title[1:]} ({one.metric.upper()}) puts {one.names[0]} first"
    other_names = one.names[1:]
    if not other_names:
        return f"{begins}, and it beats all others at {100 * level:g} % confidence."
    if one.n_users < LEAST_USERS:
        return (
            f"{begins}, but rests on {one.n_users:,} users, and it takes {LEAST_USERS:,} for a test of who is worse: "
            "take it as a hint."
        )
    if len(other_names) == n_agents - 1:
        return f"{begins}, but beats no other one at {100 * level:g} % confidence: more users are needed."
    return (
        f"{begins}; {listed(other_names)} may be equally good (at {100 * level:g} % confidence); the others are worse."
    )


def recommended(lists: Ints, views: Views, n_items: int) -> tuple[float, Floats]:
    """Compute the coverage and the popularity of lists of recommendations.

    Args:
        lists: (U, k) items of each user's list; :data:`NONE` after the last one.
        views: views of all users.
        n_items: number of items, which are 0 .. n_items - 1.

    Returns:
        coverage: share of the viewed items that are in at least one list.
        popularity: (U,) mean over each user's list of the share of users who have viewed the item.
    """
    pairs = np.unique(views.owners() * n_items + views.items)  # each user and item once
    n_viewers = np.bincount(pairs % n_items, minlength=n_items)
    is_viewed = n_viewers > 0
    is_entry = lists != NONE
    is_listed = np.zeros(n_items, bool)
    is_listed[lists[is_entry]] = True
    share = np.where(is_entry, n_viewers[np.where(is_entry, lists, 0)] / len(views.users), 0.0)
    length = np.maximum(is_entry.sum(axis=1), 1)
    return float(np.mean(is_listed[is_viewed])), share.sum(axis=1) / length
