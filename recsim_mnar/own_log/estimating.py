"""Estimate the values of target policies, with verdicts, from a log file."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from recsim_mnar.answers.records import (
    EstimateRequest,
    PolicyRows,
    baseline_column,
    bound_lines,
    check_question,
    known_bound,
    missing_columns,
    records_of,
    with_findings,
    with_known_bound,
)
from recsim_mnar.answers.weights import RefusedColumnError, Segments, tolerance_of, weight_excess
from recsim_mnar.answers.words import Record, segment_summary
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.cross_fitted import cross_fitted_rewards, estimate_without_propensities
from recsim_mnar.estimators.facts import (
    PRECISION,
    Facts,
    check_clip,
    check_precision,
    check_rows,
    limit_column,
    refuse_outside,
)
from recsim_mnar.estimators.from_columns import estimate_value
from recsim_mnar.estimators.scores import check_name
from recsim_mnar.estimators.verdict import Estimate, Finding
from recsim_mnar.kernels.checks import level_of
from recsim_mnar.log.columns import Floats, refuse_rows
from recsim_mnar.log.table import provenance_of
from recsim_mnar.own_log.bandit_file import BLOCK_ROWS, BanditFile, Reading
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.blocks import BlockQuestion, gather_blocks, needs_all_rows
from recsim_mnar.own_log.file_findings import (
    as_numbers,
    findings_in_order,
    labels,
    of_the_rows,
    refuse_refuters,
    refuter_lines,
    values_of,
    with_file_findings,
    with_likely_faults,
    with_refuters,
)
from recsim_mnar.own_log.target_file import TargetFile, Targets
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import NAMED, find_columns, likely_columns
from recsim_mnar.tables.values import listed, spelled_alike

OWN = ("user", "step", "event", "propensity", "reward")
"""Columns by which a log that this package wrote is recognised."""
_CHOSEN = ("action", "reward", "propensity")
"""Roles of columns that cannot define segments."""


def is_own_schema(file: TableFile) -> bool:
    """Return True if a table has the columns of this package's logs, and no column of row weights."""
    return set(OWN) <= set(file.names) and "weight" not in find_columns("", file.names, optional=("weight",))


class Usual(list[str]):
    """Names of the default estimators; a list of this type tells that the user named none."""


@dataclass(frozen=True)
class Question:
    """Policies whose values to estimate from a log, and the settings of the estimates.

    Attributes:
        targets: columns of target policies in the log or the target file; if that file has a column per action, at most
            one name, which is then the policy's.
        baseline: column of the policy with which targets are compared; "today", unless a column has that name, for the
            logging policy; None for no comparison.
        estimators: names of estimators.
        clip: largest weight of the clipped estimators; None for no clipping.
        level: nominal coverage of the intervals.
        target_file: path of a second file with the targets; None if all are in the log.
        on: column, in both files, by which rows of the target file are found; None if its rows are the log's in order.
        fit_reward_model: True to fit a reward model, cross-fitted by user, for dm, dr and similar estimators.
        reward_limit: column of the largest possible reward of each row's action.
        stated: known facts about the log, such as full_support or reward_min, by the names of the arguments of
            :func:`recsim_mnar.estimators.estimate_value`.
        interval: kind of interval of :func:`recsim_mnar.estimators.estimate_value`; differences always use "auto".
        keep_rows: True for an answer with all rows, which needs memory for them.
        needs: roles, besides the reward, that must have a column; with "propensity", propensities are never estimated.
        position_weights: for slates, the measured quantity: mean (per item shown), clicks (per slate) or dcg.
        assumption: for slates, the known model of users, one of those of
            :func:`recsim_mnar.estimators.rankings.estimate_ranking_value`; None if it is unknown.
        by: column of segments, whose leading estimates are added with intervals that hold jointly at ``level``.
        refute: True to run the refuters on the columns of actions and times, and on the first column of the context.
    """

    targets: Sequence[str] = ()
    baseline: str | None = None
    estimators: Sequence[str] = field(default_factory=lambda: Usual(("ips", "snips")))
    clip: float | None = None
    level: float = 0.95
    target_file: str | os.PathLike[str] | None = None
    on: str | None = None
    fit_reward_model: bool = False
    reward_limit: str | None = None
    stated: Mapping[str, Any] = field(default_factory=dict)
    by: str | None = None
    refute: bool = False
    position_weights: str = "mean"
    assumption: str | None = None
    interval: str = "auto"
    keep_rows: bool = False
    needs: Sequence[str] = ()

    @property
    def named(self) -> list[str]:
        """The targets and the baseline."""
        return [*self.targets, *([self.baseline] if self.baseline else [])]


