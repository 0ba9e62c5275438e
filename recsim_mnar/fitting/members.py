"""Worlds from a fit: the best fit, an ensemble drawn around it, and the log's evidence on each parameter."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.fitting.clicks import PRIORS, ClickModel, Draw
from recsim_mnar.fitting.positions import OF_SLATES, Evidence, Places
from recsim_mnar.fitting.viewing import FittedViews, expected, match_popularity
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.progress import counting
from recsim_mnar.rng import Stream, derive_seed, normals, uniforms
from recsim_mnar.runs.files import path_of, replacing
from recsim_mnar.runs.receipts import arrays_digest, digest_of
from recsim_mnar.worlds.params import Params
from recsim_mnar.worlds.registry import SUFFIX, entry_of, make_world, read_world_file
from recsim_mnar.worlds.sessions.catalogue import Catalogue, checked_catalogue
from recsim_mnar.worlds.sessions.invariants import OF_CLICKS, OF_VIEWS, SAYS, functionals, mean_square_time
from recsim_mnar.worlds.sessions.params import LOGISTIC, SessionsParams
from recsim_mnar.worlds.sessions.world import SessionsWorld

_JEFFREYS, _WIDEST = 0.5, 0.755


class Transitions(NamedTuple):
    """Counts of views followed by a view, a recommendation, nothing; of recommendations without and with a click."""

    organic: Ints
    bandit: Ints
    clicked: Ints
    n_users: int

    @property
    def both(self) -> bool:
        """Return whether there are views and recommendations."""
        return bool(self.organic.sum() and (self.bandit.sum() + self.clicked.sum()))


def transitions_of(log: Log) -> Transitions:
    """Count the events that follow each kind of event; the end of a user's rows counts as leaving."""
    user = log["user"]
    bandit = log.is_bandit
    following = np.full(len(user), 2)
    following[:-1] = np.where(user[1:] == user[:-1], bandit[1:].astype(np.int64), 2)
    clicked = bandit & (log["reward"] > 0)
    return Transitions(
        organic=np.bincount(following[~bandit], minlength=3),
        bandit=np.bincount(following[bandit & ~clicked], minlength=3),
        clicked=np.bincount(following[clicked], minlength=3),
        n_users=len(user_starts(user)),
    )


def rows_of(transitions: Transitions, seed: int, member: int | None = None) -> dict[str, float]:
    """Return the transition probabilities that the log identifies, at the posterior mean or drawn for a member.

    A draw is a Dirichlet one, of gamma quantiles.
    """
    from scipy.special import gammaincinv

    rows = [np.asarray(counts + _JEFFREYS, np.float64) for counts in (transitions.organic, transitions.bandit)]
    if member is not None:
        for i, row in enumerate(rows):
            member_seed = rng.derive_seed(seed, f"transitions/{i}")
            u = rng.uniforms(member_seed, rng.Stream.BOOTSTRAP, member, np.arange(3))
            rows[i] = np.maximum(gammaincinv(row, np.maximum(u, 1e-300)), 1e-12)
    organic, bandit = rows
    if transitions.both:
        organic = organic / organic.sum()
        bandit = bandit / bandit.sum()
        return {
            "p_organic_to_bandit": float(organic[1]),
            "p_leave_organic": float(organic[2]),
            "p_bandit_to_organic": float(bandit[0]),
            "p_leave_bandit": float(bandit[2]),
        }
    if transitions.organic.sum():
        return {"p_leave_organic": float(organic[2] / (organic[0] + organic[2])), "p_leave_bandit": 0.0}
    return {}


def clock_of(log: Log) -> dict[str, str | float]:
    """Fit the clock to the moments of times between events; the world's, ``|mean + sd z|``, vary by at most .756."""
    from scipy.optimize import brentq
    from scipy.stats import foldnorm

    user = log["user"]
    gap = np.diff(log["time"])[user[1:] == user[:-1]]
    if len(gap) == 0 or np.allclose(gap, 1.0) or gap.mean() <= 0:
        return {"clock": "unit", "clock_mean": 0.0, "clock_sd": 1.0}
    spread = max(float(gap.std() / gap.mean()), 1e-3)
    ratio = 0.0
    if spread < _WIDEST:
        ratio = float(brentq(lambda c: foldnorm.std(c) / foldnorm.mean(c) - spread, 0.0, 1100.0))
    sd = float(gap.mean() / foldnorm.mean(ratio))
    return {"clock": "normal", "clock_mean": ratio * sd, "clock_sd": sd}


