"""Online tests: the A/B test (users of its own for every agent, or shared draws), and interleaving."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.checks import USELESS
from recsim_mnar.estimators.intervals import ratio_interval
from recsim_mnar.estimators.verdict import Finding, Verdict, few_users, scaled
from recsim_mnar.log import schema
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.policies.base import Policy
from recsim_mnar.policies.softening import MixturePolicy
from recsim_mnar.progress import counted
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.records import Record, student_mean_interval
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.executor import carrying, run_in_order
from recsim_mnar.simulation.items import map_shards, simulate, simulate_online, users_at_once
from recsim_mnar.worlds.base import World


class Interleaving(Protocol):
    """All agents decide for the same users, each decision being one agent's at random; rewards are credited to it.

    The credit of a decision is the probability that an agent took it, given what was shown: with one item per
    recommendation this is probabilistic multileaving (Schuth et al. 2015; Oosterhuis & de Rijke 2017). Values are mean
    rewards per credited decision. Users are moved on by all agents together, so they are not those of an A/B test.

    Args:
        users: number of users; None for those of one arm of the A/B test.
    """

    name = "interleaving"
    summary = "interleaving: agents take turns for the same users, clicks are credited to who chose"
    metrics = ("credit",)
    needs = frozenset({"users"})

    def __init__(self, users: int | None = None) -> None:
        self.users = users

    def judge(self, study: Trial) -> list[Record]:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        began = time.perf_counter()
        n_users = self.users or study.settings.arm_users
        study.report(f"interleaving, {n_users:,} users")
        names = list(study.policies)
        mixture = MixturePolicy([study.policies[name] for name in names], np.full(len(names), 1.0 / len(names)))
        log = simulate(study.world, mixture, n_users, study.seed_of("interleaving"), executor=study.executor)
        decision_rows = log.is_bandit
        users, place = np.unique(log["user"][decision_rows], return_inverse=True)
        reward = log["reward"][decision_rows]
        propensity = log["propensity"][decision_rows]
        seconds = (time.perf_counter() - began) / len(names)
        records = []
        for name in names:
            began_own = time.perf_counter()
            credit = replay(log, study.policies[name], executor=study.executor)[decision_rows] / (
                len(names) * propensity
            )
            sums = np.bincount(place, credit * reward)
            counts = np.bincount(place, credit)
            interval = ratio_interval(sums, counts, study.level)
            study.keep_raw(self.name, "credit", name, user=log["user"][decision_rows], value=reward, weight=credit)
            details: dict[str, object] = {"users": n_users, "decisions": float(credit.sum())}
            key = (study.world.name, self.name, name, "credit")
            took = seconds + time.perf_counter() - began_own
            records.append(Record.of(*key, interval, level=study.level, n=len(users), seconds=took, details=details))
        return records

    def title(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return "interleaving"

    def estimates_truth(self, metric: str) -> bool:
        """True: a rate of rewards per decision."""
        return True


GROUPS = 10
"""Of items, by their place in the order of popularity."""
VIEWS, RECOMMENDATIONS = "views", "recommendations"

Counts = Ints


class Popularity(TypedDict):
    """Views or recommendations of a group of items; see :func:`popularity`."""

    what: str
    agent: str
    first_rank: int
    last_rank: int
    share: float
    items: int


def popularity(views: Counts, recommended: Mapping[str, Counts]) -> list[Popularity]:
    """Shares of views and of recommendations by groups of items, the most viewed first.

    Args:
        views: (n_items,) by which items are ranked; equal ones by their number.
        recommended: (n_items,) how often each item was recommended, by agent.

    Returns:
        Rows of JSON types, those of the views first: ``what`` (views or recommendations), ``agent`` (empty for
        views), ``first_rank`` and ``last_rank`` of a group of items, ``share`` of all that fell on it, and ``items``,
        how many of the group's items were met at all. None where nothing was viewed.
    """
    if not views.sum():
        return []
    order = np.argsort(-views, kind="stable")
    ends = np.linspace(0, len(views), min(GROUPS, len(views)) + 1).round().astype(int)
    rows: list[Popularity] = []
    for what, agent, counts in ((VIEWS, "", views), *((RECOMMENDATIONS, *arm) for arm in recommended.items())):
        ranked = counts[order]
        total = int(ranked.sum())
        for first, last in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            group = ranked[first:last]
            rows.append(
                {
                    "what": what,
                    "agent": agent,
                    "first_rank": first + 1,
                    "last_rank": last,
                    "share": int(group.sum()) / total if total else 0.0,
                    "items": int(np.count_nonzero(group)),
                }
            )
    return rows


DCG = "dcg"
"""Metric of slates: discounted cumulative gain per slate, the sum of clicks over log2(2 + place), place from 0."""
CTR, REWARD = "ctr", "reward"
"""Metrics: mean reward of a recommendation, where rewards are clicks and where they are not."""


@dataclass(frozen=True)
class Arm:
    """Behaviour of an arm's users, one entry per user who came to a decision.

    Attributes:
        user: (U,) ids.
        decisions: (U,) recommendations shown.
        rewards: (U,) sum of rewards, e.g. clicks.
        means: (U,) sum of the exact expected rewards of what was shown: truth; the rewards themselves in a world
            without a truth column.
        shown: (n_items,) how often each item was recommended.
        seconds: that it took.
        discounted: (U,) sum over slates of their discounted cumulative gain, clicks over log2(2 + place); empty where
            single items are shown.
        slates: (U,) slates shown.
    """

    user: Ints
    decisions: Floats
    rewards: Floats
    means: Floats
    shown: Ints
    seconds: float
    discounted: Floats
    slates: Floats


def rate_of(world: World | None) -> tuple[str, str]:
    """Choose the metric of an arm and its name in sentences, by the feedback of the world's users."""
    if world is None:
        name = "click"
    else:
        name = world.reward_name
    if name == "click":
        return (CTR, "CTR")
    return (REWARD, f"mean {name}")


