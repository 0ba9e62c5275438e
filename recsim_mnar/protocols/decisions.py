"""Comparison in worlds of user lives, decision by decision, and its truth: each policy's long-run rate.

A plain estimate lets users live and averages the exact expected reward of every recommendation. Here the policy acts
at occasions only (:mod:`recsim_mnar.worlds.lanes`): they are a random sample of the recommendations of the same lives,
so the ratio of sums over occasions has the same limit. The variance that is due to chance within a life is reduced by
control variates whose expectation is exactly 0 whatever the policy does:

- whether another occasion comes, less its probability, times the reward that is expected at the last one;
- the number of later occasions after a click, and after none, less their expectation before the answer;
- the user's first interests, and their moves since, in polynomials that are martingales under the drift.

Their weights are those of least squares (Lavenberg & Welch 1981), which keep the estimate's limit.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import ratio_interval
from recsim_mnar.kernels.checks import level_of
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.policies.answers import Acting, checked_distribution
from recsim_mnar.policies.base import Policy
from recsim_mnar.policies.door import fitted, has_fixed_distribution, learning_of
from recsim_mnar.protocols.ab_test import CTR, online_arms, rate_of, run_arm
from recsim_mnar.protocols.base import Experiment, Trial
from recsim_mnar.protocols.records import Record, Target, ratio_influence, with_half_widths
from recsim_mnar.rng import derive_seed, policy_uniforms
from recsim_mnar.simulation.executor import (
    SHARD_USERS,
    carrying,
    checked_users,
    executor_size,
    run_in_order,
    user_shards,
)
from recsim_mnar.simulation.items import acts_in_python, simulate, users_at_once
from recsim_mnar.simulation.oracle import ORACLE, Oracle
from recsim_mnar.worlds.base import DecisionWorld, World
from recsim_mnar.worlds.lanes import Occasions, Prospects
from recsim_mnar.worlds.params import Params

_DRAWS = 8
"""Number of draws, at evenly spaced uniforms, from a policy that is not sure of an action."""

_FIXED_DRAWS = 32
"""The same for a policy whose distribution is fixed, so that draws are cheap."""

_PAIRED_FACTORS = 10
"""Factors up to which products of two interests are among the control variates."""

_N_CHANCE = 5
"""Control variates that are not polynomials."""

_SHARDS_A_WORKER = 2
"""Few, since a step of a life costs as much in Python for one user as for many."""


@dataclass(frozen=True)
class LongRun:
    """Estimate of a policy's long-run rate.

    Attributes:
        value: the rate.
        influence: (n_users,) each user's part in its error: the error is their mean.
        occasions: number of occasions at which the policy acted.
        n_controls: number of control variates in use, by which the degrees of freedom are reduced.
    """

    value: float
    influence: Floats
    occasions: int
    n_controls: int


def asks_at_occasions(world: World, policy: Policy) -> bool:
    """Return whether :func:`long_run` applies: the world has occasions, and the policy depends on views only."""
    if not isinstance(world, DecisionWorld) or world.open_occasions(1, views=False) is None:
        return False
    return learning_of(policy) == "nothing" and (policy.batches_decisions or has_fixed_distribution(policy))


def long_run(
    world: World, policy: Policy, n_users: int, seed: int, *, executor: Executor | None = None
) -> LongRun | None:
    """Estimate the rate of a policy over users 0 .. n_users - 1 of a seed; None where no user comes to an occasion.

    Args:
        world: world of the users.
        policy: a policy for which :func:`asks_at_occasions` is true.
        n_users: number of users.
        seed: seed of the users.
        executor: spreads users over workers; the result is the same with and without.
    """
    some = carrying(_lives, world, policy, seed, in_python=acts_in_python(policy))
    shards = user_shards(0, n_users, _shard_size(world, n_users, executor))
    jobs = (functools.partial(some, np.arange(first, first + n)) for first, n in shards)
    sums = np.concatenate(list(run_in_order(jobs, executor)), axis=1)
    if sums[1].sum() == 0:
        return None
    return _estimate(sums)


def _shard_size(world: World, n_users: int, executor: Executor | None) -> int:
    """Return how many users live side by side: bounded by memory, with a few shards for each worker."""
    most = users_at_once(world)
    if executor is None:
        return most
    return min(most, max(SHARD_USERS, -(-n_users // (_SHARDS_A_WORKER * executor_size(executor)))))


def _estimate(sums: Floats) -> LongRun:
    """Estimate from (2 + m, n_users): expected rewards, occasions, and control variates."""
    rewards = sums[0]
    occasions = sums[1]
    controls = sums[2:]
    value = float(rewards.sum() / occasions.sum())
    influence = (rewards - value * occasions) / occasions.mean()
    residual, n = without_controls(influence, controls)
    correction = float(residual.mean())
    return LongRun(value + correction, residual - correction, int(occasions.sum()), n)


def without_controls(values: Floats, controls: Floats) -> tuple[Floats, int]:
    """Subtract from ``values`` (n,) the multiple of ``controls`` (m, n), of expectation 0, that minimises the variance.

    Returns (n,), and the number of controls in use: none where there are fewer than ten values for each.
    """
    from recsim_mnar.kernels import _vectors_kernel

    # A row at a time, which stays in the cache: all of them together are as large as the lives that they come from.
    sizes = [math.sqrt(float(np.mean(control * control))) for control in controls]
    used = [(control, size) for control, size in zip(controls, sizes, strict=True) if size > 0.0]
    if not used or len(values) < 10 * len(used):
        return values, 0
    rows = np.empty((len(used) + 1, len(values)))
    for row, (control, size) in zip(rows, used, strict=False):
        np.divide(control, size, out=row)
        row -= row.mean()
    np.subtract(values, values.mean(), out=rows[-1])
    gram = np.empty((len(rows), len(rows)))
    _vectors_kernel.gram(rows, np.zeros((*gram.shape, 8)), gram)
    weights = np.linalg.lstsq(gram[:-1, :-1], gram[:-1, -1], rcond=1e-10)[0]
    left = values.copy()
    for weight, (control, size) in zip(weights, used, strict=True):
        left -= weight * (control / size)
    return left, len(used)


def _lives(world: DecisionWorld, policy: Policy, seed: int, users: Ints) -> Floats:
    """Return (2 + m, n_users) sums of each user's life; see :func:`_estimate`."""
    fixed = has_fixed_distribution(policy)
    lanes = world.open_occasions(len(users), views=not fixed)
    assert lanes is not None  # who calls has asked
    choices = _FixedChoices(lanes, policy, seed) if fixed else _Choices(lanes, policy, seed)
    record = _Record(lanes, len(users))
    which = np.arange(len(users))
    choices.arrive(users)
    starts, items, comes = lanes.begin(which, seed, users)
    record.begin(comes)
    while True:
        choices.observe(which, starts, items)
        which = which[comes]
        if len(which) == 0:
            return record.sums
        shown_rewards, expected = choices.rewards(which)
        clicked = lanes.uniform[which] < shown_rewards
        record.occasion(which, shown_rewards, expected, clicked)
        starts, items, comes = lanes.answer(which, clicked)
        record.outcome(which, clicked, comes)


