"""A file of one's own as a Log: views and recommendations in their order, or the ratings a world is fitted to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.datasets.interactions import events_in_words, read_interactions
from recsim_mnar.datasets.rating_studies import load_coat, read_ratings
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.rankings import LOGGED
from recsim_mnar.log import schema
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.log.rows import steps_within, user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.own_log.bandit_file import Reading, but_for_slates
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.slate_estimates import SlateLog, read_slates
from recsim_mnar.own_log.slate_file import OF, find_slates
from recsim_mnar.runs.files import path_of
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import NAMED, RECOGNISED, Columns, find_columns
from recsim_mnar.tables.rows import Events, Rows, others_in_words
from recsim_mnar.tables.values import MISSING, Ids, in_rows
from recsim_mnar.worlds.registry import entry_of

_NEVER = -1
_Coded = tuple[NDArray[Any], NDArray[np.int64]]


@dataclass(frozen=True)
class _Events:
    """Rows of a file before users and items are numbered: n rows."""

    source: str
    user: Ids
    item: Ids
    bandit: NDArray[np.bool_]
    time: NDArray[np.float64] | None
    propensity: NDArray[np.float64]
    reward: NDArray[np.float64]
    columns: Columns
    lines: list[str]
    of_slates: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class OwnLogs:
    """Files of one's own as logs that number users and items alike.

    Attributes:
        logs: in the order asked for; ``user_id`` and ``item_id`` hold the files' own ids.
        n_items: items of all of them.
        lines: what was taken, for a person.
    """

    logs: list[Log]
    n_items: int
    lines: list[str]


def needs_numbering(path: str | os.PathLike[str]) -> bool:
    """True if a file is a table of the user's own, without this package's columns.

    Raises:
        UserError: there is no such file, or one that cannot be read.
    """
    required = {column.name for column in schema.COLUMNS if column.null is None}
    return not required <= set(TableFile.open(path).names)


def read_as_logs(paths: Sequence[str | os.PathLike[str]], reading: Reading | None = None) -> OwnLogs:
    """Read files of one's own as logs.

    Rows are views (of the column of items) or recommendations (of the column of actions). Where a column says which
    (``event``), its words do; otherwise a row with an action is a recommendation, and in a file without propensities
    and rewards every row is a view.

    Args:
        paths: the files; they share the ids of users and items.
        reading: what the user says of the columns; columns that a file does not have are looked for in the others.

    Raises:
        UserError: files, columns and values that are no data, in one line.
    """
    reading = reading or Reading()
    every = [_events(TableFile.open(path, reading.decimal), reading, first=i == 0) for i, path in enumerate(paths)]
    users, user_codes = _together([rows.user for rows in every])
    items, item_codes = _together([rows.item for rows in every])
    coded = zip(every, user_codes, item_codes, strict=True)
    logs = [_as_log(rows, (users, user), (items, item)) for rows, user, item in coded]
    return OwnLogs(logs, len(items), [line for rows in every for line in rows.lines])


def _as_log(rows: _Events, users: _Coded, items: _Coded) -> Log:
    """The rows user by user in their order; ids of users and items, with the number (n,) of each row's."""
    (user_ids, user), (item_ids, item) = users, items
    if rows.time is None:
        order = np.argsort(user, kind="stable")
    else:
        order = np.lexsort((rows.time, user))
    if rows.of_slates:
        order = _slate_by_slate(user, rows)
    user = user[order]
    item = item[order]
    bandit = rows.bandit[order]
    step = steps_within(user)
    of_slates = {name: values[order] for name, values in rows.of_slates.items()}
    began = step - np.maximum(of_slates.get("position", 0), 0)  # a slate's rows have one time
    columns: dict[str, NDArray[Any]] = {
        "user": user,
        "step": step,
        "time": began.astype(np.float64) if rows.time is None else rows.time[order],
        "event": np.where(bandit, schema.BANDIT, schema.ORGANIC).astype(np.int8),
        "item": np.where(bandit, _NEVER, item),
        "action": np.where(bandit, item, _NEVER),
        "propensity": np.where(bandit, rows.propensity[order], np.nan),
        "reward": np.where(bandit, rows.reward[order], np.nan),
        "user_id": user_ids[user].astype(str).astype(object),
        "item_id": item_ids[item].astype(str).astype(object),
        **_numbered(user, of_slates),
    }
    return Log(columns, {"kind": "own log", "file": Path(rows.source).name, "columns": dict(rows.columns.names)})


