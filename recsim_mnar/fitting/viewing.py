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

_STEP, _FARTHEST, _LEAST, _MISSED = 2.0, 30.0, 1e-3, 0.8
_STRONG = 12.0
"""Sum of an item's squared factors from which the second order is no approximation, and EM with it diverges."""
_ABOVE = 2.5
"""Ratio of a factor's squares to their errors above which it is kept; shuffled items reach 2.3."""
_RETURNS = 4.0
"""Standard errors by which users return to items more than if all were alike, from which they differ, even if views are
too few for a factor to be significant."""


@dataclass(frozen=True, eq=False)
class ViewModel:
    """Model of P items: gamma (P, K), mu (P,) of mean 0, and (P, K, K) the covariance of the errors of factors."""

    factors: Floats
    offsets: Floats
    spread: Floats

    def significant(self) -> ViewModel:
        """Return the model with the factors that are well above their errors."""
        size = (self.factors**2).mean(axis=0)
        error = np.einsum("pkk->k", self.spread) / max(len(self.spread), 1)
        kept = np.flatnonzero(size > _ABOVE * error)
        return ViewModel(self.factors[:, kept], self.offsets, self.spread[:, kept][:, :, kept])


def fit_views(counts: Cells, n_factors: int, *, no_repeats: bool, seed: int, iterations: int = 14) -> ViewModel:
    """Fit the model to the number of views (U, P) of each item by each user; 0 or 1 where there are no repeats."""
    shares = (counts.sum(axis=0, dtype=np.float64) + 0.5) / (counts.sum(dtype=np.float64) + 0.5 * counts.shape[1])
    first = _first_factors(counts, shares, n_factors, seed)
    state = _State(counts, first, np.log(shares), no_repeats, seed)
    state.averages = False
    _iterate(state, iterations)
    if not no_repeats and not state.strong:
        second_order = _State(counts, first, np.log(shares), no_repeats, seed)
        _iterate(second_order, iterations)
        if not second_order.strong:
            state = second_order
    return ViewModel(state.factors, state.offsets, state.spread)


def _iterate(state: _State, iterations: int) -> None:
    """Take the steps of EM; stop at the second order if factors become strong, since then it diverges."""
    state.offsets -= state.offsets.mean()
    state.update_posterior(6)
    for _ in counting(range(iterations), "steps"):
        state.regress_items()
        if state.averages and state.strong:
            return
        state.update_posterior(2)


def interests_of(model: ViewModel, counts: Cells, variances: Floats, *, no_repeats: bool) -> tuple[Floats, Floats]:
    """Return posterior means (U, K) and covariances (U, K, K) of users' interests, given prior variances (U,)."""
    if model.factors.shape[1] == 0:
        return np.zeros((len(counts), 0)), np.zeros((len(counts), 0, 0))
    state = _State(counts, model.factors, model.offsets, no_repeats, 0)
    state.prior_precision = 1.0 / variances
    state.update_posterior(8)
    return state.interests, state.covariance


