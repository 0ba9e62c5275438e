"""Rules for a world, each with the fix for its breach.

:class:`recsim_mnar.testing.WorldContract` runs the same rules as tests.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.log import schema
from recsim_mnar.log.contexts import Observation
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.policies.base import Floats, Ints, Policy
from recsim_mnar.policies.features import FeaturePolicy
from recsim_mnar.simulation.items import decider, drive, simulate
from recsim_mnar.testing.rules import Breach, Reasons, Rules, breaches_of, rule
from recsim_mnar.worlds.base import DecisionWorld, Transition, decision_world
from recsim_mnar.worlds.lanes import CheckedLanes

Columns = dict[str, NDArray[Any]]
Make = Callable[[], DecisionWorld]

SEED = 20190912
FEW_USERS = 100
"""Number of users whose rows are compared exactly."""
MANY_USERS = 2000
"""Number of users whose rewards are averaged."""
MOST_DEVIATIONS = 5.0
"""Number of standard errors beyond which a world is refused, as are 6 of 10,000,000 correct ones."""
HIGH_ID = 10_000
"""Smallest id of the users with high ids, in the middle of those over whom a policy's true value is averaged."""
EARLY_DECISION = 2_000
LATE_DECISION = 20_000
"""Numbers of decisions: of the users who are present after the first number, some must leave before the second.

A correct world in which each user leaves with the same probability after each decision, after at most 200,000 decisions
on average, breaks this rule with a probability below 1 in 10,000.
"""
DETECTED_ERROR = 0.02
"""Relative error of the stated truth that the test should detect."""
CRITICAL_DEVIATIONS = 3.5
"""Number of standard errors of a sum near normal beyond which a world is refused, as are 5 of 10,000 correct ones."""
POWER_DEVIATIONS = 1.3
"""Number of standard errors by which an error must exceed ``CRITICAL_DEVIATIONS`` to be detected with power .9."""
LEAST_DISTANCE = 20.0
"""Total distance of rewards from their means above which equal rewards for two seeds cannot be chance."""
NORMAL_VARIANCE = 100.0
"""Variance from which on a sum of rewards of 0 and 1 counts as normal.

Also a Poisson variable with this mean is beyond 3.5 standard deviations with probability 5 in 10,000.
"""
MOST_DECISIONS = 300_000
"""Largest number of decisions in the test of the truth; if fewer than 1 in 6 is rewarded, only larger errors than
``DETECTED_ERROR`` are detected."""
LEAST_ROWS = 100
"""Smallest number of recommendations of an item for a test of its mean; with fewer the mean is not near normal."""

RULES: Rules = {}


class UniformPolicy(Policy):
    """Policy of the tests: every item has the same probability; it makes one decision per user and call."""

    name = "uniform"

    def __init__(self, n_items: int) -> None:
        self.n_items = n_items

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:  # noqa: D102  (as of Policy)
        actions = np.minimum((uniforms * self.n_items).astype(np.int32), self.n_items - 1)
        return actions, np.full(len(actions), 1.0 / self.n_items)

    def probabilities(self, users: Ints) -> Floats:  # noqa: D102
        return np.full((len(users), self.n_items), 1.0 / self.n_items)


def check_world(make_world: Callable[[], Any]) -> list[Breach]:
    """Return the rules of :data:`RULES` that a world breaks, an empty list if it keeps them all.

    Args:
        make_world: function that makes a new world, always with the same parameters.
    """
    return breaches_of(RULES, make_world, needed=("door", "users_leave"))


# ----------------------------------------------------------------------------------------------------------- the rules


@rule(RULES, "derive from DecisionWorld, set name and n_items, and define what its lanes ask for")
def door(make: Make) -> None:
    """Check that the object is a DecisionWorld with a name and a number of items, and that it opens lanes."""
    decision_world(make(), "the contract").decides()
    make().lanes(1)


@rule(RULES, "let answer() or take() end lives: after a number of decisions, or with a probability")
def users_leave(make: Make) -> Reasons:
    """Check that users leave at some time (:data:`EARLY_DECISION`), as logs and episodes continue until they do."""
    n_early = FEW_USERS  # number of users left after EARLY_DECISION
    for decision, (_, transition, _) in enumerate(_decisions(make())):
        n_present = int(transition.alive.sum())
        if decision == EARLY_DECISION:
            n_early = n_present
        elif decision == LATE_DECISION:
            if n_present == n_early:
                none_leaves = f"none leaves before decision {decision:,}"
                yield f"{n_present} users are there after {EARLY_DECISION:,} decisions, and {none_leaves}"
            return


