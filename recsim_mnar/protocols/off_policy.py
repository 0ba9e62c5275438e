"""Off-policy evaluation: agents judged from the log of another policy."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import estimate_value
from recsim_mnar.estimators.off_policy.adaptive import with_adaptive_findings
from recsim_mnar.log.table import Log
from recsim_mnar.policy.base import Policy
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.records import Record
from recsim_mnar.replay import replay, replay_with_support
from recsim_mnar.truth import value_on_log


def off_policy(
    log: Log,
    policies: Mapping[str, Policy],
    *,
    estimators: Sequence[str] = ("clipped_ips", "ips", "snips"),
    clip: float = 15.0,
    level: float = 0.95,
    world: str = "sessions",
    logging: Policy | None = None,
    executor: Executor | None = None,
) -> list[Record]:
    """Estimate each policy's value from a log, with the rows of a user treated as dependent.

    Args:
        log: with bandit rows.
        policies: target policies by name; they are replayed on the log.
        estimators: names of :data:`recsim_mnar.estimators.ESTIMATORS`; the metrics of the records.
        clip: largest weight of clipped_ips.
        level: of the intervals, which cover the target's value in the states of the log.
        world: name for the records.
        logging: the policy under which the log was collected, where it is known: then so is what the log lacks of each
            target, and support is no matter of belief.
        executor: to spread users over.

    Raises:
        UserError: a log without recommendations, or with propensities that are none.
    """
    shown = log.is_bandit
    if not shown.any():
        raise UserError("the log has no bandit rows: off-policy evaluation needs recommendations with propensities")
    reward, propensity, user = log["reward"][shown], log["propensity"][shown], log["user"][shown]
    records = []
    for name, policy in policies.items():
        began = time.perf_counter()
        lost = None
        if logging is None or not logging.replayable:
            target = replay(log, policy, executor=executor)[shown]
        else:
            probability, missing = replay_with_support(log, policy, logging, executor=executor)
            target, lost = probability[shown], missing[shown]
        replayed = time.perf_counter() - began
        for estimator in estimators:
            began = time.perf_counter()
            limit = clip if estimator.startswith("clipped") else None
            estimate = estimate_value(
                reward,
                propensity,
                target,
                estimator=estimator,
                clip=limit,
                cluster=user,
                level=level,
                unsupported=lost,
            )
            estimate = with_adaptive_findings(estimate, log.provenance)
            details = {
                "method": estimate.method,
                **estimate.verdict.to_dict(),
                "ess": estimate.ess,
                "share_supported": float(np.mean(target > 0)),
                **estimate.diagnostics,
                **_by_row(reward, propensity, target, limit),
            }
            seconds = replayed / len(estimators) + time.perf_counter() - began
            records.append(
                Record(
                    world=world,
                    protocol="off_policy",
                    agent=name,
                    metric=estimator,
                    value=estimate.value,
                    low=estimate.low,
                    high=estimate.high,
                    level=level,
                    n=estimate.n,
                    seconds=seconds,
                    details=details,
                )
            )
    return records


def _by_row(
    reward: NDArray[np.float64], propensity: NDArray[np.float64], target: NDArray[np.float64], clip: float | None
) -> dict[str, float]:
    """What intervals that take rows as independent are made of, as Jeunen et al. 2019 do.

    ``row_sd`` is the standard deviation of a row's weighted reward, ``kish`` the effective size of the weights in use.
    """
    weight = np.minimum(target / propensity, np.inf if clip is None else clip)
    squares = float(weight @ weight)
    kish = float(weight.sum()) ** 2 / squares if squares > 0 else 0.0
    return {"row_sd": float(np.std(weight * reward)), "kish": kish}


class OffPolicy(Protocol):
    """Off-policy estimates from the test log.

    Args:
        estimators: names of :data:`recsim_mnar.estimators.ESTIMATORS`; agents are ranked by each of them. By default
            those of the comparison's settings.
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
        """See :meth:`recsim_mnar.protocols.base.Protocol.judge`; details hold the exact value in the log's states."""
        sizes = study.settings
        estimators = self.estimators or tuple(sizes.estimators.split(","))
        if not self.estimators and self.metrics[0] not in estimators:
            self.metrics = estimators
        study.report("off-policy estimates from the log")
        log = study.log()
        records = off_policy(
            log,
            study.policies,
            estimators=estimators,
            clip=sizes.clip,
            level=study.level,
            world=study.world.name,
            logging=study.logging_policy,
            executor=study.executor,
        )
        exact = value_on_log(study.world, log, study.policies, study.test_seed, executor=study.executor)
        return [replace(r, protocol=self.name, details={**r.details, "value_on_log": exact[r.agent]}) for r in records]

    def title(self, metric: str) -> str:
        """See :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return {"clipped_ips": "clipped IPS", "ips": "IPS", "snips": "SNIPS"}.get(metric, metric)

    def heading(self, metric: str) -> str:
        """See :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        return self.title(metric)
