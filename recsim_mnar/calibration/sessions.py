"""The sessions world fitted to a log of views and recommendations, or of either."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.calibration import functionals as told
from recsim_mnar.calibration.clicks import ClickModel, Shown, fit_clicks
from recsim_mnar.calibration.fitted import FittedWorld
from recsim_mnar.calibration.scales import (
    Affinity,
    Lives,
    Resemblance,
    Scales,
    by_factors,
    far_lags,
    fit_scales,
    match_popularity,
    resemblance,
    same_item,
)
from recsim_mnar.calibration.transitions import Transitions, drawn_rows, fitted_rows, transitions_of
from recsim_mnar.calibration.view_model import ViewModel, fit_views, interests_of, log_score
from recsim_mnar.errors import UserError
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.rng import Stream, derive_seed
from recsim_mnar.worlds.sessions.catalogue import Catalogue, checked_catalogue
from recsim_mnar.worlds.sessions.params import CLICK_LINKS, LOGISTIC, SessionsParams

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Report = Callable[[str], None]

LEAST_ROWS, LEAST_USERS = 100, 20
RANKS = (2, 5, 8)
LEVEL = 0.9

_CELLS = 4_000_000
_MOST_USERS = 4000
_MOST_SHOWN = 250_000
_HELD_OUT = 0.1
_CLEARLY, _LIKELY = 2.0, 0.5
_PAIRED = 0.3
"""Share, about, of a score's standard error that a difference of two scores of the same views has."""
_RANKING = 800
_ITERATIONS, _FEWER = 14, 8
_FREE = {
    "p_organic_to_bandit": (0.25, 0.05, 0.5, "the log has no recommendations: how often they come is not known"),
    "p_bandit_to_organic": (0.05, 0.02, 0.2, "the log has no recommendations: how long they go on is not known"),
}
_LEVELS = (0.005, 0.05)


@dataclass(frozen=True)
class _Views:
    """Views of U users (numbered from 0, in their order), and what was made of them."""

    user: Ints
    item: Ints
    counts: NDArray[np.float32]
    lives: Lives
    model: ViewModel
    scales: Scales
    seen: list[Resemblance]
    far: tuple[int, ...]
    scores: dict[int, tuple[float, float]]
    error: float

    @property
    def factors(self) -> Floats:
        return self.scales.scale * self.model.factors


def fit_sessions(
    log: Log,
    *,
    n_items: int,
    n_members: int,
    seed: int,
    assume: Mapping[str, Any],
    report: Report,
) -> FittedWorld:
    """Fit the sessions world; see :func:`recsim_mnar.calibration.calibrate_world`."""
    found = transitions_of(log)
    _check_size(log, found)
    report("count what follows what")
    clock = _clock(log)
    views = _fit_views(log, n_items, seed, report) if found.organic.sum() else None
    clicks = None
    if log.is_bandit.any():
        report("fit what is clicked")
        # Where nothing is known of users the curve of RecoGym's link has no meaning.
        links = CLICK_LINKS if views is not None and views.model.factors.shape[1] else (LOGISTIC,)
        links = (str(assume["click_link"]),) if "click_link" in assume else links
        clicks = fit_clicks(_shown(log, views, n_items, seed), n_members, derive_seed(seed, "calibrate/clicks"), links)
    report(f"draw an ensemble of {n_members} worlds")
    maker = _Maker(found, clock, views, clicks, n_items, seed, dict(assume))
    best, catalogue = maker.best()
    members = [maker.member(i) for i in range(n_members)]
    identified, not_identified = maker.told(best, catalogue, members)
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


@dataclass(frozen=True)
class _Clock:
    """Parameters of the clock, and what of the log's it does not hold."""

    kind: str
    mean: float
    sd: float
    spread: float

    @property
    def square(self) -> float:
        return told.mean_square_time(self.kind, self.mean, self.sd)


