"""The comparison of the purchases world: what an agent's lists would cause, from a log, by an A/B test, and in truth.

The deployed recommender of a purchases world makes one log. Agents learn from its first periods, and the offline
metrics of Sato et al. (2019) judge their lists by the periods after. An A/B test shows those lists to half of the
users, and the truth is the mean of E[Y^T - Y^C] over them: so it can be said which metric would have picked the right
agent.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.uplift import LIST_METRICS, causal_dcg, causal_precision, check_length, top_items
from recsim_mnar.kernels.checks import level_of, whole_number
from recsim_mnar.policies.slates import DEPLOYED, DeployedPolicy
from recsim_mnar.protocols.base import Experiment, Picture, Trial
from recsim_mnar.protocols.records import Record, Target, ratio_influence, with_half_widths
from recsim_mnar.protocols.uplift.protocols import (
    EVERYTHING,
    RankedItems,
    purchases_as_views,
    record_of,
    tie_seed,
    trained,
    until,
)
from recsim_mnar.simulation.executor import checked_users, run_in_order
from recsim_mnar.simulation.items import exposures_of, simulate
from recsim_mnar.worlds.base import ExposureWorld
from recsim_mnar.worlds.params import Params

METRICS = ("precision", "uplift", "uplift_snips", "uplift_ips")
REFERENCES = (DEPLOYED, "oracle")
"""Lists by what only the world knows: the deployed recommender's probabilities, and true uplift. Shown, not picked."""

_LONG = ("cdcg", EVERYTHING)
"""Metrics that the short table omits."""

TRAINED = ("rmf", "bpr", "ulrmf", "ulbpr", "recresp", "cause", "cause-prod", "dlce")
"""Factor models, whose own defaults are the ten million updates of a paper."""


@dataclass(frozen=True)
class UpliftSettings(Params):
    """Sizes of a comparison in the purchases world.

    Attributes:
        users: whose log is learnt from and judged by; the A/B test splits them.
        test_periods: periods after the world's own ``n_periods`` by which the metrics judge, and again as many in which
            the A/B test runs.
        length: items of a list, N.
        metrics: of :data:`recsim_mnar.estimators.uplift.LIST_METRICS`, with commas.
        clip: largest inverse propensity; 0, the default, for none: the IPS form is then unbiased.
        level: of all intervals.
        paired: every user is in both arms of every A/B test, which only a simulator can do.
        training: parameters of the factor models whose names give none: one for all of them, under which RMF and BPR
            reach their precision in a second or so. None is tuned by itself, nor by any uplift.
    """

    users: int = 2000
    test_periods: int = 10
    length: int = 10
    metrics: str = ",".join(METRICS)
    clip: float = 0.0
    level: float = 0.95
    paired: bool = False
    training: str = "updates=3000000+factors=16+rate=0.003+penalty=0.001"

    def check(self) -> None:
        """Refuse sizes that cannot be, and unknown metrics."""
        if checked_users("train_users", self.users) < 2:
            raise UserError(f"train_users must be at least 2, an interval needs two, got {self.users}")
        whole_number(self.test_periods, "test_periods", 1)
        if self.clip != 0 and not self.clip >= 1:
            raise UserError(f"clip must be at least 1, the smallest inverse propensity, or 0, got {self.clip:g}")
        level_of(self.level)
        for metric in self.metrics.split(","):
            if metric not in LIST_METRICS:
                raise UserError(f"metrics: unknown metric {metric!r}; {nearest(metric, LIST_METRICS)}")


@dataclass(frozen=True)
class Lists:
    """What the protocols of the purchases world judge.

    Attributes:
        world: with as many periods as the log has.
        users_seed: of the users.
        first: first period that is not learnt from.
        last: the period after the log's last.
        truth: both expected outcomes, of ``world.outcomes_of``.
        rankings: scores by agent, references last.
        lists: (U, N) items by agent.
    """

    world: ExposureWorld
    users_seed: int
    first: int
    last: int
    truth: Any
    rankings: dict[str, RankedItems]
    lists: dict[str, NDArray[np.int64]]