class _Choices:
    """A policy's recommendations and their expected rewards."""

    def __init__(self, lanes: Occasions, policy: Policy, seed: int) -> None:
        self._lanes = lanes
        self._policy = policy.fresh()
        self._seed = seed
        self._acting = Acting(self._policy, policy.n_items, policy)

    def arrive(self, users: Ints) -> None:
        self._policy.reset(users)

    def observe(self, which: Ints, starts: Ints, items: NDArray[np.int32]) -> None:
        if len(items):
            self._policy.observe(np.repeat(self._lanes.user[which], np.diff(starts)), items)

    def rewards(self, which: Ints) -> tuple[Floats, Floats]:
        """Return each lane's expected reward of the shown item, and the mean over the policy's choice; (n,) each."""
        users = self._lanes.user[which]
        drawn = policy_uniforms(self._seed, users, self._lanes.n_decisions[which])
        if isinstance(self._policy, Oracle):
            self._policy.see(users, self._lanes.state[which])
        actions, propensities = self._acting(users, drawn)
        shown_rewards = self._lanes.reward_means(which, actions)
        expected = shown_rewards.copy()
        unsure = np.flatnonzero(propensities < 1.0)
        if len(unsure):
            further_draws = (drawn[unsure, None] + np.arange(1, _DRAWS) / _DRAWS) % 1.0
            again, _ = self._acting(np.repeat(users[unsure], _DRAWS - 1), further_draws.ravel())
            means = self._lanes.reward_means(np.repeat(which[unsure], _DRAWS - 1), again)
            expected[unsure] = (shown_rewards[unsure] + means.reshape(len(unsure), -1).sum(axis=1)) / _DRAWS
        return shown_rewards, expected


