"""Summary numbers of a sessions world that do not change under rotations of its factors, to compare worlds by."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.worlds.sessions.lanes import clicks_expected
from recsim_mnar.worlds.sessions.params import ONE
from recsim_mnar.worlds.sessions.world import SessionsWorld

Floats = NDArray[np.float64]


_CELLS = 2_000_000
"""Largest number of (point, item) pairs for which probabilities are computed."""
_POINTS = 1024
"""Largest number of points of the quadrature over users."""

OF_VIEWS = ("popularity_entropy", "popularity_gini", "personal_bits", "drift_per_event")
OF_CLICKS = ("click_rate", "click_spread_items", "click_spread_users")

SAYS = {
    "popularity_entropy": "entropy of the items' shares of all views, nats",
    "popularity_gini": "Gini coefficient of the items' shares of all views",
    "personal_bits": "how much a user's interests say of the next view: entropy of the shares less a user's own, nats",
    "drift_per_event": "standard deviation of the interests' drift an event, in units of their first spread",
    "views_per_user": "mean views of a user under the uniform policy",
    "recommendations_per_user": "mean recommendations of a user under the uniform policy",
    "click_rate": "click rate of the uniform policy",
    "click_spread_items": "standard deviation over items of their click rates",
    "click_spread_users": "standard deviation of click probabilities between users, within items",
    "p_organic_to_bandit": "probability of a recommendation after a view",
    "p_leave_organic": "probability of leaving after a view",
    "p_bandit_to_organic": "probability of a view after a recommendation without a click",
    "p_leave_bandit": "probability of leaving after a recommendation without a click",
}


def functionals(world: SessionsWorld) -> dict[str, float]:
    """Return the summary numbers of a world by the names in :data:`SAYS`.

    Means over users and views are computed at quasi-random points, the same for all worlds of this size. In a world of
    slates, click rates are those of an item that the user looks at, and a slate counts as one recommendation.
    """
    p = world.params
    catalogue = world.catalogue
    n = n_points(world.n_items)
    initial_sd = p.sigma_omega_initial
    position, normal = points(n, p.n_factors)
    initial_clicks = world.click_probabilities(initial_sd * normal)
    views, recommendations = world.expected_events(_mean_click_probability(world, initial_clicks))
    square_time = mean_square_time(p.clock, p.clock_mean, p.clock_sd)
    # Variance of the drift per event, in units of the initial variance; 1e-12 guards against a division by 0.
    drift_variance = (p.sigma_omega / max(initial_sd, 1e-12)) ** 2 * square_time
    omega = initial_sd * interests_at(normal, views_before(position, views), drift_variance)
    view_probabilities = softmax(omega, catalogue.item_factors, catalogue.item_offsets)
    shares = view_probabilities.mean(axis=0)
    clicks = world.click_probabilities(omega)
    return {
        "popularity_entropy": _entropy(shares),
        "popularity_gini": gini(shares),
        "personal_bits": _entropy(shares) - _entropy(view_probabilities) / n,
        "drift_per_event": float(np.sqrt(drift_variance)),
        "views_per_user": views,
        "recommendations_per_user": recommendations,
        "click_rate": float(clicks.mean()),
        "click_spread_items": float(clicks.mean(axis=0).std()),
        "click_spread_users": float(np.sqrt(clicks.var(axis=0).mean())),
        **{name: float(getattr(p, name)) for name in SAYS if name.startswith("p_")},
    }


def _mean_click_probability(world: SessionsWorld, clicks: Floats) -> float:
    """Return the probability that a decision of the uniform policy is clicked, at any position of a slate.

    In a slate every item is replaced by one of mean attraction, as if items were drawn with replacement.

    Args:
        world: sessions world.
        clicks: (n, P) click probabilities of every item at n points.
    """
    if world.slate_size == 1:
        return float(clicks.mean())
    positions = clicks_expected(world.params, np.repeat(clicks.mean(axis=1)[:, None], world.slate_size, axis=1))
    if world.params.clicks == ONE:
        any_click = positions.sum(axis=1)
    else:
        any_click = 1.0 - np.prod(1.0 - positions, axis=1)
    return float(any_click.mean())


def mean_square_time(clock: str, mean: float, sd: float) -> float:
    """Return the mean square of the time between events, by the clock's parameters."""
    if clock == "unit":
        return 1.0
    return mean**2 + sd**2


def gini(shares: Floats) -> float:
    """Return the Gini coefficient of shares (n,) that sum to 1."""
    n = len(shares)
    return float(2.0 * (np.arange(1, n + 1) * np.sort(shares)).sum() / n - (n + 1) / n)


def _entropy(shares: Floats) -> float:
    """Return the entropy in nats, summed over all distributions if there are several; 0 log 0 counts as 0."""
    return float(-(shares * np.log(np.maximum(shares, 1e-300))).sum())


def n_points(n_items: int) -> int:
    """Return the number of quadrature points for a catalogue: a power of two (as Sobol's points need), 256 to 1024."""
    return 1 << int(np.floor(np.log2(min(_POINTS, max(_CELLS // n_items, 256)))))


@functools.lru_cache(maxsize=8)
def points(n: int, dimension: int) -> tuple[Floats, Floats]:
    """Return n quasi-random (Sobol) points of a uniform and of independent standard normals.

    Returns:
        uniform: (n,).
        normal: (n, dimension), each column standardised to mean 0 and variance 1.
    """
    from scipy.special import ndtri
    from scipy.stats.qmc import Sobol

    # Sobol's first point is 0: the shift by half a step keeps all points within (0, 1).
    result = Sobol(dimension + 1, scramble=False).random(n) + 0.5 / n
    normal = ndtri(result[:, 1:])
    normal = (normal - normal.mean(axis=0)) / np.maximum(normal.std(axis=0), 1e-12)
    return result[:, 0], normal


def views_before(uniform: Floats, mean_views: float) -> Floats:
    """Return the number of earlier views (n,) of the same user, for a random view at quantiles ``uniform`` (n,).

    Numbers of views per user are geometric with mean ``mean_views``, and so are the numbers of earlier views.
    """
    return np.asarray(np.floor(np.log1p(-uniform) / np.log(max(1.0 - 1.0 / max(mean_views, 1.0 + 1e-9), 1e-12))))


def interests_at(normal: Floats, before: Floats | float, drift: float) -> Floats:
    """Return interests (n, K) after some views, in units of their first standard deviation.

    Args:
        normal: (n, K) standard normals.
        before: (n,) number of earlier views, or one number for all.
        drift: variance of the drift per view.
    """
    return np.asarray(normal * np.sqrt(1.0 + drift * np.atleast_1d(before))[:, None])


def softmax(omega: Floats, factors: Floats, offsets: Floats) -> Floats:
    """Return the probabilities (n, P) of viewing each item next, for interests ``omega`` (n, K)."""
    logits = np.einsum("nk,pk->np", omega, factors) + offsets
    np.exp(logits - logits.max(axis=1, keepdims=True), out=logits)
    return np.asarray(logits / logits.sum(axis=1, keepdims=True))
