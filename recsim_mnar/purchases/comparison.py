"""Comparison in a purchases world: uplift of agents' lists from a log, from an A/B test, and in truth.

A log is simulated under the world's own recommender. Agents learn from its first periods, and the offline metrics of
Sato et al. (2019) evaluate their lists on the later ones. An A/B test shows the lists to half of the users, and the
truth is the mean of E[Y^T - Y^C] over the lists' items. The comparison tells which metric picks the best agent.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.verdict import Estimate
from recsim_mnar.kernels.checks import level_of, one_of, whole_number
from recsim_mnar.log import schema
from recsim_mnar.log.rows import steps_within
from recsim_mnar.log.table import Log
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.door import able, as_learner, as_policy, fitted, is_softened
from recsim_mnar.protocols.ab_test import ABTest, verdict_on_rate
from recsim_mnar.protocols.base import Experiment, Protocol, Trial
from recsim_mnar.protocols.ranks import scores_of_everyone
from recsim_mnar.protocols.records import Record, Target, ratio_influence, with_half_widths
from recsim_mnar.purchases.exposures import Exposures, Flags, Floats, Ints
from recsim_mnar.purchases.policies import DeployedPolicy, exposures_of
from recsim_mnar.purchases.uplift import LIST_METRICS, causal_precision, check_length, evaluate_lists, top_items
from recsim_mnar.purchases.world import ExposureWorld
from recsim_mnar.rng import Stream, derive_seed, uniforms
from recsim_mnar.simulation.executor import carrying, checked_users, run_in_order
from recsim_mnar.simulation.items import simulate
from recsim_mnar.simulation.run_folder import DEPLOYED
from recsim_mnar.worlds.params import Params

TITLES = {
    "precision": "Precision",
    "precision_recommended": "Precision (recommended)",
    "uplift": "Uplift",
    "uplift_snips": "UpliftSNIPS",
    "uplift_ips": "UpliftIPS",
}

_BATCH_CELLS = 1 << 22
"""Number of cells (user, item) whose outcomes are drawn at a time."""


@dataclass(frozen=True)
class RankedItems:
    """Scores of an agent or a reference, from which its lists are made.

    Attributes:
        scores: (U, I) scores of all items for all users.
        details: entries for the details of the records.
        policy: the fitted policy of an agent; None for references, whose scores the world defines.
    """

    scores: Floats
    details: dict[str, Any] = field(default_factory=dict)
    policy: Policy | None = None


def purchases_as_views(exposures: Exposures) -> Log:
    """Return all purchases, recommended or not, as organic rows of a log, for agents that learn from views."""
    rows = np.flatnonzero(exposures.purchased)
    rows = rows[np.lexsort((exposures.item[rows], exposures.time[rows], exposures.user[rows]))]
    user = exposures.user[rows]
    columns: dict[str, NDArray[Any]] = {
        "user": user,
        "step": steps_within(user),
        "time": exposures.time[rows],
        "event": np.full(len(rows), schema.ORGANIC),
        "item": exposures.item[rows],
    }
    return Log(columns, dict(exposures.provenance))


def fit_and_score(name: str, learner: Learner, past: Exposures, views: Log, seed: int) -> RankedItems:
    """Fit a learner, and return its scores of all items for all users with the fitted policy.

    Args:
        name: name of the agent.
        learner: the learner; fitted on exposures if it has ``fit_exposures``, else on views.
        past: exposures of the training periods.
        views: their purchases as views.
        seed: seed of the comparison.

    Raises:
        UserError: the learner is softened, which does not change a ranking, or its fit fails.
    """
    learner = as_learner(learner, name=name)
    if is_softened(learner):
        raise UserError(f"agent {name!r}: lists are made by rank, softening would change nothing; leave it away")
    exposure_learner = able(learner, "fit_exposures")
    fit_seed = derive_seed(seed, "fit")
    try:
        if exposure_learner is not None:
            policy = as_policy(exposure_learner.fit_exposures(past, seed=fit_seed))
        else:
            policy = fitted(learner, views, n_items=past.n_items, seed=fit_seed)
    except UserError as error:
        raise UserError(f"agent {name!r}: {error}") from None
    scores = scores_of_everyone(name, policy, views, past.n_users)
    details = {"spec": learner.name, "learns_from": "purchases" if exposure_learner is None else "exposures"}
    return RankedItems(scores, details, policy)


def title(metric: str) -> str:
    """Return a metric's name as papers write it: ``UpliftSNIPS@10`` for ``uplift_snips@10``."""
    name, at, length = metric.partition("@")
    return TITLES.get(name, name) + at + length


