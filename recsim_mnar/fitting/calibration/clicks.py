"""What is clicked, given who is asked: items' click factors and offsets by their posterior.

The click probability of item a for interests omega is link(b_a + beta_a . omega). With priors b_a ~ N(b0 + k mu_a,
s_b^2) and beta_a ~ N(r gamma_a, s^2 I), whose five numbers are unknown too, items that were shown seldom borrow from
the others; r says how far what is clicked goes with what is viewed. Users' interests are their posterior means given
their views. The likelihood is replaced by its normal approximation at the mode. Then coefficients and (b0, k, r), with
flat priors, are integrated out in closed form, and s and s_b, with half-normal priors, on a grid; draws from the
posterior are independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.resuming import Arrays, Form, as_text, of_text
from recsim_mnar.worlds.sessions.params import CLICK_LINKS, LOGISTIC

Floats = NDArray[np.float64]

_WIDEST = 12.0
_MODE_STEPS = 7
_OF_FACTORS = np.append(1e-4, np.geomspace(0.05, 3.0, 12))
_OF_OFFSETS = np.geomspace(0.05, 5.0, 12)
_PRIOR_OF_FACTORS, _PRIOR_OF_OFFSETS = 1.0, 2.0
_PARAMETERS = 3
_NONE = 1e-3
"""A spread below it stands for none: clicks go with views, as in RecoGym without flips; half of the prior."""
_ROWS = 20_000


@dataclass(frozen=True)
class Shown:
    """Recommendations: n of them, P items, K factors.

    Attributes:
        user: (n,) to whom, numbers.
        action: (n,) what was shown.
        click: (n,) 0 or 1.
        interests: (n, K) of the user, as expected given what they view.
        doubtful: (n, K) a draw from what they may be instead.
        factors: gamma (P, K), of views.
        offsets: mu (P,), of views.
    """

    user: NDArray[np.int64]
    action: NDArray[np.int64]
    click: Floats
    interests: Floats
    doubtful: Floats
    factors: Floats
    offsets: Floats


@dataclass(frozen=True)
class ClickModel:
    """The fitted click part.

    Attributes:
        link: of :data:`recsim_mnar.worlds.sessions.params.CLICK_LINKS`.
        factors: beta (P, K), and
        offsets: b (P,): posterior means, spread about the prior's so that they vary as much as items do (Louis 1984).
        draws: members' (beta, b), from the posterior, beta given the factors of views at their fit.
        relations: members' r, by which beta follows when the factors of views are others.
        evidence: log marginal likelihood by Laplace, by link.
        relation: posterior mean of r, how far clicks go with views, and its standard deviation.
    """

    link: str
    factors: Floats
    offsets: Floats
    draws: list[tuple[Floats, Floats]]
    relations: list[float]
    evidence: dict[str, float]
    relation: tuple[float, float]


def _click_arrays(model: ClickModel) -> Arrays:
    told = {"link": model.link, "relations": model.relations, "evidence": model.evidence, "relation": model.relation}
    arrays: dict[str, NDArray[Any]] = {"told": as_text(told), "factors": model.factors, "offsets": model.offsets}
    for i, (factors, offsets) in enumerate(model.draws):
        arrays |= {f"factors_{i}": factors, f"offsets_{i}": offsets}
    return arrays


def _click_model(found: Arrays) -> ClickModel:
    told = of_text(found["told"])
    draws = [(found[f"factors_{i}"], found[f"offsets_{i}"]) for i in range(len(told["relations"]))]
    told["relation"] = tuple(told["relation"])
    return ClickModel(factors=found["factors"], offsets=found["offsets"], draws=draws, **told)


CLICKS = Form(_click_arrays, _click_model)
"""How a click part lies in a file."""


def fit_clicks(shown: Shown, n_draws: int, seed: int, links: tuple[str, ...] = CLICK_LINKS) -> ClickModel:
    """Fit with each link, keep the one of the larger evidence, and draw from its posterior."""
    modes = {link: _Items(shown, link).at_mode() for link in links}
    evidence = {link: items.evidence for link, items in modes.items()}
    best = max(evidence, key=lambda link: evidence[link])
    items = modes[best]
    draws, relations = items.drawn(n_draws, seed)
    cell = items.likeliest()
    centre, mean, doubt = cell.centre(), cell.mean(), cell.doubt
    between = ((mean - centre) ** 2).mean(axis=0)
    within = np.diagonal(doubt, axis1=1, axis2=2).mean(axis=0)
    spread = centre + (mean - centre) * np.sqrt((between + within) / np.maximum(between, 1e-12))
    spread = np.clip(np.where(between > 1e-9, spread, mean), -_WIDEST, _WIDEST)
    relation = (float(cell.along[0]), float(np.std(relations)) if relations else 0.0)
    rate, error = _rate(shown)
    noise = rng.normals(rng.derive_seed(seed, "level"), rng.Stream.BOOTSTRAP, 0, (max(n_draws, 1), 1))[:, 0]
    rates = np.maximum(rate + error * noise, 0.1 * max(rate, 1e-6))
    members = [_levelled(draw, shown, best, own) for draw, own in zip(draws, rates, strict=False)]
    return ClickModel(best, *_levelled(spread, shown, best, max(rate, 1e-6)), members, relations, evidence, relation)


def _rate(shown: Shown) -> tuple[float, float]:
    """The log's click rate and its standard error, users drawn anew; one click more where there are few."""
    asked, clicks = np.bincount(shown.user), np.bincount(shown.user, shown.click)
    rate = float(clicks.sum() / asked.sum())
    error = float(np.sqrt(((clicks - rate * asked) ** 2).sum()) / asked.sum())
    return rate, max(error, 1.0 / float(asked.sum()))