def run_arm(world: World, policy: Policy, n_users: int, seed: int, *, executor: Executor | None = None) -> Arm:
    """Let users 0 .. n_users - 1 of a seed live under a policy; memory does not grow with their number of events."""
    began = time.perf_counter()
    parts = []
    n_shown = np.zeros(world.n_items, np.int64)
    for columns, items, counts in map_shards(
        functools.partial(_reduced, world.truth_column),
        world,
        policy,
        n_users,
        seed,
        executor=executor,
        keep=world.truth_column is not None,
        shard_users=None if executor is not None else users_at_once(world),
    ):
        parts.append(columns)
        n_shown[items] += counts
    user, decisions, rewards, means, *lists = (np.concatenate(column) for column in zip(*parts, strict=True))
    if len(user) < 2:
        raise UserError(
            f"{len(user)} of {n_users} users came to a recommendation, an interval needs two: simulate more users, "
            "or raise p_organic_to_bandit"
        )
    discounted, slates = lists or (np.zeros(0), np.zeros(0))
    return Arm(user, decisions, rewards, means, n_shown, time.perf_counter() - began, discounted, slates)


def _reduced(truth: str | None, columns: dict[str, NDArray[Any]]) -> tuple[tuple[NDArray[Any], ...], Ints, Ints]:
    """Columns of :class:`Arm` of a shard, and items that were recommended with how often."""
    counts = np.bincount(columns["action"][columns["event"] == schema.BANDIT])
    items = np.flatnonzero(counts)
    return _per_user(truth, columns), items, counts[items]


