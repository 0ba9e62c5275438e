"""Doubly robust joint learning: a prediction model and a model of its errors, each trained with the other.

Wang, Zhang, Sun & Qi 2019, "Doubly robust joint learning for recommendation on data missing not at random". The risk of
predictions yhat is estimated from errors e = (y - yhat)^2 of the observed cells and imputed errors ehat of all cells,

    1/(U I) sum over all of (ehat + O (e - ehat) / P)                          (equation 5)

which is right in expectation where the propensities or the imputed errors are. ehat = (g - yhat)^2 with g a
factorisation of its own, trained on 1/(U I) sum over observed of (e - ehat)^2 / P (equation 8), the prediction model on
the first line; they take turns (algorithm 1). The imputation's penalty is on its distance from the IPS-weighted
factorisation. For ehat has two faults as a function of g: it is the same on both sides of yhat, and where it can only
match the general size of the errors, g = yhat + their root mean square does so in every cell.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from bounds import doubly_robust

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.ratings import check_propensities, clip_propensities, loss
from recsim_mnar.kernels.lbfgs import NotConverged, minimise
from recsim_mnar.log.ratings import Floats, Ratings
from recsim_mnar.models.factorization import FactorizationConfig, Factors, factorise


@dataclass(frozen=True)
class JointFit:
    """What joint learning found.

    Attributes:
        prediction: (U, I) yhat.
        imputation: (U, I) g.
        losses: doubly robust loss of yhat after each round.
        converged: whether the last round changed no prediction by more than the tolerance.
    """

    prediction: Floats
    imputation: Floats
    losses: list[float]
    converged: bool


def risk(ratings: Ratings, propensities: Any, prediction: Floats, imputation: Floats) -> float:
    """The doubly robust estimate of the mean squared error of ``prediction``, errors imputed from ``imputation``."""
    delta = loss("mse", prediction)
    return doubly_robust(delta, ratings, propensities, (imputation - prediction) ** 2)


def pseudo_ratings(ratings: Ratings, propensities: Any, imputation: Floats) -> Floats:
    """G + O (y - g) / P, (U, I): up to a constant, :func:`risk` is the mean squared distance from these.

    For (g - f)^2 + O/P ((y - f)^2 - (g - f)^2) has curvature 1 in f whatever P is, and its minimum here.
    """
    p = check_propensities(ratings, propensities)
    out = np.array(imputation, np.float64)
    np.add.at(out, (ratings.users, ratings.items), (ratings.values - ratings.at(imputation, "the imputation")) / p)
    return out


def fit_prediction(
    targets: Floats, form: FactorizationConfig, start: Factors, *, max_sweeps: int = 50, tolerance: float = 1e-6
) -> Fit:
    """Minimise mean (f - targets)^2 + penalty: alternating least squares, one Gram matrix for all rows of a side.

    Args:
        targets: (U, I).
        form: of the model; squared loss, ``regularised`` or ``free`` offsets.
        start: where to begin.
        max_sweeps: at most.
        tolerance: stop where a sweep lowers the value by less than this, relative to it.
    """
    penalty = form.penalty * targets.size
    bias_penalty = penalty if form.biases == "regularised" else 0.0
    ridge = np.append(np.full(form.rank, penalty), bias_penalty)
    v, w, a, b, c = start.v, start.w, start.a, start.b, start.c
    value, converged = math.inf, False
    for _ in range(max_sweeps):
        v, a = _rows(targets - b - c, w, ridge)
        w, b = _rows((targets - a[:, None] - c).T, v, ridge)
        rest = targets - v @ w.T - a[:, None] - b
        c = float(rest.mean())
        now = float(((rest - c) ** 2).sum() + penalty * ((v * v).sum() + (w * w).sum()))
        now += bias_penalty * float((a * a).sum() + (b * b).sum())
        converged = value - now <= tolerance * now
        value = now
        if converged:
            break
    return Fit(Factors(v, w, a, b, c), converged)


@dataclass(frozen=True)
class Fit:
    """One model's factors and whether there was nothing left to gain."""

    factors: Factors
    converged: bool


