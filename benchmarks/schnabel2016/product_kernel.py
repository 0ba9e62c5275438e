"""Ratings from what is known of users and items: ridge regression with product kernels.

The rating of user u and item i is c + f(u, i) + noise, f a Gaussian process with covariance::

    scale k(u, u') l(i, i') + user_offset [u = u'] + item_offset [i = i'],
    k(u, u') = prod over groups g of (1 + user_category_g [x_ug = x_u'g])
               + user_own [u = u'] + user_browsing s_u . s_u',

and l alike for items. The product multiplies out to an effect of every combination of user and item categories, of
every user's taste for item categories and of every item's appeal to user categories, each with a variance made from few
numbers: a smoothing-spline analysis of variance (Wahba, Wang, Gu, Klein & Klein 1995) on categories. s_u are the shares
of item categories among what u chose to rate: selection itself says what a user likes.

The product of user_own and item_own is a variance of every cell by itself: it moves the predictions of rated cells
towards their ratings, and no others. Errors on cells that were trained on are to be kept separate from the rest.

Each rating's noise variance is P^weighting, on the scale where the mean of its inverse is 1: with ``weighting`` 1 the
fit minimises the IPS estimate of the squared error (Schnabel et al. 2016, equation 8), with 0 the naive one, and
between them it pays for some bias with less variance.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.ratings import check_propensities
from recsim_mnar.kernels.lbfgs import NotConverged
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.models.factorization import LOSSES

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ProductKernelConfig:
    """Prior variances, relative to the noise of an average rating, and what is minimised.

    Attributes:
        scale: of the product of both kernels.
        user_category: of each user group, (groups,).
        item_category: of each item group, (groups,).
        user_own: of what is a user's own, within the product.
        item_own: of what is an item's own, within the product.
        user_browsing: of the item categories that a user chose to rate.
        item_audience: of the user categories that chose to rate an item.
        user_offset: of a user's offset, in addition to the product.
        item_offset: of an item's offset, in addition to the product.
        weighting: each rating weighs P^-weighting.
        loss: ``mse`` or ``mae``.
        smoothing: the absolute error is sqrt(e^2 + smoothing^2) - smoothing.
    """

    scale: float = 0.02
    user_category: tuple[float, ...] = ()
    item_category: tuple[float, ...] = ()
    user_own: float = 1.0
    item_own: float = 1.0
    user_browsing: float = 0.25
    item_audience: float = 0.25
    user_offset: float = 0.25
    item_offset: float = 0.1
    weighting: float = 0.5
    loss: str = "mse"
    smoothing: float = 0.3

    def __post_init__(self) -> None:
        """Raise UserError for what cannot be."""
        for name, value in asdict(self).items():
            if name != "loss" and not all(math.isfinite(v) and v >= 0 for v in np.atleast_1d(value)):
                raise UserError(f"{name} must not be negative, got {value!r}")
        if self.loss not in LOSSES:
            raise UserError(f"loss must be one of {', '.join(LOSSES)}, got {self.loss!r}")
        if not self.smoothing > 0:
            raise UserError(f"smoothing must be above 0, got {self.smoothing!r}")

    def to_dict(self) -> dict[str, Any]:
        """All fields; JSON types only."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> ProductKernelConfig:
        """The inverse of :meth:`to_dict`."""
        given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
        return cls(**given)


@dataclass(frozen=True)
class Sides:
    """What is known of users and items.

    Attributes:
        user_features: (U, p).
        item_features: (I, q).
        user_groups: slices of columns that belong together (:func:`groups_of`).
        item_groups: alike.
    """

    user_features: Floats
    item_features: Floats
    user_groups: tuple[slice, ...]
    item_groups: tuple[slice, ...]

    @classmethod
    def of(cls, user_features: Any, item_features: Any) -> Sides:
        """Check two matrices of features and find their groups.

        Raises:
            UserError: not a matrix, or a feature that is not finite.
        """
        found = []
        for name, given in (("user", user_features), ("item", item_features)):
            matrix = np.asarray(given, np.float64)
            if matrix.ndim != 2:
                raise UserError(f"{name} features must be a matrix, got shape {matrix.shape}")
            if not np.isfinite(matrix).all():
                row, column = np.argwhere(~np.isfinite(matrix))[0]
                raise UserError(
                    f"{name} feature {column} of {name} {row} is {matrix[row, column]}, not a finite number"
                )
            found.append(matrix)
        return cls(found[0], found[1], groups_of(found[0]), groups_of(found[1]))

    def form(self, category: float = 0.25, **fields: Any) -> ProductKernelConfig:
        """A form with the same variance for every group."""
        users, items = ((category,) * len(g) for g in (self.user_groups, self.item_groups))
        return ProductKernelConfig(**{"user_category": users, "item_category": items, **fields})


def groups_of(features: Floats) -> tuple[slice, ...]:
    """Neighbouring columns of which every row has exactly one 1 (a category written as zeros and ones) are a group.

    Every other column is a group of its own.
    """
    groups: list[slice] = []
    column, width = 0, features.shape[1]
    binary = [bool(np.isin(column, (0.0, 1.0)).all()) for column in features.T]
    while column < width:
        end, total = column, np.zeros(len(features))
        while end < width and binary[end] and (total + features[:, end]).max() <= 1.0 and not total.all():
            total = total + features[:, end]
            end += 1
        end = end if end > column and total.all() else column + 1
        groups.append(slice(column, end))
        column = end
    return tuple(groups)


def similarity(features: Floats, group: slice) -> Floats:
    """(n, n): 1 where two rows have the same category, 0 where not; products of standard scores of a single number."""
    x = features[:, group]
    if x.shape[1] == 1:
        spread = x.std()
        x = (x - x.mean()) / (spread if spread > 0 else 1.0)
    return x @ x.T


