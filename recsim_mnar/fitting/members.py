"""Worlds from a fit: the best fit, an ensemble drawn around it, and the log's evidence on each parameter."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.fitting.clicks import PRIORS, ClickModel, Draw
from recsim_mnar.fitting.viewing import FittedViews, expected_ratios, match_popularity
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

_JEFFREYS = 0.5
"""Jeffreys' prior count of each transition."""
_LARGEST_RATIO = 0.755
"""Largest ratio of standard deviation to mean of |mean + sd z|, just under that for mean 0, sqrt(pi / 2 - 1)."""


class Evidence(TypedDict, total=False):
    """Evidence of a log on a number of a fitted world.

    Attributes:
        value: estimate, where the log identifies the number.
        low, high: interval of the estimate; or range of the ensemble where the log does not identify the number.
        used: value in the fitted world, where the log does not identify the number.
        why: sentence on the number, or on the reason why it is not identified.
    """

    value: float
    low: float
    high: float
    used: object
    why: str


class Transitions(NamedTuple):
    """Counts of the event that follows each kind of event.

    Attributes:
        organic: (3,) views followed by a view, by a recommendation, and by nothing.
        bandit: (3,) the same for recommendations without a click.
        clicked: (3,) the same for recommendations with a click.
        n_users: number of users.
    """

    organic: Ints
    bandit: Ints
    clicked: Ints
    n_users: int

    @property
    def both(self) -> bool:
        """Return whether there are both views and recommendations."""
        return bool(self.organic.sum() and (self.bandit.sum() + self.clicked.sum()))


def transitions_of(log: Log) -> Transitions:
    """Count which event follows each view and recommendation; the end of a user's rows counts as leaving."""
    user = log["user"]
    bandit = log.is_bandit
    following = np.full(len(user), 2)  # 0 a view, 1 a recommendation, 2 nothing
    following[:-1] = np.where(user[1:] == user[:-1], bandit[1:].astype(np.int64), 2)
    clicked = bandit & (log["reward"] > 0)
    return Transitions(
        organic=np.bincount(following[~bandit], minlength=3),
        bandit=np.bincount(following[bandit & ~clicked], minlength=3),
        clicked=np.bincount(following[clicked], minlength=3),
        n_users=len(user_starts(user)),
    )


def transition_probabilities(transitions: Transitions, seed: int, member: int | None = None) -> dict[str, float]:
    """Estimate the sessions world's transition probabilities that the log identifies.

    The posterior of each row is Dirichlet. A draw normalises gamma variables, made from uniform ones by their quantile
    function.

    Args:
        transitions: counts of the log.
        seed: seed of the draws.
        member: number of the ensemble member to draw for; None for the posterior mean.

    Returns:
        Parameters of the world by name; without recommendations only those of leaving, without views none.
    """
    from scipy.special import gammaincinv

    rows = [np.asarray(counts + _JEFFREYS, np.float64) for counts in (transitions.organic, transitions.bandit)]
    if member is not None:
        for i, row in enumerate(rows):
            member_seed = derive_seed(seed, f"transitions/{i}")
            u = uniforms(member_seed, Stream.BOOTSTRAP, member, np.arange(3))  # one for each kind of next event
            # Bounds avoid a quantile at 0, and a row of zeros that could not be normalised.
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


def clock_parameters(log: Log) -> dict[str, str | float]:
    """Fit the clock of the sessions world to the mean and standard deviation of times between a user's events.

    The world's times between events are |mean + sd z|, z standard normal, whose standard deviation over mean is at most
    0.7555: a larger one is fitted by mean 0.

    Returns:
        ``clock``, ``clock_mean`` and ``clock_sd``, parameters of the world; a unit clock where all times are 1 or none
        is positive.
    """
    from scipy.optimize import brentq
    from scipy.stats import foldnorm

    user = log["user"]
    gap = np.diff(log["time"])[user[1:] == user[:-1]]
    if len(gap) == 0 or np.allclose(gap, 1.0) or gap.mean() <= 0:
        return {"clock": "unit", "clock_mean": 0.0, "clock_sd": 1.0}
    spread = max(float(gap.std() / gap.mean()), 1e-3)
    ratio = 0.0  # mean / sd of the normal variable; at 1100 the spread is below its least value, so the root is inside
    if spread < _LARGEST_RATIO:
        ratio = float(brentq(lambda c: foldnorm.std(c) / foldnorm.mean(c) - spread, 0.0, 1100.0))
    sd = float(gap.mean() / foldnorm.mean(ratio))
    return {"clock": "normal", "clock_mean": ratio * sd, "clock_sd": sd}


