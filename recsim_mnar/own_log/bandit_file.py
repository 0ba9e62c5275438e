"""A bandit log of one's own: a table file whose columns are recognised, checked and left out by what the user says."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log.column_values import events_held
from recsim_mnar.log.columns import Floats
from recsim_mnar.tables.events import events_of
from recsim_mnar.tables.faults import MISSING
from recsim_mnar.tables.roles import Columns, find_columns, similar_columns
from recsim_mnar.tables.rows import Ids, Rows
from recsim_mnar.tables.table_file import TableFile

HIGHEST = 1.0 + 1e-6
"""A probability may pass 1 by a rounding."""


@dataclass(frozen=True)
class Reading:
    """How the user wants a file read.

    Attributes:
        columns: column by role (reward, propensity, action, user, time, logger); None or left out: recognised.
        context: columns of what the logging policy saw.
        key: column by which rows of a second file are found.
        drop_missing: leave out rows that miss a value that is needed.
        deduplicate: keep the first of rows that are equal in every column that is read.
        today: the policy that may be the logging policy itself, its column that of the propensities; None: no policy's
            column is taken for it.
        times: read the column of times, where there is one, into ``others``.
    """

    columns: Mapping[str, str | None] = field(default_factory=dict)
    context: Sequence[str] = ()
    key: str | None = None
    drop_missing: bool = False
    deduplicate: bool = False
    today: str | None = None
    times: bool = False


@dataclass(frozen=True)
class BanditFile:
    """The decisions of a file, n rows.

    Attributes:
        source: the file, for messages.
        columns: which column is what.
        reward: (n,).
        propensity: (n,), None where the file has none.
        user: ids of the users, None where no column is one.
        action: ids of the logged actions, None where they are not needed or not there.
        logger: ids of the policies that logged the rows, None without such a column.
        key: ids by which rows of a second file are found.
        policies: (n,) probability of the logged action by policy, from the file's own columns.
        others: (n,) further columns of numbers, by name.
        context: by column, (n,) numbers or ids.
        row_numbers: (n,) rows in the file, from 1 below the header.
        lines: what was taken and what was left out, for a person.
        counts: rows, organic_rows, duplicates, dropped_duplicates, dropped_missing, kept.
    """

    source: str
    columns: Columns
    reward: Floats
    propensity: Floats | None
    user: Ids | None
    action: Ids | None
    logger: Ids | None
    key: Ids | None
    policies: dict[str, Floats]
    others: dict[str, Floats]
    context: dict[str, Floats | Ids]
    row_numbers: NDArray[np.int64]
    lines: list[str]
    counts: dict[str, int]

    def __len__(self) -> int:
        return len(self.reward)


def read_bandit_file(
    path: str | os.PathLike[str],
    policies: Sequence[str] = (),
    *,
    reading: Reading | None = None,
    needs: Sequence[str] = (),
    others: Sequence[str] = (),
) -> BanditFile:
    """Read a bandit log of one's own.

    Args:
        path: as :meth:`recsim_mnar.tables.table_file.TableFile.open`.
        policies: columns of policies' probabilities of the logged action.
        reading: what the user says of the file.
        needs: roles that must be there beside the reward: "propensity", "action", "user".
        others: further columns of numbers.

    Raises:
        UserError: no such file or column, several that could be meant; or one line with every fault of the values.
    """
    reading = reading or Reading()
    file = TableFile.open(path, "a log")
    source = str(path)
    for name in (*policies, *others):
        if name not in file.names:
            raise UserError(f"{source} has no column {name!r}; {nearest(name, file.names)}")
    columns = _columns(file, source, policies, reading, needs)
    own = [columns[role] for role in ("reward", "propensity") if role in columns]
    numbers = dict.fromkeys([*own, *(name for name in policies if name not in own)])
    kinds = dict.fromkeys((*numbers, *others), "number")
    for role in ("user", "action", "logger"):
        if role in columns:
            kinds.setdefault(columns[role], "id")
    for name in (*reading.context, *([reading.key] if reading.key else [])):
        kinds.setdefault(name, "id")
    if "time" in columns:
        kinds.setdefault(columns["time"], "time")
    if "event" in columns:
        kinds.setdefault(columns["event"], "id")
    rows = file.read(kinds)
    counts = {"rows": len(rows)}
    lines = _introduction(file, source, rows, columns, reading)
    if "event" in columns:
        rows = _recommendations(rows, columns["event"], counts, lines)
    rows = _without_copies(rows, kinds, columns, reading, counts, lines)
    return _checked(rows, columns, (policies, others), reading, needs, counts, lines)


def _columns(file: TableFile, source: str, policies: Sequence[str], reading: Reading, needs: Sequence[str]) -> Columns:
    """Which column is what; what is needed and missing, or unclear, is an error."""
    for name in reading.context:
        if name not in file.names:
            raise UserError(f"{source} has no column {name!r}; {nearest(name, file.names)} (--context-columns)")
    if reading.key is not None and reading.key not in file.names:
        raise UserError(f"{source} has no column {reading.key!r}; {nearest(reading.key, file.names)} (--on)")
    optional = [role for role in ("propensity", "user", "action", "logger", "time", "event") if role not in needs]
    taken = [name for name in (*policies, *reading.context) if name not in ("propensity", reading.today)]
    columns = find_columns(
        source, file.names, named=reading.columns, needed=("reward", *needs), optional=optional, leave=taken
    )
    almost = [] if "propensity" in columns else similar_columns("propensity", file.names)
    if almost and "action" not in columns:  # without either there is no estimate
        raise UserError(
            f"{source}: no column is recognised as the propensity; did you mean {almost[0]!r}? name it with "
            "--propensity-column"
        )
    # Two candidates for what changes the answer are asked about, not passed over.
    for role in ("propensity", "user"):
        if role in columns.unclear:
            columns.refuse_unclear(source)
    return columns


def _introduction(file: TableFile, source: str, rows: Rows, columns: Columns, reading: Reading) -> list[str]:
    written = file.how_written()
    lines = [f"{source}: {len(rows):,} row{'s' * (len(rows) != 1)}" + (f" ({', '.join(written)})" if written else "")]
    lines.append(f"taken: {columns.line()}")
    lines += columns.lines()[1:]
    if reading.context:
        lines.append(f"context: {', '.join(reading.context)}")
    if "user" not in columns:
        perhaps = likely_users(
            file, [*columns.names.values(), *reading.context, *([reading.key] if reading.key else [])]
        )
        hint = f" (perhaps {' or '.join(perhaps)})" if perhaps else ""
        lines.append(
            "no user column is recognised, so rows are taken as independent; --user-column names the one whose rows "
            f"belong together{hint}"
        )
    return lines


def _recommendations(rows: Rows, name: str, counts: dict[str, int], lines: list[str]) -> Rows:
    """The rows that a column of events calls recommendations; all of them where it is about something else."""
    events = events_of(rows, name)
    if not events.shown.any():
        if name != "event" and not events.viewed.any():
            lines.append(f"column {name} holds {', '.join(events.words[:3])}: all rows count as recommendations")
            return rows
        raise UserError(f"{rows.source} holds no bandit rows: {events_held(rows.table.column(name))}")
    counts["organic_rows"] = int(events.viewed.sum())
    if events.viewed.any():
        lines.append(f"{int(events.viewed.sum()):,} rows are views ({name})")
    lines += events.line()
    return rows if events.shown.all() else rows.kept(events.shown)


def likely_users(file: TableFile, used: Sequence[str]) -> list[str]:
    """Columns that could be ids of users: many values, and not each its own, in the first rows."""
    found = []
    for name, values in file.head().items():
        if name in used or len(values) < 100 or not all(isinstance(value, (str, int)) for value in values):
            continue
        distinct = len(set(values))
        numbers = sum(bool(re.fullmatch(r"[-+]?[0-9]*[.,:/][-+0-9.,:/ eE]*", str(value))) for value in values)
        if 20 < distinct < len(values) and numbers < len(values) / 2:
            found.append(name)
    return found[:3]


def _without_copies(
    rows: Rows, kinds: Mapping[str, str], columns: Columns, reading: Reading, counts: dict[str, int], lines: list[str]
) -> Rows:
    """Rows that repeat others in every column that is read: counted, and left out where that is asked for."""
    told = ("time" in columns and "user" in columns) or reading.key is not None
    if not told and not reading.deduplicate:
        return rows  # without a time or a key equal rows are no sign of anything
    names = [name for name in kinds if name != columns.get("event")]
    again = rows.copies(names)
    number = int(again.sum())
    counts["duplicates"] = number
    if not number:
        return rows
    what = f"{number:,} rows repeat an earlier row in {', '.join(names)}"
    if not reading.deduplicate:
        lines.append(f"{what}: kept; --deduplicate leaves them out")
        return rows
    counts["dropped_duplicates"] = number
    lines.append(f"{what}: left out")
    return rows.kept(~again)


def _checked(
    rows: Rows, columns: Columns, wanted: tuple[Sequence[str], Sequence[str]], reading: Reading, needs: Sequence[str],
    counts: dict[str, int], lines: list[str],
) -> BanditFile:  # fmt: skip
    """The values, every fault of them named at once, rows with missing values left out where that is asked for."""
    reward = rows.numbers(columns["reward"])
    propensity = None
    if "propensity" in columns:
        propensity = rows.numbers(columns["propensity"])
        bad = ~((propensity > 0.0) & (propensity <= 1.0)) & ~np.isnan(propensity)
        rows.note(
            "outside", columns["propensity"], bad, "is outside (0, 1]", values=propensity, advice=_why(propensity)
        )
    values = {}
    policies, others = wanted
    for name in policies:
        if "propensity" in columns and name == columns["propensity"] and propensity is not None:
            values[name] = propensity
            continue
        values[name] = rows.numbers(name)
        bad = ~((values[name] >= 0.0) & (values[name] <= HIGHEST)) & ~np.isnan(values[name])
        rows.note("outside", name, bad, "is outside [0, 1]", values=values[name], advice=_why(values[name]))
    further = {name: rows.numbers(name) for name in others}
    if reading.times and "time" in columns:
        further[columns["time"]] = rows.times(columns["time"])
    ids = {role: rows.ids(columns[role]) for role in ("user", "logger") if role in columns}
    if "action" in columns:
        shown = rows.ids(columns["action"]) if "action" in needs else ids_or_none(rows, columns["action"])
        ids |= {} if shown is None else {"action": shown}
    if reading.key is not None:
        ids["key"] = rows.ids(reading.key)
    missing = rows.faults.missing
    if reading.drop_missing:
        _say_dropped(rows, counts, lines)
    again = counts.get("duplicates", 0) - counts.get("dropped_duplicates", 0)
    besides = f"; besides, {again:,} rows repeat an earlier row (--deduplicate)" if again else ""
    rows.faults.refuse("--drop-missing leaves out the rows that miss a value" + besides)
    context = {name: context_column(rows, name) for name in reading.context}
    numbers = rows.row_numbers(np.arange(len(rows)))
    kept = BanditFile(
        rows.source, columns, reward, propensity, ids.get("user"), ids.get("action"), ids.get("logger"),
        ids.get("key"), values, further, context, numbers, lines, counts,
    )  # fmt: skip
    if missing is not None:
        kept = kept_rows(kept, ~missing)
    counts["kept"] = len(kept)
    if len(kept) == 0:
        raise UserError(f"{rows.source}: no row is left")
    return kept


def _say_dropped(rows: Rows, counts: dict[str, int], lines: list[str]) -> None:
    away = rows.faults.forgive([MISSING])
    if rows.faults.missing is None:
        return
    number = int(rows.faults.missing.sum())
    counts["dropped_missing"] = number
    each = ", ".join(f"{fault.column} {fault.count:,}" for fault in away)
    lines.append(f"{number:,} rows miss a value and are left out ({each})")


def kept_rows(log: BanditFile, keep: NDArray[np.bool_]) -> BanditFile:
    """The rows of a log that are marked, (n,)."""

    def part(values: Any) -> Any:
        if values is None:
            return None
        return Ids(values.codes[keep], values.ids) if isinstance(values, Ids) else values[keep]

    return BanditFile(
        log.source, log.columns, part(log.reward), part(log.propensity), part(log.user), part(log.action),
        part(log.logger), part(log.key), {name: part(values) for name, values in log.policies.items()},
        {name: part(values) for name, values in log.others.items()},
        {name: part(values) for name, values in log.context.items()}, part(log.row_numbers), log.lines, log.counts,
    )  # fmt: skip


def ids_or_none(rows: Rows, name: str) -> Ids | None:
    """A column of ids that nobody needs: None where it has faults."""
    before, missing = len(rows.faults.found), rows.faults.missing
    ids = rows.ids(name)
    faults = len(rows.faults.found) > before
    del rows.faults.found[before:]
    rows.faults.missing = missing
    return None if faults else ids


def context_column(rows: Rows, name: str) -> Floats | Ids:
    """A column of context: numbers (NaN where missing) where all of it is, else ids; nothing in it is a fault."""
    before = len(rows.faults.found)
    ids = rows.ids(name)
    del rows.faults.found[before:]
    if ids.ids.dtype.kind in "iuf":
        return np.append(ids.ids.astype(np.float64), np.nan)[ids.codes]
    import pyarrow as pa

    from recsim_mnar.tables.rows import text_numbers

    numbers, _, bad = text_numbers(pa.array(ids.ids.astype(str)), rows.decimal)
    return ids if bad.any() or ids.number == 0 else np.append(numbers, np.nan)[ids.codes]


def _why(values: Floats) -> str:
    """What may be wrong with probabilities outside [0, 1]."""
    known = values[~np.isnan(values)]
    if known.size and known.max() <= 100.0 and np.median(known) > 1.0:
        return "these look like percent: divide them by 100"
    return "give the probability of the logged action"
