"""From a file of one's own to estimates with verdicts, what was read and left out said beside them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.cross_fitted import cross_fitted_rewards, estimate_without_propensities
from recsim_mnar.estimators.off_policy.from_file import (
    UNSUPPORTED,
    Asked,
    check_question,
    estimate_columns,
    records_of,
    todays,
)
from recsim_mnar.estimators.off_policy.inputs import check_clip, check_level
from recsim_mnar.estimators.off_policy.item_propensities import item_findings
from recsim_mnar.estimators.off_policy.refuters import Shown, refuter_lines, with_findings, with_refuters
from recsim_mnar.estimators.off_policy.stated import (
    Stated,
    bound_lines,
    known_bound,
    limit_column,
    refuse_outside,
    taken,
)
from recsim_mnar.estimators.off_policy.written import Record
from recsim_mnar.estimators.verdict import Estimate, Finding, scaled
from recsim_mnar.log.column_files import LogColumns, provenance_of
from recsim_mnar.log.columns import Clusters
from recsim_mnar.own_log.bandit_file import BanditFile, Reading, kept_rows, read_bandit_file
from recsim_mnar.own_log.context import as_numbers, labels
from recsim_mnar.own_log.loggers import MANY, logger_findings
from recsim_mnar.own_log.target_file import Distributions, TargetFile, Targets
from recsim_mnar.tables.rows import Ids
from recsim_mnar.tables.table_file import TableFile

MANY_DROPPED = 0.05
"""Share of rows left out from which the verdict says so."""


@dataclass(frozen=True)
class Question:
    """What is asked of a log.

    Attributes:
        targets: columns of the log or of the target file; one name, or none, where that file has a column an action.
        baseline: likewise; "today", where no column has that name, for the policy that logged the rows.
        estimators: names.
        clip: weights of the clipped estimators are cut there; None for no clipping.
        level: of the intervals.
        target_file: a second file, and ``on`` the column by which its rows are found.
        on: see ``target_file``.
        fit_reward_model: fit one, cross-fitted by user, for dm, dr and their kin.
        q_logged: column of a reward model's value of the logged action.
        q_target: column of its mean under the target.
        unsupported: columns of the policies' missing mass.
        reward_limit: column of the largest reward possible of each row's action.
        stated: full_support, reward_min, ..., as :func:`recsim_mnar.estimators.estimate_value`.
        refute: run the refuters, with the columns of actions, times and the first of the context that there are.
    """

    targets: Sequence[str] = ()
    baseline: str | None = None
    estimators: Sequence[str] = ("ips", "snips")
    clip: float | None = None
    level: float = 0.95
    target_file: str | os.PathLike[str] | None = None
    on: str | None = None
    fit_reward_model: bool = False
    q_logged: str | None = None
    q_target: str | None = None
    unsupported: Sequence[str] = ()
    reward_limit: str | None = None
    stated: Mapping[str, Any] = field(default_factory=dict)
    refute: bool = False


@dataclass(frozen=True)
class Answer:
    """Estimates of a file of one's own.

    Attributes:
        records: as :func:`recsim_mnar.estimators.off_policy.from_file.estimate_file`.
        lines: what was read, taken and left out, for a person.
        log: the rows that the estimates rest on, ``policies`` with those of the target file.
        propensities_known: whether the file has propensities.
    """

    records: list[Record]
    lines: list[str]
    log: BanditFile
    propensities_known: bool


def estimate_own_log(path: str | os.PathLike[str], question: Question, *, reading: Reading | None = None) -> Answer:
    """Estimate the value of target policies from a file of one's own.

    Args:
        path: CSV or Parquet, as :meth:`recsim_mnar.tables.table_file.TableFile.open`.
        question: what is asked.
        reading: what the user says of the file's columns and rows.

    Raises:
        UserError: for files, columns and values that are no data, in one line.
    """
    check_level(question.level)
    check_clip(question.clip)
    reading = reading or Reading()
    if (question.target_file is None) != (question.on is None):
        raise UserError(
            "--target-file and --on belong together: the second file, and the column by which its rows are found"
        )
    file = TableFile.open(path, "a log")
    if question.baseline is not None:
        question = replace(question, baseline=todays(question.baseline, file.names, "propensity"))
    policies = _policies(question)
    outside, second = _second_file(question, policies, file)
    inside = [name for name in policies if (name not in outside and name != "propensity") or name in file.names]
    names = [name for name in policies if name in inside or name in outside or name == "propensity"]
    reading = replace(reading, key=question.on, today=question.baseline, times=question.refute)
    if second is not None:
        names += [name for name in second.names if name not in names]
    targets = [name for name in names if name != question.baseline or name in question.targets]
    check_question(targets, question.estimators, question.baseline)
    lost = _missing_mass(question, names, file)
    given = (question.q_logged, question.q_target, question.reward_limit)
    others = [*(name for name in given if name is not None), *lost.values()]
    needs = ["action"] if question.fit_reward_model or (second is not None and second.by_action) else []
    needs += ["propensity"] if "propensity" in names else []
    log = _read(path, inside, reading, needs, others)
    found = Targets({}, [], np.zeros(len(log), np.bool_))
    if second is not None:
        found = second.read(log, drop_missing=reading.drop_missing)
        log, found = _joined(log, found, question, reading)
    if log.propensity is not None:
        # By either name today's policy is one array: so it is known for what it is.
        today = [name for name in names if name == log.columns["propensity"] or name not in log.policies]
        log.policies.update(dict.fromkeys(today, log.propensity))
    lines = [*log.lines, *found.lines]
    if question.refute and log.propensity is None:
        raise UserError("--refute: refuters need propensities. Name their column with --propensity-column")
    made = provenance_of(Path(path)) if not file.is_text else {}
    bound = known_bound(made, question.stated, log.columns["propensity"] if log.propensity is not None else "")
    if bound is not None:
        question = replace(question, stated={**question.stated, "propensity_min": bound})
    stated = Stated(**question.stated)
    refuse_outside(log.reward, stated.reward_min, stated.reward_max, log.columns["reward"], log.row_numbers)
    limits = None
    if question.reward_limit is not None:
        columns_of_both = (log.columns["reward"], question.reward_limit)
        limits = limit_column(log.others[question.reward_limit], log.reward, columns_of_both, log.row_numbers)
    if log.propensity is None:
        return Answer(_without_propensities(log, targets, question, lines), lines, log, False)
    models_of = _models(log, found, names, question, lines)
    columns = _columns_of(log)
    records = estimate_columns(
        columns,
        targets,
        baseline=question.baseline,
        estimators=question.estimators,
        clip=question.clip,
        level=question.level,
        models=models_of,
        missing={name: log.others[column] for name, column in lost.items()},
        made=made,
        largest={name: law.largest() for name, law in found.distributions.items()},
        reward_limit=limits,
        **question.stated,
    )
    records = _with_findings(taken(records, bound), log, targets, lines)
    if question.refute:
        records = with_refuters(records, targets, columns, _shown(log, bound))
    lines += bound_lines(records) + refuter_lines(records)
    return Answer(records, lines, log, True)


def _shown(log: BanditFile, bound: float | None) -> Shown:
    """What refuters use beside the columns of an estimate."""
    context = next(iter(log.context.values()), None)
    time = log.others.get(log.columns["time"]) if "time" in log.columns else None
    return Shown(_values(log.action), _values(context), time, bound)


def _values(column: Any) -> Any:
    """Ids or numbers (n,) of a column."""
    return column.ids[column.codes] if isinstance(column, Ids) else column


def _policies(question: Question) -> list[str]:
    named = [*question.targets, *([question.baseline] if question.baseline else [])]
    if not named and question.target_file is None:
        raise UserError("no target column; name at least one with --target, or give --target-file FILE --on KEY")
    return list(dict.fromkeys(named))


def _second_file(question: Question, policies: Sequence[str], file: TableFile) -> tuple[list[str], TargetFile | None]:
    """The policies that the second file gives, and the file."""
    if question.target_file is None or question.on is None:
        return [], None
    outside = [name for name in policies if name not in file.names and name != "propensity"]
    return outside, TargetFile.open(question.target_file, question.on, outside)


def _read(
    path: str | os.PathLike[str], inside: Sequence[str], reading: Reading, needs: Sequence[str], others: Sequence[str]
) -> BanditFile:
    """The log; where it has no propensities, with what they are estimated from."""
    log = read_bandit_file(path, inside, reading=reading, needs=needs, others=others)
    if log.propensity is None and log.action is None:
        log = read_bandit_file(path, inside, reading=reading, needs=[*needs, "action"], others=others)
    return log


def _joined(log: BanditFile, found: Targets, question: Question, reading: Reading) -> tuple[BanditFile, Targets]:
    """The decisions that the second file has targets for."""
    number = int(found.absent.sum())
    if number and not reading.drop_missing:
        rows = log.row_numbers[np.flatnonzero(found.absent)[:3]]
        listed = ", ".join(str(row) for row in rows) + (", ..." if number > len(rows) else "")
        raise UserError(
            f"{log.source}: {number:,} of {len(log):,} rows have no targets in {question.target_file} (rows {listed}); "
            "--drop-missing leaves them out"
        )
    log.policies.update(found.policies)
    if number:
        keep = ~found.absent
        found.lines.append(f"{number:,} rows have no targets in {question.target_file} and are left out")
        log.counts["dropped_without_target"] = number
        log.counts["kept"] = int(keep.sum())
        laws = {
            name: Distributions(law.table, law.rows[keep], law.actions[keep], law.candidates, law.n_actions)
            for name, law in found.distributions.items()
        }
        log = kept_rows(log, keep)
        found = Targets(log.policies, found.lines, found.absent[keep], laws)
    return log, found


def _columns_of(log: BanditFile) -> LogColumns:
    assert log.propensity is not None
    return LogColumns(log.reward, log.propensity, _clusters(log), log.policies, log.row_numbers)


def _clusters(log: BanditFile) -> Clusters | None:
    if log.user is None:
        return None
    codes = log.user.codes
    if np.any(codes[1:] < codes[:-1]):
        # Text ids stand in another order than the alphabet's, often user by user all the same: nothing to sort then.
        import pandas as pd

        met = pd.factorize(codes)[0].astype(np.int64)
        codes = met if np.all(met[1:] >= met[:-1]) else codes
    return Clusters.of(codes, len(log), log.columns["user"])


def _missing_mass(question: Question, names: Sequence[str], file: TableFile) -> dict[str, str]:
    """Column of each policy's missing mass."""
    if not question.unsupported:
        return {name: name + UNSUPPORTED for name in names if name + UNSUPPORTED in file.names}
    if len(question.unsupported) != len(names):
        raise UserError(
            f"{len(question.unsupported)} columns of missing mass for {len(names)} policies: name one for each of "
            f"{', '.join(names)}"
        )
    return dict(zip(names, question.unsupported, strict=True))