@dataclass(frozen=True)
class Answer:
    """Estimates from a log.

    Attributes:
        records: one dictionary of JSON types per policy and estimator, and per difference from the baseline. Its keys
            are policy ("target - baseline" for a difference), estimator, value, low, high, level, method, n, ess,
            verdict (a sentence), verdict_level ("trust", "caution" or "do_not_use"), findings, diagnostics, role
            ("target", "baseline", "today" or "difference"), today (True if the policy, or the baseline of a difference,
            logged the rows), leads (True for the record of its policy to read first) and, for a difference, baseline.
            With ``refute`` the leading value of each target also has refuters, a list of findings. The best of several
            policies has best_of: policies, level, low, high, verdict, verdict_level and findings at a level corrected
            for the choice. With ``by`` the leading differences have segments: by, and names of segments under worse,
            better, cannot_tell and do_not_use. :func:`recsim_mnar.answers.sentence.sentence_of` summarises records.
        lines: notes for a person on the columns used and the rows left out.
        log: rows behind the estimates, whose ``policies`` include those of the target file; None if they were read in
            blocks.
        segments: records of segments, with the further keys by, segment (None for rows without a value), intervals
            (number of intervals that hold jointly at level_of_all) and level (coverage of each).
        refused: errors of a column of segments that was refused; ``records`` do not depend on it.
    """

    records: list[Record]
    lines: list[str]
    log: BanditFile | None
    segments: list[Record] = field(default_factory=list)
    refused: list[RefusedColumnError] = field(default_factory=list)

    @property
    def weighed(self) -> bool:
        """True if rows have weights."""
        return self.log is not None and self.log.weight is not None

    def with_findings(self, findings: Sequence[Finding], *, first: bool = False) -> Answer:
        """Add findings to the verdict of every record."""
        records = [with_findings(record, findings, first=first) for record in self.records]
        segments = [with_findings(record, findings, first=first) for record in self.segments]
        return replace(self, records=records, segments=segments)


def estimate_log(
    path: str | os.PathLike[str] | TableFile,
    question: Question,
    *,
    reading: Reading | None = None,
) -> Answer:
    """Estimate the values of target policies from a log.

    Where moments suffice (ips, clipped_ips, snips and differences) the log is read in blocks: memory does not grow with
    it, and the estimates have the bits of all rows at once. Other estimates need memory for all rows.

    Args:
        path: a CSV, Parquet or Arrow file, a folder of such parts, or an open table.
        question: policies and estimators. If neither ``propensity_min`` nor ``weight_max`` is stated, the smallest
            propensity in the provenance of a replayed log is used (``propensity_min_taken`` in the diagnostics).
        reading: the user's statements about the file's columns and rows.

    Raises:
        UserError: for invalid files, columns and values, in one line.
    """
    return _Estimating(path, question, reading or Reading()).answer()