class PurchasesExperiment(Experiment):
    """The same users throughout: uplift models know their users by their past.

    The log of the deployed recommender has the world's ``n_periods`` to learn from and ``test_periods`` more to judge
    by; the A/B test runs in the periods after those. An agent with ``fit_exposures`` learns from what was recommended
    and what was bought, any other from all purchases as views. Its list for a user is the N items that it ranks
    highest, and stays.
    """

    settings_type = UpliftSettings
    presets: ClassVar = {
        "quick": {"users": 1000, "test_periods": 4, "training": "updates=600000+factors=16+rate=0.003+penalty=0.01"}
    }
    aliases: ClassVar = {"train_users": "users"}
    agents = ("random", "popularity", "rmf", "bpr", "ulrmf", "ulbpr", "recresp", "dlce", "cubn", "cibn")
    protocols = ("uplift", "ab_test")
    own_protocols: ClassVar = {
        "uplift": "recsim_mnar.protocols.uplift.protocols:Uplift",
        "ab_test": "recsim_mnar.protocols.uplift.protocols:UpliftABTest",
    }
    provides = frozenset({"exposures", "users"})
    best_says = "The largest true uplift is that of {j.best}, {j.best_truth:.4f} purchases an item"
    log_holds: ClassVar = frozenset({"clicks", "exposures"})

    def spec_of(self, agent: str, settings: UpliftSettings) -> str:
        """A factor model's bare name is trained as the settings say."""
        return f"{agent}+{settings.training}" if agent in TRAINED else agent

    def targets(self, settings: UpliftSettings) -> tuple[Target, ...]:
        """See :meth:`Experiment.targets`."""
        return (Target(f"cp@{settings.length}", "uplift"),)

    def prepare(self, trial: Trial) -> None:
        """See :meth:`Experiment.prepare`."""
        world, sizes = trial.world, trial.settings
        assert isinstance(world, ExposureWorld)
        check_length(sizes.length, world.n_items)
        users_seed, first = trial.seed_of("users"), world.params.n_periods
        longer = world.lasting(first + sizes.test_periods)
        deployed = DeployedPolicy(longer)
        trial.report(f"simulate {sizes.users:,} users under the deployed recommender")
        trial.test_log = simulate(longer, deployed, sizes.users, users_seed, executor=trial.executor)
        trial.exposures = exposures_of(longer, deployed, trial.test_log, sizes.users, users_seed)
        users = np.arange(sizes.users)
        truth = world.outcomes_of(users_seed, users)
        rankings = self._rankings(trial, first)
        trial.policies = {name: own.policy for name, own in rankings.items() if own.policy is not None}
        rankings[DEPLOYED] = RankedItems(world.deployed_propensities(users_seed, users), {"reference": True})
        rankings["oracle"] = RankedItems(truth.uplift, {"reference": True})
        lists = {
            name: top_items(r.scores, sizes.length, seed=tie_seed(trial.seed, name)) for name, r in rankings.items()
        }
        trial.data = Lists(longer, users_seed, first, longer.params.n_periods, truth, rankings, lists)

    def _rankings(self, trial: Trial, first: int) -> dict[str, RankedItems]:
        """Every agent's scores, learnt from the periods before ``first``."""
        trial.report(f"train {len(trial.learners)} agents on {first} periods")
        assert trial.exposures is not None
        past = until(trial.exposures, first)
        trial.train_log = views = purchases_as_views(past)
        jobs = [
            functools.partial(trained, name, learner, past, views, trial.seed)
            for name, learner in trial.learners.items()
        ]
        return dict(zip(trial.learners, run_in_order(jobs, trial.executor), strict=True))

    def truth(self, trial: Trial) -> list[Record]:
        """True uplift of the lists (CP@N) and of the whole rankings (CDCG)."""
        trial.report("truth")
        own: Lists = trial.data
        uplift, level = own.truth.uplift, trial.level
        listed, ranked, users = [], [], {}
        for name, ranking in own.rankings.items():
            began = time.perf_counter()
            exact = causal_precision(uplift, own.lists[name], level=level)
            whole = causal_dcg(uplift, ranking.scores, level=level, seed=tie_seed(trial.seed, name))
            seconds = time.perf_counter() - began
            listed.append(record_of("truth", name, exact.estimator, exact, seconds, ranking.details))
            ranked.append(record_of("truth", name, whole.estimator, whole, seconds, ranking.details))
            means = np.take_along_axis(uplift, own.lists[name], axis=1).mean(axis=1)
            users[name] = ratio_influence(means, np.ones(len(means)))
        listed = with_half_widths(listed, users, level)
        return [record for pair in zip(listed, ranked, strict=True) for record in pair]

    def notes(self, trial: Trial, records: Sequence[Record]) -> list[str]:
        """See :meth:`Experiment.notes`."""
        return [
            "deployed (what made the log) and oracle know the truth: they are shown for comparison and cannot be "
            "picked. Uplift is in purchases caused, an item shown in a period."
        ]

    def columns(self, records: Sequence[Record]) -> list[tuple[str, str]]:
        """See :meth:`Experiment.columns`."""
        keys = dict.fromkeys((r.protocol, r.metric) for r in records)
        return [key for key in keys if key[1].partition("@")[0] not in _LONG]

    def pictures(self, records: Sequence[Record]) -> list[Picture]:
        """See :meth:`Experiment.pictures`."""
        columns = self.columns(records)
        precision = tuple(key for key in columns if key[1].startswith("precision@"))
        return [
            Picture(
                "Precision",
                "Share of the listed items that the user bought in the further periods of the log.",
                precision[0][1].capitalize() if precision else "Precision",
                precision,
                bars=True,
            ),
            Picture(
                "Uplift from the log, from the A/B test, and in truth",
                "Purchases caused per item of the list and period.",
                "purchases caused per item and period",
                tuple(key for key in columns if not key[1].startswith("precision")),
            ),
        ]
