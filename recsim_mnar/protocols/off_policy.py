"""Off-policy evaluation: agents judged from the log of another policy."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import estimate_value
from recsim_mnar.log.table import Log
from recsim_mnar.policy.base import Policy
from recsim_mnar.protocols.records import Record
from recsim_mnar.replay import missing_mass, replay


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
        target = replay(log, policy, executor=executor)[shown]
        lost = None if logging is None else missing_mass(log, policy, logging, executor=executor)[shown]
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
                    world,
                    "off_policy",
                    name,
                    estimator,
                    estimate.value,
                    estimate.low,
                    estimate.high,
                    level,
                    estimate.n,
                    seconds,
                    details,
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