def _clock(log: Log) -> _Clock:
    """By the moments of times between a user's events: |mean + sd z| varies by at most .756 of its mean."""
    user, time = log["user"], log["time"]
    gap = np.diff(time)[user[1:] == user[:-1]]
    if len(gap) == 0 or np.allclose(gap, 1.0):
        return _Clock("unit", 0.0, 1.0, 0.0)
    mean, square = float(gap.mean()), float((gap**2).mean())
    if mean <= 0:
        return _Clock("unit", 0.0, 1.0, float("nan"))
    spread = float(np.sqrt(max(square - mean**2, 0.0)) / mean)
    if spread >= 0.755:
        return _Clock("normal", 0.0, mean * float(np.sqrt(np.pi / 2)), spread)
    location, sd = _folded(mean, square)
    return _Clock("normal", location, sd, spread)


def _folded(mean: float, square: float) -> tuple[float, float]:
    """Mean and deviation of z with which |z| has this mean and mean square."""
    from scipy.special import erf

    shares = np.linspace(0.0, 1.0, 4001)[1:]
    location, sd = np.sqrt(square * shares), np.sqrt(square * (1 - shares))
    with np.errstate(divide="ignore", over="ignore"):
        ratio = np.where(sd > 0, location / np.maximum(sd, 1e-12), np.inf)
        folded = sd * np.sqrt(2 / np.pi) * np.exp(-0.5 * ratio**2) + location * erf(ratio / np.sqrt(2))
    best = int(np.argmin(np.abs(folded - mean)))
    return float(location[best]), float(sd[best])


def _fit_views(log: Log, n_items: int, seed: int, report: Report) -> _Views:
    organic = log.organic()
    user = steps_of_users(organic["user"])
    item = organic["item"].astype(np.int64)
    n_users = int(user[-1]) + 1
    repeats = int(len(item) - len(np.unique(user * n_items + item)))
    by_item = np.bincount(item, minlength=n_items).astype(np.float64)
    lengths = np.bincount(user)
    expected = float((lengths * (lengths - 1.0)).sum() / 2 * ((by_item / by_item.sum()) ** 2).sum())
    no_repeats = repeats == 0 and expected > 5.0
    error = _error_of_shares(user, item, by_item)
    shares = settled_shares((by_item + 0.5) / (by_item.sum() + 0.5 * n_items), error)
    lives = Lives(shares, len(item) / n_users, no_repeats)
    kept = _some_users(n_users, n_items, seed)
    counts = _counts(user, item, kept, n_users, n_items, no_repeats)
    model, scores = _ranked(counts, no_repeats, seed, report)
    k = model.factors.shape[1]
    far = far_lags(user)
    report("set the strength and the drift of preferences")
    affinities, seen = _affinities(user, item, counts, kept, k, lives, far, seed)
    if k == 0:
        offsets = match_popularity(model.factors, model.offsets, lives, 0.0)
        scales = Scales(1.0, 0.0, offsets, np.eye(2), False, np.zeros(2), np.zeros(2))
    else:
        observed = np.mean([each.means() for each in seen], axis=0)
        scales = fit_scales(model.factors, model.offsets, lives, observed, affinities, far)
    return _Views(user, item, counts, lives, model, scales, seen, far, scores, error)


