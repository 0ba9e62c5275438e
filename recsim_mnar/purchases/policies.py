"""Policies that recommend slates with known propensities, and simulation under them.

Any policy of this package recommends slates through its ranking: user u is shown item i with probability
e_ui = clip(c_u w(rank_ui)), where w is the world's weight of a rank and c_u makes the expected size that of a slate. So
every user and item has a known propensity strictly between 0 and 1, which uplift estimators need, even if the policy
itself is deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.table import Log
from recsim_mnar.policies.door import as_policy, learning_of, refuse_common_learning
from recsim_mnar.policies.softening import Softened
from recsim_mnar.purchases.exposures import Exposures, Flags, Floats, Ints
from recsim_mnar.purchases.world import ExposureWorld, PurchasesLanes, flags_of, scaled, weights_by_rank
from recsim_mnar.rng import Stream, policy_uniforms
from recsim_mnar.runs.files import replacing
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.simulation.executor import concatenate_tables
from recsim_mnar.simulation.items import Columns, ShardRecommender
from recsim_mnar.simulation.run_folder import DEPLOYED, DEPLOYED_NAMES, Request, Written, fit_policy, simulate_request

Actions = NDArray[np.int32]


class SlatePolicy(ShardRecommender):
    """Recommender that draws slates by a policy's ranking.

    Items with equal scores share the mean weight of their ranks, so a policy with equal scores for all items recommends
    uniformly.

    Args:
        policy: policy that ranks items, by its ``scores`` or else by its probabilities.
        params: parameters of a world of slates, which define how slates are drawn; see
            :class:`recsim_mnar.purchases.world.SlateParams`.

    Raises:
        UserError: the policy is softened, which does not change a ranking, or learns from all users.
    """

    def __init__(self, policy: Any, params: Any) -> None:
        policy = as_policy(policy)
        if isinstance(policy, Softened):
            raise UserError(
                f"policy {policy.name!r}: slates are drawn by rank, softening would change nothing; "
                "set rank_decay, exponent and the propensities' bounds of the world instead"
            )
        if policy.n_items != params.n_items:
            raise UserError(
                f"policy {policy.name!r} knows {policy.n_items} items, the world has {params.n_items}: "
                "fit it on a log of this world"
            )
        refuse_common_learning(policy, "a world of slates", "")
        self._learns = learning_of(policy) != "nothing"
        self.policy = policy
        self.params = params
        self.name = policy.name
        self.n_items = policy.n_items
        weights = weights_by_rank(self.n_items, params.rank_decay, params.exponent)
        self._weight_sums = np.concatenate([[0.0], np.cumsum(weights)])  # entry r: sum of the weights of r first ranks

    def probabilities(self, seed: int, users: Ints) -> Floats:
        """Return the probability (n, I) that each item is shown to users (n,) of a seed in their present state."""
        scores = self._scores(users)
        weights = np.empty(scores.shape)
        for row, own_scores in zip(weights, scores, strict=True):
            # Groups of equal scores, best first; each item gets the mean weight of its group's ranks.
            _values, group, count = np.unique(-own_scores, return_inverse=True, return_counts=True)
            edges = np.concatenate([[0], np.cumsum(count)])
            mean_weights = (self._weight_sums[edges[1:]] - self._weight_sums[edges[:-1]]) / count
            row[:] = mean_weights[group]
        p = self.params
        return scaled(weights, p.slate_size, p.smallest_propensity, p.largest_propensity)

    def _scores(self, users: Ints) -> Floats:
        """Return the policy's scores (n, I); raise UserError for another shape or NaN."""
        scores = np.asarray(self.policy.scores(users), np.float64)
        if scores.shape != (len(users), self.n_items):
            raise UserError(f"policy {self.name!r}: its scores have shape {scores.shape}, not (users, items)")
        if np.isnan(scores).any():
            raise UserError(f"policy {self.name!r}: a score is not a number: was its training stopped too late?")
        return scores

    def slates(self, seed: int, users: Ints, period: int) -> tuple[Actions, Floats]:
        """Draw slates of exactly N items for users (n,) in a period, as actions of an environment.

        Returns:
            (n, N) items.
            (n, N) probability of each item of being in the slate.

        Raises:
            UserError: the world's parameter ``slates`` is not ``fixed``.
        """
        if self.params.slates != "fixed":
            raise UserError("slates of one size need the world's parameter slates = 'fixed'")
        probability = self.probabilities(seed, users)
        slates = fixed_slates(seed, users, period, probability, self.params.slate_size)
        return slates, np.take_along_axis(probability, slates.astype(np.int64), axis=1)

    @property
    def changes(self) -> bool:
        """Return whether a user's events can change the probabilities; if not, they are computed once."""
        return self.policy.defines("observe") or self._learns

    def reset(self, users: Ints) -> None:
        """Start users (n,), who have no events yet."""
        self.policy.reset(users)

    def observe_events(self, columns: Columns) -> None:
        """Let the policy learn from a period's recommendations, and observe the purchases without one.

        ``columns`` are rows of a log: user, action, item, reward and propensity.
        """
        is_shown = columns["action"] >= 0
        if self._learns and is_shown.any():
            users, actions, rewards, propensities = (
                columns[name][is_shown] for name in ("user", "action", "reward", "propensity")
            )
            self.policy.learn(users, actions, rewards, propensities)
        if not is_shown.all():
            self.policy.observe(columns["user"][~is_shown], columns["item"][~is_shown])

    def shard(self, world: Any, seed: int, first_user: int, n_users: int, *, keep_truth: bool) -> Columns:
        """Implement :meth:`recsim_mnar.simulation.items.ShardRecommender.shard`: all users of a batch at a time."""
        parts: list[Columns] = []
        for users in _batches(first_user, n_users, world.n_items):
            recommender = self.fresh()
            lanes: PurchasesLanes = world.open_lanes(len(users), keep_truth=keep_truth)
            all_lanes = np.arange(len(users))
            lanes.begin(all_lanes, np.full(len(users), seed, np.uint64), users)
            recommender.reset(users)
            periods: list[Columns] = []
            for period in range(world.params.n_periods):
                if period == 0 or recommender.changes:
                    probability = recommender.probabilities(seed, users)
                is_shown = draw(seed, users, period, probability, world.params)
                periods.append(lanes.show(all_lanes, is_shown, probability).columns)
                recommender.observe_events(periods[-1])
            columns = concatenate_tables(periods)
            order = np.argsort(columns["user"], kind="stable")  # from period by period to user by user
            parts.append({name: values[order] for name, values in columns.items()})
        return concatenate_tables(parts)

    def fresh(self) -> SlatePolicy:
        """Return a copy of the recommender without state of any user."""
        return type(self)(self.policy.fresh(), self.params)

    def describe(self) -> dict[str, Any]:
        """Return the policy's entry in a log's provenance."""
        return self.policy.describe()


