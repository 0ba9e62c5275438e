"""The estimates of a log file: from Parquet, CSV or a folder of parts to one record a policy and estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators import Estimate, difference, estimate_value
from recsim_mnar.estimators.inputs import Clusters, check_clip, check_level, check_rows, column
from recsim_mnar.estimators.registry import check_name

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table

Record = dict[str, Any]

_CSV = {".csv": ",", ".tsv": "\t", ".txt": ","}
_PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class LogColumns:
    """The columns of a file that estimators read, bandit rows only.

    Attributes:
        reward: (n,).
        propensity: (n,).
        cluster: the user of each row, or None.
        others: further columns by name, (n,) each.
        numbers: (n,) row numbers in the file, or None where every row was kept.
    """

    reward: NDArray[np.float64]
    propensity: NDArray[np.float64]
    cluster: Clusters | None
    others: dict[str, NDArray[np.float64]]
    numbers: NDArray[np.int64] | None


def estimate_file(
    path: str | Path,
    targets: Sequence[str],
    *,
    baseline: str | None = None,
    estimators: Sequence[str] = ("clipped_ips",),
    clip: float | None = 15.0,
    cluster: str | None = None,
    level: float = 0.95,
    interval: str = "auto",
    reward: str = "reward",
    propensity: str = "propensity",
    q_logged: str | None = None,
    q_target: str | None = None,
) -> list[Record]:
    """Estimate the value of each target policy from a log file.

    Only the columns named are read. Where the file has a column ``event`` its bandit rows are used, otherwise all rows.

    Args:
        path: a Parquet or CSV file, or a folder of such parts (of one kind; read in the order of their names).
        targets: columns, each a policy's probability of the logged action.
        baseline: such a column too; adds one record a target for the difference from it (ips, clipped_ips and snips).
        estimators: names of :data:`recsim_mnar.estimators.ESTIMATORS`.
        clip: weights of the clipped estimators are cut there; None for no clipping.
        cluster: column of the unit whose rows depend on each other; None for ``user`` where there is such a column.
        level: nominal coverage of the intervals.
        interval: as in :func:`recsim_mnar.estimators.estimate_value`; differences always use "auto".
        reward: column of rewards.
        propensity: column of the logging policy's probability of the logged action.
        q_logged: column of a reward model's value of the logged action, for dr and its kin.
        q_target: column of its mean under the target policy.

    Returns:
        Records with keys policy, estimator, value, low, high, level, method, n, ess, verdict, diagnostics, and baseline
        for a difference, whose policy reads "target - baseline"; JSON types only.

    Raises:
        UserError: for files and values that are no data; one line with column, row and mend.
    """
    targets = list(dict.fromkeys(targets))
    if not targets:
        raise UserError("no target column; name at least one, made by `recsim-mnar replay` for instance")
    if not estimators:
        raise UserError("no estimator; name at least one, for instance clipped_ips")
    for name in estimators:
        check_name(name)
    check_level(level)
    check_clip(clip)
    policies = targets if baseline is None or baseline in targets else [*targets, baseline]
    extra = [name for name in (q_logged, q_target) if name is not None]
    log = read_columns(path, [*policies, *extra], cluster=cluster, reward=reward, propensity=propensity)
    for name in policies:
        check_rows(log.reward, log.propensity, log.others[name], (reward, propensity, name), log.numbers)
    records = []
    common: dict[str, Any] = {"clip": clip, "cluster": log.cluster, "level": level}
    named = {"q_logged": q_logged, "q_target": q_target}
    models = {key: log.others[name] for key, name in named.items() if name is not None}
    for name in policies:
        for estimator in estimators:
            given: dict[str, Any] = models if check_name(estimator).needs else {}
            estimate = estimate_value(
                log.reward,
                log.propensity,
                log.others[name],
                estimator=estimator,
                interval=interval,
                **given,
                **common,
            )
            records.append(_record(name, estimate))
    if baseline is not None:
        for name in targets:
            if name == baseline:
                continue
            for estimator in estimators:
                if estimator not in ("ips", "clipped_ips", "snips"):
                    continue
                estimate = difference(
                    log.reward,
                    log.propensity,
                    log.others[name],
                    log.others[baseline],
                    estimator=estimator,
                    **common,
                )
                records.append(_record(f"{name} - {baseline}", estimate) | {"baseline": baseline})
    return records


def read_columns(
    path: str | Path,
    names: Sequence[str],
    *,
    cluster: str | None = None,
    reward: str = "reward",
    propensity: str = "propensity",
) -> LogColumns:
    """Read the bandit rows of a log file, only the columns that are needed.

    Args:
        path: as in :func:`estimate_file`.
        names: number columns beside reward and propensity.
        cluster: column of user ids, None for ``user`` where there is such a column.
        reward: column of rewards.
        propensity: column of propensities.

    Raises:
        UserError: no such file or column, no rows, a missing cluster id, values that are not numbers.
    """
    parts = _parts(Path(path))
    known = _column_names(parts[0])
    wanted = [reward, propensity, *names]
    for name in wanted if cluster is None else [*wanted, cluster]:
        if name not in known:
            raise UserError(f"{parts[0].name} has no column {name!r}; {nearest(name, known)}")
    if cluster is None and "user" in known:
        cluster = "user"
    every = list(dict.fromkeys([*wanted, *([cluster] if cluster else []), *(["event"] if "event" in known else [])]))
    table = _read(parts, every)
    if table.num_rows == 0:
        raise UserError(f"{Path(path).name} holds no rows; give a log with at least one")
    numbers = None
    if "event" in table.column_names:
        keep = _is_bandit(table.column("event"))
        if not keep.any():
            raise UserError(f"{Path(path).name} holds no bandit rows (event = bandit); nothing was recommended in it")
        if not keep.all():
            numbers = np.flatnonzero(keep)
    columns = {name: _numbers(table.column(name), name, numbers) for name in dict.fromkeys(wanted)}
    clusters = None if cluster is None else _clusters(table.column(cluster), cluster, numbers)
    return LogColumns(columns[reward], columns[propensity], clusters, {name: columns[name] for name in names}, numbers)


def records_table(records: Sequence[Record]) -> Table:
    """The records as a table for a person, one line a policy and estimator, best value first as given."""
    from rich.table import Table

    level = f"{records[0]['level'] * 100:g} %" if records else "level"
    table = Table(title="Off-policy estimates", title_justify="left")
    for name in ("policy", "estimator"):
        table.add_column(name, no_wrap=True)
    for name in ("value", f"{level} low", f"{level} high", "rows", "effective"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    colours = {"trust": "green", "caution": "yellow", "do not use": "red"}
    for record in records:
        grade = record["verdict"].split(":")[0]
        table.add_row(
            record["policy"],
            record["estimator"],
            *(f"{record[key]:.4g}" for key in ("value", "low", "high")),
            f"{record['n']:,}",
            f"{record['ess']:,.0f}",
            record["verdict"],
            style=colours.get(grade),
        )
    return table


def _record(policy: str, estimate: Estimate) -> Record:
    return {
        "policy": policy,
        "estimator": estimate.estimator,
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "level": estimate.level,
        "method": estimate.method,
        "n": estimate.n,
        "ess": estimate.ess,
        "verdict": estimate.verdict,
        "diagnostics": estimate.diagnostics,
    }


def _parts(path: Path) -> list[Path]:
    """The files of a log, in the order of their names."""
    if not path.exists():
        raise UserError(f"no file or folder {str(path)!r}; give a Parquet or CSV file, or a folder of parts")
    if path.is_dir():
        for folder in (path, path / "log"):
            for endings in (_PARQUET, tuple(_CSV)):
                found = sorted(p for p in folder.glob("*") if p.suffix.lower() in endings)
                if found:
                    return found
        raise UserError(f"folder {str(path)!r} holds no Parquet or CSV parts")
    if path.suffix.lower() not in (*_PARQUET, *_CSV):
        raise UserError(f"{path.name} is neither Parquet nor CSV; name it .parquet, .csv or .tsv")
    if path.stat().st_size == 0:
        raise UserError(f"{path.name} is empty; give a log with at least one row")
    return [path]


def _column_names(part: Path) -> list[str]:
    import pyarrow as pa

    try:
        if part.suffix.lower() in _PARQUET:
            import pyarrow.parquet as pq

            return list(pq.read_schema(part).names)
        with part.open(encoding="utf-8-sig", newline="") as lines:
            import csv

            return [name.strip() for name in next(csv.reader(lines, delimiter=_CSV[part.suffix.lower()]), [])]
    except (OSError, pa.ArrowException, UnicodeDecodeError):
        raise UserError(f"{part.name} cannot be read as {part.suffix.lower()[1:]}; check the file") from None


def _read(parts: list[Path], names: list[str]) -> pa.Table:
    import pyarrow as pa

    tables = []
    for part in parts:
        try:
            if part.suffix.lower() in _PARQUET:
                import pyarrow.parquet as pq

                tables.append(pq.read_table(part, columns=names))
            else:
                from pyarrow import csv

                delimiter = _CSV[part.suffix.lower()]
                columns = _column_names(part)
                tables.append(
                    csv.read_csv(
                        part,
                        read_options=csv.ReadOptions(column_names=columns, skip_rows=1),
                        parse_options=csv.ParseOptions(delimiter=delimiter),
                        convert_options=csv.ConvertOptions(include_columns=names),
                    )
                )
        except (OSError, KeyError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{part.name} cannot be read: {reason}; check the file") from None
    short = next((part for part, t in zip(parts, tables, strict=True) if t.num_columns != len(names)), None)
    if short is not None:
        missing = sorted(set(names) - set(_column_names(short)))
        raise UserError(f"part {short.name} has no column {missing[0]!r}, which the other parts have")
    try:
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        raise UserError("the parts of the log hold columns of different types; write them with one schema") from None


def _is_bandit(column: Any) -> NDArray[np.bool_]:
    """Which rows are recommendations, from names (organic, bandit) or codes (0, 1)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    bandit = pc.equal(column, "bandit" if _is_text(column.type) else 1)
    return np.asarray(pc.fill_null(bandit, False).to_numpy(zero_copy_only=False), dtype=bool)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _numbers(values: Any, name: str, rows: NDArray[np.int64] | None) -> NDArray[np.float64]:
    import pyarrow as pa

    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        if pa.types.is_null(kind):
            raise UserError(f"column {name!r} is empty; fill it in")
        raise UserError(f"column {name!r} must hold numbers, it holds {kind}; convert it first")
    array = values.to_numpy()
    if array.dtype == object:  # booleans with nulls
        array = np.array([np.nan if value is None else float(value) for value in array])
    return column(array if rows is None else array[rows], name)


def _clusters(values: Any, name: str, rows: NDArray[np.int64] | None) -> Clusters | None:
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if values.null_count:
        missing = np.asarray(values.is_null().to_numpy(), dtype=bool)
        bad = np.flatnonzero(missing) if rows is None else rows[missing[rows]]
        if bad.size:
            raise UserError(
                f"column {name!r}, row {int(bad[0])} (counted from 0): the id is missing; give every row one"
            )
    array = values.to_numpy()
    array = array if rows is None else array[rows]
    if values.null_count and array.dtype.kind == "f":
        array = array.astype(np.int64)
    return Clusters.of(array, array.size, name)