FORMAT = 1


@dataclass(frozen=True)
class FittedWorld:
    """A world fitted to a log.

    Attributes:
        world: its name.
        params: parameters of the best fit.
        ensemble: parameters of each member.
        identified: by name, evidence on parameters that the log identifies: ``value``, ``low`` and ``high`` (90 %),
            ``why``, a sentence.
        not_identified: by name, parameters that it does not: ``used``, ``low`` and ``high`` of the draws, ``why``.
        facts: statistics of the log.
        method: sentences on the fit and the ensemble.
        catalogues: catalogues of the best fit and of each member, where the world has its items from them.
        path: file that it was read from or written to, or None.
        made_from: digest of the log, arguments, and versions of the fit; JSON types.
    """

    world: str
    params: Params
    ensemble: Sequence[Params]
    identified: dict[str, Evidence]
    not_identified: dict[str, Evidence]
    facts: Mapping[str, Any]
    method: list[str] = field(default_factory=list)
    catalogues: list[Catalogue] | None = None
    path: Path | None = None
    made_from: Mapping[str, Any] = field(default_factory=dict)

    def make(self, i: int | None = None) -> Any:
        """Make the world of the best fit, or of the ensemble's member ``i``, from 0; UserError where there is none."""
        if i is not None and not 0 <= i < len(self.ensemble):
            raise UserError(f"the ensemble has {len(self.ensemble)} worlds, from 0: there is no number {i}")
        params: Any = self.params if i is None else self.ensemble[i]
        kind: Any = entry_of(self.world).world_class()
        if self.catalogues is None:
            return kind(params)
        return kind(params, catalogue=self.catalogues[0 if i is None else i + 1])

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types, without arrays and ``made_from``."""
        best = self.params.to_dict()
        return {
            "format": FORMAT,
            "world": self.world,
            "params": best,
            "identified": self.identified,
            "not_identified": self.not_identified,
            "facts": self.facts,
            "method": self.method,
            "ensemble": [{k: v for k, v in p.to_dict().items() if v != best[k]} for p in self.ensemble],
        }

    def digest(self) -> str:
        """Return the SHA-256 of all contents."""
        return digest_of({**self.to_dict(), "arrays": arrays_digest(self._arrays())})

    def save(self, path: str | Path) -> FittedWorld:
        """Write ``WORLD.toml`` and, where there are arrays, ``WORLD.npz``; return the world of that file."""
        import tomli_w

        path = path_of(path)
        if path.suffix.lower() != SUFFIX:
            raise UserError(f"{path}: a world's file ends in {SUFFIX}")
        content = self.to_dict()
        for params in (content["params"], *content["ensemble"]):
            params.pop("catalogue_file", None)
            params.pop("catalogue_member", None)
        if self.catalogues is not None:
            arrays = path.with_suffix(".npz")
            with replacing(arrays) as temporary, temporary.open("wb") as file:
                np.savez_compressed(file, **self._arrays())
            digest = hashlib.sha256(arrays.read_bytes()).hexdigest()
            content["arrays"] = {"file": arrays.name, "sha256": digest, "parameter": "catalogue_file"}
            for i, member in enumerate(content["ensemble"]):
                member["catalogue_member"] = i + 1
        content["made_from"] = self.made_from
        with replacing(path) as temporary:
            temporary.write_text(tomli_w.dumps(content), encoding="utf-8")
        return dataclasses.replace(self, path=path)

    def _arrays(self) -> Mapping[str, Any]:
        arrays = {}
        for i, catalogue in enumerate(self.catalogues or []):
            ending = f"_{i}" if i else ""
            for name, values in catalogue.arrays().items():
                arrays[name + ending] = values
        return arrays

    @classmethod
    def load(cls, path: str | Path) -> FittedWorld:
        """Read the file of :meth:`save`; UserError if it does not exist."""
        best = make_world(str(path))
        stored = read_world_file(str(path))
        content: Mapping[str, Any] = stored.content
        members: list[Any] = [make_world(f"{path}#{i + 1}") for i in range(len(content.get("ensemble", [])))]
        catalogues = None
        if "arrays" in content:
            catalogues = [world.catalogue for world in (best, *members)]
        return cls(
            world=stored.world,
            params=best.params,
            ensemble=[world.params for world in members],
            identified=content.get("identified", {}),
            not_identified=content.get("not_identified", {}),
            facts=content.get("facts", {}),
            method=content.get("method", []),
            catalogues=catalogues,
            path=stored.path,
            made_from=content.get("made_from", {}),
        )


Member = tuple[SessionsParams, Catalogue]

_MOST_DRIFT = 4.0
"""Of a fitted world, per event."""
_FREE = {"p_organic_to_bandit": (0.25, 0.05, 0.5), "p_bandit_to_organic": (0.05, 0.02, 0.2)}
"""Used and taken from, lowest and highest, where the log has no recommendations."""
LEVEL, LINK_SURE, OFF = 0.9, 0.95, 3.0
"""Standard errors of the log's click rate by which a fit may miss it before that is said."""
_WHY = {
    "views": "the log has no views: here all users are alike, so what agents learn from views is nothing",
    "differences": "users are not found to differ in what they view, as where items are shuffled: all are alike here",
    "rotation": "factors are known up to a rotation and a scale that interests share: sigma_omega_initial is set to 1",
    "end": "whether a user's last row is the end of their life or of the log is not known: it counts as leaving",
}


