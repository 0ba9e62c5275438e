"""Click probabilities given the user: posterior of items' click factors and offsets.

The click probability of item a for interests omega is link(b_a + beta_a . omega), the coefficients normal about a line:
b_a ~ N(b0 + k mu_a, s_b^2), beta_a ~ N(r gamma_a, s^2 I). r, k and b0 are normal, s and s_b half-normal
(:data:`PRIORS`). gamma_a is known with an error, and views give a mean and a covariance of a user's interests: a row's
likelihood is averaged over them, by three-point Gauss-Hermite quadrature along beta_a . omega.

The posterior of coefficients is normal about its mode, which is found by Fisher scoring and checked; r, k and b0
are integrated out in closed form, s and s_b on a grid that narrows to the bulk of the posterior (Tierney & Kadane
1986). Rows of one user share the error of the user's interests, and draws have it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.worlds.sessions.params import LOGISTIC


class Prior(NamedTuple):
    """Prior on a link's own scale: mean and deviation of b0, deviation of r and k, scales of s and s_b."""

    level: float
    levels: float
    relations: float
    factors: float
    offsets: float


PRIORS = {"recogym": Prior(0.0, 3.0, 1.0, 1.0, 2.0), LOGISTIC: Prior(-3.0, 1.0, 0.4, 0.25, 0.5)}
_NODES, _LOWEST, _HIGHEST, _CUT = 9, np.log(0.002), np.log(4.0), 6.0
"""Nodes of log s and log s_b in units of their prior's scale, and the log posterior ratio at which nodes are cut."""
_STEPS, _STILL, _NEAR, _ROUNDS = 60, 1e-3, 0.1, 8
_AT, _WEIGHT = np.array([-np.sqrt(3.0), 0.0, np.sqrt(3.0)]), np.array([1.0, 4.0, 1.0]) / 6.0


@dataclass(frozen=True)
class Recommended:
    """Recommendations by item and user: times shown and clicks; users' interests, items' gamma and mu, their errors.

    In slates a row is of an item at one place to a user: ``logs`` (n,) of the places 1, 2, ..., and ``exponent``: a
    row is looked at with probability place^-exponent. Single items are always looked at.
    """

    user: Ints
    action: Ints
    times: Floats
    clicks: Floats
    interests: Floats
    doubt: Floats
    factors: Floats
    offsets: Floats
    spread: Floats
    logs: Floats | float = 0.0
    exponent: float = 0.0

    @property
    def looked(self) -> Floats | float:
        """Probability that a row is looked at."""
        if self.exponent:
            return np.exp(-self.exponent * self.logs)
        return 1.0

    def seen(self) -> float:
        """Return the share of the rows that is looked at."""
        return float(np.average(self.looked * np.ones(len(self.times)), weights=self.times))

    def rate(self) -> tuple[float, float]:
        """Return the click rate and its standard error by user, which is at least that of one click."""
        times = np.bincount(self.user, self.times)
        clicks = np.bincount(self.user, self.clicks)
        total = float(times.sum())
        rate = float(clicks.sum()) / total
        error = float(np.sqrt(((clicks - rate * times) ** 2).sum())) / total
        return rate, max(error, 1.0 / total)


class Draw(NamedTuple):
    """Coefficients of all items, (P, K + 1), the offset last; their link; r, the slope of clicks on views; s.

    ``follows``: change of the offsets per unit of the exponent of examination, given the log's clicks.
    """

    theta: Floats
    link: str
    relation: float
    spread: float
    follows: float = 0.0


class ClickModel(NamedTuple):
    """The best fit, draws from the posterior, links included, and facts, such as why a link is refused."""

    best: Draw
    draws: list[Draw]
    facts: Mapping[str, Any]


