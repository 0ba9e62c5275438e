"""Bandits without a context: an arm is known by how often it was shown and what that earned."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.bandits.learning import Bandit, above_zero, best_of
from recsim_mnar.errors import UserError
from recsim_mnar.policies.base import Floats, Ints, Scores


def checked_probability(name: str, value: float) -> float:
    """The probability of exploring as a float, or UserError."""
    if above_zero(name, "exploration", value, zero=True) > 1.0:
        raise UserError(f"{name}: exploration must be a probability, got {value!r}")
    return float(value)


class CountingBandit(Bandit):
    """Keeps of each arm how often it was shown and what that earned."""

    def __init__(self, n_items: int, name: str, parameters: dict[str, float]) -> None:
        super().__init__(n_items, name, parameters)
        self.state = {"shown": np.zeros(self.n_items), "earned": np.zeros(self.n_items)}

    def _learn(self, users: Ints, slots: NDArray[np.int64], actions: NDArray[np.int32], rewards: Floats) -> None:
        np.add.at(self.state["shown"], actions, 1.0)
        np.add.at(self.state["earned"], actions, rewards)

    def _arm_scores(self) -> Floats:
        """(n_items,) mean rewards; an arm never shown is above all others."""
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
        self._exploration = checked_probability(name, exploration)
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
        self._exploration = above_zero(name, "exploration", exploration, zero=True)
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