def _models(
    log: BanditFile, found: Targets, names: Sequence[str], question: Question, lines: list[str]
) -> dict[str, dict[str, Any]]:
    """The reward model's columns of each policy: those of the file, or of a model fitted here."""
    given = {"q_logged": question.q_logged, "q_target": question.q_target}
    own = {key: log.others[name] for key, name in given.items() if name is not None}
    if not question.fit_reward_model:
        return dict.fromkeys(names, own)
    context, left = as_numbers(log.context, len(log))
    models = {}
    for name in names:
        if name not in found.distributions and name == question.baseline:
            lines.append(f"no reward model for {name}, whose probability of every action is not known")
            continue
        if name not in found.distributions:
            raise UserError(
                f"--fit-reward-model needs {name}'s probability of every action: give --target-file with a column a "
                "candidate action"
            )
        law = found.distributions[name]
        q_logged, q_target = cross_fitted_rewards(
            log.reward,
            law.actions,
            law,
            n_actions=law.n_actions,
            context=context,
            cluster=None if log.user is None else log.user.codes,
        )
        models[name] = {"q_logged": q_logged, "q_target": q_target}
    used = ", ".join(name for name in log.context if name not in left)
    lines.append(
        "reward model: each action's mean"
        + (f" and a linear regression on {used}" if used else "; --context-columns adds what the policy saw")
        + ", fitted in 3 folds of users"
    )
    if left:
        lines.append(f"reward model: {', '.join(left)} left out, too many values")
    return models


