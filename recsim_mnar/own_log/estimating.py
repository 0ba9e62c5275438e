"""From a log to estimates with verdicts: a file of one's own, or one of this package's."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from recsim_mnar.answers.records import (
    Asked,
    PolicyRows,
    bound_lines,
    check_question,
    known_bound,
    missing_columns,
    records_of,
    segment_summary,
    taken,
    todays,
    with_findings,
)
from recsim_mnar.answers.sentence import Record
from recsim_mnar.answers.weights import RefusedColumnError, Segments, tolerance_of, weight_excess
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
from recsim_mnar.estimators.verdict import Estimate, Finding
from recsim_mnar.kernels.checks import level_of
from recsim_mnar.log.columns import Floats, refuse_rows
from recsim_mnar.log.table import provenance_of
from recsim_mnar.own_log.bandit_file import BanditFile, Reading
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.blocks import BLOCK_ROWS, BlockQuestion, Gather, Gathered, gather_blocks, needs_all_rows
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
from recsim_mnar.own_log.target_file import Distributions, TargetFile, Targets
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import NAMED, find_columns, likely_columns
from recsim_mnar.tables.values import listed, spelled_alike

OWN = ("user", "step", "event", "propensity", "reward")
"""Columns by which a log of this package's is known."""
_CHOSEN = ("action", "reward", "propensity")
"""What no segment can be."""


def is_own_schema(file: TableFile) -> bool:
    """Return whether a table has the columns of this package's logs, and no weights of rows."""
    return set(OWN) <= set(file.names) and "weight" not in find_columns("", file.names, optional=("weight",))


class Usual(list[str]):
    """Names of estimators that nobody asked for."""


@dataclass(frozen=True)
class Question:
    """A question to a log.

    Attributes:
        targets: columns of the log or of the target file; one name, or none, where that file has a column per action.
        baseline: likewise; "today", where no column has that name, for the policy that logged the rows.
        estimators: names.
        clip: weights of the clipped estimators are cut there; None for no clipping.
        level: of the intervals.
        target_file: a second file, and ``on`` the column by which its rows are found; without that they are the log's
            rows, in their order.
        on: see ``target_file``.
        fit_reward_model: fit one, cross-fitted by user, for dm, dr and their kin.
        q_logged: column of a reward model's value of the logged action.
        q_target: column of its mean under the target.
        unsupported: columns of the policies' missing mass.
        reward_limit: column of the largest reward possible of each row's action.
        stated: full_support, reward_min, ..., as :func:`recsim_mnar.estimators.estimate_value`.
        interval: as in :func:`recsim_mnar.estimators.estimate_value`; differences always use "auto".
        keep_rows: give the rows with the answer, all of which are read at once then.
        needs: roles that the log must have a column for, besides the reward: "propensity", so that none are estimated.
        position_weights: of slates: mean (per item shown), clicks (per slate) or dcg.
        assumption: of slates, what is known of users: see
            :func:`recsim_mnar.estimators.rankings.estimate_ranking_value`.
        by: column of segments, whose leading estimates are added: their intervals hold all at once at ``level``.
        refute: run the refuters, with the columns of actions, times and the first of the context that there are.
    """

    targets: Sequence[str] = ()
    baseline: str | None = None
    estimators: Sequence[str] = field(default_factory=lambda: Usual(("ips", "snips")))
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
    by: str | None = None
    refute: bool = False
    position_weights: str = "mean"
    assumption: str | None = None
    interval: str = "auto"
    keep_rows: bool = False
    needs: Sequence[str] = ()