class _State:
    """Parameters updated by EM."""

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
        self.prior = np.maximum((factors**2).mean(axis=0), _LEAST)

    @property
    def strong(self) -> bool:
        """Return whether tastes are too strong for second-order averages."""
        return bool((self.factors**2).sum() >= _STRONG * len(self.factors))

    def log_weights(self, interests: Floats) -> Floats:
        """Return (U, P) logarithms of weights."""
        return np.asarray(np.einsum("uk,pk->up", interests, self.factors) + self.offsets)

    def cells(self, log_weights: Floats, log_time: Floats) -> tuple[Cells, Cells]:
        """Return score and information of each cell's linear predictor, (U, P) each."""
        rate = np.exp(np.minimum((log_weights + log_time[:, None]).astype(np.float32), _FARTHEST))
        if not self.no_repeats:
            return self.counts - rate, rate
        rate_or_tiny = np.maximum(rate, np.float32(1e-12))
        pull = rate_or_tiny / np.expm1(np.minimum(rate_or_tiny, np.float32(80.0)))
        return np.where(self.counts > 0, pull, -rate), np.asarray(rate_or_tiny * pull, np.float32)

    def times(self, log_weights: Floats, log_time: Floats) -> Floats:
        """Return (U,) logarithms of T_u where its score is 0."""
        n_items = self.counts.shape[1]
        views = np.maximum(self.counts.sum(axis=1, dtype=np.float64), 0.5)
        if not self.no_repeats:
            top = log_weights.max(axis=1)
            relative = np.exp((log_weights - top[:, None]).astype(np.float32))
            return np.log(views) - top - np.log(relative.sum(axis=1, dtype=float))
        if not self.has_times:
            log_time = np.log(-np.log1p(-np.minimum(views, n_items - 0.5) / n_items))
        for _ in range(2 if self.has_times else 12):
            score, information = self.cells(log_weights, log_time)
            step = score.sum(axis=1, dtype=np.float64) / np.maximum(information.sum(axis=1, dtype=np.float64), 1e-9)
            log_time = log_time + np.clip(step, -1.0, 1.0)
        return log_time

    def update_posterior(self, steps: int) -> None:
        """Take Newton's steps to the mean of each user's interests, and compute the covariance there."""
        k = self.factors.shape[1]
        outer = (self.factors[:, :, None] * self.factors[:, None, :]).reshape(-1, k * k)
        for step in range(steps + 1):
            log_weights = self.log_weights(self.interests) + self.correction
            self.log_time = self.times(log_weights, self.log_time)
            self.has_times = True
            score, information = self.cells(log_weights, self.log_time)
            total = np.maximum(information.sum(axis=1, dtype=np.float64), 1e-9)
            mean = _product(information, self.factors) / total[:, None]
            precision: Floats = _product(information, outer).reshape(-1, k, k)
            precision -= total[:, None, None] * mean[:, :, None] * mean[:, None, :]
            precision += self.prior_precision[:, None, None] * np.eye(k)
            self.covariance = np.asarray(np.linalg.inv(precision), np.float64)
            if step < steps:
                gradient = _product(score, self.factors) - score.sum(axis=1, dtype=np.float64)[:, None] * mean
                gradient -= self.prior_precision[:, None] * self.interests
                self.interests += _bounded(np.linalg.solve(precision, gradient[:, :, None]))
                if self.averages:
                    self.correction = self.second_order(mean, outer)
                else:
                    self.correction = 0.0

    def second_order(self, mean: Floats, outer: Floats) -> Floats:
        """Return (U, P) the effect of averaging over the posterior on log weights: half their variance about it."""
        direction = np.einsum("ukl,ul->uk", self.covariance, mean)
        variance = _product(outer, self.covariance.reshape(len(self.covariance), -1).T).T
        variance += np.einsum("uk,uk->u", direction, mean)[:, None]
        return np.asarray(0.5 * variance - np.einsum("uk,pk->up", direction, self.factors))

    def regress_items(self) -> None:
        """Take a Newton step of each item's factors and offset, then standardise interests."""
        k = self.factors.shape[1]
        n_items = self.counts.shape[1]
        root = np.linalg.cholesky(self.covariance + 1e-9 * np.eye(k))
        shift = np.einsum("ukl,ul->uk", root, self.noise)
        gradient = np.zeros((n_items, k + 1))
        information_sums = np.zeros((n_items, k + 1, k + 1))
        sides = []
        for sign in (1.0, -1.0):
            omega = self.interests + sign * shift
            log_weights = self.log_weights(omega)
            score, information = self.cells(log_weights, self.times(log_weights, self.log_time))
            design = np.concatenate([omega, np.ones((len(omega), 1))], axis=1)
            gradient += 0.5 * _product(score.T, design)
            information_sums += 0.5 * _squares(information, design, design)
            sides.append((sign, score, design))
        precision = 1.0 / np.append(self.prior, max(float(self.offsets.var()), _LEAST))
        gradient -= precision * np.concatenate([self.factors, self.offsets[:, None]], axis=1)
        information_sums += np.diag(precision)
        move = _bounded(np.linalg.solve(information_sums, gradient[:, :, None]))
        self.factors += move[:, :k]
        self.offsets += move[:, k]
        missing = sum(0.25 * a * b * _squares(s * t, x, z) for a, s, x in sides for b, t, z in sides)
        self.spread = _observed_inverse(information_sums, np.asarray(missing))[:, :k, :k]
        self._standardise()

    def _standardise(self) -> None:
        """Bring interests back to mean 0 and covariance I, and factors to their principal axes; update priors."""
        centre = self.interests.mean(axis=0)
        apart = self.interests - centre
        second = np.einsum("uk,ul->kl", apart, apart) / len(apart) + self.covariance.mean(axis=0)
        self.offsets += np.einsum("pk,k->p", self.factors, centre)
        self.offsets -= self.offsets.mean()
        root = np.linalg.cholesky(second + 1e-9 * np.eye(len(centre)))
        scaled = np.einsum("pk,kl->pl", self.factors, root)
        root = np.einsum("kl,lm->km", root, np.linalg.eigh(np.einsum("pk,pl->kl", scaled, scaled))[1])
        self.factors = np.einsum("pk,kl->pl", self.factors, root)
        self.spread = np.einsum("lk,plm,mn->pkn", root, self.spread, root)
        self.interests = np.linalg.solve(root, apart.T).T
        self.prior = np.maximum((self.factors**2 + np.diagonal(self.spread, axis1=1, axis2=2)).mean(axis=0), _LEAST)


