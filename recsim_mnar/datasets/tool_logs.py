"""Logs of the tools that companies have, recognised by their fields and read as one decision per row."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.datasets.assignments import read_assignments, tool_of
from recsim_mnar.datasets.dsjson import is_dsjson, read_dsjson
from recsim_mnar.datasets.logged_shares import Damage, LoggedShares
from recsim_mnar.errors import UserError
from recsim_mnar.log.table import metadata_of
from recsim_mnar.tables.files import write_table
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import plain_name

_OPEN_BANDIT = {"itemid", "position", "click", "propensityscore"}
_MOST_ARMS = 12


@dataclass(frozen=True)
class ToolLog:
    """A log of a tool as a table of decisions.

    Attributes:
        file: the table, with columns action, reward, propensity, user and time as far as there are, and ``policies``.
        policies: columns of policies that can be asked about without more: every variation alone, all alike.
        context: columns within which propensities are to be estimated, where the log has none.
        lines: what was taken, for a person.
        damages: what the log proves wrong of itself.
    """

    file: TableFile
    policies: tuple[str, ...]
    context: tuple[str, ...]
    lines: list[str]
    damages: list[Damage]

    @property
    def has_propensities(self) -> bool:
        """Whether the log says with which probability each action was drawn."""
        return not self.context


@contextlib.contextmanager
def opened(
    path: Path,
    *,
    columns: Mapping[str, str | None] | None = None,
    fields: Sequence[str] = (),
    targets: Collection[str] = (),
    metrics: Path | None = None,
) -> Iterator[ToolLog | None]:
    """The log of a tool, as a table in a temporary file; None where the file is none of these, or is read as it is.

    Args:
        path: DSJSON, a table of assignments, or the Open Bandit Dataset's.
        columns: by role, as the person says.
        fields: further columns; in DSJSON fields of the shared context.
        targets: columns asked about: a table that has one of them is read as it is.
        metrics: see :func:`recsim_mnar.datasets.assignments.read_assignments`.

    Raises:
        UserError: the tool's format is broken.
    """
    columns = columns or {}
    read = _read(path, columns, fields, targets, metrics)
    if read is None:
        yield None
        return
    table, shares, lines, damages = read
    policies = _policies(table, shares)
    made: dict[str, Any] = {"kind": "a tool's log", "policy": "logged"}
    damages = damages or ([] if shares is None else shares.damages())
    least = None if shares is None or not shares.n or damages else shares.least()
    if least is not None:
        made["propensity_min"] = least
    with tempfile.TemporaryDirectory(prefix="recsim-mnar-") as folder:
        target = Path(folder) / f"{path.name.split('.')[0]}.parquet"
        write_table(_arrow(table).replace_schema_metadata(metadata_of(made)), target)
        context = (
            tuple(name for name in ("version", "leaf", "day") if name in table) if "propensity" not in table else ()
        )
        yield ToolLog(replace(TableFile.open(target), path=path), policies, context, lines, damages)


def _read(
    path: Path,
    columns: Mapping[str, str | None],
    fields: Sequence[str],
    targets: Collection[str],
    metrics: Path | None,
) -> tuple[dict[str, Any], LoggedShares | None, list[str], list[Damage]] | None:
    if is_dsjson(path):
        _refuse_metrics(path, metrics)
        wanted = [*fields, *(name for name in columns.values() if name)]
        return read_dsjson(path, list(dict.fromkeys(wanted)))
    if path.is_dir() or any(columns.get(role) for role in ("propensity", "action")):
        return None
    file = TableFile.open(path)
    if set(targets) & set(file.names):
        return None
    tool = tool_of(file.names)
    if tool is not None:
        return read_assignments(file, tool, columns, metrics)
    if not {plain_name(name) for name in file.names} >= _OPEN_BANDIT:
        return None
    _refuse_metrics(path, metrics)
    return _open_bandit(file)


def _refuse_metrics(path: Path, metrics: Path | None) -> None:
    if metrics is not None:
        raise UserError(f"--metrics: {path} has its rewards already. Leave --metrics out")


def _open_bandit(file: TableFile) -> tuple[dict[str, Any], None, list[str], list[Damage]]:
    """The Open Bandit Dataset: one row per position of a page."""
    names = {plain_name(name): name for name in file.names}
    kinds = {"timestamp": "time", "itemid": "id", "position": "id", "click": "number", "propensityscore": "number"}
    rows = file.read({names[name]: kind for name, kind in kinds.items() if name in names})
    item = rows.ids(names["itemid"])
    position = rows.ids(names["position"])
    table: dict[str, Any] = {
        "action": item.ids.astype(str)[item.codes],
        "position": position.ids.astype(str)[position.codes],
        "reward": rows.numbers(names["click"]),
        "propensity": rows.numbers(names["propensityscore"]),
        "uniform": np.full(len(rows), 1.0 / item.number),
    }
    if "timestamp" in names:
        table["time"] = rows.times(names["timestamp"])
    rows.faults.refuse("correct these rows, or leave them out of the file")
    lines = [f"{file.path}: Open Bandit Dataset, {len(rows):,} rows; uniform shows each of {item.number} items alike"]
    return table, None, lines, []


def _policies(table: dict[str, Any], shares: LoggedShares | None) -> tuple[str, ...]:
    """Add columns of policies that need no other file; their names."""
    found: list[str] = [name for name in ("first_action", "uniform") if name in table]
    if found:
        return tuple(found)
    action = np.asarray(table["action"]).astype(str)
    arms = list(shares.names) if shares is not None and len(shares.names) else sorted(set(action))
    if len(arms) <= _MOST_ARMS:
        for arm in sorted(set(action)):
            name = f"always_{arm}"
            table[name] = (action == arm).astype(float)
            found.append(name)
    table["uniform"] = np.full(len(action), 1.0 / len(arms))
    return (*found, "uniform")


def _arrow(table: dict[str, Any]) -> Any:
    """A pyarrow table; values of several kinds in one column become text."""
    import pyarrow as pa

    arrays = {}
    for name, values in table.items():
        try:
            arrays[name] = pa.array(values, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            arrays[name] = pa.array([None if value is None else str(value) for value in values])
    return pa.table(arrays)
