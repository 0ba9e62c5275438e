"""The ratings world's comparison: naive, IPS and SNIPS estimates from revealed ratings, and the full matrix.

The estimates are those of Schnabel et al. 2016, equations 3, 4 and 6.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.ratings import (
    Loss,
    check_propensities,
    estimate_ratings,
    loss,
    naive_bayes,
    popularity,
    ranks,
)
from recsim_mnar.kernels.checks import level_of, one_of, whole_number
from recsim_mnar.log.columns import Ints
from recsim_mnar.log.ratings import Floats, Ratings, log_of_ratings
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.policies.base import Policy
from recsim_mnar.policies.door import fitted
from recsim_mnar.protocols.base import Experiment, Protocol, Trial
from recsim_mnar.protocols.ranks import scores_of_everyone
from recsim_mnar.protocols.records import Record, Target, truth_of_users
from recsim_mnar.rng import Stream, derive_seed, uniforms
from recsim_mnar.simulation.executor import checked_users
from recsim_mnar.simulation.items import simulate
from recsim_mnar.worlds.params import Params
from recsim_mnar.worlds.ratings.observation import observe
from recsim_mnar.worlds.ratings.world import RatingsWorld

ERRORS = ("mse", "mae")
"""Losses of predicted ratings, which only agents that predict ratings have."""

Fit = Callable[[Ratings, Ints], Floats]


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


def propensity_fit(ratings: Ratings, matrix: Floats, method: str, n_random: int, seed: int) -> Fit:
    """Estimate propensities of revealed ratings (section 5.1 of Schnabel et al. 2016).

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


def _popularity(ratings: Ratings, users: Ints) -> Floats:
    return popularity(ratings)


def losses_of(policy: Policy, scores: Floats, k: int, seed: int) -> dict[str, Loss]:
    """DCG@k of an agent's ranking, and the errors of its predictions where it predicts ratings.

    Args:
        policy: whose scores these are.
        scores: (U, I); -inf ranks last.
        k: of DCG.
        seed: of the draws that break ties.
    """
    finite = np.isfinite(scores)
    if finite.any():
        lowest = float(scores[finite].min())
    else:
        lowest = 0.0
    filled = np.where(finite, scores, lowest - 1.0)
    losses = {f"dcg@{k}": loss("dcg@k", filled, k=k, ranking=ranks(filled, seed=seed))}
    if policy.predicts_ratings:
        losses |= {metric: loss(metric, filled) for metric in ERRORS}
    return losses


