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
    """Recommends an item to each of many users at once and keeps a state for each of them.

    The randomness is handed in: ``act`` receives one uniform a user, drawn at the address (seed, policy, user,
    decision). One object therefore acts the same in a Gymnasium loop, in a vector environment, in ``simulate`` and in
    ``replay``, whatever the number of users in a call, provided that what it does for a user depends on that user
    alone.

    Attributes:
        n_items: number of items; actions are 0 .. n_items - 1.
        name: the name under which results are reported.
        batches_decisions: whether a user may stand in one call of ``act`` several times, once for each of decisions
            between which nothing is observed: so for a policy whose state ``act`` leaves as it is and that does not
            ``learn``. ``simulate`` then asks for many decisions at once.
        is_uniform: whether the action is floor(uniform * n_items) and its propensity exactly 1 / n_items, for every
            user: ``simulate`` then does so itself, without asking.
        learns: from whose outcomes it learns while it acts. ``nothing``: ``learn`` is not called. ``own user``: what
            it does for a user changes by that user's own outcomes alone, so users may live in any order. ``all users``:
            outcomes of one user change what it does for others, so it is run by ``simulate_online``, which fixes the
            order. None, not declared: ``all users`` where it defines ``learn``, else ``nothing``.
        replayable: whether two objects that begin alike and observe the same do the same: not so where one draws by a
            generator of its own. ``replay`` refuses those.
        predicts_ratings: whether its ``scores`` are predicted ratings, on the scale of those that users give.
    """

    n_items: int
    name: str = "policy"
    batches_decisions: bool = False
    predicts_ratings: bool = False
    is_uniform: bool = False
    replayable: bool = True
    learns: Learns | None = None

    def defines(self, method: str) -> bool:
        """Return whether this policy has an optional method of its own, rather than the default one of this class.

        Every method can be called. One that is not defined does nothing in particular: ``forget`` keeps no state to
        drop, ``scores`` are the probabilities, ``observe_ratings`` observes views.
        """
        return getattr(type(self), method) is not getattr(Policy, method)

    def reset(self, users: Ints) -> None:
        """Start users (n,), distinct ids, without any history."""

    def reset_training_users(self, users: Ints, originals: Ints) -> None:
        """Start users (n,) who are users ``originals`` of the log that the policy was fitted on.

        Leave-one-out begins its users so: a policy that compares users with training users must not compare one of
        them with itself.
        """
        self.reset(users)

    def observe(self, users: Ints, items: Ints) -> None:
        """Receive organic views: ``users[j]`` viewed ``items[j]``; (m,) each, each user's in order."""

    def observe_ratings(self, users: Ints, items: Ints, ratings: Floats) -> None:
        """Receive organic ratings of ``items[j]`` by ``users[j]``; (m,) each, each user's in order.

        A policy that does not read ratings sees views.
        """
        self.observe(users, items)

    @abc.abstractmethod
    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Recommend an item to each user.

        Args:
            users: (n,) distinct user ids.
            uniforms: (n,) in [0, 1), the only randomness allowed.

        Returns:
            actions (n,) integers and propensities (n,) in (0, 1]: the probability, over the uniform, with which the
            whole policy takes that action in that user's present state.
        """

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """Receive the rewards of past actions; (n,) each. A policy need not use it; see :attr:`learns`.

        Args:
            users: who were shown something, each once; in a world of slates once for each item shown.
            actions: what.
            rewards: what it earned.
            propensities: with which the actions were chosen.
        """

    def forget(self, users: Ints) -> None:
        """Drop the state of users who have left."""

    @abc.abstractmethod
    def probabilities(self, users: Ints) -> Floats:
        """Probability of every item in each user's present state: (n, n_items), rows summing to 1."""

    def scores(self, users: Ints) -> Scores:
        """Ranking scores, higher is better: (n, n_items), any scale. The probabilities unless defined."""
        return self.probabilities(users)

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """Probability of one given action for each user's present state: (n,)."""
        return np.asarray(self.probabilities(users))[np.arange(len(users)), actions]

    def fixed_distribution(self) -> Floats | None:
        """The (n_items,) distribution of a policy that ignores its users, or None.

        A policy that answers here takes action ``a`` where ``a`` is the first with ``uniform < cumsum(p)[a]``, and runs
        inside the simulator's kernel.
        """
        return None

    def fresh(self) -> Policy:
        """Return the same policy without any user; this one is left unchanged.

        By default a deep copy, which is right for any policy. One with large fitted arrays shares them and starts its
        states anew, as the agents of this package do.
        """
        return copy.deepcopy(self)

    def describe(self) -> Mapping[str, Any]:
        """Name and parameters, for a log's provenance; JSON types only."""
        return {"name": self.name}


class Ranks(abc.ABC):
    """Shows several items at once: :class:`recsim_mnar.policies.rankings.RankingPolicy`."""

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
        ignores_own_views: whether what its policy does for a training user (begun with
            :meth:`Policy.reset_training_users`) does not depend on that user's own rows of the log, but only on what
            ``observe`` reports. Exhaustive leave-one-out then needs no refitting.
        needs: what the log must hold besides views, of :data:`recsim_mnar.policies.door.HOLDINGS`; a comparison checks
            it before it simulates.
    """

    name: str = "learner"
    needs: frozenset[str] = frozenset()
    ignores_own_views: bool = False

    @abc.abstractmethod
    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Return a new policy fitted on ``log``; the learner itself is not changed.

        Args:
            log: organic rows, and bandit rows for those that learn from them. What only counts goes through
                ``log.blocks()``: then a log in files is never in memory as a whole.
            n_items: number of items of the world that the log comes from.
            seed: of the training's own draws.

        Raises:
            UserError: the log holds nothing that this learner can use.
        """


def best_of(scores: Scores) -> Floats:
    """Return (n, n_items) probabilities: each row's largest scores, all equally likely."""
    best = scores == scores.max(axis=1, keepdims=True)
    return best / best.sum(axis=1, keepdims=True)


def observe_events(policy: Policy | Ranks, users: Ints, items: Ints, ratings: Floats) -> None:
    """Let a policy observe organic events in their order: ratings where they have a value, views where it is NaN."""
    if len(ratings) == 0:
        return
    rated = np.isfinite(ratings)
    edges = np.flatnonzero(np.diff(rated, prepend=~rated[0], append=~rated[-1])).tolist()
    for first, last in itertools.pairwise(edges):
        rows = slice(first, last)
        if rated[first]:
            policy.observe_ratings(users[rows], items[rows], ratings[rows])
        else:
            policy.observe(users[rows], items[rows])
