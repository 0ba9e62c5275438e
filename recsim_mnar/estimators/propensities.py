"""Propensities: the probability with which each entry of a rating matrix is observed, estimated from data.

Schnabel et al. 2016, section 5.1: naive Bayes from self-selected ratings and a small random sample; and popularity.
Whether covariates are balanced within strata: Rosenbaum & Rubin 1984, "Reducing bias in observational studies using
subclassification on the propensity score".
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


@dataclass(frozen=True)
class NaiveBayes:
    """P(O = 1 | Y = r) = P(r | O = 1) P(O = 1) / P(r), equation 11.

    Attributes:
        scale: rating values r, ascending.
        propensities: one each.
        marginals: P(r), from the random sample, with Laplace smoothing.
        sample_size: m, ratings of the random sample.
        laplace: see :func:`naive_bayes`.
    """

    scale: tuple[float, ...]
    propensities: Floats
    marginals: Floats
    sample_size: int
    laplace: float

    def __call__(self, ratings: Ratings, users: Any = None) -> Floats:
        """Propensities of observed ratings, (n,), without another fit."""
        return self.of(ratings.values)

    def refitted(self, observed: Floats, cells: Floats, sample: Floats) -> Floats:
        """Propensities of each rating value in resamples, (R, B).

        Args:
            observed: (R, B) self-selected ratings of each value.
            cells: (B,) size of the matrix.
            sample: (R, B) ratings of each value in the random sample.
        """
        return _bayes(observed / observed.sum(axis=0), observed.sum(axis=0) / cells, _smoothed(sample, self.laplace))

    def of(self, values: Any) -> Floats:
        """Propensity of observed ratings with these values.

        Raises:
            UserError: a value never seen in the self-selected ratings.
        """
        values = np.asarray(values, np.float64)
        place = np.minimum(np.searchsorted(self.scale, values), len(self.scale) - 1)
        unknown = np.asarray(self.scale)[place] != values
        if unknown.any():
            raise UserError(
                f"naive Bayes has no propensity for rating {values[unknown].ravel()[0]:g}: "
                f"it was fitted on {', '.join(f'{r:g}' for r in self.scale)}"
            )
        p = self.propensities[place]
        if not (p > 0.0).all():
            raise UserError(
                f"rating {values[p <= 0.0].ravel()[0]:g} was never seen in the MNAR data: its propensity would be 0"
            )
        return p


def naive_bayes(
    ratings: Ratings, sample: Any, *, scale: Sequence[float] = (1, 2, 3, 4, 5), laplace: float = 1.0
) -> NaiveBayes:
    """Fit naive Bayes propensities.

    Args:
        ratings: self-selected (MNAR).
        sample: (m,) rating values of cells drawn uniformly (MCAR).
        scale: the rating values.
        laplace: added to each value's count in the sample.

    Raises:
        UserError: no sample, ratings outside the scale, a value of the sample never seen in the MNAR data.
    """
    values = np.asarray(sample, np.float64)
    if values.size == 0:
        raise UserError("the MCAR sample is empty: naive Bayes needs ratings of randomly drawn items")
    if len(ratings) == 0:
        raise UserError("there are no MNAR ratings to fit naive Bayes on")
    points = np.array(sorted(scale), np.float64)
    ratings.check_scale(tuple(points))
    outside = values[~np.isin(values, points)]
    if outside.size:
        raise UserError(f"the MCAR sample has rating {outside.ravel()[0]:g}, outside the scale")
    shares = np.array([(ratings.values == r).mean() for r in points])
    counts = np.array([(values == r).sum() for r in points], np.float64)
    never = (shares == 0) & (counts > 0)
    if never.any():
        raise UserError(f"rating {points[never][0]:g} is in the MCAR sample but was never seen in the MNAR data")
    if laplace < 0 or not np.all(counts + laplace > 0):
        raise UserError(f"laplace must be above 0 where a rating is missing from the sample, got {laplace:g}")
    marginals = _smoothed(counts, laplace)
    p = _bayes(shares, ratings.density, marginals)
    return NaiveBayes(tuple(points.tolist()), p, marginals, values.size, laplace)


def _smoothed(counts: Floats, laplace: float) -> Floats:
    """P(r) from counts of each rating value, (R,) or (R, B)."""
    return np.asarray((counts + laplace) / (counts.sum(axis=0) + laplace * len(counts)))


def _bayes(shares: Floats, density: Any, marginals: Floats) -> Floats:
    """Equation 11, at most 1; a value that is neither observed nor sampled gets 1."""
    joint = np.asarray(shares * density)
    return np.minimum(np.divide(joint, marginals, out=np.ones_like(joint), where=marginals > 0.0), 1.0)


def popularity(ratings: Ratings, *, laplace: float = 1.0) -> Floats:
    """Share of users who rated each item, smoothed: (n_i + laplace) / (U + 2 laplace), as a (U, I) matrix."""
    counts = np.bincount(ratings.items, minlength=ratings.n_items)
    share = (counts + laplace) / (ratings.n_users + 2.0 * laplace)
    return np.broadcast_to(share, ratings.shape).copy()


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
