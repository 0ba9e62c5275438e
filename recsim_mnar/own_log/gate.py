"""A question to a log file of any kind, its answer, and whether the answer meets what a pipeline requires."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from recsim_mnar.answers.records import segment_label
from recsim_mnar.answers.sentence import Amounts, Record, Sentence, label, sentence_of
from recsim_mnar.datasets.tool_logs import ToolLog, opened
from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.facts import Facts
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, LEVELS, Finding
from recsim_mnar.own_log.bandit_file import STATED, Reading, but_for_slates
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.blocks import Gather
from recsim_mnar.own_log.estimating import Answer, Question, Usual, estimate_log, is_own_schema
from recsim_mnar.own_log.slate_estimates import endings_of, estimate_slates
from recsim_mnar.own_log.slate_file import PERHAPS, SAID, find_slates, perhaps_slates
from recsim_mnar.protocols.records import plain
from recsim_mnar.runs.files import path_of
from recsim_mnar.runs.receipts import file_digest
from recsim_mnar.tables.files import IN_MEMORY, as_file, is_in_memory
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import new_policies
from recsim_mnar.tables.text import ends_within_a_line
from recsim_mnar.tables.values import in_rows

SCHEMA = 1
"""Of the JSON of an estimate; a change that programs notice raises it."""
BETTER = "better"
REQUIREMENTS = ("trust", "caution", BETTER)
"""What can be required of an answer."""
NOT_ABOVE_0 = "not_above_0"
"""Code of what kept "better" from being met where no finding did: the interval of the difference."""
TOO_FEW_ROWS = "too_few_rows"
LEAST_ROWS = 2
"""Rows that an estimate needs."""
_NO_BASELINE = (
    f"--require {BETTER} needs --baseline: better than what? --baseline today is the policy that logged the rows"
)
_ROLES = ("reward", "propensity", "action", "user", "time", "logger", "weight", "slate", "position")
_READING = ("context", *STATED)
_OWN = ("targets", "stated", "keep_rows", "needs", "interval")
"""Fields of a question that nobody gives by name."""
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
"""Codes of findings by which the log contradicts itself, or what is stated of it: somebody must look."""


class Unmet(NamedTuple):
    """Why one estimate misses what is required: a line, and its causes, one per finding and one of the interval."""

    line: str
    causes: list[Record]


@dataclass(frozen=True)
class FileAnswer:
    """Answers of a log file about target policies, and whether they meet the requirement.

    Attributes:
        sentence: the first sentence, as data (``sentence.text`` is for people).
        records: one per policy and estimator, one per difference from the baseline, then those of segments.
        require: what was required; None for nothing.
        reasons: why that is not met, one line per estimate; empty where it is met, or nothing was required.
        warnings: what the requirement cannot mean.
        files: the log, and the other files that were read, by the name that people know them by.
        found: the estimates with the lines of what was read.
        causes: what keeps the requirement from being met, for programs; keys as in docs/json.md.
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
        """The answer in one word: "better", "worse", "cannot_tell", ...; see docs/json.md."""
        return self.sentence.answer

    @property
    def of_slates(self) -> bool:
        """Return whether the log is of slates, whose estimators assume something of users."""
        return "assumption" in self.records[0]["diagnostics"]

    @property
    def met(self) -> bool | None:
        """Return whether what was required is met; None where nothing was."""
        if self.require is None:
            return None
        return not self.reasons

    @cached_property
    def stamp(self) -> Mapping[str, object]:
        """Identify an answer: schema, files, requirement, whether it is met and why.

        Files are read once more for their digests, when this is first asked for.
        """
        requirement = {}
        if self.require is not None:
            requirement = {"required": self.require, "met": self.met, "reasons": list(self.causes)}
        refused = [refusal.to_dict() for refusal in self.found.refused]
        by = {}
        if refused or self.found.segments:
            by = {"refused": refused}
        return {"schema": SCHEMA, "input": [_identity(*file) for file in self.files.items()], **by, **requirement}

    def called(self, names: Mapping[str, str]) -> FileAnswer:
        """The same answer, with other names for files."""
        lines = self.found.lines
        for path, name in names.items():
            lines = [line.replace(path, name) for line in lines]
        files = {names.get(name, name): path for name, path in self.files.items()}
        return replace(self, files=files, found=replace(self.found, lines=lines))

    def to_json(self) -> list[Record]:
        """The list that ``estimate --json`` writes."""
        stamp = dict(self.stamp)
        begin: dict[str, object] = {"sentence": self.sentence.to_dict()}
        begin |= {name: stamp.pop(name) for name in ("input", "refused", "reasons") if name in stamp}
        first, *other_records = [{**stamp, **record} for record in self.records]
        return [plain(record) for record in ({**begin, **first}, *other_records)]


