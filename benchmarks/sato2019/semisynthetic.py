"""Purchase worlds made from real data: smoothed counts of a purchase log, or ratings.

The published procedures (Sato et al. 2020, "Unbiased learning for the causal effect of recommendation", and its
successors) keep who likes what from the data and draw treatments and outcomes anew, so that the truth is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import _descent_kernel
import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld, rank_weights, scaled
from recsim_mnar.rng import Stream, derive_seed

if TYPE_CHECKING:
    from recsim_mnar.log.ratings import Ratings

Floats = NDArray[np.float64]

CATEGORY_WEIGHT, PRODUCT_WEIGHT = 0.4, 0.9
"""Weight of an item's mean in the smoothing, as published for categories and for products."""

CAP = 1e-6
"""Propensities are within [CAP, 1 - CAP]."""

DEPLOYMENTS = ("original", "personalised")


def smoothed_world(
    counts: Any,
    *,
    weight: float = CATEGORY_WEIGHT,
    deployment: str = "original",
    exponent: float = 2.0,
    n_recommended: int = 210,
    n_periods: int = 1,
) -> PurchasesWorld:
    """A world from a purchase log's counts, each user's share shrunk towards the item's mean with weight w.

    P(Y^T) = (TY + w mean TY) / (T + w mean T), P(Y^C) = (Y - TY + w mean) / (V - T + w mean), and for ``original`` the
    propensity is (T + w mean T) / (V + w mean V); for ``personalised`` it is proportional to rank^-exponent, where
    rank is that of (Y + w mean Y) / (V + w mean V) for the user, scaled to ``n_recommended`` a user where no propensity
    exceeds 1.

    Args:
        counts: with ``visits`` (U,), ``treatments``, ``purchases`` and ``treated_purchases`` (U, I), such as
            ``purchase_history.Counts``.
        weight: w.
        deployment: ``original`` or ``personalised``.
        exponent: beta of ``personalised``.
        n_recommended: of ``personalised``.
        n_periods: periods of the world; each is an independent draw.

    Raises:
        UserError: an unknown deployment, or an item without any period in which it was, or was not,
            recommended.
    """
    if deployment not in DEPLOYMENTS:
        raise UserError(f"deployment must be one of {', '.join(DEPLOYMENTS)}, got {deployment!r}")
    if not weight > 0:
        raise UserError(f"weight must be above 0, got {weight:g}")
    t, y, ty = (np.asarray(getattr(counts, n), np.float64) for n in ("treatments", "purchases", "treated_purchases"))
    visits = np.asarray(counts.visits, np.float64)[:, None]
    for name, total in (("with", t.sum(axis=0)), ("without", (visits - t).sum(axis=0))):
        if not np.all(total > 0):
            raise UserError(
                f"item {int(np.flatnonzero(~(total > 0))[0])} has no period {name} a recommendation: leave it out"
            )
    treated = _shrunk(ty, t, weight)
    control = _shrunk(y - ty, visits - t, weight)
    if deployment == "original":
        propensities = np.clip(_shrunk(t, np.broadcast_to(visits, t.shape), weight), CAP, 1 - CAP)
    else:
        preference = _shrunk(y, np.broadcast_to(visits, y.shape), weight)
        propensities = ranked_propensities(preference, n_recommended, exponent=exponent)
    return PurchasesWorld.from_matrices(
        np.clip(control, 0, 1), np.clip(treated, 0, 1), propensities, n_periods=n_periods
    )


def _shrunk(part: Floats, whole: Floats, weight: float) -> Floats:
    return (part + weight * part.mean(axis=0)) / (whole + weight * whole.mean(axis=0))


def ranked_propensities(
    preference: Any, n_recommended: int, *, rank_decay: str = "power", exponent: float = 1.0
) -> Floats:
    """(U, I) propensities by each user's rank of preference, scaled to ``n_recommended`` a user and capped.

    Args:
        preference: (U, I); larger is recommended more.
        n_recommended: expected recommendations of a user.
        rank_decay: ``power`` rank^-exponent, or ``log`` 1 / log2(1 + rank).
        exponent: of the power law.
    """
    preference = np.asarray(preference, np.float64)
    n_items = preference.shape[1]
    params = PurchasesParams(
        n_items=n_items, slate_size=n_recommended, rank_decay=rank_decay, exponent=exponent, smallest_propensity=CAP,
        largest_propensity=1 - CAP,
    )  # fmt: skip
    order = np.argsort(-preference, axis=1, kind="stable")
    weights = np.empty_like(preference)
    np.put_along_axis(weights, order, rank_weights(n_items, params)[None, :], axis=1)
    return scaled(weights, n_recommended, CAP, 1 - CAP)


