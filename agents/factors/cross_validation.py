"""Choosing a factorisation by the IPS score of held-out ratings (Schnabel et al. 2016, section 6.1)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.ratings import check_propensities
from recsim_mnar.models.factorization import (
    FactorizationConfig,
    Factors,
    NotConverged,
    Ratings,
    factorise,
    split_folds,
)

Floats = NDArray[np.float64]

SCORES = ("loss", "dcg")
_CHUNK_CELLS = 4_000_000


@dataclass(frozen=True)
class CrossValidation:
    """Which form serves held-out ratings best.

    Attributes:
        best: of ``forms``.
        forms: tried.
        scores: (forms,) mean IPS score over folds: the loss, to be small, or DCG, to be large.
        by_fold: (forms, folds).
        not_converged: fits that stopped at the limit of iterations.
    """

    best: FactorizationConfig
    forms: tuple[FactorizationConfig, ...]
    scores: Floats
    by_fold: Floats
    not_converged: int


def cross_validate(
    ratings: Ratings,
    propensities: Any,
    forms: Sequence[FactorizationConfig],
    *,
    score: str = "loss",
    n_folds: int = 4,
    seed: int = 0,
    solver: str = "lbfgs",
    max_iterations: int = 3000,
    value_tolerance: float = 1e-5,
) -> CrossValidation:
    """The IPS score of each form on held-out ratings (section 6.1).

    Of n_folds folds one is held out in turn; that a rating is both revealed and in the training folds has probability
    P (k - 1)/k, that it is held out P / k: so the propensities are scaled.

    The score ``loss`` is the form's own loss, as in the paper: right for predicted ratings. ``dcg`` is what a form that
    acts is for: DCG (section 3) of each user's items that are not in the training folds, ranked by predicted rating.
    The two choose differently: under severe selection the loss is least for offsets alone, which rank the items alike
    for everyone.

    Args:
        ratings: observed.
        propensities: P of each; (U, I), (n,), or one number.
        forms: to choose from.
        score: ``loss`` or ``dcg``.
        n_folds: k.
        seed: of folds and starts.
        solver: see :func:`recsim_mnar.models.factorization.factorise`.
        max_iterations: of a fit.
        value_tolerance: of a fit.

    Raises:
        UserError: a propensity outside (0, 1], a fold without ratings, no form, an unknown score.
    """
    if score not in SCORES:
        raise UserError(f"score must be one of {', '.join(SCORES)}, got {score!r}")
    if not forms:
        raise UserError("cross-validation needs at least one form to choose from")
    p = check_propensities(ratings, propensities)
    fold = split_folds(len(ratings), n_folds, seed)
    scores = np.empty((len(forms), n_folds))
    failed = 0
    for f in range(n_folds):
        inside = fold != f
        train, test = ratings.select(inside), ratings.select(~inside)
        weights = 1.0 / (p[inside] * ((n_folds - 1) / n_folds))
        for j, form in enumerate(forms):
            fit = factorise(
                train, weights, form, seed=seed, solver=solver, max_iterations=max_iterations,
                value_tolerance=value_tolerance, warn=False,
            )  # fmt: skip
            failed += not fit.converged
            if score == "loss":
                scores[j, f] = held_out_loss(fit.factors, form, test, p[~inside] / n_folds)
            else:
                scores[j, f] = held_out_dcg(fit.factors, train, test, p[~inside], n_folds)
    mean = scores.mean(axis=1)
    if failed:
        warnings.warn(
            f"{failed} of {len(forms) * n_folds} cross-validation fits stopped at {max_iterations} iterations",
            NotConverged,
            stacklevel=2,
        )
    best = forms[int(mean.argmin() if score == "loss" else mean.argmax())]
    return CrossValidation(best, tuple(forms), mean, scores, failed)


def held_out_loss(factors: Factors, form: FactorizationConfig, test: Ratings, p: Floats) -> float:
    """IPS estimate of the mean loss over all cells."""
    e = factors.at(test.users, test.items) - test.values
    delta = e * e if form.loss == "mse" else np.abs(e)
    return float((delta / p).sum() / (test.n_users * test.n_items))


def held_out_dcg(factors: Factors, train: Ratings, test: Ratings, p: Floats, n_folds: int) -> float:
    """IPS estimate of DCG a user, over the items that are not in the training folds.

    A cell outside these folds is held out with probability (P / k) / (1 - P (k - 1) / k).
    """
    held = (p / n_folds) / (1.0 - p * ((n_folds - 1) / n_folds))
    discount = 1.0 / np.log2(1.0 + ranks_outside(factors, train, test))
    return float((discount * test.values / held).sum() / test.n_users)


def ranks_outside(factors: Factors, train: Ratings, test: Ratings) -> Floats:
    """Rank by prediction of each test cell among its user's items outside ``train``; tied cells share theirs."""
    from scipy import sparse

    known = sparse.csr_array((np.ones(len(train), np.bool_), (train.users, train.items)), shape=train.shape)
    ranks = np.empty(len(test))
    size = max(1, _CHUNK_CELLS // train.n_items)
    for first in range(0, len(test), size):
        users, items = test.users[first : first + size], test.items[first : first + size]
        scores = factors.v[users] @ factors.w.T + factors.b
        own = scores[np.arange(len(users)), items]
        scores[known[users].toarray()] = -np.inf
        better = (scores > own[:, None]).sum(axis=1)
        tied = (scores == own[:, None]).sum(axis=1)
        ranks[first : first + size] = 1.0 + better + 0.5 * (tied - 1)
    return ranks
