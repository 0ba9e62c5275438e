"""The log that a plan is made from, its decisions with what of them a plan needs; and amounts as people write them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.facts import check_rows
from recsim_mnar.kernels.checks import table_by_name, text_of
from recsim_mnar.log.columns import Clusters, Floats, column
from recsim_mnar.log.table import Log, provenance_of
from recsim_mnar.own_log.bandit_file import BanditFile, Reading, but_for_slates
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.slate_file import SlateFile, find_slates, slates_in
from recsim_mnar.runs.files import path_of
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import NAMED, NONE, OWN_SCHEMA, Columns, find_columns
from recsim_mnar.tables.rows import Rows
from recsim_mnar.tables.values import far_from_the_others


@dataclass(frozen=True)
class Amount:
    """A share of a value, or an amount in the reward's unit.

    Attributes:
        size: as a share of the value where ``relative``, else in the reward's unit.
        relative: which of the two.
    """

    size: float
    relative: bool

    @staticmethod
    def of(given: Any, name: str) -> Amount:
        """Read ``"5%"`` (of the value) or a number (in the reward's unit).

        Raises:
            UserError: neither, 0, or not finite.
        """
        if isinstance(given, Amount):
            return given
        size, relative = share_or_number(given)
        if not math.isfinite(size):
            raise UserError(
                f"{name} must be a share of the value (5%) or an amount in the reward's unit, got {given!r}"
            )
        if size == 0.0:
            raise UserError(
                f"{name} is 0: nothing that small can be found; name a share of the value (5%) or an amount"
            )
        return Amount(size, relative)

    def of_value(self, value: float, name: str) -> float:
        """The amount in the reward's unit.

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


def share_or_number(given: Any) -> tuple[float, bool]:
    """``"5%"`` as 0.05 or a number as it is, NaN where it is neither; and whether it has the sign."""
    text = str(given).strip()
    relative = text.endswith("%")
    try:
        size = float(text.removesuffix("%")) / (100.0 if relative else 1.0)
    except ValueError:
        return math.nan, relative
    return math.nan if isinstance(given, bool) else size, relative


def quantile(probability: float) -> float:
    """Quantile of the standard normal distribution."""
    from scipy.special import ndtri

    return float(ndtri(probability))


def two_sided(level: float) -> float:
    """Standard errors that an interval of this coverage reaches to either side."""
    return quantile(1.0 - (1.0 - level) / 2.0)


def factor_range(relative_error: float, level: float) -> tuple[float, float]:
    """Factors between which an amount is whose logarithm has this standard error."""
    reach = math.exp(min(two_sided(level) * relative_error, 50.0))
    return 1.0 / reach, reach


FEW_USERS = 100
"""Users below which a plan says that it is a guess."""


@dataclass(frozen=True)
class Pilot:
    """Decisions of a log.

    Attributes:
        reward: (n,).
        propensity: (n,), 1 where it was not asked for.
        clusters: users, or None.
        policies: (n,) probabilities of the logged actions by the policies' names.
        days: (n,) from 0, where the log has dates; -1 in rows without one.
        undated: why a file's dates are not used, in a sentence; empty where they are, or where there are none.
        lines: what was taken from a file, for a person, where it had to be recognised.
        name: of the log, for messages.
        slates: how many the rows are of; None of single items.
    """

    reward: Floats
    propensity: Floats
    clusters: Clusters | None
    policies: dict[str, Floats]
    days: NDArray[np.int64] | None = None
    undated: str = ""
    lines: tuple[str, ...] = ()
    name: str = "the log"
    slates: int | None = None

    def __len__(self) -> int:
        return self.reward.size

    @staticmethod
    def of(
        log: Any,
        policies: Sequence[str] = (),
        *,
        propensity: bool = True,
        columns: Mapping[str, str | None] | Reading | None = None,
    ) -> Pilot:
        """Read the columns that a plan needs.

        Args:
            log: a file or folder, a :class:`Log`, a mapping of columns (a data frame is one), or a pilot.
            policies: columns, each a policy's probability of the logged action.
            propensity: whether the propensities are needed.
            columns: column by role (reward, propensity, user, time), None or left out: recognised; or how to read a
                file altogether.

        Raises:
            UserError: no such file or column, no rows, or values that are no such numbers.
        """
        if isinstance(log, Pilot):
            return log

        policies = [text_of(name, "a policy's column") for name in policies]
        if isinstance(columns, Reading):
            reading = columns
        else:
            reading = Reading(dict(table_by_name({} if columns is None else columns, "columns")))
        question = _Asked(tuple(policies), propensity, reading)
        if isinstance(log, (str, os.PathLike)):
            return _from_file(path_of(log), question)
        if isinstance(log, Log):
            return _from_columns(log.bandit().columns, question)
        if isinstance(log, Mapping) or hasattr(log, "columns"):
            return _from_columns({str(name): np.asarray(log[name]) for name in log}, question)
        raise UserError(f"a log is a file, a Log or columns by name, got {type(log).__name__}")


def names_of_columns(log: Any) -> list[str]:
    """The columns of what :meth:`Pilot.of` reads."""
    if isinstance(log, (str, os.PathLike)):
        path = path_of(log)
        return list(TableFile.open(path / "log" if (path / "log").is_dir() else path).names)
    if isinstance(log, Log):
        return list(log.columns)
    return [str(name) for name in log]


@dataclass(frozen=True)
class _Asked:
    """Requirements of a plan on a log."""

    policies: tuple[str, ...]
    propensity: bool
    reading: Reading

    def columns(self, source: str, known: Sequence[str]) -> Columns:
        """Recognise the columns; a policy's must be there."""
        self.check_policies(source, known)
        needed = ("reward", "propensity") if self.propensity else ("reward",)
        named = self.reading.columns
        return find_columns(source, known, named=named, needed=needed, optional=("user", "time"), leave=self.policies)

    def check_policies(self, source: str, known: Sequence[str]) -> None:
        """Raise UserError for a policy without a column."""
        for name in self.policies:
            if name not in known:
                raise UserError(
                    f"{source} has no column {name!r} for that policy's probabilities of the logged actions; "
                    f"{nearest(name, known)} (`recsim-mnar replay` makes them)"
                )


def _from_file(path: Path, asked: _Asked) -> Pilot:
    source = path
    if (path / "log").is_dir():
        source = path / "log"
    table = TableFile.open(source, asked.reading.decimal)
    names = table.names
    slates = find_slates(table, asked.reading.columns, asked.policies)
    if slates is not None and (asked.propensity or slates.per_slate):
        raise UserError(f"{path} is a log of slates ({slates.form}): without --target, one row per position is read")
    reading = _of_rewards(table, asked.reading, slates)
    asked.check_policies(str(path), names)
    needs = ("propensity",) if asked.propensity else ()
    of_slates = []
    if slates is not None:
        of_slates = [slates.columns["position"]]
    log = BanditLog.open(source, asked.policies, reading=reading, needs=needs, others=of_slates).read()
    if log.weight is not None:
        why = f"each row stands for as many rows as {log.columns['weight']} says, and a plan needs all of them"
        raise UserError(f"{path}: {why}: give a log that keeps every row, or add --weight-column none")
    clusters = None
    if log.users is not None:
        clusters = Clusters.of(log.users, len(log))
    days = None
    undated = ""
    if "world" not in provenance_of(source):  # a world's times are no dates
        days, undated = _file_days(source, log, asked.reading.drop_invalid)
    if days is None and undated and log.columns.how["time"] == NAMED:
        raise UserError(f"{path}: {undated}")
    if days is not None and undated:
        log.lines.append(undated)
    return Pilot(
        log.reward,
        np.ones(len(log)) if log.propensity is None else log.propensity,
        clusters,
        {name: log.policies[name] for name in asked.policies},
        days=days,
        undated=undated if days is None else "",
        name=str(path),
        lines=tuple(log.lines) if set(log.columns.how.values()) != {OWN_SCHEMA} else (),
        slates=None if slates is None or log.key is None else slates_in(log, slates),
    )


def _of_rewards(table: TableFile, reading: Reading, slates: SlateFile | None) -> Reading:
    """The reading of single items; of slates that of their rewards and users alone."""
    columns = but_for_slates(reading.columns)
    if slates is None:
        return replace(reading, columns=columns)
    if columns.get("user") is None:  # a column of slates may be called as one of users
        leave = slates.columns.values()
        user = find_columns(str(table.path), table.names, optional=("user",), leave=leave).get("user")
        columns |= {"user": user or NONE}
    columns |= {"propensity": columns.get("propensity") or NONE}
    return replace(reading, columns=columns, key=slates.columns["slate"])


_FIRST_DATE = 1e8
"""Seconds from 1970 to 1973: smaller numbers are no dates."""


MOST_UNDATED = 0.05
"""Share of rows that may lack a date, days being counted by the others: as many as ``--drop-invalid`` leaves out."""


def day_numbers(times: Floats, most: float = MOST_UNDATED) -> NDArray[np.int64] | None:
    """Days (n,) from 0, of seconds or milliseconds since 1970; the last one may be shorter or longer by half.

    Rows without a time, NaN, have day -1. None where the times are no dates (smaller numbers), where a larger share
    than ``most`` is missing, or where they span less than a day and a half.
    """
    present = times[np.isfinite(times)]
    if not present.size or (times.size - present.size) / times.size > most or np.median(present) < _FIRST_DATE:
        return None
    a_day = 86_400.0 * (1000.0 if np.median(present) > 1000.0 * _FIRST_DATE else 1.0)
    days = np.where(np.isfinite(times), (times - present.min()) / a_day, -1.0)
    number = round(float(days.max()))
    if number >= 2:
        return np.minimum(days.astype(np.int64), number - 1)
    return None


def _file_days(source: Path, found: BanditFile, accepted: float | None) -> tuple[NDArray[np.int64] | None, str]:
    """Days where the file's times are dates, and a line on rows without one, or on why there are no days."""
    name = found.columns.get("time")
    most = max(MOST_UNDATED, accepted or 0.0)
    if name is None or found.user is None:
        return None, ""
    rows = TableFile.open(source).read({name: "time"})
    times = rows.times(name)[found.row_numbers - 1]
    far = far_from_the_others(times)
    times = np.where(far, np.nan, times)
    number = int(np.count_nonzero(np.isnan(times)))
    days = day_numbers(times, most)
    if not number or (days is None and number / times.size <= most):
        return days, ""
    share = 100.0 * number / times.size
    if far.any():
        row = int(found.row_numbers[np.flatnonzero(far)[0]])
        return (
            days,
            f"{number:,} of {times.size:,} rows have no date, or one far from all others (row {row:,}): left out",
        )
    remark = f"{number:,} of {times.size:,} rows ({share:.2g} %) have no date that can be read"
    remark += f" ({'; '.join(fault.message for fault in rows.faults.faults)})"
    if days is not None:
        return days, f"{remark}: days are counted by the others"
    return None, (
        f"{remark}, more than {100.0 * most:g} %, so no days are counted: correct them, add --drop-invalid "
        f"{math.ceil(share) / 100:g} to count those that can be read, or say how many users enter a day "
        "(--users-per-day)"
    )


def _from_columns(given: Mapping[str, Any], asked: _Asked) -> Pilot:
    columns = asked.columns("the log", list(given))
    rows = len(given[columns["reward"]])
    user = columns.get("user")
    clusters = None
    if user is not None:
        clusters = Clusters.of(np.asarray(given[user]), rows, user)

    def numbers(name: str) -> Floats:
        return column(given[name], name, rows=rows)

    times = None
    if "time" in columns:
        times = np.asarray(given[columns["time"]])
    pilot = Pilot(
        numbers(columns["reward"]),
        numbers(columns["propensity"]) if asked.propensity else np.ones(rows),
        clusters,
        {name: numbers(name) for name in asked.policies},
        days=None if times is None else day_numbers(_seconds(times)),
    )
    if len(pilot) == 0:
        raise UserError(f"{pilot.name} has no decisions: there is nothing to plan from")
    for name, values in (pilot.policies or {columns["reward"]: np.ones(len(pilot))}).items():
        names = (columns["reward"], columns.get("propensity") or "propensity", name)
        check_rows(pilot.reward, pilot.propensity, values, names)
    return pilot


def _seconds(times: NDArray[Any]) -> Floats:
    """Dates, in text or not, as seconds since 1970, as those of a file; NaN where there is none; else numbers."""
    import pyarrow as pa

    kind: Any = {"O": str, "S": str, "U": str, "M": "datetime64[us]"}.get(times.dtype.kind, times.dtype)
    return Rows("the log", pa.table({"time": times.astype(kind)})).quiet().times("time")
