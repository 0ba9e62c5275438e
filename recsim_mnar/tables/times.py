"""Times: dates written as text, and numbers of seconds, milliseconds and the like."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.tables.ids import numbered
from recsim_mnar.tables.numbers import MISSING_WORDS, Decimal, as_array, text_numbers

UNITS = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
"""How many there are in a second."""
_FIRST, _LAST = 631_152_000.0, 4_102_444_800.0
"""The years 1990 to 2099, in seconds since 1970: other numbers are no dates."""
_FEW = 0.01
"""Share of the rows that may be of another unit: they count as faults."""
_AT_THE_ENDS = 0.005
"""Share of the rows at either end among which dates far from the others are looked for."""
_SLASHED = r"^\s*(\d{1,2})/(\d{1,2})/(\d{4})"
_DAY = re.compile(r"^\s*(\d{1,2})[./](\d{1,2})[./](\d{4})")
_DOTTED = r"^\s*\d{1,2}\.\d{1,2}\.\d{4}"
_ZONE = r"\s*(UTC|GMT)$"


def in_seconds(times: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Convert numbers (n,) of seconds, milliseconds, ... since 1970, or as 20240531, to seconds since 1970.

    Other numbers, such as those of steps, are returned as they are.

    Raises:
        UserError: the numbers are of several units.
    """
    known = times[np.isfinite(times)]
    counts = {unit: int(_are_dates(known, size).sum()) for unit, size in UNITS.items()}
    there = [unit for unit, count in counts.items() if count > _FEW * known.size]
    if len(there) > 1:
        shares = " and ".join(f"{counts[unit]:,} rows in {unit}" for unit in there)
        raise UserError(f"{name} mixes units of time: {shares}; write it in one unit", code="mixed_units")
    if there:
        return times / UNITS[there[0]]
    return _of_days(times, known)


def _are_dates(times: NDArray[np.float64], unit: float) -> NDArray[np.bool_]:
    """Find the times (n,) that are dates where ``unit`` of them make a second."""
    return (times >= _FIRST * unit) & (times < _LAST * unit)


def _of_days(times: NDArray[np.float64], known: NDArray[np.float64]) -> NDArray[np.float64]:
    """Convert numbers as 20240531, where all of them are, to seconds since 1970."""
    import pandas as pd

    if not known.size or known.min() < 19_900_101 or known.max() > 20_991_231 or np.any(known != np.floor(known)):
        return times
    days, codes = np.unique(known.astype(np.int64), return_inverse=True)
    dates = pd.to_datetime(pd.Series(days.astype(str)), format="%Y%m%d", errors="coerce", utc=True)
    if dates.isna().any():
        return times
    seconds = times.copy()
    seconds[np.isfinite(times)] = _seconds(dates)[codes]
    return seconds


def far_from_the_others(times: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Find the few dates (n,) that lie further from the others than these span, as one of a wrong year does."""
    known = times[np.isfinite(times)]
    if not known.size:
        return np.zeros(times.size, np.bool_)
    low, high = np.quantile(known, [_AT_THE_ENDS, 1.0 - _AT_THE_ENDS])
    return (times < low - (high - low)) | (times > high + (high - low))


def text_times(column: Any, decimal: Decimal) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], str]:
    """Read times written as text.

    Returns:
        (n,) values, NaN where there is none; (n,) which are missing; (n,) which are neither numbers nor dates; what
        these are not.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan), np.ones(len(column), np.bool_), np.zeros(len(column), np.bool_), ""
    missing = pc.or_(pc.is_null(column), pc.fill_null(pc.is_in(column, pa.array(MISSING_WORDS, column.type)), False))
    absent = as_array(missing).astype(np.bool_)
    numbers, _, bad_numbers = text_numbers(column, decimal)
    if bad_numbers.sum() <= absent.size - absent.sum() - bad_numbers.sum():
        return numbers, absent, bad_numbers, "is neither a number nor a date"
    codes, ids = numbered(column)
    words = pd.Series(ids.astype(object), dtype="str").str.replace(_ZONE, "", regex=True)
    dates = pd.to_datetime(words, errors="coerce", utc=True, format="ISO8601")
    if dates.notna().sum() == 0:
        dates = _other_dates(words)
    values = np.append(_seconds(dates), np.nan)[codes]
    return values, absent, np.isnan(values) & ~absent, "is not a date"


def _seconds(dates: Any) -> NDArray[np.float64]:
    """Convert a pandas Series (n,) of dates to seconds since 1970."""
    import pandas as pd

    seconds: NDArray[np.float64] = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(dtype=np.float64)
    return seconds


def _other_dates(words: Any) -> Any:
    """Dates that begin with the day, or with the month where some row shows that it is one."""
    import pandas as pd

    day_first = True
    slashed = words.str.extract(_SLASHED).dropna().astype(int)
    if len(slashed) > len(words) / 2:
        first, second = bool((slashed[0] > 12).any()), bool((slashed[1] > 12).any())
        if first == second:
            return pd.Series(pd.NaT, index=words.index).dt.tz_localize("UTC")
        day_first = first
    elif not words.str.match(_DOTTED, na=False).any():
        return pd.Series(pd.NaT, index=words.index).dt.tz_localize("UTC")
    day, month = (1, 2) if day_first else (2, 1)
    written = words.str.replace(_DAY, lambda found: f"{found[3]}-{found[month]:0>2}-{found[day]:0>2}", regex=True)
    dates = pd.to_datetime(written, errors="coerce", utc=True, format="ISO8601")  # a hundred times as fast
    others = dates.isna()
    if others.any():
        dates[others] = pd.to_datetime(words[others], errors="coerce", utc=True, dayfirst=day_first, format="mixed")
    return dates