class DeployedPolicy(SlatePolicy):
    """The world's own recommender, whose propensities the world defines.

    Args:
        world: the world; the policy may use its hidden parameters, learners may not.
    """

    name = DEPLOYED

    def __init__(self, world: Any) -> None:
        self.world = world
        self.params = world.params
        self.n_items = world.n_items

    def probabilities(self, seed: int, users: Ints) -> Floats:
        """Implement :meth:`SlatePolicy.probabilities`."""
        return self.world.deployed_propensities(seed, users)

    changes = False

    def reset(self, users: Ints) -> None:
        """Do nothing: the policy has no state of users."""

    def observe_events(self, columns: Columns) -> None:
        """Do nothing: the policy does not learn."""

    def fresh(self) -> DeployedPolicy:
        """Return the policy itself, which has no state."""
        return self

    def describe(self) -> dict[str, Any]:
        """Return the policy's entry in a log's provenance."""
        return {"name": self.name}


def draw(seed: int, users: Ints, period: int, probability: Floats, params: Any) -> Flags:
    """Draw the shown items of users (n,) in a period, independently or as slates of exactly N items.

    Args:
        seed: seed of the users.
        users: (n,) users.
        period: number of the period.
        probability: (n, I) probability that each item is shown.
        params: parameters of a world of slates.

    Returns:
        (n, I) flags of the shown items.
    """
    from recsim_mnar.purchases import _slates_kernel

    if params.slates == "fixed":
        slates = fixed_slates(seed, users, period, probability, params.slate_size)
        return flags_of(slates.astype(np.int64), probability.shape[1])
    flags = np.empty(probability.shape, np.uint8)
    n = len(users)
    with np.errstate(over="ignore"):
        _slates_kernel.draw_independently(
            np.full(n, seed, np.uint64), np.uint64(Stream.EXPOSURE), users, np.full(n, period), probability, flags
        )
    return flags.view(np.bool_)


def fixed_slates(seed: int, users: Ints, period: int, probability: Floats, size: int) -> Actions:
    """Draw slates (n, N) of distinct items, item i with probability[:, i].

    Raises:
        UserError: a row of the probabilities (n, I) does not sum to N, the ``size`` of a slate.
    """
    from recsim_mnar.purchases import _slates_kernel

    if np.any(np.abs(probability.sum(axis=1) - size) > 1e-6 * size):
        raise UserError(f"slates of exactly {size} items need propensities that sum to {size} for every user")
    n = len(users)
    drawn = np.empty((n, size), np.int32)
    with np.errstate(over="ignore"):
        _slates_kernel.draw_slates(
            np.full(n, seed, np.uint64), np.uint64(Stream.EXPOSURE), users, np.full(n, period),
            policy_uniforms(seed, users, period), probability, np.empty(probability.shape[1], np.int32), drawn,
        )  # fmt: skip
    return drawn


