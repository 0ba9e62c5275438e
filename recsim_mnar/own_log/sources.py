"""Convert a user's file to a Log: views and recommendations in order, or ratings."""

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
from recsim_mnar.log import schema
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.log.rows import steps_within
from recsim_mnar.log.table import Log
from recsim_mnar.own_log.bandit_file import Reading, but_for_slates
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.slate_file import find_slates
from recsim_mnar.runs.files import path_of
from recsim_mnar.tables.files import log_folder
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import NAMED, RECOGNISED, Columns, find_columns
from recsim_mnar.tables.rows import Events, Rows, others_in_words
from recsim_mnar.tables.values import MISSING, Ids, as_array, in_rows
from recsim_mnar.worlds.registry import entry_of

_NEVER = -1
"""Code in a column of a log for a value that its event does not have."""
_Coded = tuple[NDArray[Any], NDArray[np.int64]]
"""Ids (k,), and the code (n,) of each row's id among them."""


@dataclass(frozen=True)
class _Events:
    """Rows (n,) of a file before users and items are numbered over all files.

    Attributes:
        source: name of the file in messages.
        user: ids of the users.
        item: ids of what was viewed or shown.
        bandit: True for recommendations, False for views.
        time: seconds since 1970, or other numbers that grow with time; None without such a column.
        propensity: propensities; NaN for views.
        reward: rewards; NaN for views.
        columns: columns by role.
        lines: notes for a person.
    """

    source: str
    user: Ids
    item: Ids
    bandit: NDArray[np.bool_]
    time: NDArray[np.float64] | None
    propensity: NDArray[np.float64]
    reward: NDArray[np.float64]
    columns: Columns
    lines: list[str]


@dataclass(frozen=True)
class OwnLogs:
    """Logs with common numbers of users and items.

    Attributes:
        logs: logs in the order of the files; ``user_id`` and ``item_id`` hold the files' own ids.
        n_items: number of items of all logs.
        lines: notes on the columns used, for a person.
    """

    logs: list[Log]
    n_items: int
    lines: list[str]


