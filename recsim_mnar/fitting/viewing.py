"""Users' views: popularity, factors, their strength and their drift.

**The shape of the factors** comes from a model with a likelihood: each user's interests are normal, items are drawn by
their factors. User u's interests are omega_u ~ N(0, I) and item i has the weight w_ui = exp(mu_i + gamma_i . omega_u).
Views that may repeat are Poisson counts of mean T_u w_ui given their number. Where no item is viewed twice, item i is
viewed by the time T_u of a race of exponential clocks of rates w_ui, with probability 1 - exp(-T_u w_ui) (Rosen 1972,
successive sampling). T_u is a nuisance parameter that is profiled out. Interests stand still here: their drift is
estimated by moments.

The fit is EM: a normal approximation of each user's posterior, at its mean and not at its mode, which is nearer to 0
where tastes are strong (weights are averaged over it to second order); two antithetic draws from it for the items'
regressions; normal priors whose spreads are estimated too, those of factors one by one, so that a factor without
evidence fades (MacKay 1994); expanded parameters (Liu, Rubin & Wu 1998, PX-EM). Errors of factors are those of the
observed information, that is less the information missing on interests (Louis 1982). Sums are einsum's, whose bits do
not depend on the number of BLAS threads.

**Their strength** is a scale of all factors, set together with the drift of interests per view so that the expected
number of pairs of a user's views with the same item, near each other and far apart, is that of the log. Where no item
is viewed twice there are no such pairs: the scale is the likelihood's, and no drift is estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.rows import user_numbers
from recsim_mnar.log.table import Log
from recsim_mnar.progress import counting
from recsim_mnar.rng import Stream, uniforms
from recsim_mnar.worlds.sessions.invariants import interests_at, n_points, points, softmax, views_before

Cells = NDArray[np.float32]

_LONGEST_STEP = 2.0
"""Largest length of a Newton step."""
_LARGEST_LOG_RATE = 30.0
"""Largest logarithm of a rate, against overflow."""
_LEAST_VARIANCE = 1e-3
"""Least prior variance of factors and offsets."""
_MOST_MISSING = 0.8
"""Largest share of the information on an item that may be missing: observed information stays positive definite."""
_STRONG_FACTORS = 12.0
"""Mean over items of the sum of squared factors from which the second-order approximation is bad and EM diverges."""
_SIGNIFICANT = 2.5
"""Ratio of a factor's mean square to that of its errors above which it is kept; with shuffled items it reaches 2.3."""
_CLEAR_RETURNS = 4.0
"""Standard errors by which users return to items more often than equal users would; above it users count as different,
even if no factor is significant by itself."""


@dataclass(frozen=True, eq=False)
class ViewModel:
    """Model of the views of P items.

    Attributes:
        factors: (P, K) view factors gamma.
        offsets: (P,) view offsets mu, of mean 0.
        spread: (P, K, K) covariances of the errors of the factors.
    """

    factors: Floats
    offsets: Floats
    spread: Floats

    def significant(self) -> ViewModel:
        """Keep the factors whose mean square is well above that of their errors, and drop the others."""
        size = (self.factors**2).mean(axis=0)
        error = np.einsum("pkk->k", self.spread) / max(len(self.spread), 1)
        kept = np.flatnonzero(size > _SIGNIFICANT * error)
        return ViewModel(self.factors[:, kept], self.offsets, self.spread[:, kept][:, :, kept])


def fit_views(counts: Cells, n_factors: int, *, no_repeats: bool, seed: int, iterations: int = 14) -> ViewModel:
    """Fit the view model by EM, with second-order averages over users' interests where tastes are weak enough.

    Args:
        counts: (U, P) views of each item by each user; 0 or 1 with ``no_repeats``.
        n_factors: number of factors K.
        no_repeats: True if a user views no item twice.
        seed: seed of the starting factors and of the draws of interests.
        iterations: number of EM steps.
    """
    shares = (counts.sum(axis=0, dtype=np.float64) + 0.5) / (counts.sum(dtype=np.float64) + 0.5 * counts.shape[1])
    first = _first_factors(counts, shares, n_factors, seed)
    state = _State(counts, first, np.log(shares), no_repeats, seed)
    state.averages = False  # first order
    _iterate(state, iterations)
    # The first-order fit tells whether factors are weak enough for the second order, which is closer to the truth.
    if not no_repeats and not state.strong:
        second_order = _State(counts, first, np.log(shares), no_repeats, seed)
        _iterate(second_order, iterations)
        if not second_order.strong:
            state = second_order
    return ViewModel(state.factors, state.offsets, state.spread)


