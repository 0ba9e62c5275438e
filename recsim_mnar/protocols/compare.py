"""compare: every protocol judges every agent, and the truth judges the protocols."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log.table import Log
from recsim_mnar.policy.base import Learner, Policy
from recsim_mnar.protocols.ab_test import ab_test, truth
from recsim_mnar.protocols.leave_one_out.protocol import leave_one_out
from recsim_mnar.protocols.off_policy import off_policy
from recsim_mnar.protocols.records import Record
from recsim_mnar.rng import check_seed, derive_seed
from recsim_mnar.simulate.executor import checked_users
from recsim_mnar.simulate.items import simulate
from recsim_mnar.truth import value_on_log
from recsim_mnar.worlds.base import World

if TYPE_CHECKING:
    from recsim_mnar.log.exposures import Exposures

PROTOCOLS = ("loocv", "off_policy", "ab_test")
PRIMARY = {"loocv": "hr@1", "off_policy": "clipped_ips", "ab_test": "ctr", "truth": "ctr"}
"""The metric by which each protocol ranks agents."""


@dataclass(frozen=True)
class Settings:
    """Sizes of a comparison; the defaults are those of Jeunen et al. 2019.

    Attributes:
        train_users: users on whose uniformly logged data learners are fitted.
        test_users: users whose log leave-one-out and off-policy evaluation read.
        arm_users: users of each arm of the A/B test.
        truth_users: users over whom the true CTR is averaged.
        folds: of leave-one-out.
        clip: largest weight of clipped IPS (M).
        level: of all intervals.
        paired: A/B arms share their users.
    """

    train_users: int = 2000
    test_users: int = 5000
    arm_users: int = 5000
    truth_users: int = 20_000
    folds: int = 10
    clip: float = 15.0
    level: float = 0.95
    paired: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes that cannot be."""
        for name in ("train_users", "test_users", "arm_users", "truth_users", "folds"):
            checked_users(name, getattr(self, name))
        if not self.clip > 0:
            raise UserError(f"clip must be above 0, got {self.clip:g}")
        if not 0 < self.level < 1:
            raise UserError(f"level must lie in (0, 1), got {self.level:g}")


SETTINGS: dict[str, Settings] = {
    "jeunen2019": Settings(),
    "recogym-v1": Settings(),
    "quick": Settings(train_users=500, test_users=500, arm_users=500, truth_users=4000),
}


@dataclass(frozen=True)
class Judgement:
    """How well one protocol's ranking serves, the truth being known.

    Attributes:
        protocol, metric: whose ranking, by what.
        kendall_tau: rank correlation (tau-b) with the true CTRs; NaN where one of them ties throughout.
        pick: the agent with the largest value.
        pick_ctr: its true CTR.
        best: the agent with the largest true CTR.
        best_ctr: that CTR.
        cost: best_ctr - pick_ctr.
        pick_by_upper_bound: the agent with the largest upper end of its interval from sample size (what clipping may
            hide left out), as the paper picks.
        tau_by_upper_bound: the rank correlation of these upper ends with the true CTRs.
    """

    protocol: str
    metric: str
    kendall_tau: float
    pick: str
    pick_ctr: float
    best: str
    best_ctr: float
    cost: float
    pick_by_upper_bound: str
    tau_by_upper_bound: float

    def sentence(self) -> str:
        """For a person."""
        names = {"loocv": "Leave-one-out", "off_policy": "Clipped IPS", "ab_test": "The A/B test"}
        subject = names.get(self.protocol, self.protocol)
        if self.pick == self.best:
            return f"{subject} picks {self.pick}, which is the best: nothing lost."
        share = self.cost / self.best_ctr
        return f"{subject} picks {self.pick}; {self.best} is the best, so the choice costs {share:.1%} of the CTR."


@dataclass
class Comparison:
    """What ``compare`` found: records, what they say of the protocols, and the log they judged.

    Attributes:
        records: all protocols' records, the truth's included.
        judgements: one a protocol, or one a metric of the uplift protocol.
        log: the test log.
        exposures: its second part, in the purchases world.
        notes: sentences about the setting that a reader should know.
        headline: what the judgements say in one sentence, where there is one; shown in their place.
        columns: (protocol, metric) of the short table; those of :mod:`recsim_mnar.report.tables` where it is empty.
    """

    records: list[Record]
    judgements: list[Any] = field(default_factory=list)
    log: Log | None = None
    exposures: Exposures | None = None
    notes: list[str] = field(default_factory=list)
    headline: str = ""
    columns: list[tuple[str, str]] = field(default_factory=list)


Report = Callable[[str], None]


