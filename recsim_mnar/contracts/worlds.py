"""A world against its contract, rule by rule: what is broken, why it matters and what to do.

:class:`recsim_mnar.testing.WorldContract` runs the same rules as tests.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.contracts.findings import BrokenRuleError, Finding, findings_of
from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_starts
from recsim_mnar.policy.base import Policy
from recsim_mnar.worlds.base import DecisionWorld
from recsim_mnar.worlds.checked_lanes import CheckedLanes
from recsim_mnar.worlds.checks import decision_world

Columns = dict[str, NDArray[Any]]
Make = Callable[[], DecisionWorld]

SEED = 20190912
FEW_USERS, MANY_USERS = 100, 2000
MOST_DEVIATIONS = 5.0
"""Standard errors of a normal beyond which lie 6 of 10,000,000 true worlds: so improbable is what is refused."""
HIGH = 10_000
"""First of the users of high numbers: amid those over whom the truth of a policy is averaged."""
LEAST_ROWS = 100
"""Recommendations of one item from which its own mean is tested; fewer would not be near normal."""


class UniformPolicy(Policy):
    """Every item with the same probability, asked decision by decision; what the rules are tried with."""

    name = "uniform"

    def __init__(self, n_items: int) -> None:
        self.n_items = n_items

    def act(self, users: Any, uniforms: NDArray[np.float64]) -> tuple[Any, NDArray[np.float64]]:
        """See :meth:`recsim_mnar.policy.Policy.act`."""
        actions = np.minimum((uniforms * self.n_items).astype(np.int32), self.n_items - 1)
        return actions, np.full(len(actions), 1.0 / self.n_items)

    def probabilities(self, users: Any) -> NDArray[np.float64]:
        """See :meth:`recsim_mnar.policy.Policy.probabilities`."""
        return np.full((len(users), self.n_items), 1.0 / self.n_items)


def check_world(make_world: Callable[[], Any]) -> list[Finding]:
    """The rules of :data:`RULES` that a world breaks; an empty list where it keeps them all.

    Args:
        make_world: gives a new world, always the same one.
    """
    return findings_of(RULES, make_world)


# ----------------------------------------------------------------------------------------------------------- the rules


def door(make: Make) -> None:
    """It is a world of decisions, and says its name and number of items."""
    decision_world(make(), "the contract").decides()


def any_lanes(make: Make) -> None:
    """The same users in 1, 8 or 100 lanes leave the same rows, and each transition is possible."""
    reference = _through_lanes(make(), 1, np.arange(FEW_USERS))
    for n_lanes in (8, 100):
        _same(_through_lanes(make(), n_lanes, np.arange(FEW_USERS)), reference, f"{n_lanes} lanes", "1 lane")


def alone(make: Make) -> None:
    """A user alone does what they do beside others, whoever came before, and in another order."""
    together = _through_lanes(make(), 8, np.arange(FEW_USERS))
    users = np.array([FEW_USERS - 1, 3, 57])
    apart = _through_lanes(make(), 2, users)
    rows = np.isin(together["user"], users)
    _same(apart, {name: values[rows] for name, values in together.items()}, "users 3, 57 and 99 alone", "among 100")


def whole_lives(make: Make) -> None:
    """``trajectories`` tells the lives that the lanes tell, for the uniform policy and another one."""
    world = make()
    weights = 1.0 + np.arange(world.n_items) % 3
    for distribution in (None, weights / weights.sum()):
        told = world.trajectories(SEED, 5, FEW_USERS, distribution)
        lived = DecisionWorld.trajectories(make(), SEED, 5, FEW_USERS, distribution)
        _same(told, lived, "trajectories", "lanes")


def interfaces(make: Make) -> None:
    """``simulate``, the single environment and the vector environment make the same log."""
    from recsim_mnar.envs.recording import record, record_vector
    from recsim_mnar.envs.single import WorldEnv
    from recsim_mnar.envs.vector import WorldVectorEnv
    from recsim_mnar.simulation.items import simulate

    n = FEW_USERS // 2
    policy = UniformPolicy(make().n_items)
    log = simulate(make(), policy, n, SEED).columns
    _same(record(WorldEnv(make()), policy, n, SEED).columns, log, "the single environment", "simulate")
    _same(
        record_vector(WorldVectorEnv(make(), 3), policy, n, SEED).columns, log, "3 lanes of the vector one", "simulate"
    )


def arrays_are_new(make: Make) -> None:
    """What a transition holds is not changed by a later one."""
    world = make()
    kept: list[tuple[str, NDArray[Any], NDArray[Any]]] = []

    def keep(transition: Any) -> None:
        for name, values in {**transition.columns, "starts": transition.starts, "alive": transition.alive}.items():
            kept.append((name, values, values.copy()))

    _through_lanes(world, 8, np.arange(FEW_USERS // 2), each=keep)
    for name, values, copy in kept:
        if not np.array_equal(values, copy, equal_nan=values.dtype.kind == "f"):
            raise BrokenRuleError(f"{name} of a transition was changed after it was handed out: a buffer is used twice")


def truth_is_the_mean(make: Make) -> None:
    """The truth column is the expected reward that ``reward_means`` states of the action shown."""
    world = make()
    if not world.knows_rewards:
        return
    lanes = world.lanes(FEW_USERS, keep_truth=world.truth_column is not None)
    which = np.arange(FEW_USERS)
    transition = lanes.begin(which, np.full(FEW_USERS, SEED, np.uint64), which)
    for decision in range(20):
        which = which[transition.alive]
        if len(which) == 0:
            break
        means = np.asarray(world.reward_means(lanes.state[which]))
        if means.shape != (len(which), world.n_items) or not np.isfinite(means).all():
            raise BrokenRuleError(
                f"reward_means must return ({len(which)}, {world.n_items}) finite numbers, got {means.shape}"
            )
        actions = _uniform_actions(world, lanes, which, decision)
        transition = lanes.take(which, actions, np.full(len(which), 1.0 / world.n_items))
        if world.truth_column is not None:
            stated = transition.columns[world.truth_column][transition.starts[:-1]]
            if not np.allclose(stated, means[np.arange(len(which)), actions], rtol=1e-9, atol=1e-12):
                raise BrokenRuleError(
                    f"{world.truth_column} of a decision is not what reward_means says of the action shown"
                )


def truth_in_range(make: Make) -> None:
    """Where every reward is 0 or 1, the truth is a probability."""
    world = make()
    if world.truth_column is None:
        return
    rows = world.trajectories(SEED, 0, FEW_USERS, None, keep_truth=True)
    shown = rows["event"] == schema.BANDIT
    truth, rewards = rows[world.truth_column], rows["reward"][shown]
    if not np.isfinite(truth[shown]).all() or np.isfinite(truth[~shown]).any():
        raise BrokenRuleError(f"{world.truth_column} must be a number on bandit rows and NaN on organic ones")
    if np.isin(rewards, (0.0, 1.0)).all() and ((truth[shown] < 0) | (truth[shown] > 1)).any():
        raise BrokenRuleError(f"rewards are 0 or 1, but {world.truth_column} leaves [0, 1]")


def rewards_have_their_means(make: Make) -> None:
    """Rewards less their stated means sum to 0, over all and item by item, as nearly as :func:`bound` says."""
    world = make()
    if world.truth_column is None:
        return
    rows = world.trajectories(SEED, 0, MANY_USERS, None, keep_truth=True)
    shown = np.flatnonzero(rows["event"] == schema.BANDIT)
    action, binary = rows["action"][shown], bool(np.isin(rows["reward"][shown], (0.0, 1.0)).all())
    user, reward, truth = (rows[name][shown] for name in ("user", "reward", world.truth_column))
    _check_mean(user, reward, truth, "rewards", binary=binary)
    for item in np.flatnonzero(np.bincount(action, minlength=world.n_items) >= LEAST_ROWS):
        of_it = action == item
        _check_mean(user[of_it], reward[of_it], truth[of_it], f"rewards of item {item}", binary=binary)


def any_number(make: Make) -> None:
    """Users of high numbers earn what those of low numbers earn, over all and item by item.

    The truth of a policy is a mean over users 0 to 19,999, an arm's over 0 to 4,999: where a user's number is a date,
    they are of other periods.
    """
    world = make()
    blocks = [world.trajectories(SEED, first, MANY_USERS, None) for first in (0, HIGH)]
    shown = [rows["event"] == schema.BANDIT for rows in blocks]
    users, items, rewards = ([rows[name][flag] for rows, flag in zip(blocks, shown, strict=True)]
                             for name in ("user", "action", "reward"))  # fmt: skip
    counts = [np.bincount(each, minlength=world.n_items) for each in items]
    for item in (None, *np.flatnonzero(np.minimum(*counts) >= LEAST_ROWS)):
        rows = [np.ones(len(each), np.bool_) if item is None else each == item for each in items]
        means, errors = zip(*(_mean_of_users(u[r], x[r]) for u, x, r in zip(users, rewards, rows, strict=True)),
                            strict=True)  # fmt: skip
        error = float(np.hypot(*errors))
        if abs(means[1] - means[0]) > MOST_DEVIATIONS * error + 1e-9:
            what = "a recommendation" if item is None else f"a recommendation of item {item}"
            raise BrokenRuleError(
                f"users {HIGH:,} to {HIGH + MANY_USERS - 1:,} earn {means[1]:.4g} {what}, users 0 to "
                f"{MANY_USERS - 1:,} earn {means[0]:.4g}: the truth is a mean over other users than an arm's"
            )


def describes_itself(make: Make) -> None:
    """``describe`` is of JSON types, holds the name, and says the same of the same world."""
    world = make()
    told = world.describe()
    if json.loads(json.dumps(told)) != told:
        raise BrokenRuleError("describe() changes on its way through JSON: use lists, texts and plain numbers only")
    if told != make().describe():
        raise BrokenRuleError("describe() says something else of a second world made in the same way")


def params_round_trip(make: Make) -> None:
    """Parameters go to TOML, JSON and ``name=value`` texts, and come back the same."""
    params = make().params
    kind = type(params)
    texts = [f"{name}={value}" for name, value in params.to_dict().items()]
    for form, again in (
        ("TOML", lambda: kind.from_toml(params.to_toml())),
        ("JSON", lambda: kind.from_json(params.to_json())),
        ("name=value", lambda: params.with_settings(texts)),
    ):
        if again() != params:
            raise BrokenRuleError(f"the parameters change on their way through {form}")


RULES: dict[str, tuple[Callable[[Make], None], str]] = {
    "door": (door, "derive from DecisionWorld, and set name and n_items"),
    "any_lanes": (any_lanes, "keep what a world knows of a user in arrays by lane, and draw at the user's address"),
    "alone": (alone, "draw at the address (seed, stream, user, decision), never from a generator that users share"),
    "whole_lives": (whole_lives, "omit trajectories, or make it tell what the lanes tell"),
    "interfaces": (interfaces, "let begin and take alone change what the lanes hold"),
    "arrays_are_new": (arrays_are_new, "return new arrays, or copies"),
    "truth_is_the_mean": (truth_is_the_mean, "fill the truth column with reward_means of the state before the answer"),
    "truth_in_range": (truth_in_range, "state a probability where rewards are 0 or 1"),
    "rewards_have_their_means": (rewards_have_their_means, "draw rewards whose mean is the truth column"),
    "any_number": (any_number, "let a user's number address draws only, and take dates from decisions"),
    "describes_itself": (describes_itself, "return the name and what defines the world, in JSON types"),
    "params_round_trip": (params_round_trip, "use fields of type bool, int, float or str"),
}
"""Rules by name: the function that raises where one is broken, and what to do."""


# -------------------------------------------------------------------------------------------------------------- inside


def _through_lanes(
    world: DecisionWorld, n_lanes: int, users: NDArray[np.int64], *, each: Callable[[Any], None] = lambda told: None
) -> Columns:
    """The rows of users, ascending, who pass through so many lanes, each refilled when its user leaves."""
    opened = world.open_lanes(n_lanes)
    lanes = CheckedLanes(opened, world.name, world.n_items, n_lanes, rates=world.rates, truth_column=None)
    waiting, free, come = np.zeros(0, np.int64), np.arange(n_lanes), 0
    parts: list[Columns] = []
    while True:
        while len(free) and come < len(users):
            which, arriving = free[: len(users) - come], users[come : come + len(free)]
            transition = lanes.begin(which, np.full(len(which), SEED, np.uint64), arriving)
            each(transition)
            parts.append({name: values.copy() for name, values in transition.columns.items()})
            come += len(arriving)
            free = np.concatenate([free[len(which) :], which[~transition.alive]])
            waiting = np.concatenate([waiting, which[transition.alive]])
        if len(waiting) == 0:
            break
        actions = _uniform_actions(world, lanes, waiting, None)
        transition = lanes.take(waiting, actions, np.full(len(waiting), 1.0 / world.n_items))
        each(transition)
        parts.append({name: values.copy() for name, values in transition.columns.items()})
        free = np.concatenate([free, waiting[~transition.alive]])
        waiting = waiting[transition.alive]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(columns["user"], kind="stable")
    return {name: values[order] for name, values in columns.items()}


def _uniform_actions(world: DecisionWorld, lanes: Any, which: NDArray[np.int64], decision: int | None) -> Any:
    number = lanes.n_decisions[which] if decision is None else np.full(len(which), decision)
    drawn = rng.policy_uniforms(SEED, lanes.user[which], number)
    return np.minimum((drawn * world.n_items).astype(np.int32), world.n_items - 1)


def _same(one: Columns, other: Columns, what: str, than: str) -> None:
    for name in schema.NAMES:
        if len(one[name]) != len(other[name]):
            raise BrokenRuleError(f"{what}: {len(one[name])} rows, {than} {len(other[name])}")
        if not np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f"):
            differs = ~((one[name] == other[name]) | ((one[name] != one[name]) & (other[name] != other[name])))
            row = int(np.flatnonzero(differs)[0])
            raise BrokenRuleError(
                f"{what}: {name} of user {one['user'][row]}, step {one['step'][row]} is {one[name][row]}, "
                f"{than} has {other[name][row]}"
            )


def _check_mean(
    user: NDArray[np.int64], reward: NDArray[np.float64], truth: NDArray[np.float64], what: str, *, binary: bool
) -> None:
    error = reward - truth
    if len(user) and abs(error.sum()) > bound(user, error, truth, binary=binary) + 1e-9 * len(error):
        raise BrokenRuleError(
            f"{what}: they sum to {reward.sum():.4g}, the stated means to {truth.sum():.4g}: further apart, by "
            f"{error.mean():+.4g} in {len(error):,} recommendations, than chance allows"
        )


def bound(user: NDArray[np.int64], error: NDArray[np.float64], truth: NDArray[np.float64], *, binary: bool) -> float:
    """What sums of rewards may miss those of their means by: as improbable as :data:`MOST_DEVIATIONS` of a normal.

    Rewards of 0 and 1 have the variance p (1 - p), of which a few that were seen say little: Freedman's inequality
    (1975, "On tail probabilities for martingales"; Bernstein's constant) holds for any number of them. For others the
    standard error is that of the users' sums, for users are independent.
    """
    if not binary:
        return MOST_DEVIATIONS * float(np.sqrt((np.add.reduceat(error, user_starts(user)) ** 2).sum()))
    rare = -math.log(math.erfc(MOST_DEVIATIONS / math.sqrt(2.0)) / 2.0)
    variance = float((truth * (1.0 - truth)).clip(0.0).sum())
    return rare / 3.0 + math.sqrt(rare**2 / 9.0 + 2.0 * variance * rare)


def _mean_of_users(user: NDArray[np.int64], reward: NDArray[np.float64]) -> tuple[float, float]:
    """Mean reward of a recommendation and its standard error, users being independent."""
    mean = float(reward.mean()) if len(reward) else 0.0
    sums = np.add.reduceat(reward - mean, user_starts(user)) if len(user) else np.zeros(1)
    return mean, float(np.sqrt((sums**2).sum()) / max(len(reward), 1))
