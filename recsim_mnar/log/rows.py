"""Rows ordered by user: where users begin, which ids follow one another; and their times as people read them."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_FIRST_DATE, _LAST_DATE = 1e8, 1e11
"""Seconds since 1970 that are likely a date: the years 1973 to 5138."""


def user_begins(users: ArrayLike) -> NDArray[np.bool_]:
    """(n,) which rows are the first of their user; rows stand user by user."""
    user_column: NDArray[Any] = np.asarray(users)
    begins = np.ones(len(user_column), np.bool_)
    np.not_equal(user_column[1:], user_column[:-1], out=begins[1:])
    return begins


def user_starts(users: ArrayLike) -> NDArray[np.int64]:
    """(U,) first row of each user in rows (n,) that stand user by user; empty where there is no row.

    ``np.diff(np.append(user_starts(users), len(users)))`` is how many rows each has.
    """
    return np.flatnonzero(user_begins(users))


def user_numbers(users: ArrayLike) -> NDArray[np.int64]:
    """(n,) users numbered 0, 1, ... in their order; rows stand user by user."""
    return np.cumsum(user_begins(users)) - 1


def steps_within(users: ArrayLike) -> NDArray[np.int64]:
    """(n,) position of each row among those of its user, from 0; rows stand user by user."""
    user_column = np.asarray(users)
    starts = user_starts(user_column)
    return np.arange(len(user_column)) - np.repeat(starts, np.diff(np.append(starts, len(user_column))))


def consecutive(ids: NDArray[np.int64]) -> list[slice]:
    """Stretches of ids (n,) in which each is the one before plus 1."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(ids) != 1) + 1, [len(ids)]]).tolist()
    return [slice(first, last) for first, last in itertools.pairwise(edges) if last > first]


def shown_time(time: float) -> str:
    """Return a time in seconds since 1970 as a date (UTC) where it is likely one, else as a number."""
    if not _FIRST_DATE <= time < _LAST_DATE:
        return f"{time:g}"
    return f"{datetime.datetime.fromtimestamp(time, tz=datetime.UTC):%Y-%m-%d %H:%M}"
