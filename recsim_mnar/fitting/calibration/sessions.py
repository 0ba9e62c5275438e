"""The sessions world fitted to a log of views and recommendations, or of either: the stages, in their order."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.fitting.calibration.clicks import CLICKS, ClickModel, Shown, fit_clicks
from recsim_mnar.fitting.calibration.clock import Clock, clock_of
from recsim_mnar.fitting.calibration.fitted import FittedWorld
from recsim_mnar.fitting.calibration.identified import identified_by
from recsim_mnar.fitting.calibration.members import MEMBER, Maker
from recsim_mnar.fitting.calibration.transitions import Transitions, transitions_of
from recsim_mnar.fitting.calibration.view_model import interests_of
from recsim_mnar.fitting.calibration.viewing import CELLS, Views, steps_of_users, views_of
from recsim_mnar.log.table import Log
from recsim_mnar.progress import counting
from recsim_mnar.resuming import stage
from recsim_mnar.rng import Stream, derive_seed
from recsim_mnar.worlds.sessions.params import CLICK_LINKS, LOGISTIC

Ints = NDArray[np.int64]
Report = Callable[[str], None]

LEAST_ROWS, LEAST_USERS = 100, 20

_MOST_SHOWN = 250_000


def fit_sessions(
    log: Log,
    *,
    n_items: int,
    n_members: int,
    seed: int,
    assume: Mapping[str, Any],
    report: Report,
) -> FittedWorld:
    """Fit the sessions world; see :func:`recsim_mnar.fitting.calibration.calibrate_world`."""
    found = transitions_of(log)
    _check_size(log, found)
    report("count what follows what")
    clock = clock_of(log)
    views = views_of(log, n_items, seed, report) if found.organic.sum() else None
    clicks = None
    if log.is_bandit.any():
        report("fit what is clicked")
        # Where nothing is known of users the curve of RecoGym's link has no meaning.
        links = CLICK_LINKS if views is not None and views.model.factors.shape[1] else (LOGISTIC,)
        links = (str(assume["click_link"]),) if "click_link" in assume else links
        own = derive_seed(seed, "calibrate/clicks")
        clicks = stage("clicks", lambda: fit_clicks(_shown(log, views, n_items, seed), n_members, own, links), CLICKS)
    if n_members:
        report(f"draw an ensemble of {n_members} worlds")
    maker = Maker(found, clock, views, clicks, n_items, seed, dict(assume))
    best, catalogue = maker.best()
    members = [
        stage(f"member-{i}", functools.partial(maker.member, i), MEMBER) for i in counting(range(n_members), "worlds")
    ]
    identified, not_identified = identified_by(maker, best, catalogue, members)
    return FittedWorld(
        "sessions",
        best,
        [params for params, _ in members],
        identified,
        not_identified,
        _facts(log, found, clock, views, clicks, n_items),
        _method(found, views, clicks),
        [catalogue, *(c for _, c in members)],
    )


def _check_size(log: Log, found: Transitions) -> None:
    if len(log) < LEAST_ROWS:
        raise UserError(f"the log has {len(log)} rows, a world is fitted to at least {LEAST_ROWS}: bring a longer log")
    if found.n_users < LEAST_USERS:
        raise UserError(
            f"the log has {found.n_users} user{'s' if found.n_users > 1 else ''}, a world is fitted to at least "
            f"{LEAST_USERS}: how users differ cannot be told from fewer"
        )


def _shown(log: Log, views: Views | None, n_items: int, seed: int) -> Shown:
    """Recommendations with their users' interests; without views everybody's are unknown."""
    bandit = log.is_bandit
    if views is None:
        rows = _first(np.flatnonzero(bandit))
        nothing = np.zeros((n_items, 0))
        click = (log["reward"][rows] > 0).astype(np.float64)
        unknown = np.zeros((len(rows), 0))
        who = steps_of_users(log["user"])[rows]
        return Shown(who, log["action"][rows].astype(np.int64), click, unknown, unknown, nothing, np.zeros(n_items))
    everyone = steps_of_users(log["user"])
    rows = _first(np.flatnonzero(bandit))
    wanted = np.unique(everyone[rows])
    organic = ~bandit
    place = np.full(int(everyone[-1]) + 1, -1)
    place[wanted] = np.arange(len(wanted))
    interests = np.zeros((len(wanted), views.factors.shape[1]))
    doubt = np.zeros((*interests.shape, interests.shape[1]))
    model = dataclasses.replace(views.model, factors=views.factors, offsets=views.scales.offsets)
    batch = max(1, CELLS // n_items)
    viewed, item = place[everyone[organic]], log["item"][organic].astype(np.int64)
    for first in range(0, len(wanted), batch):
        of = (viewed >= first) & (viewed < first + batch)
        size = min(batch, len(wanted) - first)
        cells = np.bincount((viewed[of] - first) * n_items + item[of], minlength=size * n_items)
        counts = cells.astype(np.float32).reshape(size, n_items)
        own = slice(first, first + size)
        interests[own], doubt[own] = interests_of(model, counts, no_repeats=views.lives.no_repeats)
    click = (log["reward"][rows] > 0).astype(np.float64)
    whose = place[everyone[rows]]
    moved = views.scales.drift * max(views.lives.mean_views - 1.0, 0.0)
    root = np.linalg.cholesky(doubt + (moved + 1e-9) * np.eye(interests.shape[1]))
    noise = np.einsum("ukl,ul->uk", root, rng.normals(seed, Stream.PROTOCOL, 0, interests.shape))
    return Shown(
        whose,
        log["action"][rows].astype(np.int64),
        click,
        interests[whose],
        (interests + noise)[whose],
        views.factors,
        views.scales.offsets,
    )


def _first(rows: Ints) -> Ints:
    """At most so many rows as can be read in a few seconds, evenly spaced."""
    if len(rows) <= _MOST_SHOWN:
        return rows
    return rows[np.linspace(0, len(rows) - 1, _MOST_SHOWN).astype(np.int64)]


def _facts(
    log: Log, found: Transitions, clock: Clock, views: Views | None, clicks: ClickModel | None, n_items: int
) -> dict[str, Any]:
    shown = log.is_bandit
    facts: dict[str, Any] = {
        "rows": len(log),
        "users": found.n_users,
        "items": n_items,
        "views": int((~shown).sum()),
        "recommendations": int(shown.sum()),
        "clicks": int((log["reward"][shown] > 0).sum()),
        "after_view": found.organic.tolist(),
        "after_recommendation": found.bandit.tolist(),
        "after_click": found.clicked.tolist(),
        "begin_with_recommendation": found.begins_with_bandit,
        "clock_spread": clock.spread if np.isfinite(clock.spread) else None,
    }
    if views is not None:
        near, far = np.mean([each.means() for each in views.seen], axis=0)
        facts |= {
            "no_repeats": views.lives.no_repeats,
            "users_of_likelihood": len(views.counts),
            "held_out_log_score": {str(k): list(v) for k, v in views.scores.items()},
            "factors": views.model.factors.shape[1],
            "resemblance_near": float(near),
            "resemblance_far": float(far) if views.far else None,
            "far_lags": list(views.far),
            "resemblance_misfit": views.scales.misfit.tolist(),
        }
    if clicks is not None:
        facts |= {"click_link": clicks.link, "click_evidence": clicks.evidence, "click_relation": list(clicks.relation)}
    return {name: value for name, value in facts.items() if value is not None}


def _method(found: Transitions, views: Views | None, clicks: ClickModel | None) -> list[str]:
    lines = []
    if found.both or views is not None:
        lines.append(
            "transitions: likelihood of the Markov chain in closed form; the ensemble draws from the posterior, "
            "Dirichlet with Jeffreys' prior"
        )
    if views is not None:
        lines += [
            "factors: EM on the likelihood of what is viewed, interests standing still; the ensemble draws them by "
            "their curvature (Laplace)",
            "popularity, strength and drift of preferences: simulated moments with common random numbers; the "
            "ensemble is a Bayesian bootstrap by user (Rubin 1981)",
        ]
    if clicks is not None:
        lines.append(
            "clicks: hierarchical regression on users' interests, link by evidence; the ensemble draws from the "
            "posterior (a normal approximation of the likelihood, spreads on a grid)"
        )
    return lines
