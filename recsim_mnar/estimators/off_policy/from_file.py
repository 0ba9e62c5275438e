"""The estimates of a log file: one record a policy and estimator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recsim_mnar.errors import UserError, printable
from recsim_mnar.estimators import Estimate, difference, estimate_value
from recsim_mnar.estimators.off_policy.adaptive import with_adaptive_findings
from recsim_mnar.estimators.off_policy.from_blocks import BlockQuestion, Gathered, gather_blocks, needs_all_rows
from recsim_mnar.estimators.off_policy.inputs import check_clip, check_level, check_rows
from recsim_mnar.estimators.off_policy.registry import check_name, known_to_differ
from recsim_mnar.estimators.off_policy.stated import Stated, refuse_outside
from recsim_mnar.log.column_files import LogColumns, LogFile, column_names
from recsim_mnar.log.parts import Parts
from recsim_mnar.numerics.memory import MemoryLimit

if TYPE_CHECKING:
    from rich.table import Table

Record = dict[str, Any]
Gather = Callable[[LogFile, BlockQuestion, int], Gathered | None]

UNSUPPORTED = "_unsupported"

_BLOCK_ROWS = 1 << 19
"""Rows that are read at a time."""
_LEAST_ROWS = 1 << 15
_ROW_BYTES = 56
"""Of a number of a row while it is decoded, picked and cut: some copies, and what allocators keep (measured)."""
_KEPT_BYTES = 28
"""Of a number of a row where all rows are held (measured)."""
_SORTED_BYTES = 3 << 28
"""Of rows that are sorted at a time where users come in no order, and nobody says how much memory there is."""


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
    unsupported: Sequence[str] = (),
    limit: MemoryLimit | None = None,
    gather: Gather | None = None,
    **stated: Any,
) -> list[Record]:
    """Estimate the value of each target policy from a log file.

    Only the columns named are read; ids of a CSV file that are not 64-bit integers are compared as text. Where the file
    has a column ``event`` its bandit rows are used, otherwise all rows.

    Parquet and Arrow files are read in blocks of rows where moments suffice (ips, clipped_ips, snips and differences):
    memory does not grow with the log, and the estimates have the bits of all rows at once. Other estimators need all
    rows in memory.

    Args:
        path: a Parquet or CSV file, or a folder of such parts (of one kind; read in the order of their names).
        targets: columns, each a policy's probability of the logged action.
        baseline: such a column too; adds one record a target for the difference from it (ips, clipped_ips and snips; an
            error where none of them is asked for). The column of propensities is one: the policy that logged the rows.
        estimators: names of :data:`recsim_mnar.estimators.ESTIMATORS`, or ``package.module:function``.
        clip: weights of the clipped estimators are cut there; None for no clipping.
        cluster: column of the unit whose rows depend on each other; None for ``user`` where there is such a column.
        level: nominal coverage of the intervals.
        interval: as in :func:`recsim_mnar.estimators.estimate_value`; differences always use "auto".
        reward: column of rewards.
        propensity: column of the logging policy's probability of the logged action.
        q_logged: column of a reward model's value of the logged action, for dr and its kin.
        q_target: column of its mean under the target policy.
        unsupported: columns of the targets' mass where the logging probability is 0, in the order of the targets and
            then the baseline; without them a column named as the target with ``_unsupported`` behind it is taken where
            there is one (`recsim-mnar replay` writes it).
        limit: of the memory that the process may take; None for what the machine has left.
        gather: reads parts side by side where moments suffice, see
            :func:`recsim_mnar.estimators.off_policy.from_parts.gather_parts`.
        **stated: full_support, reward_min, reward_max, weight_max, propensity_min, user_rows_max, as
            :func:`recsim_mnar.estimators.estimate_value`.

    Returns:
        Records with keys policy, estimator, value, low, high, level, method, n, ess, verdict (a sentence),
        verdict_level ("trust", "caution" or "do_not_use"), findings, diagnostics, and baseline
        for a difference, whose policy reads "target - baseline"; JSON types only.

    Raises:
        UserError: for files and values that are no data; one line with column, row and mend.
    """
    targets = list(dict.fromkeys(targets))
    check_question(targets, estimators, baseline)
    check_level(level)
    check_clip(clip)
    known = Stated(**stated)
    policies = targets if baseline is None or baseline in targets else [*targets, baseline]
    extra = [name for name in (q_logged, q_target) if name is not None]
    parts = Parts.of(path)
    lost = _missing_columns(parts, policies, unsupported)
    file = LogFile.open(
        parts, [*policies, *extra, *lost.values()], cluster=cluster, reward=reward, propensity=propensity
    )
    limit = limit or MemoryLimit()
    reason = _why_whole(file, estimators, interval)
    if not reason:
        compared = [] if baseline is None else [name for name in targets if name != baseline]
        question = BlockQuestion(
            reward, propensity, policies, baseline, compared, check_clip(clip), lost, known, file.cluster is not None
        )
        return _from_blocks(file, question, estimators, level, interval, limit, gather)
    limit.hold(_bytes_of_all(file), f"{path}: {reason} needs all rows in memory, and")
    log = file.read()
    for name in policies:
        check_rows(log.reward, log.propensity, log.others[name], (reward, propensity, name), log.numbers)
        known.check(log.others[name], log.propensity, (name, propensity), log.numbers)
    refuse_outside(log.reward, known.reward_min, known.reward_max, reward, log.numbers)
    named = {"q_logged": q_logged, "q_target": q_target}
    models = {key: log.others[name] for key, name in named.items() if name is not None}
    return estimate_columns(
        log,
        targets,
        baseline=baseline,
        estimators=estimators,
        clip=clip,
        level=level,
        interval=interval,
        models=dict.fromkeys(policies, models),
        missing={name: log.others[lost[name]] for name in lost},
        made=file.provenance,
        **stated,
    )


def _why_whole(file: LogFile, estimators: Sequence[str], interval: str) -> str:
    """What needs all rows of a file in memory, in words; empty where it can be read in blocks."""
    return needs_all_rows(estimators, interval) or ("" if file.in_blocks else "a file of this kind")


def _bytes_of_all(file: LogFile) -> float:
    """About what all rows take while they are estimated from."""
    rows = file.n_rows
    if rows is None:
        return 3.0 * sum(part.stat().st_size for part in file.parts.files)
    return rows * _KEPT_BYTES * (len(file.names) + 3.0)


def _from_blocks(
    file: LogFile,
    question: BlockQuestion,
    estimators: Sequence[str],
    level: float,
    interval: str,
    limit: MemoryLimit,
    gather: Gather | None,
) -> list[Record]:
    """The records of :func:`estimate_file`, block by block."""
    a_row = _ROW_BYTES * (len(file.names) + 3.0)
    rows = limit.count(a_row, _LEAST_ROWS, _BLOCK_ROWS, f"estimate {file.path}")
    sorted_rows = limit.count(a_row, _LEAST_ROWS, int(_SORTED_BYTES / a_row), f"estimate {file.path}")
    found = None if gather is None else gather(file, question, rows)
    found = found or gather_blocks(lambda: file.blocks(rows), question, sorted_rows)
    made = file.provenance
    records = []
    for name in question.policies:
        for estimator in estimators:
            estimate = found.value(name, estimator, level=level, interval=interval)
            records.append(record_of(name, with_adaptive_findings(estimate, made, name)))
    for name in question.compared:
        both = (name, question.baseline or "")
        for estimator in estimators:
            estimate = with_adaptive_findings(found.difference(name, estimator, level=level), made, *both)
            record = record_of(f"{name} - {question.baseline}", estimate)
            records.append(record | {"baseline": question.baseline})
    return records


def estimate_columns(
    log: LogColumns,
    targets: Sequence[str],
    *,
    baseline: str | None = None,
    estimators: Sequence[str] = ("clipped_ips",),
    clip: float | None = 15.0,
    level: float = 0.95,
    interval: str = "auto",
    models: Mapping[str, Mapping[str, Any]] | None = None,
    missing: Mapping[str, Any] | None = None,
    made: Mapping[str, Any] | None = None,
    **stated: Any,
) -> list[Record]:
    """Estimate the value of each target policy from columns that were read and checked.

    Args:
        log: with a column of ``others`` for each policy: its probability of the logged action.
        targets: names of such columns.
        baseline: likewise.
        estimators: as :func:`estimate_file`.
        clip: likewise.
        level: likewise.
        interval: likewise.
        models: by policy, the arrays ``q_logged`` and ``q_target`` of its reward model; where some policies have one,
            those without get no estimate that needs it.
        missing: by policy, its mass (n,) where the logging probability is 0.
        made: provenance of the log.
        **stated: as :func:`estimate_file`.

    Returns:
        As :func:`estimate_file`.

    Raises:
        UserError: as :func:`recsim_mnar.estimators.estimate_value`.
    """
    common: dict[str, Any] = {"clip": clip, "cluster": log.cluster, "level": level, **stated}
    models, missing, made = models or {}, missing or {}, made or {}
    policies = targets if baseline is None or baseline in targets else [*targets, baseline]
    # The policy that logged the rows takes nothing that it cannot take.
    today = [name for name in policies if log.others[name] is log.propensity]
    missing = {**{name: np.zeros(len(log.reward)) for name in today}, **missing}
    records = []
    for name in policies:
        for estimator in estimators:
            if check_name(estimator).needs and models and name not in models:
                continue
            given: Mapping[str, Any] = models.get(name, {}) if check_name(estimator).needs else {}
            estimate = estimate_value(
                log.reward, log.propensity, log.others[name], estimator=estimator, interval=interval,
                unsupported=missing.get(name), **given, **common,
            )  # fmt: skip
            records.append(record_of(name, with_adaptive_findings(estimate, made, name)))
    compared = [] if baseline is None else [name for name in targets if name != baseline]
    for name in compared:
        for estimator in (each for each in estimators if check_name(each).from_moments):
            assert baseline is not None
            estimate = difference(
                log.reward, log.propensity, log.others[name], log.others[baseline], estimator=estimator,
                unsupported=missing.get(name), baseline_unsupported=missing.get(baseline), **common,
            )  # fmt: skip
            estimate = with_adaptive_findings(estimate, made, name, baseline)
            records.append(record_of(f"{name} - {baseline}", estimate) | {"baseline": baseline})
    return records


def check_question(targets: Sequence[str], estimators: Sequence[str], baseline: str | None) -> None:
    """Refuse a question without a target or estimator, or for a difference that none of the estimators knows.

    Raises:
        UserError: one of these, or an unknown estimator.
    """
    if not targets:
        raise UserError("no target column; name at least one, made by `recsim-mnar replay` for instance")
    if not estimators:
        raise UserError("no estimator; name at least one, for instance clipped_ips")
    for name in estimators:
        check_name(name)
    if baseline is not None and not set(estimators) & set(known_to_differ()):
        raise UserError(
            f"no difference from the baseline {baseline!r} with {', '.join(estimators)}: "
            f"it is known for {', '.join(known_to_differ())}; name one of these too, or no baseline"
        )


def _missing_columns(parts: Parts, policies: Sequence[str], named: Sequence[str]) -> dict[str, str]:
    """The column of each policy's missing mass, where there is one.

    Raises:
        UserError: another number of columns than policies.
    """
    if not named:
        known = column_names(parts)
        return {name: name + UNSUPPORTED for name in policies if name + UNSUPPORTED in known}
    if len(named) != len(policies):
        raise UserError(
            f"{len(named)} columns of missing mass for {len(policies)} policies: name one for each of "
            f"{', '.join(policies)}"
        )
    return dict(zip(policies, named, strict=True))


def records_table(records: Sequence[Record]) -> Table:
    """The records as a table for a person, one line a policy and estimator, best value first as given."""
    from rich.markup import escape
    from rich.table import Table

    level = f"{records[0]['level'] * 100:g} %" if records else "level"
    table = Table(title="Off-policy estimates", title_justify="left")
    for name in ("policy", "estimator"):
        table.add_column(name, no_wrap=True)
    for name in ("value", f"{level} low", f"{level} high", "rows", "effective"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    colours = {"trust": "green", "caution": "yellow", "do_not_use": "red"}
    for record in records:
        grade = record["verdict_level"]
        table.add_row(
            escape(printable(record["policy"])),
            escape(printable(record["estimator"])),
            *(f"{record[key]:.4g}" for key in ("value", "low", "high")),
            f"{record['n']:,}",
            f"{record['ess']:,.0f}",
            escape(printable(record["verdict"])),
            style=colours.get(grade),
        )
    without = [r["estimator"] for r in records if r["estimator"] not in known_to_differ()]
    if without and any("baseline" in record for record in records):
        names = escape(printable(", ".join(dict.fromkeys(without))))
        table.caption = f"No difference from the baseline with {names}: it is known for {', '.join(known_to_differ())}."
        table.caption_justify = "left"
    return table


def record_of(policy: str, estimate: Estimate) -> Record:
    """An estimate as a record of :func:`estimate_file`."""
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
        **estimate.verdict.to_dict(),
        "diagnostics": estimate.diagnostics,
    }