def _iterate(state: _State, iterations: int) -> None:
    """Run EM in place; with second-order averages, stop early if factors become strong, since EM then diverges."""
    state.offsets -= state.offsets.mean()
    state.update_posterior(6)  # interests begin at 0; later rounds begin at the last ones and need fewer steps
    for _ in counting(range(iterations), "steps"):
        state.regress_items()
        if state.averages and state.strong:
            return
        state.update_posterior(2)


def interests_of(model: ViewModel, counts: Cells, variances: Floats, *, no_repeats: bool) -> tuple[Floats, Floats]:
    """Compute the posterior of users' interests under a fitted model.

    Args:
        model: the items' factors and offsets.
        counts: (U, P) views of each item by each user.
        variances: (U,) prior variance of each entry of a user's interests.
        no_repeats: True if a user views no item twice.

    Returns:
        means: (U, K).
        covariances: (U, K, K).
    """
    if model.factors.shape[1] == 0:
        return np.zeros((len(counts), 0)), np.zeros((len(counts), 0, 0))
    state = _State(counts, model.factors, model.offsets, no_repeats, 0)
    state.prior_precision = 1.0 / variances
    state.update_posterior(8)
    return state.interests, state.covariance


class _State:
    """Parameters of the view model while EM updates them.

    Attributes:
        counts: (U, P) views.
        factors, offsets: (P, K) and (P,) item parameters.
        spread: (P, K, K) covariances of the errors of the factors; set by :meth:`regress_items`.
        interests, covariance: (U, K) and (U, K, K) posterior means and covariances of users' interests.
        log_time: (U,) logarithms of T_u; ``has_times`` is False until they were computed once.
        noise: (U, K) standard normal draws, the same in every step, so that the steps converge.
        prior_precision: (U,) prior precision of each entry of a user's interests.
        correction: (U, P) what averaging over the posterior adds to log weights; 0 at first order.
        averages: whether ``correction`` is computed.
        prior: (K,) prior variance of each factor over items.
    """

    def __init__(self, counts: Cells, factors: Floats, offsets: Floats, no_repeats: bool, seed: int) -> None:
        self.counts = counts
        self.no_repeats = no_repeats
        self.factors = factors.copy()
        self.offsets = offsets.copy()
        shape = (len(counts), factors.shape[1])
        self.interests = np.zeros(shape)
        self.log_time = np.zeros(len(counts))
        self.has_times = False
        self.noise = rng.normals(seed, rng.Stream.FIT, 0, shape)
        self.prior_precision = np.ones(len(counts))
        self.correction: Floats | float = 0.0
        self.averages = not no_repeats and not self.strong
        self.prior = np.maximum((factors**2).mean(axis=0), _LEAST_VARIANCE)

    @property
    def strong(self) -> bool:
        """Return whether factors are too strong for second-order averages over interests."""
        return bool((self.factors**2).sum() >= _STRONG_FACTORS * len(self.factors))

    def log_weights(self, interests: Floats) -> Floats:
        """Return log w_ui = gamma_i . omega_u + mu_i, (U, P), at given interests (U, K)."""
        return np.asarray(np.einsum("uk,pk->up", interests, self.factors) + self.offsets)

    def cells(self, log_weights: Floats, log_time: Floats) -> tuple[Cells, Cells]:
        """Compute derivatives of the log likelihood of each cell in its log rate log(T_u w_ui).

        Args:
            log_weights: (U, P).
            log_time: (U,) logarithms of T_u.

        Returns:
            score: (U, P) first derivatives.
            information: (U, P) expected negative second derivatives.
        """
        rate = np.exp(np.minimum((log_weights + log_time[:, None]).astype(np.float32), _LARGEST_LOG_RATE))
        if not self.no_repeats:  # Poisson counts
            return self.counts - rate, rate
        # Views with probability 1 - exp(-rate); bounds keep float32 from 0 / 0 and from overflow.
        rate_or_tiny = np.maximum(rate, np.float32(1e-12))
        score_if_viewed = rate_or_tiny / np.expm1(np.minimum(rate_or_tiny, np.float32(80.0)))
        score = np.where(self.counts > 0, score_if_viewed, -rate)
        return score, np.asarray(rate_or_tiny * score_if_viewed, np.float32)

    def times(self, log_weights: Floats, log_time: Floats) -> Floats:
        """Return log T_u (U,) that maximise the likelihood given the weights: exact for counts, else Newton's steps.

        Args:
            log_weights: (U, P).
            log_time: (U,) where Newton's steps begin, once there are times.
        """
        n_items = self.counts.shape[1]
        views = np.maximum(self.counts.sum(axis=1, dtype=np.float64), 0.5)
        if not self.no_repeats:
            top = log_weights.max(axis=1)
            relative = np.exp((log_weights - top[:, None]).astype(np.float32))
            return np.log(views) - top - np.log(relative.sum(axis=1, dtype=float))
        steps = 2
        if not self.has_times:
            # As if all weights were 1: views = P (1 - exp(-T)).
            log_time = np.log(-np.log1p(-np.minimum(views, n_items - 0.5) / n_items))
            steps = 12
        for _ in range(steps):
            score, information = self.cells(log_weights, log_time)
            step = score.sum(axis=1, dtype=np.float64) / np.maximum(information.sum(axis=1, dtype=np.float64), 1e-9)
            log_time = log_time + np.clip(step, -1.0, 1.0)
        return log_time

    def update_posterior(self, steps: int) -> None:
        """Update ``interests`` by Newton's method and ``covariance`` at the result, T_u being profiled out.

        With ``averages`` the fixed point is the posterior mean to second order, otherwise it is the mode.

        Args:
            steps: number of Newton steps; one more round computes the covariance.
        """
        k = self.factors.shape[1]
        outer = (self.factors[:, :, None] * self.factors[:, None, :]).reshape(-1, k * k)
        for step in range(steps + 1):
            log_weights = self.log_weights(self.interests) + self.correction
            self.log_time = self.times(log_weights, self.log_time)
            self.has_times = True
            score, information = self.cells(log_weights, self.log_time)
            total = np.maximum(information.sum(axis=1, dtype=np.float64), 1e-9)
            mean = _matrix_product(information, self.factors) / total[:, None]
            # Profiling T_u out centres the factors at each user's mean.
            precision: Floats = _matrix_product(information, outer).reshape(-1, k, k)
            precision -= total[:, None, None] * mean[:, :, None] * mean[:, None, :]
            precision += self.prior_precision[:, None, None] * np.eye(k)
            self.covariance = np.asarray(np.linalg.inv(precision), np.float64)
            if step < steps:
                gradient = _matrix_product(score, self.factors) - score.sum(axis=1, dtype=np.float64)[:, None] * mean
                gradient -= self.prior_precision[:, None] * self.interests
                self.interests += _shortened(np.linalg.solve(precision, gradient[:, :, None]))
                if self.averages:
                    self.correction = self.second_order(mean, outer)
                else:
                    self.correction = 0.0

    def second_order(self, mean: Floats, outer: Floats) -> Floats:
        """Compute what averaging over a user's posterior adds to log weights: half the variance of the centred ones.

        Args:
            mean: (U, K) information-weighted mean factor of each user; log weights are centred there.
            outer: (P, K * K) outer products of the items' factors.

        Returns:
            (U, P) variance of (gamma_i - mean_u) . omega_u over the posterior, halved.
        """
        direction = np.einsum("ukl,ul->uk", self.covariance, mean)
        variance = _matrix_product(outer, self.covariance.reshape(len(self.covariance), -1).T).T
        variance += np.einsum("uk,uk->u", direction, mean)[:, None]
        return np.asarray(0.5 * variance - np.einsum("uk,pk->up", direction, self.factors))

    def regress_items(self) -> None:
        """Take a Newton step of each item's factors and offset, set their errors, and standardise interests.

        Interests are integrated out by two antithetic draws from their posterior: its mean plus and minus one noise.
        """
        k = self.factors.shape[1]
        n_items = self.counts.shape[1]
        root = np.linalg.cholesky(self.covariance + 1e-9 * np.eye(k))
        shift = np.einsum("ukl,ul->uk", root, self.noise)
        gradient = np.zeros((n_items, k + 1))
        information_sums = np.zeros((n_items, k + 1, k + 1))
        draws = []
        for sign in (1.0, -1.0):
            omega = self.interests + sign * shift
            log_weights = self.log_weights(omega)
            score, information = self.cells(log_weights, self.times(log_weights, self.log_time))
            design = np.concatenate([omega, np.ones((len(omega), 1))], axis=1)
            gradient += 0.5 * _matrix_product(score.T, design)
            information_sums += 0.5 * _sums_of_outer_products(information, design, design)
            draws.append((sign, score, design))
        precision = 1.0 / np.append(self.prior, max(float(self.offsets.var()), _LEAST_VARIANCE))
        gradient -= precision * np.concatenate([self.factors, self.offsets[:, None]], axis=1)
        information_sums += np.diag(precision)
        move = _shortened(np.linalg.solve(information_sums, gradient[:, :, None]))
        self.factors += move[:, :k]
        self.offsets += move[:, k]
        # Missing information (Louis 1982): the variance of an item's score over users' posteriors. From two draws it is
        # a sum over users of outer products of half the difference of their scores, expanded to all four pairs.
        missing = sum(
            0.25 * sign * other_sign * _sums_of_outer_products(score * other_score, design, other_design)
            for sign, score, design in draws
            for other_sign, other_score, other_design in draws
        )
        self.spread = _observed_inverse(information_sums, np.asarray(missing))[:, :k, :k]
        self._standardise()

    def _standardise(self) -> None:
        """Rescale interests to mean 0 and covariance I, rotate factors to their principal axes, and update ``prior``.

        Factors and offsets absorb the change, so that log weights stay the same up to a constant. The spread of the
        interests is thus a parameter too, which makes EM faster (parameter expansion).
        """
        centre = self.interests.mean(axis=0)
        centred = self.interests - centre
        second = np.einsum("uk,ul->kl", centred, centred) / len(centred) + self.covariance.mean(axis=0)
        self.offsets += np.einsum("pk,k->p", self.factors, centre)
        self.offsets -= self.offsets.mean()
        # interests = root @ standardised ones; a rotation of the latter makes the factors' cross products diagonal.
        root = np.linalg.cholesky(second + 1e-9 * np.eye(len(centre)))
        scaled = np.einsum("pk,kl->pl", self.factors, root)
        root = np.einsum("kl,lm->km", root, np.linalg.eigh(np.einsum("pk,pl->kl", scaled, scaled))[1])
        self.factors = np.einsum("pk,kl->pl", self.factors, root)
        self.spread = np.einsum("lk,plm,mn->pkn", root, self.spread, root)
        self.interests = np.linalg.solve(root, centred.T).T
        self.prior = np.maximum(
            (self.factors**2 + np.diagonal(self.spread, axis1=1, axis2=2)).mean(axis=0), _LEAST_VARIANCE
        )


