"""The Policy and Learner interfaces."""

from __future__ import annotations

import abc
import copy
import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

Ints = NDArray[np.integer]
Floats = NDArray[np.float64]
Scores = NDArray[np.floating[Any]]
Learns = Literal["nothing", "own user", "all users"]
"""From whose outcomes a policy learns while it acts."""


class Policy(abc.ABC):
    """Recommends an item to each of many users in one call and keeps a state for each user.

    The policy receives its randomness from the caller: ``act`` gets one uniform per user, drawn at the address (seed,
    policy, user, decision). The same object therefore acts identically in a Gymnasium loop, in a vector environment, in
    ``simulate`` and in ``replay``, however many users a call contains, provided that its decision for a user depends on
    that user alone.

    Attributes:
        n_items: number of items; actions are 0 .. n_items - 1.
        name: the name under which results are reported.
        batches_decisions: True if the same user may appear several times in one call of ``act``, for consecutive
            decisions between which nothing is observed. This requires that ``act`` does not change the state and that
            the policy does not ``learn``. ``simulate`` then requests many decisions in one call.
        is_uniform: True if the action is floor(uniform * n_items) and its propensity exactly 1 / n_items, for every
            user; ``simulate`` then computes both itself instead of calling ``act``.
        learns: users from whose outcomes the policy learns while it acts. ``nothing``: ``learn`` is never called.
            ``own user``: a user's outcomes change only the decisions for that user, so users can be simulated in any
            order. ``all users``: a user's outcomes change the decisions for other users, so the policy must be run by
            ``simulate_online``, which fixes the order. None (not declared): ``all users`` if the policy defines
            ``learn``, else ``nothing``.
        replayable: True if two copies with the same initial state and the same observations act identically; False for
            a policy with a random generator of its own, which ``replay`` refuses.
        predicts_ratings: True if ``scores`` returns predicted ratings on the users' rating scale.
    """

    n_items: int
    name: str = "policy"
    batches_decisions: bool = False
    predicts_ratings: bool = False
    is_uniform: bool = False
    replayable: bool = True
    learns: Learns | None = None

    def defines(self, method: str) -> bool:
        """Return True if this policy overrides an optional method, False if it inherits the default of this class.

        Methods that are not overridden can be called too. Their defaults are: ``forget`` does nothing, ``scores``
        returns the probabilities, ``observe_ratings`` calls ``observe``.
        """
        return getattr(type(self), method) is not getattr(Policy, method)

    def reset(self, users: Ints) -> None:
        """Give each of the users, (n,) distinct ids, an empty history."""

    def reset_training_users(self, users: Ints, originals: Ints) -> None:
        """Give each of the users an empty history and state which user of the training log it is.

        Leave-one-out protocols start their users with this method: a policy that compares users with training users
        must not compare a user with itself.

        Args:
            users: (n,) distinct ids.
            originals: (n,) ids of the same users in the log that the policy was fitted on.
        """
        self.reset(users)

    def observe(self, users: Ints, items: Ints) -> None:
        """Receive organic views: ``users[j]`` viewed ``items[j]``; both (m,), each user's views in temporal order."""

    def observe_ratings(self, users: Ints, items: Ints, ratings: Floats) -> None:
        """Receive organic ratings: ``users[j]`` rated ``items[j]`` with ``ratings[j]``; (m,), in temporal order.

        The default treats each rating as a view.
        """
        self.observe(users, items)

    @abc.abstractmethod
    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Recommend an item to each user.

        Args:
            users: (n,) distinct user ids.
            uniforms: (n,) in [0, 1), the only randomness that the decision may use.

        Returns:
            Actions (n,), integers, and propensities (n,) in (0, 1]: the probability over the uniform that the policy
            takes this action in the user's present state.
        """

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """Receive the rewards of past recommendations, (n,) each; called only if :attr:`learns` asks for it.

        Args:
            users: ids of the users; each occurs once, or once per item shown if the world shows slates.
            actions: items shown.
            rewards: rewards of these items.
            propensities: propensities with which these items were chosen.
        """

    def forget(self, users: Ints) -> None:
        """Drop the state of users who have left the platform."""

    @abc.abstractmethod
    def probabilities(self, users: Ints) -> Floats:
        """Return the probability of every item in each user's present state: (n, n_items), rows summing to 1."""

    def scores(self, users: Ints) -> Scores:
        """Return ranking scores (n, n_items) on any scale, higher is better; by default the probabilities."""
        return self.probabilities(users)

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """Return the probability of action ``actions[j]`` in the present state of ``users[j]``: (n,)."""
        return np.asarray(self.probabilities(users))[np.arange(len(users)), actions]

    def fixed_distribution(self) -> Floats | None:
        """Return the action distribution (n_items,) of a policy that treats all users alike; None for any other policy.

        Such a policy runs inside the simulator's compiled kernel, which takes the first action ``a`` with ``uniform <
        cumsum(p)[a]``.
        """
        return None

    def fresh(self) -> Policy:
        """Return a copy of the policy that holds no users; this object is left unchanged.

        The default is a deep copy, which is correct for any policy. A policy with large fitted arrays should share
        them between copies and create only the users' states anew, as the agents of this package do.
        """
        return copy.deepcopy(self)

    def describe(self) -> Mapping[str, Any]:
        """Return name and parameters, for a log's provenance; JSON types only."""
        return {"name": self.name}