def _levelled(theta: Floats, shown: Shown, link: str, wanted: float) -> tuple[Floats, Floats]:
    """Factors and offsets whose mean probability is the wanted rate when interests vary as they do, not as expected.

    The regression is on expected interests, and its posterior is taken as normal; a curve's mean over what interests
    and coefficients may be is not its value there.
    """
    rows = np.linspace(0, len(shown.action) - 1, min(_ROWS, len(shown.action))).astype(np.int64)
    own = theta[shown.action[rows]]
    turned = 2.0 * shown.interests[rows] - shown.doubtful[rows]
    shift = 0.0
    for _ in range(6):
        p, slope = 0.0, 0.0
        for omega in (shown.doubtful[rows], turned):
            here = _link(np.einsum("nk,nk->n", omega, own[:, :-1]) + own[:, -1] + shift, link)
            p, slope = p + 0.5 * float(here[0].mean()), slope + 0.5 * float(here[1].mean())
        shift += float(np.clip((wanted - p) / max(slope, 1e-9), -1.0, 1.0))
    return theta[:, :-1], theta[:, -1] + shift


class _Cell:
    """The posterior at one pair of spreads, in the normal approximation; arrays over P items.

    Attributes:
        value: log marginal likelihood and log prior of the spreads.
        doubt: (P, K + 1, K + 1) posterior covariances of an item's coefficients given their centres.
        along: (3,) posterior mean of r, k and b0, and
        doubt_along: (3, 3) its covariance.
    """

    def __init__(self, pull: Floats, curve: Floats, views: Floats, spreads: tuple[float, float]) -> None:
        self.pull, self.views = pull, views
        n_items, k = len(views), views.shape[1] - 1
        self.prior = 1.0 / np.append(np.full(k, spreads[0] ** 2), spreads[1] ** 2)
        self.doubt = np.linalg.inv(curve + np.diag(self.prior))
        design = np.zeros((n_items, k + 1, _PARAMETERS))
        design[:, :k, 0] = views[:, :k]
        design[:, k, 1] = views[:, k]
        design[:, k, 2] = 1.0
        self.design = design
        weighed = self.prior[:, None] * design
        reached = np.einsum("pij,pjm->pim", self.doubt, weighed)
        gram = np.einsum("pim,pin->mn", design, weighed) - np.einsum("pim,pin->mn", weighed, reached)
        gram += 1e-4 * np.eye(_PARAMETERS)
        side = np.einsum("pim,pi->m", reached, pull)
        self.doubt_along = np.linalg.inv(gram)
        self.along = self.doubt_along @ side
        _, determinant = np.linalg.slogdet(self.doubt)
        self.value = float(
            0.5 * np.einsum("pi,pij,pj->", pull, self.doubt, pull)
            + 0.5 * (determinant + np.log(self.prior).sum()).sum()
            + 0.5 * side @ self.along
            - 0.5 * np.linalg.slogdet(gram)[1]
            - 0.5 * (spreads[0] / _PRIOR_OF_FACTORS) ** 2
            - 0.5 * (spreads[1] / _PRIOR_OF_OFFSETS) ** 2
            + np.log(spreads[1])
            + _log_prior(spreads[0], k)
        )

    def centre(self, along: Floats | None = None) -> Floats:
        """(P, K + 1) of the items' coefficients."""
        return np.asarray(self.design @ (self.along if along is None else along), np.float64)

    def mean(self, along: Floats | None = None) -> Floats:
        """(P, K + 1) posterior means."""
        side = self.pull + self.prior * self.centre(along)
        return np.asarray(np.einsum("pij,pj->pi", self.doubt, side), np.float64)


