"""What acts: the Policy and Learner interfaces, and wrappers that soften a policy with exact propensities."""

from __future__ import annotations

import abc
import copy
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.policy.checks import checked_decisions, checked_propensities, checked_scores, spot_check_probabilities

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

Ints = NDArray[np.integer]
Floats = NDArray[np.float64]

_BLOCK = 64
"""Items whose probabilities a softmax policy sums together, so that a draw scans few of them."""

_KEPT_BYTES = 1 << 28
"""Bound on the distributions that a softmax policy keeps of its users."""


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
        predicts_ratings: whether its ``scores`` are predicted ratings, on the scale of those that users give.
    """

    n_items: int
    name: str = "policy"
    batches_decisions: bool = False
    predicts_ratings: bool = False

    def reset(self, users: Ints) -> None:
        """These users begin (again): forget what was seen of them. ``users``: (n,) distinct user ids."""

    def reset_training_users(self, users: Ints, originals: Ints) -> None:
        """``users[j]`` begins, and is the user ``originals[j]`` of the log that the policy was fitted on.

        Leave-one-out begins its users so: a policy that compares users with training users must not compare one of
        them with itself.
        """
        self.reset(users)

    def observe(self, users: Ints, items: Ints) -> None:
        """Organic views: ``users[j]`` viewed ``items[j]``; (m,) each, a user's views in their order."""

    def observe_ratings(self, users: Ints, items: Ints, ratings: Floats) -> None:
        """Organic ratings: ``users[j]`` gave ``items[j]`` a rating; (m,) each, a user's in their order.

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

    def learn(self, users: Ints, actions: Ints, rewards: Floats) -> None:
        """What came of the actions; (n,) each. A policy need not use it."""

    def forget(self, users: Ints) -> None:
        """These users have left: their state may be dropped."""

    @abc.abstractmethod
    def probabilities(self, users: Ints) -> Floats:
        """Probability of every item in each user's present state: (n, n_items), rows summing to 1."""

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """Probability of one given action for each user's present state: (n,)."""
        return self.probabilities(users)[np.arange(len(users)), actions]

    def fixed_distribution(self) -> Floats | None:
        """The (n_items,) distribution of a policy that ignores its users, or None.

        A policy that answers here takes action ``a`` where ``a`` is the first with ``uniform < cumsum(p)[a]``, and runs
        inside the simulator's kernel.
        """
        return None

    def fresh(self) -> Policy:
        """The same policy without any user, for a driver to act through; this one is left as it is.

        By default a deep copy, which is right for any policy. One with large fitted arrays shares them and starts its
        states anew, as the agents of this package do.
        """
        return copy.deepcopy(self)

    def describe(self) -> dict[str, Any]:
        """Name and parameters, for a log's provenance; JSON types only."""
        return {"name": self.name}


class Learner(abc.ABC):
    """Makes a policy from a log.

    Attributes:
        name: the name under which results are reported.
        ignores_own_views: whether what its policy does for a training user (begun with
            :meth:`Policy.reset_training_users`) does not depend on that user's own rows of the log, but only on what
            ``observe`` tells. Exhaustive leave-one-out then needs no refitting.
    """

    name: str = "learner"
    ignores_own_views: bool = False

    @abc.abstractmethod
    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Return a new policy fitted on ``log``; the learner itself is not changed.

        Args:
            log: organic rows, and bandit rows for those that learn from them.
            n_items: number of items of the world that the log comes from.
            seed: of the training's own draws.

        Raises:
            UserError: the log holds nothing that this learner can use.
        """


def fresh(policy: Policy) -> Policy:
    """A copy of a policy that knows no user yet; a policy without ``fresh`` is copied whole."""
    own = getattr(policy, "fresh", None)
    return own() if own is not None else copy.deepcopy(policy)


def observe_events(policy: Policy, users: Ints, items: Ints, ratings: Floats) -> None:
    """Let a policy observe organic events in their order: ratings where they have a value, views where it is NaN."""
    rated = np.isfinite(ratings)
    reads = getattr(policy, "observe_ratings", None)
    edges = [0, *(np.flatnonzero(rated[1:] != rated[:-1]) + 1).tolist(), len(rated)]
    for first, last in itertools.pairwise(edges):
        rows = slice(first, last)
        if first == last:
            continue
        if rated[first] and reads is not None:
            reads(users[rows], items[rows], ratings[rows])
        else:
            policy.observe(users[rows], items[rows])


def scores_of(policy: Policy, users: Ints) -> Floats:
    """By what a policy ranks items: its ``scores(users)`` (n, n_items) where it has them, else its probabilities."""
    own = getattr(policy, "scores", None)
    return own(users) if own is not None else policy.probabilities(users)


class _Softened(Policy):
    """Tells an inner policy everything it is told, and ranks as that one does."""

    inner: Policy

    @property
    def batches_decisions(self) -> bool:  # type: ignore[override]  # as the inner policy does
        """See :class:`Policy`."""
        return getattr(self.inner, "batches_decisions", False)

    def reset(self, users: Ints) -> None:
        """See :meth:`Policy.reset`."""
        self.inner.reset(users)

    def reset_training_users(self, users: Ints, originals: Ints) -> None:
        """See :meth:`Policy.reset_training_users`."""
        self.inner.reset_training_users(users, originals)

    def observe(self, users: Ints, items: Ints) -> None:
        """See :meth:`Policy.observe`."""
        self.inner.observe(users, items)

    def observe_ratings(self, users: Ints, items: Ints, ratings: Floats) -> None:
        """See :meth:`Policy.observe_ratings`."""
        observe_events(self.inner, users, items, ratings)

    def learn(self, users: Ints, actions: Ints, rewards: Floats) -> None:
        """See :meth:`Policy.learn`."""
        self.inner.learn(users, actions, rewards)

    def forget(self, users: Ints) -> None:
        """See :meth:`Policy.forget`."""
        self.inner.forget(users)

    def scores(self, users: Ints) -> Floats:
        """The inner policy's scores: softening changes no ranking."""
        return scores_of(self.inner, users)