@dataclass(frozen=True)
class Maker:
    """Parameters and catalogues of the best fit and of members."""

    found: Transitions
    clock: Mapping[str, Any]
    views: FittedViews | None
    clicks: ClickModel | None
    n_items: int
    seed: int
    assume: Mapping[str, Any]
    places: Places | None = None

    @property
    def n_factors(self) -> int:
        """Number of factors of the views."""
        return 0 if self.views is None else self.views.model.factors.shape[1]

    def best(self) -> Member:
        """The best fit."""
        factors = np.zeros((self.n_items, 0))
        offsets = np.zeros(self.n_items)
        drift = 0.0
        if self.views is not None:
            factors = self.views.factors
            offsets = self.views.scales.offsets
            drift = self.views.scales.drift
        if self.clicks is None:
            clicks = self._unknown_clicks(factors, None)
        else:
            clicks = self.clicks.best
        free = {name: value for name, (value, *_) in _FREE.items()}
        read: Mapping[str, object] = {} if self.places is None else self.places.params(self.places.exponent)
        return self._made({**free, **rows_of(self.found, self.seed), **read}, factors, offsets, drift, clicks)

    def member(self, i: int) -> Member:
        """The ensemble's i-th."""
        u = uniforms(derive_seed(self.seed, "calibrate/free"), Stream.BOOTSTRAP, i, np.arange(2)).tolist()
        free = {name: low + (high - low) * u.pop() for name, (_, low, high) in _FREE.items()}
        turned = self._turned(i)
        factors, offsets, drift, grown = self._drawn_views(i, turned)
        if self.clicks is None:
            clicks = self._unknown_clicks(factors, i)
        else:  # stronger factors mean weaker interests, and these stronger click factors
            clicks = self.clicks.draws[i]
            clicks = clicks._replace(theta=clicks.theta * np.append(np.full(turned.shape[1], grown), 1.0))
        read: Mapping[str, object] = {}
        if self.places is not None:
            exponent = self.places.drawn(self.seed, i)
            read = self.places.params(exponent)
            clicks.theta[:, -1] += clicks.follows * (exponent - self.places.exponent)
        return self._made({**free, **rows_of(self.found, self.seed, i), **read}, factors, offsets, drift, clicks)

    def _made(self, rows: Mapping[str, object], factors: Floats, offsets: Floats, drift: float, clicks: Draw) -> Member:
        beta = clicks.theta[:, :-1]
        if factors.shape[1] == 0:
            factors = np.zeros((self.n_items, 1))
            beta = np.zeros((self.n_items, 1))
        values: dict[str, Any] = {**rows, **self.clock, "n_items": self.n_items, "n_factors": factors.shape[1]}
        wander = float(np.sqrt(drift / mean_square_time(*self.clock.values())))
        values |= {"sigma_omega_initial": 1.0, "sigma_omega": wander, "click_link": clicks.link}
        values["no_repeats"] = self.views is not None and self.views.lives.no_repeats
        params = SessionsParams.from_dict({**values, **self.assume})
        return params, checked_catalogue(factors, offsets, beta, clicks.theta[:, -1], where="the fit")

    def _drawn_views(self, i: int, turned: Floats) -> tuple[Floats, Floats, float, float]:
        """Draw the views' parameters of member ``i``; shares, strength and drift are those of users with its weights.

        Args:
            i: the member's number.
            turned: (P, K) factors drawn about the fit.

        Returns:
            (P, K) factors, (P,) offsets, the drift per view, and the strength of preferences over the fitted one.
        """
        views = self.views
        if views is None:
            return turned, np.zeros(self.n_items), 0.0, 1.0
        weights = weights_of_users(self.seed, i, len(views.lives.lengths))
        item_views = np.bincount(views.item, weights[views.user], self.n_items) + 0.5
        errors = np.log(item_views / item_views.sum()) - views.shares.logs
        lives = replace(views.lives, log_shares=views.shares.settled(errors))
        if self.n_factors == 0 or lives.no_repeats:
            # Neither strength nor drift is fitted: the draw's noise must not make factors stronger.
            factors = turned * np.sqrt((views.factors**2).sum() / max((turned**2).sum(), 1e-12))
            drift = 0.0
            strength = 1.0
        else:
            drift, strength = self._drawn_scales(views, weights)
            factors = turned * strength * _without_noise(views, turned)
        offsets = match_popularity(factors, views.scales.offsets, lives, drift, rounds=8)
        return factors, offsets, drift, strength

    def _drawn_scales(self, views: FittedViews, weights: Floats) -> tuple[float, float]:
        """Return the drift per view and the relative strength with which weighted users resemble themselves.

        The steps solve slope @ (log strength, drift) = shift of the log resemblances; without far pairs of views the
        drift is not identified.
        """
        fitted = views.resemblances(np.ones(len(weights)))
        shift = np.log(np.maximum(views.resemblances(weights), 1e-9)) - np.log(np.maximum(fitted, 1e-9))
        if not views.lives.far:
            shift = shift * [1.0, 0.0]
        log_strength, drift_change = np.linalg.lstsq(views.scales.slope, shift, rcond=1e-3)[0]
        drift = 0.0
        if views.lives.far:
            drift = float(np.clip(views.scales.drift + drift_change, 0.0, _MOST_DRIFT))
        return drift, _bounded_exp(log_strength)

    def _turned(self, i: int) -> Floats:
        """Draw factors about the fit by their curvature, given the member's click factors, which depend on them."""
        views = self.views
        if views is None or not self.n_factors:
            return np.zeros((self.n_items, 0))
        k = self.n_factors
        scale = views.scales.scale
        spread = scale**2 * (views.model.spread + np.swapaxes(views.model.spread, 1, 2)) / 2 + 1e-10 * np.eye(k)
        mean = views.factors
        if self.clicks is not None:
            theta, _, r, s, _ = self.clicks.draws[i]
            gain = r * np.einsum("pij,pjk->pik", spread, np.linalg.inv(s**2 * np.eye(k) + r**2 * spread))
            mean = mean + np.einsum("pij,pj->pi", gain, theta[:, :-1] - r * mean)
            spread = spread - r * np.einsum("pij,pjk->pik", gain, spread)
            spread = (spread + np.swapaxes(spread, 1, 2)) / 2 + 1e-10 * np.eye(k)
        noise = normals(derive_seed(self.seed, f"calibrate/member/{i}"), Stream.CATALOGUE, 0, mean.shape)
        return np.asarray(mean + np.einsum("pkl,pl->pk", np.linalg.cholesky(spread), noise))

    def _unknown_clicks(self, factors: Floats, i: int | None) -> Draw:
        """Return coefficients for a log without clicks: drawn from their prior, its middle for the best fit."""
        prior = PRIORS[LOGISTIC]
        k = factors.shape[1]
        normal = np.zeros((self.n_items + 1, k + 4))
        if i is not None:
            normal = normals(derive_seed(self.seed, "calibrate/unknown"), Stream.BOOTSTRAP, i, normal.shape)
        r, b0, s, s_b = normal[-1, :4] * [prior.relations, prior.levels, prior.factors, prior.offsets]
        if i is None:
            r = prior.relations
        offsets = prior.level + b0 + abs(s_b) * normal[:-1, -1:]
        theta = np.concatenate([r * factors + abs(s) * normal[:-1, :k], offsets], axis=1)
        return Draw(theta, LOGISTIC, float(r), float(abs(s)))


