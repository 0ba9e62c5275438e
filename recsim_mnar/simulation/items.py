"""Simulation of users under a policy that recommends items or rankings.

:func:`simulate` runs shards of users on any executor. In :func:`simulate_online` one policy learns from all users.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import whole_number
from recsim_mnar.kernels.memory import give_back
from recsim_mnar.log import schema
from recsim_mnar.log.table import Log, Provenance
from recsim_mnar.plugins import imported
from recsim_mnar.policies import registry
from recsim_mnar.policies.answers import Acting, checked_distribution
from recsim_mnar.policies.base import Policy, observe_events
from recsim_mnar.policies.door import as_policy, has_fixed_distribution, learning_of, refuse_common_learning
from recsim_mnar.policies.rankings import (
    RankingPolicy,
    as_ranking_policy,
    checked_propensities_of,
    drawn_rankings,
    ranking_uniforms,
)
from recsim_mnar.progress import counted
from recsim_mnar.rng import check_seed, policy_uniforms
from recsim_mnar.simulation.executor import (
    SHARD_USERS,
    carrying,
    checked_users,
    concatenate_tables,
    run_in_order,
    user_shards,
)
from recsim_mnar.simulation.oracle import Oracle
from recsim_mnar.worlds.base import DecisionWorld, Transition, World, as_world, decision_world
from recsim_mnar.worlds.lanes import Lanes

Columns = dict[str, NDArray[Any]]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


LANE_BYTES = 1 << 28
"""Largest memory of one shard's lanes, at four bytes per item and lane. If all users of a shard need more, they share
fewer lanes. Results do not depend on it."""

_STATE_BYTES = 1 << 26
"""Largest memory of a policy's state of the users in one batch, at eight bytes per item and user."""

T = TypeVar("T")


class ShardRecommender(abc.ABC):
    """Recommender of a world whose users are shown sets of items, with a simulation of its own.

    Attributes:
        name: name in results.
        n_items: number of items in the catalogue.
    """

    name: str
    n_items: int

    @abc.abstractmethod
    def shard(self, world: Any, seed: int, first_user: int, n_users: int, *, keep_truth: bool) -> Columns:
        """Simulate a shard of users, and return the columns of their log, ordered by (user, step)."""

    @abc.abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Return the policy's entry in a log's provenance; JSON types only."""


Recommender = Policy | RankingPolicy | ShardRecommender


def simulate(
    world: World,
    policy: Any,
    n_users: int,
    seed: int = 0,
    *,
    first_user: int = 0,
    executor: Executor | None = None,
    keep_truth: bool = False,
) -> Log:
    """Simulate users ``first_user .. first_user + n_users - 1`` of a seed under a policy, and return their log.

    Args:
        world: world of the users.
        policy: policy that recommends: a :class:`~recsim_mnar.policies.base.Policy`, any object that ``as_policy``
            accepts, or one of which the world makes a :class:`ShardRecommender`. It is not changed: each shard uses a
            fresh copy.
        n_users: number of users, at least 1.
        seed: seed of the users and of the policy's uniforms, in [0, 2**64).
        first_user: id of the first user.
        executor: any ``concurrent.futures.Executor`` to spread shards over; the log does not depend on it.
        keep_truth: True to add the world's truth column (``click_probability`` in sessions, ``expected_reward`` in
            ratings) for the shown action. It is for evaluation only, never for estimators.

    Returns:
        A log ordered by (user, step), whose provenance suffices to simulate it again.

    Raises:
        UserError: an argument is invalid; the policy returns an impossible action or propensity; or it learns from all
            users, which :func:`recsim_mnar.simulation.items.simulate_online` can run.
    """
    policy = as_recommender(world, policy)
    n_users, seed = checked_run(world, policy, n_users, seed, first_user)
    if executor is None and not acts_in_python(policy):
        # The kernel draws from the fixed distribution: a single call fills the whole table.
        columns = simulate_shard(world, policy, seed, first_user, n_users, keep_truth=keep_truth)
    else:
        shards = list(user_shards(first_user, n_users))
        parts = map_checked_shards(dict, world, policy, seed=seed, shards=shards, executor=executor, keep=keep_truth)
        columns = _concatenate_and_free(list(parts))
    return Log(columns, provenance(world, policy, n_users, seed, first_user))


def _concatenate_and_free(parts: list[Columns]) -> Columns:
    """Concatenate the rows of parts column by column, and remove each column from the parts to free its memory."""
    columns = {}
    for name in list(parts[0]):
        columns[name] = np.concatenate([part.pop(name) for part in parts])
        give_back()
    return columns


def provenance(world: World, policy: Recommender, n_users: int, seed: int, first_user: int = 0) -> Provenance:
    """Return a log's provenance: package, world, policy, seed and users, which suffice to simulate it again."""
    return {
        **world_provenance(world),
        "policy": describe_policy(policy),
        "seed": int(seed),
        "first_user": int(first_user),
        "n_users": int(n_users),
    }


