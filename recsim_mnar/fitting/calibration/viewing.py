"""The views of a log, and what was made of them: popularity, factors, how strong they are and how they drift.

:mod:`recsim_mnar.fitting.calibration.view_model` gives the shape of the factors, with interests that stand still. A
scale of all factors and the drift of interests a view are set so that as many pairs of a user's views are expected to
be of the same item as the log holds, near each other and far apart. Where no item is met twice there are no such pairs:
the scale is the likelihood's, and no drift is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from recsim_mnar.fitting.calibration.view_model import Cells, ViewModel, fit_views
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.rows import user_numbers
from recsim_mnar.log.table import Log
from recsim_mnar.rng import Stream, uniforms
from recsim_mnar.runs.stages import fields_of, stage
from recsim_mnar.worlds.sessions.invariants import interests_at, n_points, points, softmax, views_before

FACTORS = 5
"""As RecoGym's; those of which the log shows no sign fade."""
CELLS, _MOST_USERS = 4_000_000, 4000
"""Of a table of users by items that memory bears."""
_NEAR, _FAR = (1, 2), (20, 10, 5)
_PAIRS, _LONG_LIVES, _PLACES = 2000, 100, 4
_STEPS = (0.05, 0.002)
_LOWEST, _HIGHEST = (np.log(0.1), 0.0), (np.log(6.0), 4.0)


@dataclass(frozen=True)
class LifeLengths:
    """Views of each user (U,), logarithms of items' shares (P,), whether none is met twice, lags of far pairs."""

    lengths: Ints
    log_shares: Floats
    no_repeats: bool
    far: tuple[int, ...]


@dataclass(frozen=True)
class Scales:
    """Scale of the factors, variance of the drift a view, offsets (P,); (2, 2) slopes of log resemblances with them."""

    scale: float
    drift: float
    offsets: Floats
    slope: Floats


@dataclass(frozen=True)
class Shares:
    """Logarithms (P,) of items' shares of views, what true ones vary about, and (P,) how much of that is no error."""

    logs: Floats
    centre: float
    kept: Floats

    def settled(self, noise: Floats | None = None) -> Floats:
        """Logarithms (P,) that vary as true ones do: a posterior draw, given errors to add, else the best fit."""
        apart, kept = self.logs - self.centre, self.kept
        moved = np.sqrt(kept) * apart if noise is None else kept * apart + np.sqrt(kept) * noise
        return np.asarray(self.centre + moved)


@dataclass(frozen=True)
class FittedViews:
    """Views of U users, from 0 in their order, and what was made of them; ``sums``, ``pairs``: :func:`resemblance`."""

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
        """(P, K) of the items, at the strength found."""
        return self.scales.scale * self.model.factors

    def resemblances(self, weights: Floats) -> Floats:
        """(2,) mean affinity of near pairs, and how much of it far pairs keep, users being their own measure."""
        return np.einsum("u,uj->j", weights, self.sums) / np.maximum(np.einsum("u,uj->j", weights, self.pairs), 1e-9)


