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
"""A function from revealed ratings (n of them) and the users of a resample to estimated propensities (n,)."""


@dataclass(frozen=True)
class Revealed:
    """Revealed ratings, the truth behind them, and the losses of every agent.

    Attributes:
        matrix: (U, I) all ratings: truth.
        ratings: the n revealed ratings that estimates read.
        known: (n,) propensities with which they were revealed.
        estimated: function that estimates the propensities; :func:`estimate_ratings` calls it in resamples of users.
        losses: by agent and metric, the loss (or gain) of every cell.
    """

    matrix: Floats
    ratings: Ratings
    known: Floats
    estimated: Fit
    losses: dict[str, dict[str, Loss]]


def reveal(world: RatingsWorld, users_seed: int, n_users: int, seed: int) -> tuple[Floats, Ratings, Floats]:
    """Draw which ratings the users of a seed reveal.

    The draw is independent of the agents' training data, so the propensity of a cell does not depend on whether its
    rating was in them.

    Args:
        world: the world.
        users_seed: seed of the users.
        n_users: number of users.
        seed: seed of the draw.

    Returns:
        matrix: (U, I) all ratings.
        ratings: the n revealed ratings.
        propensities: (n,) probability with which each of them was revealed.
    """
    users = np.arange(n_users)
    matrix = np.asarray(world.ratings_of(users_seed, users), np.float64)
    p = world.propensities_of(users, matrix)
    revealed = observe(p, seed)
    ratings = Ratings.from_dense(matrix, revealed)
    return matrix, ratings, ratings.at(p, "the propensities")


def propensity_fit(ratings: Ratings, matrix: Floats, method: str, n_random: int, seed: int) -> Fit:
    """Return a function that estimates propensities of revealed ratings (section 5.1 of Schnabel et al. 2016).

    Args:
        ratings: the revealed ratings.
        matrix: (U, I) all ratings, from which the ratings of random cells are read.
        method: "naive_bayes", which also uses ratings of uniformly drawn cells, or "popularity" of the item.
        n_random: number of these cells.
        seed: seed of the draws of these cells.
    """
    if method == "popularity":
        return _popularity
    draws = np.arange(n_random)
    cells = (uniforms(seed, Stream.PROTOCOL, draws, 0) * matrix.size).astype(np.int64)  # drawn with replacement
    return naive_bayes(ratings, matrix.ravel()[cells])


def _popularity(ratings: Ratings, users: Ints) -> Floats:
    """Estimate propensities by the popularity of items; the users of a resample are ignored."""
    return popularity(ratings)


def losses_of(policy: Policy, scores: Floats, k: int, seed: int) -> dict[str, Loss]:
    """Return the DCG@k of an agent's ranking and, if it predicts ratings, the errors of its predictions.

    Args:
        policy: policy of the agent.
        scores: (U, I) scores of the agent; items of score -inf are ranked last.
        k: length of the list for DCG.
        seed: seed of the draws that break ties.
    """
    finite = np.isfinite(scores)
    lowest = float(scores[finite].min()) if finite.any() else 0.0
    filled = np.where(finite, scores, lowest - 1.0)
    losses = {f"dcg@{k}": loss("dcg@k", filled, k=k, ranking=ranks(filled, seed=seed))}
    if policy.predicts_ratings:
        losses |= {metric: loss(metric, filled) for metric in ERRORS}
    return losses


