"""What users view, as a model with a likelihood: each user's interests are normal, items are drawn by their factors.

User u's interests are omega_u ~ N(0, I) and item i has the weight w_ui = exp(mu_i + gamma_i . omega_u). Views that may
repeat are Poisson counts of mean T_u w_ui given how many there are. Where no item is met twice, item i is met by the
time T_u of a race of exponential clocks of rates w_ui, with probability 1 - exp(-T_u w_ui) (Rosen 1972, successive
sampling). T_u is a nuisance that is profiled out. Interests stand still here: their drift is found by moments.

Fitted by EM: a normal approximation of each user's posterior, at its mean and not at its mode, which is nearer to 0
where tastes are strong (weights are averaged over it to second order); two antithetic draws from it for the items'
regressions; normal priors whose spreads are estimated too, those of factors one by one, so that one of which there is
no sign fades (MacKay 1994); expanded parameters (Liu, Rubin & Wu 1998, PX-EM). Errors of factors are those of the
observed information: what is not known of interests is taken off (Louis 1982). Sums are einsum's, whose bits do not
hang on how many threads BLAS has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.log.columns import Floats
from recsim_mnar.progress import counting

Cells = NDArray[np.float32]

_STEP, _FARTHEST, _LEAST, _MISSED = 2.0, 30.0, 1e-3, 0.8
_STRONG = 12.0
"""Of an item's squared factors: from here on the second order is no approximation, and EM with it diverges."""
_ABOVE = 2.5
"""Of a factor's squares their errors': where items are shuffled the first is at most 2.3."""


@dataclass(frozen=True, eq=False)
class ViewModel:
    """Of P items: gamma (P, K), mu (P,) of mean 0, and (P, K, K) the covariance of the errors of factors."""

    factors: Floats
    offsets: Floats
    spread: Floats

    def shown(self) -> ViewModel:
        """The factors that are well above their errors."""
        size, error = (self.factors**2).mean(axis=0), np.einsum("pkk->k", self.spread) / max(len(self.spread), 1)
        kept = np.flatnonzero(size > _ABOVE * error)
        return ViewModel(self.factors[:, kept], self.offsets, self.spread[:, kept][:, :, kept])


def fit_views(counts: Cells, n_factors: int, *, no_repeats: bool, seed: int, iterations: int = 14) -> ViewModel:
    """Fit the model to the views (U, P) of each item by each user; 0 or 1 where there are no repeats."""
    shares = (counts.sum(axis=0, dtype=np.float64) + 0.5) / (counts.sum(dtype=np.float64) + 0.5 * counts.shape[1])
    first = _first_factors(counts, shares, n_factors, seed)
    state = _State(counts, first, np.log(shares), no_repeats, seed)
    state.averages = False
    _iterate(state, iterations)
    if not no_repeats and not state.strong:
        finer = _State(counts, first, np.log(shares), no_repeats, seed)
        _iterate(finer, iterations)
        state = state if finer.strong else finer
    return ViewModel(state.factors, state.offsets, state.spread)


def _iterate(state: _State, iterations: int) -> None:
    state.offsets -= state.offsets.mean()
    state.posterior(6)
    for _ in counting(range(iterations), "steps"):
        state.regress_items()
        state.posterior(2)


def interests_of(model: ViewModel, counts: Cells, wide: Floats, *, no_repeats: bool) -> tuple[Floats, Floats]:
    """Posterior means (U, K) and covariances (U, K, K) of users' interests, of these prior variances (U,)."""
    if model.factors.shape[1] == 0:
        return np.zeros((len(counts), 0)), np.zeros((len(counts), 0, 0))
    state = _State(counts, model.factors, model.offsets, no_repeats, 0)
    state.tight = 1.0 / wide
    state.posterior(8)
    return state.interests, state.doubt


