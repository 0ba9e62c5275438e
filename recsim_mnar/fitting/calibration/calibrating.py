"""calibrate_world: a log in, a world like it out; the sessions world's stages, in their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.fitting.calibration.clicks import Shown, fit_clicks
from recsim_mnar.fitting.calibration.fitted import FittedWorld
from recsim_mnar.fitting.calibration.members import LINK_SURE, Maker, identified_by
from recsim_mnar.fitting.calibration.ratings import fit_ratings, ratings_of
from recsim_mnar.fitting.calibration.transitions import clock_of, transitions_of
from recsim_mnar.fitting.calibration.view_model import interests_of
from recsim_mnar.fitting.calibration.viewing import CELLS, Views, counted_views, views_of
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.log.rows import user_numbers
from recsim_mnar.log.table import Log
from recsim_mnar.own_log.sources import read_to_fit
from recsim_mnar.progress import counting
from recsim_mnar.rng import check_seed, derive_seed
from recsim_mnar.runs.stages import work
from recsim_mnar.simulation.named import n_items_of
from recsim_mnar.worlds.registry import entry_of
from recsim_mnar.worlds.sessions.params import CLICK_LINKS, LOGISTIC

WORLDS = ("sessions", "ratings")
MEMBERS = 20
LEAST_ROWS, LEAST_USERS = 100, 20
_MOST_CLICKED, _MOST_SHOWN = 0.95, 150_000


def calibrate_world(
    log: Log | Ratings | str | Path,
    world: str = "sessions",
    seed: int = 0,
    *,
    n_items: int | None = None,
    ensemble: int = MEMBERS,
    assume: Mapping[str, Any] | None = None,
    report: Callable[[str], None] = lambda stage: None,
) -> FittedWorld:
    """Fit a world to a log, and say what the log identifies; :func:`recsim_mnar.runs.stages.resumable` takes it up.

    Args:
        log: views and recommendations, or either; revealed ratings for the ratings world; or a file's or folder's path.
        world: ``sessions`` or ``ratings``.
        seed: of the ensemble and of simulations.
        n_items: how many items there are; where None as many as the log's provenance or its largest number says.
        ensemble: worlds beside the best fit.
        assume: parameters of the world that are set, not fitted.
        report: called with a line whenever a stage begins.

    Raises:
        UserError: a log that no world can be fitted to: too few rows or users, no views and no recommendations.
    """
    check_seed(seed)
    if world not in WORLDS:
        raise UserError(f"calibrate fits the worlds {' and '.join(WORLDS)}, got {world!r}; {nearest(world, WORLDS)}")
    if isinstance(ensemble, bool) or not 0 <= ensemble <= 1000:
        raise UserError(f"ensemble must be a number of worlds from 0 to 1,000, got {ensemble}")
    assume = dict(assume or {})
    kind: Any = entry_of(world).world_class()
    kind.params_class.from_dict(assume)
    if isinstance(log, (str, Path)):
        read = read_to_fit(log, world)
        log, n_items = read.log, n_items or read.n_items
    asked = {"world": world, "seed": seed, "ensemble": ensemble, "assume": assume}
    if isinstance(log, Ratings) or kind.rates:
        if not kind.rates:
            raise UserError('revealed ratings are fitted by the ratings world: world="ratings"')
        ratings = log if isinstance(log, Ratings) else ratings_of(log, n_items)
        with work("calibrate", lambda: {**asked, "n_items": ratings.n_items, "log": ratings.digest()}):
            return fit_ratings(ratings, n_members=ensemble, seed=seed, assume=assume, report=report)
    events, n_items = log, n_items_of(log) if n_items is None else n_items
    if n_items == 0:
        raise UserError("the log has neither views nor recommendations: there is nothing to fit a world to")
    events.validate(n_items)
    with work("calibrate", lambda: {**asked, "n_items": n_items, "log": events.digest(optional=True)}):
        return _fit_sessions(events, n_items, ensemble, seed, assume, report)


def _fit_sessions(
    log: Log, n_items: int, n_members: int, seed: int, assume: dict[str, Any], report: Callable[[str], None]
) -> FittedWorld:
    found, shown = transitions_of(log), log.is_bandit
    _refuse(log, found.n_users)
    views = views_of(log, n_items, seed, report) if found.organic.sum() else None
    clicks = None
    if shown.any():
        report("fit what is clicked")
        # Where nothing is known of users the curve of RecoGym's link has no meaning.
        links = CLICK_LINKS if views is not None and views.model.factors.shape[1] else (LOGISTIC,)
        links = (str(assume["click_link"]),) if "click_link" in assume else links
        clicks = fit_clicks(_shown(log, views, n_items), n_members, derive_seed(seed, "calibrate/clicks"), links)
    maker = Maker(found, clock_of(log), views, clicks, n_items, seed, assume)
    worlds = [maker.best(), *(maker.member(i) for i in counting(range(n_members), "worlds"))]
    facts = {
        "rows": len(log),
        "users": found.n_users,
        "items": n_items,
        "views": int((~shown).sum()),
        "recommendations": int(shown.sum()),
        "clicks": int((log["reward"][shown] > 0).sum()),
        "factors": maker.n_factors,
        "no_repeats": views is not None and views.lives.no_repeats,
        **(clicks.facts if clicks is not None else {}),
    }
    (best, *params), catalogues = zip(*worlds, strict=True)
    tables = identified_by(maker, worlds[0], worlds[1:])
    return FittedWorld("sessions", best, params, *tables, facts, _method(facts), list(catalogues))


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
    rate = float(reward.mean()) if len(reward) else 0.5
    if rate == 0.0 or rate > _MOST_CLICKED:
        were = f"of the log's {len(reward):,} recommendations {'none' if rate == 0.0 else f'{rate:.1%}'} were clicked"
        needed = f"a click model needs clicks and at least {1 - _MOST_CLICKED:.0%} without"
        raise UserError(f"{were}: {needed}. Look at the column of rewards")


def _shown(log: Log, views: Views | None, n_items: int) -> Shown:
    """Recommendations with their users' interests; without views nothing is known of users."""
    everyone = user_numbers(log["user"])
    rows = np.flatnonzero(log.is_bandit)
    if len(rows) > _MOST_SHOWN:
        rows = rows[np.linspace(0, len(rows) - 1, _MOST_SHOWN).astype(np.int64)]
    wanted, user = np.unique(everyone[rows], return_inverse=True)
    pairs, place = np.unique(log["action"][rows].astype(np.int64) * len(wanted) + user, return_inverse=True)
    times, clicks = np.bincount(place).astype(float), np.bincount(place, log["reward"][rows]).astype(float)
    k = views.model.factors.shape[1] if views is not None else 0
    interests, doubt = (np.zeros((len(wanted), *size)) for size in ((k,), (k, k)))
    factors, offsets, spread = (np.zeros((n_items, *size)) for size in ((k,), (), (k, k)))
    if views is not None:
        factors, offsets, spread = views.factors, views.scales.offsets, views.scales.scale**2 * views.model.spread
        model = replace(views.model, factors=factors, offsets=offsets)
        whose, item = everyone[~log.is_bandit], log["item"][~log.is_bandit].astype(np.int64)
        drift = np.asarray(views.scales.drift * np.bincount(whose, minlength=int(everyone[-1]) + 1)[wanted], np.float64)
        batch, once = max(1, CELLS // n_items), views.lives.no_repeats
        for own in (slice(first, first + batch) for first in range(0, len(wanted), batch)):
            counts = counted_views(whose, item, wanted[own], n_items)
            # The mean of a walk of n steps has n / 3 of its variance, and the walk n / 6 about its mean.
            interests[own], doubt[own] = interests_of(model, counts, 1.0 + drift[own] / 3.0, no_repeats=once)
        doubt += (drift / 6.0)[:, None, None] * np.eye(k)
    action, to = np.divmod(pairs, len(wanted))
    return Shown(to, action, times, clicks, interests, doubt, factors, offsets, spread)


def _method(facts: Mapping[str, Any]) -> list[str]:
    lines = [f"click link {link} is refused: {why}" for link, why in facts.get("click_links_refused", {}).items()]
    if len(facts.get("click_evidence", ())) < 2:
        return lines
    weight = facts["click_link_weight"]
    sure = "" if weight >= LINK_SURE else "; the log cannot say which, the ensemble has both"
    return [f"click link: {facts['click_link']}, posterior probability {weight:.3f}{sure}", *lines]
