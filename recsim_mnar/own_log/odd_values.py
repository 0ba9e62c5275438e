"""Values that are read without a fault, but probably mean something else: coded rewards, totals, per-item columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from recsim_mnar.log.columns import Floats
from recsim_mnar.own_log.bandit_file import NOTE, PROBLEM, Problem
from recsim_mnar.tables.roles import plain_name
from recsim_mnar.tables.values import Decimal, text_numbers

_MISSING_CODES = (-1.0, -9.0, -99.0, -999.0, -9999.0, 999.0, 9999.0, 99999.0, 999999.0)
"""Numbers that exports write for missing values."""
_SHOWN = (
    "shown",
    "isshown",
    "wasshown",
    "displayed",
    "isdisplayed",
    "exposed",
    "isexposed",
    "served",
    "selected",
    "chosen",
)
"""Names, without marks and capitals, of columns that tell rows that were shown from those that were not."""
_FAR = 10.0
"""Ratio of a reward to the next largest one from which it counts as a code."""
_LEAST_ROWS = 10
"""Least number of values for any conclusion."""
_ROUNDING = 2e-3
"""Most by which probabilities written with few digits miss a sum of 1."""


def head_numbers(texts: Iterable[Any], decimal: Decimal) -> Floats | None:
    """Read the first values of a column as numbers, without the missing ones; None if one is not a number."""
    import pyarrow as pa

    values, missing, bad = text_numbers(pa.array([str(text) for text in texts], pa.string()), decimal)
    if bad.any():
        return None
    return values[~missing]


def odd_rewards(rewards: Floats, column: str) -> Iterator[Problem]:
    """Yield problems of rewards that can be read but probably mean something else.

    These are two positive values (codes of a factor, such as 1 and 2), a number that exports write for a missing value,
    and a last row of totals.

    Args:
        rewards: (n,) rewards; NaN where missing.
        column: name of their column.
    """
    present = rewards[np.isfinite(rewards)]
    if present.size < _LEAST_ROWS:
        return
    values, counts = np.unique(present, return_counts=True)
    if len(values) == 2 and values[0] > 0.0:
        yield Problem.of("coded_rewards", NOTE, column, low=values[0], high=values[1])
    if len(values) > 2:
        is_below = values[0] < 0.0 <= values[1]
        is_above = values[-1] > _FAR * max(values[-2], 1.0)
        for place, is_far in ((0, is_below), (-1, is_above)):
            if is_far and values[place] in _MISSING_CODES and counts[place] > 1:
                yield Problem.of("missing_code", NOTE, column, value=values[place])
    largest = float(values[-1])
    sum_of_rest = float(present.sum()) - largest
    if counts[-1] == 1 and largest > 1.0 and np.isclose(largest, sum_of_rest, rtol=1e-9, atol=0.0):
        row = int(np.nanargmax(rewards)) + 1
        yield Problem.of("total_row", PROBLEM, column, row=row)


def missing_rewards(head: Mapping[str, Sequence[Any]], column: str, decimal: Decimal) -> str:
    """Return advice on missing rewards; "" unless all rewards that are present are one number other than 0.

    A join of clicks to impressions leaves such a column: 1 for a click, nothing without.
    """
    rewards = head_numbers(head.get(column, ()), decimal)
    if rewards is None or not rewards.size or rewards[0] == 0.0 or np.any(rewards != rewards[0]):
        return ""
    return "if an empty reward means 0, write 0; "


def rows_not_shown(head: Mapping[str, Sequence[Any]], reward: str, decimal: Decimal) -> Iterator[Problem]:
    """Yield a note per column that marks rows as shown or not, if rewards occur only in rows that were shown.

    Rows that were not shown must be left out before an estimate.

    Args:
        head: first values by column.
        reward: column of rewards.
        decimal: decimal mark of the file.
    """
    rewards = head_numbers(head.get(reward, ()), decimal)
    for name, texts in head.items():
        if name == reward or plain_name(name) not in _SHOWN or rewards is None:
            continue
        is_shown = head_numbers(texts, decimal)
        if is_shown is None or is_shown.size != rewards.size or set(is_shown.tolist()) != {0.0, 1.0}:
            continue
        if rewards[is_shown == 1.0].any() and not rewards[is_shown == 0.0].any():
            percent = 100.0 * float(np.mean(is_shown == 0.0))
            yield Problem.of("not_shown", NOTE, name, percent=percent)


def columns_of_one_policy(head: Mapping[str, Sequence[Any]], names: Iterable[str], decimal: Decimal) -> list[str]:
    """List columns that look like one policy's probabilities of all items.

    Their names differ by an ending, and in the first rows their sum is 1, though they are not zeros and ones.
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        stem = name.rpartition("_")[0]  # "new" of "new_17"
        if stem:
            groups.setdefault(stem, []).append(name)
    of_one_policy: list[str] = []
    for group in groups.values():
        columns = [head_numbers(head.get(name, ()), decimal) for name in group]
        read = [column for column in columns if column is not None and column.size >= _LEAST_ROWS]
        if len(group) < 2 or len(read) < len(group) or len({column.size for column in read}) > 1:
            continue
        probabilities = np.stack(read)
        is_fraction = (probabilities > 0.0) & (probabilities < 1.0)
        if is_fraction.any() and np.all(np.abs(probabilities.sum(axis=0) - 1.0) <= _ROUNDING):
            of_one_policy += group
    return of_one_policy


def only_first_days(times: Floats) -> bool:
    """Return whether dates (n,), in seconds since 1970, are all the first of a month, of three months or more.

    This is what exchanging day and month makes of the days of one January.
    """
    days = np.unique(times[np.isfinite(times)] // 86_400)
    if not 3 <= len(days) <= 1_000:  # more days than 83 years have months
        return False
    # datetime holds no day that is too far from 1970.
    dates = [datetime.fromtimestamp(float(day) * 86_400, UTC) for day in days if abs(day) < 40_000]
    return len(dates) == len(days) and all(date.day == 1 for date in dates)
