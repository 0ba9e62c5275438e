"""The ratings world fitted to revealed ratings: by moments, for what is not revealed has no likelihood.

Of the full ratings nothing is seen but what was revealed. In the world's model a rating r is revealed in proportion to
alpha^max(0, 4 - r), so the marginals of all ratings are those of the revealed ones divided by that, whatever alpha; and
alpha shows in that items whose revealed ratings are high are revealed more often. That slope, the spread between items
and the spread within them are matched by simulation with common random numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.fitting.calibration.fitted import FittedWorld
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.log.table import Log
from recsim_mnar.progress import counting
from recsim_mnar.resuming import Form, stage
from recsim_mnar.rng import Stream, derive_seed
from recsim_mnar.worlds.ratings.observation import STARS, observe, relative_propensity
from recsim_mnar.worlds.ratings.params import RatingsParams
from recsim_mnar.worlds.ratings.world import RatingsWorld

Floats = NDArray[np.float64]

LEAST_RATINGS, LEAST_USERS = 100, 20
_SIMULATED_USERS = 600
_MOST_PAIRED = 1500
_MOST_ITEMS = 400
_ROUNDS = 8
_LOW = np.array([0.03, 0.05, np.log(0.05)])
_HIGH = np.array([3.0, 3.0, 0.0])
_STEPS = np.array([0.1, 0.1, 0.2])
_SEED = 5
_MATCHED = Form[tuple[Floats, Floats]](
    lambda matched: {"point": matched[0], "slope": matched[1]}, lambda found: (found["point"], found["slope"])
)


def ratings_of(log: Log, n_items: int | None) -> Ratings:
    """The revealed ratings of a log: its organic rows with a reward.

    Raises:
        UserError: there are none.
    """
    rated = ~log.is_bandit & np.isfinite(log["reward"])
    if not rated.any():
        raise UserError("the log has no revealed ratings (organic rows with a reward): the ratings world needs them")
    users, user = np.unique(log["user"][rated], return_inverse=True)
    item = log["item"][rated].astype(np.int64)
    known = log.provenance.get("world", {}).get("params", {}).get("n_items")
    many = n_items or known or int(item.max()) + 1
    return Ratings(user, item, log["reward"][rated], len(users), int(many))


def fit_ratings(
    ratings: Ratings, *, n_members: int, seed: int, assume: Mapping[str, Any], report: Callable[[str], None]
) -> FittedWorld:
    """Fit the ratings world; see :func:`recsim_mnar.fitting.calibration.calibrate_world`.

    Raises:
        UserError: too few ratings or users, or ratings outside 1..5.
    """
    ratings.check_scale(STARS)
    if len(ratings) < LEAST_RATINGS:
        raise UserError(f"there are {len(ratings)} ratings, a world is fitted to at least {LEAST_RATINGS}")
    n_users = len(np.unique(ratings.users))
    if n_users < LEAST_USERS:
        raise UserError(f"there are {n_users} users, a world is fitted to at least {LEAST_USERS}")
    report("match the moments of revealed ratings")
    density = min(len(ratings) / (n_users * ratings.n_items), 1.0)
    seen = _statistics(ratings.users, ratings.items, ratings.values, ratings.n_items)
    shares = _shares(ratings.values, np.ones(len(ratings)))
    size = min(ratings.n_items, _MOST_ITEMS)
    point, slope = stage("matched", lambda: _matched(seen, shares, density, size), _MATCHED)
    best = _params(point, shares, density, ratings.n_items, assume)
    if n_members:
        report(f"draw an ensemble of {n_members} worlds")
    members, points = [], []
    for i in counting(range(n_members), "worlds"):
        weights = _weights(ratings, derive_seed(seed, f"calibrate/member/{i}"))
        own = _statistics(ratings.users, ratings.items, ratings.values, ratings.n_items, weights)
        moved = point + np.linalg.lstsq(slope, own - seen, rcond=1e-2)[0]
        moved = np.clip(moved, _LOW, _HIGH)
        points.append(moved)
        more = {"catalogue_seed": i + 1, **assume}
        members.append(_params(moved, _shares(ratings.values, weights), density, ratings.n_items, more))
    return FittedWorld(
        "ratings",
        best,
        members,
        _identified(best, members),
        _not_identified(best, members),
        {
            "ratings": len(ratings),
            "users": n_users,
            "items": ratings.n_items,
            "density": density,
            "mean": float(ratings.values.mean()),
            "shares": shares.tolist(),
            "item_slope": float(seen[2]),
        },
        [
            "marginals: those of revealed ratings, divided by how often each is revealed; sigma_item, sigma_noise and "
            "alpha: simulated moments with common random numbers",
            "ensemble: Bayesian bootstrap by user (Rubin 1981), and another catalogue of items in each world",
        ],
    )


def _weights(ratings: Ratings, seed: int) -> Floats:
    """Of each rating, its user's."""
    by_user = -np.log1p(-rng.uniforms(seed, Stream.BOOTSTRAP, np.arange(ratings.n_users), 0))
    return np.asarray((by_user / by_user.mean())[ratings.users], np.float64)