class RatingEstimate(Protocol):
    """One estimator of every metric from the revealed ratings."""

    metrics = ("dcg", "mse", "mae")
    needs = frozenset({"ratings"})
    estimator: ClassVar[str] = "naive"
    estimated: ClassVar[bool] = False
    words: ClassVar[str] = ""

    def judge(self, study: Trial) -> list[Record]:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        study.report(f"{self.name} from revealed ratings")
        revealed: Revealed = study.data
        if len(revealed.ratings) == 0:
            raise UserError("no user revealed a rating: raise density, or train_users")
        propensities = revealed.estimated if self.estimated else revealed.known
        if study.settings.clip:
            clip = 1.0 / study.settings.clip
        else:
            clip = 0.0
        seed = study.seed_of("resamples")
        smallest = max(float(check_propensities(revealed.ratings, propensities).min()), clip)
        records = []
        for agent, losses in revealed.losses.items():
            for metric, delta in losses.items():
                began = time.perf_counter()
                estimates = estimate_ratings(
                    delta, revealed.ratings, propensities, clip=clip, level=study.level, seed=seed
                )
                low, high = estimates.intervals[self.estimator]
                if not self.estimated:
                    self._keep_raw(study, agent, metric, delta, revealed, clip)
                details: dict[str, object] = {"ess": estimates.effective_n, "smallest_propensity": smallest}
                if self.estimator == "ips":
                    details |= estimates.verdict.to_dict()
                key = (study.world.name, self.name, agent, metric)
                value = getattr(estimates, self.estimator)
                records.append(
                    Record.of(
                        *key,
                        (value, low, high),
                        level=study.level,
                        n=len(revealed.ratings),
                        seconds=time.perf_counter() - began,
                        details={} if self.estimator == "naive" else details,
                    )
                )
        return records

    def _keep_raw(self, study: Trial, agent: str, metric: str, delta: Loss, own: Revealed, clip: float) -> None:
        """Loss of each revealed rating, weighted as the estimator weighs it."""
        if study.raw is None:
            return
        ratings = own.ratings
        losses = delta.at(ratings.users, ratings.items, ratings.values)
        if self.estimator == "naive":
            weights = np.ones(len(losses))
        else:
            weights = 1.0 / np.maximum(own.known, clip)
        if self.estimator == "ips":  # a sum over the matrix, and no ratio
            losses = losses * weights * (len(losses) / own.matrix.size)
            weights = np.ones(len(losses))
        study.keep_raw(self.name, metric, agent, user=ratings.users, value=losses, weight=weights)

    def estimates_truth(self, metric: str) -> bool:
        """True: every metric is an estimate of that of the full matrix."""
        return True

    def title(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        if self.estimated:
            return f"{self.words} (est. P)"
        return self.words

    def heading(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        return f"{metric.upper()}, {self.title(metric)}"


class Naive(RatingEstimate):
    """Mean over the revealed ratings, as if they were revealed at random."""

    name = "naive"
    summary = "mean over the revealed ratings, as if revealed at random (ratings)"
    words = "naive"


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


PROPENSITIES = ("naive_bayes", "popularity")


@dataclass(frozen=True)
class RatingsSettings(Params):
    """Sizes of a comparison in the ratings world.

    Attributes:
        users: who reveal ratings, once to learn from and once to judge by.
        k: of DCG@k.
        propensities: how they are estimated: ``naive_bayes`` or ``popularity``.
        random_ratings: ratings of uniformly drawn cells that naive Bayes sees too.
        clip: largest inverse propensity; 0 for none.
        level: of all intervals.
    """

    users: int = 1000
    k: int = 10
    propensities: str = "naive_bayes"
    random_ratings: int = 1000
    clip: float = 0.0
    level: float = 0.95

    def check(self) -> None:
        """Refuse sizes that cannot be."""
        for name, value in (("train_users", self.users), ("random_ratings", self.random_ratings)):
            if checked_users(name, value) < 2:
                raise UserError(f"{name} must be at least 2, got {value}")
        whole_number(self.k, "k", 1)
        one_of(self.propensities, "propensities", PROPENSITIES)
        if self.clip != 0 and not self.clip >= 1:
            raise UserError(f"clip must be at least 1, the smallest inverse propensity, or 0, got {self.clip:g}")
        level_of(self.level)


class RatingsExperiment(Experiment):
    """The same users reveal their ratings twice, in independent draws of the same propensities.

    Agents learn from the first revealing (and from what the users answered to uniform recommendations), estimates read
    the second, and the truth is every agent's loss or DCG over the whole matrix. Agents that predict ratings are judged
    by MSE and MAE; all agents by DCG@k of their rankings.
    """

    settings_type = RatingsSettings
    presets: ClassVar = {"quick": {"users": 500, "random_ratings": 500}}
    aliases: ClassVar = {"train_users": "users", "length": "k"}
    agents = ("random", "popularity", "item-knn", "svd", "mf-naive-ratings", "mf-ips-ratings")
    protocols = ("naive", "ips", "snips", "ips_estimated", "snips_estimated")
    own_protocols: ClassVar = {
        "naive": "recsim_mnar.protocols.ratings:Naive",
        "ips": "recsim_mnar.protocols.ratings:IPS",
        "snips": "recsim_mnar.protocols.ratings:SNIPS",
        "ips_estimated": "recsim_mnar.protocols.ratings:IPSEstimated",
        "snips_estimated": "recsim_mnar.protocols.ratings:SNIPSEstimated",
    }
    provides = frozenset({"train_log", "test_log", "ratings"})

    def targets(self, settings: RatingsSettings) -> tuple[Target, ...]:
        """Implement :meth:`Experiment.targets`."""
        dcg = Target(f"dcg@{settings.k}", f"DCG@{settings.k}")
        return (dcg, *(Target(metric, metric.upper(), larger=False) for metric in ERRORS))

    def prepare(self, trial: Trial) -> None:
        """Implement :meth:`Experiment.prepare`."""
        world = trial.world
        sizes = trial.settings
        assert isinstance(world, RatingsWorld)
        if sizes.k > world.n_items:
            raise UserError(f"k = {sizes.k} of DCG@k is larger than the number of items, {world.n_items}")
        trial.report(f"{sizes.users:,} users reveal ratings; fit {len(trial.learners)} agents")
        users_seed = trial.seed_of("users")
        uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
        trial.train_log = train = simulate(world, uniform, sizes.users, users_seed, executor=trial.executor)
        matrix, ratings, propensities = reveal(world, users_seed, sizes.users, trial.seed_of("test"))
        estimated = propensity_fit(
            ratings, matrix, sizes.propensities, sizes.random_ratings, trial.seed_of("random_ratings")
        )
        losses = {}
        for name, learner in trial.learners.items():
            policy = trial.policies[name] = fitted(learner, train, n_items=world.n_items, seed=trial.seed_of("fit"))
            scores = scores_of_everyone(name, policy.fresh(), train, sizes.users)
            losses[name] = losses_of(policy, scores, sizes.k, derive_seed(trial.seed, f"ties/{name}"))
        trial.test_log = log_of_ratings(ratings, propensities, {"world": world.describe(), "seed": users_seed})
        trial.data = Revealed(matrix, ratings, propensities, estimated, losses)

    def truth(self, trial: Trial) -> list[Record]:
        """Every metric over the whole matrix, a mean over users."""
        trial.report("truth: the whole matrix")
        revealed: Revealed = trial.data
        records = []
        for target in self.targets(trial.settings):
            began = time.perf_counter()
            name = target.metric
            values = {
                agent: of[name].everywhere(revealed.matrix) for agent, of in revealed.losses.items() if name in of
            }
            means = {agent: losses.mean(axis=1) for agent, losses in values.items()}
            records += truth_of_users(trial.world.name, name, means, trial.level, began=began, n=revealed.matrix.size)
        return records

    def notes(self, trial: Trial, records: Sequence[Record]) -> list[str]:
        """Implement :meth:`Experiment.notes`."""
        rank_only = [agent for agent, losses in trial.data.losses.items() if "mse" not in losses]
        if rank_only:
            remark = f"{', '.join(rank_only)} rank items and predict no ratings: they have DCG only."
        else:
            remark = ""
        if remark:
            return [remark]
        return []

    def columns(self, records: Sequence[Record]) -> list[tuple[str, str]]:
        """Every estimate of DCG, which all agents have, and the truth."""
        protocols = dict.fromkeys(r.protocol for r in records if r.protocol != "truth")
        metrics = dict.fromkeys(r.metric for r in records if r.protocol == "truth")
        dcg = next(iter(metrics))
        return [*((name, dcg) for name in protocols), *(("truth", metric) for metric in metrics)]