def answer_file(
    table: Any,
    targets: str | Sequence[str] = (),
    *,
    baseline: str | None = None,
    require: str | None = None,
    columns: Mapping[str, str] | None = None,
    cluster: str | None = None,
    metrics: str | os.PathLike[str] | None = None,
    min_rows: int | None = None,
    **stated: Any,
) -> FileAnswer:
    """Estimate from a log file what target policies would have earned: ``recsim-mnar estimate`` as a function.

    Args:
        table: path of a CSV, Parquet or Arrow file, of a folder of such parts, or of a tool's log that the command
            reads; or a table in memory: a data frame of pandas or polars, a relation of duckdb, a table of pyarrow.
        targets: columns, each a policy's probability of the logged action.
        baseline: such a column, or "today" for the policy that logged.
        require: "trust", "caution" or "better"; see :attr:`FileAnswer.met`.
        columns: by role (reward, propensity, action, user, time, logger, weight) the column; recognised where left out.
        cluster: column that groups dependent rows; None for the users.
        metrics: a second file for tables of assignments.
        min_rows: an error where the estimates would rest on fewer.
        **stated: what is known of the log: propensity_min, weight_max, full_support, reward_min, reward_max, precision;
            estimators, clip, level, target_file, on, fit_reward_model, q_logged, q_target, unsupported, reward_limit,
            by, refute and weight_column, as the options of these names; for how it is read context, drop_missing,
            deduplicate, separate_events, drop_invalid, decimal, target_is and fold_case.

    Raises:
        UserError: for a file, a column, a value or an argument that is wrong, in one line.
    """
    questions = [field.name for field in fields(Question) if field.name not in _OWN]
    facts = [field.name for field in fields(Facts) if field.name not in questions] + ["precision"]
    for name in stated:
        if name not in (*questions, *facts, *_READING, "weight_column"):
            raise UserError(
                f"estimate_file() has no argument {name!r}: {nearest(name, [*questions, *facts, *_READING])}"
            )
    if (weight := stated.pop("weight_column", None)) is not None:
        columns = {**(columns or {}), "weight": weight}
    for role in columns or {}:
        if role not in _ROLES:
            raise UserError(f"columns: there is no role {role!r}: {nearest(role, _ROLES)}")
    stated.setdefault("estimators", default_estimators(stated.get("clip"), bool(stated.get("fit_reward_model"))))
    question = Question(
        [targets] if isinstance(targets, str) else list(targets),
        baseline,
        stated={name: stated[name] for name in facts if name in stated},
        **{name: stated[name] for name in questions if name in stated},
    )
    reading = Reading(dict(columns or {}), **{name: stated[name] for name in _READING if name in stated})
    with as_file(table) as path:
        answer = answer_question(
            path, question, reading, cluster=cluster, metrics=metrics, require=require, min_rows=min_rows
        )
        answer = answer.called({str(path): IN_MEMORY} if is_in_memory(table) else {})
        assert answer.stamp  # of the files as they were read
    return answer


def answer_question(
    path: Path,
    question: Question,
    reading: Reading,
    *,
    cluster: str | None = None,
    metrics: str | os.PathLike[str] | None = None,
    require: str | None = None,
    min_rows: int | None = None,
    gather: Gather | None = None,
) -> FileAnswer:
    """Answer a question to a log file of any kind, and hold the answer against what is required.

    Raises:
        UserError: as :func:`answer_file`.
    """
    if reading.propensities_of not in (None, *SAID):
        raise UserError(
            f"--propensities-of {reading.propensities_of}: {nearest(str(reading.propensities_of), [*SAID])}"
        )
    if require not in (None, *REQUIREMENTS):
        raise UserError(f"there is no requirement {require!r}: {nearest(str(require), REQUIREMENTS)}")
    recognised = reading.says_more
    if cluster is not None:
        reading = replace(reading, columns={**reading.columns, "user": cluster})
    second = None
    if metrics is not None:
        second = path_of(metrics)
    files = {str(name): path_of(name) for name in (path, question.target_file, metrics) if name is not None}
    with opened(
        path, columns=reading.columns, fields=reading.context, targets=question.targets, metrics=second
    ) as tool:
        if tool is not None:
            answer = estimate_tool_log(tool, question, reading, gather)
        elif metrics is not None:
            raise UserError(f"--metrics: {path} is no table of assignments. Give the rewards as a column of it")
        else:
            answer = _estimate_table(
                TableFile.open(path, reading.decimal), question, reading, require, gather, exact=not recognised
            )
    _refuse_empty(path, answer.records)
    rows = answer.records[0]["n"]
    if min_rows is not None and rows < min_rows:
        few = f"the estimates would rest on {in_rows(rows)}, fewer than --min-rows {min_rows:,}"
        raise UserError(f"{path}: {few}: is the log whole?", code=TOO_FEW_ROWS)
    records = answer.records + answer.segments
    if require == BETTER and not any("baseline" in record for record in records):
        raise UserError(_NO_BASELINE)
    missed = []
    if require is not None:
        missed = [*unmet(require, records), *_refused(require, answer)]
    reasons = tuple(miss.line for miss in missed)
    causes = tuple(cause for miss in missed for cause in miss.causes)
    sentence = sentence_of(answer.records)
    warnings = tuple(_warnings(require, answer.records))
    return FileAnswer(sentence, records, require, reasons, warnings, files, answer, causes)


