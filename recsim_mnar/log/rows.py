"""Rows ordered by user: where users begin, which ids follow one another; and their times as people read them."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_FIRST_DATE, _LAST_DATE = 1e8, 1e11
"""Smallest and largest time that is likely a date in seconds since 1970: the years 1973 to 5138."""


def user_begins(users: ArrayLike) -> NDArray[np.bool_]:
    """Return a flag per row, (n,), True for the first row of each user; a user's rows are consecutive."""
    user_column: NDArray[Any] = np.asarray(users)
    begins = np.ones(len(user_column), np.bool_)
    np.not_equal(user_column[1:], user_column[:-1], out=begins[1:])
    return begins


def user_starts(users: ArrayLike) -> NDArray[np.int64]:
    """Return the index of the first row of each of U users, (U,); a user's rows are consecutive.

    The users' numbers of rows are ``np.diff(np.append(user_starts(users), len(users)))``.
    """
    return np.flatnonzero(user_begins(users))


def user_numbers(users: ArrayLike) -> NDArray[np.int64]:
    """Return the number of each row's user, (n,), users numbered from 0 in their order; their rows are consecutive."""
    return np.cumsum(user_begins(users)) - 1


def steps_within(users: ArrayLike) -> NDArray[np.int64]:
    """Return the position of each row among those of its user, (n,), from 0; a user's rows are consecutive."""
    user_column = np.asarray(users)
    starts = user_starts(user_column)
    n_rows = np.diff(np.append(starts, len(user_column)))  # by user
    return np.arange(len(user_column)) - np.repeat(starts, n_rows)


def consecutive(ids: NDArray[np.int64]) -> list[slice]:
    """Split ids (n,) into the longest slices within which each id is its predecessor plus 1."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(ids) != 1) + 1, [len(ids)]]).tolist()
    return [slice(first, last) for first, last in itertools.pairwise(edges) if last > first]


def shown_time(time: float) -> str:
    """Format a time for people: as a date (UTC) if it is likely one in seconds since 1970, else as a number."""
    if not _FIRST_DATE <= time < _LAST_DATE:
        return f"{time:g}"
    return f"{datetime.datetime.fromtimestamp(time, tz=datetime.UTC):%Y-%m-%d %H:%M}"
