"""What of a sessions world does not depend on how its factors are turned: numbers to compare worlds by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.fitting.calibration.quadrature import interests_at_views, n_points
from recsim_mnar.worlds.sessions.world import SessionsWorld

Floats = NDArray[np.float64]

_DIGITS = 6

OF_VIEWS = ("popularity_entropy", "popularity_gini", "personal_bits", "drift_per_event")
OF_CLICKS = ("click_rate", "click_spread_items", "click_spread_users", "click_view_agreement")
OF_SESSIONS = ("views_per_user", "recommendations_per_user")

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
    "click_view_agreement": "correlation over users of what they view and what they click, items weighted by views",
    "p_organic_to_bandit": "probability of a recommendation after a view",
    "p_leave_organic": "probability of leaving after a view",
    "p_bandit_to_organic": "probability of a view after a recommendation without a click",
    "p_leave_bandit": "probability of leaving after a recommendation without a click",
}
"""Each in a sentence."""


def functionals(world: SessionsWorld) -> dict[str, float]:
    """Numbers of a sessions world that no rotation of its factors changes, by :data:`SAYS`.

    Integrals over interests are means over the same points in every world.
    """
    p, catalogue = world.params, world.catalogue
    n, first = n_points(world.n_items), p.sigma_omega_initial
    at_first = first * interests_at_views(n, p.n_factors, 1.0, 0.0)
    views, recommendations = world.expected_events(float(world.click_probabilities(at_first).mean()))
    drift = p.sigma_omega**2 * mean_square_time(p.clock, p.clock_mean, p.clock_sd)
    relative = drift / max(first, 1e-12) ** 2
    omega = first * interests_at_views(n, p.n_factors, views, relative)
    chosen = world.view_probabilities(omega)
    shares = chosen.mean(axis=0)
    clicks = world.click_probabilities(omega)
    by_views = catalogue.item_factors - shares @ catalogue.item_factors
    by_clicks = catalogue.click_factors - shares @ catalogue.click_factors
    return {
        "popularity_entropy": _entropy(shares),
        "popularity_gini": gini(shares),
        "personal_bits": _entropy(shares) - float(np.mean([_entropy(row) for row in chosen])),
        "drift_per_event": float(np.sqrt(relative)),
        "views_per_user": views,
        "recommendations_per_user": recommendations,
        "click_rate": float(clicks.mean()),
        "click_spread_items": float(clicks.mean(axis=0).std()),
        "click_spread_users": float(np.sqrt(clicks.var(axis=0).mean())),
        "click_view_agreement": _agreement(by_views, by_clicks, shares),
        **{name: float(getattr(p, name)) for name in SAYS if name.startswith("p_")},
    }


def mean_square_time(clock: str, mean: float, sd: float) -> float:
    """E[dt^2] between events."""
    return 1.0 if clock == "unit" else mean**2 + sd**2


def gini(shares: Floats) -> float:
    """Gini coefficient of shares that sum to 1."""
    ranked = np.sort(shares)
    n = len(ranked)
    return float(2.0 * (np.arange(1, n + 1) * ranked).sum() / (n * ranked.sum()) - (n + 1) / n)


def _entropy(shares: Floats) -> float:
    return float(-(shares * np.log(np.maximum(shares, 1e-300))).sum())


def _agreement(first: Floats, second: Floats, weights: Floats) -> float:
    norm = np.sqrt(_inner(first, first, weights) * _inner(second, second, weights))
    return round(_inner(first, second, weights) / norm, _DIGITS) if norm > 1e-12 else 0.0


def _inner(first: Floats, second: Floats, weights: Floats) -> float:
    return float((weights[:, None] * first * second).sum())