def _shortened(move: Floats) -> Floats:
    """Return steps (n, m, 1) as (n, m), each shortened to a Euclidean length of at most ``_LONGEST_STEP``."""
    return np.asarray(
        move[:, :, 0] * np.minimum(1.0, _LONGEST_STEP / np.maximum(np.sqrt((move**2).sum(axis=1)), 1e-12))
    )


def _observed_inverse(information: Floats, missing: Floats) -> Floats:
    """Invert each item's observed information: the complete information less the missing one.

    The missing share is bounded by ``_MOST_MISSING`` in every direction, since an estimate of it may exceed 1.

    Args:
        information: (P, m, m) complete information.
        missing: (P, m, m) missing information.

    Returns:
        (P, m, m) inverses.
    """
    # In the axes that make the complete information I and the missing one diagonal.
    root = np.linalg.inv(np.linalg.cholesky(information))
    share, axes = np.linalg.eigh(np.einsum("pij,pjk,plk->pil", root, missing, root))
    axes = np.einsum("pij,pik->pkj", axes, root)
    return np.einsum("pij,pj,pkj->pik", axes, 1.0 / (1.0 - np.minimum(share, _MOST_MISSING)), axes)


def _sums_of_outer_products(cells: Cells, one: Floats, other: Floats) -> Floats:
    """Return (P, m, m) sums over users of cells (U, P) times the outer product of the user's rows of both (U, m)."""
    m = one.shape[1]
    return _matrix_product(cells.T, (one[:, :, None] * other[:, None, :]).reshape(len(one), -1)).reshape(-1, m, m)


