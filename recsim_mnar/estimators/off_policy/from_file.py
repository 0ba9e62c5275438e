"""The estimates of a log file: one record per policy and estimator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import Estimate, difference, estimate_value
from recsim_mnar.estimators.off_policy.from_blocks import BlockQuestion, Gathered, gather_blocks, needs_all_rows
from recsim_mnar.estimators.off_policy.inputs import check_clip, check_level, check_rows, level_of_best
from recsim_mnar.estimators.off_policy.refuters import Shown, with_refuters
from recsim_mnar.estimators.off_policy.scores import check_name, known_to_differ
from recsim_mnar.estimators.off_policy.sentence import best_record, candidates, leading
from recsim_mnar.estimators.off_policy.stated import (
    Stated,
    known_bound,
    limit_column,
    refuse_outside,
    taken,
    with_adaptive_findings,
)
from recsim_mnar.estimators.off_policy.written import ByRows, Record, tolerated, weight_tolerance, with_tolerance
from recsim_mnar.kernels.memory import MemoryLimit
from recsim_mnar.log.column_files import LogColumns, LogFile, column_names, provenance_of
from recsim_mnar.tables.parts import Parts

Gather = Callable[[LogFile, BlockQuestion, int], Gathered | None]
Answering = Callable[..., Estimate | None]

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
    estimators: Sequence[str] = ("ips", "snips"),
    clip: float | None = None,
    cluster: str | None = None,
    level: float = 0.95,
    interval: str = "auto",
    reward: str = "reward",
    propensity: str = "propensity",
    q_logged: str | None = None,
    q_target: str | None = None,
    unsupported: Sequence[str] = (),
    reward_limit: str | None = None,
    limit: MemoryLimit | None = None,
    gather: Gather | None = None,
    refute: bool = False,
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
        baseline: such a column too; adds one record per target for the difference from it (ips, clipped_ips and snips;
            an error where none of them is asked for). The column of propensities, or "today" where no column has that
            name, is the policy that logged the rows.
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
        reward_limit: column of the largest reward possible of each row's action.
        limit: of the memory that the process may take; None for what the machine has left.
        gather: reads parts side by side where moments suffice, see
            :func:`recsim_mnar.estimators.off_policy.from_parts.gather_parts`.
        refute: run the refuters for each target (:func:`recsim_mnar.estimators.off_policy.refuters.refute`), with the
            columns ``action`` and ``time`` where the file has them; all rows are held in memory.
        **stated: full_support, reward_min, reward_max, weight_max, propensity_min, user_rows_max, as
            :func:`recsim_mnar.estimators.estimate_value`. Where neither of the bounds of the weights is given, the
            least propensity that the provenance of a replayed log knows is taken (``propensity_min_taken`` in the
            diagnostics).

    Returns:
        Records with keys policy, estimator, value, low, high, level, method, n, ess, verdict (a sentence),
        verdict_level ("trust", "caution" or "do_not_use"), findings, diagnostics, today (whether the policy, or the
        baseline of a difference, logged the rows), leads (whether it is what a person reads first of its policy), and
        baseline for a difference, whose policy reads "target - baseline"; JSON types only. With ``refute`` the leading
        value of each target has refuters, a list of findings. The best of several policies
        has best_of too: policies, level, low, high, verdict, verdict_level and findings at a level corrected for the
        choice. :func:`recsim_mnar.estimators.off_policy.sentence.sentence_of` says what they come to.

    Raises:
        UserError: for files and values that are no data; one line with column, row and mend.
    """
    targets = list(dict.fromkeys(targets))
    check_question(targets, estimators, baseline)
    check_level(level)
    check_clip(clip)
    known = Stated(**stated)
    parts = Parts.of(path)
    bound = known_bound(provenance_of(parts), stated, propensity)
    if bound is not None:
        stated |= {"propensity_min": bound}
        known = Stated(**stated)
    baseline = todays(baseline, column_names(parts), propensity) if baseline is not None else None
    policies = targets if baseline is None or baseline in targets else [*targets, baseline]
    extra = [name for name in (q_logged, q_target, reward_limit) if name is not None]
    extra += [name for name in ("action", "time") if refute and name in column_names(parts) and name not in extra]
    lost = _missing_columns(parts, policies, unsupported)
    file = LogFile.open(
        parts, [*policies, *extra, *lost.values()], cluster=cluster, reward=reward, propensity=propensity
    )
    limit = limit or MemoryLimit()
    reason = _why_whole(file, estimators, interval) or ("--refute" if refute else "")
    if not reason:
        compared = [] if baseline is None else [name for name in targets if name != baseline]
        question = BlockQuestion(
            reward, propensity, policies, baseline, compared, check_clip(clip), lost, known, file.cluster is not None,
            reward_limit,
        )  # fmt: skip
        return taken(_from_blocks(file, question, estimators, level, interval, limit, gather), bound)
    limit.hold(_bytes_of_all(file), f"{path}: {reason} needs all rows in memory, and")
    log = file.read()
    for name in policies:
        check_rows(log.reward, log.propensity, log.others[name], (reward, propensity, name), log.numbers)
    refuse_outside(log.reward, known.reward_min, known.reward_max, reward, log.numbers)
    limits = None
    if reward_limit is not None:
        limits = limit_column(log.others[reward_limit], log.reward, (reward, reward_limit), log.numbers)
    named = {"q_logged": q_logged, "q_target": q_target}
    models = {key: log.others[name] for key, name in named.items() if name is not None}
    records = estimate_columns(
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
        reward_limit=limits,
        **stated,
    )
    if refute:
        shown = Shown(_ids(log.others.get("action")), time=log.others.get("time"), least=bound)
        records = with_refuters(records, targets, log, shown)
    return taken(records, bound)


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
    asked = Asked(
        question.policies,
        estimators,
        level,
        question.baseline,
        question.compared,
        {question.propensity},
        file.provenance,
    )
    return records_of(asked, found.value, found.difference)


