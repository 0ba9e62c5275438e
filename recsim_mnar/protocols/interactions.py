"""Agents on a user's own interactions: leave-one-out, a split by time, what is recommended, and who can be best."""

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
from recsim_mnar.protocols.leave_one_out import CANDIDATES
from recsim_mnar.protocols.ranks import NONE, top_items
from recsim_mnar.protocols.records import Record, Target, listed, user_mean_interval, with_half_widths
from recsim_mnar.rng import check_seed
from recsim_mnar.simulation.executor import run_in_order
from recsim_mnar.worlds.params import Params

Facts = Mapping[str, int]


def facts_of(data: Interactions) -> Facts:
    """Counts of interactions, JSON types.

    ``duplicates`` are rows that say again what an earlier row says (user, item and time alike), ``repeats`` rows whose
    user has met the item in an earlier row, the duplicates among them.
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
"""Leave-one-out, the split by time, and what the lists of recommendations are made of."""

K = 10
"""Items of a list, unless asked for others."""

_FEW_REPEATS = 0.05
_FEW_ITEMS = 5
"""Lists of so many times all items: with fewer items a hit is no feat."""


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
        """Refuse what cannot be."""
        number_in(self.test_share, "test_share", 0.0, 1.0, ends="()")
        whole_number(self.length, "length", 2)
        one_of(self.candidates, "candidates", CANDIDATES)
        level_of(self.level)

    @property
    def ranking(self) -> str:
        """Return the metric by which agents are ranked."""
        return f"ndcg@{self.length}"


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
    seed: int = 0,
    executor: Executor | None = None,
    report: Callable[[str], None] = lambda stage: None,
    raw: RawResults | None = None,
    **options: Any,
) -> Comparison:
    """Judge every agent on interactions; there is no truth, so the conclusion says what users' sampling leaves open.

    Args:
        data: read from a file.
        learners: by name.
        protocols: of :data:`PROTOCOLS`, or any other that needs views alone, as ``loocv+folds=5``,
            ``holdout+split=time`` or ``package.module:Class``; None for all that the file allows (``by_time`` needs
            times).
        seed: of the draws and the training.
        executor: folds and agents run in parallel; results do not depend on it.
        report: called with a line whenever a stage begins.
        raw: receives the rows that values are means of.
        **options: of :class:`InteractionsSettings`, as ``folds=5`` or ``length=20``.

    Raises:
        UserError: an unknown protocol or one that needs times, an argument out of range, or no users to judge by.
    """
    of_type(data, "data", Interactions, "Interactions (read_interactions reads them)")
    table_by_name(learners, "learners")
    settings = InteractionsSettings.from_dict(options)
    if data.n_users < 2:
        raise UserError("the interactions are of one user: intervals come from users, give those of two or more")
    if protocols is not None:
        why_not = ""
    else:
        why_not = _why_no_split(data, settings.test_share)
    named = [name for name in PROTOCOLS if name != BY_TIME or not why_not] if protocols is None else protocols
    chosen = chosen_protocols(named, data.timed)
    learners = {name: as_learner(learner, name=name) for name, learner in learners.items()}
    for name, learner in learners.items():
        check_needs(name, learner, (), "a file of interactions (users, items and times)")
    facts = facts_of(data)
    unseen = settings.candidates == "unseen" or (settings.candidates == "auto" and not facts["repeats"])
    world = NoWorld(data.n_items, views_repeat=not unseen, slate_size=settings.length)
    trial = _Trial(cast(Any, world), learners, settings, check_seed(seed), executor, report, raw=raw)
    trial.n_items = data.n_items
    trial.level = settings.level
    trial.train_log = trial.test_log = data.log
    trial.policies = cast(Any, NoPolicies())
    comparison = judged_comparison(OnInteractions(), chosen, trial)
    comparison.log = None  # the user's own views, which are in the file
    _conclude(comparison, trial, data, facts)
    if why_not:
        comparison.notes += [why_not]
    return comparison


def _conclude(found: Comparison, trial: _Trial, data: Interactions, facts: Facts) -> None:
    """Say of a comparison what the sampling of users leaves open, in place of judgements by a truth."""
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
    found.hints = alike(found.records)
    found.neutral = frozenset({f"coverage@{k}", f"popularity@{k}"})


def _why_no_split(data: Interactions, share: float) -> str:
    """Why a file cannot be split by time; empty where it can."""
    if not data.timed:
        return "The file has no times, so there is no split by time: leave-one-out stands alone."
    try:
        split_log(data.log, "time", share=share)
    except UserError as error:
        return f"There is no split by time: {str(error).removeprefix('holdout: ')}."
    return ""


def chosen_protocols(protocols: Sequence[str | Protocol] | None, timed: bool) -> list[Protocol]:
    """Return the named protocols, or all of :data:`PROTOCOLS`.

    Raises:
        UserError: an unknown one, or one that needs times or a world.
    """
    named = PROTOCOLS if protocols is None else protocols
    if BY_TIME in named and not timed:
        raise UserError(f"protocol {BY_TIME!r} needs times: name the column with --time-column, or leave it out")
    return protocols_of(OnInteractions(), named, OnInteractions.name)


class ByTime(HoldOut):
    """Split off the latest rows of all users, which agents predict from the earlier ones."""

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
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`; coverage of the lists has no interval."""
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
        """Implement :meth:`Experiment.targets`; no record has this metric."""
        return (Target("unknown", "unknown"),)

    def prepare(self, trial: Trial) -> None:
        """Do nothing: the views are given."""

    def truth(self, trial: Trial) -> list[Record]:
        """Return no records: there is no truth."""
        return []

    def columns(self, records: Sequence[Record]) -> list[tuple[str, str]]:
        """Implement :meth:`Experiment.columns`: leave-one-out, the split by time, other protocols, and lists."""
        keys = dict.fromkeys((r.protocol, r.metric) for r in records if not r.metric.startswith("mrr"))
        place = {LOOCV: 0, BY_TIME: 1, LISTS: 3}
        return sorted(keys, key=lambda key: (place.get(key[0], 2), not key[1].startswith("ndcg")))


