"""Whether covariates are balanced within strata of the propensity.

Rosenbaum & Rubin 1984, "Reducing bias in observational studies using subclassification on the propensity score".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import level_of, whole_number
from recsim_mnar.log.ratings import Floats, Ratings


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


LIMITS = (
    "Balance says nothing about selection on the rating itself: unrevealed ratings are in no comparison, "
    "so data missing not at random can pass this check."
)


@dataclass(frozen=True)
class Balance:
    """Means of covariates over observed entries minus their expectation under P, in standard deviations of all cells.

    Attributes:
        names: of the K covariates.
        unadjusted: (K,) mean of the observed entries minus mean of all cells.
        differences: (K, S) by stratum of the propensity, lowest first.
        low: (K, S) lower ends; all K S intervals hold at once with probability ``level``.
        high: (K, S) upper ends.
        n: (S,) observed entries of each stratum.
        level: of the intervals together.
    """

    names: tuple[str, ...]
    unadjusted: Floats
    differences: Floats
    low: Floats
    high: Floats
    n: NDArray[np.int64]
    level: float

    @property
    def unbalanced(self) -> tuple[str, ...]:
        """Covariates with an interval that excludes 0 in some stratum."""
        return tuple(
            name for k, name in enumerate(self.names) if (self.low[k] > 0.0).any() or (self.high[k] < 0.0).any()
        )

    def __str__(self) -> str:
        worst = np.abs(self.differences).argmax(axis=1)
        lines = []
        for k, (name, s) in enumerate(zip(self.names, worst, strict=True)):
            ends = f"{self.low[k, s]:.3f} to {self.high[k, s]:.3f}"
            lines.append(
                f"{name}: off by {self.unadjusted[k]:.3f} standard deviations in all, by {self.differences[k, s]:.3f} "
                f"({ends}) in the worst of {len(self.n)} strata{'; out of balance' if name in self.unbalanced else ''}"
            )
        return "\n".join([*lines, LIMITS])


def balance(
    ratings: Ratings,
    propensities: Any,
    user_covariates: Any = None,
    item_covariates: Any = None,
    *,
    names: Sequence[str] | None = None,
    strata: int = 5,
    level: float = 0.95,
) -> Balance:
    """Compare covariates of observed entries with their expectation under P, within strata of P.

    In a stratum the mean over observed entries is compared with the mean over all its cells weighted by P: the two
    agree under the right P, however wide the stratum. Strata have equal numbers of observed entries; equal propensities
    are never split. Intervals are clustered by user, with Student's quantile, and corrected for K S comparisons
    (Bonferroni). Where P was fitted to the same entries they are too wide rather than too narrow.

    Balance says nothing about selection on the rating itself (see :data:`LIMITS`), and naive Bayes, which has
    propensities of observed entries alone, has none to show.

    Args:
        ratings: whose cells count as observed.
        propensities: (U, I) estimated P.
        user_covariates: (U, p).
        item_covariates: (I, q).
        names: of the p + q covariates, users' first.
        strata: how many, fewer where propensities are tied.
        level: of all intervals together.

    Raises:
        UserError: no ratings, fewer than two users, propensities that are no (U, I) matrix inside (0, 1], no
            covariate, one that is the same everywhere, or another number of names.
    """
    p = _matrix(ratings, propensities)
    x = features_with_constant(user_covariates, ratings.n_users, "user")[:, 1:]
    z = features_with_constant(item_covariates, ratings.n_items, "item")[:, 1:]
    titles = _titles(names, x.shape[1], z.shape[1])
    scale = np.concatenate([x.std(axis=0), z.std(axis=0)])
    if (scale <= 0.0).any():
        raise UserError(f"covariate {titles[int(np.argmin(scale))]!r} is the same everywhere: leave it out")
    observed = np.zeros(p.shape)
    observed[ratings.users, ratings.items] = 1.0
    place = _strata(ratings.at(p), p, whole_number(strata, "strata", 1))
    parts = [_difference(observed, p, place == s, x, z) for s in range(int(place.max()) + 1)]
    difference, error = (np.stack(column, axis=1) / scale[:, None] for column in zip(*parts, strict=True))
    reach = error * _quantile(level_of(level), difference.size, ratings.n_users)
    means = np.concatenate([x.mean(axis=0), z.mean(axis=0)])
    seen = np.concatenate([x[ratings.users].mean(axis=0), z[ratings.items].mean(axis=0)])
    n = np.bincount(place[ratings.users, ratings.items])
    return Balance(titles, (seen - means) / scale, difference, difference - reach, difference + reach, n, level)


def _matrix(ratings: Ratings, propensities: Any) -> Floats:
    if callable(propensities) or np.ndim(propensities) != 2:
        raise UserError(
            f"balance needs a propensity for each of the {ratings.shape} cells: naive Bayes has those of observed "
            "ratings only. Take those of popularity(ratings), or a matrix of your own fit"
        )
    p = np.asarray(propensities, np.float64)
    ratings.at(p, "the propensity matrix")
    if not np.all((p > 0.0) & (p <= 1.0)):
        raise UserError("propensities must be in (0, 1]")
    if len(ratings) == 0 or ratings.n_users < 2:
        raise UserError("balance needs observed ratings and at least two users")
    return p


def _titles(names: Sequence[str] | None, of_users: int, of_items: int) -> tuple[str, ...]:
    given = [f"user {k}" for k in range(of_users)] + [f"item {k}" for k in range(of_items)] if names is None else names
    if len(given) != of_users + of_items or not given:
        raise UserError(f"{of_users + of_items} covariates and {len(given)} names: give one for each, at least one")
    return tuple(str(name) for name in given)


def _strata(at: Floats, p: Floats, strata: int) -> NDArray[np.int64]:
    """Stratum of every cell: between quantiles of the observed entries' propensities, none of them without one."""
    edges = np.unique(np.quantile(at, np.arange(1, strata) / strata, method="inverted_cdf"))
    return np.searchsorted(edges[edges > at.min()], p, side="right")


def _difference(observed: Floats, p: Floats, inside: NDArray[np.bool_], x: Floats, z: Floats) -> tuple[Floats, Floats]:
    """Mean over observed cells minus mean weighted by P, (K,), and its standard error, by user."""
    (count, seen), (mass, expected) = (_by_user(weights * inside, x, z) for weights in (observed, p))
    n, total = count.sum(), mass.sum()
    mean, middle = seen.sum(axis=0) / n, expected.sum(axis=0) / total
    parts = (seen - count[:, None] * mean) / n - (expected - mass[:, None] * middle) / total
    users = len(parts)
    return mean - middle, np.sqrt((parts**2).sum(axis=0) * users / (users - 1))


def _by_user(weights: Floats, x: Floats, z: Floats) -> tuple[Floats, Floats]:
    """Sum of weights, (U,), and of weighted covariates, (U, K)."""
    sums = weights.sum(axis=1)
    return sums, np.concatenate([sums[:, None] * x, weights @ z], axis=1)


def _quantile(level: float, comparisons: int, users: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(users - 1, 1.0 - (1.0 - level) / (2.0 * comparisons)))