class _Estimating:
    """A question about a log, checked and prepared for :meth:`answer`.

    Attributes:
        file: the table of the log.
        second: the target file; None without one.
        log: the opened log, with the columns that the question needs.
        names: all policies to estimate, the baseline included.
        targets: names of the target policies: ``names`` without a baseline that is no target itself.
        logging_names: names of the logging policy among ``names``.
        lost: for some policies, the column of their probability of actions that the logging policy never takes.
        refused: errors of a refused column of segments.
        bound: smallest propensity by statement or provenance; None if it is unknown.
        facts: known facts about the log.
    """

    def __init__(self, path: str | os.PathLike[str] | TableFile, question: Question, reading: Reading) -> None:
        level_of(question.level)
        self.clip = check_clip(question.clip)
        if question.target_file is None:
            if question.on is not None:
                raise UserError("--on needs --target-file: the second file, whose rows are found by that column")
            check_question(question.targets, question.estimators, question.baseline)
        self.file = TableFile.open(path, reading.decimal)
        if question.baseline is not None:
            propensity_column = "propensity"
            if reading.exact:
                propensity_column = reading.columns.get("propensity") or propensity_column
            question = replace(
                question, baseline=baseline_column(question.baseline, self.file.names, propensity_column)
            )
        self.question = question
        self.second: TargetFile | None = None
        self.names, inside = self._policies("" if reading.exact else "propensity")
        self.targets = [name for name in self.names if name != question.baseline or name in question.targets]
        check_question(self.targets, question.estimators, question.baseline)
        self.lost = missing_columns(self.names, self.file.names)
        self.log = self._open(reading, inside)
        self.columns = self.log.columns
        self.refused: list[RefusedColumnError] = []
        self._refuse_doubles()
        propensity_column = self.columns.get("propensity") or ""
        with_column = [*inside, *(self.second.names if self.second is not None else ())]
        self.logging_names = [name for name in self.names if name == propensity_column or name not in with_column]
        self.log.logging_names = self.logging_names
        self.provenance = provenance_of(self.file.parts)
        self.bound = known_bound(self.provenance, question.stated, propensity_column)
        stated = dict(question.stated)
        if self.bound is not None:
            stated["propensity_min"] = self.bound
        self.precision = _precision(stated.pop("precision", None))
        self.facts = Facts(**stated)

    def _policies(self, own_name: str) -> tuple[list[str], list[str]]:
        """Find the policies of the question, and open the target file.

        Args:
            own_name: name that stands for the logging policy; "" if no name does.

        Returns:
            policies: names of all policies.
            inside: those that have, or must have, a column in the log.
        """
        question = self.question
        names = self.file.names
        policies = list(dict.fromkeys(question.named))
        if not policies and question.target_file is None:
            raise UserError("no target column; name at least one with --target, or give --target-file FILE --on KEY")
        outside: list[str] = []
        if question.target_file is not None:
            outside = [name for name in policies if name not in names and name != own_name]
            self.second = TargetFile.open(question.target_file, question.on, outside, names)
        # A name that is in neither file stays, so that opening the log raises an error for it.
        inside = [name for name in policies if name in names or name not in (*outside, own_name)]
        if self.second is not None:
            policies += [name for name in self.second.names if name not in policies]
        return policies, inside

    def _open(self, reading: Reading, inside: Sequence[str]) -> BanditLog:
        """Open the log with the columns that the question needs."""
        question = self.question
        numbers = [name for name in (question.reward_limit, *self.lost.values()) if name is not None]
        required_roles = []
        if question.fit_reward_model or (self.second is not None and self.second.by_action):
            required_roles.append("action")
        if "propensity" in self.targets or "propensity" in question.needs:
            required_roles.append("propensity")
        # Times are read for refuters only, but a column that the user names is checked in any case.
        times = question.refute or reading.columns.get("time") is not None
        reading = replace(reading, key=question.on, by=question.by, today=question.baseline, times=times)
        log = BanditLog.open(self.file, inside, reading=reading, extra_columns=numbers, required_roles=required_roles)
        if "propensity" in log.columns or "action" in log.columns:
            return log
        # Without propensities they are estimated from actions; opening the log anew raises an error if there are none.
        required_roles.append("propensity" if "propensity" in self.names else "action")
        return BanditLog.open(self.file, inside, reading=reading, extra_columns=numbers, required_roles=required_roles)

    def _refuse_doubles(self) -> None:
        """Raise UserError for a column of a policy's probability that has another role.

        A column of segments with another role is refused without an error: further estimates do not depend on it.
        """
        question = self.question
        if question.by is not None and question.by in (*self.names, *(self.columns.get(role) for role in _CHOSEN)):
            self.refused.append(RefusedColumnError.of(question.by))
            self.log.reading = replace(self.log.reading, by=None)
        roles = [(role, name) for role, name in self.columns.names.items() if role != "propensity"]
        for role, name in [*roles, ("reward_limit", question.reward_limit)]:
            if name in self.names:
                both = f"a policy's probability and as {role}"
                raise UserError(f"{self.file.path}: column {name!r} is named as {both}: it can be one of them only")

    def answer(self) -> Answer:
        """Estimate from blocks if that is enough, otherwise from all rows."""
        question = self.question
        if "propensity" in self.columns and not (
            question.refute
            or question.keep_rows
            or question.fit_reward_model
            or self.second is not None
            or self.log.needs_all_rows
            or needs_all_rows(question.estimators, question.interval)
        ):
            return self._in_blocks()
        return self._at_once()

    def _in_blocks(self) -> Answer:
        """Estimate from sums that are gathered block by block."""
        question = self.question
        log = self.log
        exact = log.reading.exact
        compared = []
        if question.baseline is not None:
            compared = [name for name in self.targets if name != question.baseline]
        block_question = BlockQuestion(
            reward=self.columns["reward"],
            propensity=self.columns["propensity"],
            policies=self.names,
            baseline=question.baseline,
            compared=compared,
            clip=self.clip,
            missing=self.lost,
            facts=self.facts,
            limit=question.reward_limit,
            logging_names=self.logging_names,
            estimators=question.estimators,
            precision=self.precision,
        )
        sums = gather_blocks(log, block_question)
        log.count_copies(sums.copies)
        counts = log.counts.copy()
        lines = log.lines
        if counts["duplicates"] != sums.copies:
            # count_copies has found that some rows differ in a column that is not read, and are no copies. The sums
            # over consecutive rows, which leave copies out, are gathered anew.
            sums = replace(sums, repeats=gather_blocks(log, block_question).repeats)
        to_estimate = EstimateRequest(
            self.names,
            question.estimators,
            question.level,
            question.baseline,
            compared,
            set(self.logging_names),
            self.provenance,
            None if exact else self._tolerance,
        )
        records = with_known_bound(records_of(to_estimate, sums.value, sums.difference), self.bound)
        findings = sums.repeats.findings()
        items = None
        if not exact:
            if sums.items is not None and not log.some_without_action:
                items = replace(sums.items, items=log.actions.names(sums.items.items))
                findings += items.findings()
            findings += of_the_rows(counts)
        records = [with_findings(record, findings) for record in records]
        records = with_likely_faults(records, lambda: items, self.columns["propensity"])
        return Answer(records, lines + bound_lines(records), None, refused=self.refused)

    def _tolerance(self, name: str, **ends: Any) -> float:
        """Compute the propensity tolerance of a policy by reading the rows once more.

        Args:
            name: name of the policy.
            **ends: keyword arguments of :func:`recsim_mnar.answers.weights.weight_excess`.
        """
        sums = np.zeros(2)  # the two numbers of weight_excess, which add up over blocks
        for block in self.log.blocks(BLOCK_ROWS):
            columns = block.columns
            reward = columns[self.columns["reward"]]
            sums += weight_excess(reward, columns[self.columns["propensity"]], columns[name], **ends)
        return tolerance_of(*sums.tolist())

    def _at_once(self) -> Answer:
        """Estimate from all rows in memory."""
        question = self.question
        log = self.log.read()
        targets = Targets({}, [], np.zeros(len(log), np.bool_))
        if self.second is not None:
            drop_missing = self.log.reading.drop_missing
            targets = self.second.read(log, drop_missing=drop_missing)
            log, targets = _joined(log, targets, question, drop_missing)
        if log.propensity is not None:
            # Later steps recognise the logging policy, under each of its names, by the identity of this array.
            log.policies.update(dict.fromkeys(self.logging_names, log.propensity))
        lines = [*log.lines, *targets.lines]
        segments = self._segments(log, lines)
        if question.refute:  # an error about a missing column comes before the work
            refuse_refuters(log)
        facts = self.facts
        reward_column = log.columns["reward"]
        refuse_outside(log.reward, facts.reward_min, facts.reward_max, reward_column, log.row_numbers)
        if question.reward_limit is not None:
            limits = log.others[question.reward_limit]
            limit_column(limits, log.reward, (reward_column, question.reward_limit), log.row_numbers)
            facts = replace(facts, reward_limit=limits)
        if log.propensity is None:
            records = _without_propensities(log, self.targets, self.logging_names, question, lines)
            return Answer(records, lines, log, refused=self.refused)
        records = self._records(log, targets, facts, segments, lines)
        overall = [record for record in records if "by" not in record]
        of_segments = records[len(overall) :]  # they come last
        overall = [record | segment_summary(record, of_segments) for record in overall]
        lines += bound_lines(overall) + refuter_lines(overall)
        return Answer(overall, lines, log, of_segments, self.refused)

    def _records(
        self, log: BanditFile, targets: Targets, facts: Facts, segments: Segments | None, lines: list[str]
    ) -> list[Record]:
        """Estimate from rows with propensities.

        Args:
            log: all rows.
            targets: targets of the second file.
            facts: known facts about the log, with each row's largest possible reward.
            segments: segments of the rows; None for no segments.
            lines: notes for a person, which are extended.

        Returns:
            The records of all rows, then those of segments.
        """
        question = self.question
        columns = log.values()
        for name in self.names:
            names = (log.columns["reward"], log.columns["propensity"], name)
            check_rows(columns.reward, columns.propensity, log.policies[name], names, log.row_numbers)
        rows = PolicyRows(
            columns,
            question.baseline,
            _models(log, targets, self.names, question, lines),
            {name: log.others[column] for name, column in self.lost.items()},
            self.provenance,
            {name: distributions.largest() for name, distributions in targets.distributions.items()},
            facts,
            question.clip,
            self.precision,
            _weights_of_rows(log, self.targets, question, lines),
            question.interval,
        )
        to_estimate = rows.question(self.targets, question.estimators, question.level)
        records = records_of(to_estimate, rows.value, rows.difference_from_baseline)
        if segments is not None:
            try:
                action = None if log.action is None else log.action.codes
                records += rows.by_segment(segments, action, to_estimate, records)
            except RefusedColumnError as error:
                self.refused.append(error)
        in_order = findings_in_order(log)
        records = [with_findings(record, in_order) for record in with_known_bound(records, self.bound)]
        if not self.log.reading.exact:
            records = with_file_findings(records, log, self.targets, lines)
        if question.refute:
            records = with_refuters(records, self.targets, columns, self.bound, **_refuter_columns(log))
        return records

    def _segments(self, log: BanditFile, lines: list[str]) -> Segments | None:
        """Group the rows by the column of segments; return None without one, or if it is refused.

        Notes on the segments are appended to ``lines``.
        """
        by = self.question.by
        if by is None or log.segment is None:
            return None
        if log.propensity is None:
            raise UserError("--by: segments need propensities. Name their column with --propensity-column")
        if log.action is None:
            likely = likely_columns("action", (name for name in self.file.names if name != by))
            perhaps = f" (perhaps {likely[0]}: --action-column)" if likely else ""
            why = f"no column holds the item shown{perhaps}"
            if "action" in log.columns:
                why = f"the item shown ({log.columns['action']}) is missing in some rows"
            lines.append(f"--by {by}: {why}, so only the targets' weights can say whether it is fixed")
        codes = log.segment.codes
        code_of = {str(word): code for code, word in enumerate(log.segment.ids)}
        counts = np.bincount(codes[codes >= 0], minlength=log.segment.number)
        for group in spelled_alike(log.segment.ids):
            words = [word for word in group if counts[code_of[word]]]
            if len(words) < 2:  # rows with the other spellings were left out
                continue
            words.sort(key=lambda word: -counts[code_of[word]])
            remark = "taken as different; --fold-case takes them as one"
            if self.log.reading.fold_case:
                remark = "taken as one"
                codes = np.where(np.isin(codes, [code_of[word] for word in words]), code_of[words[0]], codes)
            lines.append(f"{by} has {' and '.join(words)}, which differ only in capitals: {remark}")
        try:
            return Segments.of(by, codes, log.segment.ids)
        except RefusedColumnError as error:
            self.refused.append(error)
            return None