def _per_user(truth: str | None, columns: dict[str, NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """Users, decisions, rewards and means of :class:`Arm`; of rankings also what is discounted by place, and slates."""
    decision_rows = columns["event"] == schema.BANDIT
    users, position = np.unique(columns["user"][decision_rows], return_inverse=True)
    n = len(users)
    decisions = np.bincount(position, minlength=n).astype(np.float64)
    rewards = np.bincount(position, columns["reward"][decision_rows], minlength=n).astype(np.float64)
    means = rewards
    if truth is not None:
        means = np.bincount(position, columns[truth][decision_rows], minlength=n).astype(np.float64)
    if "position" not in columns:
        return users, decisions, rewards, means
    place = columns["position"][decision_rows]
    gained = np.bincount(position, columns["reward"][decision_rows] / np.log2(2.0 + place), minlength=n)
    return users, decisions, rewards, means, gained, np.bincount(position, place == 0, minlength=n)


def run_arms(
    world: World, policies: Mapping[str, Policy], n_users: int, seed: int, *, paired: bool, executor: Executor | None
) -> dict[str, Arm]:
    """Run every policy on ``n_users`` users.

    Args:
        world: where they run.
        policies: by name.
        n_users: an arm.
        seed: each arm's users have a seed derived from it and the agent's name; all arms the same one when ``paired``.
        paired: run every arm on the same users with shared draws.
        executor: to spread users over.
    """
    seeds = {name: derive_seed(seed, "ab_test" if paired else f"ab_test/{name}") for name in policies}
    return {name: run_arm(world, one, n_users, seeds[name], executor=executor) for name, one in policies.items()}


def records_of_arms(world: World, arms: Mapping[str, Arm], n_users: int, *, paired: bool, level: float) -> list[Record]:
    """Make the records of arms that have run.

    Metrics: ``ctr`` from clicks (of slates per item shown, and their ``dcg``), and ``ctr_exact`` from the click
    probabilities of what was shown, which have less variance. Where rewards are no clicks, ``reward`` stands for
    ``ctr``.
    """
    records: list[Record] = []
    rate, _ = rate_of(world)
    for name, arm in arms.items():
        means = [(rate, arm.rewards, arm.decisions), (f"{rate}_exact", arm.means, arm.decisions)]
        if arm.slates.size:
            means.append((DCG, arm.discounted, arm.slates))
        for metric, sums, counts in means:
            interval = ratio_interval(sums, counts, level)
            details = {"users": n_users, "paired": paired, **judged(len(arm.user), *interval).to_dict()}
            key = (world.name, "ab_test", name, metric)
            n = int(arm.decisions.sum())
            records.append(Record.of(*key, interval, level=level, n=n, seconds=arm.seconds, details=details))
    return records


def judged(users: int, scale: float, low: float, high: float) -> Verdict:
    """Return the verdict on an arm's rate, or on a difference measured by the rate ``scale``."""
    findings = few_users(users)
    findings.append(_wide(high - low, scale, "value", (WIDE, USELESS), "run it on more users"))
    return Verdict.of(findings)


def _wide(width: float, scale: float, what: str, limits: tuple[float, float], action: str) -> Finding:
    if scale > 0.0:
        ratio = width / 2.0 / scale
    else:
        ratio = math.inf
    message = f"the interval reaches {100.0 * ratio:.3g} % of the {what} to either side"
    return Finding("wide_interval", scaled(ratio, *limits), ratio, message, action)


class ABTest(Protocol):
    """Every agent runs on users of its own, and rewards are counted; or on the same users, with ``paired``."""

    name = "ab_test"
    summary = "an A/B test: every agent runs on users, rewards are counted"
    metrics: Sequence[str] = (CTR, REWARD)
    needs = frozenset({"users"})
    rate = "CTR"

    def judge(self, study: Trial) -> list[Record]:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`; popularity of showings is a finding."""
        sizes = study.settings
        self.rate = rate_of(study.world)[1]
        study.report(f"A/B test, {sizes.arm_users:,} users per arm")
        arms = run_arms(
            study.world, study.policies, sizes.arm_users, study.seed, paired=sizes.paired, executor=study.executor
        )
        if study.test_log is not None:
            viewed = np.bincount(study.test_log["item"][~study.test_log.is_bandit], minlength=study.n_items)
            study.findings["popularity"] = popularity(viewed, {name: arm.shown for name, arm in arms.items()})
        rate = rate_of(study.world)[0]
        for name, arm in arms.items():
            shares = arm.rewards / arm.decisions
            study.keep_raw(self.name, rate, name, user=arm.user, value=shares, weight=arm.decisions)
        return records_of_arms(study.world, arms, sizes.arm_users, paired=sizes.paired, level=study.level)

    def title(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return "A/B test"

    def estimates_truth(self, metric: str) -> bool:
        """True: users of its own see each agent."""
        return True

    def heading(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        heading = f"A/B {self.rate}"
        names = dict.fromkeys(self.metrics, heading) | {f"{name}_exact": f"{heading}, exact" for name in self.metrics}
        return (names | {DCG: "A/B DCG"}).get(metric, metric)


ONLINE = "online"
"""The protocol of agents that learn from all users while they act."""
LEAST_RUNS = 5
"""Runs from which the t interval over runs is trusted: with four, one run in twenty decides its width."""
WIDE = 0.5
WIDE_OVER_RUNS, USELESS_OVER_RUNS = 0.4, 1.0
"""Half widths of the interval over the value, as of any other estimate (docs/verdict.md)."""


def online_arms(
    world: World,
    policies: Mapping[str, Policy],
    n_users: int,
    seed: int,
    *,
    runs: int = 10,
    lanes: int = 32,
    level: float = 0.95,
    executor: Executor | None = None,
) -> list[Record]:
    """Let each policy act and learn among ``n_users`` users, ``runs`` times from the beginning.

    Users of one run are not independent, for what one earns changes what the next is shown. Runs are: the value is
    the mean over runs of a run's mean reward, its interval that of Student's t over runs.

    Args:
        world: where they run.
        policies: by name; none of them is changed.
        n_users: of each run.
        seed: runs of all policies with one number share users; each run has a seed derived from this one.
        runs: how many, at least 2 for an interval.
        lanes: users who live side by side in a run.
        level: of the intervals.
        executor: to spread runs over.

    Returns:
        One record a policy, of protocol ``online`` and metric ``ctr`` (``reward`` where rewards are no clicks). Its
        details hold ``per_run``, the mean reward of each run.
    """
    records = []
    advance = counted(runs * len(policies), "runs")
    for name, policy in policies.items():
        began = time.perf_counter()
        one = carrying(_one_run, world, policy, n_users, lanes, in_python=True)
        jobs = (functools.partial(one, derive_seed(seed, f"online/{run}")) for run in range(runs))
        result = []
        for outcome in run_in_order(jobs, executor):
            result.append(outcome)
            advance(1)
        outcomes = np.array(result)
        value, low, high = student_mean_interval(outcomes[:, 0], level)
        details: dict[str, object] = {
            "users": n_users,
            "runs": runs,
            "lanes": lanes,
            "per_run": outcomes[:, 0].tolist(),
            **_judged_runs(runs, value, high - low).to_dict(),
        }
        key = (world.name, ONLINE, name, rate_of(world)[0])
        n = int(outcomes[:, 1].sum())
        seconds = time.perf_counter() - began
        records.append(Record.of(*key, (value, low, high), level=level, n=n, seconds=seconds, details=details))
    return records


def _one_run(world: World, policy: Policy, n_users: int, lanes: int, seed: int) -> tuple[float, float]:
    """Mean reward of a run, and its number of decisions."""
    curve = simulate_online(world, policy, n_users, seed, lanes=lanes).curve
    decisions = int(curve.decisions[-1])
    return float(curve.rewards[-1]) / max(decisions, 1), float(decisions)


def _judged_runs(runs: int, value: float, width: float) -> Verdict:
    limits = (WIDE_OVER_RUNS, USELESS_OVER_RUNS)
    findings = [_wide(width, value, "rate", limits, "repeat it with more seeds")]
    if runs < LEAST_RUNS:
        few = f"{runs} runs, of which the interval is made"
        findings.append(Finding("few_runs", 1.0, float(runs), few, f"repeat it with at least {LEAST_RUNS} seeds"))
    return Verdict.of(findings)
