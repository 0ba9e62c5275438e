"""Comparison in worlds of single decisions, and its truth: each policy's long-run rate.

A plain estimate simulates users and averages the exact expected reward of every recommendation. Here the policy acts
at occasions only (:mod:`recsim_mnar.worlds.lanes`): they are a random sample of the recommendations to the same users,
so the ratio of sums over occasions has the same limit. The variance that is due to chance within a user's simulation is
reduced by control variates, whose expectation is exactly 0 for any policy:

- the indicator of another occasion less its probability, also multiplied by the expected reward at the last one;
- the expected number of later occasions given the outcome (click or none) less its expectation before the outcome;
- polynomials of the user's first interests, and of their changes since, that are martingales under the drift.

Their coefficients are fitted by least squares (Lavenberg & Welch 1981), which keeps the estimate's limit.
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
"""Number of draws, at evenly spaced uniforms, from a policy whose action has a probability below 1."""

_FIXED_DRAWS = 32
"""Number of draws from a policy whose distribution is fixed; more than :data:`_DRAWS`, because they are cheap."""

_PAIRED_FACTORS = 10
"""Largest number of factors with which products of two interests are among the control variates."""

# Rows of the sums over a user's occasions: two sums, five control variates of chance, and then the polynomials.
_REWARDS, _OCCASIONS, _BEGINS, _CLICK, _REWARD_CLICK, _NEXT, _REWARD_NEXT, _POLYNOMIALS = range(8)

_SHARDS_A_WORKER = 2
"""Number of shards for each worker; few, because a step in Python costs as much for one user as for many."""


@dataclass(frozen=True)
class LongRun:
    """Estimate of a policy's long-run rate.

    Attributes:
        value: estimated mean reward per recommendation.
        influence: (n_users,) contribution of each user to the error of the value, which is their mean.
        occasions: number of occasions at which the policy acted.
        n_controls: number of control variates in use, which reduces the degrees of freedom.
    """

    value: float
    influence: Floats
    occasions: int
    n_controls: int


def asks_at_occasions(world: World, policy: Policy) -> bool:
    """Return True if :func:`long_run` applies: the world has occasions, and the policy depends on views only."""
    if not isinstance(world, DecisionWorld) or world.open_occasions(1, views=False) is None:
        return False
    return learning_of(policy) == "nothing" and (policy.batches_decisions or has_fixed_distribution(policy))


def long_run(
    world: World, policy: Policy, n_users: int, seed: int, *, executor: Executor | None = None
) -> LongRun | None:
    """Estimate the rate of a policy over users 0 .. n_users - 1 of a seed; return None if no user has an occasion.

    Args:
        world: world of the users.
        policy: a policy for which :func:`asks_at_occasions` is true.
        n_users: number of users.
        seed: seed of the users.
        executor: executor over which users are spread; the result is the same without one.
    """
    simulate_shard = carrying(_simulate_occasions, world, policy, seed, in_python=acts_in_python(policy))
    shards = user_shards(0, n_users, _shard_size(world, n_users, executor))
    jobs = (functools.partial(simulate_shard, np.arange(first, first + n)) for first, n in shards)
    sums = np.concatenate(list(run_in_order(jobs, executor)), axis=1)
    if sums[_OCCASIONS].sum() == 0:
        return None
    return _estimate(sums)


def _shard_size(world: World, n_users: int, executor: Executor | None) -> int:
    """Return the number of users that are simulated at once: bounded by memory, with a few shards for each worker."""
    most = users_at_once(world)
    if executor is None:
        return most
    n_shards = _SHARDS_A_WORKER * executor_size(executor)
    return min(most, max(SHARD_USERS, math.ceil(n_users / n_shards)))


def _estimate(sums: Floats) -> LongRun:
    """Estimate the rate from the sums (2 + m, n_users) of :class:`_OccasionSums`: rewards, occasions, controls."""
    rewards = sums[_REWARDS]
    occasions = sums[_OCCASIONS]
    controls = sums[_BEGINS:]
    value = float(rewards.sum() / occasions.sum())
    influence = (rewards - value * occasions) / occasions.mean()
    # The influences have mean 0. After the controls are subtracted, their mean is the correction of the ratio.
    residual, n_controls = without_controls(influence, controls)
    correction = float(residual.mean())
    return LongRun(value + correction, residual - correction, int(occasions.sum()), n_controls)


def without_controls(values: Floats, controls: Floats) -> tuple[Floats, int]:
    """Reduce the variance of ``values`` (n,) by subtracting the best linear combination of ``controls`` (m, n).

    The coefficients are those of least squares. Controls that are 0 throughout are left out.

    Returns:
        values: (n,) values less the linear combination; unchanged if no control is in use.
        n_controls: number of controls in use; 0 if there are fewer than ten values for each.
    """
    from recsim_mnar.kernels import _vectors_kernel

    # One row at a time, which fits into the processor's cache; all controls together may be large.
    sizes = [math.sqrt(float(np.mean(control * control))) for control in controls]
    used = [(control, size) for control, size in zip(controls, sizes, strict=True) if size > 0.0]
    if not used or len(values) < 10 * len(used):
        return values, 0
    rows = np.empty((len(used) + 1, len(values)))  # the centred controls, scaled to size 1, then the centred values
    for row, (control, size) in zip(rows, used, strict=False):
        np.divide(control, size, out=row)
        row -= row.mean()
    np.subtract(values, values.mean(), out=rows[-1])
    gram = np.empty((len(rows), len(rows)))
    _vectors_kernel.gram(rows, np.zeros((*gram.shape, 8)), gram)  # the zeros are the kernel's partial sums
    # The normal equations; the cut-off drops controls that depend linearly on others.
    coefficients = np.linalg.lstsq(gram[:-1, :-1], gram[:-1, -1], rcond=1e-10)[0]
    residual = values.copy()
    for coefficient, (control, size) in zip(coefficients, used, strict=True):
        residual -= coefficient * (control / size)
    return residual, len(used)


def _simulate_occasions(world: DecisionWorld, policy: Policy, seed: int, users: Ints) -> Floats:
    """Simulate users from occasion to occasion until all have left, and return their sums (2 + m, n_users).

    The rows are those of :class:`_OccasionSums`. In the loop ``which`` are the lanes of users who have not left,
    ``starts`` and ``items`` their views since the last occasion, and ``has_next`` is True for those with another one.
    """
    fixed = has_fixed_distribution(policy)
    lanes = world.open_occasions(len(users), views=not fixed)
    assert lanes is not None  # asks_at_occasions is true
    choices = _FixedChoices(lanes, policy, seed) if fixed else _Choices(lanes, policy, seed)
    record = _OccasionSums(lanes, len(users))
    which = np.arange(len(users))
    choices.arrive(users)
    starts, items, has_next = lanes.begin(which, seed, users)
    record.begin(has_next)
    while True:
        choices.observe(which, starts, items)
        which = which[has_next]
        if len(which) == 0:
            return record.sums
        shown_rewards, expected = choices.rewards(which)
        clicked = lanes.uniform[which] < shown_rewards
        record.occasion(which, shown_rewards, expected, clicked)
        starts, items, has_next = lanes.answer(which, clicked)
        record.outcome(which, clicked, has_next)


class _Choices:
    """Recommendations of a policy at occasions, and their expected rewards."""

    def __init__(self, lanes: Occasions, policy: Policy, seed: int) -> None:
        self._lanes = lanes
        self._policy = policy.fresh()
        self._seed = seed
        self._acting = Acting(self._policy, policy.n_items, policy)

    def arrive(self, users: Ints) -> None:
        """Reset the policy for the users (n_users,)."""
        self._policy.reset(users)

    def observe(self, which: Ints, starts: Ints, items: NDArray[np.int32]) -> None:
        """Show the policy the views since the last occasion.

        Args:
            which: (n,) lanes.
            starts: (n + 1,) lane i has viewed ``items[starts[i]:starts[i + 1]]``.
            items: items viewed, lane after lane.
        """
        if len(items):
            self._policy.observe(np.repeat(self._lanes.user[which], np.diff(starts)), items)

    def rewards(self, which: Ints) -> tuple[Floats, Floats]:
        """Compute the expected rewards of the recommendations at an occasion.

        Args:
            which: (n,) lanes of the users who have an occasion.

        Returns:
            shown_rewards: (n,) expected reward of the item that is shown, one draw of the policy.
            expected: (n,) mean of the expected reward over several draws of the policy, which has less variance.
        """
        users = self._lanes.user[which]
        drawn = policy_uniforms(self._seed, users, self._lanes.n_decisions[which])
        if isinstance(self._policy, Oracle):
            self._policy.see(users, self._lanes.state[which])
        actions, propensities = self._acting(users, drawn)
        shown_rewards = self._lanes.reward_means(which, actions)
        expected = shown_rewards.copy()
        stochastic = np.flatnonzero(propensities < 1.0)
        if len(stochastic):
            # Evenly spaced uniforms, modulo 1, starting at the one by which the shown item was drawn.
            further_draws = (drawn[stochastic, None] + np.arange(1, _DRAWS) / _DRAWS) % 1.0
            further_actions, _ = self._acting(np.repeat(users[stochastic], _DRAWS - 1), further_draws.ravel())
            means = self._lanes.reward_means(np.repeat(which[stochastic], _DRAWS - 1), further_actions)
            expected[stochastic] = (shown_rewards[stochastic] + means.reshape(len(stochastic), -1).sum(axis=1)) / _DRAWS
        return shown_rewards, expected


class _FixedChoices(_Choices):
    """Recommendations of a policy whose distribution is the same for everyone, which does not observe users."""

    def __init__(self, lanes: Occasions, policy: Policy, seed: int) -> None:
        self._lanes = lanes
        self._policy = policy
        self._seed = seed
        order = lanes.order()
        distribution = policy.fixed_distribution()
        if distribution is None:
            distribution = np.full(policy.n_items, 1.0 / policy.n_items)
        probability = checked_distribution(policy, distribution, policy.n_items)
        self._items = order[probability[order] > 0.0].astype(np.int32)  # possible items, by their rewards
        self._cumulative = np.cumsum(probability[self._items])
        self._cumulative[-1] = np.inf  # rounding may leave the sum below a uniform

    def arrive(self, users: Ints) -> None:
        """Do nothing: the policy keeps no state."""

    def observe(self, which: Ints, starts: Ints, items: NDArray[np.int32]) -> None:
        """Do nothing: the policy keeps no state."""

    def rewards(self, which: Ints) -> tuple[Floats, Floats]:
        """Implement :meth:`_Choices.rewards`, by draws stratified over items in the order of their rewards."""
        if len(self._items) == 1:  # a deterministic policy needs no draws
            shown_rewards = self._lanes.reward_means(which, np.repeat(self._items, len(which)))
            return shown_rewards, shown_rewards
        drawn = policy_uniforms(self._seed, self._lanes.user[which], self._lanes.n_decisions[which])
        # The fraction of ``drawn * _FIXED_DRAWS`` is the place within every stratum, its whole part the shown stratum.
        stratified = (drawn[:, None] * _FIXED_DRAWS % 1.0 + np.arange(_FIXED_DRAWS)) / _FIXED_DRAWS
        places = np.searchsorted(self._cumulative, stratified.ravel(), side="right")
        means = self._lanes.reward_means(np.repeat(which, _FIXED_DRAWS), self._items[places]).reshape(stratified.shape)
        # The strata are equally probable and independent of the place within them, so the shown item has the policy's
        # distribution.
        strata = np.minimum((drawn * _FIXED_DRAWS).astype(np.int64), _FIXED_DRAWS - 1)
        return means[np.arange(len(which)), strata], means.mean(axis=1)


class _OccasionSums:
    """Sums over the occasions of each lane.

    Attributes:
        sums: (rows, n_users) with expected rewards, numbers of occasions, five control variates of chance (the row
            constants name them), polynomials of the interests at the first occasion, and sums of their changes from
            one occasion to the next.
    """

    def __init__(self, lanes: Occasions, n_users: int) -> None:
        self._lanes = lanes
        self._prospects: Prospects = lanes.prospects(lanes.share / 2.0)
        self._terms = _terms(lanes.state.shape[1])
        self.sums = np.zeros((_POLYNOMIALS + 2 * len(self._terms), n_users))
        # Views of the rows of polynomials, (terms, n_users) each.
        self._first, self._changes = self.sums[_POLYNOMIALS:].reshape(2, len(self._terms), n_users)
        # State of each lane: polynomials and expected reward at its last occasion, and whether it has had one.
        self._last = np.zeros((len(self._terms), n_users))
        self._expected = np.zeros(n_users)
        self._had_occasion = np.zeros(n_users, np.bool_)

    def begin(self, has_next: NDArray[np.bool_]) -> None:
        """Record which lanes (n_users,) have a first occasion, less its probability."""
        self.sums[_BEGINS] = has_next - self._prospects.begins

    def occasion(self, which: Ints, shown: Floats, expected: Floats, clicked: NDArray[np.bool_]) -> None:
        """Record an occasion of some lanes.

        Args:
            which: (n,) lanes that have an occasion.
            shown: (n,) expected reward of the shown item.
            expected: (n,) expected reward of the policy's choice.
            clicked: (n,) True for a click on the shown item.
        """
        self.sums[_REWARDS, which] += expected
        self.sums[_OCCASIONS, which] += 1.0
        after_none, after_click = self._prospects.number  # expected numbers of later occasions
        # The uniform of an occasion is below share, and given that, P(click) = shown / share.
        surprise = (after_click - after_none) * (clicked - shown / self._lanes.share)
        self.sums[_CLICK, which] += surprise
        self.sums[_REWARD_CLICK, which] += expected * surprise
        self._expected[which] = expected
        polynomials = _polynomials(self._lanes.state[which], self._lanes.variance[which], self._terms)
        is_later = self._had_occasion[which]
        self._first[:, which[~is_later]] = polynomials[:, ~is_later]
        self._changes[:, which[is_later]] += (polynomials - self._last[:, which])[:, is_later]
        self._last[:, which] = polynomials
        self._had_occasion[which] = True

    def outcome(self, which: Ints, clicked: NDArray[np.bool_], has_next: NDArray[np.bool_]) -> None:
        """Record which of the lanes (n,) have another occasion, less its probability after a click or none."""
        surprise = has_next - self._prospects.goes_on[clicked.astype(np.int64)]
        self.sums[_NEXT, which] += surprise
        self.sums[_REWARD_NEXT, which] += self._expected[which] * surprise


def _terms(n_factors: int) -> list[tuple[int, ...]]:
    """Return the factors of each polynomial: single factors, squares and, for few factors, products of two.

    A tuple (k,) stands for x_k, and (j, k) for x_j x_k.
    """
    single = [(k,) for k in range(n_factors)]
    if n_factors > _PAIRED_FACTORS:
        return [*single, *((k, k) for k in range(n_factors))]
    return [*single, *itertools.combinations_with_replacement(range(n_factors), 2)]


def _polynomials(state: Floats, variance: Floats, terms: list[tuple[int, ...]]) -> Floats:
    """Compute the polynomials x_k, x_k^2 - v and x_j x_k of interests x, which are martingales while x drifts.

    Args:
        state: (n, K) interests x.
        variance: (n,) variance v that the drift has added to each interest so far.
        terms: factors of each polynomial.

    Returns:
        (terms, n) values.
    """
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
    """Compute Student's t interval of a rate over users; its lower end is at least 0.

    Returns:
        low: lower end; minus infinity without degrees of freedom.
        high: upper end; infinity without degrees of freedom.
    """
    from scipy.special import stdtrit

    n = len(rate.influence)
    freedom = n - 1 - rate.n_controls  # each control variate has cost one fitted coefficient
    if freedom < 1:
        return -math.inf, math.inf
    error = math.sqrt(float(rate.influence @ rate.influence) / freedom / n)
    reach = float(stdtrit(freedom, 0.5 + level / 2)) * error
    return max(rate.value - reach, 0.0), rate.value + reach


SHARE = 0.6
"""Share of the users of a plain average with which an average over occasions has equally narrow intervals
(``benchmarks/speed/README.md``)."""

LEAST = 1000
"""Least number of users with which control variates are worth the degrees of freedom that they cost."""


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

    If the world has occasions and a policy depends on views only, the policy acts at occasions only (:func:`long_run`),
    and :data:`SHARE` of the users give equally narrow intervals. The values of other policies, and of all policies with
    fewer than :data:`LEAST` users, are plain averages. The details of a record name the method, and the half width of
    the interval of each paired difference from another policy.

    Args:
        world: world of the users.
        policies: policies by name.
        n_users: number of users of a plain average.
        seed: seed of the users.
        level: nominal coverage of the intervals.
        executor: executor over which users are spread; the result is the same without one.
    """
    records: list[Record] = []
    influence: dict[str, Floats] = {}
    metric, _ = rate_of(world)
    truth_seed = derive_seed(seed, "truth")
    for name, policy in policies.items():
        began = time.perf_counter()
        estimate, n, influence[name], details = _true_rate(world, policy, n_users, truth_seed, level, executor)
        key = (world.name, "truth", name, metric)
        seconds = time.perf_counter() - began
        records.append(Record.of(*key, estimate, level=level, n=n, seconds=seconds, details=details))
    return with_half_widths(records, influence, level)


