"""Propensities by regularised logistic regression on pairs of features (Schnabel et al. 2016, section 5.1)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import _logistic_kernel
import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import whole_number
from recsim_mnar.kernels.lbfgs import minimise
from recsim_mnar.log.ratings import Floats, Ratings

PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Tried by :func:`logistic`; with few features or many ratings the best is far below 10."""


class EdgeOfGrid(UserWarning):
    """The best value tried is the smallest or the largest: a better one may be beyond."""


@dataclass(frozen=True)
class LogisticPropensities:
    """sigma(x_u' W z_i + gamma_u + beta_i + c), fitted.

    Attributes:
        matrix: (U, I) propensities.
        penalty: on weights and offsets, the one chosen.
        scores: mean held-out log-likelihood of each penalty tried.
    """

    matrix: Floats
    penalty: float
    scores: dict[float, float]


class _Bilinear:
    """Penalised likelihood of one set of cells: parameters [W (p, q) | gamma (U,) | beta (I,) | c]."""

    def __init__(self, observed: Floats, mask: NDArray[np.uint8], x: Floats, z: Floats, penalty: float) -> None:
        self.observed, self.mask, self.x, self.z, self.penalty = observed, mask, x, z, penalty
        self.n_weights = x.shape[1] * z.shape[1]
        self.size = self.n_weights + sum(observed.shape) + 1
        self._residual = np.empty(observed.shape)

    def logits(self, theta: Floats) -> Floats:
        weights = theta[: self.n_weights].reshape(self.x.shape[1], self.z.shape[1])
        gamma, beta = np.split(theta[self.n_weights : -1], [self.observed.shape[0]])
        return np.asarray((self.x @ weights) @ self.z.T + gamma[:, None] + beta + theta[-1])

    def __call__(self, theta: Floats, gradient: Floats) -> float:
        r = self._residual
        value = _logistic_kernel.likelihood(self.logits(theta), self.observed, self.mask, r)
        body = theta[:-1]
        gradient[: self.n_weights] = (self.x.T @ (r @ self.z)).ravel()
        n_users = self.observed.shape[0]
        gradient[self.n_weights : self.n_weights + n_users] = r.sum(axis=1)
        gradient[self.n_weights + n_users : -1] = r.sum(axis=0)
        gradient[-1] = r.sum()
        gradient[:-1] += self.penalty * body
        return float(value + 0.5 * self.penalty * (body @ body))


def logistic(
    ratings: Ratings,
    user_features: Any = None,
    item_features: Any = None,
    *,
    penalties: Sequence[float] = PENALTIES,
    n_folds: int = 4,
    seed: int = 0,
) -> LogisticPropensities:
    """Regularised logistic regression of O on all pairs of a user and an item feature, with offsets for both.

    The features get a constant, so that the pairs contain the features themselves; where there are none the offsets
    alone are fitted. The penalty is chosen by held-out log-likelihood over random folds of cells.

    Args:
        ratings: whose cells count as observed.
        user_features: (U, p).
        item_features: (I, q).
        penalties: tried; one is taken as it is.
        n_folds: of cells.
        seed: of the folds.

    Raises:
        UserError: no ratings, features of the wrong shape or not finite, no penalty or a negative one, a fold without
            ratings.

    Warns:
        NotConverged: from the optimiser.
        EdgeOfGrid: the penalty chosen is the smallest or the largest of several.
    """
    tried = _penalties(penalties)
    if len(ratings) == 0:
        raise UserError("there are no observed ratings to fit propensities on")
    x = features_with_constant(user_features, ratings.n_users, "user")
    z = features_with_constant(item_features, ratings.n_items, "item")
    observed = np.zeros(ratings.shape)
    observed[ratings.users, ratings.items] = 1.0
    everything = np.ones(ratings.shape, np.uint8)
    scores: dict[float, float] = {}
    if len(tried) > 1:
        whole_number(n_folds, "n_folds (needed by more than one penalty)", 2)
        cells = observed.size
        order = np.argsort(rng.uniforms(seed, rng.Stream.PROTOCOL, np.arange(cells), 1), kind="stable")
        fold = np.empty(cells, np.int64)
        fold[order] = np.arange(cells) % n_folds
        fold = fold.reshape(ratings.shape)
        without = np.bincount(fold[ratings.users, ratings.items], minlength=n_folds) == 0
        if without.any():
            raise UserError(
                f"fold {int(np.argmax(without))} of {n_folds} is without ratings; take fewer folds or a single penalty"
            )
        for penalty in sorted(tried, reverse=True):
            held = 0.0
            for f in range(n_folds):
                part = _Bilinear(observed, (fold != f).astype(np.uint8), x, z, penalty * (1 - 1 / n_folds))
                theta = _fit(part, 1e-8)
                test = _Bilinear(observed, (fold == f).astype(np.uint8), x, z, 0.0)
                held -= test(theta, np.empty(test.size))
            scores[penalty] = held / cells
    chosen = max(scores, key=lambda p: scores[p]) if scores else tried[0]
    if len(scores) > 2 and chosen in (min(scores), max(scores)):
        end, further = ("smallest", "smaller") if chosen == min(scores) else ("largest", "larger")
        warnings.warn(
            f"the best penalty, {chosen:g}, is the {end} tried: try {further} ones too, penalties=(...)",
            EdgeOfGrid,
            stacklevel=2,
        )
    model = _Bilinear(observed, everything, x, z, chosen)
    matrix = 1.0 / (1.0 + np.exp(-model.logits(_fit(model, 1e-10))))
    return LogisticPropensities(matrix, chosen, scores)


def _penalties(penalties: Sequence[float]) -> list[float]:
    tried = np.asarray(penalties, np.float64)
    if tried.ndim != 1 or tried.size == 0 or not np.all((tried >= 0.0) & (tried < np.inf)):
        raise UserError(f"penalties must be one or more finite numbers of at least 0, got {penalties!r}")
    return [float(penalty) for penalty in tried]


def _fit(model: _Bilinear, tolerance: float) -> Floats:
    """The minimum; weak penalties leave the likelihood flat, and a loose tolerance then propensities per cents off."""
    start = np.zeros(model.size)
    share = model.observed[model.mask > 0].mean()
    start[-1] = np.log(share / (1.0 - share)) if 0 < share < 1 else 0.0
    return minimise(model, start, gradient_tolerance=1e-9, value_tolerance=tolerance, max_iterations=5000).x


def features_with_constant(features: Any, n: int, kind: str) -> Floats:
    """Features with a constant before them, (n, 1 + p)."""
    if features is None:
        return np.ones((n, 1))
    try:
        matrix = np.asarray(features, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{kind} features must be numbers; encode labels first") from None
    if matrix.ndim != 2 or len(matrix) != n:
        raise UserError(f"{kind} features must have shape ({n}, p), got {matrix.shape}")
    if not np.isfinite(matrix).all():
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise UserError(f"{kind} feature {column} of {kind} {row} is {matrix[row, column]}, not a finite number")
    return np.concatenate([np.ones((n, 1)), matrix], axis=1)
