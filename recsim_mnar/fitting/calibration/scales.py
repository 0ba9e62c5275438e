"""How strong preferences are and how they drift: simulated moments with common random numbers.

The likelihood of :mod:`recsim_mnar.fitting.calibration.view_model` gives the shape of the factors, with interests that
stand still. Two numbers are left: a scale of all factors and the drift of interests an event. They are set so that
simulated users resemble themselves, soon after and long after, as much as the log's users do: the share of pairs of a
user's views that are of the same item, or, where no item is met twice, the mean affinity of such pairs by factors that
were fitted on other users (half of them each). At every step the offsets are moved so that items' shares of views are
those of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.fitting.calibration.quadrature import interests_at_views, n_points
from recsim_mnar.progress import counted
from recsim_mnar.worlds.sessions.catalogue import checked_catalogue
from recsim_mnar.worlds.sessions.params import SessionsParams
from recsim_mnar.worlds.sessions.world import SessionsWorld

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Affinity = Callable[[Ints, Ints], Floats]

NEAR = (1, 2)
_FAR = (20, 10, 5)
_PAIRS = 2000
_LONG_LIVES = 100
_VIEWS = 500_000
_CELLS = 100_000_000
_DRAWS = 1024
_ROUNDS = 7
_SLOPES = 2
"""Rounds at which slopes are taken anew."""
_NEAR_ENOUGH, _FAR_ENOUGH = 0.003, 0.04
_WEAKEST, _STRONGEST = 0.1, 6.0
_MOST_DRIFT = 4.0


@dataclass(frozen=True)
class Resemblance:
    """How much users resemble themselves, summed by user so that it can be weighted.

    Attributes:
        sums: (U, 2) of the affinities of near and of far pairs.
        pairs: (U, 2) near pairs; far pairs times the user's own mean affinity of near ones.
    """

    sums: Floats
    pairs: Floats

    def means(self, weights: Floats | None = None) -> Floats:
        """(2,) mean affinity of near pairs, and how much of it far pairs keep, users being their own measure."""
        w = np.ones(len(self.sums)) if weights is None else weights
        return (w @ self.sums) / np.maximum(w @ self.pairs, 1e-9)


def far_lags(user: Ints) -> tuple[int, ...]:
    """Lags at which there are pairs enough to see a drift; empty where lives are too short."""
    for first in _FAR:
        lags = tuple(range(first, first + first // 2 + 1))
        lives = len(np.unique(user[first:][user[first:] == user[:-first]])) if first < len(user) else 0
        if (
            lives >= _LONG_LIVES
            and sum(int((user[lag:] == user[:-lag]).sum()) for lag in lags if lag < len(user)) >= _PAIRS
        ):
            return lags
    return ()


def resemblance(user: Ints, item: Ints, affinity: Affinity, far: Sequence[int]) -> Resemblance:
    """Of users numbered 0 .. U - 1, whose views stand in their order."""
    n_users = int(user[-1]) + 1 if len(user) else 0
    sums, pairs = np.zeros((n_users, 2)), np.zeros((n_users, 2))
    for column, lags in enumerate((NEAR, far)):
        for lag in lags:
            if lag >= len(user):
                continue
            together = np.flatnonzero(user[lag:] == user[:-lag])
            whose = user[together]
            values = affinity(item[together], item[together + lag])
            sums[:, column] += np.bincount(whose, values, n_users)
            pairs[:, column] += np.bincount(whose, minlength=n_users)
    pairs[:, 1] *= sums[:, 0] / np.maximum(pairs[:, 0], 1.0)
    return Resemblance(sums, pairs)


def same_item(first: Ints, second: Ints) -> Floats:
    """1 where both are the same item."""
    return (first == second).astype(np.float64)


def by_factors(factors: Floats) -> Affinity:
    """Inner products of centred factors."""
    centred = factors - factors.mean(axis=0)

    def affinity(first: Ints, second: Ints) -> Floats:
        return np.asarray(np.einsum("nk,nk->n", centred[first], centred[second]), np.float64)

    return affinity


@dataclass(frozen=True)
class Lives:
    """What of users' lives bears on what they view.

    Attributes:
        shares: (P,) of all views, of each item.
        mean_views: of a user.
        no_repeats: whether no item is met twice.
    """

    shares: Floats
    mean_views: float
    no_repeats: bool

    def lengths(self, n: int) -> Floats:
        """(n,) numbers of views of users, even quantiles of their geometric distribution."""
        stay = 1.0 - 1.0 / max(self.mean_views, 1.0 + 1e-9)
        quantiles = (np.arange(n) * 0.618034 + 0.5 / n) % 1.0
        return np.asarray(1.0 + np.floor(np.log1p(-quantiles) / np.log(max(stay, 1e-12))), np.float64)


def match_popularity(factors: Floats, offsets: Floats, lives: Lives, drift: float, rounds: int = 12) -> Floats:
    """Offsets (P,) with which the items' expected shares of views are those of the log."""
    omega = interests_at_views(n_points(len(offsets), _DRAWS), factors.shape[1], lives.mean_views, drift)
    preference = (omega @ factors.T).astype(np.float32)
    offsets = offsets.copy()
    log_shares = np.log(lives.shares)
    lengths = lives.lengths(len(omega))
    log_time = np.zeros(len(omega))
    for _ in range(rounds):
        logits = preference + offsets.astype(np.float32)
        logits -= logits.max(axis=1, keepdims=True)
        weights = np.exp(logits)
        weights /= weights.sum(axis=1, keepdims=True)
        if lives.no_repeats:
            log_time = _times(weights, np.minimum(lengths, 0.9 * len(offsets)), log_time)
            weights = -np.expm1(-weights * np.exp(log_time)[:, None].astype(np.float32))
        expected = weights.sum(axis=0, dtype=np.float64)
        step = log_shares - np.log(np.maximum(expected / expected.sum(), 1e-30))
        offsets += np.clip(step, -2.0, 2.0)
        offsets -= offsets.mean()
        if np.abs(step).max() < 1e-3:
            break
    return offsets