class EpsilonMixture(_Softened):
    """With probability epsilon a uniformly random item, else the inner policy: (1 - epsilon) pi_in + epsilon / P.

    Args:
        inner: the policy to soften.
        epsilon: in [0, 1].
        name: the inner policy's name and epsilon where None.
    """

    def __init__(self, inner: Policy, epsilon: float, name: str | None = None) -> None:
        if not 0.0 <= epsilon <= 1.0:
            raise UserError(f"epsilon must lie in [0, 1], got {epsilon}")
        self.inner = inner
        self.epsilon = float(epsilon)
        self.n_items = inner.n_items
        self.name = name or f"{inner.name}+epsilon={epsilon:g}"
        self._looked = False

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """One uniform decides both the branch and, stretched back to [0, 1), the choice within it."""
        if not self._looked:
            spot_check_probabilities(self.inner, users)
            self._looked = True
        explore = uniforms < self.epsilon
        stretched = np.where(
            explore,
            uniforms / self.epsilon if self.epsilon > 0.0 else 0.0,
            (uniforms - self.epsilon) / (1.0 - self.epsilon) if self.epsilon < 1.0 else 0.0,
        )
        decided = self.inner.act(users, np.minimum(stretched, np.nextafter(1.0, 0.0)))
        greedy, propensity = checked_decisions(self.inner, decided, n=len(users), n_items=self.n_items)
        random = np.minimum((stretched * self.n_items).astype(np.int64), self.n_items - 1)
        actions = np.where(explore, random, greedy)
        if explore.any():
            probabilities = self.inner.propensity_of(users[explore], actions[explore])
            propensity = propensity.copy()  # it may be an array of the inner policy's own
            propensity[explore] = checked_propensities(self.inner, probabilities, int(explore.sum()))
        return actions, (1.0 - self.epsilon) * propensity + self.epsilon / self.n_items

    def probabilities(self, users: Ints) -> Floats:
        """See :meth:`Policy.probabilities`."""
        return (1.0 - self.epsilon) * self.inner.probabilities(users) + self.epsilon / self.n_items

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """See :meth:`Policy.propensity_of`."""
        return (1.0 - self.epsilon) * self.inner.propensity_of(users, actions) + self.epsilon / self.n_items

    def fresh(self) -> Policy:
        """See :meth:`Policy.fresh`."""
        return EpsilonMixture(self.inner.fresh(), self.epsilon, self.name)

    def describe(self) -> dict[str, Any]:
        """See :meth:`Policy.describe`."""
        return {**self.inner.describe(), "name": self.name, "epsilon": self.epsilon}