def _estimate_table(
    file: TableFile, question: Question, reading: Reading, require: str | None, gather: Gather | None, *, exact: bool
) -> Answer:
    """The estimates of a table: of slates, or of single items; ``exact`` where it may be read as our own logs are."""
    if not question.targets and question.target_file is None:
        raise UserError(_without_targets(file, reading), code="no_target")
    if require == BETTER and question.baseline is None:
        raise UserError(_NO_BASELINE)
    if require is not None and (question.fit_reward_model or not reading.context):
        question = replace(question, needs=("propensity",))  # a column that got lost is no doubtful estimate
    policies = [*question.targets, *([question.baseline] if question.baseline else [])]
    leave = endings_of(policies, file.names)
    slates = find_slates(file, reading.columns, leave)
    if slates is not None:
        return estimate_slates(slates, question, reading)
    perhaps = perhaps_slates(file, reading.columns, leave)
    exact = exact and not any((question.target_file, question.on, question.fit_reward_model)) and is_own_schema(file)
    reading = replace(_of_single_items(file.path, question, reading), exact=exact)
    answer = estimate_log(file, question, reading=reading, gather=gather)
    if perhaps is None:
        return answer
    return answer.with_findings([Finding(PERHAPS, CAUTION, 1.0, perhaps.message, perhaps.advice)], first=True)


def estimate_tool_log(tool: ToolLog, question: Question, reading: Reading, gather: Any = None) -> Answer:
    """Estimates of a tool's log; without targets, of its own policies against the one that logged.

    Args:
        tool: as :func:`recsim_mnar.datasets.tool_logs.opened` gives it.
        question: as :func:`recsim_mnar.own_log.estimating.estimate_log`.
        reading: likewise.
        gather: likewise.

    Raises:
        UserError: likewise.
    """
    if not question.targets and question.target_file is None:
        today = None
        if tool.has_propensities:
            today = "today"
        question = replace(question, targets=tool.policies, baseline=question.baseline or today)
    if "reward" not in tool.file.names:
        raise UserError(
            f"{tool.file.path}: assignments without what came of them. Give --metrics FILE, a table with user, "
            "time and, where a row does not count 1, a value"
        )
    columns = {role: name for role, name in reading.columns.items() if name in tool.file.names}
    context = [*reading.context, *(name for name in tool.context if name not in reading.context)]
    reading = replace(reading, columns=columns, context=context, target_is="probability")
    answer = estimate_log(tool.file, question, reading=reading, gather=gather)
    findings = [Finding(damage.code, GRAVE, damage.size, damage.message, damage.advice) for damage in tool.damages]
    return replace(answer.with_findings(findings), lines=[*tool.lines, *answer.lines])


def default_estimators(clip: float | None, fit_reward_model: bool) -> list[str]:
    """Estimators where none are named: those without clipping bias, and those that other options are for."""
    return Usual(["ips", "snips", *(["clipped_ips"] if clip else []), *(["dr"] if fit_reward_model else [])])


def _of_single_items(path: Path, question: Question, reading: Reading) -> Reading:
    """The reading without what is about slates; UserError where something is said of these."""
    stated_options = {"assumption": question.assumption, "propensities-of": reading.propensities_of}
    if question.position_weights == "mean":
        stated_options["position-weights"] = None
    else:
        stated_options["position-weights"] = question.position_weights
    for name, value in stated_options.items():
        if value is not None:
            raise UserError(
                f"--{name} {value} is about slates, and {path} has one item per row: name the columns of slates and "
                "positions with --slate-column and --position-column"
            )
    return replace(reading, columns=but_for_slates(reading.columns))


