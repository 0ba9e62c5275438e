"""Times as people read them."""

from __future__ import annotations

import datetime
import math

_UNITS = ((1e8, 1e11, 1.0), (1e11, 1e14, 1e-3), (1e14, 1e17, 1e-6), (1e17, 1e19, 1e-9))
"""Least and largest number of a unit of time since 1970, and the unit in seconds: 1973 to 5138 in seconds."""


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
