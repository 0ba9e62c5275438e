"""The ratings world fitted to revealed ratings: by moments, for what is not revealed has no likelihood.

A rating r is revealed in proportion to alpha^max(0, 4 - r), so the marginals of all ratings are those of the revealed
ones divided by that; alpha shows in that items whose revealed ratings are high are revealed more often. That slope and
the spreads between and within items are matched by simulation with common random numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.fitting.calibration.fitted import FittedWorld
from recsim_mnar.fitting.calibration.members import interval, weights_of_users
from recsim_mnar.log.columns import Floats
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.log.table import Log
from recsim_mnar.progress import counting
from recsim_mnar.runs.stages import Form, stage
from recsim_mnar.simulation.named import items_told
from recsim_mnar.worlds.ratings.observation import STARS, observe, relative_propensity
from recsim_mnar.worlds.ratings.world import RatingsParams, RatingsWorld

LEAST_RATINGS, LEAST_USERS = 100, 20
_SIMULATED_USERS, _MOST_PAIRED, _MOST_ITEMS = 600, 1500, 400
_START = np.array([0.5, 0.7, np.log(0.6)])
_LOW, _HIGH = np.array([0.03, 0.05, np.log(0.05)]), np.array([3.0, 3.0, 0.0])
_STEPS, _SIZE = np.array([0.1, 0.1, 0.2]), np.array([0.03, 0.01, 0.02])
_MATCHED = Form[tuple[Floats, Floats]](
    lambda matched: {"point": matched[0], "slope": matched[1]}, lambda found: (found["point"], found["slope"])
)
_WHY = {
    "alpha": "how much more often high ratings are revealed shows only through the model, from which the ensemble's "
    "range comes; without it anything from 0 to 1 could be. Ratings of random items would identify it",
    "n_factors": "the rank of tastes is not told from so few ratings a user: the world's default is kept",
    **dict.fromkeys(("n_decisions", "repeat_pays"), "revealed ratings hold no recommendations"),
}


def ratings_of(log: Log, n_items: int | None) -> Ratings:
    """The revealed ratings of a log, its organic rows with a reward; UserError where there are none."""
    rated = ~log.is_bandit & np.isfinite(log["reward"])
    if not rated.any():
        raise UserError("the log has no revealed ratings (organic rows with a reward): the ratings world needs them")
    users, user = np.unique(log["user"][rated], return_inverse=True)
    item = log["item"][rated].astype(np.int64)
    n_items = n_items or items_told(log.provenance, int(item.max()) + 1)
    return Ratings(user, item, log["reward"][rated], len(users), n_items)


def fit_ratings(
    ratings: Ratings, *, n_members: int, seed: int, assume: Mapping[str, Any], report: Callable[[str], None]
) -> FittedWorld:
    """Fit the ratings world; UserError where ratings or users are too few, or ratings outside 1..5."""
    ratings.check_scale(STARS)
    n_users, n_items = len(np.unique(ratings.users)), ratings.n_items
    for found, least, what in ((len(ratings), LEAST_RATINGS, "ratings"), (n_users, LEAST_USERS, "users")):
        if found < least:
            raise UserError(f"there are {found} {what}, a world is fitted to at least {least}: bring more")
    report("match the moments of revealed ratings")
    density, even = min(len(ratings) / (n_users * n_items), 1.0), np.ones(len(ratings))
    seen, shares = _statistics(ratings, even), _shares(ratings.values, even)
    size = min(n_items, _MOST_ITEMS)
    point, slope = stage("matched", lambda: _matched(seen, shares, density, size), _MATCHED)
    best = _params(point, shares, density, n_items, assume)
    members = []
    for i in counting(range(n_members), "worlds"):
        weights = weights_of_users(seed, i, ratings.n_users)[ratings.users]
        moved = point + np.linalg.lstsq(slope, _statistics(ratings, weights) - seen, rcond=1e-2)[0]
        moved, more = np.clip(moved, _LOW, _HIGH), {"catalogue_seed": i + 1, **assume}
        members.append(_params(moved, _shares(ratings.values, weights), density, n_items, more))
    facts = {"ratings": len(ratings), "users": n_users, "items": n_items, "mean": float(ratings.values.mean())}
    method = ["simulated moments; ensemble: Bayesian bootstrap by user (Rubin 1981), another catalogue of items each"]
    return FittedWorld("ratings", best, members, *_told(best, members), facts, method)


def _shares(values: Floats, weights: Floats) -> Floats:
    counts = np.array([weights[values == star].sum() + 0.5 for star in STARS])
    return np.asarray(counts / counts.sum(), np.float64)


def _statistics(ratings: Ratings, w: Floats) -> Floats:
    """(3,): variance of items' means, net of their errors; of tastes; covariance of log reveals with items' means."""
    items, values, n_items = ratings.items, ratings.values, ratings.n_items
    count = np.bincount(items, w, n_items)
    mean, doubled = (np.bincount(items, each, n_items) / np.maximum(count, 1e-9) for each in (w * values, w**2))
    left, grand = values - mean[items], float((w * values).sum() / w.sum())
    enough = np.bincount(items, minlength=n_items) > 1
    inner = float((w * left**2)[enough[items]].sum() / max(float((count - doubled)[enough].sum()), 1e-9))
    noise = inner * doubled / np.maximum(count, 1e-9)
    between = float((count * ((mean - grand) ** 2 - noise))[enough].sum() / count.sum())
    reveals = np.log(np.maximum(count, 0.5))
    slope = float((count * (mean - grand) * (reveals - (count * reveals).sum() / count.sum())).sum() / count.sum())
    return np.array([between, _tastes(ratings, left, w), slope])


def _tastes(ratings: Ratings, left: Floats, w: Floats) -> float:
    """Mean of e_ui e_vi e_uj e_vj over pairs of users and of items that both rated, e apart from the items' means."""
    some = ratings.users < _MOST_PAIRED
    users, items = ratings.users[some], ratings.items[some]
    table, of_user = np.zeros((2, int(users.max()) + 1, ratings.n_items), np.float32), np.zeros(int(users.max()) + 1)
    table[0, users, items], table[1, users, items], of_user[users] = left[some], 1.0, w[some]
    products, both, squares = (np.einsum("ui,vi->uv", each, each) for each in (*table, table[0] ** 2))
    pairs = np.outer(of_user, of_user)
    np.fill_diagonal(pairs, 0.0)
    return float((pairs * (products**2 - squares)).sum() / max(float((pairs * (both**2 - both)).sum()), 1.0))


