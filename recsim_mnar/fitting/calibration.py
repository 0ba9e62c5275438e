"""Calibration: fit a simulated world to a log; the sessions world in stages, the ratings world by moments.

In the ratings world a rating r is revealed with a probability proportional to alpha^max(0, 4 - r). So the shares of all
ratings are those of the revealed ones divided by that factor. alpha is estimated from the fact that items with high
ratings are then revealed more often: the covariance of items' mean ratings with their log numbers of ratings, and the
spreads between and within items, are matched by simulation with common random numbers.
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
    Evidence,
    FittedWorld,
    WorldMaker,
    clock_parameters,
    collect_evidence,
    interval,
    transitions_of,
    weights_of_users,
)
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
"""Default size of the ensemble, and the smallest number of draws from which a 90 % interval is made."""
LEAST_ROWS = 100
LEAST_RATINGS = 100
LEAST_USERS = 20
_LARGEST_CLICK_RATE = 0.95
"""Largest click rate to which a click model is fitted."""
_MOST_RECOMMENDATIONS = 150_000
"""Largest number of recommendations that the click model reads; of more, evenly spaced ones are taken."""
_SIMULATED_USERS = 600
"""Users in a simulation of the ratings world."""
_MOST_ITEMS = 400
"""Largest number of items in a simulation of the ratings world."""
_MOST_PAIRED_USERS = 1500
"""Largest number of users whose pairs measure how far tastes are shared."""
# Start, bounds and steps of numerical derivatives for the ratings world's parameters (sigma_item, sigma_noise, log
# alpha).
_START = np.array([0.5, 0.7, np.log(0.6)])
_LOW = np.array([0.03, 0.05, np.log(0.05)])
_HIGH = np.array([3.0, 3.0, 0.0])
_STEPS = np.array([0.1, 0.1, 0.2])
_TYPICAL_ERRORS = np.array([0.03, 0.01, 0.02])
"""Typical errors of the three statistics of revealed ratings, by which their misfits are divided."""
_REASONS = {
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
    """Fit a simulated world to a log: a best fit, an ensemble around it, and evidence on each parameter.

    Args:
        log: a log of views, recommendations or both; revealed ratings for the ratings world; or the path of a file or
            folder with either.
        world: ``sessions`` or ``ratings``.
        seed: seed of the ensemble and of simulations.
        n_items: number of items; None for the number in the log's provenance, else the largest item number plus 1.
        ensemble: number of worlds in addition to the best fit; intervals use at least 20 draws in any case.
        assume: parameters of the world to set instead of fitting them.
        report: called with a line whenever a stage begins.
        finished: a fitted world that was read from its file; it is returned if it was made from the same log and
            arguments.

    Raises:
        UserError: no world can be fitted to the log (too few rows or users, neither views nor recommendations), or
            ``finished`` was made from another log or other arguments.
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
        return _finished_or_fitted(record, finished, lambda: fit_ratings(ratings, ensemble, seed, assume, report))
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
    return _finished_or_fitted(record, finished, lambda: _fit_sessions(events, n_items, ensemble, seed, assume, report))


def _finished_or_fitted(
    arguments: Mapping[str, Any], finished: FittedWorld | None, fit: Callable[[], FittedWorld]
) -> FittedWorld:
    """Return the finished world, after checking that it was made from the same arguments, or else fit one.

    Args:
        arguments: log digest, arguments and versions; they become ``made_from`` of the fitted world.
        finished: a fitted world that was read from its file, or None.
        fit: function that fits the world.

    Raises:
        UserError: ``finished`` was made from other arguments, or a matrix of the fit is singular.
    """
    if finished is not None:
        before = {"made_from": finished.made_from or None}
        now = {"made_from": arguments}
        refuse_differences(f"{finished.path} is of a run", before, now, "name another file, or remove it")
        return finished
    try:
        return replace(fit(), made_from=arguments)
    except np.linalg.LinAlgError as error:
        raise UserError(f"the fit does not converge ({error}): bring more users, or fewer items") from error