def _without_targets(file: TableFile, reading: Reading) -> str:
    """Say that no target is named, and what else the line lacks."""
    likely = new_policies(file.names)
    lacks = ""
    try:
        BanditLog.open(file, reading=reading)
    except UserError as error:
        lacks = f". {error}"
    names = ""
    if likely:
        names = f" (by their names {','.join(likely)})"
    return (
        f"name the target policies' columns with --target{names}, or give --target-file FILE --on KEY{lacks}. "
        f"`recsim-mnar doctor {file.path}` prints the line to type"
    )


def _refuse_empty(log: Path, records: Sequence[Record]) -> None:
    """Raise UserError if the log cannot say anything about any target."""
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


# ------------------------------------------------------------------------------------------------------- requirements


def unmet(require: str, records: Sequence[Record]) -> list[Unmet]:
    """Why a requirement is not met: a line per leading estimate, of a segment too, that misses it.

    Of the best of several policies the verdict and the interval corrected for the choice count, too. "better" is about
    differences alone: each must be trusted, and its interval above 0.
    """
    judged = [record for record in records if record["leads"] or "by" in record]
    if require == BETTER:
        judged = [record for record in judged if "baseline" in record]
    amounts = Amounts.of(records)
    lines = []
    for record in judged:
        miss, causes = next(
            filter(
                None,
                (
                    _misses(require, record_to_meet, amounts)
                    for record_to_meet in (record.get("best_of", record), record)
                ),
            ),
            ("", []),
        )
        if miss:
            whose: Record = {name: record[name] for name in ("policy", "estimator", "by", "segment") if name in record}
            where = ""
            if "by" in record:
                where = f"{record['by']} {segment_label(record)}, "
            line = f"--require {require}: {where}{label(record)}, {record['estimator']}: {miss}"
            lines.append(Unmet(line, [{**whose, **cause} for cause in causes]))
    return lines


def _refused(require: str, estimates: Answer) -> Iterator[Unmet]:
    """A column of segments that is refused: what was required of each of them cannot be met."""
    for refusal in estimates.refused:
        yield Unmet(f"--require {require}: {refusal}", [{**refusal.to_dict(), "contradicted": False}])


def _misses(require: str, judged: Mapping[str, Any], amounts: Amounts) -> tuple[str, list[Record]] | None:
    """Why one verdict with its interval misses a requirement, and each cause by itself; None where it meets it."""
    least = LEVELS.index("trust" if require == BETTER else require)
    lines = []
    if LEVELS.index(judged["verdict_level"]) > least:
        lines = [str(judged["verdict"])]
    against = [finding for finding in judged["findings"] if LEVELS.index(finding["level"]) > least]
    causes: list[Record] = [
        {"code": candidate["code"], "message": candidate["message"], "contradicted": candidate["code"] in CONTRADICTED}
        for candidate in against
    ]
    if require == BETTER and not judged["low"] > 0.0:
        span = amounts.span(judged["low"], judged["high"], " points")
        lines.append(f"the {100.0 * judged['level']:.4g} % interval of the difference, {span}, is not above 0")
        causes.append({"code": NOT_ABOVE_0, "message": lines[-1], "contradicted": False})
    if lines:
        return (lines[0], causes)
    return None


def _warnings(require: str | None, records: Sequence[Record]) -> list[str]:
    """Warn of requirements without meaning: the policy that logged is known from its own log."""
    own_policies = [record["policy"] for record in records if record["leads"] and record["today"]]
    if require is None or not own_policies or any("baseline" in record for record in records):
        return []
    return [f"--require {require}: {own_policies[0]} is the policy that logged, so this says nothing of a new one"]


def _identity(name: str, path: Path) -> Mapping[str, object]:
    """Name, size and digest of a file; of a folder the digest of what ``sha256sum *`` prints in it.

    ``last_line_ends`` is false of a text file that may have been cut, and absent otherwise.
    """
    if path.is_file():
        ending = {}
        if ends_within_a_line(path):
            ending = {"last_line_ends": False}
        return {"path": name, "bytes": path.stat().st_size, "sha256": file_digest(path), **ending}
    folder = path
    if (path / "log").is_dir():
        folder = path / "log"
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name[0] != ".")
    listed = "".join(f"{file_digest(file)}  {file.name}\n" for file in files)
    size = sum(file.stat().st_size for file in files)
    return {"path": name, "bytes": size, "sha256": hashlib.sha256(listed.encode()).hexdigest()}
