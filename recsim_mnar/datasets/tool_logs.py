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

if TYPE_CHECKING:
    import pandas as pd

_OPEN_BANDIT = {"timestamp", "itemid", "position", "click", "propensityscore", "userfeature0"}
"""Columns that mark a file of the Open Bandit Dataset, lower case without underscores."""
_MOST_ARMS = 12
"""Largest number of variations for which the policy "always this variation" is added for each."""


@dataclass(frozen=True)
class ToolLog:
    """A log of a tool as a table of decisions.

    Attributes:
        file: the table: the columns action, reward, propensity, user and time as far as the log has them, and one
            column per policy.
        policies: names of the columns of policies that are defined without another file: "always this variation", and
            the uniform policy.
        context: columns within which propensities are to be estimated; empty if the log has propensities.
        lines: sentences for the user about the rows and columns that were read.
        damages: faults that the log itself proves.
    """

    file: TableFile
    policies: tuple[str, ...]
    context: tuple[str, ...]
    lines: list[str]
    damages: list[Damage]

    @property
    def has_propensities(self) -> bool:
        """True if the log has the probability with which each action was drawn."""
        return not self.context


@contextlib.contextmanager
def open_tool_log(
    path: Path,
    *,
    columns: Mapping[str, str | None] | None = None,
    fields: Sequence[str] = (),
    targets: Collection[str] = (),
    metrics: Path | None = None,
) -> Iterator[ToolLog | None]:
    """Yield the log of a tool as a table in a temporary file; None for any other file.

    Args:
        path: path of a DSJSON log, a table of assignments, or a file of the Open Bandit Dataset.
        columns: columns that the user named, by role.
        fields: further fields of DSJSON's shared context to read as columns.
        targets: columns of target policies. A table that has one of them needs no conversion: None is yielded.
        metrics: path of a table of what users did, for tables of assignments; see :func:`read_assignments`.

    Raises:
        UserError: the tool's format is broken.
    """
    tool_rows = _read(path, columns or {}, fields, targets, metrics)
    if tool_rows is None:
        yield None
        return
    table = tool_rows.columns
    shares = tool_rows.shares
    damages = tool_rows.damages
    policies = _add_policies(table, shares)
    metadata: dict[str, str | float] = {"kind": "a tool's log", "policy": "logged"}
    if shares is not None:
        if not damages:
            damages = shares.damages()
        least = shares.least()
        if least is not None and shares.n and not damages:
            metadata["propensity_min"] = least
    context: tuple[str, ...] = ()
    if "propensity" not in table:
        context = tuple(name for name in ("version", "leaf", "day") if name in table)
    with tempfile.TemporaryDirectory(prefix="recsim-mnar-") as folder:
        copy = Path(folder) / f"{path.name.split('.')[0]}.parquet"
        # Estimators read the copy; messages name the user's own file.
        write_table(_arrow(table).replace_schema_metadata(metadata_of(metadata)), copy)
        yield ToolLog(replace(TableFile.open(copy), path=path), policies, context, tool_rows.lines, damages)


def _read(
    path: Path,
    columns: Mapping[str, str | None],
    fields: Sequence[str],
    targets: Collection[str],
    metrics: Path | None,
) -> ToolRows | None:
    """Recognise a tool's log by its name or columns, and read it; the arguments are those of :func:`open_tool_log`.

    Returns:
        the log; None for a file of no known tool, or one whose columns the user named.
    """
    if is_dsjson(path):
        _refuse_metrics(path, metrics)
        named = [name for name in columns.values() if name]
        return read_dsjson(path, list(dict.fromkeys([*fields, *named])))
    if path.is_dir() or columns.get("propensity") or columns.get("action"):
        return None
    file = TableFile.open(path)
    if set(targets) & set(file.names):
        return None
    plain = {plain_name(name) for name in file.names}
    for tool in TOOLS:
        if plain.issuperset(tool.marks):
            return read_assignments(file, tool, columns, metrics)
    if any(columns.values()) or not plain >= _OPEN_BANDIT:
        return None
    _refuse_metrics(path, metrics)
    return _read_open_bandit_dataset(file)


def _refuse_metrics(path: Path, metrics: Path | None) -> None:
    """Raise UserError if a table of metrics is named for a log that has rewards itself."""
    if metrics is not None:
        raise UserError(f"--metrics: {path} has its rewards already. Leave --metrics out")


