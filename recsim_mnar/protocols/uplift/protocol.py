"""The uplift protocol: what an agent's lists would cause, from a log alone, by an A/B test, and in truth.

The deployed recommender of a purchases world makes one log. Agents learn from its first periods, and the offline
metrics of Sato et al. (2019) judge their lists by the periods after. An A/B test shows those lists to half of the
users, and the truth is the mean of E[Y^T - Y^C] over them: so it can be said which metric would have picked the right
agent.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.result import Estimate
from recsim_mnar.estimators.uplift import (
    LIST_METRICS,
    causal_dcg,
    causal_precision,
    check_length,
    evaluate_lists,
    top_items,
)
from recsim_mnar.log import schema
from recsim_mnar.log.exposures import Exposures
from recsim_mnar.log.table import Log
from recsim_mnar.policy.adapting import as_learner, as_policy, fitted
from recsim_mnar.policy.base import Learner, Policy
from recsim_mnar.policy.capabilities import FitsExposures, able, is_softened
from recsim_mnar.policy.slates import DEPLOYED, DeployedPolicy
from recsim_mnar.protocols.compare import Comparison, check_protocols
from recsim_mnar.protocols.records import Record
from recsim_mnar.protocols.uplift.judgement import PROTOCOLS, headline, judge
from recsim_mnar.rng import Stream, check_seed, derive_seed, uniforms
from recsim_mnar.simulate.executor import checked_users, run_in_order
from recsim_mnar.simulate.items import simulate
from recsim_mnar.simulate.slates import exposures_of
from recsim_mnar.worlds.purchases.world import PurchasesWorld

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

METRICS = ("precision", "uplift", "uplift_snips", "uplift_ips")
REFERENCES = (DEPLOYED, "oracle")
"""Lists by what only the world knows: the deployed recommender's probabilities, and true uplift. Shown, not picked."""

_BATCH_CELLS = 1 << 22


@dataclass(frozen=True)
class UpliftSettings:
    """Sizes of a comparison in the purchases world.

    Attributes:
        users: whose log is learnt from and judged by; the A/B test splits them.
        test_periods: periods after the world's own ``n_periods`` by which the metrics judge, and again as many in which
            the A/B test runs.
        length: items of a list, N.
        metrics: of :data:`recsim_mnar.estimators.uplift.LIST_METRICS`.
        clip: largest inverse propensity; None, the default, leaves the IPS form unbiased.
        level: of all intervals.
        paired: every user is in both arms of every A/B test, which only a simulator can do.
        training: parameters of the factor models whose names give none: one for all of them, under which RMF and BPR
            reach their precision in a second or so. None is tuned by itself, nor by any uplift.
    """

    users: int = 2000
    test_periods: int = 10
    length: int = 10
    metrics: tuple[str, ...] = METRICS
    clip: float | None = None
    level: float = 0.95
    paired: bool = False
    training: str = "updates=3000000+factors=16+rate=0.003+penalty=0.001"

    def __post_init__(self) -> None:
        """Refuse sizes that cannot be, and unknown metrics."""
        if checked_users("train_users", self.users) < 2:
            raise UserError(f"train_users must be at least 2, an interval needs two, got {self.users}")
        if self.test_periods < 1:
            raise UserError(f"test_periods must be at least 1, got {self.test_periods}")
        if self.clip is not None and not self.clip >= 1:
            raise UserError(f"clip must be at least 1, the smallest inverse propensity, got {self.clip:g}")
        if not 0 < self.level < 1:
            raise UserError(f"level must lie in (0, 1), got {self.level:g}")
        if not self.metrics:
            raise UserError("metrics: name at least one")
        for metric in self.metrics:
            if metric not in LIST_METRICS:
                raise UserError(f"unknown metric {metric!r}; {nearest(metric, LIST_METRICS)}")


SETTINGS: dict[str, UpliftSettings] = {
    "personalised": UpliftSettings(),
    "uniform": UpliftSettings(),
    "popularity": UpliftSettings(),
    "quick": UpliftSettings(users=1000, test_periods=4, training="updates=600000+factors=16+rate=0.003+penalty=0.01"),
}


TRAINED = ("rmf", "bpr", "ulrmf", "ulbpr", "recresp", "cause", "cause-prod", "dlce")
"""Factor models, whose own defaults are the ten million updates of a paper."""