def fit_clicks(shown: Recommended, n_draws: int, seed: int, links: tuple[str, ...]) -> ClickModel:
    """Fit each possible link; draw links by their evidence, and coefficients from their posterior."""
    rate, error = shown.rate()
    seen = shown.seen()
    refused = {}
    fits = {}
    for link in links:
        why = outside(link, rate / seen, error / seen)
        if why:
            refused[link] = why + (" per look" if seen < 1.0 else "")
            continue
        fit = Posterior(shown, link)
        if fit.step > _NEAR:
            refused[link] = f"its fit did not reach a mode (a step of {fit.step:.2g} standard errors is left)"
        else:
            fits[link] = fit
    if not fits:
        why = "; ".join(f"{link}: {text}" for link, text in refused.items())
        raise UserError(f"no click model can be fitted: {why}. Fit the views alone, without the recommendations")
    evidence = {link: fit.evidence for link, fit in fits.items()}
    best = max(evidence, key=lambda link: evidence[link])
    chances = np.exp(np.array(list(evidence.values())) - evidence[best])
    draws = []
    for i, u in enumerate(rng.uniforms(rng.derive_seed(seed, "link"), rng.Stream.BOOTSTRAP, np.arange(n_draws), 0)):
        fit = list(fits.values())[drawn_place(chances, u)]
        draws.append(fit.draw(rng.derive_seed(seed, f"clicks/{i}")))
    model = fits[best].rescaled_means()
    fitted = float(np.average(fits[best].probabilities(model.theta)[0], weights=shown.times))
    facts = {
        "click_link": best,
        "click_link_weight": float(1.0 / chances.sum()),
        "click_evidence": evidence,
        "click_log_likelihood": {link: fit.value_at_mode for link, fit in fits.items()},
        "click_links_refused": refused,
        "click_rate_of_log": [rate, error],
        "click_rate_fitted": fitted,
        "click_rate_off": abs(fitted - rate) / error,
    }
    return ClickModel(model, draws, facts)


def outside(link: str, rate: float, error: float) -> str:
    """Return why a link cannot have a click rate; "" for a rate within four standard errors of its range."""
    low, high = link_of(np.array([-1e3, 1e3]), link)[0].tolist()
    if low - 4.0 * error <= rate <= high + 4.0 * error:
        return ""
    return f"its click rates are between {low:.3g} and {high:.3g}, the log's is {rate:.3g}"


def drawn_place(chances: Floats, u: float) -> int:
    """Return the place of a uniform number among cumulated chances."""
    upto = np.cumsum(chances)
    return min(int(np.searchsorted(upto, u * upto[-1], side="right")), len(upto) - 1)


class _Cell:
    """Posterior at one pair of spreads: of r, k and b0 (``along``), of coefficients given them, and its normaliser."""

    def __init__(self, fit: Posterior, spreads: tuple[float, float]) -> None:
        self.fit = fit
        self.spreads = spreads
        k = fit.k
        covariance = np.zeros((len(fit.theta), k + 1, k + 1))
        covariance[:, :k, :k] = spreads[0] ** 2 * np.eye(k) + fit.slack
        covariance[:, k, k] = spreads[1] ** 2
        self.precision = np.linalg.inv(covariance)
        self.doubt = np.linalg.inv(fit.curve + self.precision)
        self.weighed = np.einsum("pij,pjm->pim", self.precision, fit.lines)
        self.reached = np.einsum("pij,pjm->pim", self.doubt, self.weighed)
        gram = np.einsum("pim,pin->mn", fit.lines, self.weighed) - np.einsum("pim,pin->mn", self.weighed, self.reached)
        self.doubt_along = np.linalg.inv(gram + np.diag(fit.tight))
        side = np.einsum("pim,pi->m", self.reached, fit.pull) + fit.tight * fit.centre
        self.along = np.einsum("mn,n->m", self.doubt_along, side)
        self.value = float(
            0.5 * np.einsum("pi,pij,pj->", fit.pull, self.doubt, fit.pull)
            + 0.5 * (np.linalg.slogdet(self.doubt)[1] - np.linalg.slogdet(covariance)[1]).sum()
            + 0.5 * (side @ self.along - fit.tight @ fit.centre**2)
            + 0.5 * (np.linalg.slogdet(self.doubt_along)[1] + np.log(fit.tight).sum())
        )

    def mean(self, pull: Floats, noise: Floats | float = 0.0) -> tuple[Floats, Floats]:
        """Return posterior means of the coefficients (P, K + 1) and of r, k and b0, the latter moved by ``noise``."""
        side = np.einsum("pim,pi->m", self.reached, pull) + self.fit.tight * self.fit.centre
        along = np.einsum("mn,n->m", self.doubt_along, side) + noise
        return np.einsum("pij,pj->pi", self.doubt, pull + np.einsum("pim,m->pi", self.weighed, along)), along