def _without_propensities(
    log: BanditFile, targets: Sequence[str], question: Question, lines: list[str]
) -> list[Record]:
    """Estimates under estimated propensities."""
    if question.baseline is not None:
        raise UserError(
            "no difference from a baseline without propensities: --propensity-column names their column, or leave "
            "--baseline away"
        )
    assert log.action is not None
    context, said = labels(log.context, len(log))
    if log.logger is not None:
        context = np.unique(context * (log.logger.number + 1) + log.logger.codes, return_inverse=True)[1].reshape(-1)
        said.append(f"{log.columns['logger']} ({log.logger.number} loggers)")
    within = f" within {', '.join(said)}" if said else "; --context-columns names what the logging policy saw"
    lines.append(
        "no propensity column is recognised, so propensities are estimated: each action's share of the rows" + within
    )
    kept = {key: value for key, value in question.stated.items() if key in ("full_support", "reward_min", "reward_max")}

    def value(name: str, estimator: str, *, level: float) -> Estimate:
        return estimate_without_propensities(
            log.reward,
            log.action.codes,  # type: ignore[union-attr]  # asserted above
            log.policies[name],
            context=context if said else None,
            cluster=None if log.user is None else log.user.codes,
            estimator=estimator,
            clip=question.clip,
            level=level,
            **kept,
        )

    records = records_of(Asked(targets, question.estimators, question.level), value)
    return _with_findings(records, log, targets, lines)


