"""Off-policy evaluation: agents judged from the log of another policy."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from recsim_mnar.answers.records import with_adaptive_findings
from recsim_mnar.answers.weights import weight_distribution
from recsim_mnar.answers.words import Amounts, identified, lacks
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import Estimate, Facts, estimate_value
from recsim_mnar.estimators.cross_fitted import ActionMeans
from recsim_mnar.estimators.rankings import RANKING_ESTIMATORS, estimate_ranking_value, ranking_estimator
from recsim_mnar.estimators.scores import ESTIMATORS, check_name
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.table import Log
from recsim_mnar.policies.answers import checked_decisions, checked_distribution
from recsim_mnar.policies.base import Policy
from recsim_mnar.policies.rankings import as_ranking_policy
from recsim_mnar.protocols.ab_test import DCG
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.records import Record, listed
from recsim_mnar.replays.probabilities import (
    blocks_of,
    largest_ratio,
    least_propensity,
    probability_range,
    replay,
    replay_ranking,
    replay_rounds,
    replay_with_support,
    rounds_of,
    slate_size_of,
)
from recsim_mnar.replays.truth import PolicyOnLog, policies_on_log, value_on_log

_MOSTLY = 0.5
"""Share of an agent's weight from which the clip is said to remove most of it."""
FOLDS = 2
"""Number of folds of users between which reward models are cross-fitted."""


def item_rewards(log: Log, n_items: int) -> tuple[Floats, Ints]:
    """Fit the mean reward of each item, for each fold of users on the users of the other folds.

    Args:
        log: a log with bandit rows.
        n_items: number of items, which are 0 .. n_items - 1.

    Returns:
        means: (FOLDS, n_items) mean rewards, shrunken towards the overall mean.
        fold_of_row: (d,) fold of the user of each decision.
    """
    rows = log.is_bandit
    action = log["action"][rows]
    reward = log["reward"][rows]
    fold_of_row = log["user"][rows] % FOLDS
    means = np.zeros((FOLDS, n_items))
    for fold in range(FOLDS):
        train = fold_of_row != fold
        if train.any():
            model = ActionMeans(n_items)
            no_context = np.zeros((int(train.sum()), 0))
            model.fit(no_context, action[train], reward[train])
            means[fold] = model.means
    return means, fold_of_row


def modelled_values(log: Log, policy: Policy, means: Floats) -> Floats:
    """Compute (d,) a reward model's mean under a policy at each decision of a log.

    Args:
        log: log ordered by (user, step), whose events the policy observes.
        policy: a policy that does not learn from all users.
        means: (FOLDS, n_items) mean rewards of :func:`item_rewards`.
    """
    values = np.full(len(log), np.nan)
    first = 0
    for block in blocks_of(log):
        acting = policy.fresh()
        for rows in replay_rounds(block, [acting], rounds_of(block, one_by_one=False)):
            users = block["user"][rows]
            values[first + rows] = _mean_under_policy(acting, users, means[users % FOLDS])
        first += len(block["user"])
    return values[log.is_bandit]


