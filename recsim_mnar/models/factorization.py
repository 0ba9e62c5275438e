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
    """Settings of a fit.

    Attributes:
        rank: d, number of factors; 0 leaves the offsets alone.
        penalty: lambda, added to a mean over the matrix.
        biases: ``regularised`` (penalised as the factors are), ``free`` (not penalised), ``none`` (c only).
        loss: ``mse`` or ``mae``.
        smoothing: the absolute error is sqrt(e^2 + smoothing^2) - smoothing, so that L-BFGS sees a gradient.
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
    """A fitted model: v (U, d), w (I, d), a (U,), b (I,), c."""

    v: Floats
    w: Floats
    a: Floats
    b: Floats
    c: float

    def matrix(self) -> Floats:
        """Predict all entries, (U, I)."""
        return self.v @ self.w.T + self.a[:, None] + self.b + self.c

    def at(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> Floats:
        """Predict pairs, (n,)."""
        from recsim_mnar.models import _factorization_kernel

        out = np.empty(len(users))
        _factorization_kernel.predict(users, items, self.v, self.w, self.a, self.b, self.c, out)
        return out


@dataclass(frozen=True)
class Fit:
    """A factorisation with facts about its fit.

    Attributes:
        factors: the model.
        value: of the objective.
        gradient: its largest absolute gradient entry.
        iterations: of the solver.
        converged: whether it stopped because there was nothing left to gain.
    """

    factors: Factors
    value: float
    gradient: float
    iterations: int
    converged: bool


class Objective:
    """The objective of one set of weighted ratings, as a function of one flat vector of parameters.

    The vector is [V | W | a | b | c] with rows of V and W padded by zeros to ``stride``, a multiple of 4.

    Args:
        ratings: observed entries.
        weights: (n,) e.g. 1 / P; None for U I / n each, the unweighted mean.
        form: what is fitted.
    """

    def __init__(self, ratings: Ratings, weights: Floats | None, form: FactorizationConfig) -> None:
        if len(ratings) == 0:
            raise UserError("there are no ratings to factorise")
        cells = ratings.n_users * ratings.n_items
        if weights is None:
            weights_of_ratings = np.full(len(ratings), 1.0 / ratings.density)
        else:
            weights_of_ratings = np.asarray(weights, np.float64)
        if weights_of_ratings.shape != (len(ratings),):
            raise UserError(f"weights must have shape ({len(ratings)},), got {weights_of_ratings.shape}")
        if not np.isfinite(weights_of_ratings).all():
            row = int(np.flatnonzero(~np.isfinite(weights_of_ratings))[0])
            raise UserError(
                f"rating {row}: weight {weights_of_ratings[row]} is not a finite number (a propensity of 0?)"
            )
        if weights_of_ratings.min() < 0.0 or weights_of_ratings.max() == 0.0:
            row = int(np.argmin(weights_of_ratings))
            raise UserError(
                f"rating {row}: weight {weights_of_ratings[row]:g}; weights must not be negative, nor all of them 0"
            )
        order = np.argsort(ratings.users, kind="stable")
        self.form = form
        self.n_users, self.n_items = ratings.shape
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(ratings.users, minlength=self.n_users))])
        self.users = ratings.users[order]
        self.items = ratings.items[order]
        self.values = ratings.values[order]
        self.weights = weights_of_ratings[order] / cells
        self.stride = -(-form.rank // 4) * 4
        self.size = (self.n_users + self.n_items) * (self.stride + 1) + 1
        self._edges = np.cumsum(
            [self.n_users * self.stride, self.n_items * self.stride, self.n_users, self.n_items]
        ).tolist()

    def parts(self, x: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return views of V (U, stride), W (I, stride), a and b in a vector."""
        e = self._edges
        return (
            x[: e[0]].reshape(self.n_users, self.stride),
            x[e[0] : e[1]].reshape(self.n_items, self.stride),
            x[e[1] : e[2]],
            x[e[2] : e[3]],
        )

    def __call__(self, x: Floats, gradient: Floats) -> float:
        """Return the value at ``x`` and fill ``gradient``."""
        from recsim_mnar.kernels import _vectors_kernel
        from recsim_mnar.models import _factorization_kernel as k

        form = self.form
        e = self._edges
        gradient[e[1] :] = 0.0
        if form.biases == "regularised":
            penalised = e[3]
        else:
            penalised = e[1]
        value = _vectors_kernel.penalise(x[:penalised], form.penalty, gradient[:penalised])
        v, w, a, b = self.parts(x)
        gv, gw, ga, gb = self.parts(gradient)
        total = gradient[e[3] :]
        # The kernel writes the data's part of gv; the penalty's is added behind it.
        value += k.loss_and_gradient(
            self.starts,
            self.items,
            self.values,
            self.weights,
            form.smoothing if form.loss == "mae" else -1.0,
            v,
            w,
            a,
            b,
            float(x[-1]),
            gv,
            gw,
            ga,
            gb,
            total,
        )
        gv += 2.0 * form.penalty * v
        if form.biases == "none":
            gradient[e[1] : e[3]] = 0.0
        return float(value)

    def start(self, seed: int, spread: float = 0.1) -> Floats:
        """Return normal factors (``Stream.FIT``), offsets 0, and c, the weighted mean (mse) or median (mae)."""
        x = np.zeros(self.size)
        v, w, _, _ = self.parts(x)
        d = self.form.rank
        if d:
            draws = rng.normals(seed, rng.Stream.FIT, 0, (self.n_users + self.n_items, d)) * (spread / math.sqrt(d))
            v[:, :d], w[:, :d] = draws[: self.n_users], draws[self.n_users :]
        x[-1] = self._centre()
        return x

    def _centre(self) -> float:
        if self.form.loss == "mse":
            return float((self.weights * self.values).sum() / self.weights.sum())
        order = np.argsort(self.values)
        cumulative = np.cumsum(self.weights[order])
        return float(self.values[order][np.searchsorted(cumulative, 0.5 * cumulative[-1])])

    def preconditioner(self) -> Floats:
        """About the Hessian's diagonal, for :func:`recsim_mnar.kernels.lbfgs.minimise`.

        A row's entries have curvature 2 (sum of its weights times the other side's mean squared factor + penalty). The
        latter is taken for one value throughout: half of sd / sqrt(d), sd the ratings' standard deviation, as where
        factors of both sides are alike and explain a quarter of the variance. Rows that are rated often and rarely
        differ a hundredfold in their sums of weights, which is what makes the unscaled problem slow.
        """
        out = np.zeros(self.size)
        v, w, a, b = self.parts(out)
        form = self.form
        by_user = np.bincount(self.users, self.weights, self.n_users)
        by_item = np.bincount(self.items, self.weights, self.n_items)
        square = 0.5 * float(self.values.std()) / math.sqrt(max(form.rank, 1))
        v[:], w[:] = (by_user * square + form.penalty)[:, None], (by_item * square + form.penalty)[:, None]
        if form.biases == "regularised":
            free = form.penalty
        else:
            free = 0.0
        a[:], b[:], out[-1] = by_user + free, by_item + free, by_user.sum()
        return np.maximum(out, 1e-6 * float(out.max()))

    def factors(self, x: Floats) -> Factors:
        """Return the model of a vector."""
        v, w, a, b = self.parts(x)
        d = self.form.rank
        return Factors(v[:, :d].copy(), w[:, :d].copy(), a.copy(), b.copy(), float(x[-1]))

    def vector(self, factors: Factors) -> Floats:
        """The inverse of :meth:`factors`."""
        x = np.zeros(self.size)
        v, w, a, b = self.parts(x)
        d = self.form.rank
        v[:, :d], w[:, :d], a[:], b[:], x[-1] = factors.v, factors.w, factors.a, factors.b, factors.c
        return x


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
    """Fit the model.

    Args:
        ratings: observed entries.
        weights: (n,) weights, e.g. 1 / P; None for the unweighted mean.
        form: what is fitted.
        seed: of the start.
        start: where to begin instead of random factors.
        max_iterations: after which L-BFGS gives up.
        value_tolerance: stop where an iteration gains at most this share of the value.
        gradient_tolerance: stop where no entry of the gradient is larger than this share of the first value.
        warn: say so where it gives up.

    Raises:
        UserError: no ratings, weights that are negative or not finite, or a seed that is none.

    Warns:
        NotConverged: naming iterations and gradient.
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
    """Factors (n, d) and offsets (n,) of users who were not fitted, from their ratings: one ridge regression each.

    Args:
        factors: the fitted model; items as in ``ratings``.
        ratings: of the new users, 0 .. n - 1.
        weights: (m,) of these ratings, on the scale of the fit (1 / (U I P) with U users fitted).
        penalty: of the fit.
        bias_penalty: of the offset; by default ``penalty``.
    """
    from recsim_mnar.models import _factorization_kernel as k

    order = np.argsort(ratings.users, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(ratings.users, minlength=ratings.n_users))])
    d = factors.w.shape[1]
    v = np.zeros((ratings.n_users, d))
    a = np.zeros(ratings.n_users)
    # Copies: the fit's are writable, and a kernel is compiled for each kind of array that it meets.
    items = ratings.items.copy()
    values = ratings.values.copy()
    k.solve_rows(
        starts,
        items,
        values,
        np.ascontiguousarray(weights, np.float64),
        order,
        factors.c,
        factors.w,
        factors.b,
        penalty,
        penalty if bias_penalty is None else bias_penalty,
        v,
        a,
        np.empty((d + 3, d + 1)),
    )
    return v, a
