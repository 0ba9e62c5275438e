"""Estimate from a log file of any kind, and check whether the answer meets the requirement of a pipeline."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recsim_mnar.answers.sentence import Sentence, sentence_of
from recsim_mnar.answers.words import Amounts, Record, is_of_slates, label, segment_label, table_lines, without_margins
from recsim_mnar.datasets.tool_logs import ToolLog, open_tool_log
from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.facts import Facts
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, LEVELS, Finding
from recsim_mnar.kernels.checks import table_by_name
from recsim_mnar.own_log.bandit_file import STATED, Reading, but_for_slates
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.estimating import Answer, Question, Usual, estimate_log, is_own_schema
from recsim_mnar.own_log.slate_estimates import endings_of, estimate_slates
from recsim_mnar.own_log.slate_file import PERHAPS, SAID, find_slates, perhaps_slates
from recsim_mnar.protocols.records import plain
from recsim_mnar.runs.files import path_of
from recsim_mnar.runs.receipts import file_digest
from recsim_mnar.tables.files import IN_MEMORY, as_file, is_in_memory, log_folder
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import new_policies
from recsim_mnar.tables.text import ends_within_a_line
from recsim_mnar.tables.values import in_rows

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
"""Version of the JSON of an estimate, raised by changes that programs notice."""
BETTER = "better"
REQUIREMENTS = ("trust", "caution", BETTER)
"""Possible requirements of an answer."""
NOT_ABOVE_0 = "not_above_0"
"""Code of a cause: the interval of the difference is not above 0."""
TOO_FEW_ROWS = "too_few_rows"
"""Code of an error: the log has fewer rows than estimates need, or than are required."""
LEAST_ROWS = 2
"""Least number of rows for an estimate."""
_NO_BASELINE = (
    f"--require {BETTER} needs --baseline: better than what? --baseline today is the policy that logged the rows"
)
_ROLES = ("reward", "propensity", "action", "user", "time", "logger", "weight", "slate", "position")
_READING = ("context", *STATED)
_NOT_ARGUMENTS = ("targets", "stated", "keep_rows", "needs", "interval")
"""Fields of a question that are not arguments of :func:`answer_file`."""
CONTRADICTED = {
    *(
        "bound_denied",
        "support_denied",
        "propensities",
        "item_propensities",
        "logger_propensities",
        "share_sums",
        "shares_disproved",
    ),
    *("not_sticky", "dsjson_label", "dsjson_index", "dsjson_lengths", "dsjson_joined_twice"),
}
"""Codes of findings that contradict the log or a statement about it, and need a person's attention."""


def stated_reading(
    function: str,
    columns: Mapping[str, str | None] | Reading | None,
    stated: dict[str, Any],
    further: Sequence[str] = (),
) -> Reading:
    """Return the reading of a file that the arguments of a Python function state.

    Args:
        function: name of the function.
        columns: column by role.
        stated: arguments by name; ``weight_column`` is removed, as it is a column.
        further: names of arguments that are about something else.

    Raises:
        UserError: no table of columns, an unknown role, or an unknown argument.
    """
    named = dict(table_by_name({} if columns is None else columns, "columns"))
    weight = stated.pop("weight_column", None)
    if weight is not None:
        named["weight"] = weight
    allowed = [*further, *_READING]
    for name in [name for name in stated if name not in allowed]:  # the first one, if any
        raise UserError(f"{function}() has no argument {name!r}: {nearest(name, allowed)}")
    for role in [role for role in named if role not in _ROLES]:
        raise UserError(f"columns: there is no role {role!r}: {nearest(role, _ROLES)}")
    return Reading(named, **{name: stated[name] for name in _READING if name in stated})


class Unmet(NamedTuple):
    """An estimate that misses the requirement.

    Attributes:
        line: reason in one line.
        causes: causes for programs, with the keys of docs/json.md: grave findings, an interval that is not above 0.
    """

    line: str
    causes: list[Record]


_FRAME = ("policy", "estimator", "value", "low", "high", "verdict_level", "role", "leads", "by", "segment")
"""Columns of :meth:`FileAnswer.frame`."""