def as_slate_policy(policy: Any, params: Any) -> SlatePolicy:
    """Return a slate policy itself, or the one that recommends by the ranking of any other policy.

    Raises:
        UserError: the object is not a policy, or :class:`SlatePolicy` refuses it.
    """
    if isinstance(policy, SlatePolicy):
        return policy
    return SlatePolicy(policy, params)


# -------------------------------------------------------------------------------------------------------- simulation

_CELLS = 1 << 22
"""Number of cells (user, item) that are simulated at a time; results do not depend on it."""

_TABLE_BYTES = 1 << 31
"""Largest size of a table of propensities."""


def exposures_of(world: ExposureWorld, policy: Any, log: Log, n_users: int, seed: int) -> Exposures:
    """Return the exposures of a simulated log, with the propensity of every cell (user, item, period).

    Args:
        world: world in which the log was simulated.
        policy: policy under which it was simulated.
        log: log of users 0 .. n_users - 1.
        n_users: number of users.
        seed: seed of the log.

    Raises:
        UserError: the table of propensities would be too large.
    """
    sizes = {"n_users": n_users, "n_items": world.n_items, "n_periods": world.params.n_periods}
    propensities = propensity_table(world, policy, log, n_users, seed)
    return Exposures.from_log(log, **sizes, propensities=propensities)


def propensity_table(world: ExposureWorld, policy: Any, log: Log, n_users: int, seed: int) -> NDArray[np.float32]:
    """Compute the propensities (U, I, P) of a policy on a simulated log, or (U, I, 1) if all periods have the same.

    The policy observes the logged events, period by period.

    Args:
        world: world in which the log was simulated.
        policy: policy under which it was simulated.
        log: log of users 0 .. n_users - 1.
        n_users: number of users.
        seed: seed of the log.

    Raises:
        UserError: the table would be too large.
    """
    recommender = as_slate_policy(policy, world.params).fresh()
    n_periods = 1
    if recommender.changes:
        n_periods = world.params.n_periods
    size = 4 * n_users * world.n_items * n_periods  # bytes, 4 for a float32
    if size > _TABLE_BYTES:
        raise UserError(
            f"the propensities of {n_users:,} users x {world.n_items:,} items x {n_periods} periods would take "
            f"{size / 2**30:.1f} GiB: simulate fewer users"
        )
    table = np.empty((n_users, world.n_items, n_periods), np.float32)
    for users in _batches(0, n_users, world.n_items):
        recommender.reset(users)
        rows = slice(*np.searchsorted(log["user"], [users[0], users[-1] + 1]))
        events = {name: log[name][rows] for name in ("user", "action", "item", "reward", "time")}
        for t in range(n_periods):
            table[users, :, t] = recommender.probabilities(seed, users)
            if t < n_periods - 1:  # no probabilities follow the last period
                recommender.observe_events({name: values[events["time"] == t] for name, values in events.items()})
    return table


def write_exposures(folder: Path, world: ExposureWorld, policy: Any, n_users: int, seed: int, keep_truth: bool) -> None:
    """Write the exposures of the log in ``folder / "log"`` next to it and, with ``keep_truth``, ``outcomes.npz``.

    The latter holds ``control`` and ``treated``, (U, I) float32: P(Y^C) and P(Y^T) of every user and item.
    """
    with RunFolder.fill(folder, keep_others=True) as into:
        exposures_of(world, policy, Log.read(folder / "log"), n_users, seed).write(folder)
        if not keep_truth:
            return
        control = np.empty((n_users, world.n_items), np.float32)
        treated = np.empty((n_users, world.n_items), np.float32)
        for users in _batches(0, n_users, world.n_items):
            outcomes = world.outcomes_of(seed, users)
            control[users] = outcomes.control
            treated[users] = outcomes.treated
        with into.recording("outcomes.npz") as path, replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, control=control, treated=treated)


def _batches(first_user: int, n_users: int, n_items: int) -> Iterator[Ints]:
    """Yield consecutive users in batches of at most :data:`_CELLS` cells (user, item)."""
    size = max(1, _CELLS // n_items)
    for first in range(first_user, first_user + n_users, size):
        yield np.arange(first, min(first + size, first_user + n_users))


def simulated(world: ExposureWorld, request: Request) -> Written:
    """Simulate users with the world's own recommender or the requested one, and write their log and exposures.

    Raises:
        UserError: :func:`recsim_mnar.simulation.run_folder.simulate_to` refuses an argument or the folder.
    """
    policy: Any = DeployedPolicy(world)
    training = None
    if request.policy not in DEPLOYED_NAMES:
        policy, training = fit_policy(world, request)
    written = simulate_request(world, request, policy, training)
    write_exposures(request.out, world, policy, request.n_users, request.seed, request.keep_truth)
    return written