def fit_side(
    ratings: Ratings,
    propensities: Any,
    sides: Sides,
    form: ProductKernelConfig,
    *,
    tolerance: float = 1e-5,
    max_sweeps: int = 30,
) -> Floats:
    """Predicted ratings of all cells, (U, I): the posterior mean (``mse``) or mode (``mae``) of c + f.

    Args:
        ratings: observed.
        propensities: P of each; (U, I), (n,) or one number.
        sides: what is known.
        form: variances and loss.
        tolerance: residual of the linear equations, relative to their right-hand side.
        max_sweeps: of reweighting, where the loss is ``mae``.

    Raises:
        UserError: features or variances of another shape, a propensity outside (0, 1], no ratings.

    Warns:
        NotConverged: from the conjugate gradients.
    """
    if len(ratings) == 0:
        raise UserError("there are no ratings to fit")
    p = check_propensities(ratings, propensities)
    kernel = kernels(ratings, sides, form)
    weights = p**-form.weighting
    weights /= weights.mean()
    c, f = _ridge(ratings, weights, kernel, tolerance)
    if form.loss == "mae":
        # Least squares with weights 1 / |e| has the absolute error's stationary points; each sweep lowers it.
        for _ in range(max_sweeps):
            e = ratings.values - c - ratings.at(f)
            before = f
            c, f = _ridge(ratings, weights / np.sqrt(e * e + form.smoothing**2), kernel, tolerance)
            if np.abs(f - before).max() < 100 * tolerance:
                break
    return c + f


@dataclass(frozen=True)
class Kernels:
    """The covariance of f: k (U, U) with the scale in it, l (I, I), and the variances of both offsets."""

    users: Floats
    items: Floats
    user_offset: float
    item_offset: float

    def times(self, grid: Floats) -> Floats:
        """The covariance of all cells with those of a (U, I) grid, times the grid; (U, I)."""
        out = self.users @ grid @ self.items
        out += self.user_offset * grid.sum(axis=1)[:, None]
        out += self.item_offset * grid.sum(axis=0)
        return np.asarray(out)


def kernels(ratings: Ratings, sides: Sides, form: ProductKernelConfig) -> Kernels:
    """The covariance that a form gives.

    Raises:
        UserError: features or variances of another shape.
    """
    for name, n, features in (
        ("user", ratings.n_users, sides.user_features), ("item", ratings.n_items, sides.item_features),
    ):  # fmt: skip
        if len(features) != n:
            raise UserError(f"{name} features have {len(features)} rows, the ratings are of {n} {name}s")
    chosen = np.zeros(ratings.shape)
    chosen[ratings.users, ratings.items] = 1.0
    browsing = _shares(chosen, sides.item_features)
    audience = _shares(chosen.T, sides.user_features)
    made = []
    for name, n, features, groups, category, own, shares, share_scale in (
        ("user", ratings.n_users, sides.user_features, sides.user_groups, form.user_category, form.user_own,
         browsing, form.user_browsing),
        ("item", ratings.n_items, sides.item_features, sides.item_groups, form.item_category, form.item_own,
         audience, form.item_audience),
    ):  # fmt: skip
        if len(category) != len(groups):
            raise UserError(f"{name}_category must have {len(groups)} numbers, one a group, got {len(category)}")
        one = np.ones((n, n))
        for group, variance in zip(groups, category, strict=True):
            one *= 1.0 + variance * similarity(features, group)
        one[np.diag_indices(n)] += own
        made.append(one + share_scale * (shares @ shares.T))
    return Kernels(form.scale * made[0], made[1], form.user_offset, form.item_offset)


def _shares(chosen: Floats, features: Floats) -> Floats:
    """Mean features of what each row chose, shrunk towards all rows' by two ratings' worth, less all rows'; (n, q)."""
    counts = chosen.sum(axis=1, keepdims=True)
    overall = chosen.sum(axis=0) @ features / counts.sum()
    return np.asarray((chosen @ features + 2.0 * overall) / (counts + 2.0) - overall)


def _ridge(ratings: Ratings, weights: Floats, kernel: Kernels, tolerance: float) -> tuple[float, Floats]:
    """C, the weighted mean, and the posterior mean of f in all cells, (U, I).

    f = K alpha with (W^-1 + K) alpha = y - c: conjugate gradients on (I + W^.5 K W^.5) t = W^.5 (y - c), alpha =
    W^.5 t. A product with K costs two small matrix products: the cells are a part of a U x I grid.
    """
    users, items = ratings.users, ratings.items
    c = float(weights @ ratings.values / weights.sum())
    root = np.sqrt(weights)
    grid = np.zeros(ratings.shape)

    def everywhere(alpha: Floats) -> Floats:
        # Two ratings of one cell add up.
        grid[:] = 0.0
        np.add.at(grid, (users, items), alpha)
        return kernel.times(grid)

    residual = root * (ratings.values - c)
    t = np.zeros_like(residual)
    step = residual.copy()
    square = first = float(residual @ residual)
    for _ in range(1000):
        if square <= tolerance**2 * first:
            break
        product = step + root * everywhere(root * step)[users, items]
        length = square / float(step @ product)
        t += length * step
        residual -= length * product
        square, before = float(residual @ residual), square
        step = residual + square / before * step
    else:
        warnings.warn(
            f"conjugate gradients did not converge: 1000 iterations, residual {math.sqrt(square / first):.3g} "
            f"(bound {tolerance:g}); use smaller variances",
            NotConverged,
            stacklevel=3,
        )
    return c, everywhere(root * t)