class SoftmaxPolicy(_Softened):
    """Softmax over the inner policy's scores: pi(a) proportional to exp(score_a / temperature).

    A user's distribution is kept until the user views something; so the inner policy's scores must change with what it
    is told only, as :class:`Policy` asks.

    Args:
        inner: a policy with ``scores``.
        temperature: positive, in units of the inner policy's scores.
        name: the inner policy's name and the temperature where None.
    """

    def __init__(self, inner: Policy, temperature: float, name: str | None = None) -> None:
        if not (np.isfinite(temperature) and temperature > 0.0):
            raise UserError(f"temperature must be positive, got {temperature}")
        if isinstance(inner, _Softened):
            raise UserError(f"policy {inner.name!r} is softened already: give +temperature= first, then +epsilon=")
        if not hasattr(inner, "scores"):
            raise UserError(f"policy {inner.name!r} has no scores to soften; use +epsilon= instead of +temperature=")
        self.inner = inner
        self.temperature = float(temperature)
        self.n_items = inner.n_items
        self.name = name or f"{inner.name}+temperature={temperature:g}"
        innermost = inner
        while isinstance(innermost, _Softened):
            innermost = innermost.inner
        self._learns = type(innermost).learn is not Policy.learn
        self._capacity = max(1, _KEPT_BYTES // (8 * self.n_items))
        self._forget_all()

    def _forget_all(self) -> None:
        self._row_of: dict[int, int] = {}
        self._free: list[int] = []
        self._kept = np.empty((0, self.n_items))
        self._sums = np.empty((0, -(-self.n_items // _BLOCK)))

    def _drop(self, users: Ints) -> None:
        for user in dict.fromkeys(users.tolist()):
            row = self._row_of.pop(user, None)
            if row is not None:
                self._free.append(row)

    def reset(self, users: Ints) -> None:
        """See :meth:`Policy.reset`."""
        self._drop(users)
        self.inner.reset(users)

    def reset_training_users(self, users: Ints, originals: Ints) -> None:
        """See :meth:`Policy.reset_training_users`."""
        self._drop(users)
        self.inner.reset_training_users(users, originals)

    def observe(self, users: Ints, items: Ints) -> None:
        """See :meth:`Policy.observe`."""
        self._drop(users)
        self.inner.observe(users, items)

    def observe_ratings(self, users: Ints, items: Ints, ratings: Floats) -> None:
        """See :meth:`Policy.observe_ratings`."""
        self._drop(users)
        observe_events(self.inner, users, items, ratings)

    def learn(self, users: Ints, actions: Ints, rewards: Floats) -> None:
        """See :meth:`Policy.learn`."""
        if self._learns:
            self._forget_all()
        self.inner.learn(users, actions, rewards)

    def forget(self, users: Ints) -> None:
        """See :meth:`Policy.forget`."""
        self._drop(users)
        self.inner.forget(users)

    def _rows(self, users: Ints) -> NDArray[np.int64]:
        """The rows of ``_kept`` that hold these users' distributions; at most ``_capacity`` users at a time."""
        from recsim_mnar.policy import _softening_kernel

        names = users.tolist()
        asked = list(dict.fromkeys(names))  # replay asks for a user once a decision
        new = [user for user in asked if user not in self._row_of]
        if new:
            if len(self._row_of) + len(new) > self._capacity:
                self._forget_all()
                new = asked
            missing = len(new) - len(self._free)
            if missing > 0:
                old = len(self._kept)
                size = min(self._capacity, max(old + missing, 2 * old))
                self._kept = np.concatenate([self._kept, np.empty((size - old, self.n_items))])
                self._sums = np.concatenate([self._sums, np.empty((size - old, self._sums.shape[1]))])
                self._free.extend(range(size - 1, old - 1, -1))
            rows = np.array([self._free.pop() for _ in new], np.int64)
            scores = checked_scores(self.inner, scores_of(self.inner, np.array(new)), (len(new), self.n_items))
            _softening_kernel.softmax_rows(scores, self.temperature, rows, self._kept, self._sums)
            self._row_of.update(zip(new, rows.tolist(), strict=True))
        return np.array([self._row_of[user] for user in names], np.int64)

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Invert the cumulative distribution at the uniform."""
        from recsim_mnar.policy import _softening_kernel

        draws = np.array(uniforms, dtype=np.float64)
        actions, propensities = np.empty(len(users), np.int32), np.empty(len(users))
        for begin in range(0, len(users), self._capacity):
            part = slice(begin, begin + self._capacity)
            rows = self._rows(users[part])
            _softening_kernel.draw_rows(self._kept, self._sums, rows, draws[part], actions[part], propensities[part])
        return actions, propensities

    def probabilities(self, users: Ints) -> Floats:
        """See :meth:`Policy.probabilities`."""
        out = np.empty((len(users), self.n_items))
        for begin in range(0, len(users), self._capacity):
            part = slice(begin, begin + self._capacity)
            rows = self._rows(users[part])
            out[part] = self._kept[rows]
        return out

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """See :meth:`Policy.propensity_of`."""
        out = np.empty(len(users))
        for begin in range(0, len(users), self._capacity):
            part = slice(begin, begin + self._capacity)
            rows = self._rows(users[part])
            out[part] = self._kept[rows, actions[part]]
        return out

    def fresh(self) -> Policy:
        """See :meth:`Policy.fresh`."""
        return SoftmaxPolicy(self.inner.fresh(), self.temperature, self.name)

    def describe(self) -> dict[str, Any]:
        """See :meth:`Policy.describe`."""
        return {**self.inner.describe(), "name": self.name, "temperature": self.temperature}