def _matrix_product(cells: Cells | Floats, columns: Floats) -> Floats:
    """Return the matrix product (n, m) of cells (n, P) and columns (P, m), in single precision.

    einsum of contiguous rows gives the same bits with any number of BLAS threads.
    """
    columns_by_row = np.ascontiguousarray(columns.T, np.float32)
    return np.einsum("np,mp->nm", np.ascontiguousarray(cells), columns_by_row).astype(np.float64)


def _first_factors(counts: Cells, shares: Floats, n_factors: int, seed: int) -> Floats:
    """Return starting factors (P, K): the leading directions of the Pearson residuals of users' counts.

    They are found by six rounds of subspace iteration from random vectors, and scaled to a root mean square of 0.7.

    Args:
        counts: (U, P) views.
        shares: (P,) the items' shares of all views.
        n_factors: K.
        seed: seed of the random vectors.
    """
    expected = counts.sum(axis=1, dtype=np.float64)[:, None] * shares
    residual = ((counts - expected) / np.sqrt(np.maximum(expected, 1e-9))).astype(np.float32)
    factors = rng.normals(seed, rng.Stream.FIT, 1, (counts.shape[1], n_factors))
    for _ in range(6):
        factors = _matrix_product(residual.T, _matrix_product(residual, factors))
        root = np.linalg.cholesky(np.einsum("pk,pl->kl", factors, factors) + 1e-9 * np.eye(n_factors))
        factors = np.asarray(np.linalg.solve(root, factors.T).T, np.float64)
    return np.asarray(0.7 * factors / np.maximum(np.sqrt((factors**2).mean()), 1e-9))