class _Items:
    """Rows of recommendations, and the coefficients (P, K + 1) of all items, the offset last."""

    def __init__(self, shown: Shown, link: str) -> None:
        self.link, self.n_items = link, len(shown.offsets)
        order = np.argsort(shown.action, kind="stable")
        self.action, self.click = shown.action[order], shown.click[order]
        self.design = np.concatenate([shown.interests[order], np.ones((len(order), 1))], axis=1)
        self.starts = np.flatnonzero(np.diff(self.action, prepend=-1))
        self.k = shown.interests.shape[1]
        self.views = np.concatenate([shown.factors, (shown.offsets - shown.offsets.mean())[:, None]], axis=1)
        self.theta = np.zeros((self.n_items, self.k + 1))
        self.theta[:, -1] = _level_at(float(np.clip(self.click.mean(), 1e-4, 1 - 1e-4)), link)
        self.cells: list[_Cell] = []
        self.evidence = -np.inf

    def likelihood(self) -> tuple[float, Floats, Floats]:
        """Log likelihood, its gradient (P, K + 1) and information (P, K + 1, K + 1) at the coefficients."""
        k = self.k + 1
        x = np.einsum("nk,nk->n", self.design, self.theta[self.action])
        p, slope = _link(x, self.link)
        odds = p * (1.0 - p)
        pull, weight = (self.click - p) * slope / odds, slope**2 / odds
        value = float(np.log(np.where(self.click > 0, p, 1.0 - p)).sum())
        gradient, curve = np.zeros((self.n_items, k)), np.zeros((self.n_items, k, k))
        there = self.action[self.starts]
        gradient[there] = np.add.reduceat(pull[:, None] * self.design, self.starts)
        weighted = weight[:, None] * self.design
        for i in range(k):
            curve[there, i, : i + 1] = np.add.reduceat(weighted[:, i : i + 1] * self.design[:, : i + 1], self.starts)
            curve[there, : i + 1, i] = curve[there, i, : i + 1]
        return value, gradient, curve

    def at_mode(self) -> _Items:
        """Steps to the mode at the likeliest spreads, then the grid there."""
        spreads = (0.5, 0.5)
        for step in range(_MODE_STEPS):
            _, gradient, curve = self.likelihood()
            pull = np.einsum("pij,pj->pi", curve, self.theta) + gradient
            if step % 3 == 1:
                spreads = max(self._grid(), key=lambda s: _Cell(pull, curve, self.views, s).value)
            move = _Cell(pull, curve, self.views, spreads).mean() - self.theta
            self.theta = np.clip(self.theta + np.clip(move, -1.5, 1.5), -_WIDEST, _WIDEST)
        value, gradient, curve = self.likelihood()
        pull = np.einsum("pij,pj->pi", curve, self.theta) + gradient
        self.cells = [_Cell(pull, curve, self.views, spreads) for spreads in self._grid()]
        apart = 0.5 * np.einsum("pi,pij,pj->", self.theta, curve, self.theta) - (pull * self.theta).sum()
        values = np.array([cell.value for cell in self.cells])
        self.evidence = float(value + apart + values.max() + np.log(np.exp(values - values.max()).sum()))
        return self

    def _grid(self) -> list[tuple[float, float]]:
        of_factors = _OF_FACTORS if self.k else _OF_FACTORS[:1]
        return [(float(s), float(o)) for s in of_factors for o in _OF_OFFSETS]

    def likeliest(self) -> _Cell:
        """The cell of the largest posterior."""
        return max(self.cells, key=lambda cell: cell.value)

    def drawn(self, n_draws: int, seed: int) -> tuple[list[Floats], list[float]]:
        """Independent draws (P, K + 1) from the posterior, and of r."""
        values = np.array([cell.value for cell in self.cells])
        cumulative = np.cumsum(np.exp(values - values.max()))
        seed = rng.derive_seed(seed, "clicks")
        chosen = rng.uniforms(seed, rng.Stream.BOOTSTRAP, np.arange(n_draws), 0) * cumulative[-1]
        draws, relations = [], []
        for i, place in enumerate(np.searchsorted(cumulative, chosen, side="right")):
            cell = self.cells[min(int(place), len(self.cells) - 1)]
            normal = rng.normals(rng.derive_seed(seed, str(i)), rng.Stream.BOOTSTRAP, 0, (self.n_items + 1, self.k + 4))
            along = cell.along + np.linalg.cholesky(cell.doubt_along) @ normal[-1, :_PARAMETERS]
            noise = np.einsum("pij,pj->pi", np.linalg.cholesky(cell.doubt), normal[:-1, : self.k + 1])
            draws.append(np.clip(cell.mean(along) + noise, -_WIDEST, _WIDEST))
            relations.append(float(along[0]))
        return draws, relations