def spec_of(agent: str, settings: UpliftSettings) -> str:
    """What an agent's name stands for here: a factor model's bare name is trained as the settings say."""
    return f"{agent}+{settings.training}" if agent in TRAINED else agent


def compare_uplift(
    world: PurchasesWorld,
    learners: Mapping[str, Learner],
    *,
    protocols: Sequence[str] = PROTOCOLS,
    settings: UpliftSettings | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    report: Callable[[str], None] = lambda stage: None,
) -> Comparison:
    """Judge every agent's lists by the offline metrics, by an A/B test and by the truth.

    The same users throughout: uplift models know their users by their past. The log of the deployed recommender has the
    world's ``n_periods`` to learn from and ``test_periods`` more to judge by; the A/B test runs in the periods after
    those. An agent with ``fit_exposures`` learns from what was recommended and what was bought, any other from all
    purchases as views. Its list for a user is the N items that it ranks highest, and stays.

    Args:
        world: with known truth.
        learners: by name; ``deployed`` and ``oracle`` are added as references.
        protocols: of :data:`PROTOCOLS`; the truth always runs.
        settings: sizes.
        seed: of users, purchases, recommendations and training.
        executor: to spread the work over; no number depends on it.
        report: called with a line whenever a stage begins.

    Raises:
        UserError: lists longer than the catalogue, or an agent that cannot learn from such a log.
    """
    check_protocols(protocols, PROTOCOLS)
    settings = settings or UpliftSettings()
    check_length(settings.length, world.n_items)
    seed = check_seed(seed)
    users_seed, first = derive_seed(seed, "users"), world.params.n_periods
    longer = world.lasting(first + settings.test_periods)
    deployed = DeployedPolicy(longer)
    report(f"simulate {settings.users:,} users under the deployed recommender")
    log = simulate(longer, deployed, settings.users, users_seed, executor=executor)
    exposures = exposures_of(longer, deployed, log, settings.users, users_seed)
    users = np.arange(settings.users)
    truth = world.outcomes_of(users_seed, users)

    report(f"train {len(learners)} agents on {first} periods")
    past = until(exposures, first)
    views = purchases_as_views(past)
    jobs = [functools.partial(_trained, name, learner, past, views, seed) for name, learner in learners.items()]
    agents = dict(zip(learners, run_in_order(jobs, executor), strict=True))
    agents[DEPLOYED] = _Ranking(world.house_propensities(users_seed, users), {"reference": True})
    agents["oracle"] = _Ranking(truth.uplift, {"reference": True})
    lists = {name: top_items(a.scores, settings.length, seed=_ties(seed, name)) for name, a in agents.items()}

    records: list[Record] = []
    if "uplift" in protocols:
        report(f"offline metrics, {settings.test_periods} further periods")
        periods = range(first, longer.params.n_periods)
        evaluations = [functools.partial(_offline, exposures, lists[name], periods, settings, name) for name in agents]
        for name, (estimates, seconds) in zip(agents, run_in_order(evaluations, executor), strict=True):
            records += [
                _record("uplift", name, f"{metric}@{settings.length}", estimate, seconds, agents[name].details)
                for metric, estimate in estimates.items()
            ]
    if "ab_test" in protocols:
        report(f"A/B test, {settings.test_periods} periods")
        begin = longer.params.n_periods
        tested = range(begin, begin + settings.test_periods)
        found = ab_test(world, lists, users_seed, tested, settings=settings, seed=seed, executor=executor)
        records += [_with_details(r, agents[r.agent].details) for r in found]
    report("truth")
    for name, agent in agents.items():
        began = time.perf_counter()
        exact = (
            causal_precision(truth.uplift, lists[name], level=settings.level),
            causal_dcg(truth.uplift, agent.scores, level=settings.level, seed=_ties(seed, name)),
        )
        seconds = time.perf_counter() - began
        records += [_record("truth", name, e.estimator, e, seconds, agent.details) for e in exact]
    comparison = Comparison(records, judge(records), log=log, exposures=exposures, notes=[_NOTE])
    comparison.headline = headline(comparison.judgements)
    comparison.columns = list(
        dict.fromkeys(
            (r.protocol, r.metric) for r in records if r.metric.partition("@")[0] not in ("cdcg", "purchases")
        )
    )
    return comparison