def _slate_by_slate(user: NDArray[np.int64], rows: _Events) -> NDArray[np.int64]:
    """(n,) rows by user and time, those of a slate together from the top."""
    slate = rows.of_slates["slate"]
    place = rows.of_slates["position"]
    key = np.where(slate >= 0, slate, slate.max() + 1 + np.arange(user.size))
    _, at, number = np.unique(key, return_index=True, return_inverse=True)
    first = at[number.reshape(-1)]
    return np.lexsort((place, first, np.zeros(user.size) if rows.time is None else rows.time[first], user))


def _numbered(user: NDArray[np.int64], columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The columns of slates, which are numbered from 0 for each user; rows stand in order."""
    if not columns:
        return {}
    top = columns["position"] == 0
    begins = user_starts(user)
    before = np.repeat((np.cumsum(top) - top)[begins], np.diff(np.append(begins, user.size)))
    return {**columns, "slate": np.where(columns["position"] >= 0, np.cumsum(top) - 1 - before, _NEVER)}


def _of_slates(file: TableFile, reading: Reading) -> tuple[SlateLog | None, dict[str, str | None]]:
    """A file's slates, None where it has none, and its columns by role.

    Raises:
        UserError: slates that are none, or whose items' propensities at their positions are not known.
    """
    slate_file = find_slates(file, reading.columns)
    named = but_for_slates(reading.columns)
    if slate_file is None:
        return None, named
    if slate_file.per_slate:
        raise UserError(f"{file.path} has one row per slate: to replay agents give one row per position, and the views")
    read = read_slates(slate_file, reading)
    read.refuse()
    if "marginal" not in read.known:
        why = f"{read.kinds[read.main]!r} is of {OF[read.main]}"
        raise UserError(f"{file.path}: a replay of slates needs the propensity of the item at its position, and {why}")
    own_names = read.log.columns.names
    return read, named | {role: own_names[role] for role in ("user", "propensity") if role in own_names}


def _by_row(read: SlateLog | None, n: int) -> dict[str, NDArray[Any]]:
    """Columns (n,) of slates, as in our logs, by the rows of their file; empty where there are none."""
    if read is None:
        return {}
    order = read.slates.order
    k = read.slates.size
    rows = read.log.row_numbers[order] - 1
    number = np.arange(order.size)
    columns: dict[str, NDArray[Any]] = {"slate": np.full(n, _NEVER), "position": np.full(n, _NEVER)}
    columns["slate"][rows], columns["position"][rows] = number // k, number % k
    for kind, values in read.known.items():
        columns[LOGGED[kind]] = np.full(n, np.nan)
        columns[LOGGED[kind]][rows] = values[order]
    return columns


def _events(file: TableFile, reading: Reading, *, first: bool) -> _Events:
    """The rows of a file: its log's (``first``), or of one to train on, in which named columns may be missing."""
    source, named_columns, (read, own_names) = str(file.path), reading.columns, _of_slates(file, reading)
    reading = replace(reading, columns=own_names)
    named = {role: name for role, name in reading.columns.items() if name is not None and (first or name in file.names)}
    # Items first: where one column holds what was viewed and what was shown, it is that of the items.
    optional = ("event", "item", "action", "propensity", "reward", "time")
    columns = find_columns(source, file.names, named=named, needed=("user",), optional=optional)
    columns.refuse_unclear(source, "propensity", "reward", "item", "action", "event")
    how = {
        role: RECOGNISED if way == NAMED and not named_columns.get(role) else way for role, way in columns.how.items()
    }
    columns = replace(columns, how=how)
    kinds = {"user": "id", "item": "id", "action": "id", "event": "id", "time": "time"}
    rows = file.read({name: kinds.get(role, "number") for role, name in columns.names.items()})
    lines = [f"{source}: {in_rows(len(rows))}", f"taken: {columns.line()}"]
    bandit, kind_of_event = _kinds(rows, columns, lines)
    slates = _by_row(read, len(rows))
    if not kind_of_event.all():
        rows = rows.kept(kind_of_event)
        bandit = bandit[kind_of_event]
    if slates:
        kept_rows = ~bandit | (slates["slate"][rows.row_numbers - 1] >= 0)
        rows = rows.kept(kept_rows)
        bandit = bandit[kept_rows]
        lines.append(f"one row per position: {int(slates['slate'].max()) + 1:,} slates")
    return _values(rows, columns, bandit, reading, lines, slates)


def _kinds(rows: Rows, columns: Columns, lines: list[str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(n,) which rows are recommendations, and which are either that or views."""
    n = len(rows)
    if "event" in columns:
        events = Events.of(rows.column(columns["event"]))
        if events.others == n:
            raise UserError(
                f"{rows.source}: column {columns['event']!r} holds {', '.join(events.words[:5])}: write view where an "
                "item was viewed and recommendation where one was shown"
            )
        lines += others_in_words(events.others, events.words)
        return events.shown, events.shown | events.viewed
    if "action" in columns and "item" in columns:
        acted = rows.column(columns["action"]).is_valid().to_numpy().astype(np.bool_)
        return acted, np.ones(n, np.bool_)
    every = "action" in columns or "propensity" in columns or "reward" in columns
    return np.full(n, every), np.ones(n, np.bool_)


def _values(
    rows: Rows,
    columns: Columns,
    bandit: NDArray[np.bool_],
    reading: Reading,
    lines: list[str],
    slates: dict[str, NDArray[Any]],
) -> _Events:
    """Users, items, times, propensities and rewards, every fault named at once."""
    user = rows.ids(columns["user"])
    time = rows.times(columns["time"]) if "time" in columns else None
    item = _shown_or_viewed(rows, columns, bandit)
    values = {}
    part = rows.kept(bandit)
    for role in ("propensity", "reward"):
        if role == "propensity" and slates:
            values[role] = slates[role][rows.row_numbers - 1]
            continue
        values[role] = np.full(len(rows), np.nan)
        if role in columns:
            name = columns[role]
            if role == "reward":
                result = part.numbers(name)
            else:
                result = part.probabilities(name, zero=False, advice="")
            values[role][bandit] = result
    _lacking(rows, part, bandit)
    if bandit.any() and not {"propensity", "reward"} <= set(columns.names):
        absent_role = "propensity" if "propensity" not in columns else "reward"
        raise UserError(
            f"{rows.source}: no column is recognised as the {absent_role} of what was recommended; name it with "
            f"--{absent_role}-column"
        )
    missing = rows.missing
    if reading.drop_missing and missing is not None:
        rows.faults.forgive([MISSING])
        lines.append(f"{in_rows(int(missing.sum()))} left out: values are missing")
    rows.faults.refuse("--drop-missing leaves out the rows with missing values")
    keep = np.ones(len(rows), np.bool_) if missing is None else ~missing
    lines.append(f"{int((~bandit & keep).sum()):,} views and {int((bandit & keep).sum()):,} recommendations")
    return _Events(
        rows.source,
        Ids(user.codes[keep], user.ids),
        Ids(item.codes[keep], item.ids),
        bandit[keep],
        None if time is None else time[keep],
        values["propensity"][keep],
        values["reward"][keep],
        columns,
        lines,
        {name: of_it[rows.row_numbers[keep] - 1] for name, of_it in slates.items() if name != "propensity"},
    )


def _shown_or_viewed(rows: Rows, columns: Columns, bandit: NDArray[np.bool_]) -> Ids:
    """Ids (n,) of what was viewed or shown in each row."""
    item = columns.get("item")
    action = columns.get("action")
    ids = []
    codes = []
    for of_shown in (False, True):
        of = bandit == of_shown
        if of_shown:
            name = action or item
        else:
            name = item or action
        if not of.any():
            continue
        if name is None:
            raise UserError(
                f"{rows.source}: no column of items or actions is recognised; replay needs what users viewed and what "
                "they were shown: name them with --item-column and --action-column"
            )
        part = rows.kept(of)
        ids_found = part.ids(name)
        _lacking(rows, part, of)
        ids.append((of, ids_found))
        codes.append(ids_found)
    every, numbered = _together(codes)
    out = np.full(len(rows), -1, np.int64)
    for (of, _), own_part in zip(ids, numbered, strict=True):
        out[of] = own_part
    return Ids(out, every)


def _lacking(rows: Rows, part: Rows, of: NDArray[np.bool_]) -> None:
    """Mark the rows that miss a value in a part of them."""
    if part.missing is not None:
        absent = np.zeros(len(rows), np.bool_)
        absent[of] = part.missing
        rows.lack(absent)


def _together(some: Sequence[Ids]) -> tuple[NDArray[Any], list[NDArray[np.int64]]]:
    """Ids of several columns, ascending, and each column's codes among them."""
    kinds = {texts_of_part.ids.dtype.kind for texts_of_part in some if texts_of_part.number}
    texts = [texts_of_part.ids if kinds <= {"i", "u"} else texts_of_part.ids.astype(str) for texts_of_part in some]
    if texts:
        every = np.unique(np.concatenate(texts))
    else:
        every = np.zeros(0, np.int64)
    codes = []
    for texts_of_part, ids in zip(some, texts, strict=True):
        place = np.append(np.searchsorted(every, ids), -1)
        codes.append(place[texts_of_part.codes].astype(np.int64))
    return every, codes


class ReadLog(NamedTuple):
    """Events or ratings, how many items there are where the source says, and lines on what was taken."""

    log: Log | Ratings
    n_items: int | None
    lines: list[str]


def read_to_fit(path: str | Path, world: str = "sessions", columns: dict[str, str | None] | None = None) -> ReadLog:
    """Read what a world is to be fitted to; UserError where there is no such file.

    Args:
        path: a log folder or file of this package (``OUT`` or ``OUT/log`` of ``simulate``); a table with users and
            items (CSV, TSV, RecBole's ``.inter``, Parquet) as ``compare --interactions`` takes; a bandit log with
            actions and rewards, with or without users; for the ratings world user, item and rating, or Coat's folder.
        world: that is fitted.
        columns: names of columns by role (user, item, action, reward, propensity, time); others are recognised.
    """
    path = path_of(path)
    named = {role: name for role, name in (columns or {}).items() if name is not None}
    if not path.exists():
        raise UserError(f"{path} does not exist: name a log's folder or a file of events")
    source = path
    if (path / "log").is_dir():
        source = path / "log"
    if getattr(entry_of(world).world_class(), "rates", False):
        return _ratings(source)
    if not named and not needs_numbering(source):
        return _own(source)
    optional = ("user", "event", "item", "action", "propensity", "reward")
    file = TableFile.open(source)
    names = file.names
    slates = find_slates(file, named)
    if slates is not None and slates.per_slate:
        raise UserError(f"{source} has one row per slate: give one row per position, with slate and position columns")
    if slates is not None:
        own_logs = read_as_logs([source], Reading(dict(named)))
        return ReadLog(own_logs.logs[0], own_logs.n_items, own_logs.lines)
    columns_found = find_columns(str(source), names, named=named, needed=(), optional=optional)
    if "propensity" not in columns_found and "event" not in columns_found and not {"action", "reward"} <= set(named):
        return _interactions(source, named)
    if "user" in columns_found:
        own_logs = read_as_logs([source], Reading(dict(named)))
        return ReadLog(own_logs.logs[0], own_logs.n_items, own_logs.lines)
    return _without_users(source, named)


def _own(source: Path) -> ReadLog:
    log = Log.read(source)
    return ReadLog(log, None, [f"{source}: {len(log):,} rows of a log of this package's"])


def _interactions(source: Path, columns: dict[str, str]) -> ReadLog:
    named: dict[str, Any] = {f"{role}_column": columns.get(role) for role in ("user", "item", "time")}
    data = read_interactions(source, **named)
    columns_taken = "; ".join(f"{role}: {name}" for role, name in data.log.provenance["columns"].items() if name)
    line = f"{source}: {len(data.log):,} interactions of {data.n_users:,} users and {data.n_items:,} items"
    pooled = []
    if data.events:
        pooled = [f"events: {events_in_words(data.events)}"]
    return ReadLog(data.log, data.n_items, [line, f"taken: {columns_taken}", *pooled])


def _without_users(source: Path, columns: dict[str, str]) -> ReadLog:
    """A bandit log without users: each row is taken as another user's."""
    file = BanditLog.open(source, reading=Reading(dict(columns)), needs=("action",)).read()
    n = len(file)
    action = file.action
    if action is None:
        raise UserError(f"{source}: no column of actions is recognised. Name it with --action-column")
    codes = action.codes
    n_items = len(action.ids)
    ids = action.ids
    if ids.dtype.kind in "iu" and n_items and ids.min() >= 0 and ids.max() < 2 * n_items:
        codes = ids[codes].astype(np.int64)  # numbers from 0, most of them, stay
        n_items = int(ids.max()) + 1
    rows: dict[str, np.ndarray] = {
        "user": np.arange(n),
        "step": np.zeros(n, np.int32),
        "time": np.zeros(n),
        "event": np.full(n, schema.BANDIT, np.int8),
        "action": codes,
        "propensity": np.full(n, 1.0 / n_items) if file.propensity is None else file.propensity,
        "reward": file.reward,
    }
    remark = "no column of users: each row is taken as another user's"
    # Later readers of the log must know whether its propensities were in the file.
    names = file.columns.names.items()
    read = {role: name for role, name in names if role != "propensity" or file.propensity is not None}
    made = {"kind": "bandit log without users", "file": source.name, "columns": read}
    return ReadLog(Log(rows, made), n_items, [*file.lines, remark])


def _ratings(source: Path) -> ReadLog:
    coat = (source / "train.ascii").is_file()
    if source.is_dir() and not coat:
        return _own(source)
    if coat:
        ratings = load_coat(source, with_test=False).train
    else:
        ratings = read_ratings(source)
    return ReadLog(ratings, ratings.n_items, [f"{source}: {len(ratings):,} revealed ratings{' of Coat' * coat}"])