class _FixedChoices(_Choices):
    """Recommendations of a policy whose distribution is the same for everyone, which does not observe users."""

    def __init__(self, lanes: Occasions, policy: Policy, seed: int) -> None:
        self._lanes = lanes
        self._policy = policy
        self._seed = seed
        order = lanes.order()
        law = policy.fixed_distribution()
        if law is None:
            law = np.full(policy.n_items, 1.0 / policy.n_items)
        probability = checked_distribution(policy, law, policy.n_items)
        self._items = order[probability[order] > 0.0].astype(np.int32)
        self._cumulative = np.cumsum(probability[self._items])
        self._cumulative[-1] = np.inf

    def arrive(self, users: Ints) -> None:
        """Do nothing: the policy keeps no state."""

    def observe(self, which: Ints, starts: Ints, items: NDArray[np.int32]) -> None:
        """Do nothing: the policy keeps no state."""

    def rewards(self, which: Ints) -> tuple[Floats, Floats]:
        """Implement :meth:`_Choices.rewards`, by draws stratified over items in the order of their rewards."""
        if len(self._items) == 1:
            shown_rewards = self._lanes.reward_means(which, np.repeat(self._items, len(which)))
            return shown_rewards, shown_rewards
        drawn = policy_uniforms(self._seed, self._lanes.user[which], self._lanes.n_decisions[which])
        even = (drawn[:, None] * _FIXED_DRAWS % 1.0 + np.arange(_FIXED_DRAWS)) / _FIXED_DRAWS
        places = np.searchsorted(self._cumulative, even.ravel(), side="right")
        means = self._lanes.reward_means(np.repeat(which, _FIXED_DRAWS), self._items[places]).reshape(even.shape)
        # The stratum of the uniform itself, which is uniform among them and independent of the place within.
        draws = np.minimum((drawn * _FIXED_DRAWS).astype(np.int64), _FIXED_DRAWS - 1)
        return means[np.arange(len(which)), draws], means.mean(axis=1)


class _Record:
    """Sums over each lane's life.

    Rows: expected rewards, occasions, the control variates of chance, polynomials of the interests at the first
    occasion, and of their moves from one to the next.
    """

    def __init__(self, lanes: Occasions, n_users: int) -> None:
        self._lanes = lanes
        self._prospects: Prospects = lanes.prospects(lanes.share / 2.0)
        self._terms = _terms(lanes.state.shape[1])
        self.sums = np.zeros((2 + _N_CHANCE + 2 * len(self._terms), n_users))
        self._first, self._moves = self.sums[2 + _N_CHANCE :].reshape(2, len(self._terms), n_users)
        self._last = np.zeros((len(self._terms), n_users))
        self._came = np.zeros(n_users, np.bool_)
        self._expected = np.zeros(n_users)

    def begin(self, comes: NDArray[np.bool_]) -> None:
        self.sums[2] = comes - self._prospects.begins

    def occasion(self, which: Ints, shown: Floats, expected: Floats, clicked: NDArray[np.bool_]) -> None:
        self.sums[0, which] += expected
        self.sums[1, which] += 1.0
        none, click = self._prospects.number
        # A click has probability shown / share here, the uniform being known to be below the share.
        surprise = (click - none) * (clicked - shown / self._lanes.share)
        self.sums[3, which] += surprise
        self.sums[4, which] += expected * surprise
        self._expected[which] = expected
        now = _polynomials(self._lanes.state[which], self._lanes.variance[which], self._terms)
        later = self._came[which]
        self._first[:, which[~later]] = now[:, ~later]
        self._moves[:, which[later]] += (now - self._last[:, which])[:, later]
        self._last[:, which] = now
        self._came[which] = True

    def outcome(self, which: Ints, clicked: NDArray[np.bool_], comes: NDArray[np.bool_]) -> None:
        surprise = comes - self._prospects.goes_on[clicked.astype(np.int64)]
        self.sums[5, which] += surprise
        self.sums[6, which] += self._expected[which] * surprise


def _terms(n_factors: int) -> list[tuple[int, ...]]:
    """Return the factors of each polynomial: single ones, squares, and pairs where there are not too many."""
    single = [(k,) for k in range(n_factors)]
    if n_factors > _PAIRED_FACTORS:
        return [*single, *((k, k) for k in range(n_factors))]
    return [*single, *itertools.combinations_with_replacement(range(n_factors), 2)]


