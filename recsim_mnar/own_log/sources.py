"""Sources of questions and fitted worlds: a log of events, or revealed ratings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recsim_mnar.datasets.interactions import events_in_words, read_interactions
from recsim_mnar.datasets.rating_studies import load_coat, read_ratings
from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.log.table import Log
from recsim_mnar.own_log.as_log import needs_numbering, read_as_logs
from recsim_mnar.own_log.bandit_file import Reading, read_bandit_file
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import find_columns
from recsim_mnar.worlds.registry import entry_of


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
    path = Path(path)
    named = {role: name for role, name in (columns or {}).items() if name is not None}
    if not path.exists():
        raise UserError(f"{path} does not exist: name a log's folder or a file of events")
    source = path / "log" if (path / "log").is_dir() else path
    if getattr(entry_of(world).world_class(), "rates", False):
        return _ratings(source)
    if not named and not needs_numbering(source):
        return _own(source)
    optional = ("user", "event", "item", "action", "propensity", "reward")
    found = find_columns(str(source), TableFile.open(source).names, named=named, needed=(), optional=optional)
    if "propensity" not in found and "event" not in found and not {"action", "reward"} <= set(named):
        return _interactions(source, named)
    if "user" in found:
        own = read_as_logs([source], Reading(dict(named)))
        return ReadLog(own.logs[0], own.n_items, own.lines)
    return _without_users(source, named)


def _own(source: Path) -> ReadLog:
    log = Log.read(source)
    return ReadLog(log, None, [f"{source}: {len(log):,} rows of a log of this package's"])


def _interactions(source: Path, columns: dict[str, str]) -> ReadLog:
    named: dict[str, Any] = {f"{role}_column": columns.get(role) for role in ("user", "item", "time")}
    data = read_interactions(source, **named)
    taken = "; ".join(f"{role}: {name}" for role, name in data.log.provenance["columns"].items() if name)
    line = f"{source}: {len(data.log):,} interactions of {data.n_users:,} users and {data.n_items:,} items"
    pooled = [f"events: {events_in_words(data.events)}"] if data.events else []
    return ReadLog(data.log, data.n_items, [line, f"taken: {taken}", *pooled])


def _without_users(source: Path, columns: dict[str, str]) -> ReadLog:
    """A bandit log without users: each row is taken as another user's."""
    file = read_bandit_file(source, reading=Reading(dict(columns)), needs=("action",))
    n, action = len(file), file.action
    if action is None:
        raise UserError(f"{source}: no column of actions is recognised. Name it with --action-column")
    codes, n_items, ids = action.codes, len(action.ids), action.ids
    if ids.dtype.kind in "iu" and n_items and ids.min() >= 0 and ids.max() < 2 * n_items:
        codes, n_items = ids[codes].astype(np.int64), int(ids.max()) + 1  # numbers from 0, most of them, stay
    rows: dict[str, np.ndarray] = {
        "user": np.arange(n),
        "step": np.zeros(n, np.int32),
        "time": np.zeros(n),
        "event": np.full(n, schema.BANDIT, np.int8),
        "action": codes,
        "propensity": np.full(n, 1.0 / n_items) if file.propensity is None else file.propensity,
        "reward": file.reward,
    }
    taken = "no column of users: each row is taken as another user's"
    # Later readers of the log must know whether its propensities were in the file.
    names = file.columns.names.items()
    read = {role: name for role, name in names if role != "propensity" or file.propensity is not None}
    made = {"kind": "bandit log without users", "file": source.name, "columns": read}
    return ReadLog(Log(rows, made), n_items, [*file.lines, taken])


def _ratings(source: Path) -> ReadLog:
    coat = (source / "train.ascii").is_file()
    if source.is_dir() and not coat:
        return _own(source)
    ratings = load_coat(source, with_test=False).train if coat else read_ratings(source)
    return ReadLog(ratings, ratings.n_items, [f"{source}: {len(ratings):,} revealed ratings{' of Coat' * coat}"])
