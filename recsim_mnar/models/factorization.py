"""Weighted matrix factorisation: objectives and solvers.

The model is yhat(u, i) = v_u . w_i + a_u + b_i + c, and the objective (Schnabel et al. 2016, equation 8, as a mean)

    ``1/(U I) sum over observed of weight * delta(y, yhat) + penalty (|V|^2 + |W|^2 [+ |a|^2 + |b|^2])``.

With weight = 1/P it is MF-IPS, with weight = U I / n the conventional factorisation. **The scale of the penalty decides
the result**: it is added to a mean over the whole matrix, not to a sum over ratings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in, one_of, whole_number
from recsim_mnar.kernels.lbfgs import Minimum, minimise
from recsim_mnar.log.ratings import Ratings

Floats = NDArray[np.float64]
LOSSES = ("mse", "mae")
BIASES = ("regularised", "free", "none")


@dataclass(frozen=True)
class FactorizationConfig:
    """Settings of a matrix factorisation.

    Attributes:
        rank: number of factors d; with 0 the model has offsets only.
        penalty: factor lambda of the squared parameters, which are added to a mean over the whole matrix.
        biases: ``regularised`` (user and item offsets, penalised as the factors are), ``free`` (not penalised), or
            ``none`` (common offset c only).
        loss: ``mse`` (squared error) or ``mae`` (absolute error).
        smoothing: smoothing of the absolute error, sqrt(e^2 + smoothing^2) - smoothing, which gives L-BFGS a gradient
            at 0.
    """

    rank: int = 20
    penalty: float = 1e-3
    biases: str = "regularised"
    loss: str = "mse"
    smoothing: float = 0.02

    def __post_init__(self) -> None:
        """Raise UserError for impossible settings."""
        whole_number(self.rank, "rank")
        number_in(self.penalty, "penalty")
        for name, value, known_values in (("biases", self.biases, BIASES), ("loss", self.loss, LOSSES)):
            one_of(value, name, known_values)
        number_in(self.smoothing, "smoothing", ends="(]")

    def to_dict(self) -> Mapping[str, Any]:
        """Return all fields as a dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class Factors:
    """Parameters of a factorisation of U users and I items.

    Attributes:
        v: (U, d) user factors.
        w: (I, d) item factors.
        a: (U,) user offsets.
        b: (I,) item offsets.
        c: common offset.
    """

    v: Floats
    w: Floats
    a: Floats
    b: Floats
    c: float

    def matrix(self) -> Floats:
        """Predict the ratings of all users for all items, (U, I)."""
        return self.v @ self.w.T + self.a[:, None] + self.b + self.c

    def at(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> Floats:
        """Predict the ratings (n,) of pairs of users (n,) and items (n,)."""
        from recsim_mnar.models import _factorization_kernel

        out = np.empty(len(users))
        _factorization_kernel.predict(users, items, self.v, self.w, self.a, self.b, self.c, out)
        return out


@dataclass(frozen=True)
class Fit:
    """A fitted factorisation, with facts on the minimisation.

    Attributes:
        factors: the fitted model.
        value: value of the objective at the solution.
        gradient: largest absolute entry of the gradient at the solution.
        iterations: number of L-BFGS iterations.
        converged: whether a tolerance was reached before the limit of iterations.
    """

    factors: Factors
    value: float
    gradient: float
    iterations: int
    converged: bool


class Objective:
    """Objective of a factorisation of weighted ratings, as a function of one flat vector of parameters.

    The vector has ``size`` entries: the user factors V, the item factors W, the user offsets a, the item offsets b, and
    last the common offset c. Rows of V and W are padded by zeros to ``stride`` entries, a multiple of 4 as the kernel
    needs.

    Args:
        ratings: observed ratings.
        weights: (n,) weights of the ratings, such as 1 / propensity; None for the unweighted mean (U I / n each).
        form: settings of the factorisation.

    Attributes:
        starts: (U + 1,) the ratings of user u are starts[u]:starts[u + 1] of the next four arrays.
        users, items, values: (n,) ratings, sorted by user.
        weights: (n,) weights of the sorted ratings, divided by U I.
        stride: number of entries in a padded row of V or W.
        size: number of entries of the vector.

    Raises:
        UserError: there are no ratings, or weights are negative, not finite or all 0.
    """

    def __init__(self, ratings: Ratings, weights: Floats | None, form: FactorizationConfig) -> None:
        if len(ratings) == 0:
            raise UserError("there are no ratings to factorise")
        if weights is None:
            weights = np.full(len(ratings), 1.0 / ratings.density)
        weights = _checked_weights(weights, len(ratings))
        order = np.argsort(ratings.users, kind="stable")
        self.form = form
        self.n_users, self.n_items = ratings.shape
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(ratings.users, minlength=self.n_users))])
        self.users = ratings.users[order]
        self.items = ratings.items[order]
        self.values = ratings.values[order]
        self.weights = weights[order] / (ratings.n_users * ratings.n_items)
        self.stride = -(-form.rank // 4) * 4  # rounded up to a multiple of 4
        # Ends of V, W, a and b in the vector; c is the entry behind b.
        self._end_v = self.n_users * self.stride
        self._end_w = self._end_v + self.n_items * self.stride
        self._end_a = self._end_w + self.n_users
        self._end_b = self._end_a + self.n_items
        self.size = self._end_b + 1

    def parts(self, x: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return views into a vector of parameters: V (U, stride), W (I, stride), a (U,) and b (I,)."""
        return (
            x[: self._end_v].reshape(self.n_users, self.stride),
            x[self._end_v : self._end_w].reshape(self.n_items, self.stride),
            x[self._end_w : self._end_a],
            x[self._end_a : self._end_b],
        )

    def __call__(self, x: Floats, gradient: Floats) -> float:
        """Return the objective at parameters ``x`` (size,), and write its gradient to ``gradient`` (size,)."""
        from recsim_mnar.kernels import _vectors_kernel
        from recsim_mnar.models import _factorization_kernel as factorization

        form = self.form
        gradient[self._end_w :] = 0.0
        if form.biases == "regularised":
            penalised = self._end_b
        else:
            penalised = self._end_w
        # Sets the gradient of the penalised parameters to the penalty's.
        value = _vectors_kernel.penalise(x[:penalised], form.penalty, gradient[:penalised])
        v, w, a, b = self.parts(x)
        gv, gw, ga, gb = self.parts(gradient)
        gradient_in_c = gradient[self._end_b :]
        smoothing = -1.0  # the kernel's flag for the squared error
        if form.loss == "mae":
            smoothing = form.smoothing
        value += factorization.loss_and_gradient(
            self.starts,
            self.items,
            self.values,
            self.weights,
            smoothing,
            v,
            w,
            a,
            b,
            float(x[-1]),
            gv,
            gw,
            ga,
            gb,
            gradient_in_c,
        )
        # The kernel overwrote the gradient in V, the penalty's part included.
        gv += 2.0 * form.penalty * v
        if form.biases == "none":
            gradient[self._end_w : self._end_b] = 0.0
        return float(value)

    def start(self, seed: int, spread: float = 0.1) -> Floats:
        """Return a vector of parameters from which to minimise.

        Factors are normal draws of ``Stream.FIT`` with standard deviation spread / sqrt(d), offsets are 0, and c is the
        weighted mean of the ratings (mse) or their weighted median (mae).
        """
        x = np.zeros(self.size)
        v, w, _, _ = self.parts(x)
        d = self.form.rank
        if d:
            draws = rng.normals(seed, rng.Stream.FIT, 0, (self.n_users + self.n_items, d)) * (spread / math.sqrt(d))
            v[:, :d] = draws[: self.n_users]
            w[:, :d] = draws[self.n_users :]
        x[-1] = self._centre()
        return x

    def _centre(self) -> float:
        """Return the constant that predicts the ratings best: their weighted mean (mse) or median (mae)."""
        if self.form.loss == "mse":
            return float((self.weights * self.values).sum() / self.weights.sum())
        order = np.argsort(self.values)
        cumulative = np.cumsum(self.weights[order])
        return float(self.values[order][np.searchsorted(cumulative, 0.5 * cumulative[-1])])

    def preconditioner(self) -> Floats:
        """Return approximately half the diagonal of the Hessian, for :func:`recsim_mnar.kernels.lbfgs.minimise`.

        Half the curvature in a user's factor is the sum of the user's weights times the items' mean squared factor,
        plus the penalty; the same holds with users and items exchanged. The mean squared factor is approximated by
        sd / (2 sqrt(d)), sd the ratings' standard deviation, as if both sides had equally large factors that explain a
        quarter of the variance. Without this scaling L-BFGS is slow: users' and items' sums of weights differ a
        hundredfold.
        """
        out = np.zeros(self.size)
        v, w, a, b = self.parts(out)
        form = self.form
        by_user = np.bincount(self.users, self.weights, self.n_users)
        by_item = np.bincount(self.items, self.weights, self.n_items)
        mean_square = 0.5 * float(self.values.std()) / math.sqrt(max(form.rank, 1))
        v[:] = (by_user * mean_square + form.penalty)[:, None]
        w[:] = (by_item * mean_square + form.penalty)[:, None]
        offset_penalty = 0.0
        if form.biases == "regularised":
            offset_penalty = form.penalty
        a[:] = by_user + offset_penalty
        b[:] = by_item + offset_penalty
        out[-1] = by_user.sum()
        # No entry may be 0: users without ratings have no curvature.
        return np.maximum(out, 1e-6 * float(out.max()))

    def factors(self, x: Floats) -> Factors:
        """Return the model that a vector of parameters holds, without padding."""
        v, w, a, b = self.parts(x)
        d = self.form.rank
        return Factors(v[:, :d].copy(), w[:, :d].copy(), a.copy(), b.copy(), float(x[-1]))

    def vector(self, factors: Factors) -> Floats:
        """Return the vector of parameters of a model: the inverse of :meth:`factors`."""
        x = np.zeros(self.size)
        v, w, a, b = self.parts(x)
        d = self.form.rank
        v[:, :d] = factors.v
        w[:, :d] = factors.w
        a[:] = factors.a
        b[:] = factors.b
        x[-1] = factors.c
        return x


def _checked_weights(weights: Floats, n: int) -> Floats:
    """Return the weights of n ratings as an array; UserError if they are negative, not finite or all 0."""
    weights = np.asarray(weights, np.float64)
    if weights.shape != (n,):
        raise UserError(f"weights must have shape ({n},), got {weights.shape}")
    if not np.isfinite(weights).all():
        row = int(np.flatnonzero(~np.isfinite(weights))[0])
        raise UserError(f"rating {row}: weight {weights[row]} is not a finite number (a propensity of 0?)")
    if weights.min() < 0.0 or weights.max() == 0.0:
        row = int(np.argmin(weights))
        raise UserError(f"rating {row}: weight {weights[row]:g}; weights must not be negative, nor all of them 0")
    return weights


def factorise(
    ratings: Ratings,
    weights: Floats | None,
    form: FactorizationConfig,
    *,
    seed: int = 0,
    start: Factors | None = None,
    max_iterations: int = 500,
    value_tolerance: float = 1e-7,
    gradient_tolerance: float = 1e-7,
    warn: bool = True,
) -> Fit:
    """Fit a matrix factorisation to weighted ratings by L-BFGS.

    Args:
        ratings: observed ratings.
        weights: (n,) weights of the ratings, such as 1 / propensity; None for the unweighted mean.
        form: settings of the factorisation.
        seed: seed of the random start.
        start: model from which to start; None for random factors.
        max_iterations: largest number of L-BFGS iterations.
        value_tolerance: share of the objective's value; the fit ends when an iteration gains at most this.
        gradient_tolerance: share of the objective's first value; the fit ends when no entry of the gradient is larger.
        warn: whether to warn if the largest number of iterations is reached.

    Raises:
        UserError: there are no ratings, weights are negative, not finite or all 0, or the seed is invalid.

    Warns:
        NotConverged: the largest number of iterations was reached; the message has iterations and gradient.
    """
    seed = rng.check_seed(seed)
    objective = Objective(ratings, weights, form)
    if start is not None:
        x = objective.vector(start)
    else:
        x = objective.start(seed)
    minimum: Minimum = minimise(
        objective,
        x,
        preconditioner=objective.preconditioner(),
        max_iterations=max_iterations,
        value_tolerance=value_tolerance,
        gradient_tolerance=gradient_tolerance,
        warn=warn,
    )
    return Fit(objective.factors(minimum.x), minimum.value, minimum.gradient, minimum.iterations, minimum.converged)


def fold_in(
    factors: Factors, ratings: Ratings, weights: Floats, penalty: float, *, bias_penalty: float | None = None
) -> tuple[Floats, Floats]:
    """Estimate factors and offsets of new users from their ratings, by one ridge regression each.

    Args:
        factors: the fitted model, for the same items as ``ratings``.
        ratings: ratings of the n new users, numbered 0 .. n - 1.
        weights: (m,) weights of these ratings on the scale of the fit: 1 / (U I propensity), U the number of users in
            the fit.
        penalty: penalty of the fit.
        bias_penalty: penalty of the squared offset; None for ``penalty``.

    Returns:
        v: (n, d) user factors.
        a: (n,) user offsets.
    """
    from recsim_mnar.models import _factorization_kernel as factorization

    order = np.argsort(ratings.users, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(ratings.users, minlength=ratings.n_users))])
    d = factors.w.shape[1]
    v = np.zeros((ratings.n_users, d))
    a = np.zeros(ratings.n_users)
    # Copies are writable, as the arrays of a fit are: the kernel would be compiled again for read-only ones.
    items = ratings.items.copy()
    values = ratings.values.copy()
    if bias_penalty is None:
        bias_penalty = penalty
    work = np.empty((d + 3, d + 1))  # scratch for the normal equations of one user
    factorization.solve_rows(
        starts,
        items,
        values,
        np.ascontiguousarray(weights, np.float64),
        order,
        factors.c,
        factors.w,
        factors.b,
        penalty,
        bias_penalty,
        v,
        a,
        work,
    )
    return v, a