def _mean_under_policy(policy: Policy, users: Ints, values: Floats) -> Floats:
    """Compute the mean of item values under a policy's present distribution for each user.

    The distribution is computed only for users whose decision has a probability below 1.

    Args:
        policy: a policy that has observed the users' events so far.
        users: (n,) users.
        values: (n, n_items) values of the items for each user.

    Returns:
        (n,) means.
    """
    n, n_items = values.shape
    any_uniform = np.full(n, 0.5)  # a decision of probability 1 does not depend on it
    actions, propensities = checked_decisions(policy, policy.act(users, any_uniform), n=n, n_items=n_items)
    out: Floats = values[np.arange(n), actions]
    stochastic = np.flatnonzero(propensities < 1.0)
    step = max(1, (1 << 21) // n_items)  # 16 MB of probabilities at a time
    for begin in range(0, len(stochastic), step):
        rows = stochastic[begin : begin + step]
        probabilities = checked_distribution(policy, policy.probabilities(users[rows]), n_items, n=len(rows))
        out[rows] = np.einsum("ui,ui->u", probabilities, values[rows])
    return out


OF_RANKINGS = ("independent_ips", "reward_interaction_ips", "slate_ips")
"""Default estimators of a log of slates, the one with the strongest assumptions on users first."""


def check_estimators(names: Sequence[str], *, ranks: bool) -> None:
    """Check the names of estimators, before anything is simulated.

    Args:
        names: names of the estimators.
        ranks: True for a log of slates.

    Raises:
        UserError: an estimator is unknown, does not fit the log, or needs an argument that a comparison lacks.
    """
    for name in names:
        if not ranks:
            check_name(name)
            continue
        info = ranking_estimator(name)
        if info.requires:
            usable = ", ".join(entry.name for entry in RANKING_ESTIMATORS.values() if not entry.requires)
            raise UserError(
                f"estimator {name!r} needs {info.requires[0]}, which a comparison does not have: use one of {usable}"
            )


def of_comparison(settings: Any, *, ranks: bool) -> tuple[str, ...]:
    """Return the names of the estimators in a comparison's settings; the defaults for slates if they are unchanged.

    Args:
        settings: settings of the comparison.
        ranks: True for a world of slates, where the settings' own default estimators do not apply.
    """
    text = str(getattr(settings, "estimators", ""))
    if ranks and text == getattr(type(settings)(), "estimators", None):
        return OF_RANKINGS
    return tuple(name.strip() for name in text.split(",") if name.strip())


@dataclass(frozen=True)
class _PolicyEstimates:
    """Estimates of one policy.

    Attributes:
        weights: (d,) weight of each decision.
        estimates: estimate by estimator.
        details: by estimator, further numbers for the record.
        raw: by estimator, columns of raw results for ``keep_raw``; estimators without any are left out.
    """

    weights: Floats
    estimates: Mapping[str, Estimate]
    details: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    raw: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def off_policy(
    log: Log,
    policies: Mapping[str, Policy],
    *,
    estimators: Sequence[str] = ("clipped_ips", "ips", "snips"),
    clip: float = 15.0,
    level: float = 0.95,
    world: str = "sessions",
    logging: Policy | None = None,
    replayed: Mapping[str, PolicyOnLog] | None = None,
    findings: MutableMapping[str, Any] | None = None,
    executor: Executor | None = None,
    keep_raw: Callable[..., None] | None = None,
) -> list[Record]:
    """Estimate each policy's value from a log, with the rows of a user treated as dependent.

    The intervals of the records allow for sampling error only. In the details, ``target_low`` and ``target_high`` allow
    for clipping and missing support, too, and ``identified`` describes a policy that is covered too little for a value.

    Args:
        log: a log with bandit rows.
        policies: target policies by name, which are replayed on the log.
        estimators: names of :data:`recsim_mnar.estimators.ESTIMATORS`, which become the metrics of the records.
        clip: largest weight of clipped_ips.
        level: nominal coverage of the intervals.
        world: name of the data in the records.
        logging: policy that collected the log, from which missing support is known; None if it is unknown.
        replayed: result of :func:`recsim_mnar.replays.truth.policies_on_log`; None to replay the policies here.
        findings: mapping that receives ``weights``, the distributions of the policies' weights, as JSON types.
        executor: executor over which users are spread; None for this process.
        keep_raw: function that receives scores, as :meth:`recsim_mnar.protocols.base.Trial.keep_raw`; None for none.

    Raises:
        UserError: the log has no recommendations, or invalid propensities.
    """
    if not log.is_bandit.any():
        raise UserError("the log has no bandit rows: off-policy evaluation needs recommendations with propensities")
    ranks = slate_size_of(log) > 1
    common: dict[str, Any] = {"clip": clip, "level": level, "logging": logging, "executor": executor}
    distributions = []
    records = []
    for name, policy in policies.items():
        began = time.perf_counter()
        if ranks:
            judged = _estimate_ranking(log, policy, estimators, **common)
        else:
            judged = _estimate_items(log, policy, estimators, on_log=(replayed or {}).get(name), **common)
        distributions.append(vars(weight_distribution(name, judged.weights, clip)))
        seconds = (time.perf_counter() - began) / max(len(judged.estimates), 1)
        for estimator, estimate in judged.estimates.items():
            if keep_raw is not None and estimator in judged.raw:
                keep_raw(estimator, name, **judged.raw[estimator])
            details = {**_details(estimate, judged.weights), **judged.details.get(estimator, {})}
            if not ranks:
                details |= _identified(name, estimate)
            fields: dict[str, Any] = {"level": level, "n": estimate.n, "seconds": seconds, "details": details}
            records.append(Record.of(world, "off_policy", name, estimator, _sampling_interval(estimate), **fields))
    if findings is not None:
        findings["weights"] = distributions
    return records


def _estimate_items(
    log: Log,
    policy: Policy,
    estimators: Sequence[str],
    *,
    clip: float,
    level: float,
    logging: Policy | None,
    on_log: PolicyOnLog | None,
    executor: Executor | None,
) -> _PolicyEstimates:
    """Estimate the value of a policy from a log of single items.

    Args:
        log: a log with bandit rows.
        policy: the target policy.
        estimators: names of the estimators.
        clip: largest weight of clipped estimators.
        level: nominal coverage of the intervals.
        logging: policy that collected the log; None if it is unknown.
        on_log: the target's probabilities on the log, if they are computed already.
        executor: executor over which users are spread; None for this process.
    """
    logger = logging if logging is not None and logging.replayable else None
    missing = None
    if on_log is not None:
        probability, missing, _ = on_log
    elif logger is not None:
        probability, missing = replay_with_support(log, policy, logger, executor=executor)
    else:
        probability = replay(log, policy, executor=executor)
    rows = log.is_bandit
    facts = Facts(
        propensity_min=None if logger is None else least_propensity(logger),
        target_max=probability_range(policy)[1],
        weight_max=largest_ratio(policy, logger),
        unsupported=None if missing is None else missing[rows],
    )
    decisions = _Decisions(log["reward"][rows], log["propensity"][rows], log["user"][rows], probability[rows], clip)
    if any(_needs_model(estimator) for estimator in estimators):
        means, fold = item_rewards(log, policy.n_items)
        values = modelled_values(log, policy, means)
        decisions = replace(decisions, q_logged=means[fold, log["action"][rows]], q_target=values)
    estimates = {}
    details = {}
    raw = {}
    for estimator in estimators:
        estimate = decisions.estimate(estimator, level, facts)
        estimates[estimator] = with_adaptive_findings(estimate, log.provenance)
        details[estimator] = decisions.by_row(estimator)
        scores = decisions.scores(estimator)
        if scores:
            raw[estimator] = {"user": decisions.user, **scores}
    return _PolicyEstimates(decisions.weight, estimates, details, raw)


def _estimate_ranking(
    log: Log,
    policy: Any,
    estimators: Sequence[str],
    *,
    clip: float,
    level: float,
    logging: Any,
    executor: Executor | None,
) -> _PolicyEstimates:
    """Estimate the value of a policy from a log of slates.

    Values are per item shown. The discounted cumulative gain per slate is estimated, too, by the first estimator that
    can weight positions.

    Args:
        log: a log of slates.
        policy: the target policy.
        estimators: names of the estimators.
        clip: largest weight of clipped estimators.
        level: nominal coverage of the intervals.
        logging: policy that collected the log; None if it is unknown.
        executor: executor over which users are spread; None for this process.
    """
    rows = log.is_bandit
    logged = {name: values[rows] for name, values in log.columns.items()}
    target = {kind: values[rows] for kind, values in replay_ranking(log, policy, executor=executor).items()}
    covers_all = None  # unknown
    if logging is not None and least_propensity(as_ranking_policy(logging, slate_size_of(log))) is not None:
        covers_all = True
    value = functools.partial(estimate_ranking_value, logged, target, level=level, full_support=covers_all)
    clipped = [estimator for estimator in estimators if ranking_estimator(estimator).clipped_item_estimator]
    unclipped = [estimator for estimator in estimators if estimator not in clipped]
    estimates: dict[str, Estimate] = {}
    if clipped:
        estimates |= value(estimators=clipped, clip=clip)
    if unclipped:
        estimates |= value(estimators=unclipped)
    estimates = {estimator: estimates[estimator] for estimator in estimators}
    dcg_estimator = _first_with_positions(estimators)
    if dcg_estimator is not None:
        dcg_clip = clip if dcg_estimator in clipped else None
        estimates[DCG] = value(estimators=dcg_estimator, position_weights=DCG, clip=dcg_clip)[dcg_estimator]
    return _PolicyEstimates(target["marginal"] / logged["propensity"], estimates)


def _first_with_positions(estimators: Sequence[str]) -> str | None:
    """Return the first estimator that can weight positions, which those for unordered sets cannot; None without one."""
    return next((estimator for estimator in estimators if ranking_estimator(estimator).weight != "set"), None)


def _sampling_interval(estimate: Estimate) -> tuple[float, float, float]:
    """Return value, low and high end of an estimate with its sampling interval, which ignores the bias of clipping.

    An end is moved to the value if rounding, or an interval within the range of rewards, excludes the value.
    """
    numbers = estimate.numbers()
    value = estimate.value
    return value, min(numbers["sampling_low"], value), max(numbers["sampling_high"], value)


def _details(estimate: Estimate, weights: Floats) -> dict[str, Any]:
    """Return the details of an estimate's record; ``target_low`` and ``target_high`` allow for clipping and support.

    Args:
        estimate: the estimate.
        weights: (d,) weight of each decision.
    """
    return {
        "method": estimate.method,
        **estimate.verdict.to_dict(),
        "ess": estimate.ess,
        "share_supported": float(np.mean(weights > 0.0)),
        "target_low": estimate.low,
        "target_high": estimate.high,
        **estimate.numbers(),
    }


def _needs_model(estimator: str) -> bool:
    """Return True if an estimator needs a reward model."""
    return bool({"q_logged", "q_target"} & set(check_name(estimator).needs))


def _identified(agent: str, estimate: Estimate) -> dict[str, str]:
    """Describe what a log shows of an agent that it covers too little for a value; return {} for other agents."""
    numbers = {name: getattr(estimate, name) for name in ("value", "low", "high", "level")}
    record = {"policy": agent, **numbers, "diagnostics": estimate.numbers(), **estimate.verdict.to_dict()}
    if lacks(record):
        return {"identified": identified(record, Amounts.of([record]))}
    return {}


@dataclass(frozen=True)
class _Decisions:
    """All decisions of a log, with a policy's probabilities of them.

    Attributes:
        reward: (d,) rewards.
        propensity: (d,) probability of the logged action under the logging policy.
        user: (d,) user of each decision.
        target: (d,) probability of the logged action under the target policy.
        clip: largest weight of clipped estimators.
        q_logged: (d,) a reward model's prediction for the logged action; None without a model.
        q_target: (d,) the model's mean under the target policy; None without a model.
    """

    reward: Floats
    propensity: Floats
    user: Ints
    target: Floats
    clip: float
    q_logged: Floats | None = None
    q_target: Floats | None = None

    @property
    def weight(self) -> Floats:
        """(d,) weights, which are not clipped."""
        return self.target / self.propensity

    def estimate(self, estimator: str, level: float, facts: Facts) -> Estimate:
        """Estimate the policy's value with one estimator and an interval of coverage ``level``."""
        info = check_name(estimator)
        return estimate_value(
            self.reward,
            self.propensity,
            self.target,
            estimator=estimator,
            clip=self.clip if info.clips else None,
            cluster=self.user,
            level=level,
            facts=facts,
            model=(self.q_logged, self.q_target) if info.needs else None,
        )

    def by_row(self, estimator: str) -> dict[str, float]:
        """Return numbers for intervals that treat rows as independent, such as those of Jeunen et al. 2019.

        ``row_sd`` is the standard deviation of a row's weighted reward, and ``kish`` is Kish's effective number of
        rows, (sum w)^2 / sum w^2.
        """
        weight = self.weight
        if check_name(estimator).clips:
            weight = np.minimum(weight, self.clip)
        squares = float(weight @ weight)
        kish = float(weight.sum()) ** 2 / squares if squares > 0 else 0.0
        return {"row_sd": float(np.std(weight * self.reward)), "kish": kish}

    def scores(self, estimator: str) -> dict[str, Floats]:
        """Return the values (d,), and perhaps weights (d,), whose mean an estimate is; {} for other estimators."""
        weight = self.weight
        if estimator == "snips":
            return {"value": self.reward, "weight": weight}
        if estimator == "ips":
            return {"value": weight * self.reward}
        if estimator == "clipped_ips":
            return {"value": np.minimum(weight, self.clip) * self.reward}
        if self.q_target is None or self.q_logged is None:
            return {}
        if estimator == "dm":
            return {"value": self.q_target}
        if estimator == "dr":
            return {"value": self.q_target + weight * (self.reward - self.q_logged)}
        return {}


class OffPolicy(Protocol):
    """Off-policy estimates from the test log.

    Args:
        estimators: names of :data:`recsim_mnar.estimators.ESTIMATORS`, or of :data:`RANKING_ESTIMATORS` for slates,
            with slashes between; agents are ranked by each of them. Empty for those of the comparison's settings.
    """

    name = "off_policy"
    summary = "off-policy estimates from a log with propensities: clipped IPS and others"
    metrics: Sequence[str] = ("clipped_ips",)
    needs = frozenset({"test_log", "propensities"})

    def __init__(self, estimators: str = "") -> None:
        self.estimators = tuple(name for name in estimators.split("/") if name)
        if self.estimators:
            self.metrics = self.estimators

    def judge(self, study: Trial) -> list[Record]:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`.

        The details of each record have the exact value in the logged states, ``value_on_log``. The distribution of the
        weights is stored in the trial's findings.
        """
        settings = study.settings
        ranks = study.world.slate_size > 1
        estimators = self.estimators or of_comparison(settings, ranks=ranks)
        check_estimators(estimators, ranks=ranks)
        if not self.estimators and self.metrics[0] not in estimators:
            self.metrics = estimators
        study.report("off-policy estimates from the log")
        log = study.log()
        executor = study.executor
        began = time.perf_counter()
        on_log = None
        if log.is_bandit.any() and not ranks:
            on_log = policies_on_log(
                study.world, log, study.policies, study.logging_policy, study.test_seed, executor=executor
            )
        shared_seconds = (time.perf_counter() - began) / max(1, len(study.policies) * len(estimators))
        study.findings["clip"] = settings.clip
        records = off_policy(
            log,
            study.policies,
            estimators=estimators,
            clip=settings.clip,
            level=study.level,
            world=study.world.name,
            logging=study.logging_policy,
            replayed=on_log,
            findings=study.findings,
            executor=executor,
            keep_raw=None if study.raw is None else functools.partial(study.keep_raw, self.name),
        )
        if on_log is None:
            exact = value_on_log(study.world, log, study.policies, study.test_seed, executor=executor)
        else:
            exact = {name: result.value for name, result in on_log.items()}
        judged = []
        for record in records:
            details = {**record.details, "value_on_log": exact[record.agent]}
            judged.append(replace(record, protocol=self.name, seconds=record.seconds + shared_seconds, details=details))
        return judged

    def remarks(self, study: Trial) -> list[str]:
        """Say where the log's policy is deterministic, and of which agents the clip removes most of the weight."""
        log = study.log()
        logging = study.settings.logging
        if np.all(log["propensity"][log.is_bandit] == 1.0):
            return [
                f"{logging} never draws what it shows, so its log tells next to nothing of others: let it explore, "
                f"--option logging={logging}+epsilon=0.2."
            ]
        clipped = [of["policy"] for of in study.findings["weights"] if of["mass_clipped"] > _MOSTLY]
        if "clipped_ips" not in self.metrics or not clipped:
            return []
        return [
            f"The clip of {study.settings.clip:g} removes more than half of the weight of {listed(clipped)}, so "
            "clipped IPS is too low there: raise it (--option clip=M), or rank by off_policy+estimators=snips."
        ]

    def title(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        if metric == DCG:
            of_slates = [entry for entry in self.metrics if entry not in ESTIMATORS]
            return f"{self.title(_first_with_positions(of_slates) or self.metrics[0])}, DCG"
        if metric in RANKING_ESTIMATORS:
            words = metric.replace("reward_", "reward-").replace("pseudo_", "pseudo-").split("_")
        elif metric in ("clipped_ips", "ips", "snips", "dr", "dm"):
            words = metric.split("_")
        else:
            return metric
        return " ".join(word.upper() if word in ("ips", "snips", "dr", "dm") else word for word in words)

    def estimates_truth(self, metric: str) -> bool:
        """Return True for all metrics except the discounted cumulative gain."""
        return metric != DCG
