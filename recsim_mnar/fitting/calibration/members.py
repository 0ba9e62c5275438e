"""Worlds made of what was fitted: the best fit, and the members of an ensemble drawn about it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.fitting.calibration.clicks import ClickModel
from recsim_mnar.fitting.calibration.clock import Clock
from recsim_mnar.fitting.calibration.scales import match_popularity
from recsim_mnar.fitting.calibration.transitions import Transitions, drawn_rows, fitted_rows
from recsim_mnar.fitting.calibration.view_model import ViewModel
from recsim_mnar.fitting.calibration.viewing import Views, settled_shares
from recsim_mnar.resuming import Arrays, Form, as_text, of_text
from recsim_mnar.rng import Stream, derive_seed
from recsim_mnar.worlds.sessions.catalogue import Catalogue, checked_catalogue
from recsim_mnar.worlds.sessions.params import LOGISTIC, SessionsParams

Floats = NDArray[np.float64]

_FREE = {
    "p_organic_to_bandit": (0.25, 0.05, 0.5, "the log has no recommendations: how often they come is not known"),
    "p_bandit_to_organic": (0.05, 0.02, 0.2, "the log has no recommendations: how long they go on is not known"),
}
_LEVELS = (0.005, 0.05)
"""Click rates between which that of a log without clicks is taken."""


def _member_arrays(member: tuple[SessionsParams, Catalogue]) -> Arrays:
    params, catalogue = member
    return {"params": as_text(params.to_dict()), "flips": catalogue.flips, **catalogue.arrays()}


def _member(found: Arrays) -> tuple[SessionsParams, Catalogue]:
    catalogue = Catalogue(**{name: array for name, array in found.items() if name != "params"})
    return SessionsParams.from_dict(of_text(found["params"])), catalogue


MEMBER = Form(_member_arrays, _member)
"""How a member lies in a file."""


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