def _bounded(move: Floats) -> Floats:
    """Return steps (n, m, 1) as (n, m), shortened to at most ``_STEP``."""
    return np.asarray(move[:, :, 0] * np.minimum(1.0, _STEP / np.maximum(np.sqrt((move**2).sum(axis=1)), 1e-12)))


def _observed_inverse(information: Floats, missing: Floats) -> Floats:
    """Return (P, m, m) inverses of the information less the missing one, up to four fifths in any direction."""
    root = np.linalg.inv(np.linalg.cholesky(information))
    share, axes = np.linalg.eigh(np.einsum("pij,pjk,plk->pil", root, missing, root))
    axes = np.einsum("pij,pik->pkj", axes, root)
    return np.einsum("pij,pj,pkj->pik", axes, 1.0 / (1.0 - np.minimum(share, _MISSED)), axes)


def _squares(cells: Cells, one: Floats, other: Floats) -> Floats:
    """Return (P, m, m) sums over users of cells (U, P) times outer products of rows (U, m)."""
    m = one.shape[1]
    return _product(cells.T, (one[:, :, None] * other[:, None, :]).reshape(len(one), -1)).reshape(-1, m, m)


def _product(cells: Cells | Floats, columns: Floats) -> Floats:
    """Return (n, m) the product of cells (n, P) and columns (P, m)."""
    slim = np.ascontiguousarray(columns.T, np.float32)
    return np.einsum("np,mp->nm", np.ascontiguousarray(cells), slim).astype(np.float64)


def _first_factors(counts: Cells, shares: Floats, n_factors: int, seed: int) -> Floats:
    """Return the leading directions of the Pearson residuals, (P, K), by subspace iteration."""
    expected = counts.sum(axis=1, dtype=np.float64)[:, None] * shares
    residual = ((counts - expected) / np.sqrt(np.maximum(expected, 1e-9))).astype(np.float32)
    factors = rng.normals(seed, rng.Stream.FIT, 1, (counts.shape[1], n_factors))
    for _ in range(6):
        factors = _product(residual.T, _product(residual, factors))
        root = np.linalg.cholesky(np.einsum("pk,pl->kl", factors, factors) + 1e-9 * np.eye(n_factors))
        factors = np.asarray(np.linalg.solve(root, factors.T).T, np.float64)
    return np.asarray(0.7 * factors / np.maximum(np.sqrt((factors**2).mean()), 1e-9))


