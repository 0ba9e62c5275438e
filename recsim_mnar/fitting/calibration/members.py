"""Worlds made of what was fitted: the best fit, an ensemble drawn about it, and what the log says of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recsim_mnar.fitting.calibration.clicks import PRIORS, ClickModel, Draw
from recsim_mnar.fitting.calibration.transitions import Transitions, rows_of
from recsim_mnar.fitting.calibration.viewing import Views, expected, match_popularity
from recsim_mnar.log.columns import Floats
from recsim_mnar.progress import counting
from recsim_mnar.rng import Stream, derive_seed, normals, uniforms
from recsim_mnar.worlds.sessions.catalogue import Catalogue, checked_catalogue
from recsim_mnar.worlds.sessions.invariants import OF_CLICKS, OF_VIEWS, SAYS, functionals, mean_square_time
from recsim_mnar.worlds.sessions.params import LOGISTIC, SessionsParams
from recsim_mnar.worlds.sessions.world import SessionsWorld

Member = tuple[SessionsParams, Catalogue]

_FREE = {"p_organic_to_bandit": (0.25, 0.05, 0.5), "p_bandit_to_organic": (0.05, 0.02, 0.2)}
"""Used and taken from, lowest and highest, where the log has no recommendations."""
LEVEL, LINK_SURE, _OFF = 0.9, 0.95, 3.0
"""Standard errors of the log's click rate by which a fit may miss it before that is said."""
_WHY = {
    "views": "the log has no views: here all users are alike, so what agents learn from views is nothing",
    "differences": "users are not found to differ in what they view, as where items are shuffled: all are alike here",
    "rotation": "factors are known up to a rotation and a scale that interests share: sigma_omega_initial is set to 1",
    "end": "whether a user's last row is the end of their life or of the log is not known: it counts as leaving",
}

