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
    """Base of bandits: policies with a distribution over items that is learned from the outcomes of all users.

    A subclass keeps what it has learned in :attr:`state`, updates it in ``_learn``, and computes the distribution in
    ``_distribution``.

    Args:
        n_items: number of items, the arms.
        name: the name under which results are reported.
        parameters: parameters of the policy, JSON types, for provenance.

    Attributes:
        state: arrays by name, everything that the policy has learned; ``fresh`` copies them.
    """

    learns: Learns = "all users"
    batches_decisions = False

    def __init__(self, n_items: int, name: str, parameters: Mapping[str, Any]) -> None:
        self.state: dict[str, NDArray[Any]] = {}
        super().__init__(n_items, name, parameters=parameters)

    @abc.abstractmethod
    def _distribution(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        """Compute the probabilities of all items for n users, (n, n_items), each row independently of the others."""

    @abc.abstractmethod
    def _learn(self, users: Ints, slots: NDArray[np.int64], actions: NDArray[np.int32], rewards: Floats) -> None:
        """Update :attr:`state` by n outcomes in their order; all arguments are (n,)."""

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
        """Return a copy without users that has learned the same; the two learn independently from then on."""
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
    """Base of bandits without context, which count how often each arm was shown and sum its rewards."""

    def __init__(self, n_items: int, name: str, parameters: dict[str, float]) -> None:
        super().__init__(n_items, name, parameters)
        self.state = {"shown": np.zeros(self.n_items), "earned": np.zeros(self.n_items)}

    def _learn(self, users: Ints, slots: NDArray[np.int64], actions: NDArray[np.int32], rewards: Floats) -> None:
        """Implement :meth:`Bandit._learn`."""
        np.add.at(self.state["shown"], actions, 1.0)
        np.add.at(self.state["earned"], actions, rewards)

    def _arm_scores(self) -> Floats:
        """Return the mean reward of each arm, (n_items,); an arm that was never shown ranks above all others."""
        return self._untried_first(self.state["earned"] / np.maximum(self.state["shown"], 1.0))

    def _untried_first(self, scores: Floats) -> Floats:
        """Return the scores (n_items,) with those of arms that were never shown raised above all others."""
        tried = self.state["shown"] > 0
        return np.where(tried, scores, scores[tried].max(initial=0.0) + 1.0)

    def scores(self, users: Ints) -> Scores:
        """Return the score of every item, (n, n_items), the same for each user."""
        return np.tile(self._arm_scores(), (len(self._slots.find(users)), 1))


class EpsilonGreedy(CountingBandit):
    """Policy that recommends the item with the best mean reward so far, with probability epsilon a random one.

    It learns from all users. Items that were never shown come first; tied items are equally likely.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        exploration: epsilon, the probability of a uniformly random item.
    """

    def __init__(self, n_items: int, name: str = "epsilon-greedy", *, exploration: float = 0.1) -> None:
        self._exploration = number_in(exploration, f"{name}: exploration", 0.0, 1.0)
        super().__init__(n_items, name, {"exploration": self._exploration})

    def _distribution(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        greedy = best_of(self._arm_scores()[None])  # (1, n_items)
        distribution = (1.0 - self._exploration) * greedy + self._exploration / self.n_items
        return np.tile(distribution, (len(slots), 1))


class UCB1(CountingBandit):
    """Policy that recommends the item with the largest upper bound of its mean reward (UCB1, Auer et al. 2002).

    It learns from all users. The bound of item a is mean_a + exploration sqrt(2 ln t / n_a) after t decisions, n_a of
    them for the item; with rewards in [0, 1] and exploration = 1 this is figure 1 of the paper. Items that were never
    shown come first; tied items are equally likely.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        exploration: factor of the bound's width.
    """

    def __init__(self, n_items: int, name: str = "ucb1", *, exploration: float = 1.0) -> None:
        self._exploration = number_in(exploration, f"{name}: exploration")
        super().__init__(n_items, name, {"exploration": self._exploration})

    def _arm_scores(self) -> Floats:
        """Return the upper bound of each arm's mean reward, (n_items,)."""
        from recsim_mnar.kernels import elementary

        times_shown = np.maximum(self.state["shown"], 1.0)
        t = max(float(self.state["shown"].sum()), 1.0)
        # The package's own logarithm, which has the same bits on every machine.
        twice_log_t = 2.0 * float(elementary.log(np.array([t]))[0])
        bounds = self.state["earned"] / times_shown + self._exploration * np.sqrt(twice_log_t / times_shown)
        return self._untried_first(bounds)

    def _distribution(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        return np.tile(best_of(self._arm_scores()[None]), (len(slots), 1))


_MOST_NUMBERS = 1 << 27
"""Largest number of entries of all arms' posterior covariances, 8 bytes each."""

SIZES = np.array([17, 33, 65], np.int64)
"""Numbers of edges in the stages of the quadrature by which Thompson sampling computes its distribution."""


class ContextualBandit(Bandit):
    """Base of bandits with a linear model per arm of a user's context (1, x).

    The vector x is h / (n + shrinkage) for a user with n views and view counts h, or a row of given features.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        features: (U, d) array, or path of an ``.npz`` file with the array ``user_features``. User u then has the row u
            mod U, as in the features world, and views are not used. None for view counts.
        shrinkage: number added to a user's number of views, so that few views give a small x; only for view counts.
        ridge: prior precision of each coefficient.
        parameters: further parameters of the policy, for provenance.

    Attributes:
        state: ``inverse`` (n_items, d, d), posterior covariance of each arm's coefficients, and ``theta`` (n_items, d),
            their posterior mean; d is the length of (1, x).

    Raises:
        UserError: an invalid parameter, or too many items for contexts of this length.
    """

    _counts: Floats

    def __init__(
        self, n_items: int, name: str, *, features: Any, shrinkage: float, ridge: float, parameters: Mapping[str, Any]
    ) -> None:
        for key, value in (("shrinkage", shrinkage), ("ridge", ridge)):
            number_in(value, f"{name}: {key}", ends="(]")
        self._features = None
        if features is not None:
            self._features = _features(name, features)
        self._shrinkage = float(shrinkage)
        super().__init__(n_items, name, {**parameters, "shrinkage": float(shrinkage), "ridge": float(ridge)})
        d = 1 + self.n_items
        if self._features is not None:
            d = 1 + self._features.shape[1]
        if self.n_items * d * d > _MOST_NUMBERS:
            raise UserError(
                f"{name}: {n_items} items with contexts of {d} numbers need {8e-9 * n_items * d * d:.0f} GB of "
                "posteriors: give features= of fewer columns"
            )
        self.state["inverse"] = np.tile(np.eye(d) / ridge, (self.n_items, 1, 1))
        self.state["theta"] = np.zeros((self.n_items, d))

    def _entries(self) -> dict[str, Entry]:
        width = 0  # features are not stored per user
        if self._features is None:
            width = self.n_items
        return {**super()._entries(), "_counts": Entry(np.float64, 0, (width,))}

    def _view(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        """Implement :meth:`recsim_mnar.agents.acting.SlotPolicy._view`: count views, unless features are given."""
        super()._view(slots, items)
        if self._features is None:
            np.add.at(self._counts, (slots, items), 1.0)

    def contexts(self, users: Ints) -> Floats:
        """Return the contexts (1, x) of users in their present states, (n, d)."""
        return self._contexts(users, self._slots.find(users))

    def _contexts(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        """Return the contexts (1, x) of users in these slots, (n, d)."""
        if self._features is not None:
            contexts = self._features[np.asarray(users) % len(self._features)]
        else:
            counts = self._counts[slots]
            contexts = counts / (counts.sum(axis=1, keepdims=True) + self._shrinkage)
        return np.concatenate([np.ones((len(contexts), 1)), contexts], axis=1)

    def _predict(self, users: Ints, slots: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Compute the posterior mean and standard deviation of each arm's prediction, (n, n_items) each."""
        from recsim_mnar.agents.bandits import _bandits_kernel

        x = self._contexts(users, slots)
        means = np.empty((len(x), self.n_items))
        widths = np.empty((len(x), self.n_items))
        scratch = np.empty(x.shape[1], np.int64)
        _bandits_kernel.predict(x, self.state["inverse"], self.state["theta"], scratch, means, widths)
        return means, widths

    def scores(self, users: Ints) -> Scores:
        """Return the predicted mean of every item, (n, n_items), without exploration."""
        return self._predict(users, self._slots.find(users))[0]

    def fitted(self) -> tuple[dict[str, NDArray[Any]], Mapping[str, Any]]:
        """Implement :meth:`recsim_mnar.policies.storage.Stored.fitted`."""
        arrays, parameters = super().fitted()
        if self._features is not None:
            arrays["features"] = self._features.copy()
        return arrays, parameters

    @classmethod
    def refitted(cls, n_items: int, name: str, arrays: dict[str, NDArray[Any]], parameters: Mapping[str, Any]) -> Self:
        """Implement :meth:`recsim_mnar.policies.storage.Stored.refitted`."""
        state = {key: values for key, values in arrays.items() if key != "features"}
        if "features" in arrays:  # an argument of the constructor, not part of what was learned
            parameters = {**parameters, "features": arrays["features"]}
        return super().refitted(n_items, name, state, parameters)

    def describe(self) -> Mapping[str, Any]:
        """Return name and parameters, with a digest in place of the features."""
        described = {"name": self.name, **self._parameters}
        if self._features is not None:
            described["features"] = {"sha256": hashlib.sha256(self._features.astype("<f8").tobytes()).hexdigest()}
        return described


class LinearBandit(ContextualBandit):
    """Base of bandits with a ridge regression of each arm's rewards on the context x, the 1 included.

    theta_a = V_a sum x r and V_a = (ridge I + sum x x')^-1, summed over the times that arm a was shown. The standard
    deviation of a prediction is s sqrt(x' V_a x), s that of all rewards so far, or 1 until two of them differ.

    Attributes:
        state: in addition ``sums`` (3,): number, sum, and sum of squares of all rewards.
    """

    def __init__(self, n_items: int, name: str, **arguments: Any) -> None:
        super().__init__(n_items, name, **arguments)
        self.state["sums"] = np.zeros(3)

    def _learn(self, users: Ints, slots: NDArray[np.int64], actions: NDArray[np.int32], rewards: Floats) -> None:
        """Implement :meth:`Bandit._learn`."""
        from recsim_mnar.agents.bandits import _bandits_kernel

        x = self._contexts(users, slots)
        state = self.state
        d = x.shape[1]
        scratch = (np.empty(d, np.int64), np.empty(d))
        _bandits_kernel.learn_linear(x, actions, rewards, state["inverse"], state["theta"], *scratch)
        state["sums"] += [len(rewards), rewards.sum(), (rewards * rewards).sum()]

    def _deviation(self) -> float:
        """Return the standard deviation of all rewards so far; 1 until two of them differ."""
        n, total, squares = self.state["sums"].tolist()
        variance = 0.0
        if n:
            variance = squares / n - (total / n) ** 2
        if variance > 1e-12:  # less is rounding
            return float(np.sqrt(variance))
        return 1.0


class LinEpsilonGreedy(LinearBandit):
    """Policy that recommends the item with the best linear prediction, with probability epsilon a random one.

    It learns from all users; tied items are equally likely.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        exploration: epsilon, the probability of a uniformly random item.
        ridge: prior precision of each coefficient.
        shrinkage: number added to a user's number of views, so that few views give a small context.
        features: (U, d) users' features or path of their file, as in :class:`ContextualBandit`; None for view counts.
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
        means, _ = self._predict(users, slots)
        return (1.0 - self._exploration) * best_of(means) + self._exploration / self.n_items


class LinUCB(LinearBandit):
    """Policy that recommends the item with the largest upper bound of a linear model (LinUCB, Li et al. 2010).

    It learns from all users. The bound is x . theta_a + alpha s sqrt(x' V_a x), algorithm 1 of the paper with s added,
    the standard deviation of all rewards so far, so that alpha has no unit. Tied items are equally likely.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        alpha: width of the bound, in standard deviations.
        ridge: prior precision of each coefficient.
        shrinkage: number added to a user's number of views, so that few views give a small context.
        features: (U, d) users' features or path of their file, as in :class:`ContextualBandit`; None for view counts.
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
        means, widths = self._predict(users, slots)
        return best_of(means + (self._alpha * self._deviation()) * widths)


def chance_of_best(means: Floats, widths: Floats, sizes: NDArray[np.int64] = SIZES) -> Floats:
    """Compute the probability that each of P independent Gaussians is the largest, by quadrature.

    Args:
        means: (n, P) means.
        widths: (n, P) standard deviations, above 0.
        sizes: (S,) number of edges in each stage of the quadrature, see ``_bandits_kernel.best_arms``.

    Returns:
        (n, P) probabilities; rows sum to 1. With the default sizes the total variation between a row and the exact
        distribution is about .0002 for equal widths, and below .01 for widths that differ by a factor of 30; for widths
        that differ by many orders of magnitude it can reach .2.
    """
    from recsim_mnar.agents.bandits import _bandits_kernel

    n_arms = means.shape[1]
    out = np.empty(means.shape)
    # Scratch of the kernel.
    nodes = np.empty((3, int(sizes.max())))
    arms = np.empty((5, n_arms))
    active = np.empty(n_arms, np.int64)
    _bandits_kernel.best_arms(means, widths, sizes, nodes, arms, active, out)
    return out


class LinThompson(LinearBandit):
    """Thompson sampling with a linear model (Agrawal & Goyal 2013) and exact propensities; learns from all users.

    Each arm's coefficients have the posterior N(theta_a, (spread s)^2 V_a), s the standard deviation of all rewards so
    far. So the arms' predictions at a context are independent Gaussians. Instead of sampling them, the policy computes
    the probability of each arm to be the largest (:func:`chance_of_best`), and draws the item from this distribution.
    Its propensities are therefore exact; only as a version of Thompson sampling it has the error of the quadrature.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        spread: factor of the posterior's standard deviations.
        ridge: prior precision of each coefficient.
        shrinkage: number added to a user's number of views, so that few views give a small context.
        features: (U, d) users' features or path of their file, as in :class:`ContextualBandit`; None for view counts.
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
        means, widths = self._predict(users, slots)
        return chance_of_best(means, (self._spread * self._deviation()) * widths)


class LogisticThompson(ContextualBandit):
    """Thompson sampling with a logistic model (Chapelle & Li 2011) and exact propensities; learns from all users.

    Each arm's coefficients have a Gaussian posterior, after every outcome Laplace's approximation with its full
    covariance. So the arms' logits at a context are independent Gaussians. The arm with the largest logit has the
    largest mean reward, so the item is drawn from the probabilities of the largest logit, as in :class:`LinThompson`.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        spread: factor of the posterior's standard deviations.
        ridge: prior precision of each coefficient.
        shrinkage: number added to a user's number of views, so that few views give a small context.
        features: (U, d) users' features or path of their file, as in :class:`ContextualBandit`; None for view counts.
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
        """Implement :meth:`Bandit._learn`."""
        from recsim_mnar.agents.bandits import _bandits_kernel

        if len(rewards) and not (rewards.min() >= 0.0 and rewards.max() <= 1.0):
            bad = float(rewards[(rewards < 0.0) | (rewards > 1.0)][0])
            raise UserError(f"policy {self.name!r} learns from rewards in [0, 1], got {bad:g}: use lin-thompson")
        x = self._contexts(users, slots)
        d = x.shape[1]
        scratch = (np.empty(d, np.int64), np.empty(d))
        _bandits_kernel.learn_logistic(x, actions, rewards, self.state["inverse"], self.state["theta"], *scratch)

    def _distribution(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        means, widths = self._predict(users, slots)
        return chance_of_best(means, self._spread * widths)


def _features(name: str, given: Any) -> Floats:
    """Return features (U, d) from an array or the path of an ``.npz`` file, checked to be finite numbers.

    Args:
        name: name of the policy, for messages.
        given: the array or the path.

    Raises:
        UserError: no such file, or no matrix of finite numbers.
    """
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