@dataclass(frozen=True, repr=False)
class FileAnswer:
    """Estimates of target policies from a log file, checked against a requirement.

    As a text it is the sentence and the table of the leading estimates.

    Attributes:
        sentence: summary of the estimates, as data (``sentence.text`` is for people).
        records: one record per policy and estimator, one per difference from the baseline, then those of segments.
        require: the requirement; None without one.
        reasons: one line per estimate that misses the requirement; empty if it is met, or without one.
        warnings: limits of what the requirement can mean.
        files: paths of the log and the other files that were read, by their names for people.
        found: the estimates with notes on how the file was read.
        causes: causes of the reasons for programs, with the keys of docs/json.md.
    """

    sentence: Sentence
    records: list[Record]
    require: str | None
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    files: Mapping[str, Path]
    found: Answer = field(repr=False)
    causes: tuple[Record, ...] = ()

    @property
    def answer(self) -> str:
        """The answer in one word: "better", "worse", "cannot_tell" or another one of docs/json.md."""
        return self.sentence.answer

    @property
    def of_slates(self) -> bool:
        """True if the log is of slates, whose estimators have assumptions on users."""
        return is_of_slates(self.records[0])

    @property
    def met(self) -> bool | None:
        """True if the requirement is met; None without one."""
        if self.require is None:
            return None
        return not self.reasons

    @cached_property
    def stamp(self) -> Mapping[str, object]:
        """Facts about the run for the JSON: schema, files with digests, refused columns, requirement and result.

        The files are read for their digests when this property is first used.
        """
        stamp: dict[str, object] = {"schema": SCHEMA}
        stamp["input"] = [_identity(name, path) for name, path in self.files.items()]
        if self.found.refused or self.found.segments:
            stamp["refused"] = [refusal.to_dict() for refusal in self.found.refused]
        if self.require is not None:
            stamp |= {"required": self.require, "met": self.met, "reasons": list(self.causes)}
        return stamp

    def __repr__(self) -> str:
        lines = [self.sentence.text, *self.reasons]
        for part in (self.found.records, self.found.segments):
            leaders = [record for record in part if record["leads"]]
            lines += ["", *table_lines(leaders)] if leaders else []
        return "\n".join(lines)

    def frame(self) -> pd.DataFrame:
        """Return the records as a data frame; columns of segments are there only if records have them."""
        import pandas as pd

        names = [name for name in _FRAME if any(name in record for record in self.records)]
        return pd.DataFrame([{name: record.get(name) for name in names} for record in self.records])

    def called(self, names: Mapping[str, str]) -> FileAnswer:
        """Return the answer with other names for its files, also in the notes; ``names`` maps old names to new ones."""
        lines = self.found.lines
        for path, name in names.items():
            lines = [line.replace(path, name) for line in lines]
        files = {names.get(name, name): path for name, path in self.files.items()}
        return replace(self, files=files, found=replace(self.found, lines=lines))

    def to_json(self) -> list[Record]:
        """Return the list that ``estimate --json`` writes: the records, each with the short facts about the run.

        The sentence and the long facts are in the first record only.
        """
        stamp = dict(self.stamp)
        in_first: Record = {"sentence": self.sentence.to_dict()}
        in_first |= {name: stamp.pop(name) for name in ("input", "refused", "reasons") if name in stamp}
        records = [{**stamp, **record} for record in self.records]
        records[0] = in_first | records[0]
        return [plain(record) for record in records]


def answer_file(
    table: Any,
    targets: str | Sequence[str] = (),
    *,
    baseline: str | None = None,
    require: str | None = None,
    columns: Mapping[str, str] | None = None,
    metrics: str | os.PathLike[str] | None = None,
    min_rows: int | None = None,
    **stated: Any,
) -> FileAnswer:
    """Estimate from a log file what target policies would have earned: ``recsim-mnar estimate`` as a function.

    Args:
        table: path of a CSV, Parquet or Arrow file, of a folder of such parts, or of a tool's log that the command
            reads; or a table in memory: a data frame of pandas or polars, a relation of duckdb, a table of pyarrow.
        targets: columns, each with a policy's probability of the logged action.
        baseline: such a column, or "today" for the logging policy; None for no comparison.
        require: requirement that :attr:`FileAnswer.met` checks: "trust", "caution" or "better"; None for none.
        columns: column by role (reward, propensity, action, user, time, logger, weight); columns that are left out are
            recognised by their names.
        metrics: path of a second file with users' outcomes, for a table of assignments.
        min_rows: least number of rows; fewer are an error.
        **stated: options of the command by their names. Known facts about the log: propensity_min, weight_max,
            full_support, reward_min, reward_max, precision. Settings of the estimates: estimators, clip, level,
            target_file, on, fit_reward_model, reward_limit, by, refute, weight_column.
            Reading: context, drop_missing, deduplicate, separate_events, drop_invalid, decimal, target_is, fold_case.

    Raises:
        UserError: a file, a column, a value or an argument is wrong; the message has one line.
    """
    questions = [field.name for field in fields(Question) if field.name not in _NOT_ARGUMENTS]
    facts = [field.name for field in fields(Facts) if field.name not in questions] + ["precision"]
    reading = stated_reading("estimate_file", columns, stated, [*questions, *facts])
    stated.setdefault("estimators", default_estimators(stated.get("clip"), bool(stated.get("fit_reward_model"))))
    question = Question(
        [targets] if isinstance(targets, str) else list(targets),
        baseline,
        stated={name: stated[name] for name in facts if name in stated},
        **{name: stated[name] for name in questions if name in stated},
    )
    with as_file(table) as path:
        answer = answer_question(path, question, reading, metrics=metrics, require=require, min_rows=min_rows)
        if is_in_memory(table):
            answer = answer.called({str(path): IN_MEMORY})
        assert answer.stamp  # computes it now, because the file of a table in memory is removed after this block
    return answer