Table = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Maker:
    """Parameters and catalogues of the best fit and of members."""

    found: Transitions
    clock: dict[str, Any]
    views: Views | None
    clicks: ClickModel | None
    n_items: int
    seed: int
    assume: dict[str, Any]

    @property
    def n_factors(self) -> int:
        """Of the views."""
        return self.views.model.factors.shape[1] if self.views is not None else 0

    def best(self) -> Member:
        """The best fit."""
        factors, offsets, drift = np.zeros((self.n_items, 0)), np.zeros(self.n_items), 0.0
        if self.views is not None:
            factors, offsets, drift = self.views.factors, self.views.scales.offsets, self.views.scales.drift
        clicks = self._unknown_clicks(factors, None) if self.clicks is None else self.clicks.best
        free = {name: value for name, (value, *_) in _FREE.items()}
        return self._made({**free, **rows_of(self.found, self.seed)}, factors, offsets, drift, clicks)

    def member(self, i: int) -> Member:
        """The ensemble's i-th."""
        u = uniforms(derive_seed(self.seed, "calibrate/free"), Stream.BOOTSTRAP, i, np.arange(2)).tolist()
        free, turned = {name: low + (high - low) * u.pop() for name, (_, low, high) in _FREE.items()}, self._turned(i)
        factors, offsets, drift, grown = self._drawn_views(i, turned)
        if self.clicks is None:
            clicks = self._unknown_clicks(factors, i)
        else:  # stronger factors mean weaker interests, and these stronger click factors
            clicks = self.clicks.draws[i]
            clicks = clicks._replace(theta=clicks.theta * np.append(np.full(turned.shape[1], grown), 1.0))
        return self._made({**free, **rows_of(self.found, self.seed, i)}, factors, offsets, drift, clicks)

    def _made(self, rows: dict[str, float], factors: Floats, offsets: Floats, drift: float, clicks: Draw) -> Member:
        beta = clicks.theta[:, :-1]
        if factors.shape[1] == 0:
            factors, beta = np.zeros((self.n_items, 1)), np.zeros((self.n_items, 1))
        values: dict[str, Any] = {
            **rows,
            "n_items": self.n_items,
            "n_factors": factors.shape[1],
            "sigma_omega_initial": 1.0,
            "sigma_omega": float(np.sqrt(drift / mean_square_time(*self.clock.values()))),
            **self.clock,
            "no_repeats": self.views is not None and self.views.lives.no_repeats,
            "click_link": clicks.link,
        }
        params = SessionsParams.from_dict({**values, **self.assume})
        return params, checked_catalogue(factors, offsets, beta, clicks.theta[:, -1], where="the fit")

    def _drawn_views(self, i: int, turned: Floats) -> tuple[Floats, Floats, float, float]:
        """Factors by their curvature; shares, strength and drift as of users with weights."""
        views = self.views
        if views is None:
            return turned, np.zeros(self.n_items), 0.0, 1.0
        weights = weights_of_users(self.seed, i, len(views.lives.lengths))
        own = np.bincount(views.item, weights[views.user], self.n_items) + 0.5
        lives = replace(views.lives, log_shares=views.shares.settled(np.log(own / own.sum()) - views.shares.logs))
        offsets, scales = views.scales.offsets, views.scales
        if self.n_factors == 0 or lives.no_repeats:  # the draw's noise would make factors stronger
            turned = turned * np.sqrt((views.factors**2).sum() / max((turned**2).sum(), 1e-12))
            return turned, match_popularity(turned, offsets, lives, 0.0, rounds=8), 0.0, 1.0
        shift = np.log(np.maximum(views.resemblances(weights), 1e-9))
        shift -= np.log(np.maximum(views.resemblances(np.ones(len(weights))), 1e-9))
        move = np.linalg.lstsq(scales.slope, shift if lives.far else shift * [1.0, 0.0], rcond=1e-3)[0]
        drift = float(np.clip(scales.drift + move[1], 0.0, 4.0)) if lives.far else 0.0
        still = replace(lives, far=())
        apart = np.subtract(*(np.log(expected(each, offsets, still, 0.0)[0]) for each in (turned, views.factors)))
        grown = float(np.exp(np.clip(move[0], -0.5, 0.5)))
        factors = turned * grown * float(np.exp(np.clip(-apart / max(scales.slope[0, 0], 0.1), -0.5, 0.5)))
        return factors, match_popularity(factors, offsets, lives, drift, rounds=8), drift, grown

    def _turned(self, i: int) -> Floats:
        """Factors drawn about the fit by their curvature, given the member's click factors, which go with them."""
        views = self.views
        if views is None or not self.n_factors:
            return np.zeros((self.n_items, 0))
        k, scale = self.n_factors, views.scales.scale
        spread = scale**2 * (views.model.spread + np.swapaxes(views.model.spread, 1, 2)) / 2 + 1e-10 * np.eye(k)
        mean = views.factors
        if self.clicks is not None:
            theta, _, r, s = self.clicks.draws[i]
            gain = r * np.einsum("pij,pjk->pik", spread, np.linalg.inv(s**2 * np.eye(k) + r**2 * spread))
            mean = mean + np.einsum("pij,pj->pi", gain, theta[:, :-1] - r * mean)
            spread = spread - r * np.einsum("pij,pjk->pik", gain, spread)
            spread = (spread + np.swapaxes(spread, 1, 2)) / 2 + 1e-10 * np.eye(k)
        noise = normals(derive_seed(self.seed, f"calibrate/member/{i}"), Stream.CATALOGUE, 0, mean.shape)
        return np.asarray(mean + np.einsum("pkl,pl->pk", np.linalg.cholesky(spread), noise))

    def _unknown_clicks(self, factors: Floats, i: int | None) -> Draw:
        """For a log without clicks: coefficients from their prior, for the best fit at its middle."""
        prior, k = PRIORS[LOGISTIC], factors.shape[1]
        normal = np.zeros((self.n_items + 1, k + 4))
        if i is not None:
            normal = normals(derive_seed(self.seed, "calibrate/unknown"), Stream.BOOTSTRAP, i, normal.shape)
        r, b0, s, s_b = normal[-1, :4] * [prior.relations, prior.levels, prior.factors, prior.offsets]
        r = prior.relations if i is None else r
        offsets = prior.level + b0 + abs(s_b) * normal[:-1, -1:]
        theta = np.concatenate([r * factors + abs(s) * normal[:-1, :k], offsets], axis=1)
        return Draw(theta, LOGISTIC, float(r), float(abs(s)))