def _true_rate(
    world: World, policy: Policy, n_users: int, seed: int, level: float, executor: Executor | None
) -> tuple[tuple[float, float, float], int, Floats, Mapping[str, object]]:
    """Estimate the long-run rate of one policy, over occasions if that is possible, else as a plain average.

    Returns:
        rate: value, low and high end.
        n: number of decisions or occasions.
        influence: (U,) contribution of each user to the error.
        details: number of users and name of the method.
    """
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
        train_users: number of users whose uniformly logged data learners are fitted on.
        test_users: number of users in the log for leave-one-out and off-policy evaluation.
        arm_users: number of users of each arm of the A/B test.
        truth_users: number of users over whom the truth is averaged.
        folds: number of folds of leave-one-out.
        logging: name of the agent that collects the test log.
        estimators: names of the estimators of off-policy evaluation, with commas.
        clip: largest weight of clipped IPS (M).
        level: nominal coverage of all intervals.
        paired: True if the arms of the A/B test share their users.
        online_runs: number of runs, of ``arm_users`` users each, of an agent that learns from all users while it acts.
        online_lanes: number of users of such a run who are simulated side by side.
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

    Leave-one-out and off-policy evaluation read one log of ``test_users`` users under the logging policy; the arms of
    the A/B test and the truth have separate users. The truth is the long-run mean reward of each policy (the CTR if
    rewards are clicks), computed from the world's exact expected rewards.
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
    """Move agents that learn from all users while they act to ``trial.online``: no log or truth can judge them."""
    for name, policy in list(trial.policies.items()):
        if learning_of(policy) == "all users":
            trial.online[name] = trial.policies.pop(name)
    trial.learners = {name: learner for name, learner in trial.learners.items() if name in trial.policies}
