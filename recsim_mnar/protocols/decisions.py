"""The comparison of worlds in which users live decision by decision: sessions, and worlds of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import level_of
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.policies.door import fitted, learning_of
from recsim_mnar.protocols.ab_test import CTR, online_arms, rate_of
from recsim_mnar.protocols.base import Experiment, Picture, Trial
from recsim_mnar.protocols.records import Record, Target
from recsim_mnar.protocols.truth import truth
from recsim_mnar.simulation.executor import checked_users
from recsim_mnar.simulation.items import simulate
from recsim_mnar.simulation.oracle import ORACLE, Oracle
from recsim_mnar.worlds.params import Params


@dataclass(frozen=True)
class Settings(Params):
    """Sizes of a comparison; the defaults are those of Jeunen et al. 2019.

    Attributes:
        train_users: users on whose uniformly logged data learners are fitted.
        test_users: users whose log leave-one-out and off-policy evaluation read.
        arm_users: users of each arm of the A/B test.
        truth_users: users over whom the truth is averaged.
        folds: of leave-one-out.
        logging: the agent under which the test log is collected.
        estimators: of off-policy evaluation, with commas.
        clip: largest weight of clipped IPS (M).
        level: of all intervals.
        paired: A/B arms share their users.
        online_runs: runs of each agent that learns from all users while it acts; such a run has ``arm_users`` users.
        online_lanes: of these, how many live side by side.
    """

    train_users: int = 2000
    test_users: int = 5000
    arm_users: int = 5000
    truth_users: int = 20_000
    folds: int = 10
    logging: str = "user-popularity"
    estimators: str = "clipped_ips,ips,snips"
    clip: float = 15.0
    level: float = 0.95
    paired: bool = False
    online_runs: int = 10
    online_lanes: int = 32

    def check(self) -> None:
        """Refuse sizes that cannot be."""
        for name in ("train_users", "test_users", "arm_users", "truth_users", "folds", "online_runs", "online_lanes"):
            checked_users(name, getattr(self, name))
        if not self.clip > 0:
            raise UserError(f"clip must be above 0, got {self.clip:g}")
        level_of(self.level)


class DecisionExperiment(Experiment):
    """Learners are fitted on a log of other users under the uniform policy.

    Leave-one-out and off-policy evaluation read one log of ``test_users`` users under the logging policy; A/B arms and
    truth have users of their own. The truth is each policy's long-run mean reward, the CTR where rewards are clicks, by
    the world's own expected rewards.
    """

    settings_type = Settings
    presets: ClassVar = {"quick": {"train_users": 500, "test_users": 500, "arm_users": 500, "truth_users": 4000}}
    preset = "jeunen2019"
    agents = ("random", "popularity", "user-popularity", "svd", "item-knn", "user-knn")
    own_references = frozenset({ORACLE})
    protocols = ("loocv", "off_policy", "ab_test")
    provides = frozenset({"train_log", "test_log", "propensities", "users"})

    def targets(self, settings: Settings) -> tuple[Target, ...]:
        """See :meth:`Experiment.targets`."""
        return (Target(*rate_of(self.world)),)

    def further_agents(self, settings: Settings) -> list[str]:
        """See :meth:`Experiment.further_agents`."""
        return [settings.logging]

    def prepare(self, trial: Trial) -> None:
        """See :meth:`Experiment.prepare`."""
        sizes, n_items = trial.settings, trial.n_items
        trial.report(f"simulate {sizes.train_users:,} training users and fit {len(trial.learners)} agents")
        uniform = registry.learner("random").fit(Log({}), n_items=n_items, seed=0)
        train = simulate(trial.world, uniform, sizes.train_users, trial.seed_of("train"), executor=trial.executor)
        fit_seed = trial.seed_of("fit")
        for name, learner in trial.learners.items():
            trial.policies[name] = fitted(learner, train, n_items=n_items, seed=fit_seed)
        logger = registry.learner(sizes.logging).fit(train, n_items=n_items, seed=fit_seed)
        trial.train_log, trial.test_seed, trial.logging_policy = train, trial.seed_of("test"), logger
        _set_learners_apart(trial)
        trial.report(f"simulate {sizes.test_users:,} test users under {logger.name}")
        trial.test_log = simulate(trial.world, logger, sizes.test_users, trial.test_seed, executor=trial.executor)

    def online(self, trial: Trial) -> list[Record]:
        """See :meth:`Experiment.online`."""
        sizes = trial.settings
        if not trial.online:
            return []
        trial.report(
            f"A/B test of {', '.join(trial.online)}, which learn while they act: {sizes.online_runs:,} runs of "
            f"{sizes.arm_users:,} users each, slower than other agents (--option online_runs=N)"
        )
        return online_arms(
            trial.world,
            trial.online,
            sizes.arm_users,
            trial.seed,
            runs=sizes.online_runs,
            lanes=sizes.online_lanes,
            level=trial.level,
            executor=trial.executor,
        )

    def notes(self, trial: Trial, records: Sequence[Record]) -> list[str]:
        """See :meth:`Experiment.notes`."""
        found = [trial.world.paper_note] if trial.world.paper_note else []
        if not trial.online:
            return found
        sizes = trial.settings
        return [
            *found,
            f"{', '.join(trial.online)}: learns from all users while it acts, so it has arms of its own: "
            f"{sizes.online_runs:,} runs of {sizes.arm_users:,} users, {sizes.online_lanes} at a time, the interval "
            "over runs. It is not ranked with agents that do not learn.",
        ]

    def truth(self, trial: Trial) -> list[Record]:
        """See :meth:`Experiment.truth`."""
        if not trial.policies:
            return []
        n_users = trial.settings.truth_users
        trial.report(f"truth, {n_users:,} users")
        known = {ORACLE: Oracle(trial.world)} if ORACLE in trial.references else {}
        judged = {**trial.policies, **known}
        return truth(trial.world, judged, n_users, trial.seed, level=trial.level, executor=trial.executor)

    def pictures(self, records: Sequence[Record]) -> list[Picture]:
        """See :meth:`Experiment.pictures`."""
        metric, title = rate_of(self.world)
        rate = "click-through rate" if metric == CTR else title
        return [
            HIT_RATES,
            Picture(
                "Clipped IPS next to the A/B test",
                f"{rate.capitalize()} of each recommender, the truly best first. The lines are intervals, cut with "
                "an arrow where they run out; a hollow dot must not be used. The upright line is the truth. No dot: "
                "the old system's records hold too little of what it recommends.",
                rate,
                (("off_policy", "clipped_ips"), ("ab_test", metric), ("truth", metric)),
            ),
        ]


def _set_learners_apart(trial: Trial) -> None:
    """Agents that learn from all users while they act are not policies that a log or a truth could judge."""
    learning = [name for name, policy in trial.policies.items() if learning_of(policy) == "all users"]
    trial.online = {name: trial.policies.pop(name) for name in learning}
    trial.learners = {name: learner for name, learner in trial.learners.items() if name in trial.policies}


HIT_RATES = Picture(
    "Leave-one-out",
    "Share of hidden views that a recommender ranks first. The lines are intervals.",
    "HR@1, leave-one-out",
    (("loocv", "hr@1"),),
    bars=True,
)