@rule(RULES, "keep what a world knows of a user in arrays by lane, and draw at the user's address")
def any_lanes(make: Make) -> Reasons:
    """Check that users have the same rows in 1, 8 and 100 lanes, and that each transition is valid."""
    reference = _simulated_rows(make(), 1)
    for n_lanes in (8, 100):
        yield from _row_differences(_simulated_rows(make(), n_lanes), reference, f"{n_lanes} lanes", "1 lane")


@rule(RULES, "draw at the address (seed, stream, user, decision), never from a generator that users share")
def alone(make: Make) -> Reasons:
    """Check that a user has the same rows when simulated alone as among other users."""
    rows_of_all = _simulated_rows(make(), n_lanes=8)
    users = (FEW_USERS - 1, 3, 57)
    among_others = {name: values[np.isin(rows_of_all["user"], users)] for name, values in rows_of_all.items()}
    rows_alone = _simulated_rows(make(), n_lanes=1, users=users, n=1)
    yield from _row_differences(rows_alone, among_others, "users 3, 57 and 99 alone", "among 100")


@rule(RULES, "draw at lanes' seed: self.uniforms(which), or an address that begins with self.seed")
def seeds_differ(make: Make) -> Reasons:
    """Check that random rewards differ between seeds for the same recommendations.

    Two draws of rewards of 0 and 1 with probabilities p are equal with a probability of at most exp(-S), where S, the
    sum of 2 p (1 - p), is the expected total distance of rewards from p. So equal rewards are a breach only if that
    distance is large; rewards without chance are equal in every seed.
    """
    world = make()
    if world.truth_column is None:
        return
    always_item_0 = np.eye(world.n_items)[0]
    one = world.trajectories(SEED, 0, FEW_USERS, always_item_0, keep_truth=True)
    other = world.trajectories(SEED + 1, 0, FEW_USERS, always_item_0, keep_truth=True)
    distance = np.nansum(np.abs(one["reward"] - one[world.truth_column]))
    are_equal = all(np.array_equal(one[name], other[name], equal_nan=True) for name in ("event", "item", "reward"))
    if distance > LEAST_DISTANCE and are_equal:
        yield f"users 0 to {FEW_USERS - 1} of two seeds live the same lives"


@rule(RULES, "omit trajectories, or make it return the same lives as the lanes")
def whole_lives(make: Make) -> Reasons:
    """Check that ``trajectories`` returns the same rows as the lanes, for the uniform and another fixed policy."""
    world = make()
    weights = 1.0 + np.arange(world.n_items) % 3
    for distribution in (None, weights / weights.sum()):
        rows = world.trajectories(SEED, 5, FEW_USERS, distribution)
        of_lanes = DecisionWorld.trajectories(make(), SEED, 5, FEW_USERS, distribution)
        yield from _row_differences(rows, of_lanes, "trajectories", "lanes")


