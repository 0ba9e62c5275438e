"""Random streams addressed by (seed, stream, user, index).

A draw is a pure function of its address, so a user's life does not depend on how many others are simulated with it,
in which order, or by how many workers. The generator is Philox4x32-10 (Salmon, Moraes, Dror & Shaw 2011, "Parallel
random numbers: as easy as 1, 2, 3"): the seed is its key, and (index, stream, user) its counter.
"""

from __future__ import annotations

import enum
import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recsim_mnar.errors import UserError

_FEW = 999
"""Normals that are made without a kernel, some 40 ms of plain Python: catalogues whose views need no other sampler."""


class Stream(enum.IntEnum):
    """Purpose of a draw; each has a stream of its own, so that adding draws to one changes no other."""

    CATALOGUE = 1  # item factors: user field = item
    OFFSETS = 2  # item offsets: user field = item
    USER = 3  # a user's first interests and their drift
    ORGANIC = 4  # an organic event: next state, item viewed
    VIEW = 5  # proposals of the rejection sampler of views
    RESPONSE = 6  # a bandit event: click, next state
    CLOCK = 7  # time between events
    POLICY = 8  # the policy's decision
    PROTOCOL = 9  # held-out events, ties, folds
    FIT = 10  # training of an agent
    SEED = 11  # derived seeds
    BOOTSTRAP = 12  # resampling weights
    PURCHASE = 13  # both potential outcomes of an item in a period: index = period * n_items + item
    EXPOSURE = 14  # which items a deployed recommender shows: index as PURCHASE
    SAMPLE = 15  # draws of a policy that can only draw: index = the user's events so far
    CALENDAR = 16  # an item's arrival (index 0) and the steps of its popularity: user field = item
    ARRIVAL = 17  # a user's arrival in calendar time
    RANKING = 18  # a policy's ranking: two uniforms from each block, (k + 2) // 2 blocks a decision
    READING = 19  # how a user reads a ranking, click by click: index = decision * k + place


def is_seed(seed: Any) -> bool:
    """Return True for an integer in [0, 2**64)."""
    integral = isinstance(seed, (int, np.integer)) and not isinstance(seed, (bool, np.bool_))
    return integral and 0 <= int(seed) < 2**64


def check_seed(seed: Any, name: str = "seed") -> int:
    """Return ``seed`` as an int.

    Raises:
        UserError: it is not an integer in [0, 2**64).
    """
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, (int, np.integer)):
        raise UserError(f"{name} must be an integer, got {seed!r}")
    if not 0 <= int(seed) < 2**64:
        raise UserError(f"{name} must be in [0, 2**64), got {seed}")
    return int(seed)


def derive_seed(seed: int, label: str) -> int:
    """Derive a seed for a purpose, such as ``"train"`` or ``"ab_test/svd"``."""
    address = int.from_bytes(hashlib.blake2b(label.encode(), digest_size=8).digest(), "little")
    words = blocks(seed, Stream.SEED, np.array([address], np.uint64), np.array([0]))[0]
    return int(words[0]) << 32 | int(words[1])


def blocks(seed: int, stream: int, users: ArrayLike, indices: ArrayLike) -> NDArray[np.uint32]:
    """Return the four 32-bit words at each address.

    Args:
        seed: seed in [0, 2**64).
        stream: a :class:`Stream`, or any number below 2**32.
        users: (n,) integers, or one for all.
        indices: (n,) integers below 2**32, or one for all.

    Returns:
        (n, 4) uint32.
    """
    from recsim_mnar.kernels import _rng_kernel

    users_, indices_ = _addresses(users, indices)
    words = np.empty((users_.size, 4), np.uint32)
    with np.errstate(over="ignore"):
        _rng_kernel.fill_blocks(np.uint64(seed), np.uint64(stream), users_, indices_, words)
    return words


def uniforms(seed: int, stream: int, users: ArrayLike, indices: ArrayLike) -> NDArray[np.float64]:
    """Draw one uniform on [0, 1) with 53 bits at each address, (n,); arguments as in :func:`blocks`."""
    from recsim_mnar.kernels import _rng_kernel

    users_, indices_ = _addresses(users, indices)
    out = np.empty(users_.size)
    with np.errstate(over="ignore"):
        _rng_kernel.fill_uniforms(np.uint64(seed), np.uint64(stream), users_, indices_, out)
    return out


def policy_uniforms(seed: int, users: ArrayLike, decisions: ArrayLike) -> NDArray[np.float64]:
    """Draw the uniforms for :meth:`recsim_mnar.policies.Policy.act`, one per user and decision number (from 0)."""
    return uniforms(seed, Stream.POLICY, users, decisions)


def normals(seed: int, stream: int, first_user: int, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Draw standard normals; row i has draws of user ``first_user + i``, four per block from index 0 on."""
    from recsim_mnar.kernels import _rng_kernel

    out = np.empty(shape)
    fill = _rng_kernel.fill_normals
    if out.size <= _FEW and not getattr(fill, "signatures", True):
        fill = fill.py_func  # done in plain Python before the kernel could be compiled; the same bits
    with np.errstate(over="ignore"):
        fill(np.uint64(seed), np.uint64(stream), np.int64(first_user), np.int64(0), out)
    return out


def normals_at(seed: int, stream: int, n: int, index: int) -> NDArray[np.float64]:
    """Draw one standard normal for each of users 0 .. n - 1 at ``index``, (n,)."""
    from recsim_mnar.kernels import _rng_kernel

    words = np.ascontiguousarray(blocks(seed, stream, np.arange(n), index)[:, 0])
    out = np.empty(n)
    _rng_kernel.map_normal(words, out)
    return out


def normals_of(seed: int, stream: int, users: ArrayLike, indices: ArrayLike) -> NDArray[np.float64]:
    """Draw one standard normal at each address, (n,); arguments as in :func:`blocks`."""
    from recsim_mnar.kernels import _rng_kernel

    words = np.ascontiguousarray(blocks(seed, stream, users, indices)[:, 0])
    out = np.empty(len(words))
    _rng_kernel.map_normal(words, out)
    return out


def _addresses(users: ArrayLike, indices: ArrayLike) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    users_, indices_ = np.broadcast_arrays(np.atleast_1d(np.asarray(users)), np.atleast_1d(np.asarray(indices)))
    return (
        np.ascontiguousarray(users_).astype(np.uint64, copy=False),
        np.ascontiguousarray(indices_).astype(np.uint64, copy=False),
    )
