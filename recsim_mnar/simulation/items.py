"""Simulation of users under a policy: ``simulate``, shard by shard, on any executor.

Items one by one or in rankings; and ``simulate_online``, where one policy learns from all users, round by round.
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
from recsim_mnar.simulation.executor import SHARD_USERS, carrying, checked_users, run_in_order, together, user_shards
from recsim_mnar.simulation.oracle import Oracle
from recsim_mnar.worlds.base import DecisionWorld, Transition, World, as_world, decision_world
from recsim_mnar.worlds.lanes import Lanes

Columns = dict[str, NDArray[Any]]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


LANE_BYTES = 1 << 28
"""Bound on what the lanes of one shard may remember of their items; above it fewer lanes are opened and refilled. No
result depends on it."""

_STATE_BYTES = 1 << 26
"""Bound on what a policy may keep of the users of one shard, at eight bytes per item."""

T = TypeVar("T")


class ShardRecommender(abc.ABC):
    """Recommender of a world whose users are shown sets of items: it runs a shard of them itself.

    Attributes:
        name: as results have it.
        n_items: of the catalogue.
    """

    name: str
    n_items: int

    @abc.abstractmethod
    def shard(self, world: Any, seed: int, first_user: int, n_users: int, *, keep_truth: bool) -> Columns:
        """The columns of a few users, ordered by (user, step), as :func:`simulate_shard` gives them."""

    @abc.abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """For a log's provenance."""


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
    """Simulate users ``first_user .. first_user + n_users - 1`` of a seed under a policy; return the log.

    Args:
        world: where they live.
        policy: what recommends: a :class:`~recsim_mnar.policies.base.Policy`, what ``as_policy`` makes one of, or what
            the world makes a :class:`ShardRecommender` of. It is not changed (every shard acts through a fresh copy).
        n_users: how many, at least 1.
        seed: of the users and of the policy's uniforms, in [0, 2**64).
        first_user: id of the first.
        executor: any ``concurrent.futures.Executor`` to spread shards over; the log is the same with and without.
        keep_truth: add the world's truth column (``click_probability`` in sessions, ``expected_reward`` in ratings) of
            the action shown. It is truth: estimators must not see it.

    Returns:
        a log ordered by (user, step), whose provenance suffices to make it again.

    Raises:
        UserError: a bad argument, or a policy that returns an impossible action or propensity, or that learns from all
            users (run that by :func:`recsim_mnar.simulation.items.simulate_online`).
    """
    policy = as_recommender(world, policy)
    n_users, seed = checked_run(world, policy, n_users, seed, first_user)
    if executor is None and not acts_in_python(policy):
        # No shards and no policy to ask: all lives go into one table as they are made.
        columns = simulate_shard(world, policy, seed, first_user, n_users, keep_truth=keep_truth)
    else:
        shards = list(user_shards(first_user, n_users))
        columns = _joined(list(mapped(dict, world, policy, seed, shards, executor, keep_truth)))
    return Log(columns, provenance(world, policy, n_users, seed, first_user))


def _joined(parts: list[Columns]) -> Columns:
    """Concatenate the rows of parts, freeing each column of theirs in turn."""
    columns = {}
    for name in list(parts[0]):
        columns[name] = np.concatenate([part.pop(name) for part in parts])
        give_back()
    return columns


def provenance(world: World, policy: Recommender, n_users: int, seed: int, first_user: int = 0) -> Provenance:
    """Build everything needed to make a log again."""
    return {
        **made_by(world),
        "policy": described(policy),
        "seed": int(seed),
        "first_user": int(first_user),
        "n_users": int(n_users),
    }


def described(policy: Recommender) -> Provenance:
    """Return a policy's description for a log, marked where the policy cannot be replayed."""
    description = dict(policy.describe())
    if not getattr(policy, "replayable", True):
        description["replayable"] = False
    return description


def made_by(world: World) -> Provenance:
    """Return the head of every log's provenance: package and world."""
    from recsim_mnar._version import __version__

    return {"package": f"recsim-mnar {__version__}", "world": world.describe()}


def as_recommender(world: World, policy: Any) -> Recommender:
    """Adapt a user's object to this world.

    Raises:
        UserError: as :func:`recsim_mnar.policies.door.as_policy`, it learns from all users, or the world is none.
    """
    as_world(world)
    if world.recommended_by:
        return imported("recommender", world.recommended_by)(policy, world.params)
    decision_world(world, "simulate")
    if isinstance(policy, ShardRecommender):
        raise UserError(f"policy {policy.name!r} recommends slates, the {world.name} world asks for one item")
    full = _full_policy(world, policy)
    refuse_common_learning(full, "simulate")
    return full