@rule(RULES, "let begin and take alone change what the lanes hold")
def interfaces(make: Make) -> Reasons:
    """Check that ``simulate``, the single and the vector environment make the same log."""
    from recsim_mnar.envs.single import WorldEnv
    from recsim_mnar.envs.vector import WorldVectorEnv
    from recsim_mnar.testing.environments import stepped_again

    log = simulate(make(), UniformPolicy(make().n_items), FEW_USERS // 2, SEED)
    single = stepped_again(WorldEnv(make()), log)
    yield from _row_differences(single.columns, log.columns, "the single environment", "simulate")
    vector = stepped_again(WorldVectorEnv(make(), 3), log)
    yield from _row_differences(vector.columns, log.columns, "3 lanes of the vector one", "simulate")


@rule(RULES, "let observe() and show() change the given rows alone, by what is given, events in their order")
def observation_is_one(make: Make) -> Reasons:
    """Check that a user's observations are the same in a log, a policy and an environment, alone and among others."""
    from recsim_mnar.envs.single import WorldEnv

    world = make()
    observation = world.observation
    n = world.n_items
    if observation is None:
        return
    if not isinstance(observation, Observation):
        yield f"observation must be an object of a class derived from Observation, got {observation!r}"
        return
    log = simulate(world, UniformPolicy(n), FEW_USERS // 2, SEED)
    space = observation.space(n)
    rows, _ = observation.of(log, n)
    outside = [row for row in rows if row not in space]
    if outside:
        yield f"{outside[0]} is not in its space, {space}"
    deciding = log["user"][log.is_bandit]
    policy = FeaturePolicy(n, observation, scores=lambda x: np.zeros((len(x), n)))
    env = WorldEnv(make(), observation="own")
    for user in np.unique(deciding)[:5].tolist():
        of_user = log.select(log["user"] == user)
        actions = of_user["action"][of_user.is_bandit].tolist()
        in_environment = [env.reset(seed=SEED, options={"user": user})[0]]
        in_environment += [env.step(action)[0] for action in actions[:-1]]  # the last one ends the episode
        for observed, where in (
            (observation.of(of_user, n)[0], "alone and among others"),
            (_shown_by_policy(policy, of_user), "in a FeaturePolicy and in a log"),
            (np.stack(in_environment), "in an environment and in a log"),
        ):
            if not np.array_equal(observed, rows[deciding == user]):
                yield f"user {user} {where}: the observations differ"


def _shown_by_policy(policy: FeaturePolicy, log: Log) -> NDArray[np.float32]:
    """Return a policy's features at each decision, (d, width), of the single user of a log.

    The policy gets the user's events one by one, and learns each recommendation's outcome.
    """
    user = log["user"][:1]
    features = []
    policy.reset(user)
    for row in range(len(log)):
        one = slice(row, row + 1)
        if log.is_bandit[row]:
            features.append(policy.features(user)[0])
            policy.learn(user, log["action"][one], log["reward"][one], log["propensity"][one])
        else:
            policy.observe(user, log["item"][one])
    return np.stack(features)


@rule(RULES, "return new arrays, or copies")
def arrays_are_new(make: Make) -> Reasons:
    """Check that no later transition changes the arrays of an earlier one."""
    world = make()
    copies: list[tuple[str, NDArray[Any], NDArray[Any]]] = []

    def keep(transition: Transition) -> None:
        """Store each array of a transition with a copy of its present content."""
        for name, values in {**transition.columns, "starts": transition.starts, "alive": transition.alive}.items():
            copies.append((name, values, values.copy()))

    _simulated_rows(world, n_lanes=8, n=FEW_USERS // 2, each=keep)
    for name, values, copy in copies:
        is_float = values.dtype.kind == "f"  # NaN equals NaN; other types have none
        if not np.array_equal(values, copy, equal_nan=is_float):
            yield f"{name} of a transition was changed after it was handed out: a buffer is used twice"


@rule(RULES, "fill the truth column with reward_means of the state before the answer")
def truth_is_the_mean(make: Make) -> Reasons:
    """Check that ``reward_means`` is valid, and that the truth column has its value for the recommended item."""
    world = make()
    if not world.knows_rewards:
        return
    column = world.truth_column
    for state, transition, actions in itertools.islice(_decisions(world, keep_truth=column is not None), 20):
        means = np.asarray(world.reward_means(state))
        if means.shape != (len(actions), world.n_items) or not np.isfinite(means).all():
            yield f"reward_means must return ({len(actions)}, {world.n_items}) finite numbers, got {means.shape}"
        if column is not None:
            stated = transition.columns[column][transition.starts[:-1]]
            if not np.allclose(stated, means[np.arange(len(actions)), actions], rtol=1e-9, atol=1e-12):
                yield f"{column} of a decision is not what reward_means says of the action shown"


@rule(RULES, "state a probability where rewards are 0 or 1")
def truth_in_range(make: Make) -> Reasons:
    """Check that the truth column is a number in decisions and NaN in views, and in [0, 1] if rewards are 0 or 1."""
    world = make()
    if world.truth_column is None:
        return
    rows = world.trajectories(SEED, 0, FEW_USERS, None, keep_truth=True)
    decision_rows = rows["event"] == schema.BANDIT
    truth = rows[world.truth_column]
    rewards = rows["reward"][decision_rows]
    if not np.isfinite(truth[decision_rows]).all() or np.isfinite(truth[~decision_rows]).any():
        yield f"{world.truth_column} must be a number on bandit rows and NaN on organic ones"
    if np.isin(rewards, (0.0, 1.0)).all() and ((truth[decision_rows] < 0) | (truth[decision_rows] > 1)).any():
        yield f"rewards are 0 or 1, but {world.truth_column} leaves [0, 1]"


@rule(RULES, "draw rewards whose mean is the truth column")
def rewards_have_their_means(make: Make) -> Reasons:
    """Check that rewards minus their stated means sum to 0, over all decisions and by item, within :func:`bound`."""
    world = make()
    if world.truth_column is None:
        return
    names = ("user", "action", "reward", world.truth_column)
    n_users = _enough_users(*_bandit_rows(world, 0, MANY_USERS, names))
    user, action, reward, truth = _bandit_rows(world, 0, n_users, names)
    binary = bool(np.isin(reward, (0.0, 1.0)).all())
    for of_item, (rows_of_item,) in _over_all_and_by_item(world.n_items, action):  # of_item: words such as " of item 3"
        error = (reward - truth)[rows_of_item]
        columns = (user[rows_of_item], error, truth[rows_of_item])
        # By item there are many tests, so the sharper bound, which fails more often by chance, is for the total only.
        limit = bound(*columns, binary=binary)
        if not of_item:
            limit = min(limit, _normal_bound(*columns, binary=binary))
        if abs(error.sum()) > limit + 1e-9 * len(error):
            total = reward[rows_of_item].sum()
            yield (
                f"rewards{of_item}: they sum to {total:.4g}, the stated means to {truth[rows_of_item].sum():.4g}: "
                f"further apart, by {error.mean():+.4g} in {len(error):,} recommendations, than chance allows"
            )


@rule(RULES, "let a user's number address draws only, and take dates from decisions")
def any_number(make: Make) -> Reasons:
    """Check that users with high and with low ids have the same mean reward, over all decisions and by item.

    The true value of a policy is an average over users 0 to 19,999, that of an arm over 0 to 4,999. If a user's id were
    a date in the world, the two would belong to different periods.
    """
    world = make()
    blocks = [_bandit_rows(world, first, MANY_USERS, ("user", "reward", "action")) for first in (0, HIGH_ID)]
    for of_item, rows in _over_all_and_by_item(world.n_items, *(block[2] for block in blocks)):
        of_blocks = [_mean_of_users(user[r], reward[r]) for (user, reward, _), r in zip(blocks, rows, strict=True)]
        (low, error_of_low), (high, error_of_high) = of_blocks
        if abs(high - low) > MOST_DEVIATIONS * math.hypot(error_of_low, error_of_high) + 1e-9:
            what = f"a recommendation{of_item}"
            yield (
                f"users {HIGH_ID:,} to {HIGH_ID + MANY_USERS - 1:,} earn {high:.4g} {what}, users 0 to "
                f"{MANY_USERS - 1:,} earn {low:.4g}: the truth is a mean over other users than an arm's"
            )


@rule(RULES, "return the name and what defines the world, in JSON types")
def describes_itself(make: Make) -> Reasons:
    """Check that ``describe`` returns JSON types, and the same for the same world."""
    world = make()
    stated = world.describe()
    if json.loads(json.dumps(stated)) != stated:
        yield "describe() changes on its way through JSON: use lists, texts and plain numbers only"
    if stated != make().describe():
        yield "describe() says something else of a second world made in the same way"


@rule(RULES, "use fields of type bool, int, float or str")
def params_round_trip(make: Make) -> Reasons:
    """Check that parameters survive TOML, JSON and ``name=value`` texts."""
    params = make().params
    kind = type(params)
    texts = [f"{name}={value}" for name, value in params.to_dict().items()]
    for form, again in (
        ("TOML", lambda: kind.from_toml(params.to_toml())),
        ("JSON", lambda: kind.from_json(params.to_json())),
        ("name=value", lambda: params.with_settings(texts)),
    ):
        if again() != params:
            yield f"the parameters change on their way through {form}"


# -------------------------------------------------------------------------------------------------------------- inside


def _decisions(world: DecisionWorld, *, keep_truth: bool = False) -> Iterator[tuple[Any, Transition, Ints]]:
    """Simulate :data:`FEW_USERS` users under the uniform policy, all side by side, until the last one leaves.

    Args:
        world: the world.
        keep_truth: let the transitions have the truth column.

    Yields:
        for the next decision of all remaining users, n of them: their states before it, None in a world that does not
        know expected rewards; the transition; and their actions, (n,).
    """
    lanes = world.lanes(FEW_USERS, keep_truth=keep_truth)
    which = np.arange(FEW_USERS)
    transition = lanes.begin(which, np.full(FEW_USERS, SEED, np.uint64), which)
    for decision in itertools.count():
        which = which[transition.alive]
        if len(which) == 0:
            return
        uniforms = rng.policy_uniforms(SEED, lanes.user[which], np.full(len(which), decision))
        actions, propensities = UniformPolicy(world.n_items).act(which, uniforms)
        state = None
        if world.knows_rewards:
            state = lanes.state[which].copy()
        transition = lanes.take(which, actions.astype(np.int32), propensities)
        yield state, transition, actions


def _simulated_rows(
    world: DecisionWorld,
    n_lanes: int,
    users: Iterable[int] = (0,),
    n: int = FEW_USERS,
    each: Callable[[Transition], None] | None = None,
) -> Columns:
    """Simulate users under the uniform policy, and return their rows, ordered by user.

    Args:
        world: the world.
        n_lanes: number of users who are simulated side by side; when one leaves, the next one takes the lane.
        users: ids from each of which on ``n`` users are simulated.
        n: number of users from each of these on.
        each: function that is called with every transition, before a later one can change its arrays; None without one.
    """
    parts: list[Columns] = []

    def recorded(method: Callable[..., Transition], *arguments: Any) -> Transition:
        """Call a method of the lanes, and keep a copy of the rows of its transition."""
        transition = method(*arguments)
        if each is not None:
            each(transition)
        parts.append({name: values.copy() for name, values in transition.columns.items()})
        return transition

    for first in users:
        world_lanes = world.open_lanes(n_lanes)
        lanes = CheckedLanes(world_lanes, world.name, world.n_items, n_lanes, rates=world.rates, truth_column=None)
        for name in ("begin", "take"):
            setattr(lanes, name, functools.partial(recorded, getattr(lanes, name)))
        decide = decider(UniformPolicy(world.n_items), world.n_items)
        deque(drive(world, decide, lanes, SEED, first, n), maxlen=0)  # exhausts the iterator; ``recorded`` has the rows
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(columns["user"], kind="stable")
    return {name: values[order] for name, values in columns.items()}


def _row_differences(one: Columns, other: Columns, what: str, than: str) -> Reasons:
    """Yield the first difference of each column between two sets of rows; ``what`` and ``than`` name them."""
    for name in schema.NAMES:
        a = one[name]
        b = other[name]
        if len(a) != len(b):
            yield f"{what}: {len(a)} rows, {than} {len(b)}"
        for row in np.flatnonzero((a != b) & ~((a != a) & (b != b)))[:1]:  # NaN equals NaN
            where = f"{name} of user {one['user'][row]}, step {one['step'][row]}"
            yield f"{what}: {where} is {a[row]}, {than} has {b[row]}"


def _bandit_rows(world: DecisionWorld, first: int, n_users: int, names: Sequence[str]) -> list[Any]:
    """Return columns of the recommendations to users first .. first + n_users - 1 under the uniform policy."""
    rows = world.trajectories(SEED, first, n_users, None, keep_truth=world.truth_column in names)
    return [rows[name][rows["event"] == schema.BANDIT] for name in names]


def _over_all_and_by_item(n_items: int, *actions: Ints) -> Iterator[tuple[str, list[NDArray[np.bool_]]]]:
    """Yield groups of recommendations: all of them, then each item with at least :data:`LEAST_ROWS` in every array.

    Args:
        n_items: number of items.
        *actions: arrays of recommended items, (n,) each.

    Yields:
        words for the group such as " of item 3", "" for all; and a mask (n,) of the group for each array.
    """
    yield "", [np.ones(len(action), np.bool_) for action in actions]
    counts = [np.bincount(action, minlength=n_items) for action in actions]
    for item in np.flatnonzero(np.min(counts, axis=0) >= LEAST_ROWS):
        yield f" of item {item}", [action == item for action in actions]


def _variance_of_sum(user: NDArray[np.int64], error: Floats) -> float:
    """Estimate the variance of the sum of errors (n,) with mean 0 from the sums of users, who are independent.

    ``user`` (n,) has a user's rows consecutively.
    """
    if len(user):
        return float((np.add.reduceat(error, user_starts(user)) ** 2).sum())
    return 0.0


def _enough_users(user: NDArray[np.int64], action: Ints, reward: Floats, truth: Floats) -> int:
    """Compute the number of users with which the test of the truth detects :data:`DETECTED_ERROR` with power .9.

    With n times as many users the sum of (reward - truth) has n times the variance, and a relative error of the truth
    moves it n times as far. The error is detected if it moves the sum by at least :data:`CRITICAL_DEVIATIONS` +
    :data:`POWER_DEVIATIONS` standard errors.

    Args:
        user: (n,) users of a first sample, :data:`MANY_USERS` of them.
        action: (n,) recommended items, not used.
        reward: (n,) rewards.
        truth: (n,) stated expected rewards.

    Returns:
        at least :data:`MANY_USERS`, and at most as many as make about :data:`MOST_DECISIONS` decisions.
    """
    deviation = DETECTED_ERROR * abs(float(truth.sum()))
    if not deviation:
        return MANY_USERS
    factor = (CRITICAL_DEVIATIONS + POWER_DEVIATIONS) ** 2 * _variance_of_sum(user, reward - truth) / deviation**2
    return math.ceil(MANY_USERS * max(1.0, min(factor, MOST_DECISIONS / len(user))))


def _normal_bound(user: NDArray[np.int64], error: Floats, truth: Floats, *, binary: bool) -> float:
    """Return :data:`CRITICAL_DEVIATIONS` standard errors of a sum of errors that is near normal; infinity for others.

    Args:
        user: (n,) user of each reward.
        error: (n,) rewards minus their stated means.
        truth: (n,) stated means.
        binary: True if all rewards are 0 or 1; their sum is near normal if its variance is large.
    """
    if not binary:
        return CRITICAL_DEVIATIONS * math.sqrt(_variance_of_sum(user, error))
    variance = _binary_variance(truth)
    if variance < NORMAL_VARIANCE:
        return math.inf
    return CRITICAL_DEVIATIONS * math.sqrt(variance)


def _binary_variance(p: Floats) -> float:
    """Return the variance of a sum of rewards of 0 and 1 with probabilities p; a p outside [0, 1] adds 0."""
    return float((p * (1.0 - p)).clip(0.0).sum())


def bound(user: NDArray[np.int64], error: NDArray[np.float64], truth: NDArray[np.float64], *, binary: bool) -> float:
    """Bound the distance of a sum of rewards from the sum of their means.

    A correct world exceeds the bound as rarely as a normal variable exceeds :data:`MOST_DEVIATIONS` standard errors.
    For rewards of 0 and 1, with variance p (1 - p), Freedman's inequality (1975, "On tail probabilities for
    martingales") with Bernstein's constant gives it for any number of rewards. For other rewards it is that many
    standard errors, which are estimated from the users' independent sums.

    Args:
        user: (n,) user of each reward.
        error: (n,) rewards minus their stated means.
        truth: (n,) stated means.
        binary: True if all rewards are 0 or 1.
    """
    if not binary:
        return MOST_DEVIATIONS * math.sqrt(_variance_of_sum(user, error))
    # The inequality is P(sum > t) <= exp(-t^2 / (2 V + 2 t / 3)); solve it for t at the normal tail's probability.
    rare = -math.log(math.erfc(MOST_DEVIATIONS / math.sqrt(2.0)) / 2.0)
    return rare / 3.0 + math.sqrt(rare**2 / 9.0 + 2.0 * _binary_variance(truth) * rare)


def _mean_of_users(user: NDArray[np.int64], reward: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean of rewards (n,) and its standard error, users being independent; (0, 0) without rewards."""
    if len(reward) == 0:
        return 0.0, 0.0
    mean = float(reward.mean())
    return mean, math.sqrt(_variance_of_sum(user, reward - mean)) / len(reward)