def _precision(stated: float | None) -> float:
    """Check the largest ratio of half the interval to the value with which a value is trusted; None is the default."""
    if stated is None:
        return PRECISION
    return check_precision(stated)


def _weights_of_rows(log: BanditFile, targets: Sequence[str], question: Question, lines: list[str]) -> Floats | None:
    """Return the number of rows that each row stands for, (n,); None without such a column or without propensities.

    Notes on the weights are appended to ``lines``.

    Raises:
        UserError: a weight is not positive, or a recognised column holds a target's importance weights.
    """
    weight = log.weight
    if weight is None or log.propensity is None:
        return None
    name = log.columns["weight"]
    refuse_rows(weight <= 0.0, weight, name, "is not positive; give how many rows the row stands for", log.row_numbers)
    for target in targets:
        # "weight" may also be the name of importance weights, which must not be multiplied with the propensities again.
        if log.columns.how["weight"] != NAMED and np.allclose(weight, log.policies[target] / log.propensity):
            raise UserError(f"{name} is {target} / propensity, and no weight of rows: add --weight-column none")
    lines.append(
        f"{name}: each row stands for so many, all of them for {weight.sum():,.0f} (--weight-column none: for 1)"
    )
    if question.by is not None:
        lines.append(f"--by {question.by}: with weights of rows it is not checked that it was fixed before")
    return weight