_NOTE = (
    "deployed (the world's own recommender) and oracle know the truth: they are shown for comparison and cannot be "
    "picked. Uplift is in purchases caused, an item shown in a period."
)


def _record(
    protocol: str, agent: str, metric: str, estimate: Estimate, seconds: float, details: dict[str, Any]
) -> Record:
    more = {**estimate.diagnostics, "method": estimate.method, "ess": estimate.ess, **estimate.verdict.to_dict()}
    e = estimate
    return Record(
        "purchases", protocol, agent, metric, e.value, e.low, e.high, e.level, e.n, seconds, {**more, **details}
    )


def _with_details(record: Record, details: dict[str, Any]) -> Record:
    from dataclasses import replace

    return replace(record, details={**record.details, **details})


def _ties(seed: int, name: str) -> int:
    return derive_seed(seed, f"ties/{name}")


# ------------------------------------------------------------------------------------------------------------- learning


@dataclass(frozen=True)
class _Ranking:
    """(U, I) scores by which lists are made, and what the records should tell of them."""

    scores: Floats
    details: dict[str, Any] = field(default_factory=dict)


def until(exposures: Exposures, period: int) -> Exposures:
    """The periods before ``period``, as a log that ends there."""
    rows = exposures.time < period
    table = exposures.propensities
    if isinstance(table, np.ndarray) and table.shape[2] > 1:
        table = table[:, :, :period]
    return Exposures(
        exposures.user[rows],
        exposures.item[rows],
        exposures.time[rows],
        exposures.recommended[rows],
        exposures.purchased[rows],
        n_users=exposures.n_users,
        n_items=exposures.n_items,
        n_periods=period,
        propensities=table,
        provenance=dict(exposures.provenance),
    )


def purchases_as_views(exposures: Exposures) -> Log:
    """All purchases, recommended or not, as the organic rows of a log: for agents that learn from views."""
    rows = np.flatnonzero(exposures.purchased)
    rows = rows[np.lexsort((exposures.item[rows], exposures.time[rows], exposures.user[rows]))]
    user = exposures.user[rows]
    starts = np.flatnonzero(np.concatenate([[True], user[1:] != user[:-1]])) if len(user) else np.zeros(0, np.int64)
    step = np.arange(len(user)) - np.repeat(starts, np.diff([*starts, len(user)]))
    columns: dict[str, NDArray[Any]] = {
        "user": user,
        "step": step,
        "time": exposures.time[rows],
        "event": np.full(len(rows), schema.ORGANIC),
        "item": exposures.item[rows],
    }
    return Log(columns, dict(exposures.provenance))


def _trained(name: str, learner: Learner, past: Exposures, views: Log, seed: int) -> _Ranking:
    """A learner's scores of every item for the users of the log."""
    learner = as_learner(learner, name=name)
    if is_softened(learner):
        raise UserError(f"agent {name!r}: lists are made by rank, softening would change nothing; leave it away")
    of_exposures, fit_seed = able(learner, FitsExposures), derive_seed(seed, "fit")
    try:
        if of_exposures is not None:
            policy = as_policy(of_exposures.fit_exposures(past, seed=fit_seed))
        else:
            policy = fitted(learner, views, n_items=past.n_items, seed=fit_seed)
        scores = _scores(policy, views, past.n_users)
    except UserError as error:
        raise UserError(f"agent {name!r}: {error}") from None
    return _Ranking(scores, {"spec": learner.name, "learns_from": "purchases" if of_exposures is None else "exposures"})


