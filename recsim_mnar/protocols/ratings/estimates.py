"""Naive, IPS and SNIPS estimates of MSE, MAE and DCG@k as protocols (Schnabel et al. 2016, equations 3, 4 and 6)."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.ratings import check_propensities, estimate_ratings
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.ratings.revealed import Revealed
from recsim_mnar.protocols.records import Record


class RatingEstimate(Protocol):
    """One estimator of every metric from the revealed ratings."""

    metrics = ("dcg", "mse", "mae")
    needs = frozenset({"ratings"})
    estimator: ClassVar[str] = "naive"
    estimated: ClassVar[bool] = False
    words: ClassVar[str] = ""
    short: ClassVar[str] = ""

    def judge(self, study: Trial) -> list[Record]:
        """See :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        study.report(f"{self.words} from revealed ratings")
        own: Revealed = study.data
        if len(own.ratings) == 0:
            raise UserError("nobody revealed a rating: raise density, or train_users")
        given = own.estimated if self.estimated else own.known
        clip = 1.0 / study.settings.clip if study.settings.clip else 0.0
        seed = study.seed_of("resamples")
        smallest = max(float(check_propensities(own.ratings, given).min()), clip)
        records = []
        for agent, losses in own.losses.items():
            for metric, delta in losses.items():
                began = time.perf_counter()
                found = estimate_ratings(delta, own.ratings, given, clip=clip, level=study.level, seed=seed)
                low, high = found.intervals[self.estimator]
                details: dict[str, Any] = {"ess": found.effective_n, "smallest_propensity": smallest}
                if self.estimator == "ips":
                    details |= found.verdict.to_dict()
                records.append(
                    Record(
                        world=study.world.name,
                        protocol=self.name,
                        agent=agent,
                        metric=metric,
                        value=getattr(found, self.estimator),
                        low=low,
                        high=high,
                        level=study.level,
                        n=len(own.ratings),
                        seconds=time.perf_counter() - began,
                        details={} if self.estimator == "naive" else details,
                    )
                )
        return records

    def title(self, metric: str) -> str:
        """See :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return f"{self.words} of {metric.upper()}"

    def heading(self, metric: str) -> str:
        """See :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        return f"{metric.upper()}, {self.short}"


class Naive(RatingEstimate):
    """The mean over the revealed ratings, as if they were revealed at random."""

    name = "naive"
    summary = "mean over the revealed ratings, as if revealed at random (ratings)"
    words = "the naive estimate"
    short = "naive"


class IPS(RatingEstimate):
    """Revealed ratings weighted by 1 / P, P known."""

    name = "ips"
    summary = "revealed ratings weighted by known propensities (ratings)"
    estimator = "ips"
    words = "IPS"
    short = "IPS"


class SNIPS(RatingEstimate):
    """IPS over the sum of its weights, P known."""

    name = "snips"
    summary = "self-normalised IPS, known propensities (ratings)"
    estimator = "snips"
    words = "SNIPS"
    short = "SNIPS"


class IPSEstimated(RatingEstimate):
    """Revealed ratings weighted by 1 / P, P estimated, with its error in the interval."""

    name = "ips_estimated"
    summary = "IPS with estimated propensities (ratings)"
    estimator = "ips"
    estimated = True
    words = "IPS with estimated propensities"
    short = "IPS, estimated P"


class SNIPSEstimated(RatingEstimate):
    """IPS over the sum of its weights, P estimated.

    Naive Bayes makes the weights sum to U I by itself, as long as none of its propensities is cut at 1: the value is
    then that of ``ips_estimated``, with an interval of its own.
    """

    name = "snips_estimated"
    summary = "self-normalised IPS with estimated propensities (ratings)"
    estimator = "snips"
    estimated = True
    words = "SNIPS with estimated propensities"
    short = "SNIPS, estimated P"