def _without_noise(views: FittedViews, drawn: Floats) -> float:
    """Return the factor on drawn factors (P, K) that removes the effect of their noise, which raises resemblances."""
    still = replace(views.lives, far=())
    log_drawn = np.log(expected(drawn, views.scales.offsets, still, 0.0)[0])
    log_fitted = np.log(expected(views.factors, views.scales.offsets, still, 0.0)[0])
    return _bounded_exp(-(log_drawn - log_fitted) / max(views.scales.slope[0, 0], 0.1))


def _bounded_exp(logarithm: float) -> float:
    """Return the exponential of a logarithm bounded to half a unit."""
    return float(np.exp(np.clip(logarithm, -0.5, 0.5)))


def weights_of_users(seed: int, i: int, n_users: int) -> Floats:
    """Return (n_users,) weights of mean 1 of the i-th member's Bayesian bootstrap (Rubin 1981)."""
    member_seed = derive_seed(seed, f"calibrate/member/{i}")
    weights = -np.log1p(-uniforms(member_seed, Stream.BOOTSTRAP, np.arange(n_users), 0))
    return np.asarray(weights / weights.mean())


def identified_by(maker: Maker, best: Member, members: list[Member]) -> tuple[dict[str, Evidence], dict[str, Evidence]]:
    """Return evidence on parameters that the log identifies, with intervals, and on others, with the assumed range."""
    here = functionals(SessionsWorld(best[0], catalogue=best[1]))
    draws = [functionals(SessionsWorld(p, catalogue=c)) for p, c in counting(members, "worlds")]
    identified: dict[str, Evidence] = {}
    unknown: dict[str, Evidence] = {}
    for name, says in SAYS.items():
        values = [draw[name] for draw in draws]
        why = _why_not(maker, name)
        if maker.places is not None:
            says += OF_SLATES.get(name, "")
        if not why:
            identified[name] = interval(here[name], values, says)
        elif maker.views is not None or name not in (*OF_VIEWS, *OF_CLICKS):
            unknown[name] = {"used": here[name], "low": min(values), "high": max(values), "why": f"{says}: {why}"}
    if maker.clicks is not None:
        identified["click_rate_on_log"] = rate_on_log(maker.clicks.facts)
    if maker.places is not None:
        maker.places.tell(identified, unknown)
    also = ["views"]
    if maker.views is not None:
        also = ["rotation" if maker.n_factors else "differences", "end"]
    return identified, {**unknown, **{name: {"why": _WHY[name]} for name in also}}