FACTORS = 5
"""Number of factors, RecoGym's; those without evidence in the log fade."""
CELLS = 4_000_000
"""Largest number of cells in a table of users by items."""
_MOST_USERS = 4000
"""Largest number of users to whom factors are fitted."""
_NEAR_LAGS = (1, 2)
"""Lags of near pairs of views."""
_FIRST_FAR_LAGS = (20, 10, 5)
"""Candidates for the smallest lag of far pairs: the first one with enough data is used."""
_LEAST_FAR_PAIRS = 2000
"""Number of far pairs that an estimate of drift needs."""
_LEAST_FAR_USERS = 100
"""Number of users with far pairs that an estimate of drift needs."""
_N_PLACES = 4
"""Number of places in users' sequences of views at which expectations are computed."""
# Steps of numerical derivatives, and bounds, for (log scale, drift).
_STEPS = (0.05, 0.002)
_LOWEST = (np.log(0.1), 0.0)
_HIGHEST = (np.log(6.0), 4.0)


@dataclass(frozen=True)
class ViewCounts:
    """Numbers of views, by user and by item, on which expected pairs of views depend.

    Attributes:
        lengths: (U,) number of views of each user.
        log_shares: (P,) logarithms of the items' shares of all views.
        no_repeats: True if no user views an item twice.
        far: lags of far pairs of views; empty if drift is not estimated.
    """

    lengths: Ints
    log_shares: Floats
    no_repeats: bool
    far: tuple[int, ...]


@dataclass(frozen=True)
class Scales:
    """Strength and drift of preferences.

    Attributes:
        scale: factor on the view model's factors.
        drift: variance that each entry of a user's interests gains per view.
        offsets: (P,) offsets with which items' expected shares of views are the log's.
        slope: (2, 2) derivatives of the log ratios of :func:`expected_ratios` (rows) in log scale and drift (columns).
    """

    scale: float
    drift: float
    offsets: Floats
    slope: Floats


@dataclass(frozen=True)
class Shares:
    """Observed popularity of P items, and how far its variation is true.

    Attributes:
        logs: (P,) logarithms of the items' shares of views.
        centre: precision-weighted mean of ``logs``.
        kept: (P,) reliability: variance of the true logarithms over that of the observed ones.
    """

    logs: Floats
    centre: float
    kept: Floats

    def settled(self, noise: Floats | None = None) -> Floats:
        """Shrink the log shares towards their centre so that they vary as much as the true ones.

        Args:
            noise: (P,) errors drawn from the sampling distribution of ``logs``, for a draw from the posterior of the
                true log shares; None for the best fit.

        Returns:
            (P,) logarithms.
        """
        deviation = self.logs - self.centre
        if noise is None:
            # The posterior mean, kept * deviation, would vary too little: the square root keeps the true variance.
            moved = np.sqrt(self.kept) * deviation
        else:
            moved = self.kept * deviation + np.sqrt(self.kept) * noise
        return np.asarray(self.centre + moved)


@dataclass(frozen=True)
class FittedViews:
    """Views of U users and the models fitted to them.

    Attributes:
        user, item: (n,) the user, numbered from 0, and the item of each view.
        view_counts: numbers of views by user and item.
        shares: popularity of the items.
        model: factors and offsets by likelihood.
        scales: strength and drift of preferences by moments.
        sums, pairs: (U, 2) counts of pairs of views, as :func:`count_pairs_of_views` returns them.
    """

    user: Ints
    item: Ints
    view_counts: ViewCounts
    shares: Shares
    model: ViewModel
    scales: Scales
    sums: Floats
    pairs: Floats

    @property
    def factors(self) -> Floats:
        """Factors (P, K) of the items, at the fitted strength."""
        return self.scales.scale * self.model.factors

    def observed_ratios(self, weights: Floats) -> Floats:
        """Return the observed counterparts (2,) of :func:`expected_ratios`, users counted with ``weights`` (U,)."""
        return np.einsum("u,uj->j", weights, self.sums) / np.maximum(np.einsum("u,uj->j", weights, self.pairs), 1e-9)