def _full_policy(world: World, policy: Any) -> Policy | RankingPolicy:
    """Return a full policy of the kind that the world's slate size asks for."""
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
    """Yield ``reduce(columns)`` of every shard, in order; an executor runs reductions with the simulation."""
    policy = as_recommender(world, policy)
    n_users, seed = checked_run(world, policy, n_users, seed, 0)
    return mapped(reduce, world, policy, seed, list(user_shards(0, n_users, shard_users)), executor, keep)


def mapped(
    reduce: Callable[[Columns], T],
    world: World,
    policy: Recommender,
    seed: int,
    shards: list[tuple[int, int]],
    executor: Executor | None,
    keep: bool,
) -> Iterator[T]:
    """Yield ``reduce(columns)`` of shards (first user, number of users), with progress."""
    shard = carrying(_reduced_shard, reduce, world, policy, seed, keep, in_python=acts_in_python(policy))
    results = run_in_order((functools.partial(shard, first, n) for first, n in shards), executor)
    advance = counted(sum(n for _, n in shards), "users")
    for (_, n), result in zip(shards, results, strict=True):
        advance(n)
        yield result


def acts_in_python(policy: Recommender) -> bool:
    """Return whether the policy decides in Python; else users live in kernels, without the interpreter's lock."""
    return not (isinstance(policy, Policy) and has_fixed_distribution(policy))


