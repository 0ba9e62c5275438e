"""Where users begin in rows ordered by user, and which ids follow one another."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def user_begins(users: ArrayLike) -> NDArray[np.bool_]:
    """(n,) which rows are the first of their user; rows stand user by user."""
    given: NDArray[Any] = np.asarray(users)
    begins = np.ones(len(given), np.bool_)
    np.not_equal(given[1:], given[:-1], out=begins[1:])
    return begins


def user_starts(users: ArrayLike) -> NDArray[np.int64]:
    """(U,) first row of each user in rows (n,) that stand user by user; empty where there is no row.

    ``np.diff(np.append(user_starts(users), len(users)))`` is how many rows each has.
    """
    return np.flatnonzero(user_begins(users))


def steps_within(users: ArrayLike) -> NDArray[np.int64]:
    """(n,) position of each row among those of its user, from 0; rows stand user by user."""
    given = np.asarray(users)
    starts = user_starts(given)
    return np.arange(len(given)) - np.repeat(starts, np.diff(np.append(starts, len(given))))


def consecutive(ids: NDArray[np.int64]) -> list[slice]:
    """Stretches of ids (n,) in which each is the one before plus 1."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(ids) != 1) + 1, [len(ids)]]).tolist()
    return [slice(first, last) for first, last in itertools.pairwise(edges) if last > first]