def _shares(values: Floats, weights: Floats) -> Floats:
    """Of stars among revealed ratings; none is 0."""
    counts = np.array([weights[values == star].sum() for star in STARS]) + 0.5
    return np.asarray(counts / counts.sum(), np.float64)


def _statistics(
    users: NDArray[np.int64], items: NDArray[np.int64], values: Floats, n_items: int, weights: Floats | None = None
) -> Floats:
    """(3,): variance of items' mean ratings, fourth moment of tastes, covariance of log reveals with items' means.

    The first is net of the means' errors. The second is the mean of e_ui e_vi e_uj e_vj over pairs of users who both
    rated both items of a pair, e being deviations from the items' means: 0 where users' tastes have nothing in common.
    """
    w = np.ones(len(values)) if weights is None else weights
    count = np.bincount(items, w, n_items)
    mean = np.bincount(items, w * values, n_items) / np.maximum(count, 1e-9)
    grand = float((w * values).sum() / w.sum())
    left = values - mean[items]
    doubled = np.bincount(items, w**2, n_items) / np.maximum(count, 1e-9)
    enough = np.bincount(items, minlength=n_items) > 1
    inner = float((w * left**2)[enough[items]].sum() / max(float((count - doubled)[enough].sum()), 1e-9))
    error = inner * doubled / np.maximum(count, 1e-9)
    between = float((count * ((mean - grand) ** 2 - error))[enough].sum() / count.sum())
    reveals = np.log(np.maximum(count, 0.5))
    slope = float((count * (mean - grand) * (reveals - (count * reveals).sum() / count.sum())).sum() / count.sum())
    return np.array([between, _tastes(users, items, left, n_items, w), slope])


def _tastes(users: NDArray[np.int64], items: NDArray[np.int64], left: Floats, n_items: int, w: Floats) -> float:
    some = users < _MOST_PAIRED
    n_users = int(users[some].max()) + 1
    table = np.zeros((2, n_users, n_items), np.float32)
    table[0, users[some], items[some]] = left[some]
    table[1, users[some], items[some]] = 1.0
    of_user = np.zeros(n_users)
    of_user[users[some]] = w[some]
    products, both = table[0] @ table[0].T, table[1] @ table[1].T
    squares = (table[0] ** 2) @ (table[0] ** 2).T
    pairs = np.outer(of_user, of_user)
    np.fill_diagonal(pairs, 0.0)
    return float((pairs * (products**2 - squares)).sum() / max(float((pairs * (both**2 - both)).sum()), 1.0))


