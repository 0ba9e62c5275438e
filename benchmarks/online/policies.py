"""Policies of the study: a learner from all users, and Thompson sampling as a bandit library offers it."""

from __future__ import annotations

from typing import Any

import numpy as np

from recsim_mnar.policies import Policy


class Greedy(Policy):
    """Epsilon-greedy on the mean reward of all users so far; learns from all of them."""

    name = "epsilon-greedy"

    def __init__(self, n_items: int, epsilon: float = 0.2, *, frozen: bool = False) -> None:
        self.n_items, self.epsilon = n_items, epsilon
        self.learns = "nothing" if frozen else "all users"
        self.shown, self.earned = np.zeros(n_items), np.zeros(n_items)

    def distribution(self) -> Any:
        """(n_items,) the same for every user."""
        best = int(np.argmax((self.earned + 1.0) / (self.shown + 50.0)))
        return self.epsilon / self.n_items + (1.0 - self.epsilon) * np.eye(self.n_items)[best]

    def probabilities(self, users: Any) -> Any:
        """See :meth:`Policy.probabilities`."""
        return np.tile(self.distribution(), (len(users), 1))

    def propensity_of(self, users: Any, actions: Any) -> Any:
        """See :meth:`Policy.propensity_of`."""
        return self.distribution()[actions]

    def act(self, users: Any, uniforms: Any) -> Any:
        """See :meth:`Policy.act`."""
        edges = np.cumsum(self.distribution())
        actions = np.minimum(np.searchsorted(edges, uniforms, side="right"), self.n_items - 1)
        return actions, self.propensity_of(users, actions)

    def learn(self, users: Any, actions: Any, rewards: Any, propensities: Any) -> None:
        """See :meth:`Policy.learn`."""
        np.add.at(self.shown, actions, 1.0)
        np.add.at(self.earned, actions, rewards)


def mabwiser_thompson(n_items: int) -> Any:
    """A fitted Thompson sampler of mabwiser; None where that is not installed."""
    try:
        from mabwiser.mab import MAB, LearningPolicy
    except ImportError:
        return None
    mab = MAB(list(range(n_items)), LearningPolicy.ThompsonSampling(), seed=1)
    mab.fit(list(range(n_items)) * 2, [0] * n_items + [1] * n_items)
    return mab


class MabwiserBare:
    """mabwiser as its users would write it first: act by ``predict``, propensities from a hundred more predictions."""

    name = "mabwiser Thompson sampling, propensities by counting further predictions"

    def __init__(self, n_items: int) -> None:
        self.n_items, self.mab = n_items, mabwiser_thompson(n_items)

    def probabilities(self, users: Any) -> Any:
        """Frequencies of a hundred predictions a user."""
        drawn = [np.bincount([self.mab.predict() for _ in range(100)], minlength=self.n_items) for _ in users]
        return (np.array(drawn) + 1e-3) / (100 + 1e-3 * self.n_items)

    def act(self, users: Any, uniforms: Any) -> Any:
        """The library draws by its own generator."""
        actions = np.array([self.mab.predict() for _ in users])
        return actions, self.probabilities(users)[np.arange(len(users)), actions]

    def learn(self, users: Any, actions: Any, rewards: Any) -> None:
        """Hand on what came of the actions."""
        self.mab.partial_fit(actions.tolist(), rewards.tolist())


class MabwiserSampler:
    """mabwiser for :class:`recsim_mnar.policies.SampledPolicy`."""

    name = "mabwiser Thompson sampling"

    def __init__(self, n_items: int) -> None:
        self.mab = mabwiser_thompson(n_items)

    def sample(self, user: int, draws: int) -> Any:
        """So many predictions."""
        return np.array([self.mab.predict() for _ in range(draws)])

    def learn(self, users: Any, actions: Any, rewards: Any) -> None:
        """Hand on what came of the actions."""
        self.mab.partial_fit(actions.tolist(), rewards.tolist())
