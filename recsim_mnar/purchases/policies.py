"""Policies that recommend several items at once, with known probabilities.

Any policy of this package recommends slates through its ranking: item i of user u is shown with probability
e_ui = clip(c_u w(rank_ui)), where w is the rules' decay by rank and c_u makes a slate of the rules' size. So every cell
has a known propensity, strictly between 0 and 1, as uplift estimators need it, even where the policy itself is
deterministic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels import elementary as slates
from recsim_mnar.policies.door import as_policy, learning_of, refuse_common_learning
from recsim_mnar.policies.softening import Softened
from recsim_mnar.rng import Stream, policy_uniforms

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Columns = dict[str, NDArray[Any]]

DEPLOYED = "deployed"
"""Name of a world's own recommender in logs and tables."""


class SlatePolicy:
    """Slates by a policy's ranking.

    Items with equal scores share the mean weight of their ranks, so a policy that scores all alike recommends
    uniformly.

    Args:
        policy: what ranks, by ``scores`` or else by its probabilities.
        params: how slates are made, as the parameters of the purchases world say: ``n_items`` (I), ``slate_size`` (N;
            expected where ``slates`` is ``independent``), ``rank_decay`` (weight of rank r from 1: ``power``,
            r^-``exponent``, or ``log``, 1 / log2(1 + r)), ``smallest_propensity`` and ``largest_propensity`` (strictly
            between 0 and 1), ``slates`` (``independent``, or ``fixed``: exactly N items).

    Raises:
        UserError: a softened policy, whose softening a ranking does not see, or one that learns from all users.
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
        self.policy, self.params = policy, params
        self.name, self.n_items = policy.name, policy.n_items
        weights = slates.rank_weights(self.n_items, params.rank_decay, params.exponent)
        self._sums = np.concatenate([[0.0], np.cumsum(weights)])

    def probabilities(self, seed: int, users: NDArray[np.int64]) -> Floats:
        """(n, I) P(shown) of every item in each user's present state."""
        scores = self._scores(users)
        weights = np.empty(scores.shape)
        for row, own in zip(weights, scores, strict=True):
            _values, place, count = np.unique(-own, return_inverse=True, return_counts=True)
            edges = np.concatenate([[0], np.cumsum(count)])
            row[:] = ((self._sums[edges[1:]] - self._sums[edges[:-1]]) / count)[place]
        p = self.params
        return slates.scaled(weights, p.slate_size, p.smallest_propensity, p.largest_propensity)

    def _scores(self, users: NDArray[np.int64]) -> Floats:
        """(n, I) scores by which items are ranked."""
        scores = np.asarray(self.policy.scores(users), np.float64)
        if scores.shape != (len(users), self.n_items):
            raise UserError(f"policy {self.name!r}: its scores have shape {scores.shape}, not (users, items)")
        if np.isnan(scores).any():
            raise UserError(f"policy {self.name!r}: a score is not a number: was its training stopped too late?")
        return scores

    def slates(self, seed: int, users: NDArray[np.int64], period: int) -> tuple[NDArray[np.int32], Floats]:
        """Slates of exactly N items, (n, N), and the probability of each item, (n, N): for an environment's loop.

        Raises:
            UserError: the world's ``slates`` are not ``fixed``.
        """
        if self.params.slates != "fixed":
            raise UserError("slates of one size need the world's parameter slates = 'fixed'")
        probability = self.probabilities(seed, users)
        shown = fixed_slates(seed, users, period, probability, self.params.slate_size)
        return shown, np.take_along_axis(probability, shown.astype(np.int64), axis=1)

    @property
    def changes(self) -> bool:
        """Whether what users do can change what they are shown."""
        return self.policy.defines("observe") or self._learns

    def reset(self, users: NDArray[np.int64]) -> None:
        """These users begin."""
        self.policy.reset(users)

    def observe_events(self, columns: Columns) -> None:
        """What happened in a period: recommendations and what came of them, then purchases without one."""
        shown = columns["action"] >= 0
        if self._learns and shown.any():
            outcomes = (columns[name][shown] for name in ("user", "action", "reward", "propensity"))
            self.policy.learn(*outcomes)
        if not shown.all():
            self.policy.observe(columns["user"][~shown], columns["item"][~shown])

    def fresh(self) -> SlatePolicy:
        """The same recommender without any user."""
        return type(self)(self.policy.fresh(), self.params)

    def describe(self) -> dict[str, Any]:
        """For a log's provenance."""
        return self.policy.describe()