def _log_prior(spread: float, k: int) -> float:
    """Of a cell, so that all with a spread weigh as much together as the one without."""
    if k == 0:
        return 0.0
    slab = _OF_FACTORS[_OF_FACTORS > _NONE]
    total = (slab * np.exp(-0.5 * (slab / _PRIOR_OF_FACTORS) ** 2)).sum()
    return float(np.log(total if spread < _NONE else spread))


def _link(x: Floats, link: str) -> tuple[Floats, Floats]:
    """Click probabilities and their slopes."""
    if link == LOGISTIC:
        p = _sigmoid(x)
        return np.clip(p, 1e-9, 1 - 1e-9), np.maximum(p * (1.0 - p), 1e-12)
    inner = _sigmoid(0.3 * x)
    middle = _sigmoid(2.0 * inner - 2.0)
    p = _sigmoid(5.0 * middle - 6.0)
    slope = p * (1 - p) * 5.0 * middle * (1 - middle) * 2.0 * inner * (1 - inner) * 0.3
    return p, np.maximum(slope, 1e-9)


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(x, -500, 500))), np.float64)


def _level_at(rate: float, link: str) -> float:
    """X whose click probability is the rate, or the nearest that there is."""
    grid = np.linspace(-_WIDEST, _WIDEST, 4001)
    return float(grid[np.argmin(np.abs(_link(grid, link)[0] - rate))])
