"""The uplift protocol: lists judged from a log alone, by the metrics of Sato et al. (2019)."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.uplift import LIST_METRICS, evaluate_lists
from recsim_mnar.estimators.verdict import Estimate
from recsim_mnar.log.exposures import Exposures
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.records import Record
from recsim_mnar.simulation.executor import carrying, run_in_order

Ints = NDArray[np.int64]

TITLES = {
    "precision": "Precision",
    "precision_recommended": "Precision (recommended)",
    "uplift": "Uplift",
    "uplift_snips": "UpliftSNIPS",
    "uplift_ips": "UpliftIPS",
    "uplift_pooled": "UpliftSNIPS (pooled)",
}


def title(metric: str) -> str:
    """``uplift_snips@10`` as papers write it: UpliftSNIPS@10."""
    name, at, length = metric.partition("@")
    return TITLES.get(name, name) + at + length


class Uplift(Protocol):
    """Precision and uplift of an agent's lists in further periods of the deployed recommender's log."""

    name = "uplift"
    summary = "precision and the uplift metrics of lists, from a further log (purchases)"
    metrics = tuple(LIST_METRICS)
    needs = frozenset({"exposures"})

    def judge(self, study: Trial) -> list[Record]:
        """See :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        sizes, own, exposures = study.settings, study.data, study.exposures
        assert exposures is not None
        study.report(f"offline metrics, {sizes.test_periods} further periods")
        periods = range(own.first, own.last)
        offline = carrying(_offline, exposures)
        jobs = [functools.partial(offline, own.lists[name], periods, sizes, name)
                for name in own.rankings]  # fmt: skip
        records = []
        for name, (estimates, seconds) in zip(own.rankings, run_in_order(jobs, study.executor), strict=True):
            details = own.rankings[name].details
            records += [
                record_of(self.name, name, f"{metric}@{sizes.length}", estimate, seconds, details)
                for metric, estimate in estimates.items()
            ]
        return records

    def title(self, metric: str) -> str:
        """See :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return title(metric)

    def heading(self, metric: str) -> str:
        """See :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        return title(metric)


def record_of(
    protocol: str, agent: str, metric: str, estimate: Estimate, seconds: float, details: dict[str, Any]
) -> Record:
    """A record of an estimate, which its details describe."""
    more = {**estimate.diagnostics, "method": estimate.method, "ess": estimate.ess, **estimate.verdict.to_dict()}
    return Record(
        world="purchases",
        protocol=protocol,
        agent=agent,
        metric=metric,
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        level=estimate.level,
        n=estimate.n,
        seconds=seconds,
        details={**more, **details},
    )


def _offline(
    exposures: Exposures, lists: Ints, periods: Sequence[int], settings: Any, name: str
) -> tuple[dict[str, Estimate], float]:
    began = time.perf_counter()
    try:
        found = evaluate_lists(
            exposures,
            lists,
            metrics=settings.metrics.split(","),
            periods=periods,
            clip=1.0 / settings.clip if settings.clip else 0.0,
            level=settings.level,
        )
    except UserError as error:
        raise UserError(f"agent {name!r}: {error}") from None
    return found, time.perf_counter() - began