FORMAT = 1


@dataclass(frozen=True)
class FittedWorld:
    """World fitted to a log: the best fit, an ensemble of draws around it, and the log's evidence on parameters.

    Attributes:
        world: name of the world.
        params: parameters of the best fit.
        ensemble: parameters of each member of the ensemble.
        identified: by name, evidence on parameters that the log identifies: ``value``, ``low`` and ``high`` (90 %
            interval), ``why`` (a sentence).
        not_identified: by name, parameters that the log does not identify: ``used`` (the value in the best fit),
            ``low`` and ``high`` of the draws, ``why``.
        facts: statistics of the log.
        method: sentences on the fit and the ensemble.
        catalogues: catalogues of the best fit and of each member; None for a world that has no catalogue.
        path: file that the fitted world was read from or written to; None if there is none.
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
        """Make the world of the best fit, or of member ``i`` of the ensemble, counted from 0.

        Raises:
            UserError: the ensemble has no member ``i``.
        """
        if i is not None and not 0 <= i < len(self.ensemble):
            raise UserError(f"the ensemble has {len(self.ensemble)} worlds, from 0: there is no number {i}")
        params: Any = self.params if i is None else self.ensemble[i]
        kind: Any = entry_of(self.world).world_class()
        if self.catalogues is None:
            return kind(params)
        number = 0 if i is None else i + 1  # the first catalogue is that of the best fit
        return kind(params, catalogue=self.catalogues[number])

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types, without arrays and ``made_from``; a member has only what differs from the best fit."""
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
        """Return the SHA-256 of all contents but ``made_from`` and ``path``."""
        return digest_of({**self.to_dict(), "arrays": arrays_digest(self._arrays())})

    def save(self, path: str | Path) -> FittedWorld:
        """Write ``WORLD.toml`` and, where there are arrays, ``WORLD.npz``; return the world of that file."""
        import tomli_w

        path = path_of(path)
        if path.suffix.lower() != SUFFIX:
            raise UserError(f"{path}: a world's file ends in {SUFFIX}")
        content = self.to_dict()
        # A world that was loaded names the arrays' file it came from: the new file's is written below.
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
        """Return the catalogues' arrays by name; the names of member 1, 2, ... end in _1, _2, ..."""
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
"""Largest drift variance per event of a fitted world."""
_ASSUMED = {"p_organic_to_bandit": (0.25, 0.05, 0.5), "p_bandit_to_organic": (0.05, 0.02, 0.2)}
"""Assumptions for a log without recommendations: the best fit's value, the lowest and the highest of the ensemble."""
LEVEL = 0.9
"""Nominal coverage of intervals."""
LINK_SURE = 0.95
"""Posterior probability from which a click link counts as certain."""
MOST_STANDARD_ERRORS = 3.0
"""Standard errors by which the fitted click rate may miss the log's before a warning."""
_REASONS = {
    "views": "the log has no views: here all users are alike, so what agents learn from views is nothing",
    "differences": "users are not found to differ in what they view, as where items are shuffled: all are alike here",
    "rotation": "factors are known up to a rotation and a scale that interests share: sigma_omega_initial is set to 1",
    "end": "whether a user's last row is the end of their life or of the log is not known: it counts as leaving",
}


