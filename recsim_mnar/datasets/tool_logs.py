"""Logs of the tools that companies have, recognised by their fields and read as one decision per row.

In tables of assignments a user keeps a variation: later exposures are no new decisions. Each decision has the
probability of the moment of the assignment, whatever the weights were at a later exposure.
"""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.datasets.dsjson import Damage, LoggedShares, ToolColumns, ToolRows, is_dsjson, read_dsjson
from recsim_mnar.errors import UserError
from recsim_mnar.log.table import metadata_of
from recsim_mnar.tables.files import write_table
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import find_columns, plain_name
from recsim_mnar.tables.rows import Rows

if TYPE_CHECKING:
    import pandas as pd

_OPEN_BANDIT = {"timestamp", "itemid", "position", "click", "propensityscore", "userfeature0"}
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
        """Return whether the log says with which probability each action was drawn."""
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
        metrics: see :func:`read_assignments`.

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
    made: dict[str, str | float] = {"kind": "a tool's log", "policy": "logged"}
    damages = damages or ([] if shares is None else shares.damages())
    if shares is None or not shares.n or damages:
        least = None
    else:
        least = shares.least()
    if least is not None:
        made["propensity_min"] = least
    with tempfile.TemporaryDirectory(prefix="recsim-mnar-") as folder:
        target = Path(folder) / f"{path.name.split('.')[0]}.parquet"
        write_table(_arrow(table).replace_schema_metadata(metadata_of(made)), target)
        if "propensity" not in table:
            context = tuple(name for name in ("version", "leaf", "day") if name in table)
        else:
            context = ()
        yield ToolLog(replace(TableFile.open(target), path=path), policies, context, lines, damages)


def _read(
    path: Path,
    columns: Mapping[str, str | None],
    fields: Sequence[str],
    targets: Collection[str],
    metrics: Path | None,
) -> ToolRows | None:
    if is_dsjson(path):
        _refuse_metrics(path, metrics)
        wanted_columns = [*fields, *(name for name in columns.values() if name)]
        return read_dsjson(path, list(dict.fromkeys(wanted_columns)))
    if path.is_dir() or any(columns.get(role) for role in ("propensity", "action")):
        return None
    file = TableFile.open(path)
    if set(targets) & set(file.names):
        return None
    tool = tool_of(file.names)
    if tool is not None:
        return read_assignments(file, tool, columns, metrics)
    if any(columns.values()) or not {plain_name(name) for name in file.names} >= _OPEN_BANDIT:
        return None
    _refuse_metrics(path, metrics)
    return _open_bandit(file)


def _refuse_metrics(path: Path, metrics: Path | None) -> None:
    if metrics is not None:
        raise UserError(f"--metrics: {path} has its rewards already. Leave --metrics out")