def check_asked(world: str, seed: int, ensemble: int, assume: Mapping[str, Any]) -> Any:
    """Check the arguments that do not depend on the log, and return the class of the world to fit.

    Raises:
        UserError: an argument is invalid.
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
    """Fit the sessions world: transitions and clock, then views, then clicks given the views.

    Args:
        log: a valid log.
        n_items: number of items.
        n_members: size of the ensemble in the result; at least ``MEMBERS`` are drawn, for the intervals.
        seed: seed of the ensemble and of the fits.
        assume: parameters that the user sets, by name.
        report: called with a line whenever a stage begins.
    """
    decision_rows = log.is_bandit
    n_draws = max(n_members, MEMBERS)
    transitions = transitions_of(log)
    _refuse_unsuitable_log(log, transitions.n_users)
    if transitions.organic.sum():
        views = views_of(log, n_items, seed, report)
    else:
        views = None
    clicks = None
    if decision_rows.any():
        report("fit what is clicked")
        recommended = _count_recommendations(log, views, n_items)
        clicks = fit_clicks(recommended, n_draws, derive_seed(seed, "calibrate/clicks"), _links(assume, views))
    maker = WorldMaker(transitions, clock_parameters(log), views, clicks, n_items, seed, assume)
    worlds = [maker.best(), *(maker.member(i) for i in counting(range(n_draws), "worlds"))]
    facts: dict[str, Any] = {
        "rows": len(log),
        "users": transitions.n_users,
        "items": n_items,
        "views": int((~decision_rows).sum()),
        "recommendations": int(decision_rows.sum()),
        "clicks": int((log["reward"][decision_rows] > 0).sum()),
        "factors": maker.n_factors,
        "no_repeats": views is not None and views.view_counts.no_repeats,
    }
    if clicks is not None:
        facts |= clicks.facts
    identified, not_identified = collect_evidence(maker, worlds[0], worlds[1:])
    params, catalogues = map(list, zip(*worlds[: 1 + n_members], strict=True))
    return FittedWorld("sessions", params[0], params[1:], identified, not_identified, facts, _method(facts), catalogues)


def _links(assume: Mapping[str, Any], views: FittedViews | None) -> tuple[str, ...]:
    """Return the candidate click links: the assumed one, or all; without view factors the logistic one alone.

    Links differ in how clicks depend on users' interests, which are unknown without view factors.
    """
    if "click_link" in assume:
        return (str(assume["click_link"]),)
    if views is not None and views.model.factors.shape[1]:
        return CLICK_LINKS
    return (LOGISTIC,)


def _refuse_unsuitable_log(log: Log, n_users: int) -> None:
    """Raise UserError for a log that the sessions world cannot be fitted to; the message says what to change."""
    for number, least, what in ((len(log), LEAST_ROWS, "row"), (n_users, LEAST_USERS, "user")):
        if number < least:
            many = f"{number} {what}{'s' if number != 1 else ''}"
            raise UserError(f"the log has {many}, a world is fitted to at least {least}: bring a longer log")
    if _has_slates(log):
        why = "the log has slates, and a world is fitted to recommendations of single items"
        raise UserError(f"{why}: keep the first item of each slate (position 0)")
    goes_back = (log["user"][1:] == log["user"][:-1]) & (np.diff(log["time"]) < 0)
    if goes_back.any():
        row = int(np.argmax(goes_back)) + 1
        raise UserError(f"the log's time runs backwards within a user, row {row:,}: sort the rows by user and time")
    items = np.where(log.is_bandit, log["action"], log["item"])
    if (items == items[0]).all():
        raise UserError(f"the log holds one item only, {items[0]}: nothing can be preferred. Bring a log of several")
    reward = log["reward"][log.is_bandit]
    if len(reward) == 0:
        return
    no_click = reward[(reward != 0) & (reward != 1)]
    if len(no_click):
        many = f"the log has {len(no_click):,} rewards that are neither 0 nor 1, such as {no_click[0]:g}"
        raise UserError(f"{many}: this world's are clicks. Write 1 for a click and 0 for none")
    rate = float(reward.mean())
    if rate == 0.0 or rate > _LARGEST_CLICK_RATE:
        were = f"of the log's {len(reward):,} recommendations {'none' if rate == 0.0 else f'{rate:.1%}'} were clicked"
        needed = f"a click model needs clicks and at least {1 - _LARGEST_CLICK_RATE:.0%} without"
        raise UserError(f"{were}: {needed}. Look at the column of rewards")


def _has_slates(log: Log) -> bool:
    """Return whether several items are recommended in one decision."""
    decisions = log.bandit()
    if "position" in log.columns:
        return bool((decisions["position"] > 0).any())
    if "slate" not in log.columns:
        return False
    return bool(((np.diff(decisions["user"]) == 0) & (np.diff(decisions["slate"]) == 0)).any())


def _count_recommendations(log: Log, views: FittedViews | None, n_items: int) -> Recommended:
    """Count recommendations and clicks by item and user, and add what views say of users and items.

    Args:
        log: a valid log.
        views: fitted views; None for a log without views, where interests, factors and errors have no columns.
        n_items: number of items.
    """
    everyone = user_numbers(log["user"])
    rows = np.flatnonzero(log.is_bandit)
    if len(rows) > _MOST_RECOMMENDATIONS:
        rows = rows[np.linspace(0, len(rows) - 1, _MOST_RECOMMENDATIONS).astype(np.int64)]
    users, user = np.unique(everyone[rows], return_inverse=True)
    # One number per item and user, ordered by item.
    cells, cell_of_row = np.unique(log["action"][rows].astype(np.int64) * len(users) + user, return_inverse=True)
    times = np.bincount(cell_of_row).astype(float)
    clicks = np.bincount(cell_of_row, log["reward"][rows]).astype(float)
    if views is None:
        interests = np.zeros((len(users), 0))
        covariance = np.zeros((len(users), 0, 0))
        factors = np.zeros((n_items, 0))
        offsets = np.zeros(n_items)
        spread = np.zeros((n_items, 0, 0))
    else:
        factors = views.factors
        offsets = views.scales.offsets
        spread = views.scales.scale**2 * views.model.spread
        interests, covariance = _interests(log, everyone, views, users, n_items)
    action, user_of_cell = np.divmod(cells, len(users))
    return Recommended(
        user=user_of_cell,
        action=action,
        times=times,
        clicks=clicks,
        interests=interests,
        interest_covariances=covariance,
        factors=factors,
        offsets=offsets,
        factor_covariances=spread,
    )


def _interests(log: Log, everyone: Ints, views: FittedViews, users: Ints, n_items: int) -> tuple[Floats, Floats]:
    """Compute the posterior of users' interests from all of their views in the log, one for all of their clicks.

    Args:
        log: a valid log.
        everyone: (n,) user of each row of the log, numbered from 0.
        views: fitted views.
        users: (U,) numbers of the users, ascending.
        n_items: number of items.

    Returns:
        interests: (U, K) posterior means.
        covariance: (U, K, K) posterior covariances.
    """
    k = views.model.factors.shape[1]
    interests = np.zeros((len(users), k))
    covariance = np.zeros((len(users), k, k))
    model = replace(views.model, factors=views.factors, offsets=views.scales.offsets)
    viewer = everyone[~log.is_bandit]
    item = log["item"][~log.is_bandit].astype(np.int64)
    n_views = np.bincount(viewer, minlength=int(everyone[-1]) + 1)[users]
    drift = np.asarray(views.scales.drift * n_views, np.float64)
    batch_size = max(1, CELLS // n_items)
    for batch in (slice(first, first + batch_size) for first in range(0, len(users), batch_size)):
        counts = counted_views(viewer, item, users[batch], n_items)
        # Interests follow a random walk, whose total variance over the user's views is ``drift``. Its mean over time
        # has a third of that variance, and its values vary about that mean by a sixth on average.
        interests[batch], covariance[batch] = interests_of(
            model, counts, 1.0 + drift[batch] / 3.0, no_repeats=views.view_counts.no_repeats
        )
    covariance += (drift / 6.0)[:, None, None] * np.eye(k)
    return interests, covariance


def _method(facts: Mapping[str, Any]) -> list[str]:
    """Return sentences on the choice of the click link, none where only one link was fitted and none was refused."""
    lines = [f"click link {link} is refused: {why}" for link, why in facts.get("click_links_refused", {}).items()]
    if len(facts.get("click_evidence", ())) < 2:
        return lines
    weight = facts["click_link_weight"]
    sentence = f"click link: {facts['click_link']}, posterior probability {weight:.3f}"
    if weight < LINK_SURE:
        sentence += "; the log cannot say which, the ensemble has both"
    return [sentence, *lines]


def ratings_of(log: Log, n_items: int | None) -> Ratings:
    """Return the revealed ratings of a log: its organic rows with a reward.

    Args:
        log: a log with ratings.
        n_items: number of items; None for the number in the log's provenance, else the largest item number plus 1.

    Raises:
        UserError: no organic row has a reward.
    """
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
    """Fit the ratings world by simulated moments, with an ensemble by the Bayesian bootstrap.

    Args:
        ratings: revealed ratings.
        n_members: size of the ensemble in the result; at least ``MEMBERS`` are drawn, for the intervals.
        seed: seed of the ensemble.
        assume: parameters that the user sets, by name.
        report: called with a line whenever a stage begins.

    Raises:
        UserError: too few ratings or users, or a rating outside 1..5.
    """
    ratings.check_scale(STARS)
    n_users = len(np.unique(ratings.users))
    n_items = ratings.n_items
    for number, least, what in ((len(ratings), LEAST_RATINGS, "ratings"), (n_users, LEAST_USERS, "users")):
        if number < least:
            raise UserError(f"there are {number} {what}, a world is fitted to at least {least}: bring more")
    report("match the moments of revealed ratings")
    density = min(len(ratings) / (n_users * n_items), 1.0)
    ones = np.ones(len(ratings))
    observed = _moments(ratings, ones)
    shares = _shares(ratings.values, ones)
    size = min(n_items, _MOST_ITEMS)
    point, slope = _match_moments(observed, shares, density, size)
    best = _ratings_params(point, shares, density, n_items, assume)
    members = []
    for i in counting(range(max(n_members, MEMBERS)), "worlds"):
        weights = weights_of_users(seed, i, ratings.n_users)[ratings.users]
        # One Newton step from the best fit: a new search per member would take minutes.
        drawn = point + np.linalg.lstsq(slope, _moments(ratings, weights) - observed, rcond=1e-2)[0]
        drawn = np.clip(drawn, _LOW, _HIGH)
        own_catalogue = {"catalogue_seed": i + 1, **assume}
        members.append(_ratings_params(drawn, _shares(ratings.values, weights), density, n_items, own_catalogue))
    facts = {"ratings": len(ratings), "users": n_users, "items": n_items, "mean": float(ratings.values.mean())}
    method = ["simulated moments; ensemble: Bayesian bootstrap by user (Rubin 1981), another catalogue of items each"]
    return FittedWorld("ratings", best, members[:n_members], *_evidence_of_ratings(best, members), facts, method)


def _shares(values: Floats, weights: Floats) -> Floats:
    """Return the weighted shares (5,) of ratings 1 .. 5, half a rating added to each."""
    counts = np.array([weights[values == star].sum() + 0.5 for star in STARS])
    return np.asarray(counts / counts.sum(), np.float64)


def _moments(ratings: Ratings, w: Floats) -> Floats:
    """Compute the three moments of revealed ratings that identify the ratings world's parameters.

    Args:
        ratings: revealed ratings.
        w: (n,) weights of the ratings.

    Returns:
        (3,) the variance of the items' mean ratings, net of their sampling errors; the strength of tastes shared by
        users (:func:`_shared_taste`); the covariance of the items' means with the logarithms of their numbers of
        ratings.
    """
    items = ratings.items
    values = ratings.values
    n_items = ratings.n_items
    count = np.bincount(items, w, n_items)
    safe = np.maximum(count, 1e-9)
    mean = np.bincount(items, w * values, n_items) / safe
    weight_per_rating = np.bincount(items, w**2, n_items) / safe
    residual = values - mean[items]
    grand = float((w * values).sum() / w.sum())
    enough = np.bincount(items, minlength=n_items) > 1
    # Variance within items, with the degrees of freedom of weighted means: sum w - sum w^2 / sum w per item.
    freedom = max(float((count - weight_per_rating)[enough].sum()), 1e-9)
    within = float((w * residual**2)[enough[items]].sum() / freedom)
    noise = within * weight_per_rating / safe
    between = float((count * ((mean - grand) ** 2 - noise))[enough].sum() / count.sum())
    log_count = np.log(np.maximum(count, 0.5))
    centred = log_count - (count * log_count).sum() / count.sum()
    covariance = float((count * (mean - grand) * centred).sum() / count.sum())
    return np.array([between, _shared_taste(ratings, residual, w), covariance])


def _shared_taste(ratings: Ratings, residual: Floats, w: Floats) -> float:
    """Compute how much users agree on pairs of items: the mean of e_ui e_vi e_uj e_vj over u != v and i != j.

    Its expectation is 0 for independent noise, and positive if users share tastes. For a pair of users the sum over
    pairs of items is (sum_i e_ui e_vi)^2 less the terms with i = j.

    Args:
        ratings: revealed ratings; of the users the first ``_MOST_PAIRED_USERS`` are used.
        residual: (n,) ratings less the items' means, e.
        w: (n,) weights, the same for all ratings of a user.
    """
    used = ratings.users < _MOST_PAIRED_USERS
    users = ratings.users[used]
    items = ratings.items[used]
    n_users = int(users.max()) + 1
    residuals = np.zeros((n_users, ratings.n_items), np.float32)
    residuals[users, items] = residual[used]
    rated = np.zeros((n_users, ratings.n_items), np.float32)
    rated[users, items] = 1.0
    weight_of_user = np.zeros(n_users)
    weight_of_user[users] = w[used]
    products = np.einsum("ui,vi->uv", residuals, residuals)
    both = np.einsum("ui,vi->uv", rated, rated)
    squares = np.einsum("ui,vi->uv", residuals**2, residuals**2)
    pairs = np.outer(weight_of_user, weight_of_user)
    np.fill_diagonal(pairs, 0.0)
    return float((pairs * (products**2 - squares)).sum() / max(float((pairs * (both**2 - both)).sum()), 1.0))


def _ratings_params(
    point: Floats, shares: Floats, density: float, n_items: int, assume: Mapping[str, Any]
) -> RatingsParams:
    """Return parameters of the ratings world.

    Args:
        point: (sigma_item, sigma_noise, log alpha).
        shares: (5,) shares of the ratings 1 .. 5 among revealed ones; divided by how often a rating is revealed, they
            are the shares among all ratings.
        density: share of all ratings that is revealed; the world's is a bit smaller where probabilities would reach 1.
        n_items: number of items.
        assume: parameters that the user sets, by name; they override the others.
    """
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


def _match_moments(observed: Floats, shares: Floats, density: float, n_items: int) -> tuple[Floats, Floats]:
    """Find the parameters for which the statistics of simulated ratings are the observed ones.

    Args:
        observed: (3,) statistics of the log.
        shares: (5,) shares of the ratings 1 .. 5 among revealed ones.
        density: share of all ratings that is revealed.
        n_items: number of items of the simulations.

    Returns:
        point: (3,) sigma_item, sigma_noise, log alpha.
        slope: (3, 3) derivatives of the statistics (rows) in the parameters (columns).
    """
    from scipy.optimize import least_squares

    def gap(point: Floats) -> Floats:
        """Return simulated minus observed moments over their typical errors; seeds are fixed, so it is smooth."""
        params = _ratings_params(point, shares, density, n_items, {})
        users = np.arange(_SIMULATED_USERS)
        statistics = np.zeros(3)
        for simulation_seed in (5, 6):  # the mean of two simulations; any other seeds would do
            world = RatingsWorld(dataclasses.replace(params, catalogue_seed=simulation_seed))
            full = world.ratings_of(simulation_seed, users)
            u, i = np.nonzero(observe(world.propensities_of(users, full), simulation_seed))
            revealed = Ratings(u, i, full[u, i], len(users), n_items)
            statistics += _moments(revealed, np.ones(len(u))) / 2
        return np.asarray((statistics - observed) / _TYPICAL_ERRORS)

    def slope(point: Floats) -> Floats:
        here = gap(point)
        steps = np.diag(np.where(point + _STEPS > _HIGH, -_STEPS, _STEPS))  # backwards at the upper bound
        return np.stack([(gap(point + step) - here) / step.sum() for step in steps], axis=1)

    solution = least_squares(gap, _START, slope, bounds=(_LOW, _HIGH), x_scale=_STEPS, xtol=1e-2, ftol=1e-3, max_nfev=8)
    return np.asarray(solution.x), solution.jac * _TYPICAL_ERRORS[:, None]


def _evidence_of_ratings(
    best: RatingsParams, members: list[RatingsParams]
) -> tuple[dict[str, Evidence], dict[str, Evidence]]:
    """Collect the evidence of revealed ratings on the ratings world's parameters.

    Args:
        best: parameters of the best fit.
        members: parameters of the ensemble.

    Returns:
        identified: numbers that ratings identify, with intervals.
        not_identified: other parameters, with the value in use and the reason.
    """

    def revealed_mean(p: RatingsParams) -> float:
        return float(np.average(STARS, weights=np.array(p.shares) * relative_propensity(np.array(STARS), p.alpha)))

    says: dict[str, tuple[str, Callable[[RatingsParams], float]]] = {
        "density": ("share of all ratings that is revealed", lambda p: p.density),
        "revealed_mean": ("mean of the ratings that are revealed", revealed_mean),
        "sigma_item": ("spread of items' offsets, a user's taste having 1, given the model", lambda p: p.sigma_item),
    }
    evidence = {name: interval(of(best), [of(p) for p in members], why) for name, (why, of) in says.items()}
    unknown: dict[str, Evidence] = {name: {"used": getattr(best, name), "why": why} for name, why in _REASONS.items()}
    alphas = [p.alpha for p in members]
    unknown["alpha"] |= {"low": min(alphas), "high": max(alphas)}
    return evidence, unknown