@dataclass(frozen=True)
class Answer:
    """Estimates of a log.

    Attributes:
        records: with keys policy, estimator, value, low, high, level, method, n, ess, verdict (a sentence),
            verdict_level ("trust", "caution" or "do_not_use"), findings, diagnostics, role ("target", "baseline",
            "today" or "difference"), today (whether the policy, or the baseline of a difference, logged the rows),
            leads (whether it is what a person reads first of its policy),
            and baseline for a difference, whose policy reads "target - baseline"; JSON types only. With ``refute`` the
            leading value of each target has refuters, a list of findings. The best of several policies has best_of too:
            policies, level, low, high, verdict, verdict_level and findings at a level corrected for the choice. With
            ``by`` the leading differences have segments: by, worse, better, cannot_tell and do_not_use, names of
            segments. :func:`recsim_mnar.answers.sentence.sentence_of` says what they come to.
        lines: what was read, taken and left out, for a person.
        log: the rows that the estimates rest on, ``policies`` with those of the target file; None where they were read
            in blocks.
        refused: why a column of segments is refused, where it is; all else is as without it.
        segments: records of segments, where they were asked for, with by, segment (None for the rows without a value),
            intervals, how many hold at once at level_of_all, and ``level``, that of each.
    """

    records: list[Record]
    lines: list[str]
    log: BanditFile | None
    segments: list[Record] = field(default_factory=list)
    refused: list[RefusedColumnError] = field(default_factory=list)

    @property
    def weighed(self) -> bool:
        """Return whether rows have weights."""
        return self.log is not None and self.log.weight is not None

    def with_findings(self, findings: Sequence[Finding], *, first: bool = False) -> Answer:
        """The same estimates with further findings against the log."""
        records, parts = (
            [with_findings(record, findings, first=first) for record in records_of]
            for records_of in (self.records, self.segments)
        )
        return replace(self, records=records, segments=parts)


def estimate_log(
    path: str | os.PathLike[str] | TableFile,
    question: Question,
    *,
    reading: Reading | None = None,
    gather: Gather | None = None,
) -> Answer:
    """Estimate the value of target policies from a log.

    It is read in blocks of rows where moments suffice (ips, clipped_ips, snips and differences): memory does not grow
    with the log, and the estimates have the bits of all rows at once. What needs all rows is refused where there is no
    memory for them.

    Args:
        path: CSV, Parquet or Arrow, as :meth:`recsim_mnar.tables.parts.TableFile.open`, or what that opened.
        question: what is asked. Where neither ``propensity_min`` nor ``weight_max`` is stated, the least propensity
            that the provenance of a replayed log knows is taken (``propensity_min_taken`` in the diagnostics).
        reading: what the user says of the file's columns and rows.
        gather: reads parts side by side where moments suffice, see
            :func:`recsim_mnar.own_log.blocks.gather_parts`.

    Raises:
        UserError: for files, columns and values that are no data, in one line.
    """
    return _Estimating(path, question, reading or Reading(), gather).answer()