def _refuter_columns(log: BanditFile) -> Mapping[str, Any]:
    """Return the values (n,) of actions, first context column and times for refuters; None for a missing column."""
    context = next(iter(log.context.values()), None)
    time = log.others.get(log.columns.get("time") or "")
    return {"action": values_of(log.action), "context": values_of(context), "time": time}


def _joined(log: BanditFile, targets: Targets, question: Question, drop_missing: bool) -> tuple[BanditFile, Targets]:
    """Add the second file's targets to the log, and drop decisions that have none.

    Raises:
        UserError: some decisions have no target, and ``drop_missing`` is False.

    Returns:
        The log and the targets of the same rows.
    """
    number = int(targets.absent.sum())
    if number and not drop_missing:
        rows = listed(log.row_numbers[np.flatnonzero(targets.absent)], 3)
        raise UserError(
            f"{log.source}: {number:,} of {len(log):,} rows have no targets in {question.target_file} (rows {rows}); "
            "--drop-missing leaves them out"
        )
    log.policies.update(targets.policies)
    if not number:
        return log, targets
    keep = ~targets.absent
    have = "rows have" if number > 1 else "row has"
    are = "are" if number > 1 else "is"
    targets.lines.append(f"{number:,} {have} no targets in {question.target_file} and {are} left out")
    log.counts["dropped_without_target"] = number
    log.counts["kept"] = int(keep.sum())
    distributions = {
        name: replace(policy, rows=policy.rows[keep], actions=policy.actions[keep])
        for name, policy in targets.distributions.items()
    }
    log = log.kept(keep)
    return log, Targets(log.policies, targets.lines, targets.absent[keep], distributions)