def users_at_once(world: World) -> int:
    """Batch size when results are reduced immediately and no executor waits: fewer steps, bounded state."""
    return SHARD_USERS * max(1, _STATE_BYTES // (8 * world.n_items * SHARD_USERS))


def checked_run(world: World, policy: Recommender, n_users: int, seed: int, first_user: int) -> tuple[int, int]:
    """Check the arguments of a run; return the number of users and the seed."""
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
    """Simulate a few users; return the columns ordered by (user, step).

    Args:
        world: where they live.
        policy: as :func:`as_recommender` gives it: the door is where a run begins, not in each of its shards.
        seed: of the users and of the policy's uniforms.
        first_user: id of the first.
        n_users: how many.
        keep_truth: as :func:`simulate`.
    """
    if isinstance(policy, ShardRecommender):
        return policy.shard(world, seed, first_user, n_users, keep_truth=keep_truth)
    world = decision_world(world, "simulate")
    in_runs = False
    if isinstance(policy, Policy):
        if has_fixed_distribution(policy):
            distribution = None
            if not policy.is_uniform:
                distribution = checked_distribution(policy, policy.fixed_distribution(), world.n_items)
            return world.trajectories(seed, first_user, n_users, distribution, keep_truth=keep_truth)
        in_runs = policy.batches_decisions
    n_lanes = max(1, min(n_users, LANE_BYTES // (4 * world.n_items)))
    lanes = world.lanes(n_lanes, keep_truth=keep_truth)
    rounds = drive(world, decider(policy, world.n_items), lanes, seed, first_user, n_users, in_runs=in_runs)
    events = [transition.columns for transitions, _ in rounds for transition in transitions]
    return in_user_order(together(events), first_user, n_users)


def in_user_order(columns: Columns, first_user: int, n_users: int) -> Columns:
    """Sort rows by user; the rows of each user are in order already."""
    from recsim_mnar.kernels import _vectors_kernel

    index = np.empty(len(columns["user"]), np.int64)
    place = np.zeros(n_users + 1, np.int64)
    _vectors_kernel.by_user(columns["user"], first_user, place, index)
    return {name: values[index] for name, values in columns.items()}


class Decided(NamedTuple):
    """Decisions for n users: an item each, (n,), or a ranking of k, (n, k).

    Attributes:
        items: what is shown.
        propensities: of each item, at its place.
        columns: further columns of the rows of rankings, (n, k) each.
    """

    items: NDArray[np.int32]
    propensities: Floats
    columns: Columns


class ItemDecider:
    """Decides one item at a time, by uniforms addressed by seed, user and decision.

    Args:
        policy: the policy that acts.
        n_items: number of items of the world.
        original: the object that ``policy`` is a copy of, see :class:`Acting`.

    Attributes:
        ranker: the policy whose scores or probabilities decide.
        learns: whether the policy receives outcomes.
    """

    def __init__(self, policy: Policy, n_items: int, original: Policy) -> None:
        self.policy = policy
        self.ranker = policy
        self.learns = learning_of(policy) != "nothing"
        self._acting = Acting(policy, n_items, original)

    def decide(self, seed: int, users: Ints, decisions: Ints) -> Decided:
        """Decide for users (n,) at their decisions of these numbers (n,), from 0.

        If the policy batches decisions, a user may occur repeatedly.
        """
        return Decided(*self._acting(users, policy_uniforms(seed, users, decisions)), {})


class RankingDecider:
    """Decides on rankings, with the columns of their probabilities; see :class:`ItemDecider`."""

    def __init__(self, policy: RankingPolicy) -> None:
        self.policy = policy
        self.ranker = policy.policy
        self.learns = learning_of(policy) != "nothing"

    def decide(self, seed: int, users: Ints, decisions: Ints) -> Decided:
        """Decide for users (n,) at their decisions of these numbers (n,), from 0."""
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
    """Return the decider of a fresh copy of a policy, in a world of so many items."""
    if isinstance(policy, RankingPolicy):
        return RankingDecider(policy.fresh())
    return ItemDecider(policy.fresh(), n_items, policy)


def drive(
    world: DecisionWorld, acting: Decider, lanes: Lanes, seed: int, first_user: int, n_users: int, in_runs: bool = False
) -> Iterator[tuple[list[Transition], Floats]]:
    """Run users under a policy, as many side by side as there are lanes, round by round.

    In a round users arrive in the free lanes and show their views, then comes ``act`` for everyone who waits, then
    ``learn``, the views that followed, and ``forget`` of those who left: each of them one call, users ascending. The
    policy does not meet users who leave without a trace in the log, so that the log holds all that it is given.

    Args:
        world: where the users live.
        acting: decider of the policy.
        lanes: lanes of the world.
        seed: seed of the users and of the policy's uniforms.
        first_user: id of the first user.
        n_users: number of users.
        in_runs: ask at once for all decisions that a user awaits before the next event, see ``batches_decisions``.

    Yields:
        The transitions of a round, and the rewards of its decisions by ascending user; empty where they come in runs.
    """
    last = first_user + n_users
    next_user = first_user
    free = np.arange(len(lanes.user))
    waiting = np.zeros(0, np.int64)
    while len(waiting) or next_user < last:
        transitions: list[Transition] = []
        arrived: list[Ints] = []
        gone = [np.zeros(0, np.int64)]
        rewards = np.zeros(0)
        while len(free) and next_user < last:
            users = np.arange(next_user, min(next_user + len(free), last))
            next_user += len(users)
            which = free[: len(users)]
            transition = lanes.begin(which, np.full(len(which), seed, np.uint64), users)
            transitions.append(transition)
            alive = transition.alive
            in_log = alive | (np.diff(transition.starts) > 0)
            arrived.append(users[in_log])
            gone.append(users[in_log & ~alive])
            waiting = np.append(waiting, which[alive])
            free = np.append(free[len(users) :], which[~alive])
        if transitions:
            waiting = waiting[np.argsort(lanes.user[waiting])]
            if any(map(len, arrived)):
                acting.policy.reset(np.concatenate(arrived))
                show(world, acting.policy, together([transition.columns for transition in transitions]))
        if len(waiting):
            users = lanes.user[waiting]
            transition, rewards = _decide(world, acting, lanes, seed, waiting, in_runs)
            transitions.append(transition)
            gone.append(users[~transition.alive])
            free = np.append(free, waiting[~transition.alive])
            waiting = waiting[transition.alive]
        left = np.concatenate(gone)
        if len(left):
            acting.policy.forget(np.sort(left))
        yield transitions, rewards


def _decide(
    world: DecisionWorld, acting: Decider, lanes: Lanes, seed: int, waiting: Ints, in_runs: bool
) -> tuple[Transition, Floats]:
    """Take the policy's next decisions in the lanes ``waiting`` (n,), let it learn, and show it the views that follow.

    Returns:
        The transition of these lanes, and the rewards (n,); none where decisions are taken in runs.
    """
    users = lanes.user[waiting]
    decisions = lanes.n_decisions[waiting]
    if isinstance(acting.ranker, Oracle):
        acting.ranker.see(users, lanes.state[waiting])
    if in_runs:
        runs = lanes.runs(waiting)
        lane = np.repeat(np.arange(len(runs)), runs)  # of each decision, among those that wait
        first_decision = np.cumsum(runs) - runs
        place_in_run = np.arange(len(lane)) - first_decision[lane]
        decided = acting.decide(seed, users[lane], decisions[lane] + place_in_run)
        transition = lanes.take_runs(waiting, runs, decided.items, decided.propensities)
        show(world, acting.policy, transition.columns)
        return transition, np.zeros(0)
    decided = acting.decide(seed, users, decisions)
    transition = lanes.take(waiting, decided.items, decided.propensities)
    columns = transition.columns
    rows = transition.starts[:-1, None] + np.arange(world.slate_size)
    for name, values in decided.columns.items():
        columns[name][rows] = values
    if acting.learns:
        outcomes = (columns[name][rows.ravel()] for name in ("user", "action", "reward", "propensity"))
        acting.policy.learn(*outcomes)
    show(world, acting.policy, columns)
    return transition, columns["reward"][rows].sum(axis=1)


def show(world: DecisionWorld, policy: Policy | RankingPolicy, columns: Columns) -> None:
    """Let a policy observe the views or ratings among rows of a log."""
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
"""Name of the column that says in which round a row was made, from 0."""

_ROUNDS_TOGETHER = 4096
"""Rounds whose rows are kept apart before they become one: small arrays take more room than what they hold."""


@dataclass(frozen=True)
class Curve:
    """Earnings of a policy, round by round; R rounds.

    Attributes:
        decisions: (R,) made up to the end of each round.
        rewards: (R,) earned by then.
    """

    decisions: Ints
    rewards: Floats

    @property
    def mean_rewards(self) -> Floats:
        """(R,) mean reward of all decisions up to the end of each round; NaN before the first decision."""
        with np.errstate(invalid="ignore"):
            return self.rewards / self.decisions


@dataclass(frozen=True)
class OnlineRun:
    """Result of :func:`simulate_online`.

    Attributes:
        log: ordered by (user, step), with the column :data:`ROUND`. Its users are not independent of each other: what
            was shown to one depends on what others did.
        policy: the object that acted and learned.
        curve: what it earned.
    """

    log: Log
    policy: Policy | RankingPolicy
    curve: Curve


def simulate_online(world: Any, policy: Any, n_users: int, seed: int, *, lanes: int = 1) -> OnlineRun:
    """Simulate users 0 .. n_users - 1 of a seed under one object that acts and learns throughout.

    A round is one decision for every user who waits for one. In each, users who arrive (one in every lane that is free)
    are reset and show their views, then comes ``act``, then ``learn``, then the views that followed, then ``forget`` of
    those who left: each of them one call, users ascending. The order is a function of the arguments, so the bytes are
    too; with another number of lanes a policy that learns from all users meets them in another order.

    Args:
        world: whose users are recommended one item at a time.
        policy: as :func:`recsim_mnar.policies.door.as_policy` takes it, or the name of an agent that needs no log
            (``lin-ucb+alpha=0.5``). It is not changed: what acts is one ``fresh()`` copy, which is
            :attr:`OnlineRun.policy`.
        n_users: how many, at least 1.
        seed: of the users and of the policy's uniforms, in [0, 2**64).
        lanes: users who live side by side: decisions between two calls of ``learn``.

    Returns:
        The log, ordered by (user, step), the policy as it was left, and what it earned.

    Raises:
        UserError: a bad argument, or a policy that returns an impossible action or propensity.
    """
    world = decision_world(world, "simulate_online")
    if isinstance(policy, str):
        policy = registry.learner(policy).fit(Log({}), n_items=world.n_items)
    acting = decider(_full_policy(world, policy), world.n_items)
    n_users, seed = checked_run(world, acting.policy, n_users, seed, 0)
    n_lanes = whole_number(lanes, "lanes", 1)
    description = described(acting.policy)
    parts: list[Columns] = []
    compacted: list[Columns] = []
    decisions: list[int] = []
    rewards: list[float] = []
    for transitions, earned in drive(world, acting, world.lanes(min(n_lanes, n_users)), seed, 0, n_users):
        columns = together([transition.columns for transition in transitions])
        parts.append({**columns, ROUND: np.full(len(columns["user"]), len(decisions))})
        decisions.append(len(earned))
        rewards.append(float(earned.sum()))
        if len(parts) == _ROUNDS_TOGETHER:
            compacted.append(together(parts))
            parts = []
    total = in_user_order(together(compacted + parts), 0, n_users)
    log = Log(total, {**provenance(world, acting.policy, n_users, seed), "policy": description})
    log.provenance["online"] = online_provenance(log, acting.policy, n_lanes)
    curve = Curve(np.cumsum(np.array(decisions, np.int64)), np.cumsum(np.array(rewards, np.float64)))
    return OnlineRun(log, acting.policy, curve)


def online_provenance(log: Log, policy: Policy | RankingPolicy, lanes: int) -> Provenance:
    """Return the provenance of an online run, by which ``replay`` checks that a log is whole."""
    return {
        "learns": learning_of(policy),
        "lanes": lanes,
        "rounds": int(log[ROUND].max(initial=-1)) + 1,
        "rows": len(log),
    }
