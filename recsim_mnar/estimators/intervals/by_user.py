"""Intervals from one number per user: the Poisson bootstrap, and betting, which holds for any number of users.

A bettor's observation is a user: v, the sum of the user's weighted rewards over the largest it could be, and l, the
user's rows over the most that a user can have, so that 0 <= v <= l <= 1. The estimand is the ratio E[v] / E[l]. That it
is m is the same as that z = v - m l, which is in [-m, 1 - m], has mean 0: each method tests that for every m, so that
neither the number of rows nor the longest user is taken from the sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.kernels.checks import whole_number
from recsim_mnar.log.columns import Floats
from recsim_mnar.rng import Stream, check_seed, uniforms

_POOL_LEAST = 2000
_POOL_SINGLE = 1000
_POOL_ADDRESS = 2**63


def poisson_ratios(above: Floats, below: Floats, *, replicates: int = 1000, seed: int = 0) -> Floats:
    """Replicates of sum(above) / sum(below) with every user's sums counted Poisson(1) times (Chamandy et al. 2012).

    Users whose ``above`` is 0 only move the denominator: where they are many, the thousand largest of them are
    resampled one by one and the total of the rest is drawn from its normal limit, whose mean and variance are exact.

    Args:
        above: (n,) user sums of the numerator.
        below: (n,) user sums of the denominator, not negative.
        replicates: how many; rounded up to a multiple of 8.
        seed: of the counts, which are addressed by user number.

    Returns:
        (replicates,) ratios; 0 where the denominator is.
    """
    from scipy.special import ndtri

    seed = check_seed(seed)
    whole_number(replicates, "replicates", 8)
    size = -(-int(replicates) // 8)
    single = np.ones(above.size, bool)
    idle = np.flatnonzero(above == 0.0)
    rest = idle[:0]
    if idle.size > _POOL_LEAST:
        ranked = idle[np.argpartition(below[idle], idle.size - _POOL_SINGLE)]
        rest = ranked[: idle.size - _POOL_SINGLE]
        single[rest] = False
    above_sums, below_sums = resampled_sums(np.stack([above, below * single]), replicates=8 * size, seed=seed)
    if rest.size:
        draws = uniforms(seed, Stream.BOOTSTRAP, _POOL_ADDRESS, np.arange(8 * size))
        spread = float(np.sqrt(np.sum(below[rest] ** 2)))
        below_sums += np.sum(below[rest]) + spread * ndtri(np.clip(draws, 1e-16, None))
    return np.divide(above_sums, below_sums, out=np.zeros(8 * size), where=below_sums > 0.0)[: int(replicates)]


def resampled_sums(columns: Floats, *, replicates: int, seed: int) -> Floats:
    """Sums of user columns with every user counted Poisson(1) times, the same count in all columns.

    Args:
        columns: (K, n) user sums.
        replicates: how many resamples.
        seed: of the counts, which are addressed by user number.

    Returns:
        (K, replicates) sums.
    """
    from recsim_mnar.estimators.intervals import _by_user_kernel as kernels

    size = -(-replicates // 8)
    sums = np.zeros((len(columns) + len(columns) % 2, 8 * size))
    words = np.empty((4, size), np.uint32)
    for k in range(0, len(columns), 2):
        above, below = columns[k], columns[min(k + 1, len(columns) - 1)]
        users = np.flatnonzero((above != 0.0) | (below != 0.0))
        with np.errstate(over="ignore"):
            kernels.poisson_sums(
                np.uint64(seed),
                np.uint64(Stream.BOOTSTRAP),
                users.astype(np.uint64),
                above[users],
                below[users],
                words,
                sums[k],
                sums[k + 1],
            )
    return sums[: len(columns), :replicates]


def resampled_counts(n_users: int, *, replicates: int, seed: int) -> NDArray[np.int8]:
    """How often each resample of :func:`resampled_sums` counts each user, (n_users, replicates)."""
    from recsim_mnar.estimators.intervals import _by_user_kernel as kernels

    size = -(-replicates // 8)
    counts = np.zeros((n_users, 8 * size), np.int8)
    words, one, unused = np.empty((4, size), np.uint32), np.ones(1), np.zeros(8 * size)
    for user in range(n_users):
        row = np.zeros(8 * size)
        address = np.array([user], np.uint64)
        with np.errstate(over="ignore"):
            kernels.poisson_sums(np.uint64(seed), np.uint64(Stream.BOOTSTRAP), address, one, one, words, row, unused)
        counts[user] = row
    return counts[:, :replicates]


def betting(values: Floats, lengths: Floats, level: float, *, anytime: bool = False) -> tuple[float, float]:
    """Waudby-Smith & Ramdas' (2024, theorem 3) betting interval, with bets on z.

    Each end is where a bettor against that side would have multiplied the stake by 2 / (1 - level).

    Args:
        values: (n,) v in the order in which the users appeared; the bet on a user looks at those before only.
        lengths: (n,) l.
        level: nominal coverage.
        anytime: tuned to hold at every n at once (a confidence sequence) instead of at this n only.
    """
    from recsim_mnar.estimators.intervals import _by_user_kernel as kernels

    bets = np.empty_like(values)
    threshold = math.log(2.0 / (1.0 - level))
    kernels.fill_bets(values, 2.0 * threshold, 0.0 if anytime else float(values.size), bets)
    return ends_of_bets(values, lengths, bets, bets, threshold)


def ends_of_bets(
    values: Floats, lengths: Floats, above: Floats, below: Floats, threshold: float
) -> tuple[float, float]:
    """Where the bets ``above`` (m is too low) and ``below`` (m is too high) have won."""
    from recsim_mnar.estimators.intervals import _by_user_kernel as kernels

    inside = ratio_inside(values, lengths)
    low = crossing(lambda m: kernels.log_capital(values, lengths, above, m, 1.0) >= threshold, inside, 0.0)
    high = crossing(lambda m: kernels.log_capital(values, lengths, below, m, -1.0) >= threshold, inside, 1.0)
    return low, high


def ratio_inside(values: Floats, lengths: Floats) -> float:
    """The ratio of means, inside (0, 1)."""
    return min(max(float(np.sum(values) / np.sum(lengths)), 1e-15), 1.0 - 1e-15)


def crossing(rejected: Callable[[float], bool], inside: float, end: float) -> float:
    """The rejected point nearest to ``inside`` on the way to ``end``, to seven digits; ``end`` where none is."""
    out = min(max(end, 1e-300), 1.0 - 1e-16)
    if not rejected(out):
        return end
    for _ in range(60):
        middle = 0.5 * (inside + out)
        if rejected(middle):
            out = middle
        else:
            inside = middle
        if abs(out - inside) <= 1e-7 * max(inside, 1e-12):
            break
    return out
