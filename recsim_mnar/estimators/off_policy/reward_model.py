"""Reward models for DM and DR, cross-fitted by user folds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.columns import Clusters, Floats, column

_BLOCK = 2**22  # entries of rows times actions held at once


class Regressor(Protocol):
    """What a scikit-learn regressor or classifier offers."""

    def fit(self, X: Any, y: Any) -> Any:
        """Fit on (n, d) features and (n,) rewards."""

    def predict(self, X: Any) -> Any:
        """(n,) predictions; a classifier's ``predict_proba`` is used instead where there is one."""


class ActionMeans:
    """Mean reward of each action, drawn towards the mean of all, plus a ridge regression on the context.

    q(x, a) = m_a + (x - mean x) b with m_a = (sum of a's rewards + strength * mean) / (n_a + strength).

    Args:
        n_actions: actions are 0 .. n_actions - 1.
        strength: rows of the overall mean that an action's mean is mixed with.
        ridge: penalty on b, in units of rows.
    """

    def __init__(self, n_actions: int, strength: float = 20.0, ridge: float = 1.0) -> None:
        self.n_actions = n_actions
        self.strength = strength
        self.ridge = ridge
        self.means: NDArray[np.floating] = np.zeros(n_actions)
        self.centre: NDArray[np.floating] = np.zeros(0)
        self.slope: NDArray[np.floating] = np.zeros(0)

    def fit(self, context: Floats, action: NDArray[np.int64], reward: Floats) -> None:
        """Fit on (n, d) contexts, (n,) actions and (n,) rewards."""
        counts = np.bincount(action, minlength=self.n_actions)
        sums = np.bincount(action, reward, self.n_actions)
        mean = float(np.mean(reward)) if reward.size else 0.0
        self.means = (sums + self.strength * mean) / (counts + self.strength)
        self.centre = np.zeros(context.shape[1])
        if reward.size:
            self.centre = context.sum(axis=0) / reward.size
        centred = context - self.centre
        gram = centred.T @ centred + self.ridge * np.eye(context.shape[1])
        self.slope = np.linalg.solve(gram, centred.T @ (reward - self.means[action]))

    def all_actions(self, context: Floats) -> Floats:
        """(n, n_actions) predictions."""
        return self.means[None, :] + ((context - self.centre) @ self.slope)[:, None]


class _Wrapped:
    """A scikit-learn estimator on (context, action features)."""

    def __init__(self, model: Regressor, features: Floats) -> None:
        self.model = copy.deepcopy(model)
        self.features = features

    def fit(self, context: Floats, action: NDArray[np.int64], reward: Floats) -> None:
        self.model.fit(np.hstack([context, self.features[action]]), reward)

    def all_actions(self, context: Floats) -> Floats:
        n, actions = context.shape[0], self.features.shape[0]
        table = np.hstack([np.repeat(context, actions, axis=0), np.tile(self.features, (n, 1))])
        probability = getattr(self.model, "predict_proba", None)
        if probability is None:
            return np.asarray(self.model.predict(table), dtype=np.float64).reshape(n, actions)
        classes = np.asarray(self.model.classes_, dtype=np.float64)  # type: ignore[attr-defined]
        return (np.asarray(probability(table)) @ classes).reshape(n, actions)


def cross_fitted_rewards(
    reward: Any,
    action: Any,
    target: Callable[[NDArray[np.int64]], Any] | Any,
    *,
    n_actions: int,
    context: Any = None,
    cluster: Any = None,
    folds: int = 3,
    model: Regressor | None = None,
    action_features: Any = None,
) -> tuple[Floats, Floats]:
    """``q_logged`` and ``q_target`` of a reward model that never saw the users it predicts for.

    Args:
        reward: (n,) rewards.
        action: (n,) logged actions, 0 .. n_actions - 1.
        target: the target policy: a function from (m,) row numbers to (m, n_actions) probabilities, called block by
            block so that no n x actions array is held; or such an (n, n_actions) array.
        n_actions: number of actions.
        context: (n, d) numbers, or None.
        cluster: (n,) users; a user's rows are in one fold. None where rows are independent.
        folds: number of folds; every K-th user is in one.
        model: a scikit-learn regressor or classifier on context and action features; None for :class:`ActionMeans`.
        action_features: (n_actions, f) for ``model``; None for one column an action.

    Returns:
        (n,) value of the logged action, (n,) mean under the target policy.

    Raises:
        UserError: shapes that do not fit, fewer users than folds.
    """
    r = column(reward, "reward")
    n = r.size
    actions = column(action, "action", rows=n).astype(np.int64)
    if n == 0 or actions.min() < 0 or actions.max() >= n_actions:
        raise UserError(f"column 'action' must hold whole numbers from 0 to {n_actions - 1}")
    x = np.zeros((n, 0)) if context is None else np.asarray(context, dtype=np.float64).reshape(n, -1)
    clusters = Clusters.of(cluster, n)
    units, number = (np.arange(n), n) if clusters is None else clusters.dense()
    if not 2 <= folds <= number:
        raise UserError(f"folds must lie between 2 and the number of users ({number}), got {folds}")
    probabilities = target if callable(target) else lambda rows: np.asarray(target, dtype=np.float64)[rows]
    features = np.eye(n_actions) if action_features is None else np.asarray(action_features, dtype=np.float64)
    q_logged, q_target = np.empty(n), np.empty(n)
    size = max(_BLOCK // n_actions, 1)
    for fold in range(folds):
        held = np.flatnonzero(units % folds == fold)
        others = np.flatnonzero(units % folds != fold)
        fitted: Any = ActionMeans(n_actions) if model is None else _Wrapped(model, features)
        fitted.fit(x[others], actions[others], r[others])
        for start in range(0, held.size, size):
            rows = held[start : start + size]
            q = fitted.all_actions(x[rows])
            pi = np.asarray(probabilities(rows), dtype=np.float64)
            if pi.shape != q.shape:
                raise UserError(
                    f"the target policy must give {q.shape} probabilities for {rows.size} rows, got {pi.shape}"
                )
            q_logged[rows] = q[np.arange(rows.size), actions[rows]]
            q_target[rows] = np.sum(pi * q, axis=1)
    return q_logged, q_target
