"""What users view, as a model with a likelihood: each user's interests are normal, items are drawn by their factors.

User u's interests are omega_u ~ N(0, I) and item i has the weight w_ui = exp(mu_i + gamma_i . omega_u). Views that may
repeat are draws in proportion to the weights, hence Poisson counts of mean T_u w_ui given how many there are. Where
no item is met twice they are draws without replacement: item i is met by the time T_u of a race of exponential
clocks of rates w_ui, with probability 1 - exp(-T_u w_ui) (Rosen 1972, successive sampling). T_u is a nuisance that is
profiled out. Interests stand still here: how they drift is found by moments (``scales``).

Fitted by EM: a normal approximation of each user's posterior (Laplace), two antithetic draws from it for the items'
regressions, normal priors on factors and offsets whose spreads are estimated too, and expanded parameters (Liu, Rubin
& Wu 1998, PX-EM).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.progress import counting

Floats = NDArray[np.float64]
Cells = NDArray[np.float32]

_STEP = 2.0
_FARTHEST = 30.0
_LEAST = 1e-3


@dataclass(frozen=True, eq=False)
class ViewModel:
    """A fitted model of U users, P items, K factors.

    Attributes:
        factors: gamma, (P, K).
        offsets: mu, (P,), with mean 0.
        spread: (P, K, K), inverse curvature of each item's factors at the fit.
        interests: (U, K), posterior means.
        doubt: (U, K, K), their posterior covariances.
    """

    factors: Floats
    offsets: Floats
    spread: Floats
    interests: Floats
    doubt: Floats


def fit_views(
    counts: Cells, n_factors: int, *, no_repeats: bool, seed: int, iterations: int = 30, start: ViewModel | None = None
) -> ViewModel:
    """Fit the model.

    Args:
        counts: (U, P) views of each item by each user; 0 or 1 where there are no repeats.
        n_factors: K; 0 for users who are all alike.
        no_repeats: whether no item is met twice.
        seed: of the draws from posteriors.
        iterations: of EM.
        start: a fit with as many items and factors to go on from.
    """
    n_users, n_items = counts.shape
    shares = (counts.sum(axis=0, dtype=np.float64) + 0.5) / (counts.sum(dtype=np.float64) + 0.5 * n_items)
    offsets = np.log(shares)
    offsets -= offsets.mean()
    if n_factors == 0:
        nothing = np.zeros((n_items, 0)), offsets, np.zeros((n_items, 0, 0))
        return ViewModel(*nothing, np.zeros((n_users, 0)), np.zeros((n_users, 0, 0)))
    factors = _first_factors(counts, shares, n_factors) if start is None else start.factors
    offsets = offsets if start is None else start.offsets
    state = _State(counts, factors, offsets, no_repeats, seed)
    state.posterior(6)
    for _ in counting(range(iterations), "steps"):
        state.regress_items()
        state.posterior(2)
    return ViewModel(state.factors, state.offsets, state.spread, state.interests, state.doubt)


def interests_of(model: ViewModel, counts: Cells, *, no_repeats: bool) -> tuple[Floats, Floats]:
    """Posterior means (U, K) and covariances (U, K, K) of other users' interests, given what they view."""
    if model.factors.shape[1] == 0:
        return np.zeros((len(counts), 0)), np.zeros((len(counts), 0, 0))
    state = _State(counts, model.factors, model.offsets, no_repeats, 0)
    state.posterior(8)
    return state.interests, state.doubt


def log_score(model: ViewModel, train: Cells, test: Cells, *, no_repeats: bool) -> tuple[float, float]:
    """Mean log probability of a held-out view given its user's other views, and its standard error over users.

    Args:
        model: fitted on ``train``.
        train: (U, P) of the views that are not held out.
        test: (U, P) of those that are.
        no_repeats: items of ``train`` are no candidates then.
    """
    logits = model.offsets + model.interests @ model.factors.T
    if no_repeats:
        logits = np.where(train > 0, -np.inf, logits)
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    own = np.where(test > 0, test * np.where(np.isfinite(logits), logits, 0.0), 0.0).sum(axis=1)
    n = test.sum(axis=1)
    mean = float(own.sum() / max(n.sum(), 1))
    return mean, float(np.sqrt(((own - mean * n) ** 2).sum()) / max(n.sum(), 1))