def answer_question(
    path: Path,
    question: Question,
    reading: Reading,
    *,
    metrics: str | os.PathLike[str] | None = None,
    require: str | None = None,
    min_rows: int | None = None,
) -> FileAnswer:
    """Estimate from a log file of any kind, and check the answer against the requirement.

    Args:
        path: path of the log.
        question: policies to estimate, and the settings of the estimates.
        reading: statements about the columns and rows of the file.
        metrics: path of a second file with users' outcomes, for a table of assignments.
        require: "trust", "caution" or "better"; None for no requirement.
        min_rows: least number of rows; fewer are an error.

    Raises:
        UserError: a file, a column, a value or an argument is wrong.
    """
    _check_choices(reading.propensities_of, require)
    exact = not reading.says_more
    second = None if metrics is None else path_of(metrics)
    files = {str(name): path_of(name) for name in (path, question.target_file, metrics) if name is not None}
    with open_tool_log(
        path, columns=reading.columns, fields=reading.context, targets=question.targets, metrics=second
    ) as tool:
        if tool is not None:
            answer = estimate_tool_log(tool, question, reading)
        elif metrics is not None:
            raise UserError(f"--metrics: {path} is no table of assignments. Give the rewards as a column of it")
        else:
            file = TableFile.open(path, reading.decimal)
            answer = _estimate_table(file, question, reading, require, exact=exact)
    _refuse_empty(path, answer.records, min_rows)
    answer = replace(answer, records=without_margins(answer.records), segments=without_margins(answer.segments))
    records = answer.records + answer.segments
    if require == BETTER and not any("baseline" in record for record in records):
        raise UserError(_NO_BASELINE)
    missed = []
    if require is not None:
        missed = [*unmet(require, records), *_unmet_by_refusal(require, answer)]
    return FileAnswer(
        sentence_of(answer.records),
        records,
        require,
        tuple(miss.line for miss in missed),
        tuple(_warnings(require, answer.records)),
        files,
        answer,
        tuple(cause for miss in missed for cause in miss.causes),
    )


def _check_choices(propensities_of: str | None, require: str | None) -> None:
    """Raise UserError for an unknown kind of propensities, or an unknown requirement."""
    if propensities_of not in (None, *SAID):
        raise UserError(f"--propensities-of {propensities_of}: {nearest(str(propensities_of), [*SAID])}")
    if require not in (None, *REQUIREMENTS):
        raise UserError(f"there is no requirement {require!r}: {nearest(str(require), REQUIREMENTS)}")


