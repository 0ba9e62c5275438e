"""How strong preferences are and how they drift: by how much users resemble themselves, soon after and long after.

The likelihood of :mod:`recsim_mnar.fitting.calibration.view_model` gives the shape of the factors, with interests that
stand still. Two numbers are left: a scale of all factors and the drift of interests a view. They are set so that as many
pairs of a user's views are expected to be of the same item as the log holds, near each other and far apart.
Expectations are integrals over interests at given places in the lives of the log. At every step the offsets are moved
so that items' shares of views are those of the log. Where no item is met twice there are no such pairs: the scale is
the likelihood's, and no drift is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.fitting.calibration.functionals import interests_at, n_points, points, softmax, views_before
from recsim_mnar.progress import counted

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NEAR = (1, 2)
_FAR = (20, 10, 5)
_PAIRS, _LONG_LIVES = 2000, 100
_PLACES = 4
_STEPS = (0.05, 0.002)
_LOWEST, _HIGHEST = (np.log(0.1), 0.0), (np.log(6.0), 4.0)


@dataclass(frozen=True)
class Lives:
    """What of the log's lives bears on what is viewed.

    ``lengths``: (U,) views of each user; ``log_shares``: (P,) of the items' shares of all views; ``no_repeats``: whether
    no item is met twice; ``far``: lags of pairs of views that are far apart, none where lives are too short.
    """

    lengths: Ints
    log_shares: Floats
    no_repeats: bool
    far: tuple[int, ...]


@dataclass(frozen=True)
class Scales:
    """What was found.

    ``scale`` of the factors; ``drift``, variance of the interests' drift a view, their first being 1; ``offsets`` (P,)
    that go with them; ``slope`` (2, 2) of the logarithms of both resemblances with log scale and with drift;
    ``misfit`` (2,), what is left between the logarithms of expected and of observed ones.
    """

    scale: float
    drift: float
    offsets: Floats
    slope: Floats
    misfit: Floats


def far_lags(lengths: Ints) -> tuple[int, ...]:
    """Lags at which there are pairs enough to see a drift; empty where lives are too short."""
    for first in _FAR:
        lags = tuple(range(first, first + first // 2 + 1))
        if (lengths > first).sum() >= _LONG_LIVES and _pairs_of(lengths, lags).sum() >= _PAIRS:
            return lags
    return ()


def resemblance(user: Ints, item: Ints, far: Sequence[int]) -> tuple[Floats, Floats]:
    """Two tables (U, 2) of users numbered from 0, whose views stand in their order.

    Near pairs and far pairs that are of the same item; near pairs, and far pairs times the user's own share of near ones
    that are. So a user is their own measure of what far pairs keep.
    """
    n_users = int(user[-1]) + 1
    sums, pairs = np.zeros((n_users, 2)), np.zeros((n_users, 2))
    for column, lags in enumerate((NEAR, far)):
        for lag in lags:
            first = np.flatnonzero(user[lag:] == user[:-lag]) if lag < len(user) else np.zeros(0, np.int64)
            sums[:, column] += np.bincount(user[first], item[first] == item[first + lag], n_users)
            pairs[:, column] += np.bincount(user[first], minlength=n_users)
    pairs[:, 1] *= sums[:, 0] / np.maximum(pairs[:, 0], 1.0)
    return sums, pairs


def expected(factors: Floats, offsets: Floats, lives: Lives, drift: float) -> Floats:
    """(2,) ratios of both columns' sums that are expected of :func:`resemblance`; the second is 1 without far lags."""
    near, of = _at_places(factors, offsets, lives, drift, NEAR), _pairs_of(lives.lengths, NEAR)
    first = float(_pairs_at(lives.lengths, NEAR) @ near / of.sum())
    if not lives.far:
        return np.array([first, 1.0])
    far = _at_places(factors, offsets, lives, drift, lives.far)
    own = _pairs_at(lives.lengths, NEAR, _pairs_of(lives.lengths, lives.far) / np.maximum(of, 1.0))
    return np.array([first, float(_pairs_at(lives.lengths, lives.far) @ far) / float(own @ near)])


def _pairs_of(lengths: Ints, lags: Sequence[int]) -> Floats:
    """(U,) pairs of each user."""
    return np.asarray(sum(np.maximum(lengths - lag, 0.0) for lag in lags))


def _pairs_at(lengths: Ints, lags: Sequence[int], weight: Floats | None = None) -> Floats:
    """(longest life,) how many pairs begin after so many views, users weighted."""
    alive = [np.bincount(np.maximum(lengths - lag, 0), weight, int(lengths.max()) + 1) for lag in lags]
    return np.asarray(np.cumsum(np.sum(alive, axis=0)[::-1])[::-1][1:])


def _at_places(factors: Floats, offsets: Floats, lives: Lives, drift: float, lags: Sequence[int]) -> Floats:
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


def match_popularity(factors: Floats, offsets: Floats, lives: Lives, drift: float, rounds: int = 12) -> Floats:
    """Offsets (P,) with which the items' expected shares of views are those of the log."""
    uniform, normal = points(n_points(len(offsets)), factors.shape[1])
    omega = interests_at(normal, views_before(uniform, float(lives.lengths.mean())), drift)
    lengths = np.quantile(lives.lengths, (np.arange(len(omega)) * 0.618034 + 0.5 / len(omega)) % 1.0)
    for _ in range(rounds):
        weights, gives = softmax(omega, factors, offsets), 1.0
        if lives.no_repeats:
            weights, rate = _met(weights, np.minimum(lengths, 0.9 * len(offsets)))
            # The share of an item that most have met hardly moves with its offset.
            gives = np.clip((rate * (1.0 - weights)).sum(axis=0) / weights.sum(axis=0), 0.1, 1.0)
        shares = weights.sum(axis=0)
        step = lives.log_shares - np.log(np.maximum(shares / shares.sum(), 1e-30))
        offsets = offsets + np.clip(step / gives, -2.0, 2.0)
        offsets -= offsets.mean()
        if np.abs(step).max() < 1e-3:
            break
    return offsets


def _met(weights: Floats, lengths: Floats) -> tuple[Floats, Floats]:
    """Probabilities (n, P) that an item is met in so many views without repeats, 1 - exp(-T w), and T w of the race."""
    time = lengths.copy()
    for _ in range(20):  # how many are met is concave in T: Newton's steps come from below
        left = np.exp(-weights * time[:, None])
        step = (lengths - (1.0 - left).sum(axis=1)) / np.maximum(np.einsum("np,np->n", weights, left), 1e-9)
        time += step
        if np.abs(step).max() < 1e-3 * time.max():
            break
    return -np.expm1(-weights * time[:, None]), weights * time[:, None]


def fit_scales(factors: Floats, offsets: Floats, lives: Lives, observed: Floats) -> Scales:
    """Set the scale of the factors (P, K) and the drift so that :func:`expected` is what is observed, (2,)."""
    from scipy.optimize import least_squares

    free, held, tried = 2 if lives.far else 1, offsets, counted(1, "scales")

    def gap(point: Floats) -> Floats:
        nonlocal held
        scaled, drift = np.exp(point[0]) * factors, float(point[1]) if free == 2 else 0.0
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
    misfit, steep = gap(found.x), np.eye(2)
    steep[:free, :free] = found.jac
    tried(1)
    drift = float(found.x[1]) if free == 2 else 0.0
    return Scales(float(np.exp(found.x[0])), drift, held, steep, np.append(misfit, np.zeros(2 - free)))