@dataclass(frozen=True)
class RatedWorld:
    """A world made from ratings, and the predictions that it was made from.

    Attributes:
        world: with P(Y^T) = sigma(rating - offset) and P(Y^C) = the probability of watching.
        ratings: (U, I) predicted.
        watching: (U, I) predicted.
    """

    world: PurchasesWorld
    ratings: Floats
    watching: Floats


def rated_world(
    ratings: Ratings,
    *,
    offset: float = 5.0,
    n_recommended: int = 100,
    n_periods: int = 1,
    rank: int = 100,
    penalty: float = 0.01,
    rate: float = 1e-3,
    n_updates: int = 100_000_000,
    seed: int = 0,
) -> RatedWorld:
    """A world from ratings: a recommendation lets people judge an item, without it they watch what they would anyway.

    P(Y^T) = sigma(predicted rating - offset); P(Y^C) = predicted probability of having rated the item; propensities are
    1 / log2(1 + rank) of the mean of the two, scaled to ``n_recommended`` a user. Both predictions come from a matrix
    factorisation without offsets, fitted by stochastic gradient descent: ratings by squared loss on what was rated,
    watching by logistic loss on all cells. The descent is stopped long before it has converged, and its length and
    rate, whose defaults are the published ones, shape the world as much as the penalty does.

    Args:
        ratings: observed.
        offset: 5 as published: an item that would be rated 5 is bought with probability 1/2.
        n_recommended: expected recommendations of a user.
        n_periods: of the world.
        rank: of both factorisations.
        penalty: on the factors of a cell at each update.
        rate: of learning.
        n_updates: of each factorisation.
        seed: of starting points and draws.

    Raises:
        UserError: a descent that runs away, with the rate.
    """
    watched = np.zeros(ratings.shape)
    watched[ratings.users, ratings.items] = 1.0
    settings: dict[str, Any] = {"rank": rank, "penalty": penalty, "rate": rate, "n_updates": n_updates}
    rated = ratings.users * ratings.n_items + ratings.items
    predicted = _factorised(ratings.shape, rated, ratings.values, seed=seed, logistic=False, **settings)
    cells = np.arange(watched.size)
    logits = _factorised(
        ratings.shape, cells, watched.ravel(), seed=derive_seed(seed, "watch"), logistic=True, **settings
    )
    watching = 1.0 / (1.0 + np.exp(-logits))
    treated = 1.0 / (1.0 + np.exp(offset - predicted))
    propensities = ranked_propensities((treated + watching) / 2, n_recommended, rank_decay="log")
    world = PurchasesWorld.from_matrices(watching, treated, propensities, n_periods=n_periods)
    return RatedWorld(world, predicted, watching)


def _factorised(
    shape: tuple[int, int], cells: Any, values: Any, *, rank: int, penalty: float, rate: float, n_updates: int,
    seed: int, logistic: bool,
) -> Floats:  # fmt: skip
    """p_u . q_i of every cell, (U, I)."""
    if n_updates >= 2**32:
        raise UserError(f"n_updates must be below 2**32, got {n_updates}")
    start = rng.normals(seed, Stream.FIT, 0, (sum(shape), rank)) * 0.1 / np.sqrt(rank)
    p, q = np.ascontiguousarray(start[: shape[0]]), np.ascontiguousarray(start[shape[0] :])
    cells, values = np.ascontiguousarray(cells, np.int64), np.ascontiguousarray(values, np.float64)
    with np.errstate(over="ignore"):
        _descent_kernel.descend(
            np.uint64(derive_seed(seed, "descent")), np.uint64(Stream.FIT), 0, n_updates, cells, values, p, q, rate,
            penalty, logistic,
        )  # fmt: skip
    out = p @ q.T
    if not np.all(np.isfinite(out)):
        raise UserError(f"the descent ran away at a rate of {rate:g}: lower it")
    return out