def _with_findings(records: list[Record], log: BanditFile, targets: Sequence[str], lines: list[str]) -> list[Record]:
    """The records with what is known of the file: rows left out, rows taken as independent, loggers."""
    every = _of_the_file(log)
    by_policy: dict[str, list[Finding]] = {}
    if log.logger is not None and log.propensity is not None and 1 < log.logger.number <= MANY:
        for name in targets:
            by_policy[name], said = logger_findings(
                log.logger, name, log.reward, log.propensity, log.policies[name], log.user
            )
            lines += said
        lines.append(
            f"{log.logger.number} loggers (column {log.columns['logger']}) are pooled, each row with the propensity of "
            "its own"
        )
    found = []
    for record in records:
        more = [*every, *by_policy.get(record["policy"].split(" - ")[0], [])]
        found.append(with_findings(record, more))
    return found


def _propensities_by_item(log: BanditFile) -> list[Finding]:
    """What the log proves wrong of its propensities item by item, in each level of a context column if not in all."""
    if log.action is None or log.propensity is None:
        return []
    shown, users = np.asarray(log.action.ids)[log.action.codes], _clusters(log)
    for name, values in [("", None), *log.context.items()]:
        found = item_findings(shown, log.propensity, users, context=_values(values), context_name=name)
        if found:
            return found
    return []


def _of_the_file(log: BanditFile) -> list[Finding]:
    found = _propensities_by_item(log)
    left = log.counts.get("dropped_missing", 0) + log.counts.get("dropped_without_target", 0)
    if left:
        share = left / (left + len(log))
        message = f"{100 * share:.2g} % of the rows were left out because values are missing"
        action = "find out whether they are missing at random, or log them"
        found.append(Finding("rows_dropped", scaled(share, MANY_DROPPED, np.inf), share, message, action))
    again = log.counts.get("duplicates", 0) - log.counts.get("dropped_duplicates", 0)
    if again:
        message = f"{again:,} rows repeat an earlier row"
        share = again / len(log)
        found.append(
            Finding(
                "rows_repeated", scaled(share, MANY_DROPPED, np.inf), share, message, "leave them out (deduplicate)"
            )
        )
    return found