class RatingEstimate(Protocol):
    """Base of the protocols that estimate every metric from the revealed ratings with one estimator.

    Attributes:
        estimator: name of the estimator: naive, ips or snips.
        estimated: True for estimated propensities, False for the known ones.
        words: name of the estimator in sentences.
    """

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
        clip = 0.0  # smallest propensity: the setting is the largest inverse one, or 0 for none
        if study.settings.clip:
            clip = 1.0 / study.settings.clip
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

    def _keep_raw(self, study: Trial, agent: str, metric: str, delta: Loss, revealed: Revealed, clip: float) -> None:
        """Keep the loss of each revealed rating as a raw result, with the weight that the estimator gives it.

        Args:
            study: the trial.
            agent: name of the agent.
            metric: name of the metric.
            delta: the agent's loss in every cell.
            revealed: the revealed ratings.
            clip: smallest propensity in use.
        """
        if study.raw is None:
            return
        ratings = revealed.ratings
        losses = delta.at(ratings.users, ratings.items, ratings.values)
        weights = np.ones(len(losses))
        inverse = 1.0 / np.maximum(revealed.known, clip)
        if self.estimator == "snips":
            weights = inverse
        elif self.estimator == "ips":  # a sum over the n ratings divided by U I, here as a mean of n numbers
            losses = losses * inverse * (len(losses) / revealed.matrix.size)
        study.keep_raw(self.name, metric, agent, user=ratings.users, value=losses, weight=weights)

    def estimates_truth(self, metric: str) -> bool:
        """Return True: every metric estimates that of the full matrix."""
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

    With naive Bayes the weights sum to U I unless a propensity is cut at 1: the value is then that of
    ``ips_estimated``, with another interval.
    """

    name = "snips_estimated"
    summary = "self-normalised IPS with estimated propensities (ratings)"
    estimated = True


PROPENSITIES = ("naive_bayes", "popularity")


@dataclass(frozen=True)
class RatingsSettings(Params):
    """Sizes of a comparison in the ratings world.

    Attributes:
        users: number of users who reveal ratings, once for training and once for the estimates.
        k: length of the list for DCG@k.
        propensities: method of estimating propensities: ``naive_bayes`` or ``popularity``.
        random_ratings: number of ratings of uniformly drawn cells that naive Bayes uses, too.
        clip: largest inverse propensity; 0 for no clipping.
        level: nominal coverage of all intervals.
    """

    users: int = 1000
    k: int = 10
    propensities: str = "naive_bayes"
    random_ratings: int = 1000
    clip: float = 0.0
    level: float = 0.95

    def check(self) -> None:
        """Raise UserError for impossible sizes."""
        for name, value in (("train_users", self.users), ("random_ratings", self.random_ratings)):
            if checked_users(name, value) < 2:
                raise UserError(f"{name} must be at least 2, got {value}")
        whole_number(self.k, "k", 1)
        one_of(self.propensities, "propensities", PROPENSITIES)
        if self.clip != 0 and not self.clip >= 1:
            raise UserError(f"clip must be at least 1, the smallest inverse propensity, or 0, got {self.clip:g}")
        level_of(self.level)


class RatingsExperiment(Experiment):
    """Comparison of agents and estimators on revealed ratings of users whose full matrix of ratings is known.

    The users reveal ratings twice, in independent draws with the same propensities. Agents are fitted on the first
    draw (and on the rewards of uniform recommendations), estimates read the second, and the truth is every agent's loss
    or DCG over the full matrix. Agents that predict ratings are judged by MSE and MAE, all agents by DCG@k.
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
        """Return the truth: every metric over the full matrix, as a mean over users."""
        trial.report("truth: the whole matrix")
        revealed: Revealed = trial.data
        records = []
        for target in self.targets(trial.settings):
            began = time.perf_counter()
            metric = target.metric
            means = {
                agent: by_metric[metric].everywhere(revealed.matrix).mean(axis=1)
                for agent, by_metric in revealed.losses.items()
                if metric in by_metric
            }
            records += truth_of_users(trial.world.name, metric, means, trial.level, began=began, n=revealed.matrix.size)
        return records

    def notes(self, trial: Trial, records: Sequence[Record]) -> list[str]:
        """Implement :meth:`Experiment.notes`."""
        rank_only = [agent for agent, losses in trial.data.losses.items() if "mse" not in losses]
        if rank_only:
            return [f"{', '.join(rank_only)} rank items and predict no ratings: they have DCG only."]
        return []

    def columns(self, records: Sequence[Record]) -> list[tuple[str, str]]:
        """Implement :meth:`Experiment.columns`: the estimates of DCG, which all agents have, and the truth."""
        protocols = dict.fromkeys(r.protocol for r in records if r.protocol != "truth")
        metrics = dict.fromkeys(r.metric for r in records if r.protocol == "truth")
        dcg = next(iter(metrics))
        return [*((name, dcg) for name in protocols), *(("truth", metric) for metric in metrics)]