@dataclass(frozen=True)
class WorldMaker:
    """Maker of the sessions worlds of the best fit and of ensemble members, from the fits of a log's parts.

    Attributes:
        transitions: counts of transitions between events.
        clock: parameters of the clock, by name.
        views: fitted views; None for a log without views.
        clicks: fitted clicks; None for a log without recommendations.
        n_items: number of items.
        seed: seed of the ensemble.
        assume: parameters that the user sets, by name; they override fitted ones.
    """

    transitions: Transitions
    clock: Mapping[str, Any]
    views: FittedViews | None
    clicks: ClickModel | None
    n_items: int
    seed: int
    assume: Mapping[str, Any]

    @property
    def n_factors(self) -> int:
        """Number of view factors, 0 without views."""
        return 0 if self.views is None else self.views.model.factors.shape[1]

    def best(self) -> Member:
        """Return parameters and catalogue of the best fit."""
        factors = np.zeros((self.n_items, 0))
        offsets = np.zeros(self.n_items)
        drift = 0.0
        if self.views is not None:
            factors = self.views.factors
            offsets = self.views.scales.offsets
            drift = self.views.scales.drift
        if self.clicks is None:
            clicks = self._draw_prior_clicks(factors, None)
        else:
            clicks = self.clicks.best
        # Values assumed for a log that does not identify them; the estimates replace them where there are any.
        assumed = {name: value for name, (value, *_) in _ASSUMED.items()}
        probabilities = {**assumed, **transition_probabilities(self.transitions, self.seed)}
        return self._parameters_and_catalogue(probabilities, factors, offsets, drift, clicks)

    def member(self, i: int) -> Member:
        """Draw parameters and catalogue of member ``i`` of the ensemble, counted from 0."""
        u = uniforms(derive_seed(self.seed, "calibrate/free"), Stream.BOOTSTRAP, i, np.arange(2)).tolist()
        assumed = {name: low + (high - low) * u.pop() for name, (_, low, high) in _ASSUMED.items()}
        drawn_factors = self._draw_factors(i)
        factors, offsets, drift, strength = self._draw_views(i, drawn_factors)
        if self.clicks is None:
            clicks = self._draw_prior_clicks(factors, i)
        else:
            # Clicks were fitted given interests under the fitted view factors. Factors stronger by ``strength`` explain
            # the same views by interests weaker by it, so the same clicks need click factors stronger by it.
            clicks = self.clicks.draws[i]
            clicks = clicks._replace(theta=clicks.theta * np.append(np.full(drawn_factors.shape[1], strength), 1.0))
        probabilities = {**assumed, **transition_probabilities(self.transitions, self.seed, i)}
        return self._parameters_and_catalogue(probabilities, factors, offsets, drift, clicks)

    def _parameters_and_catalogue(
        self, probabilities: Mapping[str, float], factors: Floats, offsets: Floats, drift: float, clicks: Draw
    ) -> Member:
        """Return the world's parameters and catalogue.

        Args:
            probabilities: transition probabilities by name.
            factors: (P, K) view factors; with K = 0 one factor of zeros, since the world needs at least one.
            offsets: (P,) view offsets.
            drift: variance that interests gain per view.
            clicks: click coefficients.
        """
        beta = clicks.theta[:, :-1]
        if factors.shape[1] == 0:
            factors = np.zeros((self.n_items, 1))
            beta = np.zeros((self.n_items, 1))
        values: dict[str, Any] = {**probabilities, **self.clock, "n_items": self.n_items, "n_factors": factors.shape[1]}
        # The world's interests gain the variance (sigma_omega * time between events)^2 per event.
        sigma_omega = float(np.sqrt(drift / mean_square_time(*self.clock.values())))
        values |= {"sigma_omega_initial": 1.0, "sigma_omega": sigma_omega, "click_link": clicks.link}
        values["no_repeats"] = self.views is not None and self.views.view_counts.no_repeats
        params = SessionsParams.from_dict({**values, **self.assume})
        return params, checked_catalogue(factors, offsets, beta, clicks.theta[:, -1], where="the fit")

    def _draw_views(self, i: int, drawn_factors: Floats) -> tuple[Floats, Floats, float, float]:
        """Draw the view parameters of a member: popularity, strength and drift refitted to bootstrap-weighted users.

        Args:
            i: number of the member.
            drawn_factors: (P, K) factors drawn about the fit.

        Returns:
            factors: (P, K) the drawn factors at the drawn strength.
            offsets: (P,) view offsets.
            drift: variance that interests gain per view.
            strength: strength of preferences relative to the fitted one.
        """
        views = self.views
        if views is None:
            return drawn_factors, np.zeros(self.n_items), 0.0, 1.0
        weights = weights_of_users(self.seed, i, len(views.view_counts.lengths))
        item_views = np.bincount(views.item, weights[views.user], self.n_items) + 0.5
        errors = np.log(item_views / item_views.sum()) - views.shares.logs
        view_counts = replace(views.view_counts, log_shares=views.shares.settled(errors))
        if self.n_factors == 0 or view_counts.no_repeats:
            # Neither strength nor drift is fitted: the draw's noise must not make factors stronger.
            factors = drawn_factors * np.sqrt((views.factors**2).sum() / max((drawn_factors**2).sum(), 1e-12))
            drift = 0.0
            strength = 1.0
        else:
            drift, strength = self._draw_scales(views, weights)
            factors = drawn_factors * strength * _noise_correction(views, drawn_factors)
        offsets = match_popularity(factors, views.scales.offsets, view_counts, drift, rounds=8)
        return factors, offsets, drift, strength

    def _draw_scales(self, views: FittedViews, weights: Floats) -> tuple[float, float]:
        """Refit the strength and the drift of preferences to weighted users, by one Newton step from the fit.

        The step solves slope @ (change of log strength, change of drift) = change of the log ratios of
        :func:`recsim_mnar.fitting.viewing.expected_ratios`.

        Args:
            views: the fitted views.
            weights: (U,) weights of the users.

        Returns:
            drift: variance that interests gain per view; 0 without far pairs of views, which alone identify it.
            strength: strength of preferences relative to the fitted one.
        """
        fitted = views.observed_ratios(np.ones(len(weights)))
        shift = np.log(np.maximum(views.observed_ratios(weights), 1e-9)) - np.log(np.maximum(fitted, 1e-9))
        if not views.view_counts.far:
            shift = shift * [1.0, 0.0]
        log_strength, drift_change = np.linalg.lstsq(views.scales.slope, shift, rcond=1e-3)[0]
        drift = 0.0
        if views.view_counts.far:
            drift = float(np.clip(views.scales.drift + drift_change, 0.0, _MOST_DRIFT))
        return drift, _bounded_exp(log_strength)

    def _draw_factors(self, i: int) -> Floats:
        """Draw view factors (P, K) of member ``i`` from a normal posterior about the fit.

        Click factors are normal about r times the view factors. Given the member's click factors, which are drawn
        already, the view factors' mean and covariance are updated as in regression (a Kalman update).
        """
        views = self.views
        if views is None or not self.n_factors:
            return np.zeros((self.n_items, 0))
        k = self.n_factors
        scale = views.scales.scale
        # Symmetrised, with a ridge, so that the Cholesky decomposition exists despite rounding.
        spread = scale**2 * (views.model.spread + np.swapaxes(views.model.spread, 1, 2)) / 2 + 1e-10 * np.eye(k)
        mean = views.factors
        if self.clicks is not None:
            drawn = self.clicks.draws[i]
            slope = drawn.relation
            covariance_of_clicks = drawn.spread**2 * np.eye(k) + slope**2 * spread
            gain = slope * np.einsum("pij,pjk->pik", spread, np.linalg.inv(covariance_of_clicks))
            mean = mean + np.einsum("pij,pj->pi", gain, drawn.theta[:, :-1] - slope * mean)
            spread = spread - slope * np.einsum("pij,pjk->pik", gain, spread)
            spread = (spread + np.swapaxes(spread, 1, 2)) / 2 + 1e-10 * np.eye(k)
        noise = normals(derive_seed(self.seed, f"calibrate/member/{i}"), Stream.CATALOGUE, 0, mean.shape)
        return np.asarray(mean + np.einsum("pkl,pl->pk", np.linalg.cholesky(spread), noise))

    def _draw_prior_clicks(self, factors: Floats, i: int | None) -> Draw:
        """Draw click coefficients from the prior, for a log without recommendations.

        Args:
            factors: (P, K) view factors.
            i: number of the member to draw for; None for the best fit: no draw but the prior mean, except for the
                relation, which is one standard deviation, so that clicks depend on interests.
        """
        prior = PRIORS[LOGISTIC]
        k = factors.shape[1]
        # The last row is for the four hyperparameters, the others for the items' coefficients.
        normal = np.zeros((self.n_items + 1, k + 4))
        if i is not None:
            normal = normals(derive_seed(self.seed, "calibrate/unknown"), Stream.BOOTSTRAP, i, normal.shape)
        scales = [prior.relations, prior.levels, prior.factors, prior.offsets]
        relation, level_shift, factor_sd, offset_sd = normal[-1, :4] * scales
        if i is None:
            relation = prior.relations
        # The absolute value of a normal draw is a half-normal one, as the prior of standard deviations is.
        factor_sd = abs(factor_sd)
        offset_sd = abs(offset_sd)
        click_factors = relation * factors + factor_sd * normal[:-1, :k]
        offsets = prior.level + level_shift + offset_sd * normal[:-1, -1:]
        theta = np.concatenate([click_factors, offsets], axis=1)
        return Draw(theta, LOGISTIC, float(relation), float(factor_sd))


