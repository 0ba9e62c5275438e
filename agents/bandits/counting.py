"""Context-free bandits, and the state that all bandits learn from all users."""

from __future__ import annotations

import abc
import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.state.acting import DrawingPolicy, as_array, checked_items
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in
from recsim_mnar.policies.base import Floats, Ints, Learns, Policy, Scores, best_of


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

    def __init__(self, n_items: int, name: str, parameters: dict[str, Any]) -> None:
        self.state: dict[str, NDArray[Any]] = {}
        super().__init__(n_items, name, parameters=parameters)

    @abc.abstractmethod
    def _distribution(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        """Probability of every item for each user, (n, n_items); each row is computed independently of the others."""

    @abc.abstractmethod
    def _learn(self, users: Ints, slots: NDArray[np.int64], actions: NDArray[np.int32], rewards: Floats) -> None:
        """Learn from outcomes, (n,) each, in order."""

    def probabilities(self, users: Ints) -> Floats:
        """See :meth:`recsim_mnar.policies.Policy.probabilities`."""
        return self._distribution(users, self._slots.find(users))

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """See :meth:`recsim_mnar.policies.Policy.learn`; the propensities are not used."""
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

    def fitted(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """See :meth:`recsim_mnar.policies.storage.Stored.fitted`."""
        return {name: values.copy() for name, values in self.state.items()}, dict(self._parameters)

    @classmethod
    def refitted(cls, n_items: int, name: str, arrays: dict[str, NDArray[Any]], parameters: dict[str, Any]) -> Self:
        """See :meth:`recsim_mnar.policies.storage.Stored.refitted`."""
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

        shown = np.maximum(self.state["shown"], 1.0)
        t = max(float(self.state["shown"].sum()), 1.0)
        room = 2.0 * float(elementary.log(np.array([t]))[0])
        bounds = self.state["earned"] / shown + self._exploration * np.sqrt(room / shown)
        return self._untried_first(bounds)

    def _distribution(self, users: Ints, slots: NDArray[np.int64]) -> Floats:
        return np.tile(best_of(self._arm_scores()[None]), (len(slots), 1))