def rate_on_log(facts: Mapping[str, Any]) -> Evidence:
    """Return the log's click rate, and its distance from the fitted world's."""
    (rate, error), off = facts["click_rate_of_log"], facts["click_rate_off"]
    why = f"click rate of the log; the best fit's on the same recommendations is {facts['click_rate_fitted']:.4g}"
    if off > OFF:
        why = f"OFF by {off:.1f} standard errors: trust no click of this world; {why}"
    return {"value": rate, "low": rate - 1.645 * error, "high": rate + 1.645 * error, "why": why}


def _why_not(maker: Maker, name: str) -> str:
    """Return why the log does not identify a number; "" if it does."""
    views = maker.views
    if name in maker.assume:
        return "assumed, as asked"
    if views is None:
        if name in ("click_rate", "click_spread_items"):
            return ""
        return "the log has no views"
    if views.lives.no_repeats and name in OF_VIEWS:
        return "no user sees an item twice; the range is the ensemble's, not known to hold the truth"
    if not maker.n_factors and name in ("drift_per_event", "click_spread_users"):
        return "users are not found to differ in what they view"
    if name == "drift_per_event" and not views.lives.far:
        return "lives are too short: too few pairs of views far apart"
    if maker.found.both or name in (*OF_VIEWS, "views_per_user", "p_leave_organic"):
        return ""
    return "the log has no recommendations"


def interval(value: float, draws: list[float], why: str = "") -> Evidence:
    """Return a 90 % interval between quantiles of the draws, 20 at least, extended to include the best fit."""
    low, high = np.quantile([*draws], [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], method="weibull")
    return {"value": float(value), "low": min(float(low), value), "high": max(float(high), value), "why": why}
