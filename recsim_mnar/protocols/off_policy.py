"""Off-policy evaluation: agents judged from the log of another policy."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.answers.records import with_adaptive_findings
from recsim_mnar.answers.sentence import Amounts, identified, lacks
from recsim_mnar.answers.weights import WeightTally
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import Estimate, Facts, estimate_value
from recsim_mnar.estimators.cross_fitted import ActionMeans
from recsim_mnar.estimators.rankings import RANKING_ESTIMATORS, estimate_ranking_value, ranking_estimator
from recsim_mnar.estimators.scores import ESTIMATORS, check_name
from recsim_mnar.log.table import Log
from recsim_mnar.policies.answers import checked_decisions, checked_distribution
from recsim_mnar.policies.base import Policy
from recsim_mnar.policies.rankings import as_ranking_policy
from recsim_mnar.protocols.ab_test import DCG
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.records import Record
from recsim_mnar.replays.probabilities import (
    blocks_of,
    largest_ratio,
    least_propensity,
    probability_range,
    replay,
    replay_ranking,
    replay_with_support,
    rounds_of,
    slate_size_of,
    walk,
)
from recsim_mnar.replays.truth import PolicyOnLog, policies_on_log, value_on_log

Floats = NDArray[np.float64]
FOLDS = 2


def item_rewards(log: Log, n_items: int) -> tuple[Floats, NDArray[np.int64]]:
    """Mean reward of each item, from the users of the other folds.

    Args:
        log: with bandit rows.
        n_items: items are 0 .. n_items - 1.

    Returns:
        (FOLDS, n_items) means, shrunken to the overall one, and (d,) fold of each decision's user.
    """
    decision_rows = log.is_bandit
    action = log["action"][decision_rows]
    reward = log["reward"][decision_rows]
    fold = log["user"][decision_rows] % FOLDS
    means = np.zeros((FOLDS, n_items))
    for number in range(FOLDS):
        other_folds = fold != number
        if other_folds.any():
            model = ActionMeans(n_items)
            model.fit(np.zeros((int(other_folds.sum()), 0)), action[other_folds], reward[other_folds])
            means[number] = model.means
    return means, fold


def modelled_values(log: Log, policy: Policy, means: Floats) -> Floats:
    """(d,) mean of the model under a policy at each decision of a log.

    Args:
        log: ordered by (user, step); the policy observes the users' events as logged.
        policy: that does not learn from all users.
        means: (FOLDS, n_items), of :func:`item_rewards`.
    """
    values = np.full(len(log), np.nan)
    first = 0
    for block in blocks_of(log):
        acting = policy.fresh()
        for rows in walk(block, [acting], rounds_of(block, one_by_one=False)):
            users = block["user"][rows]
            values[first + rows] = _mean_of(acting, users, means[users % FOLDS])
        first += len(block["user"])
    return values[log.is_bandit]


def _mean_of(policy: Policy, users: NDArray[np.int64], own: Floats) -> Floats:
    """Mean of each user's items (n, n_items) under what a policy would do now; all items only where it is not sure."""
    n, n_items = own.shape
    actions, propensities = checked_decisions(policy, policy.act(users, np.full(n, 0.5)), n=n, n_items=n_items)
    out: Floats = own[np.arange(n), actions]
    unsure = np.flatnonzero(propensities < 1.0)
    step = max(1, (1 << 21) // n_items)
    for begin in range(0, len(unsure), step):
        some = unsure[begin : begin + step]
        probabilities = checked_distribution(policy, policy.probabilities(users[some]), n_items, n=len(some))
        out[some] = np.einsum("ui,ui->u", probabilities, own[some])
    return out


OF_RANKINGS = ("independent_ips", "reward_interaction_ips", "slate_ips")
"""Estimators of a log of slates unless others are named; the one that assumes most is the first."""


def check_estimators(names: Sequence[str], *, ranks: bool) -> None:
    """Check estimators before anything is simulated.

    Args:
        names: of the estimators.
        ranks: whether the log is one of slates.

    Raises:
        UserError: unknown ones, such as are of single items where slates are shown, or need what only a caller has.
    """
    for name in names:
        if ranks:
            info = ranking_estimator(name)
        else:
            info = None
        if info is None:
            check_name(name)
        elif info.requires:
            usable = ", ".join(entry.name for entry in RANKING_ESTIMATORS.values() if not entry.requires)
            raise UserError(
                f"estimator {name!r} needs {info.requires[0]}, which a comparison does not have: use one of {usable}"
            )


def of_comparison(settings: Any, *, ranks: bool) -> tuple[str, ...]:
    """The estimators that a comparison's settings name, or those of slates where these are shown and none is named."""
    text = str(getattr(settings, "estimators", ""))
    if ranks and text == getattr(type(settings)(), "estimators", None):
        return OF_RANKINGS
    return tuple(name.strip() for name in text.split(",") if name.strip())


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

    Intervals are those of the estimate from sample size alone, users being the sample. Limits of the target's own
    value, which allow for what clipping may hide and the log does not cover, are ``target_low`` and ``target_high`` in
    the details; where the log lacks too much of a policy, ``identified`` says in words what is known of it.

    Args:
        log: with bandit rows.
        policies: target policies by name; they are replayed on the log.
        estimators: names of :data:`recsim_mnar.estimators.ESTIMATORS`; the metrics of the records.
        clip: largest weight of clipped_ips.
        level: of the intervals.
        world: name for the records.
        logging: the policy under which the log was collected, where it is known: then so is what the log lacks of each
            target, and support is no matter of belief.
        replayed: what :func:`recsim_mnar.replays.truth.policies_on_log` gave for these policies; they are replayed
            where it is None.
        findings: gets ``weights``, how each policy's are distributed, JSON types.
        executor: to spread users over.
        keep_raw: receives score or weighted reward of each decision, of estimators that are means of these
            (:meth:`recsim_mnar.protocols.base.Trial.keep_raw`).

    Raises:
        UserError: a log without recommendations, or with propensities that are none.
    """
    if not log.is_bandit.any():
        raise UserError("the log has no bandit rows: off-policy evaluation needs recommendations with propensities")
    if slate_size_of(log) > 1:
        return _of_rankings(log, policies, estimators, clip, level, world, logging, findings, executor)
    logger = None if logging is None or not logging.replayable else logging
    modelled = any(_needs_model(entry) for entry in estimators)
    facts = Facts(propensity_min=None if logger is None else least_propensity(logger))
    records, weights = [], []
    for name, policy in policies.items():
        began = time.perf_counter()
        most = probability_range(policy)[1]
        facts = replace(facts, target_max=most, weight_max=largest_ratio(policy, logger))
        missing = None
        if replayed is not None:
            probability, missing = replayed[name].probability, replayed[name].missing
        elif logger is not None:
            probability, missing = replay_with_support(log, policy, logger, executor=executor)
        else:
            probability = replay(log, policy, executor=executor)
        seen = _Decisions.of(log, probability, missing, clip, facts)
        if modelled:
            seen = seen.with_model(log, policy)
        tally = WeightTally(clip)
        tally.extend(seen.target / seen.propensity)
        weights.append(tally.distribution(name).to_dict())
        supported = float(np.mean(seen.target > 0.0))
        took = time.perf_counter() - began
        for estimator in estimators:
            began = time.perf_counter()
            estimate, rows = seen.estimate(estimator, level)
            scores = seen.scores(estimator)
            if keep_raw is not None and scores:
                keep_raw(estimator, name, user=seen.user, **scores)
            estimate = with_adaptive_findings(estimate, log.provenance)
            details = {**_details(estimate, supported), **rows, **_identified(name, estimate)}
            seconds = took / len(estimators) + time.perf_counter() - began
            key = (world, "off_policy", name, estimator)
            records.append(
                Record.of(*key, _sampling(estimate), level=level, n=estimate.n, seconds=seconds, details=details)
            )
    if findings is not None:
        findings["weights"] = weights
    return records


def _of_rankings(
    log: Log,
    policies: Mapping[str, Any],
    estimators: Sequence[str],
    clip: float,
    level: float,
    world: str,
    logging: Any,
    findings: MutableMapping[str, Any] | None,
    executor: Executor | None,
) -> list[Record]:
    """The records of :func:`off_policy` from a log of slates.

    A value is per item shown; by the first estimator that can weigh positions there is the discounted cumulative gain
    per slate, too.
    """
    decision_rows = log.is_bandit
    size = slate_size_of(log)
    records = []
    weights = []
    logged = {name: values[decision_rows] for name, values in log.columns.items()}
    exact = logging is not None and least_propensity(as_ranking_policy(logging, size)) is not None
    clipped = [entry for entry in estimators if ranking_estimator(entry).clipped]
    first = _of_gains(estimators)
    for name, policy in policies.items():
        began = time.perf_counter()
        replayed = replay_ranking(log, policy, executor=executor)
        target = {kind: values[decision_rows] for kind, values in replayed.items()}
        value = functools.partial(
            estimate_ranking_value, logged, target, level=level, full_support=True if exact else None
        )
        estimates: dict[str, Estimate] = {}
        for group in (clipped, [entry for entry in estimators if entry not in clipped]):
            if group:
                estimates |= value(estimators=group, clip=clip if group is clipped else None)
        estimates = {entry: estimates[entry] for entry in estimators}
        if first is not None:
            if first in clipped:
                most = clip
            else:
                most = None
            estimates[DCG] = value(estimators=first, position_weights=DCG, clip=most)[first]
        tally = WeightTally(clip)
        tally.extend(target["marginal"] / logged["propensity"])
        weights.append(tally.distribution(name).to_dict())
        took = time.perf_counter() - began
        for estimator, estimate in estimates.items():
            details = _details(estimate, float(np.mean(target["marginal"] > 0.0)))
            key = (world, "off_policy", name, estimator)
            seconds = took / len(estimates)
            records.append(
                Record.of(*key, _sampling(estimate), level=level, n=estimate.n, seconds=seconds, details=details)
            )
    if findings is not None:
        findings["weights"] = weights
    return records


def _of_gains(estimators: Sequence[str]) -> str | None:
    """The estimator of the discounted cumulative gain: the first one that does not forget the order of a slate."""
    return next((estimator for estimator in estimators if ranking_estimator(estimator).weight != "set"), None)


def _sampling(estimate: Estimate) -> tuple[float, float, float]:
    """Value and interval of an estimate's expectation, users being the sample: what clipping hides is not part of it.

    An end is moved to the value where rounding, or an interval that knows the range of rewards, leaves the value out.
    """
    numbers = estimate.numbers()
    low = numbers["sampling_low"]
    high = numbers["sampling_high"]
    return estimate.value, min(low, estimate.value), max(high, estimate.value)


def _details(estimate: Estimate, share_supported: float) -> Mapping[str, object]:
    """List further numbers of an estimate.

    ``target_low`` and ``target_high`` allow for clipping and missing support.
    """
    limits = {"target_low": estimate.low, "target_high": estimate.high}
    return {
        "method": estimate.method,
        **estimate.verdict.to_dict(),
        "ess": estimate.ess,
        "share_supported": share_supported,
        **limits,
        **estimate.numbers(),
    }


def _needs_model(estimator: str) -> bool:
    """True for an estimator that reads a reward model."""
    return bool({"q_logged", "q_target"} & set(check_name(estimator).needs))


def _identified(agent: str, estimate: Estimate) -> dict[str, str]:
    """Describe the log's partial knowledge of an agent that it covers too little for a value; empty for others."""
    own_fields = {name: getattr(estimate, name) for name in ("value", "low", "high", "level")}
    record = {"policy": agent, **own_fields, "diagnostics": estimate.numbers(), **estimate.verdict.to_dict()}
    if not lacks(record):
        return {}
    return {"identified": identified(record, Amounts.of([record]))}


@dataclass(frozen=True)
class _Decisions:
    """All decisions of a log, and a policy's probability of each."""

    reward: NDArray[np.float64]
    propensity: NDArray[np.float64]
    user: NDArray[np.int64]
    target: NDArray[np.float64]
    clip: float
    facts: Facts
    q_logged: NDArray[np.float64] | None = None
    q_target: NDArray[np.float64] | None = None

    def with_model(self, log: Log, policy: Policy) -> _Decisions:
        """With the reward model that doubly robust estimators read."""
        means, fold = item_rewards(log, policy.n_items)
        logged = means[fold, log["action"][log.is_bandit]]
        return replace(self, q_logged=logged, q_target=modelled_values(log, policy, means))

    @staticmethod
    def of(
        log: Log, probability: NDArray[np.float64], missing: NDArray[np.float64] | None, clip: float, facts: Facts
    ) -> _Decisions:
        """Make one of columns (n,) of the log's rows."""
        decision_rows = log.is_bandit
        reward, propensity, user = (log[name][decision_rows] for name in ("reward", "propensity", "user"))
        if missing is None:
            lost = None
        else:
            lost = missing[decision_rows]
        return _Decisions(reward, propensity, user, probability[decision_rows], clip, replace(facts, unsupported=lost))

    def estimate(self, estimator: str, level: float) -> tuple[Estimate, dict[str, float]]:
        """The estimate, and what intervals by row are made of (see :func:`_by_row`)."""
        info = check_name(estimator)
        clip = self.clip if info.clips else None
        if info.needs:
            model = (self.q_logged, self.q_target)
        else:
            model = None
        estimate = estimate_value(
            self.reward,
            self.propensity,
            self.target,
            estimator=estimator,
            clip=clip,
            cluster=self.user,
            level=level,
            facts=self.facts,
            model=model,
        )
        return estimate, _by_row(self.reward, self.propensity, self.target, clip)

    def scores(self, estimator: str) -> dict[str, NDArray[np.float64]]:
        """Values, and weights where there are any, of which an estimate is the mean; empty of other estimators."""
        weight = self.target / self.propensity
        if estimator == "snips":
            return {"value": self.reward, "weight": weight}
        if estimator == "ips":
            return {"value": weight * self.reward}
        if estimator == "clipped_ips":
            return {"value": np.minimum(weight, self.clip) * self.reward}
        if self.q_target is None or self.q_logged is None:
            return {}
        scores = {"dm": self.q_target, "dr": self.q_target + weight * (self.reward - self.q_logged)}
        if estimator in scores:
            return {"value": scores[estimator]}
        return {}


def _by_row(
    reward: NDArray[np.float64], propensity: NDArray[np.float64], target: NDArray[np.float64], clip: float | None
) -> dict[str, float]:
    """Compute intervals that take rows as independent, as Jeunen et al. 2019 do.

    ``row_sd`` is the standard deviation of a row's weighted reward, ``kish`` the effective size of the weights in use.
    """
    weight = np.minimum(target / propensity, np.inf if clip is None else clip)
    squares = float(weight @ weight)
    if squares > 0:
        kish = float(weight.sum()) ** 2 / squares
    else:
        kish = 0.0
    return {"row_sd": float(np.std(weight * reward)), "kish": kish}


class OffPolicy(Protocol):
    """Off-policy estimates from the test log.

    Args:
        estimators: names of :data:`recsim_mnar.estimators.ESTIMATORS`, of slates of
            :data:`RANKING_ESTIMATORS`; agents are ranked by each of them. By default those of the comparison's
            settings.
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
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`; details hold exact values in the log's states.

        How the weights are distributed goes to the study's findings.
        """
        sizes = study.settings
        ranks = study.world.slate_size > 1
        estimators = self.estimators or of_comparison(sizes, ranks=ranks)
        check_estimators(estimators, ranks=ranks)
        if not self.estimators and self.metrics[0] not in estimators:
            self.metrics = estimators
        study.report("off-policy estimates from the log")
        log = study.log()
        began = time.perf_counter()
        policies = None
        if log.is_bandit.any() and not ranks:
            policies = policies_on_log(
                study.world, log, study.policies, study.logging_policy, study.test_seed, executor=study.executor
            )
        shared = (time.perf_counter() - began) / max(1, len(study.policies) * len(estimators))
        study.findings["clip"] = sizes.clip
        records = off_policy(
            log,
            study.policies,
            estimators=estimators,
            clip=sizes.clip,
            level=study.level,
            world=study.world.name,
            logging=study.logging_policy,
            replayed=policies,
            findings=study.findings,
            executor=study.executor,
            keep_raw=None if study.raw is None else functools.partial(study.keep_raw, self.name),
        )
        if policies is None:
            exact = value_on_log(study.world, log, study.policies, study.test_seed, executor=study.executor)
        else:
            exact = {name: of_policy.value for name, of_policy in policies.items()}
        return [
            replace(
                r,
                protocol=self.name,
                seconds=r.seconds + shared,
                details={**r.details, "value_on_log": exact[r.agent]},
            )
            for r in records
        ]

    def title(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        if metric in RANKING_ESTIMATORS:
            words = metric.replace("reward_", "reward-").replace("pseudo_", "pseudo-").split("_")
            return " ".join(word.upper() if word in ("ips", "snips", "dr") else word for word in words)
        if metric == DCG:
            of_slates = [entry for entry in self.metrics if entry not in ESTIMATORS]
            return f"{self.title(_of_gains(of_slates) or self.metrics[0])}, DCG"
        return {"clipped_ips": "clipped IPS", "ips": "IPS", "snips": "SNIPS", "dr": "DR", "dm": "DM"}.get(
            metric, metric
        )

    def estimates_truth(self, metric: str) -> bool:
        """True for all but discounted cumulative gains."""
        return metric != DCG