class _Estimating:
    """A question to a log: which columns it needs, and how they are read."""

    def __init__(
        self, path: str | os.PathLike[str] | TableFile, question: Question, reading: Reading, gather: Gather | None
    ) -> None:
        level_of(question.level)
        self.clip = check_clip(question.clip)
        if question.target_file is None and question.on is not None:
            raise UserError("--on needs --target-file: the second file, whose rows are found by that column")
        if question.target_file is None:
            check_question(question.targets, question.estimators, question.baseline)
        self.file = TableFile.open(path, reading.decimal)
        self.gather, self.drop_missing = gather, reading.drop_missing
        if question.baseline is not None:
            propensity_column = "propensity"
            if reading.exact:
                propensity_column = reading.columns.get("propensity") or "propensity"
            question = replace(question, baseline=todays(question.baseline, self.file.names, propensity_column))
        self.question = question
        self.names, inside = self._policies(reading)
        self.targets = [name for name in self.names if name != question.baseline or name in question.targets]
        check_question(self.targets, question.estimators, question.baseline)
        self.lost = missing_columns(self.names, question.unsupported, self.file.names)
        columns_given = (question.q_logged, question.q_target, question.reward_limit)
        further = [*(name for name in columns_given if name is not None), *self.lost.values()]
        by_action = question.fit_reward_model or (self.second is not None and self.second.by_action)
        takes_today = "propensity" in self.targets or "propensity" in question.needs
        needs = [*(["action"] if by_action else []), *(["propensity"] if takes_today else [])]
        # A column that somebody names is checked, also where no number is made of it.
        times = question.refute or reading.columns.get("time") is not None
        reading = replace(reading, key=question.on, by=question.by, today=question.baseline, times=times)
        open_log = functools.partial(BanditLog.open, self.file, inside, reading=reading, others=further)
        self.log = open_log(needs=needs)
        if "propensity" not in self.log.columns and "action" not in self.log.columns:
            lacking = "propensity" if "propensity" in self.names else "action"  # from which they are estimated
            self.log = open_log(needs=[*needs, lacking])
        self.columns = self.log.columns
        self.refused: list[RefusedColumnError] = []
        self._refuse_doubles()
        propensity_column = self.columns.get("propensity") or ""
        elsewhere = [] if self.second is None else self.second.names
        self.today = [
            name for name in self.names if name == propensity_column or (name not in inside and name not in elsewhere)
        ]
        self.log.today = self.today
        self.made = provenance_of(self.file.parts)
        self.bound = known_bound(self.made, question.stated, propensity_column)
        bound = {} if self.bound is None else {"propensity_min": self.bound}
        stated = {**question.stated, **bound}
        self.precision = _precision(stated.pop("precision", None))
        self.facts = Facts(**stated)

    def _refuse_doubles(self) -> None:
        """Raise UserError for a column that is a policy's probability, or was logged, and something else, too."""
        question = self.question
        models = ("q_logged", "q_target")
        roles = [(role, name) for role, name in self.columns.names.items() if role != "propensity"]
        if question.by is not None and question.by in (*self.names, *(self.columns.get(role) for role in _CHOSEN)):
            self.refused.append(RefusedColumnError.of(question.by))
            self.log.reading = replace(self.log.reading, by=None)
        roles += [("unsupported mass", name) for name in question.unsupported]
        roles += [(name, getattr(question, name) or "") for name in ("q_logged", "q_target", "reward_limit")]
        for role, name in roles:
            conflict = "a policy's probability"
            if name not in self.names:
                conflict = self._logged(name) if role in models else ""
            if conflict:
                raise UserError(
                    f"{self.file.path}: column {name!r} is named as {conflict} and as {role}: it can be one of them "
                    "only"
                )

    def _logged(self, column: str) -> str:
        """The role of a column that no reward model can have written; empty for any other."""
        return next((role for role in ("reward", "propensity") if self.columns.get(role) == column), "")

    def _policies(self, reading: Reading) -> tuple[list[str], list[str]]:
        """Names of all policies, and those that the log has columns of."""
        question = self.question
        names = self.file.names
        named = [*question.targets, *([question.baseline] if question.baseline else [])]
        if not named and question.target_file is None:
            raise UserError("no target column; name at least one with --target, or give --target-file FILE --on KEY")
        policies = list(dict.fromkeys(named))
        own_name = "propensity"
        if reading.exact:
            own_name = ""
        outside: list[str] = []
        self.second: TargetFile | None = None
        if question.target_file is not None:
            outside = [name for name in policies if name not in names and name != own_name]
            self.second = TargetFile.open(question.target_file, question.on, outside, names)
        inside = [name for name in policies if (name not in outside and name != own_name) or name in names]
        more = []
        if self.second is not None:
            more = [name for name in self.second.names if name not in policies]
        return policies + more, inside

    def answer(self) -> Answer:
        """The estimates."""
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
        question = self.question
        compared = []
        if question.baseline is not None:
            compared = [name for name in self.targets if name != question.baseline]
        block_question = BlockQuestion(
            self.columns["reward"],
            self.columns["propensity"],
            self.names,
            question.baseline,
            compared,
            self.clip,
            self.lost,
            self.facts,
            "user" in self.columns,
            question.reward_limit,
            self.today,
            question.estimators,
            self.precision,
        )
        sums_of_log = self._gathered(block_question)
        self.log.count_copies(sums_of_log.copies)
        counts = self.log.counts.copy()
        lines = self.log.lines
        if counts["duplicates"] != sums_of_log.copies:  # whole rows are looked at from here on
            sums_of_log = replace(sums_of_log, repeats=self._gathered(block_question).repeats)
        of_records = Asked(
            self.names,
            question.estimators,
            question.level,
            question.baseline,
            compared,
            set(self.today),
            self.made,
            None if self.log.reading.exact else self._off_by,
        )
        records = taken(records_of(of_records, sums_of_log.value, sums_of_log.difference), self.bound)
        findings = sums_of_log.repeats.findings()
        items = None
        if not self.log.reading.exact:
            if sums_of_log.items is not None and not self.log.some_without_action:
                items = replace(sums_of_log.items, items=self.log.actions.names(sums_of_log.items.items))
                findings += items.findings()
            findings += of_the_rows(counts)
        records = [with_findings(record, findings) for record in records]
        records = with_likely_faults(records, lambda: items, self.columns["propensity"])
        return Answer(records, lines + self._remarks(records), None, refused=self.refused)

    def _gathered(self, asked: BlockQuestion) -> Gathered:
        # Whether rows that cannot be read are few is a question to all parts together.
        alone = self.gather is None or self.log.reading.drop_invalid is not None
        if self.gather is None or alone:
            gathered = None
        else:
            gathered = self.gather(self.log, asked)
        return gathered or gather_blocks(self.log, asked)

    def _remarks(self, records: Sequence[Record]) -> list[str]:
        """Say which bounds were taken; and who has the most rows, where one has so many that the verdict says so."""
        findings = [finding for record in records for finding in record["findings"] if finding["code"] == "long_user"]
        objected = any(finding["level"] != "trust" for finding in findings)
        return [*([self.log.longest_user()] if objected else []), *bound_lines(records)]

    def _off_by(self, name: str, **ends: Any) -> float:
        """The tolerance of a policy by its rows, which are read once more."""
        own_part = self.columns
        sums = np.zeros(2)
        for block in self.log.blocks(BLOCK_ROWS):
            columns = block.columns
            sums += weight_excess(columns[own_part["reward"]], columns[own_part["propensity"]], columns[name], **ends)
        return tolerance_of(*sums.tolist())

    def _at_once(self) -> Answer:
        question, log = self.question, self.log.read()
        targets = Targets({}, [], np.zeros(len(log), np.bool_))
        if self.second is not None:
            targets = self.second.read(log, drop_missing=self.drop_missing)
            log, targets = _joined(log, targets, question, self.drop_missing)
        if log.propensity is not None:
            # By either name today's policy is one array: so it is known for what it is.
            log.policies.update(dict.fromkeys(self.today, log.propensity))
        lines = [*log.lines, *targets.lines]
        likely = likely_columns("action", (name for name in self.log.file.names if name != question.by))
        segments = None
        try:
            segments = _segments(log, question.by, lines, likely, fold=self.log.reading.fold_case)
        except RefusedColumnError as error:
            self.refused.append(error)
        if question.refute:
            refuse_refuters(log)
        reward_column, facts = log.columns["reward"], self.facts
        refuse_outside(log.reward, facts.reward_min, facts.reward_max, reward_column, log.row_numbers)
        limits = None
        if question.reward_limit is not None:
            limits = log.others[question.reward_limit]
            limit_column(limits, log.reward, (reward_column, question.reward_limit), log.row_numbers)
        if log.propensity is None:
            records = _without_propensities(log, self.targets, self.today, question, lines)
            return Answer(records, lines, log, refused=self.refused)
        columns, shown_codes = log.values(), None if log.action is None else log.action.codes
        for name in self.names:
            names = (reward_column, log.columns["propensity"], name)
            check_rows(log.reward, log.propensity, log.policies[name], names, log.row_numbers)
        rows = PolicyRows(
            columns,
            question.baseline,
            _models(log, targets, self.names, question, lines),
            {name: log.others[column] for name, column in self.lost.items()},
            self.made,
            {name: law.largest() for name, law in targets.distributions.items()},
            replace(facts, reward_limit=limits),
            question.clip,
            self.precision,
            _weights_of_rows(log, self.targets, question, lines),
            question.interval,
        )
        estimates = rows.question(self.targets, question.estimators, question.level)
        records = records_of(estimates, rows.value, rows.apart)
        try:
            if segments is None:
                records += []
            else:
                records += rows.by_segment(segments, shown_codes, estimates, records)
        except RefusedColumnError as error:
            self.refused.append(error)
        in_order = findings_in_order(log)
        records = [with_findings(record, in_order) for record in taken(records, self.bound)]
        if not self.log.reading.exact:
            records = with_file_findings(records, log, self.targets, lines)
        if question.refute:
            records = with_refuters(records, self.targets, columns, self.bound, **_shown(log))
        leading_records = [record for record in records if "by" not in record]
        parts = records[len(leading_records) :]
        leading_records = [record | segment_summary(record, parts) for record in leading_records]
        return Answer(
            leading_records,
            lines + self._remarks(leading_records) + refuter_lines(leading_records),
            log,
            parts,
            self.refused,
        )