def _polynomials(state: Floats, variance: Floats, terms: list[tuple[int, ...]]) -> Floats:
    """Return (terms, n): x_k, x_k^2 - v and x_j x_k, whose expectations stay constant while x drifts and v grows."""
    x = np.ascontiguousarray(state.T)
    out = np.empty((len(terms), len(variance)))
    for row, factors in zip(out, terms, strict=True):
        row[:] = x[factors[0]]
        if len(factors) == 2:
            row *= x[factors[1]]
            if factors[0] == factors[1]:
                row -= variance
    return out


def interval(rate: LongRun, level: float) -> tuple[float, float]:
    """Compute the interval of the rate, by Student's quantile over users; no end below 0."""
    from scipy.special import stdtrit

    n = len(rate.influence)
    freedom = n - 1 - rate.n_controls
    if freedom < 1:
        return -math.inf, math.inf
    error = math.sqrt(float(rate.influence @ rate.influence) / freedom / n)
    reach = float(stdtrit(freedom, 0.5 + level / 2)) * error
    return max(rate.value - reach, 0.0), rate.value + reach


SHARE = 0.6
"""Share of the users of a plain average that an average over occasions needs for intervals as narrow; see
``benchmarks/speed/README.md``."""

LEAST = 1000
"""Users from which control variates are worth their degrees of freedom."""


def truth(
    world: World,
    policies: Mapping[str, Policy],
    n_users: int,
    seed: int,
    *,
    level: float = 0.95,
    executor: Executor | None = None,
) -> list[Record]:
    """Estimate the long-run rate of each policy by exact expected rewards, with the same users for all.

    Where the world has occasions and a policy's choice depends on views only, lives stop at occasions
    (:func:`long_run`), and :data:`SHARE` of the users give intervals as narrow. Other policies, and all of them with
    fewer than :data:`LEAST` users, are averaged plainly. A record's details name the method, and how well its
    difference from each other policy's is known, user by user.

    Args:
        world: world of the users.
        policies: policies by name.
        n_users: number of users of a plain average.
        seed: seed of the users.
        level: nominal coverage of the intervals.
        executor: spreads users over workers.
    """
    records: list[Record] = []
    influence: dict[str, Floats] = {}
    for name, policy in policies.items():
        began = time.perf_counter()
        label = derive_seed(seed, "truth")
        estimate, n, influence[name], details = _known(world, policy, n_users, label, level, executor)
        key = (world.name, "truth", name, rate_of(world)[0])
        seconds = time.perf_counter() - began
        records.append(Record.of(*key, estimate, level=level, n=n, seconds=seconds, details=details))
    return with_half_widths(records, influence, level)


def _known(
    world: World, policy: Policy, n_users: int, seed: int, level: float, executor: Executor | None
) -> tuple[tuple[float, float, float], int, Floats, Mapping[str, object]]:
    """Return rate with interval, number of decisions, each user's part in the error, and the method."""
    if n_users >= LEAST and asks_at_occasions(world, policy):
        fewer = math.ceil(SHARE * n_users)
        long_run_rate = long_run(world, policy, fewer, seed, executor=executor)
        if long_run_rate is not None:
            rate = (long_run_rate.value, *interval(long_run_rate, level))
            return rate, long_run_rate.occasions, long_run_rate.influence, {"users": fewer, "method": "occasions"}
    arm = run_arm(world, policy, n_users, seed, executor=executor)
    sums = np.zeros(n_users)
    counts = np.zeros(n_users)
    sums[arm.user], counts[arm.user] = arm.means, arm.decisions
    rate = ratio_interval(arm.means, arm.decisions, level)
    n = int(arm.decisions.sum())
    return rate, n, ratio_influence(sums, counts), {"users": n_users, "method": "lives"}