@dataclass
class _Trial(Trial):
    """A trial that keeps each user's mean of the metric by which leave-one-out and the split by time rank agents."""

    by_user: dict[str, dict[str, Floats]] = field(default_factory=dict)

    def keep_raw(
        self, protocol: str, metric: str, agent: str, *, user: Any, value: Any, weight: Any = None, **more: Any
    ) -> None:
        """Implement :meth:`Trial.keep_raw`."""
        super().keep_raw(protocol, metric, agent, user=user, value=value, weight=weight, **more)
        if protocol in TITLES and metric == self.settings.ranking:
            _, place = np.unique(user, return_inverse=True)
            if weight is None:
                weights = np.ones(len(value))
            else:
                weights = weight
            means = np.bincount(place, value * weights) / np.bincount(place, weights)
            self.by_user.setdefault(protocol, {})[agent] = means


def alike(records: Sequence[Record]) -> list[str]:
    """Name agents that agree in every value, as where none of their favourites is a candidate."""
    groups: dict[str, list[str]] = {}
    for agent in dict.fromkeys(r.agent for r in records):
        own_values = [(r.protocol, r.metric, r.value) for r in records if r.agent == agent]
        groups.setdefault(repr(own_values), []).append(agent)
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


def _notes(data: Interactions, facts: Facts, unseen: bool, k: int, records: Sequence[Record]) -> list[str]:
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


@dataclass(frozen=True)
class Leaders:
    """Candidates for the best agent by one metric of one protocol.

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

    def to_dict(self) -> Mapping[str, object]:
        """JSON types."""
        by = {"protocol": self.protocol, "metric": self.metric, "users": self.n_users}
        return {**by, "first": self.names[0], "may_be_the_best": list(self.names)}


def leaders(values: Mapping[str, Floats], level: float, *, protocol: str = "", metric: str = "") -> Leaders:
    """Return agents that include the best one with probability ``level`` or more, over the sampling of users.

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
    n_users = table.shape[1]
    rivals = len(names) - 1
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
        if n_agents == 1 and ranked:
            return ["There is one agent, so there is nothing to choose."]
        return []
    sentences = [_alone(one, level, n_agents) for one in ranked]
    sentences.append(
        "This predicts what users view by themselves, not what recommending it would change: that needs an A/B test, "
        "or a log with the probability of each item shown."
    )
    return sentences


def _alone(one: Leaders, level: float, n_agents: int) -> str:
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
    """Compute the coverage of lists, and (U,) their popularity.

    Coverage is the share of the items in the agents' data that stand in at least one list; popularity the mean over
    each user's list of the share of users who have met the item.

    Args:
        lists: (U, k) as :func:`top_items` gives them.
        views: what every user has met.
        n_items: items are 0 .. n_items - 1.
    """
    pairs = np.unique(views.owners() * n_items + views.items)
    holders = np.bincount(pairs % n_items, minlength=n_items)
    is_held = holders > 0
    there = lists != NONE
    listed = np.zeros(n_items, bool)
    listed[lists[there]] = True
    share = np.where(there, holders[np.where(there, lists, 0)] / len(views.users), 0.0)
    length = np.maximum(there.sum(axis=1), 1)
    return float(np.mean(listed[is_held])), share.sum(axis=1) / length