def _noise_correction(views: FittedViews, drawn: Floats) -> float:
    """Return the factor by which drawn factors (P, K) are to be multiplied to be as strong as the fitted ones.

    The noise of a draw adds to the squares of factors, which raises the expected share of near pairs of views with the
    same item. One Newton step on the log scale removes that.
    """
    without_far_pairs = replace(views.view_counts, far=())
    log_drawn = np.log(expected_ratios(drawn, views.scales.offsets, without_far_pairs, drift=0.0)[0])
    log_fitted = np.log(expected_ratios(views.factors, views.scales.offsets, without_far_pairs, drift=0.0)[0])
    return _bounded_exp(-(log_drawn - log_fitted) / max(views.scales.slope[0, 0], 0.1))


def _bounded_exp(logarithm: float) -> float:
    """Return the exponential of a logarithm clipped to [-0.5, 0.5], the range in which one Newton step is trusted."""
    return float(np.exp(np.clip(logarithm, -0.5, 0.5)))


def weights_of_users(seed: int, i: int, n_users: int) -> Floats:
    """Draw the users' weights (n_users,) of member ``i``: a Bayesian bootstrap (Rubin 1981), of mean 1."""
    member_seed = derive_seed(seed, f"calibrate/member/{i}")
    weights = -np.log1p(-uniforms(member_seed, Stream.BOOTSTRAP, np.arange(n_users), 0))
    return np.asarray(weights / weights.mean())


