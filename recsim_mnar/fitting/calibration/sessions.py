"""The sessions world fitted to a log of views and recommendations, or of either: the stages, in their order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.fitting.calibration.clicks import ClickModel, Shown, fit_clicks
from recsim_mnar.fitting.calibration.fitted import FittedWorld
from recsim_mnar.fitting.calibration.identified import LINK_SURE, identified_by
from recsim_mnar.fitting.calibration.members import Maker
from recsim_mnar.fitting.calibration.transitions import Transitions, clock_of, transitions_of
from recsim_mnar.fitting.calibration.view_model import interests_of
from recsim_mnar.fitting.calibration.viewing import CELLS, Views, counted_views, steps_of_users, views_of
from recsim_mnar.log.table import Log
from recsim_mnar.progress import counting
from recsim_mnar.rng import derive_seed
from recsim_mnar.worlds.sessions.params import CLICK_LINKS, LOGISTIC

Floats = NDArray[np.float64]
Report = Callable[[str], None]

LEAST_ROWS, LEAST_USERS = 100, 20
_MOST_CLICKED = 0.95
_MOST_SHOWN = 150_000


def fit_sessions(
    log: Log, *, n_items: int, n_members: int, seed: int, assume: Mapping[str, Any], report: Report
) -> FittedWorld:
    """Fit the sessions world; see :func:`recsim_mnar.fitting.calibration.calibrate_world`."""
    found = transitions_of(log)
    _refuse(log, found)
    report("count what follows what")
    clock = clock_of(log)
    views = views_of(log, n_items, seed, report) if found.organic.sum() else None
    clicks = None
    if log.is_bandit.any():
        report("fit what is clicked")
        # Where nothing is known of users the curve of RecoGym's link has no meaning.
        links = CLICK_LINKS if views is not None and views.model.factors.shape[1] else (LOGISTIC,)
        links = (str(assume["click_link"]),) if "click_link" in assume else links
        clicks = fit_clicks(_shown(log, views, n_items), n_members, derive_seed(seed, "calibrate/clicks"), links)
    if n_members:
        report(f"draw an ensemble of {n_members} worlds")
    maker = Maker(found, clock, views, clicks, n_items, seed, dict(assume))
    best = maker.best()
    members = [maker.member(i) for i in counting(range(n_members), "worlds")]
    params, catalogues = [p for p, _ in members], [c for _, c in (best, *members)]
    tables = identified_by(maker, best, members)
    return FittedWorld("sessions", best[0], params, *tables, _facts(log, maker), _method(views, clicks), catalogues)


def _refuse(log: Log, found: Transitions) -> None:
    """Refuse a log that no sessions world can be like."""
    if len(log) < LEAST_ROWS:
        raise UserError(f"the log has {len(log)} rows, a world is fitted to at least {LEAST_ROWS}: bring a longer log")
    if found.n_users < LEAST_USERS:
        raise UserError(
            f"the log has {found.n_users} user{'s' if found.n_users > 1 else ''}, a world is fitted to at least "
            f"{LEAST_USERS}: how users differ cannot be told from fewer"
        )
    same, backwards = log["user"][1:] == log["user"][:-1], np.diff(log["time"]) < 0
    if (same & backwards).any():
        first = int(np.argmax(same & backwards)) + 1
        raise UserError(
            f"the log's time runs backwards within a user (row {first:,}): lives have an order. "
            "Sort the rows by user and time"
        )
    shown = log.is_bandit
    items = np.concatenate([log["item"][~shown], log["action"][shown]])
    if len(np.unique(items)) < 2:
        raise UserError(f"the log holds one item only, {items[0]}: nothing can be preferred. Bring a log of several")
    if shown.any():
        _refuse_rewards(log["reward"][shown])


def _refuse_rewards(reward: Floats) -> None:
    odd = reward[(reward != 0) & (reward != 1)]
    if len(odd):
        raise UserError(
            f"the log has {len(odd):,} rewards that are neither 0 nor 1, such as {odd[0]:g}: the sessions world's are "
            "clicks. Write 1 for a click and 0 for none"
        )
    rate = float(reward.mean())
    if rate == 0.0 or rate > _MOST_CLICKED:
        share = "none" if rate == 0.0 else "all" if rate == 1.0 else f"{rate:.1%}"
        raise UserError(
            f"of the log's {len(reward):,} recommendations {share} were clicked: a click model needs "
            f"clicks and at least {1 - _MOST_CLICKED:.0%} that are none. Look at the column of rewards, or fit the views alone"
        )


def _shown(log: Log, views: Views | None, n_items: int) -> Shown:
    """Recommendations with their users' interests; without views nothing is known of users."""
    everyone = steps_of_users(log["user"])
    rows = np.flatnonzero(log.is_bandit)
    if len(rows) > _MOST_SHOWN:
        rows = rows[np.linspace(0, len(rows) - 1, _MOST_SHOWN).astype(np.int64)]
    wanted, user = np.unique(everyone[rows], return_inverse=True)
    pairs, place = np.unique(log["action"][rows].astype(np.int64) * len(wanted) + user, return_inverse=True)
    times, clicks = np.bincount(place).astype(np.float64), np.bincount(place, log["reward"][rows])
    k = views.model.factors.shape[1] if views is not None else 0
    interests, doubt = np.zeros((len(wanted), k)), np.zeros((len(wanted), k, k))
    factors, offsets, spread = np.zeros((n_items, k)), np.zeros(n_items), np.zeros((n_items, k, k))
    if views is not None:
        factors, offsets = views.factors, views.scales.offsets
        spread = views.scales.scale**2 * views.model.spread
        model = dataclasses.replace(views.model, factors=factors, offsets=offsets)
        whose, item = everyone[~log.is_bandit], log["item"][~log.is_bandit].astype(np.int64)
        length = np.bincount(whose, minlength=int(everyone[-1]) + 1)[wanted]
        drift = views.scales.drift * length
        batch = max(1, CELLS // n_items)
        for first in range(0, len(wanted), batch):
            own = slice(first, first + batch)
            counts = counted_views(whose, item, wanted[own], n_items)
            # The mean of a walk of n steps has n / 3 of its variance, and the walk n / 6 about its mean.
            once = views.lives.no_repeats
            interests[own], doubt[own] = interests_of(model, counts, 1.0 + drift[own] / 3.0, no_repeats=once)
        doubt += (drift / 6.0)[:, None, None] * np.eye(k)
    return Shown(pairs % len(wanted), pairs // len(wanted), times, clicks, interests, doubt, factors, offsets, spread)


def _facts(log: Log, maker: Maker) -> dict[str, Any]:
    shown, views, clicks = log.is_bandit, maker.views, maker.clicks
    facts: dict[str, Any] = {
        "rows": len(log),
        "users": maker.found.n_users,
        "items": maker.n_items,
        "views": int((~shown).sum()),
        "recommendations": int(shown.sum()),
        "clicks": int((log["reward"][shown] > 0).sum()),
        "begin_with_recommendation": maker.found.begins_with_bandit,
        "clock_spread": maker.clock.spread,
    }
    if views is not None:
        facts |= {
            "no_repeats": views.lives.no_repeats,
            "users_of_likelihood": views.n_users_fitted,
            "held_out_log_score": {str(k): list(v) for k, v in views.scores.items()},
            "factors": maker.n_factors,
            "far_lags": list(views.lives.far),
            "resemblance_misfit": views.scales.misfit.tolist(),
        }
    if clicks is not None:
        facts |= {
            "click_link": clicks.best.link,
            "click_link_weight": clicks.weight,
            "click_evidence": clicks.evidence,
            "click_log_likelihood": clicks.likelihood,
            "click_links_refused": clicks.refused,
            "click_rate_of_log": list(clicks.rates[:2]),
            "click_rate_fitted": clicks.rates[2],
        }
    return facts


def _method(views: Views | None, clicks: ClickModel | None) -> list[str]:
    lines = ["what follows what: its likelihood; ensemble: Dirichlet posterior, Jeffreys' prior"]
    if views is not None:
        lines.append("views: EM with interests that stand still, curvature; moments, Bayesian bootstrap by user")
    if clicks is not None:
        lines.append("clicks: hierarchical regression on users' interests; ensemble: normal posterior at its mode")
        sure = "" if clicks.weight >= LINK_SURE else "; the log cannot say which, the ensemble has both"
        if len(clicks.evidence) > 1:
            lines.append(f"click link: {clicks.best.link}, posterior probability {clicks.weight:.3f}{sure}")
        lines += [f"click link {link} is refused: {why}" for link, why in clicks.refused.items()]
    return lines