class _State:
    """What EM changes."""

    def __init__(self, counts: Cells, factors: Floats, offsets: Floats, no_repeats: bool, seed: int) -> None:
        self.counts, self.no_repeats = counts, no_repeats
        self.factors, self.offsets = factors.copy(), offsets.copy()
        n_users, k = len(counts), factors.shape[1]
        self.interests = np.zeros((n_users, k))
        self.doubt = np.tile(np.eye(k), (n_users, 1, 1))
        self.spread = np.zeros((counts.shape[1], k, k))
        self.log_time = np.zeros(n_users)
        self.settled = False
        self.noise = rng.normals(seed, rng.Stream.FIT, 0, (n_users, k))
        self.prior = max(float((factors**2).mean()), _LEAST)

    def cells(self, omega: Floats, log_time: Floats) -> tuple[Cells, Cells]:
        """Score and information of each cell's linear predictor, (U, P) each."""
        eta = (omega @ self.factors.T + self.offsets + log_time[:, None]).astype(np.float32)
        rate = np.exp(np.minimum(eta, _FARTHEST, out=eta))
        if not self.no_repeats:
            return self.counts - rate, rate
        small = np.maximum(rate, np.float32(1e-12))
        pull = small / np.expm1(np.minimum(small, np.float32(80.0)))
        return np.where(self.counts > 0, pull, -rate), np.asarray(small * pull, np.float32)

    def timed(self, omega: Floats, log_time: Floats) -> Floats:
        """T_u, the nuisance, where its score is 0."""
        if not self.no_repeats:
            eta = omega @ self.factors.T + self.offsets
            top = eta.max(axis=1)
            total = np.exp((eta - top[:, None]).astype(np.float32)).sum(axis=1, dtype=np.float64)
            return np.log(np.maximum(self.counts.sum(axis=1, dtype=np.float64), 0.5)) - top - np.log(total)
        if not self.settled:
            n_items = self.counts.shape[1]
            met = np.clip(self.counts.sum(axis=1, dtype=np.float64), 0.5, n_items - 0.5)
            log_time = np.log(-np.log1p(-met / n_items)) - 0.5 * (omega**2).sum(axis=1)
        for _ in range(2 if self.settled else 12):
            score, information = self.cells(omega, log_time)
            step = score.sum(axis=1, dtype=np.float64) / np.maximum(information.sum(axis=1, dtype=np.float64), 1e-9)
            log_time = log_time + np.clip(step, -1.0, 1.0)
        return log_time

    def posterior(self, steps: int) -> None:
        """Newton's steps to the mode of each user's interests, and the curvature there."""
        k = self.factors.shape[1]
        outer = (self.factors[:, :, None] * self.factors[:, None, :]).reshape(-1, k * k).astype(np.float32)
        slim = self.factors.astype(np.float32)
        for step in range(steps + 1):
            self.log_time = self.timed(self.interests, self.log_time)
            self.settled = True
            score, information = self.cells(self.interests, self.log_time)
            total = np.maximum(information.sum(axis=1, dtype=np.float64), 1e-9)
            mean = (information @ slim).astype(np.float64) / total[:, None]
            curve: Floats = (information @ outer).reshape(-1, k, k).astype(np.float64)
            curve -= total[:, None, None] * mean[:, :, None] * mean[:, None, :]
            curve += np.eye(k)
            if step == steps:
                break
            gradient = (score @ slim).astype(np.float64) - score.sum(axis=1, dtype=np.float64)[:, None] * mean
            move: Floats = np.linalg.solve(curve, (gradient - self.interests)[:, :, None])[:, :, 0]
            length = np.sqrt((move**2).sum(axis=1, keepdims=True))
            self.interests += move * np.minimum(1.0, _STEP / np.maximum(length, 1e-12))
        self.doubt = np.asarray(np.linalg.inv(curve), np.float64)

    def regress_items(self) -> None:
        """A Newton step of each item's factors and offset, then interests brought back to mean 0 and covariance I."""
        k = self.factors.shape[1]
        root = np.linalg.cholesky(self.doubt + 1e-9 * np.eye(k))
        shift = np.einsum("ukl,ul->uk", root, self.noise)
        gradient = np.zeros((self.counts.shape[1], k + 1))
        curve = np.zeros((self.counts.shape[1], (k + 1) ** 2))
        for sign in (1.0, -1.0):
            omega = self.interests + sign * shift
            score, information = self.cells(omega, self.timed(omega, self.log_time))
            design = np.concatenate([omega, np.ones((len(omega), 1))], axis=1).astype(np.float32)
            outer = (design[:, :, None] * design[:, None, :]).reshape(len(design), -1)
            gradient += 0.5 * (score.T @ design)
            curve += 0.5 * (information.T @ outer)
        self._take_step(gradient, curve.reshape(-1, k + 1, k + 1))
        self._expand()

    def _take_step(self, gradient: Floats, curve: Floats) -> None:
        k = self.factors.shape[1]
        wide = max(float(self.offsets.var()), _LEAST)
        precision = np.append(np.full(k, 1.0 / self.prior), 1.0 / wide)
        gradient -= precision * np.concatenate([self.factors, self.offsets[:, None]], axis=1)
        curve += np.diag(precision)
        move = np.linalg.solve(curve, gradient[:, :, None])[:, :, 0]
        length = np.sqrt((move**2).sum(axis=1, keepdims=True))
        move *= np.minimum(1.0, _STEP / np.maximum(length, 1e-12))
        self.factors += move[:, :k]
        self.offsets += move[:, k]
        self.offsets -= self.offsets.mean()
        self.spread = np.asarray(np.linalg.inv(curve)[:, :k, :k], np.float64)
        self.prior = max(float((self.factors**2).mean() + np.trace(self.spread, axis1=1, axis2=2).mean() / k), _LEAST)

    def _expand(self) -> None:
        centre = self.interests.mean(axis=0)
        second = np.einsum("uk,ul->kl", self.interests - centre, self.interests - centre) / len(self.interests)
        root = np.linalg.cholesky(second + self.doubt.mean(axis=0) + 1e-9 * np.eye(len(centre)))
        self.offsets += self.factors @ centre
        self.offsets -= self.offsets.mean()
        self.factors = self.factors @ root
        self.spread = np.einsum("lk,plm,mn->pkn", root, self.spread, root)
        self.interests = np.linalg.solve(root, (self.interests - centre).T).T


def _first_factors(counts: Cells, shares: Floats, n_factors: int) -> Floats:
    """Leading directions of the Pearson residuals, (P, K)."""
    n = counts.sum(axis=1, dtype=np.float64)
    expected = n[:, None] * shares
    residual = ((counts - expected) / np.sqrt(np.maximum(expected, 1e-9))).astype(np.float32)
    small = residual @ residual.T if len(counts) <= counts.shape[1] else residual.T @ residual
    values, vectors = np.linalg.eigh(small.astype(np.float64))
    values, vectors = values[::-1][:n_factors], vectors[:, ::-1][:, :n_factors]
    if len(counts) <= counts.shape[1]:
        vectors = residual.T.astype(np.float64) @ vectors / np.sqrt(np.maximum(values, 1e-9))
    missing = n_factors - vectors.shape[1]
    vectors = np.pad(vectors, ((0, 0), (0, max(missing, 0))))
    loud = 0.7 * vectors / np.maximum(np.sqrt((vectors**2).mean()), 1e-9)
    return np.asarray(loud, np.float64)