class _State:
    """Parameters updated by EM."""

    def __init__(self, counts: Cells, factors: Floats, offsets: Floats, no_repeats: bool, seed: int) -> None:
        self.counts, self.no_repeats = counts, no_repeats
        self.factors, self.offsets = factors.copy(), offsets.copy()
        n_users, k = len(counts), factors.shape[1]
        self.interests, self.log_time, self.settled = np.zeros((n_users, k)), np.zeros(n_users), False
        self.noise = rng.normals(seed, rng.Stream.FIT, 0, (n_users, k))
        self.tight = np.ones(n_users)
        self.tilt: Floats | float = 0.0
        self.averages = not no_repeats and not self.strong
        self.prior = np.maximum((factors**2).mean(axis=0), _LEAST)

    @property
    def strong(self) -> bool:
        """True if tastes are too strong for second-order averages."""
        return bool((self.factors**2).sum() >= _STRONG * len(self.factors))

    def eta(self, omega: Floats) -> Floats:
        """(U, P) logarithms of weights."""
        return np.asarray(np.einsum("uk,pk->up", omega, self.factors) + self.offsets)

    def cells(self, eta: Floats, log_time: Floats) -> tuple[Cells, Cells]:
        """Score and information of each cell's linear predictor, (U, P) each."""
        rate = np.exp(np.minimum((eta + log_time[:, None]).astype(np.float32), _FARTHEST))
        if not self.no_repeats:
            return self.counts - rate, rate
        small = np.maximum(rate, np.float32(1e-12))
        pull = small / np.expm1(np.minimum(small, np.float32(80.0)))
        return np.where(self.counts > 0, pull, -rate), np.asarray(small * pull, np.float32)

    def timed(self, eta: Floats, log_time: Floats) -> Floats:
        """T_u, the nuisance, where its score is 0."""
        n_items, met = self.counts.shape[1], np.maximum(self.counts.sum(axis=1, dtype=np.float64), 0.5)
        if not self.no_repeats:
            top = eta.max(axis=1)
            return np.log(met) - top - np.log(np.exp((eta - top[:, None]).astype(np.float32)).sum(axis=1, dtype=float))
        if not self.settled:
            log_time = np.log(-np.log1p(-np.minimum(met, n_items - 0.5) / n_items))
        for _ in range(2 if self.settled else 12):
            score, information = self.cells(eta, log_time)
            step = score.sum(axis=1, dtype=np.float64) / np.maximum(information.sum(axis=1, dtype=np.float64), 1e-9)
            log_time = log_time + np.clip(step, -1.0, 1.0)
        return log_time

    def posterior(self, steps: int) -> None:
        """Newton's steps to the mean of each user's interests, and the curvature there."""
        k = self.factors.shape[1]
        outer = (self.factors[:, :, None] * self.factors[:, None, :]).reshape(-1, k * k)
        for step in range(steps + 1):
            eta = self.eta(self.interests) + self.tilt
            self.log_time = self.timed(eta, self.log_time)
            self.settled = True
            score, information = self.cells(eta, self.log_time)
            total = np.maximum(information.sum(axis=1, dtype=np.float64), 1e-9)
            mean = _product(information, self.factors) / total[:, None]
            curve: Floats = _product(information, outer).reshape(-1, k, k)
            curve -= total[:, None, None] * mean[:, :, None] * mean[:, None, :]
            curve += self.tight[:, None, None] * np.eye(k)
            self.doubt = np.asarray(np.linalg.inv(curve), np.float64)
            if step < steps:
                gradient = _product(score, self.factors) - score.sum(axis=1, dtype=np.float64)[:, None] * mean
                gradient -= self.tight[:, None] * self.interests
                self.interests += _short(np.linalg.solve(curve, gradient[:, :, None]))
                self.tilt = self.averaged(mean, outer) if self.averages else 0.0

    def averaged(self, mean: Floats, outer: Floats) -> Floats:
        """(U, P) by how much averages over the posterior move logarithms of weights: half their variance about it."""
        reached = np.einsum("ukl,ul->uk", self.doubt, mean)
        variance = _product(outer, self.doubt.reshape(len(self.doubt), -1).T).T
        variance += np.einsum("uk,uk->u", reached, mean)[:, None]
        return np.asarray(0.5 * variance - np.einsum("uk,pk->up", reached, self.factors))

    def regress_items(self) -> None:
        """A Newton step of each item's factors and offset, then interests brought back to mean 0 and covariance I."""
        k, n_items = self.factors.shape[1], self.counts.shape[1]
        root = np.linalg.cholesky(self.doubt + 1e-9 * np.eye(k))
        shift = np.einsum("ukl,ul->uk", root, self.noise)
        gradient, curve, sides = np.zeros((n_items, k + 1)), np.zeros((n_items, k + 1, k + 1)), []
        for sign in (1.0, -1.0):
            omega = self.interests + sign * shift
            score, information = self.cells(eta := self.eta(omega), self.timed(eta, self.log_time))
            design = np.concatenate([omega, np.ones((len(omega), 1))], axis=1)
            gradient += 0.5 * _product(score.T, design)
            curve += 0.5 * _squares(information, design, design)
            sides.append((sign, score, design))
        precision = 1.0 / np.append(self.prior, max(float(self.offsets.var()), _LEAST))
        gradient -= precision * np.concatenate([self.factors, self.offsets[:, None]], axis=1)
        curve += np.diag(precision)
        move = _short(np.linalg.solve(curve, gradient[:, :, None]))
        self.factors += move[:, :k]
        self.offsets += move[:, k]
        missed = sum(0.25 * a * b * _squares(s * t, x, z) for a, s, x in sides for b, t, z in sides)
        self.spread = _observed(curve, np.asarray(missed))[:, :k, :k]
        self._expand()

    def _expand(self) -> None:
        """Interests brought back to mean 0 and covariance I, factors turned to their main axes; prior variances."""
        centre = self.interests.mean(axis=0)
        apart = self.interests - centre
        second = np.einsum("uk,ul->kl", apart, apart) / len(apart) + self.doubt.mean(axis=0)
        self.offsets += np.einsum("pk,k->p", self.factors, centre)
        self.offsets -= self.offsets.mean()
        root = np.linalg.cholesky(second + 1e-9 * np.eye(len(centre)))
        turned = np.einsum("pk,kl->pl", self.factors, root)
        root = np.einsum("kl,lm->km", root, np.linalg.eigh(np.einsum("pk,pl->kl", turned, turned))[1])
        self.factors = np.einsum("pk,kl->pl", self.factors, root)
        self.spread = np.einsum("lk,plm,mn->pkn", root, self.spread, root)
        self.interests = np.linalg.solve(root, apart.T).T
        self.prior = np.maximum((self.factors**2 + np.diagonal(self.spread, axis1=1, axis2=2)).mean(axis=0), _LEAST)