def _read_open_bandit_dataset(file: TableFile) -> ToolRows:
    """Read a file of the Open Bandit Dataset: one row per position of a page, each a decision.

    The column ``uniform`` is the target policy that gives each item the same probability.
    """
    names = {plain_name(name): name for name in file.names}
    kinds = {"timestamp": "time", "itemid": "id", "position": "id", "click": "number", "propensityscore": "number"}
    rows = file.read({names[name]: kind for name, kind in kinds.items()})
    item = rows.ids(names["itemid"])
    table: ToolColumns = {
        "action": item.by_row().astype(str),
        "position": rows.ids(names["position"]).by_row().astype(str),
        "reward": rows.numbers(names["click"]),
        "propensity": rows.numbers(names["propensityscore"]),
        "uniform": np.full(len(rows), 1.0 / item.number),
        "time": rows.times(names["timestamp"]),
    }
    rows.faults.refuse(_CORRECT)
    lines = [f"{file.path}: Open Bandit Dataset, {len(rows):,} rows; uniform shows each of {item.number} items alike"]
    return ToolRows(table, None, lines, [])


def _add_policies(table: ToolColumns, shares: LoggedShares | None) -> tuple[str, ...]:
    """Add columns with each row's probability under simple target policies, and return their names.

    The policies are "always this variation", for each variation if there are few, and the uniform one. A table that
    brings policies from its reader keeps those.

    Args:
        table: columns of the decisions, to which columns are added.
        shares: logged probabilities of all actions, which also count the actions that were never shown; or None.
    """
    policies: list[str] = [name for name in ("first_action", "uniform") if name in table]
    if policies:
        return tuple(policies)
    action = np.asarray(table["action"]).astype(str)
    shown_arms = sorted(set(action))
    n_arms = len(shown_arms)
    if shares is not None and len(shares.names):
        n_arms = len(shares.names)
    if n_arms <= _MOST_ARMS:
        for arm in shown_arms:
            policies.append(f"always_{arm}")
            table[policies[-1]] = (action == arm).astype(float)
    table["uniform"] = np.full(len(action), 1.0 / n_arms)
    return (*policies, "uniform")