def _rows(targets: Floats, other: Floats, ridge: Floats) -> tuple[Floats, Floats]:
    """Factors and offsets of all rows of (n, m) ``targets``, given the other side's (m, d) factors."""
    design = np.append(other, np.ones((len(other), 1)), axis=1)
    gram = design.T @ design + np.diag(ridge)
    solved = np.linalg.solve(gram, design.T @ targets.T).T
    return solved[:, :-1], solved[:, -1]


class ImputationObjective:
    """Imputation's loss, of one flat vector x = [V | W | a | b | c].

    ``1/(U I) sum over observed of ((y - yhat)^2 - (g - yhat)^2)^2 / P + anchor |x - x_0|^2``.

    Args:
        ratings: observed.
        propensities: P of each, (n,).
        prediction: (U, I) yhat, held.
        centre: of g, the IPS-weighted fit.
        anchor: the penalty.
    """

    def __init__(
        self, ratings: Ratings, propensities: Floats, prediction: Floats, centre: Factors, anchor: float
    ) -> None:
        self.ratings, self.anchor = ratings, anchor
        self.centre = self.vector(centre)
        cells = ratings.n_users * ratings.n_items
        self.weights = 1.0 / (propensities * cells)
        self.predicted = ratings.at(prediction, "the prediction")
        self.error = (ratings.values - self.predicted) ** 2
        d, (n_users, n_items) = centre.v.shape[1], ratings.shape
        self.cuts = np.cumsum([n_users * d, n_items * d, n_users, n_items])

    def factors(self, x: Floats) -> Factors:
        """The model of a vector."""
        v, w, a, b, c = np.split(x, self.cuts)
        return Factors(v.reshape(len(a), -1), w.reshape(len(b), -1), a, b, float(c[0]))

    @staticmethod
    def vector(factors: Factors) -> Floats:
        """The vector of a model."""
        return np.concatenate([factors.v.ravel(), factors.w.ravel(), factors.a, factors.b, [factors.c]])

    def __call__(self, x: Floats, gradient: Floats) -> float:
        """Value at ``x``; ``gradient`` is filled."""
        from scipy.sparse import csr_matrix

        r, m = self.ratings, self.factors(x)
        gap = m.at(r.users, r.items) - self.predicted
        short = gap * gap - self.error
        away = x - self.centre
        value = float(self.weights @ (short * short) + self.anchor * (away @ away))
        slope = 4.0 * self.weights * short * gap
        grid = csr_matrix((slope, (r.users, r.items)), shape=r.shape)
        gradient[:] = self.vector(
            Factors(
                grid @ m.w, grid.T @ m.v, np.asarray(grid.sum(axis=1)).ravel(), np.asarray(grid.sum(axis=0)).ravel(),
                float(slope.sum()),
            )
        )  # fmt: skip
        gradient += 2.0 * self.anchor * away
        return value