class Ranks(abc.ABC):
    """Marker base class of policies that show several items at each decision.

    :class:`recsim_mnar.policies.rankings.RankingPolicy` is the only direct subclass. It lives in another module, so
    modules that need no rankings can recognise ranking policies without importing it.
    """

    name: str
    observe: Callable[..., None]
    observe_ratings: Callable[..., None]

    @abc.abstractmethod
    def defines(self, method: str) -> bool:
        """Implement :meth:`Policy.defines`."""


class Learner(abc.ABC):
    """Fits a policy on a log.

    Attributes:
        name: the name under which results are reported.
        ignores_own_views: True if the decisions for a training user (started with
            :meth:`Policy.reset_training_users`) depend on what ``observe`` reports and not on that user's rows of the
            training log. Exhaustive leave-one-out then needs no refitting.
        needs: kinds of data, keys of :data:`recsim_mnar.policies.door.HOLDINGS`, that the log must hold besides views;
            a comparison checks this before it simulates.
    """

    name: str = "learner"
    needs: frozenset[str] = frozenset()
    ignores_own_views: bool = False

    @abc.abstractmethod
    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Return a new policy fitted on ``log``; the learner itself is not changed.

        Args:
            log: organic rows, and bandit rows for learners that use them. A learner that only needs counts should
                iterate over ``log.blocks()``, so that a log in files is never in memory as a whole.
            n_items: number of items of the world that the log comes from.
            seed: seed of the random draws made during training.

        Raises:
            UserError: the log holds nothing that this learner can use.
        """


def best_of(scores: Scores) -> Floats:
    """Return (n, n_items) probabilities of choosing the best-scored item of each row, ties broken uniformly."""
    best = scores == scores.max(axis=1, keepdims=True)
    return best / best.sum(axis=1, keepdims=True)


def observe_events(policy: Policy | Ranks, users: Ints, items: Ints, ratings: Floats) -> None:
    """Pass organic events to a policy in temporal order: as views if ``ratings`` is NaN, otherwise as ratings.

    Args:
        policy: policy that observes the events.
        users: (m,) user of each event.
        items: (m,) item of each event.
        ratings: (m,) rating of each event, NaN for a view.
    """
    if len(ratings) == 0:
        return
    rated = np.isfinite(ratings)
    # First rows of the runs of consecutive ratings or consecutive views, and the number of rows; the sentinels before
    # and after the mask make its two ends count as changes.
    edges = np.flatnonzero(np.diff(rated, prepend=~rated[0], append=~rated[-1])).tolist()
    for first, last in itertools.pairwise(edges):
        rows = slice(first, last)
        if rated[first]:
            policy.observe_ratings(users[rows], items[rows], ratings[rows])
        else:
            policy.observe(users[rows], items[rows])