def views_of(log: Log, n_items: int, seed: int, report: Callable[[str], None]) -> FittedViews:
    """Fit popularity, factors, strength and drift to the views of a log.

    Args:
        log: a log with at least one view.
        n_items: number of items P.
        seed: seed of the sample of users and of the fit.
        report: called with a line whenever a stage begins.
    """
    organic = log.organic()
    user = user_numbers(organic["user"])
    item = organic["item"].astype(np.int64)
    lengths = np.bincount(user)
    by_item = np.bincount(item, minlength=n_items) / len(item)
    repeats = len(item) - len(np.unique(user * n_items + item))
    # Expected number of repeated views if all users had the same preferences: if more than five are expected and there
    # are none, the log's users cannot view an item twice.
    expected_repeats = float((lengths * (lengths - 1.0)).sum() / 2 * (by_item**2).sum())
    no_repeats = repeats == 0 and expected_repeats > 5.0
    shares = shares_of(user, item, n_items)
    far: tuple[int, ...] = ()
    if not no_repeats:
        far = far_lags(lengths)
    view_counts = ViewCounts(lengths, shares.settled(), no_repeats, far)
    order = np.argsort(uniforms(seed, Stream.FIT, np.arange(len(lengths)), 3), kind="stable")
    sample = np.sort(order[: min(_MOST_USERS, max(CELLS // n_items, 200))])
    n_factors = min(FACTORS, n_items - 1)
    report(f"fit what is viewed, {n_factors} factors")
    counts = counted_views(user, item, sample, n_items)
    full = fit_views(counts, n_factors, no_repeats=no_repeats, seed=seed)
    report("set the strength and the drift of preferences")
    sums, pairs = count_pairs_of_views(user, item, view_counts.far)
    model = full.significant()
    # Near pairs with the same item beyond those expected if all users had the same preferences. Where users clearly
    # return to items, preferences differ, and all factors are kept even if none is significant by itself.
    excess = sums[:, 0] - float((by_item**2).sum()) * pairs[:, 0]
    if model.factors.shape[1] == 0 and excess.sum() > _CLEAR_RETURNS * np.sqrt((excess**2).sum()):
        model = full
    if model.factors.shape[1] == 0 or no_repeats:
        offsets = match_popularity(model.factors, model.offsets, view_counts, drift=0.0)
        scales = Scales(scale=1.0, drift=0.0, offsets=offsets, slope=np.eye(2))
    else:
        scales = fit_scales(model, view_counts, sums.sum(axis=0) / np.maximum(pairs.sum(axis=0), 1e-9))
    return FittedViews(user, item, view_counts, shares, model, scales, sums, pairs)


def shares_of(user: Ints, item: Ints, n_items: int) -> Shares:
    """Estimate the items' shares of views, and the reliability of their logarithms (Paule & Mandel 1982).

    Half a view is added to each item. Errors are clustered by user; the variance of the true log shares is a
    method-of-moments estimate, by a fixed number of iterations.

    Args:
        user: (n,) user of each view, numbered from 0.
        item: (n,) item of each view.
        n_items: number of items.
    """
    by_item = np.bincount(item, minlength=n_items) + 0.5
    lengths = np.bincount(user).astype(np.float64)
    pairs, count = np.unique(user * n_items + item, return_counts=True)
    squares = np.bincount(pairs % n_items, count.astype(np.float64) ** 2, n_items) + 0.5
    cross = np.bincount(pairs % n_items, count * lengths[pairs // n_items], n_items)
    shares = by_item / by_item.sum()
    # Sum over users of (count - share * length)^2: the variance of an item's count, with the user as the unit.
    variance = (squares - 2.0 * shares * cross + shares**2 * (lengths**2).sum()) / by_item**2
    logs = np.log(shares)
    errors = np.maximum(variance, 0.5 / by_item)
    between = float(np.var(logs))
    for _ in range(50):
        weights = 1.0 / (between + errors)
        centre = float((weights * logs).sum() / weights.sum())
        between = max(float((weights**2 * ((logs - centre) ** 2 - errors)).sum() / (weights**2).sum()), 1e-6)
    return Shares(logs, centre, between / (between + errors))


def counted_views(user: Ints, item: Ints, users: Ints, n_items: int) -> Cells:
    """Count the views (U, P) of each item by a sample of users.

    Args:
        user: (n,) user of each view.
        item: (n,) item of each view.
        users: (U,) the sampled users, ascending.
        n_items: number of items P.
    """
    place = np.minimum(np.searchsorted(users, user), len(users) - 1)
    included = users[place] == user
    cells = np.bincount(place[included] * n_items + item[included], minlength=len(users) * n_items)
    return cells.astype(np.float32).reshape(len(users), n_items)


def far_lags(lengths: Ints) -> tuple[int, ...]:
    """Return the largest lags with enough pairs of views to show a drift; () where users have too few views.

    Args:
        lengths: (U,) number of views of each user.
    """
    for first in _FIRST_FAR_LAGS:
        lags = tuple(range(first, first + first // 2 + 1))
        if (lengths > first).sum() >= _LEAST_FAR_USERS and _pairs_by_user(lengths, lags).sum() >= _LEAST_FAR_PAIRS:
            return lags
    return ()


def count_pairs_of_views(user: Ints, item: Ints, far: Sequence[int]) -> tuple[Floats, Floats]:
    """Count each user's pairs of views at near and far lags.

    Sums of the first array over users, divided by those of the second, are the ratios of :func:`expected_ratios`.

    Args:
        user: (n,) user of each view, numbered from 0.
        item: (n,) item of each view.
        far: lags of far pairs.

    Returns:
        sums: (U, 2) near and far pairs of views with the same item.
        pairs: (U, 2) near pairs; and far pairs times the user's share of near pairs that have the same item, which
            are the far pairs with the same item to be expected without drift.
    """
    n_users = int(user[-1]) + 1
    sums = np.zeros((n_users, 2))
    pairs = np.zeros((n_users, 2))
    for column, lags in enumerate((_NEAR_LAGS, far)):
        for lag in lags:
            n_pairs = max(len(user) - lag, 0)
            first = np.flatnonzero(user[lag:] == user[:n_pairs])
            sums[:, column] += np.bincount(user[first], item[first] == item[first + lag], n_users)
            pairs[:, column] += np.bincount(user[first], minlength=n_users)
    pairs[:, 1] *= sums[:, 0] / np.maximum(pairs[:, 0], 1.0)
    return sums, pairs


def expected_ratios(factors: Floats, offsets: Floats, view_counts: ViewCounts, drift: float) -> Floats:
    """Compute how often a user's views are expected to have the same item, near each other and far apart.

    Args:
        factors: (P, K) view factors.
        offsets: (P,) view offsets.
        view_counts: numbers of views, and the lags of far pairs.
        drift: variance that interests gain per view.

    Returns:
        (2,) the share of near pairs of views with the same item; and the number of far pairs with the same item, over
        the number that there would be if each user's far pairs had it as often as the near ones. The latter is 1
        without far lags.
    """
    near_chance = _chance_by_place(factors, offsets, view_counts, drift, _NEAR_LAGS)
    near_pairs = _pairs_by_user(view_counts.lengths, _NEAR_LAGS)
    near_share = float((_pairs_by_place(view_counts.lengths, _NEAR_LAGS) * near_chance).sum() / near_pairs.sum())
    if not view_counts.far:
        return np.array([near_share, 1.0])
    far_chance = _chance_by_place(factors, offsets, view_counts, drift, view_counts.far)
    far_same = (_pairs_by_place(view_counts.lengths, view_counts.far) * far_chance).sum()
    # Near pairs weighted so that each user's count as many as the user's far pairs.
    far_per_near = _pairs_by_user(view_counts.lengths, view_counts.far) / np.maximum(near_pairs, 1.0)
    far_same_without_drift = _pairs_by_place(view_counts.lengths, _NEAR_LAGS, far_per_near) * near_chance
    return np.array([near_share, far_same / far_same_without_drift.sum()])


def _pairs_by_user(lengths: Ints, lags: Sequence[int]) -> Floats:
    """Count the pairs of views at the given lags of each user with ``lengths`` (U,) views; (U,)."""
    return np.asarray(sum(np.maximum(lengths - lag, 0.0) for lag in lags))


def _pairs_by_place(lengths: Ints, lags: Sequence[int], weight: Floats | None = None) -> Floats:
    """Count the pairs of views by the place of the first view in its user's sequence.

    Args:
        lengths: (U,) number of views of each user.
        lags: distances of the two views.
        weight: (U,) weight of each user's pairs; None for 1.

    Returns:
        (L,) counts for the places 0, 1, ..., L - 1, with L the largest number of views.
    """
    # A user with n views has a pair at each of the places 0 .. n - lag - 1: a reversed cumulated histogram of n - lag.
    users = [np.bincount(np.maximum(lengths - lag, 0), weight, int(lengths.max()) + 1) for lag in lags]
    return np.asarray(np.cumsum(np.sum(users, axis=0)[::-1])[::-1][1:])


def _chance_by_place(
    factors: Floats, offsets: Floats, view_counts: ViewCounts, drift: float, lags: Sequence[int]
) -> Floats:
    """Compute the probability that both views of a pair have the same item, by the place of the first view.

    It is computed at ``_N_PLACES`` places, quantiles of the pairs' places, and interpolated linearly. A pair's lag is
    replaced by the mean lag. Without drift the probability is the same at all places, and one suffices.

    Returns:
        (L,) probabilities for the places 0, 1, ..., L - 1, with L the largest number of views.
    """
    cumulated = np.cumsum(_pairs_by_place(view_counts.lengths, lags))
    places = np.unique(np.searchsorted(cumulated, (np.arange(_N_PLACES) + 0.5) / _N_PLACES * cumulated[-1]))
    if not drift > 0.0:
        places = places[:1]
    k = factors.shape[1]
    # Quadrature points in 2 K dimensions: interests at the first view, and their change up to the second.
    _, normal = points(n_points(len(offsets)), 2 * k)
    change = np.sqrt(drift * float(np.mean(lags))) * normal[:, k:]
    chances = []
    for place in places:
        omega = interests_at(normal[:, :k], float(place), drift)
        earlier = softmax(omega, factors, offsets)
        later = earlier
        if drift > 0.0:
            later = softmax(omega + change, factors, offsets)
        chances.append(float(np.einsum("np,np->", earlier, later)) / len(earlier))
    return np.interp(np.arange(len(cumulated)), places, chances)


def match_popularity(
    factors: Floats, offsets: Floats, view_counts: ViewCounts, drift: float, rounds: int = 12
) -> Floats:
    """Return offsets (P,) with which the items' expected shares of views are those of the log, by fixed-point steps.

    Args:
        factors: (P, K) view factors.
        offsets: (P,) offsets to start from.
        view_counts: numbers of views, with the log shares to match.
        drift: variance that interests gain per view.
        rounds: largest number of steps.
    """
    uniform, normal = points(n_points(len(offsets)), factors.shape[1])
    omega = interests_at(normal, views_before(uniform, float(view_counts.lengths.mean())), drift)
    # Each point's number of views: quantiles at multiples of the golden ratio (an additive recurrence), which are
    # evenly spread and unrelated to omega.
    lengths = np.quantile(view_counts.lengths, (np.arange(len(omega)) * 0.618034 + 0.5 / len(omega)) % 1.0)
    for _ in range(rounds):
        weights = softmax(omega, factors, offsets)
        if view_counts.no_repeats:
            weights = _chance_of_view(weights, np.minimum(lengths, 0.9 * len(offsets)))
        shares = weights.sum(axis=0)
        step = view_counts.log_shares - np.log(np.maximum(shares / shares.sum(), 1e-30))
        offsets = offsets + np.clip(step, -2.0, 2.0)
        offsets -= offsets.mean()
        if np.abs(step).max() < 1e-3:
            break
    return offsets


def _chance_of_view(weights: Floats, lengths: Floats) -> Floats:
    """Return the probability (n, P) that each item is among a user's views, where no item is viewed twice.

    Items are viewed by time T of a race of exponential clocks, with probability 1 - exp(-T w); T is such that as many
    items are expected as there are views.

    Args:
        weights: (n, P) each user's choice probabilities w, which sum to 1.
        lengths: (n,) each user's number of views.
    """
    time = lengths.copy()
    # The expected number of viewed items is concave in T: Newton's steps come from below.
    for _ in range(20):
        survival = np.exp(-weights * time[:, None])
        step = (lengths - (1.0 - survival).sum(axis=1)) / np.maximum(np.einsum("np,np->n", weights, survival), 1e-9)
        time += step
        if np.abs(step).max() < 1e-3 * time.max():
            break
    return -np.expm1(-weights * time[:, None])


def fit_scales(model: ViewModel, view_counts: ViewCounts, observed: Floats) -> Scales:
    """Fit the scale of the factors and the drift so that the ratios of :func:`expected_ratios` are the observed ones.

    Args:
        model: factors and offsets by likelihood.
        view_counts: numbers of views; without far lags the drift is 0.
        observed: (2,) observed ratios.
    """
    from scipy.optimize import least_squares

    has_drift = bool(view_counts.far)
    n_free = 1 + has_drift  # parameters (log scale, drift), or the log scale alone
    offsets = model.offsets

    def gap(point: Floats) -> Floats:
        """Return differences of log ratios; offsets start where the last call left them, which saves steps."""
        nonlocal offsets
        factors = np.exp(point[0]) * model.factors
        drift = 0.0
        if has_drift:
            drift = float(point[1])
        offsets = match_popularity(factors, offsets, view_counts, drift)
        ratios = expected_ratios(factors, offsets, view_counts, drift)
        return np.asarray((np.log(np.maximum(ratios, 1e-9)) - np.log(np.maximum(observed, 1e-9)))[:n_free])

    def slope(point: Floats) -> Floats:
        """Return forward differences of :func:`gap`."""
        here = gap(point)
        return np.stack([(gap(point + step) - here) / step.max() for step in np.diag(_STEPS[:n_free])], axis=1)

    solution = least_squares(
        gap,
        x0=[0.0, 0.003][:n_free],
        jac=slope,
        bounds=(_LOWEST[:n_free], _HIGHEST[:n_free]),
        x_scale=_STEPS[:n_free],
        ftol=1e-8,
        xtol=1e-4,
        gtol=1e-12,
        max_nfev=10,
    )
    gap(solution.x)  # sets the offsets that belong to the solution
    slopes = np.eye(2)
    slopes[:n_free, :n_free] = solution.jac
    drift = 0.0
    if has_drift:
        drift = float(solution.x[1])
    return Scales(float(np.exp(solution.x[0])), drift, offsets, slopes)