def views_of(log: Log, n_items: int, seed: int, report: Callable[[str], None]) -> FittedViews:
    """Fit what is viewed: a log of at least one view of P = ``n_items`` items; ``report`` is called at each stage."""
    organic = log.organic()
    user, item = user_numbers(organic["user"]), organic["item"].astype(np.int64)
    lengths = np.bincount(user)
    by_item = np.bincount(item, minlength=n_items) / len(item)
    repeats = len(item) - len(np.unique(user * n_items + item))
    no_repeats = repeats == 0 and float((lengths * (lengths - 1.0)).sum() / 2 * (by_item**2).sum()) > 5.0
    shares = shares_of(user, item, n_items)
    lives = LifeLengths(lengths, shares.settled(), no_repeats, () if no_repeats else far_lags(lengths))
    drawn = np.argsort(uniforms(seed, Stream.FIT, np.arange(len(lengths)), 3), kind="stable")
    kept = np.sort(drawn[: min(_MOST_USERS, max(CELLS // n_items, 200))])
    counts, most = counted_views(user, item, kept, n_items), min(FACTORS, n_items - 1)
    report(f"fit what is viewed, {most} factors")
    whole = stage("model", lambda: fit_views(counts, most, no_repeats=no_repeats, seed=seed), fields_of(ViewModel))
    model = whole.shown()
    report("set the strength and the drift of preferences")
    sums, pairs = resemblance(user, item, lives.far)
    if model.factors.shape[1] == 0 or no_repeats:
        scales = Scales(1.0, 0.0, match_popularity(model.factors, model.offsets, lives, 0.0), np.eye(2))
    else:
        observed = sums.sum(axis=0) / np.maximum(pairs.sum(axis=0), 1e-9)
        scales = stage("scales", lambda: fit_scales(model, lives, observed), fields_of(Scales))
    return FittedViews(user, item, lives, shares, model, scales, sums, pairs)


def shares_of(user: Ints, item: Ints, n_items: int) -> Shares:
    """Shares of views, half a view more of each item, and their errors, users drawn anew (Paule & Mandel 1982)."""
    by_item, lengths = np.bincount(item, minlength=n_items) + 0.5, np.bincount(user).astype(np.float64)
    pairs, count = np.unique(user * n_items + item, return_counts=True)
    squares = np.bincount(pairs % n_items, count.astype(np.float64) ** 2, n_items) + 0.5
    cross = np.bincount(pairs % n_items, count * lengths[pairs // n_items], n_items)
    shares = by_item / by_item.sum()
    variance = (squares - 2.0 * shares * cross + shares**2 * (lengths**2).sum()) / by_item**2
    logs, errors = np.log(shares), np.maximum(variance, 0.5 / by_item)
    between = float(np.var(logs))
    for _ in range(50):
        weights = 1.0 / (between + errors)
        centre = float((weights * logs).sum() / weights.sum())
        between = max(float((weights**2 * ((logs - centre) ** 2 - errors)).sum() / (weights**2).sum()), 1e-6)
    return Shares(logs, centre, between / (between + errors))


def counted_views(user: Ints, item: Ints, wanted: Ints, n_items: int) -> Cells:
    """(U, P) views of each item by the wanted users, ascending."""
    place = np.minimum(np.searchsorted(wanted, user), len(wanted) - 1)
    mine = wanted[place] == user
    cells = np.bincount(place[mine] * n_items + item[mine], minlength=len(wanted) * n_items)
    return cells.astype(np.float32).reshape(len(wanted), n_items)


def far_lags(lengths: Ints) -> tuple[int, ...]:
    """Lags with pairs enough to see a drift; none where lives are too short."""
    for first in _FAR:
        lags = tuple(range(first, first + first // 2 + 1))
        if (lengths > first).sum() >= _LONG_LIVES and _pairs_of(lengths, lags).sum() >= _PAIRS:
            return lags
    return ()


def resemblance(user: Ints, item: Ints, far: Sequence[int]) -> tuple[Floats, Floats]:
    """(U, 2) near and far pairs of the same item; (U, 2) near pairs, far pairs times the user's share of near ones."""
    n_users = int(user[-1]) + 1
    sums, pairs = np.zeros((n_users, 2)), np.zeros((n_users, 2))
    for column, lags in enumerate((_NEAR, far)):
        for lag in lags:
            first = np.flatnonzero(user[lag:] == user[:-lag]) if lag < len(user) else np.zeros(0, np.int64)
            sums[:, column] += np.bincount(user[first], item[first] == item[first + lag], n_users)
            pairs[:, column] += np.bincount(user[first], minlength=n_users)
    pairs[:, 1] *= sums[:, 0] / np.maximum(pairs[:, 0], 1.0)
    return sums, pairs


def expected(factors: Floats, offsets: Floats, lives: LifeLengths, drift: float) -> Floats:
    """(2,) ratios of both columns' sums that are expected of :func:`resemblance`; the second is 1 without far lags."""
    near, of = _at_places(factors, offsets, lives, drift, _NEAR), _pairs_of(lives.lengths, _NEAR)
    first = float((_pairs_at(lives.lengths, _NEAR) * near).sum() / of.sum())
    if not lives.far:
        return np.array([first, 1.0])
    far = _at_places(factors, offsets, lives, drift, lives.far)
    own = _pairs_at(lives.lengths, _NEAR, _pairs_of(lives.lengths, lives.far) / np.maximum(of, 1.0))
    return np.array([first, (_pairs_at(lives.lengths, lives.far) * far).sum() / (own * near).sum()])


def _pairs_of(lengths: Ints, lags: Sequence[int]) -> Floats:
    return np.asarray(sum(np.maximum(lengths - lag, 0.0) for lag in lags))


def _pairs_at(lengths: Ints, lags: Sequence[int], weight: Floats | None = None) -> Floats:
    """(longest life,) how many pairs begin after so many views, users weighted."""
    alive = [np.bincount(np.maximum(lengths - lag, 0), weight, int(lengths.max()) + 1) for lag in lags]
    return np.asarray(np.cumsum(np.sum(alive, axis=0)[::-1])[::-1][1:])


def _at_places(factors: Floats, offsets: Floats, lives: LifeLengths, drift: float, lags: Sequence[int]) -> Floats:
    """(longest life,) chance of the same item by the first view's place: taken at some places, straight between."""
    upto = np.cumsum(_pairs_at(lives.lengths, lags))
    places = np.unique(np.searchsorted(upto, (np.arange(_PLACES) + 0.5) / _PLACES * upto[-1]))
    places = places if drift > 0.0 else places[:1]  # interests that stand still are alike at all places
    k = factors.shape[1]
    _, normal = points(n_points(len(offsets)), 2 * k)
    walked, values = np.sqrt(drift * float(np.mean(lags))) * normal[:, k:], []
    for place in places:
        omega = interests_at(normal[:, :k], float(place), drift)
        one = softmax(omega, factors, offsets)
        other = softmax(omega + walked, factors, offsets) if drift > 0.0 else one
        values.append(float(np.einsum("np,np->", one, other)) / len(one))
    return np.interp(np.arange(len(upto)), places, values)


def match_popularity(factors: Floats, offsets: Floats, lives: LifeLengths, drift: float, rounds: int = 12) -> Floats:
    """Offsets (P,) with which the items' expected shares of views are those of the log."""
    uniform, normal = points(n_points(len(offsets)), factors.shape[1])
    omega = interests_at(normal, views_before(uniform, float(lives.lengths.mean())), drift)
    lengths = np.quantile(lives.lengths, (np.arange(len(omega)) * 0.618034 + 0.5 / len(omega)) % 1.0)
    for _ in range(rounds):
        weights = softmax(omega, factors, offsets)
        if lives.no_repeats:
            weights = _met(weights, np.minimum(lengths, 0.9 * len(offsets)))
        shares = weights.sum(axis=0)
        step = lives.log_shares - np.log(np.maximum(shares / shares.sum(), 1e-30))
        offsets = offsets + np.clip(step, -2.0, 2.0)
        offsets -= offsets.mean()
        if np.abs(step).max() < 1e-3:
            break
    return offsets


def _met(weights: Floats, lengths: Floats) -> Floats:
    """Probabilities (n, P) that an item is met in so many views without repeats: 1 - exp(-T w), the race's T."""
    time = lengths.copy()
    for _ in range(20):  # how many are met is concave in T: Newton's steps come from below
        left = np.exp(-weights * time[:, None])
        step = (lengths - (1.0 - left).sum(axis=1)) / np.maximum(np.einsum("np,np->n", weights, left), 1e-9)
        time += step
        if np.abs(step).max() < 1e-3 * time.max():
            break
    return -np.expm1(-weights * time[:, None])


def fit_scales(model: ViewModel, lives: LifeLengths, observed: Floats) -> Scales:
    """Set the scale of the factors and the drift so that :func:`expected` is what is observed, (2,)."""
    from scipy.optimize import least_squares

    free, held = (2 if lives.far else 1), model.offsets

    def gap(point: Floats) -> Floats:
        nonlocal held
        scaled, drift = np.exp(point[0]) * model.factors, float(point[1]) if free == 2 else 0.0
        held = match_popularity(scaled, held, lives, drift)
        found = expected(scaled, held, lives, drift)
        return np.asarray((np.log(np.maximum(found, 1e-9)) - np.log(np.maximum(observed, 1e-9)))[:free])

    def slope(point: Floats) -> Floats:
        here = gap(point)
        return np.stack([(gap(point + step) - here) / step.max() for step in np.diag(_STEPS[:free])], axis=1)

    found = least_squares(
        gap, [0.0, 0.003][:free], slope, bounds=(_LOWEST[:free], _HIGHEST[:free]), x_scale=_STEPS[:free],
        ftol=1e-8, xtol=1e-4, gtol=1e-12, max_nfev=10,
    )  # fmt: skip
    gap(found.x)
    steep = np.eye(2)
    steep[:free, :free] = found.jac
    return Scales(float(np.exp(found.x[0])), float(found.x[1]) if free == 2 else 0.0, held, steep)