def _params(point: Floats, shares: Floats, density: float, n_items: int, assume: Mapping[str, Any]) -> RatingsParams:
    alpha = float(assume.get("alpha", np.exp(point[2])))
    revealed = relative_propensity(np.array(STARS), alpha)
    marginals = shares / revealed / (shares / revealed).sum()
    rounded = [round(float(share), 6) for share in marginals[:-1]]
    values = {
        "n_items": n_items,
        "sigma_item": float(point[0]),
        "sigma_noise": float(point[1]),
        "marginals": ",".join(f"{share:.6f}" for share in (*rounded, max(1.0 - sum(rounded), 0.0))),
        "alpha": alpha,
        "density": min(density, 0.999 * float((revealed * marginals).sum())),
    }
    return RatingsParams.from_dict({**values, **assume})


def _matched(seen: Floats, shares: Floats, density: float, n_items: int) -> tuple[Floats, Floats]:
    """The point (sigma_item, sigma_noise, log alpha) whose simulated statistics are those seen, and their slopes."""
    from scipy.optimize import least_squares

    def gap(point: Floats) -> Floats:
        params, users, found = _params(point, shares, density, n_items, {}), np.arange(_SIMULATED_USERS), np.zeros(3)
        for s in (5, 6):
            own = RatingsWorld(dataclasses.replace(params, catalogue_seed=s))
            full = own.ratings_of(s, users)
            u, i = np.nonzero(observe(own.propensities_of(users, full), s))
            found += _statistics(Ratings(u, i, full[u, i], len(users), n_items), np.ones(len(u))) / 2
        return np.asarray((found - seen) / _SIZE)

    def slope(point: Floats) -> Floats:
        here = gap(point)
        steps = np.diag(np.where(point + _STEPS > _HIGH, -_STEPS, _STEPS))  # no world lies beyond
        return np.stack([(gap(point + step) - here) / step.sum() for step in steps], axis=1)

    found = least_squares(gap, _START, slope, bounds=(_LOW, _HIGH), x_scale=_STEPS, xtol=1e-2, ftol=1e-3, max_nfev=8)
    return np.asarray(found.x), found.jac * _SIZE[:, None]


def _told(best: RatingsParams, members: list[RatingsParams]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What revealed ratings say, and what they alone do not."""

    def mean(p: RatingsParams) -> float:
        return float(np.average(STARS, weights=np.array(p.shares) * relative_propensity(np.array(STARS), p.alpha)))

    told: dict[str, tuple[str, Callable[[RatingsParams], float]]] = {
        "density": ("share of all ratings that is revealed", lambda p: p.density),
        "revealed_mean": ("mean of the ratings that are revealed", mean),
        "sigma_item": ("spread of items' offsets, a user's taste having 1, given the model", lambda p: p.sigma_item),
    }
    known = {name: {**interval(of(best), [of(p) for p in members]), "why": why} for name, (why, of) in told.items()}
    unknown: dict[str, Any] = {name: {"used": getattr(best, name), "why": why} for name, why in _WHY.items()}
    alphas = [p.alpha for p in members] or [best.alpha]
    return known, {**unknown, "alpha": {**unknown["alpha"], "low": min(alphas), "high": max(alphas)}}