FACTORS = 5
"""Number of factors, RecoGym's; those without evidence in the log fade."""
CELLS, _MOST_USERS = 4_000_000, 4000
"""Largest table of users by items that is kept in memory."""
_NEAR, _FAR = (1, 2), (20, 10, 5)
_PAIRS, _LONG_LIVES, _PLACES = 2000, 100, 4
_STEPS = (0.05, 0.002)
_LOWEST, _HIGHEST = (np.log(0.1), 0.0), (np.log(6.0), 4.0)


@dataclass(frozen=True)
class LifeLengths:
    """Views of each user (U,), logarithms of items' shares (P,), whether no item is viewed twice, lags of far pairs."""

    lengths: Ints
    log_shares: Floats
    no_repeats: bool
    far: tuple[int, ...]


@dataclass(frozen=True)
class Scales:
    """Scale of the factors, drift variance per view, offsets (P,), and (2, 2) slopes of log resemblances in both."""

    scale: float
    drift: float
    offsets: Floats
    slope: Floats


@dataclass(frozen=True)
class Shares:
    """Logarithms (P,) of items' shares of views, their mean, and (P,) the share of each one's variance that is true."""

    logs: Floats
    centre: float
    kept: Floats

    def settled(self, noise: Floats | None = None) -> Floats:
        """Return logarithms (P,) that vary as true ones do: the best fit, or a posterior draw of given errors."""
        apart = self.logs - self.centre
        if noise is None:
            moved = np.sqrt(self.kept) * apart
        else:
            moved = self.kept * apart + np.sqrt(self.kept) * noise
        return np.asarray(self.centre + moved)


@dataclass(frozen=True)
class FittedViews:
    """Views of U users, numbered from 0, and the models fitted to them; ``sums``, ``pairs``: :func:`resemblance`."""

    user: Ints
    item: Ints
    lives: LifeLengths
    shares: Shares
    model: ViewModel
    scales: Scales
    sums: Floats
    pairs: Floats

    @property
    def factors(self) -> Floats:
        """Factors (P, K) of the items, at the fitted strength."""
        return self.scales.scale * self.model.factors

    def resemblances(self, weights: Floats) -> Floats:
        """Return (2,) the mean affinity of near pairs, and the share of it that far pairs of the same users keep."""
        return np.einsum("u,uj->j", weights, self.sums) / np.maximum(np.einsum("u,uj->j", weights, self.pairs), 1e-9)