class TopSlates(SlatePolicy):
    """The ``slate_size`` items that a policy ranks highest; items that tie for the last places are drawn evenly."""

    def probabilities(self, seed: int, users: NDArray[np.int64]) -> Floats:
        """See :meth:`SlatePolicy.probabilities`: 1 above the last place, 0 below it."""
        return top_shares(self._scores(users), self.params.slate_size)


def top_shares(scores: Floats, size: int) -> Floats:
    """(n, I) probability of each item to be among the ``size`` of largest score, ties drawn evenly."""
    last = np.partition(scores, -size, axis=1)[:, -size, None]
    above, tied = scores > last, scores == last
    return np.where(tied, (size - above.sum(axis=1, keepdims=True)) / tied.sum(axis=1, keepdims=True), above)


class DeployedPolicy(SlatePolicy):
    """The world's own recommender: uniform, by popularity or personalised, as its parameters say.

    Args:
        world: it knows the truth, as a shop's recommender may know its customers; nothing that learns sees it.
    """

    name = DEPLOYED

    def __init__(self, world: Any) -> None:
        self.world, self.params, self.n_items = world, world.params, world.n_items

    def probabilities(self, seed: int, users: NDArray[np.int64]) -> Floats:
        """See :meth:`SlatePolicy.probabilities`."""
        return self.world.deployed_propensities(seed, users)

    changes = False

    def reset(self, users: NDArray[np.int64]) -> None:
        """Nothing is kept of users."""

    def observe_events(self, columns: Columns) -> None:
        """Nothing is learnt."""

    def fresh(self) -> DeployedPolicy:
        """It keeps nothing."""
        return self

    def describe(self) -> dict[str, Any]:
        """For a log's provenance."""
        return {"name": self.name}


class LaterSlates(SlatePolicy):
    """A world's own recommender in the first periods, another one, which observes them, in those that follow.

    Args:
        world: of slates.
        own: who recommends later.
        past: periods before.
    """

    def __init__(self, world: Any, own: SlatePolicy, past: int) -> None:
        self.deployed, self.own, self.past, self._period = DeployedPolicy(world), own, past, 0
        self.name, self.params, self.n_items = own.name, world.params, own.n_items

    def probabilities(self, seed: int, users: NDArray[np.int64]) -> Floats:
        """See :meth:`SlatePolicy.probabilities`."""
        return (self.deployed if self._period < self.past else self.own).probabilities(seed, users)

    changes = True

    def reset(self, users: NDArray[np.int64]) -> None:
        """See :meth:`SlatePolicy.reset`."""
        self._period = 0
        self.own.reset(users)

    def observe_events(self, columns: Columns) -> None:
        """See :meth:`SlatePolicy.observe_events`."""
        self._period += 1
        self.own.observe_events(columns)

    def fresh(self) -> LaterSlates:
        """See :meth:`SlatePolicy.fresh`."""
        return LaterSlates(self.deployed.world, self.own.fresh(), self.past)

    def describe(self) -> dict[str, Any]:
        """See :meth:`SlatePolicy.describe`."""
        return {**self.own.describe(), "past": self.past}


def draw(seed: int, users: NDArray[np.int64], period: int, probability: Floats, params: Any) -> Flags:
    """(n, I) which items are shown, each with its probability: independently, or slates of exactly N."""
    from recsim_mnar.kernels import _slates_kernel

    if params.slates == "fixed":
        shown = np.zeros(probability.shape, bool)
        drawn = fixed_slates(seed, users, period, probability, params.slate_size)
        np.put_along_axis(shown, drawn.astype(np.int64), True, axis=1)
        return shown
    flags = np.empty(probability.shape, np.uint8)
    n = len(users)
    with np.errstate(over="ignore"):
        _slates_kernel.draw_independently(
            np.full(n, seed, np.uint64), np.uint64(Stream.EXPOSURE), users, np.full(n, period), probability, flags
        )
    return flags.view(np.bool_)


def fixed_slates(seed: int, users: NDArray[np.int64], period: int, probability: Floats, size: int) -> NDArray[np.int32]:
    """(n, N) distinct items, each drawn with its probability; rows of ``probability`` sum to N."""
    from recsim_mnar.kernels import _slates_kernel

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
    """What a user brings as it recommends slates; a policy that does so already is handed back as it is.

    Raises:
        UserError: as :func:`recsim_mnar.policies.door.as_policy` and :class:`SlatePolicy`.
    """
    return policy if isinstance(policy, SlatePolicy) else SlatePolicy(policy, params)