def needs_numbering(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a user's own table, without this package's columns.

    Raises:
        UserError: no such file, or one that cannot be read.
    """
    required = {column.name for column in schema.COLUMNS if column.null is None}
    return not required <= set(TableFile.open(path).names)


def read_as_logs(paths: Sequence[str | os.PathLike[str]], reading: Reading | None = None) -> OwnLogs:
    """Read a user's files as logs.

    A column of events tells views, of the column of items, from recommendations, of the column of actions. Without it
    a row with an action is a recommendation, and in a file without propensities and rewards every row is a view.

    Args:
        paths: the files; they share the ids of users and items.
        reading: the user's statements about the columns; only the first file must have all of them.

    Raises:
        UserError: invalid files, columns and values, in one line.
    """
    reading = reading or Reading()
    files = [_events(TableFile.open(path, reading.decimal), reading, first=i == 0) for i, path in enumerate(paths)]
    users, user_codes = _merged([rows.user for rows in files])
    items, item_codes = _merged([rows.item for rows in files])
    logs = []
    for rows, user, item in zip(files, user_codes, item_codes, strict=True):
        logs.append(_as_log(rows, (users, user), (items, item)))
    return OwnLogs(logs, len(items), [line for rows in files for line in rows.lines])


def _as_log(rows: _Events, users: _Coded, items: _Coded) -> Log:
    """Convert rows to a log, sorted by user and time; rows without times keep their order.

    Args:
        rows: rows of a file.
        users: ids of the users of all files, and each row's number among them.
        items: ids of the items of all files, and each row's number among them.
    """
    user_ids, user = users
    item_ids, item = items
    if rows.time is not None:
        order = np.lexsort((rows.time, user))
    else:
        order = np.argsort(user, kind="stable")
    user = user[order]
    item = item[order]
    bandit = rows.bandit[order]
    step = steps_within(user)
    time = step.astype(np.float64) if rows.time is None else rows.time[order]
    columns: dict[str, NDArray[Any]] = {
        "user": user,
        "step": step,
        "time": time,
        "event": np.where(bandit, schema.BANDIT, schema.ORGANIC).astype(np.int8),
        "item": np.where(bandit, _NEVER, item),
        "action": np.where(bandit, item, _NEVER),
        "propensity": np.where(bandit, rows.propensity[order], np.nan),
        "reward": np.where(bandit, rows.reward[order], np.nan),
        "user_id": user_ids[user].astype(str).astype(object),
        "item_id": item_ids[item].astype(str).astype(object),
    }
    return Log(columns, {"kind": "own log", "file": Path(rows.source).name, "columns": dict(rows.columns.names)})


def _events(file: TableFile, reading: Reading, *, first: bool) -> _Events:
    """Read the rows of a file; with ``first`` False, it may lack columns that the user names.

    Raises:
        UserError: the file holds slates, or invalid columns and values.
    """
    source = str(file.path)
    if find_slates(file, reading.columns) is not None:
        raise UserError(
            f"{source} holds slates, and only a log of simulate is read with its slates: keep one item of each, or "
            "state --slate-column none, if each row is a single item"
        )
    by_role = but_for_slates(reading.columns)
    named = {role: name for role, name in by_role.items() if name is not None and (first or name in file.names)}
    # Items first: a single column of what was viewed and what was shown is that of the items.
    optional = ("event", "item", "action", "propensity", "reward", "time")
    columns = find_columns(source, file.names, named=named, needed=("user",), optional=optional)
    columns.refuse_unclear(source, "propensity", "reward", "item", "action", "event")
    how = dict(columns.how)
    for role, way in how.items():
        if way == NAMED and not reading.columns.get(role):
            how[role] = RECOGNISED
    columns = replace(columns, how=how)
    kinds = {"user": "id", "item": "id", "action": "id", "event": "id", "time": "time"}
    rows = file.read({name: kinds.get(role, "number") for role, name in columns.names.items()})
    lines = [f"{source}: {in_rows(len(rows))}", f"taken: {columns.line()}"]
    bandit, keep = _kinds(rows, columns, lines)
    if not keep.all():
        rows = rows.kept(keep)
        bandit = bandit[keep]
    return _values(rows, columns, bandit, reading, lines)


def _kinds(rows: Rows, columns: Columns, lines: list[str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Tell recommendations from views and other events.

    Notes on other events are appended to ``lines``.

    Returns:
        bandit: (n,) which rows are recommendations.
        keep: (n,) which rows are recommendations or views.
    """
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
        bandit = as_array(rows.column(columns["action"]).is_valid()).astype(np.bool_)
    else:
        bandit = np.full(n, "action" in columns or "propensity" in columns or "reward" in columns)
    return bandit, np.ones(n, np.bool_)


def _values(
    rows: Rows,
    columns: Columns,
    bandit: NDArray[np.bool_],
    reading: Reading,
    lines: list[str],
) -> _Events:
    """Read users, items, times, propensities and rewards.

    Args:
        rows: the views and recommendations.
        columns: columns by role.
        bandit: (n,) which rows are recommendations.
        reading: the user's statements about the file.
        lines: notes for a person, which are extended.

    Raises:
        UserError: one line with every fault.
    """
    user = rows.ids(columns["user"])
    time = rows.times(columns["time"]) if "time" in columns else None
    item = _shown_or_viewed(rows, columns, bandit)
    values = {role: np.full(len(rows), np.nan) for role in ("propensity", "reward")}
    part = rows.kept(bandit)
    if "propensity" in columns:
        values["propensity"][bandit] = part.probabilities(columns["propensity"], zero=False, advice="")
    if "reward" in columns:
        values["reward"][bandit] = part.numbers(columns["reward"])
    _mark_missing(rows, part, bandit)
    for role in ("propensity", "reward"):
        if bandit.any() and role not in columns:
            raise UserError(
                f"{rows.source}: no column is recognised as the {role} of what was recommended; name it with "
                f"--{role}-column"
            )
    keep = np.ones(len(rows), np.bool_)
    if rows.missing is not None:
        keep = ~rows.missing
        if reading.drop_missing:
            rows.faults.forgive([MISSING])
            lines.append(f"{in_rows(int(rows.missing.sum()))} left out: values are missing")
    rows.faults.refuse("--drop-missing leaves out the rows with missing values")
    lines.append(f"{int((~bandit & keep).sum()):,} views and {int((bandit & keep).sum()):,} recommendations")
    return _Events(
        source=rows.source,
        user=Ids(user.codes[keep], user.ids),
        item=Ids(item.codes[keep], item.ids),
        bandit=bandit[keep],
        time=None if time is None else time[keep],
        propensity=values["propensity"][keep],
        reward=values["reward"][keep],
        columns=columns,
        lines=lines,
    )


def _shown_or_viewed(rows: Rows, columns: Columns, bandit: NDArray[np.bool_]) -> Ids:
    """Read the ids (n,) of what was viewed or shown in each row, from the column of items or of actions.

    A file may have one column for both.
    """
    item = columns.get("item") or columns.get("action")
    action = columns.get("action") or item
    masks = []
    ids = []
    for name, mask in ((item, ~bandit), (action, bandit)):
        if not mask.any():
            continue
        if name is None:
            raise UserError(
                f"{rows.source}: no column of items or actions is recognised; replay needs what users viewed and what "
                "they were shown: name them with --item-column and --action-column"
            )
        part = rows.kept(mask)
        ids.append(part.ids(name))
        masks.append(mask)
        _mark_missing(rows, part, mask)
    names, codes = _merged(ids)
    merged = np.full(len(rows), -1, np.int64)
    for mask, part_codes in zip(masks, codes, strict=True):
        merged[mask] = part_codes
    return Ids(merged, names)


def _mark_missing(rows: Rows, part: Rows, mask: NDArray[np.bool_]) -> None:
    """Mark the rows that lack a value in ``part``, those selected by ``mask`` (n,)."""
    if part.missing is not None:
        absent = np.zeros(len(rows), np.bool_)
        absent[mask] = part.missing
        rows.lack(absent)


def _merged(columns: Sequence[Ids]) -> tuple[NDArray[Any], list[NDArray[np.int64]]]:
    """Merge the ids of several columns.

    Returns:
        merged: (k,) different ids of all columns, ascending; integers if all are, otherwise text.
        codes: by column, the code (n,) of each row's id among ``merged``; -1 if it is missing.
    """
    integral = all(column.ids.dtype.kind in "iu" for column in columns if column.number)
    texts = [column.ids if integral else column.ids.astype(str) for column in columns]
    merged = np.zeros(0, np.int64)
    if texts:
        merged = np.unique(np.concatenate(texts))
    codes = []
    for column, ids in zip(columns, texts, strict=True):
        place = np.append(np.searchsorted(merged, ids), -1)
        codes.append(place[column.codes].astype(np.int64))
    return merged, codes


class ReadLog(NamedTuple):
    """Events or ratings, the number of items if the source states it, and notes on the columns used."""

    log: Log | Ratings
    n_items: int | None
    lines: list[str]


def read_to_fit(path: str | Path, world: str = "sessions", columns: dict[str, str | None] | None = None) -> ReadLog:
    """Read the events or ratings that a world is to be fitted to.

    Args:
        path: a log folder or file of this package (``OUT`` or ``OUT/log`` of ``simulate``); a table with users and
            items (CSV, TSV, RecBole's ``.inter``, Parquet) as ``compare --interactions`` takes; a bandit log with
            actions and rewards, with or without users; for the ratings world user, item and rating, or Coat's folder.
        world: name of the world.
        columns: names of columns by role (user, item, action, reward, propensity, time); others are recognised.

    Raises:
        UserError: no such file, or one that cannot be read so.
    """
    path = path_of(path)
    named = {role: name for role, name in (columns or {}).items() if name is not None}
    if not path.exists():
        raise UserError(f"{path} does not exist: name a log's folder or a file of events")
    source = log_folder(path)
    if getattr(entry_of(world).world_class(), "rates", False):
        return _ratings(source)
    if not named and not needs_numbering(source):
        return _own(source)
    file = TableFile.open(source)
    slates = find_slates(file, named)
    if slates is None:
        optional = ("user", "event", "item", "action", "propensity", "reward")
        roles = find_columns(str(source), file.names, named=named, optional=optional)
        if "propensity" not in roles and "event" not in roles and not {"action", "reward"} <= set(named):
            return _interactions(source, named)
        if "user" not in roles:
            return _without_users(source, named)
    own_logs = read_as_logs([source], Reading(dict(named)))
    return ReadLog(own_logs.logs[0], own_logs.n_items, own_logs.lines)


def _own(source: Path) -> ReadLog:
    """Read a log of this package's."""
    log = Log.read(source)
    return ReadLog(log, None, [f"{source}: {len(log):,} rows of a log of this package's"])


def _interactions(source: Path, columns: dict[str, str]) -> ReadLog:
    """Read a table of users and items."""
    named: dict[str, Any] = {f"{role}_column": columns.get(role) for role in ("user", "item", "time")}
    data = read_interactions(source, **named)
    used = "; ".join(f"{role}: {name}" for role, name in data.log.provenance["columns"].items() if name)
    lines = [
        f"{source}: {len(data.log):,} interactions of {data.n_users:,} users and {data.n_items:,} items",
        f"taken: {used}",
    ]
    if data.events:
        lines.append(f"events: {events_in_words(data.events)}")
    return ReadLog(data.log, data.n_items, lines)


def _without_users(source: Path, columns: dict[str, str]) -> ReadLog:
    """Read a bandit log without users: each row counts as another user's."""
    file = BanditLog.open(source, reading=Reading(dict(columns)), required_roles=("action",)).read()
    n = len(file)
    if file.action is None:
        raise UserError(f"{source}: no column of actions is recognised. Name it with --action-column")
    codes = file.action.codes
    ids = file.action.ids
    n_items = len(ids)
    if ids.dtype.kind in "iu" and n_items and ids.min() >= 0 and ids.max() < 2 * n_items:
        codes = ids[codes].astype(np.int64)  # numbers from 0, most of which occur, are kept
        n_items = int(ids.max()) + 1
    # Later readers of the log must know whether its propensities were in the file.
    names = dict(file.columns.names)
    propensity = file.propensity
    if propensity is None:
        names.pop("propensity", None)
        propensity = np.full(n, 1.0 / n_items)
    rows: dict[str, np.ndarray] = {
        "user": np.arange(n),
        "step": np.zeros(n, np.int32),
        "time": np.zeros(n),
        "event": np.full(n, schema.BANDIT, np.int8),
        "action": codes,
        "propensity": propensity,
        "reward": file.reward,
    }
    remark = "no column of users: each row is taken as another user's"
    made = {"kind": "bandit log without users", "file": source.name, "columns": names}
    return ReadLog(Log(rows, made), n_items, [*file.lines, remark])


def _ratings(source: Path) -> ReadLog:
    """Read ratings: a table, Coat's folder, or a log of this package's."""
    coat = (source / "train.ascii").is_file()
    if source.is_dir() and not coat:
        return _own(source)
    ratings = load_coat(source, with_test=False).train if coat else read_ratings(source)
    return ReadLog(ratings, ratings.n_items, [f"{source}: {len(ratings):,} revealed ratings{' of Coat' * coat}"])