def _estimate_table(
    file: TableFile, question: Question, reading: Reading, require: str | None, *, exact: bool
) -> Answer:
    """Estimate from a table of slates or of single items.

    Args:
        file: the table.
        question: policies to estimate, and the settings of the estimates.
        reading: statements about the columns and rows of the file.
        require: the requirement; None without one.
        exact: True if the user states nothing about the file, so that a log of this package is read by its own schema.

    Raises:
        UserError: no target; "better" without a baseline; or invalid columns and values.
    """
    if not question.targets and question.target_file is None:
        raise UserError(_without_targets(file, reading), code="no_target")
    if require == BETTER and question.baseline is None:
        raise UserError(_NO_BASELINE)
    if require is not None and (question.fit_reward_model or not reading.context):
        # A pipeline must fail if the column of propensities got lost, and not go on with estimated ones.
        question = replace(question, needs=("propensity",))
    policy_columns = endings_of(question.named, file.names)
    slates = find_slates(file, reading.columns, policy_columns)
    if slates is not None:
        return estimate_slates(slates, question, reading)
    perhaps = perhaps_slates(file, reading.columns, policy_columns)
    exact = exact and not (question.target_file or question.on or question.fit_reward_model) and is_own_schema(file)
    reading = replace(_of_single_items(file.path, question, reading), exact=exact)
    answer = estimate_log(file, question, reading=reading)
    if perhaps is None:
        return answer
    return answer.with_findings([Finding(PERHAPS, CAUTION, 1.0, perhaps.message, perhaps.advice)], first=True)


def estimate_tool_log(tool: ToolLog, question: Question, reading: Reading) -> Answer:
    """Estimate from a tool's log; without targets, the policies in it are compared with the logging policy.

    Args:
        tool: log opened by :func:`recsim_mnar.datasets.tool_logs.open_tool_log`.
        question: policies to estimate, and the settings of the estimates.
        reading: statements about the columns and rows of the log.

    Raises:
        UserError: assignments without rewards, or invalid columns and values.
    """
    if not question.targets and question.target_file is None:
        baseline = question.baseline
        if tool.has_propensities:
            baseline = baseline or "today"
        question = replace(question, targets=tool.policies, baseline=baseline)
    if "reward" not in tool.file.names:
        raise UserError(
            f"{tool.file.path}: assignments without what came of them. Give --metrics FILE, a table with user, "
            "time and, where a row does not count 1, a value"
        )
    columns = {role: name for role, name in reading.columns.items() if name in tool.file.names}
    context = list(dict.fromkeys([*reading.context, *tool.context]))
    reading = replace(reading, columns=columns, context=context, target_is="probability")
    answer = estimate_log(tool.file, question, reading=reading)
    findings = [Finding(damage.code, GRAVE, damage.size, damage.message, damage.advice) for damage in tool.damages]
    return replace(answer.with_findings(findings), lines=[*tool.lines, *answer.lines])


def default_estimators(clip: float | None, fit_reward_model: bool) -> list[str]:
    """Return the default estimators: ips and snips, clipped_ips with a clip, and dr with a fitted reward model."""
    names = Usual(["ips", "snips"])
    if clip:
        names.append("clipped_ips")
    if fit_reward_model:
        names.append("dr")
    return names


def _of_single_items(path: Path, question: Question, reading: Reading) -> Reading:
    """Return the reading without columns of slates; raise UserError for an option that is about slates."""
    options = {"assumption": question.assumption, "propensities-of": reading.propensities_of}
    if question.position_weights != "mean":
        options["position-weights"] = question.position_weights
    for name, value in options.items():
        if value is not None:
            raise UserError(
                f"--{name} {value} is about slates, and {path} has one item per row: name the columns of slates and "
                "positions with --slate-column and --position-column"
            )
    return replace(reading, columns=but_for_slates(reading.columns))


def _without_targets(file: TableFile, reading: Reading) -> str:
    """Return the error message for a missing target, with likely columns and other mistakes of the command line."""
    likely = ",".join(new_policies(file.names))
    names = f" (by their names {likely})" if likely else ""
    further_error = ""
    try:
        BanditLog.open(file, reading=reading)
    except UserError as error:
        further_error = f". {error}"
    return (
        f"name the target policies' columns with --target{names}, or give --target-file FILE --on KEY{further_error}. "
        f"`recsim-mnar doctor {file.path}` prints the line to type"
    )


def _refuse_empty(log: Path, records: Sequence[Record], min_rows: int | None) -> None:
    """Raise UserError if no target can be estimated, or if the log has fewer rows than ``min_rows``.

    Nothing can be estimated from one row, nor if the probability of every target is 0 in all rows.
    """
    targets = [record for record in records if "baseline" not in record]
    if targets and targets[0]["n"] < LEAST_ROWS:
        raise UserError(
            f"{log} has one row that counts: an interval needs two or more; give a longer log", code=TOO_FEW_ROWS
        )
    if targets and all(any(f["code"] == "no_support" for f in record["findings"]) for record in targets):
        names = ", ".join(dict.fromkeys(record["policy"] for record in targets))
        raise UserError(
            f"{log}: {names}: the probability is 0 in every row, so the log says nothing: give the probability of the "
            "logged action, or log with exploration"
        )
    rows = records[0]["n"]
    if min_rows is not None and rows < min_rows:
        few = f"the estimates would rest on {in_rows(rows)}, fewer than --min-rows {min_rows:,}"
        raise UserError(f"{log}: {few}: is the log whole?", code=TOO_FEW_ROWS)