def _models(
    log: BanditFile, targets: Targets, names: Sequence[str], question: Question, lines: list[str]
) -> dict[str, tuple[Any, Any]]:
    """Fit the reward model of each policy.

    Args:
        log: all rows.
        targets: targets of the second file, with the probabilities of all actions if a model is fitted.
        names: names of the policies.
        question: the wish to fit a model, and the estimators.
        lines: notes for a person, which are extended.

    Returns:
        By policy, the predictions (n,) for the logged action and their mean under the policy; empty without a model.

    Raises:
        UserError: an estimator needs a model and none is to be fitted, or the probabilities of all actions of a target
            are unknown.
    """
    if not question.fit_reward_model:
        for name in question.estimators:
            if check_name(name).needs:
                raise UserError(f"estimator {name!r} needs a reward model: add --fit-reward-model")
        return {}
    context, left_out = as_numbers(log.context)
    models = {}
    for name in names:
        if name not in targets.distributions and name == question.baseline:
            lines.append(f"no reward model for {name}, whose probability of every action is not known")
            continue
        if name not in targets.distributions:
            raise UserError(
                f"--fit-reward-model needs {name}'s probability of every action: give --target-file with a column a "
                "candidate action"
            )
        policy = targets.distributions[name]
        models[name] = cross_fitted_rewards(
            log.reward,
            policy.actions,
            policy,
            n_actions=policy.n_actions,
            context=context,
            cluster=log.users,
        )
    used = ", ".join(name for name in log.context if name not in left_out)
    terms = f" and a linear regression on {used}" if used else "; --context-columns adds what the policy saw"
    lines.append(f"reward model: each action's mean{terms}, fitted in 3 folds of users")
    if left_out:
        lines.append(f"reward model: {', '.join(left_out)} left out, too many values")
    return models