def estimate_columns(
    log: LogColumns,
    targets: Sequence[str],
    *,
    baseline: str | None = None,
    estimators: Sequence[str] = ("ips", "snips"),
    clip: float | None = None,
    level: float = 0.95,
    interval: str = "auto",
    models: Mapping[str, Mapping[str, Any]] | None = None,
    missing: Mapping[str, Any] | None = None,
    made: Mapping[str, Any] | None = None,
    largest: Mapping[str, float] | None = None,
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
        largest: by policy, its largest probability of any action, where all of them are known.
        **stated: as :func:`estimate_file`, and the column ``reward_limit`` (n,).

    Returns:
        As :func:`estimate_file`.

    Raises:
        UserError: as :func:`recsim_mnar.estimators.estimate_value`.
    """
    common: dict[str, Any] = {"clip": clip, "cluster": log.cluster, **stated}
    models, missing, made = models or {}, missing or {}, made or {}
    policies = targets if baseline is None or baseline in targets else [*targets, baseline]
    # The policy that logged the rows takes nothing that it cannot take.
    today = [name for name in policies if log.others[name] is log.propensity]
    missing = {**{name: np.zeros(len(log.reward)) for name in today}, **missing}

    def most(*names: str) -> float | None:
        """The largest probability of any action, where it is known of all policies; that of today has no weights."""
        found = [(largest or {}).get(name) for name in names if name not in today]
        known = [each for each in found if each is not None]
        return max(known) if known and len(known) == len(found) else None

    def value(name: str, estimator: str, *, level: float) -> Estimate | None:
        needs = check_name(estimator).needs
        if needs and models and name not in models:
            return None
        given: Mapping[str, Any] = models.get(name, {}) if needs else {}
        return estimate_value(
            log.reward, log.propensity, log.others[name], estimator=estimator, interval=interval, level=level,
            unsupported=missing.get(name), target_max=most(name), **given, **common,
        )  # fmt: skip

    def apart(name: str, estimator: str, *, level: float) -> Estimate:
        assert baseline is not None
        return difference(
            log.reward, log.propensity, log.others[name], log.others[baseline], estimator=estimator, level=level,
            unsupported=missing.get(name), baseline_unsupported=missing.get(baseline),
            target_max=most(name, baseline), **common,
        )  # fmt: skip

    def off_by(name: str, **ends: Any) -> float:
        return weight_tolerance(log.reward, log.propensity, log.others[name], **ends)

    compared = [] if baseline is None else [name for name in targets if name != baseline]
    return records_of(Asked(policies, estimators, level, baseline, compared, set(today), made, off_by), value, apart)


@dataclass(frozen=True)
class Asked:
    """What is asked of a log, however its rows are read.

    Attributes:
        policies: whose values are estimated.
        estimators: names.
        level: of the intervals.
        baseline: one of the policies, or None.
        compared: policies whose differences from the baseline are estimated.
        today: names of the policy that logged the rows.
        made: provenance of the log.
        off_by: where rows are at hand, the tolerance of a policy by them.
    """

    policies: Sequence[str]
    estimators: Sequence[str]
    level: float
    baseline: str | None = None
    compared: Sequence[str] = ()
    today: Collection[str] = ()
    made: Mapping[str, Any] = field(default_factory=dict)
    off_by: ByRows | None = None


def records_of(asked: Asked, value: Answering, apart: Answering | None = None) -> list[Record]:
    """One record per policy and estimator, then one per difference and estimator; see :func:`estimate_file`.

    The best of several policies gets ``best_of``: its interval and verdict at a level corrected for the choice.

    Args:
        asked: what is asked.
        value: the estimate of a policy by an estimator at a level; None where that estimator has none.
        apart: likewise of the difference from the baseline.
    """
    rows: list[tuple[str, str | None, Any]] = [(name, None, value) for name in asked.policies]
    rows += [(name, asked.baseline, apart) for name in asked.compared]
    records: list[Record] = []
    again: dict[tuple[str, str | None], Any] = {}
    for name, other, ask in rows:
        for estimator in asked.estimators:
            estimate = ask(name, estimator, level=asked.level) if _answers(estimator, other) else None
            if estimate is None:
                continue
            of_it = {} if other is None else {"baseline": other}
            called = name if other is None else f"{name} - {other}"
            estimate = with_adaptive_findings(estimate, asked.made, *(n for n in (name, other) if n is not None))
            records.append(_record(called, estimate, (other or name) in asked.today) | of_it)
            again[called, other] = functools.partial(ask, name)
    records = [with_tolerance(record, asked.off_by) for record in leading(records)]
    best, number = best_record(records), len(candidates(records))
    if best is not None and number > 1:
        at = level_of_best(asked.level, number)
        estimate = again[best["policy"], best.get("baseline")](best["estimator"], level=at)
        assert estimate is not None
        names = best["policy"].split(" - ") if "baseline" in best else [best["policy"]]
        estimate = with_adaptive_findings(estimate, asked.made, *names)
        ends = {"policies": number, "level": at, "low": estimate.low, "high": estimate.high}
        best["best_of"] = ends | tolerated(best | ends, asked.off_by) | estimate.verdict.to_dict()
    return records


def _answers(estimator: str, baseline: str | None) -> bool:
    """Whether an estimator knows differences, where one is asked for."""
    return baseline is None or check_name(estimator).from_moments


def todays(baseline: str, columns: Sequence[str], propensity: str) -> str:
    """The baseline's column: that of propensities for ``today``, unless a column has that name."""
    return propensity if baseline == "today" and "today" not in columns else baseline


def check_question(targets: Sequence[str], estimators: Sequence[str], baseline: str | None) -> None:
    """Refuse a question without a target or estimator, or for a difference that none of the estimators knows.

    Raises:
        UserError: one of these, or an unknown estimator.
    """
    if not targets:
        raise UserError("no target column; name at least one, made by `recsim-mnar replay` for instance")
    if not estimators:
        raise UserError("no estimator; name at least one, for instance ips")
    for name in estimators:
        check_name(name)
    if baseline is not None and not set(estimators) & set(known_to_differ()):
        raise UserError(
            f"no difference from the baseline {baseline!r} with {', '.join(estimators)}: "
            f"it is known for {', '.join(known_to_differ())}; name one of these too, or no baseline"
        )


def _ids(values: Any) -> Any:
    """Numbers as the ids that they are, where all of them are whole."""
    return values if values is None or np.any(values != np.rint(values)) else values.astype(np.int64)


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


def _record(policy: str, estimate: Estimate, today: bool) -> Record:
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
        "today": today,
    }