def _precision(stated: float | None) -> float:
    """Half the interval over the value up to which a value is trusted, checked."""
    if stated is None:
        return PRECISION
    return check_precision(stated)


def _segments(
    log: BanditFile, by: str | None, lines: list[str], likely: Sequence[str], *, fold: bool
) -> Segments | None:
    """The segments of a log, where they are asked for; with ``fold`` words that differ only in capitals are one."""
    if by is None or log.segment is None:
        return None
    if log.propensity is None:
        raise UserError("--by: segments need propensities. Name their column with --propensity-column")
    if log.action is None:
        item = log.columns.get("action")
        perhaps = ""
        if likely:
            perhaps = f" (perhaps {likely[0]}: --action-column)"
        if item is None:
            why = f"no column holds the item shown{perhaps}"
        else:
            why = f"the item shown ({item}) is missing in some rows"
        lines.append(f"--by {by}: {why}, so only the targets' weights can say whether it is fixed")
    codes, counts = log.segment.codes, np.bincount(log.segment.codes[log.segment.codes >= 0])
    place = {str(word): code for code, word in enumerate(log.segment.ids)}
    alike = [[word for word in group if counts[place[word]]] for group in spelled_alike(log.segment.ids)]
    for group in (sorted(words, key=lambda word: -counts[place[word]]) for words in alike if len(words) > 1):
        spelling_remark = "taken as different; --fold-case takes them as one"
        if fold:
            spelling_remark = "taken as one"
        lines.append(f"{by} has {' and '.join(group)}, which differ only in capitals: {spelling_remark}")
        if fold:
            codes = np.where(np.isin(codes, [place[word] for word in group]), place[group[0]], codes)
    return Segments.of(by, codes, log.segment.ids)