def views_of(log: Log, n_items: int, seed: int, report: Callable[[str], None]) -> FittedViews:
    """Fit the views of a log, at least one, of P = ``n_items`` items; ``report`` is called at each stage."""
    organic = log.organic()
    user = user_numbers(organic["user"])
    item = organic["item"].astype(np.int64)
    lengths = np.bincount(user)
    by_item = np.bincount(item, minlength=n_items) / len(item)
    repeats = len(item) - len(np.unique(user * n_items + item))
    no_repeats = repeats == 0 and float((lengths * (lengths - 1.0)).sum() / 2 * (by_item**2).sum()) > 5.0
    shares = shares_of(user, item, n_items)
    lives = LifeLengths(lengths, shares.settled(), no_repeats, () if no_repeats else far_lags(lengths))
    order = np.argsort(uniforms(seed, Stream.FIT, np.arange(len(lengths)), 3), kind="stable")
    sample = np.sort(order[: min(_MOST_USERS, max(CELLS // n_items, 200))])
    n_factors = min(FACTORS, n_items - 1)
    report(f"fit what is viewed, {n_factors} factors")
    counts = counted_views(user, item, sample, n_items)
    full = fit_views(counts, n_factors, no_repeats=no_repeats, seed=seed)
    report("set the strength and the drift of preferences")
    sums, pairs = resemblance(user, item, lives.far)
    model = full.significant()
    excess = sums[:, 0] - float((by_item**2).sum()) * pairs[:, 0]  # over users who are all alike
    if model.factors.shape[1] == 0 and excess.sum() > _RETURNS * np.sqrt((excess**2).sum()):
        model = full
    if model.factors.shape[1] == 0 or no_repeats:
        scales = Scales(1.0, 0.0, match_popularity(model.factors, model.offsets, lives, 0.0), np.eye(2))
    else:
        scales = fit_scales(model, lives, sums.sum(axis=0) / np.maximum(pairs.sum(axis=0), 1e-9))
    return FittedViews(user, item, lives, shares, model, scales, sums, pairs)


def shares_of(user: Ints, item: Ints, n_items: int) -> Shares:
    """Return shares of views, with half a view more of each item, and their errors by user (Paule & Mandel 1982)."""
    by_item = np.bincount(item, minlength=n_items) + 0.5
    lengths = np.bincount(user).astype(np.float64)
    pairs, count = np.unique(user * n_items + item, return_counts=True)
    squares = np.bincount(pairs % n_items, count.astype(np.float64) ** 2, n_items) + 0.5
    cross = np.bincount(pairs % n_items, count * lengths[pairs // n_items], n_items)
    shares = by_item / by_item.sum()
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
    """Count the views of each item by some users, ascending; (U, P)."""
    place = np.minimum(np.searchsorted(users, user), len(users) - 1)
    included = users[place] == user
    cells = np.bincount(place[included] * n_items + item[included], minlength=len(users) * n_items)
    return cells.astype(np.float32).reshape(len(users), n_items)


def far_lags(lengths: Ints) -> tuple[int, ...]:
    """Return lags with enough pairs to show a drift; none where lives are too short."""
    for first in _FAR:
        lags = tuple(range(first, first + first // 2 + 1))
        if (lengths > first).sum() >= _LONG_LIVES and _pairs_of(lengths, lags).sum() >= _PAIRS:
            return lags
    return ()


def resemblance(user: Ints, item: Ints, far: Sequence[int]) -> tuple[Floats, Floats]:
    """Count each user's pairs of views at near and far lags.

    Returns:
        (U, 2) near and far pairs of the same item; (U, 2) near pairs, and far pairs times the share of the user's near
        ones that are of the same item.
    """
    n_users = int(user[-1]) + 1
    sums = np.zeros((n_users, 2))
    pairs = np.zeros((n_users, 2))
    for column, lags in enumerate((_NEAR, far)):
        for lag in lags:
            n_pairs = max(len(user) - lag, 0)
            first = np.flatnonzero(user[lag:] == user[:n_pairs])
            sums[:, column] += np.bincount(user[first], item[first] == item[first + lag], n_users)
            pairs[:, column] += np.bincount(user[first], minlength=n_users)
    pairs[:, 1] *= sums[:, 0] / np.maximum(pairs[:, 0], 1.0)
    return sums, pairs


def expected(factors: Floats, offsets: Floats, lives: LifeLengths, drift: float) -> Floats:
    """Return (2,) expected ratios of both columns' sums of :func:`resemblance`; the second is 1 without far lags."""
    near = _at_places(factors, offsets, lives, drift, _NEAR)
    near_pairs = _pairs_of(lives.lengths, _NEAR)
    first = float((_pairs_at(lives.lengths, _NEAR) * near).sum() / near_pairs.sum())
    if not lives.far:
        return np.array([first, 1.0])
    far = _at_places(factors, offsets, lives, drift, lives.far)
    far_per_near = _pairs_of(lives.lengths, lives.far) / np.maximum(near_pairs, 1.0)
    below = _pairs_at(lives.lengths, _NEAR, far_per_near) * near
    return np.array([first, (_pairs_at(lives.lengths, lives.far) * far).sum() / below.sum()])


def _pairs_of(lengths: Ints, lags: Sequence[int]) -> Floats:
    return np.asarray(sum(np.maximum(lengths - lag, 0.0) for lag in lags))


def _pairs_at(lengths: Ints, lags: Sequence[int], weight: Floats | None = None) -> Floats:
    """Count the pairs that begin after 0, 1, ... views, users weighted; (longest life,)."""
    alive = [np.bincount(np.maximum(lengths - lag, 0), weight, int(lengths.max()) + 1) for lag in lags]
    return np.asarray(np.cumsum(np.sum(alive, axis=0)[::-1])[::-1][1:])


def _at_places(factors: Floats, offsets: Floats, lives: LifeLengths, drift: float, lags: Sequence[int]) -> Floats:
    """Return (longest life,) the chance of the same item by the first view's place, interpolated."""
    upto = np.cumsum(_pairs_at(lives.lengths, lags))
    places = np.unique(np.searchsorted(upto, (np.arange(_PLACES) + 0.5) / _PLACES * upto[-1]))
    if not drift > 0.0:  # then all places are alike
        places = places[:1]
    k = factors.shape[1]
    _, normal = points(n_points(len(offsets)), 2 * k)
    walk = np.sqrt(drift * float(np.mean(lags))) * normal[:, k:]
    chances = []
    for place in places:
        omega = interests_at(normal[:, :k], float(place), drift)
        earlier = softmax(omega, factors, offsets)
        later = earlier
        if drift > 0.0:
            later = softmax(omega + walk, factors, offsets)
        chances.append(float(np.einsum("np,np->", earlier, later)) / len(earlier))
    return np.interp(np.arange(len(upto)), places, chances)


def match_popularity(factors: Floats, offsets: Floats, lives: LifeLengths, drift: float, rounds: int = 12) -> Floats:
    """Return offsets (P,) with which the items' expected shares of views are those of the log."""
    uniform, normal = points(n_points(len(offsets)), factors.shape[1])
    omega = interests_at(normal, views_before(uniform, float(lives.lengths.mean())), drift)
    lengths = np.quantile(lives.lengths, (np.arange(len(omega)) * 0.618034 + 0.5 / len(omega)) % 1.0)
    for _ in range(rounds):
        weights = softmax(omega, factors, offsets)
        if lives.no_repeats:
            weights = _viewed(weights, np.minimum(lengths, 0.9 * len(offsets)))
        shares = weights.sum(axis=0)
        step = lives.log_shares - np.log(np.maximum(shares / shares.sum(), 1e-30))
        offsets = offsets + np.clip(step, -2.0, 2.0)
        offsets -= offsets.mean()
        if np.abs(step).max() < 1e-3:
            break
    return offsets


def _viewed(weights: Floats, lengths: Floats) -> Floats:
    """Return probabilities (n, P) that an item is among so many views without repeats: 1 - exp(-T w), the race's T."""
    time = lengths.copy()
    for _ in range(20):  # the number of viewed items is concave in T: Newton's steps come from below
        survival = np.exp(-weights * time[:, None])
        step = (lengths - (1.0 - survival).sum(axis=1)) / np.maximum(np.einsum("np,np->n", weights, survival), 1e-9)
        time += step
        if np.abs(step).max() < 1e-3 * time.max():
            break
    return -np.expm1(-weights * time[:, None])


def fit_scales(model: ViewModel, lives: LifeLengths, observed: Floats) -> Scales:
    """Set the scale of the factors and the drift so that :func:`expected` equals the observed ratios, (2,)."""
    from scipy.optimize import least_squares

    free = 2 if lives.far else 1
    offsets = model.offsets

    def gap(point: Floats) -> Floats:
        nonlocal offsets
        factors = np.exp(point[0]) * model.factors
        drift = float(point[1]) if free == 2 else 0.0
        offsets = match_popularity(factors, offsets, lives, drift)
        ratios = expected(factors, offsets, lives, drift)
        return np.asarray((np.log(np.maximum(ratios, 1e-9)) - np.log(np.maximum(observed, 1e-9)))[:free])

    def slope(point: Floats) -> Floats:
        here = gap(point)
        return np.stack([(gap(point + step) - here) / step.max() for step in np.diag(_STEPS[:free])], axis=1)

    solution = least_squares(
        gap,
        [0.0, 0.003][:free],
        slope,
        bounds=(_LOWEST[:free], _HIGHEST[:free]),
        x_scale=_STEPS[:free],
        ftol=1e-8,
        xtol=1e-4,
        gtol=1e-12,
        max_nfev=10,
    )
    gap(solution.x)
    slopes = np.eye(2)
    slopes[:free, :free] = solution.jac
    return Scales(float(np.exp(solution.x[0])), float(solution.x[1]) if free == 2 else 0.0, offsets, slopes)
