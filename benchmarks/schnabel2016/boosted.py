"""Observation propensities by gradient boosting on features (Schnabel et al. 2016 name it as future work).

McCaffrey, Ridgeway & Morral 2004, "Propensity score estimation with boosted regression". Needs scikit-learn, an
extra of that name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from balance import features_with_constant

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.log.ratings import Floats, Ratings

FLOOR = 1e-4
"""Smallest propensity: isotonic calibration may say 0 of cells of which none was seen."""


@dataclass(frozen=True)
class BoostedPropensities:
    """P(O = 1 | features), each cell predicted by a model that has not seen it.

    Attributes:
        matrix: (U, I) calibrated.
        log_likelihood: mean over cells, before calibration: of cells that the model has not seen.
    """

    matrix: Floats
    log_likelihood: float


def boosted(
    ratings: Ratings, user_features: Any = None, item_features: Any = None, *, n_folds: int = 4, seed: int = 0,
    rounds: int = 200, rate: float = 0.05, leaves: int = 15,
) -> BoostedPropensities:  # fmt: skip
    """Boosted trees on the features of user and item and on how much each has revealed, cross-fitted and calibrated.

    In place of offsets a cell's row has the shares of the user's and the item's cells that are revealed, counted
    without the cell's own fold: without the cell alone, a share would reveal the cell. Each fold of cells is
    predicted by trees grown on the others; then isotonic regression makes the predictions the shares that are observed.

    Args:
        ratings: whose cells count as observed.
        user_features: (U, p).
        item_features: (I, q).
        n_folds: of cells, at least 3.
        seed: of the folds and of the trees.
        rounds: trees.
        rate: by which each is shrunk.
        leaves: of each tree, at most.

    Raises:
        UserError: no ratings, features of the wrong shape or not finite, fewer than three folds, scikit-learn missing.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.isotonic import IsotonicRegression
    except ImportError:
        raise UserError("boosted propensities need scikit-learn: pip install 'recsim-mnar[scikit-learn]'") from None
    if len(ratings) == 0:
        raise UserError("there are no observed ratings to fit propensities on")
    if isinstance(n_folds, bool) or not isinstance(n_folds, (int, np.integer)) or n_folds < 3:
        raise UserError(f"n_folds must be a whole number of at least 3, got {n_folds!r}")
    x = features_with_constant(user_features, ratings.n_users, "user")[:, 1:]
    z = features_with_constant(item_features, ratings.n_items, "item")[:, 1:]
    observed = np.zeros(ratings.shape)
    observed[ratings.users, ratings.items] = 1.0
    cells = observed.size
    order = np.argsort(rng.uniforms(seed, rng.Stream.PROTOCOL, np.arange(cells), 3), kind="stable")
    fold = np.empty(cells, np.int64)
    fold[order] = np.arange(cells) % n_folds
    user, item = np.divmod(np.arange(cells), ratings.n_items)
    flat, guess = observed.ravel(), np.empty(cells)
    for f in range(n_folds):
        kept = fold != f
        shares = np.empty((cells, 2))
        for g in range(n_folds):
            counted = (kept & (fold != g)).reshape(ratings.shape)
            shares[fold == g] = _shares(observed, counted)[fold == g]
        rows = np.concatenate([x[user], z[item], shares], axis=1)
        trees = HistGradientBoostingClassifier(
            max_iter=rounds, learning_rate=rate, max_leaf_nodes=leaves, early_stopping=False, random_state=seed % 2**32
        )
        trees.fit(rows[kept], flat[kept])
        guess[~kept] = trees.predict_proba(rows[~kept])[:, 1]
    inside = np.clip(guess, 1e-12, 1 - 1e-12)
    likelihood = float((flat * np.log(inside) + (1 - flat) * np.log(1 - inside)).mean())
    probabilities = IsotonicRegression(out_of_bounds="clip").fit(guess, flat).predict(guess)
    return BoostedPropensities(np.clip(probabilities, FLOOR, 1.0).reshape(ratings.shape), likelihood)


def _shares(observed: Floats, kept: Any) -> Floats:
    """(cells, 2) share of the kept cells of each cell's user, and of its item, that are revealed, drawn to the mean."""
    seen = observed * kept
    mean = seen.sum() / kept.sum()
    out = []
    for axis in (1, 0):
        share = (seen.sum(axis=axis, keepdims=True) + 5.0 * mean) / (kept.sum(axis=axis, keepdims=True) + 5.0)
        out.append(np.broadcast_to(share, observed.shape).ravel())
    return np.stack(out, axis=1)
