"""Online tests: the A/B test, with separate or with the same users for the agents."""

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
from recsim_mnar.estimators.intervals import ratio_interval, student_mean_interval
from recsim_mnar.estimators.verdict import Finding, Verdict, few_users, scaled
from recsim_mnar.log import schema
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.policies.base import Policy
from recsim_mnar.progress import counted
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.records import Record
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.executor import carrying, run_in_order
from recsim_mnar.simulation.items import map_shards, simulate_online, users_at_once
from recsim_mnar.worlds.base import World

GROUPS = 10
"""Number of groups into which items are divided by their popularity."""
VIEWS, RECOMMENDATIONS = "views", "recommendations"

Counts = Ints


class Popularity(TypedDict):
    """Share of views or recommendations that falls on a group of items.

    Attributes:
        what: :data:`VIEWS` or :data:`RECOMMENDATIONS`.
        agent: name of the agent; empty for views.
        first_rank: rank of the group's most viewed item, from 1.
        last_rank: rank of the group's least viewed item.
        share: share of all views, or of all of the agent's recommendations.
        items: number of the group's items that were viewed or recommended at all.
    """

    what: str
    agent: str
    first_rank: int
    last_rank: int
    share: float
    items: int


def popularity(views: Counts, recommended: Mapping[str, Counts]) -> list[Popularity]:
    """Compute the shares of views and of recommendations by groups of items, the most viewed group first.

    Args:
        views: (n_items,) number of views, by which items are ranked; ties are in the order of the items.
        recommended: by agent, (n_items,) number of recommendations.

    Returns:
        One row per group for the views, then for each agent; an empty list without views.
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
"""Metric of slates: discounted cumulative gain per slate, the sum of clicks / log2(2 + position), position from 0."""
CTR, REWARD = "ctr", "reward"
"""Metrics: mean reward per recommendation, if rewards are clicks and if they are not."""


@dataclass(frozen=True)
class Arm:
    """Result of an arm, with one entry for each of U users who had a recommendation.

    Attributes:
        user: (U,) ids of the users.
        decisions: (U,) number of recommendations.
        rewards: (U,) sum of rewards, such as clicks.
        means: (U,) sum of the exact expected rewards of the shown items (the truth); the rewards themselves in a world
            without a truth column.
        shown: (n_items,) number of recommendations of each item.
        seconds: wall time.
        discounted: (U,) sum over slates of the discounted cumulative gain :data:`DCG`; empty if single items are shown.
        slates: (U,) number of slates; empty if single items are shown.
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
    """Return the metric of a mean reward and its name in sentences, which depend on the rewards of the world.

    Without a world rewards are clicks.
    """
    if world is None or world.reward_name == "click":
        return (CTR, "CTR")
    return (REWARD, f"mean {world.reward_name}")


