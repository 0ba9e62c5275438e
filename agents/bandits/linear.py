"""Bandits with a linear model of each arm: epsilon-greedy, LinUCB, linear and logistic Thompson sampling."""

from __future__ import annotations

import abc
import copy
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.acting import DrawingPolicy, as_array, checked_items
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.archives import read_arrays
from recsim_mnar.kernels.checks import number_in
from recsim_mnar.policies.base import Floats, Ints, Learns, Policy, Scores, best_of
from recsim_mnar.policies.slots import Entry


class Bandit(DrawingPolicy):
    """Acts by a distribution that it learns from the outcomes of all users.

    A subclass keeps what it has learned in :attr:`state`, learns in ``_learn`` and says its distribution in
    ``_distribution``.

    Args:
        n_items: number of items, the arms.
        name: the name under which results are reported.
        parameters: of JSON types, for provenance.

    Attributes:
        state: arrays by name, all that it has learned; ``fresh`` copies them.
    """

    learns: Learns = "all users"
    batches_decisions = False

    def __init__(self, n_items: int, name: str, parameters: Mapping[str, Any]) -> None:
        self.state: dict[str, NDArray[Any]] = {}
        super().__init__(n_items, name, parameters=parameters)

    @abc.abstractmethod
    def _distribution(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        """Probability of every item for each user, (n, n_items); each row is computed independently of the others."""

    @abc.abstractmethod
    def _learn(self, users: Ints, slots: NDArray[np.int64], actions: NDArray[np.int32], rewards: Floats) -> None:
        """Learn from outcomes, (n,) each, in order."""

    def probabilities(self, users: Ints) -> Floats:
        """Implement :meth:`recsim_mnar.policies.Policy.probabilities`."""
        return self._distribution(users, self._slots.find(users))

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """Implement :meth:`recsim_mnar.policies.Policy.learn`; the propensities are not used."""
        rewards_ = as_array(rewards, np.float64)
        if not np.isfinite(rewards_).all():
            raise UserError(
                f"policy {self.name!r} learns from finite rewards, got {rewards_[~np.isfinite(rewards_)][0]}"
            )
        self._learn(users, self._slots.find(users), checked_items(actions, self.n_items), rewards_)

    def fresh(self) -> Policy:
        """A copy without users that keeps what this policy has learned."""
        twin = copy.copy(self)
        twin.state = {name: values.copy() for name, values in self.state.items()}
        twin._start()
        return twin

    def fitted(self) -> tuple[dict[str, NDArray[Any]], Mapping[str, Any]]:
        """Implement :meth:`recsim_mnar.policies.storage.Stored.fitted`."""
        return {name: values.copy() for name, values in self.state.items()}, dict(self._parameters)

    @classmethod
    def refitted(cls, n_items: int, name: str, arrays: dict[str, NDArray[Any]], parameters: Mapping[str, Any]) -> Self:
        """Implement :meth:`recsim_mnar.policies.storage.Stored.refitted`."""
        policy = cls(n_items=n_items, name=name, **parameters)
        policy.state = {key: np.array(values) for key, values in arrays.items()}
        return policy


class CountingBandit(Bandit):
    """Counts how often each arm was shown and sums its rewards."""

    def __init__(self, n_items: int, name: str, parameters: dict[str, float]) -> None:
        super().__init__(n_items, name, parameters)
        self.state = {"shown": np.zeros(self.n_items), "earned": np.zeros(self.n_items)}

    def _learn(self, users: Ints, slots: NDArray[np.int64], actions: NDArray[np.int32], rewards: Floats) -> None:
        np.add.at(self.state["shown"], actions, 1.0)
        np.add.at(self.state["earned"], actions, rewards)

    def _arm_scores(self) -> Floats:
        """(n_items,) mean rewards; an arm never shown ranks above all others."""
        return self._untried_first(self.state["earned"] / np.maximum(self.state["shown"], 1.0))

    def _untried_first(self, scores: Floats) -> Floats:
        tried = self.state["shown"] > 0
        return np.where(tried, scores, scores[tried].max(initial=0.0) + 1.0)

    def scores(self, users: Ints) -> Scores:
        """Every item's score, (n, n_items), the same for each user."""
        return np.tile(self._arm_scores(), (len(self._slots.find(users)), 1))


class EpsilonGreedy(CountingBandit):
    """The item with the best mean reward so far, with probability epsilon a random one; learns from all users.

    Items never shown come first; tied items are equally likely.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        exploration: epsilon, the probability of a uniformly random item.
    """

    def __init__(self, n_items: int, name: str = "epsilon-greedy", *, exploration: float = 0.1) -> None:
        self._exploration = number_in(exploration, f"{name}: exploration", 0.0, 1.0)
        super().__init__(n_items, name, {"exploration": self._exploration})

    def _distribution(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        greedy = best_of(self._arm_scores()[None])
        return np.tile((1.0 - self._exploration) * greedy + self._exploration / self.n_items, (len(slots), 1))


class UCB1(CountingBandit):
    """The item with the largest upper bound of its mean reward (UCB1, Auer et al. 2002); learns from all users.

    The bound is mean_a + exploration sqrt(2 ln t / n_a) after t decisions, n_a of them for the item (their figure 1 for
    rewards in [0, 1] and exploration = 1). Items never shown come first; tied items are equally likely.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        exploration: factor of the bound's width.
    """

    def __init__(self, n_items: int, name: str = "ucb1", *, exploration: float = 1.0) -> None:
        self._exploration = number_in(exploration, f"{name}: exploration")
        super().__init__(n_items, name, {"exploration": self._exploration})

    def _arm_scores(self) -> Floats:
        from recsim_mnar.kernels import elementary

        times_shown = np.maximum(self.state["shown"], 1.0)
        t = max(float(self.state["shown"].sum()), 1.0)
        room = 2.0 * float(elementary.log(np.array([t]))[0])
        bounds = self.state["earned"] / times_shown + self._exploration * np.sqrt(room / times_shown)
        return self._untried_first(bounds)

    def _distribution(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        return np.tile(best_of(self._arm_scores()[None]), (len(slots), 1))


_MOST_NUMBERS = 1 << 27
"""Of posterior precisions kept, 8 bytes each."""

SIZES = np.array([17, 33, 65], np.int64)
"""Edges of each stage of the quadrature by which Thompson sampling knows its distribution."""


class ContextualBandit(Bandit):
    """A bandit whose context is (1, x): x = h / (n + shrinkage) for a user's n views with counts h, or features.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        features: (U, d) array, or an ``.npz`` file that holds it as ``user_features``: the user u has the row u mod U,
            as in the features world, and views are not used. None: the views.
        shrinkage: views that a user is thought to lack.
        ridge: prior precision of each coefficient.
        parameters: further ones, for provenance.

    Raises:
        UserError: a parameter that is none, or too many items for contexts of this size.
    """

    _counts: Floats

    def __init__(
        self, n_items: int, name: str, *, features: Any, shrinkage: float, ridge: float, parameters: Mapping[str, Any]
    ) -> None:
        for key, value in (("shrinkage", shrinkage), ("ridge", ridge)):
            number_in(value, f"{name}: {key}", ends="(]")
        if features is None:
            self._features = None
        else:
            self._features = _features(name, features)
        self._shrinkage = float(shrinkage)
        super().__init__(n_items, name, {**parameters, "shrinkage": float(shrinkage), "ridge": float(ridge)})
        d = 1 + (self.n_items if self._features is None else self._features.shape[1])
        if self.n_items * d * d > _MOST_NUMBERS:
            raise UserError(
                f"{name}: {n_items} items with contexts of {d} numbers need {8e-9 * n_items * d * d:.0f} GB of "
                "posteriors: give features= of fewer columns"
            )
        self.state["inverse"] = np.tile(np.eye(d) / ridge, (self.n_items, 1, 1))
        self.state["theta"] = np.zeros((self.n_items, d))

    def _entries(self) -> dict[str, Entry]:
        if self._features is None:
            width = self.n_items
        else:
            width = 0
        return {**super()._entries(), "_counts": Entry(np.float64, 0, (width,))}

    def _view(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        super()._view(slots, items)
        if self._features is None:
            np.add.at(self._counts, (slots, items), 1.0)

    def contexts(self, users: Ints) -> Floats:
        """(n, d) contexts of users in their present states, the constant first."""
        return self._contexts(users, self._slots.find(users))

    def _contexts(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        if self._features is not None:
            contexts = self._features[np.asarray(users) % len(self._features)]
        else:
            counts = self._counts[slots]
            contexts = counts / (counts.sum(axis=1, keepdims=True) + self._shrinkage)
        return np.concatenate([np.ones((len(contexts), 1)), contexts], axis=1)

    def _predicted(self, users: Ints, slots: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Mean and width of every arm, (n, n_items) each."""
        from recsim_mnar.agents.bandits import _bandits_kernel

        x = self._contexts(users, slots)
        means = np.empty((len(x), self.n_items))
        widths = np.empty((len(x), self.n_items))
        _bandits_kernel.predict(
            x, self.state["inverse"], self.state["theta"], np.empty(x.shape[1], np.int64), means, widths
        )
        return means, widths

    def scores(self, users: Ints) -> Scores:
        """Mean x . theta of every item, (n, n_items), without the exploration term."""
        return self._predicted(users, self._slots.find(users))[0]

    def fitted(self) -> tuple[dict[str, NDArray[Any]], Mapping[str, Any]]:
        """Implement :meth:`recsim_mnar.policies.storage.Stored.fitted`."""
        arrays, parameters = super().fitted()
        return arrays if self._features is None else {**arrays, "features": self._features.copy()}, parameters

    @classmethod
    def refitted(cls, n_items: int, name: str, arrays: dict[str, NDArray[Any]], parameters: Mapping[str, Any]) -> Self:
        """Implement :meth:`recsim_mnar.policies.storage.Stored.refitted`."""
        if "features" in arrays:
            features = {"features": arrays["features"]}
        else:
            features = {}
        rest = {key: values for key, values in arrays.items() if key != "features"}
        return super().refitted(n_items, name, rest, {**parameters, **features})

    def describe(self) -> Mapping[str, Any]:
        """Name and parameters; features as their digest."""
        described = {"name": self.name, **self._parameters}
        if self._features is not None:
            described["features"] = {"sha256": hashlib.sha256(self._features.astype("<f8").tobytes()).hexdigest()}
        return described


class LinearBandit(ContextualBandit):
    """Ridge regression of each arm's rewards on the context, with the standard deviation of all rewards so far.

    theta_a = V_a sum x r and V_a = (ridge I + sum x x')^-1 over the times that the arm was shown. Widths are in units
    of the standard deviation of all rewards so far, 1 until two of them differ.
    """

    def __init__(self, n_items: int, name: str, **given: Any) -> None:
        super().__init__(n_items, name, **given)
        self.state["sums"] = np.zeros(3)

    def _learn(self, users: Ints, slots: NDArray[np.int64], actions: NDArray[np.int32], rewards: Floats) -> None:
        from recsim_mnar.agents.bandits import _bandits_kernel

        x = self._contexts(users, slots)
        state = self.state
        d = x.shape[1]
        _bandits_kernel.learn_linear(
            x, actions, rewards, state["inverse"], state["theta"], np.empty(d, np.int64), np.empty(d)
        )
        state["sums"] += [len(rewards), rewards.sum(), (rewards * rewards).sum()]

    def _deviation(self) -> float:
        n, first, second = self.state["sums"].tolist()
        if n:
            variance = second / n - (first / n) ** 2
        else:
            variance = 0.0
        if variance > 1e-12:
            return float(np.sqrt(variance))
        return 1.0


class LinEpsilonGreedy(LinearBandit):
    """The item with the best linear prediction, with probability epsilon a random one; learns from all users.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        exploration: epsilon, the probability of a uniformly random item.
        ridge: prior precision of each coefficient.
        shrinkage: views that a user is thought to lack, where views are the context.
        features: see :class:`ContextualBandit`.
    """

    def __init__(
        self,
        n_items: int,
        name: str = "lin-epsilon-greedy",
        *,
        exploration: float = 0.1,
        ridge: float = 1.0,
        shrinkage: float = 2.0,
        features: Any = None,
    ) -> None:
        self._exploration = number_in(exploration, f"{name}: exploration", 0.0, 1.0)
        parameters = {"exploration": self._exploration}
        super().__init__(n_items, name, features=features, shrinkage=shrinkage, ridge=ridge, parameters=parameters)

    def _distribution(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        means, _ = self._predicted(users, slots)
        return (1.0 - self._exploration) * best_of(means) + self._exploration / self.n_items


class LinUCB(LinearBandit):
    """The item with the largest linear upper bound (LinUCB, Li et al. 2010); learns from all users.

    The bound is x . theta_a + alpha s sqrt(x' V_a x), algorithm 1 of Li et al. 2010 with s the standard deviation of
    all rewards so far, so that alpha has no unit. Tied items are equally likely.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        alpha: width of the bound, in standard deviations.
        ridge: prior precision of each coefficient.
        shrinkage: views that a user is thought to lack, where views are the context.
        features: see :class:`ContextualBandit`.
    """

    def __init__(
        self,
        n_items: int,
        name: str = "lin-ucb",
        *,
        alpha: float = 1.0,
        ridge: float = 1.0,
        shrinkage: float = 2.0,
        features: Any = None,
    ) -> None:
        self._alpha = number_in(alpha, f"{name}: alpha")
        parameters = {"alpha": self._alpha}
        super().__init__(n_items, name, features=features, shrinkage=shrinkage, ridge=ridge, parameters=parameters)

    def _distribution(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        means, widths = self._predicted(users, slots)
        return best_of(means + (self._alpha * self._deviation()) * widths)


def chance_of_best(means: Floats, widths: Floats, sizes: NDArray[np.int64] = SIZES) -> Floats:
    """Probability that each arm is the largest of independent Gaussians, by quadrature and normalised.

    Args:
        means: (n, P).
        widths: (n, P) standard deviations, above 0.
        sizes: (S,) edges of each stage, see ``_bandits_kernel.best_arms``.

    Returns:
        (n, P), rows summing to 1. With the default sizes the total variation between a row and the exact distribution
        is some .0002 for arms of one width and below .01 for widths that differ by a factor of 30; where they differ by
        many orders of magnitude it can reach .2.
    """
    from recsim_mnar.agents.bandits import _bandits_kernel

    p = means.shape[1]
    out = np.empty(means.shape)
    nodes = np.empty((3, int(sizes.max())))
    arms = np.empty((5, p))
    _bandits_kernel.best_arms(means, widths, sizes, nodes, arms, np.empty(p, np.int64), out)
    return out


class LinThompson(LinearBandit):
    """Thompson sampling with a linear model (Agrawal & Goyal 2013), drawn by its distribution; learns from all users.

    Each arm's coefficients have the posterior N(theta_a, (spread s)^2 V_a), s the standard deviation of all rewards so
    far, so that the arms' predictions at a context are independent Gaussians. Instead of sampling them, the chance of
    each arm to be the largest is integrated (:func:`chance_of_best`), and the item is drawn from that distribution: its
    propensity is exact for this policy, which differs from true Thompson sampling by the error of the integral.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        spread: of the posterior, in standard deviations.
        ridge: prior precision of each coefficient.
        shrinkage: views that a user is thought to lack, where views are the context.
        features: see :class:`ContextualBandit`.
    """

    def __init__(
        self,
        n_items: int,
        name: str = "lin-thompson",
        *,
        spread: float = 1.0,
        ridge: float = 1.0,
        shrinkage: float = 2.0,
        features: Any = None,
    ) -> None:
        self._spread = number_in(spread, f"{name}: spread", ends="(]")
        parameters = {"spread": self._spread}
        super().__init__(n_items, name, features=features, shrinkage=shrinkage, ridge=ridge, parameters=parameters)

    def _distribution(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        means, widths = self._predicted(users, slots)
        return chance_of_best(means, (self._spread * self._deviation()) * widths)


class LogisticThompson(ContextualBandit):
    """Thompson sampling with a logistic model (Chapelle & Li 2011), drawn by its distribution; learns from all users.

    Each arm's coefficients have a Gaussian posterior, after every outcome replaced by Laplace's approximation with its
    full covariance. The arms' logits at a context are independent Gaussians, the largest logit is the largest mean
    reward, and the item is drawn as :class:`LinThompson` does.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        spread: factor of the posterior's standard deviations.
        ridge: prior precision of each coefficient.
        shrinkage: views that a user is thought to lack, where views are the context.
        features: see :class:`ContextualBandit`.
    """

    def __init__(
        self,
        n_items: int,
        name: str = "logistic-thompson",
        *,
        spread: float = 1.0,
        ridge: float = 1.0,
        shrinkage: float = 2.0,
        features: Any = None,
    ) -> None:
        self._spread = number_in(spread, f"{name}: spread", ends="(]")
        parameters = {"spread": self._spread}
        super().__init__(n_items, name, features=features, shrinkage=shrinkage, ridge=ridge, parameters=parameters)

    def _learn(self, users: Ints, slots: NDArray[np.int64], actions: NDArray[np.int32], rewards: Floats) -> None:
        from recsim_mnar.agents.bandits import _bandits_kernel

        if len(rewards) and not (rewards.min() >= 0.0 and rewards.max() <= 1.0):
            bad = float(rewards[(rewards < 0.0) | (rewards > 1.0)][0])
            raise UserError(f"policy {self.name!r} learns from rewards in [0, 1], got {bad:g}: use lin-thompson")
        x = self._contexts(users, slots)
        d = x.shape[1]
        _bandits_kernel.learn_logistic(
            x, actions, rewards, self.state["inverse"], self.state["theta"], np.empty(d, np.int64), np.empty(d)
        )

    def _distribution(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        means, widths = self._predicted(users, slots)
        return chance_of_best(means, self._spread * widths)


def _features(name: str, given: Any) -> Floats:
    """(U, d) finite features from an array or a file."""
    if isinstance(given, (str, Path)):
        try:
            given = read_arrays(given, ("user_features",))["user_features"]
        except FileNotFoundError:
            raise UserError(f"{name}: features: file {given} does not exist") from None
        except UserError as error:
            raise UserError(
                f"{name}: features: {given} is not an .npz file with an array 'user_features' ({error})"
            ) from None
    try:
        features = np.array(given, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name}: features must be a matrix of numbers, one row per user") from None
    if features.ndim != 2 or 0 in features.shape or not np.isfinite(features).all():
        raise UserError(f"{name}: features must be a matrix of finite numbers, one row per user, got {features.shape}")
    return features