class Posterior:
    """Posterior of the coefficients ``theta`` (P, K + 1) of all items.

    ``step``: distance to the mode, in standard errors.
    """

    def __init__(self, shown: Recommended, link: str) -> None:
        self.shown = shown
        self.link = link
        self.prior = PRIORS[link]
        n_items, self.k = shown.factors.shape
        self.lines = np.zeros((n_items, self.k + 1, 3))
        self.lines[:, : self.k, 0], self.lines[:, self.k, 2] = shown.factors, 1.0
        self.lines[:, self.k, 1] = shown.offsets - shown.offsets.mean()
        self.centre = np.array([0.0, 0.0, self.prior.level])
        self.tight = 1.0 / np.array([self.prior.relations, self.prior.relations, self.prior.levels]) ** 2
        self.starts = np.flatnonzero(np.diff(shown.action, prepend=-1))
        self.theta = np.zeros((n_items, self.k + 1))
        grid = np.linspace(-20.0, 20.0, 2001)
        self.theta[:, -1] = grid[np.argmin(np.abs(link_of(grid, link)[0] - shown.rate()[0] / shown.seen()))]
        self.likeliest: _Cell
        self.axes = [np.linspace(_LOWEST, _HIGHEST, _NODES) if free else np.zeros(1) for free in (self.k, True)]
        self._settle()
        apart = 0.5 * np.einsum("pi,pij,pj->", self.theta, self.curve, self.theta) - (self.pull * self.theta).sum()
        self.value_at_mode, highest = self.value, self.values.max()
        self.evidence = float(self.value + apart + highest + np.log(np.exp(self.values - highest).sum()))
        self._centre()

    def _settle(self) -> None:
        """Alternate between the mode given the spreads and the likeliest spreads given the mode."""
        spreads = (self.prior.factors, self.prior.offsets)
        along = 0.0
        for _ in range(_ROUNDS):
            self.slack = along**2 * self.shown.spread
            self._climb(spreads)
            self._grid()
            climbed = spreads
            spreads = self.likeliest.spreads
            along = self.likeliest.along[0]
            if not self._narrowed() and np.allclose(climbed, spreads, rtol=0.05):
                break
        self.likeliest = _Cell(self, climbed)

    def _grid(self) -> None:
        """Compute log posteriors ``values`` (n, m) at the nodes of log s and log s_b, times a node's width each."""
        cells = [[self._at(s, o) for o in self.axes[1]] for s in self.axes[0]]
        self.values = np.array([[cell.value for cell in row] for row in cells])
        for axis, shape in zip(self.axes, ((-1, 1), (1, -1)), strict=True):
            if len(axis) > 1:
                half_normal = np.log(2.0 / np.pi) / 2.0 - 0.5 * np.exp(axis) ** 2 + axis + np.log(axis[1] - axis[0])
                self.values += half_normal.reshape(shape)
        i, j = np.unravel_index(np.argmax(self.values), self.values.shape)
        self.likeliest = cells[i][j]

    def _at(self, factors: float, offsets: float) -> _Cell:
        return _Cell(self, (self.prior.factors * float(np.exp(factors)), self.prior.offsets * float(np.exp(offsets))))

    def _narrowed(self) -> bool:
        """Narrow the axes to the bulk of the posterior and a node on either side; return whether they changed."""
        narrowed = False
        for i, axis in enumerate(self.axes):
            if len(axis) > 1:
                likely = axis[self.values.max(axis=1 - i) > self.values.max() - _CUT]
                width = axis[1] - axis[0]
                ends = (max(likely[0] - width, _LOWEST), min(likely[-1] + width, _HIGHEST))
                if np.abs(np.array(ends) - axis[[0, -1]]).max() > 1.5 * width:
                    self.axes[i] = np.linspace(*ends, _NODES)
                    narrowed = True
        return narrowed

    def _centre(self) -> None:
        """Move from the mode to the mean: average rows' probabilities over the coefficients' posterior (skewness)."""
        likeliest = self.likeliest
        recommended = self.shown
        design = np.concatenate([recommended.interests[recommended.user], np.ones((len(recommended.user), 1))], axis=1)
        for _ in range(3):
            reached = likeliest.reached
            along = likeliest.doubt_along
            covariance = likeliest.doubt + np.einsum("pim,mn,pjn->pij", reached, along, reached)
            self._look(np.einsum("ni,nij,nj->n", design, covariance[recommended.action], design))
            likeliest = _Cell(self, likeliest.spreads)
            self.theta = likeliest.mean(self.pull)[0]
        self._grid()
        self.likeliest = likeliest

    def _climb(self, spreads: tuple[float, float]) -> None:
        """Find the mode for these spreads, by scoring; halve a step that does not gain."""
        self._look()
        for _ in range(_STEPS):
            cell = _Cell(self, spreads)
            move = cell.mean(self.pull)[0] - self.theta
            self.step = float(np.sqrt(np.einsum("pi,pij,pj->p", move, np.linalg.inv(cell.doubt), move).max()))
            if self.step < _STILL:
                return
            here = self.value - self._cost(cell)
            start = self.theta
            share = 1.0
            while share > 1e-3:
                self.theta = start + share * np.clip(move, -2.0, 2.0)
                self._look()
                if self.value - self._cost(cell) > here:
                    break
                share *= 0.5

    def _cost(self, cell: _Cell) -> float:
        """Compute the cost of coefficients far from their line, at the best position of that line."""
        gram = np.einsum("pim,pin->mn", self.lines, cell.weighed) + np.diag(self.tight)
        side = np.einsum("pim,pi->m", cell.weighed, self.theta) + self.tight * self.centre
        along = np.linalg.solve(gram, side)
        apart = self.theta - np.einsum("pim,m->pi", self.lines, along)
        far = along - self.centre
        return 0.5 * float(np.einsum("pi,pij,pj->", apart, cell.precision, apart) + (self.tight * far**2).sum())

    def probabilities(self, theta: Floats, more: Floats | float = 0.0) -> tuple[Floats, Floats]:
        """Return rows' click probabilities (n,) and their slopes (n, K + 1) in coefficients.

        ``more`` is further variance of their logits.
        """
        recommended = self.shown
        interests = recommended.interests[recommended.user]
        coefficients = theta[recommended.action]
        beta = coefficients[:, :-1]
        mean = np.einsum("nk,nk->n", interests, beta) + coefficients[:, -1]
        swung = np.einsum("nkl,nl->nk", recommended.doubt[recommended.user], beta)
        sd = np.sqrt(np.einsum("nk,nk->n", swung, beta) + more + 1e-12)
        values, slopes = [], []
        for node in _AT:
            value, slope = link_of(mean + node * sd, self.link)
            values.append(recommended.looked * value)
            slopes.append(recommended.looked * slope)
        p = np.einsum("jn,j->n", values, _WEIGHT)
        by_mean = np.einsum("jn,j->n", slopes, _WEIGHT)
        by_sd = np.einsum("jn,j->n", slopes, _WEIGHT * _AT)
        in_beta = by_mean[:, None] * interests + (by_sd / sd)[:, None] * swung
        return p, np.concatenate([in_beta, by_mean[:, None]], axis=1)

    def _look(self, more: Floats | float = 0.0) -> None:
        """Compute the log likelihood at the coefficients, its information, and its pull: information times the mode."""
        clicks = self.shown.clicks
        times = self.shown.times
        k = self.k + 1
        self.p, self.slopes = self.probabilities(self.theta, more)
        odds = self.p * (1.0 - self.p)
        self.value = float((clicks * np.log(self.p) + (times - clicks) * np.log1p(-self.p)).sum())
        gradient = self.summed(((clicks - times * self.p) / odds)[:, None] * self.slopes)
        weighted = (times / odds)[:, None] * self.slopes
        self.curve = self.summed((weighted[:, :, None] * self.slopes[:, None, :]).reshape(-1, k * k)).reshape(-1, k, k)
        self.pull = np.einsum("pij,pj->pi", self.curve, self.theta) + gradient

    def summed(self, rows: Floats) -> Floats:
        """Return (P, ...) sums over each item's rows."""
        sums = np.zeros((len(self.theta), rows.shape[1]))
        sums[self.shown.action[self.starts]] = np.add.reduceat(rows, self.starts)
        return sums

    def draw(self, seed: int) -> Draw:
        """Draw from the posterior; the pull of the rows varies with the error of each user's interests, too."""
        recommended = self.shown
        bootstrap = rng.Stream.BOOTSTRAP
        cell = self._drawn_cell(rng.uniforms(seed, bootstrap, np.arange(3), 0))
        z = rng.normals(seed, bootstrap, 1, (len(recommended.interests), self.k))
        errors = np.einsum("ukl,ul->uk", np.linalg.cholesky(recommended.doubt), z)[recommended.user]
        swing = np.einsum("nk,nk->n", errors, self.theta[recommended.action, :-1]) * self.slopes[:, -1]
        pull = self.pull + self.summed((recommended.times * swing / (self.p * (1.0 - self.p)))[:, None] * self.slopes)
        normal = rng.normals(seed, bootstrap, 2, (len(self.theta) + 1, self.k + 4))
        moved = np.einsum("mn,n->m", np.linalg.cholesky(cell.doubt_along), normal[-1, :3])
        theta, along = cell.mean(pull, moved)
        theta = theta + np.einsum("pij,pj->pi", np.linalg.cholesky(cell.doubt), normal[:-1, : self.k + 1])
        return Draw(theta, self.link, float(along[0]), cell.spreads[0], self.follows())

    def follows(self) -> float:
        """Return ``follows`` of :class:`Draw`."""
        times = self.shown.times
        return float((times * self.p * self.shown.logs).sum() / (times * self.slopes[:, -1]).sum())

    def _drawn_cell(self, u: Floats) -> _Cell:
        """Draw a node by its probability, and a place within its width."""
        node = np.unravel_index(drawn_place(np.exp(self.values - self.values.max()), u[0]), self.values.shape)
        place = []
        for axis, i, within in zip(self.axes, node, u[1:], strict=True):
            width = float(np.ptp(axis)) / max(len(axis) - 1, 1)
            place.append(float(axis[i] + (within - 0.5) * width))
        return self._at(*place)

    def rescaled_means(self) -> Draw:
        """Return posterior means, rescaled about their line to the spread of coefficients (Louis 1984)."""
        cell = self.likeliest
        mean, along = cell.mean(self.pull)
        line = np.einsum("pim,m->pi", self.lines, along)
        between = ((mean - line) ** 2).mean(axis=0)
        within = np.diagonal(cell.doubt, axis1=1, axis2=2).mean(axis=0)
        wider = np.where(between > 1e-3 * within, np.sqrt((between + within) / np.maximum(between, 1e-12)), 1.0)
        return Draw(line + wider * (mean - line), self.link, float(along[0]), cell.spreads[0])


def link_of(x: Floats, link: str) -> tuple[Floats, Floats]:
    """Return click probabilities and their slopes (Rohde et al. 2018 for RecoGym's)."""
    from scipy.special import expit

    if link == LOGISTIC:
        p = np.clip(expit(x), 1e-12, 1.0 - 1e-12)
        return p, p * (1.0 - p)
    inner = expit(0.3 * x)
    middle = expit(2.0 * inner - 2.0)
    p = expit(5.0 * middle - 6.0)
    return p, p * (1.0 - p) * 5.0 * middle * (1.0 - middle) * 2.0 * inner * (1.0 - inner) * 0.3