def run_arm(world: World, policy: Policy, n_users: int, seed: int, *, executor: Executor | None = None) -> Arm:
    """Simulate users 0 .. n_users - 1 of a seed under a policy; memory does not grow with the number of their events.

    Raises:
        UserError: fewer than two users had a recommendation.
    """
    began = time.perf_counter()
    parts = []
    n_shown = np.zeros(world.n_items, np.int64)
    for columns, items, counts in map_shards(
        functools.partial(_reduce_shard, world.truth_column),
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
    # `of_slates` has the discounted gains and the numbers of slates; it is empty if single items are shown.
    user, decisions, rewards, means, *of_slates = (np.concatenate(column) for column in zip(*parts, strict=True))
    if len(user) < 2:
        raise UserError(
            f"{len(user)} of {n_users} users came to a recommendation, an interval needs two: simulate more users, "
            "or raise p_organic_to_bandit"
        )
    discounted, slates = of_slates or (np.zeros(0), np.zeros(0))
    return Arm(user, decisions, rewards, means, n_shown, time.perf_counter() - began, discounted, slates)


def _reduce_shard(truth: str | None, columns: dict[str, NDArray[Any]]) -> tuple[tuple[NDArray[Any], ...], Ints, Ints]:
    """Reduce the log of a shard of users to the numbers of an :class:`Arm`.

    Args:
        truth: column of exact expected rewards; None if the world has none.
        columns: columns of the shard's log.

    Returns:
        per_user: result of :func:`_sum_by_user`.
        items: recommended items.
        counts: number of recommendations of each of them.
    """
    counts = np.bincount(columns["action"][columns["event"] == schema.BANDIT])
    items = np.flatnonzero(counts)
    return _sum_by_user(truth, columns), items, counts[items]


def _sum_by_user(truth: str | None, columns: dict[str, NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """Sum the rows of a log by user.

    Returns:
        The fields user, decisions, rewards and means of :class:`Arm`; for slates also discounted and slates.
    """
    decision_rows = columns["event"] == schema.BANDIT
    users, user_index = np.unique(columns["user"][decision_rows], return_inverse=True)
    n = len(users)
    decisions = np.bincount(user_index, minlength=n).astype(np.float64)
    rewards = np.bincount(user_index, columns["reward"][decision_rows], minlength=n).astype(np.float64)
    means = rewards
    if truth is not None:
        means = np.bincount(user_index, columns[truth][decision_rows], minlength=n).astype(np.float64)
    if "position" not in columns:
        return users, decisions, rewards, means
    position = columns["position"][decision_rows]
    discounted = np.bincount(user_index, columns["reward"][decision_rows] / np.log2(2.0 + position), minlength=n)
    slates = np.bincount(user_index, position == 0, minlength=n)  # each slate has one top position
    return users, decisions, rewards, means, discounted, slates


def run_arms(
    world: World, policies: Mapping[str, Policy], n_users: int, seed: int, *, paired: bool, executor: Executor | None
) -> dict[str, Arm]:
    """Run every policy on ``n_users`` users.

    Args:
        world: world of the users.
        policies: policies by name.
        n_users: number of users of each arm.
        seed: seed from which, with the agent's name, that of each arm's users is derived.
        paired: True to run all arms on the same users with the same draws.
        executor: executor over which users are spread; None for this process.
    """
    seeds = {name: derive_seed(seed, "ab_test" if paired else f"ab_test/{name}") for name in policies}
    return {name: run_arm(world, one, n_users, seeds[name], executor=executor) for name, one in policies.items()}


def records_of_arms(world: World, arms: Mapping[str, Arm], n_users: int, *, paired: bool, level: float) -> list[Record]:
    """Make the records of arms that have run.

    The metrics are ``ctr`` from clicks (for slates per item shown) and ``ctr_exact`` from the click probabilities of
    the shown items, which has less variance; for slates also ``dcg``. If rewards are no clicks, the names begin with
    ``reward`` in place of ``ctr``.

    Args:
        world: world of the users.
        arms: arms by name of the agent.
        n_users: number of simulated users of each arm, with or without a recommendation.
        paired: True if all arms have the same users.
        level: nominal coverage of the intervals.
    """
    records: list[Record] = []
    rate, _ = rate_of(world)
    for name, arm in arms.items():
        means = [(rate, arm.rewards, arm.decisions), (f"{rate}_exact", arm.means, arm.decisions)]
        if arm.slates.size:
            means.append((DCG, arm.discounted, arm.slates))
        for metric, sums, counts in means:
            interval = ratio_interval(sums, counts, level)
            details = {"users": n_users, "paired": paired, **verdict_on_rate(len(arm.user), *interval).to_dict()}
            key = (world.name, "ab_test", name, metric)
            n = int(arm.decisions.sum())
            records.append(Record.of(*key, interval, level=level, n=n, seconds=arm.seconds, details=details))
    return records


def verdict_on_rate(users: int, scale: float, low: float, high: float) -> Verdict:
    """Return the verdict on an arm's rate, or on a difference of rates.

    Args:
        users: number of users.
        scale: the rate, or that with which a difference is compared; the interval's width is judged relative to it.
        low: lower end of the interval.
        high: upper end of the interval.
    """
    findings = few_users(users)
    findings.append(_width_finding(high - low, scale, "value", (WIDE, USELESS), "run it on more users"))
    return Verdict.of(findings)


def _width_finding(width: float, scale: float, what: str, limits: tuple[float, float], action: str) -> Finding:
    """Return the finding on an interval's width, whose severity grows with half the width over a value.

    Args:
        width: width of the interval.
        scale: value by which half the width is divided.
        what: name of the value in the message.
        limits: ratios from which the estimate is to be used with caution, and not at all.
        action: advice.
    """
    ratio = width / 2.0 / scale if scale > 0.0 else math.inf
    message = f"half the interval is {100.0 * ratio:.3g} % of the {what}"
    return Finding("wide_interval", scaled(ratio, *limits), ratio, message, action)


class ABTest(Protocol):
    """Run every agent on separate users (on the same ones with the setting ``paired``), and average their rewards."""

    name = "ab_test"
    summary = "an A/B test: every agent runs on users, rewards are counted"
    metrics: Sequence[str] = (CTR, REWARD)
    needs = frozenset({"users"})
    rate = "CTR"

    def judge(self, study: Trial) -> list[Record]:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.judge`; store popularity in the trial's findings."""
        sizes = study.settings
        metric, self.rate = rate_of(study.world)
        study.report(f"A/B test, {sizes.arm_users:,} users per arm")
        arms = run_arms(
            study.world, study.policies, sizes.arm_users, study.seed, paired=sizes.paired, executor=study.executor
        )
        if study.test_log is not None:
            viewed = np.bincount(study.test_log["item"][~study.test_log.is_bandit], minlength=study.n_items)
            study.findings["popularity"] = popularity(viewed, {name: arm.shown for name, arm in arms.items()})
        for name, arm in arms.items():
            means = arm.rewards / arm.decisions
            study.keep_raw(self.name, metric, name, user=arm.user, value=means, weight=arm.decisions)
        return records_of_arms(study.world, arms, sizes.arm_users, paired=sizes.paired, level=study.level)

    def title(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return "A/B test"

    def estimates_truth(self, metric: str) -> bool:
        """Return True: the mean reward of users under an agent is an estimate of the agent's true rate."""
        return True

    def heading(self, metric: str) -> str:
        """Implement :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        heading = f"A/B {self.rate}"
        names = dict.fromkeys(self.metrics, heading) | {f"{name}_exact": f"{heading}, exact" for name in self.metrics}
        return (names | {DCG: "A/B DCG"}).get(metric, metric)


ONLINE = "online"
"""Name of the protocol of agents that learn from all users while they act."""
LEAST_RUNS = 5
"""Least number of runs with which the t interval over runs is trusted; with fewer, one run may decide its width."""
WIDE = 0.5
WIDE_OVER_RUNS, USELESS_OVER_RUNS = 0.4, 1.0
"""Ratios of half the interval to the value from which an estimate is to be used with caution, or not at all."""


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
    """Let each policy act and learn among ``n_users`` users, in several independent runs.

    Users of one run are dependent, because the reward of one changes the recommendations to the next. Runs are
    independent: the value is the mean over runs of their mean rewards, with the interval of Student's t over runs.

    Args:
        world: world of the users.
        policies: policies by name, which are not changed.
        n_users: number of users of each run.
        seed: seed from which, with the number of the run, that of each run is derived; all policies have the same ones.
        runs: number of runs; at least 2 for an interval.
        lanes: number of users of a run who are simulated side by side.
        level: nominal coverage of the intervals.
        executor: executor over which runs are spread; None for this process.

    Returns:
        One record per policy, of protocol ``online`` and metric ``ctr`` (``reward`` if rewards are no clicks). Its
        details have ``per_run``, the mean reward of each run.
    """
    records = []
    advance = counted(runs * len(policies), "runs")
    for name, policy in policies.items():
        began = time.perf_counter()
        one_run = carrying(_run_online, world, policy, n_users, lanes, in_python=True)
        jobs = (functools.partial(one_run, derive_seed(seed, f"online/{run}")) for run in range(runs))
        outcomes = []
        for outcome in run_in_order(jobs, executor):
            outcomes.append(outcome)
            advance(1)
        means, decisions = np.array(outcomes).T
        value, low, high = student_mean_interval(means, level)
        details: dict[str, object] = {
            "users": n_users,
            "runs": runs,
            "lanes": lanes,
            "per_run": means.tolist(),
            **_verdict_on_runs(runs, value, high - low).to_dict(),
        }
        key = (world.name, ONLINE, name, rate_of(world)[0])
        n = int(decisions.sum())
        seconds = time.perf_counter() - began
        records.append(Record.of(*key, (value, low, high), level=level, n=n, seconds=seconds, details=details))
    return records


def _run_online(world: World, policy: Policy, n_users: int, lanes: int, seed: int) -> tuple[float, float]:
    """Simulate one run; return its mean reward per decision and its number of decisions."""
    curve = simulate_online(world, policy, n_users, seed, lanes=lanes).curve
    decisions = int(curve.decisions[-1])
    return float(curve.rewards[-1]) / max(decisions, 1), float(decisions)


def _verdict_on_runs(runs: int, value: float, width: float) -> Verdict:
    """Return the verdict on a mean over runs, from their number, the mean, and the width of its interval."""
    limits = (WIDE_OVER_RUNS, USELESS_OVER_RUNS)
    findings = [_width_finding(width, value, "rate", limits, "repeat it with more seeds")]
    if runs < LEAST_RUNS:
        few = f"{runs} runs, of which the interval is made"
        findings.append(Finding("few_runs", 1.0, float(runs), few, f"repeat it with at least {LEAST_RUNS} seeds"))
    return Verdict.of(findings)