def _without_propensities(
    log: BanditFile, targets: Sequence[str], logging_names: Sequence[str], question: Question, lines: list[str]
) -> list[Record]:
    """Estimate with estimated propensities; the value of the logging policy is the mean reward.

    Args:
        log: all rows, with actions.
        targets: names of the target policies.
        logging_names: names of the logging policy.
        question: settings of the estimates; UserError if its baseline is not the logging policy.
        lines: notes for a person, which are extended.
    """
    if question.baseline is not None and question.baseline not in logging_names:
        raise UserError(
            f"--baseline {question.baseline}: without propensities differences are from what the log earned: "
            "--baseline today, or name the column of propensities with --propensity-column"
        )
    assert log.action is not None
    actions = log.action.codes
    context, used = labels(log.context, len(log))
    if log.logger is not None:  # policies that logged are further strata: one number for each pair with the context
        context = np.unique(context * (log.logger.number + 1) + log.logger.codes, return_inverse=True)[1].reshape(-1)
        used.append(f"{log.columns['logger']} ({log.logger.number} loggers)")
    within = f" within {', '.join(used)}" if used else "; --context-columns names what the logging policy saw"
    lines.append(
        "no propensity column is recognised, so propensities are estimated: each action's share of the rows" + within
    )
    options: dict[str, Any] = {
        "cluster": log.users,
        "facts": Facts(**{name: question.stated.get(name) for name in ("full_support", "reward_min", "reward_max")}),
        "precision": _precision(question.stated.get("precision")),
    }

    def value(name: str, estimator: str, *, level: float, from_today: bool = False) -> Estimate:
        """Estimate a policy's value or, with ``from_today``, its difference from the logging policy's."""
        if name in logging_names:
            ones = np.ones(len(log))
            return estimate_value(log.reward, ones, ones, estimator=estimator, level=level, **options)
        return estimate_without_propensities(
            log.reward,
            actions,
            log.policies[name],
            context=context if used else None,
            estimator=estimator,
            clip=question.clip,
            level=level,
            from_today=from_today,
            **options,
        )

    policies = list(targets)
    compared: Sequence[str] = ()
    if question.baseline is not None:
        policies += logging_names
        compared = targets
    to_estimate = EstimateRequest(
        policies, question.estimators, question.level, question.baseline, compared, set(logging_names)
    )
    records = records_of(to_estimate, value, functools.partial(value, from_today=True))
    return with_file_findings(records, log, targets, lines)