def _error_of_shares(user: Ints, item: Ints, by_item: Floats) -> float:
    """Mean variance of the logarithm of an item's share of views, items weighted by them, users drawn anew."""
    n_items, total = len(by_item), by_item.sum()
    pairs, count = np.unique(user * n_items + item, return_counts=True)
    squares = np.bincount(pairs % n_items, count.astype(np.float64) ** 2, n_items)
    lengths = np.bincount(user).astype(np.float64)
    cross = np.bincount(pairs % n_items, count * lengths[pairs // n_items], n_items)
    shares = by_item / total
    variance = (squares - 2.0 * shares * cross + shares**2 * (lengths**2).sum()) / total**2
    return float((variance / np.maximum(shares, 0.5 / total)).sum())


def settled_shares(shares: Floats, error: float) -> Floats:
    """Shares whose logarithms vary as those of true shares do: what sampling adds is taken out.

    Args:
        shares: (P,) as estimated.
        error: mean variance of their logarithms' errors, weighted by the shares.
    """
    logs = np.log(shares)
    centre = float(shares @ logs)
    spread = float(shares @ (logs - centre) ** 2)
    kept = np.sqrt(max(1.0 - error / max(spread, 1e-12), 0.0))
    settled = np.exp(centre + kept * (logs - centre))
    return np.asarray(settled / settled.sum(), np.float64)


def steps_of_users(user: Ints) -> Ints:
    """Users numbered 0, 1, ... in their order of rows, (n,)."""
    numbers = np.zeros(len(user), np.int64)
    numbers[user_starts(user)[1:]] = 1
    return np.cumsum(numbers)


def _some_users(n_users: int, n_items: int, seed: int) -> Ints:
    """Users whose views the likelihood is of: all, or so many drawn as cells of a table are bearable."""
    most = int(min(n_users, _MOST_USERS, max(_CELLS // n_items, 200)))
    drawn = rng.uniforms(seed, Stream.FIT, np.arange(n_users), 3)
    return np.sort(np.argsort(drawn, kind="stable")[:most])


def _counts(user: Ints, item: Ints, kept: Ints, n_users: int, n_items: int, once: bool) -> NDArray[np.float32]:
    place = np.full(n_users, -1)
    place[kept] = np.arange(len(kept))
    mine = place[user] >= 0
    counts = np.zeros(len(kept) * n_items, np.float32)
    counts += np.bincount(place[user[mine]] * n_items + item[mine], minlength=len(counts)).astype(np.float32)
    table = counts.reshape(len(kept), n_items)
    return np.minimum(table, np.float32(1.0)) if once else table


def _ranked(
    counts: NDArray[np.float32], no_repeats: bool, seed: int, report: Report
) -> tuple[ViewModel, dict[int, tuple[float, float]]]:
    """The model with as many factors as predict held-out views best; none where none does better than popularity."""
    whole = counts
    if no_repeats:  # each cell costs an exponential more
        counts = counts[:_RANKING]
    users, items = np.nonzero(counts)
    times = counts[users, items].astype(np.int64)
    users, items = np.repeat(users, times), np.repeat(items, times)
    out = rng.uniforms(seed, Stream.PROTOCOL, np.arange(len(users)), 9) < _HELD_OUT
    test = np.zeros_like(counts)
    np.add.at(test, (users[out], items[out]), 1.0)
    train = counts - test
    scores: dict[int, tuple[float, float]] = {}
    last = None
    for k in (0, *(k for k in RANKS if k < counts.shape[1])):
        report(f"fit what is viewed with {k} factors" if k else "fit what is viewed by popularity alone")
        fit = fit_views(train, k, no_repeats=no_repeats, seed=seed, iterations=_FEWER)
        scores[k] = log_score(fit, train, test, no_repeats=no_repeats)
        if last is not None and k > 2 and scores[k][0] < scores[last][0]:
            break
        last = k
    best = 0
    for k, (score, error) in scores.items():
        if score - scores[best][0] > (_CLEARLY if best == 0 else _LIKELY) * _PAIRED * error:
            best = k
    report(f"fit what is viewed, {best} factors")
    return fit_views(whole, best, no_repeats=no_repeats, seed=seed, iterations=_ITERATIONS), scores


def _affinities(
    user: Ints,
    item: Ints,
    counts: NDArray[np.float32],
    kept: Ints,
    k: int,
    lives: Lives,
    far: tuple[int, ...],
    seed: int,
) -> tuple[list[Affinity], list[Resemblance]]:
    """By what users resemble themselves, and how much they do; of other users' factors where items are met once."""
    if not lives.no_repeats or k == 0:
        return [same_item], [resemblance(user, item, same_item, far)]
    half = np.arange(len(kept)) % 2 == 0
    affinities = [
        by_factors(fit_views(counts[of], k, no_repeats=True, seed=seed, iterations=_FEWER).factors)
        for of in (half, ~half)
    ]
    fitted_on = np.full(int(user[-1]) + 1, -1)
    fitted_on[kept[half]], fitted_on[kept[~half]] = 0, 1
    seen = []
    for side, affinity in enumerate(affinities):
        whole = resemblance(user, item, affinity, far)
        others = (fitted_on != side).astype(np.float64)[:, None]
        seen.append(Resemblance(whole.sums * others, whole.pairs * others))
    return affinities, seen


def _shown(log: Log, views: _Views | None, n_items: int, seed: int) -> Shown:
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
    batch = max(1, _CELLS // n_items)
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


class _Maker:
    """Parameters and catalogues of the best fit and of members."""

    def __init__(
        self,
        found: Transitions,
        clock: _Clock,
        views: _Views | None,
        clicks: ClickModel | None,
        n_items: int,
        seed: int,
        assume: dict[str, Any],
    ) -> None:
        self.found, self.clock, self.views, self.clicks = found, clock, views, clicks
        self.n_items, self.seed, self.assume = n_items, seed, assume
        self.n_factors = views.model.factors.shape[1] if views is not None else 0
        self.observed = np.mean([each.means() for each in views.seen], axis=0) if views is not None else np.zeros(2)

    def best(self) -> tuple[SessionsParams, Catalogue]:
        """The best fit."""
        views, clicks = self.views, self.clicks
        if views is None:
            factors, offsets, drift = np.zeros((self.n_items, 0)), np.zeros(self.n_items), 0.0
        else:
            factors, offsets, drift = views.factors, views.scales.offsets, views.scales.drift
        own = None if clicks is None else (clicks.factors, clicks.offsets)
        free = {name: value for name, (value, *_) in _FREE.items()}
        return self._made(fitted_rows(self.found), free, factors, offsets, drift, own, (0.5, 0.02))

    def member(self, i: int) -> tuple[SessionsParams, Catalogue]:
        """The ensemble's i-th."""
        u = rng.uniforms(derive_seed(self.seed, "calibrate/free"), Stream.BOOTSTRAP, i, np.arange(4))
        spans = [(low, high) for _, low, high, _ in _FREE.values()]
        free = {name: low + (high - low) * float(d) for name, (low, high), d in zip(_FREE, spans, u, strict=False)}
        factors, offsets, drift = self._drawn_views(i)
        own = None if self.clicks is None else self._drawn_clicks(i, factors)
        level = _LEVELS[0] * (_LEVELS[1] / _LEVELS[0]) ** float(u[3])
        return self._made(
            drawn_rows(self.found, self.seed, i), free, factors, offsets, drift, own, (float(u[2]), level)
        )

    def _made(
        self,
        rows: dict[str, float],
        free: dict[str, float],
        factors: Floats,
        offsets: Floats,
        drift: float,
        clicks: tuple[Floats, Floats] | None,
        unknown_clicks: tuple[float, float],
    ) -> tuple[SessionsParams, Catalogue]:
        link = LOGISTIC if self.clicks is None else self.clicks.link
        if clicks is None:
            far = 1.0 + 0.5 * drift * (self.views.lives.mean_views if self.views is not None else 0.0)
            clicks = _assumed_clicks(factors, *unknown_clicks, self.seed)
            clicks = clicks[0] / np.sqrt(far), clicks[1]
        if factors.shape[1] == 0:
            factors = np.zeros((self.n_items, 1))
            clicks = np.zeros((self.n_items, 1)), clicks[1]
        values: dict[str, Any] = {
            **free,
            **rows,
            "n_items": self.n_items,
            "n_factors": factors.shape[1],
            "sigma_omega_initial": 1.0,
            "sigma_omega": float(np.sqrt(drift / self.clock.square)),
            "clock": self.clock.kind,
            "clock_mean": self.clock.mean,
            "clock_sd": self.clock.sd,
            "no_repeats": self.views is not None and self.views.lives.no_repeats,
            "click_link": link,
        }
        params = SessionsParams.from_dict({**values, **self.assume})
        return params, checked_catalogue(factors, offsets, *clicks, where="the fit")

    def _drawn_views(self, i: int) -> tuple[Floats, Floats, float]:
        """Factors by their curvature; shares, strength and drift as of users drawn with weights (Rubin 1981)."""
        views = self.views
        if views is None:
            return np.zeros((self.n_items, 0)), np.zeros(self.n_items), 0.0
        seed = derive_seed(self.seed, f"calibrate/member/{i}")
        n_users = int(views.user[-1]) + 1
        weights = -np.log1p(-rng.uniforms(seed, Stream.BOOTSTRAP, np.arange(n_users), 0))
        weights /= weights.mean()
        own = np.bincount(views.item, weights[views.user], self.n_items) + 0.5
        # The log's own error, and as much again of the weights.
        lives = dataclasses.replace(views.lives, shares=settled_shares(own / own.sum(), 2.0 * views.error))
        if self.n_factors == 0:
            return views.model.factors, match_popularity(views.model.factors, views.scales.offsets, lives, 0.0), 0.0
        drawn = np.mean([each.means(weights) for each in views.seen], axis=0)
        shift = np.log(np.maximum(drawn, 1e-9)) - np.log(np.maximum(self.observed, 1e-9))
        if not views.scales.drift_found:
            shift[1] = 0.0
        move = np.linalg.lstsq(views.scales.slope, shift, rcond=1e-3)[0]
        scale = views.scales.scale * float(np.exp(np.clip(move[0], -0.5, 0.5)))
        drift = float(np.clip(views.scales.drift + move[1], 0.0, 4.0)) if views.scales.drift_found else 0.0
        factors = scale * _turned(views.model, seed)
        return factors, match_popularity(factors, views.scales.offsets, lives, drift, rounds=8), drift

    def _drawn_clicks(self, i: int, factors: Floats) -> tuple[Floats, Floats]:
        """Click factors and offsets; where they go with views they go with those of this member."""
        assert self.clicks is not None
        beta, offsets = self.clicks.draws[i]
        if self.views is None or not self.n_factors:
            return beta, offsets
        return beta + self.clicks.relations[i] * (factors - self.views.factors), offsets

    def told(
        self, best: SessionsParams, catalogue: Catalogue, members: list[tuple[SessionsParams, Catalogue]]
    ) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
        """What the log identifies, with intervals, and what not, with the range that was taken."""
        from recsim_mnar.worlds.sessions.world import SessionsWorld

        here = told.functionals(SessionsWorld(best, catalogue=catalogue))
        draws = [told.functionals(SessionsWorld(p, catalogue=c)) for p, c in members]
        known = self._known()
        identified = {
            name: {**_interval(here[name], [each[name] for each in draws]), "why": told.SAYS[name]}
            for name in told.SAYS
            if name in known
        }
        return identified, self._unknown(here, draws, known)

    def _known(self) -> set[str]:
        known: set[str] = (
            set(fitted_rows(self.found)) if self.found.both else {"p_leave_organic"} & set(fitted_rows(self.found))
        )
        if self.views is not None:
            known |= {"popularity_entropy", "popularity_gini", "personal_bits", "views_per_user"}
            known |= {"drift_per_event"} if self.views.scales.drift_found and self.n_factors else set()
        if self.clicks is not None:
            known |= {"click_rate", "click_spread_items"}
        if self.found.both:
            known |= {"recommendations_per_user"}
            known |= {"click_spread_users", "click_view_agreement"} if self.n_factors else set()
        return known - set(self.assume)

    def _unknown(
        self, here: dict[str, float], draws: list[dict[str, float]], known: set[str]
    ) -> dict[str, dict[str, Any]]:
        unknown: dict[str, dict[str, Any]] = {}
        for name in told.SAYS:
            if name in known or (self.views is None and name in (*told.OF_VIEWS, *told.OF_CLICKS)):
                continue
            values = [each[name] for each in draws] or [here[name]]
            why = f"{told.SAYS[name]}: {self._reason(name)}"
            unknown[name] = {"used": here[name], "low": min(values), "high": max(values), "why": why}
        if self.views is None:
            unknown["views"] = {
                "why": "the log has no views: what users view, how they differ and how their interests drift is not "
                "known; in this world all items are viewed alike and all users are alike, so agents that learn from "
                "views have nothing to learn from"
            }
        elif not self.n_factors:
            unknown["differences"] = {
                "why": "users are not found to differ in what they view: views that were held out are foretold by "
                "popularity as well as by factors, as in a log whose items were shuffled; agents that personalise "
                "have nothing to learn from here"
            }
        if self.views is not None:
            unknown["rotation"] = {
                "why": "factors are identified up to a rotation and a common scale of interests and factors: "
                "sigma_omega_initial is set to 1"
            }
            unknown["end"] = {
                "why": "whether a user's last row is the end of their life or of the log is not known: it counts as "
                "leaving"
            }
        return unknown

    def _reason(self, name: str) -> str:
        if name in self.assume:
            return "assumed, as asked"
        if self.views is None:
            return "the log has no views"
        if name == "drift_per_event" and not self.n_factors:
            return "users are not found to differ in what they view, so nothing can drift"
        if self.clicks is None and name != "drift_per_event":
            return "the log has no recommendations"
        if name == "drift_per_event":
            return "lives are too short: too few pairs of views far apart"
        return "users are not found to differ in what they view"


def _turned(model: ViewModel, seed: int) -> Floats:
    """Factors drawn about the fit by their curvature, brought back to the fit's size."""
    k = model.factors.shape[1]
    root = np.linalg.cholesky((model.spread + np.swapaxes(model.spread, 1, 2)) / 2 + 1e-10 * np.eye(k))
    noise = rng.normals(seed, Stream.CATALOGUE, 0, (len(model.factors), k))
    drawn = model.factors + np.einsum("pkl,pl->pk", root, noise)
    return np.asarray(drawn * np.sqrt((model.factors**2).sum() / max((drawn**2).sum(), 1e-12)), np.float64)


def _assumed_clicks(factors: Floats, agreement: float, level: float, seed: int) -> tuple[Floats, Floats]:
    """Click factors that go with views as far as said, for a log without clicks: a share of items swap theirs."""
    n_items, k = factors.shape
    ranked = np.argsort(rng.uniforms(seed, Stream.CATALOGUE, np.arange(n_items), 77), kind="stable")
    swapped = ranked[: round((1.0 - agreement) * n_items)]
    own = factors.copy()
    own[swapped] = factors[np.roll(swapped, 1)]
    own *= 0.5 / max(float(np.sqrt((own**2).sum(axis=1).mean())), 1e-9) if k else 1.0
    return own, np.full(n_items, float(np.log(level / (1.0 - level))))


def _interval(value: float, draws: list[float]) -> dict[str, float]:
    """90 %: between quantiles of the ensemble, of 20 worlds the least and the largest; fewer give less."""
    low, high = np.quantile(draws or [value], [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], method="weibull")
    return {"value": value, "low": float(low), "high": float(high)}


def _facts(
    log: Log, found: Transitions, clock: _Clock, views: _Views | None, clicks: ClickModel | None, n_items: int
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


def _method(found: Transitions, views: _Views | None, clicks: ClickModel | None) -> list[str]:
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
