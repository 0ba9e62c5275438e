"""Calibration: fit a sessions world to a log, in stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.fitting.clicks import Recommended, fit_clicks
from recsim_mnar.fitting.members import (
    LINK_SURE,
    FittedWorld,
    WorldMaker,
    clock_parameters,
    collect_evidence,
    transitions_of,
)
from recsim_mnar.fitting.viewing import CELLS, FittedViews, counted_views, interests_of, views_of
from recsim_mnar.kernels.checks import of_type, table_by_name, whole_number
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.rows import user_numbers
from recsim_mnar.log.table import Log
from recsim_mnar.own_log.sources import read_to_fit
from recsim_mnar.progress import counting
from recsim_mnar.rng import check_seed, derive_seed
from recsim_mnar.runs.receipts import made_with
from recsim_mnar.worlds.sessions.params import CLICK_LINKS, LOGISTIC, SessionsParams
from recsim_mnar.worlds.sessions.world import SessionsWorld

MEMBERS = 20
"""Default size of the ensemble, and the smallest number of draws from which a 90 % interval is made."""
LEAST_ROWS = 100
LEAST_USERS = 20
_LARGEST_CLICK_RATE = 0.95
"""Largest click rate to which a click model is fitted."""
_MOST_RECOMMENDATIONS = 150_000
"""Largest number of recommendations that the click model reads; of more, evenly spaced ones are taken."""


def calibrate_world(
    log: Log | str | Path,
    seed: int = 0,
    *,
    n_items: int | None = None,
    ensemble: int = MEMBERS,
    assume: Mapping[str, Any] | None = None,
    report: Callable[[str], None] = lambda stage: None,
) -> FittedWorld:
    """Fit a sessions world to a log: a best fit, an ensemble around it, and evidence on each parameter.

    Args:
        log: a log of views, recommendations or both, or the path of its file or folder.
        seed: seed of the ensemble and of simulations.
        n_items: number of items; None for the number in the log's provenance, else the largest item number plus 1.
        ensemble: number of worlds in addition to the best fit; intervals use at least 20 draws in any case.
        assume: parameters of the world to set instead of fitting them.
        report: called with a line whenever a stage begins.

    Raises:
        UserError: no world can be fitted to the log: too few rows or users, or neither views nor recommendations.
    """
    of_type(log, "log", (Log, str, Path), "a Log or a path")
    assume = dict(table_by_name(assume or {}, "assume"))
    check_asked(seed, ensemble, assume)
    if isinstance(log, (str, Path)):
        read = read_to_fit(log)
        assert isinstance(read.log, Log)  # ratings are read for their own world alone
        log = read.log
        n_items = n_items or read.n_items
    least = max(2, log.highest_item + 1)
    if n_items is None:
        n_items = log.n_items
    else:
        n_items = whole_number(n_items, "n_items", least)
    if n_items == 0:
        raise UserError("the log has neither views nor recommendations: there is nothing to fit a world to")
    log.validate(n_items)
    made_from = {
        "world": SessionsWorld.name,
        "seed": seed,
        "ensemble": ensemble,
        "assume": assume,
        "made_with": made_with(),
        "n_items": n_items,
        "log": log.digest(optional=True),
    }
    try:
        return replace(_fit_sessions(log, n_items, ensemble, seed, assume, report), made_from=made_from)
    except np.linalg.LinAlgError as error:
        raise UserError(f"the fit does not converge ({error}): bring more users, or fewer items") from error


def check_asked(seed: int, ensemble: int, assume: Mapping[str, Any]) -> None:
    """Raise UserError for an invalid argument, of those that do not depend on the log."""
    check_seed(seed)
    whole_number(ensemble, "ensemble", 0, 1000)
    SessionsParams.from_dict(assume)


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
    if np.isfinite(log["reward"][~log.is_bandit]).any():
        why = "the log has revealed ratings, which are no views"
        raise UserError(f"{why}: simulate --world ratings --set ratings_file=FILE has a world of ratings")
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