def _open_bandit(file: TableFile) -> ToolRows:
    """The Open Bandit Dataset: one row per position of a page."""
    names = {plain_name(name): name for name in file.names}
    kinds = {"timestamp": "time", "itemid": "id", "position": "id", "click": "number", "propensityscore": "number"}
    rows = file.read({names[name]: kind for name, kind in kinds.items() if name in names})
    item = rows.ids(names["itemid"])
    position = rows.ids(names["position"])
    table: ToolColumns = {
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
    return ToolRows(table, None, lines, [])


def _policies(table: ToolColumns, shares: LoggedShares | None) -> tuple[str, ...]:
    """Add columns of policies that need no other file; their names."""
    policies: list[str] = [name for name in ("first_action", "uniform") if name in table]
    if policies:
        return tuple(policies)
    action = np.asarray(table["action"]).astype(str)
    if shares is not None and len(shares.names):
        arms = list(shares.names)
    else:
        arms = sorted(set(action))
    if len(arms) <= _MOST_ARMS:
        for arm in sorted(set(action)):
            name = f"always_{arm}"
            table[name] = (action == arm).astype(float)
            policies.append(name)
    table["uniform"] = np.full(len(action), 1.0 / len(arms))
    return (*policies, "uniform")


def _arrow(table: ToolColumns) -> Any:
    """A pyarrow table; values of several kinds in one column become text."""
    import pyarrow as pa

    arrays = {}
    for name, values in table.items():
        try:
            arrays[name] = pa.array(values, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            arrays[name] = pa.array([None if value is None else str(value) for value in values])
    return pa.table(arrays)


_MOST_SWITCHED = 0.01


@dataclass(frozen=True)
class Tool:
    """Format of a tool's assignments; names of columns in lower case, letters and digits only.

    Attributes:
        name: of the table.
        marks: columns by which it is known, all of them.
        arm: columns of the variation, the first that there is; likewise all below.
        experiment: of the experiment.
        user: of the unit that is randomised; none: by a usual name.
        time: of the exposure.
        weights: of the probabilities of all variations, a list in the order of the variations.
        share: of the probability of the row's own variation.
        unit: what ``share`` sums to over variations.
        version: of the weights' version.
        leaf: of the context within which weights are one.
        by_version: whether a user is assigned anew under each version; else once.
    """

    name: str
    marks: tuple[str, ...]
    arm: tuple[str, ...]
    experiment: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    time: tuple[str, ...] = ("timestamp",)
    weights: tuple[str, ...] = ()
    share: tuple[str, ...] = ()
    unit: float = 1.0
    version: tuple[str, ...] = ()
    leaf: tuple[str, ...] = ()
    by_version: bool = False


TOOLS = (
    Tool(
        "GrowthBook exposures",
        ("experimentid", "variationid"),
        ("variationid",),
        ("experimentid",),
        weights=("variationweights",),
        version=("banditversion",),
        leaf=("leafid",),
    ),
    Tool(
        "Eppo bandit actions",
        ("subject", "action", "actionprobability"),
        ("action",),
        ("key", "banditkey", "bandit"),
        ("subject",),
        share=("actionprobability",),
        version=("modelversion",),
        by_version=True,
    ),
    Tool(
        "Statsig first exposures",
        ("unitid", "experimentgroup"),
        ("experimentgroup",),
        ("name",),
        ("unitid",),
        ("firstexposureutc", "firstexposurepstdate", "timestamp"),
        share=("percent",),
        unit=100.0,
        version=("rollout",),
    ),
    Tool(
        "Eppo assignments",
        ("subject", "experiment", "variation"),
        ("variation",),
        ("experiment",),
        ("subject",),
    ),
)
"""In the order in which they are tried."""


def tool_of(names: Sequence[str]) -> Tool | None:
    """The tool that writes a table with these columns."""
    plain = {plain_name(name) for name in names}
    return next((tool for tool in TOOLS if plain >= set(tool.marks)), None)


def read_assignments(file: TableFile, tool: Tool, named: Mapping[str, str | None], metrics: Path | None) -> ToolRows:
    """Decisions of a table of assignments.

    Args:
        file: the table.
        tool: that wrote it.
        named: columns by role (user, time, reward), as the person says; None or left out: recognised.
        metrics: a table of what users did: user, time and, where a row is not worth 1, a value.

    Raises:
        UserError: several experiments, or columns that cannot be read.
    """
    import pandas as pd

    source = str(file.path)
    columns = _columns(file, tool, named)
    kinds = {"user": "id", "arm": "id", "experiment": "id", "time": "time", "share": "number", "reward": "number"}
    rows = file.read({name: kinds.get(role, "text") for role, name in columns.items()})
    frame = pd.DataFrame({"user": rows.ids(columns["user"]).by_row(), "arm": rows.ids(columns["arm"]).by_row()})
    if "time" in columns:
        frame["time"] = rows.times(columns["time"])
    else:
        frame["time"] = np.arange(len(rows), dtype=float)
    for role in ("share", "reward"):
        if role in columns:
            frame[role] = rows.numbers(columns[role])
    for role in ("weights", "version", "leaf"):
        if role in columns:
            frame[role] = [_text(value) for value in rows.column(columns[role]).to_pylist()]
    rows.faults.refuse("correct these rows, or leave them out of the file")
    _refuse_several(source, rows, columns)
    frame = frame.sort_values(["user", "time"], kind="stable", ignore_index=True)
    chosen, end, switched = _decisions(frame, tool)
    decisions = frame[chosen].reset_index(drop=True)
    lines = [
        f"{source}: {tool.name}, {len(frame):,} rows, {len(decisions):,} decisions of {frame['user'].nunique():,} "
        "users: "
        + ("each user's first under each version" if tool.by_version and "version" in frame else "each user's first")
    ]
    if switched:
        lines.append(f"{switched:,} users saw another variation later; nothing after that counts")
    if metrics is not None:
        decisions["reward"], reward_line = _metrics(metrics, decisions, end[chosen], columns["user"], named)
        lines.append(reward_line)
    elif "reward" in frame:
        decisions["reward"], reward_line = _own_rewards(frame, chosen, end)
        lines.append(reward_line)
    arms = sorted(decisions["arm"].unique(), key=lambda name: (len(name), name))
    shares, propensity = _probabilities(source, decisions, arms, tool)
    taken_columns: dict[str, pd.Series] = {"user": decisions["user"], "action": decisions["arm"]}
    if "time" in columns:
        taken_columns = {"time": decisions["time"]} | taken_columns
    if propensity is not None:
        taken_columns["propensity"] = propensity
    if "reward" in decisions:
        taken_columns["reward"] = decisions["reward"]
    for role in ("version", "leaf"):
        if role in decisions:
            taken_columns[role] = decisions[role]
    if propensity is None and "version" not in decisions:
        taken_columns["day"] = (decisions["time"] // 86400).map("{:.0f}".format)
    columns_read: ToolColumns = {name: list(values) for name, values in taken_columns.items()}
    return ToolRows(columns_read, shares, lines, _damages(decisions, switched, shares))


def _columns(file: TableFile, tool: Tool, named: Mapping[str, str | None]) -> dict[str, str]:
    """Column by role."""
    plain = {plain_name(name): name for name in reversed(file.names)}
    columns = {}
    for role in ("arm", "experiment", "user", "time", "weights", "share", "version", "leaf"):
        there = [plain[name] for name in getattr(tool, role) if name in plain]
        if there:
            columns[role] = there[0]
    leave = set(columns.values())
    named_columns = {role: named.get(role) for role in ("user", "time", "reward") if named.get(role)}
    usual = [role for role in ("user", "time") if role not in columns and role not in named_columns]
    needed = [role for role in usual if role == "user"]
    more = find_columns(
        str(file.path), file.names, named=named_columns, needed=needed, optional=[*usual, "reward"], leave=leave
    )
    return columns | more.names


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value)


def _refuse_several(source: str, rows: Rows, columns: dict[str, str]) -> None:
    if "experiment" not in columns:
        return
    ids = rows.ids(columns["experiment"])
    if ids.number > 1:
        some = ", ".join(str(name) for name in ids.ids[:4]) + (", ..." if ids.number > 4 else "")
        raise UserError(f"{source} holds {ids.number} experiments ({some}). Give the rows of one")


def _decisions(frame: Any, tool: Tool) -> tuple[NDArray[np.bool_], NDArray[np.float64], int]:
    """Find the decisions among rows (n,), the time until which each counts (n,).

    How many users switched within a period.
    """
    import pandas as pd

    parts = [frame["user"]] + ([frame["version"]] if tool.by_version and "version" in frame else [])
    if len(parts) > 1:
        period = pd.Series(list(zip(*parts, strict=True)))
    else:
        period = parts[0]
    chosen = ~period.duplicated()
    first = frame["arm"].where(chosen).groupby(period).transform("first")
    other = frame["arm"] != first
    ends = frame["time"].where(other).groupby(period).transform("min").fillna(math.inf)
    starts = frame["time"].where(chosen)
    later = starts.groupby(frame["user"]).transform(lambda times: times.bfill().shift(-1)).fillna(math.inf)
    return chosen.to_numpy(), np.minimum(ends, later).to_numpy(), int(frame["user"][other].nunique())


def _own_rewards(frame: Any, chosen: NDArray[np.bool_], end: NDArray[np.float64]) -> tuple[Any, str]:
    """Each decision's reward from the rows of its period: once where they repeat it, else their sum."""
    number = np.cumsum(chosen) - 1
    until = end[chosen][number]
    counted = frame["reward"].where(frame["time"] < until).groupby(number)
    total = counted.sum()
    least = counted.min()
    most = counted.max()
    if (least == most).all():
        return most.to_numpy(), "a decision's reward is that of its rows, all of which repeat it"
    return total.to_numpy(), "a decision's reward is the sum over its rows"


def _metrics(
    path: Path, found: Any, end: NDArray[np.float64], user: str, named: Mapping[str, str | None]
) -> tuple[Any, str]:
    """The sum of a table's values after each decision, until the user's next."""
    import pandas as pd

    file = TableFile.open(path)
    if user in file.names:
        same = {"user": user}
    else:
        same = {}
    named_columns = {role: name for role in ("time", "reward") if (name := named.get(role)) in file.names}
    columns = find_columns(
        str(path), file.names, named=same | named_columns, needed=["user", "time"], optional=["reward"]
    )
    value = columns.get("reward") or next((n for n in file.names if plain_name(n) in _VALUES), None)
    rows = file.read({columns["user"]: "id", columns["time"]: "time"} | ({} if value is None else {value: "number"}))
    events = pd.DataFrame({"user": rows.ids(columns["user"]).by_row(), "time": rows.times(columns["time"])})
    events["value"] = 1.0 if value is None else rows.numbers(value)
    rows.faults.refuse("correct these rows, or leave them out of the file")
    decided = pd.DataFrame({"user": found["user"], "time": found["time"], "end": end, "number": np.arange(len(found))})
    joined = pd.merge_asof(events.sort_values("time"), decided.sort_values("time"), on="time", by="user")
    joined = joined[joined["time"] < joined["end"]]
    if joined.empty:
        raise UserError(
            f"{path}: no row is of a user of the log, after a decision. Give ids and times as the log has them"
        )
    total = np.bincount(joined["number"].astype(int), joined["value"], len(found))
    if value is None:
        what = "1 per row"
    else:
        what = f"the sum of {value}"
    reward_line = f"reward: {what} of {path}, {len(joined):,} of {len(events):,} rows, those after a decision"
    return total, reward_line


_VALUES = ("value", "amount", "metricvalue", "numericvalue", "price", "count")


def _probabilities(
    source: str, found: Any, arms: Sequence[str], tool: Tool
) -> tuple[LoggedShares | None, NDArray[np.float64] | None]:
    """Probabilities of all arms where the table gives them, and those of the arms assigned."""
    groups = {role: _codes(found[role]) for role in ("version", "leaf") if role in found}
    if "weights" in found and found["weights"].notna().any():
        names, place = _places(source, found["arm"], arms)
        table = _weights(source, found["weights"], len(names))
        names = [*names, *(str(i) for i in range(len(names), table.shape[1]))]
        return LoggedShares.of(table, place, names, **groups), table[np.arange(len(place)), place]
    if "share" not in found:
        return None, None
    share = found["share"].to_numpy() / tool.unit
    if tool.unit == 1.0:
        return None, share
    number = {name: i for i, name in enumerate(arms)}
    place = found["arm"].map(number).to_numpy()
    if "version" in found:
        cell = found["version"]
    else:
        cell = found["arm"].map(lambda _: "")
    table = found.assign(share=share).pivot_table("share", cell, "arm", "median").reindex(columns=list(arms))
    rows = table.loc[cell].to_numpy(float, na_value=0.0)
    return LoggedShares.of(rows, place, arms, **groups), share


def _codes(values: Any) -> NDArray[np.int64]:
    import pandas as pd

    return pd.factorize(values.fillna(""))[0].astype(np.int64)


def _places(source: str, arm: Any, arms: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Names of variations in the order of their weights, and the place of each row's."""
    if not all(name.isdecimal() for name in arms):
        raise UserError(
            f"{source}: variations are called {', '.join(arms[:3])}, and weights are in the order of the variations. "
            "Give variation_id as their numbers, from 0"
        )
    return [str(i) for i in range(max(map(int, arms)) + 1)], arm.astype(int).to_numpy(np.int64)


def _weights(source: str, texts: Any, least: int) -> NDArray[np.float64]:
    """(n, K) weights from their texts, a list each."""
    weights_by_group = {}
    for text in texts.unique():
        try:
            values = [float(value) for value in json.loads(str(text).replace("'", '"'))]
        except (ValueError, TypeError):
            values = []
        if len(values) < least:
            if text is not None:
                number = int((texts == text).sum())
            else:
                number = int(texts.isna().sum())
            raise UserError(
                f"{source}: variation_weights is {text!r} in {number:,} decisions, not a list of {least} or more "
                "numbers. Leave these rows out"
            )
        weights_by_group[text] = values
    size = max(map(len, weights_by_group.values()))
    table = {text: np.array(values + [0.0] * (size - len(values))) for text, values in weights_by_group.items()}
    return np.stack([table[text] for text in texts])


def _damages(found: Any, switched: int, shares: LoggedShares | None) -> list[Damage]:
    share = switched / max(found["user"].nunique(), 1)
    if share <= _MOST_SWITCHED or shares is None or ("version" in found and found["version"].nunique() > 1):
        return []
    message = f"{switched:,} users ({100 * share:.2g} %) saw another variation under the same weights"
    return [Damage("not_sticky", share / _MOST_SWITCHED, message, "find out what else assigns users")]
