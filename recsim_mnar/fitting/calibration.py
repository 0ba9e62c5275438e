"""calibrate_world: a log in, a world like it out; the sessions world by stages, the ratings world by moments.

Of the ratings world: a rating r is revealed in proportion to alpha^max(0, 4 - r), so the marginals of all ratings are
those of the revealed ones divided by that; alpha shows in that items whose revealed ratings are high are revealed more
often. That slope and the spreads between and within items are matched by simulation with common random numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.fitting.clicks import Recommended, fit_clicks
from recsim_mnar.fitting.members import (
    LINK_SURE,
    FittedWorld,
    Maker,
    clock_of,
    identified_by,
    interval,
    transitions_of,
    weights_of_users,
)
from recsim_mnar.fitting.positions import Evidence, Places, decisions_of, slates_of
from recsim_mnar.fitting.viewing import CELLS, FittedViews, counted_views, interests_of, views_of
from recsim_mnar.kernels.checks import of_type, table_by_name, text_of, whole_number
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.log.rows import user_numbers
from recsim_mnar.log.table import Log, stated_items
from recsim_mnar.own_log.sources import read_to_fit
from recsim_mnar.progress import counting
from recsim_mnar.rng import check_seed, derive_seed
from recsim_mnar.runs.folder import refuse_differences
from recsim_mnar.runs.receipts import made_with
from recsim_mnar.worlds.ratings.observation import STARS, observe, relative_propensity
from recsim_mnar.worlds.ratings.world import RatingsParams, RatingsWorld
from recsim_mnar.worlds.registry import entry_of
from recsim_mnar.worlds.sessions.params import CLICK_LINKS, LOGISTIC

WORLDS = ("sessions", "ratings")
MEMBERS = 20
"""Of the ensemble unless asked otherwise, and the fewest draws that an interval of 90 % is made of."""
LEAST_ROWS, LEAST_RATINGS, LEAST_USERS = 100, 100, 20
_MOST_CLICKED, _MOST_SHOWN = 0.95, 150_000
_SIMULATED_USERS, _MOST_PAIRED, _MOST_ITEMS = 600, 1500, 400
_START = np.array([0.5, 0.7, np.log(0.6)])
_LOW, _HIGH = np.array([0.03, 0.05, np.log(0.05)]), np.array([3.0, 3.0, 0.0])
_STEPS, _SIZE = np.array([0.1, 0.1, 0.2]), np.array([0.03, 0.01, 0.02])
_WHY = {
    "alpha": "how much more often high ratings are revealed shows only through the model, from which the ensemble's "
    "range comes; without it anything from 0 to 1 could be. Ratings of random items would identify it",
    "n_factors": "too few ratings per user to estimate the rank of tastes: the world's default is kept",
    **dict.fromkeys(("n_decisions", "repeat_pays"), "revealed ratings hold no recommendations"),
}


def calibrate_world(
    log: Log | Ratings | str | Path,
    world: str = "sessions",
    seed: int = 0,
    *,
    n_items: int | None = None,
    ensemble: int = MEMBERS,
    assume: Mapping[str, Any] | None = None,
    report: Callable[[str], None] = lambda stage: None,
    finished: FittedWorld | None = None,
) -> FittedWorld:
    """Fit a world to a log, and say what the log identifies.

    Args:
        log: views and recommendations, or either; revealed ratings for the ratings world; or a file's or folder's path.
        world: ``sessions`` or ``ratings``.
        seed: of the ensemble and of simulations.
        n_items: how many items there are; where None as many as the log's provenance or its largest number says.
        ensemble: worlds in addition to the best fit; intervals are of 20 draws at least, whatever it is.
        assume: parameters of the world that are set, not fitted.
        report: called with a line whenever a stage begins.
        finished: a world that was read from its file; it is the answer if it is of this log and all else that is asked.

    Raises:
        UserError: a log that no world can be fitted to: too few rows or users, no views and no recommendations; or
            ``finished`` is of something else.
    """
    of_type(log, "log", (Log, Ratings, str, Path), "a Log, Ratings or a path")
    assume = dict(table_by_name(assume or {}, "assume"))
    kind = check_asked(world, seed, ensemble, assume)
    if isinstance(log, (str, Path)):
        read = read_to_fit(log, world)
        log = read.log
        n_items = n_items or read.n_items
    record = {"world": world, "seed": seed, "ensemble": ensemble, "assume": assume, "made_with": made_with()}
    if isinstance(log, Ratings) or kind.rates:
        if not kind.rates:
            raise UserError('revealed ratings are fitted by the ratings world: world="ratings"')
        if isinstance(log, Ratings):
            ratings = log
        else:
            ratings = ratings_of(log, n_items)
        record |= {"n_items": ratings.n_items, "log": ratings.digest()}
        return _made(record, finished, lambda: fit_ratings(ratings, ensemble, seed, assume, report))
    least = max(2, log.highest_item + 1)
    events = log
    if n_items is None:
        n_items = log.n_items
    else:
        n_items = whole_number(n_items, "n_items", least)
    if n_items == 0:
        raise UserError("the log has neither views nor recommendations: there is nothing to fit a world to")
    events.validate(n_items)
    record |= {"n_items": n_items, "log": events.digest(optional=True)}
    return _made(record, finished, lambda: _fit_sessions(events, n_items, ensemble, seed, assume, report))


def _made(asked: Mapping[str, Any], finished: FittedWorld | None, fit: Callable[[], FittedWorld]) -> FittedWorld:
    """Return the finished world if it was made from the same arguments, else the one that ``fit`` makes."""
    if finished is not None:
        there = {"made_from": finished.made_from or None}
        here = {"made_from": asked}
        refuse_differences(f"{finished.path} is of a run", there, here, "name another file, or remove it")
        return finished
    try:
        return replace(fit(), made_from=asked)
    except np.linalg.LinAlgError as error:
        raise UserError(f"the fit does not converge ({error}): bring more users, or fewer items") from error


def check_asked(world: str, seed: int, ensemble: int, assume: Mapping[str, Any]) -> Any:
    """Return the class of the world to fit, after checking arguments that do not depend on the log.

    Raises:
        UserError: it is not.
    """
    check_seed(seed)
    if text_of(world, "world") not in WORLDS:
        raise UserError(f"calibrate fits the worlds {' and '.join(WORLDS)}, got {world!r}; {nearest(world, WORLDS)}")
    whole_number(ensemble, "ensemble", 0, 1000)
    kind: Any = entry_of(world).world_class()
    kind.params_class.from_dict(assume)
    return kind


def _fit_sessions(
    log: Log, n_items: int, n_members: int, seed: int, assume: Mapping[str, Any], report: Callable[[str], None]
) -> FittedWorld:
    slates = slates_of(log)
    decision_rows = log.is_bandit
    n_draws = max(n_members, MEMBERS)
    decided = decisions_of(log, slates)
    transitions = transitions_of(decided)
    _refuse(log, transitions.n_users)
    if slates is None:
        places = None
    else:
        places = Places.of(log, slates, n_items, assume)
    if transitions.organic.sum():
        views = views_of(log, n_items, seed, report)
    else:
        views = None
    clicks = None
    if decision_rows.any():
        report("fit what is clicked")
        # Where nothing is known of users the curve of RecoGym's link has no meaning.
        links = CLICK_LINKS if views is not None and views.model.factors.shape[1] else (LOGISTIC,)
        if "click_link" in assume:
            links = (str(assume["click_link"]),)
        recommended = _shown(log, views, n_items, slates, places)
        clicks = fit_clicks(recommended, n_draws, derive_seed(seed, "calibrate/clicks"), links)
    maker = Maker(transitions, clock_of(decided), views, clicks, n_items, seed, assume, places)
    worlds = [maker.best(), *(maker.member(i) for i in counting(range(n_draws), "worlds"))]
    facts: dict[str, Any] = {
        "rows": len(log),
        "users": transitions.n_users,
        "items": n_items,
        "views": int((~decision_rows).sum()),
    }
    facts |= {"recommendations": int(decided.is_bandit.sum()), "clicks": int((log["reward"][decision_rows] > 0).sum())}
    facts |= {"factors": maker.n_factors, "no_repeats": views is not None and views.lives.no_repeats}
    facts |= {} if clicks is None else clicks.facts
    facts |= {} if places is None else places.facts()
    tables = identified_by(maker, worlds[0], worlds[1:])
    (best, *params), catalogues = zip(*worlds[: 1 + n_members], strict=True)
    method = [*_method(facts), *(places.method() if places is not None else [])]
    return FittedWorld("sessions", best, params, *tables, facts, method, list(catalogues))


def _refuse(log: Log, n_users: int) -> None:
    for found, least, what in ((len(log), LEAST_ROWS, "row"), (n_users, LEAST_USERS, "user")):
        if found < least:
            many = f"{found} {what}{'s' if found != 1 else ''}"
            raise UserError(f"the log has {many}, a world is fitted to at least {least}: bring a longer log")
    back = (log["user"][1:] == log["user"][:-1]) & (np.diff(log["time"]) < 0)
    if back.any():
        row = int(np.argmax(back)) + 1
        raise UserError(f"the log's time runs backwards within a user, row {row:,}: sort the rows by user and time")
    items = np.where(log.is_bandit, log["action"], log["item"])
    if (items == items[0]).all():
        raise UserError(f"the log holds one item only, {items[0]}: nothing can be preferred. Bring a log of several")
    reward = log["reward"][log.is_bandit]
    odd = reward[(reward != 0) & (reward != 1)]
    if len(odd):
        many = f"the log has {len(odd):,} rewards that are neither 0 nor 1, such as {odd[0]:g}"
        raise UserError(f"{many}: this world's are clicks. Write 1 for a click and 0 for none")
    if len(reward):
        rate = float(reward.mean())
    else:
        rate = 0.5
    if rate == 0.0 or rate > _MOST_CLICKED:
        were = f"of the log's {len(reward):,} recommendations {'none' if rate == 0.0 else f'{rate:.1%}'} were clicked"
        needed = f"a click model needs clicks and at least {1 - _MOST_CLICKED:.0%} without"
        raise UserError(f"{were}: {needed}. Look at the column of rewards")


def _shown(
    log: Log, views: FittedViews | None, n_items: int, slates: Ints | None, places: Places | None
) -> Recommended:
    """Recommendations with their users' interests; without views nothing is known of users."""
    everyone = user_numbers(log["user"])
    if slates is None:
        rows = np.flatnonzero(log.is_bandit)[:, None]
    else:
        rows = slates
    size = rows.shape[1]
    most = max(_MOST_SHOWN // rows.shape[1], 1)
    if len(rows) > most:
        rows = rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
    rows = rows.ravel()
    wanted_rows, user = np.unique(everyone[rows], return_inverse=True)
    pairs = (log["action"][rows].astype(np.int64) * len(wanted_rows) + user) * size + np.arange(len(rows)) % size
    pairs, place = np.unique(pairs, return_inverse=True)
    times = np.bincount(place).astype(float)
    clicks = np.bincount(place, log["reward"][rows]).astype(float)
    if views is not None:
        k = views.model.factors.shape[1]
    else:
        k = 0
    interests = np.zeros((len(wanted_rows), k))
    doubt = np.zeros((len(wanted_rows), k, k))
    factors = np.zeros((n_items, k))
    offsets = np.zeros(n_items)
    spread = np.zeros((n_items, k, k))
    if views is not None:
        factors = views.factors
        offsets = views.scales.offsets
        spread = views.scales.scale**2 * views.model.spread
        model = replace(views.model, factors=factors, offsets=offsets)
        whose = everyone[~log.is_bandit]
        item = log["item"][~log.is_bandit].astype(np.int64)
        drift = np.asarray(
            views.scales.drift * np.bincount(whose, minlength=int(everyone[-1]) + 1)[wanted_rows], np.float64
        )
        batch = max(1, CELLS // n_items)
        once = views.lives.no_repeats
        for batch_rows in (slice(first, first + batch) for first in range(0, len(wanted_rows), batch)):
            counts = counted_views(whose, item, wanted_rows[batch_rows], n_items)
            # The mean of a walk of n steps has n / 3 of its variance, and the walk n / 6 about its mean.
            interests[batch_rows], doubt[batch_rows] = interests_of(
                model, counts, 1.0 + drift[batch_rows] / 3.0, no_repeats=once
            )
        doubt += (drift / 6.0)[:, None, None] * np.eye(k)
    action, to = np.divmod(pairs // size, len(wanted_rows))
    read = () if places is None else (np.log(pairs % size + 1.0), places.exponent)
    return Recommended(to, action, times, clicks, interests, doubt, factors, offsets, spread, *read)


def _method(facts: Mapping[str, Any]) -> list[str]:
    lines = [f"click link {link} is refused: {why}" for link, why in facts.get("click_links_refused", {}).items()]
    if len(facts.get("click_evidence", ())) < 2:
        return lines
    weight = facts["click_link_weight"]
    if weight >= LINK_SURE:
        sure = ""
    else:
        sure = "; the log cannot say which, the ensemble has both"
    return [f"click link: {facts['click_link']}, posterior probability {weight:.3f}{sure}", *lines]


def ratings_of(log: Log, n_items: int | None) -> Ratings:
    """Return the revealed ratings of a log, its organic rows with a reward; UserError where there are none."""
    rated = ~log.is_bandit & np.isfinite(log["reward"])
    if not rated.any():
        raise UserError("the log has no revealed ratings (organic rows with a reward): the ratings world needs them")
    users, user = np.unique(log["user"][rated], return_inverse=True)
    item = log["item"][rated].astype(np.int64)
    n_items = n_items or stated_items(log.provenance, int(item.max()) + 1)
    return Ratings(user, item, log["reward"][rated], len(users), n_items)


def fit_ratings(
    ratings: Ratings, n_members: int, seed: int, assume: Mapping[str, Any], report: Callable[[str], None]
) -> FittedWorld:
    """Fit the ratings world; UserError where ratings or users are too few, or ratings outside 1..5."""
    ratings.check_scale(STARS)
    n_users = len(np.unique(ratings.users))
    n_items = ratings.n_items
    for number, least, what in ((len(ratings), LEAST_RATINGS, "ratings"), (n_users, LEAST_USERS, "users")):
        if number < least:
            raise UserError(f"there are {number} {what}, a world is fitted to at least {least}: bring more")
    report("match the moments of revealed ratings")
    density = min(len(ratings) / (n_users * n_items), 1.0)
    even = np.ones(len(ratings))
    seen = _statistics(ratings, even)
    shares = _shares(ratings.values, even)
    size = min(n_items, _MOST_ITEMS)
    point, slope = _matched(seen, shares, density, size)
    best = _params(point, shares, density, n_items, assume)
    members = []
    for i in counting(range(max(n_members, MEMBERS)), "worlds"):
        weights = weights_of_users(seed, i, ratings.n_users)[ratings.users]
        moved = point + np.linalg.lstsq(slope, _statistics(ratings, weights) - seen, rcond=1e-2)[0]
        moved = np.clip(moved, _LOW, _HIGH)
        more = {"catalogue_seed": i + 1, **assume}
        members.append(_params(moved, _shares(ratings.values, weights), density, n_items, more))
    facts = {"ratings": len(ratings), "users": n_users, "items": n_items, "mean": float(ratings.values.mean())}
    method = ["simulated moments; ensemble: Bayesian bootstrap by user (Rubin 1981), another catalogue of items each"]
    return FittedWorld("ratings", best, members[:n_members], *_identified(best, members), facts, method)


def _shares(values: Floats, weights: Floats) -> Floats:
    counts = np.array([weights[values == star].sum() + 0.5 for star in STARS])
    return np.asarray(counts / counts.sum(), np.float64)


def _statistics(ratings: Ratings, w: Floats) -> Floats:
    """(3,): variance of items' means, net of their errors; of tastes; covariance of log reveals with items' means."""
    items = ratings.items
    values = ratings.values
    n_items = ratings.n_items
    count = np.bincount(items, w, n_items)
    safe = np.maximum(count, 1e-9)
    mean = np.bincount(items, w * values, n_items) / safe
    doubled = np.bincount(items, w**2, n_items) / safe
    left = values - mean[items]
    grand = float((w * values).sum() / w.sum())
    enough = np.bincount(items, minlength=n_items) > 1
    inner = float((w * left**2)[enough[items]].sum() / max(float((count - doubled)[enough].sum()), 1e-9))
    noise = inner * doubled / safe
    between = float((count * ((mean - grand) ** 2 - noise))[enough].sum() / count.sum())
    reveals = np.log(np.maximum(count, 0.5))
    slope = float((count * (mean - grand) * (reveals - (count * reveals).sum() / count.sum())).sum() / count.sum())
    return np.array([between, _tastes(ratings, left, w), slope])


def _tastes(ratings: Ratings, left: Floats, w: Floats) -> float:
    """Mean of e_ui e_vi e_uj e_vj over pairs of users and of items that both rated, e apart from the items' means."""
    some = ratings.users < _MOST_PAIRED
    users = ratings.users[some]
    items = ratings.items[some]
    n_users = int(users.max()) + 1
    apart = np.zeros((n_users, ratings.n_items), np.float32)
    apart[users, items] = left[some]
    rated = np.zeros((n_users, ratings.n_items), np.float32)
    rated[users, items] = 1.0
    of_user = np.zeros(n_users)
    of_user[users] = w[some]
    products = np.einsum("ui,vi->uv", apart, apart)
    both = np.einsum("ui,vi->uv", rated, rated)
    squares = np.einsum("ui,vi->uv", apart**2, apart**2)
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
    """Find (sigma_item, sigma_noise, log alpha) whose simulated statistics are the log's, and their slopes."""
    from scipy.optimize import least_squares

    def gap(point: Floats) -> Floats:
        params = _params(point, shares, density, n_items, {})
        users = np.arange(_SIMULATED_USERS)
        statistics = np.zeros(3)
        for s in (5, 6):
            world = RatingsWorld(dataclasses.replace(params, catalogue_seed=s))
            full = world.ratings_of(s, users)
            u, i = np.nonzero(observe(world.propensities_of(users, full), s))
            statistics += _statistics(Ratings(u, i, full[u, i], len(users), n_items), np.ones(len(u))) / 2
        return np.asarray((statistics - seen) / _SIZE)

    def slope(point: Floats) -> Floats:
        here = gap(point)
        steps = np.diag(np.where(point + _STEPS > _HIGH, -_STEPS, _STEPS))  # no world is beyond
        return np.stack([(gap(point + step) - here) / step.sum() for step in steps], axis=1)

    solution = least_squares(gap, _START, slope, bounds=(_LOW, _HIGH), x_scale=_STEPS, xtol=1e-2, ftol=1e-3, max_nfev=8)
    return np.asarray(solution.x), solution.jac * _SIZE[:, None]


def _identified(best: RatingsParams, members: list[RatingsParams]) -> tuple[dict[str, Evidence], dict[str, Evidence]]:
    """Parameters that revealed ratings identify, and those they do not."""

    def mean(p: RatingsParams) -> float:
        return float(np.average(STARS, weights=np.array(p.shares) * relative_propensity(np.array(STARS), p.alpha)))

    says: dict[str, tuple[str, Callable[[RatingsParams], float]]] = {
        "density": ("share of all ratings that is revealed", lambda p: p.density),
        "revealed_mean": ("mean of the ratings that are revealed", mean),
        "sigma_item": ("spread of items' offsets, a user's taste having 1, given the model", lambda p: p.sigma_item),
    }
    evidence = {name: interval(of(best), [of(p) for p in members], why) for name, (why, of) in says.items()}
    unknown: dict[str, Evidence] = {name: {"used": getattr(best, name), "why": why} for name, why in _WHY.items()}
    alphas = [p.alpha for p in members]
    unknown["alpha"] |= {"low": min(alphas), "high": max(alphas)}
    return evidence, unknown
