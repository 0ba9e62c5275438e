"""Worlds made of what was fitted: the best fit, and the members of an ensemble drawn about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.fitting.calibration.clicks import PRIORS, ClickModel, Draw
from recsim_mnar.fitting.calibration.functionals import mean_square_time
from recsim_mnar.fitting.calibration.scales import expected, match_popularity
from recsim_mnar.fitting.calibration.transitions import Clock, Transitions, drawn_rows, fitted_rows
from recsim_mnar.fitting.calibration.viewing import Views
from recsim_mnar.rng import Stream, derive_seed
from recsim_mnar.worlds.sessions.catalogue import Catalogue, checked_catalogue
from recsim_mnar.worlds.sessions.params import LOGISTIC, SessionsParams

Floats = NDArray[np.float64]
Member = tuple[SessionsParams, Catalogue]

_FREE = {"p_organic_to_bandit": (0.25, 0.05, 0.5), "p_bandit_to_organic": (0.05, 0.02, 0.2)}
"""Used and taken from, lowest and highest, where the log has no recommendations."""


class Maker:
    """Parameters and catalogues of the best fit and of members."""

    def __init__(
        self,
        found: Transitions,
        clock: Clock,
        views: Views | None,
        clicks: ClickModel | None,
        n_items: int,
        seed: int,
        assume: dict[str, Any],
    ) -> None:
        self.found, self.clock, self.views, self.clicks = found, clock, views, clicks
        self.n_items, self.seed, self.assume = n_items, seed, assume
        self.n_factors = views.model.factors.shape[1] if views is not None else 0
        self._still = 1.0
        if views is not None and self.n_factors:
            self._still = expected(views.factors, views.scales.offsets, replace(views.lives, far=()), 0.0)[0]

    def best(self) -> Member:
        """The best fit."""
        views = self.views
        factors, offsets, drift = np.zeros((self.n_items, 0)), np.zeros(self.n_items), 0.0
        if views is not None:
            factors, offsets, drift = views.factors, views.scales.offsets, views.scales.drift
        clicks = self._unknown_clicks(factors, None) if self.clicks is None else self.clicks.best
        free = {name: value for name, (value, *_) in _FREE.items()}
        return self._made({**free, **fitted_rows(self.found)}, factors, offsets, drift, clicks)

    def member(self, i: int) -> Member:
        """The ensemble's i-th."""
        u = rng.uniforms(derive_seed(self.seed, "calibrate/free"), Stream.BOOTSTRAP, i, np.arange(2))
        spans = zip(_FREE.items(), u, strict=True)
        free = {name: low + (high - low) * float(d) for (name, (_, low, high)), d in spans}
        turned = self._turned(i)
        factors, offsets, drift, grown = self._drawn_views(i, turned)
        if self.clicks is None:
            clicks = self._unknown_clicks(factors, i)
        else:  # stronger factors mean weaker interests, and these stronger click factors
            clicks = self.clicks.draws[i]
            clicks = clicks._replace(theta=clicks.theta * np.append(np.full(turned.shape[1], grown), 1.0))
        return self._made({**free, **drawn_rows(self.found, self.seed, i)}, factors, offsets, drift, clicks)

    def _made(self, rows: dict[str, float], factors: Floats, offsets: Floats, drift: float, clicks: Draw) -> Member:
        beta = clicks.theta[:, :-1]
        if factors.shape[1] == 0:
            factors, beta = np.zeros((self.n_items, 1)), np.zeros((self.n_items, 1))
        clock = self.clock
        values: dict[str, Any] = {
            **rows,
            "n_items": self.n_items,
            "n_factors": factors.shape[1],
            "sigma_omega_initial": 1.0,
            "sigma_omega": float(np.sqrt(drift / mean_square_time(clock.kind, clock.mean, clock.sd))),
            "clock": clock.kind,
            "clock_mean": clock.mean,
            "clock_sd": clock.sd,
            "no_repeats": self.views is not None and self.views.lives.no_repeats,
            "click_link": clicks.link,
        }
        params = SessionsParams.from_dict({**values, **self.assume})
        return params, checked_catalogue(factors, offsets, beta, clicks.theta[:, -1], where="the fit")

    def _drawn_views(self, i: int, turned: Floats) -> tuple[Floats, Floats, float, float]:
        """Factors by their curvature; shares, strength and drift as of users drawn with weights (Rubin 1981)."""
        views = self.views
        if views is None:
            return turned, np.zeros(self.n_items), 0.0, 1.0
        seed = derive_seed(self.seed, f"calibrate/member/{i}")
        weights = -np.log1p(-rng.uniforms(seed, Stream.BOOTSTRAP, np.arange(len(views.lives.lengths)), 0))
        weights /= weights.mean()
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
        apart = np.log(expected(turned, offsets, still, 0.0)[0] / self._still)
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
        noise = rng.normals(derive_seed(self.seed, f"calibrate/member/{i}"), Stream.CATALOGUE, 0, mean.shape)
        return np.asarray(mean + np.einsum("pkl,pl->pk", np.linalg.cholesky(spread), noise))

    def _unknown_clicks(self, factors: Floats, i: int | None) -> Draw:
        """For a log without clicks: coefficients from their prior, for the best fit at its middle."""
        prior, k = PRIORS[LOGISTIC], factors.shape[1]
        normal = np.zeros((self.n_items + 1, k + 4))
        if i is not None:
            normal = rng.normals(derive_seed(self.seed, "calibrate/unknown"), Stream.BOOTSTRAP, i, normal.shape)
        r, b0, s, s_b = normal[-1, :4] * [prior.relations, prior.levels, prior.factors, prior.offsets]
        r = prior.relations if i is None else r
        offsets = prior.level + b0 + abs(s_b) * normal[:-1, -1:]
        theta = np.concatenate([r * factors + abs(s) * normal[:-1, :k], offsets], axis=1)
        return Draw(theta, LOGISTIC, float(r), float(abs(s)))