def describe_policy(policy: Recommender) -> Provenance:
    """Return a policy's description for a log's provenance, with a mark if the policy cannot be replayed."""
    description = dict(policy.describe())
    if not getattr(policy, "replayable", True):
        description["replayable"] = False
    return description


def world_provenance(world: World) -> Provenance:
    """Return the entries of a log's provenance that name the package's version and the world."""
    from recsim_mnar._version import __version__

    return {"package": f"recsim-mnar {__version__}", "world": world.describe()}


def as_recommender(world: World, policy: Any) -> Recommender:
    """Adapt a user's object to the kind of recommender that a world needs.

    Raises:
        UserError: the object is not a policy for this world, it learns from all users, or the world is not a world.
    """
    as_world(world)
    if world.recommended_by:
        return imported("recommender", world.recommended_by)(policy, world.params)
    decision_world(world, "simulate")
    if isinstance(policy, ShardRecommender):
        raise UserError(f"policy {policy.name!r} recommends slates, the {world.name} world asks for one item")
    adapted = _adapted_policy(world, policy)
    refuse_common_learning(adapted, "simulate")
    return adapted


def _adapted_policy(world: World, policy: Any) -> Policy | RankingPolicy:
    """Adapt a user's object to a policy that recommends items or, if the world's slates hold several, rankings."""
    if world.slate_size > 1:
        return as_ranking_policy(policy, world.slate_size)
    return as_policy(policy)


def map_shards(
    reduce: Callable[[Columns], T],
    world: World,
    policy: Any,
    n_users: int,
    seed: int,
    *,
    executor: Executor | None = None,
    keep: bool = False,
    shard_users: int | None = None,
) -> Iterator[T]:
    """Simulate users in shards, and yield ``reduce(columns)`` of each shard, in order.

    Args:
        reduce: function of a shard's columns; an executor runs it in the job that simulates the shard.
        world: world of the users.
        policy: policy that recommends.
        n_users: number of users.
        seed: seed of the users and of the policy's uniforms.
        executor: executor to spread shards over.
        keep: True to include the truth column.
        shard_users: users of a shard; None for :data:`SHARD_USERS`.
    """
    policy = as_recommender(world, policy)
    n_users, seed = checked_run(world, policy, n_users, seed, first_user=0)
    shards = list(user_shards(0, n_users, shard_users))
    return map_checked_shards(reduce, world, policy, seed=seed, shards=shards, executor=executor, keep=keep)


def map_checked_shards(
    reduce: Callable[[Columns], T],
    world: World,
    policy: Recommender,
    seed: int,
    shards: list[tuple[int, int]],
    executor: Executor | None,
    keep: bool,
) -> Iterator[T]:
    """Yield ``reduce(columns)`` of shards (first user, number of users) in order, and report progress.

    Args:
        reduce: function of a shard's columns; an executor runs it in the job that simulates the shard.
        world: world of the users.
        policy: result of :func:`as_recommender`.
        seed: checked seed of the users and of the policy's uniforms.
        shards: first user and number of users of each shard.
        executor: executor to spread shards over.
        keep: True to include the truth column.
    """
    shard = carrying(_reduced_shard, reduce, world, policy, seed, keep, in_python=acts_in_python(policy))
    results = run_in_order((functools.partial(shard, first, n) for first, n in shards), executor)
    advance = counted(sum(n for _, n in shards), "users")
    for (_, n), result in zip(shards, results, strict=True):
        advance(n)
        yield result