@dataclass(frozen=True)
class Settings(Params):
    """Sizes of a comparison; the defaults are those of Jeunen et al. 2019.

    Attributes:
        train_users: users on whose uniformly logged data learners are fitted.
        test_users: users in the log for leave-one-out and off-policy evaluation.
        arm_users: users of each arm of the A/B test.
        truth_users: users over whom the truth is averaged.
        folds: folds of leave-one-out.
        logging: the agent that collects the test log.
        estimators: estimators of off-policy evaluation, with commas.
        clip: largest weight of clipped IPS (M).
        level: nominal coverage of all intervals.
        paired: A/B arms share their users.
        online_runs: runs of each agent that learns from all users while it acts; such a run has ``arm_users`` users.
        online_lanes: number of these users who live side by side.
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
        """Raise UserError for impossible sizes."""
        for name in ("train_users", "test_users", "arm_users", "truth_users", "folds", "online_runs", "online_lanes"):
            checked_users(name, getattr(self, name))
        if not self.clip > 0:
            raise UserError(f"clip must be above 0, got {self.clip:g}")
        level_of(self.level)


class DecisionExperiment(Experiment):
    """Comparison of learners fitted on a log of other users under the uniform policy.

    Leave-one-out and off-policy evaluation read one log of ``test_users`` users under the logging policy; A/B arms and
    truth have users of their own. The truth is each policy's long-run mean reward, the CTR where rewards are clicks, by
    the world's own expected rewards.
    """

    settings_type = Settings
    presets: ClassVar = {"quick": {"train_users": 500, "test_users": 500, "arm_users": 500, "truth_users": 4000}}
    preset = "jeunen2019"
    preset_agents: ClassVar = {
        "jeunen2019": ("random", "constant", "user-popularity", "svd", "item-knn", "user-knn"),
    }
    preset_hints: ClassVar = {
        "jeunen2019": (
            "Agents as in the code of Jeunen et al. (2019): item-knn counts a viewed item as its own neighbour, "
            "constant always shows one item. Known of 24 catalogues: leave-one-out picks the best in 0 %; with the "
            "agents that the paper describes (--preset jeunen2019-text) in 71 %.",
        ),
        "jeunen2019-text": (
            "Agents as Jeunen et al. (2019) describe them. Known of 24 catalogues: leave-one-out picks the best in "
            "71 %; with the agents of the authors' code (--preset jeunen2019) in 0 %.",
        ),
    }
    agents = ("random", "popularity", "user-popularity", "svd", "item-knn", "user-knn")
    own_references = frozenset({ORACLE})
    protocols = ("loocv", "off_policy", "ab_test")
    provides = frozenset({"train_log", "test_log", "propensities", "users"})

    def targets(self, settings: Settings) -> tuple[Target, ...]:
        """Implement :meth:`Experiment.targets`."""
        metric, title = rate_of(self.world)
        return (Target(metric, title, unit="the clicks" if metric == CTR else ""),)

    def specs(self, preset: str | None, settings: Settings) -> Mapping[str, str]:
        """Give item-kNN the authors' setting, which counts a viewed item as its own neighbour."""
        if preset == "jeunen2019":
            return {"item-knn": "item-knn+include_self=true"}
        return {}

    def further_agents(self, settings: Settings) -> list[str]:
        """Implement :meth:`Experiment.further_agents`."""
        return [settings.logging]

    def prepare(self, trial: Trial) -> None:
        """Implement :meth:`Experiment.prepare`."""
        sizes = trial.settings
        n_items = trial.n_items
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
        """Implement :meth:`Experiment.online`."""
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
        """Implement :meth:`Experiment.notes`."""
        result: list[str] = []
        if trial.world.slate_size > 1 and any(r.protocol == "off_policy" for r in records):
            result.append(
                f"Users see lists of {trial.world.slate_size}; all rates are per item shown. Weights of the estimates "
                f"from the log are cut at {trial.settings.clip:g} (--clip), so their values are too low for a "
                f"recommender whose lists {trial.settings.logging} seldom shows. "
                "Charts of weights are those of independent IPS."
            )
        if not trial.online:
            return result
        sizes = trial.settings
        return [
            *result,
            f"{', '.join(trial.online)}: learns from all users while it acts, so it has arms of its own: "
            f"{sizes.online_runs:,} runs of {sizes.arm_users:,} users, {sizes.online_lanes} at a time, the interval "
            "over runs. It is not ranked with agents that do not learn.",
        ]

    def truth(self, trial: Trial) -> list[Record]:
        """Implement :meth:`Experiment.truth`."""
        if not trial.policies:
            return []
        n_users = trial.settings.truth_users
        trial.report(f"truth, {n_users:,} users")
        judged = dict(trial.policies)
        if ORACLE in trial.references:
            judged[ORACLE] = Oracle(trial.world)
        return truth(trial.world, judged, n_users, trial.seed, level=trial.level, executor=trial.executor)


def _set_learners_apart(trial: Trial) -> None:
    """Move agents that learn from all users while they act, which no log or truth can judge, to ``trial.online``."""
    for name, policy in list(trial.policies.items()):
        if learning_of(policy) == "all users":
            trial.online[name] = trial.policies.pop(name)
    trial.learners = {name: learner for name, learner in trial.learners.items() if name in trial.policies}
