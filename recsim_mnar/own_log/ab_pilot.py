"""Read the log behind an A/B plan: its decisions with rewards, users and days; and parse amounts."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.columns import Clusters, Floats
from recsim_mnar.log.table import Log, provenance_of
from recsim_mnar.own_log.bandit_file import BanditFile, Reading, but_for_slates
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.odd_values import only_first_days
from recsim_mnar.own_log.slate_file import SlateFile, find_slates, slates_in
from recsim_mnar.runs.files import path_of
from recsim_mnar.tables.files import IN_MEMORY, as_file, is_in_memory, log_folder
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import NAMED, NONE, OWN_SCHEMA, find_columns
from recsim_mnar.tables.values import far_from_the_others


@dataclass(frozen=True)
class Amount:
    """A share of a value, or an amount in the reward's unit.

    Attributes:
        size: the share if ``relative``, otherwise the amount.
        relative: True for a share of the value.
    """

    size: float
    relative: bool

    @staticmethod
    def of(given: Any, name: str) -> Amount:
        """Parse ``"5%"`` (a share of the value) or a number (in the reward's unit).

        Args:
            given: text or number; an amount is returned unchanged.
            name: name of the argument in messages.

        Raises:
            UserError: it is neither, 0, or not finite.
        """
        if isinstance(given, Amount):
            return given
        text = str(given).strip()
        relative = text.endswith("%")
        try:
            size = float(text.removesuffix("%")) / (100.0 if relative else 1.0)
        except ValueError:
            size = math.nan
        if not math.isfinite(size) or isinstance(given, bool):
            raise UserError(
                f"{name} must be a share of the value (5%) or an amount in the reward's unit, got {given!r}"
            )
        if size == 0.0:
            raise UserError(
                f"{name} is 0: nothing that small can be found; name a share of the value (5%) or an amount"
            )
        return Amount(size, relative)

    def of_value(self, value: float, name: str) -> float:
        """Return the amount in the reward's unit.

        Args:
            value: the value that a share refers to.
            name: name of the argument in messages.

        Raises:
            UserError: a share of a value that is not positive.
        """
        if not self.relative:
            return self.size
        if not value > 0.0:
            raise UserError(
                f"{name}: the log's value is {value:.3g}, so a percentage is undefined. Give an absolute amount"
            )
        return self.size * value


def quantile(probability: float) -> float:
    """Return the quantile of the standard normal distribution at a probability."""
    from scipy.special import ndtri

    return float(ndtri(probability))


def two_sided(level: float) -> float:
    """Return half the width, in standard errors, of a two-sided normal interval of this coverage: 1.96 for 0.95."""
    return quantile(1.0 - (1.0 - level) / 2.0)


def factor_range(relative_error: float, level: float) -> tuple[float, float]:
    """Return the confidence limits of a positive amount whose logarithm has this standard error, as factors of it."""
    reach = math.exp(min(two_sided(level) * relative_error, 50.0))  # the cap avoids an overflow
    return 1.0 / reach, reach


FEW_USERS = 100
"""Number of users below which a plan is a guess."""


@dataclass(frozen=True)
class Pilot:
    """Decisions of a log.

    Attributes:
        reward: (n,) rewards.
        clusters: user of each decision; None without users.
        days: (n,) day of each decision, from 0; -1 for a decision without a date; None if the log has no dates.
        undated: reason, in a sentence, why the dates are not used; empty if they are, or if the log has none.
        lines: notes on the columns, if they had to be recognised.
        name: name of the log in messages.
        slates: number of slates; None for single items.
    """

    reward: Floats
    clusters: Clusters | None
    days: NDArray[np.int64] | None
    undated: str
    lines: tuple[str, ...]
    name: str
    slates: int | None

    def __len__(self) -> int:
        return self.reward.size

    @staticmethod
    def of(log: Any, reading: Reading | None = None) -> Pilot:
        """Read the rewards, users and times of a log.

        Args:
            log: a file or folder, a :class:`Log`, columns by name, a table in memory, or a pilot, which is returned.
            reading: statements about the columns and rows; columns that it leaves out are recognised by their names.

        Raises:
            UserError: the file or a column does not exist, there are no rows, or a value is invalid.
        """
        if isinstance(log, Pilot):
            return log
        reading = reading or Reading()
        if isinstance(log, (str, os.PathLike)):
            return _from_file(path_of(log), reading)
        if isinstance(log, Log):
            # Only decisions are left, so that events say nothing more.
            log = {name: values for name, values in log.bandit().columns.items() if name != "event"}
        if isinstance(log, Mapping):
            import pandas as pd

            log = pd.DataFrame({str(name): np.asarray(values) for name, values in log.items()})
        if not is_in_memory(log):
            raise UserError(f"a log is a file, a Log or columns by name, got {type(log).__name__}")
        with as_file(log) as path:
            pilot = _from_file(path, reading)
        lines = [line.replace(str(path), IN_MEMORY) for line in pilot.lines]
        return replace(pilot, name=IN_MEMORY, lines=tuple(lines))


def _from_file(path: Path, stated: Reading) -> Pilot:
    """Read a log file.

    Args:
        path: path of the file or folder.
        stated: statements about the columns and rows of the file.

    Raises:
        UserError: lists of items, weights of rows, or invalid columns and values.
    """
    source = log_folder(path)
    table = TableFile.open(source, stated.decimal)
    slates = find_slates(table, stated.columns)
    log = BanditLog.open(
        source,
        reading=_of_rewards(table, stated, slates),
        extra_columns=() if slates is None else (slates.columns["position"],),
    ).read()
    if log.weight is not None:
        why = f"each row stands for as many rows as {log.columns['weight']} says, and a plan needs all of them"
        raise UserError(f"{path}: {why}: give a log that keeps every row, or add --weight-column none")
    days = None
    undated = ""
    if "world" not in provenance_of(table.parts):  # the times of a simulated log are no dates
        days, undated = _file_days(source, log, stated.drop_invalid)
    if days is None and undated and log.columns.how["time"] == NAMED:
        raise UserError(f"{path}: {undated}")
    if days is not None and undated:
        log.lines.append(undated)
    return Pilot(
        log.reward,
        Clusters.of(log.users, len(log)),
        days=days,
        undated=undated if days is None else "",
        name=str(path),
        lines=tuple(log.lines) if set(log.columns.how.values()) != {OWN_SCHEMA} else (),
        slates=None if slates is None else slates_in(log, slates),
    )


def _of_rewards(table: TableFile, reading: Reading, slates: SlateFile | None) -> Reading:
    """Return the reading without columns of slates; for a file of slates, with those of its rewards and users only."""
    columns = but_for_slates(reading.columns)
    if slates is None:
        return replace(reading, columns=columns)
    if columns.get("user") is None:  # a column of slates may have a usual name of a column of users
        leave = slates.columns.values()
        columns["user"] = (
            find_columns(str(table.path), table.names, optional=("user",), leave=leave).get("user") or NONE
        )
    columns["propensity"] = columns.get("propensity") or NONE
    return replace(reading, columns=columns, key=slates.columns["slate"])


_FIRST_DATE = 1e8
"""Least time, in seconds since 1970, that counts as a date (in 1973); smaller numbers are no dates."""


MOST_UNDATED = 0.05
"""Largest share of rows without a date with which days are counted, from the other rows; as in ``--drop-invalid``."""


def day_numbers(times: Floats, most: float = MOST_UNDATED) -> NDArray[np.int64] | None:
    """Return the day (n,) of each time, counted in periods of 24 hours from the first time.

    The last period may be up to half a day longer or shorter, so that the days cover the span of the log.

    Args:
        times: (n,) seconds or milliseconds since 1970; NaN for a row without a time, whose day is -1.
        most: largest share of rows without a time.

    Returns:
        The days from 0; None if the times are too small for dates, if a larger share than ``most`` is missing, or if
        they span less than a day and a half.
    """
    is_dated = np.isfinite(times)
    present = times[is_dated]
    if not present.size or (times.size - present.size) / times.size > most or np.median(present) < _FIRST_DATE:
        return None
    a_day = 86_400.0
    if np.median(present) > 1000.0 * _FIRST_DATE:  # milliseconds
        a_day *= 1000.0
    days = np.where(is_dated, (times - present.min()) / a_day, -1.0)
    n_days = round(float(days.max()))
    if n_days < 2:
        return None
    return np.minimum(days.astype(np.int64), n_days - 1)


def _file_days(source: Path, log: BanditFile, accepted: float | None) -> tuple[NDArray[np.int64] | None, str]:
    """Number the days of a file's rows.

    Args:
        source: path of the file.
        log: its rows.
        accepted: share of unreadable rows that the user accepts; None for the default.

    Returns:
        days: (n,) day of each row, from 0; -1 for a row without a date; None if days cannot be counted.
        remark: note on rows without a date, or the reason why days cannot be counted; may be empty.
    """
    name = log.columns.get("time")
    if name is None or log.user is None:
        return None, ""
    most = max(MOST_UNDATED, accepted or 0.0)
    rows = TableFile.open(source).read({name: "time"})
    times = rows.times(name)[log.row_numbers - 1]
    far = far_from_the_others(times)
    times = np.where(far, np.nan, times)
    number = int(np.count_nonzero(np.isnan(times)))
    days = day_numbers(times, most)
    if only_first_days(times):
        return days, "all dates are the first of a month: if day and month are exchanged, write 2024-05-31"
    if not number or (days is None and number / times.size <= most):
        return days, ""
    remark = f"{number:,} of {times.size:,} rows"
    if far.any():
        row = int(log.row_numbers[np.argmax(far)])
        return days, f"{remark} have no date, or one far from all others (row {row:,}): left out"
    share = 100.0 * number / times.size
    faults = "; ".join(fault.message for fault in rows.faults.faults)
    remark += f" ({share:.2g} %) have no date that can be read ({faults})"
    if days is not None:
        return days, f"{remark}: days are counted by the others"
    return None, (
        f"{remark}, more than {100.0 * most:g} %, so no days are counted: correct them, add --drop-invalid "
        f"{math.ceil(share) / 100:g} to count those that can be read, or say how many users enter a day "
        "(--users-per-day)"
    )