# ------------------------------------------------------------------------------------------------------- requirements


def unmet(require: str, records: Sequence[Record]) -> list[Unmet]:
    """List the leading estimates, also of segments, that miss a requirement.

    The best of several policies must also meet it with the verdict and interval corrected for the choice. "better" is
    about differences only: each must be trusted, and its interval above 0.
    """
    amounts = Amounts.of(records)
    missed = []
    for record in records:
        if not record["leads"] or (require == BETTER and "baseline" not in record):
            continue
        # The corrected verdict comes first, as it is the stricter one.
        reason, causes = _miss(require, record.get("best_of", record), amounts)
        if not reason:
            reason, causes = _miss(require, record, amounts)
        if reason:
            identity: Record = {key: record[key] for key in ("policy", "estimator", "by", "segment") if key in record}
            segment = f"{record['by']} {segment_label(record)}, " if "by" in record else ""
            line = f"--require {require}: {segment}{label(record)}, {record['estimator']}: {reason}"
            missed.append(Unmet(line, [{**identity, **cause} for cause in causes]))
    return missed


def _unmet_by_refusal(require: str, answer: Answer) -> Iterator[Unmet]:
    """Yield an unmet requirement per refused column of segments, whose segments cannot be judged."""
    for refusal in answer.refused:
        yield Unmet(f"--require {require}: {refusal}", [{**refusal.to_dict(), "contradicted": False}])


def _miss(require: str, judged: Mapping[str, Any], amounts: Amounts) -> tuple[str, list[Record]]:
    """Check one estimate against a requirement.

    Args:
        require: the requirement.
        judged: verdict, findings, level and interval of the estimate: a record, or its ``best_of``.
        amounts: format of amounts.

    Returns:
        reason: why the estimate misses the requirement; "" if it meets it.
        causes: each cause of that.
    """
    least = LEVELS.index("trust" if require == BETTER else require)  # levels are ordered from the best
    lines = []
    if LEVELS.index(judged["verdict_level"]) > least:
        lines.append(str(judged["verdict"]))
    causes: list[Record] = []
    for finding in judged["findings"]:
        if LEVELS.index(finding["level"]) > least:
            code = finding["code"]
            causes.append({"code": code, "message": finding["message"], "contradicted": code in CONTRADICTED})
    if require == BETTER and not judged["low"] > 0.0:
        span = amounts.span(judged["low"], judged["high"], " points")
        lines.append(f"the {100.0 * judged['level']:.4g} % interval of the difference, {span}, is not above 0")
        causes.append({"code": NOT_ABOVE_0, "message": lines[-1], "contradicted": False})
    return next(iter(lines), ""), causes


def _warnings(require: str | None, records: Sequence[Record]) -> list[str]:
    """Return a warning if the requirement is only about the logging policy, whose value its own log shows anyway."""
    logging = [record["policy"] for record in records if record["leads"] and record["today"]]
    if require is None or not logging or any("baseline" in record for record in records):
        return []
    return [f"--require {require}: {logging[0]} is the policy that logged, so this says nothing of a new one"]


def _identity(name: str, path: Path) -> Mapping[str, object]:
    """Return name, size and digest of a file, or of a folder.

    The digest of a folder is that of the output of ``sha256sum *`` in it, so that users can compute it. The key
    ``last_line_ends`` is False for a text file that may have been cut, and absent otherwise.
    """
    if path.is_file():
        identity = {"path": name, "bytes": path.stat().st_size, "sha256": file_digest(path)}
        if ends_within_a_line(path):
            identity["last_line_ends"] = False
        return identity
    files = sorted(file for file in log_folder(path).iterdir() if file.is_file() and file.name[0] != ".")
    sums = "".join(f"{file_digest(file)}  {file.name}\n" for file in files)
    size = sum(file.stat().st_size for file in files)
    return {"path": name, "bytes": size, "sha256": hashlib.sha256(sums.encode()).hexdigest()}