def weights_of_users(seed: int, i: int, n_users: int) -> Floats:
    """(n_users,) of mean 1, those of the i-th member's Bayesian bootstrap (Rubin 1981)."""
    own = derive_seed(seed, f"calibrate/member/{i}")
    weights = -np.log1p(-uniforms(own, Stream.BOOTSTRAP, np.arange(n_users), 0))
    return np.asarray(weights / weights.mean())


def identified_by(maker: Maker, best: Member, members: list[Member]) -> tuple[Table, Table]:
    """What the log identifies, with intervals, and what not, with the range that was taken."""
    here = functionals(SessionsWorld(best[0], catalogue=best[1]))
    draws = [functionals(SessionsWorld(p, catalogue=c)) for p, c in counting(members, "worlds")]
    identified, unknown = {}, {}
    for name, says in SAYS.items():
        values, why = [each[name] for each in draws] or [here[name]], _why_not(maker, name)
        if not why:
            identified[name] = {**interval(here[name], values), "why": says}
        elif maker.views is not None or name not in (*OF_VIEWS, *OF_CLICKS):
            unknown[name] = {"used": here[name], "low": min(values), "high": max(values), "why": f"{says}: {why}"}
    if maker.clicks is not None:
        identified["click_rate_on_log"] = rate_on_log(maker.clicks.facts)
    also = ["views"] if maker.views is None else ["rotation", "end"] if maker.n_factors else ["differences", "end"]
    return identified, {**unknown, **{name: {"why": _WHY[name]} for name in also}}


def rate_on_log(facts: dict[str, Any]) -> dict[str, Any]:
    """The fitted world's click rate held against the log's."""
    (rate, error), fitted = facts["click_rate_of_log"], facts["click_rate_fitted"]
    why = f"click rate of the best fit on the log's own recommendations; the log's is {rate:.4g}, with this interval"
    if abs(fitted - rate) > _OFF * error:
        why = f"OFF by {abs(fitted - rate) / error:.1f} standard errors: trust no click of this world; {why}"
    return {"value": fitted, "low": rate - 1.645 * error, "high": rate + 1.645 * error, "why": why}


def _why_not(maker: Maker, name: str) -> str:
    """Why the log does not identify a number; nothing where it does."""
    views = maker.views
    if name in maker.assume:
        return "assumed, as asked"
    if views is None:
        return "" if name in ("click_rate", "click_spread_items") else "the log has no views"
    if views.lives.no_repeats and name in OF_VIEWS:
        return "nobody meets an item twice; the range is the ensemble's, not known to hold the truth"
    if not maker.n_factors and name in ("drift_per_event", "click_spread_users"):
        return "users are not found to differ in what they view"
    if name == "drift_per_event" and not views.lives.far:
        return "lives are too short: too few pairs of views far apart"
    of_views = (*OF_VIEWS, "views_per_user", "p_leave_organic")
    return "" if maker.found.both or name in of_views else "the log has no recommendations"


def interval(value: float, draws: list[float]) -> dict[str, float]:
    """90 %: between quantiles of the ensemble, of 20 worlds the least and the largest; fewer give less."""
    low, high = np.quantile(draws or [value], [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], method="weibull")
    return {"value": float(value), "low": float(low), "high": float(high)}
