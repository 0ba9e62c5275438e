"""Invariants of a sessions world under turns of its factors: numbers to compare worlds by."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.worlds.sessions.lanes import clicks_expected
from recsim_mnar.worlds.sessions.params import ONE
from recsim_mnar.worlds.sessions.world import SessionsWorld

Floats = NDArray[np.float64]


_CELLS, _POINTS = 2_000_000, 1024

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
    """Numbers of a world that no rotation of its factors changes, by :data:`SAYS`, over points that are shared.

    Of slates click rates are of an item that is looked at, and a slate is one recommendation.
    """
    p = world.params
    catalogue = world.catalogue
    n = n_points(world.n_items)
    first = p.sigma_omega_initial
    position, normal = points(n, p.n_factors)
    views, recommendations = world.expected_events(_answered(world, world.click_probabilities(first * normal)))
    square = mean_square_time(p.clock, p.clock_mean, p.clock_sd)
    relative = (p.sigma_omega / max(first, 1e-12)) ** 2 * square
    omega = first * interests_at(normal, views_before(position, views), relative)
    chosen = softmax(omega, catalogue.item_factors, catalogue.item_offsets)
    shares = chosen.mean(axis=0)
    clicks = world.click_probabilities(omega)
    return {
        "popularity_entropy": _entropy(shares),
        "popularity_gini": gini(shares),
        "personal_bits": _entropy(shares) - _entropy(chosen) / n,
        "drift_per_event": float(np.sqrt(relative)),
        "views_per_user": views,
        "recommendations_per_user": recommendations,
        "click_rate": float(clicks.mean()),
        "click_spread_items": float(clicks.mean(axis=0).std()),
        "click_spread_users": float(np.sqrt(clicks.var(axis=0).mean())),
        **{name: float(getattr(p, name)) for name in SAYS if name.startswith("p_")},
    }


def _answered(world: SessionsWorld, clicks: Floats) -> float:
    """Probability that a decision of the uniform policy is clicked; of slates at any place, items drawn anew there."""
    if world.slate_size == 1:
        return float(clicks.mean())
    places = clicks_expected(world.params, np.repeat(clicks.mean(axis=1)[:, None], world.slate_size, axis=1))
    one = world.params.clicks == ONE
    return float((places.sum(axis=1) if one else 1.0 - np.prod(1.0 - places, axis=1)).mean())


def mean_square_time(clock: str, mean: float, sd: float) -> float:
    """E[dt^2] between events."""
    if clock == "unit":
        return 1.0
    return mean**2 + sd**2


def gini(shares: Floats) -> float:
    """Gini coefficient of shares that sum to 1."""
    n = len(shares)
    return float(2.0 * (np.arange(1, n + 1) * np.sort(shares)).sum() / n - (n + 1) / n)


def _entropy(shares: Floats) -> float:
    return float(-(shares * np.log(np.maximum(shares, 1e-300))).sum())


def n_points(n_items: int) -> int:
    """Compute how many points a catalogue's size allows, a power of two."""
    return 1 << int(np.floor(np.log2(min(_POINTS, max(_CELLS // n_items, 256)))))


@functools.lru_cache(maxsize=8)
def points(n: int, dimension: int) -> tuple[Floats, Floats]:
    """Sobol's points: (n,) uniforms and (n, dimension) normals, each coordinate of mean 0 and variance 1."""
    from scipy.special import ndtri
    from scipy.stats.qmc import Sobol

    result = Sobol(dimension + 1, scramble=False).random(n) + 0.5 / n
    normal = ndtri(result[:, 1:])
    normal = (normal - normal.mean(axis=0)) / np.maximum(normal.std(axis=0), 1e-12)
    return result[:, 0], normal


def views_before(uniform: Floats, mean_views: float) -> Floats:
    """Count the views before one drawn from all views of users whose numbers of views are geometric."""
    return np.asarray(np.floor(np.log1p(-uniform) / np.log(max(1.0 - 1.0 / max(mean_views, 1.0 + 1e-9), 1e-12))))


def interests_at(normal: Floats, before: Floats | float, drift: float) -> Floats:
    """Interests of unit first variance after so many views, (n, K); ``drift`` is their variance a view."""
    return np.asarray(normal * np.sqrt(1.0 + drift * np.atleast_1d(before))[:, None])


def softmax(omega: Floats, factors: Floats, offsets: Floats) -> Floats:
    """Probabilities (n, P) of the next view."""
    logits = np.einsum("nk,pk->np", omega, factors) + offsets
    np.exp(logits - logits.max(axis=1, keepdims=True), out=logits)
    return np.asarray(logits / logits.sum(axis=1, keepdims=True))