def _weights_of_rows(log: BanditFile, targets: Sequence[str], question: Question, lines: list[str]) -> Floats | None:
    """Read how many rows each row stands for, (n,); None where there is no such column, or it is constant.

    Raises:
        UserError: a weight that is not positive, with its row.
    """
    weight = log.weight
    name = log.columns.get("weight") or ""
    if weight is None:
        return None
    refuse_rows(weight <= 0.0, weight, name, "is not positive; give how many rows the row stands for", log.row_numbers)
    assert log.propensity is not None
    for target in targets:
        if log.columns.how["weight"] != NAMED and np.allclose(weight, log.policies[target] / log.propensity):
            raise UserError(f"{name} is {target} / propensity, and no weight of rows: add --weight-column none")
    lines.append(
        f"{name}: each row stands for so many, all of them for {weight.sum():,.0f} (--weight-column none: for 1)"
    )
    if question.by is not None:
        lines.append(f"--by {question.by}: with weights of rows it is not checked that it was fixed before")
    return weight


def _shown(log: BanditFile) -> Mapping[str, Any]:
    """Get the columns that refuters use besides those of an estimate, where the file has them."""
    context = next(iter(log.context.values()), None)
    time = None
    if "time" in log.columns:
        time = log.others.get(log.columns["time"])
    return {"action": values_of(log.action), "context": values_of(context), "time": time}


