"""The comparison of the ratings world: estimates from revealed ratings, and the full matrix."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.kernels.checks import level_of, whole_number
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.policies.door import fitted
from recsim_mnar.protocols.base import Experiment, Picture, Trial
from recsim_mnar.protocols.leave_one_out.ranks import scores_of_everyone
from recsim_mnar.protocols.ratings.estimates import (
    ERRORS,
    Revealed,
    balance_notes,
    log_of,
    losses_of,
    propensity_fit,
    reveal,
)
from recsim_mnar.protocols.records import Record, Target, truth_of_users
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.executor import checked_users
from recsim_mnar.simulation.items import simulate
from recsim_mnar.worlds.params import Params
from recsim_mnar.worlds.ratings.world import RatingsWorld

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
        if self.propensities not in PROPENSITIES:
            raise UserError(
                f"propensities: unknown method {self.propensities!r}; {nearest(self.propensities, PROPENSITIES)}"
            )
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
        "naive": "recsim_mnar.protocols.ratings.estimates:Naive",
        "ips": "recsim_mnar.protocols.ratings.estimates:IPS",
        "snips": "recsim_mnar.protocols.ratings.estimates:SNIPS",
        "ips_estimated": "recsim_mnar.protocols.ratings.estimates:IPSEstimated",
        "snips_estimated": "recsim_mnar.protocols.ratings.estimates:SNIPSEstimated",
    }
    provides = frozenset({"train_log", "test_log", "ratings"})
    best_says = "The best true {j.target} is that of {j.best}, {j.best_truth:.4g}"

    def targets(self, settings: RatingsSettings) -> tuple[Target, ...]:
        """See :meth:`Experiment.targets`."""
        dcg = Target(f"dcg@{settings.k}", f"DCG@{settings.k}")
        return (dcg, *(Target(metric, metric.upper(), larger=False) for metric in ERRORS))

    def prepare(self, trial: Trial) -> None:
        """See :meth:`Experiment.prepare`."""
        world, sizes = trial.world, trial.settings
        assert isinstance(world, RatingsWorld)
        if sizes.k > world.n_items:
            raise UserError(f"k = {sizes.k} of DCG@k is larger than the number of items, {world.n_items}")
        trial.report(f"{sizes.users:,} users reveal ratings; fit {len(trial.learners)} agents")
        users_seed = trial.seed_of("users")
        uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
        trial.train_log = train = simulate(world, uniform, sizes.users, users_seed, executor=trial.executor)
        matrix, ratings, known = reveal(world, users_seed, sizes.users, trial.seed_of("test"))
        estimated = propensity_fit(
            ratings, matrix, sizes.propensities, sizes.random_ratings, trial.seed_of("random_ratings")
        )
        losses = {}
        for name, learner in trial.learners.items():
            policy = trial.policies[name] = fitted(learner, train, n_items=world.n_items, seed=trial.seed_of("fit"))
            scores = scores_of_everyone(name, policy.fresh(), train, sizes.users)
            losses[name] = losses_of(policy, scores, sizes.k, derive_seed(trial.seed, f"ties/{name}"))
        trial.test_log = log_of(ratings, known, {"world": world.describe(), "seed": users_seed})
        trial.data = Revealed(matrix, ratings, known, estimated, losses)

    def truth(self, trial: Trial) -> list[Record]:
        """Every metric over the whole matrix, a mean over users."""
        trial.report("truth: the whole matrix")
        own: Revealed = trial.data
        records = []
        for target in self.targets(trial.settings):
            began, name = time.perf_counter(), target.metric
            whole = {agent: of[name].everywhere(own.matrix) for agent, of in own.losses.items() if name in of}
            means = {agent: losses.mean(axis=1) for agent, losses in whole.items()}
            records += truth_of_users(trial.world.name, name, means, trial.level, began=began, n=own.matrix.size)
        return records

    def notes(self, trial: Trial, records: Sequence[Record]) -> list[str]:
        """See :meth:`Experiment.notes`."""
        rank_only = [agent for agent, losses in trial.data.losses.items() if "mse" not in losses]
        said = f"{', '.join(rank_only)} rank items and predict no ratings: they have DCG only." if rank_only else ""
        estimated = any(r.protocol.endswith("_estimated") for r in records)
        balanced = balance_notes(trial.data, trial.train_log) if estimated and trial.train_log is not None else []
        return [*([said] if said else []), *balanced]

    def columns(self, records: Sequence[Record]) -> list[tuple[str, str]]:
        """Every estimate of DCG, which all agents have, and the truth."""
        protocols = dict.fromkeys(r.protocol for r in records if r.protocol != "truth")
        metrics = dict.fromkeys(r.metric for r in records if r.protocol == "truth")
        dcg = next(iter(metrics))
        return [*((name, dcg) for name in protocols), *(("truth", metric) for metric in metrics)]

    def pictures(self, records: Sequence[Record]) -> list[Picture]:
        """See :meth:`Experiment.pictures`."""
        metrics = dict.fromkeys(r.metric for r in records if r.protocol == "truth")
        return [
            Picture(
                f"{metric.upper()}: estimates next to the truth",
                "Estimates from the revealed ratings, with intervals over users, and the whole matrix.",
                metric.upper(),
                (*((r, metric) for r in dict.fromkeys(r.protocol for r in records) if r != "truth"), ("truth", metric)),
            )
            for metric in metrics
        ]