def _params(point: Floats, shares: Floats, density: float, n_items: int, assume: Mapping[str, Any]) -> RatingsParams:
    sigma_item, sigma_noise, log_alpha = (float(x) for x in point)
    alpha = float(assume.get("alpha", np.exp(log_alpha)))
    marginals = shares / relative_propensity(np.array(STARS), alpha)
    marginals /= marginals.sum()
    most = float((relative_propensity(np.array(STARS), alpha) * marginals).sum())
    text = ",".join(f"{share:.6f}" for share in marginals[:-1])
    last = 1.0 - sum(float(part) for part in text.split(","))
    values = {
        "n_items": n_items,
        "sigma_item": sigma_item,
        "sigma_noise": sigma_noise,
        "marginals": f"{text},{max(last, 0.0):.6f}",
        "alpha": alpha,
        "density": min(density, 0.999 * most),
    }
    return RatingsParams.from_dict({**values, **assume})


def _matched(seen: Floats, shares: Floats, density: float, n_items: int) -> tuple[Floats, Floats]:
    """The point (sigma_item, sigma_noise, log alpha) whose simulated statistics are those seen, and their slopes."""

    def gap(point: Floats) -> Floats:
        world = RatingsWorld(_params(point, shares, density, n_items, {}))
        users = np.arange(_SIMULATED_USERS)
        found = np.zeros(3)
        seeds = (_SEED, _SEED + 1)
        for s in seeds:
            own = RatingsWorld(dataclasses.replace(world.params, catalogue_seed=s))
            full = own.ratings_of(s, users)
            u, i = np.nonzero(observe(own.propensities_of(users, full), s))
            found += _statistics(u, i, full[u, i], n_items) / len(seeds)
        return found - seen

    point = np.array([0.5, 0.7, np.log(0.6)])
    slope = np.eye(3)
    best = (np.inf, point)
    size = np.array([0.03, 0.01, 0.02])
    for turn in counting(range(_ROUNDS), "rounds"):
        here = gap(point)
        worth = float(np.abs(here / size).max())
        if worth < best[0]:
            best = (worth, point.copy())
        if worth < 0.05:
            break
        if turn % 3 == 0:
            steps = np.diag(np.where(point + _STEPS > _HIGH, -_STEPS, _STEPS))  # no world lies beyond
            slope = np.stack([(gap(point + step) - here) / step.sum() for step in steps], axis=1)
        move = -np.linalg.lstsq(slope / size[:, None], here / size, rcond=1e-2)[0]
        point = np.clip(point + np.clip(move, -0.4, 0.4), _LOW, _HIGH)
    return best[1], slope


def _identified(best: RatingsParams, members: list[RatingsParams]) -> dict[str, dict[str, Any]]:
    told = {
        "density": ("share of all ratings that is revealed", lambda p: p.density),
        "revealed_mean": ("mean of the ratings that are revealed", _revealed_mean),
        "sigma_item": ("spread of items' offsets, a user's taste having 1, given the model", lambda p: p.sigma_item),
    }
    out = {}
    for name, (why, value) in told.items():
        draws = [value(p) for p in members] or [value(best)]
        low, high = np.quantile(draws, [0.05, 0.95])
        out[name] = {"value": float(value(best)), "low": float(low), "high": float(high), "why": why}
    return out


def _revealed_mean(p: RatingsParams) -> float:
    weights = np.array(p.shares) * relative_propensity(np.array(STARS), p.alpha)
    return float((weights * np.array(STARS)).sum() / weights.sum())


def _not_identified(best: RatingsParams, members: list[RatingsParams]) -> dict[str, dict[str, Any]]:
    """What revealed ratings alone do not say."""
    alphas = [p.alpha for p in members] or [best.alpha]
    return {
        "alpha": {
            "used": best.alpha,
            "low": min(alphas),
            "high": max(alphas),
            "why": "how much more often high ratings are revealed shows in revealed ratings only through the model "
            "(items that are liked are rated more often), from which the ensemble's range comes; without it anything "
            "from 0 to 1 could be. Ratings of random items would identify it, and with it the mean of all ratings",
        },
        "n_factors": {
            "used": best.n_factors,
            "why": "the rank of tastes is not told from so few ratings a user: the world's default is kept",
        },
        "n_decisions": {"used": best.n_decisions, "why": "revealed ratings hold no recommendations"},
        "repeat_pays": {"used": best.repeat_pays, "why": "revealed ratings hold no recommendations"},
    }