def _joined(log: BanditFile, found: Targets, question: Question, drop_missing: bool) -> tuple[BanditFile, Targets]:
    """The decisions that the second file has targets for."""
    number = int(found.absent.sum())
    if number and not drop_missing:
        rows = listed(log.row_numbers[np.flatnonzero(found.absent)], 3)
        raise UserError(
            f"{log.source}: {number:,} of {len(log):,} rows have no targets in {question.target_file} (rows {rows}); "
            "--drop-missing leaves them out"
        )
    log.policies.update(found.policies)
    if number:
        keep = ~found.absent
        have = "row has no targets in {} and is"
        if number > 1:
            have = "rows have no targets in {} and are"
        found.lines.append(f"{number:,} {have.format(question.target_file)} left out")
        log.counts["dropped_without_target"] = number
        log.counts["kept"] = int(keep.sum())
        laws = {
            name: Distributions(law.table, law.rows[keep], law.actions[keep], law.candidates, law.n_actions)
            for name, law in found.distributions.items()
        }
        log = log.kept(keep)
        found = Targets(log.policies, found.lines, found.absent[keep], laws)
    return log, found


def _models(
    log: BanditFile, found: Targets, names: Sequence[str], question: Question, lines: list[str]
) -> dict[str, tuple[Any, Any]]:
    """The reward model of each policy: the columns of the file, or of a model fitted here."""
    logged, mean = (None if name is None else log.others[name] for name in (question.q_logged, question.q_target))
    if not question.fit_reward_model:
        if logged is mean is None:
            return {}
        return dict.fromkeys(names, (logged, mean))
    context, left = as_numbers(log.context)
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
        models[name] = cross_fitted_rewards(
            log.reward,
            law.actions,
            law,
            n_actions=law.n_actions,
            context=context,
            cluster=log.users,
        )
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
    log: BanditFile, targets: Sequence[str], today: Sequence[str], question: Question, lines: list[str]
) -> list[Record]:
    """Estimates under estimated propensities; today's policy earned the mean reward."""
    if question.baseline is not None and question.baseline not in today:
        raise UserError(
            f"--baseline {question.baseline}: without propensities differences are from what the log earned: "
            "--baseline today, or name the column of propensities with --propensity-column"
        )
    assert log.action is not None
    context, label_lines = labels(log.context, len(log))
    if log.logger is not None:
        context = np.unique(context * (log.logger.number + 1) + log.logger.codes, return_inverse=True)[1].reshape(-1)
        label_lines.append(f"{log.columns['logger']} ({log.logger.number} loggers)")
    within = "; --context-columns names what the logging policy saw"
    if label_lines:
        within = f" within {', '.join(label_lines)}"
    lines.append(
        "no propensity column is recognised, so propensities are estimated: each action's share of the rows" + within
    )
    of_both = ("full_support", "reward_min", "reward_max")
    facts = Facts(**{key: value for key, value in question.stated.items() if key in of_both})
    precision = _precision(question.stated.get("precision"))

    def value(name: str, estimator: str, *, level: float, apart: bool = False) -> Estimate:
        if name in today:
            sure = np.ones(len(log))
            return estimate_value(
                log.reward,
                sure,
                sure,
                estimator=estimator,
                cluster=log.users,
                level=level,
                facts=facts,
                precision=precision,
            )
        return estimate_without_propensities(
            log.reward,
            log.action.codes,  # type: ignore[union-attr]  # asserted above
            log.policies[name],
            context=context if label_lines else None,
            cluster=log.users,
            estimator=estimator,
            clip=question.clip,
            level=level,
            from_today=apart,
            facts=facts,
            precision=precision,
        )

    policies = [*targets, *today] if question.baseline is not None else targets
    compared = [] if question.baseline is None else targets
    estimates = Asked(policies, question.estimators, question.level, question.baseline, compared, set(today))
    records = records_of(estimates, value, functools.partial(value, apart=True))
    return with_file_findings(records, log, targets, lines)