def acts_in_python(policy: Recommender) -> bool:
    """Return whether a policy decides in Python; if it has a fixed distribution, kernels run without Python's lock."""
    return not (isinstance(policy, Policy) and has_fixed_distribution(policy))


def users_at_once(world: World) -> int:
    """Return the number of users in a batch without an executor: as many shards as the policy's state allows."""
    return SHARD_USERS * max(1, _STATE_BYTES // (8 * world.n_items * SHARD_USERS))


def checked_run(world: World, policy: Recommender, n_users: int, seed: int, first_user: int) -> tuple[int, int]:
    """Check the arguments of a simulation.

    Returns:
        The number of users, as an int.
        The seed, as an int.
    """
    n_users = checked_users("n_users", n_users)
    if first_user < 0:
        raise UserError(f"first_user must not be negative, got {first_user}")
    seed = check_seed(seed)
    if policy.n_items != world.n_items:
        raise UserError(
            f"policy {policy.name!r} knows {policy.n_items} items, "
            f"the world has {world.n_items}: fit it on a log of this world"
        )
    return n_users, seed


def _reduced_shard(
    reduce: Callable[[Columns], T], world: World, policy: Any, seed: int, keep: bool, first: int, n: int
) -> T:
    """Simulate a shard and reduce its columns: the job of :func:`map_checked_shards`."""
    return reduce(simulate_shard(world, policy, seed, first, n, keep_truth=keep))


def simulate_shard(
    world: World,
    policy: Recommender,
    seed: int,
    first_user: int,
    n_users: int,
    *,
    keep_truth: bool = False,
) -> Columns:
    """Simulate a shard of users, and return the columns of their log, ordered by (user, step).

    Args:
        world: world of the users.
        policy: result of :func:`as_recommender`, which is called once per run and not per shard.
        seed: seed of the users and of the policy's uniforms.
        first_user: id of the first user.
        n_users: number of users.
        keep_truth: True to include the world's truth column.
    """
    if isinstance(policy, ShardRecommender):
        return policy.shard(world, seed, first_user, n_users, keep_truth=keep_truth)
    world = decision_world(world, "simulate")
    in_runs = False  # rankings are always decided one at a time
    if isinstance(policy, Policy):
        if has_fixed_distribution(policy):
            distribution = None
            if not policy.is_uniform:
                distribution = checked_distribution(policy, policy.fixed_distribution(), world.n_items)
            return world.trajectories(seed, first_user, n_users, distribution, keep_truth=keep_truth)
        in_runs = policy.batches_decisions
    n_lanes = max(1, min(n_users, LANE_BYTES // (4 * world.n_items)))
    lanes = world.lanes(n_lanes, keep_truth=keep_truth)
    rounds = drive(
        world,
        decider(policy, world.n_items),
        lanes,
        seed=seed,
        first_user=first_user,
        n_users=n_users,
        in_runs=in_runs,
    )
    events = [transition.columns for transitions, _ in rounds for transition in transitions]
    return in_user_order(concatenate_tables(events), first_user, n_users)


def in_user_order(columns: Columns, first_user: int, n_users: int) -> Columns:
    """Sort the rows of a table by user, stably: the rows of each user stay in their order.

    Args:
        columns: columns with the ids ``first_user .. first_user + n_users - 1`` in ``user``.
        first_user: lowest id of a user.
        n_users: number of users.
    """
    from recsim_mnar.kernels import _vectors_kernel

    index = np.empty(len(columns["user"]), np.int64)
    place = np.zeros(n_users + 1, np.int64)  # memory in which the kernel counts the rows of each user
    _vectors_kernel.by_user(columns["user"], first_user, place, index)
    return {name: values[index] for name, values in columns.items()}


class Decided(NamedTuple):
    """Decisions for n users.

    Attributes:
        items: (n,) items, or (n, k) rankings.
        propensities: probability of each item, in a ranking at its place; same shape.
        columns: further log columns of rankings by name, (n, k) each; {} for items.
    """

    items: NDArray[np.int32]
    propensities: Floats
    columns: Columns


class ItemDecider:
    """Adapter of a policy that recommends single items: its uniforms have addresses (seed, user, decision).

    Args:
        policy: the policy that acts.
        n_items: number of items of the world.
        original: the object of which ``policy`` is a fresh copy, named in error messages.

    Attributes:
        ranker: the policy whose scores or probabilities decide, here ``policy``.
        learns: True if the policy must be given the outcomes.
    """

    def __init__(self, policy: Policy, n_items: int, original: Policy) -> None:
        self.policy = policy
        self.ranker = policy
        self.learns = learning_of(policy) != "nothing"
        self._acting = Acting(policy, n_items, original)

    def decide(self, seed: int, users: Ints, decisions: Ints) -> Decided:
        """Decide for users (n,), each at a decision (n,) numbered from 0.

        A user may occur repeatedly, with several decisions in the same state, if the policy batches decisions.
        """
        return Decided(*self._acting(users, policy_uniforms(seed, users, decisions)), {})


class RankingDecider:
    """Adapter of a ranking policy, with the attributes of :class:`ItemDecider`; it adds columns of probabilities."""

    def __init__(self, policy: RankingPolicy) -> None:
        self.policy = policy
        self.ranker = policy.policy
        self.learns = learning_of(policy) != "nothing"

    def decide(self, seed: int, users: Ints, decisions: Ints) -> Decided:
        """Decide for users (n,), each at a decision (n,) numbered from 0."""
        size = self.policy.slate_size
        rankings = drawn_rankings(self.policy, users, ranking_uniforms(seed, users, decisions, size))
        propensities = checked_propensities_of(self.policy, users, rankings)
        columns = {
            "conditional_propensity": propensities.conditional,
            "slate_propensity": np.repeat(propensities.slate[:, None], size, axis=1),
            "set_propensity": np.repeat(propensities.set[:, None], size, axis=1),
        }
        return Decided(rankings, propensities.marginal, columns)


Decider = ItemDecider | RankingDecider


def decider(policy: Policy | RankingPolicy, n_items: int) -> Decider:
    """Make the decider of a fresh copy of a policy, in a world of ``n_items`` items."""
    if isinstance(policy, RankingPolicy):
        return RankingDecider(policy.fresh())
    return ItemDecider(policy.fresh(), n_items, policy)


def drive(
    world: DecisionWorld, acting: Decider, lanes: Lanes, seed: int, first_user: int, n_users: int, in_runs: bool = False
) -> Iterator[tuple[list[Transition], Floats]]:
    """Run users under a policy round by round, with as many users at a time as there are lanes.

    In a round, new users start in the free lanes and the policy observes their views; then come ``act`` for all waiting
    users, ``learn``, the views that followed, and ``forget`` for users who left. Each is one call with users ascending.
    The policy gets no call for users who leave without a row in the log, so that the log holds all that it was given.

    Args:
        world: world of the users.
        acting: decider of the policy.
        lanes: lanes of the world.
        seed: seed of the users and of the policy's uniforms.
        first_user: id of the first user.
        n_users: number of users.
        in_runs: True to take all decisions of a user before the next organic event in one call (``batches_decisions``).

    Yields:
        The transitions of a round.
        The rewards of its decisions by ascending user; empty with ``in_runs``.
    """
    stop = first_user + n_users
    next_user = first_user
    free = np.arange(len(lanes.user))
    waiting = np.zeros(0, np.int64)
    while len(waiting) or next_user < stop:
        transitions: list[Transition] = []
        arrived: list[Ints] = []
        finished = [np.zeros(0, np.int64)]
        rewards = np.zeros(0)
        # Repeated while users leave without a decision, so that every lane has a waiting user if any is left.
        while len(free) and next_user < stop:
            users = np.arange(next_user, min(next_user + len(free), stop))
            next_user += len(users)
            which = free[: len(users)]
            transition = lanes.begin(which, np.full(len(which), seed, np.uint64), users)
            transitions.append(transition)
            alive = transition.alive
            in_log = alive | (np.diff(transition.starts) > 0)  # waits for a decision, or had an event
            arrived.append(users[in_log])
            finished.append(users[in_log & ~alive])
            waiting = np.append(waiting, which[alive])
            free = np.append(free[len(users) :], which[~alive])
        if transitions:
            waiting = waiting[np.argsort(lanes.user[waiting])]
            if any(map(len, arrived)):
                acting.policy.reset(np.concatenate(arrived))
                show_organic_events(world, acting.policy, concatenate_tables([t.columns for t in transitions]))
        if len(waiting):
            users = lanes.user[waiting]
            transition, rewards = _decide(world, acting, lanes, seed, waiting, in_runs)
            transitions.append(transition)
            finished.append(users[~transition.alive])
            free = np.append(free, waiting[~transition.alive])
            waiting = waiting[transition.alive]
        forgotten = np.concatenate(finished)
        if len(forgotten):
            acting.policy.forget(np.sort(forgotten))
        yield transitions, rewards


def _decide(
    world: DecisionWorld, acting: Decider, lanes: Lanes, seed: int, waiting: Ints, in_runs: bool
) -> tuple[Transition, Floats]:
    """Take the next decisions in the lanes ``waiting`` (n,); the policy learns and observes the views that follow.

    Returns:
        The transition of these lanes.
        The rewards (n,), summed over the places of a ranking; empty if decisions are taken in runs.
    """
    users = lanes.user[waiting]
    decisions = lanes.n_decisions[waiting]
    if isinstance(acting.ranker, Oracle):
        acting.ranker.see(users, lanes.state[waiting])
    if in_runs:
        runs = lanes.runs(waiting)  # (n,) number of decisions before each user's next organic event
        lane = np.repeat(np.arange(len(runs)), runs)  # index in ``waiting`` of each decision
        first_decision = np.cumsum(runs) - runs
        place_in_run = np.arange(len(lane)) - first_decision[lane]
        decided = acting.decide(seed, users[lane], decisions[lane] + place_in_run)
        transition = lanes.take_runs(waiting, runs, decided.items, decided.propensities)
        show_organic_events(world, acting.policy, transition.columns)
        return transition, np.zeros(0)
    decided = acting.decide(seed, users, decisions)
    transition = lanes.take(waiting, decided.items, decided.propensities)
    columns = transition.columns
    rows = transition.starts[:-1, None] + np.arange(world.slate_size)  # (n, k) rows of the shown items
    for name, values in decided.columns.items():
        columns[name][rows] = values
    if acting.learns:
        outcomes = (columns[name][rows.ravel()] for name in ("user", "action", "reward", "propensity"))
        acting.policy.learn(*outcomes)
    show_organic_events(world, acting.policy, columns)
    return transition, columns["reward"][rows].sum(axis=1)


def show_organic_events(world: DecisionWorld, policy: Policy | RankingPolicy, columns: Columns) -> None:
    """Let a policy observe the organic events, views or ratings, among rows of a log."""
    views = np.flatnonzero(columns["event"] == schema.ORGANIC)
    if len(views) == 0:
        return
    users = columns["user"][views]
    items = columns["item"][views]
    if world.rates:
        observe_events(policy, users, items, columns["reward"][views])
    else:
        policy.observe(users, items)


# ------------------------------------------------------------------------------------- one policy learns from all users

ROUND = "round"
"""Name of the log column with the round, from 0, in which a row was made."""

_ROUNDS_TOGETHER = 4096
"""Number of rounds whose rows are concatenated at a time: many small arrays take more memory than their contents."""


@dataclass(frozen=True)
class Curve:
    """Cumulative rewards of a policy over R rounds.

    Attributes:
        decisions: (R,) number of decisions up to the end of each round.
        rewards: (R,) sum of their rewards.
    """

    decisions: Ints
    rewards: Floats

    @property
    def mean_rewards(self) -> Floats:
        """Return the mean reward (R,) of all decisions up to each round's end; NaN before the first decision."""
        with np.errstate(invalid="ignore"):
            return self.rewards / self.decisions


@dataclass(frozen=True)
class OnlineRun:
    """Result of :func:`simulate_online`.

    Attributes:
        log: log ordered by (user, step), with the column :data:`ROUND`. Its users are not independent: the items shown
            to one depend on the rewards of others.
        policy: copy of the policy that acted and learned.
        curve: rewards by round.
    """

    log: Log
    policy: Policy | RankingPolicy
    curve: Curve


def simulate_online(world: Any, policy: Any, n_users: int, seed: int, *, lanes: int = 1) -> OnlineRun:
    """Simulate users 0 .. n_users - 1 of a seed under one copy of a policy that learns from all of them.

    A round is one decision for each waiting user. Users who start in free lanes are reset and the policy observes their
    views; then come ``act``, ``learn``, the views that followed, and ``forget`` for users who left. Each is one call,
    with users ascending. The log is a function of the arguments; with another number of lanes, users arrive in another
    order.

    Args:
        world: world whose users are recommended items or rankings.
        policy: any object that :func:`recsim_mnar.policies.door.as_policy` accepts, or the name of an agent that needs
            no log (``lin-ucb+alpha=0.5``). It is not changed: one ``fresh()`` copy acts, :attr:`OnlineRun.policy`.
        n_users: number of users, at least 1.
        seed: seed of the users and of the policy's uniforms, in [0, 2**64).
        lanes: number of users at a time, which is the number of decisions between two calls of ``learn``.

    Returns:
        The log, the policy after the last round, and its rewards by round.

    Raises:
        UserError: an argument is invalid, or the policy returns an impossible action or propensity.
    """
    world = decision_world(world, "simulate_online")
    if isinstance(policy, str):
        policy = registry.learner(policy).fit(Log({}), n_items=world.n_items)
    acting = decider(_adapted_policy(world, policy), world.n_items)
    n_users, seed = checked_run(world, acting.policy, n_users, seed, first_user=0)
    n_lanes = whole_number(lanes, "lanes", 1)
    opened = world.lanes(min(n_lanes, n_users))
    description = describe_policy(acting.policy)  # before it learns
    parts: list[Columns] = []
    compacted: list[Columns] = []
    decisions: list[int] = []
    rewards: list[float] = []
    for transitions, earned in drive(world, acting, opened, seed=seed, first_user=0, n_users=n_users):
        columns = concatenate_tables([transition.columns for transition in transitions])
        parts.append({**columns, ROUND: np.full(len(columns["user"]), len(decisions))})
        decisions.append(len(earned))
        rewards.append(float(earned.sum()))
        if len(parts) == _ROUNDS_TOGETHER:  # to save memory
            compacted.append(concatenate_tables(parts))
            parts = []
    total = in_user_order(concatenate_tables(compacted + parts), 0, n_users)
    log = Log(total, {**provenance(world, acting.policy, n_users, seed), "policy": description})
    log.provenance["online"] = online_provenance(log, acting.policy, n_lanes)
    curve = Curve(np.cumsum(np.array(decisions, np.int64)), np.cumsum(np.array(rewards, np.float64)))
    return OnlineRun(log, acting.policy, curve)


def online_provenance(log: Log, policy: Policy | RankingPolicy, lanes: int) -> Provenance:
    """Return the provenance entry of an online run, from which ``replay`` checks that a log is complete."""
    return {
        "learns": learning_of(policy),
        "lanes": lanes,
        "rounds": int(log[ROUND].max(initial=-1)) + 1,
        "rows": len(log),
    }