def _scores(policy: Policy, views: Log, n_users: int) -> Floats:
    """(U, I) scores of users who have bought what the log says; training users are met as such."""
    out = np.empty((n_users, policy.n_items))
    step = max(1, _BATCH_CELLS // policy.n_items)
    owner, items = views["user"], views["item"]
    for first in range(0, n_users, step):
        users = np.arange(first, min(first + step, n_users))
        policy.reset_training_users(users, users)
        a, b = np.searchsorted(owner, [first, users[-1] + 1])
        policy.observe(owner[a:b], items[a:b])
        out[users] = policy.scores(users)
        policy.forget(users)
    if np.isnan(out).any():
        raise UserError("a score is not a number: was its training stopped too late?")
    return out


def _offline(
    exposures: Exposures, lists: Ints, periods: Sequence[int], settings: UpliftSettings, name: str
) -> tuple[dict[str, Estimate], float]:
    began = time.perf_counter()
    try:
        found = evaluate_lists(
            exposures,
            lists,
            metrics=settings.metrics,
            periods=periods,
            clip=0.0 if settings.clip is None else 1.0 / settings.clip,
            level=settings.level,
        )
    except UserError as error:
        raise UserError(f"agent {name!r}: {error}") from None
    return found, time.perf_counter() - began


# ------------------------------------------------------------------------------------------------------------- A/B test


def ab_test(
    world: PurchasesWorld,
    lists: Mapping[str, Ints],
    users_seed: int,
    periods: Sequence[int],
    *,
    settings: UpliftSettings,
    seed: int,
    executor: Executor | None = None,
) -> list[Record]:
    """Show lists to half of the users, drawn anew for each agent, and nothing to the others.

    ``uplift@N``: purchases of the listed items, an item and period, in the arm that is shown them, less those of the
    items that would have been listed in the arm that is not. ``purchases``: all purchases a user and period, likewise,
    as a till would count them: the same effect times N, among the noise of everything else that is bought. The control
    arm is shown nothing, so both estimate Y^T - Y^C and not the difference from the deployed recommender.

    Args:
        world: its outcomes answer what users buy, shown or not shown.
        lists: (U, N) items of users 0 .. U - 1, by agent.
        users_seed: of the users.
        periods: in which the test runs.
        settings: level, and whether every user is in both arms.
        seed: of the split.
        executor: to spread periods over.
    """
    began = time.perf_counter()
    jobs = [functools.partial(_one_period, world, lists, users_seed, t) for t in periods]
    sums = functools.reduce(np.add, run_in_order(jobs, executor))
    seconds = (time.perf_counter() - began) / len(lists)
    records = []
    for name, own in zip(lists, sums, strict=True):
        shown_items, other_items, shown_all, other_all = own / len(periods)
        drawn = uniforms(derive_seed(seed, f"ab_test/{name}"), Stream.PROTOCOL, np.arange(len(shown_all)), 0)
        arms = (drawn < 0.5, drawn >= 0.5)
        length = lists[name].shape[1]
        for metric, y, rest in ((f"uplift@{length}", shown_items / length, other_items / length),
                                ("purchases", shown_all, other_all)):  # fmt: skip
            if settings.paired:
                value, low, high = _mean_interval([y - rest], settings.level)
            else:
                value, low, high = _mean_interval([y[arms[0]], -rest[arms[1]]], settings.level)
            details = {"users": len(drawn), "treated": int(arms[0].sum()), "paired": settings.paired}
            n = len(drawn) * len(periods)
            records.append(
                Record("purchases", "ab_test", name, metric, value, low, high, settings.level, n, seconds, details)
            )
    return records


def _one_period(world: PurchasesWorld, lists: Mapping[str, Ints], users_seed: int, period: int) -> Floats:
    """(A, 4, U) purchases of listed items shown, of the same not shown, of everything with and without the list."""
    n_users = len(next(iter(lists.values())))
    out = np.empty((len(lists), 4, n_users))
    step = max(1, _BATCH_CELLS // world.n_items)
    for first in range(0, n_users, step):
        users = np.arange(first, min(first + step, n_users))
        control, treated = world.potential_outcomes(users_seed, users, period)
        everything = control.sum(axis=1)
        for k, own in enumerate(lists.values()):
            shown = np.take_along_axis(treated, own[users], axis=1).sum(axis=1)
            other = np.take_along_axis(control, own[users], axis=1).sum(axis=1)
            out[k, :, users] = np.stack([shown, other, everything - other + shown, everything], axis=1)
    return out


def _mean_interval(groups: Sequence[Floats], level: float) -> tuple[float, float, float]:
    """The sum of independent groups' means, with Student's t at Welch's degrees of freedom."""
    from scipy.special import stdtrit

    value = float(sum(group.mean() for group in groups))
    if min(len(group) for group in groups) < 2:
        return value, -math.inf, math.inf
    parts = [float(group.var(ddof=1)) / len(group) for group in groups]
    second = sum(parts)
    if second == 0:
        return value, value, value
    degrees = second**2 / sum(part**2 / (len(group) - 1) for part, group in zip(parts, groups, strict=True))
    half = float(stdtrit(degrees, 0.5 + level / 2)) * math.sqrt(second)
    return value, value - half, value + half