def learn(
    ratings: Ratings,
    propensities: Any,
    form: FactorizationConfig,
    imputation: FactorizationConfig | None = None,
    *,
    anchor: float = 10.0,
    rounds: int = 10,
    clip: float = 0.0,
    seed: int = 0,
    tolerance: float = 1e-3,
    warn: bool = True,
) -> JointFit:
    """MF-DR-JL: factorisations of ratings and of imputed ratings, trained in turns.

    Propensities are clipped, then scaled so that the weights 1/P sum to U I (as in SNIPS): otherwise the correction,
    which is the same for all cells in part, would be too small or too large as a whole, and grow from round to round.

    Args:
        ratings: observed.
        propensities: P of each; (U, I), (n,) or one number.
        form: of the prediction model; squared loss.
        imputation: form of g's start, the IPS-weighted factorisation; by default that of the prediction.
        anchor: penalty on the squared distance of g's factors and offsets from that start.
        rounds: of both fits.
        clip: propensities below are raised to it.
        seed: of the start.
        tolerance: stop where no prediction changed by more and both fits of the round converged.
        warn: warn where it did not stop so, and where one of the two first fits did not converge.

    Raises:
        UserError: a loss other than ``mse``, no offsets, a propensity outside (0, 1].

    Warns:
        NotConverged: predictions still moved, or a fit had not converged, after the last round.
    """
    imputation = imputation or form
    for which in (form, imputation):
        if which.loss != "mse" or which.biases == "none":
            raise UserError("joint learning is for loss='mse' with offsets: 'regularised' or 'free'")
    p = _scaled(ratings, propensities, clip)
    first: dict[str, Any] = {"max_iterations": 3000, "value_tolerance": 1e-5, "warn": warn}
    f = factorise(ratings, 1.0 / p, form, seed=seed, **first).factors
    g = factorise(ratings, 1.0 / p, imputation, seed=rng.derive_seed(seed, "imputation"), **first).factors
    centre, prediction, moved, converged = g, f.matrix(), math.inf, False
    losses: list[float] = []
    while len(losses) < rounds and not converged:
        objective = ImputationObjective(ratings, p, prediction, centre, anchor)
        found = minimise(objective, objective.vector(g), max_iterations=30, value_tolerance=1e-6, warn=False)
        g = objective.factors(found.x)
        fit = fit_prediction(pseudo_ratings(ratings, p, g.matrix()), form, f)
        f = fit.factors
        now = f.matrix()
        moved = float(np.abs(now - prediction).max())
        converged = moved <= tolerance and found.converged and fit.converged
        prediction = now
        losses.append(risk(ratings, p, prediction, g.matrix()))
    if warn and not converged:
        warnings.warn(
            f"joint learning did not converge in {rounds} rounds: predictions still moved by {moved:.3g} "
            f"(bound {tolerance:g}). Raise rounds or the penalty.",
            NotConverged,
            stacklevel=2,
        )
    return JointFit(prediction, g.matrix(), losses, converged)


def _scaled(ratings: Ratings, propensities: Any, clip: float) -> Floats:
    """Propensities raised to ``clip``, then scaled so that 1/P sums to U I; at most 1."""
    if len(ratings) == 0:
        raise UserError("there are no ratings to learn from")
    p = clip_propensities(check_propensities(ratings, propensities), clip)
    return np.minimum(p * float((1.0 / p).sum()) / (ratings.n_users * ratings.n_items), 1.0)


def correct(
    ratings: Ratings,
    propensities: Any,
    imputation: Floats,
    form: FactorizationConfig,
    *,
    clip: float = 0.0,
    seed: int = 0,
) -> Floats:
    """Imputed ratings of any model, corrected by a factorisation that minimises the doubly robust risk; (U, I).

    yhat = imputation + factorisation, which is fitted to O (y - imputation) / P over all cells: where the penalty is
    large the imputation stays as it is.

    Args:
        ratings: observed.
        propensities: P of each; (U, I), (n,) or one number.
        imputation: (U, I) ratings of a model.
        form: of the factorisation.
        clip: propensities below are raised to it.
        seed: of the start.

    Warns:
        NotConverged: the factorisation stopped at its limit of sweeps.
    """
    p = _scaled(ratings, propensities, clip)
    targets = pseudo_ratings(ratings, p, imputation) - imputation
    n_users, n_items = ratings.shape
    draws = rng.normals(seed, rng.Stream.FIT, 0, (n_users + n_items, max(form.rank, 1)))[:, : form.rank] * 0.1
    start = Factors(draws[:n_users], draws[n_users:], np.zeros(n_users), np.zeros(n_items), 0.0)
    fit = fit_prediction(targets, form, start, max_sweeps=1000)
    if not fit.converged:
        warnings.warn("the correction did not converge in 1000 sweeps. Raise the penalty.", NotConverged, stacklevel=2)
    return np.asarray(imputation + fit.factors.matrix())
