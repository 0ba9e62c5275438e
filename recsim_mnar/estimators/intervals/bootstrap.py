"""Poisson bootstrap of user sums, in one pass."""

from __future__ import annotations

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
    from recsim_mnar.estimators.intervals import _resampling_kernel as kernels

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
    from recsim_mnar.estimators.intervals import _resampling_kernel as kernels

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
