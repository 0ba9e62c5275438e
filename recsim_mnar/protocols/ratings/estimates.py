"""Naive, IPS and SNIPS estimates from revealed ratings as protocols (Schnabel et al. 2016, equations 3, 4 and 6)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.propensities import LIMITS, balance, naive_bayes, popularity
from recsim_mnar.estimators.ratings import Loss, check_propensities, estimate_ratings, loss, ranks
from recsim_mnar.log import schema
from recsim_mnar.log.ratings import Floats, Ratings
from recsim_mnar.log.rows import steps_within
from recsim_mnar.log.table import Log
from recsim_mnar.policies.base import Policy
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.records import Record
from recsim_mnar.rng import Stream, uniforms
from recsim_mnar.worlds.ratings.observation import observe
from recsim_mnar.worlds.ratings.world import RatingsWorld

ERRORS = ("mse", "mae")
"""Losses of predicted ratings, which only agents that predict ratings have."""

Fit = Callable[[Ratings, NDArray[np.int64]], Floats]


@dataclass(frozen=True)
class Revealed:
    """Revealed ratings, the truth behind them, and what every agent makes of the users.

    Attributes:
        matrix: (U, I) all ratings: truth.
        ratings: the revealed ones that estimates read, n of them.
        known: (n,) propensities with which they were revealed.
        estimated: how they are estimated from data, a fit that :func:`estimate_ratings` repeats in resamples.
        losses: by agent and metric, delta of every cell.
    """

    matrix: Floats
    ratings: Ratings
    known: Floats
    estimated: Fit
    losses: dict[str, dict[str, Loss]]


def reveal(world: RatingsWorld, users_seed: int, n_users: int, seed: int) -> tuple[Floats, Ratings, Floats]:
    """All ratings of the users of a seed, those revealed in a draw of its own, and their propensities.

    The draw is independent of what agents learnt from, so that the propensity of a cell is the same whether its rating
    was learnt from or not.
    """
    users = np.arange(n_users)
    matrix = np.asarray(world.ratings_of(users_seed, users), np.float64)
    p = world.propensities_of(users, matrix)
    revealed = observe(p, seed)
    ratings = Ratings.from_dense(matrix, revealed)
    return matrix, ratings, ratings.at(p, "the propensities")


def log_of(ratings: Ratings, propensities: Floats, provenance: dict[str, Any]) -> Log:
    """Revealed ratings as organic rows."""
    order = np.lexsort((ratings.items, ratings.users))
    user = ratings.users[order]
    step = steps_within(user)
    columns: dict[str, NDArray[Any]] = {
        "user": user,
        "step": step,
        "time": step.astype(np.float64),
        "event": np.full(len(user), schema.ORGANIC),
        "item": ratings.items[order],
        "reward": ratings.values[order],
        "observation_propensity": np.asarray(propensities)[order],
    }
    return Log(columns, provenance)


def propensity_fit(ratings: Ratings, matrix: Floats, method: str, n_random: int, seed: int) -> Fit:
    """How propensities of revealed ratings are estimated (section 5.1 of Schnabel et al. 2016).

    Args:
        ratings: revealed.
        matrix: (U, I) truth, from which the random ratings are read.
        method: "naive_bayes", from ``n_random`` ratings of cells drawn uniformly, or "popularity" of the item.
        n_random: see ``method``.
        seed: of the cells.
    """
    if method == "popularity":
        return _popularity
    draws = np.arange(n_random)
    cells = (uniforms(seed, Stream.PROTOCOL, draws, 0) * matrix.size).astype(np.int64)
    return naive_bayes(ratings, matrix.ravel()[cells])


def _popularity(ratings: Ratings, users: NDArray[np.int64]) -> Floats:
    return popularity(ratings)


def balance_notes(own: Revealed, train: Log) -> list[str]:
    """Balance of what users revealed earlier, how many ratings and how high; why there is none for naive Bayes."""
    if own.estimated is not _popularity:
        return [f"Naive Bayes has propensities of revealed ratings only, so no covariate can be compared. {LIMITS}"]
    earlier = train.organic()
    counts = np.bincount(earlier["user"], minlength=own.ratings.n_users)
    sums = np.bincount(earlier["user"], earlier["reward"], own.ratings.n_users)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), sums.sum() / max(counts.sum(), 1))
    names = ("ratings that the user revealed before", "their mean")
    found = balance(own.ratings, popularity(own.ratings), np.stack([counts, means], axis=1), names=names)
    return ["Balance of the estimated propensities, simultaneous 95 % intervals:", *str(found).splitlines()]


def losses_of(policy: Policy, scores: Floats, k: int, seed: int) -> dict[str, Loss]:
    """DCG@k of an agent's ranking, and the errors of its predictions where it predicts ratings.

    Args:
        policy: whose scores these are.
        scores: (U, I); -inf ranks last.
        k: of DCG.
        seed: of the draws that break ties.
    """
    finite = np.isfinite(scores)
    lowest = float(scores[finite].min()) if finite.any() else 0.0
    filled = np.where(finite, scores, lowest - 1.0)
    found = {f"dcg@{k}": loss("dcg@k", filled, k=k, ranking=ranks(filled, seed=seed))}
    if policy.predicts_ratings:
        found |= {metric: loss(metric, filled) for metric in ERRORS}
    return found


class RatingEstimate(Protocol):
    """One estimator of every metric from the revealed ratings."""

    metrics = ("dcg", "mse", "mae")
    needs = frozenset({"ratings"})
    estimator: ClassVar[str] = "naive"
    estimated: ClassVar[bool] = False
    words: ClassVar[str] = ""

    def judge(self, study: Trial) -> list[Record]:
        """See :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        study.report(f"{self.name} from revealed ratings")
        own: Revealed = study.data
        if len(own.ratings) == 0:
            raise UserError("no user revealed a rating: raise density, or train_users")
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
                key, value = (study.world.name, self.name, agent, metric), getattr(found, self.estimator)
                records.append(
                    Record.of(
                        *key, (value, low, high), level=study.level, n=len(own.ratings),
                        seconds=time.perf_counter() - began, details={} if self.estimator == "naive" else details,
                    )
                )  # fmt: skip
        return records

    def title(self, metric: str) -> str:
        """See :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        more = " with estimated propensities" if self.estimated else ""
        return f"{self.words}{more} of {metric.upper()}"

    def heading(self, metric: str) -> str:
        """See :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        named = self.words if self.estimator != "naive" else "naive"
        return f"{metric.upper()}, {named}{', estimated P' if self.estimated else ''}"


class Naive(RatingEstimate):
    """The mean over the revealed ratings, as if they were revealed at random."""

    name = "naive"
    summary = "mean over the revealed ratings, as if revealed at random (ratings)"
    words = "the naive estimate"


class IPS(RatingEstimate):
    """Revealed ratings weighted by 1 / P, P known."""

    name = "ips"
    summary = "revealed ratings weighted by known propensities (ratings)"
    estimator = "ips"
    words = "IPS"


class SNIPS(RatingEstimate):
    """IPS over the sum of its weights, P known."""

    name = "snips"
    summary = "self-normalised IPS, known propensities (ratings)"
    estimator = "snips"
    words = "SNIPS"


class IPSEstimated(IPS):
    """Revealed ratings weighted by 1 / P, P estimated, with its error in the interval."""

    name = "ips_estimated"
    summary = "IPS with estimated propensities (ratings)"
    estimated = True


class SNIPSEstimated(SNIPS):
    """IPS over the sum of its weights, P estimated.

    Naive Bayes makes the weights sum to U I by itself, as long as none of its propensities is cut at 1: the value is
    then that of ``ips_estimated``, with an interval of its own.
    """

    name = "snips_estimated"
    summary = "self-normalised IPS with estimated propensities (ratings)"
    estimated = True
