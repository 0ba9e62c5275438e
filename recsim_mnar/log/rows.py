"""Rows ordered by user: where users begin, which ids follow one another; and their times as people read them."""

from __future__ import annotations

import datetime
import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_UNITS = ((1e8, 1e11, 1.0), (1e11, 1e14, 1e-3), (1e14, 1e17, 1e-6), (1e17, 1e19, 1e-9))
"""Least and largest number of a unit of time since 1970, and the unit in seconds: 1973 to 5138 in seconds."""


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


def user_numbers(users: ArrayLike) -> NDArray[np.int64]:
    """(n,) users numbered 0, 1, ... in their order; rows stand user by user."""
    return np.cumsum(user_begins(users)) - 1


def steps_within(users: ArrayLike) -> NDArray[np.int64]:
    """(n,) position of each row among those of its user, from 0; rows stand user by user."""
    given = np.asarray(users)
    starts = user_starts(given)
    return np.arange(len(given)) - np.repeat(starts, np.diff(np.append(starts, len(given))))


def consecutive(ids: NDArray[np.int64]) -> list[slice]:
    """Stretches of ids (n,) in which each is the one before plus 1."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(ids) != 1) + 1, [len(ids)]]).tolist()
    return [slice(first, last) for first, last in itertools.pairwise(edges) if last > first]


def seconds_in(time: float) -> float | None:
    """The unit, in seconds, in which a number counts from 1970; None where it is not likely a date."""
    return next((unit for least, most, unit in _UNITS if least <= abs(time) < most), None)


def shown_time(time: float) -> str:
    """A time as a date where it is likely one (UTC; seconds, milliseconds, ... since 1970), else as a number."""
    unit = seconds_in(time) if math.isfinite(time) else None
    if unit is None:
        return f"{time:g}"
    try:
        when = datetime.datetime.fromtimestamp(time * unit, tz=datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return f"{time:g}"
    return f"{when:%Y-%m-%d %H:%M}"
