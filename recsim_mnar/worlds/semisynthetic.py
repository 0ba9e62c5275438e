"""Purchase worlds made from real data: smoothed counts of a purchase log, or ratings.

The published procedures (Sato et al. 2020, "Unbiased learning for the causal effect of recommendation", and its
successors) keep who likes what from the data and draw treatments and outcomes anew, so that the truth is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.worlds.purchases import PurchasesParams, PurchasesWorld, rank_weights

if TYPE_CHECKING:
    from recsim_mnar.ratings import Ratings

Floats = NDArray[np.float64]

CATEGORY_WEIGHT, PRODUCT_WEIGHT = 0.4, 0.9
"""Weight of an item's mean in the smoothing, as published for categories and for products."""

CAP = 1e-6
"""Propensities lie within [CAP, 1 - CAP]."""

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
            :class:`recsim_mnar.datasets.purchase_history.Counts`.
        weight: w.
        deployment: ``original`` or ``personalised``.
        exponent: beta of ``personalised``.
        n_recommended: of ``personalised``.
        n_periods: periods of the world; each is an independent draw.

    Raises:
        UserError: an unknown deployment, or an item without any period in which it was, or was not, recommended.
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


def ranked_propensities(preference: Any, n_recommended: int, *, law: str = "power", exponent: float = 1.0) -> Floats:
    """(U, I) propensities by each user's rank of preference, scaled to ``n_recommended`` a user and capped.

    Args:
        preference: (U, I); larger is recommended more.
        n_recommended: expected recommendations of a user.
        law: ``power`` rank^-exponent, or ``log`` 1 / log2(1 + rank).
        exponent: of the power law.
    """
    from recsim_mnar import _slates_kernel

    preference = np.asarray(preference, np.float64)
    n_items = preference.shape[1]
    params = PurchasesParams(
        n_items=n_items, slate_size=n_recommended, law=law, exponent=exponent, smallest_propensity=CAP,
        largest_propensity=1 - CAP,
    )  # fmt: skip
    order = np.argsort(-preference, axis=1, kind="stable")
    weights = np.empty_like(preference)
    np.put_along_axis(weights, order, rank_weights(n_items, params)[None, :], axis=1)
    out = np.empty_like(preference)
    _slates_kernel.scale_rows(weights, float(n_recommended), CAP, 1 - CAP, out)
    return out


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
    rank: int = 20,
    penalty: float = 5e-5,
    watch_rank: int = 20,
    watch_penalty: float = 3.0,
    seed: int = 0,
) -> RatedWorld:
    """A world from ratings: a recommendation lets people judge an item, without it they watch what they would anyway.

    P(Y^T) = sigma(predicted rating - offset); P(Y^C) = predicted probability of having rated the item; propensities are
    1 / log2(1 + rank) of the mean of the two, scaled to ``n_recommended`` a user.

    Args:
        ratings: observed.
        offset: 5 as published: an item that would be rated 5 is bought with probability 1/2.
        n_recommended: expected recommendations of a user.
        n_periods: of the world.
        rank: of the factorisation of ratings.
        penalty: of the same.
        watch_rank: of the logistic factorisation of what was rated.
        watch_penalty: of the same, on every parameter.
        seed: of both factorisations' starting points.
    """
    from recsim_mnar.factorization import Form, factorise

    fit = factorise(
        ratings, None, Form(rank=rank, penalty=penalty), seed=seed, solver="als", max_iterations=30,
        value_tolerance=1e-4, warn=False,
    )  # fmt: skip
    users, items = np.divmod(np.arange(ratings.n_users * ratings.n_items), ratings.n_items)
    predicted = np.clip(fit.factors.at(users, items).reshape(ratings.shape), 1.0, 5.0)
    watching = watch_probabilities(ratings, rank=watch_rank, penalty=watch_penalty, seed=seed)
    treated = 1.0 / (1.0 + np.exp(offset - predicted))
    propensities = ranked_propensities((treated + watching) / 2, n_recommended, law="log")
    world = PurchasesWorld.from_matrices(watching, treated, propensities, n_periods=n_periods)
    return RatedWorld(world, predicted, watching)


def watch_probabilities(
    ratings: Ratings, *, rank: int = 20, penalty: float = 3.0, seed: int = 0, max_iterations: int = 150
) -> Floats:
    """P(rated) of every cell, (U, I): logistic factorisation of the whole matrix of what was rated.

    sigma(p_u . q_i + b_u + b_i + c), by maximum likelihood over all cells with ``penalty / 2`` times the sum of squares
    of factors and offsets.
    """
    from recsim_mnar import rng
    from recsim_mnar.lbfgs import minimise

    observed = np.zeros(ratings.shape)
    observed[ratings.users, ratings.items] = 1.0
    n_users, n_items = ratings.shape
    sizes = (n_users * rank, n_items * rank, n_users, n_items, 1)
    edges = np.cumsum(sizes)[:-1]

    def parts(theta: Floats) -> tuple[Floats, ...]:
        p, q, b, d, c = np.split(theta, edges)
        return p.reshape(n_users, rank), q.reshape(n_items, rank), b, d, c

    def likelihood(theta: Floats, gradient: Floats) -> float:
        p, q, b, d, c = parts(theta)
        logits = p @ q.T + b[:, None] + d + c
        chance = 1.0 / (1.0 + np.exp(-logits))
        value = float(np.logaddexp(0.0, logits).sum() - logits[ratings.users, ratings.items].sum())
        residual = chance - observed
        gradient[:] = np.concatenate(
            [(residual @ q).ravel(), (residual.T @ p).ravel(), residual.sum(axis=1), residual.sum(axis=0), [0.0]]
        )
        gradient[:-1] += penalty * theta[:-1]
        gradient[-1] = residual.sum()
        return value + 0.5 * penalty * float(theta[:-1] @ theta[:-1])

    start = np.zeros(sum(sizes))
    start[: edges[1]] = 0.1 * rng.normals(seed, rng.Stream.FIT, 0, (1, int(edges[1])))[0]
    share = ratings.density
    start[-1] = np.log(share / (1.0 - share)) if 0 < share < 1 else 0.0
    theta = minimise(likelihood, start, gradient_tolerance=1.0, value_tolerance=1e-6, max_iterations=max_iterations).x
    p, q, b, d, c = parts(theta)
    return np.asarray(1.0 / (1.0 + np.exp(-(p @ q.T + b[:, None] + d + c))))


def describe(world: PurchasesWorld, seed: int, n_users: int, lengths: Sequence[int] = (10, 100)) -> dict[str, float]:
    """Sizes and truth of a world of given probabilities: means of Y, Z and tau, and CP@K of random and of the oracle.

    The means are expectations, not draws; the oracle ranks by E[tau].
    """
    users = np.arange(n_users)
    truth, e = world.outcomes_of(seed, users), world.house_propensities(seed, users)
    tau = truth.uplift
    best = -np.sort(-tau, axis=1)
    return {
        "users": n_users,
        "items": world.n_items,
        "mean Y": float((e * truth.treated + (1 - e) * truth.control).mean()),
        "mean Z": float(e.mean()),
        "mean tau": float(tau.mean()),
        "P(TU)": float((truth.treated * (1 - truth.control)).mean()),
        "P(TD)": float(((1 - truth.treated) * truth.control).mean()),
        "random CP@K": float(tau.mean()),
        **{f"oracle CP@{k}": float(best[:, :k].mean()) for k in lengths if k <= world.n_items},
    }