def _short(move: Floats) -> Floats:
    """Steps (n, m, 1) as (n, m), none longer than a bound."""
    return np.asarray(move[:, :, 0] * np.minimum(1.0, _STEP / np.maximum(np.sqrt((move**2).sum(axis=1)), 1e-12)))


def _observed(curve: Floats, missed: Floats) -> Floats:
    """(P, m, m) inverse of the information less what is missed of it, of which four fifths at most in any direction."""
    root = np.linalg.inv(np.linalg.cholesky(curve))
    share, axes = np.linalg.eigh(np.einsum("pij,pjk,plk->pil", root, missed, root))
    axes = np.einsum("pij,pik->pkj", axes, root)
    return np.einsum("pij,pj,pkj->pik", axes, 1.0 / (1.0 - np.minimum(share, _MISSED)), axes)


def _squares(cells: Cells, one: Floats, other: Floats) -> Floats:
    """(P, m, m) sums over users of cells (U, P) times outer products of rows (U, m)."""
    m = one.shape[1]
    return _product(cells.T, (one[:, :, None] * other[:, None, :]).reshape(len(one), -1)).reshape(-1, m, m)


def _product(cells: Cells | Floats, columns: Floats) -> Floats:
    """(n, m) product of cells (n, P) and columns (P, m)."""
    slim = np.ascontiguousarray(columns.T, np.float32)
    return np.einsum("np,mp->nm", np.ascontiguousarray(cells), slim).astype(np.float64)


def _first_factors(counts: Cells, shares: Floats, n_factors: int, seed: int) -> Floats:
    """Leading directions of the Pearson residuals, (P, K), by subspace iteration."""
    expected = counts.sum(axis=1, dtype=np.float64)[:, None] * shares
    residual = ((counts - expected) / np.sqrt(np.maximum(expected, 1e-9))).astype(np.float32)
    found = rng.normals(seed, rng.Stream.FIT, 1, (counts.shape[1], n_factors))
    for _ in range(6):
        found = _product(residual.T, _product(residual, found))
        root = np.linalg.cholesky(np.einsum("pk,pl->kl", found, found) + 1e-9 * np.eye(n_factors))
        found = np.asarray(np.linalg.solve(root, found.T).T, np.float64)
    return np.asarray(0.7 * found / np.maximum(np.sqrt((found**2).mean()), 1e-9))