class Uplift(Protocol):
    """Protocol that estimates precision and uplift of agents' lists from the test periods of the log."""

    name = "uplift"
    summary = "precision and the uplift metrics of lists, from a further log (purchases)"
    metrics = tuple(LIST_METRICS)
    needs = frozenset({"exposures"})

    def judge(self, study: Trial) -> list[Record]:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        settings = study.settings
        data = study.data
        exposures = study.exposures
        assert isinstance(exposures, Exposures)
        study.report(f"offline metrics, {settings.test_periods} further periods")
        periods = range(data.first, data.last)
        evaluate = carrying(_evaluate_offline, exposures)
        jobs = [functools.partial(evaluate, data.lists[name], periods, settings, name) for name in data.rankings]
        records = []
        for name, (estimates, seconds) in zip(data.rankings, run_in_order(jobs, study.executor), strict=True):
            details = data.rankings[name].details
            records += [
                record_of(self.name, name, f"{metric}@{settings.length}", estimate, seconds, details)
                for metric, estimate in estimates.items()
            ]
        return records

    def title(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return title(metric)

    def estimates_truth(self, metric: str) -> bool:
        """Return whether a metric estimates uplift; precision counts all purchases, caused or not."""
        return metric.startswith("uplift")


def record_of(
    protocol: str, agent: str, metric: str, estimate: Estimate, seconds: float, details: dict[str, Any]
) -> Record:
    """Return the record of an estimate, with its diagnostics, method and verdict in the details.

    Args:
        protocol: name of the protocol.
        agent: name of the agent.
        metric: name of the metric, with the length of lists.
        estimate: the estimate.
        seconds: time that it took.
        details: further entries of the details.
    """
    method = {"method": estimate.method, "ess": estimate.ess}
    return Record.of(
        "purchases",
        protocol,
        agent,
        metric,
        (estimate.value, estimate.low, estimate.high),
        level=estimate.level,
        n=estimate.n,
        seconds=seconds,
        details={**estimate.diagnostics, **method, **estimate.verdict.to_dict(), **details},
    )


def _evaluate_offline(
    exposures: Exposures, lists: Ints, periods: Sequence[int], settings: Any, name: str
) -> tuple[dict[str, Estimate], float]:
    """Evaluate the lists of the agent ``name`` on a log: a job of :class:`Uplift`.

    Returns:
        The estimates, by metric.
        The seconds that they took.
    """
    least_propensity = 0.0
    if settings.clip:  # the largest weight
        least_propensity = 1.0 / settings.clip
    began = time.perf_counter()
    try:
        estimates = evaluate_lists(
            exposures,
            lists,
            metrics=settings.metrics.split(","),
            periods=periods,
            clip=least_propensity,
            level=settings.level,
        )
    except UserError as error:
        raise UserError(f"agent {name!r}: {error}") from None
    return estimates, time.perf_counter() - began


def _values_by_user(groups: Sequence[Floats], arms: tuple[Flags, Flags]) -> Floats:
    """Return values (U,), one per user, whose mean is the sum of the means of two groups, for the study's raw data.

    A group's values are multiplied by the inverse of its share of all users.

    Args:
        groups: values of the users in each arm.
        arms: (U,) flags of each arm's users.
    """
    out = np.empty(len(arms[0]))
    for group, arm in zip(groups, arms, strict=True):
        out[arm] = group * (len(out) / max(len(group), 1))  # an arm may be empty
    return out


def draw_period(world: ExposureWorld, lists: Mapping[str, Ints], users_seed: int, period: int) -> Floats:
    """Draw the purchases of listed items in one period, for all agents.

    Args:
        world: the world.
        lists: (U, N) lists by agent, of A agents.
        users_seed: seed of the users.
        period: number of the period.

    Returns:
        (A, 2, U) number of each user's purchases of the listed items if these are shown, and if not.
    """
    n_users = len(next(iter(lists.values())))
    out = np.empty((len(lists), 2, n_users))
    step = max(1, _BATCH_CELLS // world.n_items)
    for first in range(0, n_users, step):
        users = np.arange(first, min(first + step, n_users))
        control, treated = world.potential_outcomes(users_seed, users, period)
        for agent, items in enumerate(lists.values()):
            for arm, outcomes in enumerate((treated, control)):
                out[agent, arm, users] = np.take_along_axis(outcomes, items[users], axis=1).sum(axis=1)
    return out


def _sum_of_means_interval(groups: Sequence[Floats], level: float) -> tuple[float, float, float]:
    """Compute the sum of independent groups' means, with a t interval of Welch's degrees of freedom.

    Returns:
        The sum, and the lower and the upper end of its interval; infinite ends if a group has fewer than two values.
    """
    from scipy.special import stdtrit

    value = float(sum(group.mean() for group in groups))
    if min(len(group) for group in groups) < 2:
        return value, -math.inf, math.inf
    variances = [float(group.var(ddof=1)) / len(group) for group in groups]  # of the groups' means
    variance = sum(variances)
    if variance == 0:
        return value, value, value
    # Welch-Satterthwaite degrees of freedom.
    degrees = variance**2 / sum(part**2 / (len(group) - 1) for part, group in zip(variances, groups, strict=True))
    half_width = float(stdtrit(degrees, 0.5 + level / 2)) * math.sqrt(variance)
    return value, value - half_width, value + half_width


class UpliftABTest(ABTest):
    """Protocol of an A/B test that shows each agent's lists to half of the users, and nothing to the others."""

    summary = "an A/B test: lists are shown to half of the users (purchases)"
    metrics = ("uplift",)
    needs = frozenset({"users", "exposures"})

    def judge(self, study: Trial) -> list[Record]:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`.

        ``uplift@N`` is the number of purchases of listed items, per item and period, in the arm that is shown them,
        minus that in the arm that is shown nothing. So it estimates Y^T - Y^C, not the difference from the deployed
        recommender.
        """
        data: Lists = study.data
        n_periods = study.settings.test_periods
        study.report(f"A/B test, {n_periods} periods")
        began = time.perf_counter()
        job = carrying(draw_period, data.world, data.lists, data.users_seed)
        jobs = [functools.partial(job, data.last + i) for i in range(n_periods)]
        sums = functools.reduce(np.add, run_in_order(jobs, study.executor))
        seconds = (time.perf_counter() - began) / len(data.lists)
        return [
            self._record(study, name, purchases / n_periods, seconds)
            for name, purchases in zip(data.lists, sums, strict=True)
        ]

    def _record(self, study: Trial, agent: str, purchases: Floats, seconds: float) -> Record:
        """Return the record of one agent, for which the users are split anew.

        ``purchases`` (2, U) are each user's mean purchases per period of listed items if these are shown, and if not.
        """
        data: Lists = study.data
        length = data.lists[agent].shape[1]
        if_shown, if_not_shown = purchases / length
        n_users = len(if_shown)
        is_treated = uniforms(derive_seed(study.seed, f"ab_test/{agent}"), Stream.PROTOCOL, np.arange(n_users), 0) < 0.5
        arms = (is_treated, ~is_treated)
        # Uplift is the mean if shown minus the mean if not shown: the sum of the means of these groups.
        groups = [if_shown[is_treated], -if_not_shown[~is_treated]]
        value, low, high = _sum_of_means_interval(groups, study.level)
        metric = f"uplift@{length}"
        n_treated = len(groups[0])
        study.keep_raw("ab_test", metric, agent, user=np.arange(n_users), value=_values_by_user(groups, arms))
        n_smaller_arm = min(n_treated, n_users - n_treated)
        judgement = verdict_on_rate(n_smaller_arm, abs(value), low, high)
        details = {"users": n_users, "treated": n_treated, **judgement.to_dict(), **data.rankings[agent].details}
        n = n_users * study.settings.test_periods
        key = (data.world.name, "ab_test", agent, metric)
        return Record.of(*key, (value, low, high), level=study.level, n=n, seconds=seconds, details=details)

    def heading(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        return "A/B uplift"


METRICS = ("precision", "uplift", "uplift_snips", "uplift_ips")

_BIASED = ("uplift", "uplift_snips")
"""Metrics whose columns come after the others."""

TRAINED = ("rmf", "bpr", "ulrmf", "ulbpr", "recresp", "cause", "cause-prod")
"""Factor models, which get the comparison's parameters: by their own defaults they train for ten million updates."""


@dataclass(frozen=True)
class UpliftSettings(Params):
    """Sizes of a comparison in the purchases world.

    Attributes:
        users: number of users, of the log and of the A/B test.
        test_periods: number of periods after the world's own ``n_periods`` on which the metrics are computed; the A/B
            test runs in as many further ones.
        length: number of items N in a list.
        metrics: names from :data:`recsim_mnar.purchases.uplift.LIST_METRICS`, separated by commas.
        clip: largest inverse propensity; 0, the default, for no bound, with which the IPS estimate is unbiased.
        level: coverage of all intervals.
        training: parameters of factor models that are named without any. They are the same for all models, and let RMF
            and BPR reach their precision within about a second; they are not tuned for each model, nor for uplift.
    """

    users: int = 2000
    test_periods: int = 10
    length: int = 10
    metrics: str = ",".join(METRICS)
    clip: float = 0.0
    level: float = 0.95
    training: str = "updates=3000000+factors=16+rate=0.003+penalty=0.001"

    def check(self) -> None:
        """Raise UserError if a size is out of range or a metric is unknown."""
        if checked_users("train_users", self.users) < 2:
            raise UserError(f"train_users must be at least 2, an interval needs two, got {self.users}")
        whole_number(self.test_periods, "test_periods", 1)
        if self.clip != 0 and not self.clip >= 1:
            raise UserError(f"clip must be at least 1, the smallest inverse propensity, or 0, got {self.clip:g}")
        level_of(self.level)
        for metric in self.metrics.split(","):
            one_of(metric, "metrics", LIST_METRICS)


@dataclass(frozen=True)
class Lists:
    """Data of a comparison, read by its protocols.

    Attributes:
        world: the world, with the number of periods of the log.
        users_seed: seed of the users.
        first: first period after those of training.
        last: first period after the log.
        truth: true probabilities of both outcomes for all users.
        rankings: scores by agent; references come last.
        lists: (U, N) lists by agent.
    """

    world: ExposureWorld
    users_seed: int
    first: int
    last: int
    truth: Any
    rankings: dict[str, RankedItems]
    lists: dict[str, Ints]


class PurchasesExperiment(Experiment):
    """Comparison of agents, with the same users for training and evaluation, since uplift models need a user's past.

    The log of the deployed recommender has the world's ``n_periods`` for training and ``test_periods`` more for the
    metrics; the A/B test runs in the periods after these. Agents with ``fit_exposures`` learn from recommendations and
    purchases, others from all purchases as views. A user's list is the N items that an agent ranks highest, the same in
    all periods.
    """

    settings_type = UpliftSettings
    presets: ClassVar = {
        "quick": {"users": 1000, "test_periods": 4, "training": "updates=600000+factors=16+rate=0.003+penalty=0.01"}
    }
    aliases: ClassVar = {"train_users": "users"}
    agents = ("random", "popularity", "rmf", "bpr", "ulrmf", "ulbpr", "recresp")
    protocols = ("uplift", "ab_test")
    own_protocols: ClassVar = {
        "uplift": "recsim_mnar.purchases.comparison:Uplift",
        "ab_test": "recsim_mnar.purchases.comparison:UpliftABTest",
    }
    provides = frozenset({"exposures", "users"})
    log_holds = frozenset({"clicks", "exposures"})

    def specs(self, preset: str | None, settings: UpliftSettings) -> Mapping[str, str]:
        """Return the specification, with parameters, of each factor model that is named without any."""
        return {agent: f"{agent}+{settings.training}" for agent in TRAINED}

    def targets(self, settings: UpliftSettings) -> tuple[Target, ...]:
        """Implement :meth:`Experiment.targets`."""
        return (Target(f"cp@{settings.length}", "uplift"),)

    def prepare(self, trial: Trial) -> None:
        """Implement :meth:`Experiment.prepare`: simulate the log, fit the agents, and make all lists."""
        world = trial.world
        settings = trial.settings
        assert isinstance(world, ExposureWorld)
        check_length(settings.length, world.n_items)
        users_seed = trial.seed_of("users")
        first = world.params.n_periods
        longer = world.lasting(first + settings.test_periods)
        deployed = DeployedPolicy(longer)
        trial.report(f"simulate {settings.users:,} users under the deployed recommender")
        trial.test_log = simulate(longer, deployed, settings.users, users_seed, executor=trial.executor)
        trial.exposures = exposures_of(longer, deployed, trial.test_log, n_users=settings.users, seed=users_seed)
        users = np.arange(settings.users)
        truth = world.outcomes_of(users_seed, users)
        rankings = self._rankings(trial, first)
        trial.policies = {name: ranking.policy for name, ranking in rankings.items() if ranking.policy is not None}
        # References, which are not fitted: their scores are the world's own.
        rankings[DEPLOYED] = RankedItems(world.deployed_propensities(users_seed, users), {"reference": True})
        rankings["oracle"] = RankedItems(truth.uplift, {"reference": True})
        lists = {}
        for name, ranking in rankings.items():
            tie_seed = derive_seed(trial.seed, f"ties/{name}")
            lists[name] = top_items(ranking.scores, settings.length, seed=tie_seed)
        trial.data = Lists(
            world=longer,
            users_seed=users_seed,
            first=first,
            last=longer.params.n_periods,
            truth=truth,
            rankings=rankings,
            lists=lists,
        )

    def _rankings(self, trial: Trial, first: int) -> dict[str, RankedItems]:
        """Return every agent's scores, learnt from the periods before the period ``first``."""
        agents = trial.learners
        trial.report(f"train {len(agents)} agents on {first} periods")
        world = trial.world
        log = trial.log()
        assert isinstance(world, ExposureWorld)
        earlier = log.select(log["time"] < first)
        n_users = trial.settings.users
        past = exposures_of(world, DeployedPolicy(world), earlier, n_users=n_users, seed=trial.seed_of("users"))
        trial.train_log = views = purchases_as_views(past)
        jobs = [
            functools.partial(fit_and_score, name, learner, past, views, trial.seed) for name, learner in agents.items()
        ]
        return dict(zip(agents, run_in_order(jobs, trial.executor), strict=True))

    def truth(self, trial: Trial) -> list[Record]:
        """Implement :meth:`Experiment.truth`: the true uplift of the lists, CP@N, of agents and references."""
        trial.report("truth")
        data: Lists = trial.data
        uplift = data.truth.uplift
        level = trial.level
        records = []
        influences = {}
        for name, ranking in data.rankings.items():
            began = time.perf_counter()
            exact = causal_precision(uplift, data.lists[name], level=level)
            seconds = time.perf_counter() - began
            records.append(record_of("truth", name, exact.estimator, exact, seconds, ranking.details))
            means = np.take_along_axis(uplift, data.lists[name], axis=1).mean(axis=1)
            influences[name] = ratio_influence(means, np.ones(len(means)))
        return with_half_widths(records, influences, level)

    def notes(self, trial: Trial, records: Sequence[Record]) -> list[str]:
        """Implement :meth:`Experiment.notes`."""
        return [
            "deployed (what made the log) and oracle know the truth: they are shown for comparison and cannot be "
            "picked. Uplift is in purchases caused, an item shown in a period."
        ]

    def columns(self, records: Sequence[Record]) -> list[tuple[str, str]]:
        """Implement :meth:`Experiment.columns`: the biased metrics come last."""
        keys = dict.fromkeys((record.protocol, record.metric) for record in records)  # each once, in order
        return sorted(keys, key=lambda key: key[1].partition("@")[0] in _BIASED)  # stable; key[1] is the metric