def _times(weights: NDArray[np.float32], lengths: Floats, log_time: Floats) -> Floats:
    """Log T at which sum of 1 - exp(-T w) is the number of views, row by row."""
    for _ in range(6):
        rate = weights * np.exp(log_time)[:, None].astype(np.float32)
        gone = np.exp(-rate)
        met = (1.0 - gone).sum(axis=1, dtype=np.float64)
        slope = np.maximum((rate * gone).sum(axis=1, dtype=np.float64), 1e-9)
        log_time = log_time + np.clip((lengths - met) / slope, -1.5, 1.5)
    return log_time


@dataclass(frozen=True)
class Scales:
    """What was found.

    Attributes:
        scale: of the factors.
        drift: variance of the interests' drift an event, in units of their first variance.
        offsets: (P,) that go with them.
        slope: (2, 2) change of the logarithms of both resemblances with log scale and with drift.
        drift_found: whether the log has pairs far enough apart to tell a drift.
        misfit: (2,) what is left between the logarithms of simulated and of observed resemblances.
        simulated: (2,) resemblances of simulated users at the end.
    """

    scale: float
    drift: float
    offsets: Floats
    slope: Floats
    drift_found: bool
    misfit: Floats
    simulated: Floats


def world_of(factors: Floats, offsets: Floats, lives: Lives, drift: float) -> SessionsWorld:
    """A sessions world of these views and no recommendations, whose clock ticks once an event."""
    catalogue = checked_catalogue(factors, offsets, np.zeros_like(factors), np.zeros(len(offsets)), "the fit")
    params = SessionsParams(
        sigma_omega_initial=1.0,
        sigma_omega=float(np.sqrt(drift)),
        p_organic_to_bandit=0.0,
        p_leave_organic=min(1.0, 1.0 / lives.mean_views),
        no_repeats=lives.no_repeats,
    )
    return SessionsWorld(params, catalogue=catalogue)


def fit_scales(
    factors: Floats, offsets: Floats, lives: Lives, observed: Floats, affinities: Sequence[Affinity], far: Sequence[int]
) -> Scales:
    """Set both numbers so that simulated users resemble themselves as observed.

    Args:
        factors: (P, K), whose scale is looked for.
        offsets: (P,) to begin with.
        lives: of the log's users.
        observed: (2,) as :meth:`Resemblance.means` gives them; the second is not read without far lags.
        affinities: whose mean over all pairs is looked at: several where they were fitted on other users each.
        far: lags of the far pairs.
    """
    tries = _ROUNDS + _SLOPES * (2 if far else 1)
    told = counted(tries, "tries")
    made = 0
    n_items = len(offsets)
    cost = n_items if lives.no_repeats else 30 * max(n_items // 200, 1)
    n_users = int(min(_VIEWS, _CELLS / cost) / lives.mean_views) + 1
    held = offsets

    def gap(point: Floats) -> tuple[Floats, Floats, Floats]:
        nonlocal made
        scaled = np.exp(point[0]) * factors
        moved = match_popularity(scaled, held, lives, point[1])
        columns = world_of(scaled, moved, lives, point[1]).trajectories(77, 0, n_users, None)
        user, item = columns["user"].astype(np.int64), columns["item"].astype(np.int64)
        means = np.mean([resemblance(user, item, each, far).means() for each in affinities], axis=0)
        difference = np.log(np.maximum(means, 1e-9)) - np.log(np.maximum(observed, 1e-9))
        made += 1
        told(1)
        return (difference if far else difference * [1.0, 0.0]), moved, means

    point = np.array([0.0, 0.003 if far else 0.0])
    lowest = np.array([np.log(_WEAKEST), 0.0])
    highest = np.array([np.log(_STRONGEST), _MOST_DRIFT if far else 0.0])
    slope = np.eye(2)
    best = (np.inf, point, held, np.zeros(2), observed)
    enough = np.array([_NEAR_ENOUGH, max(_FAR_ENOUGH * abs(float(np.log(max(observed[1], 1e-9)))), 0.0005)])
    for turn in range(_ROUNDS):
        here, held, means = gap(point)
        size = float(np.abs(here / enough).max())
        if size < best[0]:
            best = (size, point.copy(), held, here, means)
        if size < 1.0 or turn == _ROUNDS - 1:
            break
        if turn < _SLOPES:
            slope = _slope(gap, point, here, bool(far))
        move = -np.linalg.lstsq(slope, here, rcond=1e-3)[0]
        move = np.clip(move, [-0.4, -0.5 * (point[1] + 0.02)], [0.4, 2.0 * (point[1] + 0.02)])
        point = np.clip(point + move, lowest, highest)
    told(tries - made)  # it may have come near enough before
    _, point, held, misfit, simulated = best
    return Scales(float(np.exp(point[0])), float(point[1]), held, slope, bool(far), misfit, simulated)


def _slope(gap: Callable[[Floats], tuple[Floats, Floats, Floats]], point: Floats, here: Floats, far: bool) -> Floats:
    steps = (np.array([0.1, 0.0]), np.array([0.0, max(0.003, 0.3 * point[1])]))
    slope = np.zeros((2, 2))
    slope[:, 0] = (gap(point + steps[0])[0] - here) / 0.1
    if far:
        slope[:, 1] = (gap(point + steps[1])[0] - here) / steps[1][1]
    return slope