def compare(
    world: World,
    learners: Mapping[str, Learner],
    *,
    logging: Learner,
    protocols: Sequence[str] = PROTOCOLS,
    settings: Settings | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    report: Report = lambda stage: None,
) -> Comparison:
    """Judge every agent by every protocol and by the truth.

    Learners are fitted on a log of ``train_users`` other users under the uniform policy. Leave-one-out and off-policy
    evaluation read one log of ``test_users`` users under the logging policy; A/B arms and truth have users of their
    own.

    Args:
        world: with known truth.
        learners: by name.
        logging: makes the policy under which the test log is collected.
        protocols: of :data:`PROTOCOLS`; the truth always runs.
        settings: sizes; by default the paper's.
        seed: of everything.
        executor: to spread the work over; no number depends on it.
        report: called with a line whenever a stage begins.
    """
    from recsim_mnar.policy import registry

    check_protocols(protocols)
    settings = settings or Settings()
    seed = check_seed(seed)
    report(f"simulate {settings.train_users:,} training users and fit {len(learners)} agents")
    uniform = registry.learner("random").fit(_nothing(), n_items=world.n_items, seed=0)
    train = simulate(world, uniform, settings.train_users, derive_seed(seed, "train"), executor=executor)
    fit_seed = derive_seed(seed, "fit")
    policies: dict[str, Policy] = {}
    for name, learner in learners.items():
        policies[name] = learner.fit(train, n_items=world.n_items, seed=fit_seed)
    logger = logging.fit(train, n_items=world.n_items, seed=fit_seed)
    test_seed = derive_seed(seed, "test")
    report(f"simulate {settings.test_users:,} test users under {logger.name}")
    log = simulate(world, logger, settings.test_users, test_seed, executor=executor)
    result = Comparison([], log=log)
    if "loocv" in protocols:
        report(f"leave-one-out, {settings.folds} folds")
        result.records += leave_one_out(
            log,
            learners,
            n_items=world.n_items,
            folds=settings.folds,
            seed=derive_seed(seed, "loocv"),
            level=settings.level,
            world=world.name,
            executor=executor,
        )
    if "off_policy" in protocols:
        report("off-policy estimates from the log")
        records = off_policy(
            log,
            policies,
            clip=settings.clip,
            level=settings.level,
            world=world.name,
            logging=logger,
            executor=executor,
        )
        exact = value_on_log(world, log, policies, test_seed, executor=executor)
        result.records += [replace(r, details={**r.details, "value_on_log": exact[r.agent]}) for r in records]
    if "ab_test" in protocols:
        report(f"A/B test, {settings.arm_users:,} users an arm")
        result.records += ab_test(
            world,
            policies,
            settings.arm_users,
            seed,
            paired=settings.paired,
            level=settings.level,
            executor=executor,
        )
    report(f"truth, {settings.truth_users:,} users")
    result.records += truth(world, policies, settings.truth_users, seed, level=settings.level, executor=executor)
    result.judgements = judge(result.records)
    return result


def check_protocols(protocols: Sequence[str], known: Sequence[str] = PROTOCOLS) -> None:
    """Raise UserError for a protocol that is none."""
    for protocol in protocols:
        if protocol not in known:
            raise UserError(f"unknown protocol {protocol!r}; {nearest(protocol, known)}")


def _nothing() -> Log:
    return Log({})


def judge(records: Sequence[Record]) -> list[Judgement]:
    """Hold each protocol's ranking against the truth's; protocols without the truth beside them give nothing."""
    true = {r.agent: r.value for r in records if r.protocol == "truth" and r.metric == PRIMARY["truth"]}
    if not true:
        return []
    best = max(true, key=lambda name: true[name])
    judgements = []
    for protocol in PROTOCOLS:
        chosen = [r for r in records if r.protocol == protocol and r.metric == PRIMARY[protocol] and r.agent in true]
        if not chosen:
            continue
        values = {r.agent: r.value for r in chosen}
        upper = {r.agent: r.details.get("sampling_high", r.high) for r in chosen}
        pick = max(values, key=lambda name: values[name])
        judgements.append(
            Judgement(
                protocol=protocol,
                metric=PRIMARY[protocol],
                kendall_tau=rank_correlation(values, true),
                pick=pick,
                pick_ctr=true[pick],
                best=best,
                best_ctr=true[best],
                cost=true[best] - true[pick],
                pick_by_upper_bound=max(upper, key=lambda name: upper[name]),
                tau_by_upper_bound=rank_correlation(upper, true),
            )
        )
    return judgements


def rank_correlation(values: Mapping[str, float], true: Mapping[str, float]) -> float:
    """Kendall's tau-b of two rankings of the same names; NaN where one of them ties throughout."""
    from scipy.stats import kendalltau

    names = list(values)
    if len(names) < 2 or len({values[n] for n in names}) == 1 or len({true[n] for n in names}) == 1:
        return math.nan
    return float(kendalltau([values[n] for n in names], [true[n] for n in names]).statistic)


def summary(comparison: Comparison) -> dict[str, Any]:
    """The judgements and notes as JSON types."""
    from dataclasses import asdict

    from recsim_mnar.protocols.records import _plain

    return {
        "judgements": [{**_plain(asdict(j)), "sentence": j.sentence()} for j in comparison.judgements],
        **({"headline": comparison.headline} if comparison.headline else {}),
        "notes": comparison.notes,
    }