def collect_evidence(
    maker: WorldMaker, best: Member, members: list[Member]
) -> tuple[dict[str, Evidence], dict[str, Evidence]]:
    """Collect the log's evidence on the numbers that describe a sessions world.

    Args:
        maker: fits of the log's parts.
        best: parameters and catalogue of the best fit.
        members: parameters and catalogues of the ensemble.

    Returns:
        identified: numbers that the log identifies, with intervals.
        not_identified: other numbers, with the value in use, the ensemble's range and the reason.
    """
    params, catalogue = best
    best_values = functionals(SessionsWorld(params, catalogue=catalogue))
    draws = [functionals(SessionsWorld(p, catalogue=c)) for p, c in counting(members, "worlds")]
    identified: dict[str, Evidence] = {}
    unknown: dict[str, Evidence] = {}
    for name, says in SAYS.items():
        values = [draw[name] for draw in draws]
        why = _why_unidentified(maker, name)
        if not why:
            identified[name] = interval(best_values[name], values, says)
        elif maker.views is not None or name not in (*OF_VIEWS, *OF_CLICKS):
            unknown[name] = {
                "used": best_values[name],
                "low": min(values),
                "high": max(values),
                "why": f"{says}: {why}",
            }
    if maker.clicks is not None:
        identified["click_rate_on_log"] = rate_on_log(maker.clicks.facts)
    if maker.views is None:
        limits = ["views"]
    elif maker.n_factors:
        limits = ["rotation", "end"]
    else:
        limits = ["differences", "end"]
    return identified, {**unknown, **{name: {"why": _REASONS[name]} for name in limits}}


def rate_on_log(facts: Mapping[str, Any]) -> Evidence:
    """Return the log's click rate with a 90 % interval, and a warning if the fitted world's is far from it.

    Args:
        facts: facts of a fitted click model.
    """
    rate, error = facts["click_rate_of_log"]
    standard_errors = facts["click_rate_off"]
    why = f"click rate of the log; the best fit's on the same recommendations is {facts['click_rate_fitted']:.4g}"
    if standard_errors > MOST_STANDARD_ERRORS:
        why = f"OFF by {standard_errors:.1f} standard errors: trust no click of this world; {why}"
    reach = 1.645 * error  # normal quantile of a 90 % interval
    return {"value": rate, "low": rate - reach, "high": rate + reach, "why": why}


def _why_unidentified(maker: WorldMaker, name: str) -> str:
    """Return the reason why the log does not identify the named number of a sessions world; "" if it does."""
    views = maker.views
    if name in maker.assume:
        return "assumed, as asked"
    if views is None:
        if name in ("click_rate", "click_spread_items"):
            return ""
        return "the log has no views"
    if views.view_counts.no_repeats and name in OF_VIEWS:
        return "no user sees an item twice; the range is the ensemble's, not known to hold the truth"
    if not maker.n_factors and name in ("drift_per_event", "click_spread_users"):
        return "users are not found to differ in what they view"
    if name == "drift_per_event" and not views.view_counts.far:
        return "lives are too short: too few pairs of views far apart"
    if maker.transitions.both or name in (*OF_VIEWS, "views_per_user", "p_leave_organic"):
        return ""
    return "the log has no recommendations"


def interval(value: float, draws: list[float], why: str = "") -> Evidence:
    """Return a value with its 90 % interval, between quantiles of the draws, extended to include the value.

    Args:
        value: number in the best fit.
        draws: numbers of at least 20 members of the ensemble.
        why: sentence on the number.
    """
    # Weibull's quantiles i / (n + 1): of few draws the usual ones would give too short an interval.
    low, high = np.quantile([*draws], [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], method="weibull")
    return {"value": float(value), "low": min(float(low), value), "high": max(float(high), value), "why": why}