def _arrow(table: ToolColumns) -> Any:
    """Convert columns to a pyarrow table; a column that mixes kinds of values becomes one of text."""
    import pyarrow as pa

    arrays = {}
    for name, values in table.items():
        try:
            arrays[name] = pa.array(values, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            arrays[name] = pa.array([None if value is None else str(value) for value in values])
    return pa.table(arrays)


_CORRECT = "correct these rows, or leave them out of the file"
_MOST_SWITCHED = 0.01
"""Largest share of users with several variations under the same weights; more is a fault of the log."""
_SECONDS_A_DAY = 86400


@dataclass(frozen=True)
class Tool:
    """Format of a tool's table of assignments; column names in lower case, letters and digits only.

    Each role has the possible names of its column; the first one that the table has counts.

    Attributes:
        name: name of the tool and the kind of table.
        marks: columns by which the table is recognised: it has all of them.
        arm: columns of the variation.
        experiment: columns of the experiment.
        user: columns of the unit that is randomised; if empty, a usual name is searched for.
        time: columns of the exposure's time.
        weights: columns of the probabilities of all variations, a list in the order of the variations.
        share: columns of the probability of the row's variation.
        unit: sum of ``share`` over the variations, 100 for percentages.
        version: columns of the version of the weights.
        leaf: columns of the group of contexts within which all users have the same weights.
        by_version: True if a user is assigned anew under each version; False if assigned once for all.
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


def read_assignments(file: TableFile, tool: Tool, named: Mapping[str, str | None], metrics: Path | None) -> ToolRows:
    """Read the decisions of a table of assignments.

    A decision is a user's first row (with ``tool.by_version``, the first one under each version), because later
    exposures repeat its variation.

    Args:
        file: the table.
        tool: the tool that wrote it.
        named: columns that the user named, by role (user, time, reward); None or missing for recognised ones.
        metrics: path of a table of what users did: user, time and, where a row is not worth 1, a value. If None,
            rewards are read from the table itself, if it has them.

    Raises:
        UserError: several experiments, or columns that cannot be read.
    """
    source = str(file.path)
    columns = _columns(file, tool, named)
    frame = _exposures(file, columns)
    is_decision, until, n_switched = _decisions(frame, tool)
    decisions = frame[is_decision].reset_index(drop=True)
    n_users = frame["user"].nunique()
    first = "each user's first"
    if tool.by_version and "version" in frame:
        first += " under each version"
    lines = [f"{source}: {tool.name}, {len(frame):,} rows, {len(decisions):,} decisions of {n_users:,} users: {first}"]
    if n_switched:
        lines.append(f"{n_switched:,} users saw another variation later; nothing after that counts")
    if metrics is not None:
        decisions["reward"], line = _metrics(metrics, decisions, until[is_decision], columns["user"], named)
        lines.append(line)
    elif "reward" in frame:
        decisions["reward"], line = _rewards_of_rows(frame, is_decision, until)
        lines.append(line)
    shares, propensity = _probabilities(source, decisions, tool)
    if propensity is not None:
        decisions["propensity"] = propensity
    elif "version" not in decisions:  # propensities will be estimated by day, as the weights may change in time
        decisions["day"] = (decisions["time"] // _SECONDS_A_DAY).map("{:.0f}".format)
    if "time" not in columns:  # it was only the row number
        del decisions["time"]
    decisions = decisions.rename(columns={"arm": "action"})
    names = ("time", "user", "action", "propensity", "reward", "version", "leaf", "day")
    table: ToolColumns = {name: decisions[name].tolist() for name in names if name in decisions}
    share_switched = n_switched / max(n_users, 1)
    damages = []
    constant_weights = "version" not in decisions or decisions["version"].nunique() <= 1
    if share_switched > _MOST_SWITCHED and shares is not None and constant_weights:
        message = f"{n_switched:,} users ({100 * share_switched:.2g} %) saw another variation under the same weights"
        damages = [Damage("not_sticky", share_switched / _MOST_SWITCHED, message, "find out what else assigns users")]
    return ToolRows(table, shares, lines, damages)


def _columns(file: TableFile, tool: Tool, named: Mapping[str, str | None]) -> dict[str, str]:
    """Return the name of the column of each role, by role.

    The tool's own names come first; user, time and reward may be named by the user or have another common name.

    Raises:
        UserError: no column of users, or several that may be it.
    """
    plain = {plain_name(name): name for name in reversed(file.names)}  # of equal plain names the first column counts
    columns: dict[str, str] = {}
    for role in ("arm", "experiment", "user", "time", "weights", "share", "version", "leaf"):
        present = [plain[name] for name in getattr(tool, role) if name in plain]
        if present:
            columns[role] = present[0]
    stated = {role: named.get(role) for role in ("user", "time", "reward") if named.get(role)}
    unknown = [role for role in ("user", "time") if role not in columns and role not in stated]
    needed = [role for role in unknown if role == "user"]
    further = find_columns(
        str(file.path),
        file.names,
        named=stated,
        needed=needed,
        optional=[*unknown, "reward"],
        leave=set(columns.values()),
    )
    return columns | further.names


def _exposures(file: TableFile, columns: Mapping[str, str]) -> pd.DataFrame:
    """Read all rows as a frame with one column per role, ordered by user and time.

    In a table without times the row number is the time.

    Raises:
        UserError: values that cannot be read, or several experiments.
    """
    import pandas as pd

    kinds = {"user": "id", "arm": "id", "experiment": "id", "time": "time", "share": "number", "reward": "number"}
    rows = file.read({name: kinds.get(role, "text") for role, name in columns.items()})
    frame = pd.DataFrame({"user": rows.ids(columns["user"]).by_row(), "arm": rows.ids(columns["arm"]).by_row()})
    frame["time"] = np.arange(len(rows), dtype=float)
    if "time" in columns:
        frame["time"] = rows.times(columns["time"])
    for role in ("share", "reward"):
        if role in columns:
            frame[role] = rows.numbers(columns[role])
    for role in ("weights", "version", "leaf"):
        if role in columns:
            values = rows.column(columns[role]).to_pylist()
            frame[role] = [None if value is None else str(value) for value in values]
    rows.faults.refuse(_CORRECT)
    if "experiment" in columns:
        experiments = rows.ids(columns["experiment"])
        if experiments.number > 1:
            names = ", ".join(map(str, experiments.ids[:4]))
            if experiments.number > 4:
                names += ", ..."
            raise UserError(f"{file.path} holds {experiments.number} experiments ({names}). Give the rows of one")
    return frame.sort_values(["user", "time"], kind="stable", ignore_index=True)


def _decisions(frame: pd.DataFrame, tool: Tool) -> tuple[NDArray[np.bool_], NDArray[np.float64], int]:
    """Find the rows that are decisions: each user's first row of a period.

    A period is all of a user's rows, or those under one version of the weights with ``tool.by_version``.

    Returns:
        is_decision: (n,) True for rows that are decisions.
        until: (n,) time until which a row's decision is in force: the user's next decision, or the first row of its
            period with another variation; inf without either.
        n_switched: number of users who saw another variation within a period.
    """
    import pandas as pd

    period = frame["user"]
    if tool.by_version and "version" in frame:
        period = pd.Series(list(zip(frame["user"], frame["version"], strict=True)))
    is_decision = ~period.duplicated()
    first_arm = frame["arm"].where(is_decision).groupby(period).transform("first")
    has_switched = frame["arm"] != first_arm
    switch_time = frame["time"].where(has_switched).groupby(period).transform("min").fillna(math.inf)
    decision_time = frame["time"].where(is_decision)
    by_user = decision_time.groupby(frame["user"])
    # A user's rows ascend in time: the first decision after a row is the next time that is not missing.
    next_decision = by_user.transform(lambda times: times.bfill().shift(-1)).fillna(math.inf)
    n_switched = frame["user"][has_switched].nunique()
    return is_decision.to_numpy(), np.minimum(switch_time, next_decision).to_numpy(), n_switched


def _rewards_of_rows(
    frame: pd.DataFrame, is_decision: NDArray[np.bool_], until: NDArray[np.float64]
) -> tuple[NDArray[np.float64], str]:
    """Compute each decision's reward from its row and the later rows until the time when it is no more in force.

    Args:
        frame: n rows ordered by user and time.
        is_decision: (n,) True for rows that are decisions.
        until: (n,) time until which a row's decision is in force.

    Returns:
        rewards: (d,) one value if all rows of every decision repeat it, else the sum over the rows.
        sentence: sentence for the user that says which of the two it is.
    """
    decision_of_row = np.cumsum(is_decision) - 1
    in_force = frame["time"] < until[is_decision][decision_of_row]
    by_decision = frame["reward"].where(in_force).groupby(decision_of_row)
    largest = by_decision.max()
    if (by_decision.min() == largest).all():
        return largest.to_numpy(), "a decision's reward is that of its rows, all of which repeat it"
    return by_decision.sum().to_numpy(), "a decision's reward is the sum over its rows"


def _metrics(
    path: Path, decisions: pd.DataFrame, until: NDArray[np.float64], user: str, named: Mapping[str, str | None]
) -> tuple[NDArray[np.float64], str]:
    """Compute each decision's reward from a table of what users did after it, while it was in force.

    Args:
        path: path of the table.
        decisions: d decisions with user and time.
        until: (d,) time until which each is in force.
        user: name of the log's column of users, tried first.
        named: columns that the user named, by role.

    Returns:
        rewards: (d,) sum of the values, or number of rows in a table without values.
        sentence: sentence for the user that says what was summed.

    Raises:
        UserError: no column of users or times, or no row that follows a decision.
    """
    import pandas as pd

    file = TableFile.open(path)
    stated = {"user": user, "time": named.get("time"), "reward": named.get("reward")}
    stated = {role: name for role, name in stated.items() if name in file.names}
    columns = find_columns(str(path), file.names, named=stated, needed=["user", "time"], optional=["reward"])
    value = columns.get("reward")
    if not value:
        value = next((name for name in file.names if plain_name(name) in _VALUES), None)
    kinds = {columns["user"]: "id", columns["time"]: "time"}
    if value is not None:
        kinds[value] = "number"
    rows = file.read(kinds)
    events = pd.DataFrame({"user": rows.ids(columns["user"]).by_row(), "time": rows.times(columns["time"])})
    events["value"] = 1.0
    summed = "1 per row"
    if value is not None:
        events["value"] = rows.numbers(value)
        summed = f"the sum of {value}"
    rows.faults.refuse(_CORRECT)
    # Each event goes to the user's last decision before it, unless that is no more in force.
    periods = decisions[["user", "time"]].assign(end=until, number=np.arange(len(decisions)))
    matched = pd.merge_asof(events.sort_values("time"), periods.sort_values("time"), on="time", by="user")
    matched = matched[matched["time"] < matched["end"]]
    if matched.empty:
        raise UserError(
            f"{path}: no row is of a user of the log, after a decision. Give ids and times as the log has them"
        )
    total: NDArray[Any] = np.bincount(matched["number"].astype(int), matched["value"], len(decisions))
    return total, f"reward: {summed} of {path}, {len(matched):,} of {len(events):,} rows, those after a decision"


_VALUES = ("value", "amount", "metricvalue", "numericvalue", "price", "count")
"""Plain names of columns of values that are recognised in tables of metrics."""


def _probabilities(
    source: str, decisions: pd.DataFrame, tool: Tool
) -> tuple[LoggedShares | None, NDArray[np.float64] | None]:
    """Return the logged probabilities of all arms, and those of the assigned arms.

    Args:
        source: name of the table, for messages.
        decisions: n decisions.
        tool: the tool that wrote them.

    Returns:
        shares: probabilities of all arms, from lists of weights; or, where the table has the share of the row's arm
            alone, put together from the rows of each version. None if neither is possible.
        propensity: (n,) probability of each assigned arm; None if the table has no probabilities.

    Raises:
        UserError: lists of weights, but arms that are no numbers.
    """
    import pandas as pd

    arms = sorted(decisions["arm"].unique(), key=lambda name: (len(name), name))  # "2" before "10"
    groups = {
        role: pd.factorize(decisions[role].fillna(""))[0].astype(np.int64)
        for role in ("version", "leaf")
        if role in decisions
    }
    if "weights" in decisions and decisions["weights"].notna().any():
        if not all(name.isdecimal() for name in arms):
            raise UserError(
                f"{source}: variations are called {', '.join(arms[:3])}, and weights are in the order of the "
                "variations. Give variation_id as their numbers, from 0"
            )
        arm = decisions["arm"].astype(int).to_numpy(np.int64)
        table = _weights(source, decisions["weights"], max(map(int, arms)) + 1)
        names = [str(number) for number in range(table.shape[1])]
        return LoggedShares.of(table, arm, names, **groups), table[np.arange(len(arm)), arm]
    if "share" not in decisions:
        return None, None
    share = decisions["share"].to_numpy() / tool.unit
    if tool.unit == 1.0:  # probabilities that depend on the context of each row, not shares of a version
        return None, share
    arm = decisions["arm"].map({name: number for number, name in enumerate(arms)}).to_numpy()
    version = decisions["arm"].map(lambda _: "")  # without versions all rows have one
    if "version" in decisions:
        version = decisions["version"]
    # Each row has the share of its own arm only: those of the others are in other rows of the version.
    by_version = decisions.assign(share=share).pivot_table(
        values="share", index=version, columns="arm", aggfunc="median"
    )
    table = by_version.reindex(columns=arms).loc[version].to_numpy(float, na_value=0.0)
    return LoggedShares.of(table, arm, arms, **groups), share


def _weights(source: str, texts: pd.Series[Any], least: int) -> NDArray[np.float64]:
    """Parse lists of weights in text as a matrix, (n, K); shorter lists are filled up with 0.

    Args:
        source: name of the table, for messages.
        texts: (n,) lists in JSON or Python's form.
        least: smallest number of weights, that of the variations in the table.

    Raises:
        UserError: a list that cannot be read, or is too short.
    """
    weights_of = {}
    for text in texts.unique():
        try:
            weights = [float(weight) for weight in json.loads(str(text).replace("'", '"'))]
        except (ValueError, TypeError):
            weights = []
        if len(weights) < least:
            number = texts.isna().sum() if text is None else (texts == text).sum()
            raise UserError(
                f"{source}: variation_weights is {text!r} in {number:,} decisions, not a list of {least} or more "
                "numbers. Leave these rows out"
            )
        weights_of[text] = weights  # few texts occur again and again: each is parsed once
    width = max(map(len, weights_of.values()))
    return np.array([weights_of[text] + [0.0] * (width - len(weights_of[text])) for text in texts])
