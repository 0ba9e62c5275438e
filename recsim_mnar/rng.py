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

_MOST_UNCOMPILED = 999
"""Largest number of normals that are drawn without compiling the kernel, about 40 ms of plain Python. Enough for the
factors of a small catalogue, whose simulation needs no other kernel."""


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
    """Derive a seed in [0, 2**64) for a purpose, such as ``"train"`` or ``"ab_test/svd"``."""
    # The label's hash takes the place of the user in the address.
    address = int.from_bytes(hashlib.blake2b(label.encode(), digest_size=8).digest(), "little")
    words = blocks(seed, Stream.SEED, np.array([address], np.uint64), np.array([0]))[0]
    return int(words[0]) << 32 | int(words[1])


def blocks(seed: int, stream: int, users: ArrayLike, indices: ArrayLike) -> NDArray[np.uint32]:
    """Return the four random 32-bit words at each address (seed, stream, user, index).

    Args:
        seed: seed in [0, 2**64).
        stream: a :class:`Stream`, or any number below 2**32.
        users: (n,) user of each address, or one for all.
        indices: (n,) index of each address, below 2**32, or one for all.

    Returns:
        (n, 4) uint32.
    """
    from recsim_mnar.kernels import _rng_kernel

    user_of, index_of = _addresses(users, indices)
    words = np.empty((user_of.size, 4), np.uint32)
    with np.errstate(over="ignore"):  # the generator's products wrap around
        _rng_kernel.fill_blocks(np.uint64(seed), np.uint64(stream), user_of, index_of, words)
    return words


def uniforms(seed: int, stream: int, users: ArrayLike, indices: ArrayLike) -> NDArray[np.float64]:
    """Draw one uniform on [0, 1) with 53 bits at each address, (n,); :func:`blocks` describes the arguments."""
    from recsim_mnar.kernels import _rng_kernel

    user_of, index_of = _addresses(users, indices)
    out = np.empty(user_of.size)
    with np.errstate(over="ignore"):  # the generator's products wrap around
        _rng_kernel.fill_uniforms(np.uint64(seed), np.uint64(stream), user_of, index_of, out)
    return out


def policy_uniforms(seed: int, users: ArrayLike, decisions: ArrayLike) -> NDArray[np.float64]:
    """Draw the uniforms for :meth:`recsim_mnar.policies.Policy.act`, one per user and decision number (from 0)."""
    return uniforms(seed, Stream.POLICY, users, decisions)


def normals(seed: int, stream: int, first_user: int, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Draw a matrix of standard normals: row i has the first draws of user ``first_user + i``.

    Each block of four words gives four normals, and the blocks of a user are numbered from index 0.

    Args:
        seed: seed in [0, 2**64).
        stream: a :class:`Stream`, or any number below 2**32.
        first_user: user of the first row.
        shape: number of users, and of draws for each.
    """
    from recsim_mnar.kernels import _rng_kernel

    out = np.empty(shape)
    fill = _rng_kernel.fill_normals
    # A kernel without signatures is not compiled yet, which takes longer than few draws in plain Python. Both give the
    # same bits. A plain function (numba is switched off) has no attribute `signatures`.
    if out.size <= _MOST_UNCOMPILED and not getattr(fill, "signatures", True):
        fill = fill.py_func
    with np.errstate(over="ignore"):  # the generator's products wrap around
        fill(np.uint64(seed), np.uint64(stream), np.int64(first_user), np.int64(0), out)
    return out


def normals_at(seed: int, stream: int, n: int, index: int) -> NDArray[np.float64]:
    """Draw the standard normal numbered ``index`` of the stream for each of users 0 .. n - 1, (n,)."""
    return normals_of(seed, stream, np.arange(n), index)


def normals_of(seed: int, stream: int, users: ArrayLike, indices: ArrayLike) -> NDArray[np.float64]:
    """Draw one standard normal at each address, (n,); :func:`blocks` describes the arguments."""
    from recsim_mnar.kernels import _rng_kernel

    words = np.ascontiguousarray(blocks(seed, stream, users, indices)[:, 0])  # the first word of each block
    out = np.empty(len(words))
    _rng_kernel.map_normal(words, out)
    return out


def _addresses(users: ArrayLike, indices: ArrayLike) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Broadcast users and indices to one length; return the user and the index of each address, (n,) uint64 each."""
    user_of, index_of = np.broadcast_arrays(np.atleast_1d(np.asarray(users)), np.atleast_1d(np.asarray(indices)))
    return (
        np.ascontiguousarray(user_of).astype(np.uint64, copy=False),
        np.ascontiguousarray(index_of).astype(np.uint64, copy=False),
    )
